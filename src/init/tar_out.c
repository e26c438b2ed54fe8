/*
 * FILE_TAR_OUT: a directory's contents, named relative to it, or one file, as a
 * pax archive.  Headers are ustar's; what doesn't fit there, times with a
 * fraction, user.* attributes and the map of a sparse file are in an extended
 * header in front.  Of a file with several names the first one has the content.
 *
 * Sockets and devices are left out.  What can't be read is left out and counted
 * in end.skipped, and so is a file that shrank while it was read: its size stood
 * in the header already, zeroes take the place of what is missing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "base/auto.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "init/paths.h"
#include "init/tar.h"
#include "init/treewalk.h"

#define OCTAL_7 07777777u
#define OCTAL_11 077777777777u
#define XATTRS_BYTES (512 * 1024) /* of one file; well below what a reader takes */
#define LINKS_BYTES (64u * 1024 * 1024)

struct tar_out {
	struct worker *w;
	struct map links; /* "device:inode" to the name it has in the archive */
	size_t links_bytes;
	uint64_t bytes; /* sent and waiting */
	size_t n;       /* waiting in buf */
	char buf[FILE_DATA_MAX];
};

/* An entry on its way. */
struct item {
	const char *name;
	struct stat st;
	char type;
	char target[PATH_MAX];
	struct strbuf pax;
	struct tar_region *map;
	size_t n_map;
	uint64_t stored; /* bytes behind the header */
	struct strbuf map_text;
};

/* ---- bytes ---- */

static void flush(struct tar_out *t)
{
	uint64_t before = now_ms();

	worker_data(t->w, t->buf, t->n);
	/* The time limit is one of work, not of waiting for who reads. */
	t->w->due_ms += now_ms() - before;
	t->n = 0;
}

static void put(struct tar_out *t, const void *data, size_t n)
{
	const char *at = data;

	t->bytes += n;
	while (n) {
		size_t now = MIN(n, sizeof(t->buf) - t->n);

		if (at)
			memcpy(t->buf + t->n, at, now);
		else
			memset(t->buf + t->n, 0, now);
		at = at ? at + now : NULL;
		n -= now;
		t->n += now;
		if (t->n == sizeof(t->buf))
			flush(t);
	}
}

static void put_padding(struct tar_out *t)
{
	put(t, NULL, (size_t)(-t->bytes % TAR_BLOCK));
}

/* ---- headers ---- */

/* One record, whose length counts itself. */
static void pax_add(struct strbuf *pax, const char *key, const void *value, size_t n)
{
	size_t rest = 1 + strlen(key) + 1 + n + 1, total = rest + 1;
	char digits[24];

	while (total != rest + (size_t)snprintf(digits, sizeof(digits), "%zu", total))
		total = rest + strlen(digits);
	strbuf_addf(pax, "%zu %s=", total, key);
	strbuf_add(pax, value, n);
	strbuf_addch(pax, '\n');
}

static void pax_number(struct strbuf *pax, const char *key, uint64_t n)
{
	char text[24];
	int digits = snprintf(text, sizeof(text), "%llu", (unsigned long long)n);

	pax_add(pax, key, text, (size_t)digits);
}

static void pax_time(struct strbuf *pax, const struct timespec *t)
{
	char text[40];
	int n;

	if (t->tv_sec < 0 && t->tv_nsec)
		n = snprintf(text, sizeof(text), "-%lld.%09ld", -(long long)t->tv_sec - 1,
			     1000000000 - t->tv_nsec);
	else
		n = snprintf(text, sizeof(text), "%lld.%09ld", (long long)t->tv_sec, t->tv_nsec);
	pax_add(pax, "mtime", text, (size_t)n);
}

/* n - 1 octal digits and a NUL. */
static void octal(char *field, size_t n, uint64_t v)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%0*llo", (int)n - 1, (unsigned long long)v);
	memcpy(field, text, n);
}

