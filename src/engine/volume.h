/* Directories of the host in a session: what a peer may give, and as whom. */
#ifndef ENGINE_VOLUME_H
#define ENGINE_VOLUME_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"
#include "engine/wire.h"

struct credentials {
	uid_t uid;
	gid_t gid;
	bool groups; /* those of the socket are the peer's too */
};

/*
 * Check a directory or regular file (descriptor of the peer's) and clone its mount.
 * Fills owner and kind of m.  The session's main user gets what `peer` has there:
 * for root the rights of the owner of the directory, for anybody else their own.
 */
int volume_clone(int fd, int sock, const struct credentials *peer, struct build_mount *m,
		 struct garret_error *err);

#endif
