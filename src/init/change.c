/* Changing names and modes: mkdir, remove, rename, chmod. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "init/copy.h"

/* ---- mkdir ---- */

/* Is there a directory already, or a link to one? */
static bool is_directory(struct worker *w, int dir, const char *name)
{
	autoclose int fd = -EBADF;
	struct stat st;

	if (!(w->rq.flags & FILE_CONFINED))
		return fstatat(dir, name, &st, 0) == 0 && S_ISDIR(st.st_mode);
	fd = worker_open(w, w->rq.path, O_PATH | O_DIRECTORY);
	return fd >= 0;
}

int op_mkdir(struct worker *w, struct garret_error *err)
{
	const mode_t mode = w->rq.mode ? w->rq.mode : 0777;
	char name[PATH_NAME];
	autoclose int dir = path_place(w, w->rq.path, name, err);

	if (dir < 0)
		return dir;
	if (mkdirat(dir, name, mode) == 0)
		return 0;
	if (errno != EEXIST && errno != EISDIR)
		return garret_fail_errno(err, "%s", w->rq.path);
	if (w->rq.flags & FILE_PARENTS && is_directory(w, dir, name))
		return 0;
	errno = EEXIST;
	return garret_fail_errno(err, "%s", w->rq.path);
}

/* ---- remove ---- */

/* Is real the work directory or above it? */
static bool holds_work_dir(const struct worker *w, const char *real)
{
	size_t n = strlen(real);

	return !strcmp(real, "/") || (!strncmp(real, w->p->work_dir, n) &&
				      (w->p->work_dir[n] == '/' || !w->p->work_dir[n]));
}

static int refuse_work_dir(struct worker *w, const char *name, struct garret_error *err)
{
	autobuf struct strbuf real = STRBUF_INIT;
	size_t n = strlen(w->rq.path);
	autofree char *parent = NULL;
	int rc;

	/* The parent's links count, the last component is removed as it is. */
	while (n > 1 && w->rq.path[n - 1] == '/')
		n--;
	while (n && w->rq.path[n - 1] != '/')
		n--;
	parent = xstrndup(w->rq.path, n);
	rc = path_real(w, parent, &real, err);
	if (rc < 0)
		return rc;
	if (real.len > 1)
		strbuf_addch(&real, '/');
	if (!strcmp(name, "."))
		real.buf[--real.len] = '\0';
	else
		strbuf_addstr(&real, name);
	if (!strcmp(name, "..") || holds_work_dir(w, real.len ? real.buf : "/"))
		return garret_fail(err, GARRET_INVALID,
				   "the work directory and what holds it can't be removed: %s",
				   w->rq.path);
	return 0;
}

/*
 * A tree is removed from its leaves with one open directory and the names on
 * the way to it, so its depth is bounded by memory only.  What can't be removed
 * is passed over, as rm does; the first such error is the answer.
 */
struct removal {
	struct worker *w;
	struct strbuf way;   /* "a\0b\0": names from the top to here */
	struct strbuf stuck; /* "depth\0name\0": what couldn't be removed, of the way to here */
	struct level {
		dev_t dev;
		ino_t ino;
		size_t way_at;
	} * levels;
	unsigned depth, cap;
	int first_error;
};

static bool is_stuck(const struct removal *r, const char *name)
{
	for (size_t at = 0; at < r->stuck.len;) {
		unsigned depth;

		memcpy(&depth, r->stuck.buf + at, sizeof(depth));
		if (depth == r->depth && !strcmp(r->stuck.buf + at + sizeof(depth), name))
			return true;
		at += sizeof(depth) + strlen(r->stuck.buf + at + sizeof(depth)) + 1;
	}
	return false;
}

static void set_stuck(struct removal *r, const char *name)
{
	if (!r->first_error)
		r->first_error = errno;
	strbuf_add(&r->stuck, &r->depth, sizeof(r->depth));
	strbuf_add(&r->stuck, name, strlen(name) + 1);
}

/* What was stuck below the directory we leave doesn't matter any more. */
static void forget_stuck(struct removal *r)
{
	size_t at = 0, last = 0;

	while (at < r->stuck.len) {
		unsigned depth;

		memcpy(&depth, r->stuck.buf + at, sizeof(depth));
		if (depth > r->depth)
			break;
		at += sizeof(depth) + strlen(r->stuck.buf + at + sizeof(depth)) + 1;
		last = at;
	}
	r->stuck.len = last;
}

/* Into the directory NAME of fd; -1 with errno. fd is closed when it worked. */
static int descend(struct removal *r, int fd, const char *name)
{
	int to = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (to < 0 || fstat(to, &st) < 0) {
		fd_close(to);
		return -1;
	}
	if (r->depth == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 32;
		r->levels = xrealloc(r->levels, r->cap * sizeof(*r->levels));
	}
	r->levels[r->depth++] = (struct level){ st.st_dev, st.st_ino, r->way.len };
	strbuf_add(&r->way, name, strlen(name) + 1);
	fd_close(fd);
	return to;
}

