/*
 * Transfers of any length.  A reader keeps at most WINDOW bytes: it pauses the provider above
 * that and lets it go on below the half.  A writer hands over what the provider takes and waits
 * for the rest.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/call.h"

#define WINDOW (1u << 20)

struct garret_reader {
	struct file_call call;
	struct garret_workspace *workspace; /* a handle of its own */
	char *path;
	size_t at; /* in call.data: before it was given out */
	bool paused, ready;
};

struct garret_writer {
	struct file_call call;
	struct garret_workspace *workspace;
	char *path;
	bool room; /* or its end */
};

static const struct provider_ops *ops_of(const struct file_call *call)
{
	return call->workspace->backend->provider->ops;
}

/* ---- reading ---- */

static void reader_data(void *ctx, const void *data, size_t n)
{
	struct garret_reader *r = ctx;

	strbuf_add(&r->call.data, data, n);
	r->ready = true;
	if (r->call.data.len - r->at >= WINDOW && !r->paused && r->call.file) {
		r->paused = true;
		ops_of(&r->call)->file_pause(r->call.file, true);
	}
}

static void transfer_end(struct file_call *call, const struct garret_error *err)
{
	call->file = NULL;
	call->done = true;
	if (err)
		call->error = *err;
}

static void reader_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct garret_reader *r = ctx;

	(void)end;
	r->ready = true;
	transfer_end(&r->call, err);
}

static const struct file_events reader_events = { .data = reader_data, .end = reader_end };

static int reader_begin(struct garret_workspace *w, enum garret_operation kind, const char *path,
			const struct file_request *rq, struct garret_reader **ret,
			struct garret_error *err)
{
	struct garret_reader *r = xnew(struct garret_reader);
	int rc;

	*ret = NULL;
	r->workspace = garret_workspace_dup(w);
	if (!r->workspace) {
		free(r);
		return garret_fail(err, GARRET_MISUSE,
				   "this context was made before fork(): make another one");
	}
	r->path = path ? xstrdup(path) : NULL;
	r->call.kind = kind;
	r->call.path = r->path;
	r->call.rq = *rq;
	r->call.events = &reader_events;
	r->call.events_ctx = r;
	rc = file_call_begin(r->workspace, &r->call, err);
	if (rc == 0) {
		/* What is wrong with the path is told now, not by the first read. */
		rc = context_wait(w->backend->context, &r->ready, w->cancel, 0, err);
		if (rc == 0 && r->call.error.code && !r->call.data.len) {
			if (err)
				*err = r->call.error;
			rc = -(int)r->call.error.code;
		}
		context_leave(w->backend->context);
	} else {
		(void)operation_end(r->workspace, &r->call.op, rc);
		file_call_release(&r->call);
		garret_workspace_free(r->workspace);
		free(r->path);
		free(r);
		return rc;
	}
	if (rc < 0) {
		r->call.error.code = -rc;
		garret_reader_close(r);
		return rc;
	}
	*ret = r;
	return 0;
}

int garret_reader_open(struct garret_workspace *w, const char *path, uint64_t offset,
		       uint64_t bytes, struct garret_reader **ret, struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_READ, .offset = offset, .length = bytes };

	return reader_begin(w, GARRET_OP_READ, path, &rq, ret, err);
}

int garret_archive_open(struct garret_workspace *w, const char *path, struct garret_reader **ret,
			struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_TAR_OUT };

	return reader_begin(w, GARRET_OP_ARCHIVE, path, &rq, ret, err);
}

static ssize_t take(struct garret_reader *r, void *buf, size_t n)
{
	const size_t left = r->call.data.len - r->at;

	n = MIN(n, left);
	memcpy(buf, r->call.data.buf + r->at, n);
	r->at += n;
	r->call.op.bytes += n;
	if (r->at == r->call.data.len || r->at > WINDOW) {
		strbuf_remove_front(&r->call.data, r->at);
		r->at = 0;
	}
	if (r->paused && r->call.file && r->call.data.len - r->at < WINDOW / 2) {
		r->paused = false;
		ops_of(&r->call)->file_pause(r->call.file, false);
	}
	return (ssize_t)n;
}

ssize_t garret_reader_read(struct garret_reader *r, void *buf, size_t n, struct garret_error *err)
{
	struct garret_context *c = r->workspace->backend->context;
	ssize_t got = 0;
	int rc = context_enter(c, err);

	if (rc < 0)
		return rc;
	r->ready = r->at < r->call.data.len || r->call.done;
	rc = n ? context_wait(c, &r->ready, r->workspace->cancel, 0, err) : 0;
	if (rc == 0 && r->at < r->call.data.len) {
		got = take(r, buf, n);
	} else if (rc == 0 && r->call.error.code) {
		if (err)
			*err = r->call.error;
		rc = -(int)r->call.error.code;
	}
	context_leave(c);
	return rc < 0 ? rc : got;
}

