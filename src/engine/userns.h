/* User namespaces that no process lives in: kept by descriptor, as a session's or as an idmap. */
#ifndef ENGINE_USERNS_H
#define ENGINE_USERNS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

struct id_line {
	uint32_t inside, outside, count;
};

/*
 * Make one with these maps; its descriptor.  Takes about 0.3 ms (a process is
 * born and ends).  maker: the user whom the kernel charges with what is used inside, and
 * nothing in it may ever make a namespace of any kind; 0: root's, for an idmap.
 */
int userns_make(int proc_fd, const struct id_line *uids, unsigned n_uids,
		const struct id_line *gids, unsigned n_gids, uid_t maker, struct garret_error *err);

/* The session's: only the main user and init exist in it. */
int userns_session(int proc_fd, uint32_t base, struct garret_error *err);
/*
 * The idmap of files owned uid:gid outside: those are the main user's, what
 * other users of a session write gets ids of the range that begins at disk_id.
 */
int userns_idmap(int proc_fd, uint32_t base, uint32_t disk_id, uint32_t uid, uint32_t gid,
		 struct garret_error *err);

#endif
