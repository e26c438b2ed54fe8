/* Sessions of a sandboxd service: making, finding, closing and deleting them. */
#include "provider/sandboxd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "net/json.h"
#include "provider/sandboxd_impl.h"

#define REQUEST_MS 30000
#define OPENING_MS 600000
#define AGAIN_MS 200   /* between two tries while another client opens the session */
#define NOTICE_MS 3000 /* a wait that is worth a word */
#define OURS "/v1/sessions/{session_id}/file"

/* ---- opening ---- */

/* From POST /sessions until the work directory is known. */
struct opening {
	struct box *box;
	char *asked; /* the id that was asked for; NULL: any */
	char *runtime;
	bool attach;
	uint64_t due_ms;
	struct ask *ask;
	struct loop_timer again, notice;
	struct box_run *pwd;
	void (*named)(void *ctx, const char *ref);
	void *named_ctx;
	box_opened_fn done;
	void *ctx;
};

static void box_free(struct box *b)
{
	struct garret_error gone = { .code = GARRET_GONE, .msg = "the box was closed" };

	sandboxd_files_end(b, &gone);
	sandboxd_runs_end(b, &gone);
	while (!list_empty(&b->asks))
		ask_cancel((struct ask *)b->asks.next); /* link is its first member */
	loop_later_cancel(b->p->loop, &b->died_later);
	list_remove(&b->link);
	free(b->id);
	free(b->token);
	free(b->work_dir);
	free(b);
}

static void opening_free(struct opening *o)
{
	loop_timer_clear(&o->again);
	loop_timer_clear(&o->notice);
	o->box->opening = NULL;
	free(o->asked);
	free(o->runtime);
	free(o);
}

static void open_failed(struct opening *o, const struct garret_error *err)
{
	struct garret_error own = *err;
	box_opened_fn done = o->done;
	struct box *b = o->box;
	void *ctx = o->ctx;

	opening_free(o);
	box_free(b);
	done(ctx, NULL, &own);
}

static void open_done(struct opening *o)
{
	box_opened_fn done = o->done;
	struct box *b = o->box;
	void *ctx = o->ctx;

	opening_free(o);
	done(ctx, b, NULL);
}

static void on_notice(struct loop_timer *t)
{
	struct opening *o = t->ctx;

	o->box->p->waiting(o->box->p->ctx);
}

static struct ask *ask_json(struct opening *o, const char *method, const char *path,
			    struct strbuf *json, bool token, uint32_t total_ms, answer_fn fn)
{
	const struct ask_spec spec = { .method = method,
				       .path = path,
				       .token = token ? o->box->p->token : NULL,
				       .json = json,
				       .total_ms = total_ms };

	return sandboxd_ask(o->box->p, o->box, &spec, fn, o);
}

/* ---- the work directory ---- */

static void on_pwd(void *ctx, struct box_run_end *end)
{
	struct opening *o = ctx;
	struct box *b = o->box;
	struct garret_error err = { 0 };
	size_t n = end->head[0].len;

	o->pwd = NULL;
	while (n && end->head[0].buf[n - 1] == '\n')
		n--;
	if (end->failed.code) {
		err = end->failed;
	} else if (end->timed_out || end->exit_code || !n || end->head[0].buf[0] != '/' ||
		   memchr(end->head[0].buf, '\0', n)) {
		(void)garret_fail(&err, GARRET_GONE, "session %s has no work directory (pwd: %d)",
				  b->id, end->exit_code);
	} else {
		b->work_dir = xstrndup(end->head[0].buf, n);
	}
	if (err.code)
		open_failed(o, &err);
	else
		open_done(o);
}

static void ask_pwd(struct opening *o)
{
	static const char *const argv[] = { "/bin/sh", "-c", "pwd -P", NULL };
	static const char *const env[] = { NULL };
	uint8_t id[RUN_ID_BYTES];
	const struct box_run_spec spec = {
		.id = id, .argv = argv, .env = env, .timeout_ms = o->box->p->request_ms
	};
	struct garret_error err = { 0 };

	if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		(void)garret_fail_errno(&err, "random bytes");
	else
		o->pwd = sandboxd_run(o->box, &spec, on_pwd, o, &err);
	if (!o->pwd)
		open_failed(o, &err);
}

/* ---- is it ours? ---- */

static bool names_route(const struct strbuf *body)
{
	json_error_t no;
	json_t *v = json_loadb(body->buf, body->len, 0, &no), *item;
	bool found = false;
	size_t i;

	json_array_foreach(json_object_get(v, "endpoints"), i, item)
	{
		const char *s = json_string_value(item);

		found |= s && !strcmp(s, OURS);
	}
	json_decref(v);
	return found;
}

