/*
 * A run as server-sent events:
 *
 *	event: output
 *	data: {"stream":"stdout","offset":0,"data":"<base64>"}
 *
 *	event: exit
 *	data: {...}		as GET /sessions/ID/runs/RUN_ID answers
 *
 * A client that was cut off asks again with the offsets behind what it has.
 * Pieces are made as the client takes them, from where the output is: a slow
 * client costs nothing.  A comment every 15 s keeps what is in between awake.
 */
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/wire.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"

#define PIECE 24576 /* raw; 32 KiB in base64 */
#define ALIVE_MS 15000

struct follow {
	struct list link; /* api.followers */
	struct http_request *rq;
	struct loop *loop;
	struct loop_timer alive;
	struct run_reader *reader;
	uint64_t at[2];
	int turn; /* the stream that is looked at first: neither keeps the other waiting */
	bool over;
	struct strbuf piece; /* not sent yet */
	size_t sent;         /* of it */
};

static void put_output(struct follow *f, int stream, const char *raw, size_t n)
{
	struct strbuf *out = &f->piece;

	strbuf_addf(out, "event: output\ndata: {\"stream\":\"%s\",\"offset\":%llu,\"data\":\"",
		    stream ? "stderr" : "stdout", (unsigned long long)f->at[stream]);
	strbuf_reserve(out, BASE64_ENCODE_RAW_LENGTH(n) + 1);
	base64_encode_raw(out->buf + out->len, n, (const uint8_t *)raw);
	out->len += BASE64_ENCODE_RAW_LENGTH(n);
	strbuf_addstr(out, "\"}\n\n");
	f->at[stream] += n;
}

/* The next event into f->piece: 1; 0 there is none yet; < 0: the output is lost. */
static int next_event(struct follow *f)
{
	autofree char *raw = xmalloc(PIECE);
	struct run_info info;

	run_reader_info(f->reader, &info);
	for (int i = 0; i < 2; i++) {
		int stream = i ^ f->turn;
		long n = run_reader_bytes(f->reader, stream, f->at[stream], raw, PIECE);

		if (n < 0)
			return -1;
		if (n > 0) {
			put_output(f, stream, raw, (size_t)n);
			f->turn = !stream;
			return 1;
		}
	}
	if (info.phase != RUN_PHASE_EXITED)
		return 0;
	strbuf_addstr(&f->piece, "event: exit\ndata: ");
	{
		autobuf struct strbuf json = STRBUF_INIT;

		run_put_info(&json, &info);
		strbuf_add(&f->piece, json.buf, json.len);
	}
	strbuf_addstr(&f->piece, "\n\n");
	f->over = true;
	return 1;
}

static ssize_t follow_read(void *ctx, char *buf, size_t cap)
{
	struct follow *f = ctx;
	size_t n;

	if (f->sent == f->piece.len) {
		int got;

		strbuf_reset(&f->piece);
		f->sent = 0;
		if (f->over)
			return 0;
		got = next_event(f);
		if (got <= 0)
			return got ? -1 : HTTP_SOURCE_WAIT;
	}
	n = MIN(cap, f->piece.len - f->sent);
	memcpy(buf, f->piece.buf + f->sent, n);
	f->sent += n;
	return (ssize_t)n;
}

static void follow_release(void *ctx)
{
	struct follow *f = ctx;

	list_remove(&f->link);
	loop_timer_clear(&f->alive);
	run_reader_free(f->reader);
	strbuf_release(&f->piece);
	free(f);
}

static void on_news(void *ctx)
{
	struct follow *f = ctx;

	http_source_ready(f->rq);
}

static void on_alive(struct loop_timer *t)
{
	struct follow *f = t->ctx;

	/* Between two events only: an event that is being sent is a sign of life itself. */
	if (f->sent == f->piece.len) {
		strbuf_reset(&f->piece);
		f->sent = 0;
		strbuf_addstr(&f->piece, ": alive\n\n");
		http_source_ready(f->rq);
	}
	loop_timer_set(f->loop, t, now_ms() + ALIVE_MS, on_alive, f);
}

/* We end before the runs do: who follows them asks the next daemon, with the offsets he has. */
void runs_follow_end_all(struct api *a)
{
	struct follow *f;

	list_foreach (f, &a->followers, link) {
		f->over = true;
		http_source_ready(f->rq);
	}
}

void runs_follow(struct call *c)
{
	const struct run_view_values *v = c->values;
	const struct run_scope scope = { c->session_id, c->generation };
	struct follow *f = xnew(struct follow);
	const struct http_source src = { follow_read, follow_release, f };

	f->rq = c->rq;
	f->loop = c->api->loop;
	f->at[0] = (uint64_t)v->out;
	f->at[1] = (uint64_t)v->err;
	strbuf_init(&f->piece);
	list_append(&c->api->followers, &f->link);
	f->reader = service_run_reader(c->service, &scope, v->run_id, on_news, f);
	if (!f->reader) {
		follow_release(f);
		call_refuse(c, 404, "No such run: %s", v->run_id);
		return;
	}
	/* What is in between shall not wait for more. */
	http_add_header(c->rq, "cache-control", "no-store");
	http_add_header(c->rq, "x-accel-buffering", "no");
	loop_timer_set(f->loop, &f->alive, now_ms() + ALIVE_MS, on_alive, f);
	http_answer_source(c->rq, 200, "text/event-stream", -1, &src);
}
