/*
 * FILE_TAR_IN: unpack an archive below a directory, which FILE_PARENTS makes when
 * it isn't there.
 *
 * An archive is hostile.  Nothing is made through a symbolic link: every path is
 * opened below the destination with RESOLVE_NO_SYMLINKS, so a link of the
 * archive, or one that was there before, ends an entry that would go through it.
 * Links themselves are made as they are.  Absolute names, `..`, devices and hard
 * links to what isn't below the destination are refused.  Set-id bits, owners
 * and attributes other than user.* are not taken from an archive.
 *
 * A file takes its place whole, by rename; what was there as a file or a link is
 * replaced, a directory is never replaced by anything else.  Modes and times of
 * directories are set at the end.  The destination keeps its own.
 *
 * At the first entry that can't be unpacked the work ends; end.path names it and
 * what was unpacked before it stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "init/paths.h"
#include "init/tar.h"

#define ENTRIES_MAX 1000000
#define DIRS_BYTES (64u * 1024 * 1024) /* of what is kept of directories until the end */

/* A directory whose mode and times are set at the end; its path lies behind it. */
struct dir_attr {
	size_t path; /* in tar_in.dir_paths */
	uint32_t mode, mtime_ns;
	int64_t mtime;
	size_t number; /* the last entry of a path counts */
};

struct tar_in {
	struct worker *w;
	struct tar_reader reader;
	int root;
	char temp[32];
	uint64_t bytes, entries;

	/* The directory that the last entry lay in: most entries follow one of the same. */
	int parent;
	char parent_path[FILE_NAME_MAX + 1];

	struct strbuf dir_paths;
	struct dir_attr *dirs;
	size_t n_dirs, cap_dirs;

	/* The entry under way. */
	struct tar_entry e;
	char path[FILE_NAME_MAX + 1];
	const char *name; /* its last component */
	int dir;          /* where it is made: borrowed from parent */
};

static size_t more(void *ctx, const void **ret)
{
	struct worker *w = ctx;
	uint64_t before = now_ms();
	size_t n = worker_body(w, ret);

	/* The time limit is one of work, not of waiting for who sends. */
	w->due_ms += now_ms() - before;
	return n;
}

/* ---- paths below the destination ---- */

/* Through no link of any kind.  -1 with errno. */
static int open_below(int root, const char *path, int flags)
{
	struct open_how how = { .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
				.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
					   RESOLVE_NO_MAGICLINKS };

	for (int tries = 0;; tries++) {
		long fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));

		/* EAGAIN: somebody renames directories all the time. */
		if (fd < 0 && (errno == EINTR || (errno == EAGAIN && tries < 32)))
			continue;
		return (int)fd;
	}
}

static int fail_open(const char *path, struct garret_error *err)
{
	if (errno == ELOOP || errno == EXDEV)
		return garret_fail(err, GARRET_DENIED, "%s goes through a link", path);
	return garret_fail_errno(err, "%s", path);
}

/* path is cut at each slash in turn, and whole again behind it. */
static int make_dirs(struct tar_in *t, char *path, struct garret_error *err)
{
	autoclose int fd = open_below(t->root, "", O_PATH | O_DIRECTORY);

	for (char *at = path; fd >= 0 && *at;) {
		char *end = strchrnul(at, '/'), slash = *end;
		autoclose int from = fd;

		*end = '\0';
		fd = open_below(from, at, O_PATH | O_DIRECTORY);
		if (fd < 0 && errno == ENOENT && (mkdirat(from, at, 0777) == 0 || errno == EEXIST))
			fd = open_below(from, at, O_PATH | O_DIRECTORY);
		*end = slash;
		at = end + (slash == '/');
	}
	return fd < 0 ? fail_open(path, err) : take_fd(&fd);
}

/* t->dir and t->name for t->path, with missing directories made. */
static int open_parent(struct tar_in *t, struct garret_error *err)
{
	char *slash = strrchr(t->path, '/');
	int fd;

	t->name = slash ? slash + 1 : t->path;
	if (slash)
		*slash = '\0';
	if (t->parent < 0 || strcmp(t->parent_path, slash ? t->path : "") != 0) {
		t->parent = fd_close(t->parent);
		fd = open_below(t->root, slash ? t->path : "", O_PATH | O_DIRECTORY);
		if (fd < 0 && errno == ENOENT && slash)
			fd = make_dirs(t, t->path, err);
		else if (fd < 0)
			fd = fail_open(t->path, err);
		if (fd >= 0)
			memcpy(t->parent_path, slash ? t->path : "",
			       slash ? (size_t)(slash - t->path) + 1 : 1);
		t->parent = fd;
	}
	if (slash)
		*slash = '/';
	t->dir = t->parent;
	return t->parent < 0 ? t->parent : 0;
}

