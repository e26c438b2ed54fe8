/*
 * The asynchronous client: answers and how they end, hostile ones, bodies both
 * ways with pauses, time-outs, cancelling, connections that are kept, TLS, and
 * connections that go over to another protocol.  A child is the server.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/time.h"
#include "net/httpc.h"
#include "test.h"

#define OK "HTTP/1.1 200 OK\r\n"
#define SECRET "Bearer do-not-show-this"

/* ---- the server ---- */

struct peer {
	int fd;
	SSL *ssl;
};

static ssize_t get_some(struct peer *p, void *buf, size_t n)
{
	return p->ssl ? SSL_read(p->ssl, buf, (int)n) : read(p->fd, buf, n);
}

static void put_all(struct peer *p, const void *data, size_t n)
{
	if (p->ssl)
		(void)SSL_write(p->ssl, data, (int)n);
	else
		(void)write_full(p->fd, data, n);
}

static void put(struct peer *p, const char *text)
{
	put_all(p, text, strlen(text));
}

/* In small pieces, so that everything is cut somewhere. */
static void put_slowly(struct peer *p, const char *text)
{
	for (size_t i = 0; text[i]; i++) {
		put_all(p, text + i, 1);
		if (i < 300)
			(void)usleep(50);
	}
}

/* One request, whatever it is. */
static void drain(int fd, char *buf, size_t cap)
{
	ssize_t n = read(fd, buf, cap - 1);

	buf[n > 0 ? n : 0] = '\0';
}

/* A head, what came behind it stays in buf; its length, or exits at the end. */
static size_t get_head(struct peer *p, char *buf, size_t cap)
{
	size_t len = 0;

	for (;;) {
		ssize_t n = get_some(p, buf + len, cap - 1 - len);

		if (n <= 0)
			_exit(0);
		len += (size_t)n;
		buf[len] = '\0';
		if (strstr(buf, "\r\n\r\n"))
			return len;
	}
}

struct server {
	char dir[32], path[64], url[64];
	pid_t pid;
	int port;
	struct httpc_tls tls;
};

typedef void (*serve_fn)(int listener);

static void run_server(struct server *s, int listener, serve_fn fn)
{
	assert_int_equal(listen(listener, 8), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)signal(SIGPIPE, SIG_IGN);
		fn(listener);
		_exit(0);
	}
	fd_close(listener);
}

