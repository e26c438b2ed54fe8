/*
 * Requests to the engine.  Until the version is agreed on they wait; when the
 * engine is lost, it is asked again: it may come back as another one.
 */
#include "provider/docker_api.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/json.h"

#define TOTAL_MS 60000
#define ANSWER_MAX (16u << 20) /* a list of all containers */
#define VALUE_MAX (1u << 20)   /* one JSON value of a stream */

struct docker_api {
	struct loop *loop;
	struct httpc *http;
	unsigned minor; /* of the version 1.x; 0: not known */
	bool stale;     /* it was lost meanwhile: another may be there */
	struct httpc_call *asking;
	struct list waiting, calls, execs;
	struct loop_later later; /* of calls that failed at once */
};

struct docker_call {
	struct list link;
	struct docker_api *a;
	struct httpc_call *http; /* NULL: it waits for the version */
	char *method, *path, *body, *type, *header;
	size_t body_bytes;
	uint32_t total_ms;
	void (*value)(void *ctx, const struct json_t *json);
	docker_fn fn;
	void *ctx;
	int status;
	struct strbuf in;
	struct garret_error failed;
	struct loop_later later;
	bool *gone;
};

/* ---- text ---- */

void docker_escape(struct strbuf *out, const char *s)
{
	for (; *s; s++) {
		if (isalnum((unsigned char)*s) || strchr("-._~", *s))
			strbuf_addch(out, *s);
		else
			strbuf_addf(out, "%%%02X", (unsigned char)*s);
	}
}

void docker_clean(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p; p++)
		if (*p < 0x20 || *p == 0x7f)
			*p = ' ';
	for (size_t n = strlen(text); n && text[n - 1] == ' '; n--)
		text[n - 1] = '\0';
}

static enum garret_code code_of(int status)
{
	switch (status) {
	case 400:
		return GARRET_INVALID;
	case 401:
	case 403:
		return GARRET_DENIED;
	case 404:
		return GARRET_NOT_FOUND;
	case 409:
		return GARRET_CONFLICT;
	case 429:
		return GARRET_EXHAUSTED;
	case 503:
		return GARRET_UNAVAILABLE;
	default:
		return GARRET_INTERNAL;
	}
}

int docker_error(int status, const struct strbuf *body, struct garret_error *err)
{
	json_t *v = json_loadb(body->buf, body->len, 0, NULL);
	const char *text = json_string_value(json_object_get(v, "message"));
	autofree char *clean = xstrndup(text ? text : "", 400);
	int rc;

	docker_clean(clean);
	rc = garret_fail(err, code_of(status), "docker: %s%s",
			 *clean ? clean : "the engine answered ",
			 *clean          ? ""
			 : status == 500 ? "500"
					 : "with an error");
	json_decref(v);
	return rc;
}

/* ---- one call ---- */

static void call_free(struct docker_call *c)
{
	if (c->gone)
		*c->gone = true;
	list_remove(&c->link);
	loop_later_cancel(c->a->loop, &c->later);
	strbuf_release(&c->in);
	free(c->method);
	free(c->path);
	free(c->body);
	free(c->type);
	if (c->header)
		explicit_bzero(c->header, strlen(c->header)); /* a registry's password */
	free(c->header);
	free(c);
}

static void call_end(struct docker_call *c, const json_t *json, const struct garret_error *err)
{
	docker_fn fn = c->fn;

	c->http = NULL;
	c->fn = NULL;
	fn(c->ctx, json, err);
	call_free(c);
}

static void on_failed(struct loop_later *l)
{
	struct docker_call *c = l->ctx;

	call_end(c, NULL, &c->failed);
}

/* Values one behind the other, with or without line breaks between. */
static void give_values(struct docker_call *c)
{
	bool gone = false;
	size_t used = 0;

	c->gone = &gone;
	while (used < c->in.len) {
		json_error_t e;
		json_t *v;

		while (used < c->in.len && isspace((unsigned char)c->in.buf[used]))
			used++;
		if (used == c->in.len)
			break;
		v = json_loadb(c->in.buf + used, c->in.len - used, JSON_DISABLE_EOF_CHECK, &e);
		if (!v)
			break; /* the rest of it is still to come */
		used += (size_t)e.position;
		c->value(c->ctx, v);
		json_decref(v);
		if (gone)
			return;
	}
	c->gone = NULL;
	strbuf_remove_front(&c->in, used);
}

