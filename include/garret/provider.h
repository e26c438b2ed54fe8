/* Providers: configured kinds of places, and how a workspace is chosen among them. */
#ifndef GARRET_PROVIDER_H
#define GARRET_PROVIDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "garret/context.h"

struct garret_provider;
struct garret_options;
struct garret_workspace;

#define GARRET_PROVIDER_MAX 80 /* bytes of a provider's name with its NUL */
#define GARRET_ID_MAX 200      /* bytes of an id with its NUL */

/*
 * The name of one environment, for ever.  Plain data without secrets: store it, copy it, compare
 * it.  One that comes from a stranger (a message history) is untrusted input: see the provider.
 */
struct garret_ref {
	char provider[GARRET_PROVIDER_MAX];
	char id[GARRET_ID_MAX];
};

/* INVALID when one is empty, too long, or holds a character below space. */
GARRET_PUBLIC int garret_ref_make(struct garret_ref *ret, const char *provider, const char *id,
				  struct garret_error *err);
GARRET_PUBLIC bool garret_ref_equal(const struct garret_ref *a, const struct garret_ref *b);

/* ---- options ---- */

/*
 * What a provider is opened with: names and values as garret-providers(7) lists them.  Each is
 * checked when it is set, and the error names it and its limits; a list (env, volumes) is set
 * once per item.  Values never appear in an error: they may be secrets.
 */
GARRET_PUBLIC int garret_options_new(const char *provider, struct garret_options **ret,
				     struct garret_error *err);
GARRET_PUBLIC int garret_options_set(struct garret_options *o, const char *name, const char *value,
				     struct garret_error *err);
/* Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_options *garret_options_free(struct garret_options *o);

/*
 * What takes long is told (an image that is pulled, a session that others are opening).  Called
 * from the thread that waits, with the context locked: don't call the library from it.
 */
typedef void garret_notice_fn(void *data, const char *text);
GARRET_PUBLIC void garret_options_set_notice(struct garret_options *o, garret_notice_fn *notice,
					     void *data);

/*
 * Where the state provider keeps its documents, when the caller keeps them: an application's
 * database.  Each returns 0 or -GARRET_CODE (NOT_FOUND: there is none of that id).  Called with
 * the context locked: don't call the library from them.  Documents are JSON text.
 */
struct garret_store {
	size_t size;
	void *data;
	/*
	 * *ret is malloc()ed by the callback and freed by the library; *ret_version is the store's
	 * number for this text, never 0.
	 */
	int (*load)(void *data, const char *id, char **ret, size_t *ret_bytes,
		    uint64_t *ret_version);
	/*
	 * Put the whole document in the place of exactly that version (0: there is none yet), to be
	 * kept when this returns; CHANGED when another one is there.  Then the library loads that
	 * one and makes its change again, unless somebody else changed the same path: the caller
	 * gets CHANGED, and nobody's file is lost.
	 */
	int (*save)(void *data, const char *id, const char *text, size_t bytes, uint64_t version,
		    uint64_t *ret_version);
	int (*remove)(void *data, const char *id);
	/*
	 * The version that load() would give, where that is cheap to know (NULL: it isn't): with it
	 * each operation sees what others have saved, not only the next change.
	 */
	int (*version)(void *data, const char *id, uint64_t *ret_version);
};
GARRET_PUBLIC int garret_options_set_store(struct garret_options *o,
					   const struct garret_store *store,
					   struct garret_error *err);

/* ---- providers ---- */

/*
 * No I/O: what can't be reached is told by the first operation.  The options are copied.  A
 * provider that this library was built without is MISUSE; the error names the build's option.
 */
GARRET_PUBLIC int garret_provider_open(struct garret_context *c, const struct garret_options *o,
				       struct garret_provider **ret, struct garret_error *err);
/* The same in one call: settings are "name=value", NULL-terminated (may be NULL). */
GARRET_PUBLIC int garret_provider_open_settings(struct garret_context *c, const char *provider,
						const char *const *settings,
						struct garret_provider **ret,
						struct garret_error *err);
/* When no workspace of it is left.  Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_provider *garret_provider_free(struct garret_provider *p);
/* Borrowed, lives as long as the provider. */
GARRET_PUBLIC const char *garret_provider_name(const struct garret_provider *p);

/* Is this a ref that the provider would attach to?  No I/O: it says nothing of the environment. */
GARRET_PUBLIC bool garret_provider_owns(const struct garret_provider *p,
					const struct garret_ref *ref);
/*
 * A workspace of it, without I/O: the first operation attaches to what ref names, or makes an
 * environment when ref is NULL (the one of the configured name, if there is a name).  INVALID
 * for another provider's ref.  An environment that is gone is GONE; it is never replaced.
 */
GARRET_PUBLIC int garret_provider_attach(struct garret_provider *p, const struct garret_ref *ref,
					 struct garret_workspace **ret, struct garret_error *err);
/* Remove the environment and what it holds.  One that is gone already is success. */
GARRET_PUBLIC int garret_provider_destroy(struct garret_provider *p, const struct garret_ref *ref,
					  struct garret_error *err);

/* ---- a provider of the caller's own, for garret_choose() ---- */

struct garret_custom {
	size_t size;
	const char *name; /* copied */
	void *data;
	/*
	 * A workspace for ref (NULL: a new one) in *ret, which passes to the caller; *ret NULL: not
	 * mine.  No I/O.  0 or -GARRET_CODE.
	 */
	int (*get)(void *data, const struct garret_ref *ref, struct garret_workspace **ret,
		   struct garret_error *err);
};
GARRET_PUBLIC int garret_provider_custom(struct garret_context *c,
					 const struct garret_custom *custom,
					 struct garret_provider **ret, struct garret_error *err);

/* ---- choosing ---- */

/*
 * Which workspace does a run get?  The first of these that is set: override, workspace, ref or
 * fresh (at most one of those three), history; then the providers without a ref.
 */
struct garret_choice {
	size_t size;
	struct garret_workspace *override;  /* for every run of a block */
	struct garret_workspace *workspace; /* the run's own argument */
	const struct garret_ref *ref;       /* or this: continue there */
	bool fresh;                         /* or this: a new one, whatever the history says */
	const struct garret_ref *history;   /* of the last response of the history */
	struct garret_provider *const *providers;
	size_t n_providers;
};
/*
 * No I/O.  The first provider that answers wins; an answer with another ref than was asked for
 * is MISUSE.  A ref that nobody knows is MISUSE; one of the history is ignored when there are no
 * providers.  Without an answer and without a ref *ret is a workspace that isn't attached
 * (garret_no_workspace()).  *ret is a handle of the caller's.
 */
GARRET_PUBLIC int garret_choose(struct garret_context *c, const struct garret_choice *choice,
				struct garret_workspace **ret, struct garret_error *err);

#endif
