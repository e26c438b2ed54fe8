/*
 * File operations beyond the published wire, as JSON: many at once, searching,
 * renaming, copying, editing.  Errors have the shape of the published ones, with
 * an errno; every status says what it means (403, 412, 507 ...).
 *
 * A path that isn't UTF-8 can be given percent-encoded in the query instead of
 * the body; answers have it as raw_path.
 */
#include "api/files_v1.h"

#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"

const char *v1_query_path(struct call *c, const char *name, const char *otherwise)
{
	size_t n;
	const char *v = http_query_bytes(c->rq, name, &n);

	if (!v)
		return otherwise;
	return strlen(v) == n ? v : json_path_nul;
}

/* "0644" in *ret; false when it was answered. */
bool v1_mode(struct call *c, const char *text, uint32_t *ret)
{
	char *end;
	unsigned long v;

	*ret = 0;
	if (!text)
		return true;
	v = strtoul(text, &end, 8);
	if (!*text || *end || *text == '-' || v > 0777) {
		call_refuse(c, 422, "mode: octal digits up to 0777, not '%s'", text);
		return false;
	}
	*ret = (uint32_t)v;
	return true;
}

static uint32_t flag(bool on, uint32_t bit)
{
	return on ? bit : 0;
}

/* The request of a body that has a path; NULL when the path is missing (answered). */
static bool fill_paths(struct call *c, struct file_request *rq, const char *path, const char *to,
		       bool needs_to)
{
	rq->path = v1_query_path(c, "path", path);
	rq->to = v1_query_path(c, "to", to);
	if (rq->path && (rq->to || !needs_to))
		return true;
	call_refuse(c, 422, "%s: in the body or the query", rq->path ? "to" : "path");
	return false;
}

/* ---- several at once ---- */

/*
 * A file is in memory whole before it is known whether it can be read to its end, and stays
 * there until the client has it.  So there is a bound for all answers together, of which one
 * session gets only a part.
 */
#define READ_MAX ((uint64_t)384 << 20)
#define READ_SESSION_MAX ((uint64_t)128 << 20)

static struct list batches = LIST_INIT(batches);

struct batch {
	struct list link; /* batches */
	const struct call *call;
	uint64_t held;      /* bytes of files in the answer, or on their way there */
	const char **paths; /* borrowed from the call's values */
	size_t at;
	struct file_request rq;
	uint64_t left;         /* READ: bytes that still may be answered */
	struct strbuf content; /* of the file under way */
	bool too_large, no_room;
};

static bool has_room(const struct batch *b, uint64_t n)
{
	uint64_t all = 0, own = 0;
	const struct batch *other;

	list_foreach (other, &batches, link) {
		all += other->held;
		own += strcmp(other->call->session_id, b->call->session_id) ? 0 : other->held;
	}
	return n <= READ_MAX - MIN(all, READ_MAX) &&
	       n <= READ_SESSION_MAX - MIN(own, READ_SESSION_MAX);
}

static void put_error(struct strbuf *out, const struct garret_error *err)
{
	json_open(out, '{');
	json_put_key(out, "error");
	json_put_string(out, file_any_error_name(err));
	json_put_key(out, "errno");
	if (err->sys)
		json_put_int(out, err->sys);
	else
		json_put_null(out);
	json_put_key(out, "message");
	json_put_string(out, err->msg);
	json_close(out, '}');
}

static void put_base64(struct strbuf *out, const struct strbuf *content)
{
	size_t n = BASE64_ENCODE_RAW_LENGTH(content->len);

	json_put_key(out, "content_b64");
	strbuf_addch(out, '"');
	strbuf_reserve(out, n);
	base64_encode_raw(out->buf + out->len, content->len, (const uint8_t *)content->buf);
	out->len += n;
	strbuf_addch(out, '"');
}

static void put_result(struct file_answer *a, struct batch *b, const struct garret_error *err)
{
	const char *path = b->paths[b->at];
	struct strbuf *out = &a->out;

	file_next_item(a);
	json_open(out, '{');
	json_put_key(out, "path");
	json_put_string(out, path);
	json_put_key(out, "entry");
	if (err)
		json_put_null(out);
	else
		file_put_details(out, file_base_name(path), path, &a->info);
	json_put_key(out, "error");
	if (err)
		put_error(out, err);
	else
		json_put_null(out);
	if (b->rq.op == FILE_READ && !err)
		put_base64(out, &b->content);
	json_close(out, '}');
}

