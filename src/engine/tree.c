#include "engine/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/etc.h"
#include "engine/mount.h"

/* Where the tree is put together: a directory that every host has.  Only this mount
 * namespace sees it. */
#define SCAFFOLD "/proc"

static const struct {
	const char *path;
	mode_t mode;
} dirs[] = {
	{ "dev", 0755 },       { "etc", 0755 },      { "home", 0755 },      { "home/agent", 0755 },
	{ "mnt", 0755 },       { "opt", 0755 },      { "proc", 0555 },      { "root", 0700 },
	{ "run", 0755 },       { "run/lock", 0755 }, { "srv", 0755 },       { "tmp", 01777 },
	{ "usr", 0755 },       { "var", 0755 },      { "var/empty", 0555 }, { "var/lib", 0755 },
	{ "var/cache", 0755 }, { "var/log", 0755 },  { "var/tmp", 01777 },  { "workspace", 0755 },
};

/* Of the host: a link is copied, a directory shown like /usr. */
static const char *const program_dirs[] = {
	"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"
};

/* Mount points of every session: in a root of one's own they are made, not cloned. */
static const char *const plain_dirs[] = { "home", "mnt", "opt", "root",     "run",
					  "srv",  "tmp", "var", "workspace" };

static const struct {
	const char *name;
	unsigned major, minor;
} nodes[] = {
	{ "null", 1, 3 },   { "zero", 1, 5 },    { "full", 1, 7 },
	{ "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 },
};

static const struct {
	const char *name, *to;
} dev_links[] = {
	{ "fd", "/proc/self/fd" },       { "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
	{ "ptmx", "pts/ptmx" },
};

static int make_dirs(int root, struct garret_error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdirat(root, dirs[i].path, dirs[i].mode) < 0)
			return garret_fail_errno(err, "make /%s", dirs[i].path);
	if (symlinkat("../run", root, "var/run") < 0 ||
	    symlinkat("../run/lock", root, "var/lock") < 0)
		return garret_fail_errno(err, "link /var/run");
	return 0;
}

static int make_nodes(int dev, struct garret_error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		if (mknodat(dev, nodes[i].name, S_IFCHR | 0666,
			    makedev(nodes[i].major, nodes[i].minor)) < 0)
			return garret_fail_errno(err, "make the device /dev/%s", nodes[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(dev_links); i++)
		if (symlinkat(dev_links[i].to, dev, dev_links[i].name) < 0)
			return garret_fail_errno(err, "make the link /dev/%s", dev_links[i].name);
	if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 01777) < 0)
		return garret_fail_errno(err, "make the directories of /dev");
	return 0;
}

static int make_dev(int root, struct garret_error *err)
{
	static const struct mount_option options[] = {
		{ "mode", "0755" }, { "size", "64k" }, { "nr_inodes", "64" }, { NULL, NULL }
	};
	autoclose int dev = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
	int rc;

	if (dev < 0)
		return dev;
	rc = make_nodes(dev, err);
	if (rc == 0)
		rc = mount_attr(dev, false, MOUNT_ATTR_RDONLY, -EBADF, err);
	return rc < 0 ? rc : mount_at(dev, root, "/dev", err);
}

/* A single lower layer needs an upper; two don't. */
static int make_overlay(int root, const char *name, struct garret_error *err)
{
	char lower[PATH_MAX], inside[64];
	const struct mount_option options[] = { { "lowerdir", lower }, { NULL, NULL } };
	autoclose int fd = -EBADF;

	(void)snprintf(lower, sizeof(lower), "/%s:%s%s", name, SCAFFOLD, TREE_EMPTY);
	(void)snprintf(inside, sizeof(inside), "/%s", name);
	fd = mount_new("overlay", options, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
		       err);
	if (fd < 0)
		return garret_wrap(fd, err, "/%s", name);
	return mount_at(fd, root, inside, err);
}

