/*
 * The published archive routes: what is kept of a session, whether it is open
 * or not.  Nothing is started for it, links are neither shown nor followed.
 * Answers that the published service fails to give (500 for a file it may not
 * read) say what it is: 403.
 */
#include <errno.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "api/file_answer.h"
#include "api/handlers.h"
#include "base/auto.h"
#include "base/mem.h"

#define TREE_MAX (32u << 20) /* bytes of one item of trees, which is kept until it is whole */

struct archive_state {
	char *shown;         /* the path as it was asked for */
	const char *missing; /* what isn't there: "directory", "file" */
	/* read */
	struct json_text text;
	uint64_t offset, limit;
	/* read_bytes */
	struct base64_encode_ctx base64;
	/* trees */
	const char **ids; /* borrowed */
	size_t at;
	struct file_request rq;
	char *path; /* rq's */
	struct strbuf item;
	bool too_large;
	uint64_t n;
};

static void state_release(struct file_answer *a)
{
	struct archive_state *st = a->extra;

	free(st->shown);
	free(st->path);
	strbuf_release(&st->item);
}

/* ---- paths ---- */

/*
 * Below the root: what is absolute in the work directory, and everything else
 * without its leading slashes.  False when the path leads out.
 */
static bool archive_path(const struct call *c, const char *path, struct strbuf *out)
{
	const char *work = service_config(c->service)->work_dir;
	const size_t n = strlen(work);

	if (path == json_path_nul)
		return false;
	if (!strncmp(path, work, n) && (path[n] == '/' || !path[n]))
		path += n;
	while (*path) {
		size_t len;

		path += strspn(path, "/");
		len = strcspn(path, "/");
		if (len == 2 && !memcmp(path, "..", 2))
			return false;
		if (len && !(len == 1 && *path == '.')) {
			if (out->len)
				strbuf_addch(out, '/');
			strbuf_add(out, path, len);
		}
		path += len;
	}
	return out->len <= FILE_PATH_MAX;
}

/* ---- errors ---- */

static unsigned describe(const struct garret_error *err, const struct archive_state *st,
			 const char *id, char text[600])
{
	const char *shown = st->shown;

	switch (err->code) {
	case GARRET_NOT_FOUND:
		/* Only of a path there is an errno; else it is the engine that knows of none. */
		if (!err->sys)
			(void)snprintf(text, 600, "No workspace for session: %s", id);
		else
			(void)snprintf(text, 600, "No such %s: %s", st->missing, shown);
		return 404;
	case GARRET_NOT_DIRECTORY:
	case GARRET_IS_DIRECTORY:
		(void)snprintf(text, 600, "No such %s: %s", st->missing, shown);
		return 404;
	case GARRET_NOT_REGULAR:
		(void)snprintf(text, 600, "Path '%s' is outside the workspace", shown);
		return 400;
	case GARRET_TOO_LARGE:
		(void)snprintf(text, 600, "%s", err->msg);
		return 400;
	default:
		break;
	}
	if (err->sys == ELOOP || err->sys == EXDEV) {
		(void)snprintf(text, 600, "Path '%s' is outside the workspace", shown);
		return 400;
	}
	(void)snprintf(text, 600, "%s", err->msg);
	return (unsigned)garret_code_http((int)err->code);
}

static void fail(struct file_answer *a, const struct garret_error *err)
{
	char text[600];
	unsigned status = describe(err, a->extra, a->archive, text);

	call_refuse(a->call, status, "%s", text);
}

/* Begin one; NULL when it was answered. */
static struct file_answer *begin(struct call *c, const struct file_kind *kind, const char *id,
				 const char *path, const char *missing, struct file_request rq)
{
	autobuf struct strbuf below = STRBUF_INIT;
	struct archive_state *st;
	struct file_answer *a;

	if (!archive_path(c, path, &below)) {
		call_refuse(c, 400, "Path '%s' is outside the workspace", path);
		return NULL;
	}
	rq.flags |= FILE_RELATIVE | FILE_NOFOLLOW;
	rq.path = below.buf;
	st = xnew(struct archive_state);
	st->shown = xstrdup(path);
	st->missing = missing;
	strbuf_init(&st->item);
	a = file_begin_archive(c, kind, id, &rq);
	a->extra = st;
	return a;
}

/* ---- ls, tree, trees ---- */

