/*
 * An HTTP/1.1 server in our own loop: no thread, several listeners, answers
 * that may come later, bodies and answers that are never held whole.
 *
 * A request passes through these steps, all from the loop:
 *
 *	handle()		the headers are here, the body is not.  Answer (401
 *				before a body was read), or ask for the body, or
 *				return and do either later.
 *	http_read_body()	collect the body up to a limit, then call a function
 *	http_stream_body()	or pass it piece by piece to a sink
 *	http_answer*()		exactly once, at once or later
 *
 * While a request waits the client is watched.  When it goes away before it
 * was answered the gone function is called, once, and the request must not be
 * answered any more.  A client that shuts down its sending side counts as gone
 * (no published client does that, and the kernel can't tell it from a client
 * that closed); one that did so before its request was complete is answered
 * when the answer needs no waiting.
 *
 * Whatever a client does, it is held to: 16 KiB of headers within 10 s, bodies
 * of 16 KiB/s after 5 s, 75 s without a request; an answer from a source is
 * taken at 16 KiB/s after 5 s, and never rests for more than 30 s.
 */
#ifndef NET_HTTPD_H
#define NET_HTTPD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/strbuf.h"

struct loop;
struct httpd;
struct http_request;

struct httpd_settings {
	unsigned max_connections;
	unsigned max_per_address; /* 0: no cap; Unix sockets have none */
	/* Limits in ms; 0: those above.  Tests have less time. */
	unsigned header_ms, body_grace_ms, idle_ms, answer_ms;
	void (*handle)(void *ctx, struct http_request *rq);
	void *ctx;
};

int httpd_new(struct httpd **ret, struct loop *l, const struct httpd_settings *s,
	      struct garret_error *err);
/* Ends everything at once; gone functions are called. NULL is fine; returns NULL. */
struct httpd *httpd_free(struct httpd *h);

/* HOST is an address or a name (its first address counts); port 0: any, see *ret_port. */
int httpd_listen_tcp(struct httpd *h, const char *host, uint16_t port, uint16_t *ret_port,
		     struct garret_error *err);
/* Replaces a socket that nobody listens on; mode is that of the socket file. */
int httpd_listen_unix(struct httpd *h, const char *path, unsigned mode, struct garret_error *err);

/* One that somebody else has bound (fd is the server's, also on failure); *ret_port 0: no TCP. */
int httpd_listen_fd(struct httpd *h, int fd, uint16_t *ret_port, struct garret_error *err);

/* Close the listeners and idle connections; what runs goes on, and closes after its answer. */
void httpd_stop_accepting(struct httpd *h);
/* The same, then call done when nothing runs any more or at deadline_ms, whichever is first. */
void httpd_drain(struct httpd *h, uint64_t deadline_ms, void (*done)(void *ctx), void *ctx);

struct httpd_counts {
	unsigned connections, running; /* running: requests whose answer isn't sent */
};
struct httpd_counts httpd_counts(const struct httpd *h);

/* ---- the request (everything returned is borrowed until it is finished) ---- */

const char *http_method(const struct http_request *rq);
/* Percent-decoded once, repaired UTF-8; a NUL became U+FFFD. */
const char *http_path(const struct http_request *rq);
/* As it was sent, with the query. */
const char *http_target(const struct http_request *rq);
/* The last value of that name, decoded; NULL when there is none. */
const char *http_query(const struct http_request *rq, const char *name);
/* The same in the bytes that were sent, whatever they are: names of files are no text. */
const char *http_query_bytes(const struct http_request *rq, const char *name, size_t *ret_n);
/* The first value, without blanks around it; NULL when there is none. */
const char *http_header(const struct http_request *rq, const char *name);
/* "127.0.0.1", "::1", "unix" */
const char *http_address(const struct http_request *rq);
struct loop *http_loop(const struct http_request *rq);

/* data passes to release() when the request is finished, in whatever way. */
void http_set_data(struct http_request *rq, void *data, void (*release)(void *data));
void *http_data(const struct http_request *rq);
void http_on_gone(struct http_request *rq, void (*fn)(void *data));

/*
 * Collect the body, then call done.  With more than limit bytes done is called
 * with http_body_too_large() true: at once when the length was announced, else
 * when the client has sent it (it isn't kept).
 */
