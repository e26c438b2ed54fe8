/* What is known of runs, and the bytes of their output, while they run and after. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/wire.h"
#include "base/mem.h"

#define LIST_DEFAULT 100

/* ---- shapes ---- */

const char *run_state_name(enum run_phase phase)
{
	return phase == RUN_PHASE_QUEUED    ? "queued"
	       : phase == RUN_PHASE_RUNNING ? "running"
					    : "exited";
}

static void put_bool(struct strbuf *out, const char *key, bool v)
{
	json_put_key(out, key);
	json_put_bool(out, v);
}

static void put_time(struct strbuf *out, const char *key, double at)
{
	json_put_key(out, key);
	if (at > 0)
		json_put_double(out, at);
	else
		json_put_null(out);
}

static void put_ms(struct strbuf *out, const char *key, uint64_t us)
{
	json_put_key(out, key);
	json_put_double(out, (double)us / 1000.0);
}

void run_put_info(struct strbuf *out, const struct run_info *info)
{
	json_open(out, '{');
	json_put_key(out, "run_id");
	json_put_string(out, info->id);
	json_put_key(out, "state");
	json_put_string(out, run_state_name(info->phase));
	wire_number(out, "exit_code", info->exit_code < 0 ? CONFIG_NULL : info->exit_code);
	put_bool(out, "timed_out", info->timed_out);
	put_bool(out, "output_limited", info->output_limited);
	put_bool(out, "stopped", info->stopped);
	put_bool(out, "gone", info->gone);
	put_time(out, "asked_at", info->asked_at);
	put_time(out, "started_at", info->started_at);
	put_time(out, "ended_at", info->ended_at);
	wire_number(out, "stdout_bytes", (int64_t)info->bytes[0]);
	wire_number(out, "stderr_bytes", (int64_t)info->bytes[1]);
	wire_number(out, "stdin_bytes", (int64_t)info->input_bytes);
	json_put_key(out, "usage");
	if (info->measured) {
		json_open(out, '{');
		put_ms(out, "wall_ms", info->wall_us);
		put_ms(out, "user_ms", info->user_us);
		put_ms(out, "system_ms", info->system_us);
		wire_number(out, "max_rss_bytes", (int64_t)info->max_rss_bytes);
		put_bool(out, "oom", info->oom);
		json_close(out, '}');
	} else {
		json_put_null(out);
	}
	json_close(out, '}');
}

static struct run_scope scope_of(const struct call *c)
{
	return (struct run_scope){ c->session_id, c->generation };
}

/* ---- one, and all ---- */

void runs_get(struct call *c)
{
	const struct run_view_values *v = c->values;
	const struct run_scope scope = scope_of(c);
	struct run_reader *reader = service_run_reader(c->service, &scope, v->run_id, NULL, NULL);
	struct strbuf out = STRBUF_INIT;
	struct run_info info;

	if (!reader) {
		call_refuse(c, 404, "No such run: %s", v->run_id);
		return;
	}
	run_reader_info(reader, &info);
	run_reader_free(reader);
	run_put_info(&out, &info);
	call_answer(c, 200, &out);
}

static void each(void *ctx, const struct run_info *info)
{
	run_put_info(ctx, info);
}

void runs_list(struct call *c)
{
	const struct run_view_values *v = c->values;
	const struct run_scope scope = scope_of(c);
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "runs");
	json_open(&out, '[');
	service_runs(c->service, &scope, v->limit ? (size_t)v->limit : LIST_DEFAULT, each, &out);
	json_close(&out, ']');
	json_close(&out, '}');
	call_answer(c, 200, &out);
}

/* ---- output ---- */

struct output {
	struct run_reader *reader;
	int stream;
	uint64_t at, end;
};

static ssize_t output_read(void *ctx, char *buf, size_t cap)
{
	struct output *o = ctx;
	long n = run_reader_bytes(o->reader, o->stream, o->at, buf,
				  (size_t)MIN((uint64_t)cap, o->end - o->at));

	if (n > 0)
		o->at += (uint64_t)n;
	return n;
}

static void output_release(void *ctx)
{
	struct output *o = ctx;

	run_reader_free(o->reader);
	free(o);
}

static bool is_stream(const char *name, int *ret)
{
	*ret = name && !strcmp(name, "stderr");
	return !name || *ret || !strcmp(name, "stdout");
}

/* The length is known: what comes later isn't part of this answer. */
static void send_output(struct call *c, struct output *o, const struct run_info *info)
{
	const struct http_source src = { output_read, output_release, o };
	char total[24], byte;

	(void)snprintf(total, sizeof(total), "%llu", (unsigned long long)info->bytes[o->stream]);
	if (o->at < o->end && run_reader_bytes(o->reader, o->stream, o->at, &byte, 1) < 0) {
		call_refuse(c, 500, "The output of run %s is lost", info->id);
		output_release(o);
		return;
	}
	http_add_header(c->rq, "x-garret-total", total);
	http_add_header(c->rq, "x-garret-final",
			info->phase == RUN_PHASE_EXITED ? "true" : "false");
	http_answer_source(c->rq, 200, "application/octet-stream", (int64_t)(o->end - o->at), &src);
}

void runs_output(struct call *c)
{
	const struct run_view_values *v = c->values;
	const struct run_scope scope = scope_of(c);
	struct run_reader *reader;
	struct run_info info;
	struct output *o;
	uint64_t total;
	int stream;

	if (!is_stream(v->stream, &stream)) {
		call_refuse(c, 422, "stream is stdout or stderr");
		return;
	}
	reader = service_run_reader(c->service, &scope, v->run_id, NULL, NULL);
	if (!reader) {
		call_refuse(c, 404, "No such run: %s", v->run_id);
		return;
	}
	run_reader_info(reader, &info);
	total = info.bytes[stream];
	if ((uint64_t)v->offset > total) {
		run_reader_free(reader);
		http_add_header(c->rq, "x-garret-final",
				info.phase == RUN_PHASE_EXITED ? "true" : "false");
		call_refuse(c, 416, "%s has %llu bytes%s; offset is %lld",
			    stream ? "stderr" : "stdout", (unsigned long long)total,
			    info.phase == RUN_PHASE_EXITED ? "" : " so far", (long long)v->offset);
		return;
	}
	o = xnew(struct output);
	*o = (struct output){
		.reader = reader, .stream = stream, .at = (uint64_t)v->offset, .end = total
	};
	if (v->limit && (uint64_t)v->limit < total - o->at)
		o->end = o->at + (uint64_t)v->limit;
	send_output(c, o, &info);
}
