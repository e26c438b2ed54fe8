#include "io/chan.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"

#define FRAMES_PER_ROUND 32 /* so that one busy peer leaves room for the others */

struct chan_frame {
	struct chan_frame *next;
	size_t n;
	struct msg_fds fds;
	uint8_t data[];
};

bool chan_is_open(const struct chan *c)
{
	return c->fd >= 0;
}

static void drop_queue(struct chan *c)
{
	while (c->first) {
		struct chan_frame *f = c->first;

		c->first = f->next;
		msg_fds_close(&f->fds);
		free(f);
	}
	c->last = &c->first;
	c->queued_bytes = 0;
}

void chan_close(struct chan *c)
{
	if (c->fd < 0)
		return;
	loop_io_remove(&c->io);
	c->fd = fd_close(c->fd);
	drop_queue(c);
	if (c->gone)
		*c->gone = true;
}

static void fail(struct chan *c, const struct garret_error *err)
{
	struct garret_error why = *err; /* it may be in c, which on_end may free */

	chan_close(c);
	if (c->on_end)
		c->on_end(c, &why);
}

/*
 * Not now, but later: the peer's buffer is full, or the kernel short of memory, or too many
 * descriptors are under way.  A frame that was dropped for it would be an answer that
 * somebody waits for without end.
 */
static bool for_later(const struct garret_error *err)
{
	return err->sys == EAGAIN || err->sys == ENOBUFS || err->sys == ENOMEM ||
	       err->sys == ETOOMANYREFS;
}

/*
 * A hang-up is told whether it is asked for or not, and again and again: while
 * nothing is read only its edge counts.  With something to send it doesn't
 * matter, because that fails and ends the chan.
 */
static void watch(struct chan *c)
{
	uint32_t events = c->first ? EPOLLOUT : 0;

	if (!c->paused)
		events |= EPOLLIN;
	else if (!c->first)
		events = EPOLLET;
	loop_io_mod(&c->io, events);
}

void chan_pause(struct chan *c, bool pause)
{
	if (c->fd < 0 || c->paused == pause)
		return;
	c->paused = pause;
	watch(c);
}

/*
 * It can't send any more.  That is told from the loop: at the end of what the
 * peer sent, or at once when nobody wants to read that.
 */
static void break_off(struct chan *c, const struct garret_error *why)
{
	c->broken = true;
	c->why = why->sys == EPIPE ? (struct garret_error){ 0 } : *why; /* the peer hung up */
	drop_queue(c);
	(void)shutdown(c->fd, SHUT_RDWR);
	watch(c);
}

/* False when the chan is gone. */
static bool tell_room(struct chan *c)
{
	bool gone = false, *outer = c->gone;

	c->full = false;
	if (!c->on_room)
		return true;
	c->gone = &gone;
	c->on_room(c);
	if (!gone)
		c->gone = outer;
	else if (outer)
		*outer = true;
	return !gone;
}

/* False when the connection broke (and was ended), or its owner closed it. */
static bool flush(struct chan *c)
{
	struct garret_error err = { 0 };

	while (c->first) {
		struct chan_frame *f = c->first;
		int rc = msg_send(c->fd, f->data, f->n, f->fds.fd, f->fds.n, &err);

		if (rc < 0 && for_later(&err))
			return true;
		if (rc < 0) {
			fail(c, &err);
			return false;
		}
		c->first = f->next;
		if (!c->first)
			c->last = &c->first;
		c->queued_bytes -= f->n;
		msg_fds_close(&f->fds);
		free(f);
	}
	watch(c);
	return !c->full || tell_room(c);
}

static void receive(struct chan *c)
{
	uint8_t buf[64 * 1024];
	bool gone = false, *outer = c->gone;

	c->gone = &gone;
	for (int i = 0; i < FRAMES_PER_ROUND && !c->paused; i++) {
		struct garret_error err = { 0 };
		struct msg_fds fds = { .n = 0 };
		ssize_t n = msg_recv(c->fd, buf, MIN(c->frame_max, sizeof(buf)),
				     c->accept_fds ? &fds : NULL, &err);

		if (n < 0 && err.sys == EAGAIN)
			break;
		if (n <= 0) {
			fail(c, c->broken ? &c->why : &err);
			break;
		}
		c->on_frame(c, buf, (size_t)n, c->accept_fds ? &fds : NULL);
		msg_fds_close(&fds);
		if (gone)
			break;
	}
	if (gone) {
		if (outer)
			*outer = true;
		return; /* c may be freed memory by now */
	}
	c->gone = outer;
}

static void on_io(struct loop_io *io, uint32_t events)
{
	struct chan *c = io->ctx;

	if (events & EPOLLOUT && !flush(c))
		return;
	if (c->paused && c->broken)
		fail(c, &c->why);
	else if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		receive(c);
}

int chan_open(struct chan *c, struct loop *l, int fd, size_t frame_max, struct garret_error *err)
{
	int rc;

	c->loop = l;
	c->fd = fd;
	c->frame_max = frame_max;
	c->first = NULL;
	c->last = &c->first;
	c->queued_bytes = 0;
	c->gone = NULL;
	c->paused = c->full = c->broken = false;
	if (fd_set_nonblock(fd, true) < 0) {
		rc = garret_fail_errno(err, "make a connection non-blocking");
		c->fd = fd_close(fd);
		return rc;
	}
	rc = loop_io_add(l, &c->io, fd, EPOLLIN, on_io, c, err);
	if (rc < 0)
		c->fd = fd_close(fd);
	return rc;
}

/* A copy that can wait; NULL when a descriptor can't be duplicated. */
static struct chan_frame *copy_frame(const void *frame, size_t n, const int *fds, unsigned n_fds,
				     struct garret_error *err)
{
	struct chan_frame *f = xcalloc(1, sizeof(*f) + n);

	f->n = n;
	memcpy(f->data, frame, n);
	for (unsigned i = 0; i < n_fds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd < 0) {
			(void)garret_fail_errno(err, "keep a descriptor for later");
			msg_fds_close(&f->fds);
			free(f);
			return NULL;
		}
		f->fds.fd[f->fds.n++] = fd;
	}
	return f;
}

void chan_send(struct chan *c, const void *frame, size_t n, const int *fds, unsigned n_fds)
{
	struct garret_error err = { 0 };
	struct chan_frame *f;

	if (c->fd < 0 || c->broken)
		return;
	if (!c->first) {
		if (msg_send(c->fd, frame, n, fds, n_fds, &err) == 0)
			return;
		if (!for_later(&err)) {
			break_off(c, &err);
			return;
		}
	}
	f = copy_frame(frame, n, fds, n_fds, &err);
	if (!f) {
		break_off(c, &err);
		return;
	}
	*c->last = f;
	c->last = &f->next;
	c->queued_bytes += n;
	if (c->queued_bytes > c->room_mark)
		c->full = true;
	watch(c);
}
