/*
 * What runs write.
 *
 * Captured: the first INIT_HEAD_BYTES of a stream are kept in memory; when more
 * comes, the head is written to a spool file and the pipe is spliced behind it
 * from then on, so that the bytes never pass through pid 1 and a reader that
 * dies loses nothing.  STREAM: a window of unacknowledged bytes is kept.
 * When there is no place for more (no spool pair, window full) the stream is
 * not read, and its writer waits.
 *
 * A turn is bounded: a writer that is faster than we are would otherwise keep
 * pid 1 from stopping it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "init/session.h"

#define AGAIN_MS 10
#define TURN_BYTES (1024 * 1024)
#define KEPT_MAX (8 * 1024 * 1024) /* of all output, before the oldest that nobody wants must go */
#define FIRST_READ 4096
#define TOLD_EVERY_MS 50

/* ---- keeping ---- */

static size_t room_max(const struct stream *st)
{
	return st->run->flags & INIT_RUN_STREAM ? INIT_WINDOW : INIT_HEAD_BYTES;
}

static void buffer_free(struct stream *st)
{
	st->run->s->kept_bytes -= st->cap;
	free(st->buf);
	st->buf = NULL;
	st->start = st->cap = 0;
	st->base += st->len;
	st->len = 0;
}

/* Make room for n more bytes behind what is kept (n fits in room_max). */
static void reserve(struct stream *st, size_t n)
{
	struct session *s = st->run->s;
	size_t cap;

	if (st->start + st->len + n <= st->cap)
		return;
	if (st->start) {
		memmove(st->buf, st->buf + st->start, st->len);
		st->start = 0;
		if (st->len + n <= st->cap)
			return;
	}
	while (s->kept_bytes > KEPT_MAX && run_drop_one(s))
		;
	/* Most runs write little: the first buffer is exact. */
	cap = st->cap ? MIN(MAX(st->cap * 2, st->len + n), room_max(st)) : (n + 63) & ~(size_t)63;
	st->buf = xrealloc(st->buf, cap);
	s->kept_bytes += cap - st->cap;
	st->cap = cap;
}

static void keep(struct stream *st, const void *data, size_t n)
{
	reserve(st, n);
	memcpy(st->buf + st->start + st->len, data, n);
	st->len += n;
}

/* Bytes that may still be kept of both streams together. */
static uint64_t limit_left(const struct run *r)
{
	uint64_t kept = r->out[0].total + r->out[1].total;

	if (!r->limit)
		return UINT64_MAX;
	return kept >= r->limit ? 0 : r->limit - kept;
}

/* ---- watching ---- */

static void on_stream(struct loop_io *io, uint32_t events)
{
	struct stream *st = io->ctx;

	(void)events;
	output_turn(st);
	run_check(st->run);
}

static void on_again(struct loop_timer *t)
{
	struct stream *st = t->ctx;

	output_watch(st);
	output_turn(st);
	run_check(st->run);
}

void output_watch(struct stream *st)
{
	struct run *r = st->run;

	if (st->fd < 0 || st->io.fd >= 0)
		return;
	/*
	 * No memory in the kernel, or too many watches: looked at now and then, until it can be
	 * watched.  An end of file would be a command that succeeds without its output.
	 */
	if (loop_io_add(r->s->loop, &st->io, st->fd, EPOLLIN, on_stream, st, NULL) < 0)
		loop_timer_set(r->s->loop, &st->again, now_ms() + AGAIN_MS, on_again, st);
}

/* Not by an empty mask: a hang-up would be reported all the same, for ever. */
static void unwatch(struct stream *st)
{
	loop_io_remove(&st->io);
	loop_timer_clear(&st->again);
}

static void at_end(struct stream *st)
{
	unwatch(st);
	list_remove(&st->in_thirsty);
	st->fd = fd_close(st->fd);
	st->owed = 0;
}

bool output_stuck(const struct stream *st)
{
	return st->fd >= 0 && st->io.fd < 0;
}

/* ---- spooling ---- */

static void on_told(struct loop_timer *t)
{
	struct run *r = t->ctx;

	r->told_ms = now_ms();
	conn_notify(r);
}

static void tell_soon(struct run *r)
{
	uint64_t at = r->told_ms + TOLD_EVERY_MS;

	if (now_ms() >= at)
		on_told(&(struct loop_timer){ .ctx = r });
	else if (!r->told_timer.index)
		loop_timer_set(r->s->loop, &r->told_timer, at, on_told, r);
}

struct spool *spool_free(struct spool *sp)
{
	if (sp) {
		fd_close(sp->fd[0]);
		fd_close(sp->fd[1]);
		free(sp);
	}
	return NULL;
}

static void spool_name(uint32_t index, int stream, char out[20])
{
	(void)snprintf(out, 20, "%u.%s", index, stream ? "err" : "out");
}

struct spool *spool_make(struct session *s, uint32_t index)
{
	struct spool *sp = xnew(struct spool);
	char name[20];

