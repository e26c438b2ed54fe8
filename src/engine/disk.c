#include "engine/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/image.h"
#include "engine/measure.h"

/* Nobody numbers projects up here; documented in engine.conf(5). */
#define PROJECT_FIRST 0x5F000000u
#define PROJECTS (1u << 24)
#define TRIES 256

/*
 * As many files as fit when each has 2 KiB: an empty one costs no block, but it costs an
 * inode, and those run out as well.
 */
#define FILE_BYTES 2048
#define FILES_LEAST 1024

#define PROBE ".probe"
#define PROBE_BYTES (64u << 10)

static bool is_ours(uint32_t project)
{
	return project - PROJECT_FIRST < PROJECTS;
}

static int quota(int fs_fd, int cmd, uint32_t project, struct if_dqblk *q)
{
	return (int)syscall(SYS_quotactl_fd, fs_fd, QCMD(cmd, PRJQUOTA), project, q);
}

int disk_limit(int fs_fd, uint32_t project, uint64_t bytes, struct garret_error *err)
{
	struct if_dqblk q = {
		.dqb_bhardlimit = bytes / QIF_DQBLKSIZE,
		.dqb_ihardlimit = bytes ? bytes / FILE_BYTES + FILES_LEAST : 0,
		.dqb_valid = QIF_LIMITS,
	};

	if (quota(fs_fd, Q_SETQUOTA, project, &q) < 0)
		return garret_fail_errno(err, "set a project quota");
	return 0;
}

int disk_usage(int fs_fd, uint32_t project, uint64_t *ret_bytes, uint64_t *ret_files)
{
	struct if_dqblk q = { 0 };

	/* A file system that never heard of the project may say so. */
	if (quota(fs_fd, Q_GETQUOTA, project, &q) < 0 && errno != ENOENT)
		return -1;
	*ret_bytes = q.dqb_curspace;
	*ret_files = q.dqb_curinodes;
	return 0;
}

/* The attributes are asked for on a descriptor that was opened for reading. */
static int reopen(int dir)
{
	return openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

uint32_t disk_project(int dir)
{
	autoclose int fd = reopen(dir);
	struct fsxattr a;

	if (fd < 0 || ioctl(fd, FS_IOC_FSGETXATTR, &a) < 0 || !is_ours(a.fsx_projid))
		return 0;
	return a.fsx_projid;
}

static int set_project(int fd, uint32_t project, bool inherit)
{
	const uint32_t want = inherit ? FS_XFLAG_PROJINHERIT : 0;
	struct fsxattr a;

	if (ioctl(fd, FS_IOC_FSGETXATTR, &a) < 0)
		return -1;
	if (a.fsx_projid == project && (a.fsx_xflags & FS_XFLAG_PROJINHERIT) == want)
		return 0;
	a.fsx_projid = project;
	a.fsx_xflags |= want;
	return ioctl(fd, FS_IOC_FSSETXATTR, &a);
}

int disk_set_project(int dir, uint32_t project, struct garret_error *err)
{
	autoclose int fd = reopen(dir);

	if (fd < 0 || set_project(fd, project, true) < 0)
		return garret_fail_errno(err, "give a directory to a project");
	return 0;
}

/* ---- what was there before ---- */

struct conversion {
	uint32_t project;
	int error; /* the first */
};

static void convert_one(void *ctx, int dir, const char *name, const struct stat *st)
{
	const int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	struct conversion *c = ctx;
	autoclose int fd = -EBADF;

	/* Links, pipes, sockets have no such attribute that could be set, and next to no space. */
	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
		return;
	fd = openat(dir, name, flags);
	if ((fd < 0 || set_project(fd, c->project, S_ISDIR(st->st_mode)) < 0) && !c->error)
		c->error = errno;
}

int disk_convert(int dir, uint32_t project, struct garret_error *err)
{
	struct conversion c = { .project = project };

	if (!measure_visit(dir, UINT64_MAX, convert_one, &c) && !c.error)
		c.error = ELOOP;
	if (c.error) {
		errno = c.error;
		return garret_fail_errno(err, "give the files of a workspace to a project");
	}
	/* The last: it says that all others are. */
	return disk_set_project(dir, project, err);
}

/* ---- workspaces ---- */

uint32_t disk_pick(struct engine *e)
{
	struct disk *d = &e->disk;
	uint64_t bytes, files;

	for (int i = 0; d->quota && i < TRIES; i++) {
		uint32_t project = PROJECT_FIRST + 1 + d->next++ % (PROJECTS - 1);

		if (disk_usage(e->workspaces_fd, project, &bytes, &files) == 0 && !files &&
		    disk_usage(e->sessions_fd, project, &bytes, &files) == 0 && !files)
			return project;
	}
	return 0;
}

/* A project for PARENT that no other engine on this file system has just taken as well. */
static int claim(struct engine *e, int parent, uint32_t *ret, struct garret_error *err)
{
	for (int i = 0; i < TRIES; i++) {
		uint32_t project = disk_pick(e);
		uint64_t bytes, files;
		int rc = project ? disk_set_project(parent, project, err) : -1;

		if (rc < 0)
			return project ? rc
				       : garret_fail(err, GARRET_EXHAUSTED,
						     "no project is free for a workspace");
		if (disk_usage(parent, project, &bytes, &files) == 0 && files == 1) {
			*ret = project;
			return 0;
		}
	}
	return garret_fail(err, GARRET_CONFLICT, "others take the projects of workspaces");
}

bool disk_dir_empty(int dir)
{
	int fd = reopen(dir);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	unsigned n = 0;

	while (d && n <= 2 && readdir(d))
		n++;
	return d && n <= 2;
}

int disk_bound(struct engine *e, int parent, int dir, uint64_t bytes, uint32_t *ret_convert,
	       struct garret_error *err)
{
	uint32_t project = disk_project(parent);
	int rc = 0;

	*ret_convert = 0;
	if (!e->disk.quota)
		return 0; /* an explicit limit was refused before */
	/* One of before that has no limit is left as it is. */
	if (!project && !bytes && !disk_dir_empty(dir))
		return 0;
	if (!project)
		rc = claim(e, parent, &project, err);
	if (rc == 0)
		rc = disk_limit(e->workspaces_fd, project, bytes, err);
	if (rc < 0 || disk_project(dir) == project)
		return rc;
	if (disk_dir_empty(dir))
		return disk_set_project(dir, project, err);
	*ret_convert = project;
	return 0;
}

/* ---- what works here ---- */

/* As a user whom quotas bind: the kernel lets root pass. */
static int probe_write(int dir, uint32_t owner, struct garret_error *err)
{
	static const char block[PROBE_BYTES];
	autoclose int fd = -EBADF;

	if (fchownat(dir, "", owner, owner, AT_EMPTY_PATH) < 0 ||
	    syscall(SYS_setresgid, owner, owner, owner) < 0 ||
	    syscall(SYS_setresuid, owner, owner, owner) < 0)
		return garret_fail_errno(err, "become a user");
	fd = openat(dir, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return garret_fail_errno(err, "write below a quota");
	for (int i = 0; i < 4; i++)
		if (write_full(fd, block, sizeof(block)) < 0)
			return errno == EDQUOT || errno == ENOSPC
				       ? 0
				       : garret_fail_errno(err, "write below a quota");
	return garret_fail(err, GARRET_UNSUPPORTED, "the project quota is counted, not enforced");
}

static int probe(int root, uint32_t project, uint32_t owner, struct garret_error *err)
{
	autoclose int dir = -EBADF, fd = -EBADF;
	struct fsxattr a = { 0 };
	int rc;

	/* Out of that project its limit would not bind what sessions write. */
	if (ioctl(root, FS_IOC_FSGETXATTR, &a) == 0 && a.fsx_projid && !is_ours(a.fsx_projid))
		return garret_fail(err, GARRET_UNSUPPORTED, "it belongs to project %u",
				   a.fsx_projid);
	(void)remove_tree_at(root, PROBE); /* of an engine that was killed */
	dir = open_dir_make(root, PROBE, 0700, err);
	if (dir < 0)
		return dir;
	fd = reopen(dir);
	if (fd < 0 || set_project(fd, project, true) < 0)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "its file system has no project quota (%s)", strerror(errno));
	rc = disk_limit(root, project, PROBE_BYTES, NULL);
	if (rc < 0)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "project quotas are not switched on there (%s)",
				   strerror(errno));
	return probe_write(fd, owner, err);
}

