/*
 * A file as a resource: GET with ranges and conditions, PUT with conditions;
 * and trees as tar archives.  The body and the answer are streams, whatever
 * their length.
 */
#include <stdlib.h>
#include <string.h>

#include "api/files_v1.h"
#include "base/auto.h"
#include "base/mem.h"
#include "net/http_range.h"

#define BYTES "application/octet-stream"

/* ---- GET ---- */

struct get_state {
	struct http_range range;
	bool ranged;
};

/* HEAD: the library needs a length, and asks for no byte. */
static ssize_t no_bytes(void *ctx, char *buf, size_t cap)
{
	(void)ctx, (void)buf, (void)cap;
	return -1;
}

/* Answers without the bytes. */
static bool get_finish(struct file_answer *a)
{
	const struct http_source src = { .read = no_bytes };
	struct call *c = a->call;

	if (!a->discard)
		return false;
	if (a->status == 416)
		call_refuse(c, 416, "The range begins behind the end of the file");
	else if (a->status)
		http_answer_static(c->rq, a->status, NULL, "", 0);
	else
		http_answer_source(c->rq, 200, BYTES, (int64_t)a->info.tag.size, &src);
	return true;
}

static void add_content_range(struct file_answer *a, uint64_t from, uint64_t n, uint64_t size)
{
	char text[80];

	if (n)
		(void)snprintf(text, sizeof(text), "bytes %llu-%llu/%llu", (unsigned long long)from,
			       (unsigned long long)(from + n - 1), (unsigned long long)size);
	else
		(void)snprintf(text, sizeof(text), "bytes */%llu", (unsigned long long)size);
	http_add_header(a->call->rq, "content-range", text);
}

static void get_info(struct file_answer *a, const struct file_info *info)
{
	struct http_request *rq = a->call->rq;
	struct get_state *st = a->extra;
	const char *none_match = http_header(rq, "if-none-match");
	const char *if_range = http_header(rq, "if-range");
	const uint64_t size = info->tag.size;
	uint64_t from = 0, n = size;
	char etag[72], mode[8];

	if (st->ranged)
		n = http_range_resolve(&st->range, size, &from);
	file_put_etag(&info->tag, etag);
	/* The range is of another file than the client thinks: it gets this one whole. */
	if (st->ranged && if_range && strcmp(if_range, etag) != 0) {
		st->ranged = false;
		file_begin_again(a);
		return;
	}
	http_add_header(rq, "etag", etag);
	http_add_header(rq, "accept-ranges", "bytes");
	(void)snprintf(mode, sizeof(mode), "%04o", info->mode);
	http_add_header(rq, "x-garret-mode", mode);
	if (none_match && http_etag_weak_match(none_match, etag)) {
		a->status = 304;
		file_skip(a, n);
		return;
	}
	if (st->ranged) {
		add_content_range(a, from, n, size);
		a->status = n ? 206 : 416;
	}
	if (!strcmp(http_method(rq), "HEAD") || (st->ranged && !n))
		file_skip(a, n);
	else if (n > FILE_INLINE_MAX)
		file_stream_pipe(a, n);
}

void v1_file_get(struct call *c)
{
	static const struct file_kind kind = { .log = "read",
					       .info = get_info,
					       .finish = get_finish };
	const struct path_values *v = c->values;
	/* HEAD has no ranges (RFC 9110, 14.2). */
	const char *range =
		strcmp(http_method(c->rq), "GET") == 0 ? http_header(c->rq, "range") : NULL;
	struct file_request rq = { .op = FILE_READ,
				   .flags = FILE_BY_PIPE,
				   .path = v1_query_path(c, "path", v->path),
				   .length = UINT64_MAX };
	struct get_state st = { .ranged = range && http_range_parse(range, &st.range) };
	struct file_answer *a;

	if (st.ranged) {
		rq.offset = st.range.offset;
		rq.length = st.range.length;
		rq.flags |= st.range.from_end ? FILE_FROM_END : 0;
	}
	a = file_begin(c, &kind, &rq);
	if (!a)
		return;
	a->type = BYTES;
	a->extra = xmemdup(&st, sizeof(st));
}

/* ---- PUT ---- */

static void put_end(struct file_answer *a, const struct file_end *end)
{
	(void)end;
	file_put_details(&a->out, file_base_name(a->path), a->path, &a->info);
}

/* Conditions as flags of the request; false: answered. */
static bool conditions(struct call *c, struct file_request *rq)
{
	const char *match = http_header(c->rq, "if-match");
	const char *none = http_header(c->rq, "if-none-match");

	if (none && strcmp(none, "*") != 0) {
		call_refuse(c, 422, "If-None-Match: only * is understood here");
		return false;
	}
	rq->flags |= none ? FILE_EXCLUSIVE : 0;
	if (!match)
		return true;
	rq->flags |= FILE_IF_MATCH;
	if (!strcmp(match, "*") || file_get_etag(match, &rq->tag))
		return true; /* a tag of zeroes: any file that is there */
	call_refuse(c, 412, "If-Match: not what the file is now");
	return false;
}

void v1_file_put(struct call *c)
{
	static const struct file_kind kind = {
		.log = "write", .end = put_end, .body = true, .exists = 412
	};
	const struct put_values *v = c->values;
	struct file_request rq = { .op = FILE_WRITE,
				   .flags = (v->parents ? FILE_PARENTS : 0) |
					    (v->append ? FILE_APPEND : 0) |
					    (v->sync ? FILE_SYNC : 0),
				   .path = v1_query_path(c, "path", v->path) };

	if (v->append && (http_header(c->rq, "if-match") || http_header(c->rq, "if-none-match"))) {
		call_refuse(c, 422, "append: takes no conditions");
		return;
	}
	if (v1_mode(c, v->mode, &rq.mode) && conditions(c, &rq))
		(void)file_begin(c, &kind, &rq);
}

/* ---- tar ---- */

#define TAR_TIME_MS (24 * 3600 * 1000) /* the client's patience decides */

static void tar_data(struct file_answer *a, const void *data, size_t n)
{
	/* From the first byte on, so that a failure before it has a status. */
	if (!a->streaming)
		file_stream(a);
	strbuf_add(&a->out, data, n);
}

void v1_tar_get(struct call *c)
{
	static const struct file_kind kind = { .log = "tar", .data = tar_data };
	const struct path_values *v = c->values;
	struct file_request rq = { .op = FILE_TAR_OUT,
				   .path = v1_query_path(c, "path", v->path),
				   .timeout_ms = TAR_TIME_MS };
	struct file_answer *a = file_begin(c, &kind, &rq);

	if (a)
		a->type = "application/x-tar";
}

static void untar_end(struct file_answer *a, const struct file_end *end)
{
	json_open(&a->out, '{');
	json_put_key(&a->out, "entries");
	json_put_int(&a->out, (int64_t)end->count);
	json_put_key(&a->out, "skipped");
	json_put_int(&a->out, (int64_t)end->skipped);
	json_close(&a->out, '}');
}

void v1_tar_put(struct call *c)
{
	static const struct file_kind kind = { .log = "untar", .end = untar_end, .body = true };
	const struct put_values *v = c->values;
	struct file_request rq = { .op = FILE_TAR_IN,
				   .flags = v->parents ? FILE_PARENTS : 0,
				   .path = v1_query_path(c, "path", v->path),
				   .max_bytes = (uint64_t)v->max_bytes,
				   .timeout_ms = TAR_TIME_MS };

	(void)file_begin(c, &kind, &rq);
}
