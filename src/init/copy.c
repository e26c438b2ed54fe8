#include "init/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "init/content.h"
#include "init/replace.h"

#define PIECE (16u << 20) /* bytes between two looks at the clock */

static int copy_bytes(struct worker *w, int from, int to, struct garret_error *err)
{
	for (;;) {
		ssize_t n = copy_file_range(from, NULL, to, NULL, PIECE, 0);
		int rc;

		/* Not between these two file systems, or not of this kind of file. */
		if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP))
			n = sendfile(to, from, NULL, PIECE);
		if (n < 0)
			return garret_fail_errno(err, "copy %s", w->rq.path);
		if (!n)
			return 0;
		rc = worker_check_time(w, err);
		if (rc < 0)
			return rc;
	}
}

/* One file that is new at its place. */
static int copy_file(struct worker *w, int from_dir, const char *name, int to_dir, const char *to,
		     mode_t mode, struct garret_error *err)
{
	autoclose int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	autoclose int fd = from < 0 ? -EBADF
				    : openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
					     (mode & 0777) | 0200);
	int rc;

	if (from < 0 || fd < 0)
		return garret_fail_errno(err, "copy %s", name);
	rc = copy_bytes(w, from, fd, err);
	if (rc == 0 && fchmod(fd, mode & 0777) < 0)
		rc = garret_fail_errno(err, "set the mode of %s", to);
	return rc;
}

/* Anything but what is in a directory. */
static int copy_entry(struct worker *w, int from_dir, const char *name, int to_dir, const char *to,
		      const struct stat *st, struct garret_error *err)
{
	char target[PATH_MAX];
	ssize_t n;

	if (S_ISREG(st->st_mode))
		return copy_file(w, from_dir, name, to_dir, to, st->st_mode, err);
	if (S_ISDIR(st->st_mode))
		return mkdirat(to_dir, to, (st->st_mode & 0777) | 0700) < 0
			       ? garret_fail_errno(err, "make %s", to)
			       : 0;
	if (!S_ISLNK(st->st_mode)) {
		w->end.skipped++;
		return 0;
	}
	n = readlinkat(from_dir, name, target, sizeof(target) - 1);
	if (n < 0)
		return garret_fail_errno(err, "copy %s", name);
	target[n] = '\0';
	return symlinkat(target, to_dir, to) < 0 ? garret_fail_errno(err, "make %s", to) : 0;
}

/* The entries of one directory of the tree, and then its own mode. */
static int copy_dir(struct worker *w, struct tree *from, const struct tree *to, const char *dir,
		    struct garret_error *err)
{
	autoclose int in = tree_open(from, dir), out = tree_open(to, dir);
	int copy = in < 0 || out < 0 ? -1 : fcntl(in, F_DUPFD_CLOEXEC, 3);
	struct names ns;
	struct stat st;
	int rc;

