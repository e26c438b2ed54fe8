/*
 * Answers from a source, piece by piece as the client takes them.
 *
 * A source that has nothing yet lets its connection sleep.  The library forgets
 * a connection that its content reader closes outside of a write: the socket
 * would stay open until the client closes it, or for good when it has slept and
 * is in no epoll set.  It does look at every connection that has a time-out of
 * its own in each of its rounds; see forget_no_more().
 */
#include <stdlib.h>

#include "base/mem.h"
#include "base/time.h"
#include "net/http_internal.h"

struct source_state {
	struct http_source src;
	struct http_request *rq; /* alive while the library reads */
	bool chunked;            /* the end of the body isn't that of the connection */
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
		n = st->src.read(st->src.ctx, buf, MIN(max, (size_t)ANSWER_PIECE));
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
	free(st);
}

void http_answer_source(struct http_request *rq, unsigned status, const char *type, int64_t length,
			const struct http_source *src)
{
	struct source_state *st = xnew(struct source_state);

	st->src = *src;
	st->rq = rq;
	st->chunked = length < 0 && rq->needs_host;
	rq->from_source = true;
	http_set_response(
		rq, status, type,
		MHD_create_response_from_callback(length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)length,
						  ANSWER_PIECE, source_read, st, source_free));
}