/* Where name can be cut into a prefix and a name that fit; 0: nowhere. */
static size_t cut(const char *name, size_t n)
{
	const struct tar_header *h = NULL;
	size_t at = MIN(n - 1, sizeof(h->prefix));

	/* A slash at the very end belongs to the name. */
	while (at && (name[at] != '/' || at + 1 == n))
		at--;
	return at && n - at - 1 <= sizeof(h->name) ? at : 0;
}

/* False when the name has to be in an extended header. */
static bool set_name(struct tar_header *h, const char *name)
{
	size_t n = strlen(name), at = n > sizeof(h->name) ? cut(name, n) : 0;

	if (n <= sizeof(h->name)) {
		memcpy(h->name, name, n);
		return true;
	}
	memcpy(h->prefix, name, at);
	memcpy(h->name, name + at + (at > 0), MIN(n - at - (at > 0), sizeof(h->name)));
	return at > 0;
}

static void put_header(struct tar_out *t, struct tar_header *h)
{
	memcpy(h->magic, "ustar", 6);
	memcpy(h->version, "00", 2);
	octal(h->major, sizeof(h->major), 0);
	octal(h->minor, sizeof(h->minor), 0);
	octal(h->sum, sizeof(h->sum) - 1, tar_sum(h));
	h->sum[7] = ' ';
	put(t, h, sizeof(*h));
}

/* Names and targets that are no UTF-8 say so, in front of them. */
static void pax_text(struct strbuf *pax, const char *key, const char *text)
{
	size_t n = strlen(text);

	if (!utf8_valid(text, n) && !memmem(pax->buf, pax->len, "hdrcharset=", 11))
		pax_add(pax, "hdrcharset", "BINARY", 6);
	pax_add(pax, key, text, n);
}

static void put_pax(struct tar_out *t, const struct strbuf *pax)
{
	struct tar_header h = { .name = "PaxHeaders/entry", .type = 'x' };

	if (!pax->len)
		return;
	octal(h.mode, sizeof(h.mode), 0644);
	octal(h.uid, sizeof(h.uid), 0);
	octal(h.gid, sizeof(h.gid), 0);
	octal(h.size, sizeof(h.size), pax->len);
	octal(h.mtime, sizeof(h.mtime), 0);
	put_header(t, &h);
	put(t, pax->buf, pax->len);
	put_padding(t);
}

static void set_owner(struct tar_header *h, struct strbuf *pax, const struct stat *st)
{
	octal(h->uid, sizeof(h->uid), st->st_uid <= OCTAL_7 ? st->st_uid : 0);
	octal(h->gid, sizeof(h->gid), st->st_gid <= OCTAL_7 ? st->st_gid : 0);
	if (st->st_uid > OCTAL_7)
		pax_number(pax, "uid", st->st_uid);
	if (st->st_gid > OCTAL_7)
		pax_number(pax, "gid", st->st_gid);
}

static void put_entry(struct tar_out *t, struct item *it)
{
	struct tar_header h = { .type = it->type };
	uint64_t seconds = it->st.st_mtim.tv_sec < 0 ? 0 : (uint64_t)it->st.st_mtim.tv_sec;

	if (it->map) {
		/* The name that readers see which don't know of sparse files. */
		memcpy(h.name, "GNUSparseFile.0/entry", 22);
		pax_number(&it->pax, "GNU.sparse.major", 1);
		pax_number(&it->pax, "GNU.sparse.minor", 0);
		pax_text(&it->pax, "GNU.sparse.name", it->name);
		pax_number(&it->pax, "GNU.sparse.realsize", (uint64_t)it->st.st_size);
	} else if (!set_name(&h, it->name)) {
		pax_text(&it->pax, "path", it->name);
	}
	memcpy(h.target, it->target, MIN(strlen(it->target), sizeof(h.target)));
	if (strlen(it->target) > sizeof(h.target))
		pax_text(&it->pax, "linkpath", it->target);
	octal(h.mode, sizeof(h.mode), it->st.st_mode & 0777);
	set_owner(&h, &it->pax, &it->st);
	octal(h.size, sizeof(h.size), it->stored <= OCTAL_11 ? it->stored : 0);
	if (it->stored > OCTAL_11)
		pax_number(&it->pax, "size", it->stored);
	octal(h.mtime, sizeof(h.mtime), MIN(seconds, (uint64_t)OCTAL_11));
	if (it->st.st_mtim.tv_nsec || it->st.st_mtim.tv_sec < 0 || seconds > OCTAL_11)
		pax_time(&it->pax, &it->st.st_mtim);
	put_pax(t, &it->pax);
	put_header(t, &h);
	t->w->end.count++;
}

