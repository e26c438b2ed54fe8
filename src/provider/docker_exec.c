/*
 * A command in a container: create, start on a connection that goes over to a
 * raw stream, and when that has ended ask for the exit code.
 *
 * Without a terminal both streams come in frames: a byte for the stream, three
 * that are zero, four for the length.  The engine ends the connection when the
 * command has ended, and also when the container is killed in the middle of a
 * frame.  So the end of the stream says nothing by itself: half a frame or no
 * exit code means that the container is asked for.
 *
 * A command that a signal killed may have died with its container, which reads
 * "running" for a moment more: it is asked for until half a second has passed.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/json.h"
#include "provider/docker_api.h"

#define POLL_MS 50
#define SETTLE_MS 500
#define FRAME_HEAD 8
#define RESIZE_MS 50
#define RESIZE_TRIES 40

struct docker_exec {
	struct list link; /* of the api */
	struct docker_api *a;
	const struct docker_exec_events *events; /* NULL: they were told the end */
	void *ctx;
	char *container, *id, *body;
	struct docker_call *call;
	struct httpc_raw *raw;
	bool tty, input, detach, open;

	/* Sizes are told one after the other: requests at the same time may overtake each other. */
	uint16_t rows, columns, told_rows, told_columns;
	unsigned untold; /* tries that were refused */
	struct docker_call *resizing;
	struct loop_timer resize_later;

	unsigned char frame[FRAME_HEAD];
	size_t have;   /* of the frame's head */
	uint32_t left; /* of its content */
	int stream;

	uint64_t ended_ms; /* the stream has ended; 0: it has not */
	int exit_code;
	struct loop_timer poll;
	struct loop_later later; /* to free it outside of its connection's callbacks */
	struct garret_error failed;
	bool *gone;
};

static void exec_free(struct docker_exec *e)
{
	if (e->gone)
		*e->gone = true;
	list_remove(&e->link);
	if (e->call)
		docker_cancel(e->call);
	if (e->resizing)
		docker_cancel(e->resizing);
	httpc_raw_free(e->raw);
	loop_timer_clear(&e->poll);
	loop_timer_clear(&e->resize_later);
	loop_later_cancel(docker_api_loop(e->a), &e->later);
	free(e->container);
	free(e->id);
	free(e->body);
	free(e);
}

static void finish(struct docker_exec *e, const struct docker_exec_end *end,
		   const struct garret_error *err)
{
	const struct docker_exec_events *events = e->events;

	e->events = NULL;
	e->raw = httpc_raw_free(e->raw);
	if (events)
		events->end(e->ctx, end, err);
	exec_free(e);
}

static void fail(struct docker_exec *e, const struct garret_error *err)
{
	const struct docker_exec_end end = { 0 };

	finish(e, &end, err);
}

static void gone(struct docker_exec *e)
{
	const struct docker_exec_end end = { .gone = true };

	finish(e, &end, NULL);
}

static struct docker_call *ask(struct docker_exec *e, const char *method, const char *fmt,
			       const char *id, const char *body, docker_fn fn)
{
	autobuf struct strbuf name = STRBUF_INIT, path = STRBUF_INIT;

	docker_escape(&name, id);
	strbuf_addf(&path, "%s%s%s", fmt[0] == 'c' ? "/containers/" : "/exec/", name.buf, fmt + 1);
	return docker_ask(e->a,
			  &(struct docker_request){ .method = method,
						    .path = path.buf,
						    .body = body,
						    .body_bytes = body ? strlen(body) : 0 },
			  fn, e);
}

/* ---- how it ended ---- */

static void ask_container(struct docker_exec *e);
static void ask_exit(struct docker_exec *e);

static void on_container_poll(struct loop_timer *t)
{
	ask_container(t->ctx);
}

static void on_exit_poll(struct loop_timer *t)
{
	ask_exit(t->ctx);
}

static bool settled(const struct docker_exec *e)
{
	return now_ms() >= e->ended_ms + SETTLE_MS;
}

static void poll_again(struct docker_exec *e, void (*fn)(struct loop_timer *))
{
	loop_timer_set(docker_api_loop(e->a), &e->poll, now_ms() + POLL_MS, fn, e);
}

static void on_container(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct docker_exec *e = ctx;
	const json_t *state = json_object_get((const json_t *)json, "State");

	e->call = NULL;
	if (err && err->code != GARRET_NOT_FOUND) {
		fail(e, err);
		return;
	}
	if (err || !json_is_true(json_object_get(state, "Running")) ||
	    json_is_true(json_object_get(state, "Dead"))) {
		gone(e);
		return;
	}
	if (!settled(e)) {
		poll_again(e, on_container_poll);
		return;
	}
	if (e->failed.code) {
		fail(e, &e->failed);
	} else {
		const struct docker_exec_end end = { .exit_code = e->exit_code };

		finish(e, &end, NULL);
	}
}

static void ask_container(struct docker_exec *e)
{
	e->call = ask(e, "GET", "c/json", e->container, NULL, on_container);
}

/* Is it the container that has gone, or is it what `code` says? */
static void suspect(struct docker_exec *e, enum garret_code code, const char *text)
{
	(void)garret_fail(&e->failed, code, "docker: %s", text);
	ask_container(e);
}

