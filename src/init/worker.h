/*
 * A file worker: a fork of init with the user, groups and capabilities of a
 * run, that carries out file operations for garretd (proto/files.h).  One
 * request at a time, with plain blocking calls: whatever it waits for, pid 1
 * doesn't.
 *
 * An operation returns 0, or -code with err filled (like everything here);
 * worker.c then sends END with what it left in w->end.
 */
#ifndef INIT_WORKER_H
#define INIT_WORKER_H

#include <sys/stat.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "init/init.h"
#include "proto/files.h"

struct worker {
	int sock;
	const struct init_params *p;
	int root_fd;  /* FILE_RELATIVE, FILE_CONFINED: the work directory, or -EBADF */
	bool outside; /* FILE_CONFINED: a path led out of it */
	uint64_t due_ms, peer_ms;
	struct file_request rq; /* strings in `request` */
	struct file_end end;
	struct strbuf end_path; /* end.path */
	bool body_done;
	bool large_pieces; /* worker_body() may give more than FILE_DATA_MAX at once */
	uint8_t *ring;     /* of the body, or NULL */
	uint64_t ring_head, ring_tail, ring_told;
	size_t ring_given;
	uint8_t *request; /* the frame */
	struct put batch; /* ENTRIES or MATCHES under way */
	uint16_t batch_type;
	/* A temporary that must not stay when we have to go. */
	int temp_dir;
	char temp_name[32];
	/* An append that is all or nothing: what the file had, and has now. */
	int undo_fd;
	off_t undo_from, undo_to;
};

/* Serve until the socket ends.  Called in the fork. */
void worker_main(const struct init_params *p, int sock) __attribute__((noreturn));

/* The work took longer than it may: TIMEOUT. Call it once per file or so. */
int worker_check_time(struct worker *w, struct garret_error *err);

/* Answers.  They wait until garretd takes them; when it is gone the process ends. */
void worker_info(struct worker *w, const struct file_info *info);
void worker_entry(struct worker *w, const struct file_info *info); /* collected in frames */
void worker_match(struct worker *w, const struct file_match *m);   /* collected in frames */
void worker_data(struct worker *w, const void *data, size_t n);
/* The next bytes of the body (at most FILE_DATA_MAX, borrowed until the next call); 0: its end. */
size_t worker_body(struct worker *w, const void **ret);
/* What INFO was answered with: the pipe to write to, or -EBADF when nothing is wanted. */
int worker_pipe(struct worker *w);
/* Take back what an append wrote, unless somebody else wrote behind it. */
void worker_undo_append(struct worker *w);

/* ---- paths (paths.c) ---- */

/*
 * Open an absolute path of the session.  Never through a magic link of /proc,
 * never waiting (O_NONBLOCK), close-on-exec.  With FILE_RELATIVE below the root
 * and through no link at all, with FILE_CONFINED to nowhere but below the root.
 * -1 with errno.
 */
int worker_open(struct worker *w, const char *path, int flags);
/* The directory that holds path (O_PATH) and the last component; trailing slashes don't count. */
int worker_open_parent(struct worker *w, const char *path, char name[256] /* PATH_NAME */,
		       struct garret_error *err);
/* Fill everything but name and target; mode with the permission bits only. */
void worker_fill_info(struct file_info *info, const struct stat *st);
/* Look at name below dirfd, through a link unless nofollow; target (PATH_MAX) may be NULL. */
int worker_look(int dirfd, const char *name, bool nofollow, struct file_info *info, char *target);
/* The same for an entry at `below` under the request's path; keeps FILE_CONFINED. */
int worker_look_below(struct worker *w, int dirfd, const char *name, const char *below,
		      bool nofollow, struct file_info *info, char *target);

/* ---- operations: each file has a few; the table is in worker.c ---- */

typedef int worker_op(struct worker *w, struct garret_error *err);
worker_op op_stat, op_list, op_walk, op_realpath, op_digest; /* look.c */
worker_op op_read, op_write;                                 /* content.c */
worker_op op_mkdir, op_remove, op_rename, op_chmod;          /* change.c */
worker_op op_copy;                                           /* copy.c */
worker_op op_glob, op_grep;                                  /* search.c */
worker_op op_text;                                           /* text.c */
worker_op op_edit;                                           /* edit.c */
worker_op op_tar_out, op_tar_in;                             /* tar_out.c, tar_in.c */

#endif
