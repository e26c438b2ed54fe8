#include "cli/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"

#define PIECE (256 * 1024)
/*
 * So much of a pipe is read before the request begins: what comes slowly is
 * mostly short, and the daemon has no patience with bodies that trickle.
 */
#define AHEAD (4 * 1024 * 1024)

static char piece[PIECE];

int sink_fd(void *ctx, const void *data, size_t n, struct garret_error *err)
{
	const int *fd = ctx;

	return write_full(*fd, data, n) < 0 ? garret_fail_errno(err, "write standard output") : 0;
}

/* ---- from a session ---- */

/* *done counts on.  A failure of the daemon's side sets *lost. */
static int receive(struct files *f, const struct place *p, const struct sink *to, uint64_t *done,
		   bool *lost, struct progress *progress, struct garret_error *err)
{
	ssize_t n;
	int rc;

	while ((n = http1_read(&f->http, piece, sizeof(piece), err)) > 0) {
		rc = to->write(to->ctx, piece, (size_t)n, err);
		if (rc < 0) {
			http1_close(&f->http);
			return garret_wrap(rc, err, "%s", p->text);
		}
		*done += (uint64_t)n;
		if (progress)
			progress_add(progress, (uint64_t)n);
	}
	*lost = n < 0;
	return n < 0 ? garret_wrap((int)n, err, "%s", p->text) : 0;
}

int transfer_rest(struct files *f, const struct place *p, const struct sink *to,
		  struct progress *progress, struct garret_error *err)
{
	uint64_t done = 0;
	bool lost;

	return receive(f, p, to, &done, &lost, progress, err);
}

/* Ask for what is behind `done`, of the file that etag names. */
static int begin_get(struct files *f, const struct place *p, uint64_t done, const char *etag,
		     struct garret_error *err)
{
	struct files_request q = { .method = "GET", .route = "file", .length = HTTP1_NO_BODY };
	char more[160];
	int status = 0, rc;

	if (done) {
		(void)snprintf(more, sizeof(more), "Range: bytes=%llu-\r\nIf-Range: %s\r\n",
			       (unsigned long long)done, etag);
		q.more = more;
	}
	rc = files_begin(f, p, &q, err);
	if (rc == 0)
		rc = files_answer(f, p, &status, err);
	if (rc == 0 && done && status != 206) {
		http1_close(&f->http);
		return garret_fail(err, GARRET_CHANGED, "%s: it changed while it was read",
				   p->text);
	}
	return rc;
}

static void note_head(const struct files *f, mode_t *mode, struct progress *progress)
{
	char text[24];

	if (mode && http1_header(&f->http, "x-garret-mode", text, sizeof(text)))
		*mode = (mode_t)strtoul(text, NULL, 8);
	if (progress && !progress->many &&
	    http1_header(&f->http, "content-length", text, sizeof(text)))
		progress->total = strtoll(text, NULL, 10);
}

int transfer_get(struct files *f, const struct place *p, const struct sink *to, mode_t *mode,
		 struct progress *progress, struct garret_error *err)
{
	char etag[80] = "";
	uint64_t done = 0, before;
	bool lost = false;
	int rc;

	do {
		before = done;
		rc = begin_get(f, p, done, etag, err);
		if (rc < 0)
			return rc;
		if (!done) {
			if (!http1_header(&f->http, "etag", etag, sizeof(etag)))
				etag[0] = '\0';
			note_head(f, mode, progress);
		}
		rc = receive(f, p, to, &done, &lost, progress, err);
	} while (rc < 0 && lost && done > before && etag[0]);
	return rc;
}

/* ---- into a session ---- */

struct source {
	int fd;
	const char *name;
	int64_t left; /* HTTP1_CHUNKED: until its end */
	struct strbuf ahead;
};

/* As http1_send(). */
static int send_piece(struct files *f, const struct place *p, const void *data, size_t n,
		      struct progress *progress, struct garret_error *err)
{
	int rc = http1_send(&f->http, data, n, err);

	if (progress && rc == 0)
		progress_add(progress, n);
	return rc < 0 ? garret_wrap(rc, err, "%s", p->text) : rc;
}

static int send_source(struct files *f, const struct place *p, struct source *s,
		       struct progress *progress, struct garret_error *err)
{
	size_t want;
	ssize_t n;
	int rc = 0;

	for (size_t at = 0; rc == 0 && at < s->ahead.len; at += sizeof(piece))
		rc = send_piece(f, p, s->ahead.buf + at, MIN(sizeof(piece), s->ahead.len - at),
				progress, err);
	while (rc == 0 && s->left) {
		want = s->left > 0 ? (size_t)MIN((int64_t)sizeof(piece), s->left) : sizeof(piece);
		do
			n = read(s->fd, piece, want);
		while (n < 0 && errno == EINTR);
		if (n < 0)
			return garret_fail_errno(err, "read %s", s->name);
		if (n == 0 && s->left > 0)
			return garret_fail(err, GARRET_CHANGED, "%s: it shrank while it was read",
					   s->name);
		if (n == 0)
			break;
		s->left -= s->left > 0 ? n : 0;
		rc = send_piece(f, p, piece, (size_t)n, progress, err);
	}
	return rc;
}

/* A body whose length isn't known may be short: then it is. */
static int read_ahead(struct source *s, struct garret_error *err)
{
	ssize_t n;

	if (s->left != HTTP1_CHUNKED)
		return 0;
	strbuf_reserve(&s->ahead, AHEAD);
	n = read_full(s->fd, s->ahead.buf, AHEAD);
	if (n < 0)
		return garret_fail_errno(err, "read %s", s->name);
	s->ahead.len = (size_t)n;
	s->ahead.buf[n] = '\0';
	if (n < AHEAD)
		s->left = 0;
	return 0;
}

int transfer_put(struct files *f, const struct place *p, const struct files_request *q, int fd,
		 const char *name, struct progress *progress, struct garret_error *err)
{
	struct source s = { .fd = fd, .name = name, .left = q->length, .ahead = STRBUF_INIT };
	struct files_request sent = *q;
	int rc = read_ahead(&s, err);

	if (rc == 0 && !s.left)
		sent.length = (int64_t)s.ahead.len;
	if (rc == 0)
		rc = files_begin(f, p, &sent, err);
	if (rc == 0)
		rc = send_source(f, p, &s, progress, err);
	strbuf_release(&s.ahead);
	/* What isn't whole is given up by closing: the daemon drops it. */
	if (rc < 0)
		http1_close(&f->http);
	return rc < 0 ? rc : files_answer(f, p, NULL, err);
}
