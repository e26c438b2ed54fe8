/*
 * One request, from its first line to the last byte of its answer.
 *
 * The library calls the access function again and again: when the headers are
 * here, for each piece of the body, at its end, and after each suspension.  It
 * accepts an answer only at the headers or at the end.  So the access function
 * is a small state machine over enum rq_phase, and answers are kept in the
 * request until the library may have them.
 *
 * An answer at the headers costs a connection its keep-alive, because the body
 * isn't read.  Requests without a body are therefore handled at their end,
 * which follows at once.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "net/http_internal.h"

/* A body over its limit that came without a length is read on for so long, then cut. */
#define BODIES_MAX (192u * 1024 * 1024) /* of all requests: 4,096 of 12 MiB would be 48 GiB */
#define DISCARD_BYTES_MAX (64u << 20)

const char *http_method(const struct http_request *rq)
{
	return rq->method;
}

const char *http_path(const struct http_request *rq)
{
	return rq->path;
}

const char *http_target(const struct http_request *rq)
{
	return rq->target;
}

static struct http_param *last_param(const struct http_request *rq, const char *name)
{
	for (unsigned i = rq->n_params; i-- > 0;)
		if (!strcmp(rq->params[i].name, name))
			return &rq->params[i];
	return NULL;
}

const char *http_query(const struct http_request *rq, const char *name)
{
	const struct http_param *p = last_param(rq, name);

	return p ? p->value : NULL;
}

const char *http_query_bytes(const struct http_request *rq, const char *name, size_t *ret_n)
{
	struct http_param *p = last_param(rq, name);

	if (!p)
		return NULL;
	if (!p->bytes)
		p->bytes = http_decode_bytes(p->raw, p->raw_n, &p->n);
	*ret_n = p->n;
	return p->bytes;
}

const char *http_header(const struct http_request *rq, const char *name)
{
	return MHD_lookup_connection_value(rq->mhd, MHD_HEADER_KIND, name);
}

const char *http_address(const struct http_request *rq)
{
	return rq->conn->address;
}

struct loop *http_loop(const struct http_request *rq)
{
	return rq->httpd->loop;
}

void http_set_data(struct http_request *rq, void *data, void (*release)(void *data))
{
	rq->data = data;
	rq->release = release;
}

void *http_data(const struct http_request *rq)
{
	return rq->data;
}

void http_on_gone(struct http_request *rq, void (*fn)(void *data))
{
	rq->on_gone = fn;
}

/* ---- waiting ---- */

void http_resume(struct http_request *rq)
{
	if (!rq->suspended)
		return;
	rq->suspended = false;
	loop_io_remove(&rq->watch);
	MHD_resume_connection(rq->mhd);
	httpd_kick(rq->httpd);
}

void http_abandon(struct http_request *rq)
{
	void (*fn)(void *) = rq->on_gone;

	rq->on_gone = NULL;
	if (rq->gone || (rq->phase == RQ_ANSWER && !rq->suspended))
		return;
	rq->gone = true;
	if (fn && !rq->response)
		fn(rq->data);
	if (rq->phase == RQ_UPGRADED)
		http_upgrade_close(rq);
	http_resume(rq);
}

static void on_watch(struct loop_io *io, uint32_t events)
{
	(void)events; /* only RDHUP, HUP and ERR are asked for */
	http_abandon(io->ctx);
}

void http_suspend(struct http_request *rq)
{
	rq->conn->state = CONN_WORK;
	MHD_suspend_connection(rq->mhd);
	rq->suspended = true;
	/* Without the watch (no memory) the request only ends with its handler. */
	(void)loop_io_add(rq->httpd->loop, &rq->watch, rq->conn->fd, EPOLLRDHUP, on_watch, rq,
			  NULL);
}

/* ---- the body ---- */

void http_read_body(struct http_request *rq, size_t limit, void (*done)(struct http_request *rq))
{
	assert(rq->phase == RQ_BEGUN && !rq->body_done);
	rq->body_limit = limit;
	rq->body_done = done;
	http_resume(rq);
}

