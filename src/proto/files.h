/*
 * File operations: what garretd says to a file worker and what it answers.
 *
 * A worker is a process that init made for the session's user; garretd made the
 * socket pair (SEQPACKET) between them and sent the worker's end to init
 * (INIT_WORKER).  Frames have the header of proto/init.h.  A worker serves one
 * request at a time and ends when the socket does.
 *
 *	garretd                      worker
 *	REQUEST                 ->
 *	BODY... BODY_END        ->            only FILE_WRITE, FILE_EDIT and FILE_TAR_IN
 *	                        <-   INFO, ENTRIES, MATCHES, DATA
 *	PIPE (or BODY_END)      ->            only FILE_READ with FILE_BY_PIPE, see below
 *	                        <-   END      always, and last
 *
 * Every request is one struct: a field that an operation doesn't use is zero or
 * "".  Paths are bytes without NUL, absolute in the session; names are whatever
 * the file system holds.
 *
 * A long body goes through memory: SHARED brings a ring, BODY_AT says up to where
 * it is filled, TAKEN how much of it was used.  Both count the bytes of the body
 * that went this way.  garretd never reads what is in it.
 *
 * An END may come before the body was read; the rest of the body is thrown away
 * by the worker until BODY_END.  Who gives up a request closes the socket.
 */
#ifndef PROTO_FILES_H
#define PROTO_FILES_H

#include "proto/init.h"

#define FILE_PATH_MAX 4095
#define FILE_NAME_MAX 4095 /* of an entry: a path below the root of a walk */
#define FILE_PATTERN_MAX 4096
#define FILE_DATA_MAX (60 * 1024) /* in one BODY or DATA frame */
#define FILE_INLINE_MAX (48 * 1024)
#define FILE_RING (4 << 20)
#define FILE_RING_STEP (FILE_RING / 4) /* told and taken in pieces of about that */
#define FILE_LINE_MAX 2048             /* of the text of a match */

enum file_frame {
	FILE_REQUEST = 1,  /* struct file_request */
	FILE_BODY = 2,     /* bytes */
	FILE_BODY_END = 3, /* nothing */
	FILE_PIPE = 4,     /* nothing, + the writing end of a pipe */
	FILE_SHARED = 5,   /* nothing, + a memfd of FILE_RING bytes */
	FILE_BODY_AT = 6,  /* u64 */

	FILE_INFO = 64,    /* struct file_info: what the request named */
	FILE_ENTRIES = 65, /* one or more struct file_info */
	FILE_MATCHES = 66, /* one or more struct file_match */
	FILE_DATA = 67,    /* bytes */
	FILE_END = 68,     /* struct file_end */
	FILE_TAKEN = 69,   /* u64 */
};

enum file_op {
	FILE_STAT = 1, /* INFO */
	FILE_LIST,     /* ENTRIES sorted by name; one level */
	FILE_WALK,     /* ENTRIES breadth first, at most max_depth and max_entries */
	FILE_READ,     /* INFO, then the bytes offset .. offset + length that there are */
	FILE_WRITE,    /* the body replaces the file, or is appended; INFO of the result */
	FILE_MKDIR,
	FILE_REMOVE, /* with FILE_TREE whole trees */
	FILE_RENAME, /* path to `to` */
	FILE_COPY,   /* path to `to`; with FILE_TREE whole trees */
	FILE_CHMOD,  /* mode; with FILE_TREE everything below too */
	FILE_REALPATH,
	FILE_DIGEST,  /* INFO; SHA-256 in end.digest */
	FILE_GLOB,    /* ENTRIES of what pattern matches below path, sorted by path */
	FILE_GREP,    /* MATCHES of pattern in the files below path that match include */
	FILE_EDIT,    /* the body: see proto/edit.h; INFO of the result */
	FILE_TAR_OUT, /* DATA: an archive of path */
	FILE_TAR_IN,  /* the body is an archive, unpacked below path */
	FILE_TEXT,    /* DATA: `length` lines from line `offset` on as UTF-8; count: all lines */
	FILE_OPS
};

