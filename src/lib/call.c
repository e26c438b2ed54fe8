#include "lib/call.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- what comes ---- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static char *below(const char *dir, const char *name)
{
	return *name ? path_join(dir, name) : xstrdup(dir);
}

void entry_fill(struct garret_entry *e, const struct file_info *info, const char *dir)
{
	memset(e, 0, sizeof(*e));
	e->name = xstrdup(*info->name ? info->name : base_name(dir));
	e->path = below(dir, info->name);
	e->type = (enum garret_type)info->type; /* the same list */
	e->is_dir = info->type == FILE_DIRECTORY;
	e->is_link = info->link;
	e->bytes = info->type == FILE_REGULAR && !(info->unknown & FILE_NO_SIZE)
			   ? info->tag.size
			   : GARRET_SIZE_UNKNOWN;
	e->mode = info->mode;
	e->uid = info->uid;
	e->gid = info->gid;
	e->modified_ns = (int64_t)info->tag.mtime_ns;
	e->inode = info->tag.inode;
	e->target = info->link && info->target && *info->target ? xstrdup(info->target) : NULL;
}

_Static_assert((int)GARRET_REGULAR == (int)FILE_REGULAR &&
		       (int)GARRET_DIRECTORY == (int)FILE_DIRECTORY &&
		       (int)GARRET_OTHER == (int)FILE_OTHER &&
		       (int)GARRET_DANGLING == (int)FILE_DANGLING,
	       "types are told as they are");

static void on_info(void *ctx, const struct file_info *info)
{
	struct file_call *call = ctx;
	struct file_info named = *info;

	named.name = "";
	garret_entry_release(&call->info);
	entry_fill(&call->info, &named, call->abs);
}

static void on_entry(void *ctx, const struct file_info *info)
{
	struct file_call *call = ctx;
	struct garret_list *l = call->list;

	if (!l)
		return;
	if ((l->n & (l->n - 1)) == 0)
		l->entry = xrealloc(l->entry, (l->n ? 2 * l->n : 1) * sizeof(*l->entry));
	entry_fill(&l->entry[l->n++], info, call->abs);
}

static void on_match(void *ctx, const struct file_match *m)
{
	struct file_call *call = ctx;
	struct garret_matches *ms = call->matches;
	struct garret_match *at;

	if (!ms)
		return;
	if ((ms->n & (ms->n - 1)) == 0)
		ms->match = xrealloc(ms->match, (ms->n ? 2 * ms->n : 1) * sizeof(*ms->match));
	at = &ms->match[ms->n++];
	*at = (struct garret_match){ .path = below(call->abs, m->name),
				     .line = m->line,
				     .column = m->column,
				     .length = m->length,
				     .text = xmalloc(m->text_bytes + 1),
				     .text_bytes = m->text_bytes,
				     .cut = m->cut };
	memcpy(at->text, m->text, m->text_bytes);
	at->text[m->text_bytes] = '\0';
}

static void give_up(struct file_call *call)
{
	if (!call->file)
		return;
	call->workspace->backend->provider->ops->file_leave(call->file);
	call->file = NULL;
	call->done = true;
}

static void on_data(void *ctx, const void *data, size_t n)
{
	struct file_call *call = ctx;

	/* Nothing beyond the bound is kept; the end is waited for, or the worker would be. */
	if (call->error.code)
		return;
	if (call->data.len + n > call->max_data) {
		(void)garret_fail(&call->error, GARRET_TOO_LARGE,
				  "%s: more than %zu bytes; read it in pieces", call->path,
				  call->max_data);
		return;
	}
	strbuf_add(&call->data, data, n);
}

static void push(struct file_call *call)
{
	const struct provider_ops *ops = call->workspace->backend->provider->ops;

	while (call->file && call->body_at < call->body_bytes) {
		size_t took = ops->file_body(call->file, (const char *)call->body + call->body_at,
					     call->body_bytes - call->body_at);

		call->body_at += took;
		if (!took)
			return;
	}
	if (call->file && !call->body_ended) {
		call->body_ended = true;
		ops->file_body_end(call->file);
	}
}

static void on_room(void *ctx)
{
	push(ctx);
}

static void on_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct file_call *call = ctx;

	call->file = NULL;
	call->done = true;
	if (end) {
		call->end = *end;
		call->end_path = xstrdup(end->path ? end->path : "");
		call->end.path = call->end.msg = NULL;
	}
	if (err)
		call->error = *err;
}

static const struct file_events call_events = {
	.info = on_info,
	.entry = on_entry,
	.match = on_match,
	.data = on_data,
	.room = on_room,
	.end = on_end,
};

/* ---- asking ---- */

