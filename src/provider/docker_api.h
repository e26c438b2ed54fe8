/*
 * The Docker Engine API, as far as the provider needs it: requests and their
 * answers as JSON, streams of JSON (pulls, builds), commands in a container.
 * The version is agreed on with the first request.
 *
 * Errors are those of httpc, and the engine's own: 400 INVALID, 401 and 403
 * DENIED, 404 NOT_FOUND, 409 CONFLICT, 429 EXHAUSTED, 503 UNAVAILABLE, others
 * INTERNAL, with the engine's text.
 */
#ifndef PROVIDER_DOCKER_API_H
#define PROVIDER_DOCKER_API_H

#include "base/list.h"
#include "provider/docker_host.h"

struct json_t;
struct docker_api;
struct docker_call;

/* What we speak: an engine that knows none of these is refused by name. */
#define DOCKER_API_LEAST 25 /* 1.25: HostConfig.Init, and condition of wait with 1.30 */
#define DOCKER_API_MOST 47

int docker_api_new(struct loop *l, const struct docker_host *h, struct docker_api **ret,
		   struct garret_error *err);
/* Ends what is under way without a word; not from a callback. */
struct docker_api *docker_api_free(struct docker_api *a);
struct loop *docker_api_loop(const struct docker_api *a);
const char *docker_api_name(const struct docker_api *a);
unsigned docker_api_minor(const struct docker_api *a); /* 0: not agreed on yet */
struct httpc *docker_api_client(struct docker_api *a);
struct list *docker_api_execs(struct docker_api *a); /* of docker_exec.c: they end with it */

/* json is borrowed; NULL when the answer has none. */
typedef void (*docker_fn)(void *ctx, const struct json_t *json, const struct garret_error *err);

struct docker_request {
	const char *method, *path; /* path: behind the version, escaped */
	const void *body;
	size_t body_bytes;
	const char *type;   /* of the body; NULL: JSON */
	const char *header; /* one more line; NULL: none */
	uint32_t total_ms;  /* 0: 60 s; UINT32_MAX: none */
	/* With it the answer is a stream of JSON values, given one by one. */
	void (*value)(void *ctx, const struct json_t *json);
};

/* Never NULL: what is wrong comes by fn, which is called exactly once. */
struct docker_call *docker_ask(struct docker_api *a, const struct docker_request *rq, docker_fn fn,
			       void *ctx);
/* Nothing is called any more.  Also from inside a callback but its own fn. */
void docker_cancel(struct docker_call *c);

/* A name or id in a path. */
void docker_escape(struct strbuf *out, const char *s);
/* The error that an answer is. */
int docker_error(int status, const struct strbuf *body, struct garret_error *err);
/* Text that an engine or a registry sent, on its way into a message: one line, printable. */
void docker_clean(char *text);

/* ---- a command in a container ---- */

struct docker_exec;

struct docker_exec_spec {
	const char *container;
	const char *const *argv, *const *env; /* env NULL: none */
	const char *cwd, *user;               /* NULL: the container's */
	bool input, tty, detach;
	uint16_t rows, columns;
};

struct docker_exec_end {
	bool gone;     /* the container is */
	int exit_code; /* of the command; without err and gone */
};

struct docker_exec_events {
	void (*open)(void *ctx); /* its program was started */
	/* Stream 0 or 1. */
	void (*out)(void *ctx, int stream, const void *data, size_t n);
	void (*room)(void *ctx);
	void (*end)(void *ctx, const struct docker_exec_end *end, const struct garret_error *err);
};

/* Never NULL; end comes exactly once, and then it is gone. */
struct docker_exec *docker_exec_start(struct docker_api *a, const struct docker_exec_spec *spec,
				      const struct docker_exec_events *events, void *ctx);
size_t docker_exec_write(struct docker_exec *e, const void *data, size_t n);
void docker_exec_write_end(struct docker_exec *e);
void docker_exec_pause(struct docker_exec *e, bool pause);
void docker_exec_resize(struct docker_exec *e, uint16_t rows, uint16_t columns);
/* Those that nobody has left yet. */
void docker_exec_leave_all(struct docker_api *a);
/* Nobody listens any more; the command may go on. */
void docker_exec_leave(struct docker_exec *e);

#endif
