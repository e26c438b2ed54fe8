/*
 * The client: how answers end, what isn't HTTP, connections that are kept.  A
 * child answers from a script, the test asks.
 */
#include <fcntl.h>
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
#include "net/http1.h"
#include "test.h"

#define OK "HTTP/1.1 200 OK\r\n"
#define LENGTH(n) OK "Content-Length: " #n "\r\n\r\n"
#define CHUNKED OK "Transfer-Encoding: chunked\r\n\r\n"

struct server {
	struct http1_target target;
	char dir[32];
	pid_t pid;
};

/* Each text answers one request (a head; bodies aren't read); "" closes the connection. */
static void answer(int listener, const char *const *texts)
{
	int fd = -EBADF;

	for (; *texts; texts++) {
		char buf[65536];

		if (fd < 0)
			fd = accept(listener, NULL, NULL);
		if (!**texts) {
			fd = fd_close(fd);
			continue;
		}
		if (read(fd, buf, sizeof(buf)) <= 0)
			_exit(2);
		/* In small pieces, so that everything is cut somewhere. */
		for (const char *p = *texts; *p; p++) {
			(void)write_full(fd, p, 1);
			if (p - *texts < 300)
				(void)usleep(50);
		}
	}
	fd_close(fd);
	_exit(0);
}

static void serve(struct server *s, const char *const *texts)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char url[64];

	(void)snprintf(s->dir, sizeof(s->dir), "/tmp/http1-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/s", s->dir);
	(void)snprintf(url, sizeof(url), "unix:%s/s", s->dir);
	assert_int_equal(http1_parse_url(url, &s->target, NULL), 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&sa, sizeof(sa)), 0);
	assert_int_equal(listen(listener, 4), 0);
	s->pid = fork();
	assert_true(s->pid >= 0);
	if (s->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)signal(SIGPIPE, SIG_IGN);
		answer(listener, texts);
	}
	fd_close(listener);
}

static void stop(struct server *s)
{
	(void)kill(s->pid, SIGKILL);
	(void)waitpid(s->pid, NULL, 0);
	assert_int_equal(remove_tree_at(AT_FDCWD, s->dir), 0);
}

static int ask(struct http1 *h, int *status, struct strbuf *body, struct garret_error *err)
{
	const struct http1_head q = { .method = "GET", .path = "/", .length = HTTP1_NO_BODY };
	int rc = http1_begin(h, &q, err);

	if (rc == 0)
		rc = http1_answer(h, status, err);
	return rc < 0 ? rc : http1_collect(h, 1000, body, err);
}

TEST(bodies_end_where_they_say)
{
	static const struct {
		const char *text;
		int rc;
		const char *body;
	} rows[] = {
		{ LENGTH(5) "hello", 0, "hello" },
		{ LENGTH(0), 0, "" },
		{ LENGTH(5) "hell", -GARRET_PROTOCOL, NULL },
		{ "HTTP/1.1 204 No\r\n\r\n", 0, "" },
		{ "HTTP/1.1 100 Continue\r\n\r\n" LENGTH(2) "ok", 0, "ok" },
		{ CHUNKED "5\r\nhello\r\n0\r\n\r\n", 0, "hello" },
		{ CHUNKED "2;x=y\r\nhe\r\n003 \r\nllo\r\n0\r\nTrailer: x\r\n\r\n", 0, "hello" },
		{ CHUNKED "A\r\n0123456789\r\n0\r\n\r\n", 0, "0123456789" },
		{ CHUNKED "0\r\n\r\n", 0, "" },
		{ CHUNKED "5\r\nhello\r\n", -GARRET_PROTOCOL, NULL },
		{ CHUNKED "5\r\nhello\r\n0\r\n", -GARRET_PROTOCOL, NULL },
		{ CHUNKED "5\r\nhelloX\r\n0\r\n\r\n", -GARRET_PROTOCOL, NULL },
		{ CHUNKED "\r\n", -GARRET_PROTOCOL, NULL },
		{ CHUNKED "0x5\r\nhello\r\n0\r\n\r\n", -GARRET_PROTOCOL, NULL },
		{ CHUNKED " 5\r\nhello\r\n0\r\n\r\n", -GARRET_PROTOCOL, NULL },
		{ CHUNKED "ffffffffffffffffff\r\nhello", -GARRET_PROTOCOL, NULL },
		{ OK "\r\nno length", -GARRET_PROTOCOL, NULL },
		{ OK "Content-Length: +5\r\n\r\nhello", -GARRET_PROTOCOL, NULL },
		{ "HTTP/1.1 2x0\r\n\r\n", -GARRET_PROTOCOL, NULL },
		{ "220 smtp.example\r\n\r\n", -GARRET_PROTOCOL, NULL },
		{ OK "Content-", -GARRET_PROTOCOL, NULL },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *const texts[] = { rows[i].text, NULL };
		autobuf struct strbuf body = STRBUF_INIT;
		struct server s;
		struct http1 h;
		int status = 0, rc;

		serve(&s, texts);
		http1_init(&h, &s.target);
		rc = ask(&h, &status, &body, NULL);
		if (rc != rows[i].rc || (rc == 0 && strcmp(body.buf, rows[i].body) != 0))
			fail_msg("row %zu: %d \"%s\"", i, rc, body.buf);
		assert_true(rc == 0 || h.fd < 0);
		http1_release(&h);
		stop(&s);
	}
}

