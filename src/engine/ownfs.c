#include "engine/ownfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/engine.h"
#include "engine/image.h"
#include "engine/mount.h"
#include "engine/userns.h"

#define LEAST (64ull << 20)
#define UNIT (1ull << 20)
#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

/* In every kernel that we run on these can be mounted with other ids. */
static bool known_good(int dir)
{
	struct statfs fs;

	return fstatfs(dir, &fs) == 0 &&
	       (fs.f_type == EXT4_SUPER_MAGIC || fs.f_type == XFS_SUPER_MAGIC ||
		fs.f_type == BTRFS_SUPER_MAGIC);
}

/* By doing it: what a kernel can is not to be known by its version. */
static bool can_map(const struct engine *e, struct garret_error *err)
{
	const uint32_t base = e->conf.id_start + SLOT_IDS, owner = e->conf.id_start + SLOT_IDS - 1;
	autoclose int proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	autoclose int ns = -EBADF, copy = -EBADF;

	ns = userns_idmap(proc_fd, base, e->conf.id_start, owner, owner, err);
	copy = ns < 0 ? -EBADF : mount_clone(e->state_fd, "", false, err);
	return copy >= 0 && mount_attr(copy, false, 0, ns, err) == 0;
}

/* Of a new image: sparse, so it takes what is written to it and not more. */
static uint64_t new_size(int dir)
{
	struct statvfs vfs;

	if (fstatvfs(dir, &vfs) < 0)
		return 0;
	return (uint64_t)vfs.f_bavail * vfs.f_frsize / 10 * 9 / UNIT * UNIT;
}

static bool is_mounted(int store, int place)
{
	struct stat a, b;

	return fstat(store, &a) == 0 && fstat(place, &b) == 0 && a.st_dev != b.st_dev;
}

static int mount_store(int store, int place, struct garret_error *err)
{
	const bool there = image_there(store);
	const uint64_t bytes = there ? 0 : new_size(store);
	autoclose int fd = -EBADF;

	if (!there && bytes < LEAST)
		return garret_fail(err, GARRET_NO_SPACE,
				   "less than 64 MiB are free for a file system of our own");
	fd = image_mount(store, bytes, 0, 0, err);
	return fd < 0 ? fd : mount_attach(fd, place, err);
}

static int open_store(struct engine *e, struct garret_error *err)
{
	autoclose int store = open_dir_make(e->state_fd, "store", 0700, err);
	autoclose int place = -EBADF;
	struct statvfs vfs;
	int fd, rc = 0;

	if (store < 0)
		return store;
	if (mkdirat(store, "mounted", 0700) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make store/mounted");
	/* The state directory is root's alone, so no link can stand in the way. */
	place = openat(store, "mounted", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (place < 0)
		return garret_fail_errno(err, "open store/mounted");
	if (!is_mounted(store, place))
		rc = mount_store(store, place, err);
	if (rc < 0)
		return rc;
	e->own_fs = true;
	fd = openat(store, "mounted", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstatvfs(fd, &vfs) < 0) {
		fd_close(fd);
		return garret_fail_errno(err, "open the store");
	}
	if (vfs.f_flag & ST_RDONLY) {
		fd_close(fd);
		return garret_fail(err, GARRET_UNSUPPORTED, "the store came out read-only");
	}
	return fd;
}

int ownfs_open(struct engine *e, struct garret_error *err)
{
	struct garret_error why = { 0 };
	int fd;

	if (known_good(e->state_fd) || can_map(e, &why)) {
		fd = fcntl(e->state_fd, F_DUPFD_CLOEXEC, 3);
		return fd < 0 ? garret_fail_errno(err, "open the state directory") : fd;
	}
	log_debug("own_fs", "state=%s why=\"%s\"", e->conf.state_dir, why.msg);
	fd = open_store(e, err);
	if (fd >= 0)
		return fd;
	return garret_wrap(fd, err,
			   "the file system of %s can't be mounted with other ids, and one of our "
			   "own in a file can't be had",
			   e->conf.state_dir);
}

void ownfs_close(struct engine *e)
{
	autofree char *path = NULL;

	/* Sessions that go on use it; the next engine finds it mounted. */
	if (!e->own_fs || e->left)
		return;
	path = xasprintf("%s/store/mounted", e->conf.state_dir);
	if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
		log_warn("store_left", "path=%s errno=%d", path, errno);
	e->own_fs = false;
}
