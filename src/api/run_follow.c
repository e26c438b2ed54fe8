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
 */
#include <nettle/base64.h>
#include <stdlib.h>

#include "api/handlers.h"
#include "api/sse.h"
#include "api/wire.h"
#include "base/auto.h"
#include "base/mem.h"

#define PIECE 24576 /* raw; 32 KiB in base64 */

struct follow {
	struct sse *sse;
	struct run_reader *reader;
	uint64_t at[2];
	int turn; /* the stream that is looked at first: neither keeps the other waiting */
};

static void put_output(struct follow *f, struct strbuf *out, int stream, const char *raw, size_t n)
{
	strbuf_addf(out, "event: output\ndata: {\"stream\":\"%s\",\"offset\":%llu,\"data\":\"",
		    stream ? "stderr" : "stdout", (unsigned long long)f->at[stream]);
	strbuf_reserve(out, BASE64_ENCODE_RAW_LENGTH(n) + 1);
	base64_encode_raw(out->buf + out->len, n, (const uint8_t *)raw);
	out->len += BASE64_ENCODE_RAW_LENGTH(n);
	strbuf_addstr(out, "\"}\n\n");
	f->at[stream] += n;
}

static enum sse_next next(void *ctx, struct strbuf *out)
{
	struct follow *f = ctx;
	autofree char *raw = xmalloc(PIECE);
	autobuf struct strbuf json = STRBUF_INIT;
	struct run_info info;

	run_reader_info(f->reader, &info);
	for (int i = 0; i < 2; i++) {
		int stream = i ^ f->turn;
		long n = run_reader_bytes(f->reader, stream, f->at[stream], raw, PIECE);

		if (n < 0)
			return SSE_BROKEN;
		if (n > 0) {
			put_output(f, out, stream, raw, (size_t)n);
			f->turn = !stream;
			return SSE_EVENT;
		}
	}
	if (info.phase != RUN_PHASE_EXITED)
		return SSE_NOTHING;
	run_put_info(&json, &info);
	strbuf_addstr(out, "event: exit\ndata: ");
	strbuf_add(out, json.buf, json.len);
	strbuf_addstr(out, "\n\n");
	return SSE_LAST;
}

static void release(void *ctx)
{
	struct follow *f = ctx;

	run_reader_free(f->reader);
	free(f);
}

static const struct sse_source source = { next, release };

static void on_news(void *ctx)
{
	struct follow *f = ctx;

	sse_news(f->sse);
}

void runs_follow(struct call *c)
{
	const struct run_view_values *v = c->values;
	const struct run_scope scope = { c->session_id, c->generation };
	struct follow *f = xnew(struct follow);

	f->at[0] = (uint64_t)v->out;
	f->at[1] = (uint64_t)v->err;
	f->reader = service_run_reader(c->service, &scope, v->run_id, on_news, f);
	if (!f->reader) {
		free(f);
		call_refuse(c, 404, "No such run: %s", v->run_id);
		return;
	}
	f->sse = sse_start(c, &source, f);
}
