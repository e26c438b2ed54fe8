#include "init/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

#define LINKS_MAX 40
#define RACES_MAX 32 /* EAGAIN of openat2: somebody renames directories all the time */

/*
 * What /proc has of this process: its memory's layout is that of init, and of
 * the engine's processes that init was forked from.
 */
bool path_is_own(int fd)
{
	char link[32], to[64], own[32];
	struct statfs fs;
	ssize_t n;
	int length;

	if (fstatfs(fd, &fs) < 0 || fs.f_type != PROC_SUPER_MAGIC)
		return false;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = snprintf(own, sizeof(own), "/proc/%d", (int)getpid());
	n = readlink(link, to, sizeof(to) - 1);
	to[n > 0 ? n : 0] = '\0';
	return !strncmp(to, own, (size_t)length) && (!to[length] || to[length] == '/');
}

static int open_how(int dirfd, const char *path, int flags, uint64_t resolve)
{
	/* A mode is needed where something is made; set-id bits never get in here. */
	struct open_how how = { .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
				.mode = flags & O_CREAT ? 0666 : 0,
				.resolve = resolve };

	if (!(flags & O_PATH))
		how.flags |= O_NONBLOCK | O_NOCTTY;
	for (int tries = 0;; tries++) {
		long fd = syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

		if (fd < 0 && (errno == EINTR || (errno == EAGAIN && tries < RACES_MAX)))
			continue;
		if (fd < 0 && errno == EAGAIN)
			errno = EBUSY; /* a conflict: nothing has run out */
		if (fd >= 0 && path_is_own((int)fd)) {
			fd_close((int)fd);
			errno = EACCES;
			return -1;
		}
		return (int)fd;
	}
}

/* ---- confined to the work directory ---- */

/* What is behind the work directory in a path without links; NULL: it is outside. */
static const char *inside(const struct worker *w, const char *real)
{
	const char *dir = w->p->work_dir;
	const size_t n = dir[1] ? strlen(dir) : 0;

	if (strncmp(real, dir, n) != 0 || (real[n] && real[n] != '/'))
		return NULL;
	real += n;
	while (*real == '/')
		real++;
	return *real ? real : ".";
}

static int outside(struct worker *w)
{
	w->outside = true;
	errno = EXDEV;
	return -1;
}

/*
 * Where the links lead is looked up first, and then opened from the work directory through no
 * link at all: what somebody turns into a link in between is not followed, and looked up anew.
 */
