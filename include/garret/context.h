/* A context: what is shared by everything that is made from it. */
#ifndef GARRET_CONTEXT_H
#define GARRET_CONTEXT_H

#include <stddef.h>

#include "garret/error.h"

struct garret_context;
struct garret_cancel;

/*
 * Every options struct begins with its size: set it to sizeof(it).  Fields are only ever added
 * at the end; a program that was built with an older header gets their defaults.  A size that
 * this library doesn't know is MISUSE.
 */
struct garret_context_options {
	size_t size;
	/*
	 * The directory of garret-engine and garret-init; NULL: the variable GARRET_PROGRAM_DIR,
	 * or as the library was built.
	 */
	const char *program_dir;
};

/* options may be NULL.  No I/O but to make an epoll descriptor. */
GARRET_PUBLIC int garret_context_new(const struct garret_context_options *options,
				     struct garret_context **ret, struct garret_error *err);
/*
 * Free it when nothing uses it any more: providers, workspaces and runs first.  Environments
 * stay; only in native ones without a name the processes end (see
 * garret-providers(7)).  Returns NULL; NULL is fine.  What was given up while it opened is
 * waited for, at most ten seconds; what is still there then is MISUSE and stays.
 */
GARRET_PUBLIC struct garret_context *garret_context_free(struct garret_context *c);

/*
 * For a program with a loop of its own: a descriptor (borrowed) that is readable when
 * garret_context_dispatch() has something to do.  Neither blocks.
 */
GARRET_PUBLIC int garret_context_fd(struct garret_context *c);
GARRET_PUBLIC int garret_context_dispatch(struct garret_context *c, struct garret_error *err);

/*
 * Giving up from elsewhere.  A cancel belongs to a context; a handle that carries it
 * (garret_workspace_set_cancel()) gives up what it is waiting for once garret_cancel() was
 * called, and every later call, with CANCELLED, until garret_cancel_reset().  What was begun is
 * stopped: a command as by garret_run_stop(), a transfer leaves the old file.
 */
GARRET_PUBLIC int garret_cancel_new(struct garret_context *c, struct garret_cancel **ret,
				    struct garret_error *err);
/* May be called from any thread and from a signal handler. */
GARRET_PUBLIC void garret_cancel(struct garret_cancel *cancel);
GARRET_PUBLIC void garret_cancel_reset(struct garret_cancel *cancel);
/* When no handle carries it any more.  Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_cancel *garret_cancel_free(struct garret_cancel *cancel);

#endif
