/*
 * From a request to its handler: see route.h for the order of the checks.
 *
 * Authentication comes before the body, unlike the published order: a stranger
 * can't make the service read and parse anything.
 */
#include "api/route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/wire.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"

#define BODY_LIMIT_DEFAULT (1u << 20)
#define DELAYED_MAX 256 /* wrong tokens that wait; more are answered at once */

/* ---- calls ---- */

struct call *call_ref(struct call *c)
{
	c->refs++;
	return c;
}

void call_unref(struct call *c)
{
	if (--c->refs)
		return;
	if (c->values)
		json_values_release(c->route->body, c->values);
	json_done(c->body);
	free(c->values);
	for (int i = 0; i < CALL_PARAMS_MAX; i++)
		free(c->params[i]);
	free(c);
}

static void on_gone(void *data)
{
	struct call *c = data;

	c->rq = NULL;
	if (c->leave)
		c->leave(c);
	c->leave = NULL;
}

static void on_finished(void *data)
{
	struct call *c = data;

	c->rq = NULL;
	if (c->leave) /* a protocol that HTTP gave way to, or never did */
		c->leave(c);
	c->leave = NULL;
	if (c->delay.index) {
		loop_timer_clear(&c->delay);
		c->api->delayed--;
	}
	call_unref(c);
}

static struct call *call_new(struct api *a, struct http_request *rq)
{
	struct call *c = xnew(struct call);

	c->api = a;
	c->service = a->service;
	c->rq = rq;
	c->refs = 1;
	http_set_data(rq, c, on_finished);
	http_on_gone(rq, on_gone);
	return c;
}

/* ---- matching ---- */

/* Segments of a template against those of a path; parameters are copied. A parameter is never "". */
static bool match(const char *template, const char *path, size_t path_len, char **params)
{
	const char *end = path + path_len;
	int n = 0;

	while (*template == '/' && path < end && *path == '/') {
		const char *slash = memchr(path + 1, '/', (size_t)(end - path - 1));
		size_t want, have;

		template ++;
		path++;
		want = strcspn(template, "/");
		have = slash ? (size_t)(slash - path) : (size_t)(end - path);
		if (*template == '{') {
			if (!have)
				return false;
			if (params)
				params[n++] = xstrndup(path, have);
		} else if (want != have || memcmp(template, path, have) != 0) {
			return false;
		}
		template += want;
		path += have;
	}
	return !*template && path == end;
}

static bool method_fits(const struct route *r, const char *method)
{
	return !strcmp(r->method, method) || (r->head && !strcmp(method, "HEAD"));
}

/* The route; else *ret_first is the first one with that path, or NULL. */
static const struct route *find(const char *method, const char *path, size_t n,
				const struct route **ret_first)
{
	*ret_first = NULL;
	for (const struct route *r = routes; r->path; r++) {
		if (!match(r->path, path, n, NULL))
			continue;
		if (method_fits(r, method))
			return r;
		if (!*ret_first)
			*ret_first = r;
	}
	return NULL;
}

/* Encoded anew: the slashes that go may have been sent as %2F. */
static void redirect(struct call *c, size_t bare)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "-._~/:@!$&'()*+,;=";
	const char *path = http_path(c->rq), *host = http_header(c->rq, "host");
	const char *query = strchr(http_target(c->rq), '?');
	autobuf struct strbuf to = STRBUF_INIT;

	if (host)
		strbuf_addf(&to, "http://%s", host);
	for (size_t i = 0; i < bare; i++) {
		if (strchr(plain, path[i]))
			strbuf_addch(&to, path[i]);
		else
			strbuf_addf(&to, "%%%02X", (unsigned char)path[i]);
	}
	strbuf_addstr(&to, query ? query : "");
	http_add_header(c->rq, "location", to.buf);
	http_answer_static(c->rq, 307, NULL, "", 0);
}

/* No route takes it: 405, a redirect to the path without its slashes, or 404. */
static void no_route(struct call *c, const struct route *first)
{
	const char *path = http_path(c->rq);
	size_t n = strlen(path), bare = n;

	while (bare && path[bare - 1] == '/')
		bare--;
	if (first) {
		http_add_header(c->rq, "allow", first->head ? "GET, HEAD" : first->method);
		call_refuse(c, 405, "Method Not Allowed");
	} else if (bare && bare < n && (find("", path, bare, &first), first)) {
		redirect(c, bare);
	} else {
		call_refuse(c, 404, "Not Found");
	}
}