static int open_confined(struct worker *w, const char *path, int flags)
{
	for (int tries = 0; tries < RACES_MAX; tries++) {
		autobuf struct strbuf real = STRBUF_INIT;
		const char *rest;
		int fd;

		if (path_real(w, path, &real, NULL) < 0) {
			errno = EBUSY;
			return -1;
		}
		rest = inside(w, real.buf);
		if (!rest)
			return outside(w);
		fd = open_how(w->root_fd, rest, flags,
			      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
		if (fd >= 0 || (errno != ELOOP && errno != EXDEV))
			return fd;
	}
	return -1; /* ELOOP: a loop, or somebody who changes links all the time */
}

int worker_open(struct worker *w, const char *path, int flags)
{
	if (w->rq.flags & FILE_CONFINED)
		return open_confined(w, path, flags);
	if (!(w->rq.flags & FILE_RELATIVE))
		return open_how(AT_FDCWD, path, flags, RESOLVE_NO_MAGICLINKS);
	return open_how(w->root_fd, *path ? path : ".", flags,
			RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}

/* Length of path without slashes at its end; "/" has 1. */
static size_t trimmed(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	return n;
}

/* Where the last component of the first n bytes begins. */
static size_t last_component(const char *path, size_t n)
{
	while (n && path[n - 1] != '/')
		n--;
	return n;
}

static int take_name(const char *path, size_t from, size_t to, char name[PATH_NAME],
		     struct garret_error *err)
{
	if (to - from >= PATH_NAME) {
		errno = ENAMETOOLONG;
		return garret_fail_errno(err, "a name of %zu bytes", to - from);
	}
	if (to == from) {
		memcpy(name, ".", 2);
		return 0;
	}
	memcpy(name, path + from, to - from);
	name[to - from] = '\0';
	return 0;
}

static bool is_work_dir(struct worker *w, const char *path)
{
	autobuf struct strbuf real = STRBUF_INIT;

	return path_real(w, path, &real, NULL) == 0 && !strcmp(real.buf, w->p->work_dir);
}

int worker_open_parent(struct worker *w, const char *path, char name[PATH_NAME],
		       struct garret_error *err)
{
	size_t n = trimmed(path), from = last_component(path, n);
	autofree char *parent = xstrndup(path, from);
	int rc = take_name(path, from, n, name, err);
	int fd;

	if (rc < 0)
		return rc;
	/* The work directory itself has no parent that could be held. */
	if (w->rq.flags & FILE_CONFINED && is_work_dir(w, path)) {
		memcpy(name, ".", 2);
		fd = worker_open(w, path, O_PATH | O_DIRECTORY);
	} else {
		fd = worker_open(w, parent, O_PATH | O_DIRECTORY);
	}
	return fd < 0 ? garret_fail_errno(err, "%s", path) : fd;
}

/* One step down, made when it is missing.  fd is closed. */
static int step_down(int fd, const char *name, uint64_t resolve)
{
	autoclose int from = fd;
	int to = open_how(from, name, O_PATH | O_DIRECTORY, resolve);

	if (to >= 0 || errno != ENOENT)
		return to;
	if (mkdirat(from, name, 0777) < 0 && errno != EEXIST)
		return -1;
	return open_how(from, name, O_PATH | O_DIRECTORY, resolve);
}

/* Make what is missing of the first `end` bytes of path, from fd (closed) on. */
static int make_steps(int fd, const char *path, size_t end, uint64_t resolve,
		      struct garret_error *err)
{
	char step[PATH_NAME];
	size_t at = 0;

	while (fd >= 0 && at < end) {
		size_t to;
		int rc;

		while (at < end && path[at] == '/')
			at++;
		for (to = at; to < end && path[to] != '/'; to++)
			;
		if (to == at)
			break;
		rc = take_name(path, at, to, step, err);
		if (rc < 0) {
			fd_close(fd);
			return rc;
		}
		fd = step_down(fd, step, resolve);
		at = to;
	}
	return fd < 0 ? garret_fail_errno(err, "%s", path) : fd;
}

static int make_confined_parents(struct worker *w, const char *parent, struct garret_error *err)
{
	autobuf struct strbuf real = STRBUF_INIT;
	int rc = path_real(w, parent, &real, err), fd;
	const char *rest;

	if (rc < 0)
		return rc;
	rest = inside(w, real.buf);
	if (!rest) {
		(void)outside(w);
		return garret_fail_errno(err, "%s", parent);
	}
	fd = fcntl(w->root_fd, F_DUPFD_CLOEXEC, 3);
	return make_steps(fd, rest, strcmp(rest, ".") != 0 ? strlen(rest) : 0,
			  RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, err);
}

int path_make_parents(struct worker *w, const char *path, char name[PATH_NAME],
		      struct garret_error *err)
{
	size_t n = trimmed(path), end = last_component(path, n);
	int rc = take_name(path, end, n, name, err);
	int fd;

	if (rc < 0)
		return rc;
	if (w->rq.flags & FILE_CONFINED) {
		autofree char *parent = xstrndup(path, end);

		return make_confined_parents(w, parent, err);
	}
	fd = worker_open(w, "/", O_PATH | O_DIRECTORY);
	return fd < 0 ? garret_fail_errno(err, "%s", path)
		      : make_steps(fd, path, end, RESOLVE_NO_MAGICLINKS, err);
}

int path_place(struct worker *w, const char *path, char name[PATH_NAME], struct garret_error *err)
{
	return w->rq.flags & FILE_PARENTS ? path_make_parents(w, path, name, err)
					  : worker_open_parent(w, path, name, err);
}

int path_temp_name(char out[PATH_TEMP])
{
	uint8_t random[8];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return -1;
	hex_encode(random, sizeof(random), stpcpy(out, ".garret-"));
	return 0;
}

void worker_fill_info(struct file_info *info, const struct stat *st)
{
	const uint64_t second = 1000000000;

	info->type = S_ISREG(st->st_mode)   ? FILE_REGULAR
		     : S_ISDIR(st->st_mode) ? FILE_DIRECTORY
					    : FILE_OTHER;
	info->mode = st->st_mode & 0777;
	info->uid = st->st_uid;
	info->gid = st->st_gid;
	info->tag = (struct file_tag){
		.inode = st->st_ino,
		.size = (uint64_t)st->st_size,
		.mtime_ns = (uint64_t)st->st_mtim.tv_sec * second + (uint64_t)st->st_mtim.tv_nsec,
		.ctime_ns = (uint64_t)st->st_ctim.tv_sec * second + (uint64_t)st->st_ctim.tv_nsec,
	};
}

int worker_look(int dirfd, const char *name, bool nofollow, struct file_info *info, char *target)
{
	struct stat st, to;
	ssize_t n;

	if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	info->link = S_ISLNK(st.st_mode);
	if (target)
		*target = '\0';
	if (info->link && target) {
		n = readlinkat(dirfd, name, target, PATH_MAX - 1);
		target[n > 0 ? n : 0] = '\0';
		info->target = target;
	}
	if (info->link && !nofollow && fstatat(dirfd, name, &to, 0) < 0) {
		worker_fill_info(info, &st);
		info->type = FILE_DANGLING;
		return 0;
	}
	worker_fill_info(info, info->link && !nofollow ? &to : &st);
	return 0;
}

int worker_look_below(struct worker *w, int dirfd, const char *name, const char *below,
		      bool nofollow, struct file_info *info, char *target)
{
	autofree char *path = NULL;
	autoclose int fd = -EBADF;
	struct stat st;

	if (nofollow || !(w->rq.flags & FILE_CONFINED))
		return worker_look(dirfd, name, nofollow, info, target);
	if (worker_look(dirfd, name, true, info, target) < 0)
		return -1;
	if (!info->link)
		return 0;
	/* Nothing is said of what is outside: that link leads nowhere. */
	path = xasprintf("%s/%s", w->rq.path, below);
	fd = open_confined(w, path, O_PATH);
	w->outside = false;
	if (fd < 0 || fstat(fd, &st) < 0)
		info->type = FILE_DANGLING;
	else
		worker_fill_info(info, &st);
	return 0;
}

/* ---- realpath ---- */

static void drop_last(struct strbuf *done, size_t base)
{
	while (done->len > base && done->buf[done->len - 1] != '/')
		done->len--;
	if (done->len > base)
		done->len--;
	done->buf[done->len] = '\0';
}

/* The link that `done` names, or -1 when it is none that can be read. */
static ssize_t read_link(const struct strbuf *done, size_t base, char to[PATH_MAX])
{
	ssize_t n = readlink(done->buf + base, to, PATH_MAX - 1);

	if (n >= 0)
		to[n] = '\0';
	return n;
}

int path_real(struct worker *w, const char *path, struct strbuf *out, struct garret_error *err)
{
	autobuf struct strbuf rest = STRBUF_INIT, next = STRBUF_INIT;
	const size_t base = out->len;
	char to[PATH_MAX];
	unsigned links = 0;
	size_t at = 0;
	int rc;

	strbuf_addstr(&rest, path);
	for (;;) {
		size_t n, before = out->len;

		while (rest.buf[at] == '/')
			at++;
		n = strcspn(rest.buf + at, "/");
		if (!n)
			break;
		rc = worker_check_time(w, err);
		if (rc < 0)
			return rc;
		if (n == 1 && rest.buf[at] == '.') {
			at++;
			continue;
		}
		if (n == 2 && !memcmp(rest.buf + at, "..", 2)) {
			drop_last(out, base);
			at += 2;
			continue;
		}
		strbuf_addch(out, '/');
		strbuf_add(out, rest.buf + at, n);
		at += n;
		if (links >= LINKS_MAX || read_link(out, base, to) < 0)
			continue;
		links++;
		/* The target comes in front of what is left. */
		out->len = *to == '/' ? base : before;
		out->buf[out->len] = '\0';
		strbuf_reset(&next);
		strbuf_addf(&next, "%s/%s", to, rest.buf + at);
		if (next.len > 8 * FILE_PATH_MAX) {
			errno = ENAMETOOLONG;
			return garret_fail_errno(err, "%s", path);
		}
		strbuf_reset(&rest);
		strbuf_add(&rest, next.buf, next.len);
		at = 0;
	}
	if (out->len == base)
		strbuf_addch(out, '/');
	return 0;
}

/* ---- trees ---- */

void tree_init(struct tree *t, int root)
{
	*t = (struct tree){ .root = root };
	strbuf_init(&t->queue);
	strbuf_add(&t->queue, "", 1);
}

void tree_release(struct tree *t)
{
	strbuf_release(&t->queue);
}

const char *tree_next(struct tree *t)
{
	const char *dir;

	/* What was read isn't needed any more, except the one just given out. */
	if (t->at > 1 << 16) {
		strbuf_remove_front(&t->queue, t->at);
		t->level_end -= t->at;
		t->at = 0;
	}
	if (t->at == t->queue.len)
		return NULL;
	if (t->at >= t->level_end) {
		t->depth++;
		t->level_end = t->queue.len;
	}
	dir = t->queue.buf + t->at;
	t->at += strlen(dir) + 1;
	return dir;
}

bool tree_join(char out[FILE_NAME_MAX + 1], const char *dir, const char *name)
{
	size_t d = strlen(dir), n = strlen(name);

	if (d + n + 1 > FILE_NAME_MAX)
		return false;
	(void)stpcpy(stpcpy(stpcpy(out, dir), d ? "/" : ""), name);
	return true;
}

void tree_add(struct tree *t, const char *dir, const char *name)
{
	char path[FILE_NAME_MAX + 1]; /* dir lies in what may move */

	if (tree_join(path, dir, name))
		strbuf_add(&t->queue, path, strlen(path) + 1);
}

int tree_open(const struct tree *t, const char *dir)
{
	return open_how(t->root, *dir ? dir : ".", O_RDONLY | O_DIRECTORY,
			RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

/* ---- names ---- */

static void add_name(struct names *ns, const struct dirent *e)
{
	if (ns->n == ns->cap) {
		ns->cap = ns->cap ? 2 * ns->cap : 64;
		ns->list = xrealloc(ns->list, ns->cap * sizeof(*ns->list));
	}
	ns->list[ns->n++] = (struct name){ ns->text.len, e->d_type };
	strbuf_add(&ns->text, e->d_name, strlen(e->d_name) + 1);
}

int names_read(struct names *ns, int fd, size_t max, struct garret_error *err)
{
	autodir DIR *d = fdopendir(fd);
	struct dirent *e;

	*ns = (struct names){ .n = 0 };
	strbuf_init(&ns->text);
	if (!d) {
		fd_close(fd);
		return garret_fail_errno(err, "read a directory");
	}
	for (errno = 0; (e = readdir(d)); errno = 0) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (ns->n == max) {
			ns->more = true;
			return 0;
		}
		add_name(ns, e);
		if (e->d_type == DT_UNKNOWN) {
			struct stat st;

			if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
				ns->list[ns->n - 1].type = (unsigned char)IFTODT(st.st_mode);
		}
	}
	return errno ? garret_fail_errno(err, "read a directory") : 0;
}

struct sorting {
	const char *text;
	bool directories_first;
};

static int compare(const void *a, const void *b, void *ctx)
{
	const struct name *x = a, *y = b;
	const struct sorting *s = ctx;

	if (s->directories_first && (x->type == DT_DIR) != (y->type == DT_DIR))
		return x->type == DT_DIR ? -1 : 1;
	return strcmp(s->text + x->at, s->text + y->at);
}

void names_sort(struct names *ns, bool directories_first)
{
	struct sorting s = { ns->text.buf, directories_first };

	if (ns->n)
		qsort_r(ns->list, ns->n, sizeof(*ns->list), compare, &s);
}

void names_release(struct names *ns)
{
	strbuf_release(&ns->text);
	free(ns->list);
}
