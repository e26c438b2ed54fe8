/*
 * One request.  A body that is streamed waits in a queue of bounded size; curl
 * takes from it and is paused while it is empty.  The answer is collected up to
 * a bound, or handed on as it comes.
 *
 * curl is entered by start, unpausing and removal.  All three wait for the end
 * of the round (`later`), so that a caller may do any of them inside a callback.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/httpc_impl.h"

struct httpc_call {
	struct httpc_user user;            /* first: it is cast */
	const struct httpc_events *events; /* NULL: cancelled */
	void *ctx;
	struct loop_later later;
	struct loop_timer idle;
	uint32_t idle_ms;
	size_t max_bytes;
	struct curl_slist *headers;
	struct garret_error failed; /* by us, from inside a callback */
	char error_text[CURL_ERROR_SIZE];

	struct httpc_answer answer;
	struct strbuf head, body;
	bool head_told;
	bool added;     /* curl knows it */
	bool paused;    /* nobody wants data now */
	bool recv_held; /* curl was told so */

	struct strbuf queue; /* of a streamed body; `sent` of it curl has */
	size_t sent;
	bool body_ended, send_held, want_room, tell_room;
};

static void on_later(struct loop_later *l);

static void act_later(struct httpc_call *c)
{
	loop_later_add(c->user.h->loop, &c->later, on_later, c);
}

void httpc_call_drop(struct httpc_call *c)
{
	struct httpc *h = c->user.h;

	loop_later_cancel(h->loop, &c->later);
	loop_timer_clear(&c->idle);
	list_remove(&c->user.link);
	if (c->added) {
		h->inside++;
		(void)curl_multi_remove_handle(h->multi, c->user.easy);
		h->inside--;
	}
	if (c->user.easy)
		curl_easy_cleanup(c->user.easy);
	curl_slist_free_all(c->headers);
	strbuf_release(&c->head);
	strbuf_release(&c->body);
	strbuf_release(&c->queue);
	free(c);
}

static void finish(struct httpc_call *c, const struct garret_error *err)
{
	const struct httpc_events *events = c->events;

	/* The handle goes first: it may be the connection that the next request wants. */
	list_remove(&c->user.link);
	list_init(&c->user.link);
	loop_timer_clear(&c->idle);
	if (c->added) {
		c->user.h->inside++;
		(void)curl_multi_remove_handle(c->user.h->multi, c->user.easy);
		c->user.h->inside--;
		c->added = false;
	}
	c->events = NULL;
	if (events && events->end)
		events->end(c->ctx, err ? NULL : &c->answer, err);
	httpc_call_drop(c);
}

static void on_idle(struct loop_timer *t)
{
	struct httpc_call *c = t->ctx;
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_TIMEOUT, "%s: nothing came for %u ms", c->user.h->name,
			  c->idle_ms);
	finish(c, &err);
}

/* Something moved; while it is our side that holds it up, no time counts. */
static void moved(struct httpc_call *c)
{
	const bool ours = c->paused || (c->send_held && !c->answer.status);

	if (!c->idle_ms)
		return;
	if (ours)
		loop_timer_clear(&c->idle);
	else
		loop_timer_set(c->user.h->loop, &c->idle, now_ms() + c->idle_ms, on_idle, c);
}

/* ---- what curl calls ---- */

static void begin_head(struct httpc_call *c, const char *line, size_t n)
{
	const char *code = memchr(line, ' ', n);

	strbuf_reset(&c->head);
	c->answer.status = 0;
	for (size_t i = 1; code && i <= 3 && code + i < line + n && isdigit((unsigned char)code[i]);
	     i++)
		c->answer.status = c->answer.status * 10 + (code[i] - '0');
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
	struct httpc_call *c = ctx;

	n *= size;
	moved(c);
	if (!c->events)
		return 0;
	if (n >= 5 && !memcmp(line, "HTTP/", 5)) {
		begin_head(c, line, n);
		return n;
	}
	if (!httpc_head_add(&c->head, line, n)) {
		(void)garret_fail(&c->failed, GARRET_PROTOCOL,
				  "%s: the head of its answer is too long", c->user.h->name);
		return 0;
	}
	/* 1xx come before the answer; what follows a chunked body is no head. */
	if (strspn(line, "\r\n") < n || c->answer.status < 200 || c->head_told)
		return n;
	c->head_told = true;
	if (c->events->head)
		c->events->head(c->ctx, &c->answer);
	return n;
}

