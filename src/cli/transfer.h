/* Whole files between a session and descriptors of ours, as streams. */
#ifndef CLI_TRANSFER_H
#define CLI_TRANSFER_H

#include <stdint.h>
#include <sys/types.h>

#include "cli/files.h"
#include "cli/progress.h"

/* Where the bytes of an answer go. */
struct sink {
	int (*write)(void *ctx, const void *data, size_t n, struct garret_error *err);
	void *ctx;
};

/* Standard output or any descriptor: ctx is an int *. */
int sink_fd(void *ctx, const void *data, size_t n, struct garret_error *err);

/*
 * All bytes of a file; *mode (may be NULL) is known before the first one is
 * written.  An answer that the daemon ended because our sink was slow is taken up
 * where it ended, if the file is still the same.
 */
int transfer_get(struct files *f, const struct place *p, const struct sink *to, mode_t *mode,
		 struct progress *progress, struct garret_error *err);

/* The rest of an answer of which the head was read. */
int transfer_rest(struct files *f, const struct place *p, const struct sink *to,
		  struct progress *progress, struct garret_error *err);

/*
 * A request with the bytes of fd as its body (`name` for messages).  length as in
 * struct http1_head; a regular file that shrinks meanwhile is an error.  The
 * head of the answer was read, and was no error, when this returns 0.
 */
int transfer_put(struct files *f, const struct place *p, const struct files_request *q, int fd,
		 const char *name, struct progress *progress, struct garret_error *err);

#endif