static bool batch_next(struct file_answer *a, struct batch *b)
{
	struct garret_error nul = { .code = GARRET_INVALID, .msg = "embedded null byte" };

	for (; b->paths[b->at]; b->at++) {
		b->rq.path = b->paths[b->at];
		b->too_large = b->no_room = a->discard = false;
		/* Else a file of any size would come, to be thrown away. */
		if (b->rq.op == FILE_READ)
			b->rq.max_bytes = MAX(b->left, (uint64_t)1);
		if (b->rq.path != json_path_nul)
			return file_next(a, &b->rq);
		b->paths[b->at] = "";
		put_result(a, b, &nul);
	}
	return false;
}

static bool batch_each(struct file_answer *a, const struct file_end *end,
		       const struct garret_error *err)
{
	struct garret_error large = { .code = GARRET_TOO_LARGE,
				      .msg = "more than max_bytes in all" };
	struct garret_error full = {
		.code = GARRET_EXHAUSTED,
		.msg = "more is being read at the same time than there is memory for"
	};
	struct batch *b = a->extra;

	(void)end;
	put_result(a, b, err ? err : b->too_large ? &large : b->no_room ? &full : NULL);
	b->left -= MIN(b->left, (uint64_t)b->content.len);
	strbuf_release(&b->content);
	b->at++;
	if (batch_next(a, b))
		return true;
	/* The session ended: what is left can't be answered. */
	if (b->paths[b->at]) {
		a->failed = true;
		(void)garret_fail(&a->error, GARRET_GONE, "the session has ended");
		return false;
	}
	json_close(&a->out, ']');
	json_close(&a->out, '}');
	return false;
}

static void batch_info(struct file_answer *a, const struct file_info *info)
{
	struct batch *b = a->extra;

	if (b->rq.op != FILE_READ)
		return;
	b->too_large = info->tag.size > b->left;
	b->no_room = !b->too_large && !has_room(b, info->tag.size);
	if (b->too_large || b->no_room)
		file_skip(a, 0);
	else
		b->held += info->tag.size;
}

static void batch_data(struct file_answer *a, const void *data, size_t n)
{
	struct batch *b = a->extra;

	strbuf_add(&b->content, data, n);
}

static void batch_release(struct file_answer *a)
{
	struct batch *b = a->extra;

	list_remove(&b->link);
	strbuf_release(&b->content);
}

/* What end() would do is done in each(). */
static void batch_end(struct file_answer *a, const struct file_end *end)
{
	(void)a, (void)end;
}

static void begin_batch(struct call *c, uint8_t op, const char **paths, uint32_t flags,
			uint64_t max_bytes)
{
	/* The log shows the first of the paths. */
	static const struct file_kind stat = {
		.log = "stat", .end = batch_end, .each = batch_each, .release = batch_release
	};
	static const struct file_kind read = { .log = "read",
					       .info = batch_info,
					       .data = batch_data,
					       .end = batch_end,
					       .each = batch_each,
					       .release = batch_release };
	struct file_request rq = {
		.op = op, .flags = flags, .length = UINT64_MAX, .max_bytes = max_bytes
	};
	struct file_answer *a;
	struct batch *b;

	rq.path = paths[0] == json_path_nul ? "/" : paths[0];
	a = file_begin(c, op == FILE_READ ? &read : &stat, &rq);
	if (!a)
		return;
	b = xnew(struct batch);
	b->paths = paths;
	b->rq = rq;
	b->left = rq.max_bytes;
	strbuf_init(&b->content);
	b->call = c;
	list_append(&batches, &b->link);
	a->extra = b;
	json_open(&a->out, '{');
	json_put_key(&a->out, "results");
	json_open(&a->out, '[');
}

void v1_stat(struct call *c)
{
	const struct batch_values *v = c->values;

	begin_batch(c, FILE_STAT, v->paths, flag(v->nofollow, FILE_NOFOLLOW), 0);
}

void v1_read(struct call *c)
{
	const struct batch_values *v = c->values;
	const int64_t most = 64 << 20;

	begin_batch(c, FILE_READ, v->paths, 0, (uint64_t)(v->max_bytes ? v->max_bytes : most));
}

/* ---- lists ---- */

static void put_list_item(struct file_answer *a, const struct file_info *info)
{
	autobuf struct strbuf path = STRBUF_INIT;

	file_next_item(a);
	file_join(&path, a->path, info->name);
	file_put_details(&a->out, file_base_name(info->name), path.buf, info);
}

