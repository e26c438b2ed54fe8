#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"

struct bench_opts opts = { .windows = 5, .runs = 100, .opens = 15, .rate_ms = 1000 };
uint16_t port;

void die(const char *what)
{
	(void)fprintf(stderr, "garret-bench: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* ---- a kept connection ---- */

void conn_open(struct conn *c)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_port = htons(port),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int one = 1;

	c->n = 0;
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		die("connect");
	(void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void conn_send(struct conn *c, const char *method, const char *path, const char *token,
	       const void *body, size_t length)
{
	char head[2048];
	int n = snprintf(head, sizeof(head),
			 "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Sandbox-Token: %s\r\n"
			 "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
			 method, path, token, length);

	if (n < 0 || (size_t)n >= sizeof(head))
		die("send");
	/* A small request is one packet, as other clients send it. */
	if ((size_t)n + length <= sizeof(head)) {
		memcpy(head + n, body, length);
		n += (int)length;
		length = 0;
	}
	if (write_full(c->fd, head, (size_t)n) < 0 || write_full(c->fd, body, length) < 0)
		die("send");
}

/* A whole answer is there: its status and where its body is; 0 when more is needed. */
int conn_parse(struct conn *c, const char **body, size_t *used)
{
	char *end, *length, *chunked;
	int status = 0;

	c->in[c->n] = '\0';
	end = strstr(c->in, "\r\n\r\n");
	if (!end || sscanf(c->in, "HTTP/1.1 %d", &status) != 1)
		return 0;
	*body = end + 4;
	*end = '\0';
	length = strcasestr(c->in, "\r\ncontent-length:");
	chunked = strcasestr(c->in, "\r\ntransfer-encoding: chunked");
	*end = '\r';
	if (chunked) {
		char *last = strstr(end, "\r\n0\r\n\r\n");

		*used = last ? (size_t)(last + 7 - c->in) : 0;
		return last ? status : 0;
	}
	*used = (size_t)(end + 4 - c->in) + (length ? strtoul(length + 17, NULL, 10) : 0);
	return c->n >= *used ? status : 0;
}

/* False when the connection ended. */
bool conn_read(struct conn *c)
{
	ssize_t n = read(c->fd, c->in + c->n, sizeof(c->in) - 1 - c->n);

	if (n > 0)
		c->n += (size_t)n;
	return n > 0;
}

int conn_call(struct conn *c, const char *method, const char *path, const char *token,
	      const char *body, const char **answer)
{
	const char *at;
	size_t used;
	int status;

	conn_send(c, method, path, token, body, strlen(body));
	c->n = 0;
	while (!(status = conn_parse(c, &at, &used)))
		if (!conn_read(c))
			die("the server closed the connection");
	if (answer)
		*answer = at;
	return status;
}

static void field(const char *json, const char *name, char *out, size_t cap)
{
	char key[64];
	const char *p;

	(void)snprintf(key, sizeof(key), "\"%s\":", name);
	p = strstr(json, key);
	p = p ? strchr(p + strlen(key), '"') : NULL;
	(void)snprintf(out, cap, "%.*s", p ? (int)strcspn(p + 1, "\"") : 0, p ? p + 1 : "");
}

void session_open(struct conn *c, struct target *t)
{
	char body[128] = "{}";
	const char *answer;

	if (opts.runtime)
		(void)snprintf(body, sizeof(body), "{\"runtime\":\"%s\"}", opts.runtime);
	if (conn_call(c, "POST", "/sessions", opts.token, body, &answer) != 200) {
		(void)fprintf(stderr, "garret-bench: open: %.300s\n", answer);
		exit(1);
	}
	field(answer, "session_id", t->id, sizeof(t->id));
	field(answer, "token", t->token, sizeof(t->token));
	(void)snprintf(t->path, sizeof(t->path), "/sessions/%s/run", t->id);
}

void session_close(struct conn *c, const struct target *t)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "/sessions/%s?purge=true", t->id);
	(void)conn_call(c, "DELETE", path, opts.token, "", NULL);
}

void run_body(char out[160])
{
	uint8_t random[16];
	char id[33];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		die("random bytes");
	hex_encode(random, sizeof(random), id);
	(void)snprintf(out, 160,
		       "{\"argv\":[\"true\"],\"env\":{},\"timeout_seconds\":30,\"run_id\":\"%s\"}",
		       id);
}

void run_once(struct conn *c, const struct target *t)
{
	char body[160];
	const char *answer;

	run_body(body);
	if (conn_call(c, "POST", t->path, t->token, body, &answer) != 200 ||
	    !strstr(answer, "\"exit_code\":0")) {
		(void)fprintf(stderr, "garret-bench: run: %.300s\n", answer);
		exit(1);
	}
}

void run_script(struct conn *c, const struct target *t, const char *script, char *out, size_t cap)
{
	char body[1024], id[33];
	uint8_t random[16];
	const char *answer;

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		die("random bytes");
	hex_encode(random, sizeof(random), id);
	(void)snprintf(
		body, sizeof(body),
		"{\"argv\":[\"sh\",\"-c\",\"%s\"],\"timeout_seconds\":120,\"run_id\":\"%s\"}",
		script, id);
	if (conn_call(c, "POST", t->path, t->token, body, &answer) != 200) {
		(void)fprintf(stderr, "garret-bench: %s: %.300s\n", script, answer);
		exit(1);
	}
	field(answer, "stdout", out, cap);
}
