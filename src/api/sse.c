#include "api/sse.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"

#define ALIVE_MS 15000

struct sse {
	struct list link; /* api.streams */
	struct http_request *rq;
	struct loop *loop;
	struct loop_timer alive;
	const struct sse_source *source;
	void *ctx;
	bool over;
	struct strbuf piece; /* not sent yet */
	size_t sent;         /* of it */
};

static ssize_t fill(struct sse *s)
{
	strbuf_reset(&s->piece);
	s->sent = 0;
	if (s->over)
		return 0;
	switch (s->source->next(s->ctx, &s->piece)) {
	case SSE_NOTHING:
		return HTTP_SOURCE_WAIT;
	case SSE_EVENT:
		return 1;
	case SSE_LAST:
		s->over = true;
		return 1;
	case SSE_END:
		return 0;
	case SSE_BROKEN:
		break;
	}
	return -1;
}

static ssize_t read_piece(void *ctx, char *buf, size_t cap)
{
	struct sse *s = ctx;
	size_t n;

	if (s->sent == s->piece.len) {
		ssize_t rc = fill(s);

		if (rc <= 0)
			return rc;
	}
	n = MIN(cap, s->piece.len - s->sent);
	memcpy(buf, s->piece.buf + s->sent, n);
	s->sent += n;
	return (ssize_t)n;
}

static void release(void *ctx)
{
	struct sse *s = ctx;

	list_remove(&s->link);
	loop_timer_clear(&s->alive);
	s->source->release(s->ctx);
	strbuf_release(&s->piece);
	free(s);
}

static void on_alive(struct loop_timer *t)
{
	struct sse *s = t->ctx;

	/* Between two events only: one that is being sent is a sign of life itself. */
	if (s->sent == s->piece.len) {
		strbuf_reset(&s->piece);
		s->sent = 0;
		strbuf_addstr(&s->piece, ": alive\n\n");
		http_source_ready(s->rq);
	}
	loop_timer_set(s->loop, t, now_ms() + ALIVE_MS, on_alive, s);
}

void sse_news(struct sse *s)
{
	http_source_ready(s->rq);
}

void sse_end_all(struct api *a)
{
	struct sse *s;

	list_foreach (s, &a->streams, link) {
		s->over = true;
		http_source_ready(s->rq);
	}
}

struct sse *sse_start(struct call *c, const struct sse_source *src, void *ctx)
{
	struct sse *s = xnew(struct sse);
	const struct http_source source = { read_piece, release, s };

	s->rq = c->rq;
	s->loop = c->api->loop;
	s->source = src;
	s->ctx = ctx;
	strbuf_init(&s->piece);
	list_append(&c->api->streams, &s->link);
	/* What is in between shall not wait for more. */
	http_add_header(c->rq, "cache-control", "no-store");
	http_add_header(c->rq, "x-accel-buffering", "no");
	loop_timer_set(s->loop, &s->alive, now_ms() + ALIVE_MS, on_alive, s);
	http_answer_source(c->rq, 200, "text/event-stream", -1, &source);
	return s;
}