/* In a child, because it doesn't stay root. */
static void probe_in_child(const struct engine *e, int root, uint32_t project,
			   struct garret_error *err)
{
	const uint32_t owner = e->conf.id_start + SLOT_IDS - 1;
	struct garret_error in_child = { 0 };
	int pair[2] = { -EBADF, -EBADF };
	pid_t pid;

	if (pipe2(pair, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
		(void)garret_fail_errno(err, "look for disk quotas");
		fd_close(pair[0]);
		fd_close(pair[1]);
		return;
	}
	if (pid == 0) {
		(void)probe(root, project, owner, &in_child);
		_exit(write_full(pair[1], &in_child, sizeof(in_child)) < 0);
	}
	fd_close(pair[1]);
	if (read_full(pair[0], err, sizeof(*err)) != sizeof(*err))
		(void)garret_fail(err, GARRET_INTERNAL, "what looks for disk quotas has ended");
	fd_close(pair[0]);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	(void)remove_tree_at(root, PROBE);
}

static void look_for_images(struct disk *d)
{
	struct garret_error err = { 0 };
	size_t n = strlen(d->missing);

	d->images = image_possible(&err) == 0;
	if (!d->images)
		(void)snprintf(d->missing + n, sizeof(d->missing) - n, "; no images either: %.80s",
			       err.msg);
}

void disk_open(struct engine *e)
{
	const struct {
		const char *name;
		int fd;
	} places[] = { { "the root of workspaces", e->workspaces_fd },
		       { "the state directory", e->sessions_fd } };

	e->disk = (struct disk){ .quota = true, .next = (uint32_t)wall_us() };
	for (size_t i = 0; i < ARRAY_SIZE(places) && e->disk.quota; i++) {
		struct garret_error err = { 0 };
		/* Another engine may be looking at the same time. */
		uint32_t project = PROJECT_FIRST + 1 + e->disk.next++ % (PROJECTS - 1);

		probe_in_child(e, places[i].fd, project, &err);
		if (err.code == GARRET_OK)
			continue;
		e->disk.quota = false;
		(void)snprintf(e->disk.missing, sizeof(e->disk.missing), "%s: %.100s",
			       places[i].name, err.msg);
	}
	if (!e->disk.quota)
		look_for_images(&e->disk);
}
