/* What httpd.c (daemon, connections) and http_request.c (one request) share. */
#ifndef NET_HTTP_INTERNAL_H
#define NET_HTTP_INTERNAL_H

#include <microhttpd.h>
#include <netinet/in.h>

#include "base/list.h"
#include "io/loop.h"
#include "net/httpd.h"

#define HEADER_BYTES_MAX 16384
#define HEADER_MS_MAX 10000
#define IDLE_MS_MAX 75000 /* longer than the clients' own pools, so that they close first */
#define BODY_GRACE_MS 5000
#define ANSWER_MS_MAX 30000
#define BODY_BYTES_PER_S 16384

/* What a connection is doing, and since when: the sweep ends what takes too long. */
enum conn_state { CONN_HEADERS, CONN_BODY, CONN_WORK, CONN_ANSWER, CONN_IDLE };

struct conn {
	struct list link;
	struct httpd *httpd;
	int fd; /* MHD's */
	enum conn_state state;
	uint64_t since_ms, body_bytes;
	uint64_t progress_ms, answer_bytes; /* CONN_ANSWER */
	char address[INET6_ADDRSTRLEN];
};

struct http_param {
	char *name, *value;
	const char *raw; /* the value as it stands in the target */
	size_t raw_n;
	char *bytes; /* once they were asked for */
	size_t n;
};

enum rq_phase {
	RQ_NEW,      /* headers are not all here */
	RQ_BEGUN,    /* handle() was called */
	RQ_BODY,     /* the body is arriving */
	RQ_WAIT,     /* the whole body is here */
	RQ_ANSWER,   /* the answer is being sent */
	RQ_UPGRADED, /* no HTTP any more */
};

#define RQ_HEADERS_MAX 8

struct http_request {
	struct list link;
	struct httpd *httpd;
	struct conn *conn;
	struct MHD_Connection *mhd;
	enum rq_phase phase;
	bool seen, suspended, gone, has_body, needs_host, counted, from_source;
	bool early;                /* answered before its body was read */
	bool asleep, source_ready; /* http_source.c */
	uint64_t asleep_ms;
	char method[16];
	char *target, *path;
	struct http_param *params;
	unsigned n_params;
	uint64_t started_us, content_length; /* UINT64_MAX: chunked */

	void *data;
	void (*release)(void *data);
	void (*on_gone)(void *data);

	struct strbuf body;
	size_t body_limit;
	bool too_large, no_room, sink_full;
	size_t kept; /* of httpd.bodies */
	uint64_t discarded;
	http_sink sink;
	void (*body_done)(struct http_request *rq);

	struct loop_io watch; /* while suspended: does the client go away? */

	/* Another protocol (http_upgrade.c). */
	http_upgraded upgraded;
	struct MHD_UpgradeResponseHandle *upgrade;
	struct loop_later upgrade_end;

	struct MHD_Response *response;
	unsigned status;
	uint64_t sent;
	struct {
		const char *name;
		char *value;
	} headers[RQ_HEADERS_MAX];
	unsigned n_headers;
};

struct httpd {
	struct loop *loop;
	struct httpd_settings set;
	struct MHD_Daemon *mhd;
	struct loop_io mhd_io;
	struct loop_timer mhd_timer, sweep_timer, retry_timer, drain_timer;
	struct loop_later run_later, drain_later;
	struct list listeners, conns, requests, lingers;
	unsigned n_conns, n_running, n_lingers, n_large;
	size_t bodies; /* bytes of all bodies that are being collected */
	uint64_t trimmed_ms;
	bool paused, draining, stopping;
	bool fresh_over; /* nobody who was accepted has yet to send his request */
	struct loop_timer fresh_timer;
	const char *accepting; /* address of the connection that is being added */
	void (*drained)(void *ctx);
	void *drained_ctx;
};

/* MHD has something to do that its epoll descriptor doesn't show. */
void httpd_kick(struct httpd *h);
/* Keep the socket after MHD closed it until the client has stopped sending. */
void httpd_linger(struct httpd *h, int fd);
void http_linger_end_all(struct httpd *h);
void httpd_running_less(struct httpd *h);

/* MHD's callbacks about a request (http_request.c). */
void *http_on_target(void *cls, const char *uri, struct MHD_Connection *mc);
enum MHD_Result http_on_access(void *cls, struct MHD_Connection *mc, const char *url,
			       const char *method, const char *version, const char *data, size_t *n,
			       void **slot);
void http_on_completed(void *cls, struct MHD_Connection *mc, void **slot,
		       enum MHD_RequestTerminationCode why);
/* The client is gone or has to go. */
void http_abandon(struct http_request *rq);
/* The connection rests, only in the library's own callbacks; its client is watched meanwhile. */
void http_suspend(struct http_request *rq);
void http_resume(struct http_request *rq); /* nothing when it doesn't rest */
/* The answer is decided; the library gets it when it may have it. */
void http_set_response(struct http_request *rq, unsigned status, const char *type,
		       struct MHD_Response *r);

/* http_upgrade.c: give the socket back to the library, now. */
void http_upgrade_close(struct http_request *rq);

/* http_text.c: percent-decoding, to repaired UTF-8 or to bytes as they are. */
char *http_decode(const char *s, size_t n, bool plus);
char *http_decode_bytes(const char *s, size_t n, size_t *ret_n);
void http_parse_target(struct http_request *rq);

#endif
