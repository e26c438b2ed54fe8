/*
 * A small blocking HTTP/1.1 client for the command line, over TCP or a Unix
 * socket.  Bodies and answers are streams of any length (struct http1), or
 * whole and bounded (http1_request()).
 */
#ifndef NET_HTTP1_H
#define NET_HTTP1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/strbuf.h"

struct http1_target {
	char host[256]; /* name or address; unused with a socket */
	char port[8];
	char socket[108]; /* Unix socket path; "" for TCP */
};

/* "http://HOST[:PORT]" or "unix:PATH". Nothing else: TLS is for a proxy. */
int http1_parse_url(const char *url, struct http1_target *ret, struct garret_error *err);

/* ---- streams ---- */

/* What http1_begin() says in the head. */
#define HTTP1_NO_BODY (-1)
#define HTTP1_CHUNKED (-2) /* a body of which the length isn't known */

struct http1_head {
	const char *method, *path;
	const char *token;    /* NULL: none */
	const char *type;     /* of the body; NULL: JSON */
	const char *more;     /* header lines, each with its "\r\n"; NULL: none */
	const char *protocol; /* to go over to; NULL: none */
	int64_t length;       /* of the body, or one of the two above */
};

/*
 * A connection, with one request on it at a time.  It is kept for the next one
 * when the answer was read to its end; any failure closes it.
 */
struct http1 {
	const struct http1_target *target; /* borrowed */
	int fd;
	struct strbuf in; /* arrived; the first `used` bytes of it were given away */
	size_t used;
	struct strbuf head;  /* of the answer */
	int64_t unsent;      /* of the body; HTTP1_CHUNKED: until its last chunk */
	uint64_t left;       /* of the answer's body, or of its chunk */
	bool no_answer_body; /* HEAD */
	bool chunked, in_chunk, over;
};

void http1_init(struct http1 *h, const struct http1_target *t);
/* Closes the connection: the daemon drops a request that isn't whole.  Usable again. */
void http1_close(struct http1 *h);
void http1_release(struct http1 *h);

/* Send the head; the body follows with http1_send(). */
int http1_begin(struct http1 *h, const struct http1_head *head, struct garret_error *err);
/* 0: sent.  1: the answer came before the body was read, the rest of it isn't wanted. */
int http1_send(struct http1 *h, const void *data, size_t n, struct garret_error *err);
/* The body is whole (or wasn't wanted): wait for the head of the answer. */
int http1_answer(struct http1 *h, int *status, struct garret_error *err);
/* The value of a header of the answer; false when there is none, or it doesn't fit. */
bool http1_header(const struct http1 *h, const char *name, char *buf, size_t cap);
/* Some bytes of the answer's body; 0 only at its true end, an error when it was cut off. */
ssize_t http1_read(struct http1 *h, void *buf, size_t cap, struct garret_error *err);
/* The whole body, at most max bytes. */
int http1_collect(struct http1 *h, size_t max, struct strbuf *ret, struct garret_error *err);

/* ---- one request, one connection ---- */

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