	if (copy < 0)
		return garret_fail_errno(err, "copy %s/%s", w->rq.path, dir);
	rc = names_read(&ns, copy, SIZE_MAX, err);
	for (size_t i = 0; rc == 0 && i < ns.n; i++) {
		const char *name = names_get(&ns, i);

		if (fstatat(in, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue; /* it went away */
		rc = copy_entry(w, in, name, out, name, &st, err);
		if (rc == 0 && S_ISDIR(st.st_mode))
			tree_add(from, dir, name);
		if (rc == 0)
			rc = worker_check_time(w, err);
		w->end.count++;
	}
	names_release(&ns);
	return rc;
}

/* Modes of directories, once nothing is made in them any more: the deepest first. */
static int copy_modes(struct worker *w, const struct strbuf *dirs, int in, int out,
		      struct garret_error *err)
{
	const struct tree from = { .root = in }, to = { .root = out };

	for (size_t at = dirs->len; at;) {
		autoclose int old = -EBADF, up = -EBADF;
		autofree char *parent = NULL;
		const char *dir, *slash;
		struct stat st;

		for (at--; at && dirs->buf[at - 1]; at--)
			;
		dir = dirs->buf + at;
		old = *dir ? tree_open(&from, dir) : -EBADF;
		if (old < 0 || fstat(old, &st) < 0)
			continue;
		/* Through no link: somebody may have put one into the copy. */
		slash = strrchr(dir, '/');
		parent = slash ? xstrndup(dir, (size_t)(slash - dir)) : xstrdup("");
		up = tree_open(&to, parent);
		if (up < 0 || chmod_one(up, slash ? slash + 1 : dir, st.st_mode & 0777) < 0)
			return garret_fail_errno(err, "set the mode of %s/%s", w->rq.to, dir);
	}
	return 0;
}

static int copy_below(struct worker *w, int in, int out, struct garret_error *err)
{
	autobuf struct strbuf dirs = STRBUF_INIT;
	struct tree from, to;
	const char *dir;
	int rc = 0;

	tree_init(&from, in);
	tree_init(&to, out);
	while (rc == 0 && (dir = tree_next(&from))) {
		autofree char *own = xstrdup(dir);

		strbuf_add(&dirs, own, strlen(own) + 1);
		rc = copy_dir(w, &from, &to, own, err);
	}
	tree_release(&from);
	tree_release(&to);
	return rc < 0 ? rc : copy_modes(w, &dirs, in, out, err);
}

static int copy_to_temp(struct worker *w, int from_dir, const char *from, int to_dir,
			const char *temp, struct garret_error *err)
{
	autoclose int in = -EBADF, out = -EBADF;
	struct stat st;
	int rc;

	if (fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	rc = copy_entry(w, from_dir, from, to_dir, temp, &st, err);
	if (rc < 0 || !S_ISDIR(st.st_mode))
		return rc;
	in = openat(from_dir, from, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	out = openat(to_dir, temp, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (in < 0 || out < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	rc = copy_below(w, in, out, err);
	if (rc == 0 && chmod_one(to_dir, temp, st.st_mode & 0777) < 0)
		rc = garret_fail_errno(err, "set the mode of %s", w->rq.to);
	return rc;
}

int copy_tree(struct worker *w, int from_dir, const char *from, int to_dir, const char *to,
	      struct garret_error *err)
{
	char temp[PATH_TEMP];
	int rc;

	if (path_temp_name(temp) < 0)
		return garret_fail_errno(err, "random bytes");
	rc = copy_to_temp(w, from_dir, from, to_dir, temp, err);
	if (rc == 0 && renameat2(to_dir, temp, to_dir, to,
				 w->rq.flags & FILE_EXCLUSIVE ? RENAME_NOREPLACE : 0) < 0)
		rc = garret_fail_errno(err, "%s to %s", w->rq.path, w->rq.to);
	if (rc < 0) {
		struct garret_error ignored = { 0 };

		w->due_ms += 10000; /* what was made has to go, also when time is up */
		(void)remove_tree(w, to_dir, temp, &ignored);
	}
	return rc;
}

/* ---- copy ---- */

static int copy_content(struct worker *w, struct garret_error *err)
{
	struct stat st;
	autoclose int from = content_open(w, &st, err);
	struct replace r;
	int rc;

	if (from < 0)
		return from;
	rc = replace_begin(w, &r, w->rq.to, st.st_mode, err);
	if (rc < 0)
		return rc;
	rc = copy_bytes(w, from, r.fd, err);
	if (rc == 0)
		return replace_commit(w, &r, NULL, err);
	replace_abort(w, &r);
	return rc;
}

/* Is `inside` the directory `dir` or below it?  Both are resolved. */
static bool is_below(const char *inside, const char *dir)
{
	size_t n = strlen(dir);

	return !strncmp(inside, dir, n) && (!inside[n] || inside[n] == '/' || n == 1);
}

static int copy_whole(struct worker *w, struct garret_error *err)
{
	autobuf struct strbuf a = STRBUF_INIT, b = STRBUF_INIT;
	char from[PATH_NAME], to[PATH_NAME];
	autoclose int from_dir = worker_open_parent(w, w->rq.path, from, err), to_dir = -EBADF;
	int rc = from_dir < 0 ? from_dir : path_real(w, w->rq.path, &a, err);

	if (rc == 0)
		rc = path_real(w, w->rq.to, &b, err);
	if (rc < 0)
		return rc;
	if (is_below(b.buf, a.buf))
		return garret_fail(err, GARRET_INVALID, "%s can't be copied into itself",
				   w->rq.path);
	to_dir = path_place(w, w->rq.to, to, err);
	if (to_dir < 0)
		return to_dir;
	return copy_tree(w, from_dir, from, to_dir, to, err);
}

/* Of a file the content, through links on both sides; with TREE what the name is, links too. */
int op_copy(struct worker *w, struct garret_error *err)
{
	return w->rq.flags & FILE_TREE ? copy_whole(w, err) : copy_content(w, err);
}
