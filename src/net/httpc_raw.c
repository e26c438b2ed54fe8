/*
 * A connection that goes over to another protocol: an exec's stream, a
 * WebSocket.  curl finds the address and connects (CONNECT_ONLY: it resolves
 * without blocking and knows proxies); then the connection is ours, with our own
 * TLS, because curl can't end one direction of it.
 *
 * One function, turn(), does all that can be done now: greet, send the head,
 * read the answer, then move bytes both ways.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "net/httpc_impl.h"

#define ANSWER_MS 30000
#define TURN_BYTES (256u << 10) /* then others have their turn */

enum state { CONNECTING, GREETING, ASKING, REFUSED, OPEN };

struct httpc_raw {
	struct httpc_user user;                /* first: it is cast */
	const struct httpc_raw_events *events; /* NULL: freed while curl was busy */
	void *ctx;
	enum state state;
	int fd;
	struct httpc_secure *secure;
	struct loop_io io;
	struct loop_timer timer;
	struct loop_later later;
	char error_text[CURL_ERROR_SIZE];
	struct garret_error failed;

	struct strbuf out; /* `sent` of it went */
	size_t sent;
	struct strbuf in; /* until the answer is whole */
	struct strbuf head, body;
	struct httpc_answer answer;
	size_t max_bytes;
	bool raw_200;
	bool paused, read_over, write_over, write_broken, wants_out, want_room;
	bool told; /* end was called */
	bool *gone;
};

static void turn(struct httpc_raw *r);

static void drop_easy(struct httpc_raw *r)
{
	struct httpc *h = r->user.h;

	if (!r->user.easy)
		return;
	h->inside++;
	(void)curl_multi_remove_handle(h->multi, r->user.easy);
	h->inside--;
	curl_easy_cleanup(r->user.easy);
	r->user.easy = NULL;
}

static void on_freed(struct loop_later *l)
{
	httpc_raw_free(l->ctx);
}

struct httpc_raw *httpc_raw_free(struct httpc_raw *r)
{
	if (!r)
		return NULL;
	r->events = NULL;
	if (r->gone)
		*r->gone = true;
	loop_timer_clear(&r->timer);
	if (r->user.easy && r->user.h->inside) {
		r->gone = NULL;
		loop_later_cancel(r->user.h->loop, &r->later);
		loop_later_add(r->user.h->loop, &r->later, on_freed, r);
		return NULL;
	}
	drop_easy(r);
	loop_later_cancel(r->user.h->loop, &r->later);
	loop_io_remove(&r->io);
	httpc_secure_free(r->secure);
	fd_close(r->fd);
	list_remove(&r->user.link);
	strbuf_release(&r->out);
	strbuf_release(&r->in);
	strbuf_release(&r->head);
	strbuf_release(&r->body);
	free(r);
	return NULL;
}

/* Nothing more comes.  Whoever calls this returns at once: r may be freed. */
static void tell_end(struct httpc_raw *r, const struct httpc_answer *a,
		     const struct garret_error *err)
{
	if (r->told)
		return;
	r->told = true;
	r->read_over = true;
	loop_timer_clear(&r->timer);
	if (err || a) {
		loop_io_remove(&r->io);
		r->write_broken = true;
		r->wants_out = false;
		strbuf_reset(&r->out);
		r->sent = 0;
	}
	if (r->events->end)
		r->events->end(r->ctx, a, err);
}

static void fail(struct httpc_raw *r, enum garret_code code, const char *text)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, code, "%s: %s", r->user.h->name, text);
	tell_end(r, NULL, &err);
}

static void on_late(struct loop_timer *t)
{
	fail(t->ctx, GARRET_TIMEOUT, "it did not answer in time");
}

/* ---- bytes ---- */

static ssize_t raw_read(struct httpc_raw *r, void *buf, size_t n, struct garret_error *err)
{
	ssize_t got;

	if (r->secure)
		return httpc_secure_read(r->secure, buf, n, &r->wants_out, err);
	do
		got = recv(r->fd, buf, n, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0 && errno != EAGAIN) {
		int sys = errno;

		(void)garret_fail_errno(err, "%s: the connection broke", r->user.h->name);
		err->code = GARRET_UNAVAILABLE;
		errno = sys;
	}
	return got;
}

