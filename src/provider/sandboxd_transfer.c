/*
 * Contents and archives of our own service, as streams: GET and PUT of
 * /v1/sessions/ID/file and /v1/sessions/ID/tar.  Neither side holds them whole.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "provider/sandboxd_file.h"

#define HEADERS 6

bool sandboxd_etag(const char *s, struct file_tag *ret)
{
	uint64_t v[4];

	for (int i = 0; s && i < 4; i++) {
		const size_t digits = *s ? strspn(s + 1, "0123456789abcdef") : 0;

		if (*s != (i ? '-' : '"') || !digits || digits > 16)
			return false;
		v[i] = strtoull(s + 1, NULL, 16);
		s += digits + 1;
	}
	if (!s || *s != '"' || s[1])
		return false;
	*ret = (struct file_tag){ v[0], v[1], v[2], v[3] };
	return true;
}

void sandboxd_put_etag(const struct file_tag *t, char out[80])
{
	(void)snprintf(out, 80, "\"%llx-%llx-%llx-%llx\"", (unsigned long long)t->inode,
		       (unsigned long long)t->size, (unsigned long long)t->mtime_ns,
		       (unsigned long long)t->ctime_ns);
}

static bool reads(const struct box_file *f)
{
	return f->rq.op == FILE_READ || f->rq.op == FILE_TAR_OUT;
}

/* ---- the answer ---- */

static void malformed(struct box_file *f)
{
	sandboxd_file_failf(f, GARRET_PROTOCOL,
			    "the service answered a transfer with something else");
}

/* The head of a file that is read: what it is, and how much comes. */
static void on_file(struct box_file *f, const struct httpc_answer *a)
{
	const char *mode = httpc_header(a, "x-garret-mode");
	struct file_info info = { .type = FILE_REGULAR, .name = "", .target = "" };
	uint64_t from = 0;

	if (!sandboxd_etag(httpc_header(a, "etag"), &info.tag)) {
		malformed(f);
		return;
	}
	info.unknown = mode ? 0 : FILE_NO_MODE;
	info.mode = mode ? (uint32_t)strtoul(mode, NULL, 8) & 0777 : 0;
	if (f->rq.max_bytes && info.tag.size > f->rq.max_bytes) {
		sandboxd_file_failf(
			f, GARRET_TOO_LARGE, "File is %llu bytes, over the %llu-byte read limit",
			(unsigned long long)info.tag.size, (unsigned long long)f->rq.max_bytes);
		return;
	}
	f->informed = true;
	from = f->rq.flags & FILE_FROM_END ? 0 : MIN(f->rq.offset, info.tag.size);
	f->due = MIN(f->rq.length, info.tag.size - from);
	if (!sandboxd_tell_info(f, &info) && (!f->due || f->discard))
		sandboxd_file_end(f); /* no bytes are wanted */
}

static void on_head(void *ctx, const struct httpc_answer *a)
{
	struct box_file *f = ctx;

	f->status = a->status;
	/* 416: the range is behind the end, which is no error here. */
	if (f->rq.op == FILE_READ && (a->status == 200 || a->status == 206 || a->status == 416))
		on_file(f, a);
}

static void on_renewed(struct token_wait *w, const struct garret_error *err);

static bool is_content(const struct box_file *f)
{
	return reads(f) && (f->status == 200 || f->status == 206);
}

static void on_data(void *ctx, const void *data, size_t n)
{
	struct box_file *f = ctx;

	if (!is_content(f)) {
		strbuf_add(&f->answer, data, MIN(n, 65536 - MIN((size_t)65536, f->answer.len)));
		return;
	}
	if (f->rq.op == FILE_READ)
		n = (size_t)MIN((uint64_t)n, f->due - f->got);
	f->got += n;
	(void)sandboxd_tell_data(f, data, n);
}

