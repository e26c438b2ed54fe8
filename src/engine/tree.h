/*
 * The template of the `host` runtime: one read-only tree per engine, which is the
 * root of the zygote's mount namespace.  A session's mount namespace is a copy of
 * it, so a session begins with the tree as its root and nothing else mounted.
 *
 * /usr is an overlay of the host's /usr over an empty directory: sockets and pipes
 * in it are other inodes than the host's, and no file system mounted below shows.
 * /etc is copied and generated, /dev has nodes of its own.
 */
#ifndef ENGINE_TREE_H
#define ENGINE_TREE_H

#include "base/error.h"

/* Empty, 0555: what a masked directory shows. */
#define TREE_EMPTY "/var/empty"

/* In the zygote, in a mount namespace of its own: build it and make it the root. */
int tree_build(const char *etc_copy, struct garret_error *err);

/*
 * In a session's child: a root of its own (small, writable until it is made
 * read-only) with the same content, for mount points that the template lacks.
 */
int tree_own_root(struct garret_error *err);

/*
 * In a session's child: a root with nothing but the way to `inside`, and mount_fd there.
 * Nothing else of this mount namespace can be reached from then on.
 */
int tree_bare_root(const char *inside, int mount_fd, struct garret_error *err);

#endif
