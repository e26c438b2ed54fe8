/*
 * Long lists of an answer, one item at a time: {"entries": [{...}, ...], ...} or
 * [{...}, ...].  Only one item is in memory, however many there are.
 */
#ifndef CLI_ITEMS_H
#define CLI_ITEMS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

struct items {
	/* Called for each; what it doesn't return 0 for ends the list. */
	int (*item)(void *ctx, json_t *item, struct garret_error *err);
	void *ctx;
	unsigned depth, list; /* list: the depth inside the list, 0 before it */
	bool string, escape;
	struct strbuf one, rest; /* the item under way; all that is no item */
};

void items_init(struct items *it, int (*item)(void *ctx, json_t *item, struct garret_error *err),
		void *ctx);
void items_release(struct items *it);
int items_add(struct items *it, const char *data, size_t n, struct garret_error *err);
/* The answer is whole: what stood around the list (with the list empty). */
int items_end(struct items *it, json_t **ret, struct garret_error *err);

/* A file of a session as a listing describes it. */
struct entry {
	char *path; /* its bytes */
	char type;  /* as in ls -l: - d l, ? for other things */
	unsigned mode;
	int64_t size;     /* -1: none */
	const char *link; /* where it points, or NULL; borrowed from the item */
	double mtime;     /* 0: not known */
};

int entry_parse(json_t *item, struct entry *ret, struct garret_error *err);
void entry_release(struct entry *e);
#define autoentry __attribute__((cleanup(entry_release)))

#endif
