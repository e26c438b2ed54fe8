/*
 * A segment is a header of 16 bytes (magic, version, the random number) and
 * records; a record is a header of 16 bytes (length, type, zero, check value)
 * and its bytes.  Everything is little-endian.
 *
 * Records are written at their place, not with O_APPEND: what a failed write
 * left behind the end is cut off at once, and if even that fails the next
 * record covers it.
 */
#include "core/journal.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#define MAGIC 0x4c4a5247u /* "GRJL" */
#define VERSION 1u
#define VERSIONS 255u /* what is above was never a version */
#define HEADER_BYTES 16u
#define SEGMENT_BYTES (1u << 20)

struct segment_header {
	uint32_t magic, version;
	uint64_t seed;
};

struct record_header {
	uint32_t length;
	uint16_t type, zero;
	uint64_t check;
};

struct segment {
	uint64_t start; /* position of its first byte */
	uint64_t size, seed;
};

struct journal {
	int dir;
	char *name;
	uint64_t segment_size;
	struct segment *segments; /* by start; the last one is written to; NULL: none yet */
	size_t n;
	int fd; /* of the last one; -EBADF until it is needed */
};

/* ---- check values ---- */

/* Eight bytes at a time: each step is one-to-one, so a change in one word is always seen. */
static uint64_t mix(uint64_t h, uint64_t word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 29;
}

struct check {
	uint64_t h;
	uint8_t pending[8];
	unsigned n;
};

static void check_add(struct check *c, const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t word;

	while (n) {
		size_t k = MIN(n, sizeof(c->pending) - c->n);

		if (!c->n && n >= sizeof(word)) {
			memcpy(&word, p, k = sizeof(word));
			c->h = mix(c->h, le64toh(word));
		} else {
			memcpy(c->pending + c->n, p, k);
			c->n += (unsigned)k;
			if (c->n == sizeof(c->pending)) {
				memcpy(&word, c->pending, sizeof(word));
				c->h = mix(c->h, le64toh(word));
				c->n = 0;
			}
		}
		p += k;
		n -= k;
	}
}

static struct check check_begin(uint64_t seed, uint64_t position, uint32_t length, uint16_t type)
{
	uint64_t h = mix(mix(seed, position), (uint64_t)type << 32 | length);

	return (struct check){ .h = h };
}

static uint64_t check_end(struct check *c)
{
	uint64_t word = 0;

	memcpy(&word, c->pending, c->n);
	return mix(mix(c->h, le64toh(word)), 0x6a09e667f3bcc908u);
}

/* ---- files ---- */

static char *segment_path(const struct journal *j, uint64_t start)
{
	return xasprintf("%s.%016llx", j->name, (unsigned long long)start);
}

static struct segment *last(const struct journal *j)
{
	return j->segments ? &j->segments[j->n - 1] : NULL;
}

static struct segment *add_segment(struct journal *j, const struct segment *s)
{
	j->segments = xrealloc(j->segments, (j->n + 1) * sizeof(*j->segments));
	j->segments[j->n] = *s;
	return &j->segments[j->n++];
}

/* Open for writing if it is the last one, and kept then; *ret_own is to be closed. */
static int segment_open(struct journal *j, const struct segment *s, int *ret_own,
			struct garret_error *err)
{
	autofree char *path = NULL;
	bool newest = s == last(j);
	int fd;

	*ret_own = -EBADF;
	if (newest && j->fd >= 0)
		return j->fd;
	path = segment_path(j, s->start);
	fd = openat(j->dir, path, (newest ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "open %s", path);
	if (newest)
		j->fd = fd;
	else
		*ret_own = fd;
	return fd;
}

/* All of n bytes at AT, or -1 with errno (EIO: the file is shorter). */
static int read_at(int fd, void *buf, size_t n, uint64_t at)
{
	size_t done = 0;

	while (done < n) {
		ssize_t got = pread(fd, (uint8_t *)buf + done, n - done, (off_t)(at + done));

		if (got < 0 && errno == EINTR)
			continue;
		if (got == 0)
			errno = EIO;
		if (got <= 0)
			return -1;
		done += (size_t)got;
	}
	return 0;
}

/* What is behind AT is false.  Should it stay all the same, the next record covers it. */
static void cut(int fd, uint64_t at)
{
	if (ftruncate(fd, (off_t)at) < 0)
		log_debug("journal", "cut off: %s", strerror(errno));
}

/* ---- reading ---- */

static struct record_header parse_header(const uint8_t *p)
{
	struct record_header h;

