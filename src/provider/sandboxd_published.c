/* The published file routes: /sessions/ID/files/... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/json.h"
#include "provider/sandboxd_file.h"

static void answered(void *ctx, int status, struct strbuf *body, const struct garret_error *err);

static void ask(struct box_file *f, const char *tail, struct strbuf *json, bool raw)
{
	autofree char *path = sandboxd_path(f->box, false, tail);
	const struct ask_spec spec = { .method = "POST",
				       .path = path,
				       .session = true,
				       .json = json,
				       .raw = raw ? f->body.buf : NULL,
				       .raw_bytes = raw ? f->body.len : 0,
				       .total_ms = MAX(sandboxd_file_ms(f), f->box->p->request_ms),
				       .max_bytes = SANDBOXD_LIST_BODY };

	f->ask = sandboxd_ask(f->box->p, f->box, &spec, answered, f);
}

static void ask_path(struct box_file *f, const char *route)
{
	autofree char *tail = xasprintf("/files/%s", route);
	autobuf struct strbuf body = STRBUF_INIT;

	json_open(&body, '{');
	json_put_key(&body, "path");
	json_put_string(&body, f->rq.path);
	json_close(&body, '}');
	ask(f, tail, &body, false);
}

/* By which route?  NULL: none says exactly this. */
static const char *route_of(const struct box_file *f)
{
	const struct box *b = f->box;
	const uint32_t flags = f->rq.flags & ~(uint32_t)FILE_BY_PIPE;

	switch (f->rq.op) {
	case FILE_STAT:
		/* Whether it can be read is the service's own right here, not the user's. */
		return b->native_files && !flags ? "stat" : NULL;
	case FILE_LIST:
		return b->native_files && !flags ? "list" : NULL;
	case FILE_READ:
		return b->native_files && !(flags & ~(uint32_t)FILE_FROM_END) ? "read" : NULL;
	case FILE_REALPATH:
		return b->native_realpath ? "realpath" : NULL;
	case FILE_WRITE:
		return b->native_writes && flags == FILE_PARENTS && !f->rq.mode ? "write" : NULL;
	case FILE_MKDIR:
		return b->native_writes && flags == FILE_PARENTS && !f->rq.mode ? "mkdir" : NULL;
	case FILE_REMOVE:
		return b->native_writes && flags == FILE_TREE ? "remove" : NULL;
	default:
		return NULL;
	}
}

bool sandboxd_published_begin(struct box_file *f)
{
	const char *route = route_of(f);

	if (!route || !utf8_valid(f->rq.path, strlen(f->rq.path)))
		return false;
	if (f->rq.op != FILE_WRITE) {
		ask_path(f, route);
		return true;
	}
	f->collects = true;
	if (f->body_ended)
		sandboxd_published_write(f);
	else if (f->body.len >= FILE_BUFFER && f->events->room)
		f->events->room(f->ctx);
	return true;
}

void sandboxd_published_write(struct box_file *f)
{
	autobuf struct strbuf tail = STRBUF_INIT;

	strbuf_addstr(&tail, "/files/write?path=");
	sandboxd_escape(&tail, f->rq.path);
	ask(f, tail.buf, NULL, true);
}

/* ---- answers ---- */

static void malformed(struct box_file *f)
{
	sandboxd_file_failf(f, GARRET_PROTOCOL,
			    "the service answered a file operation with "
			    "something else");
}

static bool take_entry(const json_t *v, struct file_info *ret)
{
	const json_t *is_dir = json_object_get(v, "is_dir"), *size = json_object_get(v, "size");

	*ret = (struct file_info){ .unknown = FILE_NO_MODE | FILE_NO_TIMES | FILE_NO_SIZE };
	ret->name = json_string_value(json_object_get(v, "name"));
	ret->target = "";
	if (!ret->name || strlen(ret->name) > FILE_NAME_MAX || !json_is_boolean(is_dir) ||
	    (size && !json_is_null(size) && !json_is_integer(size)))
		return false;
	ret->type = json_is_true(is_dir) ? FILE_DIRECTORY : FILE_REGULAR;
	if (json_is_integer(size) && json_integer_value(size) >= 0) {
		ret->tag.size = (uint64_t)json_integer_value(size);
		ret->unknown &= (uint8_t)~FILE_NO_SIZE;
	}
	return true;
}