static void on_index(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct opening *o = ctx;
	struct provider *p = o->box->p;

	if (err) {
		open_failed(o, err);
		return;
	}
	p->ours = status == 200 && names_route(body);
	p->ours_known = true;
	ask_pwd(o);
}

/* ---- the policy ---- */

static bool flag_of(const json_t *v, const char *key)
{
	return json_is_true(json_object_get(v, key));
}

static int take_policy(struct box *b, const struct strbuf *body, struct garret_error *err)
{
	json_t *v = sandboxd_parse(body, "GET /policy", err);
	const double ceiling = json_number_value(json_object_get(v, "execute_timeout"));
	const json_int_t most = json_integer_value(json_object_get(v, "max_read_bytes"));

	if (!v)
		return -GARRET_PROTOCOL;
	if (!isfinite(ceiling) || ceiling <= 0) {
		json_decref(v);
		return garret_fail(err, GARRET_PROTOCOL,
				   "the service's policy names no execute_timeout");
	}
	b->ceiling_ms = (uint32_t)(fmin(ceiling, 4000000) * 1000);
	b->read_max = most > 0 ? (uint64_t)most : 8u << 20;
	b->native_files = flag_of(v, "native_files");
	b->native_writes = b->native_files && flag_of(v, "native_writes");
	b->native_realpath = b->native_files && flag_of(v, "native_realpath");
	json_decref(v);
	return 0;
}

static void on_policy(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct opening *o = ctx;
	struct box *b = o->box;
	struct garret_error own = { 0 };

	if (err)
		own = *err;
	else if (status != 200)
		sandboxd_refused(b->p, b, status, body, "GET /policy", false, &own);
	else
		(void)take_policy(b, body, &own);
	if (own.code)
		open_failed(o, &own);
	else if (b->p->ours_known)
		ask_pwd(o);
	else
		o->ask = ask_json(o, "GET", "/", NULL, false, 0, on_index);
}

/* ---- POST /sessions ---- */

static int take_session(struct opening *o, const struct strbuf *body, struct garret_error *err)
{
	json_t *v = sandboxd_parse(body, "POST /sessions", err);
	const char *id =
		json_string_value(json_object_get(json_object_get(v, "session"), "session_id"));
	const char *token = json_string_value(json_object_get(v, "token"));
	int rc = v ? 0 : -GARRET_PROTOCOL;

	if (v && (!id || !name_valid(id) || !token || !sandboxd_is_token(token)))
		rc = garret_fail(err, GARRET_PROTOCOL,
				 "the service opened a session without a name or a token");
	else if (v && o->asked && strcmp(id, o->asked) != 0)
		rc = garret_fail(err, GARRET_PROTOCOL, "the service opened another session than %s",
				 o->asked);
	if (rc == 0) {
		o->box->id = xstrdup(id);
		o->box->token = xstrdup(token);
	}
	json_decref(v);
	return rc;
}

/*
 * 409: is another client opening it now?  Our service says so in `reason`, the published one
 * only in its text; its other text is about another runtime, which waiting doesn't change.
 */
static bool is_being_opened(const struct strbuf *body)
{
	json_error_t no;
	json_t *v = json_loadb(body->buf, body->len, 0, &no);
	const char *reason = json_string_value(json_object_get(v, "reason"));
	const char *text = json_string_value(json_object_get(v, "detail"));
	const bool opening =
		reason ? !strcmp(reason, "opening") : text && strstr(text, " is opening") != NULL;

	json_decref(v);
	return opening;
}

static void ask_session(struct opening *o);

static void on_again(struct loop_timer *t)
{
	ask_session(t->ctx);
}

static void refused_session(struct opening *o, int status, const struct strbuf *body)
{
	struct provider *p = o->box->p;
	struct garret_error err = { 0 };

	if (status == 409 && o->asked && is_being_opened(body) && now_ms() + AGAIN_MS < o->due_ms) {
		loop_timer_set(p->loop, &o->again, now_ms() + AGAIN_MS, on_again, o);
		return;
	}
	sandboxd_refused(p, NULL, status, body, "POST /sessions", o->attach, &err);
	if (err.code == GARRET_GONE)
		(void)garret_fail(&err, GARRET_GONE, "session %s no longer exists", o->asked);
	open_failed(o, &err);
}

