/*
 * One request of the service, and what its refusals mean.
 *
 * Nothing that the service says is trusted: bodies are bounded, texts are cut,
 * cleaned and searched for our tokens before anybody sees them.
 *
 * A request is kept until it is answered: 401 to the session's token means that
 * nothing was done, so it is sent again, once, when there is another token.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "provider/sandboxd_impl.h"

struct ask {
	struct list link;
	struct provider *p;
	struct box *box; /* NULL: none */
	struct httpc_call *call;
	answer_fn fn;
	void *ctx;
	bool own_ctx;
	struct loop_later later; /* it could not even begin */
	struct garret_error err;

	/* To send it again; of spec not the path, token and json, which are copies. */
	struct ask_spec spec;
	struct strbuf json;
	char *path, *token;
	struct token_wait wait;
	bool again; /* it was refused for its token once */
};

static void ask_free(struct ask *a)
{
	loop_later_cancel(a->p->loop, &a->later);
	sandboxd_renew_leave(&a->wait);
	list_remove(&a->link);
	strbuf_release(&a->json);
	free(a->path);
	free(a->token);
	free(a);
}

void ask_cancel(struct ask *a)
{
	if (a->call)
		httpc_cancel(a->call);
	if (a->own_ctx)
		free(a->ctx);
	ask_free(a);
}

static void deliver(struct ask *a, int status, struct strbuf *body, const struct garret_error *err)
{
	answer_fn fn = a->fn;
	void *to = a->ctx;

	ask_free(a);
	fn(to, status, body, err);
	strbuf_release(body);
}

static void on_renewed(struct token_wait *w, const struct garret_error *err);

static void on_end(void *ctx, const struct httpc_answer *answer, const struct garret_error *err)
{
	struct ask *a = ctx;
	struct strbuf body = STRBUF_INIT;

	a->call = NULL;
	if (answer && answer->status == 401 && a->spec.session && !a->again) {
		a->again = true;
		sandboxd_renew(a->box, a->token, &a->wait, on_renewed);
		return;
	}
	if (answer) {
		body = *answer->body;
		strbuf_init(answer->body);
	}
	deliver(a, answer ? answer->status : 0, &body, answer ? NULL : err);
}

static void on_never(struct loop_later *l)
{
	struct ask *a = container_of(l, struct ask, later);
	struct garret_error err = a->err;

	on_end(a, NULL, &err);
}

static void send_it(struct ask *a)
{
	static const struct httpc_events events = { .end = on_end };
	const struct ask_spec *spec = &a->spec;
	autofree char *token = NULL;
	const char *headers[] = { spec->raw ? "Content-Type: application/octet-stream"
					    : "Content-Type: application/json",
				  NULL, NULL };
	const struct httpc_request rq = {
		.method = spec->method,
		.path = a->path,
		.headers = headers,
		.body = spec->json ? a->json.buf : spec->raw,
		.body_bytes = spec->json ? a->json.len : spec->raw_bytes,
		.total_ms = spec->total_ms ? spec->total_ms : a->p->request_ms,
		.max_bytes = spec->max_bytes ? spec->max_bytes : SANDBOXD_BODY,
	};

	if (spec->session) {
		free(a->token);
		a->token = xstrdup(a->box->token);
	}
	if (a->token)
		headers[1] = token = xasprintf("X-Sandbox-Token: %s", a->token);
	a->call = httpc_start(a->p->http, &rq, &events, a, &a->err);
	if (!a->call)
		loop_later_add(a->p->loop, &a->later, on_never, a);
}

static void on_renewed(struct token_wait *w, const struct garret_error *err)
{
	struct ask *a = container_of(w, struct ask, wait);
	struct strbuf nothing = STRBUF_INIT;

	if (err)
		deliver(a, 401, &nothing, err);
	else
		send_it(a);
}