static size_t on_data(char *data, size_t size, size_t n, void *ctx)
{
	struct httpc_call *c = ctx;

	n *= size;
	if (!c->events)
		return 0;
	if (c->paused) {
		c->recv_held = true;
		return CURL_WRITEFUNC_PAUSE;
	}
	moved(c);
	if (c->events->data) {
		c->events->data(c->ctx, data, n);
		return c->events ? n : 0;
	}
	if (n > c->max_bytes - c->body.len) {
		(void)garret_fail(&c->failed, GARRET_TOO_LARGE,
				  "%s: its answer has more than %zu bytes", c->user.h->name,
				  c->max_bytes);
		return 0;
	}
	strbuf_add(&c->body, data, n);
	return n;
}

static size_t on_send(char *buf, size_t size, size_t n, void *ctx)
{
	struct httpc_call *c = ctx;
	const size_t left = c->queue.len - c->sent;

	n *= size;
	if (!c->events)
		return CURL_READFUNC_ABORT;
	if (!left && c->body_ended)
		return 0;
	if (!left) {
		c->send_held = true;
		moved(c);
		return CURL_READFUNC_PAUSE;
	}
	n = MIN(n, left);
	memcpy(buf, c->queue.buf + c->sent, n);
	c->sent += n;
	if (c->sent == c->queue.len || c->sent > HTTPC_QUEUE / 2) {
		strbuf_remove_front(&c->queue, c->sent);
		c->sent = 0;
	}
	if (c->want_room && c->queue.len - c->sent <= HTTPC_QUEUE / 2) {
		c->want_room = false;
		c->tell_room = true;
		act_later(c);
	}
	moved(c);
	return n;
}

/* A connection that breaks under a half sent body: it can't be repeated from here. */
static int on_seek(void *ctx, curl_off_t offset, int origin)
{
	(void)ctx;
	return offset == 0 && origin == SEEK_SET ? CURL_SEEKFUNC_CANTSEEK : CURL_SEEKFUNC_FAIL;
}

void httpc_call_done(void *user, CURLcode code)
{
	struct httpc_call *c = user;
	struct garret_error err = { 0 };

	if (code == CURLE_OK && c->answer.status >= 200) {
		finish(c, NULL);
		return;
	}
	if (c->failed.code)
		err = c->failed;
	else if (code == CURLE_OK || c->answer.status == 101)
		(void)garret_fail(&err, GARRET_PROTOCOL, "%s: no answer to the request",
				  c->user.h->name);
	else
		(void)httpc_curl_error(c->user.h, c->user.easy, code, c->error_text, &err);
	finish(c, &err);
}

/* ---- starting ---- */

static void set_headers(struct httpc_call *c, const struct httpc_request *rq)
{
	/* curl would add these two by itself; the first costs a round trip or a second. */
	c->headers = curl_slist_append(c->headers, "Expect:");
	if (rq->body || rq->streamed)
		c->headers = curl_slist_append(c->headers, "Content-Type:");
	for (const char *const *p = rq->headers; p && *p; p++) {
		if (!strncasecmp(*p, "Content-Type:", 13)) {
			curl_slist_free_all(c->headers);
			c->headers = curl_slist_append(NULL, "Expect:");
		}
	}
	for (const char *const *p = rq->headers; p && *p; p++)
		c->headers = curl_slist_append(c->headers, *p);
	(void)curl_easy_setopt(c->user.easy, CURLOPT_HTTPHEADER, c->headers);
}

static void set_body(struct httpc_call *c, const struct httpc_request *rq)
{
	CURL *e = c->user.easy;

	if (rq->streamed) {
		(void)curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
		(void)curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)rq->length);
		(void)curl_easy_setopt(e, CURLOPT_READFUNCTION, on_send);
		(void)curl_easy_setopt(e, CURLOPT_READDATA, c);
		(void)curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, on_seek);
		(void)curl_easy_setopt(e, CURLOPT_SEEKDATA, c);
	} else if (rq->body || !strcmp(rq->method, "POST") || !strcmp(rq->method, "PUT") ||
		   !strcmp(rq->method, "PATCH")) {
		(void)curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)rq->body_bytes);
		(void)curl_easy_setopt(e, CURLOPT_COPYPOSTFIELDS, rq->body ? rq->body : "");
	} else if (!strcmp(rq->method, "HEAD")) {
		(void)curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
	}
	(void)curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, rq->method);
}