static void on_exit_code(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct docker_exec *e = ctx;
	const json_t *code = json_object_get((const json_t *)json, "ExitCode");

	e->call = NULL;
	if (err && err->code == GARRET_NOT_FOUND) {
		gone(e);
		return;
	}
	if (err) {
		fail(e, err);
		return;
	}
	if (json_is_true(json_object_get((const json_t *)json, "Running")) ||
	    !json_is_integer(code)) {
		/* The stream may end a moment before that is written down. */
		if (!settled(e))
			poll_again(e, on_exit_poll);
		else
			suspect(e, GARRET_PROTOCOL,
				"a command's stream ended, and it has no exit code");
		return;
	}
	e->exit_code = (int)json_integer_value(code);
	if (e->have || e->left) {
		suspect(e, GARRET_PROTOCOL, "a command's output ended inside a frame");
	} else if (e->exit_code > 128) {
		ask_container(e);
	} else {
		const struct docker_exec_end end = { .exit_code = e->exit_code };

		finish(e, &end, NULL);
	}
}

static void ask_exit(struct docker_exec *e)
{
	e->call = ask(e, "GET", "x/json", e->id, NULL, on_exit_code);
}

/* ---- its terminal's size ---- */

static void tell_size(struct docker_exec *e);

static void on_resize_later(struct loop_timer *t)
{
	tell_size(t->ctx);
}

/* It is refused while the command hasn't its terminal yet. */
static void on_told(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct docker_exec *e = ctx;

	(void)json;
	e->resizing = NULL;
	if (!err) {
		e->untold = 0;
		tell_size(e);
	} else if (e->untold++ < RESIZE_TRIES) {
		e->told_rows = e->told_columns = 0;
		loop_timer_set(docker_api_loop(e->a), &e->resize_later, now_ms() + RESIZE_MS,
			       on_resize_later, e);
	}
}

static void tell_size(struct docker_exec *e)
{
	autofree char *path = NULL;

	if (!e->open || e->ended_ms || e->resizing ||
	    (e->rows == e->told_rows && e->columns == e->told_columns))
		return;
	e->told_rows = e->rows;
	e->told_columns = e->columns;
	path = xasprintf("/exec/%s/resize?h=%u&w=%u", e->id, e->rows, e->columns);
	e->resizing = docker_ask(e->a, &(struct docker_request){ .method = "POST", .path = path },
				 on_told, e);
}

/* ---- its streams ---- */

/* false: those are no frames, or nobody is there any more. */
static bool take(struct docker_exec *e, const unsigned char *p, size_t n)
{
	while (n) {
		size_t part;

		if (!e->left) {
			e->frame[e->have++] = *p++;
			n--;
			if (e->have < FRAME_HEAD)
				continue;
			e->have = 0;
			if (e->frame[0] > 3 || e->frame[1] || e->frame[2] || e->frame[3])
				return false;
			e->stream = e->frame[0] >= 2;
			e->left = (uint32_t)e->frame[4] << 24 | (uint32_t)e->frame[5] << 16 |
				  (uint32_t)e->frame[6] << 8 | e->frame[7];
			continue;
		}
		part = MIN(n, e->left);
		e->left -= (uint32_t)part;
		if (e->events)
			e->events->out(e->ctx, e->stream, p, part);
		if (*e->gone)
			return true;
		p += part;
		n -= part;
	}
	return true;
}

static void on_stream_end(struct loop_later *l)
{
	struct docker_exec *e = l->ctx;

	if (e->failed.code)
		fail(e, &e->failed);
	else
		ask_exit(e);
}

static void end_stream(struct docker_exec *e)
{
	e->ended_ms = now_ms();
	e->raw = httpc_raw_free(e->raw);
	loop_later_add(docker_api_loop(e->a), &e->later, on_stream_end, e);
}

static void on_open(void *ctx, const struct httpc_answer *a)
{
	struct docker_exec *e = ctx;
	const char *type = httpc_header(a, "Content-Type");
	bool is_gone = false;

	/* A stream of another kind than was asked for would be cut at the wrong places. */
	if (type && !e->tty && strstr(type, "raw-stream") && docker_api_minor(e->a) >= 42) {
		(void)garret_fail(&e->failed, GARRET_PROTOCOL,
				  "docker: the engine sends both streams as one");
		end_stream(e);
		return;
	}
	e->open = true;
	e->gone = &is_gone;
	if (e->events && e->events->open)
		e->events->open(e->ctx);
	if (is_gone)
		return;
	e->gone = NULL;
	if (e->rows && e->tty)
		tell_size(e);
}

static void on_data(void *ctx, const void *data, size_t n)
{
	struct docker_exec *e = ctx;
	bool is_gone = false, ok = true;

	if (e->ended_ms)
		return;
	e->gone = &is_gone;
	if (!e->tty)
		ok = take(e, data, n);
	else if (e->events)
		e->events->out(e->ctx, 0, data, n);
	if (is_gone)
		return;
	e->gone = NULL;
	if (!ok) {
		(void)garret_fail(&e->failed, GARRET_PROTOCOL,
				  "docker: a command's output isn't in frames");
		end_stream(e);
	}
}

