/*
 * glob and grep.  Hidden names and what .gitignore names are left out unless
 * asked for, below the root: a root that is hidden or ignored itself is searched.
 * .gitignore files above the root count up to the directory that holds .git.
 *
 * Links are never followed in a walk.  grep searches regular files only, and
 * takes a file with a NUL in its first 8 KiB for binary: it is left out, and
 * counted, unless it is the root.  glob answers regular files and links to them;
 * with FILE_DIRS_TOO everything else as well.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "init/paths.h"
#include "init/treewalk.h"
#include "text/glob.h"
#include "text/grep.h"
#include "text/ignore.h"

#define RESULTS_MAX 1000000

struct search {
	struct worker *w;
	struct ignore *ignore; /* of the directory under way */
	bool filter;           /* by: */
	struct glob glob;
	struct grep grep;
	const char *name; /* of the file that is searched; borrowed */
	uint32_t left;    /* results still wanted */
};

/* ---- what is left out ---- */

static void push_ignore(struct search *s, const char *above, size_t skip, int dir, const char *path)
{
	autoclose int fd = openat(dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	autofree char *text = NULL;
	struct stat st;
	ssize_t n = 0;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		text = xmalloc(IGNORE_FILE_MAX);
		n = read_full(fd, text, IGNORE_FILE_MAX);
	}
	/* One for each directory, so that leaving it has one to take away. */
	s->ignore = ignore_push(s->ignore, above, skip, text ? text : "", n > 0 ? (size_t)n : 0);
}

static void entered(void *ctx, const char *path, int dir)
{
	struct search *s = ctx;
	size_t n = strlen(path);

	push_ignore(s, NULL, n + (n > 0), dir, ".gitignore");
}

static void left(void *ctx)
{
	struct search *s = ctx;

	s->ignore = ignore_pop(s->ignore);
}

/* Length of the path of the directory above; 0: "/" or none. */
static size_t above(const char *path, size_t n)
{
	while (n && path[n - 1] != '/')
		n--;
	return n ? n - 1 : 0;
}

static bool has_git(struct worker *w, const char *dir)
{
	autofree char *path = xasprintf("%s/.git", dir);
	autoclose int fd = worker_open(w, path, O_PATH | O_NOFOLLOW);

	return fd >= 0;
}

/* The files of the directories above the root that are in the same repository. */
static void push_above(struct search *s)
{
	autobuf struct strbuf real = STRBUF_INIT;
	size_t top, n;

	if (s->w->rq.flags & (FILE_NO_IGNORE | FILE_RELATIVE) ||
	    path_real(s->w, s->w->rq.path, &real, NULL) < 0)
		return;
	for (top = n = real.len;; top = above(real.buf, top)) {
		autofree char *dir = xstrndup(real.buf, top);

		if (has_git(s->w, dir))
			break;
		if (!top)
			return; /* no repository */
	}
	while (top < n) {
		autofree char *file = xasprintf("%.*s/.gitignore", (int)top, real.buf);
		autofree char *rest = xasprintf("%s/", real.buf + top + 1);

		push_ignore(s, rest, 0, AT_FDCWD, file);
		top += 1 + strcspn(real.buf + top + 1, "/");
	}
}

static bool is_left_out(struct search *s, const struct treewalk_item *it)
{
	uint32_t flags = s->w->rq.flags;

	if (it->name[0] == '.' && !(flags & FILE_HIDDEN))
		return true;
	if (flags & FILE_NO_IGNORE)
		return false;
	return !strcmp(it->name, ".git") || ignore_match(s->ignore, it->path, it->type == DT_DIR);
}

static bool enter(void *ctx, const struct treewalk_item *it)
{
	return !is_left_out(ctx, it);
}

static bool enter_glob(void *ctx, const struct treewalk_item *it)
{
	struct search *s = ctx;

	return glob_below(&s->glob, it->path) && !is_left_out(s, it);
}

static int init_search(struct search *s, struct worker *w, const char *pattern,
		       struct garret_error *err)
{
	uint32_t max = w->rq.max_entries;

	*s = (struct search){ .w = w, .filter = *pattern };
	s->left = max && max < RESULTS_MAX ? max : RESULTS_MAX;
	if (!s->filter)
		return 0;
	return glob_compile(&s->glob, pattern, w->rq.flags & FILE_NO_CASE ? GLOB_FOLD : 0, err);
}

static int walk(struct search *s, int root, const struct treewalk_ops *ops,
		struct garret_error *err)
{
	struct treewalk_ops quiet = *ops;
	int rc;

	if (s->w->rq.flags & FILE_NO_IGNORE) {
		quiet.entered = NULL;
		quiet.left = NULL;
	}
	push_above(s);
	rc = treewalk(s->w, root, s->w->rq.max_depth, &quiet, s, err);
	while (s->ignore)
		s->ignore = ignore_pop(s->ignore);
	return rc;
}

/* One more result, or there is more than was asked for. */
static bool take_result(struct search *s)
{
	if (!s->left) {
		s->w->end.truncated = true;
		return false;
	}
	s->left--;
	s->w->end.count++;
	return true;
}

/* ---- glob ---- */

