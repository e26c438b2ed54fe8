/*
 * File operations: by the published routes where the service offers them, by
 * our own where it is ours, and by commands for the rest.
 *
 * 409 of a published route means "not here, use the shell": that one operation
 * is done again by commands, so a body is kept until it is answered.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "net/json.h"
#include "proto/edit.h"
#include "provider/sandboxd_file.h"

#define WORK_MS 60000 /* of a request that names no time: as a worker's */

/* ---- ending, telling ---- */

static void file_free(struct box_file *f)
{
	if (f->gone)
		*f->gone = true;
	if (f->ask)
		ask_cancel(f->ask);
	if (f->call)
		httpc_cancel(f->call);
	if (f->shell)
		shellfs_leave(f->shell);
	sandboxd_renew_leave(&f->wait);
	loop_later_cancel(f->box->p->loop, &f->later);
	list_remove(&f->link);
	strbuf_release(&f->body);
	strbuf_release(&f->answer);
	strbuf_release(&f->end_path);
	free(f->token);
	free((char *)(uintptr_t)f->rq.path);
	free((char *)(uintptr_t)f->rq.to);
	free((char *)(uintptr_t)f->rq.pattern);
	free((char *)(uintptr_t)f->rq.include);
	free(f);
}

static void finish(struct box_file *f, const struct garret_error *err)
{
	const struct file_events *events = f->events;
	struct strbuf path = f->end_path;
	struct file_end end = f->end;
	void *ctx = f->ctx;

	strbuf_init(&f->end_path);
	file_free(f);
	end.path = path.buf;
	end.code = err ? (uint32_t)err->code : 0;
	end.sys = err ? (uint32_t)err->sys : 0;
	end.msg = err ? err->msg : "";
	events->end(ctx, &end, err);
	strbuf_release(&path);
}

void sandboxd_file_end(struct box_file *f)
{
	finish(f, NULL);
}

void sandboxd_file_fail(struct box_file *f, const struct garret_error *err)
{
	const struct garret_error own = *err;

	if (own.code == GARRET_GONE)
		sandboxd_gone(f->box, &own);
	finish(f, &own);
}

void sandboxd_file_failf(struct box_file *f, enum garret_code code, const char *fmt, ...)
{
	struct garret_error err = { .code = code };
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
	va_end(ap);
	sandboxd_file_fail(f, &err);
}

#define TELL(f, call)                     \
	({                                \
		bool gone_ = false;       \
		(f)->gone = &gone_;       \
		call;                     \
		if (!gone_)               \
			(f)->gone = NULL; \
		gone_;                    \
	})

bool sandboxd_tell_info(struct box_file *f, const struct file_info *info)
{
	return f->events->info && TELL(f, f->events->info(f->ctx, info));
}

bool sandboxd_tell_entry(struct box_file *f, const struct file_info *info)
{
	return f->events->entry && TELL(f, f->events->entry(f->ctx, info));
}

bool sandboxd_tell_match(struct box_file *f, const struct file_match *m)
{
	return f->events->match && TELL(f, f->events->match(f->ctx, m));
}

bool sandboxd_tell_data(struct box_file *f, const void *data, size_t n)
{
	return n && !f->discard && f->events->data && TELL(f, f->events->data(f->ctx, data, n));
}

uint32_t sandboxd_file_ms(const struct box_file *f)
{
	const uint32_t ms = f->rq.timeout_ms ? f->rq.timeout_ms : WORK_MS;

	return MIN(ms, UINT32_MAX - SANDBOXD_SLACK_MS) + SANDBOXD_SLACK_MS;
}

/* ---- refusals ---- */

static const struct {
	const char *name;
	enum garret_code code;
} names[] = {
	{ "FileNotFoundError", GARRET_NOT_FOUND },
	{ "IsADirectoryError", GARRET_IS_DIRECTORY },
	{ "NotADirectoryError", GARRET_NOT_DIRECTORY },
	{ "FileExistsError", GARRET_EXISTS },
	{ "PermissionError", GARRET_DENIED },
	{ "TimeoutError", GARRET_TIMEOUT },
	{ "ValueError", GARRET_INVALID },
};

