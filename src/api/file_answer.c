#include "api/file_answer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"

#define WHOLE_MAX (256 * 1024)  /* so much is answered in one piece, with a length */
#define AHEAD_MAX (1024 * 1024) /* made, but not taken by the client: the worker rests */

/* ---- errors ---- */

/* Beyond the five names of the published wire. */
const char *file_any_error_name(const struct garret_error *err)
{
	const char *name = file_error_name(err);

	if (name)
		return name;
	switch (err->code) {
	case GARRET_DENIED:
		return "PermissionError";
	case GARRET_TIMEOUT:
		return "TimeoutError";
	case GARRET_INVALID:
		return "ValueError";
	default:
		return "OSError";
	}
}

static void answer_named(struct call *c, unsigned status, const char *name,
			 const struct garret_error *err, bool number)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "detail");
	json_open(&out, '{');
	json_put_key(&out, "error");
	json_put_string(&out, name);
	if (number && err->sys) {
		json_put_key(&out, "errno");
		json_put_int(&out, err->sys);
	}
	json_put_key(&out, "message");
	json_put_string(&out, err->msg);
	json_close(&out, '}');
	json_close(&out, '}');
	call_answer(c, status, &out);
}

static unsigned named_status(const struct file_kind *kind, const struct garret_error *err)
{
	if (err->code == GARRET_EXISTS && kind->exists)
		return kind->exists;
	return err->code == GARRET_NOT_FOUND ? 404 : 400;
}

void file_answer_error(struct call *c, const struct file_kind *kind, const struct garret_error *err)
{
	const char *name = file_error_name(err);
	bool plain = kind->published && c->rq && !http_header(c->rq, "x-garret-errors");

	if (err->code == GARRET_GONE)
		call_refuse(c, 410, "The sandbox of session %s is gone", c->session_id);
	else if (name)
		answer_named(c, named_status(kind, err), name, err, !plain);
	else if (plain && err->code == GARRET_EXHAUSTED)
		call_refuse(c, 429, "%s", err->msg);
	else if (plain)
		call_refuse(c, 409, "Use the session's shell: %s", err->msg);
	else if (err->code == GARRET_UNAVAILABLE)
		call_refuse(c, 503, "%s", err->msg);
	else
		answer_named(c, (unsigned)garret_code_http(err->code), file_any_error_name(err),
			     err, true);
}

/* ---- the life of an answer ---- */

static void answer_free(struct file_answer *a)
{
	struct call *c = a->call;

	strbuf_release(&a->out);
	strbuf_release(&a->body);
	if (a->extra && a->kind->release)
		a->kind->release(a);
	free(a->path);
	free(a->to);
	free(a->archive);
	free(a->target);
	free(a->extra);
	free(a);
	call_unref(c);
}

static void give_up_op(struct file_answer *a)
{
	if (a->op)
		file_call_leave(take_ptr(&a->op));
}

/* The client is gone, and nothing was answered yet. */
static void leave(struct call *c)
{
	struct file_answer *a = take_ptr(&c->pending);

	if (!a)
		return;
	give_up_op(a);
	answer_free(a);
}

static void settle(struct file_answer *a)
{
	a->call->leave = NULL;
	a->call->pending = NULL;
}

struct call *file_give_up(struct file_answer *a)
{
	struct call *c = call_ref(a->call);

	settle(a);
	give_up_op(a);
	answer_free(a);
	return c;
}

/* ---- streaming ---- */

static bool is_far_ahead(const struct file_answer *a)
{
	return a->out.len - a->sent > AHEAD_MAX;
}

static void rest_or_work(struct file_answer *a)
{
	bool much = is_far_ahead(a);

	if (!a->op || much == a->paused)
		return;
	a->paused = much;
	file_call_pause(a->op, much);
}

static void begin_held(struct file_answer *a);

/* While the worker keeps ahead of the client there is no end where all is sent. */
static void forget_sent(struct file_answer *a)
{
	if (a->sent < a->out.len && (a->sent < AHEAD_MAX || a->sent < a->out.len / 2))
		return;
	strbuf_remove_front(&a->out, a->sent);
	a->sent = 0;
}

static ssize_t source_read(void *ctx, char *buf, size_t cap)
{
	struct file_answer *a = ctx;
	size_t n = MIN(cap, a->out.len - a->sent);

	if (!n)
		return a->broken ? -1 : a->ended ? 0 : HTTP_SOURCE_WAIT;
	memcpy(buf, a->out.buf + a->sent, n);
	a->sent += n;
	forget_sent(a);
	begin_held(a);
	rest_or_work(a);
	return (ssize_t)n;
}

