/* A transport that is two descriptors, or one for both ways. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "provider/init_stream.h"

#define READS_A_TURN 2
#define READ_BYTES (256 * 1024) /* several frames: one that is cut is copied once more */

struct fds {
	struct init_stream *s;
	struct loop_io in, out;
	int in_fd, out_fd;
	bool *gone; /* set when it is closed inside its own callback */
};

static void fds_close(void *ctx)
{
	struct fds *t = ctx;

	if (t->gone)
		*t->gone = true;
	loop_io_remove(&t->in);
	loop_io_remove(&t->out);
	fd_close(t->in_fd);
	fd_close(t->out_fd);
	free(t);
}

static size_t fds_write(void *ctx, const void *data, size_t n)
{
	struct fds *t = ctx;
	ssize_t done;

	do
		done = write(t->out_fd, data, n);
	while (done < 0 && errno == EINTR);
	/* A broken one is told by its end; until then it takes nothing. */
	if (done < (ssize_t)n)
		loop_io_mod(&t->out, EPOLLOUT);
	return done < 0 ? 0 : (size_t)done;
}

static void on_out(struct loop_io *io, uint32_t events)
{
	struct fds *t = io->ctx;

	loop_io_mod(io, EPOLLET);
	if (events & EPOLLERR)
		init_stream_ended(t->s, NULL);
	else if (events & EPOLLOUT)
		init_stream_writable(t->s);
}

static void on_in(struct loop_io *io, uint32_t events)
{
	struct fds *t = io->ctx;
	struct garret_error err = { 0 };
	bool gone = false;
	uint8_t buf[READ_BYTES];

	(void)events;
	t->gone = &gone;
	for (int left = READS_A_TURN; left > 0 && !gone; left--) {
		ssize_t n = read(t->in_fd, buf, sizeof(buf));

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n < 0)
			(void)garret_fail_errno(&err, "read");
		if (n > 0)
			init_stream_feed(t->s, buf, (size_t)n);
		else
			init_stream_ended(t->s, n < 0 ? &err : NULL);
		if (!gone && n < (ssize_t)sizeof(buf))
			break;
	}
	if (!gone)
		t->gone = NULL;
}

static void fds_pause(void *ctx, bool pause)
{
	struct fds *t = ctx;

	loop_io_mod(&t->in, pause ? EPOLLET : EPOLLIN);
}

int init_stream_begin_fds(struct init_stream *s, int in, int out, struct garret_error *err)
{
	struct fds *t = xnew(struct fds);
	int rc = 0;

	t->s = s;
	t->in_fd = in;
	t->out_fd = in == out ? fcntl(in, F_DUPFD_CLOEXEC, 3) : out; /* each is watched apart */
	t->in.fd = t->out.fd = -EBADF;
	if (t->out_fd < 0 || fd_set_nonblock(t->in_fd, true) < 0 ||
	    fd_set_nonblock(t->out_fd, true) < 0)
		rc = garret_fail_errno(err, "use a stream");
	if (rc == 0)
		rc = loop_io_add(init_stream_loop(s), &t->in, t->in_fd, EPOLLIN, on_in, t, err);
	if (rc == 0)
		rc = loop_io_add(init_stream_loop(s), &t->out, t->out_fd, EPOLLET, on_out, t, err);
	if (rc < 0) {
		fds_close(t);
		return rc;
	}
	init_stream_begin(s, &(struct init_transport){ fds_write, fds_pause, fds_close, t });
	return 0;
}
