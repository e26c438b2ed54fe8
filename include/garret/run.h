/* Commands in a workspace. */
#ifndef GARRET_RUN_H
#define GARRET_RUN_H

#include <math.h>

#include "garret/workspace.h"

struct garret_run;

#define GARRET_OUTPUT_MAX (10u << 20) /* of both streams together, when none is given */
#define GARRET_PREVIEW (64u << 10)    /* of each stream that a time-out or limit leaves */

/* Exactly one of argv and shell. */
struct garret_run_options {
	size_t size;
	const char *const *argv; /* NULL-terminated, taken literally */
	const char *shell;       /* for /bin/sh -c */
	const char *const *env;  /* "NAME=VALUE" over the provider's own; NULL */
	const char *cwd;         /* NULL: the working directory */
	double timeout;          /* seconds, finite, above 0; 0: none */
	uint64_t output_limit;   /* bytes; 0: GARRET_OUTPUT_MAX */
	const void *input;       /* for standard input; NULL and 0: it is at its end */
	size_t input_bytes;
	bool feed; /* standard input comes by garret_run_write(); not with `input` */
};

/* Raw bytes, with a NUL behind the last. */
struct garret_result {
	int exit_code; /* as a shell has it: 128 + N when a signal ended it; -1: it has none */
	uint8_t *out, *err;
	size_t out_bytes, err_bytes;
	uint64_t limit;      /* of an OUTPUT_LIMIT, in bytes */
	unsigned background; /* processes that were left running, where that is known */
};
GARRET_PUBLIC void garret_result_release(struct garret_result *r);
/* The bytes as UTF-8, with U+FFFD for what is none; malloc()ed. */
GARRET_PUBLIC char *garret_text(const void *data, size_t n);

/*
 * Run a command to its end.  An exit code other than 0 is no failure.  TIMEOUT, OUTPUT_LIMIT
 * and CANCELLED leave the beginning of both streams in *ret; release it in any case.
 *
 * It returns when the command itself has ended: a process in the background that holds its
 * output delays that by a moment only.  What made a session of its own (setsid) is never
 * stopped.  TYPE for both or neither of argv and shell, INVALID for an empty argv or a time-out
 * that is none.
 */
GARRET_PUBLIC int garret_run(struct garret_workspace *w, const struct garret_run_options *options,
			     struct garret_result *ret, struct garret_error *err);

/* ---- step by step ---- */

/* Begin it.  Blocks only to open the environment and to look at cwd. */
GARRET_PUBLIC int garret_run_start(struct garret_workspace *w,
				   const struct garret_run_options *options,
				   struct garret_run **ret, struct garret_error *err);
/* Has it ended?  Looks once, without blocking. */
GARRET_PUBLIC bool garret_run_ended(struct garret_run *r);
/*
 * The next bytes of its output (stream 1 or 2) that have come: 0: none at the moment, or its end
 * when garret_run_ended() said so before.  Doesn't block.
 */
GARRET_PUBLIC ssize_t garret_run_read(struct garret_run *r, int stream, void *buf, size_t n,
				      struct garret_error *err);
/* Give it input (n 0: the end of it).  UNSUPPORTED where commands have none. */
GARRET_PUBLIC int garret_run_write(struct garret_run *r, const void *data, size_t n,
				   struct garret_error *err);
GARRET_PUBLIC int garret_run_signal(struct garret_run *r, int signo, struct garret_error *err);
/* TERM, after grace KILL, to all of its session.  Doesn't block. */
GARRET_PUBLIC void garret_run_stop(struct garret_run *r, double grace);
/*
 * Until it has ended, or for `timeout` seconds (INFINITY: as long as it takes; 0: look once):
 * 1: it hasn't.  0 or -code as garret_run(), with all of its output in *ret.
 */
GARRET_PUBLIC int garret_run_wait(struct garret_run *r, double timeout, struct garret_result *ret,
				  struct garret_error *err);
/* One that runs is stopped.  Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_run *garret_run_free(struct garret_run *r);

#endif
