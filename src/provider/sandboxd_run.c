/*
 * Commands: one POST .../run whose answer is the end.
 *
 * The service's limit for a command (its ceiling) can be below what is asked
 * for: then that one was reached, and the end says so.  An answer that doesn't
 * come is no reason to let the command run on: it is stopped by its id.
 */
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

struct box_run *sandboxd_run_new(struct box *b, box_run_end_fn end, void *ctx)
{
	struct box_run *r = xnew(struct box_run);

	r->box = b;
	r->end = end;
	r->ctx = ctx;
	strbuf_init(&r->out);
	strbuf_init(&r->in);
	strbuf_init(&r->request);
	for (int s = 0; s < 2; s++) {
		strbuf_init(&r->head[s]);
		strbuf_init(&r->answer.head[s]);
	}
	r->timer.ctx = r;
	list_append(&b->runs, &r->link);
	return r;
}

void sandboxd_run_free(struct box_run *r)
{
	if (r->gone)
		*r->gone = true;
	if (r->ask)
		ask_cancel(r->ask);
	r->raw = httpc_raw_free(r->raw);
	loop_timer_clear(&r->timer);
	list_remove(&r->link);
	sandboxd_renew_leave(&r->wait);
	free(r->token);
	strbuf_release(&r->out);
	strbuf_release(&r->in);
	strbuf_release(&r->request);
	for (int s = 0; s < 2; s++) {
		strbuf_release(&r->head[s]);
		strbuf_release(&r->answer.head[s]);
	}
	free(r);
}

void sandboxd_run_end(struct box_run *r, struct box_run_end *end)
{
	box_run_end_fn fn = r->end;
	void *ctx = r->ctx;

	end->stopped |= r->stopped;
	sandboxd_run_free(r);
	if (fn)
		fn(ctx, end);
	strbuf_release(&end->head[0]);
	strbuf_release(&end->head[1]);
}

void sandboxd_run_failed(struct box_run *r, const struct garret_error *err)
{
	struct box_run_end end = { .failed = *err,
				   .gone = err->code == GARRET_GONE,
				   .exit_code = -1,
				   .head = { STRBUF_INIT, STRBUF_INIT } };

	if (end.gone)
		sandboxd_gone(r->box, err);
	for (int s = 0; s < 2; s++) {
		end.head[s] = r->head[s];
		end.total[s] = end.head[s].len;
		strbuf_init(&r->head[s]);
	}
	sandboxd_run_end(r, &end);
}

void sandboxd_runs_end(struct box *b, const struct garret_error *why)
{
	while (!list_empty(&b->runs))
		sandboxd_run_failed(list_entry(b->runs.next, struct box_run, link), why);
}

/* ---- the request ---- */

/* Is there another setting of the same name in env? */
static bool is_set(const char *const *env, const char *entry)
{
	const size_t n = strcspn(entry, "=") + 1;

	for (; env && *env; env++)
		if (!strncmp(*env, entry, n))
			return true;
	return false;
}

static int put_setting(struct strbuf *out, const char *entry, struct garret_error *err)
{
	const char *value = strchr(entry, '=');
	autofree char *name = value ? xstrndup(entry, (size_t)(value - entry)) : NULL;

	if (!name || !*name)
		return garret_fail(err, GARRET_INVALID, "a setting of the environment has no name");
	/* Its value may be a secret. */
	if (!utf8_valid(entry, strlen(entry)))
		return garret_fail(err, GARRET_INVALID,
				   "a setting of the environment is not UTF-8: a service can't be "
				   "given it");
	json_put_key(out, name);
	json_put_string(out, value + 1);
	return 0;
}

int sandboxd_put_command(struct strbuf *out, const struct box *b, const char *const *argv,
			 const char *const *env, struct garret_error *err)
{
	json_put_key(out, "argv");
	json_open(out, '[');
	for (size_t i = 0; argv[i]; i++) {
		if (!utf8_valid(argv[i], strlen(argv[i])))
			return garret_fail(err, GARRET_INVALID,
					   "argument %zu is not UTF-8: a service can't be given it",
					   i);
		json_put_string(out, argv[i]);
	}
	json_close(out, ']');
	json_put_key(out, "env");
	json_open(out, '{');
	for (char **e = b->p->env; *e; e++)
		if (!is_set(env, *e) && put_setting(out, *e, err) < 0)
			return -GARRET_INVALID;
	for (size_t i = 0; env && env[i]; i++)
		if (!is_set(env + i + 1, env[i]) && put_setting(out, env[i], err) < 0)
			return -GARRET_INVALID;
	json_close(out, '}');
	return 0;
}

