/*
 * An asynchronous HTTP/1.1 client in the loop, for services that providers talk
 * to: over a Unix socket, TCP or TLS, with connections kept for the next
 * request.  A client is for one service, so that no credential, certificate or
 * connection can reach another.  It follows no redirect and never goes through
 * a proxy to a Unix socket or to this machine.
 *
 * No callback comes before the call that asked for it has returned.  Errors:
 * UNAVAILABLE (can't resolve, connect, or the connection broke), TIMEOUT,
 * PROTOCOL (what came isn't HTTP), TOO_LARGE (more than max_bytes), DENIED (its
 * certificate isn't one that we trust, or its socket isn't ours to open).  Any status is an answer, no error.  No
 * error text has a header, a body or a query in it.
 */
#ifndef NET_HTTPC_H
#define NET_HTTPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "io/loop.h"

struct httpc;      /* the client of one service */
struct httpc_call; /* one request and its answer */
struct httpc_raw;  /* a connection that went over to another protocol */

/* PEM text, not file names; ca NULL: those that this machine trusts. */
struct httpc_tls {
	const char *ca, *cert, *key;
	bool no_verify; /* any certificate will do: only where its owner said so */
};

struct httpc_target {
	const char *url;             /* "http://HOST[:PORT]", "https://HOST[:PORT]", no path */
	const char *socket;          /* of a Unix socket: then the URL's host is only a name */
	const struct httpc_tls *tls; /* NULL: defaults */
};

/* What is given is copied.  INVALID when the URL, or TLS material, is of no use. */
int httpc_new(struct loop *l, const struct httpc_target *t, struct httpc **ret,
	      struct garret_error *err);
/* Ends what is under way without a word.  Not from inside a callback. */
struct httpc *httpc_free(struct httpc *h);
/* For messages: "unix:/run/docker.sock", "https://host:2376". */
const char *httpc_name(const struct httpc *h);

#define HTTPC_CHUNKED (-1)

struct httpc_request {
	const char *method, *path;  /* path: with its query, escaped already */
	const char *const *headers; /* "Name: value", NULL-terminated; may be NULL */
	const void *body;           /* the whole body; copied */
	size_t body_bytes;
	bool streamed;              /* the body comes by httpc_body() instead */
	int64_t length;             /* of a streamed one, or HTTPC_CHUNKED */
	uint32_t connect_ms;        /* 0: 10 s */
	uint32_t total_ms, idle_ms; /* 0: none; idle: nothing moved though we waited for it */
	size_t max_bytes;           /* of a collected answer, or of a refused upgrade; 0: 1 MiB */
	bool raw_200;               /* an upgrade: 200 without a length is as good as 101 */
};

struct httpc_answer {
	int status;
	struct strbuf *body; /* collected; may be taken (strbuf_detach) */
	const struct strbuf *head;
};
/* The value of a header (the first of that name), borrowed; NULL when there is none. */
const char *httpc_header(const struct httpc_answer *a, const char *name);

/* Any of them but end may be NULL. */
struct httpc_events {
	/* The head of the answer came; body isn't there yet. */
	void (*head)(void *ctx, const struct httpc_answer *a);
	/* With it the body isn't collected. */
	void (*data)(void *ctx, const void *data, size_t n);
	/* More of a streamed body may be given. */
	void (*room)(void *ctx);
	/* Once and last: the call is gone after it.  a: the answer; NULL with err. */
	void (*end)(void *ctx, const struct httpc_answer *a, const struct garret_error *err);
};

/* Start; events are borrowed.  NULL only when the request itself is wrong. */
struct httpc_call *httpc_start(struct httpc *h, const struct httpc_request *rq,
			       const struct httpc_events *events, void *ctx,
			       struct garret_error *err);
/* No callback comes any more, the connection is dropped.  Also from inside a callback but end. */
void httpc_cancel(struct httpc_call *c);
/* No data comes for now; at most what is on its way in one buffer is kept. */
void httpc_pause(struct httpc_call *c, bool pause);
/* How many bytes of it were taken; when less than n, room() comes. */
size_t httpc_body(struct httpc_call *c, const void *data, size_t n);
void httpc_body_end(struct httpc_call *c);

/* ---- another protocol on the connection ---- */

struct httpc_raw_events {
	/* The other side went over; a is its answer (101, or 200 with raw_200). */
	void (*open)(void *ctx, const struct httpc_answer *a);
	void (*data)(void *ctx, const void *data, size_t n);
	/* What was written has gone out; more may be. */
	void (*room)(void *ctx);
	/*
	 * Nothing more comes: refused (a: another answer came), broken (err), or the other
	 * side has sent its end (neither; writing still works).  It must still be freed.
	 */
	void (*end)(void *ctx, const struct httpc_answer *a, const struct garret_error *err);
};

/*
 * The headers must hold Connection and Upgrade.  total_ms counts until the
 * answer's head, idle_ms doesn't count.
 */
struct httpc_raw *httpc_upgrade(struct httpc *h, const struct httpc_request *rq,
				const struct httpc_raw_events *events, void *ctx,
				struct garret_error *err);
/* How many bytes were taken (0 before open); when less than n, room() comes. */
size_t httpc_raw_write(struct httpc_raw *r, const void *data, size_t n);
/* The end of what we write, behind what was taken. */
void httpc_raw_shutdown(struct httpc_raw *r);
void httpc_raw_pause(struct httpc_raw *r, bool pause);
/* Close it, also from inside a callback.  NULL is fine; returns NULL. */
struct httpc_raw *httpc_raw_free(struct httpc_raw *r);

#endif
