#include "init/treewalk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#include "base/auto.h"
#include "base/mem.h"
#include "init/paths.h"

/* Names of the directories under way: more of them are left out, and end.truncated is set. */
#define NAMES_MAX (64u * 1024 * 1024)

/* A name in `names`; a directory is there twice, as itself and with a slash, where one enters. */
struct entry {
	uint32_t at;
	unsigned char type;
};

struct frame {
	int fd; /* -EBADF when it isn't held */
	dev_t dev;
	ino_t ino;
	size_t names, first, next, end; /* in the walk's names and entries */
	size_t path;                    /* length of its path */
};

struct treewalk {
	struct worker *w;
	const struct treewalk_ops *ops;
	void *ctx;
	uint32_t max_depth;
	struct strbuf path, names;
	struct entry *entries;
	size_t n, cap;
	struct frame *frames;
	size_t depth, cap_frames;
};

static void add_entry(struct treewalk *t, const char *name, unsigned char type, bool enter)
{
	if (t->names.len + strlen(name) + 2 > NAMES_MAX) {
		t->w->end.truncated = true;
		return;
	}
	if (t->n == t->cap) {
		t->cap = t->cap ? 2 * t->cap : 256;
		t->entries = xrealloc(t->entries, t->cap * sizeof(*t->entries));
	}
	t->entries[t->n++] = (struct entry){ (uint32_t)t->names.len, type };
	strbuf_addstr(&t->names, name);
	if (enter)
		strbuf_addch(&t->names, '/');
	strbuf_addch(&t->names, '\0');
}

static int compare(const void *a, const void *b, void *names)
{
	return strcmp((char *)names + ((const struct entry *)a)->at,
		      (char *)names + ((const struct entry *)b)->at);
}

static unsigned char type_of(int dir, const struct dirent64 *e)
{
	struct stat st;

	if (e->d_type != DT_UNKNOWN)
		return e->d_type;
	if (fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return DT_FIFO; /* gone, or not to be looked at: nothing that anybody opens */
	return (unsigned char)IFTODT(st.st_mode);
}

/* -1 with errno. */
static int read_names(struct treewalk *t, int fd)
{
	static char buf[32 * 1024] __attribute__((aligned(8)));
	ssize_t n;

	while ((n = getdents64(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *e = (const struct dirent64 *)(buf + at);
			const char *name = e->d_name;
			unsigned char type;

			at += e->d_reclen;
			if (!strcmp(name, ".") || !strcmp(name, ".."))
				continue;
			type = type_of(fd, e);
			add_entry(t, name, type, false);
			if (type == DT_DIR)
				add_entry(t, name, type, true);
		}
	}
	return n < 0 ? -1 : 0;
}

/* Views of the kernel, not files: endless, or a side effect to read.  A root there is walked. */
static bool is_view(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) < 0)
		return false;
	return fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
	       fs.f_type == CGROUP_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC ||
	       fs.f_type == DEBUGFS_MAGIC || fs.f_type == TRACEFS_MAGIC;
}

static struct frame *top(struct treewalk *t)
{
	return &t->frames[t->depth - 1];
}

/* Of the frames only the first few keep their descriptor while one below them is walked. */
static void let_go(struct treewalk *t)
{
	if (t->depth > TREEWALK_HELD)
		top(t)->fd = fd_close(top(t)->fd);
}

/* Begin with a directory: fd passes to the frame. false: it can't be read. */
static bool push(struct treewalk *t, int fd, const struct stat *st)
{
	struct frame f = { .fd = fd,
			   .dev = st->st_dev,
			   .ino = st->st_ino,
			   .names = t->names.len,
			   .first = t->n,
			   .next = t->n,
			   .path = t->path.len };
	bool read = read_names(t, fd) == 0;

	if (!read && t->n == f.first)
		return false;
	if (!read)
		t->w->end.skipped++; /* not whole: what is known of it counts */
	qsort_r(t->entries + f.first, t->n - f.first, sizeof(*t->entries), compare, t->names.buf);
	f.end = t->n;
	if (t->depth)
		let_go(t);
	if (t->depth == t->cap_frames) {
		t->cap_frames = t->cap_frames ? 2 * t->cap_frames : 32;
		t->frames = xrealloc(t->frames, t->cap_frames * sizeof(*t->frames));
	}
	t->frames[t->depth++] = f;
	if (t->ops->entered)
		t->ops->entered(t->ctx, t->path.buf, fd);
	return true;
}

