/* The life of an operation, and those that are one script without more. */
#include "provider/shellfs.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "provider/shellfs_impl.h"

#define CLEANUP_MS 10000
#define TIMEOUT_MS 60000 /* of a request that names none */

/* A temporary that is being removed. */
struct removal {
	struct shellfs *fs;
	struct list link;
	struct script *script;
	struct shellfs_op *op; /* waits for it; NULL: nobody does */
};

/* ---- ending ---- */

static void op_free(struct shellfs_op *op)
{
	if (op->gone)
		*op->gone = true;
	if (op->script)
		script_cancel(op->script);
	if (op->kind->release)
		op->kind->release(op);
	loop_later_cancel(op->fs->host.loop, &op->later);
	list_remove(&op->link);
	strbuf_release(&op->out);
	strbuf_release(&op->end_path);
	strbuf_release(&op->body.data);
	strbuf_release(&op->read.content);
	strbuf_release(&op->edits);
	strbuf_release(&op->errors);
	free((char *)(uintptr_t)op->rq.path);
	free((char *)(uintptr_t)op->rq.to);
	free((char *)(uintptr_t)op->rq.pattern);
	free((char *)(uintptr_t)op->rq.include);
	free(op);
}

void shellfs_end(struct shellfs_op *op)
{
	const struct file_events *events = op->events;
	struct strbuf path = op->end_path;
	struct file_end end = op->end;
	void *ctx = op->ctx;

	strbuf_init(&op->end_path);
	op_free(op);
	end.path = path.buf;
	end.msg = "";
	events->end(ctx, &end, NULL);
	strbuf_release(&path);
}

void shellfs_fail(struct shellfs_op *op, const struct garret_error *err)
{
	const struct file_events *events = op->events;
	const struct garret_error own = *err;
	struct file_end end = op->end;
	void *ctx = op->ctx;

	end.code = (uint32_t)own.code;
	end.sys = (uint32_t)own.sys;
	end.path = "";
	end.msg = own.msg;
	op_free(op);
	events->end(ctx, &end, &own);
}

void shellfs_failf(struct shellfs_op *op, enum garret_code code, const char *fmt, ...)
{
	struct garret_error err = { .code = code };
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(err.msg, sizeof(err.msg), fmt, ap);
	va_end(ap);
	shellfs_fail(op, &err);
}

/* ---- telling: who listens may give the operation up ---- */

#define TELL(op, call)                     \
	({                                 \
		bool gone_ = false;        \
		(op)->gone = &gone_;       \
		call;                      \
		if (!gone_)                \
			(op)->gone = NULL; \
		gone_;                     \
	})

bool shellfs_tell_info(struct shellfs_op *op, const struct file_info *info)
{
	return op->events->info && TELL(op, op->events->info(op->ctx, info));
}

bool shellfs_tell_entry(struct shellfs_op *op, const struct file_info *info)
{
	return op->events->entry && TELL(op, op->events->entry(op->ctx, info));
}

bool shellfs_tell_match(struct shellfs_op *op, const struct file_match *m)
{
	return op->events->match && TELL(op, op->events->match(op->ctx, m));
}

bool shellfs_tell_data(struct shellfs_op *op, const void *data, size_t n)
{
	return n && op->events->data && TELL(op, op->events->data(op->ctx, data, n));
}

bool shellfs_tell_room(struct shellfs_op *op)
{
	return op->events->room && TELL(op, op->events->room(op->ctx));
}

/* ---- scripts ---- */

uint32_t shellfs_timeout(const struct shellfs_op *op)
{
	return op->rq.timeout_ms ? op->rq.timeout_ms : TIMEOUT_MS;
}

static void on_data(void *ctx, const char *data, size_t n)
{
	struct shellfs_op *op = ctx;

	if (op->kind->data)
		op->kind->data(op, data, n);
	else
		strbuf_add(&op->out, data, n);
}

static void on_room(void *ctx)
{
	struct shellfs_op *op = ctx;

	if (op->kind->room)
		op->kind->room(op);
}

