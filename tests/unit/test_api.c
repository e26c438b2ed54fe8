/*
 * The routes over a real socket: a child serves a fake service, the test is a
 * blocking client.  What the child holds is read from /proc.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "api/api.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/time.h"
#include "fake_service.h"
#include "test.h"

#define TOKEN "X-Sandbox-Token: service-token-for-tests\r\n"
#define RUN_ID "0123456789abcdef0123456789abcdef"

struct server {
	pid_t pid;
	uint16_t port;
};

static struct loop *child_loop;

static void on_drained(void *ctx)
{
	(void)ctx;
	loop_quit(child_loop, 0);
}

static void on_term(void *ctx, int signo)
{
	(void)signo;
	api_drain(ctx, now_ms() + 2000, on_drained, NULL);
}

static void serve(int report, unsigned max_connections, unsigned per_address)
{
	struct service *s;
	struct api *a = NULL;
	uint16_t port;
	int status;

	if (loop_new(&child_loop, NULL) < 0)
		_exit(9);
	s = fake_service_new(child_loop);
	fake_service_config(s)->max_connections = max_connections;
	fake_service_config(s)->max_connections_per_address = per_address;
	if (api_new(&a, child_loop, s, NULL) < 0 || api_listen(a, NULL, 0, NULL) < 0 ||
	    loop_signal(child_loop, SIGTERM, on_term, a, NULL) < 0)
		_exit(9);
	port = api_port(a);
	if (write_full(report, &port, sizeof(port)) < 0)
		_exit(9);
	status = loop_run(child_loop);
	a = api_free(a);
	s = fake_service_free(s);
	child_loop = loop_free(child_loop);
	exit(status);
}

static struct server server_start(unsigned max_connections, unsigned per_address)
{
	struct server srv = { 0 };
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	srv.pid = fork();
	assert_true(srv.pid >= 0);
	if (!srv.pid) {
		close(fds[0]);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no server */
		serve(fds[1], max_connections, per_address);
	}
	close(fds[1]);
	assert_int_equal(read_full(fds[0], &srv.port, sizeof(srv.port)), sizeof(srv.port));
	close(fds[0]);
	return srv;
}

static void server_stop(const struct server *srv)
{
	int status;

	kill(srv->pid, SIGTERM);
	assert_int_equal(waitpid(srv->pid, &status, 0), srv->pid);
	assert_int_equal(status, 0);
}

static int server_fds(const struct server *srv)
{
	autofree char *path = xasprintf("/proc/%d/fd", srv->pid);
	autodir DIR *d = opendir(path);
	int n = 0;

	while (d && readdir(d))
		n++;
	return n;
}

static void wait_for_fds(const struct server *srv, int want)
{
	uint64_t until = now_ms() + 7000;

	while (server_fds(srv) != want && now_ms() < until)
		usleep(20000);
	assert_int_equal(server_fds(srv), want);
}

/* ---- a client ---- */

static int dial(const struct server *srv)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_port = htons(srv->port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	static const struct timeval limit = { .tv_sec = 20 };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void say(int fd, const char *text, size_t n)
{
	while (n) {
		ssize_t w = send(fd, text, n, MSG_NOSIGNAL);

		if (w < 0)
			return; /* the server has closed: what it said counts */
		text += w;
		n -= (size_t)w;
	}
}

static void hear(int fd, struct strbuf *out)
{
	char buf[65536];
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0)
		strbuf_add(out, buf, (size_t)n);
}

/* A request on a connection of its own, the whole answer in out. */
static void ask(const struct server *srv, const char *line, const char *headers, const char *body,
		struct strbuf *out)
{
	autoclose int fd = dial(srv);
	autobuf struct strbuf rq = STRBUF_INIT;

	strbuf_addf(&rq, "%s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n%s", line, headers);
	if (body)
		strbuf_addf(&rq, "Content-Length: %zu\r\n", strlen(body));
	strbuf_addstr(&rq, "\r\n");
	if (body)
		strbuf_addstr(&rq, body);
	say(fd, rq.buf, rq.len);
	strbuf_reset(out);
	hear(fd, out);
}

static int status_of(const struct strbuf *answer)
{
	return answer->len > 12 ? (int)strtol(answer->buf + 9, NULL, 10) : 0;
}

