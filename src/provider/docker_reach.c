/*
 * The way into a running container.
 *
 * Of one that was made with init: `garret-init connect` as one exec, whose stream
 * carries everything; it is begun again when it breaks, and commands notice
 * nothing of that.  Into a container of somebody else the program is put and
 * started once, beside what runs there.  Where that doesn't work the reason is
 * kept (reach), and commands are execs.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "provider/docker_impl.h"

#define RETRY_MS 100
#define LOST_MS 30000 /* an init that can't be reached for so long is lost */
#define WATCH_MS 1000
#define REACHES 5
#define SAID_MAX 400

static void connect_init(struct box *b);

/* ---- the end of a container ---- */

void docker_unreach(struct box *b)
{
	loop_timer_clear(&b->retry);
	if (b->wire)
		docker_exec_leave(take_ptr(&b->wire));
	b->stream = init_stream_free(b->stream);
	init_box_drop(&b->common);
	docker_runs_end(b);
	if (b->fs) {
		struct garret_error gone = { 0 };

		(void)garret_fail(&gone, GARRET_GONE, "the container is gone");
		b->fs = shellfs_free(b->fs, &gone);
	}
}

void docker_box_dead(struct box *b)
{
	if (b->dead)
		return;
	b->dead = b->common.dead = true;
	docker_unreach(b);
	if (b->opened) {
		struct garret_error err = { 0 };

		(void)garret_fail(&err, GARRET_GONE, "container %.120s ended while it was opened",
				  b->name);
		docker_open_failed(b, &err);
	} else if (b->died && !b->closing && !b->died_told) {
		b->died_told = true;
		b->died(b->died_ctx);
	}
}

static void on_rewatch(struct loop_timer *t)
{
	docker_watch_container(t->ctx);
}

static void on_waited(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	b->watching = NULL;
	if (!err || err->code == GARRET_NOT_FOUND)
		docker_box_dead(b);
	else
		loop_timer_set(b->p->loop, &b->rewatch, now_ms() + WATCH_MS, on_rewatch, b);
}

/* The engine answers this when it has stopped: no polling, and no end is missed. */
void docker_watch_container(struct box *b)
{
	autofree char *path = xasprintf("/containers/%s/wait", b->id);

	b->watching = docker_ask(
		b->p->api,
		&(struct docker_request){ .method = "POST", .path = path, .total_ms = UINT32_MAX },
		on_waited, b);
}

/* ---- without init ---- */

static void keep_said(struct box *b, const void *data, size_t n)
{
	if (b->said.len < SAID_MAX)
		strbuf_add(&b->said, data, MIN(n, SAID_MAX - b->said.len));
}

static void on_step_out(void *ctx, int stream, const void *data, size_t n)
{
	(void)stream;
	keep_said(ctx, data, n);
}

static void on_shell(void *ctx, const struct docker_exec_end *end, const struct garret_error *err)
{
	struct box *b = ctx;
	struct garret_error wrong = { 0 };

	b->step = NULL;
	if (end->gone) {
		docker_box_dead(b);
		return;
	}
	docker_clean(b->said.buf);
	if (!err && (end->exit_code != 0 || b->said.buf[0] != '/')) {
		(void)garret_fail(
			&wrong, GARRET_UNSUPPORTED,
			"container %.80s has no POSIX shell (%.120s), and no init (%.200s)",
			b->name, b->said.buf, b->reach + strlen("exec: "));
		err = &wrong;
	}
	if (err) {
		docker_open_failed(b, err);
		return;
	}
	free(b->work_dir);
	b->work_dir = xstrdup(b->said.buf);
	docker_files_begin(b);
	docker_opened(b);
}

