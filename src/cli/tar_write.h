/* A tree of the host as a tar archive (ustar, with pax headers where that has no room). */
#ifndef CLI_TAR_WRITE_H
#define CLI_TAR_WRITE_H

#include <stddef.h>

#include "base/error.h"

struct tar_write {
	/* Takes all of it: 0, 1 (no more is wanted, that is no failure) or -code. */
	int (*write)(void *ctx, const void *data, size_t n, struct garret_error *err);
	/* Something has no place in an archive (a socket, a device): it is left out. */
	void (*left_out)(void *ctx, const char *path, const char *why);
	void *ctx;
};

/*
 * What is in directory dir (borrowed), named relative to it; `shown` is its name
 * in messages.  Links are taken as links, and nothing is followed.
 */
int tar_write_tree(const struct tar_write *to, int dir, const char *shown,
		   struct garret_error *err);

#endif
