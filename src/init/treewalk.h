/*
 * Everything below a directory, in the order of the whole paths' bytes, without
 * recursion: a directory's names are sorted with a slash behind directories, and
 * its contents come where that slash sorts them.
 *
 * Links are never followed.  At most TREEWALK_HELD descriptors are open however
 * deep the tree is: deeper directories are found again through `..`, and what is
 * found there must be the directory that was left (it may have been moved).
 * What can't be read, or has a path that is too long, counts in end.skipped.
 */
#ifndef INIT_TREEWALK_H
#define INIT_TREEWALK_H

#include "init/worker.h"

#define TREEWALK_HELD 16
#define TREEWALK_STOP 1

struct treewalk_item {
	const char *path;   /* relative to the root */
	const char *name;   /* its last component */
	int dir;            /* the directory it is in */
	unsigned char type; /* DT_*, never DT_UNKNOWN */
};

struct treewalk_ops {
	/* Every entry, a directory before what is in it: 0, TREEWALK_STOP or -code. */
	int (*item)(void *ctx, const struct treewalk_item *it, struct garret_error *err);
	/* May it be gone into?  NULL: yes. */
	bool (*enter)(void *ctx, const struct treewalk_item *it);
	/* A directory (also the root, path "") was entered, its entries come; or left. May be NULL. */
	void (*entered)(void *ctx, const char *path, int dir);
	void (*left)(void *ctx);
};

/*
 * root is a readable descriptor of a directory, borrowed.  Deeper than max_depth
 * components (0: any number) nothing is visited; end.truncated says so.
 */
int treewalk(struct worker *w, int root, uint32_t max_depth, const struct treewalk_ops *ops,
	     void *ctx, struct garret_error *err);

#endif
