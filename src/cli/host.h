/*
 * Files of the host that are made here.  A file takes its name when it is whole:
 * it is written as a temporary sibling and renamed.  A signal that ends us
 * removes the sibling first.
 */
#ifndef CLI_HOST_H
#define CLI_HOST_H

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

struct host_file {
	int dir;        /* where it is made: borrowed */
	int fd;         /* to write to */
	char name[256]; /* "": written in place, there is no sibling */
	char temp[40];
};

#define HOST_FILE_INIT                      \
	{                                   \
		.dir = -EBADF, .fd = -EBADF \
	}

/* NAME has no slash.  dir stays open until it is committed or abandoned; one at a time. */
int host_file_create(struct host_file *f, int dir, const char *name, struct garret_error *err);
/* Give it mode (permission bits less the umask) and its name. */
int host_file_commit(struct host_file *f, mode_t mode, struct garret_error *err);
/* What isn't committed is removed.  Can be called in any case. */
void host_file_abandon(struct host_file *f);
int host_file_write(struct host_file *f, const void *data, size_t n, struct garret_error *err);

mode_t host_umask(void);

#endif