static void on_end(void *ctx, int code, const char *errors, const struct garret_error *err)
{
	struct shellfs_op *op = ctx;
	struct garret_error own = { 0 };

	op->script = NULL;
	strbuf_reset(&op->errors);
	strbuf_addstr(&op->errors, errors);
	if (!err && code)
		script_error(code, errors, op->rq.path, &own);
	if (err)
		own = *err;
	if (own.code == GARRET_OUTPUT_LIMIT)
		(void)garret_fail(&own, GARRET_TOO_LARGE,
				  "%s: more than a command may print on this host", op->rq.path);
	/* A script that ended by itself has tidied up. */
	if (err && *op->body.temp) {
		op->failed = own;
		shellfs_tidy(op);
		return;
	}
	if (own.code) {
		shellfs_fail(op, &own);
		return;
	}
	if (*errors && (op->rq.op == FILE_WALK || op->rq.op == FILE_GLOB)) {
		for (const char *p = errors; (p = strchr(p, '\n')); p++)
			op->end.skipped++;
		op->end.truncated = true;
	}
	op->kind->done(op);
}

static const struct script_events script_events = { on_data, on_room, on_end };

static void on_failed(struct loop_later *l)
{
	shellfs_tidy(container_of(l, struct shellfs_op, later));
}

/* Whoever asked for what failed still uses the operation. */
void shellfs_fail_later(struct shellfs_op *op, const struct garret_error *err)
{
	op->failed = *err;
	loop_later_add(op->fs->host.loop, &op->later, on_failed, op);
}

void shellfs_script(struct shellfs_op *op, const char *body, struct script_args *a, bool input)
{
	/* What waits for a client may take as long as that does. */
	const bool patient = op->kind->body || op->rq.op == FILE_READ || op->rq.op == FILE_TAR_OUT;
	struct garret_error err = { 0 };

	strbuf_reset(&op->out);
	op->script = script_start(op->fs, body, a, input, patient ? 0 : shellfs_timeout(op),
				  &script_events, op, &err);
	script_args_release(a);
	if (!op->script)
		shellfs_fail_later(op, &err);
	else if (op->paused)
		script_pause(op->script, true);
}

/* ---- temporaries ---- */

void shellfs_name_temp(struct shellfs_op *op)
{
	uint8_t bytes[8 + INPUT_MARK / 2];
	char hex[2 * sizeof(bytes) + 1];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		abort(); /* it can't: the kernel has enough of it from the start */
	hex_encode(bytes, sizeof(bytes), hex);
	(void)snprintf(op->body.temp, sizeof(op->body.temp), ".garret-%.16s.tmp", hex);
	(void)snprintf(op->body.mark, sizeof(op->body.mark), "%s", hex + 16);
}

static const char remove_temp[] =
	"m() { place \"$1\"; real \"$p\" || return; rm -rf \"${r%/*}/$2\" "
	"\"${p%/*}/$2\" \"/tmp/$2\"; }";

static void removal_free(struct removal *k)
{
	if (k->script)
		script_cancel(k->script);
	list_remove(&k->link);
	free(k);
}

/* Whatever became of it: nothing more can be done. */
static void on_removed(void *ctx, int code, const char *errors, const struct garret_error *err)
{
	struct removal *k = ctx;
	struct shellfs_op *op = k->op;

	(void)code, (void)errors, (void)err;
	k->script = NULL;
	removal_free(k);
	if (!op)
		return;
	op->body.temp[0] = '\0';
	shellfs_fail(op, &op->failed);
}

static bool start_removal(struct shellfs_op *op, bool wait)
{
	static const struct script_events events = { .end = on_removed };
	struct removal *k = xnew(struct removal);
	struct script_args a = { .n = 0 };

	k->fs = op->fs;
	k->op = wait ? op : NULL;
	script_arg_path(&a, op->rq.op == FILE_COPY ? op->rq.to : op->rq.path);
	script_arg(&a, op->body.temp);
	list_append(&op->fs->cleanup, &k->link);
	k->script = script_start(op->fs, remove_temp, &a, false, CLEANUP_MS, &events, k, NULL);
	script_args_release(&a);
	if (k->script)
		return true;
	removal_free(k);
	return false;
}

void shellfs_tidy(struct shellfs_op *op)
{
	/* Where the environment is gone so is the temporary. */
	if (!*op->body.temp || op->failed.code == GARRET_GONE || !start_removal(op, true))
		shellfs_fail(op, &op->failed);
}

/* ---- the interface ---- */

