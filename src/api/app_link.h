/*
 * The way to the application layer: workers (garret-app) that answer one request at a time each.
 * They are started when there is more to do than idle ones, as this process's user, and end when it
 * does.  A worker that dies fails its request alone.
 */
#ifndef API_APP_LINK_H
#define API_APP_LINK_H

#include <stdint.h>

#include "base/strbuf.h"
#include "io/loop.h"

struct app_link;

struct app_link_config {
	const char *program; /* garret-app */
	const char *dir;     /* its state, which it makes */
	uint64_t sweep_ms;   /* from the end of one sweep to the next */
};

/* Nothing is started yet.  The texts are copied. */
struct app_link *app_link_new(struct loop *l, const struct app_link_config *config);
/* Its workers end what they do, for some seconds at most.  NULL is fine; returns NULL. */
struct app_link *app_link_free(struct app_link *a);
/* Have one run.  From the first one on, what crashes and hosts that were down left is swept now and then. */
void app_link_start(struct app_link *a);

/* An answer: the status of HTTP, and JSON (empty: there is none), borrowed. */
typedef void (*app_answer_fn)(void *ctx, unsigned status, struct strbuf *json);
/*
 * Ask; request is JSON, raw (NULL: none) a body that goes with it.  Always answered, later: with 503
 * when nobody can.  One organisation ("": none) has a half of the workers at most, and a quarter of those
 * who wait: its host may be one that doesn't answer.
 */
void app_link_ask(struct app_link *a, const char *organisation, const struct strbuf *request,
		  const struct strbuf *raw, app_answer_fn fn, void *ctx);

#endif
