/*
 * Routes: a table says which method and path, who may call, what body and
 * query it takes, and who answers.  A handler starts when all of that is
 * checked and finds the values in call->values.
 *
 * Order of the checks: path, method, session id (422), token (401, 410 for one
 * of an ended generation), what the token's scope allows (403), session (404,
 * service token only), then the body is read (413), parsed (422) and checked
 * together with path and query (422).
 *
 * To a token of one tenant the sessions and kept files of others aren't there.
 */
#ifndef API_ROUTE_H
#define API_ROUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "api/throttle.h"
#include "base/list.h"
#include "core/service.h"
#include "io/loop.h"
#include "net/httpd.h"
#include "net/json.h"

struct call;

enum route_auth {
	ROUTE_OPEN,
	ROUTE_SERVICE, /* the service's token */
	ROUTE_SESSION, /* that or the session's own; the first path parameter is its id */
};

/* Which of the service's tokens may call it; a session's own token isn't asked. */
enum route_scope {
	SCOPE_ALL,   /* only one that may do everything */
	SCOPE_WRITE, /* not one that may only look */
	SCOPE_READ,  /* each of them */
};

struct route {
	const char *method, *path; /* "/sessions/{session_id}" */
	enum route_auth auth;
	enum route_scope scope;
	bool head;     /* answers HEAD as well */
	bool unread;   /* is answered without reading the body */
	bool upgrades; /* answers 101 and leaves HTTP */
	bool wakes;    /* needs the environment of the session */
	bool strict;   /* the handler checks the body itself */
	bool raw;      /* the body isn't parsed: the handler passes it on */
	bool kept;     /* the first parameter names kept files */
	bool ended;    /* also of ended generations, as long as something of their runs is kept */
	size_t body_limit;                              /* 0: 1 MiB */
	size_t values_size;                             /* of the struct that the tables fill */
	const struct json_field *params, *query, *body; /* params: beyond session_id */
	void (*handle)(struct call *c);
	const char *operation; /* of the application layer that answers; NULL */
	/* For the OpenAPI document: text; name of a shape, a media type or NULL. */
	const char *summary, *answer, *accepted; /* accepted: the shape of a 202 */
};

extern const struct route routes[]; /* ends with path NULL */

#define CALL_PARAMS_MAX 2

/*
 * One request on its way through a handler.  It has one reference while the
 * request lives and one for each operation that was started with it as ctx.
 */
struct call {
	struct api *api;
	struct service *service;
	struct http_request *rq; /* NULL: the client is gone, there is nobody to answer */
	const struct route *route;
	char *params[CALL_PARAMS_MAX]; /* decoded, in the order of the path */
	const char *session_id;        /* params[0] of a session route */
	uint64_t generation;           /* that the token is good for; 0: all, it is the service's */
	struct caller caller;
	struct json_t *body;
	void *values;
	unsigned refs;
	struct loop_timer delay;
	/* The client is gone: end what was started for it.  May be NULL. */
	void (*leave)(struct call *c);
	void *pending; /* leave's */
};

struct api {
	struct loop *loop;
	struct service *service;
	struct httpd *httpd;
	struct app_link *app;
	uint16_t port;
	struct throttle throttle;
	struct list streams; /* sse.c */
	unsigned delayed;    /* answers that wait because of the throttle */
	char *openapi;       /* made on first use */
};

/* The scope of a caller in words: "all", "read", "tenant:NAME", "tenant:NAME+read". */
void route_scope_text(const char *tenant, bool read_only, char out[80]);
/* Answer 403 and name the scope. */
void route_forbid(struct call *c, const char *what);

void route_handle(void *ctx, struct http_request *rq);

struct call *call_ref(struct call *c);
void call_unref(struct call *c);

#endif