void http_stream_body(struct http_request *rq, http_sink sink,
		      void (*done)(struct http_request *rq))
{
	rq->sink = sink;
	http_read_body(rq, SIZE_MAX, done);
}

void http_more_body(struct http_request *rq)
{
	if (!rq->sink_full)
		return;
	rq->sink_full = false;
	rq->conn->state = CONN_BODY;
	rq->conn->since_ms = now_ms();
	rq->conn->body_bytes = 0; /* the time we made it wait isn't the client's */
	http_resume(rq);
}

bool http_body_no_room(const struct http_request *rq)
{
	return rq->no_room;
}

bool http_body_too_large(const struct http_request *rq)
{
	return rq->too_large;
}

const struct strbuf *http_body(const struct http_request *rq)
{
	return &rq->body;
}

static void drop_body(struct http_request *rq)
{
	strbuf_release(&rq->body);
	rq->httpd->bodies -= rq->kept;
	rq->kept = 0;
}

static void keep_piece(struct http_request *rq, const char *data, size_t n)
{
	if (rq->httpd->bodies + n > BODIES_MAX) {
		rq->too_large = rq->no_room = true;
		drop_body(rq);
		return;
	}
	strbuf_add(&rq->body, data, n);
	rq->kept += n;
	rq->httpd->bodies += n;
}

static enum MHD_Result take_piece(struct http_request *rq, const char *data, size_t *n)
{
	rq->conn->body_bytes += *n;
	if (rq->sink) {
		ssize_t took = rq->sink(rq, data, *n);

		if (took < 0)
			return MHD_NO;
		*n -= (size_t)took;
		if (*n) {
			rq->sink_full = true;
			http_suspend(rq);
		}
		return MHD_YES;
	}
	if (!rq->too_large && *n > rq->body_limit - rq->body.len) {
		rq->too_large = true;
		drop_body(rq);
	}
	if (!rq->too_large)
		keep_piece(rq, data, *n);
	else if ((rq->discarded += *n) > DISCARD_BYTES_MAX)
		return MHD_NO;
	*n = 0;
	return MHD_YES;
}

/* ---- the answer ---- */

void http_add_header(struct http_request *rq, const char *name, const char *value)
{
	assert(rq->n_headers < RQ_HEADERS_MAX);
	rq->headers[rq->n_headers].name = name;
	rq->headers[rq->n_headers++].value = xstrdup(value);
}

void http_set_response(struct http_request *rq, unsigned status, const char *type,
		       struct MHD_Response *r)
{
	assert(!rq->response && !rq->gone && r);
	rq->status = status;
	rq->response = r;
	if (type)
		(void)MHD_add_response_header(r, "content-type", type);
	for (unsigned i = 0; i < rq->n_headers; i++)
		(void)MHD_add_response_header(r, rq->headers[i].name, rq->headers[i].value);
	rq->on_gone = NULL;
	http_resume(rq);
}

static void answer_memory(struct http_request *rq, unsigned status, const char *type,
			  const void *body, size_t n, enum MHD_ResponseMemoryMode mode)
{
	rq->sent = n;
	http_set_response(rq, status, type,
			  MHD_create_response_from_buffer(n, (void *)(uintptr_t)body, mode));
}

void http_answer(struct http_request *rq, unsigned status, const char *type, const void *body,
		 size_t n)
{
	answer_memory(rq, status, type, body, n, MHD_RESPMEM_MUST_COPY);
}

void http_answer_buf(struct http_request *rq, unsigned status, const char *type,
		     struct strbuf *body)
{
	size_t n;
	char *p = strbuf_detach(body, &n);

	answer_memory(rq, status, type, p, n, MHD_RESPMEM_MUST_FREE);
}

void http_answer_static(struct http_request *rq, unsigned status, const char *type,
			const void *body, size_t n)
{
	answer_memory(rq, status, type, body, n, MHD_RESPMEM_PERSISTENT);
}

