/*
 * The part of a start that runs in the child.  It shares init's memory until
 * its exec (CLONE_VM), so it must not touch anything but its plan: no libc call
 * that writes errno, no allocation, no stack protector, no sanitizer.
 */
#ifndef INIT_CHILD_H
#define INIT_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct child_plan {
	int stdio[3];  /* negative: /dev/null */
	int ready_fd;  /* close-on-exec end of the pipe whose end of file says "memory is free" */
	bool terminal; /* stdio[0] becomes the controlling terminal */
	bool filter;
	uint32_t uid, gid;
	uint64_t nofile_soft, nofile_hard;
	uint64_t processes; /* 0: as it is */
	const char *cwd;
	const char *path; /* of the run's own environment */
	char **argv;      /* argv[-1] is writable too: the place for /bin/sh */
	char **envp;

	/* Written by the child. */
	volatile uint32_t born; /* it reached its first instruction */
	volatile uint32_t step; /* enum init_step; 0 while nothing failed */
	volatile uint32_t sys;
};

/* struct clone_args of the kernel, up to cgroup (version 2). */
struct child_clone {
	uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
		set_tid_size, cgroup;
};

/* Runs in the child on its own stack. */
void child_main(void *plan) __attribute__((noreturn));

/*
 * clone3 and call fn(arg) in the child on the stack given in args.  Returns
 * like the system call: the pid, or -errno; errno is left alone.
 */
long child_clone3(const struct child_clone *args, size_t size, void (*fn)(void *), void *arg);
/* The older call, on a stack that ends at `top`. */
long child_clone(uint64_t flags, void *top, void (*fn)(void *), void *arg);

#endif
