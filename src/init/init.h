/*
 * Pid 1 of a session as a function: the engine calls it in the child that has
 * built the session (or garret-init calls it after exec).  It never returns.
 */
#ifndef INIT_INIT_H
#define INIT_INIT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/init.h"

struct init_params {
	int listen_fd;    /* listening SEQPACKET socket, or -EBADF */
	int conn_fd;      /* the only connection (init ends when it closes), or -EBADF */
	int cgroup_fd;    /* O_PATH, the session's directory in a cgroup2 hierarchy, or -EBADF */
	int v1_memory_fd; /* O_PATH or O_RDONLY of a file that counts OOM kills, or -EBADF */
	uint32_t run_uid, run_gid; /* of the main user, inside */
	/* RLIMIT_NPROC of runs, 0: none.  For sessions whose runs are all of one user that is
	 * nobody else's.  INIT_PROCESSES may change it up to the maximum. */
	uint32_t run_processes, max_run_processes;
	bool run_filter; /* each run adds a filter that answers clone3 and openat2 with ENOSYS */
	bool files_only; /* no runs: only files are looked at */
	/*
	 * In a container (init/serve.h): SIGTERM ends us, processes that came in from outside
	 * are not the session's, spool files are made in spool_fd.
	 */
	bool container;
	int spool_fd;
	bool (*admit)(int conn); /* NULL: whoever can connect may */
	uint8_t nonce[INIT_NONCE];
	const char *work_dir;   /* inside */
	const char *const *env; /* NAME=VALUE, NULL-terminated: the session's environment */
};

void init_main(const struct init_params *p) __attribute__((noreturn));

/* The environment of every session (the published list, PATH, HOME, USER). */
extern const char *const init_base_env[];

#endif
