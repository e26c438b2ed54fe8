/*
 * Live commands of our own service: POST /v1/sessions/ID/stream, whose
 * connection goes over to frames (garretd(8), LIVE STREAMS).  A command ends
 * with its connection, so leaving one is closing it.
 *
 * Commands with input are such ones as well; their output is collected.
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/json.h"
#include "provider/sandboxd_impl.h"

#define HEADER 5
#define FRAME_MAX 65536u
#define WINDOW (512u << 10) /* output that its reader has not acknowledged */
#define AHEAD (256u << 10)  /* input that waits for the connection */
#define COLLECT_MAX (10u << 20)

enum to_service { TO_STDIN, TO_SIZE, TO_SIGNAL };
enum from_service { FROM_STDOUT = 1, FROM_STDERR, FROM_EXIT, FROM_TAKEN };

/* ---- to the service ---- */

static void flush(struct box_run *r)
{
	if (!r->open || !r->out.len)
		return;
	strbuf_remove_front(&r->out, httpc_raw_write(r->raw, r->out.buf, r->out.len));
}

static void put_frame(struct box_run *r, enum to_service type, const void *data, size_t n)
{
	const uint32_t length = htonl((uint32_t)n);

	strbuf_addch(&r->out, (int)type);
	strbuf_add(&r->out, &length, sizeof(length));
	strbuf_add(&r->out, data, n);
}

void sandboxd_input(struct box_run *r, const void *data, size_t n)
{
	if (r->input_ended || !r->live)
		return;
	if (!n) {
		r->input_ended = true;
		put_frame(r, TO_STDIN, "", 0);
	}
	for (size_t at = 0, k; at < n; at += k) {
		k = MIN(n - at, (size_t)FRAME_MAX);
		put_frame(r, TO_STDIN, (const char *)data + at, k);
	}
	r->fed += n;
	flush(r);
}

void sandboxd_winch(struct box_run *r, uint16_t rows, uint16_t columns)
{
	const uint8_t size[4] = { (uint8_t)(rows >> 8), (uint8_t)rows, (uint8_t)(columns >> 8),
				  (uint8_t)columns };

	if (!r->live)
		return;
	put_frame(r, TO_SIZE, size, sizeof(size));
	flush(r);
}

void sandboxd_signal(struct box_run *r, int signo)
{
	const uint8_t number = (uint8_t)signo;

	if (!r->live || signo < 1 || signo > 64)
		return;
	put_frame(r, TO_SIGNAL, &number, 1);
	flush(r);
}

bool sandboxd_busy(const struct box_run *r)
{
	return r->out.len > AHEAD;
}

void sandboxd_ack(struct box_run *r, int stream, uint64_t offset)
{
	r->acked[stream] = MIN(offset, r->total[stream]);
	if (!r->raw || !r->paused ||
	    r->total[0] + r->total[1] - r->acked[0] - r->acked[1] > WINDOW / 2)
		return;
	r->paused = false;
	httpc_raw_pause(r->raw, false);
}

static void on_grace(struct loop_timer *t)
{
	struct box_run *r = t->ctx;
	struct box_run_end end = { .stopped = true,
				   .exit_code = 128 + 9,
				   .head = { r->head[0], r->head[1] } };

	for (int s = 0; s < 2; s++) {
		end.total[s] = r->stream ? r->total[s] : r->head[s].len;
		strbuf_init(&r->head[s]);
	}
	sandboxd_run_end(r, &end); /* closing the connection ends it */
}

void sandboxd_live_stop(struct box_run *r, uint32_t grace_ms)
{
	sandboxd_signal(r, 15);
	loop_timer_set(r->box->p->loop, &r->timer, now_ms() + grace_ms, on_grace, r);
}

/* ---- from the service ---- */

static void protocol(struct box_run *r)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_PROTOCOL, "the service sent what is no frame of a stream");
	sandboxd_run_failed(r, &err);
}

