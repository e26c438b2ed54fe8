#include "lib/context.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/time.h"
#include "garret/garret.h"
#include "lib/kind.h"
#include "lib/options.h"

const char *garret_version(void)
{
	return GARRET_VERSION;
}

#define OPENINGS_MS 10000

static void drain(struct loop_io *io, uint32_t events)
{
	uint64_t n;

	(void)events;
	(void)!read(io->fd, &n, sizeof(n)); /* whoever reads first has read it for all */
}

static void wake(int fd)
{
	const uint64_t one = 1;

	(void)!write(fd, &one, sizeof(one)); /* full: it is awake */
}

static int make_descriptors(struct garret_context *c, struct garret_error *err)
{
	int rc;

	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake_fd < 0)
		return garret_fail_errno(err, "eventfd");
	c->clock_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (c->clock_fd < 0)
		return garret_fail_errno(err, "timerfd");
	rc = loop_io_add(c->loop, &c->wake_io, c->wake_fd, EPOLLIN, drain, c, err);
	if (rc == 0)
		rc = loop_io_add(c->loop, &c->clock_io, c->clock_fd, EPOLLIN, drain, c, err);
	return rc;
}

static void context_release(struct garret_context *c)
{
	/* A child of fork() has the parent's epoll, and locks that threads of the parent held. */
	if (c->pid == getpid()) {
		loop_io_remove(&c->wake_io);
		loop_io_remove(&c->clock_io);
		(void)pthread_cond_destroy(&c->changed);
		(void)pthread_mutex_destroy(&c->lock);
	}
	fd_close(c->wake_fd);
	fd_close(c->clock_fd);
	loop_free(c->loop);
	free(c->program_dir);
	free(c);
}

static const char *program_dir(const struct garret_context_options *o)
{
	const char *dir = o->program_dir ? o->program_dir : secure_getenv("GARRET_PROGRAM_DIR");

	return dir && *dir ? dir : GARRET_PROGRAM_DIR;
}

int garret_context_new(const struct garret_context_options *options, struct garret_context **ret,
		       struct garret_error *err)
{
	struct garret_context_options o = { 0 };
	struct garret_context *c;
	pthread_condattr_t attr;
	int rc = options ? sized_copy(&o, sizeof(o), options, options->size, err) : 0;

	*ret = NULL;
	if (rc < 0)
		return rc;
	c = xnew(struct garret_context);
	c->wake_fd = c->clock_fd = c->wake_io.fd = c->clock_io.fd = -EBADF;
	c->pid = getpid();
	c->program_dir = xstrdup(program_dir(&o));
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&c->changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	rc = loop_new(&c->loop, err);
	if (rc == 0)
		rc = make_descriptors(c, err);
	if (rc < 0) {
		context_release(c);
		return rc;
	}
	*ret = c;
	return 0;
}

/* What was given up while it opened holds its provider until it is open. */
static void await_openings(struct garret_context *c)
{
	const uint64_t until = now_ms() + OPENINGS_MS;

	if (context_enter(c, NULL) < 0)
		return;
	while (c->users && c->openings && now_ms() < until) {
		bool done = false;

		(void)context_wait(c, &done, NULL, now_ms() + 20, NULL);
	}
	context_leave(c);
}

struct garret_context *garret_context_free(struct garret_context *c)
{
	if (c && c->users)
		await_openings(c);
	if (!c || (c->users && c->pid == getpid()))
		return c;
	context_release(c);
	return NULL;
}

int context_enter(struct garret_context *c, struct garret_error *err)
{
	/* The loop's descriptors, and with them the engine's ear, are shared with the parent. */
	if (c->pid != getpid())
		return garret_fail(err, GARRET_MISUSE,
				   "this context was made before fork(): make another one");
	(void)pthread_mutex_lock(&c->lock);
	return 0;
}

void context_leave(struct garret_context *c)
{
	/* What was begun may have set a timer, or work for the end of the round. */
	if (c->waiting)
		wake(c->wake_fd);
	(void)pthread_mutex_unlock(&c->lock);
}

static void on_idle(void *ctx, bool idle)
{
	struct garret_context *c = ctx;

	if (idle) {
		c->waiting = true;
		(void)pthread_mutex_unlock(&c->lock);
	} else {
		(void)pthread_mutex_lock(&c->lock);
		c->waiting = false;
	}
}

