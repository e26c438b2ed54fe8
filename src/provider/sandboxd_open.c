/*
 * Opening a session: POST /sessions until it is ours, the service's policy, what
 * kind of service it is, and the work directory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "provider/sandboxd_impl.h"

#define NOTICE_MS 3000 /* a wait that is worth a word */
#define OURS "/v1/sessions/{session_id}/file"

/* From POST /sessions until the work directory is known. */
struct opening {
	struct box *box;
	char *asked; /* the id that was asked for; NULL: any */
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

static void opening_free(struct opening *o)
{
	loop_timer_clear(&o->again);
	loop_timer_clear(&o->notice);
	o->box->opening = NULL;
	free(o->asked);
	free(o);
}

static void open_failed(struct opening *o, const struct garret_error *err)
{
	struct garret_error own = *err;
	box_opened_fn done = o->done;
	struct box *b = o->box;
	void *ctx = o->ctx;

	opening_free(o);
	sandboxd_box_free(b);
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

	o->pwd = NULL;
	if (end->failed.code)
		err = end->failed;
	/* The sandbox may well be there: no reason to think that its files are lost. */
	else if (end->timed_out)
		(void)garret_fail(&err, GARRET_UNAVAILABLE,
				  "session %s did not name its work directory in time", b->id);
	else if (end->exit_code || sandboxd_take_where(end->head[0].buf, end->head[0].len,
						       &b->birth, &b->work_dir) < 0)
		(void)garret_fail(&err, GARRET_GONE, "session %s has no work directory (pwd: %d)",
				  b->id, end->exit_code);
	if (err.code)
		open_failed(o, &err);
	else
		open_done(o);
}

static void ask_pwd(struct opening *o)
{
	/* Our own service says itself when a session was made anew. */
	const char *script = o->box->p->ours ? "pwd -P" : SANDBOXD_WHERE;
	const char *const argv[] = { "/bin/sh", "-c", script, NULL };
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

int sandboxd_take_session(const struct strbuf *body, const char *asked, char **ret_id,
			  char **ret_token, struct garret_error *err)
{
	json_t *v = sandboxd_parse(body, "POST /sessions", err);
	const char *id =
		json_string_value(json_object_get(json_object_get(v, "session"), "session_id"));
	const char *token = json_string_value(json_object_get(v, "token"));
	int rc = v ? 0 : -GARRET_PROTOCOL;

	if (v && (!id || !name_valid(id) || !token || !sandboxd_is_token(token)))
		rc = garret_fail(err, GARRET_PROTOCOL,
				 "the service opened a session without a name or a token");
	else if (v && asked && strcmp(id, asked) != 0)
		rc = garret_fail(err, GARRET_PROTOCOL, "the service opened another session than %s",
				 asked);
	if (rc == 0) {
		*ret_id = xstrdup(id);
		*ret_token = xstrdup(token);
	}
	json_decref(v);
	return rc;
}

/*
 * 409: is another client opening it now?  Our service says so in `reason`, the published one
 * only in its text; its other text is about another runtime, which waiting doesn't change.
 */
bool sandboxd_is_being_opened(const struct strbuf *body)
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

	if (status == 409 && o->asked && sandboxd_is_being_opened(body) &&
	    now_ms() + SANDBOXD_AGAIN_MS < o->due_ms) {
		loop_timer_set(p->loop, &o->again, now_ms() + SANDBOXD_AGAIN_MS, on_again, o);
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
	if (sandboxd_take_session(body, o->asked, &o->box->id, &o->box->token, &own) < 0) {
		open_failed(o, &own);
		return;
	}
	/* Before anything else can fail: else nobody could delete it. */
	if (o->named)
		o->named(o->named_ctx, o->box->id);
	o->ask = ask_json(o, "GET", "/policy", NULL, true, 0, on_policy);
}

static void ask_session(struct opening *o)
{
	struct provider *p = o->box->p;
	autobuf struct strbuf body = STRBUF_INIT;
	const uint64_t now = now_ms();

	sandboxd_put_session(&body, p, o->asked, o->box->runtime, o->attach);
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

void sandboxd_open(struct provider *p, const struct box_spec *spec, box_opened_fn done, void *ctx)
{
	const char *asked = spec->ref ? spec->ref : p->session_name;
	const char *runtime = spec->runtime ? spec->runtime : p->runtime;
	struct opening *o = opening_new(p, asked, spec->ref != NULL, done, ctx);

	o->box->runtime = runtime ? xstrdup(runtime) : NULL;
	o->named = spec->named;
	o->named_ctx = spec->named_ctx;
	/* It comes with a history: what isn't a name never gets into a path. */
	if (spec->ref && !name_valid(spec->ref))
		loop_timer_set(p->loop, &o->again, 0, on_bad_ref, o);
	else
		ask_session(o);
}