static int make_programs(int root, struct garret_error *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(program_dirs); i++) {
		const char *name = program_dirs[i];
		char host[64], to[PATH_MAX];
		struct stat st;
		int rc = 0;

		(void)snprintf(host, sizeof(host), "/%s", name);
		if (lstat(host, &st) < 0)
			continue;
		if (S_ISLNK(st.st_mode)) {
			ssize_t n = readlink(host, to, sizeof(to) - 1);

			if (n < 0)
				return garret_fail_errno(err, "read the link %s", host);
			to[n] = '\0';
			if (symlinkat(to, root, name) < 0)
				return garret_fail_errno(err, "make the link %s", host);
		} else if (S_ISDIR(st.st_mode)) {
			if (mkdirat(root, name, 0755) < 0 && errno != EEXIST)
				return garret_fail_errno(err, "make %s", host);
			rc = make_overlay(root, name, err);
		}
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Below the root that this process still has. */
static int attach_host(int mount_fd, const char *path, struct garret_error *err)
{
	autoclose int old_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (old_root < 0)
		return garret_fail_errno(err, "open the root");
	return mount_at(mount_fd, old_root, path, err);
}

int tree_build(const char *etc_copy, struct garret_error *err)
{
	/* 64 MiB: certificates are the largest part of /etc, some MiB. */
	static const struct mount_option options[] = {
		{ "mode", "0755" }, { "size", "64m" }, { "nr_inodes", "32768" }, { NULL, NULL }
	};
	autoclose int root = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
	autoclose int etc = -EBADF;
	int rc;

	if (root < 0)
		return root;
	(void)umask(0);
	rc = attach_host(root, SCAFFOLD, err);
	if (rc == 0)
		rc = make_dirs(root, err);
	if (rc == 0)
		rc = make_programs(root, err);
	if (rc == 0)
		rc = make_dev(root, err);
	if (rc < 0)
		return garret_wrap(rc, err, "the tree of the host runtime");
	etc = open_beneath(root, "etc", O_RDONLY | O_DIRECTORY, 0);
	if (etc < 0)
		return garret_fail_errno(err, "open the new /etc");
	rc = etc_fill(etc, etc_copy, err);
	if (rc == 0)
		rc = mount_attr(root, false, MOUNT_ATTR_RDONLY, -EBADF, err);
	if (rc == 0)
		rc = mount_pivot(root, err);
	(void)umask(022);
	return garret_wrap(rc, err, "the tree of the host runtime");
}

static bool is_plain(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(plain_dirs); i++)
		if (!strcmp(plain_dirs[i], name))
			return true;
	return false;
}

/* One entry of the template in the new root. */
static int copy_entry(int from, int to, const char *name, struct garret_error *err)
{
	autoclose int clone = -EBADF, target = -EBADF;
	char link[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return garret_fail_errno(err, "look at /%s", name);
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(from, name, link, sizeof(link) - 1);
		if (n < 0)
			return garret_fail_errno(err, "read the link /%s", name);
		link[n] = '\0';
		return symlinkat(link, to, name) < 0 ? garret_fail_errno(err, "link /%s", name) : 0;
	}
	if (mkdirat(to, name, st.st_mode & 07777) < 0)
		return garret_fail_errno(err, "make /%s", name);
	if (is_plain(name))
		return 0;
	clone = mount_clone(from, name, true, err);
	if (clone < 0)
		return clone;
	target = mount_target(to, name, err);
	return target < 0 ? target : mount_attach(clone, target, err);
}

static int copy_entries(int to, struct garret_error *err)
{
	autodir DIR *d = opendir("/");
	struct dirent *e;

	if (!d)
		return garret_fail_errno(err, "read the template");
	while ((e = readdir(d))) {
		int rc = e->d_name[0] == '.' ? 0 : copy_entry(dirfd(d), to, e->d_name, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int tree_own_root(struct garret_error *err)
{
	static const struct mount_option options[] = {
		{ "mode", "0755" }, { "size", "1m" }, { "nr_inodes", "1024" }, { NULL, NULL }
	};
	static const char *const below[] = { "home/agent", "var/tmp", "var/empty", "run/lock",
					     "var/lib" };
	autoclose int root = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
	int rc;

	if (root < 0)
		return root;
	/* Attached first: older kernels mount on attached mounts only. */
	rc = attach_host(root, "/tmp", err);
	if (rc == 0)
		rc = copy_entries(root, err);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(below); i++)
		if (mkdirat(root, below[i], 0755) < 0)
			rc = garret_fail_errno(err, "make /%s", below[i]);
	if (rc == 0)
		rc = mount_pivot(root, err);
	return garret_wrap(rc, err, "a root of the session's own");
}

int tree_bare_root(const char *inside, int mount_fd, struct garret_error *err)
{
	/* An inode per part of the longest path. */
	static const struct mount_option options[] = {
		{ "mode", "0755" }, { "size", "64k" }, { "nr_inodes", "1024" }, { NULL, NULL }
	};
	const uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
	autoclose int root = mount_new("tmpfs", options, attrs, err), target = -EBADF;
	int rc;

	if (root < 0)
		return root;
	rc = attach_host(root, "/tmp", err);
	if (rc < 0)
		return rc;
	target = mount_target_make(root, inside, false, 0, err);
	if (target < 0)
		return target;
	rc = mount_attach(mount_fd, target, err);
	if (rc == 0)
		rc = mount_attr(root, false, attrs | MOUNT_ATTR_RDONLY, -EBADF, err);
	if (rc == 0)
		rc = mount_pivot(root, err);
	return garret_wrap(rc, err, "a root with nothing else");
}