static void on_head(void *ctx, const struct httpc_answer *a)
{
	struct docker_call *c = ctx;

	c->status = a->status;
}

static void on_data(void *ctx, const void *data, size_t n)
{
	struct docker_call *c = ctx;
	const bool values = c->value && c->status < 300;

	if (c->failed.code)
		return;
	if (c->in.len + n > (values ? VALUE_MAX + n : ANSWER_MAX)) {
		(void)garret_fail(&c->failed, GARRET_TOO_LARGE,
				  "docker: the engine's answer is too long");
		return;
	}
	strbuf_add(&c->in, data, n);
	if (values)
		give_values(c);
}

static void on_end(void *ctx, const struct httpc_answer *a, const struct garret_error *err)
{
	struct docker_call *c = ctx;
	json_t *json = NULL;

	if (err && (err->code == GARRET_UNAVAILABLE || err->code == GARRET_DENIED))
		c->a->stale = true;
	if (!err && !c->failed.code && a->status >= 300 && a->status != 304)
		(void)docker_error(a->status, &c->in, &c->failed);
	if (!err && !c->failed.code && c->in.len && !c->value) {
		struct json_problem p;

		json = (json_t *)json_read(&c->in, &p);
		if (!json)
			(void)garret_fail(&c->failed, GARRET_PROTOCOL,
					  "docker: what the engine answered isn't JSON");
	}
	if (!err && !c->failed.code && c->in.len && c->value)
		(void)garret_fail(&c->failed, GARRET_UNAVAILABLE, "docker: the answer was cut off");
	if (!err && c->failed.code)
		err = &c->failed;
	call_end(c, err ? NULL : json, err);
	json_decref(json);
}

static const struct httpc_events call_events = { .head = on_head, .data = on_data, .end = on_end };

static void send_call(struct docker_call *c)
{
	autofree char *path = xasprintf("/v1.%u%s", c->a->minor, c->path);
	autofree char *type = xasprintf("Content-Type: %s", c->type ? c->type : "application/json");
	const char *headers[3] = { NULL };
	unsigned n = 0;

	if (c->body)
		headers[n++] = type;
	if (c->header)
		headers[n++] = c->header;
	list_remove(&c->link);
	list_append(&c->a->calls, &c->link);
	c->http = httpc_start(c->a->http,
			      &(struct httpc_request){ .method = c->method,
						       .path = path,
						       .headers = headers,
						       .body = c->body,
						       .body_bytes = c->body_bytes,
						       .total_ms = c->total_ms },
			      &call_events, c, &c->failed);
	if (!c->http)
		loop_later_add(c->a->loop, &c->later, on_failed, c);
}

/* ---- the version ---- */

/* "1.41": 41; false for anything else. */
static bool minor_of(const char *version, unsigned *ret)
{
	uint64_t n;

	if (!version || strncmp(version, "1.", 2) != 0 || !parse_u64(version + 2, &n) || n > 9999)
		return false;
	*ret = (unsigned)n;
	return true;
}

static int agree(struct docker_api *a, const struct httpc_answer *answer, struct garret_error *err)
{
	json_t *v = json_loadb(answer->body->buf, answer->body->len, 0, NULL);
	const char *most = json_string_value(json_object_get(v, "ApiVersion"));
	const char *least = json_string_value(json_object_get(v, "MinAPIVersion"));
	const char *os = json_string_value(json_object_get(v, "Os"));
	unsigned hi = 0, lo = 0;
	int rc = 0;

	if (answer->status != 200)
		rc = docker_error(answer->status, answer->body, err);
	else if (!minor_of(most, &hi) || (least && !minor_of(least, &lo)))
		rc = garret_fail(err, GARRET_PROTOCOL, "%s: this is no Docker engine",
				 httpc_name(a->http));
	else if (hi < DOCKER_API_LEAST || lo > DOCKER_API_MOST)
		rc = garret_fail(err, GARRET_UNSUPPORTED,
				 "%s: the engine speaks API 1.%u to 1.%u, we 1.%u to 1.%u",
				 httpc_name(a->http), lo, hi, DOCKER_API_LEAST, DOCKER_API_MOST);
	else if (os && strcmp(os, "linux") != 0)
		rc = garret_fail(err, GARRET_UNSUPPORTED, "%s: its containers aren't of Linux",
				 httpc_name(a->http));
	else
		a->minor = MIN(hi, DOCKER_API_MOST);
	a->stale = a->stale && rc < 0;
	json_decref(v);
	return rc;
}

