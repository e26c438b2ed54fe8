/*
 * A small blocking HTTP/1.1 client for the command line: one request per
 * connection, over TCP or a Unix socket, the answer collected up to a bound.
 */
#ifndef NET_HTTP1_H
#define NET_HTTP1_H

#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

struct http1_target {
	char host[256]; /* name or address; unused with a socket */
	char port[8];
	char socket[108]; /* Unix socket path; "" for TCP */
};

/* "http://HOST[:PORT]" or "unix:PATH". Nothing else: TLS is for a proxy. */
int http1_parse_url(const char *url, struct http1_target *ret, struct garret_error *err);

/*
 * Send one request.  token and body may be NULL (then there is none).  *status
 * and body of the answer on success; more than max bytes is TOO_LARGE.
 */
int http1_request(const struct http1_target *t, const char *method, const char *path,
		  const char *token, const struct strbuf *body, size_t max, int *status,
		  struct strbuf *answer, struct garret_error *err);

/*
 * POST body and ask for another protocol.  *ret_fd is the connection after 101,
 * with what came behind it in *answer; else -EBADF, and status and answer are
 * those of http1_request().
 */
int http1_upgrade(const struct http1_target *t, const char *path, const char *token,
		  const char *protocol, const struct strbuf *body, int *ret_fd, int *status,
		  struct strbuf *answer, struct garret_error *err);

#endif
