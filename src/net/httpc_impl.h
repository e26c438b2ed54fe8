/* What the files of the HTTP client share; nobody else includes this. */
#ifndef NET_HTTPC_IMPL_H
#define NET_HTTPC_IMPL_H

#include <curl/curl.h>

#include "base/list.h"
#include "net/httpc.h"

#define HTTPC_CONNECT_MS 10000
#define HTTPC_MAX_BYTES (1u << 20)
#define HTTPC_HEAD_MAX (64u << 10) /* of an answer: proxies and registries send 20 KiB of it */
#define HTTPC_QUEUE (256u << 10)   /* of a body, or of what is written, that waits */

struct httpc {
	struct loop *loop;
	CURLM *multi;
	struct loop_timer timer;
	struct list sockets; /* of curl, watched */
	struct list calls, raws;
	unsigned inside; /* a callback of curl's is on the stack: it may not be entered */
	char *name, *url, *socket;
	char *host; /* as the Host header has it */
	char *ca, *cert, *key;
	bool tls, no_verify, near; /* near: never through a proxy */
};

/* Enter curl: what it calls back may not enter it again. */
void httpc_act(struct httpc *h, curl_socket_t fd, int events);

/* An easy handle with all that is the same for every request; what is timed is not set. */
CURL *httpc_easy(struct httpc *h, const char *path, char *error_text);
/* Fill err from curl's code. */
int httpc_curl_error(const struct httpc *h, CURL *easy, CURLcode code, const char *error_text,
		     struct garret_error *err);
int httpc_check_request(const struct httpc_request *rq, struct garret_error *err);

/* A head is kept as "name\0value\0...". */
bool httpc_head_add(struct strbuf *head, const char *line, size_t n);

/*
 * httpc_answer.c: take the head of an answer off `in`, past those of 1xx but 101.  1: it
 * is there; 0: more must come; -1: it is none.
 */
int httpc_answer_head(struct strbuf *in, struct strbuf *head, int *status);
/* Chunks into body: 1 at their end, 0 when more must come, -1 when they aren't chunks. */
int httpc_answer_unchunk(const struct strbuf *in, struct strbuf *body);

/* httpc_call.c, httpc_raw.c: curl is through with that handle. */
void httpc_call_done(void *call, CURLcode code);
void httpc_raw_connected(void *raw, CURLcode code);
void httpc_call_drop(struct httpc_call *c);
/* Handles carry this, to tell the two kinds apart. */
struct httpc_user {
	struct list link;
	struct httpc *h;
	CURL *easy;
	void (*done)(void *user, CURLcode code);
};

/* httpc_tls.c: TLS on a connection of our own */
struct httpc_secure;
int httpc_secure_new(const struct httpc *h, int fd, struct httpc_secure **ret,
		     struct garret_error *err);
struct httpc_secure *httpc_secure_free(struct httpc_secure *s);
/* > 0: bytes; 0: end; -1 with errno EAGAIN (*wants_out: the socket must be writable first), or
 * another errno and err. */
ssize_t httpc_secure_read(struct httpc_secure *s, void *buf, size_t n, bool *wants_out,
			  struct garret_error *err);
ssize_t httpc_secure_write(struct httpc_secure *s, const void *buf, size_t n, bool *wants_out,
			   struct garret_error *err);
/* Handshake: 0 done; -1 as above. */
int httpc_secure_greet(struct httpc_secure *s, bool *wants_out, struct garret_error *err);
/* Say that nothing more is written: 0 said; -1 as above. */
int httpc_secure_end(struct httpc_secure *s, bool *wants_out);
/* Can the material be used at all? */
int httpc_secure_check(const struct httpc *h, struct garret_error *err);

#endif