static void on_limit(struct box_run *r)
{
	struct box_run_end end = { .output_limited = true,
				   .limit_bytes = r->output_limit,
				   .exit_code = -1,
				   .head = { r->head[0], r->head[1] } };

	for (int s = 0; s < 2; s++) {
		end.total[s] = end.head[s].len;
		strbuf_init(&r->head[s]);
	}
	sandboxd_run_end(r, &end);
}

/* false: r is gone. */
static bool take_output(struct box_run *r, int s, const uint8_t *data, size_t n)
{
	const uint64_t most = r->output_limit ? r->output_limit : COLLECT_MAX;
	bool gone = false;

	r->total[s] += n;
	if (!r->stream) {
		strbuf_add(&r->head[s], data, n);
		if (r->head[0].len + r->head[1].len > most) {
			on_limit(r);
			return false;
		}
	} else if (r->total[0] + r->total[1] - r->acked[0] - r->acked[1] > WINDOW && !r->paused) {
		r->paused = true;
		httpc_raw_pause(r->raw, true);
	}
	if (!r->stream && !r->news)
		return true;
	r->gone = &gone;
	if (r->stream)
		r->stream->out(r->ctx, s, data, n);
	else
		r->news(r->ctx);
	if (gone)
		return false;
	r->gone = NULL;
	return true;
}

static bool take_exit(struct box_run *r, const uint8_t *data, size_t n)
{
	json_error_t no;
	json_t *v = json_loadb((const char *)data, n, 0, &no);
	const json_t *code = json_object_get(v, "exit_code");
	struct garret_error err = { 0 };
	struct box_run_end end = { .exit_code = -1, .head = { STRBUF_INIT, STRBUF_INIT } };
	const bool gone = json_is_true(json_object_get(v, "gone"));
	bool fine = json_is_object(v);

	end.timed_out = json_is_true(json_object_get(v, "timed_out"));
	if (json_is_integer(code))
		end.exit_code = (int)json_integer_value(code);
	else
		fine = fine && (end.timed_out || gone);
	json_decref(v);
	if (!fine) {
		protocol(r);
		return false;
	}
	if (gone) {
		(void)garret_fail(&err, GARRET_GONE, "the session ended under the command");
		sandboxd_run_failed(r, &err);
		return false;
	}
	for (int s = 0; s < 2; s++) {
		end.head[s] = r->head[s];
		end.total[s] = r->total[s];
		strbuf_init(&r->head[s]);
	}
	sandboxd_run_end(r, &end);
	return false;
}

static bool take_taken(struct box_run *r, const uint8_t *data)
{
	uint64_t n = 0;
	bool gone = false;

	for (int i = 0; i < 8; i++)
		n = n << 8 | data[i];
	r->taken = MIN(n, r->fed);
	r->gone = &gone;
	if (r->stream && r->stream->taken)
		r->stream->taken(r->ctx, r->taken);
	else if (r->news)
		r->news(r->ctx);
	if (!gone)
		r->gone = NULL;
	return !gone;
}

static bool take_frame(struct box_run *r, uint8_t type, const uint8_t *data, size_t n)
{
	switch (type) {
	case FROM_STDOUT:
	case FROM_STDERR:
		return take_output(r, type - FROM_STDOUT, data, n);
	case FROM_EXIT:
		return take_exit(r, data, n);
	case FROM_TAKEN:
		if (n == 8)
			return take_taken(r, data);
		break;
	default:
		break;
	}
	protocol(r);
	return false;
}

static void on_data(void *ctx, const void *data, size_t n)
{
	struct box_run *r = ctx;
	size_t at = 0;

	strbuf_add(&r->in, data, n);
	while (r->in.len - at >= HEADER) {
		const uint8_t *p = (const uint8_t *)r->in.buf + at;
		const size_t length =
			(size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];

		if (length > FRAME_MAX) {
			protocol(r);
			return;
		}
		if (r->in.len - at < HEADER + length)
			break;
		if (!take_frame(r, p[0], p + HEADER, length))
			return;
		at += HEADER + length;
	}
	strbuf_remove_front(&r->in, at);
}