static void open_session(const struct server *srv, const char *id)
{
	autobuf struct strbuf out = STRBUF_INIT;
	autofree char *body = xasprintf("{\"session_id\":\"%s\"}", id);

	ask(srv, "POST /sessions", TOKEN, body, &out);
	assert_int_equal(status_of(&out), 200);
}

/* ---- requests and what they get ---- */

struct expectation {
	const char *line, *headers, *body;
	int status;
	const char *says; /* somewhere in the answer */
};

static void expect(const struct server *srv, const struct expectation *cases, size_t n)
{
	autobuf struct strbuf out = STRBUF_INIT;

	for (size_t i = 0; i < n; i++) {
		ask(srv, cases[i].line, cases[i].headers, cases[i].body, &out);
		if (status_of(&out) != cases[i].status ||
		    (cases[i].says && !strstr(out.buf, cases[i].says)))
			fail_msg("%s %s: %s", cases[i].line, cases[i].body ? cases[i].body : "",
				 out.buf);
	}
}

#define RUN "POST /sessions/a/run"
#define ARGV(...) "{\"run_id\":\"" RUN_ID "\",\"argv\":[" __VA_ARGS__ "]}"

TEST(each_route_answers_with_its_shape)
{
	struct server srv = server_start(64, 0);
	static const struct expectation cases[] = {
		{ "GET /healthz", "", NULL, 200,
		  "{\"status\":\"ok\",\"sessions\":1,\"limit\":20,\"open_sessions\":1,"
		  "\"open_limit\":null,\"runtimes\":[\"host\"],\"ready\":true}" },
		{ "GET /", "", NULL, 200, "{\"service\":\"sandboxd\",\"health\":{" },
		{ "GET /policy", TOKEN, NULL, 200,
		  "\"native_files\":false,\"native_writes\":false,\"native_realpath\":false}" },
		{ "GET /sessions", TOKEN, NULL, 200,
		  "{\"sessions\":[{\"session_id\":\"a\",\"runtime\":\"host\",\"tenant\":null,\"alive\":true,\"state\":\"running\","
		  "\"created_at\":1795971124.885182,\"last_activity\":1795971125.0,\"idle_seconds\":0.25,\"usage\":null}],"
		  "\"limit\":20,\"open_limit\":null,\"tenant_limit\":null}" },
		{ "GET /sessions/a?usage=yes", "X-Sandbox-Token: token-a\r\n", NULL, 200,
		  "{\"session_id\":\"a\"" },
		{ RUN, TOKEN, ARGV("\"echo\",\"h\\u00e9\\ud800\""), 200,
		  "{\"stdout\":\"h\xc3\xa9\xef\xbf\xbd\",\"stderr\":\"\",\"exit_code\":0,\"timed_out\":false,"
		  "\"output_limited\":false,\"output_limit\":null}" },
		{ RUN, TOKEN, ARGV("\"error\""), 200,
		  "{\"stdout\":\"\",\"stderr\":\"oops\\n\",\"exit_code\":1," },
		{ RUN, TOKEN, ARGV("\"gone\""), 410, "{\"detail\":\"The sandbox is gone\"}" },
		{ RUN, TOKEN, ARGV("\"busy\""), 503, "retry-after: 1\r\n" },
		{ RUN, TOKEN, ARGV("\"lost\""), 500, "{\"detail\":" },
		{ "GET /sessions/a/events?after=3", TOKEN, NULL, 200,
		  "{\"events\":[{\"seq\":4,\"at\":1795971124.5,\"op\":\"run\",\"target\":\"echo\",\"ok\":true,\"detail\":\"exit 0\","
		  "\"duration_ms\":1.3}" },
		{ "POST /sessions/a/runs/" RUN_ID "/stop", TOKEN, NULL, 204,
		  "content-type: application/json\r\n" },
		{ "POST /sessions/a/files/read", TOKEN, "{\"path\":\"/x\"}", 409, "{\"detail\":" },
		{ "POST /sessions/a/files/write?path=/x", TOKEN, "\x01", 409, "{\"detail\":" },
		{ "POST /sessions", TOKEN, "{\"session_id\":\"a\"}", 409,
		  "\"reason\":\"exists\"}" },
		{ "GET /openapi.json", "", NULL, 200,
		  "\"/sessions/{session_id}/run\":{\"post\":{" },
		{ "GET /openapi.json", "", NULL, 200,
		  "\"/v1/sessions/{session_id}/file\":{\"get\":{" },
		{ "GET /openapi.json", "", NULL, 200,
		  "\"put\":{\"summary\":\"Unpack a tar archive\"" },
		{ "HEAD /docs", "", NULL, 200, "content-type: text/html" },
		{ "DELETE /sessions/a", "X-Sandbox-Token: token-a\r\n", NULL, 204, NULL },
		{ "GET /sessions/a", "X-Sandbox-Token: token-a\r\n", NULL, 410, "{\"detail\":" },
		{ "GET /sessions/a", TOKEN, NULL, 404, "{\"detail\":\"No such session: a\"}" },
	};

	open_session(&srv, "a");
	expect(&srv, cases, sizeof(cases) / sizeof(cases[0]));
	server_stop(&srv);
}