/* ---- the state machine ---- */

static const char invalid[] = "Invalid HTTP request received."; /* as published */

static enum MHD_Result send_answer(struct http_request *rq)
{
	enum MHD_Result ret;

	rq->early = rq->phase == RQ_BEGUN && rq->has_body;
	if (!rq->upgraded && (rq->early || rq->httpd->draining))
		(void)MHD_add_response_header(rq->response, "connection", "close");
	rq->phase = RQ_ANSWER;
	rq->conn->state = rq->from_source ? CONN_ANSWER : CONN_WORK;
	rq->conn->since_ms = rq->conn->progress_ms = now_ms();
	rq->conn->answer_bytes = 0;
	ret = MHD_queue_response(rq->mhd, rq->status, rq->response);
	MHD_destroy_response(rq->response);
	rq->response = NULL;
	return ret;
}

static void body_complete(struct http_request *rq)
{
	void (*done)(struct http_request *) = take_ptr(&rq->body_done);

	done(rq);
}

static enum MHD_Result proceed(struct http_request *rq)
{
	for (;;) {
		if (rq->gone)
			return MHD_NO;
		if (rq->response)
			return send_answer(rq);
		if (rq->phase != RQ_BEGUN || !rq->body_done)
			break;
		rq->too_large =
			rq->content_length != UINT64_MAX && rq->content_length > rq->body_limit;
		if (rq->has_body && !rq->too_large) {
			rq->phase = RQ_BODY;
			rq->conn->state = CONN_BODY;
			rq->conn->since_ms = now_ms();
			rq->conn->body_bytes = 0;
			return MHD_YES;
		}
		/* Too large is answered at the headers, as RQ_BEGUN says. */
		if (!rq->too_large)
			rq->phase = RQ_WAIT;
		body_complete(rq);
	}
	http_suspend(rq);
	return MHD_YES;
}

struct header_check {
	unsigned lengths, encodings;
	bool bad_name;
};

static enum MHD_Result check_header(void *cls, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	struct header_check *c = cls;

	(void)kind, (void)value;
	c->lengths += !strcasecmp(name, "content-length");
	c->encodings += !strcasecmp(name, "transfer-encoding");
	/* "Content-Length : 5" is no length for the library, but may be one for others. */
	for (; *name && !c->bad_name; name++)
		c->bad_name = *name <= ' ' || *name == 0x7F;
	return MHD_YES;
}

/*
 * Requests that no handler sees: what the library let through and we don't.
 * Most of it is about where the body ends: who is in front of us may believe
 * something else, and what is left over would be a request that nobody checked.
 */