static void on_session(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct opening *o = ctx;
	struct garret_error own = { 0 };

	o->ask = NULL;
	if (err) {
		own = *err;
		if (own.code == GARRET_TIMEOUT)
			(void)garret_fail(&own, GARRET_UNAVAILABLE,
					  "the service did not open a session in time");
		open_failed(o, &own);
		return;
	}
	if (status != 200) {
		refused_session(o, status, body);
		return;
	}
	if (take_session(o, body, &own) < 0) {
		open_failed(o, &own);
		return;
	}
	/* Before anything else can fail: else nobody could delete it. */
	if (o->named)
		o->named(o->named_ctx, o->box->id);
	o->ask = ask_json(o, "GET", "/policy", NULL, true, 0, on_policy);
}

static void put_or_null(struct strbuf *out, const char *key, const char *value)
{
	json_put_key(out, key);
	json_put_string(out, value);
}

static void ask_session(struct opening *o)
{
	struct provider *p = o->box->p;
	autobuf struct strbuf body = STRBUF_INIT;
	const uint64_t now = now_ms();

	json_open(&body, '{');
	put_or_null(&body, "session_id", o->asked);
	put_or_null(&body, "runtime", o->runtime);
	put_or_null(&body, "tenant", p->tenant);
	json_put_key(&body, "reuse");
	json_put_bool(&body, o->asked && !o->attach);
	json_put_key(&body, "attach");
	json_put_bool(&body, o->attach);
	json_close(&body, '}');
	o->ask = ask_json(o, "POST", "/sessions", &body, true,
			  o->due_ms > now ? (uint32_t)(o->due_ms - now) : 1, on_session);
}

static struct opening *opening_new(struct provider *p, const char *asked, bool attach,
				   box_opened_fn done, void *ctx)
{
	struct opening *o = xnew(struct opening);
	struct box *b = xnew(struct box);

	b->p = p;
	b->opening = o;
	list_init(&b->runs);
	list_init(&b->files);
	list_init(&b->asks);
	list_append(&p->boxes, &b->link);
	o->box = b;
	o->asked = asked ? xstrdup(asked) : NULL;
	o->attach = attach;
	o->due_ms = now_ms() + p->opening_ms;
	o->done = done;
	o->ctx = ctx;
	o->again.ctx = o->notice.ctx = o;
	if (p->waiting)
		loop_timer_set(p->loop, &o->notice, now_ms() + NOTICE_MS, on_notice, o);
	return o;
}

static void on_bad_ref(struct loop_timer *t)
{
	struct opening *o = t->ctx;
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_GONE, "that is no session of this service");
	open_failed(o, &err);
}

static void sandboxd_open(struct provider *p, const struct box_spec *spec, box_opened_fn done,
			  void *ctx)
{
	const char *asked = spec->ref ? spec->ref : p->session_name;
	const char *runtime = spec->runtime ? spec->runtime : p->runtime;
	struct opening *o = opening_new(p, asked, spec->ref != NULL, done, ctx);

	o->runtime = runtime ? xstrdup(runtime) : NULL;
	o->named = spec->named;
	o->named_ctx = spec->named_ctx;
	/* It comes with a history: what isn't a name never gets into a path. */
	if (spec->ref && !name_valid(spec->ref))
		loop_timer_set(p->loop, &o->again, 0, on_bad_ref, o);
	else
		ask_session(o);
}

static void sandboxd_watch(struct box *b, box_died_fn died, void *ctx)
{
	b->died = died;
	b->died_ctx = ctx;
}

static const char *sandboxd_ref(const struct box *b)
{
	return b->id;
}

static const char *sandboxd_reach(const struct box *b)
{
	return b->p->ours ? "garretd" : "sandboxd";
}

const char *sandboxd_work_dir(const struct box *b)
{
	return b->work_dir;
}

bool sandboxd_is_ours(const struct box *b)
{
	return b->p->ours;
}

/* ---- closing, deleting ---- */

struct closing {
	struct provider *p;
	struct loop_later later;
	char *id;
	box_done_fn done;
	void *ctx;
};

static void closing_end(struct closing *c, const struct garret_error *err)
{
	struct garret_error own = { 0 };
	box_done_fn done = c->done;
	void *ctx = c->ctx;

	if (err)
		own = *err;
	loop_later_cancel(c->p->loop, &c->later);
	free(c->id);
	free(c);
	done(ctx, own.code ? &own : NULL);
}

static void on_deleted(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct closing *c = ctx;
	struct garret_error own = { 0 };

	if (err)
		own = *err;
	/* What is gone is closed, and purged. */
	else if (status != 204 && status != 200 && status != 404 && status != 410)
		sandboxd_refused(c->p, NULL, status, body, "DELETE /sessions", false, &own);
	closing_end(c, own.code ? &own : NULL);
}