	memcpy(&h, p, sizeof(h));
	return (struct record_header){ .length = le32toh(h.length),
				       .type = le16toh(h.type),
				       .zero = h.zero,
				       .check = le64toh(h.check) };
}

/* Tell the good records of a segment from position `from` on; how many bytes of it are good. */
static uint64_t scan(const struct segment *s, const uint8_t *bytes, uint64_t size, uint64_t from,
		     journal_each_fn each, void *ctx)
{
	uint64_t at = HEADER_BYTES;

	while (size - at >= HEADER_BYTES) {
		struct record_header h = parse_header(bytes + at);
		const uint8_t *data = bytes + at + HEADER_BYTES;
		struct check c = check_begin(s->seed, s->start + at, h.length, h.type);
		struct journal_record r = {
			.position = s->start + at, .type = h.type, .data = data, .n = h.length
		};

		if (h.zero || h.length > JOURNAL_RECORD_MAX || h.length > size - at - HEADER_BYTES)
			break;
		check_add(&c, data, h.length);
		if (check_end(&c) != h.check)
			break;
		at += HEADER_BYTES + h.length;
		r.next = s->start + at;
		if (each && r.position >= from)
			each(ctx, &r);
	}
	return at;
}

/* The bytes of a whole segment: a little more than 1 MiB, or what a false file has. */
static uint8_t *load(int fd, uint64_t size, const char *path, struct garret_error *err)
{
	uint8_t *bytes = size < SIZE_MAX ? try_alloc((size_t)size + 1) : NULL;

	if (bytes && read_at(fd, bytes, (size_t)size, 0) == 0)
		return bytes;
	(void)garret_fail_errno(err, "read %s", path);
	free(bytes);
	return NULL;
}

/* Its version, and *s; 0: it is none of ours (nor of a later version). */
static uint32_t parse_segment(const uint8_t *bytes, uint64_t size, struct segment *s)
{
	struct segment_header h;

	if (size < sizeof(h))
		return 0;
	memcpy(&h, bytes, sizeof(h));
	s->seed = le64toh(h.seed);
	h.version = le32toh(h.version);
	return le32toh(h.magic) == MAGIC && h.version <= VERSIONS ? h.version : 0;
}

/* The file of that start: checked, told, cut if need be, and one of ours then. */
static int load_segment(struct journal *j, uint64_t start, journal_each_fn each, void *ctx,
			struct garret_error *err)
{
	struct segment s = { .start = start }, *before = last(j);
	uint32_t version;
	autofree char *path = segment_path(j, start);
	autofree uint8_t *bytes = NULL;
	autoclose int fd = openat(j->dir, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	/* A read-only file system still has what can be read. */
	if (fd < 0 && errno == EROFS)
		fd = openat(j->dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "open %s", path);
	s.size = (uint64_t)st.st_size;
	bytes = load(fd, s.size, path, err);
	if (!bytes)
		return -GARRET_INTERNAL;
	version = parse_segment(bytes, s.size, &s);
	if (version > VERSION)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "%s was written by a newer version (%u, this one knows %u)",
				   path, version, VERSION);
	if (!version || (before && before->start + before->size > start)) {
		log_warn("journal_cut", "file=%s all of its %llu bytes are false", path,
			 (unsigned long long)s.size);
		(void)unlinkat(j->dir, path, 0);
		return 0;
	}
	s.size = scan(&s, bytes, s.size, 0, each, ctx);
	if (s.size < (uint64_t)st.st_size) {
		log_warn("journal_cut", "file=%s the last %llu bytes are false", path,
			 (unsigned long long)((uint64_t)st.st_size - s.size));
		cut(fd, s.size);
	}
	(void)add_segment(j, &s);
	return 0;
}

/* ---- opening ---- */

/* The start of a segment from the name of its file; false: it is no segment. */
static bool parse_name(const char *file, const char *base, uint64_t *ret)
{
	size_t n = strlen(base);
	char *end;

	if (strncmp(file, base, n) != 0 || file[n] != '.' || strlen(file + n + 1) != 16 ||
	    file[n + 1 + strspn(file + n + 1, "0123456789abcdef")])
		return false;
	*ret = strtoull(file + n + 1, &end, 16);
	return true;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The starts of all segments, sorted; how many, or -code. */
static ssize_t list_segments(const struct journal *j, uint64_t **ret, struct garret_error *err)
{
	const char *slash = strrchr(j->name, '/');
	autofree char *folder = slash ? xstrndup(j->name, (size_t)(slash - j->name)) : xstrdup(".");
	int fd = openat(j->dir, folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	autodir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	uint64_t start;
	struct dirent *e;
	ssize_t n = 0;

	if (!dir) {
		fd_close(fd);
		return garret_fail_errno(err, "list the files of %s", j->name);
	}
	while ((e = readdir(dir)))
		if (parse_name(e->d_name, slash ? slash + 1 : j->name, &start)) {
			*ret = xrealloc(*ret, (size_t)(n + 1) * sizeof(**ret));
			(*ret)[n++] = start;
		}
	if (n)
		qsort(*ret, (size_t)n, sizeof(**ret), by_value);
	return n;
}

int journal_open(const struct journal_settings *set, journal_each_fn each, void *ctx,
		 struct journal **ret, struct garret_error *err)
{
	struct journal *j = xnew(struct journal);
	autofree uint64_t *starts = NULL;
	ssize_t n;
	int rc;

	j->dir = set->dir;
	j->name = xstrdup(set->name);
	j->segment_size = set->segment_size ? set->segment_size : SEGMENT_BYTES;
	j->fd = -EBADF;
	n = list_segments(j, &starts, err);
	rc = n < 0 ? (int)n : 0;
	for (ssize_t i = 0; starts && i < n && rc == 0; i++)
		rc = load_segment(j, starts[i], each, ctx, err);
	if (rc < 0) {
		journal_free(j);
		return rc;
	}
	*ret = j;
	return 0;
}

struct journal *journal_free(struct journal *j)
{
	if (!j)
		return NULL;
	fd_close(j->fd);
	free(j->segments);
	free(j->name);
	free(j);
	return NULL;
}

/* ---- appending ---- */

static int begin_segment(struct journal *j, struct segment **ret, struct garret_error *err)
{
	struct segment s = { .start = journal_end(j), .size = HEADER_BYTES };
	struct segment_header h = { .magic = htole32(MAGIC), .version = htole32(VERSION) };
	autofree char *path = segment_path(j, s.start);
	autoclose int fd = -EBADF;

	if (getrandom(&s.seed, sizeof(s.seed), 0) != (ssize_t)sizeof(s.seed))
		return garret_fail_errno(err, "random bytes");
	h.seed = htole64(s.seed);
	fd = openat(j->dir, path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return garret_fail_errno(err, "make %s", path);
	if (write_full(fd, &h, sizeof(h)) < 0) {
		int rc = garret_fail_errno(err, "write %s", path);

		(void)unlinkat(j->dir, path, 0);
		return rc;
	}
	fd_close(j->fd);
	j->fd = take_fd(&fd);
	*ret = add_segment(j, &s);
	return 0;
}

/* One write; what came only in part is taken back. */
static int write_record(int fd, const struct iovec *iov, unsigned n, size_t bytes, uint64_t at)
{
	ssize_t got;
	int sys;

	do
		got = pwritev(fd, iov, (int)n, (off_t)at);
	while (got < 0 && errno == EINTR);
	if (got == (ssize_t)bytes)
		return 0;
	sys = got < 0 ? errno : ENOSPC;
	cut(fd, at);
	errno = sys;
	return -1;
}

int journal_append_parts(struct journal *j, uint16_t type, const struct iovec *parts,
			 unsigned n_parts, uint64_t *ret_position, struct garret_error *err)
{
	struct iovec iov[1 + JOURNAL_PARTS_MAX];
	struct record_header h = { .type = htole16(type) };
	struct segment *s = last(j);
	int fd, own, rc = 0;
	size_t n = 0;
	struct check c;

	for (unsigned i = 0; i < n_parts && i < JOURNAL_PARTS_MAX; i++)
		n += parts[i].iov_len;
	if (n > JOURNAL_RECORD_MAX || n_parts > JOURNAL_PARTS_MAX)
		return garret_fail(err, GARRET_TOO_LARGE,
				   "a record has %zu bytes in %u parts; the limits are %u and %d",
				   n, n_parts, JOURNAL_RECORD_MAX, JOURNAL_PARTS_MAX);
	if (s && s->size >= j->segment_size)
		s = NULL;
	if (!s)
		rc = begin_segment(j, &s, err);
	if (!s)
		return rc;
	fd = segment_open(j, s, &own, err);
	if (fd < 0)
		return fd;
	c = check_begin(s->seed, s->start + s->size, (uint32_t)n, type);
	for (unsigned i = 0; i < n_parts; i++) {
		check_add(&c, parts[i].iov_base, parts[i].iov_len);
		iov[i + 1] = parts[i];
	}
	h.length = htole32((uint32_t)n);
	h.check = htole64(check_end(&c));
	iov[0] = (struct iovec){ &h, sizeof(h) };
	if (write_record(fd, iov, n_parts + 1, sizeof(h) + n, s->size) < 0)
		return garret_fail_errno(err, "write to %s", j->name);
	if (ret_position)
		*ret_position = s->start + s->size;
	s->size += sizeof(h) + n;
	return 0;
}

int journal_append(struct journal *j, uint16_t type, const void *data, size_t n,
		   uint64_t *ret_position, struct garret_error *err)
{
	const struct iovec part = { (void *)(uintptr_t)data, n };

	return journal_append_parts(j, type, &part, 1, ret_position, err);
}

/* ---- what is there ---- */

struct reading {
	journal_while_fn each;
	void *ctx;
	bool enough;
};

static void tell_while(void *ctx, const struct journal_record *r)
{
	struct reading *q = ctx;

	q->enough = q->enough || !q->each(q->ctx, r);
}

int journal_each(struct journal *j, uint64_t from, journal_while_fn each, void *ctx,
		 struct garret_error *err)
{
	struct reading q = { .each = each, .ctx = ctx };

	for (size_t i = 0; i < j->n && !q.enough; i++) {
		const struct segment s = j->segments[i];
		autofree uint8_t *bytes = NULL;
		autoclose int own = -EBADF;
		int fd;

		if (s.start + s.size <= from)
			continue;
		fd = segment_open(j, &j->segments[i], &own, err);
		if (fd < 0)
			return fd;
		bytes = load(fd, s.size, j->name, err);
		if (!bytes)
			return -GARRET_INTERNAL;
		(void)scan(&s, bytes, s.size, from, tell_while, &q);
	}
	return 0;
}

static struct segment *segment_of(struct journal *j, uint64_t position)
{
	for (size_t i = j->n; i-- > 0;)
		if (j->segments[i].start <= position)
			return &j->segments[i];
	return NULL;
}

ssize_t journal_read(struct journal *j, uint64_t position, uint64_t offset, void *buf, size_t cap,
		     struct garret_error *err)
{
	struct segment *s = segment_of(j, position);
	uint64_t at = s ? position - s->start : 0;
	uint8_t bytes[HEADER_BYTES];
	autoclose int own = -EBADF;
	struct record_header h;
	size_t n;
	int fd;

	if (!s || at < HEADER_BYTES || at + HEADER_BYTES > s->size)
		return garret_fail(err, GARRET_NOT_FOUND, "%s has no record at %llu", j->name,
				   (unsigned long long)position);
	fd = segment_open(j, s, &own, err);
	if (fd < 0)
		return fd;
	if (read_at(fd, bytes, sizeof(bytes), at) < 0)
		return garret_fail_errno(err, "read %s", j->name);
	h = parse_header(bytes);
	if (h.length > s->size - at - HEADER_BYTES)
		return garret_fail(err, GARRET_NOT_FOUND, "%s has no record at %llu", j->name,
				   (unsigned long long)position);
	n = offset < h.length ? MIN(cap, (size_t)(h.length - offset)) : 0;
	if (n && read_at(fd, buf, n, at + HEADER_BYTES + offset) < 0)
		return garret_fail_errno(err, "read %s", j->name);
	return (ssize_t)n;
}

void journal_drop(struct journal *j, uint64_t position)
{
	size_t n = 0;

	while (n + 1 < j->n && j->segments[n].start + j->segments[n].size <= position) {
		autofree char *path = segment_path(j, j->segments[n].start);

		if (unlinkat(j->dir, path, 0) < 0 && errno != ENOENT)
			break; /* it is found again at the next start */
		n++;
	}
	if (!n)
		return;
	j->n -= n;
	memmove(j->segments, j->segments + n, j->n * sizeof(*j->segments));
}

uint64_t journal_first(const struct journal *j)
{
	return j->segments ? j->segments[0].start : 0;
}

uint64_t journal_end(const struct journal *j)
{
	const struct segment *s = last(j);

	return s ? s->start + s->size : 0;
}

uint64_t journal_bytes(const struct journal *j)
{
	uint64_t n = 0;

	for (size_t i = 0; i < j->n; i++)
		n += j->segments[i].size;
	return n;
}