/* Back to the parent of fd, if it is still where we came from. */
static int ascend(struct removal *r, int fd)
{
	int up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct level *l = &r->levels[r->depth - 2];
	struct stat st;

	fd_close(fd);
	if (up < 0)
		return -1;
	if (fstat(up, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino) {
		fd_close(up);
		errno = EBUSY; /* somebody moved it */
		return -1;
	}
	return up;
}

/*
 * Remove what can be removed of fd's entries.  A name to descend into is
 * copied to `down`; "" when there is none.
 */
static int empty_dir(struct removal *r, int fd, char down[PATH_NAME], struct garret_error *err)
{
	int copy = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = copy < 0 ? NULL : fdopendir(copy);
	struct dirent *e;
	unsigned n = 0;

	*down = '\0';
	if (!d) {
		fd_close(copy);
		return garret_fail_errno(err, "%s", r->w->rq.path);
	}
	while ((e = readdir(d))) {
		int rc = ++n % 256 ? 0 : worker_check_time(r->w, err);

		if (rc < 0)
			return rc;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || is_stuck(r, e->d_name))
			continue;
		if (unlinkat(fd, e->d_name, 0) == 0 || errno == ENOENT)
			continue;
		if (errno == EISDIR || (errno == EPERM && e->d_type == DT_DIR)) {
			if (unlinkat(fd, e->d_name, AT_REMOVEDIR) == 0 || errno == ENOENT)
				continue;
			if (errno == ENOTEMPTY || errno == EEXIST) {
				(void)snprintf(down, PATH_NAME, "%s", e->d_name);
				return 0;
			}
		}
		set_stuck(r, e->d_name);
	}
	return 0;
}

/* Everything below fd, which is closed. */
static int empty_tree(struct removal *r, int fd, struct garret_error *err)
{
	char down[PATH_NAME];
	struct stat st;

	if (fstat(fd, &st) < 0)
		st = (struct stat){ 0 };
	r->levels = xcalloc(1, sizeof(*r->levels));
	r->levels[0] = (struct level){ st.st_dev, st.st_ino, 0 };
	r->depth = r->cap = 1;
	for (;;) {
		int rc = empty_dir(r, fd, down, err), to;

		if (rc < 0) {
			fd_close(fd);
			return rc;
		}
		if (*down) {
			to = descend(r, fd, down);
			if (to < 0)
				set_stuck(r, down);
			else
				fd = to;
			continue;
		}
		if (r->depth == 1)
			break;
		fd = ascend(r, fd);
		if (fd < 0)
			return garret_fail_errno(err, "%s", r->w->rq.path);
		r->depth--;
		forget_stuck(r);
		r->way.len = r->levels[r->depth].way_at;
		if (unlinkat(fd, r->way.buf + r->way.len, AT_REMOVEDIR) < 0 && errno != ENOENT)
			set_stuck(r, r->way.buf + r->way.len);
	}
	fd_close(fd);
	return 0;
}