/* Is there a shell, and where is the work directory really? */
static void reach_by_exec(struct box *b, const char *why)
{
	static const struct docker_exec_events events = { .out = on_step_out, .end = on_shell };
	/* One that somebody else made needs not have it. */
	const char *const argv[] = {
		"/bin/sh", "-c", "mkdir -p \"$1\" && cd \"$1\" && pwd -P", "sh", b->work_dir, NULL
	};

	b->via_init = false;
	if (why)
		(void)snprintf(b->reach, sizeof(b->reach), "exec: %.240s", why);
	else if (!b->reach[0])
		(void)snprintf(b->reach, sizeof(b->reach), "exec: it was made without init");
	strbuf_reset(&b->said);
	b->step = docker_exec_start(
		b->p->api,
		&(struct docker_exec_spec){ .container = b->id, .argv = argv, .cwd = "/" }, &events,
		b);
}

/* ---- the stream to init ---- */

static size_t wire_write(void *ctx, const void *data, size_t n)
{
	struct box *b = ctx;

	return b->wire ? docker_exec_write(b->wire, data, n) : n;
}

static void wire_pause(void *ctx, bool pause)
{
	struct box *b = ctx;

	if (b->wire)
		docker_exec_pause(b->wire, pause);
}

static void wire_close(void *ctx)
{
	struct box *b = ctx;

	b->wired = false;
	if (b->wire)
		docker_exec_leave(take_ptr(&b->wire));
}

static void on_wire_open(void *ctx)
{
	struct box *b = ctx;
	const struct init_transport t = {
		.write = wire_write, .pause = wire_pause, .close = wire_close, .ctx = b
	};

	b->wired = true;
	init_stream_begin(b->stream, &t);
}

static void on_wire_out(void *ctx, int stream, const void *data, size_t n)
{
	struct box *b = ctx;

	if (stream == 0)
		init_stream_feed(b->stream, data, n);
	else
		keep_said(b, data, n);
}

static void on_wire_room(void *ctx)
{
	struct box *b = ctx;

	init_stream_writable(b->stream);
}

static void on_cut(void *ctx, const struct garret_error *err);

static void on_wire_end(void *ctx, const struct docker_exec_end *end,
			const struct garret_error *err)
{
	struct box *b = ctx;
	struct garret_error why = { 0 };

	b->wire = NULL;
	docker_clean(b->said.buf);
	/* Not running, or not there: the engine's words for an exec that it can't make. */
	if (end->gone || (err && (err->code == GARRET_CONFLICT || err->code == GARRET_NOT_FOUND)))
		(void)garret_fail(&why, GARRET_GONE, "container %.120s has ended", b->name);
	else if (err)
		why = *err;
	else if (end->exit_code == 3)
		(void)garret_fail(&why, GARRET_GONE, "no init listens in container %.120s",
				  b->name);
	else
		(void)garret_fail(
			&why,
			end->exit_code == 126 || end->exit_code == 127 ? GARRET_UNSUPPORTED
								       : GARRET_UNAVAILABLE,
			"init can't be reached (%d): %.200s", end->exit_code, b->said.buf);
	b->wire_end = why;
	/* A stream that was never given to it can't be cut. */
	if (b->wired)
		init_stream_ended(b->stream, &why);
	else
		on_cut(b, &why);
}

static void on_reconnect(struct loop_timer *t)
{
	connect_init(t->ctx);
}

static void on_live(void *ctx)
{
	struct box *b = ctx;

	b->cut_ms = 0;
}

/* What the exec ended with says more than that its stream did. */
static bool is_over(const struct garret_error *err)
{
	return err->code == GARRET_GONE || err->code == GARRET_UNSUPPORTED ||
	       err->code == GARRET_PROTOCOL;
}

static void on_cut(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;
	const uint64_t now = now_ms();

	if (is_over(&b->wire_end))
		err = &b->wire_end;
	if (!b->cut_ms)
		b->cut_ms = now;
	if (!is_over(err) && now < b->cut_ms + LOST_MS) {
		loop_timer_set(b->p->loop, &b->retry, now + RETRY_MS, on_reconnect, b);
	} else if (b->opened && b->reaches++ < (b->made ? 1 : REACHES)) {
		/* Somebody else may just be starting it or bringing init, or it is ending. */
		docker_unreach(b);
		docker_look_again(b);
	} else if (b->opened && b->made && !b->dead) {
		docker_open_without_init(b, err);
	} else if (b->opened) {
		docker_open_failed(b, err);
	} else {
		docker_box_dead(b);
	}
}