/* ---- attributes ---- */

static void add_xattr(struct item *it, const char *name, const void *value, size_t n)
{
	autobuf struct strbuf key = STRBUF_INIT;

	strbuf_addstr(&key, "SCHILY.xattr.");
	for (const char *p = name; *p; p++) {
		if (*p == '%' || *p == '=')
			strbuf_addf(&key, "%%%02X", (unsigned)*p);
		else
			strbuf_addch(&key, *p);
	}
	pax_add(&it->pax, key.buf, value, n);
}

static void add_xattrs(struct tar_out *t, struct item *it, int fd)
{
	static char names[XATTR_LIST_MAX], value[XATTR_SIZE_MAX];
	ssize_t n = flistxattr(fd, names, sizeof(names));

	for (ssize_t at = 0; at < n; at += (ssize_t)strlen(names + at) + 1) {
		ssize_t size;

		if (strncmp(names + at, "user.", 5) != 0)
			continue;
		size = fgetxattr(fd, names + at, value, sizeof(value));
		if (size >= 0 && it->pax.len + (size_t)size < XATTRS_BYTES)
			add_xattr(it, names + at, value, (size_t)size);
		else
			t->w->end.skipped++;
	}
}

/* ---- files ---- */

static void add_region(struct item *it, off_t from, off_t to)
{
	/* In steps, so that not each of them moves all. */
	if (it->n_map % 64 == 0)
		it->map = xrealloc(it->map, (it->n_map + 64) * sizeof(*it->map));
	it->map[it->n_map++] = (struct tar_region){ (uint64_t)from, (uint64_t)(to - from) };
	it->stored += (uint64_t)(to - from);
}

/* Where the data is; no map when all of it is, or the file system doesn't say. */
static void find_regions(struct item *it, int fd)
{
	const off_t size = it->st.st_size;
	off_t at = 0, from, to;

	it->stored = (uint64_t)size;
	if (it->st.st_blocks >= size / 512 || !size)
		return;
	it->stored = 0;
	while (at < size) {
		from = lseek(fd, at, SEEK_DATA);
		if (from < 0 && errno == ENXIO)
			break;
		to = from < 0 ? -1 : lseek(fd, from, SEEK_HOLE);
		if (from < 0)
			from = at; /* it doesn't say */
		/* The last region takes what is left when there are too many. */
		if (to <= from || to > size || it->n_map + 2 == TAR_REGIONS_MAX)
			to = size;
		if (from >= size)
			break;
		add_region(it, from, to);
		at = to;
	}
	if (it->stored == (uint64_t)size) {
		free(it->map);
		it->map = NULL;
		it->n_map = 0;
	} else if (at < size) {
		add_region(it, size, size); /* a hole at the end: GNU tar wants to be told */
	}
}

static void make_map_text(struct item *it)
{
	strbuf_addf(&it->map_text, "%zu\n", it->n_map);
	for (size_t i = 0; i < it->n_map; i++)
		strbuf_addf(&it->map_text, "%llu\n%llu\n", (unsigned long long)it->map[i].offset,
			    (unsigned long long)it->map[i].length);
	while (it->map_text.len % TAR_BLOCK)
		strbuf_addch(&it->map_text, '\0');
	it->stored += it->map_text.len;
}

