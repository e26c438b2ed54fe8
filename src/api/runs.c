/*
 * Running a program and stopping it.
 *
 * Output may be 10 MiB of bytes that each become six characters of JSON, for
 * any number of clients at once.  So an answer is encoded while it is sent:
 * a few KiB of raw output are read, repaired and escaped each time the
 * connection takes more.  Only what is short is answered in one piece, with a
 * length.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/wire.h"
#include "base/mem.h"

/* Of a kernel with 4 KiB pages: one string, and all of argv and environ with room to spare. */
#define ARGUMENT_MAX 131071
#define ARGUMENTS_MAX 1992294 /* 1.9 MiB of 2 MiB */

#define CWD_MAX 4095

#define RAW_PIECE 8192 /* becomes at most 48 KiB */
#define WHOLE_MAX 4096 /* so much output is answered in one piece */

/* ---- the answer ---- */

enum stage { STAGE_STDOUT, STAGE_STDERR, STAGE_REST, STAGE_DONE };

struct answer {
	struct run_record *record;
	enum stage stage;
	uint64_t offset; /* in the stream of that stage */
	struct json_text text;
	struct strbuf piece; /* encoded, not sent yet */
	size_t sent;         /* of piece */
};

static void put_rest(struct strbuf *out, const struct run_summary *s)
{
	strbuf_addstr(out, "\",\"exit_code\":");
	if (s->exit_code < 0)
		strbuf_addstr(out, "null");
	else
		strbuf_addf(out, "%d", s->exit_code);
	strbuf_addf(out, ",\"timed_out\":%s,\"output_limited\":%s,\"output_limit\":",
		    s->timed_out ? "true" : "false", s->output_limited ? "true" : "false");
	if (s->output_limit)
		strbuf_addf(out, "%llu}", (unsigned long long)s->output_limit);
	else
		strbuf_addstr(out, "null}");
}

/* Append the next piece to a->piece; false when the output is lost. */
static bool encode(struct answer *a)
{
	char raw[RAW_PIECE];
	int stream = a->stage == STAGE_STDERR;
	long n;

	if (a->stage == STAGE_REST) {
		put_rest(&a->piece, run_record_summary(a->record));
		a->stage = STAGE_DONE;
		return true;
	}
	if (!a->offset && !stream)
		strbuf_addstr(&a->piece, "{\"stdout\":\"");
	n = run_record_read(a->record, stream, a->offset, raw, sizeof(raw));
	if (n < 0)
		return false;
	if (n > 0) {
		a->offset += (uint64_t)n;
		json_text_add(&a->text, &a->piece, raw, (size_t)n);
		return true;
	}
	json_text_end(&a->text, &a->piece);
	if (!stream)
		strbuf_addstr(&a->piece, "\",\"stderr\":\"");
	a->stage++;
	a->offset = 0;
	return true;
}

static ssize_t answer_read(void *ctx, char *buf, size_t cap)
{
	struct answer *a = ctx;
	size_t n;

	while (a->sent == a->piece.len) {
		if (a->stage == STAGE_DONE)
			return 0;
		strbuf_reset(&a->piece);
		a->sent = 0;
		if (!encode(a))
			return -1;
	}
	n = MIN(cap, a->piece.len - a->sent);
	memcpy(buf, a->piece.buf + a->sent, n);
	a->sent += n;
	return (ssize_t)n;
}

static void answer_release(void *ctx)
{
	struct answer *a = ctx;

	run_record_unref(a->record);
	strbuf_release(&a->piece);
	free(a);
}

static void answer_run(struct call *c, struct run_record *record)
{
	const struct run_summary *s = run_record_summary(record);
	struct answer *a = xnew(struct answer);
	struct strbuf whole;
	bool fine = true;

	a->record = run_record_ref(record);
	strbuf_init(&a->piece);
	if (s->show[0] + s->show[1] > WHOLE_MAX) {
		const struct http_source src = { answer_read, answer_release, a };

		http_answer_source(c->rq, 200, WIRE_JSON, -1, &src);
		return;
	}
	while (fine && a->stage != STAGE_DONE)
		fine = encode(a);
	whole = a->piece;
	strbuf_init(&a->piece);
	answer_release(a);
	if (fine) {
		call_answer(c, 200, &whole);
		return;
	}
	strbuf_release(&whole);
	call_refuse(c, 500, "The output of the run is lost");
}