TEST(checks_come_in_the_order_of_the_wire)
{
	struct server srv = server_start(64, 0);
	static const struct expectation cases[] = {
		{ "GET /nothing", "", NULL, 404, "{\"detail\":\"Not Found\"}" },
		{ "POST /workspaces/a/mv", TOKEN, "{}", 404, "{\"detail\":\"Not Found\"}" },
		{ "DELETE /policy", "", NULL, 405, "allow: GET\r\n" },
		{ "PUT /sessions/a", "", NULL, 405, "allow: GET\r\n" },
		{ "HEAD /healthz", "", NULL, 405, NULL },
		{ "GET /healthz/?a=b", "", NULL, 307, "location: http://test/healthz?a=b\r\n" },
		{ "GET /sessions/a%2Fb", TOKEN, NULL, 404, "{\"detail\":\"Not Found\"}" },
		{ "GET /sessions/.a", "", NULL, 422, "\"loc\":[\"path\",\"session_id\"]" },
		{ "GET /sessions/a%00", TOKEN, NULL, 422, "\"loc\":[\"path\",\"session_id\"]" },
		{ "GET /sessions/a", "", NULL, 401,
		  "{\"detail\":\"Invalid or missing sandbox token\"}" },
		{ "GET /sessions/a", "X-Sandbox-Token: wrong\r\n" TOKEN, NULL, 401, NULL },
		{ "GET /sessions/a", "X-Sandbox-Token:  service-token-for-tests \r\n", NULL, 200,
		  NULL },
		{ "GET /sessions", "X-Sandbox-Token: token-a\r\n", NULL, 401, NULL },
		{ "GET /sessions/b", "X-Sandbox-Token: token-a\r\n", NULL, 401, NULL },
		{ "GET /sessions/a", "X-Sandbox-Token: ended-a\r\n", NULL, 410, NULL },
		{ "POST /sessions", "", "{", 401, NULL },
		{ "POST /sessions/b/run", TOKEN, "{", 404, NULL },
		{ RUN, TOKEN, "{", 422, "\"type\":\"json_invalid\"" },
		{ RUN, TOKEN, "\"\xff\"", 400, "There was an error parsing the body" },
		{ RUN, TOKEN, "", 422, "{\"type\":\"missing\",\"loc\":[\"body\"]," },
		{ RUN, TOKEN, "{\"timeout_seconds\":NaN}", 422, "\"type\":\"json_invalid\"" },
		{ RUN, TOKEN, "{}", 422,
		  "\"loc\":[\"body\",\"argv\"],\"msg\":\"Field required\",\"input\":{}},{\"type\":\"missing\","
		  "\"loc\":[\"body\",\"run_id\"]" },
		{ "POST /sessions/a/runs/xyz/stop", TOKEN, NULL, 422,
		  "\"loc\":[\"path\",\"run_id\"]" },
		{ "GET /sessions/a?usage=", TOKEN, NULL, 422,
		  "\"type\":\"bool_parsing\",\"loc\":[\"query\",\"usage\"]" },
		{ "GET /sessions/a/events?after=-1", TOKEN, NULL, 422,
		  "\"type\":\"greater_than_equal\"" },
		{ "POST /sessions/a/files/write", TOKEN, "data", 422,
		  "\"loc\":[\"query\",\"path\"]" },
		{ "GET http://test/healthz", "", NULL, 200, NULL },
	};

	open_session(&srv, "a");
	expect(&srv, cases, sizeof(cases) / sizeof(cases[0]));
	server_stop(&srv);
}

