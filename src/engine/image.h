/*
 * A workspace that is a file system in a file: the limit of disk space where the file system
 * below has no quotas.  `<id>/image` is sparse ext4; it is mounted only in sessions, never
 * where the host sees it, and its loop device goes with the last of them.
 */
#ifndef ENGINE_IMAGE_H
#define ENGINE_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

#define IMAGE_NAME "image"

/* Can such be made here?  Else err says what is missing. */
int image_possible(struct garret_error *err);
/* Is there one in the directory of a workspace? */
bool image_there(int parent);

/*
 * For a process that may wait, root of the host: a detached mount of the image in PARENT, made
 * first when there is none; then its root belongs to uid:gid.  bytes: its size, 0 for the one
 * that it has; it can grow.  A second mount of one image shares the first one's file system.
 */
int image_mount(int parent, uint64_t bytes, uint32_t uid, uint32_t gid, struct garret_error *err);

#endif
