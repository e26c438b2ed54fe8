/*
 * Paths inside the session, for file workers.  A worker has the rights of the
 * session's user, so nothing here protects anybody; it makes the answers right
 * while other processes of the session change what is looked at.
 */
#ifndef INIT_PATHS_H
#define INIT_PATHS_H

#include "init/worker.h"

#define PATH_NAME 256 /* a component with its NUL */

/*
 * Every link resolved, what is missing kept as it is written; like a shell loop
 * over readlink: after 40 links the rest stays.  Appends to out.
 */
int path_real(struct worker *w, const char *path, struct strbuf *out, struct garret_error *err);

/* Does /proc show this process there?  Such a file is refused (EACCES) by all that opens here. */
bool path_is_own(int fd);

/* open_parent that makes what is missing of the parents, as mkdir -p does. */
int path_make_parents(struct worker *w, const char *path, char name[PATH_NAME],
		      struct garret_error *err);

/* The directory and the last component of path; with FILE_PARENTS what is missing is made. */
int path_place(struct worker *w, const char *path, char name[PATH_NAME], struct garret_error *err);

#define PATH_TEMP 32
/* A name for something half made, that nobody can know before.  -1 with errno. */
int path_temp_name(char out[PATH_TEMP]);

/*
 * Directories below a root, breadth first, each named by its path relative to
 * the root.  Memory is bounded by what is queued; no descriptor is held.
 */
struct tree {
	int root; /* borrowed, O_PATH will do */
	struct strbuf queue;
	size_t at;
	unsigned depth;   /* of the directory that tree_next() returned: 1 is the root */
	size_t level_end; /* where the next depth begins in queue */
};

void tree_init(struct tree *t, int root);
void tree_release(struct tree *t);
/* "" for the root, then "a", "b", "a/c"; NULL at the end.  Borrowed until the next call. */
const char *tree_next(struct tree *t);
/* Queue NAME below DIR (as tree_next() returned it). */
void tree_add(struct tree *t, const char *dir, const char *name);
/* Open it for reading; never through a link. -1 with errno. */
int tree_open(const struct tree *t, const char *dir);
/* "dir/name", or name; false when that is longer than the kernel takes. */
bool tree_join(char out[FILE_NAME_MAX + 1], const char *dir, const char *name);

/* The names in a directory, in one piece of memory. */
struct names {
	struct strbuf text;
	struct name {
		size_t at;
		unsigned char type; /* DT_* */
	} * list;
	size_t n, cap;
	bool more; /* max was reached */
};

/* At most max of them, in the order of the directory.  fd passes to it. */
int names_read(struct names *ns, int fd, size_t max, struct garret_error *err);
void names_sort(struct names *ns, bool directories_first); /* by bytes */
static inline const char *names_get(const struct names *ns, size_t i)
{
	return ns->text.buf + ns->list[i].at;
}
void names_release(struct names *ns);

#endif