static void tell_stat(struct box_file *f, const json_t *v)
{
	struct file_info info;

	if (!take_entry(v, &info)) {
		malformed(f);
		return;
	}
	info.name = "";
	if (!sandboxd_tell_info(f, &info))
		sandboxd_file_end(f);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct file_info *)a)->name, ((const struct file_info *)b)->name);
}

static void tell_list(struct box_file *f, const json_t *v)
{
	const size_t n = json_array_size(v);
	const size_t most = f->rq.max_entries ? f->rq.max_entries : SIZE_MAX;
	autofree struct file_info *list = xcalloc(n + 1, sizeof(*list));

	for (size_t i = 0; i < n; i++) {
		if (take_entry(json_array_get(v, i), &list[i]) && *list[i].name &&
		    !strchr(list[i].name, '/'))
			continue;
		malformed(f);
		return;
	}
	if (!json_is_array(v)) {
		malformed(f);
		return;
	}
	qsort(list, n, sizeof(*list), by_name);
	f->end.truncated = n > most;
	for (size_t i = 0; i < MIN(n, most); i++) {
		f->end.count++;
		if (sandboxd_tell_entry(f, &list[i]))
			return;
	}
	sandboxd_file_end(f);
}

static void tell_realpath(struct box_file *f, const json_t *v)
{
	const char *path = json_string_value(json_object_get(v, "path"));

	if (!path || *path != '/') {
		malformed(f);
		return;
	}
	strbuf_addstr(&f->end_path, path);
	sandboxd_file_end(f);
}

/* The whole file; a part of it is cut out here. */
static void tell_content(struct box_file *f, const struct strbuf *body)
{
	const struct file_request *rq = &f->rq;
	const uint64_t n = body->len;
	const struct file_info info = { .type = FILE_REGULAR,
					.unknown = FILE_NO_MODE | FILE_NO_TIMES,
					.tag = { .size = n },
					.name = "",
					.target = "" };
	uint64_t from = rq->flags & FILE_FROM_END ? n - MIN(rq->length, n) : MIN(rq->offset, n);
	const uint64_t part = MIN(rq->length, n - from);

	if (rq->max_bytes && n > rq->max_bytes) {
		sandboxd_file_failf(f, GARRET_TOO_LARGE,
				    "File is %llu bytes, over the %llu-byte read limit",
				    (unsigned long long)n, (unsigned long long)rq->max_bytes);
		return;
	}
	if (!sandboxd_tell_info(f, &info) && !sandboxd_tell_data(f, body->buf + from, (size_t)part))
		sandboxd_file_end(f);
}

static void tell_written(struct box_file *f)
{
	const struct file_info info = { .type = FILE_REGULAR,
					.unknown = FILE_NO_MODE | FILE_NO_TIMES,
					.tag = { .size = f->body.len },
					.name = "",
					.target = "" };

	if (f->rq.op != FILE_WRITE || !sandboxd_tell_info(f, &info))
		sandboxd_file_end(f);
}

static void tell(struct box_file *f, const struct strbuf *body)
{
	struct garret_error err = { 0 };
	json_t *v = sandboxd_parse(body, "a file operation", &err);

	if (!v)
		sandboxd_file_fail(f, &err);
	else if (f->rq.op == FILE_STAT)
		tell_stat(f, v);
	else if (f->rq.op == FILE_LIST)
		tell_list(f, v);
	else
		tell_realpath(f, v);
	json_decref(v);
}

static void answered(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct box_file *f = ctx;
	struct garret_error own = { 0 };

	f->ask = NULL;
	if (err) {
		sandboxd_file_fail(f, err);
	} else if (status == 409) {
		sandboxd_file_by_shell(f);
	} else if (status == 204 && f->rq.op != FILE_READ) {
		tell_written(f);
	} else if (status != 200) {
		sandboxd_file_refused(f, status, body, &own);
		sandboxd_file_fail(f, &own);
	} else if (f->rq.op == FILE_READ) {
		tell_content(f, body);
	} else if (f->rq.op == FILE_WRITE || f->rq.op == FILE_MKDIR || f->rq.op == FILE_REMOVE) {
		tell_written(f);
	} else {
		tell(f, body);
	}
}
