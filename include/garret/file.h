/*
 * Files of a workspace.  A path is absolute, or relative to the working directory.  What is
 * wrong with a path is always one of NOT_FOUND, NOT_DIRECTORY, IS_DIRECTORY, EXISTS, DENIED,
 * NOT_REGULAR, NO_SPACE, INVALID; an environment that is gone is GONE, one that can't be
 * reached UNAVAILABLE.
 */
#ifndef GARRET_FILE_H
#define GARRET_FILE_H

#include <stdint.h>
#include <sys/types.h>

#include "garret/workspace.h"

enum garret_type { GARRET_REGULAR, GARRET_DIRECTORY, GARRET_OTHER, GARRET_DANGLING };

#define GARRET_SIZE_UNKNOWN UINT64_MAX

/* Of what a name leads to; a link that leads nowhere is DANGLING. */
struct garret_entry {
	char *name; /* base name; of walk and glob: relative to where they began */
	char *path; /* absolute */
	enum garret_type type;
	bool is_dir;    /* type == GARRET_DIRECTORY */
	bool is_link;   /* the name itself is a symbolic link */
	uint64_t bytes; /* GARRET_SIZE_UNKNOWN of a directory, and where it isn't told */
	uint32_t mode, uid, gid;
	int64_t modified_ns; /* since 1970; 0: not told */
	uint64_t inode;      /* 0: not told */
	char *target;        /* of a link, as it is written; NULL */
};
GARRET_PUBLIC void garret_entry_release(struct garret_entry *e);

struct garret_list {
	struct garret_entry *entry;
	size_t n;
	bool truncated; /* a bound was reached: there is more */
};
GARRET_PUBLIC void garret_list_release(struct garret_list *l);

struct garret_bytes {
	uint8_t *data; /* a NUL behind the last byte */
	size_t n;
};
GARRET_PUBLIC void garret_bytes_release(struct garret_bytes *b);

/* Follows links. */
GARRET_PUBLIC int garret_stat(struct garret_workspace *w, const char *path,
			      struct garret_entry *ret, struct garret_error *err);
/* The link itself, not where it leads. */
GARRET_PUBLIC int garret_lstat(struct garret_workspace *w, const char *path,
			       struct garret_entry *ret, struct garret_error *err);
/* NOT_FOUND and NOT_DIRECTORY are false; every other failure is one. */
GARRET_PUBLIC int garret_exists(struct garret_workspace *w, const char *path, bool *ret,
				struct garret_error *err);
/* One level, sorted by name. */
GARRET_PUBLIC int garret_list_dir(struct garret_workspace *w, const char *path,
				  struct garret_list *ret, struct garret_error *err);
/* All levels, breadth first, links not followed; 0: the provider's own bounds. */
GARRET_PUBLIC int garret_walk(struct garret_workspace *w, const char *path, unsigned max_depth,
			      size_t max_entries, struct garret_list *ret,
			      struct garret_error *err);

/* The whole file; TOO_LARGE above GARRET_READ_MAX (use a reader). */
#define GARRET_READ_MAX (1u << 30)
GARRET_PUBLIC int garret_read(struct garret_workspace *w, const char *path,
			      struct garret_bytes *ret, struct garret_error *err);
/* `bytes` from offset on; fewer at the end of the file. */
GARRET_PUBLIC int garret_read_at(struct garret_workspace *w, const char *path, uint64_t offset,
				 size_t bytes, struct garret_bytes *ret, struct garret_error *err);
/* UTF-8, or ENCODING. */
GARRET_PUBLIC int garret_read_text(struct garret_workspace *w, const char *path, char **ret,
				   struct garret_error *err);

enum garret_write_flags {
	GARRET_WRITE_SYNC = 1 << 0,      /* it is on the disk when this returns */
	GARRET_WRITE_EXCLUSIVE = 1 << 1, /* EXISTS when something is there */
};
/*
 * Replace the whole content, or make the file, with missing parents.  Through a link; the mode
 * of a file that is there stays.  One that fails or is given up leaves what was there.
 */
