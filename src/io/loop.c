/*
 * A round is: wait for descriptors no longer than the next timer; call what is
 * ready; call timers that are due; call what was put off until later.
 *
 * A ready source may be removed by an earlier callback of the same round.  So
 * the round keeps its ready sources in an array, each source knows its place
 * there, and removing it empties the place.
 */
#include "io/loop.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"

#define ROUND_MAX 64 /* enough to amortise epoll_wait, small enough to stay fair */
#define SIGNALS_MAX 8
#define REMOVED_MAX 256

struct loop {
	int epoll_fd;
	bool quit;
	int status;

	struct loop_timer **heap; /* heap[0] is due first */
	uint32_t n_timers, cap_timers;

	struct loop_later *later_first, **later_last;

	struct loop_io *ready[ROUND_MAX];

	/* Sources that were removed by others while the round waited: what came for them is void. */
	bool idle;
	const struct loop_io *removed[REMOVED_MAX];
	unsigned n_removed; /* above REMOVED_MAX: whatever came is void */

	struct loop_io signal_io;
	sigset_t signal_set;
	struct {
		int signo;
		void (*fn)(void *ctx, int signo);
		void *ctx;
	} signals[SIGNALS_MAX];
	unsigned n_signals;
};

int loop_new(struct loop **ret, struct garret_error *err)
{
	struct loop *l;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd < 0)
		return garret_fail_errno(err, "make the event loop");
	l = xnew(struct loop);
	l->epoll_fd = fd;
	l->later_last = &l->later_first;
	l->signal_io.fd = -EBADF;
	sigemptyset(&l->signal_set);
	*ret = l;
	return 0;
}

struct loop *loop_free(struct loop *l)
{
	if (!l)
		return NULL;
	if (l->signal_io.fd >= 0) {
		int fd = l->signal_io.fd;

		loop_io_remove(&l->signal_io);
		fd_close(fd);
	}
	fd_close(l->epoll_fd);
	free(l->heap);
	free(l);
	return NULL;
}

int loop_io_add(struct loop *l, struct loop_io *io, int fd, uint32_t events,
		void (*fn)(struct loop_io *, uint32_t), void *ctx, struct garret_error *err)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0)
		return garret_fail_errno(err, "watch descriptor %d", fd);
	*io = (struct loop_io){ .fd = fd, .fn = fn, .ctx = ctx, .loop = l };
	return 0;
}

void loop_io_mod(struct loop_io *io, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	(void)epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_MOD, io->fd, &ev);
}

void loop_io_remove(struct loop_io *io)
{
	if (io->fd < 0 || !io->loop)
		return;
	(void)epoll_ctl(io->loop->epoll_fd, EPOLL_CTL_DEL, io->fd, NULL);
	if (io->slot)
		*io->slot = NULL;
	if (io->loop->idle && io->loop->n_removed++ < REMOVED_MAX)
		io->loop->removed[io->loop->n_removed - 1] = io;
	io->slot = NULL;
	io->fd = -EBADF;
}

static void heap_place(struct loop *l, uint32_t i, struct loop_timer *t)
{
	l->heap[i] = t;
	t->index = i + 1;
}

static void heap_fix(struct loop *l, uint32_t i)
{
	struct loop_timer *t = l->heap[i];

	while (i && l->heap[(i - 1) / 2]->at_ms > t->at_ms) {
		heap_place(l, i, l->heap[(i - 1) / 2]);
		i = (i - 1) / 2;
	}
	for (;;) {
		uint32_t c = 2 * i + 1;

		if (c + 1 < l->n_timers && l->heap[c + 1]->at_ms < l->heap[c]->at_ms)
			c++;
		if (c >= l->n_timers || l->heap[c]->at_ms >= t->at_ms)
			break;
		heap_place(l, i, l->heap[c]);
		i = c;
	}
	heap_place(l, i, t);
}

void loop_timer_set(struct loop *l, struct loop_timer *t, uint64_t at_ms,
		    void (*fn)(struct loop_timer *), void *ctx)
{
	t->at_ms = at_ms;
	t->fn = fn;
	t->ctx = ctx;
	t->loop = l;
	if (!t->index) {
		if (l->n_timers == l->cap_timers) {
			l->cap_timers = l->cap_timers ? l->cap_timers * 2 : 32;
			l->heap = xrealloc(l->heap, l->cap_timers * sizeof(struct loop_timer *));
		}
		heap_place(l, l->n_timers++, t);
	}
	heap_fix(l, t->index - 1);
}

void loop_timer_clear(struct loop_timer *t)
{
	struct loop *l = t->loop;
	uint32_t i;

	if (!t->index)
		return;
	i = t->index - 1;
	t->index = 0;
	if (i == --l->n_timers)
		return;
	heap_place(l, i, l->heap[l->n_timers]);
	heap_fix(l, i);
}

void loop_later_add(struct loop *l, struct loop_later *later, void (*fn)(struct loop_later *),
		    void *ctx)
{
	later->fn = fn;
	later->ctx = ctx;
	if (later->queued)
		return;
	later->queued = true;
	later->next = NULL;
	*l->later_last = later;
	l->later_last = &later->next;
}