void http_read_body(struct http_request *rq, size_t limit, void (*done)(struct http_request *rq));
bool http_body_too_large(const struct http_request *rq);
/* It isn't kept either when all bodies together have more than 192 MiB: this one too. */
bool http_body_no_room(const struct http_request *rq);
const struct strbuf *http_body(const struct http_request *rq);

/*
 * Pass the body to sink as it arrives, then call done.  The sink returns how
 * much it took; less than n stops the flow until http_more_body(); < 0 ends
 * the connection.
 */
typedef ssize_t (*http_sink)(struct http_request *rq, const void *data, size_t n);
void http_stream_body(struct http_request *rq, http_sink sink,
		      void (*done)(struct http_request *rq));
void http_more_body(struct http_request *rq);

/* ---- the answer ---- */

/* Before the answer; name is static, value is copied. At most 8. */
void http_add_header(struct http_request *rq, const char *name, const char *value);

/* Copies; type NULL: no content-type. */
void http_answer(struct http_request *rq, unsigned status, const char *type, const void *body,
		 size_t n);
/* The memory of body passes to the answer. */
void http_answer_buf(struct http_request *rq, unsigned status, const char *type,
		     struct strbuf *body);
/* Static memory is sent from where it is. */
void http_answer_static(struct http_request *rq, unsigned status, const char *type,
			const void *body, size_t n);

/*
 * An answer that is made while it is sent.  read() fills at most cap (<= 256
 * KiB) bytes and returns how many; 0 at the end; HTTP_SOURCE_WAIT when it has
 * nothing yet; another number < 0 breaks the connection off, because the status
 * can't be taken back.  It must not wait itself.
 *
 * After HTTP_SOURCE_WAIT the connection sleeps until http_source_ready().  That
 * time isn't the client's, but the client is watched: when it goes away (or
 * shuts down its sending side) the answer ends and release() is called.
 */
#define HTTP_SOURCE_WAIT (-2)
struct http_source {
	ssize_t (*read)(void *ctx, char *buf, size_t cap);
	void (*release)(void *ctx);
	void *ctx;
};
/*
 * length < 0: unknown (chunked, or until the end of an HTTP/1.0 connection).  A
 * source that ends before its length closes the connection: the body is short.
 */
void http_answer_source(struct http_request *rq, unsigned status, const char *type, int64_t length,
			const struct http_source *src);
/* There is something now.  Allowed at any time until release() was called, also inside read(). */
void http_source_ready(struct http_request *rq);

/*
 * The same from a pipe that somebody else fills; fd passes to the answer, which
 * makes it non-blocking.  The end of file is the end of the body when end() says
 * so: 0 that was all (also without end()), HTTP_SOURCE_WAIT not known yet (asked
 * again after http_source_ready()), another number < 0 it broke off.  With a
 * known length nobody asks when that much was read.  A client that leaves closes
 * the pipe.
 */
struct http_pipe {
	int fd;
	ssize_t (*end)(void *ctx);
	void (*release)(void *ctx);
	void *ctx;
};
void http_answer_pipe(struct http_request *rq, unsigned status, const char *type, int64_t length,
		      const struct http_pipe *p);

/* ---- another protocol on the same connection ---- */

/* Does the client ask for it: HTTP/1.1, "Connection: Upgrade", "Upgrade: PROTOCOL"? */
bool http_wants_upgrade(const struct http_request *rq, const char *protocol);
/*
 * Answer 101.  When that is sent, started gets the socket (non-blocking, the
 * server's) and what the client sent behind its request.  From then on the
 * caller watches the socket and ends with http_end_upgrade(); the gone function
 * is only called when the server stops, and the socket is closed behind it.
 * When 101 can't be sent the request is released and started is not called.
 */
typedef void (*http_upgraded)(struct http_request *rq, int fd, const void *early, size_t n);
void http_upgrade(struct http_request *rq, const char *protocol, http_upgraded started);
/*
 * Nothing more is sent, and the socket may not be used any more.  What the
 * client still sends is read for a while, so that it gets what was written.
 */
void http_end_upgrade(struct http_request *rq, int fd);

#endif