/* ---- running ---- */

/* It was started detached: where is it now? */
static void answer_begun(struct call *c, const char *run_id)
{
	const struct run_scope scope = { c->session_id,
					 service_generation(c->service, c->session_id) };
	struct run_reader *reader = service_run_reader(c->service, &scope, run_id, NULL, NULL);
	struct strbuf out = STRBUF_INIT;
	struct run_info info;

	if (!reader) {
		call_refuse(c, 410, "Run %s is gone", run_id);
		return;
	}
	run_reader_info(reader, &info);
	run_reader_free(reader);
	json_open(&out, '{');
	json_put_key(&out, "run_id");
	json_put_string(&out, run_id);
	json_put_key(&out, "state");
	json_put_string(&out, run_state_name(info.phase));
	json_close(&out, '}');
	call_answer(c, 202, &out);
}

static void finished(void *ctx, struct run_record *record, const struct refusal *no)
{
	struct call *c = ctx;
	const struct run_values *v = c->values;

	c->pending = NULL;
	c->leave = NULL;
	if (c->rq && record)
		answer_run(c, record);
	else if (c->rq && v->detach && !no->status)
		answer_begun(c, v->run_id);
	else if (c->rq)
		call_refusal(c, no);
	call_unref(c);
}

static void leave(struct call *c)
{
	struct run_wait *w = c->pending;

	if (!w)
		return;
	c->pending = NULL;
	service_run_leave(w);
	call_unref(c);
}

bool runs_too_long(struct call *c, const char *const *argv, const char *const *env)
{
	const char *const *lists[] = { argv, env };
	static const char *const names[] = { "argv", "env" };
	size_t total = 0;

	for (int l = 0; l < 2; l++) {
		for (size_t i = 0; lists[l] && lists[l][i]; i++) {
			size_t n = strlen(lists[l][i]);

			if (n > ARGUMENT_MAX) {
				call_refuse(c, 413,
					    "%s[%zu] has %zu bytes; the kernel takes at most %d",
					    names[l], i, n, ARGUMENT_MAX);
				return true;
			}
			total += n + 1 + sizeof(char *);
		}
	}
	if (total > ARGUMENTS_MAX)
		call_refuse(c, 413, "argv and env have %zu bytes; the kernel takes at most %d",
			    total, ARGUMENTS_MAX);
	return total > ARGUMENTS_MAX;
}

static bool refuse_options(struct call *c, const struct run_values *v)
{
	if (v->cwd && (*v->cwd != '/' || strlen(v->cwd) > CWD_MAX))
		call_refuse(c, 422, "cwd is an absolute path of at most %d bytes", CWD_MAX);
	else if (v->input && !v->detach)
		call_refuse(c, 422, "stdin needs detach");
	else
		return false;
	return true;
}

void runs_run(struct call *c)
{
	static const char *const no_env[] = { NULL };
	const struct run_values *v = c->values;
	const struct config *conf = service_config(c->service);
	struct run_request rq = { .run_id = v->run_id,
				  .keep = v->keep,
				  .detach = v->detach,
				  .input = v->input,
				  .cwd = v->cwd };

	rq.argv = (const char *const *)v->argv;
	rq.env = v->env ? (const char *const *)v->env : no_env;
	if (runs_too_long(c, rq.argv, rq.env) || refuse_options(c, v))
		return;
	/* "inf" is a number on this wire. */
	rq.timeout_seconds = fmin(v->timeout_seconds, (double)conf->execute_timeout);
	c->leave = leave;
	c->pending = service_run(c->service, c->session_id, &rq, finished, call_ref(c));
}

void runs_stop(struct call *c)
{
	const struct stop_values *v = c->values;

	service_stop(c->service, c->session_id, v->run_id, call_done, call_ref(c));
}