static void serve(struct server *s, serve_fn fn)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*s = (struct server){ .url = "http://service" };
	(void)snprintf(s->dir, sizeof(s->dir), "/tmp/httpc-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	(void)snprintf(s->path, sizeof(s->path), "%s/s", s->dir);
	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", s->path);
	assert_int_equal(bind(listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	run_server(s, listener, fn);
}

static void serve_tcp(struct server *s, serve_fn fn, bool tls)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t n = sizeof(sa);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*s = (struct server){ 0 };
	assert_int_equal(bind(listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&sa, &n), 0);
	s->port = ntohs(sa.sin_port);
	(void)snprintf(s->url, sizeof(s->url), "http%s://localhost:%d", tls ? "s" : "", s->port);
	run_server(s, listener, fn);
}

static void stop(struct server *s)
{
	(void)kill(s->pid, SIGKILL);
	(void)waitpid(s->pid, NULL, 0);
	if (s->dir[0]) {
		(void)unlink(s->path);
		(void)rmdir(s->dir);
	}
}

/* ---- the client ---- */

struct world {
	struct loop *loop;
	struct httpc *h;
	struct loop_timer guard, tick;
};

static void on_guard(struct loop_timer *t)
{
	(void)t;
	print_error("nothing happened for 20 s\n");
	abort();
}

static void world_open(struct world *w, const struct server *s)
{
	struct httpc_target t = { .url = s->url,
				  .socket = s->path[0] ? s->path : NULL,
				  .tls = s->tls.ca || s->tls.no_verify ? &s->tls : NULL };
	struct garret_error err = { 0 };

	*w = (struct world){ 0 };
	assert_int_equal(loop_new(&w->loop, NULL), 0);
	if (httpc_new(w->loop, &t, &w->h, &err) < 0)
		fail_msg("%s", err.msg);
	loop_timer_set(w->loop, &w->guard, now_ms() + 20000, on_guard, NULL);
}

static void world_close(struct world *w)
{
	loop_timer_clear(&w->guard);
	w->h = httpc_free(w->h);
	w->loop = loop_free(w->loop);
}

struct result {
	struct world *w;
	struct httpc_call *call;
	int status, heads;
	struct garret_error err;
	struct strbuf body;
	char type[64];
	unsigned ends;
	uint64_t bytes, sum;
	unsigned pauses;
};

static void on_end(void *ctx, const struct httpc_answer *a, const struct garret_error *err)
{
	struct result *r = ctx;
	const char *type = a ? httpc_header(a, "content-type") : NULL;

	r->ends++;
	if (err)
		r->err = *err;
	if (a) {
		r->status = a->status;
		strbuf_add(&r->body, a->body->buf, a->body->len);
	}
	(void)snprintf(r->type, sizeof(r->type), "%s", type ? type : "");
	loop_quit(r->w->loop, 0);
}

static const struct httpc_events collected = { .end = on_end };

static void ask(struct world *w, const struct httpc_request *rq, struct result *r)
{
	*r = (struct result){ .w = w, .body = STRBUF_INIT };
	assert_non_null(httpc_start(w->h, rq, &collected, r, NULL));
	assert_int_equal(r->ends, 0);
	(void)loop_run(w->loop);
	assert_int_equal(r->ends, 1);
}

static void get(struct world *w, const char *path, struct result *r)
{
	ask(w, &(struct httpc_request){ .method = "GET", .path = path }, r);
}

/* ---- answers ---- */

static void answer_simple(int listener)
{
	for (;;) {
		struct peer p = { .fd = accept(listener, NULL, NULL) };
		char buf[65536];

		for (;;) {
			ssize_t n = read(p.fd, buf, sizeof(buf) - 1);

			if (n <= 0)
				break;
			buf[n] = '\0';
			if (strstr(buf, " /length "))
				put_slowly(
					&p, OK
					"Content-Type: text/x\r\nContent-Length: 5\r\n\r\nhello");
			else if (strstr(buf, " /chunked "))
				put_slowly(
					&p, OK
					"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n"
					"X-Trailer: 1\r\n\r\n");
			else if (strstr(buf, " /continue "))
				put_slowly(
					&p,
					"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 103 Early\r\n\r\n" OK
					"Content-Length: 1\r\n\r\nx");
			else if (strstr(buf, " /none "))
				put_slowly(&p, "HTTP/1.1 204 No Content\r\n\r\n");
			else if (strstr(buf, " /refused "))
				put_slowly(&p,
					   "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
			else if (strstr(buf, " /elsewhere "))
				put_slowly(&p,
					   "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n"
					   "Content-Length: 0\r\n\r\n");
			else if (!strncmp(buf, "HEAD ", 5))
				put_slowly(&p, OK "Content-Length: 100\r\n\r\n");
			else if (strstr(buf, " /echo ")) {
				char out[70000];
				const char *body = strstr(buf, "\r\n\r\n");

				(void)snprintf(out, sizeof(out),
					       OK
					       "Content-Type: %s\r\nContent-Length: %zu\r\n\r\n%s",
					       strstr(buf, "Content-Type:") ? "given" : "none",
					       strlen(body + 4), body + 4);
				put(&p, out);
			} else {
				put(&p, OK "\r\n");
				break;
			}
		}
		fd_close(p.fd);
	}
}

TEST(an_answer_ends_as_its_head_says)
{
	static const struct {
		const char *path, *body;
		int status;
	} cases[] = { { "/length", "hello", 200 }, { "/chunked", "abcdefg", 200 },
		      { "/continue", "x", 200 },   { "/none", "", 204 },
		      { "/refused", "no", 404 },   { "/close", "", 200 },
		      { "/elsewhere", "", 302 } };
	struct server s;
	struct world w;
	struct result r;

	serve(&s, answer_simple);
	world_open(&w, &s);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		get(&w, cases[i].path, &r);
		assert_string_equal(r.err.msg, "");
		assert_int_equal(r.status, cases[i].status);
		assert_string_equal(r.body.buf, cases[i].body);
		assert_string_equal(r.type, i == 0 ? "text/x" : "");
		strbuf_release(&r.body);
	}
	ask(&w, &(struct httpc_request){ .method = "HEAD", .path = "/h" }, &r);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.body.len, 0);
	ask(&w,
	    &(struct httpc_request){
		    .method = "POST", .path = "/echo", .body = "{\"a\":1}", .body_bytes = 7 },
	    &r);
	assert_string_equal(r.body.buf, "{\"a\":1}");
	assert_string_equal(r.type, "none");
	strbuf_release(&r.body);
	world_close(&w);
	stop(&s);
}

/* Every connection gets its number: a kept one is seen. */
static void count_connections(int listener)
{
	for (int i = 1;; i++) {
		struct peer p = { .fd = accept(listener, NULL, NULL) };
		char buf[4096], out[128];

		while (read(p.fd, buf, sizeof(buf)) > 0) {
			(void)snprintf(out, sizeof(out), OK "Content-Length: 1\r\n\r\n%d", i);
			put(&p, out);
			if (i == 2)
				break; /* the third request finds it closed */
		}
		fd_close(p.fd);
	}
}

TEST(a_connection_is_kept_and_a_closed_one_replaced)
{
	struct server s;
	struct world w;
	struct result r;

	serve(&s, count_connections);
	world_open(&w, &s);
	for (int i = 0; i < 3; i++) {
		get(&w, "/", &r);
		assert_string_equal(r.body.buf, "1");
		strbuf_release(&r.body);
	}
	world_close(&w);
	world_open(&w, &s);
	get(&w, "/", &r);
	assert_string_equal(r.body.buf, "2");
	strbuf_release(&r.body);
	(void)usleep(20000);
	get(&w, "/", &r);
	assert_string_equal(r.body.buf, "3");
	strbuf_release(&r.body);
	world_close(&w);
	stop(&s);
}

/* ---- hostile answers ---- */

static const char *hostile;
static size_t hostile_repeat;
static bool hostile_reset;

static void answer_hostile(int listener)
{
	for (;;) {
		struct peer p = { .fd = accept(listener, NULL, NULL) };
		struct linger off = { .l_onoff = 1 };
		char buf[65536];

		drain(p.fd, buf, sizeof(buf));
		put(&p, hostile);
		for (size_t i = 0; i < hostile_repeat; i++)
			put(&p, "X-Filler: 0123456789012345678901234567890123456789\r\n");
		if (hostile_reset)
			(void)setsockopt(p.fd, SOL_SOCKET, SO_LINGER, &off, sizeof(off));
		fd_close(p.fd);
	}
}

