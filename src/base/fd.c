#include "base/fd.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/mem.h"

/* When something keeps filling the tree: give up rather than spin. */
#define REMOVE_MOVES_MAX (100u * 1000 * 1000)

ssize_t read_full(int fd, void *buf, size_t n)
{
	size_t got = 0;

	while (got < n) {
		ssize_t r = read(fd, (char *)buf + got, n - got);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		if (!r)
			break;
		got += (size_t)r;
	}
	return (ssize_t)got;
}

int write_full(int fd, const void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		ssize_t r = write(fd, (const char *)buf + done, n - done);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -1;
		done += (size_t)r;
	}
	return 0;
}

ssize_t read_file_at(int dirfd, const char *path, char *buf, size_t cap)
{
	autoclose int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -1;
	n = read_full(fd, buf, cap - 1);
	if (n < 0)
		return -1;
	buf[n] = '\0';
	return n;
}

int write_file_at(int dirfd, const char *path, const char *text)
{
	autoclose int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
	size_t n = strlen(text);
	ssize_t r;

	if (fd < 0)
		return -1;
	do
		r = write(fd, text, n);
	while (r < 0 && errno == EINTR);
	if (r >= 0 && (size_t)r != n) {
		errno = EIO;
		return -1;
	}
	return r < 0 ? -1 : 0;
}

int write_file_atf(int dirfd, const char *path, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(text)) {
		errno = EMSGSIZE;
		return -1;
	}
	return write_file_at(dirfd, path, text);
}

char *program_beside(const char *name)
{
	char self[4096], *slash;
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		return xstrdup(name);
	self[n] = '\0';
	slash = strrchr(self, '/');
	if (!slash)
		return xstrdup(name);
	*slash = '\0';
	return xasprintf("%s/%s", self, name);
}

static int set_flag(int fd, int get, int set, int flag, bool on)
{
	int flags = fcntl(fd, get);

	if (flags < 0)
		return -1;
	return fcntl(fd, set, on ? flags | flag : flags & ~flag);
}

int fd_set_nonblock(int fd, bool on)
{
	return set_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

int fd_set_cloexec(int fd, bool on)
{
	return set_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

/*
 * For one name the same without openat2, which a container's filter or an emulator may not
 * know: no link is followed, and the file system is looked at behind it.
 */
static int open_one_beneath(int dirfd, const char *name, int flags, mode_t mode)
{
	autoclose int fd = openat(dirfd, name, flags | O_NOFOLLOW | O_CLOEXEC, mode);
	struct stat st, dir;

	if (fd < 0)
		return -1;
	if (fstat(fd, &st) < 0 || fstat(dirfd, &dir) < 0)
		return -1;
	if (st.st_dev != dir.st_dev || S_ISLNK(st.st_mode)) {
		errno = S_ISLNK(st.st_mode) ? ELOOP : EXDEV;
		return -1;
	}
	return take_fd(&fd);
}

int open_beneath(int dirfd, const char *path, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};

	for (int tries = 0;; tries++) {
		long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

		/* EAGAIN: a rename raced with the walk; bounded, so nobody can keep us here. */
		if (fd < 0 && (errno == EINTR || (errno == EAGAIN && tries < 32)))
			continue;
		if (fd < 0 && errno == ENOSYS && !strchr(path, '/') && strcmp(path, "..") != 0)
			return open_one_beneath(dirfd, path, flags, mode);
		return (int)fd;
	}
}

int open_dir_make(int dirfd, const char *name, mode_t mode, struct garret_error *err)
{
	int fd;

	if (mkdirat(dirfd, name, mode) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make %s", name);
	fd = open_beneath(dirfd, name, O_PATH | O_DIRECTORY, 0);
	if (fd < 0)
		return garret_fail_errno(err, "open %s", name);
	return fd;
}

int fd_count(void)
{
	autodir DIR *d = opendir("/proc/self/fd");
	int n = 0;

	if (!d)
		return -1;
	while (readdir(d))
		n++;
	return n - 3; /* ".", "..", and the directory's own */
}

/* A directory can't be emptied by name when its owner took our right to read it. */
static int open_to_empty(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == EACCES && fchmodat(dirfd, name, 0700, 0) == 0)
		fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd;
}

static bool is_dot(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static bool unlink_any(int dirfd, const char *name)
{
	return unlinkat(dirfd, name, 0) == 0 || unlinkat(dirfd, name, AT_REMOVEDIR) == 0 ||
	       errno == ENOENT;
}

struct removal {
	int top;        /* the tree's root */
	unsigned moved; /* names given so far */
	bool again;     /* something was moved up: one more round */
	int first_error;
};

static void note_error(struct removal *r)
{
	if (!r->first_error)
		r->first_error = errno;
}

/* Move what can't be unlinked out of directory NAME of the top, next to it. */
static void lift_children(struct removal *r, const char *name)
{
	int fd = open_to_empty(r->top, name);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	char to[64];

	if (!d) {
		note_error(r);
		return;
	}
	while ((e = readdir(d))) {
		if (is_dot(e->d_name) || unlink_any(fd, e->d_name))
			continue;
		do
			(void)snprintf(to, sizeof(to), ".garret-rm-%u", r->moved++);
		while (renameat(fd, e->d_name, r->top, to) < 0 && errno == ENOTEMPTY);
		r->again = true;
	}
	if (unlinkat(r->top, name, AT_REMOVEDIR) < 0 && !r->again)
		note_error(r);
}

static bool remove_round(struct removal *r)
{
	int fd = openat(r->top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	r->again = false;
	if (!d)
		return false;
	while ((e = readdir(d)))
		if (!is_dot(e->d_name) && !unlink_any(r->top, e->d_name))
			lift_children(r, e->d_name);
	return r->again && r->moved < REMOVE_MOVES_MAX;
}

/*
 * Depth is bounded by nothing a session chooses: a subdirectory that isn't
 * empty has its children moved up next to it and is emptied in the next round,
 * so two open descriptors and no stack frame are needed however deep the tree is.
 */
int remove_tree_at(int dirfd, const char *name)
{
	struct removal r = { 0 };
	autoclose int top = -EBADF;

	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -1;
	top = open_to_empty(dirfd, name);
	if (top < 0)
		return -1;
	r.top = top;
	while (remove_round(&r))
		;
	if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0)
		note_error(&r);
	errno = r.first_error;
	return r.first_error ? -1 : 0;
}
