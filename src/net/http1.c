#include "net/http1.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
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
#define PIECE (64 * 1024)
#define CHUNK_LINE 256 /* a size and what an extension may say */

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

/* ---- the connection ---- */

void http1_init(struct http1 *h, const struct http1_target *t)
{
	*h = (struct http1){ .target = t, .fd = -EBADF };
	strbuf_init(&h->in);
	strbuf_init(&h->head);
}

void http1_close(struct http1 *h)
{
	h->fd = fd_close(h->fd);
	strbuf_reset(&h->in);
	h->used = 0;
}

void http1_release(struct http1 *h)
{
	http1_close(h);
	strbuf_release(&h->in);
	strbuf_release(&h->head);
}

static int fail_cut_off(struct http1 *h, struct garret_error *err)
{
	http1_close(h);
	return garret_fail(err, GARRET_PROTOCOL, "the daemon's answer was cut off");
}

static int fail_gone(struct http1 *h, int sys, struct garret_error *err)
{
	http1_close(h);
	return garret_fail(err, GARRET_UNAVAILABLE, "the daemon went away%s%s", sys ? ": " : "",
			   sys ? strerror(sys) : "");
}

static int fail_not_http(struct http1 *h, struct garret_error *err)
{
	http1_close(h);
	return garret_fail(err, GARRET_PROTOCOL, "what answers there doesn't speak HTTP");
}

/* Between two requests nothing may come: a connection on which something did was closed. */
static bool is_usable(const struct http1 *h)
{
	struct pollfd pf = { .fd = h->fd, .events = POLLIN };

	return h->fd >= 0 && h->over && h->used == h->in.len && poll(&pf, 1, 0) == 0;
}