/* ---- attributes ---- */

static void set_xattrs(struct tar_in *t, int fd)
{
	for (size_t i = 0; i < t->e.n_xattrs; i++) {
		const struct tar_xattr *x = &t->e.xattrs[i];

		/* The file system has none, or not so much room for them. */
		if (fsetxattr(fd, x->name, x->value, x->n, 0) < 0)
			t->w->end.skipped++;
	}
}

static void entry_times(const struct tar_entry *e, struct timespec ts[2])
{
	ts[0] = (struct timespec){ .tv_nsec = UTIME_OMIT };
	ts[1] = (struct timespec){ .tv_sec = e->mtime, .tv_nsec = e->mtime_ns };
}

/* Attributes first: a mode without the right to write would forbid them. */
static int set_attributes(struct tar_in *t, int fd, struct garret_error *err)
{
	struct timespec ts[2];

	entry_times(&t->e, ts);
	set_xattrs(t, fd);
	if (fchmod(fd, t->e.mode) < 0 || futimens(fd, ts) < 0)
		return garret_fail_errno(err, "set mode and time");
	return 0;
}

/* ---- directories ---- */

static int remember_dir(struct tar_in *t, struct garret_error *err)
{
	struct dir_attr *d;

	if (t->dir_paths.len > DIRS_BYTES)
		return garret_fail(err, GARRET_TOO_LARGE, "too many directories");
	if (t->n_dirs == t->cap_dirs) {
		t->cap_dirs = t->cap_dirs ? 2 * t->cap_dirs : 64;
		t->dirs = xrealloc(t->dirs, t->cap_dirs * sizeof(*t->dirs));
	}
	d = &t->dirs[t->n_dirs];
	*d = (struct dir_attr){ .path = t->dir_paths.len,
				.mode = t->e.mode,
				.mtime = t->e.mtime,
				.mtime_ns = t->e.mtime_ns,
				.number = t->n_dirs++ };
	strbuf_add(&t->dir_paths, t->path, strlen(t->path) + 1);
	return 0;
}

/*
 * For reading, with the right to make things in it when it is ours: what the
 * archive has for a directory that was there must find room.
 */
static int open_dir(struct tar_in *t)
{
	autoclose int fd = open_below(t->dir, t->name, O_PATH | O_DIRECTORY);
	char self[32];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	(void)snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	/* A failure shows in what comes next. */
	if ((st.st_mode & 0700) != 0700 && st.st_uid == geteuid())
		(void)chmod(self, (st.st_mode & 0777) | 0700);
	return open_below(fd, "", O_RDONLY | O_DIRECTORY);
}