static int on_spool(void *ctx, uint32_t index, int stream)
{
	struct box *b = ctx;

	return init_box_spool_write(&b->common, index, stream);
}

static void on_ready(void *ctx)
{
	struct box *b = ctx;

	(void)snprintf(b->reach, sizeof(b->reach), "init");
	docker_opened(b);
}

static void on_init_lost(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	if (b->opened)
		docker_open_failed(b, err);
	else
		docker_box_dead(b);
}

static const struct init_events init_events = { .ready = on_ready,
						.lost = on_init_lost,
						INIT_BOX_EVENTS };

/* One exec carries the stream; of a user that may read init's directory: its own. */
static void connect_init(struct box *b)
{
	static const struct docker_exec_events events = {
		.open = on_wire_open, .out = on_wire_out, .room = on_wire_room, .end = on_wire_end
	};
	const char *const argv[] = { INIT_PROGRAM, "connect", "--dir",
				     b->foreign ? INIT_FOREIGN_DIR : INIT_DIR, NULL };

	strbuf_reset(&b->said);
	b->wire_end = (struct garret_error){ 0 };
	b->wire = docker_exec_start(
		b->p->api,
		&(struct docker_exec_spec){
			.container = b->id, .argv = argv, .cwd = "/", .input = true },
		&events, b);
}

static void reach_init(struct box *b)
{
	static const struct init_stream_events events = { .live = on_live,
							  .cut = on_cut,
							  .spool = on_spool };
	const struct init_stream_config config = { .loop = b->p->loop,
						   .events = &events,
						   .ctx = b };
	const uint8_t nonce[INIT_NONCE] = { 0 }; /* the socket never leaves this process */
	struct garret_error err = { 0 };
	int fd = -EBADF;

	b->cut_ms = now_ms();
	if (init_stream_new(&config, &b->stream, &fd, &err) < 0 ||
	    init_client_new(b->p->loop, fd, nonce, &init_events, b, &b->common.init, &err) < 0) {
		docker_open_failed(b, &err);
		return;
	}
	connect_init(b);
}

/* ---- somebody else's container ---- */

static void on_served(void *ctx, const struct docker_exec_end *end, const struct garret_error *err)
{
	struct box *b = ctx;
	autofree char *why = NULL;

	b->step = NULL;
	if (end->gone) {
		docker_box_dead(b);
		return;
	}
	if (!err && end->exit_code == 0) {
		b->via_init = b->foreign = true;
		reach_init(b);
		return;
	}
	docker_clean(b->said.buf);
	why = err ? xstrdup(err->msg)
		  : xasprintf("init can't run there (%d): %.150s", end->exit_code, b->said.buf);
	reach_by_exec(b, why);
}

static void serve(struct box *b)
{
	static const struct docker_exec_events events = { .out = on_step_out, .end = on_served };
	const char *const argv[] = { INIT_PROGRAM, "serve",     "--dir",    INIT_FOREIGN_DIR,
				     "--work-dir", b->work_dir, "--detach", NULL };

	strbuf_reset(&b->said);
	b->step = docker_exec_start(
		b->p->api,
		&(struct docker_exec_spec){ .container = b->id, .argv = argv, .cwd = "/" }, &events,
		b);
}

static void on_put(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	b->call = NULL;
	if (err)
		reach_by_exec(b, err->msg);
	else
		serve(b);
}

void docker_reach(struct box *b)
{
	const struct docker_config *c = &b->p->config;
	autofree char *path = NULL;

	if (b->via_init) {
		reach_init(b);
		return;
	}
	if (b->no_init || c->way == DOCKER_EXEC || !b->p->init_tar.len) {
		reach_by_exec(b, b->no_init ? NULL : "that was asked for");
		return;
	}
	path = xasprintf("/containers/%s/archive?path=%%2F", b->id);
	b->call = docker_ask(b->p->api,
			     &(struct docker_request){ .method = "PUT",
						       .path = path,
						       .body = b->p->init_tar.buf,
						       .body_bytes = b->p->init_tar.len,
						       .type = "application/x-tar" },
			     on_put, b);
}