TEST(what_is_not_http_or_broken_off_is_an_error)
{
	static const struct {
		const char *text;
		size_t repeat;
		bool reset;
		enum garret_code code;
	} cases[] = {
		{ "", 0, false, GARRET_UNAVAILABLE },
		{ "", 0, true, GARRET_UNAVAILABLE },
		{ "SSH-2.0-OpenSSH_9.2\r\n", 0, false, GARRET_PROTOCOL },
		{ "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", 0, false,
		  GARRET_UNAVAILABLE },
		{ "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc", 0, false, GARRET_PROTOCOL },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 0, false,
		  GARRET_PROTOCOL },
		{ "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 0, false,
		  GARRET_UNAVAILABLE },
		{ "HTTP/1.1 200 OK\r\n", 4000, false, GARRET_PROTOCOL },
		{ "HTTP/1.1 101 Switching Protocols\r\n\r\n", 0, false, GARRET_PROTOCOL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		static const char *const headers[] = { "Authorization: " SECRET, NULL };
		struct server s;
		struct world w;
		struct result r;

		hostile = cases[i].text;
		hostile_repeat = cases[i].repeat;
		hostile_reset = cases[i].reset;
		serve_tcp(&s, answer_hostile, false);
		world_open(&w, &s);
		ask(&w,
		    &(struct httpc_request){
			    .method = "GET", .path = "/?k=do-not-show", .headers = headers },
		    &r);
		if (r.err.code != cases[i].code)
			fail_msg("case %zu: %s: %s", i, garret_code_name((int)r.err.code),
				 r.err.msg);
		assert_null(strstr(r.err.msg, "do-not-show"));
		assert_non_null(strstr(r.err.msg, "localhost"));
		strbuf_release(&r.body);
		world_close(&w);
		stop(&s);
	}
}

TEST(nobody_there_and_an_unknown_name_are_unavailable)
{
	struct server s = { .url = "http://localhost:1" };
	struct world w;
	struct result r;

	world_open(&w, &s);
	get(&w, "/", &r);
	assert_int_equal(r.err.code, GARRET_UNAVAILABLE);
	assert_non_null(strstr(r.err.msg, "http://localhost:1"));
	world_close(&w);

	(void)snprintf(s.url, sizeof(s.url), "http://no-such-host.invalid");
	world_open(&w, &s);
	get(&w, "/", &r);
	assert_int_equal(r.err.code, GARRET_UNAVAILABLE);
	world_close(&w);

	s = (struct server){ .url = "http://x", .path = "/nonexistent/socket" };
	world_open(&w, &s);
	get(&w, "/", &r);
	assert_int_equal(r.err.code, GARRET_UNAVAILABLE);
	assert_string_equal(r.err.msg,
			    "unix:/nonexistent/socket: can't connect: No such file or directory");
	world_close(&w);
}

TEST(a_wrong_request_or_address_is_refused)
{
	static const char *const split[] = { "X: a\r\nY: b", NULL };
	static const char *const urls[] = { "ftp://x", "http://", "http://user:pw@host",
					    "http://host/path", "host" };
	struct garret_error err = { 0 };
	struct server s = { .url = "http://x", .path = "/nonexistent/socket" };
	struct httpc *h = NULL;
	struct world w;

	world_open(&w, &s);
	assert_null(httpc_start(w.h, &(struct httpc_request){ .method = "GET", .path = "x" },
				&collected, NULL, &err));
	assert_null(httpc_start(w.h, &(struct httpc_request){ .method = "GET", .path = "/ x" },
				&collected, NULL, &err));
	assert_null(httpc_start(
		w.h, &(struct httpc_request){ .method = "GET", .path = "/", .headers = split },
		&collected, NULL, &err));
	for (size_t i = 0; i < ARRAY_SIZE(urls); i++) {
		assert_int_equal(
			httpc_new(w.loop, &(struct httpc_target){ .url = urls[i] }, &h, &err),
			-GARRET_INVALID);
		assert_null(strstr(err.msg, "pw"));
	}
	world_close(&w);
}

/* ---- bounds, pauses ---- */

#define MUCH (8u << 20)

static void answer_much(int listener)
{
	for (;;) {
		struct peer p = { .fd = accept(listener, NULL, NULL) };
		static char block[65536];
		char head[128], buf[4096];

		drain(p.fd, buf, sizeof(buf));
		(void)snprintf(head, sizeof(head), OK "Content-Length: %u\r\n\r\n", MUCH);
		put(&p, head);
		for (size_t i = 0; i < sizeof(block); i++)
			block[i] = (char)(i * 7);
		for (size_t i = 0; i < MUCH / sizeof(block); i++)
			put_all(&p, block, sizeof(block));
		fd_close(p.fd);
	}
}

TEST(more_than_the_bound_is_too_large)
{
	struct server s;
	struct world w;
	struct result r;

	serve(&s, answer_much);
	world_open(&w, &s);
	ask(&w, &(struct httpc_request){ .method = "GET", .path = "/", .max_bytes = 100000 }, &r);
	assert_int_equal(r.err.code, GARRET_TOO_LARGE);
	strbuf_release(&r.body);
	world_close(&w);
	stop(&s);
}