static int glob_item(void *ctx, const struct treewalk_item *it, struct garret_error *err)
{
	struct search *s = ctx;
	struct worker *w = s->w;
	bool dirs_too = w->rq.flags & FILE_DIRS_TOO;
	bool nofollow = w->rq.flags & (FILE_NOFOLLOW | FILE_RELATIVE);
	struct file_info info = { .name = it->path };
	char target[PATH_MAX];

	if ((it->type == DT_DIR && !dirs_too) || (it->type == DT_LNK && nofollow))
		return 0;
	if ((s->glob.dir_only && it->type != DT_DIR) || !glob_match(&s->glob, it->path) ||
	    is_left_out(s, it))
		return 0;
	if (worker_look_below(w, it->dir, it->name, it->path, nofollow, &info, target) < 0)
		return 0; /* gone */
	if (info.type != FILE_REGULAR && !dirs_too)
		return 0;
	if (!take_result(s))
		return TREEWALK_STOP;
	worker_entry(w, &info);
	return 0;
}

int op_glob(struct worker *w, struct garret_error *err)
{
	static const struct treewalk_ops ops = {
		.item = glob_item, .enter = enter_glob, .entered = entered, .left = left
	};
	autoclose int root = -EBADF;
	struct search s;
	int rc;

	if (!*w->rq.pattern)
		return garret_fail(err, GARRET_INVALID, "the pattern is empty");
	rc = init_search(&s, w, w->rq.pattern, err);
	if (rc < 0)
		return rc;
	root = worker_open(w, w->rq.path, O_RDONLY | O_DIRECTORY);
	rc = root < 0 ? garret_fail_errno(err, "%s", w->rq.path) : walk(&s, root, &ops, err);
	glob_done(&s.glob);
	return rc;
}

/* ---- grep ---- */

static int found(void *ctx, struct file_match *m, struct garret_error *err)
{
	struct search *s = ctx;

	if (!take_result(s))
		return GREP_STOP;
	m->name = s->name;
	worker_match(s->w, m);
	return 0;
}

static int check_time(void *ctx, struct garret_error *err)
{
	const struct search *s = ctx;

	return worker_check_time(s->w, err);
}

/* 0, TREEWALK_STOP or -code. */
static int grep_file(struct search *s, int fd, const char *name, struct garret_error *err)
{
	int rc;

	s->name = name;
	rc = grep_fd(&s->grep, fd, !*name, err);
	if (rc < 0) {
		strbuf_reset(&s->w->end_path);
		strbuf_addstr(&s->w->end_path, *name ? name : s->w->rq.path);
	}
	if (rc == GREP_UNREADABLE && !*name)
		return garret_fail_errno(err, "read %s", s->w->rq.path);
	if (rc == GREP_BINARY || rc == GREP_UNREADABLE)
		s->w->end.skipped++;
	return rc < 0 ? rc : rc == GREP_STOP ? TREEWALK_STOP : 0;
}

static int grep_item(void *ctx, const struct treewalk_item *it, struct garret_error *err)
{
	struct search *s = ctx;
	autoclose int fd = -EBADF;
	struct stat st;

	if (it->type != DT_REG || (s->filter && !glob_match(&s->glob, it->path)) ||
	    is_left_out(s, it))
		return 0;
	fd = openat(it->dir, it->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0 || fstat(fd, &st) < 0) {
		s->w->end.skipped += errno != ENOENT && errno != ELOOP;
		return 0;
	}
	/* It may have become something else since its directory was read. */
	return S_ISREG(st.st_mode) ? grep_file(s, fd, it->path, err) : 0;
}

static int grep_root(struct search *s, struct garret_error *err)
{
	static const struct treewalk_ops ops = {
		.item = grep_item, .enter = enter, .entered = entered, .left = left
	};
	struct worker *w = s->w;
	autoclose int look = worker_open(w, w->rq.path, O_PATH);
	autoclose int root = -EBADF;
	struct stat st;

	if (look < 0 || fstat(look, &st) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return garret_fail(err, GARRET_NOT_REGULAR, "%s", w->rq.path);
	root = worker_open(w, w->rq.path, O_RDONLY);
	if (root < 0 || fstat(root, &st) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	if (S_ISDIR(st.st_mode))
		return walk(s, root, &ops, err);
	if (!S_ISREG(st.st_mode))
		return garret_fail(err, GARRET_NOT_REGULAR, "%s", w->rq.path);
	return grep_file(s, root, "", err);
}

int op_grep(struct worker *w, struct garret_error *err)
{
	struct search s;
	int rc = init_search(&s, w, w->rq.include, err);

	if (rc < 0)
		return rc;
	if (s.glob.dir_only)
		rc = garret_fail(err, GARRET_INVALID,
				 "the files to search are named as directories");
	if (rc == 0)
		rc = grep_compile(&s.grep, w->rq.pattern, w->rq.flags, err);
	if (rc == 0) {
		s.grep.found = found;
		s.grep.check = check_time;
		s.grep.ctx = &s;
		rc = grep_root(&s, err);
		rc = rc < 0 ? rc : 0;
		grep_done(&s.grep);
	}
	glob_done(&s.glob);
	return rc;
}
