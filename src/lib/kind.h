/*
 * Kinds of providers, as the library sees them: a row of functions per kind.  All of them but
 * the custom ones end in a `struct provider_ops` (core/provider.h), which does the work.
 *
 * Every function is called with the context's lock held.
 */
#ifndef LIB_KIND_H
#define LIB_KIND_H

#include "base/list.h"
#include "core/provider.h"
#include "lib/context.h"
#include "lib/options.h"

struct backend;

struct provider_kind {
	const char *name;
	const struct option_row *options;
	bool takes_store;
	unsigned abilities; /* enum garret_abilities, of every environment of this kind */
	bool goes_on;       /* environments live elsewhere: letting go of one ends nothing in it */

	bool hex_ids;     /* of 32 digits; else "s-" and 16 */
	unsigned busy_ms; /* how long a CONFLICT of an open is waited out */

	/* Options that don't go together, and what follows from them.  No I/O. */
	int (*check)(struct garret_options *o, struct garret_error *err);
	/* Would this id be attached to?  No I/O. */
	bool (*owns)(const struct garret_options *o, const char *id);
	/* The id of the one that is opened without a ref, or NULL: the provider finds one. */
	const char *(*named)(const struct garret_options *o);
	/* Set p->ops and p->impl; may wait (context_wait()).  Once, before anything else. */
	int (*start)(struct garret_provider *p, const struct garret_cancel *cancel,
		     struct garret_error *err);
	/* Release p->impl, when no box of ours is open. */
	void (*stop)(struct garret_provider *p);
	/* Fill what the options say of a box.  Strings are borrowed from the options. */
	void (*spec)(struct garret_provider *p, struct box_spec *spec);
	/* More abilities, of one that is open.  NULL: none. */
	unsigned (*more)(const struct backend *b);
	/* It is open under that id: remember what finds it again.  NULL is fine. */
	void (*opened)(struct garret_provider *p, struct backend *b);
	/* It was removed.  NULL is fine. */
	void (*forgotten)(struct garret_provider *p, const char *id);
	/* Is it to end when nobody holds a handle on it any more? */
	bool (*ends)(const struct garret_options *o);
};

struct garret_provider {
	unsigned refs;
	struct garret_context *context;
	const struct provider_kind *kind; /* NULL: custom */
	char name[GARRET_PROVIDER_MAX];
	struct garret_options *options;
	struct garret_custom custom;

	const struct provider_ops *ops;
	struct provider *impl;
	bool starting, started;
	struct list backends; /* those that are, or may become, open */
	struct list closings; /* boxes on their way out */
	unsigned closing;     /* how many these are */
	struct garret_provider *next_ended;
	void *own; /* the kind's */
};

/* MISUSE when it wasn't built in, INVALID for a name that is none. */
int provider_kind_find(const char *name, const struct provider_kind **ret,
		       struct garret_error *err);
/* Start it unless it is; others that start it meanwhile are waited for. */
int provider_start(struct garret_provider *p, const struct garret_cancel *cancel,
		   struct garret_error *err);
void provider_hold(struct garret_provider *p);
void provider_drop(struct garret_provider *p);
/* Nothing of it is closing any more: for context_wait_for(). */
bool provider_is_idle(const void *provider);
/* What provider_drop() does last.  It waits. */
void provider_end(struct garret_provider *p);

extern const struct provider_kind native_kind, state_kind, sandboxd_kind, docker_kind;

#endif