static void take_written(struct box_file *f)
{
	struct garret_error err = { 0 };
	json_t *v = sandboxd_parse(&f->answer, "a transfer", &err);
	const char *mode = json_string_value(json_object_get(v, "mode"));
	struct file_info info = { .type = FILE_REGULAR, .name = "", .target = "" };

	f->end.count = (uint64_t)json_integer_value(json_object_get(v, "entries"));
	f->end.skipped = (uint64_t)json_integer_value(json_object_get(v, "skipped"));
	if (!v || (f->rq.op == FILE_WRITE &&
		   !sandboxd_etag(json_string_value(json_object_get(v, "etag")), &info.tag))) {
		json_decref(v);
		malformed(f);
		return;
	}
	info.unknown = mode ? 0 : FILE_NO_MODE;
	info.mode = mode ? (uint32_t)strtoul(mode, NULL, 8) & 0777 : 0;
	json_decref(v);
	if (f->rq.op != FILE_WRITE || !sandboxd_tell_info(f, &info))
		sandboxd_file_end(f);
}

static void on_end(void *ctx, const struct httpc_answer *a, const struct garret_error *err)
{
	struct box_file *f = ctx;
	struct garret_error own = { 0 };

	f->call = NULL;
	if (!a) {
		sandboxd_file_fail(f, err);
	} else if (a->status == 401 && !f->again) {
		f->again = true;
		sandboxd_renew(f->box, f->token, &f->wait, on_renewed);
	} else if (a->status == 416 && f->informed) {
		sandboxd_file_end(f);
	} else if (a->status != 200 && a->status != 206 && a->status != 201) {
		sandboxd_file_refused(f, a->status, &f->answer, &own);
		sandboxd_file_fail(f, &own);
	} else if (!reads(f)) {
		take_written(f);
	} else if (f->rq.op == FILE_READ && f->got < f->due) {
		sandboxd_file_failf(f, GARRET_CHANGED, "%s shrank while it was read", f->rq.path);
	} else {
		sandboxd_file_end(f);
	}
}

static void feed(struct box_file *f);

static void on_room(void *ctx)
{
	struct box_file *f = ctx;
	const bool full = f->body.len >= FILE_BUFFER;

	feed(f);
	if (full && f->body.len < FILE_BUFFER && !f->body_ended && f->events->room)
		f->events->room(f->ctx);
}

static void feed(struct box_file *f)
{
	if (f->body.len)
		strbuf_remove_front(&f->body, httpc_body(f->call, f->body.buf, f->body.len));
	if (!f->body.len && f->body_ended)
		httpc_body_end(f->call);
}

static bool is_ready(const struct box_file *f);
static void start(struct box_file *f);

void sandboxd_transfer_more(struct box_file *f)
{
	if (f->call)
		feed(f);
	else if (f->transfers && !f->failing && !f->again && is_ready(f))
		start(f);
}

/* Of a stream the beginning is gone. */
static void on_renewed(struct token_wait *w, const struct garret_error *err)
{
	struct box_file *f = container_of(w, struct box_file, wait);

	if (err) {
		sandboxd_file_fail(f, err);
	} else if (f->streamed) {
		sandboxd_file_failf(f, GARRET_UNAVAILABLE,
				    "session %s had to be opened again: try again", f->box->id);
	} else {
		strbuf_reset(&f->answer);
		start(f);
	}
}

/* ---- the request ---- */

static void put_flag(struct strbuf *path, const struct box_file *f, uint32_t bit, const char *name)
{
	if (f->rq.flags & bit)
		strbuf_addf(path, "&%s=true", name);
}