/* A start directory as a part of the command; free() the array. */
const char **sandboxd_in_directory(const char *cwd, const char *const *argv)
{
	static const char *const before[] = { "/bin/sh", "-c",
					      "cd \"$1\" || exit 125; shift; exec \"$@\"", "sh" };
	const size_t n = ARRAY_SIZE(before);
	const char **out;
	size_t words = 0;

	while (argv[words])
		words++;
	out = xcalloc(n + words + 2, sizeof(*out));
	memcpy(out, before, sizeof(before));
	out[n] = cwd;
	memcpy(out + n + 1, argv, words * sizeof(*out));
	return out;
}

/* ---- the end ---- */

static void ignore(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	(void)ctx, (void)status, (void)body, (void)err;
}

/* As well as can be; nobody waits for it, also when the box is closed meanwhile. */
static void ask_stop(struct box_run *r)
{
	autofree char *tail = xasprintf("/runs/%s/stop", r->hex);
	autofree char *path = sandboxd_path(r->box, false, tail);
	const struct ask_spec spec = {
		.method = "POST", .path = path, .token = r->box->token, .total_ms = SANDBOXD_STOP_MS
	};

	(void)sandboxd_ask(r->box->p, NULL, &spec, ignore, NULL);
}

static bool take_text(const json_t *v, const char *key, struct strbuf *out)
{
	const json_t *s = json_object_get(v, key);

	if (!json_is_string(s))
		return false;
	strbuf_add(out, json_string_value(s), json_string_length(s));
	return true;
}

static int take_answer(struct box_run *r, const struct strbuf *body, struct garret_error *err)
{
	json_t *v = sandboxd_parse(body, "POST .../run", err);
	const json_t *code = json_object_get(v, "exit_code");
	const json_t *limit = json_object_get(v, "output_limit");
	struct box_run_end *end = &r->answer;
	bool fine = take_text(v, "stdout", &end->head[0]) && take_text(v, "stderr", &end->head[1]);

	end->timed_out = json_is_true(json_object_get(v, "timed_out"));
	end->output_limited = json_is_true(json_object_get(v, "output_limited"));
	end->exit_code = -1;
	if (!end->timed_out && !end->output_limited) {
		fine = fine && json_is_integer(code) && json_integer_value(code) >= 0 &&
		       json_integer_value(code) <= 255;
		end->exit_code = (int)json_integer_value(code);
	}
	if (end->output_limited)
		end->limit_bytes = json_is_integer(limit) && json_integer_value(limit) > 0
					   ? (uint64_t)json_integer_value(limit)
					   : SANDBOXD_OUTPUT;
	/* What was asked for was never in force. */
	if (end->timed_out && (!r->timeout_ms || r->timeout_ms > r->box->ceiling_ms))
		end->limit_ms = r->box->ceiling_ms;
	json_decref(v);
	if (!v || fine)
		return v ? 0 : -GARRET_PROTOCOL;
	return garret_fail(err, GARRET_PROTOCOL, "the service answered /run with something else");
}

/* The caller's own limit, which this wire can't carry. */
static void limit_output(struct box_run *r)
{
	struct box_run_end *end = &r->answer;

	for (int s = 0; s < 2; s++)
		end->total[s] = end->head[s].len;
	if (!r->output_limit || end->total[0] + end->total[1] <= r->output_limit)
		return;
	end->output_limited = true;
	end->limit_bytes = r->output_limit;
	end->exit_code = -1;
	for (int s = 0; s < 2; s++) {
		const size_t keep = (size_t)MIN(r->output_limit, (uint64_t)SANDBOXD_PARTIAL);

		if (end->head[s].len <= keep)
			continue;
		end->head[s].len = keep;
		end->head[s].buf[keep] = '\0';
	}
}

static void complete(struct box_run *r)
{
	struct box_run_end end;

	limit_output(r);
	end = r->answer;
	strbuf_init(&r->answer.head[0]);
	strbuf_init(&r->answer.head[1]);
	sandboxd_run_end(r, &end);
}