/* ---- bodies ---- */

static void ask_with_long_body(const struct server *srv, const char *line, const char *headers,
			       size_t n, struct strbuf *out)
{
	autoclose int fd = dial(srv);
	autobuf struct strbuf rq = STRBUF_INIT;

	strbuf_addf(&rq, "%s HTTP/1.1\r\nHost: test\r\n%sContent-Length: %zu\r\n\r\n", line,
		    headers, n);
	strbuf_reserve(&rq, n);
	for (size_t i = 0; i < n; i++)
		strbuf_addch(&rq, 'x');
	say(fd, rq.buf, rq.len);
	hear(fd, out);
}

TEST(a_token_may_do_what_its_scope_says)
{
#define READER "X-Sandbox-Token: all-read-token-for-tests\r\n"
#define ACME "X-Sandbox-Token: acme-token-for-tests\r\n"
#define ACME_READER "X-Sandbox-Token: acme-read-token-for-tests\r\n"
	struct server srv = server_start(64, 0);
	static const struct expectation cases[] = {
		{ "GET /sessions/a", READER, NULL, 200, NULL },
		{ "GET /sessions/nosuch", READER, NULL, 404, NULL },
		{ RUN, READER, "{}", 403, "\"scope\":\"read\"}" },
		{ "POST /sessions/nosuch/run", READER, "{}", 403, NULL },
		{ "POST /sessions", READER, "{}", 403, NULL },
		{ "PUT /policy", READER, "{}", 403, NULL },
		{ "PUT /policy", ACME, "{}", 403, "\"scope\":\"tenant:acme\"}" },
		{ "GET /policy", ACME, NULL, 200, NULL },
		{ "GET /tokens", ACME, NULL, 403, NULL },
		{ "GET /sessions/a", ACME, NULL, 404, "No such session: a" },
		{ "DELETE /sessions/a", ACME, NULL, 404, "No such session: a" },
		{ "GET /sessions", ACME, NULL, 200, "{\"sessions\":[]," },
		{ "DELETE /workspaces/a", ACME, NULL, 404, "No workspace for session: a" },
		{ "DELETE /workspaces/-a", ACME, NULL, 422, NULL },
		{ "POST /sessions", ACME, "{\"session_id\":\"m\",\"tenant\":\"other\"}", 403,
		  "tenant:acme" },
		{ "POST /sessions", ACME, "{\"session_id\":\"m\"}", 200, "\"tenant\":\"acme\"" },
		{ "GET /sessions/m", ACME, NULL, 200, NULL },
		{ "GET /sessions/m", ACME_READER, NULL, 200, NULL },
		{ "DELETE /sessions/m", ACME_READER, NULL, 403, "tenant:acme+read" },
		{ "DELETE /sessions/m", ACME, NULL, 204, NULL },
		{ "PUT /policy", TOKEN, "{}", 507, NULL },
		{ "PUT /policy", TOKEN, "{\"x\":NaN}", 422, "json_invalid" },
		{ "GET /tokens", TOKEN, NULL, 200,
		  "{\"tokens\":[{\"name\":\"ci\",\"scope\":\"read\",\"tenant\":null," },
		{ "POST /tokens", TOKEN, "{\"name\":\"n\",\"scope\":\"tenant:a.b+read\"}", 200,
		  "{\"token\":\"grt_secret\",\"info\":{\"name\":\"n\",\"scope\":\"tenant:a.b+read\"," },
		{ "POST /tokens", TOKEN, "{\"name\":\"n\"}", 422, "give a scope" },
		{ "POST /tokens", TOKEN, "{\"name\":\"n\",\"scope\":\"tenant:+read\"}", 422,
		  "no name" },
		{ "DELETE /tokens/n", TOKEN, NULL, 404, NULL },
		{ "POST /tokens/n/rotate", TOKEN, "{}", 404, NULL },
	};

	open_session(&srv, "a");
	expect(&srv, cases, sizeof(cases) / sizeof(cases[0]));
	server_stop(&srv);
}