static void put_relative(struct strbuf *out, const char *root, const struct file_info *info)
{
	autobuf struct strbuf path = STRBUF_INIT;

	if (*root)
		file_join(&path, root, info->name);
	else
		strbuf_addstr(&path, info->name);
	file_put_entry(out, file_base_name(info->name), path.buf, info);
}

static void put_entry(struct file_answer *a, const struct file_info *info)
{
	file_next_item(a);
	put_relative(&a->out, a->path, info);
}

static void ls_end(struct file_answer *a, const struct file_end *end)
{
	(void)end;
	json_close(&a->out, ']');
}

void archive_ls(struct call *c)
{
	static const struct file_kind kind = {
		.entry = put_entry, .end = ls_end, .fail = fail, .release = state_release
	};
	const struct archive_values *v = c->values;
	struct file_answer *a =
		begin(c, &kind, v->session_id, v->path, "directory",
		      (struct file_request){ .op = FILE_LIST, .flags = FILE_DIRS_FIRST });

	if (a)
		json_open(&a->out, '[');
}

static struct file_request tree_request(const struct archive_values *v)
{
	return (struct file_request){ .op = FILE_WALK,
				      .flags = FILE_DIRS_FIRST,
				      .max_depth = v->max_depth ? (uint32_t)v->max_depth : 6,
				      .max_entries =
					      v->max_entries ? (uint32_t)v->max_entries : 2000 };
}

static void open_tree(struct strbuf *out)
{
	json_open(out, '{');
	json_put_key(out, "entries");
	json_open(out, '[');
}

static void close_tree(struct strbuf *out, bool truncated)
{
	json_close(out, ']');
	json_put_key(out, "truncated");
	json_put_bool(out, truncated);
	json_close(out, '}');
}

static void tree_end(struct file_answer *a, const struct file_end *end)
{
	close_tree(&a->out, end->truncated);
}

static const char *path_or_root(const struct archive_values *v)
{
	return v->path ? v->path : ".";
}

void archive_tree(struct call *c)
{
	static const struct file_kind kind = {
		.entry = put_entry, .end = tree_end, .fail = fail, .release = state_release
	};
	const struct archive_values *v = c->values;
	struct file_answer *a =
		begin(c, &kind, v->session_id, path_or_root(v), "directory", tree_request(v));

	if (a)
		open_tree(&a->out);
}

/* Of one item of trees: kept until it is whole, because it may fail on the way. */
static void trees_entry(struct file_answer *a, const struct file_info *info)
{
	struct archive_state *st = a->extra;

	if (st->item.len > TREE_MAX) {
		st->too_large = true;
		strbuf_reset(&st->item);
	}
	if (st->too_large)
		return;
	if (!st->item.len)
		open_tree(&st->item);
	put_relative(&st->item, st->path, info);
}

static void put_tree(struct file_answer *a, const struct file_end *end,
		     const struct garret_error *err)
{
	struct archive_state *st = a->extra;
	const struct garret_error large = { .code = GARRET_TOO_LARGE,
					    .msg = "The tree is too large for one answer; ask for "
						   "fewer entries" };
	struct strbuf *out = &a->out;
	char text[600];

	if (st->too_large)
		err = &large;
	st->too_large = false;
	file_next_item(a);
	json_open(out, '{');
	json_put_key(out, "session_id");
	json_put_string(out, st->ids[st->at]);
	json_put_key(out, "tree");
	if (err) {
		unsigned status = describe(err, st, st->ids[st->at], text);

		json_put_null(out);
		json_put_key(out, "error");
		json_put_string(out, text);
		json_put_key(out, "status_code");
		json_put_int(out, (int64_t)status);
	} else {
		if (!st->item.len)
			open_tree(&st->item);
		close_tree(&st->item, end->truncated);
		strbuf_add(out, st->item.buf, st->item.len);
		json_put_key(out, "error");
		json_put_null(out);
		json_put_key(out, "status_code");
		json_put_null(out);
	}
	json_close(out, '}');
	strbuf_reset(&st->item);
}

/* One that isn't even looked for. */
static void put_refused(struct strbuf *out, const char *id, const char *text, int status)
{
	json_open(out, '{');
	json_put_key(out, "session_id");
	json_put_string(out, id);
	json_put_raw(out, "\"tree\":null");
	json_put_key(out, "error");
	json_put_string(out, text);
	json_put_key(out, "status_code");
	json_put_int(out, status);
	json_close(out, '}');
}