static void source_release(void *ctx)
{
	struct file_answer *a = ctx;

	give_up_op(a);
	answer_free(a);
}

void file_stream(struct file_answer *a)
{
	const struct http_source src = { source_read, source_release, a };

	settle(a);
	a->streaming = true;
	http_answer_source(a->call->rq, a->status ? a->status : 200, a->type ? a->type : WIRE_JSON,
			   a->length, &src);
}

static void told(struct file_answer *a)
{
	if (!a->streaming && a->out.len > WHOLE_MAX && a->kind->end)
		file_stream(a);
	if (a->streaming && a->call->rq)
		http_source_ready(a->call->rq);
	rest_or_work(a);
}

/* The end of the pipe before that of the file: it shrank, or can't be read. */
static ssize_t pipe_end(void *ctx)
{
	(void)ctx;
	return -1;
}

void file_stream_pipe(struct file_answer *a, uint64_t n)
{
	struct http_pipe src = { .end = pipe_end, .release = source_release, .ctx = a };
	struct garret_error err = { 0 };

	if (file_call_pipe(a->op, &src.fd, &err) < 0) {
		const struct file_kind *kind = a->kind;
		struct call *c = file_give_up(a);

		file_answer_error(c, kind, &err);
		call_unref(c);
		return;
	}
	settle(a);
	a->streaming = a->piped = true;
	http_answer_pipe(a->call->rq, a->status ? a->status : 200, a->type, (int64_t)n, &src);
}

/* ---- events ---- */

static void on_info(void *ctx, const struct file_info *info)
{
	struct file_answer *a = ctx;

	free(a->target);
	a->target = xstrdup(info->target);
	a->info = *info;
	a->info.name = "";
	a->info.target = a->target;
	if (a->kind->info)
		a->kind->info(a, info);
}

static void on_entry(void *ctx, const struct file_info *info)
{
	struct file_answer *a = ctx;

	if (a->kind->entry)
		a->kind->entry(a, info);
	told(a);
}

static void on_match(void *ctx, const struct file_match *m)
{
	struct file_answer *a = ctx;

	if (a->kind->match)
		a->kind->match(a, m);
	told(a);
}

static void on_data(void *ctx, const void *data, size_t n)
{
	struct file_answer *a = ctx;

	if (a->discard)
		return;
	if (a->kind->data)
		a->kind->data(a, data, n);
	else
		strbuf_add(&a->out, data, n);
	told(a);
}

static void send_more(struct file_answer *a)
{
	a->body_sent +=
		file_call_body(a->op, a->body.buf + a->body_sent, a->body.len - a->body_sent);
	if (a->body_sent == a->body.len)
		file_call_body_end(a->op);
}

void file_send_body(struct file_answer *a, struct strbuf *body)
{
	a->body = *body;
	strbuf_init(body);
	send_more(a);
}

static void on_room(void *ctx)
{
	struct file_answer *a = ctx;

	if (!a->kind->body)
		send_more(a);
	else if (a->call->rq)
		http_more_body(a->call->rq);
}

static void answer_failure(struct file_answer *a)
{
	if (a->kind->fail)
		a->kind->fail(a, &a->error);
	else
		file_answer_error(a->call, a->kind, &a->error);
}

/* Everything is known and nothing was sent yet. */
static void answer_whole(struct file_answer *a)
{
	struct call *c = a->call;

	settle(a);
	if (a->failed)
		answer_failure(a);
	else if (!a->kind->finish || !a->kind->finish(a)) {
		if (a->out.len || a->type)
			http_answer_buf(c->rq, a->status ? a->status : 200,
					a->type ? a->type : WIRE_JSON, &a->out);
		else
			call_no_content(c);
	}
	answer_free(a);
}

static void on_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct file_answer *a = ctx;

	a->op = NULL;
	if (a->kind->each && a->kind->each(a, end, err)) {
		told(a);
		return;
	}
	if (err && !a->kind->each) {
		a->failed = true;
		a->error = *err;
	} else if (a->kind->end && !a->failed) {
		a->kind->end(a, end);
	}
	/* What the last of several left is freed with the answer, so that it counts until then. */
	if (a->kind->each && !a->failed && !a->streaming && a->out.len > WHOLE_MAX)
		file_stream(a);
	a->ended = true;
	a->broken = a->failed;
	if (a->streaming && !a->piped)
		http_source_ready(a->call->rq);
	else if (!a->streaming && (!a->kind->body || a->body_done))
		answer_whole(a);
	/* An error may come while the body does: it is read to its end all the same. */
	else if (!a->streaming && a->call->rq)
		http_more_body(a->call->rq);
}

