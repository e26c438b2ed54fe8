/*
 * Server-sent events: an answer without end, made piece by piece as the client takes
 * it, so that a slow client costs nothing.  A comment every 15 s keeps what is in
 * between awake.  When the daemon ends, its streams do: a client asks the next one for
 * what comes behind that which it has.
 */
#ifndef API_SSE_H
#define API_SSE_H

#include "api/route.h"
#include "base/strbuf.h"

struct sse;

enum sse_next {
	SSE_NOTHING, /* there is no event now: sse_news() says when */
	SSE_EVENT,   /* at least one is in out */
	SSE_LAST,    /* the same, and it is the last one */
	SSE_END,     /* there will be none any more */
	SSE_BROKEN,  /* what is to be told is lost: the connection breaks off */
};

struct sse_source {
	enum sse_next (*next)(void *ctx, struct strbuf *out);
	void (*release)(void *ctx);
};

/* Begin the answer; src is borrowed, ctx passes to release(). */
struct sse *sse_start(struct call *c, const struct sse_source *src, void *ctx);
void sse_news(struct sse *s);
void sse_end_all(struct api *a);

#endif