static void delete_session(struct closing *c, bool purge)
{
	autofree char *path = xasprintf("/sessions/%s%s", c->id, purge ? "?purge=true" : "");
	const struct ask_spec spec = { .method = "DELETE", .token = c->p->token, .path = path };

	(void)sandboxd_ask(c->p, NULL, &spec, on_deleted, c);
}

static void on_nothing(struct loop_later *l)
{
	closing_end(container_of(l, struct closing, later), NULL);
}

static struct closing *closing_new(struct provider *p, const char *id, box_done_fn done, void *ctx)
{
	struct closing *c = xnew(struct closing);

	c->p = p;
	c->id = id ? xstrdup(id) : NULL;
	c->done = done;
	c->ctx = ctx;
	return c;
}

static void sandboxd_close(struct box *b, enum box_close how, box_done_fn done, void *ctx)
{
	struct closing *c = closing_new(b->p, b->id, done, ctx);
	const bool nothing = how == BOX_CLOSE_LEAVE;

	box_free(b);
	if (nothing)
		loop_later_add(c->p->loop, &c->later, on_nothing, c);
	else
		delete_session(c, how == BOX_CLOSE_PURGE);
}

/* Files of a closed session can only be deleted through a session of its name. */
static void on_attached(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct closing *c = ctx;
	struct garret_error own = { 0 };

	if (err) {
		closing_end(c, err);
	} else if (status == 404 || status == 410) {
		closing_end(c, NULL);
	} else if (status != 200) {
		sandboxd_refused(c->p, NULL, status, body, "POST /sessions", false, &own);
		closing_end(c, &own);
	} else {
		delete_session(c, true);
	}
}

static void sandboxd_forget(struct provider *p, const char *id, enum box_forget what,
			    uint64_t used_ms, box_done_fn done, void *ctx)
{
	const char *name = id ? id : p->session_name;
	struct closing *c = closing_new(p, name, done, ctx);
	autobuf struct strbuf body = STRBUF_INIT;
	const struct ask_spec spec = { .method = "POST",
				       .path = "/sessions",
				       .token = p->token,
				       .json = &body,
				       .total_ms = p->opening_ms };

	(void)what, (void)used_ms;
	/* Nothing was ever made: then nothing is opened only to be deleted. */
	if (!name || !name_valid(name)) {
		loop_later_add(p->loop, &c->later, on_nothing, c);
		return;
	}
	json_open(&body, '{');
	put_or_null(&body, "session_id", name);
	put_or_null(&body, "runtime", NULL);
	put_or_null(&body, "tenant", p->tenant);
	json_put_key(&body, "reuse");
	json_put_bool(&body, false);
	json_put_key(&body, "attach");
	json_put_bool(&body, true);
	json_close(&body, '}');
	(void)sandboxd_ask(p, NULL, &spec, on_attached, c);
}

/* ---- usage ---- */

struct usage {
	struct box *box;
	box_usage_fn done;
	void *ctx;
};

static uint64_t count_of(const json_t *v, const char *key)
{
	const json_t *n = json_object_get(v, key);

	return json_is_integer(n) && json_integer_value(n) >= 0 ? (uint64_t)json_integer_value(n)
								: UINT64_MAX;
}

static void on_usage(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct usage *u = ctx;
	struct box_usage v = { .cpu_us = UINT64_MAX,
			       .oom_kills = UINT64_MAX,
			       .io_read_bytes = UINT64_MAX,
			       .io_written_bytes = UINT64_MAX,
			       .disk_bytes = UINT64_MAX };
	struct garret_error own = { 0 };
	json_t *all = NULL, *is;

	if (err)
		own = *err;
	else if (status != 200)
		sandboxd_refused(u->box->p, u->box, status, body, "GET /sessions", true, &own);
	else
		all = sandboxd_parse(body, "GET /sessions", &own);
	is = json_object_get(all, "usage");
	v.memory_bytes = count_of(is, "memory_bytes");
	v.memory_limit_bytes = count_of(is, "memory_limit_bytes");
	v.pids = count_of(is, "pids");
	json_decref(all);
	if (own.code == GARRET_GONE)
		sandboxd_gone(u->box, &own);
	u->done(u->ctx, own.code ? NULL : &v, own.code ? &own : NULL);
	free(u);
}