void loop_later_cancel(struct loop *l, struct loop_later *later)
{
	struct loop_later **p;

	if (!later->queued)
		return;
	for (p = &l->later_first; *p != later; p = &(*p)->next)
		;
	*p = later->next;
	if (!*p)
		l->later_last = p;
	later->queued = false;
}

static void on_signal(struct loop_io *io, uint32_t events)
{
	struct loop *l = io->ctx;
	struct signalfd_siginfo si;

	(void)events;
	while (read(io->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		for (unsigned i = 0; i < l->n_signals; i++)
			if (l->signals[i].signo == (int)si.ssi_signo)
				l->signals[i].fn(l->signals[i].ctx, l->signals[i].signo);
}

int loop_signal(struct loop *l, int signo, void (*fn)(void *ctx, int signo), void *ctx,
		struct garret_error *err)
{
	sigset_t one;
	int fd;

	if (l->n_signals == SIGNALS_MAX)
		return garret_fail(err, GARRET_MISUSE, "more than %d signals", SIGNALS_MAX);
	sigemptyset(&one);
	sigaddset(&one, signo);
	sigaddset(&l->signal_set, signo);
	if (sigprocmask(SIG_BLOCK, &one, NULL) < 0)
		return garret_fail_errno(err, "block signal %d", signo);
	fd = signalfd(l->signal_io.fd >= 0 ? l->signal_io.fd : -1, &l->signal_set,
		      SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return garret_fail_errno(err, "signalfd");
	l->signals[l->n_signals].signo = signo;
	l->signals[l->n_signals].fn = fn;
	l->signals[l->n_signals++].ctx = ctx;
	if (l->signal_io.fd >= 0)
		return 0;
	return loop_io_add(l, &l->signal_io, fd, EPOLLIN, on_signal, l, err);
}

int loop_next(const struct loop *l)
{
	uint64_t now;

	if (l->later_first)
		return 0;
	if (!l->n_timers)
		return -1;
	now = now_ms();
	if (l->heap[0]->at_ms <= now)
		return 0;
	return l->heap[0]->at_ms - now > 60000 ? 60000 : (int)(l->heap[0]->at_ms - now);
}

static void call_ready(struct loop *l, const struct epoll_event *events, int n)
{
	for (int i = 0; i < n; i++) {
		l->ready[i] = events[i].data.ptr;
		l->ready[i]->slot = &l->ready[i];
	}
	for (int i = 0; i < n; i++) {
		struct loop_io *io = l->ready[i];

		if (!io)
			continue;
		l->ready[i] = NULL;
		io->slot = NULL;
		io->fn(io, events[i].events);
	}
}

static void call_timers(struct loop *l)
{
	uint64_t now = now_ms();

	/* A timer that sets itself to "now" again waits for the next round. */
	for (uint32_t left = l->n_timers; left && l->n_timers && l->heap[0]->at_ms <= now; left--) {
		struct loop_timer *t = l->heap[0];

		loop_timer_clear(t);
		t->fn(t);
	}
}

static void call_later(struct loop *l)
{
	struct loop_later *stop = NULL, *it;

	/* What is added by these calls belongs to the next round. */
	for (it = l->later_first; it; it = it->next)
		stop = it;
	while ((it = l->later_first) && stop) {
		if (it == stop)
			stop = NULL;
		l->later_first = it->next;
		if (!l->later_first)
			l->later_last = &l->later_first;
		it->queued = false;
		it->fn(it);
	}
}

int loop_run(struct loop *l)
{
	while (!l->quit)
		loop_once(l, -1, NULL, NULL);
	l->quit = false; /* asked before the loop ran, it counts as well */
	return l->status;
}

static bool was_removed(const struct loop *l, const struct loop_io *io)
{
	for (unsigned i = 0; i < l->n_removed; i++)
		if (l->removed[i] == io)
			return true;
	return false;
}

static int drop_removed(struct loop *l, struct epoll_event *events, int n)
{
	int kept = 0;

	if (l->n_removed > REMOVED_MAX)
		n = 0; /* level-triggered: what counts comes again */
	for (int i = 0; i < n; i++)
		if (!was_removed(l, events[i].data.ptr))
			events[kept++] = events[i];
	l->n_removed = 0;
	return kept;
}

void loop_once(struct loop *l, int wait_ms, void (*idle)(void *ctx, bool idle), void *ctx)
{
	struct epoll_event events[ROUND_MAX];
	const int next = loop_next(l);
	int n;

	if (next >= 0 && (wait_ms < 0 || next < wait_ms))
		wait_ms = next;
	if (idle && wait_ms) {
		l->idle = true;
		idle(ctx, true);
		n = epoll_wait(l->epoll_fd, events, ROUND_MAX, wait_ms);
		idle(ctx, false);
		l->idle = false;
		if (n > 0 && l->n_removed)
			n = drop_removed(l, events, n);
		l->n_removed = 0;
	} else {
		n = epoll_wait(l->epoll_fd, events, ROUND_MAX, wait_ms);
	}
	if (n > 0)
		call_ready(l, events, n);
	call_timers(l);
	call_later(l);
}

int loop_fd(const struct loop *l)
{
	return l->epoll_fd;
}

void loop_quit(struct loop *l, int status)
{
	l->quit = true;
	l->status = status;
}