static int connect_to(struct http1 *h, struct garret_error *err)
{
	static const int on = 1, idle = 30, interval = 10, count = 3;

	http1_close(h);
	if (h->target->socket[0]) {
		h->fd = connect_unix(h->target->socket, err);
		return h->fd < 0 ? h->fd : 0;
	}
	h->fd = connect_tcp(h->target, err);
	if (h->fd < 0)
		return h->fd;
	/* A host that vanished says nothing: without these we would wait for ever. */
	(void)setsockopt(h->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(h->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(h->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	(void)setsockopt(h->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
	(void)setsockopt(h->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return 0;
}

/* ---- sending ---- */

/*
 * 1 when the daemon answers (or closes) instead of reading: it may do so before it
 * took the whole body, and http1_answer() finds out which.
 */
static int send_all(struct http1 *h, const void *data, size_t n, struct garret_error *err)
{
	const char *at = data;

	while (n) {
		struct pollfd pf = { .fd = h->fd, .events = POLLIN | POLLOUT };
		ssize_t k;

		if (poll(&pf, 1, -1) < 0 && errno != EINTR)
			return garret_fail_errno(err, "wait for the daemon");
		if (pf.revents & (POLLIN | POLLHUP | POLLERR))
			return 1;
		k = send(h->fd, at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (k < 0 && (errno == EPIPE || errno == ECONNRESET))
			return 1;
		if (k < 0 && errno != EAGAIN && errno != EINTR)
			return garret_fail_errno(err, "send the request");
		at += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
	return 0;
}

static void write_head(struct strbuf *out, const struct http1 *h, const struct http1_head *q)
{
	strbuf_addf(out, "%s %s HTTP/1.1\r\nHost: %s\r\n", q->method, q->path, h->target->host);
	if (q->protocol)
		strbuf_addf(out, "Connection: Upgrade\r\nUpgrade: %s\r\n", q->protocol);
	if (q->token)
		strbuf_addf(out, "X-Sandbox-Token: %s\r\n", q->token);
	if (q->length != HTTP1_NO_BODY)
		strbuf_addf(out, "Content-Type: %s\r\n", q->type ? q->type : "application/json");
	if (q->length >= 0)
		strbuf_addf(out, "Content-Length: %lld\r\n", (long long)q->length);
	else if (q->length == HTTP1_CHUNKED)
		strbuf_addstr(out, "Transfer-Encoding: chunked\r\n");
	strbuf_addstr(out, q->more ? q->more : "");
	strbuf_addstr(out, "\r\n");
}

int http1_begin(struct http1 *h, const struct http1_head *q, struct garret_error *err)
{
	autobuf struct strbuf out = STRBUF_INIT;
	int rc = is_usable(h) ? 0 : connect_to(h, err);

	if (rc < 0)
		return rc;
	strbuf_reset(&h->in);
	strbuf_reset(&h->head);
	h->used = 0;
	h->unsent = q->length == HTTP1_NO_BODY ? 0 : q->length;
	h->no_answer_body = !strcmp(q->method, "HEAD");
	h->over = h->chunked = h->in_chunk = false;
	write_head(&out, h, q);
	rc = send_all(h, out.buf, out.len, err);
	if (rc < 0)
		http1_close(h);
	return rc < 0 ? rc : 0;
}

int http1_send(struct http1 *h, const void *data, size_t n, struct garret_error *err)
{
	autobuf struct strbuf chunk = STRBUF_INIT;
	int rc;

	if (!n)
		return 0; /* as a chunk it would be the last one */
	if (h->unsent == HTTP1_CHUNKED) {
		strbuf_addf(&chunk, "%zx\r\n", n);
		strbuf_add(&chunk, data, n);
		strbuf_addstr(&chunk, "\r\n");
		rc = send_all(h, chunk.buf, chunk.len, err);
	} else {
		rc = send_all(h, data, n, err);
		h->unsent -= (int64_t)n;
	}
	if (rc < 0)
		http1_close(h);
	return rc;
}

/* ---- receiving ---- */

/* More into h->in; 0 at the end of the connection. */
static int fill(struct http1 *h, struct garret_error *err)
{
	ssize_t n;

	strbuf_remove_front(&h->in, h->used);
	h->used = 0;
	strbuf_reserve(&h->in, PIECE);
	do
		n = read(h->fd, h->in.buf + h->in.len, PIECE);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return fail_gone(h, errno, err);
	h->in.len += (size_t)n;
	h->in.buf[h->in.len] = '\0';
	return n > 0;
}

static const char *find_header(const struct strbuf *head, const char *name)
{
	const char *line = strstr(head->buf, "\r\n");
	size_t n = strlen(name);

	for (; line; line = strstr(line + 2, "\r\n"))
		if (!strncasecmp(line + 2, name, n) && line[2 + n] == ':')
			return line + 2 + n + 1 + strspn(line + 2 + n + 1, " ");
	return NULL;
}

bool http1_header(const struct http1 *h, const char *name, char *buf, size_t cap)
{
	const char *v = find_header(&h->head, name);
	size_t n = v ? strcspn(v, "\r\n") : 0;

	while (n && v[n - 1] == ' ')
		n--;
	if (!v || n >= cap)
		return false;
	memcpy(buf, v, n);
	buf[n] = '\0';
	return true;
}

/* One head into h->head. */
static int read_head(struct http1 *h, int *status, struct garret_error *err)
{
	const char *end;
	int rc;

	while (!(end = memmem(h->in.buf + h->used, h->in.len - h->used, "\r\n\r\n", 4))) {
		if (h->in.len - h->used > HEAD_MAX)
			return fail_not_http(h, err);
		rc = fill(h, err);
		if (rc < 0)
			return rc;
		if (!rc)
			return h->in.len ? fail_cut_off(h, err) : fail_gone(h, 0, err);
	}
	strbuf_reset(&h->head);
	strbuf_add(&h->head, h->in.buf + h->used, (size_t)(end - h->in.buf) - h->used + 2);
	h->used = (size_t)(end - h->in.buf) + 4;
	*status = !strncmp(h->head.buf, "HTTP/1.", 7) && h->head.len > 9
			  ? (int)strtol(h->head.buf + 8, NULL, 10)
			  : 0;
	if (*status < 100 || *status > 599 || strlen(h->head.buf) != h->head.len)
		return fail_not_http(h, err);
	return 0;
}

/* How the body ends.  Not by the end of the connection: that can't be told from a loss. */
static int frame_body(struct http1 *h, int status, struct garret_error *err)
{
	char v[24];

	h->left = 0;
	if (h->no_answer_body || status == 101 || status == 204 || status == 304) {
		h->over = true;
		return 0;
	}
	if (http1_header(h, "transfer-encoding", v, sizeof(v)) && !strcasecmp(v, "chunked")) {
		h->chunked = true;
		return 0;
	}
	if (!http1_header(h, "content-length", v, sizeof(v)) || !parse_u64(v, &h->left)) {
		http1_close(h);
		return garret_fail(err, GARRET_PROTOCOL, "the daemon's answer has no length");
	}
	h->over = !h->left;
	return 0;
}

/* The answer was read; a request that was given up leaves a connection of no use. */
static void finish(struct http1 *h)
{
	char v[24];

	h->over = true;
	if (h->unsent || (http1_header(h, "connection", v, sizeof(v)) && !strcasecmp(v, "close")))
		http1_close(h);
}

int http1_answer(struct http1 *h, int *status, struct garret_error *err)
{
	int rc = 0;

	if (h->unsent == HTTP1_CHUNKED) {
		rc = send_all(h, "0\r\n\r\n", 5, err);
		if (rc == 0)
			h->unsent = 0;
	}
	if (rc >= 0)
		do
			rc = read_head(h, status, err);
		while (rc == 0 && *status < 200 && *status != 101);
	if (rc == 0)
		rc = frame_body(h, *status, err);
	if (rc < 0)
		http1_close(h);
	else if (h->over && *status != 101)
		finish(h);
	return rc;
}

/* A line of the chunk framing. */
static int read_line(struct http1 *h, char line[CHUNK_LINE], struct garret_error *err)
{
	const char *from, *end;
	int rc;

	for (;;) {
		from = h->in.buf + h->used;
		end = memmem(from, h->in.len - h->used, "\r\n", 2);
		if (end || h->in.len - h->used >= CHUNK_LINE)
			break;
		rc = fill(h, err);
		if (rc <= 0)
			return rc < 0 ? rc : fail_cut_off(h, err);
	}
	if (!end || end - from >= CHUNK_LINE)
		return fail_not_http(h, err);
	memcpy(line, from, (size_t)(end - from));
	line[end - from] = '\0';
	h->used += (size_t)(end - from) + 2;
	return 0;
}

/* The size of the next chunk; the last one and what may stand behind it end the answer. */
static int next_chunk(struct http1 *h, struct garret_error *err)
{
	char line[CHUNK_LINE] = "";
	size_t digits;
	int rc = 0;

	if (h->in_chunk) {
		rc = read_line(h, line, err);
		if (rc == 0 && *line)
			return fail_not_http(h, err);
	}
	if (rc == 0)
		rc = read_line(h, line, err);
	if (rc < 0)
		return rc;
	/* strtoull() takes signs, blanks and 0x as well. */
	digits = strspn(line, "0123456789abcdefABCDEF");
	if (!digits || digits > 15 || (line[digits] && !strchr("; ", line[digits])))
		return fail_not_http(h, err);
	h->left = strtoull(line, NULL, 16);
	h->in_chunk = true;
	if (h->left)
		return 0;
	do
		rc = read_line(h, line, err);
	while (rc == 0 && *line);
	if (rc == 0)
		finish(h);
	return rc;
}

ssize_t http1_read(struct http1 *h, void *buf, size_t cap, struct garret_error *err)
{
	size_t here, want;
	ssize_t n;
	int rc;

	if (h->chunked && !h->over && !h->left) {
		rc = next_chunk(h, err);
		if (rc < 0)
			return rc;
	}
	if (h->over)
		return 0;
	if (h->fd < 0)
		return fail_gone(h, 0, err);
	want = (size_t)MIN((uint64_t)cap, h->left);
	here = h->in.len - h->used;
	if (here) {
		n = (ssize_t)MIN(want, here);
		memcpy(buf, h->in.buf + h->used, (size_t)n);
		h->used += (size_t)n;
	} else {
		do
			n = read(h->fd, buf, want);
		while (n < 0 && errno == EINTR);
	}
	if (n < 0)
		return fail_gone(h, errno, err);
	if (n == 0)
		return fail_cut_off(h, err);
	h->left -= (uint64_t)n;
	if (!h->left && !h->chunked)
		finish(h);
	return n;
}

int http1_collect(struct http1 *h, size_t max, struct strbuf *ret, struct garret_error *err)
{
	ssize_t n;

	strbuf_reset(ret);
	do {
		strbuf_reserve(ret, PIECE);
		n = http1_read(h, ret->buf + ret->len, PIECE, err);
		if (n < 0)
			return (int)n;
		ret->len += (size_t)n;
		ret->buf[ret->len] = '\0';
		if (ret->len > max) {
			http1_close(h);
			return garret_fail(err, GARRET_TOO_LARGE,
					   "the answer has more than %zu bytes", max);
		}
	} while (n > 0);
	return 0;
}

/* ---- one request, one connection ---- */

static int send_whole(struct http1 *h, const struct http1_head *q, const struct strbuf *body,
		      int *status, struct garret_error *err)
{
	int rc = http1_begin(h, q, err);

	if (rc == 0 && body)
		rc = http1_send(h, body->buf, body->len, err);
	return rc < 0 ? rc : http1_answer(h, status, err);
}

int http1_request(const struct http1_target *t, const char *method, const char *path,
		  const char *token, const struct strbuf *body, size_t max, int *status,
		  struct strbuf *answer, struct garret_error *err)
{
	const struct http1_head q = { .method = method,
				      .path = path,
				      .token = token,
				      .more = "Connection: close\r\n",
				      .length = body ? (int64_t)body->len : HTTP1_NO_BODY };
	struct http1 h;
	int rc;

	http1_init(&h, t);
	rc = send_whole(&h, &q, body, status, err);
	if (rc == 0)
		rc = http1_collect(&h, max, answer, err);
	http1_release(&h);
	return rc;
}

int http1_upgrade(const struct http1_target *t, const char *path, const char *token,
		  const char *protocol, const struct strbuf *body, int *ret_fd, int *status,
		  struct strbuf *answer, struct garret_error *err)
{
	const struct http1_head q = { .method = "POST",
				      .path = path,
				      .token = token,
				      .protocol = protocol,
				      .length = (int64_t)body->len };
	struct http1 h;
	int rc;

	*ret_fd = -EBADF;
	http1_init(&h, t);
	rc = send_whole(&h, &q, body, status, err);
	if (rc == 0 && *status == 101) {
		strbuf_reset(answer);
		strbuf_add(answer, h.in.buf + h.used, h.in.len - h.used);
		*ret_fd = take_fd(&h.fd);
	} else if (rc == 0) {
		rc = http1_collect(&h, HEAD_MAX, answer, err);
	}
	http1_release(&h);
	return rc;
}