static void sandboxd_usage(struct box *b, box_usage_fn done, void *ctx)
{
	autofree char *path = sandboxd_path(b, false, "?usage=true");
	const struct ask_spec spec = {
		.method = "GET", .path = path, .token = b->token, .own_ctx = true
	};
	struct usage *u = xnew(struct usage);

	*u = (struct usage){ b, done, ctx };
	(void)sandboxd_ask(b->p, b, &spec, on_usage, u);
}

/* ---- the provider ---- */

const struct provider_ops sandboxd_ops = {
	.name = "sandboxd",
	.open = sandboxd_open,
	.watch = sandboxd_watch,
	.work_dir = sandboxd_work_dir,
	.close = sandboxd_close,
	.ref = sandboxd_ref,
	.reach = sandboxd_reach,
	.usage = sandboxd_usage,
	.run = sandboxd_run,
	.state = sandboxd_state,
	.stop = sandboxd_stop,
	.stream = sandboxd_stream,
	.input = sandboxd_input,
	.ack = sandboxd_ack,
	.winch = sandboxd_winch,
	.signal = sandboxd_signal,
	.busy = sandboxd_busy,
	.leave = sandboxd_leave,
	.forget = sandboxd_forget,
	.file = sandboxd_file,
	.file_body = sandboxd_file_body,
	.file_body_end = sandboxd_file_body_end,
	.file_pipe = sandboxd_file_pipe,
	.file_pause = sandboxd_file_pause,
	.file_leave = sandboxd_file_leave,
};

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static char **copy_env(const char *const *env)
{
	size_t n = 0;
	char **out;

	while (env && env[n])
		n++;
	out = xcalloc(n + 1, sizeof(*out));
	for (size_t i = 0; i < n; i++)
		out[i] = xstrdup(env[i]);
	return out;
}

/* Where the path begins in http://HOST/PREFIX; slashes at its end don't count. */
static int split_url(const char *url, char **ret_origin, char **ret_prefix,
		     struct garret_error *err)
{
	const char *host = strstr(url, "://"), *slash;
	size_t n = strlen(url);

	if (!host || (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) ||
	    strpbrk(url, "?#@ \r\n"))
		return garret_fail(err, GARRET_INVALID,
				   "service_url is http(s)://HOST[:PORT][/PATH]");
	while (n && url[n - 1] == '/')
		n--;
	slash = strchr(host + 3, '/');
	slash = slash && slash < url + n ? slash : url + n;
	*ret_origin = xstrndup(url, (size_t)(slash - url));
	*ret_prefix = xstrndup(slash, (size_t)(url + n - slash));
	return 0;
}

int sandboxd_new(const struct sandboxd_config *config, struct provider **ret,
		 struct garret_error *err)
{
	autofree char *origin = NULL, *prefix = NULL;
	struct httpc *http = NULL;
	struct provider *p;
	int rc;

	if (config->session_name && !name_valid(config->session_name))
		return garret_fail(err, GARRET_INVALID,
				   "a session name is a letter or digit and up to 63 of "
				   "A-Z a-z 0-9 . _ -");
	if (!config->token || !sandboxd_is_token(config->token))
		return garret_fail(err, GARRET_INVALID,
				   "a token is printable ASCII without blanks");
	rc = split_url(config->url, &origin, &prefix, err);
	if (rc == 0)
		rc = httpc_new(config->loop,
			       &(const struct httpc_target){ .url = origin,
							     .socket = config->socket,
							     .tls = config->tls },
			       &http, err);
	if (rc < 0)
		return rc;
	p = xnew(struct provider);
	p->loop = config->loop;
	p->http = http;
	p->prefix = take_ptr(&prefix);
	p->token = xstrdup(config->token);
	p->session_name = copy(config->session_name);
	p->runtime = copy(config->runtime);
	p->tenant = copy(config->tenant);
	p->env = copy_env(config->env);
	p->request_ms = config->request_ms ? config->request_ms : REQUEST_MS;
	p->opening_ms = MAX(config->opening_ms ? config->opening_ms : OPENING_MS, p->request_ms);
	p->waiting = config->waiting;
	p->ctx = config->ctx;
	list_init(&p->boxes);
	list_init(&p->asks);
	*ret = p;
	return 0;
}

struct provider *sandboxd_free(struct provider *p)
{
	if (!p)
		return NULL;
	while (!list_empty(&p->asks))
		ask_cancel((struct ask *)p->asks.next);
	(void)httpc_free(p->http);
	for (char **e = p->env; *e; e++)
		free(*e);
	free(p->env);
	free(p->prefix);
	free(p->token);
	free(p->session_name);
	free(p->runtime);
	free(p->tenant);
	free(p);
	return NULL;
}