static const struct shellfs_kind *const kinds[FILE_OPS] = {
	[FILE_STAT] = &shellfs_stat,         [FILE_LIST] = &shellfs_list,
	[FILE_WALK] = &shellfs_list,         [FILE_READ] = &shellfs_read,
	[FILE_WRITE] = &shellfs_write,       [FILE_MKDIR] = &shellfs_change,
	[FILE_REMOVE] = &shellfs_change,     [FILE_RENAME] = &shellfs_change,
	[FILE_COPY] = &shellfs_change,       [FILE_CHMOD] = &shellfs_change,
	[FILE_REALPATH] = &shellfs_realpath, [FILE_DIGEST] = &shellfs_digest,
	[FILE_GLOB] = &shellfs_glob,         [FILE_GREP] = &shellfs_grep,
	[FILE_EDIT] = &shellfs_edit,         [FILE_TAR_OUT] = &shellfs_tar_out,
	[FILE_TAR_IN] = &shellfs_tar_in,     [FILE_TEXT] = &shellfs_text,
};

struct shellfs *shellfs_new(const struct shell_host *host)
{
	struct shellfs *fs = xnew(struct shellfs);

	fs->host = *host;
	list_init(&fs->ops);
	list_init(&fs->cleanup);
	return fs;
}

struct shellfs *shellfs_free(struct shellfs *fs, const struct garret_error *why)
{
	if (!fs)
		return NULL;
	while (!list_empty(&fs->cleanup)) {
		struct removal *k = list_entry(fs->cleanup.next, struct removal, link);
		struct shellfs_op *op = k->op;

		removal_free(k);
		if (op)
			shellfs_fail(op, &op->failed);
	}
	while (!list_empty(&fs->ops))
		shellfs_fail(list_entry(fs->ops.next, struct shellfs_op, link), why);
	free(fs);
	return NULL;
}

static void on_later(struct loop_later *l)
{
	struct shellfs_op *op = container_of(l, struct shellfs_op, later);

	op->kind->begin(op);
}

static int check(const struct file_request *rq, struct garret_error *err)
{
	if (rq->op >= FILE_OPS || !kinds[rq->op])
		return garret_fail(err, GARRET_UNSUPPORTED, "file operation %u", rq->op);
	if (rq->flags & FILE_RELATIVE)
		return garret_fail(
			err, GARRET_UNSUPPORTED,
			"a tree whose links are not followed can't be opened by a shell");
	if (!rq->path || *rq->path != '/' || (rq->to && *rq->to && *rq->to != '/'))
		return garret_fail(err, GARRET_INVALID, "a path must be absolute");
	if (strlen(rq->path) > FILE_PATH_MAX || (rq->to && strlen(rq->to) > FILE_PATH_MAX))
		return garret_fail(err, GARRET_INVALID, "a path has at most %d bytes",
				   FILE_PATH_MAX);
	return 0;
}

struct shellfs_op *shellfs_file(struct shellfs *fs, const struct file_request *rq,
				const struct file_events *events, void *ctx,
				struct garret_error *err)
{
	struct shellfs_op *op;

	if (check(rq, err) < 0)
		return NULL;
	op = xnew(struct shellfs_op);
	op->fs = fs;
	op->events = events;
	op->ctx = ctx;
	op->rq = *rq;
	op->rq.path = xstrdup(rq->path);
	op->rq.to = xstrdup(rq->to ? rq->to : "");
	op->rq.pattern = xstrdup(rq->pattern ? rq->pattern : "");
	op->rq.include = xstrdup(rq->include ? rq->include : "");
	op->kind = kinds[rq->op];
	strbuf_init(&op->out);
	strbuf_init(&op->end_path);
	strbuf_init(&op->body.data);
	strbuf_init(&op->read.content);
	strbuf_init(&op->edits);
	strbuf_init(&op->errors);
	list_append(&fs->ops, &op->link);
	loop_later_add(fs->host.loop, &op->later, on_later, op);
	return op;
}

void shellfs_pause(struct shellfs_op *op, bool pause)
{
	op->paused = pause;
	if (op->script)
		script_pause(op->script, pause);
}

void shellfs_leave(struct shellfs_op *op)
{
	struct removal *k;

	list_foreach (k, &op->fs->cleanup, link) {
		if (k->op != op)
			continue;
		k->op = NULL; /* it goes on alone */
		op_free(op);
		return;
	}
	if (op->script)
		script_cancel(take_ptr(&op->script));
	if (*op->body.temp)
		(void)start_removal(op, false);
	op_free(op);
}