GARRET_PUBLIC int garret_write(struct garret_workspace *w, const char *path, const void *data,
			       size_t n, unsigned flags, struct garret_error *err);
/* text must be UTF-8, or ENCODING and nothing is written. */
GARRET_PUBLIC int garret_write_text(struct garret_workspace *w, const char *path, const char *text,
				    unsigned flags, struct garret_error *err);
GARRET_PUBLIC int garret_append(struct garret_workspace *w, const char *path, const void *data,
				size_t n, unsigned flags, struct garret_error *err);

/* With parents; one that is there is fine. */
GARRET_PUBLIC int garret_make_dir(struct garret_workspace *w, const char *path,
				  struct garret_error *err);
/*
 * A file, a link (not its target), or a directory with all it holds.  The working directory and
 * those above it are INVALID.
 */
GARRET_PUBLIC int garret_remove(struct garret_workspace *w, const char *path,
				struct garret_error *err);
/* Replaces a file that is at `to`; missing parents are made. */
GARRET_PUBLIC int garret_rename(struct garret_workspace *w, const char *from, const char *to,
				struct garret_error *err);
/* Whole trees; a file that is at `to` is replaced. */
GARRET_PUBLIC int garret_copy(struct garret_workspace *w, const char *from, const char *to,
			      struct garret_error *err);
/* Permission bits only (0777). */
GARRET_PUBLIC int garret_chmod(struct garret_workspace *w, const char *path, unsigned mode,
			       struct garret_error *err);
GARRET_PUBLIC int garret_sha256(struct garret_workspace *w, const char *path, uint8_t ret[32],
				struct garret_error *err);

/*
 * Replace the text `old` by `by` in a file, byte for byte: where it stands exactly once, or with
 * `all` everywhere.  CONFLICT when it isn't there, or several times without all: then too
 * *ret_count (may be NULL) is how often it is there.
 */
GARRET_PUBLIC int garret_edit(struct garret_workspace *w, const char *path, const char *old,
			      const char *by, bool all, uint64_t *ret_count,
			      struct garret_error *err);

/* ---- of any length: memory stays flat ---- */

struct garret_reader;
struct garret_writer;

/* From offset on, at most `bytes` (UINT64_MAX: to the end). */
GARRET_PUBLIC int garret_reader_open(struct garret_workspace *w, const char *path, uint64_t offset,
				     uint64_t bytes, struct garret_reader **ret,
				     struct garret_error *err);
/* A tar archive (pax) of a directory or file. */
GARRET_PUBLIC int garret_archive_open(struct garret_workspace *w, const char *path,
				      struct garret_reader **ret, struct garret_error *err);
/* Some bytes; 0 only at the end, -code when it was cut off. */
GARRET_PUBLIC ssize_t garret_reader_read(struct garret_reader *r, void *buf, size_t n,
					 struct garret_error *err);
/* Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_reader *garret_reader_close(struct garret_reader *r);

/* As garret_write(): nothing is replaced before garret_writer_commit(). */
GARRET_PUBLIC int garret_writer_open(struct garret_workspace *w, const char *path, unsigned flags,
				     struct garret_writer **ret, struct garret_error *err);
/* Unpack the tar archive that is written below the directory `path`, which is made. */
GARRET_PUBLIC int garret_unpack_open(struct garret_workspace *w, const char *path,
				     struct garret_writer **ret, struct garret_error *err);
GARRET_PUBLIC int garret_writer_write(struct garret_writer *wr, const void *data, size_t n,
				      struct garret_error *err);
/* Ends the writer in any case, as garret_writer_abort() does, which leaves what was there. */
GARRET_PUBLIC int garret_writer_commit(struct garret_writer *wr, struct garret_error *err);
GARRET_PUBLIC void garret_writer_abort(struct garret_writer *wr);

#endif