/* Those from `at` on that are of other tenants than the caller's; the first that isn't. */
static size_t put_foreign(const struct call *c, struct strbuf *out, const char *const *ids,
			  size_t at)
{
	const char *tenant = c->caller.tenant;
	char text[100];

	for (; *tenant && ids[at] && !service_owns(c->service, tenant, ids[at]); at++) {
		(void)snprintf(text, sizeof(text), "No workspace for session: %s", ids[at]);
		put_refused(out, ids[at], text, 404);
	}
	return at;
}

static bool trees_each(struct file_answer *a, const struct file_end *end,
		       const struct garret_error *err)
{
	struct archive_state *st = a->extra;

	put_tree(a, end, err);
	st->at = put_foreign(a->call, &a->out, st->ids, st->at + 1);
	if (st->ids[st->at]) {
		free(a->archive);
		a->archive = xstrdup(st->ids[st->at]);
		return file_next(a, &st->rq);
	}
	json_close(&a->out, ']');
	json_close(&a->out, '}');
	return false;
}

static void trees_end(struct file_answer *a, const struct file_end *end)
{
	(void)a, (void)end; /* trees_each() has done it */
}

/* A path that leads out is so for each of them. */
static bool refuse_trees(struct call *c, const struct archive_values *v)
{
	autobuf struct strbuf below = STRBUF_INIT, text = STRBUF_INIT;
	struct strbuf out = STRBUF_INIT;

	if (archive_path(c, path_or_root(v), &below))
		return false;
	strbuf_addf(&text, "Path '%s' is outside the workspace", path_or_root(v));
	strbuf_addstr(&out, "{\"results\":[");
	for (size_t i = 0; v->sessions[i]; i++)
		put_refused(&out, v->sessions[i], text.buf, 400);
	strbuf_addstr(&out, "]}");
	call_answer(c, 200, &out);
	return true;
}

void archive_trees(struct call *c)
{
	static const struct file_kind kind = {
		.entry = trees_entry, .end = trees_end, .each = trees_each, .release = state_release
	};
	const struct archive_values *v = c->values;
	struct strbuf out = STRBUF_INIT;
	struct archive_state *st;
	struct file_answer *a;
	size_t first;

	if (refuse_trees(c, v))
		return;
	strbuf_addstr(&out, "{\"results\":[");
	first = put_foreign(c, &out, v->sessions, 0);
	if (!v->sessions[first]) {
		strbuf_addstr(&out, "]}");
		call_answer(c, 200, &out);
		return;
	}
	a = begin(c, &kind, v->sessions[first], path_or_root(v), "directory", tree_request(v));
	if (!a) {
		strbuf_release(&out);
		return;
	}
	st = a->extra;
	st->ids = v->sessions;
	st->at = first;
	st->path = xstrdup(a->path);
	st->rq = tree_request(v);
	st->rq.flags |= FILE_RELATIVE | FILE_NOFOLLOW;
	st->rq.path = st->path;
	a->items = first;
	strbuf_add(&a->out, out.buf, out.len);
	strbuf_release(&out);
}

/* ---- read ---- */

/* Names of which the content is text, whatever its bytes are. */
static bool is_text_name(const char *path)
{
	static const char *const kinds[] = {
		"c",   "cpp", "cs",  "css",  "go",  "h",    "html", "java", "js",  "jsx",
		"php", "py",  "rb",  "rs",   "sh",  "sql",  "ts",   "tsx",  "csv", "json",
		"log", "md",  "txt", "toml", "xml", "yaml", "yml",  "rst",  "ini", "cfg",
	};
	const char *dot = strrchr(file_base_name(path), '.');

	for (size_t i = 0; dot && i < ARRAY_SIZE(kinds); i++)
		if (!strcasecmp(dot + 1, kinds[i]))
			return true;
	return false;
}

static void read_data(struct file_answer *a, const void *data, size_t n)
{
	struct archive_state *st = a->extra;

	json_text_add(&st->text, &a->out, data, n);
}

