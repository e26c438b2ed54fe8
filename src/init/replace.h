/*
 * Replacing a file as a whole: the new content is written to a file without a
 * name (or a hidden sibling where the file system has no such thing), which
 * takes the place of the old one in one step.  Until then, and after any
 * failure, the old file is as it was.
 *
 * The name is that of a link's target when the path is a link.  Permission bits
 * of the old file are kept; hard links to it keep the old content.
 */
#ifndef INIT_REPLACE_H
#define INIT_REPLACE_H

#include "init/paths.h"

struct replace {
	int dir, fd; /* fd: write the content here; readable too */
	char name[PATH_NAME];
	bool exists;    /* there is an old file: */
	struct stat st; /* this one */
};

/*
 * Flags of the request that count: PARENTS, EXCLUSIVE, IF_MATCH (with tag).
 * Refused: directories, special files, old files that the user may not write.
 * A new file gets new_mode & ~umask.
 */
int replace_begin(struct worker *w, struct replace *r, const char *path, mode_t new_mode,
		  struct garret_error *err);
/* In its place; *ret_info (may be NULL) describes it.  r is released. */
int replace_commit(struct worker *w, struct replace *r, struct file_info *ret_info,
		   struct garret_error *err);
void replace_abort(struct worker *w, struct replace *r);

#endif