static const struct file_events events = {
	.info = on_info,
	.entry = on_entry,
	.match = on_match,
	.data = on_data,
	.room = on_room,
	.end = on_end,
};

static bool begin_op(struct file_answer *a, const char *log, const struct file_request *rq,
		     struct refusal *no)
{
	struct service *svc = a->call->service;

	a->paused = false;
	a->op = a->archive ? service_archive(svc, a->archive, rq, &events, a)
			   : service_file(svc, a->call->session_id, log, a->kind->published, rq,
					  &events, a, no);
	return a->op;
}

static bool begin_next(struct file_answer *a, const struct file_request *rq)
{
	struct refusal no = { 0 };

	return begin_op(a, NULL, rq, &no);
}

/* What each operation leaves in the answer is not bounded by how far ahead the worker may be. */
bool file_next(struct file_answer *a, const struct file_request *rq)
{
	if (!a->streaming && a->out.len > WHOLE_MAX && a->kind->end)
		file_stream(a);
	if (!a->streaming || !is_far_ahead(a))
		return begin_next(a, rq);
	a->held = true;
	a->next = *rq;
	return true;
}

static void begin_held(struct file_answer *a)
{
	if (!a->held || is_far_ahead(a))
		return;
	a->held = false;
	if (!begin_next(a, &a->next))
		a->broken = true; /* the session ended meanwhile */
}

void file_begin_again(struct file_answer *a)
{
	const struct file_request rq = {
		.op = FILE_READ, .flags = FILE_BY_PIPE, .path = a->path, .length = UINT64_MAX
	};

	give_up_op(a);
	strbuf_reset(&a->out);
	if (begin_next(a, &rq))
		return;
	settle(a);
	call_refuse(a->call, 410, "The sandbox of session %s is gone", a->call->session_id);
	answer_free(a);
}

void file_skip(struct file_answer *a, uint64_t n)
{
	a->discard = true;
	if (n > FILE_INLINE_MAX)
		(void)file_call_pipe(a->op, NULL, NULL);
}

/* ---- bodies ---- */

static ssize_t on_body(struct http_request *rq, const void *data, size_t n)
{
	struct call *c = http_data(rq);
	struct file_answer *a = c->pending;

	return a && a->op ? (ssize_t)file_call_body(a->op, data, n) : (ssize_t)n;
}

static void on_body_end(struct http_request *rq)
{
	struct call *c = http_data(rq);
	struct file_answer *a = c->pending;

	a->body_done = true;
	if (a->op)
		file_call_body_end(a->op);
	else
		answer_whole(a);
}

static struct file_answer *answer_new(struct call *c, const struct file_kind *kind,
				      const struct file_request *rq)
{
	struct file_answer *a = xnew(struct file_answer);

	a->kind = kind;
	a->call = call_ref(c);
	a->path = xstrdup(rq->path);
	a->to = rq->to ? xstrdup(rq->to) : NULL;
	a->length = -1;
	strbuf_init(&a->out);
	strbuf_init(&a->body);
	c->pending = a;
	c->leave = leave;
	return a;
}

/* A path that can't be one is answered here. */
static bool check_paths(struct call *c, const struct file_kind *kind, const struct file_request *rq)
{
	struct garret_error err = { .code = GARRET_INVALID, .msg = "embedded null byte" };

	if (rq->path != json_path_nul && rq->to != json_path_nul) {
		if (strlen(rq->path) <= FILE_PATH_MAX &&
		    (!rq->to || strlen(rq->to) <= FILE_PATH_MAX))
			return true;
		err.sys = ENAMETOOLONG;
		(void)snprintf(err.msg, sizeof(err.msg), "a path has at most %d bytes",
			       FILE_PATH_MAX);
	}
	file_answer_error(c, kind, &err);
	return false;
}

struct file_answer *file_begin(struct call *c, const struct file_kind *kind,
			       const struct file_request *rq)
{
	struct refusal no = { 0 };
	struct file_answer *a;

	if (!check_paths(c, kind, rq))
		return NULL;
	a = answer_new(c, kind, rq);
	if (!begin_op(a, kind->log, rq, &no)) {
		settle(a);
		call_refusal(c, &no);
		answer_free(a);
		return NULL;
	}
	if (kind->body)
		http_stream_body(c->rq, on_body, on_body_end);
	return a;
}

struct file_answer *file_begin_archive(struct call *c, const struct file_kind *kind,
				       const char *archive, const struct file_request *rq)
{
	struct file_answer *a = answer_new(c, kind, rq);

	a->archive = xstrdup(archive);
	(void)begin_next(a, rq);
	return a;
}