	sp->fd[0] = sp->fd[1] = -EBADF;
	for (int i = 0; i < 2; i++) {
		spool_name(index, i, name);
		sp->fd[i] = openat(s->p.spool_fd, name,
				   O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (sp->fd[i] < 0 && errno == EEXIST)
			return spool_free(sp); /* output of a run that is still known */
		/* Without one the run that takes it ends by its output, rather than waiting. */
	}
	return sp;
}

void spool_remove(struct session *s, uint32_t index)
{
	char name[20];

	for (int i = 0; i < 2; i++) {
		spool_name(index, i, name);
		(void)unlinkat(s->p.spool_fd, name, 0);
	}
}

static unsigned index_of(const struct stream *st)
{
	return (unsigned)(st - st->run->out);
}

/* The spool can't be written: what is there is all that can be kept. */
static void spool_broken(struct stream *st, int sys)
{
	st->run->exit.sys = (uint32_t)sys;
	at_end(st);
	stop_begin(st->run, INIT_CAUSE_OUTPUT_LIMIT, 0);
}

/* Write all of the head at the file's start; 0 or errno. */
static int write_head(const struct stream *st, int fd)
{
	size_t done = 0;

	while (done < st->len) {
		ssize_t n = pwrite(fd, st->buf + st->start + done, st->len - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? errno : EIO;
		done += (size_t)n;
	}
	return 0;
}

/* False: the stream has to wait, or can't go on. */
static bool spool_begin(struct stream *st)
{
	struct run *r = st->run;
	struct session *s = r->s;
	int rc;

	if (!r->spool && !list_empty(&s->spools)) {
		r->spool = list_entry(s->spools.next, struct spool, link);
		list_remove(&r->spool->link);
		s->n_spools--;
		r->took_spool = true;
		r->exit.spool_index = r->spool->index;
	}
	if (!r->spool) {
		unwatch(st);
		if (list_empty(&st->in_thirsty))
			list_append(&s->thirsty, &st->in_thirsty);
		return false;
	}
	/* The head first: whoever sees SPOOLED finds the stream's start there. */
	rc = write_head(st, r->spool->fd[index_of(st)]);
	if (rc) {
		spool_broken(st, rc);
		return false;
	}
	st->spooled = true;
	r->exit.spooled[index_of(st)] = 1;
	buffer_free(st);
	tell_soon(r);
	return true;
}

void output_spools_came(struct session *s)
{
	while (!list_empty(&s->thirsty) && !list_empty(&s->spools)) {
		struct stream *st = list_entry(s->thirsty.next, struct stream, in_thirsty);
		struct run *r = st->run;

		list_remove(&st->in_thirsty);
		output_watch(st);
		/* The pair serves both streams, and the other may wait for it too. */
		output_turn(st);
		for (int i = 0; i < 2; i++)
			if (r->spool && !list_empty(&r->out[i].in_thirsty)) {
				list_remove(&r->out[i].in_thirsty);
				output_watch(&r->out[i]);
			}
		run_check(r);
	}
}

/* ---- reading ---- */

static ssize_t copy_to_spool(struct stream *st, int fd, size_t n)
{
	char buf[16384];
	ssize_t got = read(st->fd, buf, MIN(n, sizeof(buf)));
	ssize_t done = 0;

	while (done < got) {
		ssize_t w = pwrite(fd, buf + done, (size_t)(got - done), (off_t)st->total + done);

		if (w < 0 && errno == EINTR)
			continue;
		if (w <= 0) {
			spool_broken(st, w < 0 ? errno : EIO);
			return done;
		}
		done += w;
	}
	return got < 0 ? -errno : got;
}

static ssize_t read_spooled(struct stream *st, size_t n)
{
	int fd = st->run->spool->fd[index_of(st)];
	off_t at = (off_t)st->total;
	ssize_t got = splice(st->fd, NULL, fd, &at, n, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);

	if (got < 0)
		got = -errno;
	if (got == -EINVAL) /* a file system without splice */
		got = copy_to_spool(st, fd, n);
	else if (got < 0 && got != -EAGAIN && got != -EINTR)
		spool_broken(st, (int)-got);
	if (got > 0)
		tell_soon(st->run);
	return got;
}

static ssize_t read_kept(struct stream *st, size_t n)
{
	char first[FIRST_READ];
	ssize_t got;

	if (!st->cap) {
		/* Often there is nothing but the end: then no memory is taken at all. */
		got = read(st->fd, first, MIN(n, sizeof(first)));
		if (got > 0)
			keep(st, first, (size_t)got);
	} else {
		if (st->start + st->len == st->cap)
			reserve(st, MIN(MIN(n, room_max(st) - st->len), MAX(st->cap, FIRST_READ)));
		got = read(st->fd, st->buf + st->start + st->len,
			   MIN(n, st->cap - st->start - st->len));
		if (got > 0)
			st->len += (size_t)got;
	}
	if (got < 0)
		return -errno;
	if (got > 0)
		conn_notify(st->run);
	return got;
}

/* There is no place for more.  Is there more, or is it the end, or neither? */
static int peek(struct stream *st)
{
	struct pollfd p = { .fd = st->fd, .events = POLLIN };
	int n = 0;

	/* In this order: what was written before a hang-up is seen with it. */
	if (poll(&p, 1, 0) < 0)
		return -EAGAIN;
	if (ioctl(st->fd, FIONREAD, &n) == 0 && n > 0)
		return 1;
	return p.revents & (POLLHUP | POLLERR) ? 0 : -EAGAIN;
}

/* Read some: how much, 0 at the end, or -errno. */
static ssize_t step(struct stream *st, size_t budget)
{
	struct run *r = st->run;
	uint64_t left = limit_left(r);
	size_t n = (size_t)MIN(left, budget);

	if (!st->spooled)
		n = MIN(n, room_max(st) - st->len);
	if (!n) {
		int more = peek(st);

		if (more <= 0)
			return more;
		if (!left) {
			stop_begin(r, INIT_CAUSE_OUTPUT_LIMIT, 0);
			unwatch(st);
			return -EAGAIN;
		}
		if (r->flags & INIT_RUN_STREAM) {
			unwatch(st); /* until an ACK */
			return -EAGAIN;
		}
		if (!spool_begin(st))
			return -EAGAIN;
		n = (size_t)MIN(left, budget);
	}
	return st->spooled ? read_spooled(st, n) : read_kept(st, n);
}

void output_turn(struct stream *st)
{
	size_t budget = TURN_BYTES;

	while (budget && st->fd >= 0) {
		ssize_t n = step(st, budget);

		/* A terminal answers EIO when its last user has closed it. */
		if (n == 0 || (n == -EIO && st->run->flags & INIT_RUN_PTY)) {
			if (st->fd >= 0)
				at_end(st);
			return;
		}
		if (n < 0)
			return;
		st->total += (uint64_t)n;
		st->owed -= MIN(st->owed, (uint64_t)n);
		budget -= (size_t)n;
	}
}

/* ---- the end ---- */

void output_settle(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		struct stream *st = &r->out[i];
		int n = 0;

		if (st->fd < 0)
			continue;
		if (ioctl(st->fd, FIONREAD, &n) == 0 && n > 0)
			st->owed = (uint64_t)n;
		output_turn(st);
	}
}

void output_ack(struct stream *st, uint64_t offset)
{
	size_t n;

	if (!(st->run->flags & INIT_RUN_STREAM) || offset <= st->base)
		return;
	n = (size_t)MIN(offset - st->base, (uint64_t)st->len);
	st->base += n;
	st->start += n;
	st->len -= n;
	if (st->run->ended)
		return;
	if (!st->len)
		buffer_free(st);
	/* The limit may be what stopped it; then the next turn stops it again. */
	output_watch(st);
}

struct drain {
	struct list link;
	struct loop_io io;
	struct session *s;
};

static void on_drain(struct loop_io *io, uint32_t events)
{
	struct drain *d = io->ctx;
	size_t budget = TURN_BYTES;
	char buf[4096];
	ssize_t n = 1;
	int fd = io->fd;

	(void)events;
	while (budget) {
		n = splice(fd, NULL, d->s->null_fd, NULL, budget, SPLICE_F_NONBLOCK);
		if (n < 0 && errno == EINVAL) /* a terminal */
			n = read(fd, buf, sizeof(buf));
		if (n <= 0)
			break;
		budget -= MIN(budget, (size_t)n);
	}
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return;
	loop_io_remove(&d->io);
	fd_close(fd);
	list_remove(&d->link);
	free(d);
}

/* A background child keeps the pipe: it shall neither block nor meet SIGPIPE. */
void output_end(struct run *r)
{
	for (int i = 0; i < 2; i++) {
		struct stream *st = &r->out[i];
		struct drain *d;

		unwatch(st);
		list_remove(&st->in_thirsty);
		if (st->fd < 0)
			continue;
		d = xnew(struct drain);
		d->s = r->s;
		if (loop_io_add(r->s->loop, &d->io, st->fd, EPOLLIN, on_drain, d, NULL) < 0) {
			fd_close(st->fd);
			free(d);
		} else {
			list_append(&r->s->drains, &d->link);
		}
		st->fd = -EBADF;
	}
	loop_timer_clear(&r->told_timer);
	r->spool = spool_free(r->spool);
}

void output_free(struct run *r)
{
	for (int i = 0; i < 2; i++)
		buffer_free(&r->out[i]);
}

/* ---- the beginning ---- */

static int open_pipe(struct stream *st, int *ret_child)
{
	const struct init_params *params = &st->run->s->p;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	if (fcntl(p[0], F_SETFL, O_NONBLOCK) < 0) {
		fd_close(p[0]);
		fd_close(p[1]);
		return -EINVAL;
	}
	/* As root's it could not be opened by its name (/dev/stderr). */
	if (params->container && geteuid() == 0 &&
	    fchown(p[1], params->run_uid, params->run_gid) < 0) {
		fd_close(p[0]);
		fd_close(p[1]);
		return -EPERM;
	}
	st->fd = p[0];
	*ret_child = p[1];
	return 0;
}

int output_open(struct run *r, int child[2])
{
	for (int i = 0; i < 2; i++) {
		int rc = open_pipe(&r->out[i], &child[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}
