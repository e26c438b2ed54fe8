/*
 * A backend is one environment as handles share it: not opened, being opened, open, or gone.
 * Handles on the same environment of one provider share one backend, so that the first use of
 * many at once makes one environment.
 */
#ifndef LIB_BACKEND_H
#define LIB_BACKEND_H

#include "lib/kind.h"

struct backend {
	struct list link; /* provider.backends, but for one without a provider */
	unsigned refs;    /* handles, runs, transfers; and the opening */
	struct garret_context *context;
	struct garret_provider *provider; /* NULL: it is unavailable, and says why: */
	char *reason;
	bool none; /* it stands for "none was chosen" */

	struct garret_ref ref;
	bool has_ref;
	bool attach;  /* only what is there: the ref was given, or its environment was made once */
	bool settled; /* nobody is opening it */
	bool dead;    /* its environment ended */
	bool ends;    /* its processes end when nobody holds a handle on it */
	struct garret_error open_error;
	struct box *box;     /* NULL: not open */
	struct box *opening; /* made, but not all is known of it */
	struct box_file *asking;
	struct loop_later look;  /* one that was found living is looked at */
	struct loop_timer again; /* it was busy: the next try */
	uint64_t busy_until_ms;  /* 0: it wasn't */
	char id[GARRET_ID_MAX];  /* what is asked for, while it opens */
	char *working_dir;
};

/* With the lock held.  A backend for that ref, or (NULL) for what is opened without one. */
struct backend *backend_get(struct garret_provider *p, const struct garret_ref *ref);
struct backend *backend_unavailable(struct garret_context *c, const char *reason, bool none);
void backend_hold(struct backend *b);
void backend_drop(struct backend *b);
/* Open it unless it is; GONE, UNAVAILABLE, CANCELLED, ... */
int backend_open(struct backend *b, const struct garret_cancel *cancel, struct garret_error *err);
/* Bits of enum garret_abilities; of one that isn't open those that every one of its kind has. */
unsigned backend_abilities(const struct backend *b);
/* The one that is open, or may be, under this id; NULL. */
struct backend *backend_find(struct garret_provider *p, const char *id);
/* This box, which was living already, is its. */
void backend_found(struct backend *b, struct box *box);
/* Is a box on its way out under this id? */
bool backend_closes(struct garret_provider *p, const char *id);
/* Close the box of one that nobody may use any more; the provider counts it as closing. */
void backend_close(struct backend *b, enum box_close how, box_done_fn done, void *ctx);

#endif
