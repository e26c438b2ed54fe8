#include "cli/tar_write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/strbuf.h"

#define BLOCK 512
#define DEPTH_MAX 512 /* one descriptor a level */
#define OCTAL_11 077777777777u

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

struct tree {
	const struct tar_write *to;
	const char *shown;
	struct strbuf path; /* of the entry under way, relative to the root */
	unsigned depth;
};

static const char zeroes[2 * BLOCK];

static int pad(const struct tree *t, uint64_t size, struct garret_error *err)
{
	size_t n = (size_t)((BLOCK - size % BLOCK) % BLOCK);

	return n ? t->to->write(t->to->ctx, zeroes, n, err) : 0;
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static void add_record(struct strbuf *out, const char *key, const char *value)
{
	const size_t rest = strlen(key) + strlen(value) + 3;
	size_t n = 0, now = rest;

	while (n != now) {
		n = now;
		now = rest + (size_t)snprintf(NULL, 0, "%zu", n);
	}
	strbuf_addf(out, "%zu %s=%s\n", n, key, value);
}

static int write_header(const struct tree *t, const char *name, const char *target, char type,
			mode_t mode, uint64_t size, time_t mtime, struct garret_error *err)
{
	struct header h = { .type = type, .magic = "ustar", .version = { '0', '0' } };
	unsigned sum = 0;

	_Static_assert(sizeof(struct header) == BLOCK, "a header is one block");
	/* The rest of a longer one is in the pax header in front. */
	memcpy(h.name, name, MIN(strlen(name), sizeof(h.name)));
	memcpy(h.target, target, MIN(strlen(target), sizeof(h.target)));
	(void)snprintf(h.mode, sizeof(h.mode), "%07o", (unsigned)mode & 0777);
	(void)snprintf(h.uid, sizeof(h.uid), "%07o", 0);
	(void)snprintf(h.gid, sizeof(h.gid), "%07o", 0);
	(void)snprintf(h.size, sizeof(h.size), "%011llo",
		       (unsigned long long)(size > OCTAL_11 ? 0 : size));
	(void)snprintf(h.mtime, sizeof(h.mtime), "%011llo",
		       (unsigned long long)(mtime < 0 ? 0 : (uint64_t)mtime & OCTAL_11));
	memset(h.sum, ' ', sizeof(h.sum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += ((const unsigned char *)&h)[i];
	(void)snprintf(h.sum, sizeof(h.sum), "%06o", sum);
	return t->to->write(t->to->ctx, &h, sizeof(h), err);
}

static int write_entry(const struct tree *t, const char *target, char type, const struct stat *st,
		       struct garret_error *err)
{
	const uint64_t size = type == '0' ? (uint64_t)st->st_size : 0;
	autobuf struct strbuf pax = STRBUF_INIT;
	char number[24];
	int rc = 0;

	if (t->path.len > 100)
		add_record(&pax, "path", t->path.buf);
	if (strlen(target) > 100)
		add_record(&pax, "linkpath", target);
	(void)snprintf(number, sizeof(number), "%llu", (unsigned long long)size);
	if (size > OCTAL_11)
		add_record(&pax, "size", number);
	if (pax.len) {
		rc = write_header(t, "././@PaxHeader", "", 'x', 0644, pax.len, 0, err);
		if (rc == 0)
			rc = t->to->write(t->to->ctx, pax.buf, pax.len, err);
		if (rc == 0)
			rc = pad(t, pax.len, err);
	}
	return rc ? rc
		  : write_header(t, t->path.buf, target, type, st->st_mode, size,
				 st->st_mtim.tv_sec, err);
}

static int fail_path(const struct tree *t, struct garret_error *err)
{
	return garret_fail_errno(err, "%s/%s", t->shown, t->path.buf);
}

static int write_file(const struct tree *t, int fd, const struct stat *st, struct garret_error *err)
{
	static char buf[64 * 1024];
	uint64_t left = (uint64_t)st->st_size;
	int rc = write_entry(t, "", '0', st, err);

	while (rc == 0 && left) {
		ssize_t n = read(fd, buf, (size_t)MIN(left, (uint64_t)sizeof(buf)));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_path(t, err);
		if (n == 0)
			return garret_fail(err, GARRET_CHANGED,
					   "%s/%s: it shrank while it was read", t->shown,
					   t->path.buf);
		left -= (uint64_t)n;
		rc = t->to->write(t->to->ctx, buf, (size_t)n, err);
	}
	return rc ? rc : pad(t, (uint64_t)st->st_size, err);
}

static int write_directory(struct tree *t, int fd, struct garret_error *err);

/* Opened first and looked at then: what it is can't change in between. */
static int write_opened(struct tree *t, int dir, const char *name, struct garret_error *err)
{
	autoclose int fd =
		openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;
	int rc;

	if (fd < 0 || fstat(fd, &st) < 0)
		return fail_path(t, err);
	if (S_ISREG(st.st_mode))
		return write_file(t, fd, &st, err);
	if (!S_ISDIR(st.st_mode))
		return garret_fail(err, GARRET_CHANGED, "%s/%s: it changed while it was read",
				   t->shown, t->path.buf);
	rc = write_entry(t, "", '5', &st, err);
	return rc ? rc : write_directory(t, fd, err);
}

static int write_name(struct tree *t, int dir, const char *name, struct garret_error *err)
{
	char target[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return fail_path(t, err);
	if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))
		return write_opened(t, dir, name, err);
	if (!S_ISLNK(st.st_mode)) {
		t->to->left_out(t->to->ctx, t->path.buf, "neither a file, a directory nor a link");
		return 0;
	}
	n = readlinkat(dir, name, target, sizeof(target) - 1);
	if (n < 0)
		return fail_path(t, err);
	target[n] = '\0';
	return write_entry(t, target, '2', &st, err);
}

static int not_dots(const struct dirent *e)
{
	return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int write_directory(struct tree *t, int fd, struct garret_error *err)
{
	struct dirent **names = NULL;
	const size_t before = t->path.len;
	int n, rc = 0;

	if (++t->depth > DEPTH_MAX)
		return garret_fail(err, GARRET_TOO_LARGE, "%s/%s: more than %d levels", t->shown,
				   t->path.buf, DEPTH_MAX);
	n = scandirat(fd, ".", &names, not_dots, by_bytes);
	if (n < 0)
		return fail_path(t, err);
	for (int i = 0; i < n; i++) {
		if (rc == 0) {
			if (before)
				strbuf_addch(&t->path, '/');
			strbuf_addstr(&t->path, names[i]->d_name);
			rc = write_name(t, fd, names[i]->d_name, err);
			t->path.len = before;
			t->path.buf[before] = '\0';
		}
		free(names[i]);
	}
	free(names);
	t->depth--;
	return rc;
}

int tar_write_tree(const struct tar_write *to, int dir, const char *shown, struct garret_error *err)
{
	struct tree t = { .to = to, .shown = shown, .path = STRBUF_INIT };
	int rc = write_directory(&t, dir, err);

	strbuf_release(&t.path);
	return rc ? rc : to->write(to->ctx, zeroes, sizeof(zeroes), err);
}