static unsigned early_status(struct http_request *rq)
{
	const union MHD_ConnectionInfo *size =
		MHD_get_connection_info(rq->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
	const char *encoding = http_header(rq, "transfer-encoding");
	struct header_check c = { .lengths = 0 };

	if (size && size->header_size > HEADER_BYTES_MAX)
		return 431;
	(void)MHD_get_connection_values(rq->mhd, MHD_HEADER_KIND, check_header, &c);
	if (c.bad_name || c.lengths + c.encodings > 1)
		return 400;
	if (encoding && strcasecmp(encoding, "chunked") != 0)
		return 501;
	return rq->needs_host && !http_header(rq, "host") ? 400 : 0;
}

static bool refused_early(struct http_request *rq)
{
	unsigned status = early_status(rq);

	if (!status)
		return false;
	http_add_header(rq, "connection", "close");
	http_answer_static(rq, status, "text/plain; charset=utf-8", invalid, sizeof(invalid) - 1);
	return true;
}

static void begin(struct http_request *rq)
{
	rq->phase = RQ_BEGUN;
	rq->conn->state = CONN_WORK;
	rq->counted = true;
	rq->httpd->n_running++;
	if (!refused_early(rq))
		rq->httpd->set.handle(rq->httpd->set.ctx, rq);
}

static void look_at_headers(struct http_request *rq, const char *method, const char *version)
{
	const char *length = http_header(rq, "content-length");

	(void)snprintf(rq->method, sizeof(rq->method), "%s", method);
	if (http_header(rq, "transfer-encoding"))
		rq->content_length = UINT64_MAX;
	else if (length)
		(void)parse_u64(length, &rq->content_length);
	rq->has_body = rq->content_length != 0;
	rq->needs_host = !strcmp(version, "HTTP/1.1");
	http_parse_target(rq);
}

enum MHD_Result http_on_access(void *cls, struct MHD_Connection *mc, const char *url,
			       const char *method, const char *version, const char *data, size_t *n,
			       void **slot)
{
	struct http_request *rq = *slot;

	(void)cls, (void)mc, (void)url;
	if (!rq || rq->gone || rq->httpd->stopping)
		return MHD_NO; /* at the stop nobody may go to sleep any more */
	switch (rq->phase) {
	case RQ_NEW:
		if (!rq->seen) {
			rq->seen = true;
			look_at_headers(rq, method, version);
			if (!rq->has_body)
				return MHD_YES;
		}
		begin(rq);
		return proceed(rq);
	case RQ_BODY:
		if (*n)
			return take_piece(rq, data, n);
		rq->phase = RQ_WAIT;
		body_complete(rq);
		return proceed(rq);
	case RQ_BEGUN:
	case RQ_WAIT:
	case RQ_ANSWER:
	case RQ_UPGRADED:
		break;
	}
	return proceed(rq);
}

void *http_on_target(void *cls, const char *uri, struct MHD_Connection *mc)
{
	const union MHD_ConnectionInfo *ci =
		MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct http_request *rq;

	if (!ci || !ci->socket_context)
		return NULL;
	rq = xnew(struct http_request);
	rq->httpd = cls;
	rq->conn = ci->socket_context;
	rq->mhd = mc;
	rq->watch.fd = -EBADF;
	rq->target = xstrdup(uri);
	rq->started_us = now_us();
	strbuf_init(&rq->body);
	list_append(&rq->httpd->requests, &rq->link);
	if (rq->conn->state == CONN_IDLE) {
		rq->conn->state = CONN_HEADERS;
		rq->conn->since_ms = now_ms();
	}
	return rq;
}

static void request_free(struct http_request *rq)
{
	if (rq->response)
		MHD_destroy_response(rq->response);
	for (unsigned i = 0; i < rq->n_params; i++) {
		free(rq->params[i].name);
		free(rq->params[i].value);
		free(rq->params[i].bytes);
	}
	for (unsigned i = 0; i < rq->n_headers; i++)
		free(rq->headers[i].value);
	drop_body(rq);
	loop_later_cancel(rq->httpd->loop, &rq->upgrade_end);
	list_remove(&rq->link);
	free(rq->params);
	free(rq->path);
	free(rq->target);
	free(rq);
}

void http_on_completed(void *cls, struct MHD_Connection *mc, void **slot,
		       enum MHD_RequestTerminationCode why)
{
	struct http_request *rq = take_ptr(slot);
	struct httpd *h = cls;

	(void)mc;
	if (!rq)
		return;
	log_debug("request", "address=%s method=%s path=%s status=%u bytes=%llu ms=%.1f end=%s",
		  rq->conn->address, rq->method, rq->path ? rq->path : "", rq->status,
		  (unsigned long long)rq->sent, (double)(now_us() - rq->started_us) / 1000.0,
		  why == MHD_REQUEST_TERMINATED_COMPLETED_OK ? "ok" : "broken");
	/* Answered while its body was on the way: see to it that the answer can be read. */
	if (rq->phase == RQ_ANSWER && rq->early && !rq->conn->body_bytes &&
	    why == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		httpd_linger(h, rq->conn->fd);
	rq->conn->state = CONN_IDLE;
	rq->conn->since_ms = now_ms();
	rq->conn->body_bytes = 0;
	if (rq->counted)
		httpd_running_less(h);
	if (rq->release)
		rq->release(rq->data);
	request_free(rq);
}
