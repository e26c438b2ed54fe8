/* Workspaces: handles, and what is asked of a whole environment. */
#ifndef GARRET_WORKSPACE_H
#define GARRET_WORKSPACE_H

#include "garret/provider.h"

enum garret_abilities {
	GARRET_HAS_COMMANDS = 1 << 0,
	GARRET_HAS_FILES = 1 << 1,    /* file operations are messages, no commands */
	GARRET_HAS_REALPATH = 1 << 2, /* links are resolved by the environment itself */
	GARRET_HAS_STREAMS = 1 << 3,  /* input and output of a command while it runs */
	GARRET_HAS_CONFINED = 1 << 4, /* garret_wrap_confined() is kept by what opens the file */
	GARRET_ISOLATES = 1 << 5,     /* commands can't reach the host */
};

/* Another handle on the same; free it as well. */
GARRET_PUBLIC struct garret_workspace *garret_workspace_dup(struct garret_workspace *w);
/* The environment stays (see garret_context_free()).  Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_workspace *garret_workspace_free(struct garret_workspace *w);

/* What this handle waits for may be given up by it; NULL: by nothing.  See context.h. */
GARRET_PUBLIC void garret_workspace_set_cancel(struct garret_workspace *w,
					       struct garret_cancel *cancel);

/*
 * Its ref: 0, or -NOT_FOUND when there is none yet (nothing was done in it).  No I/O.  It is
 * there as soon as the environment was made, also when a later step of that failed or was
 * cancelled, and never changes.
 */
GARRET_PUBLIC int garret_workspace_ref(struct garret_workspace *w, struct garret_ref *ret);
/* Bits of enum garret_abilities.  May open the environment. */
GARRET_PUBLIC int garret_workspace_abilities(struct garret_workspace *w, unsigned *ret,
					     struct garret_error *err);
GARRET_PUBLIC bool garret_workspace_read_only(const struct garret_workspace *w);
/* False only of what garret_unavailable() and garret_no_workspace() made. */
GARRET_PUBLIC bool garret_workspace_attached(const struct garret_workspace *w);
/* Do both stand on the same environment, below their wrappers? */
GARRET_PUBLIC bool garret_workspace_same(const struct garret_workspace *a,
					 const struct garret_workspace *b);

/*
 * Of a handle without a ref that nothing was done in: from now on it means that environment, as if it
 * had been attached to it (who learned meanwhile that somebody else has made it).  Handles that
 * share its environment share this.  0 when it has that ref already; MISUSE when it has another,
 * or is just being opened; INVALID for a ref that isn't its provider's.  No I/O.
 */
GARRET_PUBLIC int garret_workspace_pin(struct garret_workspace *w, const struct garret_ref *ref,
				       struct garret_error *err);

/*
 * Open it now, if it isn't: what every first operation does.  Then it has a ref.
 */
GARRET_PUBLIC int garret_workspace_ensure(struct garret_workspace *w, struct garret_error *err);

/* ---- paths: bytes without NUL, at most 4,095.  Results are malloc()ed, the caller's ---- */

/* Absolute, its links resolved; it never changes. */
GARRET_PUBLIC int garret_working_dir(struct garret_workspace *w, char **ret,
				     struct garret_error *err);
/*
 * path as text: joined to base (NULL: the working directory; else absolute, or INVALID) and
 * normal.  Links are not followed: this confines nothing.  Opens the environment only to learn
 * its working directory.
 */
GARRET_PUBLIC int garret_resolve(struct garret_workspace *w, const char *path, const char *base,
				 char **ret, struct garret_error *err);
/*
 * Every link resolved; what is missing stays as it is written.  A relative path is joined, not
 * made normal first: `link/..` climbs from the link's target.
 */
GARRET_PUBLIC int garret_realpath(struct garret_workspace *w, const char *path, char **ret,
				  struct garret_error *err);

#endif