/* What the name of an error means; an OSError is told by its status. */
static enum garret_code code_of(const char *name, int status)
{
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i].name, name))
			return names[i].code;
	switch (status) {
	case 400:
		return GARRET_NOT_REGULAR;
	case 409:
		return GARRET_CONFLICT;
	case 412:
		return GARRET_CHANGED;
	case 413:
		return GARRET_TOO_LARGE;
	case 429:
		return GARRET_EXHAUSTED;
	case 501:
		return GARRET_UNSUPPORTED;
	case 507:
		return GARRET_NO_SPACE;
	default:
		return GARRET_INTERNAL;
	}
}

/* "the old text is there 3 times": how often an edit found its text. */
static uint64_t times_in(const char *message)
{
	static const char before[] = "the old text is there ";
	const char *at = strstr(message, before);

	return at ? strtoull(at + sizeof(before) - 1, NULL, 10) : 0;
}

void sandboxd_file_refused(struct box_file *f, int status, const struct strbuf *body,
			   struct garret_error *err)
{
	json_error_t no;
	json_t *v = json_loadb(body->buf, body->len, 0, &no);
	const json_t *detail = json_object_get(v, "detail");
	const char *name = json_string_value(json_object_get(detail, "error"));
	const json_int_t sys = json_integer_value(json_object_get(detail, "errno"));
	char text[320];

	if (name && (status == 404 || status == 400 || f->box->p->ours)) {
		sandboxd_detail(f->box->p, f->box, body->buf, body->len, text);
		(void)garret_fail(err, code_of(name, status), "%s", *text ? text : f->rq.path);
		err->sys = sys > 0 && sys < 4096 ? (int)sys : 0;
		f->end.count = f->rq.op == FILE_EDIT ? times_in(text) : 0;
	} else {
		sandboxd_refused(f->box->p, f->box, status, body, "a file operation", true, err);
	}
	json_decref(v);
}

/* ---- by commands ---- */

static void shell_info(void *ctx, const struct file_info *info)
{
	(void)sandboxd_tell_info(ctx, info);
}

static void shell_entry(void *ctx, const struct file_info *info)
{
	(void)sandboxd_tell_entry(ctx, info);
}

static void shell_match(void *ctx, const struct file_match *m)
{
	(void)sandboxd_tell_match(ctx, m);
}

static void shell_data(void *ctx, const void *data, size_t n)
{
	(void)sandboxd_tell_data(ctx, data, n);
}

/* What came before the commands; true when all of it was taken. */
static bool feed_shell(struct box_file *f)
{
	if (f->body.len)
		strbuf_remove_front(&f->body, shellfs_body(f->shell, f->body.buf, f->body.len));
	if (f->body.len)
		return false;
	if (f->body_ended)
		shellfs_body_end(f->shell);
	return true;
}

static void shell_room(void *ctx)
{
	struct box_file *f = ctx;

	if (feed_shell(f) && !f->body_ended && f->events->room)
		f->events->room(f->ctx);
}

static void shell_ended(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct box_file *f = ctx;

	f->shell = NULL;
	f->end = *end;
	strbuf_addstr(&f->end_path, end->path);
	if (err)
		sandboxd_file_fail(f, err);
	else
		sandboxd_file_end(f);
}

static const struct file_events shell_events = { shell_info, shell_entry, shell_match,
						 shell_data, shell_room,  shell_ended };

static void on_failed(struct loop_later *l)
{
	struct box_file *f = container_of(l, struct box_file, later);
	const struct garret_error err = f->error;

	sandboxd_file_fail(f, &err);
}

void sandboxd_file_fail_later(struct box_file *f, const struct garret_error *err)
{
	f->failing = true;
	f->error = *err;
	loop_later_add(f->box->p->loop, &f->later, on_failed, f);
}

void sandboxd_file_by_shell(struct box_file *f)
{
	struct box *b = f->box;
	struct garret_error err = { 0 };
	const bool was_full = f->body.len >= FILE_BUFFER;

	if (!b->shellfs) {
		struct shell_host host;

		sandboxd_shell_host(b, &host);
		b->shellfs = shellfs_new(&host);
	}
	f->collects = false;
	f->shell = shellfs_file(b->shellfs, &f->rq, &shell_events, f, &err);
	if (!f->shell) {
		sandboxd_file_fail_later(f, &err);
		return;
	}
	shellfs_pause(f->shell, f->paused);
	if (f->has_body && feed_shell(f) && was_full && !f->body_ended && f->events->room)
		f->events->room(f->ctx);
}