enum file_flags {
	FILE_NOFOLLOW = 1 << 0,   /* the link itself (STAT); links are left out (LIST, WALK) */
	FILE_TREE = 1 << 1,       /* REMOVE, COPY, CHMOD */
	FILE_PARENTS = 1 << 2,    /* make missing parents (WRITE, MKDIR, RENAME, COPY) */
	FILE_APPEND = 1 << 3,     /* WRITE */
	FILE_SYNC = 1 << 4,       /* WRITE: fsync the file and its directory */
	FILE_EXCLUSIVE = 1 << 5,  /* WRITE, RENAME, COPY: only where nothing is */
	FILE_IF_MATCH = 1 << 6,   /* WRITE, EDIT: only over a file with this `tag` (inode 0: any) */
	FILE_BY_PIPE = 1 << 7,    /* READ: more than FILE_INLINE_MAX go through PIPE */
	FILE_FROM_END = 1 << 8,   /* READ: the last `length` bytes */
	FILE_HIDDEN = 1 << 9,     /* GLOB, GREP: names that begin with a dot as well */
	FILE_NO_IGNORE = 1 << 10, /* GLOB, GREP: what .gitignore names as well */
	FILE_NO_CASE = 1 << 11,   /* GLOB, GREP */
	FILE_FIXED = 1 << 12,     /* GREP: pattern is no expression */
	FILE_READABLE = 1 << 13,  /* STAT: DENIED for a file that can't be read */
	FILE_RELATIVE = 1 << 14,  /* archive: path is below the root, links are never followed */
	FILE_DIRS_FIRST = 1 << 15, /* LIST */
	FILE_DIRS_TOO = 1 << 16,   /* GLOB: directories as well as files */
	FILE_LATIN = 1 << 17,      /* TEXT: what isn't UTF-8 is Latin-1; else it is refused */
	FILE_CONFINED = 1 << 18, /* only in the work directory, whatever links there are: OUTSIDE */
	FILE_FLAGS_END = 1 << 19
};

/* What a file was when it was looked at: it changes when the file does. */
struct file_tag {
	uint64_t inode, size, mtime_ns, ctime_ns;
};

struct file_request {
	uint8_t op;          /* enum file_op */
	uint32_t flags;      /* enum file_flags */
	uint32_t timeout_ms; /* of the work, not of waiting for a slow client; 0: 60 s */
	const char *path, *to, *pattern, *include;
	uint64_t offset, length; /* length: UINT64_MAX is "the rest".  EDIT: proto/edit.h */
	uint32_t mode;
	uint32_t max_depth, max_entries; /* 0: the worker's own bound */
	uint64_t max_bytes;              /* EDIT, READ, TEXT: of the file; TAR_IN: of all content */
	struct file_tag tag;
};

enum file_type { FILE_REGULAR, FILE_DIRECTORY, FILE_OTHER, FILE_DANGLING, FILE_TYPES };

/* What a provider without workers can't tell; those fields are zero.  Workers know all. */
enum file_unknown {
	FILE_NO_SIZE = 1 << 0,
	FILE_NO_MODE = 1 << 1,  /* mode, uid, gid */
	FILE_NO_TIMES = 1 << 2, /* the tag, but for its size */
};

/* A link is described by its target (DANGLING when there is none), unless NOFOLLOW. */
struct file_info {
	uint8_t type;    /* enum file_type */
	uint8_t link;    /* the name itself is a symbolic link */
	uint8_t unknown; /* enum file_unknown; not in frames */
	uint32_t mode, uid, gid;
	struct file_tag tag; /* size and times are in here */
	const char *name;    /* of entries: relative to the request's path; borrowed */
	const char *target;  /* where the link points, as it is written; "" */
};

struct file_match {
	const char *name;        /* relative to the request's path; "" when path is the file */
	uint64_t line;           /* from 1 */
	uint32_t column, length; /* in bytes, from 1: where the match is in the line */
	const void *text;        /* the line without its end, at most FILE_LINE_MAX */
	uint32_t text_bytes;
	uint8_t cut; /* the line is longer */
};

struct file_end {
	uint32_t code, sys; /* enum garret_code, errno */
	uint8_t truncated;  /* a bound was reached: there is more */
	uint64_t count;     /* entries, matches, replacements, files unpacked or left out */
	uint64_t skipped;   /* files that could not be read (GREP, GLOB, WALK, TAR_OUT) */
	uint8_t digest[32];
	const char *path; /* REALPATH's answer; else what the error is about, or "" */
	const char *msg;  /* why, for people; "" when code is 0 */
};

void file_put_request(struct put *p, const struct file_request *rq);
/* Bounds, enums and flags are checked; strings are borrowed. */
bool file_get_request(struct get *g, struct file_request *ret);
void file_put_info(struct put *p, const struct file_info *info);
bool file_get_info(struct get *g, struct file_info *ret); /* the next one of a frame */
void file_put_match(struct put *p, const struct file_match *m);
bool file_get_match(struct get *g, struct file_match *ret);
void file_put_end(struct put *p, const struct file_end *e);
bool file_get_end(struct get *g, struct file_end *ret);

#endif