/* Exactly n bytes from offset, with zeroes for what can't be read; false then. */
static bool put_range(struct tar_out *t, int fd, uint64_t offset, uint64_t n)
{
	while (n) {
		size_t room = (size_t)MIN(n, (uint64_t)(sizeof(t->buf) - t->n));
		ssize_t r = pread(fd, t->buf + t->n, room, (off_t)offset);

		if (r <= 0) {
			for (; n; n -= room) {
				room = (size_t)MIN(n, (uint64_t)sizeof(t->buf));
				put(t, NULL, room);
			}
			return false;
		}
		t->n += (size_t)r;
		t->bytes += (uint64_t)r;
		offset += (uint64_t)r;
		n -= (uint64_t)r;
		if (t->n == sizeof(t->buf))
			flush(t);
	}
	return true;
}

static void put_content(struct tar_out *t, struct item *it, int fd)
{
	bool whole = true;

	if (it->map) {
		put(t, it->map_text.buf, it->map_text.len);
		for (size_t i = 0; i < it->n_map; i++)
			whole &= put_range(t, fd, it->map[i].offset, it->map[i].length);
	} else {
		whole = put_range(t, fd, 0, it->stored);
	}
	put_padding(t);
	t->w->end.skipped += !whole;
}

/* The name under which the same file is in the archive already, or NULL. */
static const char *find_link(struct tar_out *t, const struct item *it)
{
	char key[48];
	const char *first;

	if (it->st.st_nlink < 2)
		return NULL;
	(void)snprintf(key, sizeof(key), "%llu:%llu", (unsigned long long)it->st.st_dev,
		       (unsigned long long)it->st.st_ino);
	first = map_find(&t->links, key);
	if (!first && t->links_bytes < LINKS_BYTES) {
		t->links_bytes += strlen(it->name) + sizeof(key) + 64;
		(void)map_set(&t->links, key, xstrdup(it->name));
	}
	return first;
}

static void put_regular(struct tar_out *t, struct item *it, int fd)
{
	const char *first = find_link(t, it);

	if (first) {
		it->type = TAR_LINK;
		memcpy(it->target, first, strlen(first) + 1);
		put_entry(t, it);
		return;
	}
	add_xattrs(t, it, fd);
	find_regions(it, fd);
	if (it->map)
		make_map_text(it);
	put_entry(t, it);
	put_content(t, it, fd);
}

/* ---- one entry ---- */

static void item_release(struct item *it)
{
	strbuf_release(&it->pax);
	strbuf_release(&it->map_text);
	free(it->map);
}

/* dir/name as what it is: false when it can't be read, or isn't for an archive. */
static bool put_item(struct tar_out *t, struct item *it, int dir, const char *name)
{
	int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	autoclose int fd = -EBADF;
	ssize_t n;

	if (S_ISREG(it->st.st_mode) || S_ISDIR(it->st.st_mode)) {
		mode_t type = it->st.st_mode & S_IFMT;

		fd = openat(dir, name, flags);
		/* Of a directory that can't be read at least the name is known. */
		if (fd < 0 && (type != S_IFDIR || errno != EACCES))
			return false;
		if (fd >= 0 && (fstat(fd, &it->st) < 0 || (it->st.st_mode & S_IFMT) != type)) {
			errno = ENOENT; /* what was there is gone */
			return false;
		}
	}
	switch (it->st.st_mode & S_IFMT) {
	case S_IFREG:
		it->type = TAR_FILE;
		put_regular(t, it, fd);
		return true;
	case S_IFDIR:
		it->type = TAR_DIRECTORY;
		if (fd >= 0)
			add_xattrs(t, it, fd);
		break;
	case S_IFLNK:
		it->type = TAR_SYMLINK;
		n = readlinkat(dir, name, it->target, sizeof(it->target) - 1);
		if (n < 0)
			return false;
		it->target[n] = '\0';
		break;
	case S_IFIFO:
		it->type = TAR_FIFO;
		break;
	default:
		return true;
	}
	put_entry(t, it);
	return true;
}