/* Gone, or something else by now: nothing to count, there is no such thing any more. */
static bool is_race(int sys)
{
	return sys == ENOENT || sys == ENOTDIR || sys == ELOOP;
}

/* The directory whose path is t->path. */
static void descend(struct treewalk *t, const struct treewalk_item *it)
{
	autoclose int fd = openat(it->dir, it->name,
				  O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0) {
		t->w->end.skipped += !is_race(errno);
		return;
	}
	if ((st.st_dev != top(t)->dev && is_view(fd)) || path_is_own(fd))
		return;
	if (!push(t, fd, &st)) {
		t->w->end.skipped++;
		return;
	}
	(void)take_fd(&fd);
}

static bool is_frame(int fd, const struct frame *f)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino;
}

/* Step by step from the deepest directory that is held. */
static int reopen(struct treewalk *t)
{
	size_t i = t->depth - 1;
	autoclose int fd = -EBADF;

	while (i && t->frames[i].fd < 0)
		i--;
	for (; i + 1 < t->depth; i++) {
		size_t from = t->frames[i].path, to = t->frames[i + 1].path;
		autofree char *name = NULL;
		int below;

		from += from > 0; /* the slash */
		name = xstrndup(t->path.buf + from, to - from);
		below = openat(fd < 0 ? t->frames[i].fd : fd, name,
			       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		fd_close(fd);
		fd = below;
		if (!is_frame(fd, &t->frames[i + 1]))
			return -EBADF;
	}
	return take_fd(&fd);
}

/* Back to the directory above.  When it can't be found again its rest is left out. */
static void pop(struct treewalk *t)
{
	struct frame *f = top(t);
	autoclose int below = take_fd(&f->fd);

	if (t->ops->left)
		t->ops->left(t->ctx);
	t->n = f->first;
	t->names.len = f->names;
	if (--t->depth == 0)
		return;
	f = top(t);
	t->path.len = f->path;
	t->path.buf[t->path.len] = '\0';
	if (f->fd >= 0 || f->next == f->end)
		return; /* one that is finished needs no descriptor, except for its `..` */
	f->fd = openat(below, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
	if (is_frame(f->fd, f))
		return;
	fd_close(f->fd);
	f->fd = reopen(t);
	if (f->fd < 0) {
		f->next = f->end;
		t->w->end.skipped++;
	}
}

static int visit(struct treewalk *t, struct garret_error *err)
{
	struct frame *f = top(t);
	struct entry e = t->entries[f->next++];
	const char *name = t->names.buf + e.at;
	size_t n = strlen(name);
	bool enter = name[n - 1] == '/';
	struct treewalk_item it = { .dir = f->fd, .type = e.type };
	size_t at = f->path + (f->path > 0);
	int rc = 0;

	n -= enter;
	if (at + n > FILE_NAME_MAX) {
		t->w->end.skipped += !enter; /* once, not as something to enter as well */
		return 0;
	}
	t->path.len = f->path;
	if (f->path)
		strbuf_addch(&t->path, '/');
	strbuf_add(&t->path, name, n);
	it.path = t->path.buf;
	it.name = t->path.buf + at;
	if (!enter)
		rc = t->ops->item(t->ctx, &it, err);
	else if (t->max_depth && t->depth >= t->max_depth)
		t->w->end.truncated = true;
	else if (!t->ops->enter || t->ops->enter(t->ctx, &it))
		descend(t, &it);
	return rc;
}

static int run(struct treewalk *t, struct garret_error *err)
{
	int rc = 0;

	while (t->depth && rc == 0) {
		if (top(t)->next < top(t)->end) {
			rc = worker_check_time(t->w, err);
			if (rc == 0)
				rc = visit(t, err);
		} else {
			pop(t);
		}
	}
	while (t->depth)
		pop(t);
	return rc < 0 ? rc : 0;
}

int treewalk(struct worker *w, int root, uint32_t max_depth, const struct treewalk_ops *ops,
	     void *ctx, struct garret_error *err)
{
	struct treewalk t = { .w = w, .ops = ops, .ctx = ctx, .max_depth = max_depth };
	autoclose int fd = openat(root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	strbuf_init(&t.path);
	strbuf_init(&t.names);
	rc = push(&t, fd, &st) ? 0 : garret_fail_errno(err, "%s", w->rq.path);
	if (rc == 0) {
		(void)take_fd(&fd);
		rc = run(&t, err);
	}
	strbuf_release(&t.path);
	strbuf_release(&t.names);
	free(t.entries);
	free(t.frames);
	return rc;
}