/* ---- the interface ---- */

static void on_begin(struct loop_later *l)
{
	struct box_file *f = container_of(l, struct box_file, later);

	f->begun = true;
	if (f->box->p->ours ? sandboxd_transfer_begin(f) || sandboxd_v1_begin(f)
			    : sandboxd_published_begin(f))
		return;
	sandboxd_file_by_shell(f);
}

struct box_file *sandboxd_file(struct box *b, const struct file_request *rq,
			       const struct file_events *events, void *ctx,
			       struct garret_error *err)
{
	struct box_file *f;

	if (b->dead) {
		*err = b->why;
		return NULL;
	}
	if (!rq->path || *rq->path != '/' || strlen(rq->path) > FILE_PATH_MAX ||
	    (rq->to && *rq->to && (*rq->to != '/' || strlen(rq->to) > FILE_PATH_MAX))) {
		(void)garret_fail(err, GARRET_INVALID, "a path is absolute, of at most %d bytes",
				  FILE_PATH_MAX);
		return NULL;
	}
	f = xnew(struct box_file);
	f->box = b;
	f->rq = *rq;
	f->rq.path = xstrdup(rq->path);
	f->rq.to = xstrdup(rq->to ? rq->to : "");
	f->rq.pattern = xstrdup(rq->pattern ? rq->pattern : "");
	f->rq.include = xstrdup(rq->include ? rq->include : "");
	f->events = events;
	f->ctx = ctx;
	f->has_body = rq->op == FILE_WRITE || rq->op == FILE_EDIT || rq->op == FILE_TAR_IN;
	strbuf_init(&f->body);
	strbuf_init(&f->answer);
	strbuf_init(&f->end_path);
	list_append(&b->files, &f->link);
	loop_later_add(b->p->loop, &f->later, on_begin, f);
	return f;
}

/* What is handed on at once makes room for more: room() comes only when it doesn't. */
static size_t buffer_body(struct box_file *f, const char *data, size_t n)
{
	/* Of an edit all is held: it is one request. */
	const size_t most = f->rq.op == FILE_EDIT ? EDIT_BODY_MAX : FILE_BUFFER;
	size_t taken = 0, now;

	do {
		now = MIN(n - taken, most - MIN(most, f->body.len));
		strbuf_add(&f->body, data + taken, now);
		taken += now;
		if (f->transfers)
			sandboxd_transfer_more(f);
	} while (now && taken < n);
	return taken;
}

size_t sandboxd_file_body(struct box_file *f, const void *data, size_t n)
{
	if (!f->has_body || f->body_ended)
		return n;
	if (f->shell)
		return f->body.len ? 0 : shellfs_body(f->shell, data, n);
	if (f->collects) {
		strbuf_add(&f->body, data, n);
		/* More than such a route takes. */
		if (f->body.len > f->box->read_max)
			sandboxd_file_by_shell(f);
		return n;
	}
	return buffer_body(f, data, n);
}

void sandboxd_file_body_end(struct box_file *f)
{
	if (!f->has_body || f->body_ended)
		return;
	f->body_ended = true;
	if (f->shell)
		(void)feed_shell(f);
	else if (f->collects)
		sandboxd_published_write(f);
	else if (f->transfers)
		sandboxd_transfer_more(f);
	else if (f->begun && f->rq.op == FILE_EDIT && !sandboxd_v1_begin(f))
		sandboxd_file_by_shell(f);
}

int sandboxd_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err)
{
	if (ret_fd)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "bytes of another service come through no pipe");
	f->discard = true;
	return 0;
}

void sandboxd_file_pause(struct box_file *f, bool pause)
{
	f->paused = pause;
	if (f->shell)
		shellfs_pause(f->shell, pause);
	if (f->call)
		httpc_pause(f->call, pause);
}

void sandboxd_file_leave(struct box_file *f)
{
	file_free(f);
}

void sandboxd_files_end(struct box *b, const struct garret_error *why)
{
	while (!list_empty(&b->files)) {
		struct box_file *f = list_entry(b->files.next, struct box_file, link);

		if (f->shell)
			shellfs_leave(take_ptr(&f->shell));
		finish(f, why);
	}
	b->shellfs = shellfs_free(b->shellfs, why);
}