static void on_room(void *ctx)
{
	struct docker_exec *e = ctx;

	if (e->events && e->events->room)
		e->events->room(e->ctx);
}

static void on_raw_end(void *ctx, const struct httpc_answer *a, const struct garret_error *err)
{
	struct docker_exec *e = ctx;

	if (a)
		(void)docker_error(a->status, a->body, &e->failed);
	/* The connection may have broken because the container was killed. */
	else if (err && !e->open)
		e->failed = *err;
	end_stream(e);
}

static const struct httpc_raw_events raw_events = {
	.open = on_open, .data = on_data, .room = on_room, .end = on_raw_end
};

/* ---- starting ---- */

static void on_detached(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct docker_exec *e = ctx;
	const struct docker_exec_end end = { 0 };

	(void)json;
	e->call = NULL;
	finish(e, &end, err);
}

static void start(struct docker_exec *e)
{
	static const char *const headers[] = { "Content-Type: application/json",
					       "Connection: Upgrade", "Upgrade: tcp", NULL };
	autofree char *path = xasprintf("/v1.%u/exec/%s/start", docker_api_minor(e->a), e->id);
	const char *body =
		e->tty ? "{\"Detach\":false,\"Tty\":true}" : "{\"Detach\":false,\"Tty\":false}";

	if (e->detach) {
		e->call = ask(e, "POST", "x/start", e->id, "{\"Detach\":true}", on_detached);
		return;
	}
	e->raw = httpc_upgrade(docker_api_client(e->a),
			       &(struct httpc_request){ .method = "POST",
							.path = path,
							.headers = headers,
							.body = body,
							.body_bytes = strlen(body),
							.raw_200 = true },
			       &raw_events, e, &e->failed);
	if (!e->raw)
		end_stream(e);
}

static void on_created(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct docker_exec *e = ctx;
	const char *id = json_string_value(json_object_get((const json_t *)json, "Id"));
	struct garret_error wrong = { 0 };

	e->call = NULL;
	if (!err && (!id || strspn(id, "0123456789abcdef") != strlen(id) || strlen(id) > 128)) {
		(void)garret_fail(&wrong, GARRET_PROTOCOL, "docker: the engine named no command");
		err = &wrong;
	}
	if (err) {
		fail(e, err);
		return;
	}
	e->id = xstrdup(id);
	start(e);
}

static void put_strings(struct strbuf *b, const char *key, const char *const *list)
{
	json_put_key(b, key);
	json_open(b, '[');
	for (; *list; list++)
		json_put_string(b, *list);
	json_close(b, ']');
}

static void put_bool(struct strbuf *b, const char *key, bool v)
{
	json_put_key(b, key);
	json_put_bool(b, v);
}

struct docker_exec *docker_exec_start(struct docker_api *a, const struct docker_exec_spec *spec,
				      const struct docker_exec_events *events, void *ctx)
{
	struct docker_exec *e = xnew(struct docker_exec);
	autobuf struct strbuf b = STRBUF_INIT;

	e->a = a;
	list_append(docker_api_execs(a), &e->link);
	e->events = events;
	e->ctx = ctx;
	e->container = xstrdup(spec->container);
	e->tty = spec->tty;
	e->input = spec->input;
	e->detach = spec->detach;
	e->rows = spec->rows;
	e->columns = spec->columns;
	json_open(&b, '{');
	put_bool(&b, "AttachStdin", spec->input);
	put_bool(&b, "AttachStdout", !spec->detach);
	put_bool(&b, "AttachStderr", !spec->detach);
	put_bool(&b, "Tty", spec->tty);
	put_strings(&b, "Cmd", spec->argv);
	if (spec->env)
		put_strings(&b, "Env", spec->env);
	if (spec->cwd) {
		json_put_key(&b, "WorkingDir");
		json_put_string(&b, spec->cwd);
	}
	if (spec->user) {
		json_put_key(&b, "User");
		json_put_string(&b, spec->user);
	}
	json_close(&b, '}');
	e->call = ask(e, "POST", "c/exec", e->container, b.buf, on_created);
	return e;
}

/* ---- its user ---- */

size_t docker_exec_write(struct docker_exec *e, const void *data, size_t n)
{
	return e->raw ? httpc_raw_write(e->raw, data, n) : e->ended_ms ? n : 0;
}

void docker_exec_write_end(struct docker_exec *e)
{
	if (e->raw)
		httpc_raw_shutdown(e->raw);
}

void docker_exec_pause(struct docker_exec *e, bool pause)
{
	if (e->raw)
		httpc_raw_pause(e->raw, pause);
}

void docker_exec_resize(struct docker_exec *e, uint16_t rows, uint16_t columns)
{
	e->rows = rows;
	e->columns = columns;
	tell_size(e);
}

void docker_exec_leave(struct docker_exec *e)
{
	exec_free(e);
}

void docker_exec_leave_all(struct docker_api *a)
{
	struct docker_exec *e;

	list_foreach (e, docker_api_execs(a), link)
		exec_free(e);
}
