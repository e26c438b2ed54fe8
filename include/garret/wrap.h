/*
 * Wrappers: a handle on the same environment, with a rule in front of every operation.  They may
 * be put over each other; the handle below stays usable and is still the caller's.
 */
#ifndef GARRET_WRAP_H
#define GARRET_WRAP_H

#include "garret/workspace.h"

/* Every operation there is: name, does it change something. */
#define GARRET_OPERATION_MAP(X)          \
	X(WORKING_DIR, "working_dir", 0) \
	X(REALPATH, "realpath", 0)       \
	X(STAT, "stat", 0)               \
	X(EXISTS, "exists", 0)           \
	X(LIST, "list_dir", 0)           \
	X(WALK, "walk", 0)               \
	X(READ, "read", 0)               \
	X(ARCHIVE, "archive", 0)         \
	X(DIGEST, "sha256", 0)           \
	X(GLOB, "glob", 0)               \
	X(GREP, "grep", 0)               \
	X(WRITE, "write", 1)             \
	X(APPEND, "append", 1)           \
	X(MAKE_DIR, "make_dir", 1)       \
	X(REMOVE, "remove", 1)           \
	X(RENAME, "rename", 1)           \
	X(COPY, "copy", 1)               \
	X(CHMOD, "chmod", 1)             \
	X(EDIT, "edit", 1)               \
	X(UNPACK, "unpack", 1)           \
	X(RUN, "run", 1)

enum garret_operation {
#define X(name, text, changes) GARRET_OP_##name,
	GARRET_OPERATION_MAP(X)
#undef X
		GARRET_OPERATIONS
};
GARRET_PUBLIC const char *garret_operation_name(enum garret_operation op);
GARRET_PUBLIC bool garret_operation_changes(enum garret_operation op);

/* What changes something, and every command, is READ_ONLY.  A rule of this handle, no isolation. */
GARRET_PUBLIC int garret_wrap_read_only(struct garret_workspace *w, struct garret_workspace **ret,
					struct garret_error *err);

/*
 * Files outside the working directory are OUTSIDE, by whatever path or link they are reached.
 * It is checked by the operation that opens the file, with no moment between; where a provider
 * can't (no GARRET_HAS_CONFINED) every file operation is UNSUPPORTED.  Commands begin inside,
 * and may be run at all only where the environment isolates them (GARRET_ISOLATES).
 */
GARRET_PUBLIC int garret_wrap_confined(struct garret_workspace *w, struct garret_workspace **ret,
				       struct garret_error *err);

/* One operation that has ended.  No content, no message: what may be kept in a log. */
struct garret_record {
	size_t size;
	enum garret_operation operation;
	const char *path;      /* as it was given; NULL for a command */
	const char *to;        /* of rename and copy; else NULL */
	const char *command;   /* of a run: its words quoted for a shell, or its script */
	uint64_t bytes;        /* read or written */
	int exit_code;         /* of a run that ended by itself; else -1 */
	enum garret_code code; /* GARRET_OK, or the class of the error */
	double seconds;
	const char *pattern; /* of glob and grep; else NULL */
	const char *include; /* of grep, when there is one; else NULL */
	unsigned flags;      /* of glob and grep: enum garret_search_flags */
	uint64_t results;    /* entries or matches that were found */
};
/* Called in the thread of the operation, when it is over; it may use the library. */
typedef void garret_record_fn(void *data, const struct garret_record *r);
GARRET_PUBLIC int garret_wrap_recording(struct garret_workspace *w, garret_record_fn *record,
					void *data, struct garret_workspace **ret,
					struct garret_error *err);

/*
 * A function that is asked before every operation, with its path (NULL of a command): 0, or the
 * code that the operation fails with.  In the thread of the operation; it may use the library,
 * but not this handle.
 */
typedef int garret_guard_fn(void *data, enum garret_operation op, const char *path,
			    struct garret_error *err);
GARRET_PUBLIC int garret_wrap_guarded(struct garret_workspace *w, garret_guard_fn *guard,
				      void *data, struct garret_workspace **ret,
				      struct garret_error *err);

/* How much weight may be given to what a file says. */
enum garret_authority { GARRET_AUTHORITY_NONE, GARRET_AUTHORITY_USER, GARRET_AUTHORITY_OPERATOR };

struct garret_authority_rule {
	const char *path; /* relative to the working directory, or absolute; "~..." is MISUSE */
	enum garret_authority level;
};
/* A level for all files and others for some paths.  With several wrappers the lowest counts. */
GARRET_PUBLIC int garret_wrap_authority(struct garret_workspace *w, enum garret_authority level,
					const struct garret_authority_rule *rules, size_t n,
					struct garret_workspace **ret, struct garret_error *err);
/* Of all files: OPERATOR without a wrapper. */
GARRET_PUBLIC enum garret_authority garret_workspace_authority(const struct garret_workspace *w);
/*
 * Of one: the longest path that covers it counts; a link takes the lower level of its own place
 * and of its target's; outside the working directory and all rules it is NONE.
 */
GARRET_PUBLIC int garret_authority_of(struct garret_workspace *w, const char *path,
				      enum garret_authority *ret, struct garret_error *err);

/* Every operation is GONE with that reason; it has no ref. */
GARRET_PUBLIC int garret_unavailable(struct garret_context *c, const char *reason,
				     struct garret_workspace **ret, struct garret_error *err);
/* The one that stands for "none was chosen": garret_choose() passes over it. */
GARRET_PUBLIC int garret_no_workspace(struct garret_context *c, struct garret_workspace **ret,
				      struct garret_error *err);
GARRET_PUBLIC bool garret_workspace_is_none(const struct garret_workspace *w);

/* The settings of all wrappers as JSON: equal texts, equal rules.  malloc()ed. */
GARRET_PUBLIC char *garret_workspace_policy(const struct garret_workspace *w);

#endif
