/* Reading and writing the bytes of files. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "init/content.h"
#include "init/paths.h"
#include "init/replace.h"

#define PIPE_BYTES (1 << 20)
#define UNSIZED_MAX (1 << 20) /* of a file that doesn't say its size (/proc) */
#define PAGE 4096             /* what files of /sys say instead of their size */

static uint8_t buf[256 * 1024];

/* ---- reading ---- */

int content_too_large(uint64_t size, uint64_t max, struct garret_error *err)
{
	return garret_fail(err, GARRET_TOO_LARGE,
			   "File is %llu bytes, over the %llu-byte read limit",
			   (unsigned long long)size, (unsigned long long)max);
}

int content_open(struct worker *w, struct stat *st, struct garret_error *err)
{
	autoclose int fd = worker_open(w, w->rq.path, O_RDONLY);

	/* A socket can't be opened, nor a device that isn't there; a FIFO can. */
	if (fd < 0 && (errno == ENXIO || errno == ENODEV))
		return garret_fail(err, GARRET_NOT_REGULAR, "%s", w->rq.path);
	if (fd < 0 || fstat(fd, st) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	if (S_ISDIR(st->st_mode))
		return garret_fail(err, GARRET_IS_DIRECTORY, "%s", w->rq.path);
	if (!S_ISREG(st->st_mode))
		return garret_fail(err, GARRET_NOT_REGULAR, "%s", w->rq.path);
	return take_fd(&fd);
}

/* Which bytes are wanted of `size`; the number of them. */
static uint64_t range(const struct file_request *rq, uint64_t size, uint64_t *ret_from)
{
	uint64_t from = rq->flags & FILE_FROM_END ? size - MIN(rq->length, size) : rq->offset;

	*ret_from = MIN(from, size);
	return MIN(rq->length, size - *ret_from);
}

static int changed(const struct worker *w, struct garret_error *err)
{
	return garret_fail(err, GARRET_CHANGED, "%s shrank while it was read", w->rq.path);
}

static int copy_out(struct worker *w, int fd, uint64_t from, uint64_t n, struct garret_error *err)
{
	while (n) {
		ssize_t r = pread(fd, buf, MIN(n, (uint64_t)FILE_DATA_MAX), (off_t)from);

		if (r < 0)
			return garret_fail_errno(err, "read %s", w->rq.path);
		if (!r)
			return changed(w, err);
		worker_data(w, buf, (size_t)r);
		from += (uint64_t)r;
		n -= (uint64_t)r;
	}
	return 0;
}

static int splice_out(struct worker *w, int fd, int pipe_fd, uint64_t from, uint64_t n,
		      struct garret_error *err)
{
	off_t at = (off_t)from;

	(void)fcntl(pipe_fd, F_SETPIPE_SZ, PIPE_BYTES);
	(void)fd_set_nonblock(pipe_fd, false);
	while (n) {
		ssize_t r = splice(fd, &at, pipe_fd, NULL, MIN(n, (uint64_t)PIPE_BYTES),
				   SPLICE_F_MOVE | SPLICE_F_MORE);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0 && errno == EPIPE)
			return 0; /* who reads has enough */
		if (r < 0)
			return garret_fail_errno(err, "read %s", w->rq.path);
		if (!r)
			return changed(w, err);
		n -= (uint64_t)r;
	}
	return 0;
}

/* Files of /proc and /sys have a size that says nothing: what can be read is the file. */
static int read_unsized(struct worker *w, int fd, struct file_info *info, struct garret_error *err)
{
	autobuf struct strbuf all = STRBUF_INIT;
	uint64_t from, n;

	while (all.len < UNSIZED_MAX) {
		ssize_t r = read(fd, buf, sizeof(buf));

		if (r < 0)
			return garret_fail_errno(err, "read %s", w->rq.path);
		if (!r)
			break;
		strbuf_add(&all, buf, (size_t)r);
	}
	info->tag.size = all.len;
	worker_info(w, info);
	n = range(&w->rq, all.len, &from);
	worker_data(w, all.buf + from, n);
	return 0;
}

