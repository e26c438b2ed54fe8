/*
 * The rules of .gitignore files, as git reads them: nested files (the deepest
 * that says something decides, in it the last line), `!`, anchored patterns,
 * patterns for directories only.  Not read: .git/info/exclude and the user's own
 * file, which say nothing about a workspace.
 */
#ifndef TEXT_IGNORE_H
#define TEXT_IGNORE_H

#include <stdbool.h>
#include <stddef.h>

#define IGNORE_FILE_MAX (256 * 1024)   /* what is behind isn't read */
#define IGNORE_TOTAL_MAX (1024 * 1024) /* with the files above; more of them say nothing */

/* The rules of one directory; those of the directories above it are reached through `up`. */
struct ignore;

/*
 * text (not NUL-terminated) is the file of the directory that all paths begin
 * with when their first `skip` bytes are dropped and `above` is put in front:
 * above is "" (NULL) for the walk's root and what is below, "src/" when the walk
 * began in `src` of the directory that the file lies in.
 */
struct ignore *ignore_push(struct ignore *up, const char *above, size_t skip, const char *text,
			   size_t n);
/* The set that was there before; ig may be NULL. */
struct ignore *ignore_pop(struct ignore *ig);

/* path is relative to the walk's root. Directories above it were asked about already. */
bool ignore_match(struct ignore *ig, const char *path, bool directory);

#endif
