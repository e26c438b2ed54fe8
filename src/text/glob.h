/*
 * Patterns for names: `*` and `?` (never a slash), `[a-z]` `[!a]` `[[:alpha:]]`,
 * `{a,b}`, `**` as a whole component for any number of directories, `\` quotes.
 * A pattern without a slash is for names at any depth; one with a slash, also at
 * its beginning, is for paths from the top.  A slash at the end means directories.
 *
 * A pattern becomes a small automaton whose states are followed side by side, so
 * that no pattern takes more than its length times the name's.  Names are bytes:
 * `?` and `[...]` take one UTF-8 character where there is one, else one byte.
 */
#ifndef TEXT_GLOB_H
#define TEXT_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum glob_flags {
	GLOB_FOLD = 1 << 0,      /* without case: ASCII, Latin-1, Greek, Cyrillic letters */
	GLOB_NO_BRACES = 1 << 1, /* braces are plain characters, as in .gitignore */
};

struct glob_op;
struct glob_range;

struct glob {
	struct glob_op *ops;
	size_t n_ops;
	struct glob_range *ranges; /* of all sets */
	size_t n_ranges;
	uint32_t *states; /* two lists and a mark for each state */
	uint32_t round;
	char *literal; /* a pattern without wildcards, or the rest behind one leading star */
	size_t literal_bytes;
	bool suffix;   /* literal stands behind a star */
	bool fold;     /* see GLOB_FOLD */
	bool base;     /* no slash: the pattern is for the last component, at any depth */
	bool dir_only; /* it ends in a slash */
};

/* g needs glob_done() only after success. -GARRET_INVALID says what is wrong with the pattern. */
int glob_compile(struct glob *g, const char *pattern, unsigned flags, struct garret_error *err);
void glob_done(struct glob *g); /* zeroed is fine */

/* path is relative to where the pattern belongs, without a slash at either end. */
bool glob_match(struct glob *g, const char *path);
/* May anything below this directory match?  (So that what can't needn't be walked.) */
bool glob_below(struct glob *g, const char *dir);

#endif
