/* Talking to a daemon: where it is, its token, and its JSON answers. */
#ifndef CLI_REMOTE_H
#define CLI_REMOTE_H

#include <jansson.h>

#include "net/http1.h"

struct remote {
	struct http1_target target;
	char token[256];
};

/*
 * url NULL: GARRET_URL, else GARRET_SOCKET, else http://127.0.0.1:8080.  The
 * token: SANDBOXD_TOKEN, else the one that `garret serve` keeps in its state
 * directory (GARRET_STATE_DIR).
 */
int remote_find(struct remote *r, const char *url, struct garret_error *err);

/* What an answer of 400 and more means, as a code and in words (free them; NULL: none). */
enum garret_code remote_code(int status);
char *remote_detail(const json_t *doc);

/*
 * One request; a status of 400 and more is an error with the daemon's text.
 * *ret (may be NULL) is the parsed answer, NULL for an empty one.
 */
int remote_call(const struct remote *r, const char *method, const char *path, json_t *body,
		json_t **ret, struct garret_error *err);

/*
 * POST body to path and go over to protocol: *ret_fd is the connection, *early
 * what already came on it.  A refusal is an error with the daemon's text.
 */
int remote_upgrade(const struct remote *r, const char *path, const char *protocol, json_t *body,
		   int *ret_fd, struct strbuf *early, struct garret_error *err);

#endif
