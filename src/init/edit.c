/* Exact replacements in a file of the session: see proto/edit.h. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "init/replace.h"
#include "proto/edit.h"

/* ---- the operation ---- */

struct work {
	struct worker *w;
	struct replace r;
	struct strbuf body;
	char *text;
	size_t n, max;
	struct stat st; /* of the file that text came from */
};

static int read_edits(struct work *k, struct garret_error *err)
{
	const void *data;
	size_t n;

	while ((n = worker_body(k->w, &data))) {
		if (k->body.len + n > EDIT_BODY_MAX)
			return garret_fail(err, GARRET_TOO_LARGE, "edits of more than %d bytes",
					   EDIT_BODY_MAX);
		strbuf_add(&k->body, data, n);
	}
	return 0;
}

/* The file that is replaced, not whatever has its name by now. */
static int read_file(struct work *k, struct garret_error *err)
{
	const char *path = k->w->rq.path;
	autoclose int fd = -EBADF;
	ssize_t n;

	if (!k->r.exists) {
		errno = ENOENT;
		return garret_fail_errno(err, "%s", path);
	}
	fd = openat(k->r.dir, k->r.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &k->st) < 0)
		return garret_fail_errno(err, "%s", path);
	if (k->st.st_ino != k->r.st.st_ino || k->st.st_dev != k->r.st.st_dev)
		return garret_fail(err, GARRET_CHANGED, "%s was replaced meanwhile", path);
	if ((uint64_t)k->st.st_size > k->max)
		return garret_fail(err, GARRET_TOO_LARGE, "%s has more than %zu bytes", path,
				   k->max);
	k->text = try_alloc((size_t)k->st.st_size + 1);
	if (!k->text)
		return garret_fail(err, GARRET_EXHAUSTED, "no memory for %s", path);
	n = read_full(fd, k->text, (size_t)k->st.st_size + 1);
	if (n < 0)
		return garret_fail_errno(err, "read %s", path);
	if (n != k->st.st_size)
		return garret_fail(err, GARRET_CHANGED, "%s changed while it was read", path);
	k->n = (size_t)n;
	return 0;
}

static int apply_edits(struct work *k, struct garret_error *err)
{
	struct worker *w = k->w;
	unsigned number = 0;
	struct edit e;
	struct get g;
	int rc = 0;

	get_init(&g, k->body.buf, k->body.len);
	while (rc == 0 && edit_next(&g, &e)) {
		size_t found;

		rc = edit_apply(&e, &k->text, &k->n, k->max, &found, err);
		number++;
		if (rc < 0) {
			w->end.count = found;
			/* Who asked for one needs no number. */
			if (number == 1 && !edit_next(&g, &e))
				return rc;
			return garret_wrap(rc, err, "edit %u", number);
		}
		w->end.count += found;
		rc = worker_check_time(w, err);
	}
	if (rc == 0 && (g.bad || !number))
		rc = garret_fail(err, GARRET_INVALID,
				 g.bad ? "edit %u is none, or has no old text" : "no edits",
				 number + 1);
	return rc;
}

/* What the request expects of the file and of the edits. */
static int check_digest(const struct work *k, struct garret_error *err)
{
	uint8_t digest[SHA256_DIGEST_SIZE], wanted[SHA256_DIGEST_SIZE];
	struct sha256_ctx sha;

	if (!*k->w->rq.include)
		return 0;
	sha256_init(&sha);
	sha256_update(&sha, k->n, (const uint8_t *)k->text);
	sha256_digest(&sha, sizeof(digest), digest);
	if (!hex_decode(k->w->rq.include, wanted, sizeof(wanted)))
		return garret_fail(err, GARRET_INVALID, "the digest is not 64 hex digits");
	if (memcmp(digest, wanted, sizeof(digest)) != 0)
		return garret_fail(err, GARRET_CHANGED, "%s has another content", k->w->rq.path);
	return 0;
}

static int check_count(const struct work *k, struct garret_error *err)
{
	const uint64_t wanted = k->w->rq.offset, found = k->w->end.count;

	if (!wanted || wanted == found)
		return 0;
	return garret_fail(err, GARRET_CONFLICT, "the old text is there %llu times, not %llu",
			   (unsigned long long)found, (unsigned long long)wanted);
}

/* Whoever wrote to the file since it was read has not seen this edit: theirs stays. */
static int check_unchanged(const struct work *k, struct garret_error *err)
{
	struct stat st;

	if (fstatat(k->r.dir, k->r.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    st.st_ino == k->st.st_ino && st.st_dev == k->st.st_dev && st.st_size == k->st.st_size &&
	    st.st_ctim.tv_sec == k->st.st_ctim.tv_sec &&
	    st.st_ctim.tv_nsec == k->st.st_ctim.tv_nsec)
		return 0;
	return garret_fail(err, GARRET_CHANGED, "%s changed while it was edited", k->w->rq.path);
}

static int edit(struct work *k, struct garret_error *err)
{
	struct worker *w = k->w;
	struct file_info info = { .name = "" };
	struct sha256_ctx sha;
	int rc = read_file(k, err);

	if (rc == 0)
		rc = check_digest(k, err);
	if (rc == 0)
		rc = apply_edits(k, err);
	if (rc == 0)
		rc = check_count(k, err);
	if (rc == 0 && write_full(k->r.fd, k->text, k->n) < 0)
		rc = garret_fail_errno(err, "write %s", w->rq.path);
	if (rc == 0)
		rc = check_unchanged(k, err);
	if (rc < 0) {
		replace_abort(w, &k->r);
		return rc;
	}
	rc = replace_commit(w, &k->r, &info, err);
	if (rc < 0)
		return rc;
	sha256_init(&sha);
	sha256_update(&sha, k->n, (const uint8_t *)k->text);
	sha256_digest(&sha, sizeof(w->end.digest), w->end.digest);
	worker_info(w, &info);
	return 0;
}

int op_edit(struct worker *w, struct garret_error *err)
{
	const uint64_t max = w->rq.max_bytes ? w->rq.max_bytes : EDIT_FILE_MAX;
	struct work k = { .w = w, .max = (size_t)MIN(max, (uint64_t)SSIZE_MAX / 2) };
	int rc;

	strbuf_init(&k.body);
	/* An edit makes nothing that isn't there. */
	w->rq.flags &= ~(uint32_t)(FILE_PARENTS | FILE_EXCLUSIVE);
	rc = read_edits(&k, err);
	if (rc == 0)
		rc = replace_begin(w, &k.r, w->rq.path, 0666, err);
	if (rc == 0)
		rc = edit(&k, err);
	strbuf_release(&k.body);
	free(k.text);
	return rc;
}
