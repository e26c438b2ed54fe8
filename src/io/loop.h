/*
 * The event loop: epoll, timers, signals, children.  One thread, no sleeping.
 *
 * Sources are owned by whoever added them and live in the owner's memory; a
 * source may be removed at any time, also from inside its own callback, and
 * is never called after it was removed.
 */
#ifndef IO_LOOP_H
#define IO_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "base/error.h"

struct loop;

/* A descriptor (borrowed) that is watched. */
struct loop_io {
	int fd; /* -EBADF while not added */
	void (*fn)(struct loop_io *io, uint32_t events);
	void *ctx;
	struct loop *loop;
	struct loop_io **slot; /* where the current round holds it, or NULL */
};

/* A moment on CLOCK_MONOTONIC. */
struct loop_timer {
	uint64_t at_ms;
	void (*fn)(struct loop_timer *t);
	void *ctx;
	struct loop *loop;
	uint32_t index; /* 1 + place in the heap; 0 while not set */
};

/* Work for the end of the current round (once; never before the caller returned). */
struct loop_later {
	void (*fn)(struct loop_later *l);
	void *ctx;
	struct loop_later *next;
	bool queued;
};

int loop_new(struct loop **ret, struct garret_error *err);
struct loop *loop_free(struct loop *l); /* NULL is fine; returns NULL */

/* Run until loop_quit(); returns what it was given. */
int loop_run(struct loop *l);
void loop_quit(struct loop *l, int status);

/*
 * For a loop that is entered round by round: one round, which waits at most wait_ms (-1: as
 * long as it takes) for something to do.  idle (may be NULL) is called with true before it
 * waits and with false behind that: between the two other threads may use the loop, if they
 * exclude each other, and wake it when what they did is to be looked at.
 */
void loop_once(struct loop *l, int wait_ms, void (*idle)(void *ctx, bool idle), void *ctx);
/* Readable when there is something for loop_once() to do; but see loop_next(). */
int loop_fd(const struct loop *l);
/* Milliseconds until the next timer is due or something else is to be done; -1: none. */
int loop_next(const struct loop *l);

int loop_io_add(struct loop *l, struct loop_io *io, int fd, uint32_t events,
		void (*fn)(struct loop_io *, uint32_t), void *ctx, struct garret_error *err);
void loop_io_mod(struct loop_io *io, uint32_t events);
void loop_io_remove(struct loop_io *io); /* safe on one that isn't added (fd < 0) */

/* Set or move; a moment in the past fires in the next round. */
void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at_ms,
		    void (*fn)(struct loop_timer *), void *ctx);
void loop_timer_clear(struct loop_timer *t);

void loop_later_add(struct loop *l, struct loop_later *later, void (*fn)(struct loop_later *),
		    void *ctx);
void loop_later_cancel(struct loop *l, struct loop_later *later);

/* Block SIGNO and have fn called for it (signalfd). One fn per signal. */
int loop_signal(struct loop *l, int signo, void (*fn)(void *ctx, int signo), void *ctx,
		struct garret_error *err);

#endif