static void lead(struct garret_context *c, int wait_ms)
{
	c->leading = true;
	loop_once(c->loop, wait_ms, on_idle, c);
	c->leading = false;
	(void)pthread_cond_broadcast(&c->changed);
	while (c->ended) {
		struct garret_provider *p = c->ended;

		c->ended = p->next_ended;
		provider_end(p);
	}
}

bool context_in_round(const struct garret_context *c)
{
	return c->leading && !c->waiting;
}

/* Until the thread in the loop has done a round; begun: it is to see what this one has begun. */
static void follow(struct garret_context *c, bool begun, uint64_t until_ms)
{
	struct timespec at = { .tv_sec = (time_t)(until_ms / 1000),
			       .tv_nsec = (long)(until_ms % 1000) * 1000000 };

	if (begun && c->waiting)
		wake(c->wake_fd);
	if (until_ms)
		(void)pthread_cond_timedwait(&c->changed, &c->lock, &at);
	else
		(void)pthread_cond_wait(&c->changed, &c->lock);
}

static int wait_ms(uint64_t until_ms)
{
	const uint64_t now = now_ms();

	if (!until_ms)
		return -1;
	return until_ms <= now ? 0 : (int)MIN(until_ms - now, (uint64_t)60000);
}

int context_wait_for(struct garret_context *c, bool (*done)(const void *ctx), const void *ctx,
		     const struct garret_cancel *cancel, uint64_t until_ms,
		     struct garret_error *err)
{
	/* Only once: two that wait would wake each other for ever. */
	bool begun = true;

	while (!done(ctx)) {
		if (cancel_asked(cancel))
			return garret_fail(err, GARRET_CANCELLED, "cancelled");
		if (until_ms && now_ms() >= until_ms)
			return garret_fail(err, GARRET_TIMEOUT, "the time limit was reached");
		if (c->leading)
			follow(c, begun, until_ms);
		else
			lead(c, wait_ms(until_ms));
		begun = false;
	}
	return 0;
}

static bool is_true(const void *ctx)
{
	const bool *done = ctx;

	return *done;
}

int context_wait(struct garret_context *c, const bool *done, const struct garret_cancel *cancel,
		 uint64_t until_ms, struct garret_error *err)
{
	return context_wait_for(c, is_true, done, cancel, until_ms, err);
}

void context_turn(struct garret_context *c)
{
	if (!c->leading)
		lead(c, 0);
}

int garret_context_fd(struct garret_context *c)
{
	return loop_fd(c->loop);
}

static void set_clock(struct garret_context *c)
{
	const int next = loop_next(c->loop);
	struct itimerspec at = { 0 };

	if (next >= 0) {
		at.it_value.tv_sec = next / 1000;
		/* 0 would switch it off */
		at.it_value.tv_nsec = next % 1000 ? (long)(next % 1000) * 1000000 : 1;
	}
	(void)timerfd_settime(c->clock_fd, 0, &at, NULL);
}

int garret_context_dispatch(struct garret_context *c, struct garret_error *err)
{
	int rc = context_enter(c, err);

	if (rc < 0)
		return rc;
	context_turn(c);
	set_clock(c);
	context_leave(c);
	return 0;
}

/* ---- cancelling ---- */

int garret_cancel_new(struct garret_context *c, struct garret_cancel **ret,
		      struct garret_error *err)
{
	struct garret_cancel *cancel;
	int rc = context_enter(c, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	cancel = xnew(struct garret_cancel);
	cancel->context = c;
	cancel->wake_fd = c->wake_fd;
	c->users++;
	context_leave(c);
	*ret = cancel;
	return 0;
}

void garret_cancel(struct garret_cancel *cancel)
{
	const int saved = errno;

	atomic_store(&cancel->asked, true);
	wake(cancel->wake_fd);
	errno = saved;
}

void garret_cancel_reset(struct garret_cancel *cancel)
{
	atomic_store(&cancel->asked, false);
}

bool cancel_asked(const struct garret_cancel *cancel)
{
	return cancel && atomic_load(&cancel->asked);
}

struct garret_cancel *garret_cancel_free(struct garret_cancel *cancel)
{
	if (!cancel)
		return NULL;
	if (context_enter(cancel->context, NULL) == 0) {
		cancel->context->users--;
		context_leave(cancel->context);
	}
	free(cancel);
	return NULL;
}