int op_read(struct worker *w, struct garret_error *err)
{
	struct file_info info = { .name = "" };
	struct stat st = { .st_size = 0 };
	autoclose int fd = content_open(w, &st, err);
	autoclose int pipe_fd = -EBADF;
	uint64_t from, n;

	if (fd < 0)
		return fd;
	worker_fill_info(&info, &st);
	if (!st.st_size || (!st.st_blocks && st.st_size <= PAGE))
		return read_unsized(w, fd, &info, err);
	if (w->rq.max_bytes && (uint64_t)st.st_size > w->rq.max_bytes)
		return content_too_large((uint64_t)st.st_size, w->rq.max_bytes, err);
	n = range(&w->rq, (uint64_t)st.st_size, &from);
	worker_info(w, &info);
	if (!(w->rq.flags & FILE_BY_PIPE) || n <= FILE_INLINE_MAX)
		return copy_out(w, fd, from, n, err);
	pipe_fd = worker_pipe(w);
	return pipe_fd < 0 ? 0 : splice_out(w, fd, pipe_fd, from, n, err);
}

/* ---- writing ---- */

/* The body to fd; -1 with errno. */
static int write_body(struct worker *w, int fd)
{
	const void *data;
	size_t n;

	w->large_pieces = true;
	while ((n = worker_body(w, &data))) {
		if (write_full(fd, data, n) < 0)
			return -1;
		w->undo_to += (off_t)n;
	}
	return 0;
}

/* Missing parents are made where they were asked for. */
static int open_append(struct worker *w)
{
	const int flags = O_WRONLY | O_APPEND | O_CREAT;
	int fd = worker_open(w, w->rq.path, flags);
	char name[PATH_NAME];

	if (fd >= 0 || errno != ENOENT || !(w->rq.flags & FILE_PARENTS))
		return fd;
	fd = path_make_parents(w, w->rq.path, name, NULL);
	if (fd < 0)
		return -1;
	fd_close(fd);
	return worker_open(w, w->rq.path, flags);
}

static int append(struct worker *w, struct garret_error *err)
{
	autoclose int fd = open_append(w);
	struct file_info info = { .name = "" };
	struct stat st;

	if (fd < 0 && errno == ENXIO)
		return garret_fail(err, GARRET_NOT_REGULAR, "%s", w->rq.path);
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	if (!S_ISREG(st.st_mode))
		return garret_fail(err, GARRET_NOT_REGULAR, "%s", w->rq.path);
	w->undo_fd = fd;
	w->undo_from = w->undo_to = st.st_size;
	if (write_body(w, fd) < 0 || (w->rq.flags & FILE_SYNC && fsync(fd) < 0)) {
		int rc = garret_fail_errno(err, "append to %s", w->rq.path);

		worker_undo_append(w);
		return rc;
	}
	w->undo_fd = -EBADF;
	if (fstat(fd, &st) < 0)
		return garret_fail_errno(err, "look at %s", w->rq.path);
	worker_fill_info(&info, &st);
	worker_info(w, &info);
	return 0;
}

int op_write(struct worker *w, struct garret_error *err)
{
	struct file_info info = { .name = "" };
	struct replace r;
	int rc;

	if (w->rq.flags & FILE_APPEND)
		return append(w, err);
	rc = replace_begin(w, &r, w->rq.path, w->rq.mode ? w->rq.mode : 0666, err);
	if (rc < 0)
		return rc;
	if (write_body(w, r.fd) < 0) {
		rc = garret_fail_errno(err, "write %s", w->rq.path);
		replace_abort(w, &r);
		return rc;
	}
	rc = replace_commit(w, &r, &info, err);
	if (rc == 0)
		worker_info(w, &info);
	return rc;
}
