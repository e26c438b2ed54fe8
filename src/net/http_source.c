/*
 * Answers from a source, piece by piece as the client takes them.
 *
 * A source that has nothing yet lets its connection sleep.  The library forgets
 * a connection that its content reader closes outside of a write: the socket
 * would stay open until the client closes it, or for good when it has slept and
 * is in no epoll set.  It does look at every connection that has a time-out of
 * its own in each of its rounds; see forget_no_more().
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/http_internal.h"

#define ANSWER_PIECE 65536
/*
 * A system call for each 64 KiB costs a large answer a fifth of its speed, and
 * beyond 256 KiB there is nothing to gain.  But the library keeps a block for as
 * long as its answer lasts, and slow clients can make that long: only so many
 * answers have a large one.
 */
#define LARGE_PIECE 262144
#define LARGE_ANSWER (1 << 20)
#define LARGE_MAX 64

struct source_state {
	struct http_source src;
	struct http_request *rq; /* alive while the library reads */
	struct httpd *httpd;
	bool chunked; /* the end of the body isn't that of the connection */
	bool large;
};

static void forget_no_more(struct http_request *rq)
{
	(void)MHD_set_connection_option(rq->mhd, MHD_CONNECTION_OPTION_TIMEOUT,
					(unsigned)(IDLE_MS_MAX / 1000 + 1));
	httpd_kick(rq->httpd);
}

static void fall_asleep(struct http_request *rq)
{
	http_suspend(rq);
	rq->asleep = true;
	rq->asleep_ms = now_ms();
	if (rq->source_ready) /* told while it was read */
		http_source_ready(rq);
}

void http_source_ready(struct http_request *rq)
{
	uint64_t now = now_ms();

	rq->source_ready = true;
	if (!rq->asleep || rq->gone)
		return;
	rq->asleep = false;
	rq->conn->state = CONN_ANSWER;
	rq->conn->since_ms += now - rq->asleep_ms;
	rq->conn->progress_ms = now;
	http_resume(rq);
}

static ssize_t source_read(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct source_state *st = cls;
	struct http_request *rq = st->rq;
	ssize_t n = -1;

	(void)pos;
	rq->source_ready = false;
	if (!rq->gone && !rq->httpd->stopping)
		n = st->src.read(st->src.ctx, buf, max);
	if (n == HTTP_SOURCE_WAIT) {
		fall_asleep(rq);
		return 0;
	}
	if (n < 0 || (n == 0 && !st->chunked))
		forget_no_more(rq);
	if (n <= 0)
		return n ? MHD_CONTENT_READER_END_WITH_ERROR : MHD_CONTENT_READER_END_OF_STREAM;
	rq->sent += (uint64_t)n;
	rq->conn->answer_bytes += (uint64_t)n;
	rq->conn->progress_ms = now_ms();
	return n;
}

static void source_free(void *cls)
{
	struct source_state *st = cls;

	if (st->src.release)
		st->src.release(st->src.ctx);
	st->httpd->n_large -= st->large;
	free(st);
}

/* How much the library reads at a time, at most. */
static size_t block_size(struct source_state *st, int64_t length)
{
	if (st->chunked)
		return 1; /* chunks are made in the connection's memory, this is never used */
	if (length >= 0 && length < ANSWER_PIECE)
		return MAX((size_t)length, 1);
	if (length < LARGE_ANSWER || st->httpd->n_large >= LARGE_MAX)
		return ANSWER_PIECE;
	st->large = true;
	st->httpd->n_large++;
	return LARGE_PIECE;
}

void http_answer_source(struct http_request *rq, unsigned status, const char *type, int64_t length,
			const struct http_source *src)
{
	struct source_state *st = xnew(struct source_state);

	st->src = *src;
	st->rq = rq;
	st->httpd = rq->httpd;
	st->chunked = length < 0 && rq->needs_host;
	rq->from_source = true;
	http_set_response(rq, status, type,
			  MHD_create_response_from_callback(
				  length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)length,
				  block_size(st, length), source_read, st, source_free));
}

/* ---- a pipe as the source ---- */

struct pipe_source {
	struct http_pipe p;
	struct http_request *rq;
	struct loop_io io;
};

static void on_pipe(struct loop_io *io, uint32_t events)
{
	struct pipe_source *ps = io->ctx;

	(void)events;
	http_source_ready(ps->rq);
}

/* Once: while the client takes nothing, a writer that hung up would keep the loop busy. */
static ssize_t pipe_wait(struct pipe_source *ps)
{
	static const uint32_t once = EPOLLIN | EPOLLONESHOT;

	if (ps->io.fd >= 0)
		loop_io_mod(&ps->io, once);
	else if (loop_io_add(http_loop(ps->rq), &ps->io, ps->p.fd, once, on_pipe, ps, NULL) < 0)
		return -1;
	return HTTP_SOURCE_WAIT;
}

static ssize_t pipe_read(void *ctx, char *buf, size_t cap)
{
	struct pipe_source *ps = ctx;
	ssize_t n = read(ps->p.fd, buf, cap);

	if (n > 0)
		return n;
	if (n == 0)
		return ps->p.end ? ps->p.end(ps->p.ctx) : 0;
	return errno == EAGAIN || errno == EINTR ? pipe_wait(ps) : -1;
}

static void pipe_release(void *ctx)
{
	struct pipe_source *ps = ctx;

	loop_io_remove(&ps->io);
	fd_close(ps->p.fd);
	if (ps->p.release)
		ps->p.release(ps->p.ctx);
	free(ps);
}

void http_answer_pipe(struct http_request *rq, unsigned status, const char *type, int64_t length,
		      const struct http_pipe *p)
{
	struct pipe_source *ps = xnew(struct pipe_source);
	const struct http_source src = { pipe_read, pipe_release, ps };

	ps->p = *p;
	ps->rq = rq;
	ps->io.fd = -EBADF;
	(void)fd_set_nonblock(p->fd, true); /* fails for nothing that can be read */
	http_answer_source(rq, status, type, length, &src);
}