static void on_version(void *ctx, const struct httpc_answer *answer, const struct garret_error *err)
{
	struct docker_api *a = ctx;
	struct garret_error wrong = { 0 };
	struct list waiting;

	a->asking = NULL;
	if (!err && agree(a, answer, &wrong) < 0)
		err = &wrong;
	list_init(&waiting);
	list_move_all(&waiting, &a->waiting);
	while (!list_empty(&waiting)) {
		struct docker_call *c = list_entry(waiting.next, struct docker_call, link);

		if (!err) {
			send_call(c);
			continue;
		}
		list_remove(&c->link);
		list_append(&a->calls, &c->link);
		c->failed = *err;
		loop_later_add(a->loop, &c->later, on_failed, c);
	}
}

static void ask_version(struct docker_api *a)
{
	static const struct httpc_events events = { .end = on_version };

	if (!a->asking)
		a->asking = httpc_start(a->http,
					&(struct httpc_request){ .method = "GET",
								 .path = "/version",
								 .total_ms = TOTAL_MS },
					&events, a, NULL);
}

/* ---- its users ---- */

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

struct docker_call *docker_ask(struct docker_api *a, const struct docker_request *rq, docker_fn fn,
			       void *ctx)
{
	struct docker_call *c = xnew(struct docker_call);

	c->a = a;
	c->method = xstrdup(rq->method);
	c->path = xstrdup(rq->path);
	c->body = rq->body ? xmemdup(rq->body, rq->body_bytes ? rq->body_bytes : 1) : NULL;
	c->body_bytes = rq->body_bytes;
	c->type = copy(rq->type);
	c->header = copy(rq->header);
	c->total_ms = !rq->total_ms ? TOTAL_MS : rq->total_ms == UINT32_MAX ? 0 : rq->total_ms;
	c->value = rq->value;
	c->fn = fn;
	c->ctx = ctx;
	strbuf_init(&c->in);
	list_append(&a->waiting, &c->link);
	if (a->minor && !a->stale)
		send_call(c);
	else
		ask_version(a);
	return c;
}

void docker_cancel(struct docker_call *c)
{
	if (c->http)
		httpc_cancel(c->http);
	call_free(c);
}

int docker_api_new(struct loop *l, const struct docker_host *h, struct docker_api **ret,
		   struct garret_error *err)
{
	struct docker_api *a = xnew(struct docker_api);
	int rc = docker_host_client(h, l, &a->http, err);

	if (rc < 0) {
		free(a);
		return rc;
	}
	a->loop = l;
	list_init(&a->waiting);
	list_init(&a->calls);
	list_init(&a->execs);
	*ret = a;
	return 0;
}

struct docker_api *docker_api_free(struct docker_api *a)
{
	if (!a)
		return NULL;
	docker_exec_leave_all(a);
	while (!list_empty(&a->waiting))
		call_free(list_entry(a->waiting.next, struct docker_call, link));
	while (!list_empty(&a->calls))
		docker_cancel(list_entry(a->calls.next, struct docker_call, link));
	httpc_free(a->http);
	free(a);
	return NULL;
}

struct loop *docker_api_loop(const struct docker_api *a)
{
	return a->loop;
}

const char *docker_api_name(const struct docker_api *a)
{
	return httpc_name(a->http);
}

unsigned docker_api_minor(const struct docker_api *a)
{
	return a->minor;
}

struct httpc *docker_api_client(struct docker_api *a)
{
	return a->http;
}

struct list *docker_api_execs(struct docker_api *a)
{
	return &a->execs;
}
