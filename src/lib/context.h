/*
 * The context inside: one loop, one lock.  Whoever waits enters the loop for everybody, and
 * leaves it when what it waited for is there; then the next waiter enters it.  The lock is
 * held everywhere but while the loop waits for descriptors.
 */
#ifndef LIB_CONTEXT_H
#define LIB_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "garret/context.h"
#include "io/loop.h"

struct garret_context {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a round of the loop is over */
	struct loop *loop;
	struct loop_io wake_io, clock_io;
	int wake_fd;  /* eventfd: the loop has something new to look at */
	int clock_fd; /* timerfd: makes garret_context_fd() readable when a timer is due */
	bool leading; /* somebody is in the loop */
	bool waiting; /* and waits, without the lock */
	pid_t pid;    /* that made it */
	unsigned users;
	unsigned openings;             /* that go on, whether somebody waits for them or not */
	struct garret_provider *ended; /* in a round of the loop: they end behind it */
	char *program_dir;
};

struct garret_cancel {
	struct garret_context *context;
	int wake_fd; /* the context's, for the signal handler */
	atomic_bool asked;
};

/* Take the lock; MISUSE (and no lock) in a child of the process that made it. */
int context_enter(struct garret_context *c, struct garret_error *err);
void context_leave(struct garret_context *c);
/*
 * Until *done, with the lock held before and behind: 0; CANCELLED when cancel (may be NULL) was
 * asked, TIMEOUT at until_ms (0: never).
 */
int context_wait(struct garret_context *c, const bool *done, const struct garret_cancel *cancel,
		 uint64_t until_ms, struct garret_error *err);
int context_wait_for(struct garret_context *c, bool (*done)(const void *ctx), const void *ctx,
		     const struct garret_cancel *cancel, uint64_t until_ms,
		     struct garret_error *err);
/* Are we called by the loop?  Then nothing may be waited for. */
bool context_in_round(const struct garret_context *c);
/* One round that doesn't wait. */
void context_turn(struct garret_context *c);
bool cancel_asked(const struct garret_cancel *cancel); /* NULL: no */

#endif