static ssize_t raw_send(struct httpc_raw *r, const void *buf, size_t n)
{
	ssize_t sent;

	if (r->secure)
		return httpc_secure_write(r->secure, buf, n, &r->wants_out, NULL);
	do
		sent = send(r->fd, buf, n, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	return sent;
}

/* What waits goes out; a broken direction takes all of it, what is read tells why. */
static void flush_out(struct httpc_raw *r)
{
	while (r->sent < r->out.len && !r->write_broken) {
		ssize_t n = raw_send(r, r->out.buf + r->sent, MIN(r->out.len - r->sent, 65536));

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			r->write_broken = true;
		else
			r->sent += (size_t)n;
	}
	strbuf_reset(&r->out);
	r->sent = 0;
	if (!r->write_over || r->state != OPEN || r->write_broken)
		return;
	if (r->secure && httpc_secure_end(r->secure, &r->wants_out) < 0 && errno == EAGAIN)
		return;
	/* Under TLS the record says it: some take an ended connection for a broken one. */
	if (!r->secure)
		(void)shutdown(r->fd, SHUT_WR);
	r->write_broken = true;
}

/* ---- the answer ---- */

static bool goes_over(const struct httpc_raw *r)
{
	if (r->answer.status == 101)
		return true;
	return r->raw_200 && r->answer.status == 200 &&
	       !httpc_header(&r->answer, "Content-Length") &&
	       !httpc_header(&r->answer, "Transfer-Encoding");
}

/* false: more must come. */
static bool read_head(struct httpc_raw *r)
{
	int rc = httpc_answer_head(&r->in, &r->head, &r->answer.status);

	if (rc < 0)
		fail(r, GARRET_PROTOCOL, "what it answered isn't HTTP");
	return rc > 0;
}

/* The body of a refusal is its reason. */
static void read_refusal(struct httpc_raw *r, bool over)
{
	const char *length = httpc_header(&r->answer, "Content-Length");
	bool whole = over;
	uint64_t n = 0;

	if (r->in.len > r->max_bytes) {
		fail(r, GARRET_TOO_LARGE, "its answer is too long");
		return;
	}
	if (httpc_header(&r->answer, "Transfer-Encoding")) {
		int rc = httpc_answer_unchunk(&r->in, &r->body);

		if (rc < 0) {
			fail(r, GARRET_PROTOCOL, "what it answered isn't HTTP");
			return;
		}
		whole = whole || rc > 0;
	} else {
		strbuf_reset(&r->body);
		strbuf_add(&r->body, r->in.buf, r->in.len);
		whole = whole || r->answer.status == 204 ||
			(length && parse_u64(length, &n) && r->in.len >= n);
	}
	if (whole)
		tell_end(r, &r->answer, NULL);
}

/* Something was read, or (n 0) the end of it; data may be in r->in as well. */
static void took(struct httpc_raw *r, const void *data, size_t n, const bool *gone)
{
	if (r->state == OPEN) {
		if (n)
			r->events->data(r->ctx, data, n);
		else
			tell_end(r, NULL, NULL);
		return;
	}
	strbuf_add(&r->in, data, n);
	if (r->state == ASKING) {
		if (!read_head(r)) {
			if (!n && !r->told)
				fail(r, GARRET_UNAVAILABLE,
				     "it closed the connection without an answer");
			return;
		}
		r->state = goes_over(r) ? OPEN : REFUSED;
	}
	if (r->state == REFUSED) {
		read_refusal(r, n == 0);
		return;
	}
	loop_timer_clear(&r->timer);
	r->events->open(r->ctx, &r->answer);
	if (!*gone && r->in.len)
		r->events->data(r->ctx, r->in.buf, r->in.len);
	if (!*gone)
		strbuf_release(&r->in);
}

static void on_later(struct loop_later *l)
{
	turn(l->ctx);
}

static void read_in(struct httpc_raw *r, const bool *gone)
{
	char buf[32768];
	struct garret_error err = { 0 };
	size_t total = 0;

	while (!*gone && !r->read_over && (!r->paused || r->state != OPEN)) {
		ssize_t n;

		if (total >= TURN_BYTES) {
			loop_later_add(r->user.h->loop, &r->later, on_later, r);
			return;
		}
		n = raw_read(r, buf, sizeof(buf), &err);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			tell_end(r, NULL, &err);
		else
			took(r, buf, (size_t)n, gone);
		total += n > 0 ? (size_t)n : 0;
	}
}

static void on_io(struct loop_io *io, uint32_t events)
{
	(void)events;
	turn(io->ctx);
}

/* With nothing to wait for it isn't watched: a hang-up would be reported for ever. */
static void watch(struct httpc_raw *r)
{
	uint32_t events = 0;

	if (!r->read_over && (r->state != OPEN || !r->paused))
		events |= EPOLLIN;
	if (r->wants_out || (r->state >= ASKING && r->sent < r->out.len))
		events |= EPOLLOUT;
	if (!events)
		loop_io_remove(&r->io);
	else if (r->io.fd >= 0)
		loop_io_mod(&r->io, events);
	else
		(void)loop_io_add(r->user.h->loop, &r->io, r->fd, events, on_io, r, NULL);
}

/* false: greeting isn't over. */
static bool greet(struct httpc_raw *r)
{
	struct garret_error err = { 0 };

	if (r->state != GREETING)
		return true;
	if (httpc_secure_greet(r->secure, &r->wants_out, &err) == 0) {
		r->state = ASKING;
		return true;
	}
	if (errno != EAGAIN)
		tell_end(r, NULL, &err);
	return false;
}

static void tell_room(struct httpc_raw *r, const bool *gone)
{
	if (!r->want_room || r->out.len || r->state != OPEN)
		return;
	r->want_room = false;
	if (r->events->room)
		r->events->room(r->ctx);
	if (!*gone)
		flush_out(r);
}

static void turn(struct httpc_raw *r)
{
	bool gone = false;

	if (r->told && r->write_broken)
		return;
	r->gone = &gone;
	r->wants_out = false;
	if (greet(r)) {
		flush_out(r);
		tell_room(r, &gone);
		read_in(r, &gone);
	}
	if (gone)
		return;
	r->gone = NULL;
	watch(r);
}

/* ---- starting ---- */

void httpc_raw_connected(void *user, CURLcode code)
{
	struct httpc_raw *r = user;
	struct garret_error err = { 0 };
	curl_socket_t fd = CURL_SOCKET_BAD;

	if (!r->events)
		return; /* being freed */
	if (code == CURLE_OK)
		(void)curl_easy_getinfo(r->user.easy, CURLINFO_ACTIVESOCKET, &fd);
	if (code != CURLE_OK)
		(void)httpc_curl_error(r->user.h, r->user.easy, code, r->error_text, &err);
	else if (fd == CURL_SOCKET_BAD || (r->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)
		(void)garret_fail(&err, GARRET_UNAVAILABLE, "%s: no connection", r->user.h->name);
	drop_easy(r);
	if (r->told)
		return; /* too late */
	if (!err.code && r->user.h->tls)
		(void)httpc_secure_new(r->user.h, r->fd, &r->secure, &err);
	if (err.code) {
		tell_end(r, NULL, &err);
		return;
	}
	r->state = r->secure ? GREETING : ASKING;
	turn(r);
}

/* The scheme is http for curl, so the port and the proxy of https must be said. */
static void set_connect(struct httpc_raw *r, const struct httpc_request *rq)
{
	struct httpc *h = r->user.h;
	CURL *e = r->user.easy;
	const char *port = strrchr(h->host, ':'), *proxy = getenv("https_proxy");
	autofree char *url = xasprintf("http://%s%s/", h->host,
				       h->tls && (!port || strchr(port, ']')) ? ":443" : "");

	(void)curl_easy_setopt(e, CURLOPT_URL, url);
	(void)curl_easy_setopt(e, CURLOPT_PRIVATE, &r->user);
	(void)curl_easy_setopt(e, CURLOPT_CONNECT_ONLY, 1L);
	(void)curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
	(void)curl_easy_setopt(e, CURLOPT_HTTPPROXYTUNNEL, 1L);
	if (h->tls && !h->near) {
		if (!proxy)
			proxy = getenv("HTTPS_PROXY");
		(void)curl_easy_setopt(e, CURLOPT_PROXY, proxy ? proxy : "");
	}
	(void)curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS,
			       (long)(rq->connect_ms ? rq->connect_ms : HTTPC_CONNECT_MS));
}

static void write_head(struct httpc_raw *r, const struct httpc_request *rq)
{
	strbuf_addf(&r->out,
		    "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: garret/" GARRET_VERSION "\r\n",
		    rq->method, rq->path, r->user.h->host);
	for (const char *const *p = rq->headers; p && *p; p++)
		strbuf_addf(&r->out, "%s\r\n", *p);
	if (rq->body)
		strbuf_addf(&r->out, "Content-Length: %zu\r\n", rq->body_bytes);
	strbuf_addstr(&r->out, "\r\n");
	strbuf_add(&r->out, rq->body, rq->body ? rq->body_bytes : 0);
}

static void on_start(struct loop_later *l)
{
	struct httpc_raw *r = l->ctx;

	if (curl_multi_add_handle(r->user.h->multi, r->user.easy) != CURLM_OK) {
		curl_easy_cleanup(r->user.easy);
		r->user.easy = NULL;
		fail(r, GARRET_INTERNAL, "the request can't be started");
		return;
	}
	httpc_act(r->user.h, CURL_SOCKET_TIMEOUT, 0);
}

struct httpc_raw *httpc_upgrade(struct httpc *h, const struct httpc_request *rq,
				const struct httpc_raw_events *events, void *ctx,
				struct garret_error *err)
{
	struct httpc_raw *r;

	if (httpc_check_request(rq, err) < 0)
		return NULL;
	r = xnew(struct httpc_raw);
	r->user.h = h;
	r->user.done = httpc_raw_connected;
	r->events = events;
	r->ctx = ctx;
	r->fd = -EBADF;
	r->io.fd = -EBADF;
	r->raw_200 = rq->raw_200;
	r->max_bytes = rq->max_bytes ? rq->max_bytes : HTTPC_MAX_BYTES;
	strbuf_init(&r->out);
	strbuf_init(&r->in);
	strbuf_init(&r->head);
	strbuf_init(&r->body);
	r->answer.head = &r->head;
	r->answer.body = &r->body;
	list_append(&h->raws, &r->user.link);
	r->user.easy = httpc_easy(h, "/", r->error_text);
	if (!r->user.easy) {
		httpc_raw_free(r);
		(void)garret_fail(err, GARRET_EXHAUSTED, "no memory for a request");
		return NULL;
	}
	set_connect(r, rq);
	write_head(r, rq);
	loop_timer_set(h->loop, &r->timer, now_ms() + (rq->total_ms ? rq->total_ms : ANSWER_MS),
		       on_late, r);
	loop_later_add(h->loop, &r->later, on_start, r);
	return r;
}

/* ---- its caller ---- */

size_t httpc_raw_write(struct httpc_raw *r, const void *data, size_t n)
{
	const size_t waiting = r->out.len - r->sent;
	const size_t room = waiting < HTTPC_QUEUE ? HTTPC_QUEUE - waiting : 0;

	if (r->state != OPEN || r->write_over) {
		r->want_room = r->want_room || !r->write_over;
		return 0;
	}
	if (r->write_broken)
		return n;
	if (n > room) {
		r->want_room = true;
		n = room;
	}
	strbuf_add(&r->out, data, n);
	loop_later_add(r->user.h->loop, &r->later, on_later, r);
	return n;
}

void httpc_raw_shutdown(struct httpc_raw *r)
{
	r->write_over = true;
	if (r->state == OPEN)
		loop_later_add(r->user.h->loop, &r->later, on_later, r);
}

void httpc_raw_pause(struct httpc_raw *r, bool pause)
{
	r->paused = pause;
	/* TLS may hold bytes that the socket doesn't show. */
	if (r->state == OPEN)
		loop_later_add(r->user.h->loop, &r->later, on_later, r);
}
