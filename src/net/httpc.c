/*
 * curl's multi interface in our loop.  curl says which sockets it watches and
 * when it wants to be woken; we enter it for those, and afterwards collect what
 * has come to its end.
 *
 * curl must not be entered from inside its own callbacks.  So nothing here is
 * added, paused or removed from inside one: calls do that at the end of the
 * round (loop_later) when `inside` says so.
 */
#include "net/httpc.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/httpc_impl.h"

#define CONNECTIONS_KEPT 16

struct watched {
	struct list link;
	struct loop_io io;
	struct httpc *h;
};

static void collect(struct httpc *h)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(h->multi, &left))) {
		CURLcode code = m->data.result;
		struct httpc_user *u = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &u);
		u->done(u, code);
	}
}

void httpc_act(struct httpc *h, curl_socket_t fd, int events)
{
	int running;

	h->inside++;
	(void)curl_multi_socket_action(h->multi, fd, events, &running);
	h->inside--;
	collect(h);
}

static void on_socket(struct loop_io *io, uint32_t events)
{
	struct watched *w = io->ctx;
	int what = 0;

	if (events & EPOLLIN)
		what |= CURL_CSELECT_IN;
	if (events & EPOLLOUT)
		what |= CURL_CSELECT_OUT;
	if (events & (EPOLLERR | EPOLLHUP))
		what |= CURL_CSELECT_ERR;
	httpc_act(w->h, io->fd, what);
}

static void unwatch(struct watched *w)
{
	loop_io_remove(&w->io);
	list_remove(&w->link);
	free(w);
}

static int socket_changed(CURL *easy, curl_socket_t fd, int what, void *ctx, void *socket_ctx)
{
	struct httpc *h = ctx;
	struct watched *w = socket_ctx;
	uint32_t events = 0;

	(void)easy;
	/* With nothing to wait for, a hang-up would be reported again and again. */
	if (what == CURL_POLL_REMOVE || what == CURL_POLL_NONE) {
		if (w)
			unwatch(w);
		(void)curl_multi_assign(h->multi, fd, NULL);
		return 0;
	}
	if (what & CURL_POLL_IN)
		events |= EPOLLIN;
	if (what & CURL_POLL_OUT)
		events |= EPOLLOUT;
	if (w) {
		loop_io_mod(&w->io, events);
		return 0;
	}
	w = xnew(struct watched);
	w->h = h;
	w->io.fd = -EBADF;
	list_append(&h->sockets, &w->link);
	(void)curl_multi_assign(h->multi, fd, w);
	/* Not watched, it runs into the time-outs of its requests. */
	(void)loop_io_add(h->loop, &w->io, fd, events, on_socket, w, NULL);
	return 0;
}

static void on_timer(struct loop_timer *t)
{
	httpc_act(t->ctx, CURL_SOCKET_TIMEOUT, 0);
}

static int timer_changed(CURLM *multi, long ms, void *ctx)
{
	struct httpc *h = ctx;

	(void)multi;
	if (ms < 0)
		loop_timer_clear(&h->timer);
	else
		loop_timer_set(h->loop, &h->timer, now_ms() + (uint64_t)ms, on_timer, h);
	return 0;
}

/* ---- a client ---- */

/* "localhost", 127.0.0.0/8 and ::1; a proxy there would be another machine's view of itself. */
static bool is_near(const char *host, size_t n)
{
	return (n == 9 && !strncasecmp(host, "localhost", 9)) ||
	       (n > 4 && !strncmp(host, "127.", 4) && strspn(host, "0123456789.") >= n) ||
	       (n == 5 && !strncmp(host, "[::1]", 5));
}

