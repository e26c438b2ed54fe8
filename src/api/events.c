/*
 * What was done in a session, and what happened to sessions: for clients that poll, as
 * published, and for those that follow (server-sent events).  A client that was cut off
 * goes on with after= or Last-Event-ID.
 */
#include <stdlib.h>

#include "api/handlers.h"
#include "api/sse.h"
#include "api/wire.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"

#define LIMIT_DEFAULT 1000
#define AT_ONCE 100 /* events in one piece of a stream */

static void each(void *ctx, const struct session_event *e)
{
	wire_event(ctx, e);
}

void events_list(struct call *c)
{
	const struct events_values *v = c->values;
	struct strbuf out = STRBUF_INIT;
	uint64_t latest = 0;

	json_open(&out, '{');
	json_put_key(&out, "events");
	json_open(&out, '[');
	if (!service_events(c->service, c->session_id, (uint64_t)v->after, each, &out, &latest)) {
		strbuf_release(&out);
		call_refuse(c, 404, "No such session: %s", c->session_id);
		return;
	}
	json_close(&out, ']');
	wire_number(&out, "latest_seq", (int64_t)latest);
	json_close(&out, '}');
	call_answer(c, 200, &out);
}

/* ---- of the service ---- */

static void put_service_event(struct strbuf *out, const struct service_event *e)
{
	json_open(out, '{');
	wire_number(out, "seq", (int64_t)e->seq);
	json_put_key(out, "at");
	json_put_double(out, e->at);
	json_put_key(out, "kind");
	json_put_string(out, e->kind);
	json_put_key(out, "session_id");
	if (*e->session_id)
		json_put_string(out, e->session_id);
	else
		json_put_null(out);
	json_put_key(out, "tenant");
	if (*e->tenant)
		json_put_string(out, e->tenant);
	else
		json_put_null(out);
	json_put_key(out, "detail");
	json_put_string(out, e->detail);
	json_close(out, '}');
}

static void each_of_service(void *ctx, const struct service_event *e)
{
	put_service_event(ctx, e);
}

static struct event_filter filter_of(const struct call *c, const struct log_values *v)
{
	return (struct event_filter){ .after = (uint64_t)v->after,
				      .limit = v->limit ? (unsigned)v->limit : LIMIT_DEFAULT,
				      .session_id = v->session_id,
				      .tenant = *c->caller.tenant ? c->caller.tenant : NULL };
}

void events_service(struct call *c)
{
	const struct event_filter filter = filter_of(c, c->values);
	struct strbuf out = STRBUF_INIT;
	uint64_t latest;

	json_open(&out, '{');
	json_put_key(&out, "events");
	json_open(&out, '[');
	latest = service_log_each(c->service, &filter, each_of_service, &out);
	json_close(&out, ']');
	wire_number(&out, "latest_seq", (int64_t)latest);
	json_close(&out, '}');
	call_answer(c, 200, &out);
}

void events_kept(struct call *c)
{
	const struct kept_events_values *v = c->values;
	const struct event_filter filter = { .after = (uint64_t)v->after,
					     .limit = v->limit ? (unsigned)v->limit : LIMIT_DEFAULT,
					     .tenant =
						     *c->caller.tenant ? c->caller.tenant : NULL };
	struct strbuf out = STRBUF_INIT;
	uint64_t generation;
	int rc;

	if (!parse_u64(v->generation, &generation)) {
		call_refuse(c, 404, "No such generation: %s", v->generation);
		return;
	}
	json_open(&out, '{');
	json_put_key(&out, "events");
	json_open(&out, '[');
	rc = service_kept_events(c->service, v->session_id, generation, &filter, each, &out);
	json_close(&out, ']');
	json_close(&out, '}');
	if (rc == 0) {
		call_answer(c, 200, &out);
		return;
	}
	strbuf_release(&out);
	call_refuse(c, 404, "Nothing is kept of session %s, generation %s", v->session_id,
		    v->generation);
}

/* ---- following ---- */

struct follow {
	struct sse *sse;
	struct service *service;
	struct event_reader *reader;
	char *session_id; /* whose activity; NULL: the service's log, with: */
	char *tenant;
	uint64_t after;
	struct strbuf *out; /* while one is made */
	unsigned n;         /* in it */
};

static void put_event(struct follow *f, uint64_t seq, const struct strbuf *json)
{
	strbuf_addf(f->out, "id: %llu\ndata: ", (unsigned long long)seq);
	strbuf_add(f->out, json->buf, json->len);
	strbuf_addstr(f->out, "\n\n");
	f->after = seq;
	f->n++;
}

static void add_activity(void *ctx, const struct session_event *e)
{
	struct follow *f = ctx;
	autobuf struct strbuf json = STRBUF_INIT;

	if (f->n == AT_ONCE)
		return;
	wire_event(&json, e);
	put_event(f, e->seq, &json);
}

static void add_happened(void *ctx, const struct service_event *e)
{
	struct follow *f = ctx;
	autobuf struct strbuf json = STRBUF_INIT;

	put_service_event(&json, e);
	put_event(f, e->seq, &json);
}

static enum sse_next next(void *ctx, struct strbuf *out)
{
	struct follow *f = ctx;
	const struct event_filter filter = { .after = f->after,
					     .limit = AT_ONCE,
					     .tenant = f->tenant };
	uint64_t latest;

	f->out = out;
	f->n = 0;
	if (f->session_id) {
		if (!service_events(f->service, f->session_id, f->after, add_activity, f, &latest))
			return SSE_END;
	} else {
		latest = service_log_each(f->service, &filter, add_happened, f);
		f->after = MAX(f->after, latest); /* also behind those of others */
	}
	return f->n ? SSE_EVENT : SSE_NOTHING;
}

static void release(void *ctx)
{
	struct follow *f = ctx;

	service_event_reader_free(f->reader);
	free(f->session_id);
	free(f->tenant);
	free(f);
}

static const struct sse_source source = { next, release };

static void on_news(void *ctx)
{
	struct follow *f = ctx;

	sse_news(f->sse);
}

void events_follow(struct call *c)
{
	const struct events_values *v = c->values;
	const char *last = http_header(c->rq, "last-event-id");
	uint64_t after = (uint64_t)v->after;
	struct follow *f;

	if (last && *last && !parse_u64(last, &after)) {
		call_refuse(c, 400, "Last-Event-ID: the seq of an event, not \"%.40s\"", last);
		return;
	}
	f = xnew(struct follow);

	f->service = c->service;
	f->session_id = c->session_id ? xstrdup(c->session_id) : NULL;
	f->tenant = *c->caller.tenant ? xstrdup(c->caller.tenant) : NULL;
	f->after = after;
	f->reader = service_event_reader(c->service, c->session_id, on_news, f);
	if (f->reader) {
		f->sse = sse_start(c, &source, f);
	} else {
		release(f);
		call_refuse(c, 404, "No such session: %s", c->session_id);
	}
}
