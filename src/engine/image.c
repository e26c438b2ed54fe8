#include "engine/image.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "engine/mount.h"

#define NEW_NAME "image.new"
#define NOTE_NAME "image.loop"
#define LOOP_MAJOR 7
#define LOOPS_MAX (1u << 20) /* the minor numbers there are */
#define TRIES 200            /* with the pause between them: 2 s */
#define WAIT_NS (10 * 1000 * 1000)
#define RESIZE_FS _IOW('f', 16, uint64_t)

static const char *const mkfs_paths[] = { "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4" };

/* A directory of device nodes that nobody else sees, and the loop control in it. */
struct loops {
	int dir, control;
};

static const char *find_mkfs(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(mkfs_paths); i++)
		if (access(mkfs_paths[i], X_OK) == 0)
			return mkfs_paths[i];
	return NULL;
}

static int open_node(int dir, const char *name, unsigned major, unsigned minor)
{
	if (mknodat(dir, name, (major == LOOP_MAJOR ? S_IFBLK : S_IFCHR) | 0600,
		    makedev(major, minor)) < 0 &&
	    errno != EEXIST)
		return -1;
	return openat(dir, name, O_RDWR | O_CLOEXEC);
}

static void loops_close(struct loops *l)
{
	fd_close(l->dir);
	fd_close(l->control);
}

static int loops_open(struct loops *l, struct garret_error *err)
{
	static const struct mount_option options[] = {
		{ "mode", "0700" }, { "size", "64k" }, { "nr_inodes", "8192" }, { NULL, NULL }
	};

	l->control = -EBADF;
	l->dir = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, err);
	if (l->dir < 0)
		return l->dir;
	l->control = open_node(l->dir, "control", 10, 237 /* what the kernel's list gives it */);
	if (l->control < 0)
		return garret_fail(err, GARRET_UNSUPPORTED, "there are no loop devices (%s)",
				   strerror(errno));
	return 0;
}

int image_possible(struct garret_error *err)
{
	struct loops l;
	int rc = loops_open(&l, err);

	if (rc == 0 && ioctl(l.control, LOOP_CTL_GET_FREE) < 0)
		rc = garret_fail(err, GARRET_UNSUPPORTED, "there is no free loop device (%s)",
				 strerror(errno));
	if (rc == 0 && !find_mkfs())
		rc = garret_fail(err, GARRET_UNSUPPORTED, "there is no mkfs.ext4");
	loops_close(&l);
	return rc;
}

bool image_there(int parent)
{
	struct stat st;

	return fstatat(parent, IMAGE_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode);
}

/* ---- making one ---- */

static int run_mkfs(int parent, uint32_t uid, uint32_t gid, struct garret_error *err)
{
	char owner[96];
	const char *program = find_mkfs();
	const char *argv[] = { "mkfs.ext4", "-q", "-F",  "-m",     "0", "-i",
			       "8192",      "-E", owner, NEW_NAME, NULL };
	const char *envp[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL };
	int status = -1;
	pid_t pid;

	(void)snprintf(owner, sizeof(owner), "root_owner=%u:%u,lazy_itable_init=1,nodiscard", uid,
		       gid);
	if (!program)
		return garret_fail(err, GARRET_UNSUPPORTED, "there is no mkfs.ext4");
	pid = fork();
	if (pid < 0)
		return garret_fail_errno(err, "fork mkfs");
	if (pid == 0) {
		/* By a name in its own directory: this process has no /proc to name a descriptor. */
		if (fchdir(parent) == 0)
			(void)execve(program, (char *const *)(uintptr_t)argv,
				     (char *const *)(uintptr_t)envp);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0)
		return garret_fail(err, GARRET_INTERNAL, "mkfs.ext4 ended with status %#x", status);
	return 0;
}

static int make_image(int parent, uint64_t bytes, uint32_t uid, uint32_t gid,
		      struct garret_error *err)
{
	const int flags = O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
	autoclose int fd = openat(parent, NEW_NAME, flags, 0600);
	int rc;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return garret_fail_errno(err, "make the image of a workspace");
	rc = run_mkfs(parent, uid, gid, err);
	if (rc < 0)
		return rc;
	/* Whole or not at all: one that mkfs didn't finish is made again. */
	if (renameat(parent, NEW_NAME, parent, IMAGE_NAME) < 0)
		return garret_fail_errno(err, "name the image of a workspace");
	return 0;
}

/* ---- its loop device ---- */

/* The number that was noted when the image got its device. */
static unsigned noted_loop(int parent)
{
	char text[32] = "";
	uint64_t n;

	(void)read_file_at(parent, NOTE_NAME, text, sizeof(text));
	return parse_u64(text, &n) && n < LOOPS_MAX ? (unsigned)n : LOOPS_MAX;
}

static int note_loop(int parent, unsigned n)
{
	const int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC;
	autoclose int fd = openat(parent, NOTE_NAME, flags, 0600);
	char text[32];
	int len = snprintf(text, sizeof(text), "%u", n);

	return fd < 0 ? -1 : write_full(fd, text, (size_t)len);
}

static int open_loop(const struct loops *l, unsigned n, char name[32])
{
	(void)snprintf(name, 32, "loop%u", n);
	return open_node(l->dir, name, LOOP_MAJOR, n);
}