static int add(struct tar_out *t, int dir, const char *name, const char *path,
	       struct garret_error *err)
{
	autofree char *in_archive = xasprintf("%s/", path);
	struct item *it = xnew(struct item);
	int rc = worker_check_time(t->w, err);
	bool done;

	strbuf_init(&it->pax);
	strbuf_init(&it->map_text);
	it->name = in_archive;
	done = fstatat(dir, name, &it->st, AT_SYMLINK_NOFOLLOW) == 0;
	if (done && !S_ISDIR(it->st.st_mode))
		in_archive[strlen(in_archive) - 1] = '\0';
	if (rc == 0 && !(done && put_item(t, it, dir, name)) && errno != ENOENT)
		t->w->end.skipped++;
	item_release(it);
	free(it);
	if (rc == 0 && t->w->rq.max_bytes && t->bytes > t->w->rq.max_bytes)
		rc = garret_fail(err, GARRET_TOO_LARGE, "the archive has more than %llu bytes",
				 (unsigned long long)t->w->rq.max_bytes);
	if (rc == 0 && t->w->rq.max_entries && t->w->end.count > t->w->rq.max_entries)
		rc = garret_fail(err, GARRET_TOO_LARGE, "the archive has more than %u entries",
				 t->w->rq.max_entries);
	return rc;
}

static int add_item(void *ctx, const struct treewalk_item *it, struct garret_error *err)
{
	struct tar_out *t = ctx;

	if (it->type == DT_LNK && t->w->rq.flags & FILE_NOFOLLOW)
		return 0;
	return add(t, it->dir, it->name, it->path, err);
}

/* ---- the operation ---- */

/* The file that path means, under its own name. */
static int add_file(struct tar_out *t, struct garret_error *err)
{
	autobuf struct strbuf real = STRBUF_INIT;
	char name[PATH_NAME], shown[PATH_NAME];
	autoclose int dir = worker_open_parent(t->w, t->w->rq.path, shown, err);
	autoclose int real_dir = -EBADF;
	int rc;

	if (dir < 0)
		return dir;
	if (t->w->rq.flags & FILE_RELATIVE)
		return add(t, dir, shown, shown, err);
	rc = path_real(t->w, t->w->rq.path, &real, err);
	if (rc < 0)
		return rc;
	real_dir = worker_open_parent(t->w, real.buf, name, err);
	return real_dir < 0 ? real_dir : add(t, real_dir, name, shown, err);
}

static int add_path(struct tar_out *t, struct garret_error *err)
{
	static const struct treewalk_ops ops = { .item = add_item };
	struct worker *w = t->w;
	autoclose int look = worker_open(w, w->rq.path, O_PATH);
	autoclose int fd = -EBADF;
	struct stat st;

	if (look < 0 || fstat(look, &st) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
		return garret_fail(err, GARRET_NOT_REGULAR, "%s", w->rq.path);
	fd = worker_open(w, w->rq.path, O_RDONLY);
	if (fd < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	return S_ISDIR(st.st_mode) ? treewalk(w, fd, w->rq.max_depth, &ops, t, err)
				   : add_file(t, err);
}

static void free_name(const char *key, void *value, void *ctx)
{
	free(value);
}

int op_tar_out(struct worker *w, struct garret_error *err)
{
	static struct tar_out t;
	int rc;

	t.w = w;
	t.bytes = t.n = t.links_bytes = 0;
	map_init(&t.links);
	rc = add_path(&t, err);
	if (rc == 0) {
		put(&t, NULL, 2 * TAR_BLOCK);
		flush(&t);
	}
	map_foreach(&t.links, free_name, NULL);
	map_release(&t.links);
	return rc;
}
