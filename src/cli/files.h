/* The file routes of a daemon, over one connection. */
#ifndef CLI_FILES_H
#define CLI_FILES_H

#include <jansson.h>

#include "cli/items.h"
#include "cli/place.h"
#include "cli/remote.h"

struct files {
	struct remote remote;
	struct http1 http;
	char *work_dir; /* NULL: not asked for yet */
};

/* url: see remote_find().  Release it in any case. */
int files_prepare(struct files *f, const char *url, struct garret_error *err);
void files_release(struct files *f);

/* ID:PATH with an absolute path; asks for the work directory when it must. */
int files_place(struct files *f, const char *word, struct place *ret, struct garret_error *err);

/* A request of which body or answer is a stream. */
struct files_request {
	const char *method, *route; /* route: behind /v1/sessions/ID/ */
	const struct place *to;     /* a second path, or NULL */
	const char *query;          /* more of it: "&mode=0644", or NULL */
	const char *type;           /* of the body; NULL: JSON */
	const char *more;           /* header lines, or NULL */
	int64_t length;             /* HTTP1_NO_BODY, HTTP1_CHUNKED or that of the body */
};

/* Send its head; then http1_send() and files_answer() on f->http. */
int files_begin(struct files *f, const struct place *p, const struct files_request *q,
		struct garret_error *err);
/*
 * The head of the answer.  400 and more: an error that names the place, with the
 * code of what the daemon says.  Else *status (may be NULL).
 */
int files_answer(struct files *f, const struct place *p, int *status, struct garret_error *err);

/* The rest of an answer as JSON; NULL for an empty one. */
int files_read_json(struct files *f, json_t **ret, struct garret_error *err);

/*
 * One operation (POST files/OP); to may be NULL, and body, which is taken.
 * *ret (may be NULL) is the answer, NULL for an empty one.
 */
int files_call(struct files *f, const struct place *p, const struct place *to, const char *op,
	       json_t *body, json_t **ret, struct garret_error *err);

/* Any route that answers with a list; what stands around it in *ret (may be NULL). */
struct files_list {
	const char *path;       /* of the route, with its query */
	json_t *body;           /* taken; NULL: none, by GET */
	const struct place *at; /* for errors; NULL: none */
	int (*item)(void *ctx, json_t *item, struct garret_error *err);
	void *ctx;
};
int files_list_any(struct files *f, const struct files_list *l, json_t **ret,
		   struct garret_error *err);
/* POST files/OP that answers with a list. */
int files_list(struct files *f, const struct place *p, const char *op, json_t *body,
	       int (*item)(void *ctx, json_t *item, struct garret_error *err), void *ctx,
	       json_t **ret, struct garret_error *err);

/* Describe a file; follow: where a link leads, else the link. */
int files_stat(struct files *f, const struct place *p, bool follow, json_t **ret,
	       struct garret_error *err);
/* Is there a directory?  1 or 0; anything but its absence is an error. */
int files_is_directory(struct files *f, const struct place *p, struct garret_error *err);

#endif
