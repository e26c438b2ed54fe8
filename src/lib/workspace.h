/*
 * A handle: a backend, the wrappers over it, and what may give its calls up.  Wrappers are a
 * list of rules, not objects that forward: every operation passes through one place
 * (operation.c), which asks each rule, so that none can be missed.
 */
#ifndef LIB_WORKSPACE_H
#define LIB_WORKSPACE_H

#include "garret/wrap.h"
#include "lib/backend.h"

enum layer_kind {
	LAYER_READ_ONLY,
	LAYER_CONFINED,
	LAYER_RECORDING,
	LAYER_GUARDED,
	LAYER_AUTHORITY
};

/* A wrapper: shared by handles, never changed. */
struct layer {
	unsigned refs;
	struct layer *inner; /* the next one towards the backend; held */
	enum layer_kind kind;
	garret_record_fn *record;
	garret_guard_fn *guard;
	void *data; /* of record or guard */
	enum garret_authority level;
	struct garret_authority_rule *rules; /* paths are ours */
	size_t n_rules;
};

struct garret_workspace {
	struct backend *backend;
	struct layer *top; /* NULL: no wrapper */
	struct garret_cancel *cancel;
};

/* The caller's reference passes to it.  With the lock held. */
struct garret_workspace *workspace_new(struct backend *b);
/* Another handle on the same, with one more rule; the layer passes to it. */
struct garret_workspace *workspace_wrap(const struct garret_workspace *w, struct layer *layer);
bool workspace_has(const struct garret_workspace *w, enum layer_kind kind);

/* ---- one operation (operation.c) ---- */

struct operation {
	enum garret_operation kind;
	const char *path, *to; /* as they were given; NULL */
	const char *command;
	const char *pattern, *include; /* of a search; NULL */
	unsigned search_flags;
	uint64_t bytes, results;
	int exit_code;
	bool confined; /* a rule wants the file to be inside */

	/* Inside. */
	uint64_t begun_us;
	const struct layer *refused; /* the rule that refused; those below it don't know of it */
};

/*
 * Ask the rules, from the outside in.  Without the lock.  operation_end() is due in any case
 * behind it, with what came of it; it returns rc.
 */
int operation_begin(struct garret_workspace *w, struct operation *op, struct garret_error *err);
int operation_end(struct garret_workspace *w, struct operation *op, int rc);

/* Is that a path?  INVALID; no I/O. */
int path_check(const char *what, const char *path, struct garret_error *err);
/* path joined to base and made normal; malloc()ed. */
char *path_normal(const char *base, const char *path);
/* The same without making it normal. */
char *path_join(const char *base, const char *path);
/* Is path, both normal, base or below it? */
bool path_below(const char *path, const char *base);

#endif
