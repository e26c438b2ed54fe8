#include "cli/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/auto.h"

/* What a pipe that polls writable takes at once without blocking. */
#define PIECE 4096

static void turn(struct pump *p);

static void on_in(struct loop_io *io, uint32_t events)
{
	(void)events;
	turn(io->ctx);
}

static void on_out(struct loop_io *io, uint32_t events)
{
	struct pump *p = io->ctx;

	(void)events;
	loop_io_remove(&p->out_io);
	turn(p);
}

static void on_later(struct loop_later *l)
{
	turn(l->ctx);
}

static void wait_for_input(struct pump *p)
{
	if (p->in_regular)
		loop_later_add(p->loop, &p->later, on_later, p);
	else if (p->in_io.fd < 0 &&
		 loop_io_add(p->loop, &p->in_io, p->in, EPOLLIN, on_in, p, NULL) < 0)
		loop_later_add(p->loop, &p->later, on_later, p); /* or it would wait for ever */
}

static void wait_for_output(struct pump *p)
{
	loop_io_remove(&p->in_io);
	if (p->out_io.fd < 0 &&
	    loop_io_add(p->loop, &p->out_io, p->out, EPOLLOUT, on_out, p, NULL) < 0)
		loop_later_add(p->loop, &p->later, on_later, p);
}

static void finish(struct pump *p)
{
	pump_stop(p);
	p->ended(p);
}

static bool writable(int fd)
{
	struct pollfd pf = { .fd = fd, .events = POLLOUT };

	return poll(&pf, 1, 0) == 1;
}

static bool readable(int fd)
{
	struct pollfd pf = { .fd = fd, .events = POLLIN };

	return poll(&pf, 1, 0) == 1;
}

/* Bytes moved; 0 at the end; -1 with errno (EAGAIN: one side isn't ready). */
static ssize_t move_some(struct pump *p)
{
	char buf[PIECE];
	ssize_t n;

	if (!p->no_splice) {
		n = splice(p->in, NULL, p->out, NULL, 1 << 16, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
		if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
			return n;
		/*
		 * Neither is a pipe, or a terminal, or opened to append; or 0, which most
		 * devices give at the end only, but some when the pipe is just empty.
		 * read() and write() say which.
		 */
		p->no_splice = true;
	}
	if (!p->in_regular && !readable(p->in)) {
		errno = EAGAIN;
		return -1;
	}
	if (!p->out_regular && !writable(p->out)) {
		errno = EAGAIN;
		return -1;
	}
	n = read(p->in, buf, sizeof(buf));
	for (ssize_t done = 0, w; n > 0 && done < n; done += w) {
		w = write(p->out, buf + done, (size_t)(n - done));
		if (w < 0 && errno == EINTR)
			w = 0;
		else if (w < 0 && errno == EAGAIN) { /* somebody else made it non-blocking */
			struct pollfd pf = { .fd = p->out, .events = POLLOUT };

			(void)poll(&pf, 1, -1);
			w = 0;
		} else if (w < 0)
			return -1;
	}
	return n;
}

static void turn(struct pump *p)
{
	for (int i = 0; i < 16; i++) {
		ssize_t n = move_some(p);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (!p->out_regular && !writable(p->out))
				wait_for_output(p);
			else
				wait_for_input(p);
			return;
		}
		if (n <= 0) {
			finish(p);
			return;
		}
	}
	wait_for_input(p);
}

static bool takes_epoll(int fd)
{
	struct epoll_event ev = { .events = 0 };
	autoclose int ep = epoll_create1(EPOLL_CLOEXEC);

	return epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev) == 0 || errno != EPERM;
}

int pump_start(struct pump *p, struct loop *l, int in, int out, void (*ended)(struct pump *),
	       void *ctx, struct garret_error *err)
{
	*p = (struct pump){ .loop = l, .in = in, .out = out, .ended = ended, .ctx = ctx };
	p->in_io.fd = p->out_io.fd = -EBADF;
	p->in_regular = !takes_epoll(in);
	p->out_regular = !takes_epoll(out);
	/* splice() gives 0 for a Ctrl-D, and the end of a terminal's input is told only once. */
	p->no_splice = isatty(in);
	if (fcntl(in, F_GETFD) < 0 || fcntl(out, F_GETFD) < 0)
		return garret_fail_errno(err, "standard streams");
	wait_for_input(p);
	return 0;
}

void pump_stop(struct pump *p)
{
	if (!p->loop)
		return;
	p->done = true;
	loop_io_remove(&p->in_io);
	loop_io_remove(&p->out_io);
	loop_later_cancel(p->loop, &p->later);
}

bool pump_pending(const struct pump *p)
{
	int n = 0;

	return p->loop && !p->done && ioctl(p->in, FIONREAD, &n) == 0 && n > 0;
}