/* ---- shapes ---- */

void file_join(struct strbuf *out, const char *dir, const char *name)
{
	size_t n = strlen(dir);

	while (n && dir[n - 1] == '/')
		n--;
	strbuf_add(out, dir, n);
	if (*name || !n)
		strbuf_addch(out, '/');
	strbuf_addstr(out, name);
}

void file_next_item(struct file_answer *a)
{
	if (a->items++ && !a->out.len)
		strbuf_addch(&a->out, ',');
}

/* ISO 8601 in UTC, with the fraction that there is. */
static void put_time(struct strbuf *out, uint64_t ns)
{
	const uint64_t second = 1000000000;
	time_t t = (time_t)(ns / second);
	unsigned us = (unsigned)(ns % second / 1000);
	char text[48];
	struct tm tm;
	size_t n;

	if (!gmtime_r(&t, &tm)) {
		json_put_null(out);
		return;
	}
	n = strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(text + n, sizeof(text) - n, us ? ".%06u+00:00" : "+00:00", us);
	json_put_string(out, text);
}

static void put_common(struct strbuf *out, const char *name, const char *path,
		       const struct file_info *info)
{
	bool dir = info->type == FILE_DIRECTORY;

	json_put_key(out, "name");
	json_put_string(out, name);
	json_put_key(out, "path");
	json_put_string(out, path);
	json_put_key(out, "is_dir");
	json_put_bool(out, dir);
	json_put_key(out, "size");
	if (info->type == FILE_REGULAR)
		json_put_int(out, (int64_t)info->tag.size);
	else
		json_put_null(out);
	json_put_key(out, "modified_at");
	if (info->tag.mtime_ns)
		put_time(out, info->tag.mtime_ns);
	else
		json_put_null(out);
}

void file_put_entry(struct strbuf *out, const char *name, const char *path,
		    const struct file_info *info)
{
	struct file_info as_published = *info;

	/* The published service tells no time of a directory. */
	if (info->type == FILE_DIRECTORY)
		as_published.tag.mtime_ns = 0;
	json_open(out, '{');
	put_common(out, name, path, &as_published);
	json_close(out, '}');
}

void file_put_etag(const struct file_tag *t, char out[72])
{
	(void)snprintf(out, 72, "\"%llx-%llx-%llx-%llx\"", (unsigned long long)t->inode,
		       (unsigned long long)t->size, (unsigned long long)t->mtime_ns,
		       (unsigned long long)t->ctime_ns);
}

bool file_get_etag(const char *s, struct file_tag *ret)
{
	uint64_t v[4];

	for (int i = 0; i < 4; i++) {
		const size_t digits = strspn(s + 1, "0123456789abcdef");

		/* A quote in front, dashes between. */
		if (*s != (i ? '-' : '"') || !digits || digits > 16)
			return false;
		v[i] = strtoull(s + 1, NULL, 16);
		s += digits + 1;
	}
	*ret = (struct file_tag){ v[0], v[1], v[2], v[3] };
	return *s == '"' && !s[1];
}

const char *file_base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

/* Percent-encoded, for names that JSON can't hold. */
void file_put_raw_path(struct strbuf *out, const char *path)
{
	autobuf struct strbuf text = STRBUF_INIT;

	if (utf8_valid(path, strlen(path)))
		return;
	for (const unsigned char *p = (const unsigned char *)path; *p; p++) {
		if (*p > ' ' && *p < 0x7F && *p != '%' && *p != '+' && *p != '&' && *p != '#')
			strbuf_addch(&text, *p);
		else
			strbuf_addf(&text, "%%%02X", *p);
	}
	json_put_key(out, "raw_path");
	json_put_string(out, text.buf);
}

void file_put_details(struct strbuf *out, const char *name, const char *path,
		      const struct file_info *info)
{
	static const char *const types[] = { "file", "directory", "other", "dangling" };
	char etag[72], mode[8];

	json_open(out, '{');
	put_common(out, name, path, info);
	file_put_raw_path(out, path);
	json_put_key(out, "type");
	json_put_string(out, types[info->type]);
	json_put_key(out, "mode");
	(void)snprintf(mode, sizeof(mode), "%04o", info->mode);
	json_put_string(out, mode);
	json_put_key(out, "link_target");
	json_put_string(out, info->link ? info->target : NULL);
	json_put_key(out, "etag");
	file_put_etag(&info->tag, etag);
	json_put_string(out, etag);
	json_close(out, '}');
}
