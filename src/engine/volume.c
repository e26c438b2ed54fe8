#include "engine/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/mount.h"

#define GROUPS_MAX 1024

static bool in_group(int sock, const struct credentials *peer, gid_t gid)
{
	gid_t groups[GROUPS_MAX];
	socklen_t n = sizeof(groups);

	if (gid == peer->gid)
		return true;
	if (!peer->groups || getsockopt(sock, SOL_SOCKET, SO_PEERGROUPS, groups, &n) < 0)
		return false;
	for (size_t i = 0; i < n / sizeof(groups[0]); i++)
		if (groups[i] == gid)
			return true;
	return false;
}

/*
 * Only ids that the session maps can write: a directory of somebody else's, even one
 * that everybody may write, is read-only from inside.  Said here rather than found out there.
 */
static int check_owner(const struct stat *st, int sock, const struct credentials *peer,
		       const struct build_mount *m, struct garret_error *err)
{
	if (m->read_only || (st->st_uid == peer->uid && in_group(sock, peer, st->st_gid)))
		return 0;
	return garret_fail(
		err, GARRET_DENIED,
		"the volume %s belongs to %u:%u, not to the caller; it can be given read-only",
		m->inside, (unsigned)st->st_uid, (unsigned)st->st_gid);
}

/* What the peer itself could do there, asked of the kernel as the peer. */
static int check_access(int fd, const struct credentials *peer, const struct build_mount *m,
			struct garret_error *err)
{
	int mode = R_OK | (m->file ? 0 : X_OK) | (m->read_only ? 0 : W_OK), rc;

	(void)setfsgid(peer->gid);
	(void)setfsuid(peer->uid);
	rc = (int)syscall(SYS_faccessat2, fd, "", mode, AT_EMPTY_PATH | AT_EACCESS);
	if (rc < 0)
		rc = garret_fail_errno(err, "user %u at the volume %s", (unsigned)peer->uid,
				       m->inside);
	fs_become(0);
	return rc;
}

int volume_clone(int fd, int sock, const struct credentials *peer, struct build_mount *m,
		 struct garret_error *err)
{
	struct stat st;
	int mount_fd;

	if (fstat(fd, &st) < 0)
		return garret_fail_errno(err, "look at the volume %s", m->inside);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return garret_fail(err, GARRET_INVALID,
				   "the volume %s is neither a directory nor a regular file",
				   m->inside);
	m->file = S_ISREG(st.st_mode);
	m->uid = st.st_uid;
	m->gid = st.st_gid;
	if (peer->uid != 0) {
		int rc = check_owner(&st, sock, peer, m, err);

		if (rc == 0)
			rc = check_access(fd, peer, m, err);
		if (rc < 0)
			return rc;
		/* The owner's rights would be more than the peer has. */
		m->uid = peer->uid;
		if (st.st_uid != peer->uid || !in_group(sock, peer, st.st_gid))
			m->gid = peer->gid;
	}
	mount_fd = mount_clone(fd, "", true, err);
	return garret_wrap(mount_fd, err, "volume %s", m->inside);
}