struct ask *sandboxd_ask(struct provider *p, struct box *box, const struct ask_spec *spec,
			 answer_fn fn, void *ctx)
{
	struct ask *a = xnew(struct ask);

	a->p = p;
	a->box = box;
	a->fn = fn;
	a->ctx = ctx;
	a->own_ctx = spec->own_ctx;
	a->spec = *spec;
	a->path = xasprintf("%s%s", p->prefix, spec->path);
	a->token = spec->token ? xstrdup(spec->token) : NULL;
	strbuf_init(&a->json);
	if (spec->json) {
		a->json = *spec->json;
		strbuf_init(spec->json);
	}
	list_append(box ? &box->asks : &p->asks, &a->link);
	send_it(a);
	return a;
}

/* ---- what it said ---- */

json_t *sandboxd_parse(const struct strbuf *body, const char *what, struct garret_error *err)
{
	json_error_t no;
	json_t *v = json_loadb(body->buf, body->len, JSON_ALLOW_NUL, &no);

	if (!v)
		(void)garret_fail(err, GARRET_PROTOCOL,
				  "the service answered %s with something else", what);
	return v;
}

static void hide(char *text, const char *secret)
{
	const size_t n = secret ? strlen(secret) : 0;

	/* A short one is no secret, and would make nonsense of any text. */
	for (char *at = text; n >= 8 && (at = strstr(at, secret)); at++)
		memset(at, '*', n);
}

void sandboxd_detail(const struct provider *p, const struct box *box, const char *body, size_t n,
		     char out[320])
{
	json_error_t no;
	json_t *v = json_loadb(body, n, 0, &no);
	const json_t *detail = json_object_get(v, "detail");
	const char *text = json_string_value(detail);
	char *own;

	if (!text)
		text = json_string_value(json_object_get(detail, "message"));
	own = xstrdup(text ? text : "");
	hide(own, p->token);
	hide(own, box ? box->token : NULL);
	for (char *c = own; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = ' ';
	(void)snprintf(out, 320, "%.300s", own);
	free(own);
	json_decref(v);
}

static enum garret_code code_of(int status, bool session)
{
	switch (status) {
	case 400:
	case 422:
		return GARRET_INVALID;
	case 401:
		return GARRET_UNAUTHORIZED;
	case 403:
		return GARRET_DENIED;
	case 404:
	case 410:
		return session ? GARRET_GONE : GARRET_UNAVAILABLE;
	case 409:
		return GARRET_CONFLICT;
	case 413:
		return GARRET_TOO_LARGE;
	case 429:
		return GARRET_EXHAUSTED;
	case 501:
		return GARRET_UNSUPPORTED;
	case 507:
		return GARRET_NO_SPACE;
	default:
		return status >= 500 ? GARRET_UNAVAILABLE : GARRET_PROTOCOL;
	}
}

void sandboxd_refused(const struct provider *p, const struct box *box, int status,
		      const struct strbuf *body, const char *what, bool session,
		      struct garret_error *err)
{
	char text[320];

	sandboxd_detail(p, box, body->buf, body->len, text);
	(void)garret_fail(err, code_of(status, session), "the service answered %s with %d%s%s",
			  what, status, *text ? ": " : "", text);
}

static void on_died(struct loop_later *l)
{
	struct box *b = container_of(l, struct box, died_later);

	if (b->died)
		b->died(b->died_ctx);
}

void sandboxd_gone(struct box *b, const struct garret_error *why)
{
	if (b->dead)
		return;
	b->dead = true;
	b->why = *why;
	loop_later_add(b->p->loop, &b->died_later, on_died, b);
}

/* ---- texts ---- */

void sandboxd_escape(struct strbuf *out, const char *s)
{
	for (const unsigned char *c = (const unsigned char *)s; *c; c++) {
		if ((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
		    (*c >= '0' && *c <= '9') || strchr("-._~/", *c))
			strbuf_addch(out, *c);
		else
			strbuf_addf(out, "%%%02X", *c);
	}
}

char *sandboxd_path(const struct box *b, bool v1, const char *tail)
{
	return xasprintf("%s/sessions/%s%s", v1 ? "/v1" : "", b->id, tail);
}

bool sandboxd_is_token(const char *s)
{
	const size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if (s[i] <= ' ' || s[i] > '~')
			return false;
	return n > 0 && n <= 4096;
}