TEST(an_answer_before_the_body_can_be_read_by_who_sends_all_first)
{
	struct server srv = server_start(64, 0);
	int before = server_fds(&srv);
	autobuf struct strbuf out = STRBUF_INIT;

	ask_with_long_body(&srv, RUN, "", 8 << 20, &out);
	assert_int_equal(status_of(&out), 401);
	open_session(&srv, "a");
	strbuf_reset(&out);
	ask_with_long_body(&srv, "POST /sessions", TOKEN, 8 << 20, &out);
	assert_int_equal(status_of(&out), 413);
	assert_non_null(strstr(out.buf, "1048576"));
	wait_for_fds(&srv, before);
	server_stop(&srv);
}

TEST(arguments_that_no_kernel_takes_are_413_with_the_limit)
{
	struct server srv = server_start(64, 0);
	autobuf struct strbuf out = STRBUF_INIT, body = STRBUF_INIT;

	open_session(&srv, "a");
	strbuf_addstr(&body, "{\"run_id\":\"" RUN_ID "\",\"argv\":[\"echo\",\"");
	for (int i = 0; i < 131072; i++)
		strbuf_addch(&body, 'y');
	strbuf_addstr(&body, "\"]}");
	ask(&srv, RUN, TOKEN, body.buf, &out);
	assert_int_equal(status_of(&out), 413);
	assert_non_null(strstr(out.buf, "131071"));
	body.buf[strlen(body.buf) - 4] = '"'; /* one byte less is fine */
	body.buf[strlen(body.buf) - 3] = ' ';
	ask(&srv, RUN, TOKEN, body.buf, &out);
	assert_int_equal(status_of(&out), 200);
	server_stop(&srv);
}

TEST(a_chunked_body_is_read_and_the_connection_kept)
{
	static const char rq[] = "POST /sessions HTTP/1.1\r\nHost: t\r\n" TOKEN
				 "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
				 "1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
				 "GET /healthz HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
	struct server srv = server_start(64, 0);
	autobuf struct strbuf out = STRBUF_INIT;
	autoclose int fd = dial(&srv);

	say(fd, rq, sizeof(rq) - 1);
	hear(fd, &out);
	assert_non_null(strstr(out.buf, "\"token\":\"token-s-0123456789abcdef\"}"));
	assert_non_null(strstr(out.buf, "\"status\":\"ok\""));
	server_stop(&srv);
}

TEST(two_lengths_or_no_host_are_400)
{
	static const char *const bad[] = {
		"POST /sessions HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"GET /healthz HTTP/1.1\r\n\r\n",
		"POST /sessions HTTP/1.1\r\nHost: t\r\nContent-Length: -1\r\n\r\n",
	};
	struct server srv = server_start(64, 0);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		autobuf struct strbuf out = STRBUF_INIT;
		autoclose int fd = dial(&srv);

		say(fd, bad[i], strlen(bad[i]));
		hear(fd, &out);
		assert_int_equal(status_of(&out), 400);
	}
	server_stop(&srv);
}

/* ---- long answers, waiting, limits ---- */

TEST(ten_mib_of_control_characters_hold_up_nobody)
{
	struct server srv = server_start(64, 0);
	autobuf struct strbuf slow = STRBUF_INIT, out = STRBUF_INIT;
	static const char body[] = ARGV("\"bytes\",\"10485760\",\"1\"");
	autoclose int fd = dial(&srv);
	uint64_t start, worst = 0;
	struct pollfd readable = { .fd = fd, .events = POLLIN };

	open_session(&srv, "a");
	strbuf_addf(&slow,
		    RUN " HTTP/1.1\r\nHost: t\r\nConnection: close\r\n" TOKEN
			"Content-Length: %zu\r\n\r\n%s",
		    sizeof(body) - 1, body);
	say(fd, slow.buf, slow.len);
	assert_int_equal(poll(&readable, 1, 5000), 1);
	for (int i = 0; i < 20; i++) { /* the answer waits in the server's socket meanwhile */
		start = now_ms();
		ask(&srv, "GET /healthz", "", NULL, &out);
		worst = MAX(worst, now_ms() - start);
		assert_int_equal(status_of(&out), 200);
	}
	assert_true(worst < 500);
	strbuf_reset(&slow);
	hear(fd, &slow);
	assert_true(slow.len > 62914560);
	assert_non_null(strstr(slow.buf, "transfer-encoding: chunked")
				?: strstr(slow.buf, "Transfer-Encoding: chunked"));
	assert_non_null(strstr(slow.buf + slow.len - 200, "\"output_limit\":null}"));
	server_stop(&srv);
}