static void on_resume(struct loop_timer *t)
{
	struct result *r = t->ctx;

	httpc_pause(r->call, false);
}

static void on_much(void *ctx, const void *data, size_t n)
{
	struct result *r = ctx;

	assert_int_equal(r->heads, 1);
	assert_int_equal(r->w->tick.index, 0); /* not while paused */
	for (size_t i = 0; i < n; i++)
		r->sum += (uint64_t)((const unsigned char *)data)[i] * ((r->bytes + i) % 65536 + 1);
	r->bytes += n;
	if (r->bytes / (1u << 20) > r->pauses) {
		r->pauses++;
		httpc_pause(r->call, true);
		loop_timer_set(r->w->loop, &r->w->tick, now_ms() + 20, on_resume, r);
	}
}

static void on_head(void *ctx, const struct httpc_answer *a)
{
	struct result *r = ctx;

	assert_int_equal(a->status, 200);
	r->heads++;
}

TEST(a_streamed_answer_can_be_paused_and_is_whole)
{
	static const struct httpc_events events = { .head = on_head,
						    .data = on_much,
						    .end = on_end };
	struct server s;
	struct world w;
	struct result r = { .w = &w, .body = STRBUF_INIT };
	uint64_t sum = 0;

	for (uint64_t i = 0; i < 65536; i++)
		sum += (uint64_t)(unsigned char)(i * 7) * (i + 1);
	serve(&s, answer_much);
	world_open(&w, &s);
	/* Its time of idleness is shorter than all the pauses together, longer than one. */
	r.call = httpc_start(
		w.h, &(struct httpc_request){ .method = "GET", .path = "/", .idle_ms = 5000 },
		&events, &r, NULL);
	(void)loop_run(w.loop);
	assert_string_equal(r.err.msg, "");
	assert_int_equal(r.bytes, MUCH);
	assert_true(r.sum == sum * (MUCH / 65536));
	assert_true(r.pauses >= 7);
	world_close(&w);
	stop(&s);
}

TEST(a_pause_of_ours_is_no_idleness)
{
	static const struct httpc_events events = { .head = on_head,
						    .data = on_much,
						    .end = on_end };
	struct server s;
	struct world w;
	struct result r = { .w = &w, .body = STRBUF_INIT };

	serve(&s, answer_much);
	world_open(&w, &s);
	r.call = httpc_start(
		w.h, &(struct httpc_request){ .method = "GET", .path = "/", .idle_ms = 100 },
		&events, &r, NULL);
	r.pauses = 6;
	httpc_pause(r.call, true);
	loop_timer_set(w.loop, &w.tick, now_ms() + 400, on_resume, &r);
	(void)loop_run(w.loop);
	assert_string_equal(r.err.msg, "");
	assert_int_equal(r.bytes, MUCH);
	world_close(&w);
	stop(&s);
}

/* Sums a body of chunks or of a length; answers with how much it was. */
static void take_body(int listener)
{
	for (;;) {
		struct peer p = { .fd = accept(listener, NULL, NULL) };
		char buf[65536], out[256];
		size_t n = get_head(&p, buf, sizeof(buf));
		const bool chunked = strcasestr(buf, "transfer-encoding: chunked");
		const char *length = strcasestr(buf, "content-length: ");
		char *body = strstr(buf, "\r\n\r\n") + 4;
		size_t have = n - (size_t)(body - buf), total = have;
		char tail[8] = "", number[32];
		const uint64_t due = length ? strtoull(length + 16, NULL, 10) : 0;
		bool early = strstr(buf, " /early ");

		if (early) {
			put(&p, "HTTP/1.1 413 No\r\nContent-Length: 3\r\n\r\nbig");
			(void)usleep(200000);
			fd_close(p.fd);
			continue;
		}
		while (chunked ? memcmp(tail, "0\r\n\r\n", 5) != 0 : total < due) {
			ssize_t got = read(p.fd, buf, sizeof(buf));

			if (got <= 0)
				_exit(1);
			total += (size_t)got;
			for (ssize_t i = MAX(got - 5, 0); i < got; i++) {
				memmove(tail, tail + 1, 4);
				tail[4] = buf[i];
			}
			(void)usleep(100);
		}
		(void)snprintf(number, sizeof(number), "%zu", total);
		(void)snprintf(out, sizeof(out), OK "Content-Length: %zu\r\n\r\n%s", strlen(number),
			       number);
		put(&p, out);
		fd_close(p.fd);
	}
}

struct upload {
	struct result r; /* first */
	uint64_t left;
	unsigned rooms;
};

static void on_room(void *ctx)
{
	static char block[100000];
	struct upload *u = ctx;

	u->rooms++;
	while (u->left) {
		size_t n = MIN(u->left, sizeof(block));
		size_t taken = httpc_body(u->r.call, block, n);

		u->left -= taken;
		if (taken < n)
			return;
	}
	httpc_body_end(u->r.call);
}

static void begin_slowly(struct loop_timer *t)
{
	on_room(t->ctx);
}

static const struct httpc_events uploading = { .room = on_room, .end = on_end };

