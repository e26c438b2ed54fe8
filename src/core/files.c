/* File operations of a session: counted, logged, passed on. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/time.h"
#include "core/service_impl.h"

const char *file_error_name(const struct garret_error *err)
{
	switch (err->code) {
	case GARRET_NOT_FOUND:
		return "FileNotFoundError";
	case GARRET_NOT_DIRECTORY:
		return "NotADirectoryError";
	case GARRET_IS_DIRECTORY:
		return "IsADirectoryError";
	case GARRET_EXISTS:
		return "FileExistsError";
	case GARRET_INVALID:
		/* With an errno it is a name too long or the like. */
		return err->sys ? NULL : "ValueError";
	default:
		return NULL;
	}
}

static const char *detail_of(const struct file_call *f, const struct garret_error *err)
{
	const char *name = err ? file_error_name(err) : "";

	if (err && err->code == GARRET_GONE)
		return "sandbox gone";
	if (err && err->code == GARRET_NOT_FOUND)
		return "not found";
	if (!name)
		return f->published ? "via the sandbox" : garret_code_name((int)err->code);
	return name;
}

static void release(struct file_call *f, const char *detail)
{
	struct session *s = f->session;

	if (f->name)
		event_add(s, f->name, f->target, !*detail, detail,
			  round((double)(now_us() - f->started_us) / 100.0) / 10);
	if (s) {
		s->in_flight--;
		session_touch(s);
	} else {
		archive_left(f);
	}
	free(f->target);
	free(f);
}

static void on_info(void *ctx, const struct file_info *info)
{
	struct file_call *f = ctx;

	if (f->events->info)
		f->events->info(f->ctx, info);
}

static void on_entry(void *ctx, const struct file_info *info)
{
	struct file_call *f = ctx;

	if (f->events->entry)
		f->events->entry(f->ctx, info);
}

static void on_match(void *ctx, const struct file_match *m)
{
	struct file_call *f = ctx;

	if (f->events->match)
		f->events->match(f->ctx, m);
}

static void on_data(void *ctx, const void *data, size_t n)
{
	struct file_call *f = ctx;

	if (f->events->data)
		f->events->data(f->ctx, data, n);
}

static void on_room(void *ctx)
{
	struct file_call *f = ctx;

	if (f->events->room)
		f->events->room(f->ctx);
}

static void on_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct file_call *f = ctx;
	const struct file_events *events = f->events;
	void *to = f->ctx;

	release(f, detail_of(f, err));
	events->end(to, end, err);
}

static const struct file_events pass_on = {
	.info = on_info,
	.entry = on_entry,
	.match = on_match,
	.data = on_data,
	.room = on_room,
	.end = on_end,
};

bool file_call_begin(struct file_call *f, struct box *box, struct garret_error *err)
{
	struct file_request rq = f->rq;

	rq.path = f->target;
	f->file = f->service->ops->file(box, &rq, &pass_on, f, err);
	return f->file;
}

void file_call_fail(struct file_call *f, const struct garret_error *err)
{
	const struct file_end end = {
		.code = (uint32_t)err->code, .sys = (uint32_t)err->sys, .path = "", .msg = err->msg
	};

	on_end(f, &end, err);
}

struct file_call *service_file(struct service *svc, const char *session_id, const char *name,
			       bool published, const struct file_request *rq,
			       const struct file_events *events, void *ctx, struct refusal *no)
{
	struct session *s = find_session(svc, session_id);
	struct garret_error err = { 0 };
	struct file_call *f;

	if (!s || s->dead) {
		refuse(no, s ? 410 : 404, NULL,
		       s ? "The sandbox of session %s is gone" : "No such session: %s", session_id);
		return NULL;
	}
	f = xnew(struct file_call);
	*f = (struct file_call){ .service = svc,
				 .session = s,
				 .events = events,
				 .ctx = ctx,
				 .name = name,
				 .published = published,
				 .target = xstrdup(rq->path),
				 .started_us = now_us() };
	s->in_flight++;
	session_touch(s);
	f->file = svc->ops->file(s->box, rq, &pass_on, f, &err);
	if (f->file)
		return f;
	f->name = NULL; /* it never began */
	release(f, "");
	refuse(no, garret_code_http(err.code), NULL, "%s", err.msg);
	return NULL;
}

size_t file_call_body(struct file_call *f, const void *data, size_t n)
{
	return f->service->ops->file_body(f->file, data, n);
}

void file_call_body_end(struct file_call *f)
{
	f->service->ops->file_body_end(f->file);
}

int file_call_pipe(struct file_call *f, int *ret_fd, struct garret_error *err)
{
	return f->service->ops->file_pipe(f->file, ret_fd, err);
}

void file_call_pause(struct file_call *f, bool pause)
{
	if (f->file)
		f->service->ops->file_pause(f->file, pause);
}

void file_call_leave(struct file_call *f)
{
	if (f->file)
		f->service->ops->file_leave(f->file);
	release(f, "left");
}