TEST(a_client_that_leaves_while_it_waits_is_noticed)
{
	struct server srv = server_start(64, 0);
	static const char body[] = ARGV("\"sleep\",\"60000\"");
	autobuf struct strbuf rq = STRBUF_INIT, out = STRBUF_INIT;
	int before = server_fds(&srv);

	open_session(&srv, "a");
	strbuf_addf(&rq, RUN " HTTP/1.1\r\nHost: t\r\n" TOKEN "Content-Length: %zu\r\n\r\n%s",
		    sizeof(body) - 1, body);
	for (int i = 0; i < 20; i++) {
		autoclose int fd = dial(&srv);

		say(fd, rq.buf, rq.len);
		if (i % 2)
			usleep(20000); /* some leave before the run began, some later */
	}
	wait_for_fds(&srv, before);
	server_stop(&srv);
}

TEST(what_runs_is_finished_when_the_server_stops)
{
	struct server srv = server_start(64, 0);
	static const char body[] = ARGV("\"sleep\",\"400\"");
	autobuf struct strbuf rq = STRBUF_INIT, out = STRBUF_INIT;
	autoclose int fd = dial(&srv), idle = dial(&srv);

	open_session(&srv, "a");
	strbuf_addf(&rq, RUN " HTTP/1.1\r\nHost: t\r\n" TOKEN "Content-Length: %zu\r\n\r\n%s",
		    sizeof(body) - 1, body);
	say(fd, rq.buf, rq.len);
	usleep(100000);
	server_stop(&srv);
	hear(fd, &out);
	assert_int_equal(status_of(&out), 200);
	assert_int_equal(recv(idle, rq.buf, 1, 0), 0);
}

TEST(connections_over_the_cap_wait_until_one_is_free)
{
	struct server srv = server_start(4, 0);
	autobuf struct strbuf out = STRBUF_INIT;
	int held[4];

	for (int i = 0; i < 4; i++) {
		static const char rq[] = "GET /healthz HTTP/1.1\r\nHost: t\r\n\r\n";
		char first[16];

		held[i] = dial(&srv);
		say(held[i], rq, sizeof(rq) - 1);
		assert_true(recv(held[i], first, sizeof(first), 0) > 0);
	}
	/* They are idle: the oldest gives way. */
	ask(&srv, "GET /healthz", "", NULL, &out);
	assert_int_equal(status_of(&out), 200);
	for (int i = 0; i < 4; i++)
		close(held[i]);
	server_stop(&srv);
}

TEST(an_address_has_a_cap_of_its_own)
{
	struct server srv = server_start(64, 2);
	autobuf struct strbuf out = STRBUF_INIT;
	autoclose int one = dial(&srv), two = dial(&srv);

	ask(&srv, "GET /healthz", "", NULL, &out);
	assert_int_equal(out.len, 0);
	close(take_fd(&one));
	usleep(100000);
	ask(&srv, "GET /healthz", "", NULL, &out);
	assert_int_equal(status_of(&out), 200);
	(void)two;
	server_stop(&srv);
}

TEST(guessing_tokens_becomes_slow_and_nothing_else_does)
{
	struct server srv = server_start(64, 0);
	autobuf struct strbuf out = STRBUF_INIT;
	uint64_t start = now_ms(), first, rest;

	for (int i = 0; i < 10; i++)
		ask(&srv, "GET /policy", "X-Sandbox-Token: guess\r\n", NULL, &out);
	first = now_ms() - start;
	for (int i = 0; i < 4; i++)
		ask(&srv, "GET /policy", "X-Sandbox-Token: guess\r\n", NULL, &out);
	rest = now_ms() - start - first;
	assert_true(rest >= 1000 && rest < 5000);
	start = now_ms();
	ask(&srv, "GET /policy", TOKEN, NULL, &out);
	assert_int_equal(status_of(&out), 200);
	ask(&srv, "GET /policy", "", NULL, &out);
	assert_int_equal(status_of(&out), 401);
	assert_true(now_ms() - start < 300 && first < 1000);
	server_stop(&srv);
}

TEST_MAIN