TEST(a_streamed_body_goes_out_as_it_comes)
{
	struct server s;
	struct world w;

	serve(&s, take_body);
	world_open(&w, &s);
	for (int i = 0; i < 2; i++) {
		struct upload u = { .r = { .w = &w, .body = STRBUF_INIT }, .left = MUCH };

		u.r.call = httpc_start(
			w.h,
			&(struct httpc_request){ .method = "PUT",
						 .path = "/x",
						 .streamed = true,
						 .length = i ? (int64_t)MUCH : HTTPC_CHUNKED },
			&uploading, &u, NULL);
		/* Not from the start: curl waits for the first byte. */
		loop_timer_set(w.loop, &w.tick, now_ms() + 50, begin_slowly, &u);
		(void)loop_run(w.loop);
		assert_string_equal(u.r.err.msg, "");
		assert_int_equal(u.r.status, 200);
		assert_true(u.rooms > 10);
		if (i)
			assert_string_equal(u.r.body.buf, "8388608");
		else
			assert_true(strtoull(u.r.body.buf, NULL, 10) > MUCH);
		strbuf_release(&u.r.body);
	}
	world_close(&w);
	stop(&s);
}

TEST(an_answer_before_the_body_is_taken_is_heard)
{
	struct server s;
	struct world w;
	struct upload u = { .r = { .w = &w, .body = STRBUF_INIT }, .left = 1u << 30 };

	serve(&s, take_body);
	world_open(&w, &s);
	u.r.call = httpc_start(w.h,
			       &(struct httpc_request){ .method = "POST",
							.path = "/early",
							.streamed = true,
							.length = HTTPC_CHUNKED },
			       &uploading, &u, NULL);
	on_room(&u);
	(void)loop_run(w.loop);
	assert_int_equal(u.r.status, 413);
	assert_string_equal(u.r.body.buf, "big");
	assert_true(u.left > 1u << 29);
	strbuf_release(&u.r.body);
	world_close(&w);
	stop(&s);
}

/* ---- time, cancelling ---- */

static void answer_never(int listener)
{
	struct peer p = { .fd = accept(listener, NULL, NULL) };
	char buf[4096];

	drain(p.fd, buf, sizeof(buf));
	if (strstr(buf, " /drip "))
		for (;;) {
			put(&p, "HTTP/1.1 100 Continue\r\n\r\n");
			(void)usleep(20000);
		}
	(void)pause();
}

TEST(time_limits_hold)
{
	static const struct httpc_request rq[] = {
		{ .method = "GET", .path = "/", .total_ms = 200 },
		{ .method = "GET", .path = "/", .idle_ms = 200 },
		{ .method = "GET", .path = "/drip ", .total_ms = 300, .idle_ms = 100 },
	};

	for (size_t i = 0; i < 2; i++) {
		struct server s;
		struct world w;
		struct result r;
		uint64_t start = now_ms();

		serve(&s, answer_never);
		world_open(&w, &s);
		ask(&w, &rq[i], &r);
		assert_int_equal(r.err.code, GARRET_TIMEOUT);
		assert_in_range(now_ms() - start, 190, 2000);
		world_close(&w);
		stop(&s);
	}
}

TEST(what_drips_is_ended_by_the_whole_limit_not_by_the_idle_one)
{
	struct server s;
	struct world w;
	struct result r;
	uint64_t start = now_ms();

	serve(&s, answer_never);
	world_open(&w, &s);
	ask(&w,
	    &(struct httpc_request){
		    .method = "GET", .path = "/drip", .total_ms = 400, .idle_ms = 200 },
	    &r);
	assert_int_equal(r.err.code, GARRET_TIMEOUT);
	assert_in_range(now_ms() - start, 390, 2000);
	world_close(&w);
	stop(&s);
}

static void never(void *ctx, const struct httpc_answer *a, const struct garret_error *err)
{
	(void)ctx;
	(void)a;
	(void)err;
	fail_msg("a cancelled call ended");
}

static void cancel_inside(void *ctx, const void *data, size_t n)
{
	struct result *r = ctx;

	(void)data;
	(void)n;
	assert_int_equal(r->ends++, 0);
	httpc_cancel(r->call);
	loop_timer_set(r->w->loop, &r->w->tick, now_ms() + 100, on_guard, NULL);
	loop_quit(r->w->loop, 0);
}

static void quit_on_tick(struct loop_timer *t)
{
	loop_quit(t->ctx, 0);
}

TEST(a_cancelled_call_says_nothing)
{
	static const struct httpc_events inside = { .data = cancel_inside, .end = never };
	static const struct httpc_events silent = { .end = never };
	struct server s;
	struct world w;
	struct result r = { .w = &w };
	struct httpc_call *c;

	serve(&s, answer_much);
	world_open(&w, &s);
	/* Before curl knows it, while it is under way, from inside its callback. */
	c = httpc_start(w.h, &(struct httpc_request){ .method = "GET", .path = "/" }, &silent, NULL,
			NULL);
	httpc_cancel(c);
	r.call = httpc_start(w.h, &(struct httpc_request){ .method = "GET", .path = "/" }, &inside,
			     &r, NULL);
	(void)loop_run(w.loop);
	loop_timer_set(w.loop, &w.tick, now_ms() + 50, quit_on_tick, w.loop);
	c = httpc_start(w.h, &(struct httpc_request){ .method = "GET", .path = "/" }, &silent, NULL,
			NULL);
	httpc_pause(c, true);
	(void)loop_run(w.loop);
	httpc_cancel(c);
	/* One is left for httpc_free(). */
	c = httpc_start(w.h, &(struct httpc_request){ .method = "GET", .path = "/" }, &silent, NULL,
			NULL);
	world_close(&w);
	assert_int_equal(r.ends, 1);
	stop(&s);
}

