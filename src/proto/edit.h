/*
 * Exact replacements in a file.  The body of FILE_EDIT is a list of
 *
 *	u8 flags (1: every occurrence)  u32 length, old bytes  u32 length, new bytes
 *
 * which are carried out in order, each on what the one before left.  Old text
 * that isn't there, or (without the flag) is there more than once, is a
 * GARRET_CONFLICT: end.count is how often, and the file stays as it was.  The
 * request may say in `offset` how many replacements there must be, and in
 * `include` the SHA-256 (hex) that the file must have before.  What
 * isn't named stays byte for byte, whatever its encoding and line ends are.
 */
#ifndef PROTO_EDIT_H
#define PROTO_EDIT_H

#include "base/error.h"
#include "proto/cursor.h"

#define EDIT_ALL 1
#define EDIT_BODY_MAX (64 * 1024 * 1024)
#define EDIT_FILE_MAX (64 * 1024 * 1024) /* when the request names no bound */

struct edit {
	const char *old, *new; /* borrowed */
	size_t old_bytes, new_bytes;
	bool all;
};

/* The next edit of a body; false at its end, or (g->bad) when it is none. */
bool edit_next(struct get *g, struct edit *ret);

/* *text is malloc'd and replaced; *ret_count is how often old is there, also on failure. */
int edit_apply(const struct edit *e, char **text, size_t *n, size_t max, size_t *ret_count,
	       struct garret_error *err);

#endif