static int check(const struct file_call *call, struct garret_error *err)
{
	int rc = path_check("path", call->path, err);

	if (rc == 0 && call->to)
		rc = path_check("to", call->to, err);
	if (rc == 0 && strnlen(call->rq.pattern, FILE_PATTERN_MAX + 1) > FILE_PATTERN_MAX)
		rc = garret_fail(err, GARRET_INVALID, "pattern: at most %d bytes",
				 FILE_PATTERN_MAX);
	if (rc == 0 && strnlen(call->rq.include, FILE_PATTERN_MAX + 1) > FILE_PATTERN_MAX)
		rc = garret_fail(err, GARRET_INVALID, "include: at most %d bytes",
				 FILE_PATTERN_MAX);
	return rc;
}

/* The lock is held when this returns 0. */
static int begin(struct garret_workspace *w, struct file_call *call, struct garret_error *err)
{
	struct backend *b = w->backend;
	int rc = context_enter(b->context, err);

	if (rc < 0)
		return rc;
	rc = backend_open(b, w->cancel, err);
	if (rc == 0 && call->op.confined && !(backend_abilities(b) & GARRET_HAS_CONFINED))
		rc = garret_fail(err, GARRET_UNSUPPORTED,
				 "provider %s can't confine what opens a file", b->provider->name);
	if (rc < 0)
		goto out;
	call->abs = call->rq.op == FILE_REALPATH ? path_join(b->working_dir, call->path)
						 : path_normal(b->working_dir, call->path);
	call->abs_to = call->to ? path_normal(b->working_dir, call->to) : NULL;
	if (strlen(call->abs) > FILE_PATH_MAX ||
	    (call->abs_to && strlen(call->abs_to) > FILE_PATH_MAX)) {
		rc = garret_fail(err, GARRET_INVALID,
				 "path: with the working directory at most %d bytes",
				 FILE_PATH_MAX);
		goto out;
	}
	call->rq.path = call->abs;
	call->rq.to = call->abs_to ? call->abs_to : "";
	if (call->op.confined)
		call->rq.flags |= FILE_CONFINED;
	call->file = b->provider->ops->file(b->box, &call->rq,
					    call->events ? call->events : &call_events,
					    call->events ? call->events_ctx : call, err);
	if (call->file)
		return 0;
	rc = -(int)(err && err->code ? err->code : GARRET_INTERNAL);
out:
	context_leave(b->context);
	return rc;
}

int file_call_begin(struct garret_workspace *w, struct file_call *call, struct garret_error *err)
{
	struct garret_error own = { 0 };
	int rc;

	err = err ? err : &own;
	call->workspace = w;
	if (!call->rq.pattern)
		call->rq.pattern = "";
	if (!call->rq.include)
		call->rq.include = "";
	strbuf_init(&call->data);
	call->op = (struct operation){ .kind = call->kind, .path = call->path, .to = call->to };
	if (call->kind == GARRET_OP_GLOB || call->kind == GARRET_OP_GREP) {
		call->op.pattern = call->rq.pattern;
		call->op.include = *call->rq.include ? call->rq.include : NULL;
		call->op.search_flags = call->search_flags;
	}
	rc = operation_begin(w, &call->op, err);
	if (rc == 0)
		rc = check(call, err);
	return rc < 0 ? rc : begin(w, call, err);
}

int file_call_wait(struct file_call *call, struct garret_error *err)
{
	struct backend *b = call->workspace->backend;
	int rc = context_wait(b->context, &call->done, call->workspace->cancel, 0, err);

	if (rc < 0) {
		give_up(call);
		return rc;
	}
	if (!call->error.code)
		return 0;
	if (err)
		*err = call->error;
	return -(int)call->error.code;
}

static bool has_body(const struct file_call *call)
{
	return call->rq.op == FILE_WRITE || call->rq.op == FILE_EDIT || call->rq.op == FILE_TAR_IN;
}

int file_call(struct garret_workspace *w, struct file_call *call, struct garret_error *err)
{
	int rc = file_call_begin(w, call, err);

	if (rc == 0) {
		if (has_body(call))
			push(call);
		rc = file_call_wait(call, err);
		context_leave(w->backend->context);
	}
	if (rc == 0 && call->list)
		call->list->truncated = call->end.truncated;
	call->op.bytes = has_body(call) ? call->body_bytes : call->data.len;
	call->op.results = call->list ? call->list->n : call->matches ? call->matches->n : 0;
	return operation_end(w, &call->op, rc);
}

void file_call_release(struct file_call *call)
{
	garret_entry_release(&call->info);
	if (call->data.buf)
		strbuf_release(&call->data);
	free(call->end_path);
	free(call->abs);
	free(call->abs_to);
}