/* ---- another protocol ---- */

static const char *raw_answer;
static char *cert_pem, *key_pem;
static bool tls_on, want_client, abrupt;

static SSL_CTX *server_ctx(void)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	BIO *b = BIO_new_mem_buf(cert_pem, -1);
	X509 *x = PEM_read_bio_X509(b, NULL, NULL, NULL);
	EVP_PKEY *k;

	BIO_free(b);
	b = BIO_new_mem_buf(key_pem, -1);
	k = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
	BIO_free(b);
	(void)SSL_CTX_use_certificate(ctx, x);
	(void)SSL_CTX_use_PrivateKey(ctx, k);
	if (want_client) {
		(void)X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x);
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	}
	return ctx;
}

/* Greets, then echoes until the end of what comes, says "bye" and ends. */
static void answer_raw(int listener)
{
	SSL_CTX *ctx = tls_on ? server_ctx() : NULL;

	for (;;) {
		struct peer p = { .fd = accept(listener, NULL, NULL) };
		char buf[65536], *body;
		ssize_t n;
		size_t len;

		if (ctx) {
			p.ssl = SSL_new(ctx);
			(void)SSL_set_fd(p.ssl, p.fd);
			if (SSL_accept(p.ssl) != 1) {
				SSL_free(p.ssl);
				fd_close(p.fd);
				continue;
			}
		}
		len = get_head(&p, buf, sizeof(buf));
		body = strstr(buf, "\r\n\r\n") + 4;
		put(&p, raw_answer);
		if (strstr(buf, "Content-Length: 2") && (size_t)(body - buf) + 2 > len)
			(void)get_some(&p, body, 2);
		if (!strncmp(raw_answer, "HTTP/1.1 101", 12) || strstr(raw_answer, "raw-stream")) {
			put(&p, "welcome");
			while (!abrupt && (n = get_some(&p, buf, sizeof(buf))) > 0)
				put_all(&p, buf, (size_t)n);
			if (!abrupt)
				put(&p, "bye");
			if (p.ssl && !abrupt)
				(void)SSL_shutdown(p.ssl);
		}
		if (p.ssl)
			SSL_free(p.ssl);
		fd_close(p.fd);
	}
}

struct raw_result {
	struct world *w;
	struct httpc_raw *raw;
	unsigned opens, ends;
	int status;
	struct garret_error err;
	struct strbuf in, refusal;
	uint64_t to_write, bytes;
	unsigned pauses;
	bool free_at_open;
};

static void write_more(struct raw_result *r)
{
	static char block[30000];

	memset(block, 'w', sizeof(block));
	while (r->to_write) {
		size_t n = MIN(r->to_write, sizeof(block));
		size_t taken = httpc_raw_write(r->raw, block, n);

		r->to_write -= taken;
		if (taken < n)
			return;
	}
	httpc_raw_shutdown(r->raw);
}

static void raw_open(void *ctx, const struct httpc_answer *a)
{
	struct raw_result *r = ctx;

	r->opens++;
	r->status = a->status;
	if (r->free_at_open) {
		r->raw = httpc_raw_free(r->raw);
		loop_quit(r->w->loop, 0);
		return;
	}
	write_more(r);
}

static void raw_resume(struct loop_timer *t)
{
	struct raw_result *r = t->ctx;

	httpc_raw_pause(r->raw, false);
}

static void raw_data(void *ctx, const void *data, size_t n)
{
	struct raw_result *r = ctx;

	assert_int_equal(r->w->tick.index, 0);
	r->bytes += n;
	if (r->in.len < 64)
		strbuf_add(&r->in, data, MIN(n, 64));
	if (r->bytes >> 20 > r->pauses) {
		r->pauses++;
		httpc_raw_pause(r->raw, true);
		loop_timer_set(r->w->loop, &r->w->tick, now_ms() + 20, raw_resume, r);
	}
	if (n >= 3 && !memcmp((const char *)data + n - 3, "bye", 3))
		strbuf_addstr(&r->refusal, "bye");
}

static void raw_room(void *ctx)
{
	write_more(ctx);
}

static void raw_end(void *ctx, const struct httpc_answer *a, const struct garret_error *err)
{
	struct raw_result *r = ctx;

	r->ends++;
	if (err)
		r->err = *err;
	if (a) {
		r->status = a->status;
		strbuf_add(&r->refusal, a->body->buf, a->body->len);
	}
	loop_quit(r->w->loop, 0);
}

static const struct httpc_raw_events raw_events = {
	.open = raw_open, .data = raw_data, .room = raw_room, .end = raw_end
};

static void upgrade(struct world *w, struct raw_result *r, uint64_t bytes, bool free_at_open)
{
	static const char *const headers[] = { "Connection: Upgrade", "Upgrade: tcp",
					       "Authorization: " SECRET, NULL };
	struct garret_error err = { 0 };

	*r = (struct raw_result){ .w = w,
				  .in = STRBUF_INIT,
				  .refusal = STRBUF_INIT,
				  .to_write = bytes,
				  .free_at_open = free_at_open };
	r->raw = httpc_upgrade(w->h,
			       &(struct httpc_request){ .method = "POST",
							.path = "/exec/1/start",
							.headers = headers,
							.body = "{}",
							.body_bytes = 2,
							.total_ms = 3000,
							.raw_200 = true },
			       &raw_events, r, &err);
	assert_non_null(r->raw);
	(void)loop_run(w->loop);
}

