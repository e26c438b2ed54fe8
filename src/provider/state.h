/*
 * Workspaces that are a JSON document: files only, no commands, no links.  A document lives in
 * memory as long as the provider, or in a file, or in a store of the caller's, which it is saved
 * to with every change.
 */
#ifndef PROVIDER_STATE_H
#define PROVIDER_STATE_H

#include "core/provider.h"
#include "io/loop.h"

extern const struct provider_ops state_ops;

/*
 * Where documents are kept.  version is the store's own number for what it holds of an id;
 * save() puts a text in the place of exactly that version (0: of none) and answers CHANGED when
 * another one is there.  0 or -GARRET_CODE; load() answers NOT_FOUND when there is none.
 */
struct state_store {
	void *ctx;
	int (*load)(void *ctx, const char *id, char **ret, size_t *ret_n, uint64_t *ret_version);
	int (*save)(void *ctx, const char *id, const char *text, size_t n, uint64_t version,
		    uint64_t *ret_version);
	int (*remove)(void *ctx, const char *id);
	/* What load() would say, when that is cheap to know; NULL: only save() finds out. */
	int (*version)(void *ctx, const char *id, uint64_t *ret);
};

struct state_config {
	struct loop *loop;
	struct state_store store; /* load NULL: in memory */
	size_t max_bytes;         /* of a document as JSON; 0: no bound */
};

struct provider *state_new(const struct state_config *config);
struct provider *state_free(struct provider *p); /* boxes must be closed */

/* A store that is one file, for whatever id: atomic, locked, on the disk when save() returns. */
int state_file_store(const char *path, struct state_store *ret, struct garret_error *err);
void state_file_store_free(struct state_store *s);

#endif