static int parse_target(struct httpc *h, const struct httpc_target *t, struct garret_error *err)
{
	const char *host = t->url;
	size_t n;

	if (!strncmp(host, "https://", 8)) {
		h->tls = true;
		host += 8;
	} else if (!strncmp(host, "http://", 7)) {
		host += 7;
	} else {
		return garret_fail(err, GARRET_INVALID, "not an http:// or https:// address");
	}
	n = strlen(host);
	/* "user:password@" would end in messages; a path belongs to the request. */
	if (strchr(host, '@'))
		return garret_fail(err, GARRET_INVALID, "an address must not hold credentials");
	for (const char *p = host; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr(".-_:[]%", *p))
			n = 0;
	if (n == 0 || n > 300)
		return garret_fail(err, GARRET_INVALID, "not the address of a host");
	h->url = xstrdup(t->url);
	h->host = xstrdup(host);
	h->near = t->socket ||
		  is_near(host, host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":"));
	h->socket = t->socket ? xstrdup(t->socket) : NULL;
	h->name = t->socket ? xasprintf("unix:%s", t->socket) : xstrdup(t->url);
	return 0;
}

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static int make_multi(struct httpc *h, struct garret_error *err)
{
	static bool begun;

	if (!begun && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return garret_fail(err, GARRET_INTERNAL, "libcurl can't be initialised");
	begun = true;
	h->multi = curl_multi_init();
	if (!h->multi)
		return garret_fail(err, GARRET_EXHAUSTED, "no memory for an HTTP client");
	(void)curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, socket_changed);
	(void)curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
	(void)curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, timer_changed);
	(void)curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
	(void)curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT);
	return 0;
}

int httpc_new(struct loop *l, const struct httpc_target *t, struct httpc **ret,
	      struct garret_error *err)
{
	struct httpc *h = xnew(struct httpc);
	int rc;

	h->loop = l;
	list_init(&h->sockets);
	list_init(&h->calls);
	list_init(&h->raws);
	rc = parse_target(h, t, err);
	if (rc == 0 && t->tls) {
		h->ca = copy(t->tls->ca);
		h->cert = copy(t->tls->cert);
		h->key = copy(t->tls->key);
		h->no_verify = t->tls->no_verify;
	}
	if (rc == 0 && h->tls)
		rc = httpc_secure_check(h, err);
	if (rc == 0)
		rc = make_multi(h, err);
	if (rc < 0) {
		httpc_free(h);
		return rc;
	}
	*ret = h;
	return 0;
}

struct httpc *httpc_free(struct httpc *h)
{
	if (!h)
		return NULL;
	while (!list_empty(&h->calls))
		httpc_call_drop(
			(struct httpc_call *)list_entry(h->calls.next, struct httpc_user, link));
	while (!list_empty(&h->raws))
		httpc_raw_free(
			(struct httpc_raw *)list_entry(h->raws.next, struct httpc_user, link));
	if (h->multi)
		(void)curl_multi_cleanup(h->multi);
	while (!list_empty(&h->sockets))
		unwatch(list_entry(h->sockets.next, struct watched, link));
	loop_timer_clear(&h->timer);
	if (h->key)
		explicit_bzero(h->key, strlen(h->key));
	free(h->name);
	free(h->url);
	free(h->socket);
	free(h->host);
	free(h->ca);
	free(h->cert);
	free(h->key);
	free(h);
	return NULL;
}

const char *httpc_name(const struct httpc *h)
{
	return h->name;
}

/* ---- what every request shares ---- */

int httpc_check_request(const struct httpc_request *rq, struct garret_error *err)
{
	if (rq->path[0] != '/' || strpbrk(rq->path, " \t\r\n\"<>") || strlen(rq->path) > 8192)
		return garret_fail(err, GARRET_INVALID, "not the path of a request");
	for (const char *p = rq->method; *p; p++)
		if (!isupper((unsigned char)*p))
			return garret_fail(err, GARRET_INVALID, "not a method");
	for (const char *const *p = rq->headers; p && *p; p++)
		if (strpbrk(*p, "\r\n") || !strchr(*p, ':'))
			return garret_fail(err, GARRET_INVALID, "a header has a line break in it");
	return 0;
}

static void set_blob(CURL *e, CURLoption option, char *text)
{
	/* The text lives as long as the client: no copy. */
	struct curl_blob b = { .data = text, .len = text ? strlen(text) : 0 };

	if (text)
		(void)curl_easy_setopt(e, option, &b);
}

static void set_tls(CURL *e, struct httpc *h)
{
	(void)curl_easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	(void)curl_easy_setopt(e, CURLOPT_SSL_VERIFYPEER, h->no_verify ? 0L : 1L);
	(void)curl_easy_setopt(e, CURLOPT_SSL_VERIFYHOST, h->no_verify ? 0L : 2L);
	set_blob(e, CURLOPT_CAINFO_BLOB, h->ca);
	set_blob(e, CURLOPT_SSLCERT_BLOB, h->cert);
	set_blob(e, CURLOPT_SSLKEY_BLOB, h->key);
}

