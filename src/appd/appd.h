/*
 * garret-app: the application layer as a process of its own, for garretd, whose loop must not wait for a
 * database or for another host.  It reads one request at a time from a socket that it was given and
 * answers it; garretd has as many of it as it needs.
 */
#ifndef APPD_APPD_H
#define APPD_APPD_H

#include <jansson.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "garret/app.h"
#include "garret/app_files.h"

/* One request: an operation of an organisation, with what it needs. */
struct request {
	struct garret_app *app;
	const char *organisation;
	json_t *args;    /* an object */
	bool trusted;    /* by a token that isn't one organisation's */
	const char *raw; /* a body that isn't JSON for us; "" */
};

/* 0, with JSON in *out (nothing: there is nothing to be told); or -code. */
typedef int operation_fn(struct request *q, struct strbuf *out, struct garret_error *err);

struct operation {
	const char *name;
	operation_fn *fn;
};
extern const struct operation scope_operations[], file_operations[],
	run_operations[]; /* end with NULL */

/* ---- arguments: NULL, 0 or the default when they aren't there; INVALID names one of another kind ---- */

int arg_text(struct request *q, const char *name, const char **ret, struct garret_error *err);
int arg_number(struct request *q, const char *name, double *ret, struct garret_error *err);
int arg_bool(struct request *q, const char *name, bool *ret, struct garret_error *err);
/* Is there one that isn't among these (NULL-terminated)?  INVALID names it. */
int args_known(struct request *q, const char *const *names, struct garret_error *err);

/* ---- answers ---- */

void put_text(struct strbuf *out, const char *name, const char *text); /* "" is null */
void put_number(struct strbuf *out, const char *name, double v);
void put_base64(struct strbuf *out, const char *name, const void *data, size_t n);
void put_bool(struct strbuf *out, const char *name, bool v);

#endif