static void put_match(struct file_answer *a, const struct file_match *m)
{
	autobuf struct strbuf path = STRBUF_INIT;
	struct strbuf *out = &a->out;

	file_next_item(a);
	strbuf_addstr(&path, a->path);
	if (*m->name) {
		strbuf_reset(&path);
		file_join(&path, a->path, m->name);
	}
	json_open(out, '{');
	json_put_key(out, "path");
	json_put_string(out, path.buf);
	file_put_raw_path(out, path.buf);
	json_put_key(out, "line");
	json_put_int(out, (int64_t)m->line);
	json_put_key(out, "column");
	json_put_int(out, m->column);
	json_put_key(out, "length");
	json_put_int(out, m->length);
	json_put_key(out, "text");
	json_put_string_n(out, m->text, m->text_bytes);
	json_put_key(out, "cut");
	json_put_bool(out, m->cut);
	json_close(out, '}');
}

static void lists_end(struct file_answer *a, const struct file_end *end)
{
	json_close(&a->out, ']');
	json_put_key(&a->out, "truncated");
	json_put_bool(&a->out, end->truncated);
	json_put_key(&a->out, "skipped");
	json_put_int(&a->out, (int64_t)end->skipped);
	json_close(&a->out, '}');
}

static void begin_lists(struct call *c, const struct file_kind *kind, const char *key,
			const struct file_request *rq)
{
	struct file_answer *a = file_begin(c, kind, rq);

	if (!a)
		return;
	json_open(&a->out, '{');
	json_put_key(&a->out, key);
	json_open(&a->out, '[');
}

void v1_list(struct call *c)
{
	static const struct file_kind list = { .log = "ls",
					       .entry = put_list_item,
					       .end = lists_end };
	static const struct file_kind walk = { .log = "walk",
					       .entry = put_list_item,
					       .end = lists_end };
	const struct list_values *v = c->values;
	const bool deep = v->max_depth > 1;
	struct file_request rq = { .op = deep ? FILE_WALK : FILE_LIST,
				   .max_depth = deep ? (uint32_t)v->max_depth : 0,
				   .max_entries = (uint32_t)v->max_entries };

	if (fill_paths(c, &rq, v->path, NULL, false))
		begin_lists(c, deep ? &walk : &list, "entries", &rq);
}

static uint32_t search_flags(const struct search_values *v)
{
	return flag(v->hidden, FILE_HIDDEN) | flag(v->no_ignore, FILE_NO_IGNORE) |
	       flag(v->ignore_case, FILE_NO_CASE) | flag(v->fixed, FILE_FIXED) |
	       flag(v->directories, FILE_DIRS_TOO);
}

static void begin_search(struct call *c, const struct file_kind *kind, const char *key,
			 enum file_op op)
{
	const struct search_values *v = c->values;
	struct file_request rq = { .op = (uint8_t)op,
				   .flags = search_flags(v),
				   .pattern = v->pattern,
				   .include = v->include,
				   .max_entries = (uint32_t)v->max_results };

	if (strlen(v->pattern) > FILE_PATTERN_MAX ||
	    (v->include && strlen(v->include) > FILE_PATTERN_MAX)) {
		call_refuse(c, 413, "a pattern has at most %d bytes", FILE_PATTERN_MAX);
		return;
	}
	if (fill_paths(c, &rq, v->path ? v->path : service_config(c->service)->work_dir, NULL,
		       false))
		begin_lists(c, kind, key, &rq);
}

void v1_glob(struct call *c)
{
	static const struct file_kind kind = { .log = "glob",
					       .entry = put_list_item,
					       .end = lists_end };

	begin_search(c, &kind, "entries", FILE_GLOB);
}

void v1_grep(struct call *c)
{
	static const struct file_kind kind = { .log = "grep",
					       .match = put_match,
					       .end = lists_end };

	begin_search(c, &kind, "matches", FILE_GREP);
}

/* ---- changes ---- */

static void begin_change(struct call *c, const struct file_kind *kind, enum file_op op,
			 bool needs_to)
{
	const struct change_values *v = c->values;
	struct file_request rq = { .op = (uint8_t)op,
				   .flags = flag(v->parents, FILE_PARENTS) |
					    flag(v->recursive, FILE_TREE) |
					    flag(v->exclusive, FILE_EXCLUSIVE) };

	if (op == FILE_CHMOD && !v->mode) {
		call_refuse(c, 422, "mode: Field required");
		return;
	}
	if (v1_mode(c, v->mode, &rq.mode) && fill_paths(c, &rq, v->path, v->to, needs_to))
		(void)file_begin(c, kind, &rq);
}