static void set_call(struct httpc_call *c, const struct httpc_request *rq)
{
	CURL *e = c->user.easy;

	(void)curl_easy_setopt(e, CURLOPT_PRIVATE, &c->user);
	(void)curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
	(void)curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
	(void)curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
	(void)curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
	(void)curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
			       (long)(rq->connect_ms ? rq->connect_ms : HTTPC_CONNECT_MS));
	(void)curl_easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)rq->total_ms);
	set_body(c, rq);
	set_headers(c, rq);
}

struct httpc_call *httpc_start(struct httpc *h, const struct httpc_request *rq,
			       const struct httpc_events *events, void *ctx,
			       struct garret_error *err)
{
	struct httpc_call *c;

	if (httpc_check_request(rq, err) < 0)
		return NULL;
	c = xnew(struct httpc_call);
	c->user.h = h;
	c->user.done = httpc_call_done;
	c->events = events;
	c->ctx = ctx;
	c->idle_ms = rq->idle_ms;
	c->max_bytes = rq->max_bytes ? rq->max_bytes : HTTPC_MAX_BYTES;
	strbuf_init(&c->head);
	strbuf_init(&c->body);
	strbuf_init(&c->queue);
	c->answer.body = &c->body;
	c->answer.head = &c->head;
	list_append(&h->calls, &c->user.link);
	c->user.easy = httpc_easy(h, rq->path, c->error_text);
	if (!c->user.easy) {
		httpc_call_drop(c);
		(void)garret_fail(err, GARRET_EXHAUSTED, "no memory for a request");
		return NULL;
	}
	set_call(c, rq);
	act_later(c);
	return c;
}

static bool start(struct httpc_call *c)
{
	struct httpc *h = c->user.h;

	c->added = curl_multi_add_handle(h->multi, c->user.easy) == CURLM_OK;
	if (!c->added) {
		struct garret_error err = { 0 };

		(void)garret_fail(&err, GARRET_INTERNAL, "%s: the request can't be started",
				  h->name);
		finish(c, &err);
		return false;
	}
	moved(c);
	httpc_act(h, CURL_SOCKET_TIMEOUT, 0);
	return true;
}

/* Unpausing calls back at once, and may end the call (by a message of the multi, not here). */
static void unpause(struct httpc_call *c)
{
	const bool send = c->send_held && (c->queue.len > c->sent || c->body_ended);
	const bool recv = c->recv_held && !c->paused;
	struct httpc *h = c->user.h;

	if (!send && !recv)
		return;
	c->send_held = c->send_held && !send;
	c->recv_held = c->recv_held && !recv;
	moved(c);
	h->inside++;
	(void)curl_easy_pause(c->user.easy, (c->recv_held ? CURLPAUSE_RECV : 0) |
						    (c->send_held ? CURLPAUSE_SEND : 0));
	h->inside--;
	httpc_act(h, CURL_SOCKET_TIMEOUT, 0);
}

static void on_later(struct loop_later *l)
{
	struct httpc_call *c = l->ctx;

	if (!c->events) {
		httpc_call_drop(c);
		return;
	}
	if (!c->added) {
		(void)start(c);
		return;
	}
	if (c->tell_room) {
		c->tell_room = false;
		/* What it does about it wants another turn of its own. */
		act_later(c);
		if (c->events->room)
			c->events->room(c->ctx);
		return;
	}
	unpause(c);
}

/* ---- its caller ---- */

void httpc_cancel(struct httpc_call *c)
{
	c->events = NULL;
	loop_timer_clear(&c->idle);
	if (c->user.h->inside)
		act_later(c);
	else
		httpc_call_drop(c);
}

void httpc_pause(struct httpc_call *c, bool pause)
{
	c->paused = pause;
	moved(c);
	if (c->recv_held)
		act_later(c);
}

size_t httpc_body(struct httpc_call *c, const void *data, size_t n)
{
	const size_t waiting = c->queue.len - c->sent;
	const size_t room = waiting < HTTPC_QUEUE ? HTTPC_QUEUE - waiting : 0;

	if (n > room) {
		c->want_room = true;
		n = room;
	}
	strbuf_add(&c->queue, data, n);
	if (c->send_held)
		act_later(c);
	return n;
}

void httpc_body_end(struct httpc_call *c)
{
	c->body_ended = true;
	if (c->send_held)
		act_later(c);
}
