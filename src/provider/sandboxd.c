/* Sessions of a sandboxd service: closing and deleting them, and the provider as a whole. */
#include "provider/sandboxd.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "net/json.h"
#include "provider/sandboxd_impl.h"

#define REQUEST_MS 30000
#define OPENING_MS 600000
#define WAIT_MS 10 /* between two looks whether all is said */

void sandboxd_box_free(struct box *b)
{
	struct garret_error gone = { .code = GARRET_GONE, .msg = "the box was closed" };

	sandboxd_files_end(b, &gone);
	sandboxd_runs_end(b, &gone);
	while (!list_empty(&b->asks))
		ask_cancel((struct ask *)b->asks.next); /* link is its first member */
	sandboxd_renew_end(b);
	loop_later_cancel(b->p->loop, &b->died_later);
	list_remove(&b->link);
	free(b->id);
	free(b->token);
	free(b->runtime);
	free(b->birth);
	free(b->work_dir);
	free(b);
}

static void put_or_null(struct strbuf *out, const char *key, const char *value)
{
	json_put_key(out, key);
	json_put_string(out, value);
}

void sandboxd_put_session(struct strbuf *out, const struct provider *p, const char *id,
			  const char *runtime, bool attach)
{
	json_open(out, '{');
	put_or_null(out, "session_id", id);
	put_or_null(out, "runtime", runtime);
	put_or_null(out, "tenant", p->tenant);
	json_put_key(out, "reuse");
	json_put_bool(out, id && !attach);
	json_put_key(out, "attach");
	json_put_bool(out, attach);
	json_close(out, '}');
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
	struct loop_timer wait;
	char *id;
	struct garret_error err;
	uint64_t due_ms;
	box_done_fn done;
	void *ctx;
};

static void closing_end(struct closing *c)
{
	struct garret_error err = c->err;
	box_done_fn done = c->done;
	void *ctx = c->ctx;

	loop_later_cancel(c->p->loop, &c->later);
	loop_timer_clear(&c->wait);
	free(c->id);
	free(c);
	done(ctx, err.code ? &err : NULL);
}

/*
 * Whoever closes a box may end next.  Commands that were given up are still being stopped:
 * that is waited for, as long as it may take.
 */
static void on_wait(struct loop_timer *t)
{
	struct closing *c = t->ctx;

	if (list_empty(&c->p->asks) || now_ms() >= c->due_ms)
		closing_end(c);
	else
		loop_timer_set(c->p->loop, t, now_ms() + WAIT_MS, on_wait, c);
}

static void closed(struct closing *c, const struct garret_error *err)
{
	if (err)
		c->err = *err;
	c->due_ms = now_ms() + SANDBOXD_STOP_MS;
	c->wait.ctx = c;
	on_wait(&c->wait);
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
	closed(c, own.code ? &own : NULL);
}

static void delete_session(struct closing *c, bool purge)
{
	autofree char *path = xasprintf("/sessions/%s%s", c->id, purge ? "?purge=true" : "");
	const struct ask_spec spec = { .method = "DELETE", .token = c->p->token, .path = path };

	(void)sandboxd_ask(c->p, NULL, &spec, on_deleted, c);
}

static void on_nothing(struct loop_later *l)
{
	closed(container_of(l, struct closing, later), NULL);
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
	/* Under a name that was lost there may be another's. */
	const bool nothing = how == BOX_CLOSE_LEAVE || b->lost;

	sandboxd_box_free(b);
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
		closed(c, err);
	} else if (status == 404 || status == 410) {
		closed(c, NULL);
	} else if (status != 200) {
		sandboxd_refused(c->p, NULL, status, body, "POST /sessions", false, &own);
		closed(c, &own);
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
	sandboxd_put_session(&body, p, name, NULL, true);
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
		.method = "GET", .path = path, .session = true, .own_ctx = true
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