void v1_mkdir(struct call *c)
{
	static const struct file_kind kind = { .log = "mkdir" };

	begin_change(c, &kind, FILE_MKDIR, false);
}

void v1_remove(struct call *c)
{
	static const struct file_kind kind = { .log = "remove" };

	begin_change(c, &kind, FILE_REMOVE, false);
}

void v1_rename(struct call *c)
{
	static const struct file_kind kind = { .log = "rename" };

	begin_change(c, &kind, FILE_RENAME, true);
}

void v1_copy(struct call *c)
{
	static const struct file_kind kind = { .log = "copy" };

	begin_change(c, &kind, FILE_COPY, true);
}

void v1_chmod(struct call *c)
{
	static const struct file_kind kind = { .log = "chmod" };

	begin_change(c, &kind, FILE_CHMOD, false);
}

static void put_hex(struct strbuf *out, const char *key, const uint8_t digest[32])
{
	char hex[65];

	hex_encode(digest, 32, hex);
	json_put_key(out, key);
	json_put_string(out, hex);
}

static void put_file(struct file_answer *a, const struct file_end *end, const char *count)
{
	char etag[72];

	json_open(&a->out, '{');
	put_hex(&a->out, "sha256", end->digest);
	json_put_key(&a->out, "size");
	json_put_int(&a->out, (int64_t)a->info.tag.size);
	file_put_etag(&a->info.tag, etag);
	json_put_key(&a->out, "etag");
	json_put_string(&a->out, etag);
	if (count) {
		json_put_key(&a->out, count);
		json_put_int(&a->out, (int64_t)end->count);
	}
	json_close(&a->out, '}');
}

static void digest_end(struct file_answer *a, const struct file_end *end)
{
	put_file(a, end, NULL);
}

void v1_digest(struct call *c)
{
	static const struct file_kind kind = { .log = "digest", .end = digest_end };

	begin_change(c, &kind, FILE_DIGEST, false);
}

static void realpath_end(struct file_answer *a, const struct file_end *end)
{
	json_open(&a->out, '{');
	json_put_key(&a->out, "path");
	json_put_string(&a->out, end->path);
	file_put_raw_path(&a->out, end->path);
	json_close(&a->out, '}');
}

void v1_realpath(struct call *c)
{
	static const struct file_kind kind = { .log = "realpath", .end = realpath_end };

	begin_change(c, &kind, FILE_REALPATH, false);
}

/* ---- edit ---- */

static void edit_end(struct file_answer *a, const struct file_end *end)
{
	put_file(a, end, "replacements");
}

/* u8 flags, u32 length, old, u32 length, new: proto/edit.h */
static void put_edit(struct strbuf *out, const struct edit_values *v)
{
	const char *const texts[] = { v->old, v->new };

	strbuf_addch(out, v->all ? 1 : 0);
	for (int i = 0; i < 2; i++) {
		uint8_t length[4];
		struct put p;

		put_init(&p, length, sizeof(length));
		put_u32(&p, (uint32_t)strlen(texts[i]));
		strbuf_add(out, length, sizeof(length));
		strbuf_addstr(out, texts[i]);
	}
}

void v1_edit(struct call *c)
{
	static const struct file_kind kind = { .log = "edit", .end = edit_end };
	const struct edit_values *v = c->values;
	autobuf struct strbuf body = STRBUF_INIT;
	struct file_request rq = { .op = FILE_EDIT,
				   .offset = (uint64_t)v->count,
				   .include = v->sha256 };
	struct file_answer *a;

	if (!*v->old) {
		call_refuse(c, 422, "old: must not be empty");
		return;
	}
	if (v->sha256 && !hex_decode(v->sha256, (uint8_t[32]){ 0 }, 32)) {
		call_refuse(c, 422, "sha256: 64 lower-case hex digits");
		return;
	}
	if (v->etag && !file_get_etag(v->etag, &rq.tag)) {
		call_refuse(c, 412, "etag: none of this service's");
		return;
	}
	rq.flags = flag(v->etag, FILE_IF_MATCH);
	if (!fill_paths(c, &rq, v->path, NULL, false))
		return;
	a = file_begin(c, &kind, &rq);
	if (!a)
		return;
	put_edit(&body, v);
	file_send_body(a, &body);
}
