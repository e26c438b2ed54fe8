/*
 * A file system of our own, for a state directory on one that can't be mounted
 * with other ids (an overlay, as the root of a container is, or a network file
 * system): sparse ext4 in {state}/store/image, mounted on {state}/store/mounted.
 */
#ifndef ENGINE_OWNFS_H
#define ENGINE_OWNFS_H

#include "base/error.h"

struct engine;

/*
 * Where sessions and workspaces may lie: the state directory itself, or the
 * root of the image, which is made on first use and stays mounted until
 * ownfs_close(); one that a killed engine left mounted is taken over.  Waits for
 * mkfs.  An open directory of the caller's; -code says what is missing.
 */
int ownfs_open(struct engine *e, struct garret_error *err);
void ownfs_close(struct engine *e);

#endif