/* Where and how, without what: also of a connection that will be ours. */
CURL *httpc_easy(struct httpc *h, const char *path, char *error_text)
{
	autofree char *url = xasprintf("%s%s", h->url, path);
	CURL *e = curl_easy_init();

	if (!e)
		return NULL;
	(void)curl_easy_setopt(e, CURLOPT_URL, url);
	(void)curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(e, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(e, CURLOPT_PATH_AS_IS, 1L);
	(void)curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
	(void)curl_easy_setopt(e, CURLOPT_ERRORBUFFER, error_text);
	(void)curl_easy_setopt(e, CURLOPT_USERAGENT, "garret/" GARRET_VERSION);
	if (h->socket)
		(void)curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, h->socket);
	if (h->near)
		(void)curl_easy_setopt(e, CURLOPT_PROXY, "");
	if (h->tls)
		set_tls(e, h);
	return e;
}

static enum garret_code code_of(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_SEND_FAIL_REWIND:
	case CURLE_PARTIAL_FILE:
	case CURLE_PROXY:
		return GARRET_UNAVAILABLE;
	case CURLE_OPERATION_TIMEDOUT:
		return GARRET_TIMEOUT;
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_INVALIDCERTSTATUS:
	case CURLE_SSL_ISSUER_ERROR:
		return GARRET_DENIED;
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_URL_MALFORMAT:
		return GARRET_INVALID;
	case CURLE_OUT_OF_MEMORY:
		return GARRET_EXHAUSTED;
	default: /* what came isn't HTTP, or isn't TLS */
		return GARRET_PROTOCOL;
	}
}

int httpc_curl_error(const struct httpc *h, CURL *easy, CURLcode code, const char *error_text,
		     struct garret_error *err)
{
	enum garret_code is = code_of(code);
	char text[CURL_ERROR_SIZE];
	long sys = 0;
	int rc;

	(void)snprintf(text, sizeof(text), "%s",
		       error_text[0] ? error_text : curl_easy_strerror(code));
	/* It may quote what a stranger sent. */
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
	/* The same code of curl's as for a broken connection. */
	if (code == CURLE_RECV_ERROR && strstr(text, "chunked-encoding"))
		is = GARRET_PROTOCOL;
	(void)curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &sys);
	/* curl speaks of the port of a name that isn't looked up; waiting gives nobody rights. */
	if (code == CURLE_COULDNT_CONNECT && h->socket && sys) {
		is = sys == EACCES || sys == EPERM ? GARRET_DENIED : is;
		(void)snprintf(text, sizeof(text), "can't connect");
	}
	rc = garret_fail(err, is, "%s: %s%s%s", h->name, text,
			 sys && code == CURLE_COULDNT_CONNECT ? ": " : "",
			 sys && code == CURLE_COULDNT_CONNECT ? strerror((int)sys) : "");
	if (err)
		err->sys = (int)sys;
	return rc;
}

/* ---- heads ---- */

bool httpc_head_add(struct strbuf *head, const char *line, size_t n)
{
	const char *colon = memchr(line, ':', n);
	const char *value = colon ? colon + 1 : NULL, *end = line + n;

	if (head->len + n + 2 > HTTPC_HEAD_MAX)
		return false;
	if (!colon || memchr(line, '\0', n))
		return true;
	while (value < end && (*value == ' ' || *value == '\t'))
		value++;
	while (end > value && isspace((unsigned char)end[-1]))
		end--;
	strbuf_add(head, line, (size_t)(colon - line));
	strbuf_addch(head, '\0');
	strbuf_add(head, value, (size_t)(end - value));
	strbuf_addch(head, '\0');
	return true;
}

const char *httpc_header(const struct httpc_answer *a, const char *name)
{
	const char *p = a->head->buf, *end = p + a->head->len;

	while (p < end) {
		const char *value = p + strlen(p) + 1;

		if (!strcasecmp(p, name))
			return value;
		p = value + strlen(value) + 1;
	}
	return NULL;
}