TEST(a_connection_serves_several_requests)
{
	/* The third answer closes; the server of the fourth did so unasked. */
	static const char *const texts[] = { LENGTH(1) "1",
					     CHUNKED "1\r\n2\r\n0\r\n\r\n",
					     OK "Connection: close\r\nContent-Length: 1\r\n\r\n3",
					     "",
					     LENGTH(1) "4",
					     "",
					     LENGTH(1) "5",
					     NULL };
	autobuf struct strbuf body = STRBUF_INIT;
	struct server s;
	struct http1 h;
	int first = -1;

	serve(&s, texts);
	http1_init(&h, &s.target);
	for (int i = 1; i <= 5; i++) {
		int status = 0;

		assert_int_equal(ask(&h, &status, &body, NULL), 0);
		assert_int_equal(status, 200);
		assert_int_equal(body.buf[0], '0' + i);
		if (i == 1)
			first = h.fd;
		assert_true(i > 2 || h.fd == first);
		assert_true(i != 3 || h.fd < 0);
		if (i == 4)
			(void)usleep(20000);
	}
	http1_release(&h);
	stop(&s);
}

TEST(an_answer_before_the_end_of_the_body_ends_it)
{
	static const char *const texts[] = { "HTTP/1.1 413 No\r\nContent-Length: 2\r\n\r\nno",
					     NULL };
	const struct http1_head q = { .method = "PUT", .path = "/", .length = HTTP1_CHUNKED };
	static char piece[65536];
	autobuf struct strbuf body = STRBUF_INIT;
	struct server s;
	struct http1 h;
	int status = 0, rc = 0, sent = 0;

	serve(&s, texts);
	http1_init(&h, &s.target);
	assert_int_equal(http1_begin(&h, &q, NULL), 0);
	while (rc == 0 && sent++ < 100000)
		rc = http1_send(&h, piece, sizeof(piece), NULL);
	assert_int_equal(rc, 1);
	assert_int_equal(http1_answer(&h, &status, NULL), 0);
	assert_int_equal(status, 413);
	assert_int_equal(http1_collect(&h, 10, &body, NULL), 0);
	assert_string_equal(body.buf, "no");
	/* What was left of the body would be taken for the next request. */
	assert_true(h.fd < 0);
	http1_release(&h);
	stop(&s);
}

TEST(an_answer_is_bounded)
{
	static const char *const texts[] = { LENGTH(2000) "hello", NULL };
	autobuf struct strbuf body = STRBUF_INIT;
	struct strbuf head = STRBUF_INIT;
	struct garret_error err = { 0 };
	const char *endless[] = { NULL, NULL };
	struct server s;
	struct http1 h;
	int status = 0;

	serve(&s, texts);
	http1_init(&h, &s.target);
	assert_int_equal(ask(&h, &status, &body, &err), -GARRET_PROTOCOL);
	stop(&s);

	/* A head that never ends. */
	strbuf_addstr(&head, OK "X: ");
	while (head.len < 200000)
		strbuf_addch(&head, 'x');
	endless[0] = head.buf;
	serve(&s, endless);
	assert_int_equal(ask(&h, &status, &body, &err), -GARRET_PROTOCOL);
	http1_release(&h);
	strbuf_release(&head);
	stop(&s);
}

TEST(headers_are_found_by_their_whole_name)
{
	static const char *const texts[] = { OK
					     "X-Length: 7\r\ncontent-LENGTH: 1 \r\nempty:\r\n\r\nx",
					     NULL };
	autobuf struct strbuf body = STRBUF_INIT;
	struct server s;
	struct http1 h;
	char v[8] = "";
	int status = 0;

	serve(&s, texts);
	http1_init(&h, &s.target);
	assert_int_equal(ask(&h, &status, &body, NULL), 0);
	assert_true(http1_header(&h, "Content-Length", v, sizeof(v)));
	assert_string_equal(v, "1");
	assert_true(http1_header(&h, "Empty", v, sizeof(v)));
	assert_string_equal(v, "");
	assert_false(http1_header(&h, "Length", v, sizeof(v)));
	assert_false(http1_header(&h, "x-length", v, 1));
	http1_release(&h);
	stop(&s);
}

TEST_MAIN
