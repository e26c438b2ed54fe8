/* What the files of garret/app_files.h share. */
#ifndef APP_FILES_IMPL_H
#define APP_FILES_IMPL_H

#include "app/app_impl.h"

/* Borrowed; NULL: the run has none, or one that stands for none. */
struct garret_workspace *app_files_workspace(const struct garret_app_run *run);

/*
 * What a workspace answered is no failure of ours, but that it was cancelled: then *told is
 * copied.
 */
int app_answered(int rc, const struct garret_error *told, struct garret_error *err);

/* Does it say what is wrong with a path?  All else is wrong with the workspace. */
bool app_of_path(int rc);

/*
 * A file of at most `most` bytes; TOO_LARGE above.  known is what a listing told of its size: when
 * it told none the file is asked first, so that nothing huge comes for nothing.
 */
int app_read_file(struct garret_workspace *w, const char *path, uint64_t known, size_t most,
		  struct garret_bytes *ret, struct garret_error *err);

/* Is path that directory, or below it?  Both are relative. */
bool app_below(const char *path, const char *directory);

/* ---- text for a prompt ---- */

/* The longest beginning of at most `most` bytes that cuts no character.  text is valid. */
size_t app_cut(const char *text, size_t n, size_t most);
/* What a stranger named, at most 200 characters in one line, without quotes. */
void app_label(struct strbuf *out, const char *name);
/* Does it look like text, by its beginning? */
bool app_is_text(const void *data, size_t n);
/*
 * The beginning of a text, each line behind "| ": at most so many lines and characters.  Bytes that
 * are no text are repaired or left out.  True: there is more of it.
 */
bool app_quote(struct strbuf *out, const void *data, size_t n, size_t lines, size_t characters);

/* Pages of a TIFF; 0: it is none. */
size_t app_tiff_pages(const void *data, size_t n);

/* ---- what the platform keeps for itself in a workspace ---- */

#define APP_SKILLS "skills"
#define APP_SPILLS "tool_output"

/* Is it a path that a spill may have: below root, without ".."? */
bool app_spill_ours(const char *handle, const char *root);

/* ---- skills ---- */

/* One component, UTF-8 without control characters. */
bool app_skill_file_name(const char *name);

/*
 * NULL, or what is wrong (static).  text is valid UTF-8 and ends with a NUL.  *ret_body is where
 * the body begins; *ret_description is malloc()ed, "" without.
 */
const char *app_front_matter(const char *text, const char **ret_body, char **ret_description);
/* The front matter of a name and a description. */
void app_front_matter_put(struct strbuf *out, const char *name, const char *description);

#endif