/* The device that has the image already; open it stays what it is. */
static int shared_loop(const struct loops *l, int parent, int image, char name[32])
{
	unsigned n = noted_loop(parent);
	autoclose int fd = n < LOOPS_MAX ? open_loop(l, n, name) : -EBADF;
	struct loop_info64 info;
	struct stat st;

	if (fd < 0 || fstat(image, &st) < 0 || ioctl(fd, LOOP_GET_STATUS64, &info) < 0 ||
	    info.lo_device != st.st_dev || info.lo_inode != st.st_ino)
		return -1;
	return take_fd(&fd);
}

static int new_loop(const struct loops *l, int parent, int image, char name[32])
{
	struct loop_config c = { .fd = (uint32_t)image, .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int n = ioctl(l->control, LOOP_CTL_GET_FREE);
	autoclose int fd =
		n >= 0 && (unsigned)n < LOOPS_MAX ? open_loop(l, (unsigned)n, name) : -EBADF;

	if (fd < 0 || ioctl(fd, LOOP_CONFIGURE, &c) < 0 || note_loop(parent, (unsigned)n) < 0)
		return -1;
	return take_fd(&fd);
}

/*
 * Two devices over one file would destroy it.  So the file is locked, by the very descriptor
 * that the device keeps: the lock is there as long as the device has the file, whatever
 * becomes of us, and who doesn't get it shares that device.
 */
static int attach(const struct loops *l, int parent, int image, char name[32],
		  struct garret_error *err)
{
	for (int i = 0; i < TRIES; i++) {
		bool ours = flock(image, LOCK_EX | LOCK_NB) == 0;
		int fd = ours ? new_loop(l, parent, image, name)
			      : shared_loop(l, parent, image, name);

		if (fd >= 0)
			return fd;
		/* One that is just being set up or taken down, or a device that others were given. */
		(void)nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
	}
	return garret_fail_errno(err, "a loop device for the image of a workspace");
}

/* ---- the mount ---- */

static int grow_to(int loop, int image, int root, uint64_t bytes)
{
	struct statvfs vfs;
	uint64_t blocks;

	if (root < 0 || ftruncate(image, (off_t)bytes) < 0 || ioctl(loop, LOOP_SET_CAPACITY) < 0 ||
	    fstatvfs(root, &vfs) < 0)
		return -1;
	blocks = bytes / vfs.f_bsize;
	return ioctl(root, RESIZE_FS, &blocks);
}

/* The file and its file system; both or none, because the next limit is compared with the file. */
static int grow(int loop, int image, int mount_fd, uint64_t from, uint64_t to,
		struct garret_error *err)
{
	autoclose int root = openat(mount_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = 0;

	if (grow_to(loop, image, root, to) < 0) {
		/* EPERM: the kernel wants CAP_SYS_RESOURCE for it, which a container may lack. */
		rc = garret_fail_errno(err, "grow the workspace from %llu to %llu bytes",
				       (unsigned long long)from, (unsigned long long)to);
		if (ftruncate(image, (off_t)from) == 0)
			(void)ioctl(loop, LOOP_SET_CAPACITY);
	}
	return rc;
}

static int mount_loop(const struct loops *l, const char *name, struct garret_error *err)
{
	/* What is deleted inside is given back to the file system below. */
	const struct mount_option options[] = { { "source", name },
						{ "discard", NULL },
						{ NULL, NULL } };
	int fd;

	/* The kernel wants a name, and this is the only place where the device has one. */
	if (fchdir(l->dir) < 0)
		return garret_fail_errno(err, "enter the directory of loop devices");
	fd = mount_new("ext4", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
	if (chdir("/") < 0)
		return garret_fail_errno(err, "leave the directory of loop devices");
	return fd;
}

static int check_size(int image, uint64_t bytes, uint64_t *ret, struct garret_error *err)
{
	struct stat st;

	if (fstat(image, &st) < 0 || !S_ISREG(st.st_mode))
		return garret_fail(err, GARRET_INTERNAL, "the image of a workspace is no file");
	if (bytes && bytes < (uint64_t)st.st_size)
		return garret_fail(err, GARRET_INVALID,
				   "disk can't be less than the %llu bytes that the workspace has",
				   (unsigned long long)st.st_size);
	*ret = (uint64_t)st.st_size;
	return 0;
}

int image_mount(int parent, uint64_t bytes, uint32_t uid, uint32_t gid, struct garret_error *err)
{
	autoclose int dir = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autoclose int image = -EBADF, loop = -EBADF, mounted = -EBADF;
	bool made = dir >= 0 && !image_there(dir);
	struct loops l = { -EBADF, -EBADF };
	uint64_t size = 0;
	char name[32];
	int rc = made ? make_image(dir, bytes, uid, gid, err) : 0;

	if (rc < 0)
		return rc;
	image = dir < 0 ? -EBADF : openat(dir, IMAGE_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (image < 0)
		return garret_fail_errno(err, "open the image of a workspace");
	rc = check_size(image, bytes, &size, err);
	if (rc == 0)
		rc = loops_open(&l, err);
	if (rc == 0)
		rc = loop = attach(&l, dir, image, name, err);
	if (rc >= 0)
		rc = mounted = mount_loop(&l, name, err);
	loops_close(&l);
	if (rc >= 0 && bytes > size)
		rc = grow(loop, image, mounted, size, bytes, err);
	if (rc >= 0 && made)
		(void)unlinkat(mounted, "lost+found", AT_REMOVEDIR);
	return rc < 0 ? rc : take_fd(&mounted);
}
