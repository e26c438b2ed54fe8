/* Our own file routes that answer with JSON: /v1/sessions/ID/files/... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/json.h"
#include "proto/edit.h"
#include "provider/sandboxd_file.h"

/* ---- what is answered ---- */

static void malformed(struct box_file *f)
{
	sandboxd_file_failf(f, GARRET_PROTOCOL,
			    "the service answered a file operation with "
			    "something else");
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A path: percent-encoded where it isn't UTF-8. NULL when there is none; free(). */
static char *take_path(const json_t *v)
{
	const char *raw = json_string_value(json_object_get(v, "raw_path"));
	const char *path = json_string_value(json_object_get(v, "path"));
	struct strbuf out = STRBUF_INIT;

	if (!raw)
		return path ? xstrdup(path) : NULL;
	for (; *raw; raw++) {
		const int high = *raw == '%' ? hex(raw[1]) : -1;
		const int low = high >= 0 ? hex(raw[2]) : -1;

		strbuf_addch(&out, low >= 0 ? high << 4 | low : *raw);
		raw += low >= 0 ? 2 : 0;
	}
	return strbuf_detach(&out, NULL);
}

/* The part below the request's path: "" for the path itself; NULL when it is elsewhere. */
static const char *below(const struct box_file *f, const char *path)
{
	size_t n = strlen(f->rq.path);

	while (n && f->rq.path[n - 1] == '/')
		n--;
	if (strncmp(path, f->rq.path, n) != 0 || (path[n] && path[n] != '/'))
		return NULL;
	return path[n] ? path + n + 1 : "";
}

static bool take_details(const json_t *v, struct file_info *ret)
{
	static const char *const types[] = { "file", "directory", "other", "dangling" };
	const char *type = json_string_value(json_object_get(v, "type"));
	const char *mode = json_string_value(json_object_get(v, "mode"));
	const char *target = json_string_value(json_object_get(v, "link_target"));

	*ret = (struct file_info){ .type = FILE_TYPES, .name = "", .target = target ? target : "" };
	for (uint8_t i = 0; type && i < FILE_TYPES; i++)
		if (!strcmp(type, types[i]))
			ret->type = i;
	ret->link = target != NULL;
	ret->mode = mode ? (uint32_t)strtoul(mode, NULL, 8) & 0777 : 0;
	return ret->type < FILE_TYPES && mode &&
	       sandboxd_etag(json_string_value(json_object_get(v, "etag")), &ret->tag);
}

static void tell_stat(struct box_file *f, const json_t *v)
{
	const json_t *item = json_array_get(json_object_get(v, "results"), 0);
	const json_t *error = json_object_get(item, "error");
	struct file_info info;

	if (json_is_object(error)) {
		/* As if it had been refused alone. */
		autobuf struct strbuf body = STRBUF_INIT;
		char *text = json_dumps(error, JSON_COMPACT);
		struct garret_error err = { 0 };
		const char *name = json_string_value(json_object_get(error, "error"));

		strbuf_addf(&body, "{\"detail\":%s}", text);
		free(text);
		sandboxd_file_refused(f, name && !strcmp(name, "FileNotFoundError") ? 404 : 500,
				      &body, &err);
		sandboxd_file_fail(f, &err);
		return;
	}
	if (!take_details(json_object_get(item, "entry"), &info)) {
		malformed(f);
		return;
	}
	if (!sandboxd_tell_info(f, &info))
		sandboxd_file_end(f);
}

struct entry {
	char *path;
	struct file_info info;
};

static int dirs_first(const void *a, const void *b)
{
	const struct file_info *x = &((const struct entry *)a)->info;
	const struct file_info *y = &((const struct entry *)b)->info;
	const int dx = x->type == FILE_DIRECTORY && !x->link;
	const int dy = y->type == FILE_DIRECTORY && !y->link;

	return dx == dy ? strcmp(x->name, y->name) : dy - dx;
}

/* Links that aren't wanted are counted by the service's own bound: so there is none then. */
static bool wants(const struct box_file *f, const struct file_info *info)
{
	return !(f->rq.flags & FILE_NOFOLLOW && info->link && f->rq.op != FILE_GLOB);
}

static void tell_each(struct box_file *f, const struct entry *list, size_t n)
{
	const size_t most = f->rq.max_entries ? f->rq.max_entries : SIZE_MAX;

	for (size_t i = 0; i < n; i++) {
		if (!wants(f, &list[i].info))
			continue;
		if (f->end.count == most) {
			f->end.truncated = true;
			break;
		}
		f->end.count++;
		if (sandboxd_tell_entry(f, &list[i].info))
			return;
	}
	sandboxd_file_end(f);
}

static void tell_entries(struct box_file *f, const json_t *v)
{
	const json_t *array = json_object_get(v, "entries");
	const size_t n = json_array_size(array);
	autofree struct entry *list = xcalloc(n + 1, sizeof(*list));
	bool fine = json_is_array(array);
	size_t i;

	for (i = 0; fine && i < n; i++) {
		const json_t *item = json_array_get(array, i);

		list[i].path = take_path(item);
		fine = list[i].path && take_details(item, &list[i].info);
		if (fine)
			list[i].info.name = below(f, list[i].path);
		fine = fine && list[i].info.name;
	}
	if (fine && f->rq.op == FILE_LIST && f->rq.flags & FILE_DIRS_FIRST)
		qsort(list, n, sizeof(*list), dirs_first);
	f->end.truncated = json_is_true(json_object_get(v, "truncated"));
	f->end.skipped = (uint64_t)json_integer_value(json_object_get(v, "skipped"));
	if (fine)
		tell_each(f, list, n);
	else
		malformed(f);
	while (i)
		free(list[--i].path);
}

static uint64_t number(const json_t *v, const char *key)
{
	const json_int_t n = json_integer_value(json_object_get(v, key));

	return n > 0 ? (uint64_t)n : 0;
}

/* false: it is none, or f is gone. */
static bool tell_one_match(struct box_file *f, const json_t *v, bool *ret_gone)
{
	autofree char *path = take_path(v);
	const json_t *text = json_object_get(v, "text");
	struct file_match m = { .line = number(v, "line"),
				.column = (uint32_t)number(v, "column"),
				.length = (uint32_t)number(v, "length"),
				.text = json_string_value(text),
				.text_bytes = (uint32_t)json_string_length(text),
				.cut = json_is_true(json_object_get(v, "cut")) };

	m.name = path ? below(f, path) : NULL;
	if (!m.name || !m.text || !m.line)
		return false;
	*ret_gone = sandboxd_tell_match(f, &m);
	return !*ret_gone;
}

static void tell_matches(struct box_file *f, const json_t *v)
{
	const json_t *array = json_object_get(v, "matches");
	bool fine = json_is_array(array), gone = false;

	f->end.truncated = json_is_true(json_object_get(v, "truncated"));
	f->end.skipped = number(v, "skipped");
	for (size_t i = 0; fine && i < json_array_size(array); i++) {
		f->end.count++;
		fine = tell_one_match(f, json_array_get(array, i), &gone);
	}
	if (gone)
		return;
	if (fine)
		sandboxd_file_end(f);
	else
		malformed(f);
}

static void tell_realpath(struct box_file *f, const json_t *v)
{
	autofree char *path = take_path(v);

	if (!path || *path != '/') {
		malformed(f);
		return;
	}
	strbuf_addstr(&f->end_path, path);
	sandboxd_file_end(f);
}

static void tell_digest(struct box_file *f, const json_t *v)
{
	const char *sha = json_string_value(json_object_get(v, "sha256"));
	struct file_info info = {
		.type = FILE_REGULAR, .unknown = FILE_NO_MODE, .name = "", .target = ""
	};

	if (!sha || !hex_decode(sha, f->end.digest, sizeof(f->end.digest)) ||
	    !sandboxd_etag(json_string_value(json_object_get(v, "etag")), &info.tag)) {
		malformed(f);
		return;
	}
	f->end.count = f->rq.op == FILE_EDIT ? number(v, "replacements") : number(v, "size");
	if (!sandboxd_tell_info(f, &info))
		sandboxd_file_end(f);
}

static void tell(struct box_file *f, const json_t *v)
{
	switch (f->rq.op) {
	case FILE_STAT:
		tell_stat(f, v);
		break;
	case FILE_LIST:
	case FILE_WALK:
	case FILE_GLOB:
		tell_entries(f, v);
		break;
	case FILE_GREP:
		tell_matches(f, v);
		break;
	case FILE_REALPATH:
		tell_realpath(f, v);
		break;
	default:
		tell_digest(f, v);
	}
}

static void answered(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct box_file *f = ctx;
	struct garret_error own = { 0 };
	json_t *v = NULL;

	f->ask = NULL;
	if (err)
		own = *err;
	else if (status != 200 && status != 204)
		sandboxd_file_refused(f, status, body, &own);
	else if (status == 200)
		v = sandboxd_parse(body, "a file operation", &own);
	if (own.code)
		sandboxd_file_fail(f, &own);
	else if (v)
		tell(f, v);
	else
		sandboxd_file_end(f);
	json_decref(v);
}

/* ---- what is asked ---- */

static void put_flag(struct strbuf *out, const struct box_file *f, uint32_t bit, const char *name)
{
	if (!(f->rq.flags & bit))
		return;
	json_put_key(out, name);
	json_put_bool(out, true);
}

static void put_number(struct strbuf *out, const char *name, uint64_t v)
{
	if (!v)
		return;
	json_put_key(out, name);
	json_put_int(out, (int64_t)v);
}

static void put_text(struct strbuf *out, const char *name, const char *v)
{
	json_put_key(out, name);
	json_put_string(out, v);
}

static void put_mode(struct strbuf *out, const struct box_file *f)
{
	char mode[8];

	if (!f->rq.mode && f->rq.op != FILE_CHMOD)
		return;
	(void)snprintf(mode, sizeof(mode), "%04o", f->rq.mode);
	put_text(out, "mode", mode);
}

static void put_search(struct strbuf *out, const struct box_file *f)
{
	put_text(out, "pattern", f->rq.pattern);
	if (f->rq.op == FILE_GREP && *f->rq.include)
		put_text(out, "include", f->rq.include);
	put_flag(out, f, FILE_HIDDEN, "hidden");
	put_flag(out, f, FILE_NO_IGNORE, "no_ignore");
	put_flag(out, f, FILE_NO_CASE, "ignore_case");
	if (f->rq.op == FILE_GREP)
		put_flag(out, f, FILE_FIXED, "fixed");
	else
		put_flag(out, f, FILE_DIRS_TOO, "directories");
	put_number(out, "max_results", f->rq.max_entries);
}

/* One edit of text; others aren't this route's. */
static bool put_edit(struct strbuf *out, const struct box_file *f)
{
	struct edit e, other;
	struct get g;
	char etag[80];

	get_init(&g, f->body.buf, f->body.len);
	if (!edit_next(&g, &e) || edit_next(&g, &other) || g.bad ||
	    !utf8_valid(e.old, e.old_bytes) || !utf8_valid(e.new, e.new_bytes) ||
	    memchr(e.old, '\0', e.old_bytes) || memchr(e.new, '\0', e.new_bytes))
		return false;
	json_put_key(out, "old");
	json_put_string_n(out, e.old, e.old_bytes);
	json_put_key(out, "new");
	json_put_string_n(out, e.new, e.new_bytes);
	json_put_key(out, "all");
	json_put_bool(out, e.all);
	put_number(out, "count", f->rq.offset);
	if (*f->rq.include)
		put_text(out, "sha256", f->rq.include);
	if (f->rq.flags & FILE_IF_MATCH && f->rq.tag.inode) {
		sandboxd_put_etag(&f->rq.tag, etag);
		put_text(out, "etag", etag);
	}
	return true;
}

/* The body's members; NULL: no route says exactly this. */
static const char *put_request(struct strbuf *out, const struct box_file *f)
{
	const uint32_t flags = f->rq.flags;

	switch (f->rq.op) {
	case FILE_STAT:
		if (flags & ~(uint32_t)FILE_NOFOLLOW || !utf8_valid(f->rq.path, strlen(f->rq.path)))
			return NULL;
		json_put_key(out, "paths");
		json_open(out, '[');
		json_put_string(out, f->rq.path);
		json_close(out, ']');
		put_flag(out, f, FILE_NOFOLLOW, "nofollow");
		return "stat";
	case FILE_LIST:
	case FILE_WALK:
		if (f->rq.op == FILE_WALK)
			put_number(out, "max_depth", f->rq.max_depth ? f->rq.max_depth : 4096);
		if (!(flags & (FILE_NOFOLLOW | FILE_DIRS_FIRST)))
			put_number(out, "max_entries", f->rq.max_entries);
		return f->rq.op == FILE_WALK && f->rq.max_depth == 1 ? NULL : "list";
	case FILE_MKDIR:
		put_mode(out, f);
		put_flag(out, f, FILE_PARENTS, "parents");
		return "mkdir";
	case FILE_REMOVE:
		put_flag(out, f, FILE_TREE, "recursive");
		return "remove";
	case FILE_RENAME:
	case FILE_COPY:
		put_flag(out, f, FILE_EXCLUSIVE, "exclusive");
		put_flag(out, f, FILE_PARENTS, "parents");
		if (f->rq.op == FILE_COPY)
			put_flag(out, f, FILE_TREE, "recursive");
		return f->rq.op == FILE_COPY ? "copy" : "rename";
	case FILE_CHMOD:
		put_mode(out, f);
		put_flag(out, f, FILE_TREE, "recursive");
		return "chmod";
	case FILE_REALPATH:
		return "realpath";
	case FILE_DIGEST:
		return "digest";
	case FILE_GLOB:
	case FILE_GREP:
		if (f->rq.max_depth || !utf8_valid(f->rq.pattern, strlen(f->rq.pattern)) ||
		    !utf8_valid(f->rq.include, strlen(f->rq.include)))
			return NULL;
		put_search(out, f);
		return f->rq.op == FILE_GLOB ? "glob" : "grep";
	case FILE_EDIT:
		return put_edit(out, f) ? "edit" : NULL;
	default:
		return NULL;
	}
}

bool sandboxd_v1_begin(struct box_file *f)
{
	autobuf struct strbuf body = STRBUF_INIT, tail = STRBUF_INIT;
	autofree char *path = NULL;
	struct ask_spec spec = { .method = "POST",
				 .session = true,
				 .json = &body,
				 .total_ms = sandboxd_file_ms(f),
				 .max_bytes = SANDBOXD_LIST_BODY };
	const char *route;

	if (f->rq.op == FILE_EDIT && !f->body_ended)
		return true; /* first the body */
	json_open(&body, '{');
	route = put_request(&body, f);
	json_close(&body, '}');
	if (!route)
		return false;
	/* In the query a path may have any bytes. */
	strbuf_addf(&tail, "/files/%s", route);
	if (f->rq.op != FILE_STAT) {
		strbuf_addstr(&tail, "?path=");
		sandboxd_escape(&tail, f->rq.path);
	}
	if (f->rq.op == FILE_RENAME || f->rq.op == FILE_COPY) {
		strbuf_addstr(&tail, "&to=");
		sandboxd_escape(&tail, f->rq.to);
	}
	path = sandboxd_path(f->box, true, tail.buf);
	spec.path = path;
	f->ask = sandboxd_ask(f->box->p, f->box, &spec, answered, f);
	return true;
}
