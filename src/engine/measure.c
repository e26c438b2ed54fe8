/*
 * Depth is the session's to choose, so neither the stack nor open descriptors keep the way
 * back: "..", compared with what was there on the way down, and the place in the directory
 * do.  A session that renames meanwhile can make the way back end elsewhere in its
 * workspace; that is seen, and the walk ends.
 */
#include "engine/measure.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"

#define LEVELS_MAX (1u << 22)

struct level {
	dev_t dev;
	ino_t ino;
	int64_t at; /* where to read on, in getdents64's terms */
};

struct entry {
	uint64_t ino;
	int64_t next;
	uint16_t length;
	uint8_t type;
	char name[];
};

struct walk {
	measure_fn fn;
	void *ctx;
	bool partial;
	int fd; /* the directory that is read */
	dev_t dev;
	struct level *levels; /* way[depth] is fd's own */
	unsigned depth, cap;
};

static bool push(struct walk *w, const struct stat *st)
{
	if (w->depth + 1 >= LEVELS_MAX)
		return false;
	if (w->depth + 1 >= w->cap) {
		w->cap = MAX(64u, 2 * w->cap);
		w->levels = xrealloc(w->levels, w->cap * sizeof(*w->levels));
	}
	w->levels[++w->depth] = (struct level){ st->st_dev, st->st_ino, 0 };
	return true;
}

/* Into NAME, when it is a directory of this file system; false: stay. */
static bool descend(struct walk *w, const char *name)
{
	autoclose int fd =
		openat(w->fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != w->dev)
		return false;
	if (!push(w, &st)) {
		w->partial = true;
		return false;
	}
	fd_close(w->fd);
	w->fd = take_fd(&fd);
	return true;
}

static bool ascend(struct walk *w)
{
	autoclose int fd = openat(w->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const struct level *l = &w->levels[--w->depth];
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || st.st_dev != l->dev || st.st_ino != l->ino ||
	    lseek(fd, l->at, SEEK_SET) < 0)
		return false;
	fd_close(w->fd);
	w->fd = take_fd(&fd);
	return true;
}

/* One entry; true when its directory is the one to read now. */
static bool visit(struct walk *w, const struct entry *e)
{
	struct stat st;

	if (!strcmp(e->name, ".") || !strcmp(e->name, "..") ||
	    fstatat(w->fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	w->fn(w->ctx, w->fd, e->name, &st);
	w->levels[w->depth].at = e->next;
	return S_ISDIR(st.st_mode) && descend(w, e->name);
}

/* What the directory still has, up to the first below; false: it is at its end. */
static bool read_some(struct walk *w)
{
	_Alignas(struct entry) static char buf[32 * 1024];
	long n = syscall(SYS_getdents64, w->fd, buf, sizeof(buf));

	for (long at = 0; at < n;) {
		const struct entry *e = (const struct entry *)(buf + at);

		if (visit(w, e))
			return true;
		at += e->length;
	}
	return n > 0;
}

static bool walk(struct walk *w, uint64_t deadline_ms)
{
	for (;;) {
		bool due = now_ms() >= deadline_ms;

		if (!due && read_some(w))
			continue;
		if (!due && !w->depth)
			return !w->partial;
		if (due || !ascend(w))
			return false;
	}
}

bool measure_visit(int dirfd, uint64_t deadline_ms, measure_fn fn, void *ctx)
{
	struct walk w = { .fn = fn, .ctx = ctx };
	struct stat st;
	bool whole = false;

	w.fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w.fd >= 0 && fstat(w.fd, &st) == 0) {
		w.dev = st.st_dev;
		w.cap = 64;
		w.levels = xcalloc(w.cap, sizeof(*w.levels));
		w.levels[0] = (struct level){ st.st_dev, st.st_ino, 0 };
		whole = walk(&w, deadline_ms);
	}
	free(w.levels);
	fd_close(w.fd);
	return whole;
}

static void add(void *ctx, int dir, const char *name, const struct stat *st)
{
	struct measure *m = ctx;
	uint64_t names = S_ISDIR(st->st_mode) ? 1 : MAX((uint64_t)st->st_nlink, (uint64_t)1);

	m->files++;
	/* 512 is the unit of st_blocks, whatever the file system's block. */
	m->bytes += (uint64_t)st->st_blocks * 512 / names;
}

struct measure measure_tree(int dirfd, uint64_t deadline_ms)
{
	struct measure m = { 0 };

	m.partial = !measure_visit(dirfd, deadline_ms, add, &m);
	return m;
}
