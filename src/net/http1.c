#include "net/http1.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

#define HEAD_MAX (64 * 1024)

int http1_parse_url(const char *url, struct http1_target *ret, struct garret_error *err)
{
	struct http1_target t = { .port = "80" };
	const char *host, *end, *colon;

	if (!strncmp(url, "unix:", 5)) {
		if (!url[5] || strlen(url + 5) >= sizeof(t.socket))
			return garret_fail(err, GARRET_INVALID,
					   "unix:PATH takes a path of at most %zu bytes",
					   sizeof(t.socket) - 1);
		(void)snprintf(t.socket, sizeof(t.socket), "%s", url + 5);
		(void)snprintf(t.host, sizeof(t.host), "localhost");
		*ret = t;
		return 0;
	}
	if (strncmp(url, "http://", 7) != 0)
		return garret_fail(err, GARRET_INVALID,
				   "a URL is http://HOST[:PORT] or unix:PATH, not \"%.100s\"", url);
	host = url + 7;
	end = host + strcspn(host, "/");
	if (*end && end[1])
		return garret_fail(err, GARRET_INVALID,
				   "the URL has a path; the service is at the root");
	colon = *host == '[' ? strchr(host, ']') : host;
	colon = colon ? memchr(colon, ':', (size_t)(end - colon)) : NULL;
	if (colon && (colon + 1 == end || (size_t)(end - colon - 1) >= sizeof(t.port)))
		return garret_fail(err, GARRET_INVALID, "the URL's port makes no sense");
	if (colon)
		(void)snprintf(t.port, sizeof(t.port), "%.*s", (int)(end - colon - 1), colon + 1);
	end = colon ? colon : end;
	if (*host == '[' && end[-1] == ']') {
		host++;
		end--;
	}
	if (host == end || (size_t)(end - host) >= sizeof(t.host))
		return garret_fail(err, GARRET_INVALID, "the URL has no host");
	(void)snprintf(t.host, sizeof(t.host), "%.*s", (int)(end - host), host);
	*ret = t;
	return 0;
}

static int connect_unix(const char *path, struct garret_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(sa.sun_path, path, strlen(path) + 1);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0) {
		(void)garret_fail_errno(err, "connect to %s", path);
		return garret_fail(err, GARRET_UNAVAILABLE, "no daemon answers at %s: %s", path,
				   strerror(errno));
	}
	return take_fd(&fd);
}

static int connect_tcp(const struct http1_target *t, struct garret_error *err)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list = NULL;
	int fd = -EBADF, rc = getaddrinfo(t->host, t->port, &hints, &list);

	if (rc)
		return garret_fail(err, GARRET_UNAVAILABLE, "%s: %s", t->host, gai_strerror(rc));
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
		if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0)
			fd = fd_close(fd);
	}
	rc = errno;
	freeaddrinfo(list);
	if (fd < 0)
		return garret_fail(err, GARRET_UNAVAILABLE, "no daemon answers at %s:%s: %s",
				   t->host, t->port, strerror(rc));
	return fd;
}

/* Remove the chunk framing of a whole body in place. */
static int unchunk(struct strbuf *b, struct garret_error *err)
{
	size_t in = 0, out = 0;

	for (;;) {
		unsigned long n;
		char *end;

		n = strtoul(b->buf + in, &end, 16);
		end = strstr(end, "\r\n");
		if (!end || n > b->len)
			break;
		in = (size_t)(end - b->buf) + 2;
		if (!n) {
			b->len = out;
			b->buf[out] = '\0';
			return 0;
		}
		if (in + n + 2 > b->len)
			break;
		memmove(b->buf + out, b->buf + in, n);
		out += n;
		in += n + 2;
	}
	return garret_fail(err, GARRET_PROTOCOL, "the daemon's answer was cut off");
}

static const char *header(const struct strbuf *head, const char *name)
{
	const char *line = strstr(head->buf, "\r\n");
	size_t n = strlen(name);

	for (; line; line = strstr(line + 2, "\r\n"))
		if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':')
			return line + 2 + n + 1 + strspn(line + 2 + n + 1, " ");
	return NULL;
}