static void read_end(struct file_answer *a, const struct file_end *end)
{
	struct archive_state *st = a->extra;
	uint64_t next = st->offset + st->limit;

	json_text_end(&st->text, &a->out);
	if (st->offset >= end->count)
		strbuf_addstr(&a->out, "[End of file]");
	else if (st->limit < end->count - st->offset)
		strbuf_addf(&a->out, "\\n\\n[... %llu more lines. Use offset=%llu to read more.]",
			    (unsigned long long)(end->count - next), (unsigned long long)next);
	strbuf_addstr(&a->out, "\"}");
}

void archive_read(struct call *c)
{
	static const struct file_kind kind = {
		.data = read_data, .end = read_end, .fail = fail, .release = state_release
	};
	const struct archive_values *v = c->values;
	const uint64_t limit = v->limit ? (uint64_t)v->limit : 2000;
	struct archive_state *st;
	struct file_answer *a =
		begin(c, &kind, v->session_id, v->path, "file",
		      (struct file_request){
			      .op = FILE_TEXT,
			      .flags = is_text_name(v->path) ? FILE_LATIN : 0,
			      .offset = (uint64_t)v->offset,
			      .length = limit,
			      .max_bytes = (uint64_t)service_config(c->service)->max_read_bytes });

	if (!a)
		return;
	st = a->extra;
	st->offset = (uint64_t)v->offset;
	st->limit = limit;
	strbuf_addstr(&a->out, "{\"content\":\"");
}

static void bytes_data(struct file_answer *a, const void *data, size_t n)
{
	struct archive_state *st = a->extra;

	strbuf_reserve(&a->out, BASE64_ENCODE_LENGTH(n));
	a->out.len += base64_encode_update(&st->base64, a->out.buf + a->out.len, n, data);
}

static void bytes_end(struct file_answer *a, const struct file_end *end)
{
	struct archive_state *st = a->extra;
	char last[BASE64_ENCODE_FINAL_LENGTH];
	size_t n = base64_encode_final(&st->base64, last);

	(void)end;
	strbuf_add(&a->out, last, n);
	strbuf_addstr(&a->out, "\"}");
}

void archive_read_bytes(struct call *c)
{
	static const struct file_kind kind = {
		.data = bytes_data, .end = bytes_end, .fail = fail, .release = state_release
	};
	const struct archive_values *v = c->values;
	struct file_answer *a =
		begin(c, &kind, v->session_id, v->path, "file",
		      (struct file_request){
			      .op = FILE_READ,
			      .length = UINT64_MAX,
			      .max_bytes = (uint64_t)service_config(c->service)->max_read_bytes });

	if (!a)
		return;
	base64_encode_init(&((struct archive_state *)a->extra)->base64);
	strbuf_addstr(&a->out, "{\"content_b64\":\"");
}

/* ---- what is kept ---- */

struct kept_answer {
	struct call *call;
	struct strbuf out;
};

static void put_kept(void *ctx, const struct kept_info *k)
{
	struct kept_answer *a = ctx;
	struct strbuf *out = &a->out;
	const char *tenant = a->call->caller.tenant;

	if (*tenant && !service_owns(a->call->service, tenant, k->id))
		return;
	json_open(out, '{');
	json_put_key(out, "session_id");
	json_put_string(out, k->id);
	json_put_key(out, "open");
	json_put_bool(out, k->open);
	json_put_key(out, "bytes");
	json_put_int(out, (int64_t)k->bytes);
	json_put_key(out, "files");
	json_put_int(out, (int64_t)k->files);
	json_put_key(out, "partial");
	json_put_bool(out, k->partial);
	json_put_key(out, "used_at");
	json_put_double(out, k->used_at);
	json_close(out, '}');
}

static void kept_done(void *ctx, const struct refusal *no)
{
	struct kept_answer *a = ctx;

	json_close(&a->out, ']');
	json_close(&a->out, '}');
	if (no->status)
		call_refusal(a->call, no);
	else
		call_answer(a->call, 200, &a->out);
	strbuf_release(&a->out);
	call_unref(a->call);
	free(a);
}

void archive_list(struct call *c)
{
	struct kept_answer *a = xnew(struct kept_answer);

	a->call = call_ref(c);
	strbuf_init(&a->out);
	json_open(&a->out, '{');
	json_put_key(&a->out, "workspaces");
	json_open(&a->out, '[');
	service_kept(c->service, put_kept, kept_done, a);
}

void archive_delete(struct call *c)
{
	const struct archive_values *v = c->values;

	service_forget(c->service, v->session_id, call_done, call_ref(c));
}