/* ---- authentication ---- */

static void refuse_token(struct call *c)
{
	call_refuse(c, 401, "Invalid or missing sandbox token");
}

static void on_delay(struct loop_timer *t)
{
	struct call *c = t->ctx;

	c->api->delayed--;
	refuse_token(c);
}

static void wrong_token(struct call *c)
{
	uint64_t now = now_ms();
	uint64_t wait = throttle_failed(&c->api->throttle, http_address(c->rq), now);

	if (!wait || c->api->delayed >= DELAYED_MAX) {
		refuse_token(c);
		return;
	}
	c->api->delayed++;
	loop_timer_set(c->api->loop, &c->delay, now + wait, on_delay, c);
}

static size_t trimmed_length(const char *s)
{
	size_t n = strlen(s);

	while (n && (s[n - 1] == ' ' || s[n - 1] == '\t'))
		n--;
	return n;
}

void route_scope_text(const char *tenant, bool read_only, char out[80])
{
	if (tenant && *tenant)
		(void)snprintf(out, 80, "tenant:%.64s%s", tenant, read_only ? "+read" : "");
	else
		(void)snprintf(out, 80, "%s", read_only ? "read" : "all");
}

void route_forbid(struct call *c, const char *what)
{
	struct strbuf out = STRBUF_INIT;
	char scope[80], text[200];

	route_scope_text(c->caller.tenant, c->caller.read_only, scope);
	(void)snprintf(text, sizeof(text), "%s is not allowed with this token (scope %s)", what,
		       scope);
	json_open(&out, '{');
	json_put_key(&out, "detail");
	json_put_string(&out, text);
	json_put_key(&out, "scope");
	json_put_string(&out, scope);
	json_close(&out, '}');
	call_answer(c, 403, &out);
}

static bool scope_allows(const struct call *c)
{
	const struct caller *who = &c->caller;

	if (c->route->scope == SCOPE_READ)
		return true;
	return !who->read_only && (c->route->scope == SCOPE_WRITE || !*who->tenant);
}

/* Is what the path names of the caller's tenant, when he has one? */
static bool in_tenant(struct call *c)
{
	const char *tenant = c->caller.tenant, *id = c->params[0];

	if (!*tenant || !(c->session_id || c->route->kept))
		return true;
	return id && service_owns(c->service, tenant, id);
}

/* What is kept of runs can be read when their session is gone. */
static bool is_there(struct call *c)
{
	return service_has_session(c->service, c->session_id) ||
	       (c->route->ended && service_has_ended_runs(c->service, c->session_id));
}

/* The caller has a token of the service. */
static bool admit(struct call *c)
{
	if (!scope_allows(c)) {
		route_forbid(c, "This");
		return false;
	}
	if (c->session_id && (!is_there(c) || !in_tenant(c))) {
		call_refuse(c, 404, "No such session: %s", c->session_id);
		return false;
	}
	return true;
}

/* True when the call may go on; else it was answered, or will be. */
static bool authenticate(struct call *c)
{
	const char *sent = http_header(c->rq, "x-sandbox-token");
	autofree char *token = sent ? xstrndup(sent, trimmed_length(sent)) : NULL;

	if (c->route->auth == ROUTE_OPEN)
		return true;
	if (!token || !*token) {
		refuse_token(c); /* nobody guesses by sending nothing */
		return false;
	}
	switch (service_authenticate(c->service, token, c->session_id, &c->caller)) {
	case AUTH_SERVICE:
		return admit(c);
	case AUTH_SESSION:
		c->generation = service_generation(c->service, c->session_id);
		if (service_has_session(c->service, c->session_id))
			return true;
		/* fallthrough */
	case AUTH_ENDED:
		c->generation = c->route->ended
					? service_ended_generation(c->service, token, c->session_id)
					: 0;
		if (c->generation)
			return true;
		call_refuse(c, 410, "The session has ended: %s", c->session_id);
		return false;
	case AUTH_LATE:
		call_refuse(c, 503, "The session is not found again yet: %s", c->session_id);
		return false;
	case AUTH_NONE:
		break;
	}
	wrong_token(c);
	return false;
}