static int make_dir(struct tar_in *t, struct garret_error *err)
{
	autoclose int fd = -EBADF;
	struct stat st;

	if (mkdirat(t->dir, t->name, 0700) < 0) {
		if (errno != EEXIST || fstatat(t->dir, t->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return garret_fail_errno(err, "make it");
		if (!S_ISDIR(st.st_mode) &&
		    (unlinkat(t->dir, t->name, 0) < 0 || mkdirat(t->dir, t->name, 0700) < 0))
			return garret_fail_errno(err, "make it");
	}
	fd = open_dir(t);
	if (fd < 0)
		return garret_fail_errno(err, "open it");
	set_xattrs(t, fd);
	return remember_dir(t, err);
}

/* Below before above, of the same path in the order of the archive. */
static int compare_dirs(const void *a, const void *b, void *paths)
{
	const struct dir_attr *x = a, *y = b;
	int order = strcmp((char *)paths + y->path, (char *)paths + x->path);

	return order ? order : x->number < y->number ? -1 : 1;
}

static int finish_dirs(struct tar_in *t, struct garret_error *err)
{
	if (t->n_dirs)
		qsort_r(t->dirs, t->n_dirs, sizeof(*t->dirs), compare_dirs, t->dir_paths.buf);
	for (size_t i = 0; i < t->n_dirs; i++) {
		const struct dir_attr *d = &t->dirs[i];
		const char *path = t->dir_paths.buf + d->path;
		const struct timespec ts[2] = {
			{ .tv_nsec = UTIME_OMIT },
			{ .tv_sec = d->mtime, .tv_nsec = d->mtime_ns },
		};
		autoclose int fd = -EBADF;

		/* Only the last word about a directory. */
		if (i + 1 < t->n_dirs && !strcmp(path, t->dir_paths.buf + d[1].path))
			continue;
		fd = open_below(t->root, path, O_RDONLY | O_DIRECTORY);
		if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
			continue; /* somebody else's doing */
		if (fd >= 0 && fchmod(fd, d->mode) == 0 && futimens(fd, ts) == 0)
			continue;
		if (errno != EPERM) /* it was there, and is another user's: it is kept */
			return garret_fail_errno(err, "set mode and time of %s", path);
		t->w->end.skipped++;
	}
	return 0;
}

/* ---- what is made aside and moved into place ---- */

static int put_in_place(struct tar_in *t, struct garret_error *err)
{
	int rc = 0;

	if (renameat(t->dir, t->temp, t->dir, t->name) < 0)
		rc = garret_fail_errno(err, "put it in place");
	/* After a failure, and when both were names of one file already. */
	if (rc < 0 || t->e.type == TAR_LINK)
		(void)unlinkat(t->dir, t->temp, 0);
	t->w->temp_name[0] = '\0';
	return rc;
}

/* While it isn't in place yet, it goes when we have to. */
static void begin_temp(struct tar_in *t)
{
	t->w->temp_dir = t->dir;
	memcpy(t->w->temp_name, t->temp, sizeof(t->temp));
}

static int write_data(struct tar_in *t, int fd, struct garret_error *err)
{
	uint64_t offset, at = 0;
	const void *data;
	size_t n;
	int rc;

	while ((rc = tar_data(&t->reader, &offset, &data, &n, err)) > 0) {
		if (offset != at && lseek(fd, (off_t)offset, SEEK_SET) < 0)
			return garret_fail_errno(err, "write it");
		if (write_full(fd, data, n) < 0)
			return garret_fail_errno(err, "write it");
		at = offset + n;
		rc = worker_check_time(t->w, err);
		if (rc < 0)
			return rc;
	}
	if (rc == 0 && at < t->e.size && ftruncate(fd, (off_t)t->e.size) < 0)
		return garret_fail_errno(err, "write it");
	return rc;
}

static int make_file(struct tar_in *t, struct garret_error *err)
{
	autoclose int fd = -EBADF;
	int rc;

	if (t->w->rq.max_bytes && t->e.size > t->w->rq.max_bytes - t->bytes)
		return garret_fail(err, GARRET_TOO_LARGE, "the files have more than %llu bytes",
				   (unsigned long long)t->w->rq.max_bytes);
	t->bytes += t->e.size;
	fd = openat(t->dir, t->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return garret_fail_errno(err, "make it");
	begin_temp(t);
	rc = write_data(t, fd, err);
	if (rc == 0)
		rc = set_attributes(t, fd, err);
	if (rc == 0)
		return put_in_place(t, err);
	(void)unlinkat(t->dir, t->temp, 0);
	t->w->temp_name[0] = '\0';
	return rc;
}

static int make_symlink(struct tar_in *t, struct garret_error *err)
{
	struct timespec ts[2];

	entry_times(&t->e, ts);
	if (!*t->e.target)
		return garret_fail(err, GARRET_INVALID, "a link to nothing");
	if (symlinkat(t->e.target, t->dir, t->temp) < 0)
		return garret_fail_errno(err, "make it");
	begin_temp(t);
	(void)utimensat(t->dir, t->temp, ts, AT_SYMLINK_NOFOLLOW);
	return put_in_place(t, err);
}

static int make_fifo(struct tar_in *t, struct garret_error *err)
{
	struct timespec ts[2];
	int rc = 0;

	entry_times(&t->e, ts);
	if (mkfifoat(t->dir, t->temp, 0600) < 0)
		return garret_fail_errno(err, "make it");
	begin_temp(t);
	if (fchmodat(t->dir, t->temp, t->e.mode, 0) < 0 ||
	    utimensat(t->dir, t->temp, ts, AT_SYMLINK_NOFOLLOW) < 0)
		rc = garret_fail_errno(err, "set mode and time");
	if (rc == 0)
		return put_in_place(t, err);
	(void)unlinkat(t->dir, t->temp, 0);
	t->w->temp_name[0] = '\0';
	return rc;
}

/* To a file below the destination, found as carefully as a place to write to. */
static int make_link(struct tar_in *t, struct garret_error *err)
{
	char target[FILE_NAME_MAX + 1], *slash;
	autoclose int dir = -EBADF;
	struct stat st;
	int rc = tar_path(t->e.target, target, err);

	if (rc < 0)
		return garret_wrap(rc, err, "the target");
	if (!*target)
		return garret_fail(err, GARRET_INVALID, "a hard link to a directory");
	slash = strrchr(target, '/');
	if (slash)
		*slash = '\0';
	dir = open_below(t->root, slash ? target : "", O_PATH | O_DIRECTORY);
	if (dir < 0)
		return garret_wrap(fail_open(target, err), err, "the target");
	slash = slash ? slash + 1 : target;
	if (fstatat(dir, slash, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return garret_fail_errno(err, "the target %s", t->e.target);
	if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode) && !S_ISFIFO(st.st_mode))
		return garret_fail(err, GARRET_NOT_REGULAR, "the target %s", t->e.target);
	if (linkat(dir, slash, t->dir, t->temp, 0) < 0)
		return garret_fail_errno(err, "link it to %s", t->e.target);
	begin_temp(t);
	return put_in_place(t, err);
}

/* ---- entries ---- */

static int make_entry(struct tar_in *t, struct garret_error *err)
{
	switch (t->e.type) {
	case TAR_DIRECTORY:
		return make_dir(t, err);
	case TAR_FILE:
		return make_file(t, err);
	case TAR_SYMLINK:
		return make_symlink(t, err);
	case TAR_LINK:
		return make_link(t, err);
	case TAR_FIFO:
		return make_fifo(t, err);
	default:
		return garret_fail(err, GARRET_DENIED, "a device");
	}
}

static int unpack_entry(struct tar_in *t, struct garret_error *err)
{
	const uint64_t max = t->w->rq.max_entries ? t->w->rq.max_entries : ENTRIES_MAX;
	int rc = tar_path(t->e.name, t->path, err);

	if (rc == 0)
		rc = worker_check_time(t->w, err);
	if (rc == 0 && t->entries++ == max)
		rc = garret_fail(err, GARRET_TOO_LARGE, "more than %llu entries",
				 (unsigned long long)max);
	if (rc == 0 && !*t->path && t->e.type != TAR_DIRECTORY)
		rc = garret_fail(err, GARRET_IS_DIRECTORY, "the destination itself");
	if (rc < 0 || !*t->path)
		return rc;
	rc = open_parent(t, err);
	if (rc == 0)
		rc = make_entry(t, err);
	if (rc == 0)
		t->w->end.count++;
	return rc;
}

static int unpack(struct tar_in *t, struct garret_error *err)
{
	struct strbuf *where = &t->w->end_path;
	int rc;

	while ((rc = tar_next(&t->reader, &t->e, err)) > 0) {
		rc = unpack_entry(t, err);
		if (rc < 0) {
			strbuf_reset(where);
			strbuf_addstr(where, t->e.name);
			return garret_wrap(rc, err, "%.200s", t->e.name);
		}
	}
	return rc;
}

/* ---- the operation ---- */

static int open_destination(struct worker *w, struct garret_error *err)
{
	autoclose int parent = -EBADF;
	char name[PATH_NAME];
	int fd = worker_open(w, w->rq.path, O_PATH | O_DIRECTORY);

	if (fd >= 0)
		return fd;
	if (errno != ENOENT || !(w->rq.flags & FILE_PARENTS) || w->rq.flags & FILE_RELATIVE)
		return garret_fail_errno(err, "%s", w->rq.path);
	parent = path_make_parents(w, w->rq.path, name, err);
	if (parent < 0)
		return parent;
	if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "%s", w->rq.path);
	fd = open_below(parent, name, O_PATH | O_DIRECTORY);
	return fd < 0 ? garret_fail_errno(err, "%s", w->rq.path) : fd;
}

/* A name that no archive can know. */
static int choose_temp(struct tar_in *t, struct garret_error *err)
{
	return path_temp_name(t->temp) < 0 ? garret_fail_errno(err, "random bytes") : 0;
}

int op_tar_in(struct worker *w, struct garret_error *err)
{
	static struct tar_in t; /* paths make it large */
	int rc;

	t = (struct tar_in){ .w = w, .parent = -EBADF, .root = open_destination(w, err) };
	if (t.root < 0)
		return t.root;
	strbuf_init(&t.dir_paths);
	tar_reader_init(&t.reader, more, w);
	rc = choose_temp(&t, err);
	if (rc == 0)
		rc = unpack(&t, err);
	if (rc == 0)
		rc = finish_dirs(&t, err);
	else
		(void)finish_dirs(&t, NULL); /* what is there is whole */
	tar_reader_release(&t.reader);
	strbuf_release(&t.dir_paths);
	free(t.dirs);
	fd_close(t.parent);
	fd_close(t.root);
	return rc;
}