static int split_answer(struct strbuf *all, int *status, struct garret_error *err)
{
	autobuf struct strbuf head = STRBUF_INIT;
	const char *end = strstr(all->buf, "\r\n\r\n"), *v;
	uint64_t want;
	char number[24];

	*status = !strncmp(all->buf, "HTTP/1.", 7) && all->len > 9
			  ? (int)strtol(all->buf + 8, NULL, 10)
			  : 0;
	if (!end || *status < 100 || *status > 599)
		return garret_fail(err, GARRET_PROTOCOL, "what answers there doesn't speak HTTP");
	strbuf_add(&head, all->buf, (size_t)(end - all->buf) + 2);
	strbuf_remove_front(all, (size_t)(end - all->buf) + 4);
	v = header(&head, "transfer-encoding");
	if (v && !strncasecmp(v, "chunked", 7))
		return unchunk(all, err);
	v = header(&head, "content-length");
	if (v) {
		(void)snprintf(number, sizeof(number), "%.*s",
			       (int)MIN(strcspn(v, " \r"), sizeof(number) - 1), v);
		if (!parse_u64(number, &want) || want != all->len)
			return garret_fail(err, GARRET_PROTOCOL, "the daemon's answer was cut off");
	}
	return 0;
}

static int send_request(const struct http1_target *t, const char *method, const char *path,
			const char *token, const char *protocol, const struct strbuf *body,
			struct garret_error *err)
{
	autobuf struct strbuf rq = STRBUF_INIT;
	autoclose int fd = t->socket[0] ? connect_unix(t->socket, err) : connect_tcp(t, err);

	if (fd < 0)
		return fd;
	strbuf_addf(&rq, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, t->host);
	if (protocol)
		strbuf_addf(&rq, "Connection: Upgrade\r\nUpgrade: %s\r\n", protocol);
	else
		strbuf_addstr(&rq, "Connection: close\r\n");
	if (token)
		strbuf_addf(&rq, "X-Sandbox-Token: %s\r\n", token);
	if (body)
		strbuf_addf(&rq, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			    body->len);
	strbuf_addstr(&rq, "\r\n");
	if (body)
		strbuf_add(&rq, body->buf, body->len);
	/* A daemon may answer and close before it took the whole body: read all the same. */
	if (write_full(fd, rq.buf, rq.len) < 0 && errno != EPIPE && errno != ECONNRESET)
		return garret_fail_errno(err, "send the request");
	return take_fd(&fd);
}

/* 1 when there was more, 0 at the end. */
static int read_some(int fd, struct strbuf *answer, size_t max, struct garret_error *err)
{
	char buf[65536];
	ssize_t n;

	do
		n = read(fd, buf, sizeof(buf));
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return garret_fail(err, GARRET_UNAVAILABLE, "the daemon went away: %s",
				   strerror(errno));
	if (answer->len + (size_t)n > max + HEAD_MAX)
		return garret_fail(err, GARRET_TOO_LARGE, "the answer has more than %zu bytes",
				   max);
	strbuf_add(answer, buf, (size_t)n);
	return n > 0;
}

int http1_request(const struct http1_target *t, const char *method, const char *path,
		  const char *token, const struct strbuf *body, size_t max, int *status,
		  struct strbuf *answer, struct garret_error *err)
{
	autoclose int fd = send_request(t, method, path, token, NULL, body, err);
	int rc;

	if (fd < 0)
		return fd;
	strbuf_reset(answer);
	do
		rc = read_some(fd, answer, max, err);
	while (rc > 0);
	return rc < 0 ? rc : split_answer(answer, status, err);
}

/* A connection that stays open: its answer ends where its length says. */
static bool is_whole(const struct strbuf *all)
{
	const char *end = strstr(all->buf, "\r\n\r\n"), *v;
	autobuf struct strbuf head = STRBUF_INIT;

	if (!end)
		return false;
	strbuf_add(&head, all->buf, (size_t)(end - all->buf) + 2);
	v = header(&head, "content-length");
	return v && all->len - (head.len + 2) >= strtoul(v, NULL, 10);
}

int http1_upgrade(const struct http1_target *t, const char *path, const char *token,
		  const char *protocol, const struct strbuf *body, int *ret_fd, int *status,
		  struct strbuf *answer, struct garret_error *err)
{
	static const char switching[] = "HTTP/1.1 101 ";
	autoclose int fd = send_request(t, "POST", path, token, protocol, body, err);
	const char *end = NULL;
	int rc = 1;

	if (fd < 0)
		return fd;
	strbuf_reset(answer);
	while (rc > 0 && !end && !is_whole(answer)) {
		rc = read_some(fd, answer, HEAD_MAX, err);
		if (!strncmp(answer->buf, switching, sizeof(switching) - 1))
			end = strstr(answer->buf, "\r\n\r\n");
	}
	if (rc < 0)
		return rc;
	*ret_fd = -EBADF;
	if (!end)
		return split_answer(answer, status, err);
	strbuf_remove_front(answer, (size_t)(end - answer->buf) + 4);
	*status = 101;
	*ret_fd = take_fd(&fd);
	return 0;
}