static char *path_of(const struct box_file *f)
{
	const bool tar = f->rq.op == FILE_TAR_OUT || f->rq.op == FILE_TAR_IN;
	autofree char *own = sandboxd_path(f->box, true, tar ? "/tar?path=" : "/file?path=");
	struct strbuf path = STRBUF_INIT;

	strbuf_addf(&path, "%s%s", f->box->p->prefix, own);
	sandboxd_escape(&path, f->rq.path);
	if (!reads(f)) {
		put_flag(&path, f, FILE_PARENTS, "parents");
		put_flag(&path, f, FILE_APPEND, "append");
		put_flag(&path, f, FILE_SYNC, "sync");
		if (f->rq.mode)
			strbuf_addf(&path, "&mode=%04o", f->rq.mode);
		if (f->rq.max_bytes && tar)
			strbuf_addf(&path, "&max_bytes=%llu", (unsigned long long)f->rq.max_bytes);
	}
	return strbuf_detach(&path, NULL);
}

/* Which bytes, as a Range; false: all. */
static bool put_range(const struct box_file *f, char out[80])
{
	const unsigned long long at = f->rq.offset, n = f->rq.length;

	if (f->rq.op != FILE_READ || n == 0 || at > INT64_MAX ||
	    (n == UINT64_MAX && (!at || f->rq.flags & FILE_FROM_END)))
		return false;
	if (f->rq.flags & FILE_FROM_END)
		(void)snprintf(out, 80, "Range: bytes=-%llu", n);
	else if (n > INT64_MAX - at)
		(void)snprintf(out, 80, "Range: bytes=%llu-", at);
	else
		(void)snprintf(out, 80, "Range: bytes=%llu-%llu", at, at + n - 1);
	return true;
}

/* What is short goes with its length, as soon as all of it is there. */
static bool is_ready(const struct box_file *f)
{
	return reads(f) || f->body_ended || f->body.len >= FILE_BUFFER;
}

bool sandboxd_transfer_begin(struct box_file *f)
{
	if (!reads(f) && f->rq.op != FILE_WRITE && f->rq.op != FILE_TAR_IN)
		return false;
	f->transfers = true;
	if (!is_ready(f))
		return true;
	start(f);
	/* Whoever filled the buffer before this waits for a word. */
	if (f->has_body && !f->body_ended && f->body.len < FILE_BUFFER && f->events->room)
		f->events->room(f->ctx);
	return true;
}

static void start(struct box_file *f)
{
	static const struct httpc_events events = {
		.head = on_head, .data = on_data, .room = on_room, .end = on_end
	};
	autofree char *path = NULL, *token = NULL;
	char range[80], etag[80], match[100];
	const char *headers[HEADERS + 1] = { NULL };
	struct garret_error err = { 0 };
	unsigned n = 0;
	struct httpc_request rq = { .method = reads(f) ? "GET" : "PUT",
				    .headers = headers,
				    .streamed = f->has_body && !f->body_ended,
				    .length = HTTPC_CHUNKED,
				    .idle_ms = sandboxd_file_ms(f) };

	f->streamed = rq.streamed;
	if (f->body_ended) {
		rq.body = f->body.buf;
		rq.body_bytes = f->body.len;
	}
	path = path_of(f);
	free(f->token);
	f->token = xstrdup(f->box->token);
	token = xasprintf("X-Sandbox-Token: %s", f->token);
	rq.path = path;
	headers[n++] = token;
	if (!reads(f))
		headers[n++] = "Content-Type: application/octet-stream";
	if (put_range(f, range))
		headers[n++] = range;
	if (f->rq.flags & FILE_EXCLUSIVE && !reads(f))
		headers[n++] = "If-None-Match: *";
	if (f->rq.flags & FILE_IF_MATCH && !reads(f)) {
		sandboxd_put_etag(&f->rq.tag, etag);
		(void)snprintf(match, sizeof(match), "If-Match: %s", f->rq.tag.inode ? etag : "*");
		headers[n++] = match;
	}
	f->call = httpc_start(f->box->p->http, &rq, &events, f, &err);
	if (!f->call) {
		sandboxd_file_fail_later(f, &err);
		return;
	}
	if (f->paused)
		httpc_pause(f->call, true);
	if (rq.streamed)
		feed(f); /* else it is kept: it may have to be sent again */
}
