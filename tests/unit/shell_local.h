/* A shell host for tests: commands run here, in a directory, with the shell and tools that were asked for. */
#ifndef TESTS_SHELL_LOCAL_H
#define TESTS_SHELL_LOCAL_H

#include "provider/shellfs.h"

struct local {
	struct shell_host host;
	const char *shell; /* what /bin/sh is */
	const char *path;  /* PATH */
	unsigned commands;
	unsigned running;

	void (*before)(unsigned number); /* each command, from 1; may be NULL */

	/* Mishaps, of the command of that number (from 1). */
	unsigned cut_at;  /* its output ends ... */
	size_t cut_bytes; /* ... after so many bytes */
	unsigned
		cut_input_at; /* its input ends after the first piece, as when a connection breaks */
	unsigned fail_at;     /* it can't be run */
	unsigned gone_at;   /* the environment ends under it, once it has said something or ended */
	size_t input_piece; /* input() takes at most so much at once; 0: any */
};

void local_init(struct local *l, struct loop *loop, const char *work_dir);

#endif