static void on_open(void *ctx, const struct httpc_answer *a)
{
	struct box_run *r = ctx;

	(void)a;
	r->open = true;
	flush(r);
	if (r->news)
		r->news(r->ctx);
}

static void on_room(void *ctx)
{
	flush(ctx);
}

static void on_renewed(struct token_wait *w, const struct garret_error *err);

static void on_end(void *ctx, const struct httpc_answer *a, const struct garret_error *err)
{
	struct box_run *r = ctx;
	struct garret_error own = { 0 };

	if (a && a->status == 401 && !r->again) {
		r->again = true;
		r->raw = httpc_raw_free(r->raw);
		sandboxd_renew(r->box, r->token, &r->wait, on_renewed);
		return;
	}
	if (a)
		sandboxd_refused(r->box->p, r->box, a->status, a->body, "/stream", true, &own);
	else if (err)
		own = *err;
	else
		(void)garret_fail(&own, GARRET_UNAVAILABLE,
				  "the service broke the connection before the command ended");
	sandboxd_run_failed(r, &own);
}

/* ---- starting ---- */

/* Nothing of the frames goes out before it is open, so it can be asked again. */
static int go_over(struct box_run *r, struct garret_error *err)
{
	static const struct httpc_raw_events events = {
		.open = on_open, .data = on_data, .room = on_room, .end = on_end
	};
	struct provider *p = r->box->p;
	autofree char *own = sandboxd_path(r->box, true, "/stream");
	autofree char *path = xasprintf("%s%s", p->prefix, own);
	autofree char *token = xasprintf("X-Sandbox-Token: %s", r->box->token);
	const char *const headers[] = { "Content-Type: application/json", "Connection: Upgrade",
					"Upgrade: garret-stream/1", token, NULL };
	const struct httpc_request rq = { .method = "POST",
					  .path = path,
					  .headers = headers,
					  .body = r->request.buf,
					  .body_bytes = r->request.len,
					  .total_ms = p->request_ms };

	free(r->token);
	r->token = xstrdup(r->box->token);
	r->raw = httpc_upgrade(p->http, &rq, &events, r, err);
	return r->raw ? 0 : -(int)err->code;
}

static void on_renewed(struct token_wait *w, const struct garret_error *err)
{
	struct box_run *r = container_of(w, struct box_run, wait);
	struct garret_error own = { 0 };

	if (err || go_over(r, &own) < 0)
		sandboxd_run_failed(r, err ? err : &own);
}

int sandboxd_live(struct box_run *r, const struct box_stream_spec *spec, struct garret_error *err)
{
	struct strbuf *body = &r->request;
	int rc;

	r->live = true;
	json_open(body, '{');
	rc = sandboxd_put_command(body, r->box, spec->argv, spec->env, err);
	if (rc < 0)
		return rc;
	if (spec->timeout_ms) {
		json_put_key(body, "timeout_seconds");
		json_put_double(body, spec->timeout_ms / 1000.0);
	}
	json_put_key(body, "tty");
	json_put_bool(body, spec->tty);
	if (spec->tty && spec->rows && spec->columns) {
		json_put_key(body, "rows");
		json_put_int(body, spec->rows);
		json_put_key(body, "columns");
		json_put_int(body, spec->columns);
	}
	json_close(body, '}');
	return go_over(r, err);
}

struct box_run *sandboxd_stream(struct box *b, const struct box_stream_spec *spec,
				const struct box_stream_events *events, void *ctx,
				struct garret_error *err)
{
	struct box_run *r;

	if (b->dead || !b->p->ours) {
		if (b->dead)
			*err = b->why;
		else
			(void)garret_fail(err, GARRET_UNSUPPORTED,
					  "this service has no live streams");
		return NULL;
	}
	r = sandboxd_run_new(b, events->end, ctx);
	r->stream = events;
	r->timeout_ms = spec->timeout_ms;
	if (sandboxd_live(r, spec, err) == 0)
		return r;
	r->end = NULL;
	sandboxd_run_free(r);
	return NULL;
}
