/* Searching in a workspace. */
#ifndef GARRET_SEARCH_H
#define GARRET_SEARCH_H

#include "garret/file.h"

enum garret_search_flags {
	GARRET_SEARCH_HIDDEN = 1 << 0,    /* names that begin with a dot as well */
	GARRET_SEARCH_NO_IGNORE = 1 << 1, /* what .gitignore names as well */
	GARRET_SEARCH_NO_CASE = 1 << 2,
	GARRET_SEARCH_FIXED = 1 << 3, /* grep: pattern is text, no expression */
};

/* What pattern ("src/<any>.c", with * ** ? [] {}) matches below path, sorted by path. */
GARRET_PUBLIC int garret_glob(struct garret_workspace *w, const char *path, const char *pattern,
			      unsigned flags, size_t max, struct garret_list *ret,
			      struct garret_error *err);

struct garret_match {
	char *path;              /* absolute */
	uint64_t line;           /* from 1 */
	unsigned column, length; /* of the match in the line, in bytes, from 1 */
	char *text;              /* the line without its end, at most 2,048 bytes */
	size_t text_bytes;
	bool cut; /* the line is longer */
};
struct garret_matches {
	struct garret_match *match;
	size_t n;
	bool truncated;
	uint64_t skipped; /* files that could not be read */
};
GARRET_PUBLIC void garret_matches_release(struct garret_matches *m);

/*
 * Lines that the expression (PCRE2; UNSUPPORTED where the provider has none) matches, in files
 * below path whose names match `include` (NULL: all).  max 0: the provider's own bound.
 */
GARRET_PUBLIC int garret_grep(struct garret_workspace *w, const char *path, const char *pattern,
			      const char *include, unsigned flags, size_t max,
			      struct garret_matches *ret, struct garret_error *err);

#endif