/* ---- values ---- */

static const struct json_field session_param = { .name = "session_id",
						 .kind = JSON_KIND_NAME,
						 .flags = JSON_REQUIRED };

static bool check_session_id(struct call *c)
{
	struct json_errors e = JSON_ERRORS_INIT;
	const char *id;

	json_check_text("path", &session_param, c->params[0], &id, &e);
	if (e.n) {
		call_invalid(c, &e);
		return false;
	}
	c->session_id = c->params[0];
	return true;
}

static bool read_body_values(struct call *c, struct json_errors *e)
{
	struct strbuf *body = (struct strbuf *)(uintptr_t)http_body(c->rq);
	struct json_problem problem;

	c->body = json_read(body, &problem);
	if (c->body && c->route->strict) {
		return true;
	} else if (c->body) {
		json_check_body(c->body, c->route->body, c->values, e);
	} else if (problem.kind == JSON_NOT_UTF8) {
		call_refuse(c, 400, "There was an error parsing the body");
		return false;
	} else if (problem.kind == JSON_TOO_MUCH) {
		call_refuse(c, 413,
			    "The request body has more than 65536 values, or 1 MiB of "
			    "them beside long strings");
		return false;
	} else {
		/* Not JSON at all: as published, nothing else is looked at. */
		if (problem.kind == JSON_SYNTAX) {
			strbuf_release(&e->items);
			*e = (struct json_errors)JSON_ERRORS_INIT;
		}
		json_add_problem(e, &problem);
	}
	return true;
}

/* It may have taken a while: the session has to be the caller's still. */
static void on_awake(void *ctx, const struct refusal *no)
{
	struct call *c = ctx;

	if (c->rq && no->status)
		call_refusal(c, no);
	else if (c->rq && authenticate(c))
		c->route->handle(c);
	call_unref(c);
}

static void on_body(struct http_request *rq)
{
	struct call *c = http_data(rq);
	const struct route *r = c->route;
	struct json_errors e = JSON_ERRORS_INIT;
	int n = r->auth == ROUTE_SESSION;

	if (http_body_no_room(rq)) {
		call_refuse(c, 503, "Too many large requests at once");
		return;
	}
	if (http_body_too_large(rq)) {
		call_refuse(c, 413, "The request body is larger than %zu bytes",
			    r->body_limit ? r->body_limit : (size_t)BODY_LIMIT_DEFAULT);
		return;
	}
	c->values = xcalloc(1, r->values_size + 1);
	for (const struct json_field *f = r->params; f && f->name; f++)
		json_check_text("path", f, c->params[n++], c->values, &e);
	for (const struct json_field *f = r->query; f && f->name; f++)
		json_check_text("query", f, http_query(rq, f->name), c->values, &e);
	if (r->body && !read_body_values(c, &e)) {
		strbuf_release(&e.items);
		return;
	}
	if (e.n)
		call_invalid(c, &e);
	else if (r->kept && !in_tenant(c))
		call_refuse(c, 404, "No workspace for session: %s", c->params[0]);
	else if (r->wakes && service_asleep(c->service, c->session_id))
		service_wake(c->service, c->session_id, on_awake, call_ref(c));
	else
		r->handle(c);
}

/*
 * The body may take minutes.  Meanwhile the session may have ended, and its name may be
 * another's: the token has to be good now, not when it was sent.
 */
static void on_read(struct http_request *rq)
{
	if (authenticate(http_data(rq)))
		on_body(rq);
}

void route_handle(void *ctx, struct http_request *rq)
{
	struct call *c = call_new(ctx, rq);
	const char *path = http_path(rq);
	const struct route *first;

	c->route = find(http_method(rq), path, strlen(path), &first);
	if (!c->route) {
		no_route(c, first);
		return;
	}
	(void)match(c->route->path, path, strlen(path), c->params);
	if (c->route->auth == ROUTE_SESSION && !check_session_id(c))
		return;
	if (!authenticate(c))
		return;
	if (c->route->unread)
		on_body(rq);
	else
		http_read_body(rq, c->route->body_limit ? c->route->body_limit : BODY_LIMIT_DEFAULT,
			       on_read);
}
