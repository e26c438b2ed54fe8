/*
 * One document in one file.  Writers exclude each other by a lock beside it; each writes a new
 * file and puts it in the old one's place, so that a reader always has a whole one.  The
 * version is what tells two files of that name apart: as an inode is used again and the
 * kernel's clock moves in steps, each file is dated later than the one it replaces.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "provider/state.h"

#define DOCUMENT_MAX (1u << 30)

struct file_store {
	int dir_fd;
	char *name, *temp, *lock;
};

static uint64_t version_of(const struct stat *st)
{
	uint64_t v = (uint64_t)st->st_ino * 0x9E3779B97F4A7C15u;

	v = (v ^ (uint64_t)st->st_size) * 0x9E3779B97F4A7C15u;
	v = (v ^ (uint64_t)st->st_mtim.tv_sec) * 0x9E3779B97F4A7C15u;
	v = (v ^ (uint64_t)st->st_mtim.tv_nsec) * 0x9E3779B97F4A7C15u;
	return v ? v : 1;
}

static int code(void)
{
	return -(int)garret_code_of_errno(errno);
}

static int file_load(void *ctx, const char *id, char **ret, size_t *ret_n, uint64_t *ret_version)
{
	struct file_store *s = ctx;
	autoclose int fd = openat(s->dir_fd, s->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	autofree char *text = NULL;
	struct stat st;
	ssize_t n;

	(void)id;
	if (fd < 0 || fstat(fd, &st) < 0)
		return code();
	if (!S_ISREG(st.st_mode))
		return -GARRET_NOT_REGULAR;
	if (st.st_size > DOCUMENT_MAX)
		return -GARRET_TOO_LARGE;
	text = try_alloc((size_t)st.st_size + 1);
	n = text ? read_full(fd, text, (size_t)st.st_size) : -1;
	if (n < 0)
		return code();
	*ret = take_ptr(&text);
	*ret_n = (size_t)n;
	*ret_version = version_of(&st);
	return 0;
}

/* The lock that is there now: who removes a document takes its lock's name away. */
static int take_lock(struct file_store *s)
{
	for (;;) {
		autoclose int fd =
			openat(s->dir_fd, s->lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
		struct stat ours, there;

		if (fd < 0 || flock(fd, LOCK_EX) < 0 || fstat(fd, &ours) < 0)
			return -1;
		if (fstatat(s->dir_fd, s->lock, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
		    ours.st_ino == there.st_ino)
			return take_fd(&fd);
	}
}

/* Behind the time of the old file (0: there is none). */
static int date_later(int fd, struct timespec old, struct stat *st)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, old };

	if (fstat(fd, st) < 0)
		return -1;
	if (st->st_mtim.tv_sec > old.tv_sec ||
	    (st->st_mtim.tv_sec == old.tv_sec && st->st_mtim.tv_nsec > old.tv_nsec))
		return 0;
	if (++times[1].tv_nsec == 1000000000) {
		times[1].tv_sec++;
		times[1].tv_nsec = 0;
	}
	return futimens(fd, times) < 0 || fstat(fd, st) < 0 ? -1 : 0;
}

/* *st: of the old file, and then of the new one. */
static int write_new(struct file_store *s, const char *text, size_t n, mode_t mode, struct stat *st)
{
	autoclose int fd = openat(s->dir_fd, s->temp,
				  O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0 || fchmod(fd, mode) < 0 || write_full(fd, text, n) < 0 ||
	    date_later(fd, st->st_mtim, st) < 0 || fsync(fd) < 0)
		return code();
	return 0;
}

static int file_save(void *ctx, const char *id, const char *text, size_t n, uint64_t version,
		     uint64_t *ret_version)
{
	struct file_store *s = ctx;
	autoclose int lock = take_lock(s);
	struct stat st = { 0 };
	bool there;
	int rc;

	(void)id;
	if (lock < 0)
		return code();
	there = fstatat(s->dir_fd, s->name, &st, 0) == 0;
	if (!there && errno != ENOENT)
		return code();
	if ((there ? version_of(&st) : 0) != version)
		return -GARRET_CHANGED;
	rc = write_new(s, text, n, there ? st.st_mode & 0777 : 0600, &st);
	if (rc == 0 &&
	    (renameat(s->dir_fd, s->temp, s->dir_fd, s->name) < 0 || fsync(s->dir_fd) < 0))
		rc = code();
	if (rc < 0)
		(void)unlinkat(s->dir_fd, s->temp, 0);
	else
		*ret_version = version_of(&st);
	return rc;
}

static int file_remove(void *ctx, const char *id)
{
	struct file_store *s = ctx;
	autoclose int lock = take_lock(s);
	int rc;

	(void)id;
	if (lock < 0)
		return code();
	rc = unlinkat(s->dir_fd, s->name, 0) < 0 ? code() : 0;
	(void)unlinkat(s->dir_fd, s->lock, 0);
	return rc;
}

static int file_version(void *ctx, const char *id, uint64_t *ret)
{
	const struct file_store *s = ctx;
	struct stat st;

	(void)id;
	if (fstatat(s->dir_fd, s->name, &st, 0) < 0)
		return code();
	*ret = version_of(&st);
	return 0;
}

/* What a link leads to: a new file in its place would part those who know both names. */
static char *through_link(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) ? realpath(path, NULL) : xstrdup(path);
}

int state_file_store(const char *given, struct state_store *ret, struct garret_error *err)
{
	autofree char *path = through_link(given);
	const char *slash = path ? strrchr(path, '/') : NULL;
	autofree char *dir = slash && slash > path ? xstrndup(path, (size_t)(slash - path))
						   : xstrdup(slash ? "/" : ".");
	struct file_store *s;
	int fd;

	if (!path)
		return garret_fail_errno(err, "file: follow the link");
	if (!slash || !slash[1])
		return garret_fail(err, GARRET_INVALID, "file: an absolute path of a file");
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "file: open its directory");
	s = xnew(struct file_store);
	s->dir_fd = fd;
	s->name = xstrdup(slash + 1);
	s->temp = xasprintf(".%s.new", s->name);
	s->lock = xasprintf(".%s.lock", s->name);
	*ret = (struct state_store){ .ctx = s,
				     .load = file_load,
				     .save = file_save,
				     .remove = file_remove,
				     .version = file_version };
	return 0;
}

void state_file_store_free(struct state_store *st)
{
	struct file_store *s = st->ctx;

	if (!s)
		return;
	fd_close(s->dir_fd);
	free(s->name);
	free(s->temp);
	free(s->lock);
	free(s);
	st->ctx = NULL;
}
