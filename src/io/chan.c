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

void chan_close(struct chan *c)
{
	if (c->fd < 0)
		return;
	loop_io_remove(&c->io);
	c->fd = fd_close(c->fd);
	while (c->first) {
		struct chan_frame *f = c->first;

		c->first = f->next;
		msg_fds_close(&f->fds);
		free(f);
	}
	c->last = &c->first;
	c->queued_bytes = 0;
	if (c->gone)
		*c->gone = true;
}

static void fail(struct chan *c, const struct garret_error *err)
{
	chan_close(c);
	if (c->on_end)
		c->on_end(c, err);
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

/* False when the connection broke (and was ended). */
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
	loop_io_mod(&c->io, EPOLLIN);
	return true;
}

static void receive(struct chan *c)
{
	uint8_t buf[64 * 1024];
	bool gone = false, *outer = c->gone;

	c->gone = &gone;
	for (int i = 0; i < FRAMES_PER_ROUND; i++) {
		struct garret_error err = { 0 };
		struct msg_fds fds = { .n = 0 };
		ssize_t n = msg_recv(c->fd, buf, MIN(c->frame_max, sizeof(buf)),
				     c->accept_fds ? &fds : NULL, &err);

		if (n < 0 && err.sys == EAGAIN)
			break;
		if (n <= 0) {
			fail(c, &err);
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
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
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

void chan_send(struct chan *c, const void *frame, size_t n, const int *fds, unsigned n_fds)
{
	struct chan_frame *f;

	if (c->fd < 0)
		return;
	if (!c->first) {
		struct garret_error err = { 0 };
		int rc = msg_send(c->fd, frame, n, fds, n_fds, &err);

		if (rc == 0)
			return;
		/* A broken connection is told from the loop, when it is read: now, if not before. */
		if (!for_later(&err)) {
			(void)shutdown(c->fd, SHUT_RDWR);
			return;
		}
	}
	f = xcalloc(1, sizeof(*f) + n);
	f->n = n;
	memcpy(f->data, frame, n);
	for (unsigned i = 0; i < n_fds; i++) {
		int fd = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);

		if (fd >= 0)
			f->fds.fd[f->fds.n++] = fd;
	}
	*c->last = f;
	c->last = &f->next;
	c->queued_bytes += n;
	loop_io_mod(&c->io, EPOLLIN | EPOLLOUT);
}