/* ---- output that isn't text ---- */

static void fetch(struct box_run *r);

static void on_fetched(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct box_run *r = ctx;
	const int s = r->fetched[1] ? 1 : 0;

	r->ask = NULL;
	/* Else it stays as it was answered: with U+FFFD in it. */
	if (!err && status == 200) {
		strbuf_release(&r->answer.head[s]);
		r->answer.head[s] = *body;
		strbuf_init(body);
	}
	fetch(r);
}

/*
 * JSON has U+FFFD where a byte was none.  Our own service still has the bytes.
 */
static void fetch(struct box_run *r)
{
	const bool partial = r->answer.timed_out || r->answer.output_limited;

	for (int s = 0; s < 2; s++) {
		const struct strbuf *head = &r->answer.head[s];
		autofree char *tail = xasprintf("/runs/%s/output?stream=%s&limit=%u", r->hex,
						s ? "stderr" : "stdout",
						partial ? SANDBOXD_PARTIAL : SANDBOXD_OUTPUT);
		autofree char *path = sandboxd_path(r->box, false, tail);
		const struct ask_spec spec = { .method = "GET",
					       .path = path,
					       .session = true,
					       .max_bytes = SANDBOXD_OUTPUT + 4096 };

		if (r->fetched[s] || !memmem(head->buf, head->len, "\xEF\xBF\xBD", 3))
			continue;
		r->fetched[s] = true;
		r->ask = sandboxd_ask(r->box->p, r->box, &spec, on_fetched, r);
		return;
	}
	complete(r);
}

static void on_answer(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct box_run *r = ctx;
	struct garret_error own = { 0 };

	r->ask = NULL;
	if (err) {
		own = *err;
		if (status != 401)
			ask_stop(r);
		if (own.code == GARRET_TIMEOUT || own.code == GARRET_TOO_LARGE)
			(void)garret_fail(&own,
					  own.code == GARRET_TIMEOUT ? GARRET_UNAVAILABLE
								     : GARRET_PROTOCOL,
					  own.code == GARRET_TIMEOUT
						  ? "the service did not answer /run in time"
						  : "the service answered /run with too much");
	} else if (status != 200) {
		sandboxd_refused(r->box->p, r->box, status, body, "/run", true, &own);
	} else {
		(void)take_answer(r, body, &own);
	}
	if (own.code)
		sandboxd_run_failed(r, &own);
	else if (r->box->p->ours)
		fetch(r);
	else
		complete(r);
}

/* ---- the interface ---- */

static int is_alive(const struct box *b, struct garret_error *err)
{
	if (!b->dead)
		return 0;
	*err = b->why;
	return -(int)b->why.code;
}

static int ask_run(struct box_run *r, const struct box_run_spec *spec, const char *const *argv,
		   struct garret_error *err)
{
	const uint32_t ceiling = r->box->ceiling_ms;
	const uint32_t limit = r->timeout_ms ? MIN(r->timeout_ms, ceiling) : ceiling;
	autofree char *path = sandboxd_path(r->box, false, "/run");
	autobuf struct strbuf body = STRBUF_INIT;
	const struct ask_spec ask = { .method = "POST",
				      .path = path,
				      .session = true,
				      .json = &body,
				      .total_ms = limit + SANDBOXD_SLACK_MS,
				      .max_bytes = SANDBOXD_RUN_BODY };
	int rc;

	json_open(&body, '{');
	rc = sandboxd_put_command(&body, r->box, argv, spec->env, err);
	if (rc < 0)
		return rc;
	json_put_key(&body, "timeout_seconds");
	if (r->timeout_ms)
		json_put_double(&body, r->timeout_ms / 1000.0);
	else
		json_put_null(&body);
	json_put_key(&body, "run_id");
	json_put_string(&body, r->hex);
	json_close(&body, '}');
	r->ask = sandboxd_ask(r->box->p, r->box, &ask, on_answer, r);
	return 0;
}