static void raw_release(struct raw_result *r)
{
	r->raw = httpc_raw_free(r->raw);
	strbuf_release(&r->in);
	strbuf_release(&r->refusal);
}

/* Both directions, with back-pressure, half close, over what `s` is. */
static void check_raw(const struct server *s, int status)
{
	struct world w;
	struct raw_result r;

	world_open(&w, s);
	upgrade(&w, &r, 4u << 20, false);
	assert_string_equal(r.err.msg, "");
	assert_int_equal(r.opens, 1);
	assert_int_equal(r.status, status);
	assert_memory_equal(r.in.buf, "welcome", 7);
	assert_int_equal(r.bytes, (4u << 20) + 10);
	assert_string_equal(r.refusal.buf, "bye");
	assert_true(r.pauses >= 4);
	raw_release(&r);
	upgrade(&w, &r, 10, true);
	assert_int_equal(r.opens, 1);
	assert_int_equal(r.ends, 0);
	raw_release(&r);
	world_close(&w);
}

#define UPGRADED "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"

TEST(a_connection_goes_over_to_a_raw_stream)
{
	struct server s;

	raw_answer = UPGRADED;
	serve(&s, answer_raw);
	check_raw(&s, 101);
	stop(&s);
	serve_tcp(&s, answer_raw, false);
	check_raw(&s, 101);
	stop(&s);
	raw_answer = OK "Content-Type: application/vnd.docker.raw-stream\r\n\r\n";
	serve(&s, answer_raw);
	check_raw(&s, 200);
	stop(&s);
}

TEST(a_refused_upgrade_says_why)
{
	static const char *const answers[] = {
		"HTTP/1.1 409 Conflict\r\nContent-Length: 7\r\n\r\nstopped",
		"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nstop\r\n3\r\nped\r\n0\r\n\r\n",
		"HTTP/1.1 409 Conflict\r\n\r\nstopped",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 409 Conflict\r\nContent-Length: 7\r\n\r\nstopped",
	};

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		struct server s;
		struct world w;
		struct raw_result r;

		raw_answer = answers[i];
		serve(&s, answer_raw);
		world_open(&w, &s);
		upgrade(&w, &r, 1, false);
		assert_string_equal(r.err.msg, "");
		assert_int_equal(r.status, 409);
		assert_int_equal(r.opens, 0);
		assert_string_equal(r.refusal.buf, "stopped");
		raw_release(&r);
		world_close(&w);
		stop(&s);
	}
}

TEST(a_hostile_or_absent_other_side_of_an_upgrade_is_an_error)
{
	static const struct {
		const char *text;
		enum garret_code code;
	} cases[] = { { "", GARRET_UNAVAILABLE },
		      { "220 mail ESMTP\r\n\r\n", GARRET_PROTOCOL },
		      { "HTTP/1.1 4x4 Conflict\r\n\r\n", GARRET_PROTOCOL },
		      { "HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
			GARRET_PROTOCOL } };
	struct server s = { .url = "http://localhost:1" };
	struct world w;
	struct raw_result r;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		raw_answer = cases[i].text;
		serve(&s, answer_raw);
		world_open(&w, &s);
		upgrade(&w, &r, 1, false);
		if (r.err.code != cases[i].code)
			fail_msg("case %zu: %s: %s", i, garret_code_name((int)r.err.code),
				 r.err.msg);
		assert_null(strstr(r.err.msg, "do-not-show"));
		raw_release(&r);
		world_close(&w);
		stop(&s);
	}
	s = (struct server){ .url = "http://localhost:1" };
	world_open(&w, &s);
	upgrade(&w, &r, 1, false);
	assert_int_equal(r.err.code, GARRET_UNAVAILABLE);
	raw_release(&r);
	world_close(&w);
	serve(&s, answer_never);
	world_open(&w, &s);
	upgrade(&w, &r, 1, false);
	assert_int_equal(r.err.code, GARRET_TIMEOUT);
	raw_release(&r);
	world_close(&w);
	stop(&s);
}

/* ---- TLS ---- */

static char *pem_of(BIO *b)
{
	char *data;
	long n = BIO_get_mem_data(b, &data);
	char *text = xstrndup(data, (size_t)n);

	BIO_free(b);
	return text;
}

/* A certificate for that name, its own CA. */
static void make_cert(const char *name)
{
	EVP_PKEY *k = EVP_EC_gen("P-256");
	X509 *x = X509_new();
	BIO *b = BIO_new(BIO_s_mem());
	char san[64];
	X509_EXTENSION *e;

	(void)snprintf(san, sizeof(san), "DNS:%s", name);
	(void)X509_set_version(x, 2);
	(void)ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
	(void)X509_gmtime_adj(X509_getm_notBefore(x), -3600);
	(void)X509_gmtime_adj(X509_getm_notAfter(x), 3600);
	(void)X509_set_pubkey(x, k);
	(void)X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
					 (const unsigned char *)name, -1, -1, 0);
	(void)X509_set_issuer_name(x, X509_get_subject_name(x));
	e = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, san);
	(void)X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
	(void)X509_sign(x, k, EVP_sha256());
	(void)PEM_write_bio_X509(b, x);
	cert_pem = pem_of(b);
	b = BIO_new(BIO_s_mem());
	(void)PEM_write_bio_PrivateKey(b, k, NULL, NULL, 0, NULL, NULL);
	key_pem = pem_of(b);
	X509_free(x);
	EVP_PKEY_free(k);
}

