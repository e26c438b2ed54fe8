/*
 * attack: runs inside a session as its main user and tries to get out, one function
 * a row.  What is expected stands in attack.py: the program only tells.
 */
#ifndef ATTACK_H
#define ATTACK_H

#include <stdbool.h>
#include <sys/types.h>

/* Numbers up to 87 are those of the engine's first study; what follows came later. */
struct attack_row {
	int number; /* 0 ends a table */
	const char *name;
	void (*fn)(void); /* in a process of its own */
};

extern const struct attack_row attack_self_rows[], attack_kernel_rows[], attack_host_rows[];

/* Of the host, as the test knows it. */
struct attack_host {
	int pid;
	const char *path;
	key_t shm_key;
	int first_fd; /* a descriptor above 2 that we were born with, or -1 */
};

extern struct attack_host attack_host;

/* The outcome of a call that must fail; false when it didn't.  The first errno is kept. */
bool held(long rc);
void held_error(int sys);
/* What the row's errno is, when the first one doesn't say it. */
void held_as(int sys);
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reading (writing) must fail or do nothing, because the file is masked. */
void read_nothing(const char *path);
void write_nothing(const char *path, const char *text);
/* A new file of ours in the current directory. */
int scratch(const char *name);

#endif
