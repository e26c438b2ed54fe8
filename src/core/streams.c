/*
 * Commands with live streams, for people at a terminal.  They have no record
 * and no run id: when the client goes, so does the command.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "core/service_impl.h"

struct stream {
	struct session *session;
	struct box_run *run;
	const struct stream_events *events;
	void *ctx;
	uint64_t started_us;
	struct strbuf shown; /* for the log */
};

static void on_out(void *ctx, int stream, const void *data, size_t n)
{
	struct stream *st = ctx;

	st->events->out(st->ctx, stream, data, n);
}

static void on_taken(void *ctx, uint64_t bytes)
{
	struct stream *st = ctx;

	st->events->taken(st->ctx, bytes);
}

static void release(struct stream *st)
{
	st->session->in_flight--;
	session_touch(st->session);
	strbuf_release(&st->shown);
	free(st);
}

static void on_end(void *ctx, struct box_run_end *end)
{
	struct stream *st = ctx;
	struct stream_end e = { .gone = end->gone,
				.timed_out = end->timed_out,
				.exit_code = end->exit_code };
	char detail[16];

	(void)snprintf(detail, sizeof(detail),
		       e.gone        ? "sandbox gone"
		       : e.timed_out ? "timed out"
				     : "exit %d",
		       e.exit_code);
	event_add(st->session, "run", st->shown.buf, !e.gone && !e.timed_out && !e.exit_code,
		  detail, round((double)(now_us() - st->started_us) / 100.0) / 10);
	st->events->end(st->ctx, &e);
	release(st);
}

static const struct box_stream_events events = { on_out, on_taken, on_end };

struct stream *service_stream(struct service *svc, const char *session_id,
			      const struct stream_request *req, const struct stream_events *ev,
			      void *ctx, struct refusal *no)
{
	struct session *s = find_session(svc, session_id);
	struct box_stream_spec spec = { .argv = req->argv,
					.env = req->env,
					.tty = req->tty,
					.rows = req->rows,
					.columns = req->columns };
	struct garret_error err = { 0 };
	struct stream *st;

	if (!s) {
		refuse(no, 404, NULL, "No such session: %s", session_id);
		return NULL;
	}
	if (svc->check_command(req->argv, req->env, &err) < 0) {
		refuse(no, 413, NULL, "%s", err.msg);
		return NULL;
	}
	if (req->timeout_seconds > 0)
		spec.timeout_ms = (uint32_t)fmin(4e9, fmax(1, ceil(req->timeout_seconds * 1000)));
	st = xnew(struct stream);
	*st = (struct stream){ .session = s, .events = ev, .ctx = ctx, .started_us = now_us() };
	strbuf_init(&st->shown);
	for (const char *const *p = req->argv; *p && st->shown.len < 1024; p++) {
		if (p != req->argv)
			strbuf_addch(&st->shown, ' ');
		shell_quote(&st->shown, *p);
	}
	s->in_flight++;
	session_touch(s);
	st->run = s->dead ? NULL : svc->ops->stream(s->box, &spec, &events, st, &err);
	if (!st->run) {
		release(st);
		refuse(no, 410, NULL, "The sandbox of session %s is gone", session_id);
		return NULL;
	}
	return st;
}

void stream_input(struct stream *st, const void *data, size_t n)
{
	st->session->service->ops->input(st->run, data, n);
}

void stream_ack(struct stream *st, int stream, uint64_t offset)
{
	st->session->service->ops->ack(st->run, stream, offset);
}

void stream_winch(struct stream *st, uint16_t rows, uint16_t columns)
{
	st->session->service->ops->winch(st->run, rows, columns);
}

void stream_signal(struct stream *st, int signo)
{
	st->session->service->ops->signal(st->run, signo);
}

bool stream_busy(const struct stream *st)
{
	return st->session->service->ops->busy(st->run);
}

void stream_leave(struct stream *st)
{
	st->session->service->ops->leave(st->run);
	event_add(st->session, "run", st->shown.buf, false, "left",
		  round((double)(now_us() - st->started_us) / 100.0) / 10);
	release(st);
}