struct box_run *sandboxd_run(struct box *b, const struct box_run_spec *spec, box_run_end_fn end,
			     void *ctx, struct garret_error *err)
{
	autofree const char **inside =
		spec->cwd ? sandboxd_in_directory(spec->cwd, spec->argv) : NULL;
	const char *const *argv = inside ? (const char *const *)inside : spec->argv;
	const struct box_stream_spec live = { .argv = argv,
					      .env = spec->env,
					      .timeout_ms = spec->timeout_ms };
	struct box_run *r;
	int rc;

	if (is_alive(b, err) < 0)
		return NULL;
	if (spec->input && !b->p->ours) {
		(void)garret_fail(err, GARRET_UNSUPPORTED,
				  "commands of this service have no standard input");
		return NULL;
	}
	r = sandboxd_run_new(b, end, ctx);
	memcpy(r->id, spec->id, RUN_ID_BYTES);
	hex_encode(r->id, RUN_ID_BYTES, r->hex);
	r->timeout_ms = spec->timeout_ms;
	r->output_limit = spec->output_limit;
	r->news = spec->news;
	rc = spec->input || (spec->live && b->p->ours) ? sandboxd_live(r, &live, err)
						       : ask_run(r, spec, argv, err);
	if (rc == 0)
		return r;
	r->end = NULL;
	sandboxd_run_free(r);
	return NULL;
}

void sandboxd_state(const struct box_run *r, struct box_run_state *ret)
{
	*ret = (struct box_run_state){ .started = r->open,
				       .held = r->taken,
				       .taken = r->taken,
				       .input_ended = r->input_ended };
	for (int s = 0; s < 2; s++) {
		ret->total[s] = r->head[s].len;
		ret->head[s] = r->head[s].buf;
	}
}

void sandboxd_stop(struct box_run *r, uint32_t grace_ms)
{
	if (r->stopped)
		return;
	r->stopped = true;
	if (r->live)
		sandboxd_live_stop(r, grace_ms);
	else
		ask_stop(r);
}

/* Nobody waits for an answer any more. */
void sandboxd_leave(struct box_run *r)
{
	r->end = NULL;
	if (!r->live && !r->stopped)
		ask_stop(r);
	sandboxd_run_free(r);
}

/* ---- as a host of shellfs ---- */

struct shell_run {
	struct box_run *run;
	const struct shell_events *events;
	void *ctx;
	bool ending, cancelled;
};

static void shell_end(void *ctx, struct box_run_end *end)
{
	struct shell_run *r = ctx;
	const struct shell_events *events = r->events;
	struct garret_error err = end->failed;
	void *to = r->ctx;

	r->run = NULL;
	r->ending = true;
	if (end->timed_out)
		(void)garret_fail(&err, GARRET_TIMEOUT, "the command took longer than it may");
	if (end->output_limited)
		(void)garret_fail(&err, GARRET_OUTPUT_LIMIT, "the command printed too much");
	for (int s = 0; s < 2 && !r->cancelled && !err.code; s++)
		if (end->head[s].len)
			events->out(to, s, end->head[s].buf, end->head[s].len);
	if (!r->cancelled)
		events->end(to, end->exit_code, err.code ? &err : NULL);
	free(r);
}

static struct shell_run *shell_start(void *ctx, const struct shell_command *cmd,
				     const struct shell_events *events, void *events_ctx,
				     struct garret_error *err)
{
	static const char *const env[] = { NULL };
	struct shell_run *r = xnew(struct shell_run);
	uint8_t id[RUN_ID_BYTES];
	const struct box_run_spec spec = {
		.id = id, .argv = cmd->argv, .env = env, .timeout_ms = cmd->timeout_ms
	};

	r->events = events;
	r->ctx = events_ctx;
	if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		(void)garret_fail_errno(err, "random bytes");
	else
		r->run = sandboxd_run(ctx, &spec, shell_end, r, err);
	if (r->run)
		return r;
	free(r);
	return NULL;
}

static void shell_cancel(struct shell_run *r)
{
	r->cancelled = true;
	if (r->run)
		sandboxd_leave(r->run);
	if (!r->ending)
		free(r);
}

void sandboxd_shell_host(struct box *b, struct shell_host *ret)
{
	*ret = (struct shell_host){ .loop = b->p->loop,
				    .work_dir = b->work_dir,
				    .output_max = SANDBOXD_OUTPUT,
				    .arguments_bytes = 8 * SHELL_ARGUMENT_MAX,
				    .run = shell_start,
				    .cancel = shell_cancel,
				    .ctx = b };
}
