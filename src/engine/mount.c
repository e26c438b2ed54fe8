#include "engine/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"

int mount_new(const char *type, const struct mount_option *options, uint64_t attrs,
	      struct garret_error *err)
{
	autoclose int fs = fsopen(type, FSOPEN_CLOEXEC);
	int fd;

	if (fs < 0)
		return garret_fail_errno(err, "file system %s", type);
	for (const struct mount_option *o = options; o && o->key; o++) {
		unsigned cmd = o->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;

		if (fsconfig(fs, cmd, o->key, o->value, 0) < 0)
			return garret_fail_errno(err, "%s option %s=%s", type, o->key,
						 o->value ? o->value : "");
	}
	if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return garret_fail_errno(err, "make a %s", type);
	fd = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
	if (fd < 0)
		return garret_fail_errno(err, "mount a %s", type);
	return fd;
}

int mount_clone(int dirfd, const char *path, bool recursive, struct garret_error *err)
{
	unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
			 (*path ? 0 : AT_EMPTY_PATH) | (recursive ? AT_RECURSIVE : 0);
	int fd = open_tree(dirfd, path, flags);

	if (fd < 0)
		return garret_fail_errno(err, "clone the mount of %s",
					 *path ? path : "a directory");
	return fd;
}

int mount_attr(int mount_fd, bool recursive, uint64_t set, int userns_fd, struct garret_error *err)
{
	/* Private too: or what the host mounts there later would show in the session. */
	struct mount_attr a = { .attr_set = set, .propagation = MS_PRIVATE };
	unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);

	if (userns_fd >= 0) {
		a.attr_set |= MOUNT_ATTR_IDMAP;
		a.userns_fd = (uint64_t)userns_fd;
	}
	if (mount_setattr(mount_fd, "", flags, &a, sizeof(a)) < 0)
		return garret_fail_errno(err, "%s a mount",
					 userns_fd >= 0 ? "map the ids of"
							: "set the attributes of");
	return 0;
}

static int walk(int root_fd, const char *path)
{
	struct open_how how = {
		.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
	};

	while (*path == '/')
		path++;
	return (int)syscall(SYS_openat2, root_fd, *path ? path : ".", &how, sizeof(how));
}

int mount_target(int root_fd, const char *path, struct garret_error *err)
{
	int fd = walk(root_fd, path);

	if (fd < 0)
		return garret_fail_errno(err, "mount point %s", path);
	return fd;
}

/* Make the missing last part of path, whose parent exists. */
static int make_one(int root_fd, const char *parent, const char *name, bool file, uint32_t owner,
		    struct garret_error *err)
{
	autoclose int dir = mount_target(root_fd, parent, err), made = -EBADF;
	struct stat here, root;
	int rc = 0;

	if (dir < 0)
		return dir;
	if (fstat(dir, &here) < 0 || fstat(root_fd, &root) < 0)
		return garret_fail_errno(err, "look at %s", parent);

	/* In a session's own file systems only the session's user may make something. */
	if (here.st_dev != root.st_dev)
		fs_become(owner);
	if (file) {
		made = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC,
			      0644);
		rc = made < 0 ? -1 : 0;
	} else {
		rc = mkdirat(dir, name, 0755);
	}
	if (rc < 0 && errno != EEXIST)
		rc = garret_fail_errno(err, "make the mount point %s/%s", parent, name);
	else
		rc = 0;
	fs_become(0);
	return rc;
}

int mount_target_make(int root_fd, const char *path, bool file, uint32_t owner,
		      struct garret_error *err)
{
	char part[PATH_MAX];
	struct stat st;
	int fd;

	for (const char *end = path + 1;; end++) {
		const char *slash;
		size_t n;

		end = strchrnul(end, '/');
		n = (size_t)(end - path);
		if (n >= sizeof(part))
			return garret_fail(err, GARRET_INVALID, "the path %s is too long", path);
		memcpy(part, path, n);
		part[n] = '\0';
		fd = walk(root_fd, part);
		if (fd < 0 && errno == ENOENT) {
			int rc;

			part[strrchr(part, '/') - part] = '\0';
			slash = part + strlen(part) + 1;
			rc = make_one(root_fd, *part ? part : "/", slash, file && !*end, owner,
				      err);
			if (rc < 0)
				return rc;
			memcpy(part, path, n);
			fd = walk(root_fd, part);
		}
		if (fd < 0)
			return garret_fail_errno(err, "mount point %s", part);
		if (!*end)
			break;
		fd_close(fd);
	}
	if (fstat(fd, &st) == 0 && (file ? S_ISREG(st.st_mode) : S_ISDIR(st.st_mode)))
		return fd;
	fd_close(fd);
	return garret_fail(err, file ? GARRET_NOT_REGULAR : GARRET_NOT_DIRECTORY,
			   "the mount point %s is no %s", path,
			   file ? "regular file" : "directory");
}

int mount_attach(int mount_fd, int target_fd, struct garret_error *err)
{
	if (move_mount(mount_fd, "", target_fd, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
		return garret_fail_errno(err, "attach a mount");
	return 0;
}

int mount_at(int mount_fd, int root_fd, const char *path, struct garret_error *err)
{
	autoclose int target = mount_target(root_fd, path, err);

	if (target < 0)
		return target;
	return garret_wrap(mount_attach(mount_fd, target, err), err, "%s", path);
}

int mount_private(struct garret_error *err)
{
	struct mount_attr a = { .propagation = MS_PRIVATE };

	if (mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &a, sizeof(a)) < 0)
		return garret_fail_errno(err, "make the mounts private");
	return 0;
}

int mount_pivot(int root_fd, struct garret_error *err)
{
	if (fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return garret_fail_errno(err, "change the root");
	/* The old root now lies over the new one. */
	if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
		return garret_fail_errno(err, "drop the old root");
	return 0;
}

void fs_become(uint32_t id)
{
	/* Leaving 0 takes the file capabilities out of the effective set and coming
	 * back raises them again: the kernel's own rule for the fsuid. */
	if (id)
		(void)setfsgid(id);
	(void)setfsuid(id);
	if (!id)
		(void)setfsgid(id);
}
