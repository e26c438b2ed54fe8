/* A search by commands, among the files that carry it out. */
#ifndef PROVIDER_SHELLFS_SEARCH_H
#define PROVIDER_SHELLFS_SEARCH_H

#include "base/map.h"
#include "provider/shellfs_impl.h"
#include "text/glob.h"
#include "text/ignore.h"

#define NAMES_BATCH 500 /* names in one command: they are arguments */

/* Something that find named, or the root (""). */
struct item {
	char *path;
	char type;             /* d, f, l, o */
	bool out;              /* left out, with all that is in it */
	struct ignore *ignore; /* of a directory: what counts in it; borrowed */
};

struct search {
	struct item *items; /* sorted: by depth, so that directories come before what is in them */
	size_t n, cap;
	struct map dirs; /* path to item */
	struct ignore **rules;
	size_t n_rules, cap_rules;
	struct ignore *above; /* of the directories above the root */
	char **higher;        /* "gi/path": has .git, has .gitignore; from the root on upwards */
	size_t n_higher;
	char **files; /* .gitignore files that are being read, in order; "" of the ones above */
	size_t n_files, files_at;
	unsigned round;
	bool root_is_file;

	struct glob glob;
	bool filter;
	size_t *hits; /* items that match, sorted by path */
	size_t n_hits, at, batch;
	uint32_t left;
	void (*next)(struct shellfs_op *op); /* what the script's end leads to */
};

/* Find what is below the path, and what of it is left out; search_match() comes then. */
void search_names(struct shellfs_op *op);
/* find's answer to it. */
void search_names_done(struct shellfs_op *op);
/* All that matches, in batches. */
void search_match(struct shellfs_op *op);
void search_next(struct shellfs_op *op);
/* How many of the names fit into one command. */
size_t search_put_names(struct script_args *a, char *const *names, size_t n);
/* Of grep: the arguments in front of the names, and the answer. */
void search_ask_grep(struct shellfs_op *op, struct script_args *a);
const char *search_grep_script(void);
bool search_is_plain(const struct file_request *rq);
void search_grep_found(struct shellfs_op *op);

#endif
