/*
 * What the owner writes to a run.  It waits here while the pipe or terminal is
 * full; the owner keeps no more than INIT_WINDOW on its way (STDIN_TAKEN), so
 * more than twice that is an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/auto.h"
#include "init/session.h"

static void pump(struct run *r);

static void on_room(struct loop_io *io, uint32_t events)
{
	(void)events;
	pump(io->ctx);
}

static void watch(struct run *r, bool on)
{
	struct input *in = &r->in;

	if (!on)
		loop_io_remove(&in->io);
	else if (in->io.fd < 0 &&
		 loop_io_add(r->s->loop, &in->io, in->fd, EPOLLOUT, on_room, r, NULL) < 0)
		input_close(r); /* better an end of file than a run that waits for ever */
}

void input_open(struct run *r, int fd, bool terminal)
{
	r->in.fd = fd;
	r->in.terminal = terminal;
	r->in.io.fd = -EBADF;
	strbuf_init(&r->in.queue);
}

void input_close(struct run *r)
{
	struct input *in = &r->in;

	loop_io_remove(&in->io);
	in->fd = fd_close(in->fd);
	if (in->queue.len) {
		in->taken += in->queue.len;
		conn_notify(r);
	}
	strbuf_release(&in->queue);
}

/* End of file: a pipe is closed, a terminal gets its own character for it. */
static void finish(struct run *r)
{
	struct input *in = &r->in;
	char c;

	in->close_after = false;
	if (!in->terminal) {
		input_close(r);
		return;
	}
	c = pty_eof(in->fd);
	if (c && write(in->fd, &c, 1) < 0 && errno == EAGAIN) {
		in->close_after = true;
		watch(r, true);
	}
}

static void pump(struct run *r)
{
	struct input *in = &r->in;
	ssize_t n = 0;

	if (in->queue.len) {
		n = write(in->fd, in->queue.buf, in->queue.len);
		if (n < 0 && errno != EAGAIN && errno != EINTR) {
			input_close(r); /* nobody reads any more: what comes is dropped */
			return;
		}
	}
	if (n > 0) {
		strbuf_remove_front(&in->queue, (size_t)n);
		in->taken += (uint64_t)n;
		conn_notify(r);
	}
	watch(r, in->queue.len > 0);
	if (in->queue.len)
		return;
	strbuf_release(&in->queue);
	if (in->fd >= 0 && in->close_after)
		finish(r);
}

bool input_add(struct run *r, const void *data, size_t n)
{
	struct input *in = &r->in;

	if (in->fd >= 0 && in->queue.len + n > 2 * INIT_WINDOW)
		return false;
	in->held += n;
	in->ended = in->ended || !n;
	if (in->fd < 0) {
		in->taken += n;
		conn_notify(r);
		return true;
	}
	if (!n)
		in->close_after = true;
	strbuf_add(&in->queue, data, n);
	pump(r);
	if (!(r->flags & INIT_RUN_STREAM))
		conn_notify(r); /* it is held, whether it could be written or not */
	return true;
}