int remove_tree(struct worker *w, int dir, const char *name, struct garret_error *err)
{
	struct removal r = { .w = w };
	int fd, rc;

	if (unlinkat(dir, name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return garret_fail_errno(err, "%s", w->rq.path);
	if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return garret_fail_errno(err, "%s", w->rq.path);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	strbuf_init(&r.way);
	strbuf_init(&r.stuck);
	rc = empty_tree(&r, fd, err);
	strbuf_release(&r.way);
	strbuf_release(&r.stuck);
	free(r.levels);
	if (rc == 0 && r.first_error) {
		errno = r.first_error;
		rc = garret_fail_errno(err, "%s: not everything could be removed", w->rq.path);
	}
	if (rc == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0)
		rc = garret_fail_errno(err, "%s", w->rq.path);
	return rc;
}

int op_remove(struct worker *w, struct garret_error *err)
{
	char name[PATH_NAME];
	autoclose int dir = worker_open_parent(w, w->rq.path, name, err);
	int rc = dir < 0 ? dir : refuse_work_dir(w, name, err);

	if (rc < 0)
		return rc;
	if (w->rq.flags & FILE_TREE)
		return remove_tree(w, dir, name, err);
	if (unlinkat(dir, name, 0) == 0 ||
	    (errno == EISDIR && unlinkat(dir, name, AT_REMOVEDIR) == 0))
		return 0;
	return garret_fail_errno(err, "%s", w->rq.path);
}

/* ---- rename ---- */

int op_rename(struct worker *w, struct garret_error *err)
{
	const unsigned flags = w->rq.flags & FILE_EXCLUSIVE ? RENAME_NOREPLACE : 0;
	char from[PATH_NAME], to[PATH_NAME];
	autoclose int from_dir = worker_open_parent(w, w->rq.path, from, err);
	autoclose int to_dir = -EBADF;
	int rc = from_dir < 0 ? from_dir : refuse_work_dir(w, from, err);

	if (rc < 0)
		return rc;
	to_dir = path_place(w, w->rq.to, to, err);
	if (to_dir < 0)
		return to_dir;
	if (renameat2(from_dir, from, to_dir, to, flags) == 0)
		return 0;
	if (errno != EXDEV)
		return garret_fail_errno(err, "%s to %s", w->rq.path, w->rq.to);
	/* To another file system: a copy that takes the place at once, then the old one goes. */
	rc = copy_tree(w, from_dir, from, to_dir, to, err);
	return rc < 0 ? rc : remove_tree(w, from_dir, from, err);
}

/* ---- chmod ---- */

/* Links have no mode of their own, also one that took the place of something else just now. */
int chmod_one(int dir, const char *name, mode_t mode)
{
	return fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW) < 0 && errno != EOPNOTSUPP ? -1 : 0;
}

/* What is in one directory, but for directories. */
static int chmod_files(struct worker *w, struct tree *t, const char *dir, struct garret_error *err)
{
	autoclose int fd = tree_open(t, dir);
	int copy = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	struct names ns;
	int rc;

	if (copy < 0)
		return garret_fail_errno(err, "%s/%s", w->rq.path, dir);
	rc = names_read(&ns, copy, SIZE_MAX, err);
	for (size_t i = 0; rc == 0 && i < ns.n; i++) {
		const char *name = names_get(&ns, i);

		if (ns.list[i].type == DT_DIR)
			tree_add(t, dir, name);
		else if (ns.list[i].type != DT_LNK && chmod_one(fd, name, w->rq.mode) < 0)
			rc = garret_fail_errno(err, "%s/%s/%s", w->rq.path, dir, name);
		w->end.count++;
	}
	names_release(&ns);
	return rc < 0 ? rc : worker_check_time(w, err);
}

/* The directories of dirs ("" is the top, which is left out), the deepest first. */
static int chmod_dirs(struct worker *w, const struct tree *t, struct strbuf *dirs,
		      struct garret_error *err)
{
	for (size_t at = dirs->len; at;) {
		autoclose int fd = -EBADF;
		char *dir, *slash;
		int rc;

		for (at--; at && dirs->buf[at - 1]; at--)
			;
		dir = dirs->buf + at;
		if (!*dir)
			continue;
		slash = strrchr(dir, '/');
		if (slash)
			*slash = '\0';
		fd = tree_open(t, slash ? dir : "");
		if (fd < 0 || chmod_one(fd, slash ? slash + 1 : dir, w->rq.mode) < 0)
			return garret_fail_errno(err, "%s/%s", w->rq.path, dir);
		if (slash)
			*slash = '/';
		rc = worker_check_time(w, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int chmod_below(struct worker *w, int root, struct garret_error *err)
{
	autobuf struct strbuf dirs = STRBUF_INIT;
	struct tree t;
	const char *dir;
	int rc = 0;

	tree_init(&t, root);
	while (rc == 0 && (dir = tree_next(&t))) {
		autofree char *own = xstrdup(dir);

		strbuf_add(&dirs, own, strlen(own) + 1);
		rc = chmod_files(w, &t, own, err);
	}
	if (rc == 0)
		rc = chmod_dirs(w, &t, &dirs, err);
	tree_release(&t);
	return rc;
}

/*
 * Where the path's last link leads is found before: what is outside isn't touched, also when
 * somebody puts a link there meanwhile.
 */
static int open_chmod_place(struct worker *w, char name[PATH_NAME], struct garret_error *err)
{
	autobuf struct strbuf real = STRBUF_INIT;
	int rc;

	if (!(w->rq.flags & FILE_CONFINED))
		return worker_open_parent(w, w->rq.path, name, err);
	rc = path_real(w, w->rq.path, &real, err);
	return rc < 0 ? rc : worker_open_parent(w, real.buf, name, err);
}

/* Files first and the directory itself last: it may be closed to us afterwards. */
int op_chmod(struct worker *w, struct garret_error *err)
{
	const int follow = w->rq.flags & FILE_CONFINED ? AT_SYMLINK_NOFOLLOW : 0;
	char name[PATH_NAME];
	autoclose int dir = open_chmod_place(w, name, err);
	autoclose int root = -EBADF;
	struct stat st;
	int rc = 0;

	if (dir < 0)
		return dir;
	if (w->rq.flags & FILE_TREE && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISDIR(st.st_mode)) {
		root = openat(dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		rc = root < 0 ? garret_fail_errno(err, "%s", w->rq.path)
			      : chmod_below(w, root, err);
	}
	if (rc == 0 && fchmodat(dir, name, w->rq.mode, follow) < 0)
		rc = garret_fail_errno(err, "%s", w->rq.path);
	return rc;
}
