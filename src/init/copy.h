/* Copying and removing trees below held directories. */
#ifndef INIT_COPY_H
#define INIT_COPY_H

#include "init/paths.h"

/*
 * A copy of from_dir/from, made beside its place and renamed to to_dir/to at
 * the end, so that nobody sees half of it.  Links are copied as links, modes
 * kept, special files left out (counted in end.skipped).  With FILE_EXCLUSIVE
 * in the request only where nothing is.
 */
int copy_tree(struct worker *w, int from_dir, const char *from, int to_dir, const char *to,
	      struct garret_error *err);

/* Of a link: nothing. */
int chmod_one(int dir, const char *name, mode_t mode);
/* A file, a link or a whole tree. */
int remove_tree(struct worker *w, int dir, const char *name, struct garret_error *err);

#endif
