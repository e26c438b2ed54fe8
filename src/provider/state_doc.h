/*
 * A document of files: the tree in memory, its size as JSON kept while it changes, so that no
 * change costs more than what it touches.
 *
 *	{"files": {PATH: {"content": [LINE...], "created_at", "modified_at", "encoding"?}},
 *	 "directories": [PATH...]}
 *
 * Content that is UTF-8 is kept as lines, joined by \n; any other as one base64 string with
 * encoding "base64".  A directory is one that was made, or holds something.
 */
#ifndef PROVIDER_STATE_DOC_H
#define PROVIDER_STATE_DOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/map.h"
#include "base/strbuf.h"

struct state_node {
	char *name;
	struct state_node *parent;
	bool dir;
	bool made; /* a directory that is in the list: it stays when it is empty */
	struct map children;
	char *content;
	size_t n;
	bool damaged; /* content is base64 that doesn't decode, kept as it is */
	char *created, *modified;
	size_t json_bytes; /* of its entry, without the comma */
	uint64_t number;   /* as an inode has one */
	uint64_t changes;  /* of the document, when it was written */
};

struct state_doc {
	struct state_node *root;
	size_t n_files, n_dirs; /* entries of the two lists */
	size_t entry_bytes;     /* of all entries */
	uint64_t numbers, changes;
};

struct state_doc *state_doc_new(void);
struct state_doc *state_doc_free(struct state_doc *d); /* returns NULL */
/* Bytes of the JSON of both lists, as state_doc_save() writes them. */
size_t state_doc_size(const struct state_doc *d);

/* INVALID says what is wrong and where.  Documents of older versions load exactly. */
int state_doc_load(const char *text, size_t n, struct state_doc **ret, struct garret_error *err);
void state_doc_save(const struct state_doc *d, struct strbuf *out);

/* path is absolute and normal.  NULL: nothing is there. */
struct state_node *state_doc_find(const struct state_doc *d, const char *path);
/*
 * The node that path would be in, or -code: NOT_DIRECTORY when a file is in the way, NOT_FOUND
 * when a directory is missing and `make` isn't asked for.
 */
int state_doc_parent(struct state_doc *d, const char *path, bool make, struct state_node **ret,
		     const char **ret_name, struct garret_error *err);
/* What writing n bytes there would add to the size, parents included (may be negative). */
int64_t state_doc_cost(const struct state_doc *d, const char *path, const void *data, size_t n);
int64_t state_doc_dir_cost(const struct state_doc *d, const char *path);

/* The path must be no directory, its parent one.  now is an ISO 8601 time. */
struct state_node *state_doc_put(struct state_doc *d, struct state_node *parent, const char *name,
				 const void *data, size_t n, const char *now);
struct state_node *state_doc_make_dir(struct state_doc *d, struct state_node *parent,
				      const char *name);
/* With all below it. */
void state_doc_remove(struct state_doc *d, struct state_node *node);
/* Under another name; `to` has nothing of that name, and isn't below it. */
void state_doc_move(struct state_doc *d, struct state_node *node, struct state_node *to,
		    const char *name);
/*
 * Bytes of its entries, as the size counts them, if its path were this; or of a copy of it:
 * then directories that only what they hold makes are counted too, and files have new times.
 */
size_t state_node_cost(const struct state_node *node, const char *path, bool copy);

/* "/a/b"; malloc()ed. */
char *state_node_path(const struct state_node *node);
/* Its children sorted by name; malloc()ed. */
struct state_node **state_node_sorted(const struct state_node *node, size_t *ret_n);

/* JSON text of a string, and its length; without the quotes around it. */
void state_json_text(struct strbuf *out, const char *s, size_t n);
size_t state_json_length(const char *s, size_t n);
/* The entry of a file in the list, `"PATH":{...}`. */
void state_json_entry(struct strbuf *out, const struct state_node *node, const char *path);

#endif