struct garret_reader *garret_reader_close(struct garret_reader *r)
{
	if (!r)
		return NULL;
	if (context_enter(r->workspace->backend->context, NULL) == 0) {
		if (r->call.file)
			ops_of(&r->call)->file_leave(r->call.file);
		context_leave(r->workspace->backend->context);
	}
	(void)operation_end(r->workspace, &r->call.op, -(int)r->call.error.code);
	file_call_release(&r->call);
	garret_workspace_free(r->workspace);
	free(r->path);
	free(r);
	return NULL;
}

/* ---- writing ---- */

static void writer_room(void *ctx)
{
	struct garret_writer *wr = ctx;

	wr->room = true;
}

static void writer_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct garret_writer *wr = ctx;

	(void)end;
	wr->room = true;
	transfer_end(&wr->call, err);
}

static const struct file_events writer_events = { .room = writer_room, .end = writer_end };

static int writer_begin(struct garret_workspace *w, enum garret_operation kind, const char *path,
			const struct file_request *rq, struct garret_writer **ret,
			struct garret_error *err)
{
	struct garret_writer *wr = xnew(struct garret_writer);
	int rc;

	*ret = NULL;
	wr->workspace = garret_workspace_dup(w);
	if (!wr->workspace) {
		free(wr);
		return garret_fail(err, GARRET_MISUSE,
				   "this context was made before fork(): make another one");
	}
	wr->path = path ? xstrdup(path) : NULL;
	wr->call.kind = kind;
	wr->call.path = wr->path;
	wr->call.rq = *rq;
	wr->call.events = &writer_events;
	wr->call.events_ctx = wr;
	rc = file_call_begin(wr->workspace, &wr->call, err);
	if (rc == 0) {
		context_leave(w->backend->context);
		*ret = wr;
		return 0;
	}
	(void)operation_end(wr->workspace, &wr->call.op, rc);
	file_call_release(&wr->call);
	garret_workspace_free(wr->workspace);
	free(wr->path);
	free(wr);
	return rc;
}

int garret_writer_open(struct garret_workspace *w, const char *path, unsigned flags,
		       struct garret_writer **ret, struct garret_error *err)
{
	struct file_request rq = { .op = FILE_WRITE, .flags = FILE_PARENTS };

	*ret = NULL;
	if (flags & ~(unsigned)(GARRET_WRITE_SYNC | GARRET_WRITE_EXCLUSIVE))
		return garret_fail(err, GARRET_INVALID, "flags: unknown ones");
	rq.flags |= (flags & GARRET_WRITE_SYNC ? FILE_SYNC : 0) |
		    (flags & GARRET_WRITE_EXCLUSIVE ? FILE_EXCLUSIVE : 0);
	return writer_begin(w, GARRET_OP_WRITE, path, &rq, ret, err);
}

int garret_unpack_open(struct garret_workspace *w, const char *path, struct garret_writer **ret,
		       struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_TAR_IN, .flags = FILE_PARENTS };

	return writer_begin(w, GARRET_OP_UNPACK, path, &rq, ret, err);
}

static int writer_error(const struct garret_writer *wr, struct garret_error *err)
{
	if (!wr->call.error.code)
		return 0;
	if (err)
		*err = wr->call.error;
	return -(int)wr->call.error.code;
}

int garret_writer_write(struct garret_writer *wr, const void *data, size_t n,
			struct garret_error *err)
{
	struct garret_context *c = wr->workspace->backend->context;
	int rc = context_enter(c, err);

	if (rc < 0)
		return rc;
	for (size_t at = 0; at < n && rc == 0;) {
		size_t took;

		if (!wr->call.file) {
			rc = writer_error(wr, err);
			if (rc == 0) /* it ended before the body did: nobody wants the rest */
				rc = garret_fail(err, GARRET_FAILED, "the transfer has ended");
			break;
		}
		wr->room = false;
		took = ops_of(&wr->call)->file_body(wr->call.file, (const char *)data + at, n - at);
		at += took;
		wr->call.op.bytes += took;
		if (at < n && !took)
			rc = context_wait(c, &wr->room, wr->workspace->cancel, 0, err);
	}
	context_leave(c);
	return rc;
}

static void writer_free(struct garret_writer *wr, int rc)
{
	(void)operation_end(wr->workspace, &wr->call.op, rc);
	file_call_release(&wr->call);
	garret_workspace_free(wr->workspace);
	free(wr->path);
	free(wr);
}

int garret_writer_commit(struct garret_writer *wr, struct garret_error *err)
{
	struct garret_context *c = wr->workspace->backend->context;
	int rc = context_enter(c, err);

	if (rc == 0) {
		if (wr->call.file)
			ops_of(&wr->call)->file_body_end(wr->call.file);
		rc = file_call_wait(&wr->call, err);
		context_leave(c);
	}
	writer_free(wr, rc);
	return rc;
}

void garret_writer_abort(struct garret_writer *wr)
{
	if (!wr)
		return;
	if (context_enter(wr->workspace->backend->context, NULL) == 0) {
		if (wr->call.file)
			ops_of(&wr->call)->file_leave(wr->call.file);
		context_leave(wr->workspace->backend->context);
	}
	writer_free(wr, -GARRET_CANCELLED);
}