static void drop_cert(void)
{
	free(cert_pem);
	free(key_pem);
	cert_pem = key_pem = NULL;
	tls_on = want_client = abrupt = false;
}

/* The same for a plain request, which curl's own TLS carries. */
static void answer_tls(int listener)
{
	SSL_CTX *ctx = server_ctx();

	for (;;) {
		struct peer p = { .fd = accept(listener, NULL, NULL), .ssl = SSL_new(ctx) };
		char buf[65536];

		(void)SSL_set_fd(p.ssl, p.fd);
		if (SSL_accept(p.ssl) == 1)
			while (get_some(&p, buf, sizeof(buf)) > 0)
				put(&p, OK "Content-Length: 6\r\n\r\nsecure");
		SSL_free(p.ssl);
		fd_close(p.fd);
	}
}

TEST(tls_checks_the_certificate_and_its_name)
{
	static const struct {
		const char *name;
		bool trusted, client, no_verify;
		enum garret_code code; /* of a plain request; an upgrade gives the same */
	} cases[] = {
		{ "localhost", true, false, false, GARRET_OK },
		{ "localhost", true, true, false, GARRET_OK },
		{ "localhost", false, false, false, GARRET_DENIED },
		{ "elsewhere", true, false, false, GARRET_DENIED },
		{ "elsewhere", false, false, true, GARRET_OK },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct server s;
		struct world w;
		struct result r;
		struct raw_result raw;
		char *other;

		make_cert("localhost"); /* another CA, of the same name */
		other = take_ptr(&cert_pem);
		drop_cert();
		make_cert(cases[i].name);
		want_client = cases[i].client;
		tls_on = true;
		for (int over = 0; over < 2; over++) {
			raw_answer = UPGRADED;
			serve_tcp(&s, over ? answer_raw : answer_tls, true);
			s.tls.ca = cases[i].no_verify ? NULL : cases[i].trusted ? cert_pem : other;
			s.tls.no_verify = cases[i].no_verify;
			if (want_client) {
				s.tls.cert = cert_pem;
				s.tls.key = key_pem;
			}
			if (over && cases[i].code == GARRET_OK) {
				check_raw(&s, 101);
			} else if (over) {
				world_open(&w, &s);
				upgrade(&w, &raw, 1, false);
				assert_int_equal(raw.err.code, cases[i].code);
				assert_int_equal(raw.opens, 0);
				raw_release(&raw);
				world_close(&w);
			} else {
				world_open(&w, &s);
				get(&w, "/", &r);
				if (r.err.code != cases[i].code)
					fail_msg("case %zu: %s", i, r.err.msg);
				assert_string_equal(r.body.buf, r.err.code ? "" : "secure");
				strbuf_release(&r.body);
				world_close(&w);
			}
			stop(&s);
		}
		free(other);
		drop_cert();
	}
}

TEST(tls_without_a_wanted_client_certificate_and_to_no_tls_fails)
{
	struct server s;
	struct world w;
	struct raw_result raw;
	struct result r;

	make_cert("localhost");
	tls_on = want_client = true;
	raw_answer = UPGRADED;
	serve_tcp(&s, answer_raw, true);
	s.tls.ca = cert_pem;
	world_open(&w, &s);
	upgrade(&w, &raw, 1, false);
	assert_int_not_equal(raw.err.code, GARRET_OK);
	assert_int_equal(raw.opens, 0);
	raw_release(&raw);
	world_close(&w);
	stop(&s);

	hostile = "HTTP/1.1 400 Bad\r\n\r\n";
	hostile_repeat = 0;
	hostile_reset = false;
	serve_tcp(&s, answer_hostile, true);
	s.tls.ca = cert_pem;
	world_open(&w, &s);
	get(&w, "/", &r);
	assert_int_equal(r.err.code, GARRET_PROTOCOL);
	upgrade(&w, &raw, 1, false);
	assert_int_equal(raw.err.code, GARRET_PROTOCOL);
	raw_release(&raw);
	world_close(&w);
	stop(&s);
	drop_cert();
}

TEST(a_tls_stream_that_is_cut_off_did_not_end)
{
	struct server s;
	struct world w;
	struct raw_result r;

	make_cert("localhost");
	tls_on = abrupt = true;
	raw_answer = UPGRADED;
	serve_tcp(&s, answer_raw, true);
	s.tls.ca = cert_pem;
	world_open(&w, &s);
	upgrade(&w, &r, 0, false);
	assert_int_equal(r.opens, 1);
	assert_int_equal(r.err.code, GARRET_UNAVAILABLE);
	raw_release(&r);
	world_close(&w);
	stop(&s);
	drop_cert();
}

TEST(tls_material_that_is_none_is_refused_at_once)
{
	struct garret_error err = { 0 };
	struct loop *l = NULL;
	struct httpc *h = NULL;
	struct httpc_tls tls[] = { { .ca = "no" }, { .cert = "no", .key = "no" }, { .cert = "x" } };

	assert_int_equal(loop_new(&l, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(tls); i++)
		assert_int_equal(
			httpc_new(l, &(struct httpc_target){ .url = "https://x", .tls = &tls[i] },
				  &h, &err),
			-GARRET_INVALID);
	loop_free(l);
}

TEST_MAIN
