/*
 * The mount calls of the engine.  Every mount is made detached, by descriptor,
 * and then attached to a place that was opened without following a link, so
 * that no name inside a session decides where something is mounted.
 */
#ifndef ENGINE_MOUNT_H
#define ENGINE_MOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/types.h>

#include "base/error.h"

struct mount_option {
	const char *key, *value; /* value NULL: a flag */
};

/* A new file system, detached.  options end with a NULL key; attrs are MOUNT_ATTR_*. */
int mount_new(const char *type, const struct mount_option *options, uint64_t attrs,
	      struct garret_error *err);

/* A detached copy of the mount that path (below dirfd; "" for dirfd itself) is on. */
int mount_clone(int dirfd, const char *path, bool recursive, struct garret_error *err);

/* Set attributes of a mount and make it private; userns_fd >= 0: its idmap. */
int mount_attr(int mount_fd, bool recursive, uint64_t set, int userns_fd, struct garret_error *err);

/* Open what `path` (absolute) names below root, refusing every link. O_PATH. */
int mount_target(int root_fd, const char *path, struct garret_error *err);
/* The same, but made when it isn't there: missing parts on another file system than
 * root's belong to `owner` (a kernel id). */
int mount_target_make(int root_fd, const char *path, bool file, uint32_t owner,
		      struct garret_error *err);

int mount_attach(int mount_fd, int target_fd, struct garret_error *err);
/* mount_target() and mount_attach(); closes nothing. */
int mount_at(int mount_fd, int root_fd, const char *path, struct garret_error *err);

/* The whole of this mount namespace stops sharing mounts with the one it was copied from. */
int mount_private(struct garret_error *err);
/* Make root_fd the root of this mount namespace and drop the old one. */
int mount_pivot(int root_fd, struct garret_error *err);

/* Run the next file system calls as this kernel id (0: back to root, capabilities whole). */
void fs_become(uint32_t id);

#endif
