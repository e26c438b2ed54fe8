/*
 * A slice of a text file, by lines.  The bytes are UTF-8 (a byte order mark is
 * left out), or where the request allows it Latin-1; else the file is binary.
 * Lines are those of base/lines.h, joined with newlines.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/lines.h"
#include "base/mem.h"
#include "init/content.h"

#define TEXT_MAX (64u << 20)

static int slice(struct worker *w, struct lines *t, struct garret_error *err)
{
	const uint64_t from = w->rq.offset;
	autobuf struct strbuf out = STRBUF_INIT;
	const uint8_t *line;
	size_t n;

	for (; lines_next(t, &line, &n); w->end.count++) {
		int rc = w->end.count % 4096 ? 0 : worker_check_time(w, err);

		if (rc < 0)
			return rc;
		if (w->end.count < from || w->end.count - from >= w->rq.length)
			continue;
		if (w->end.count > from)
			strbuf_addch(&out, '\n');
		lines_put(t, &out, line, n);
		if (out.len >= FILE_DATA_MAX) {
			worker_data(w, out.buf, out.len);
			strbuf_reset(&out);
		}
	}
	worker_data(w, out.buf, out.len);
	return 0;
}

int op_text(struct worker *w, struct garret_error *err)
{
	const uint64_t max = w->rq.max_bytes ? MIN(w->rq.max_bytes, (uint64_t)TEXT_MAX) : TEXT_MAX;
	autofree uint8_t *content = NULL;
	struct lines t;
	struct stat st;
	autoclose int fd = content_open(w, &st, err);
	ssize_t n;

	if (fd < 0)
		return fd;
	if ((uint64_t)st.st_size > max)
		return content_too_large((uint64_t)st.st_size, max, err);
	content = try_alloc((size_t)st.st_size + 1);
	if (!content)
		return garret_fail(err, GARRET_EXHAUSTED, "no memory for %s", w->rq.path);
	n = read_full(fd, content, (size_t)st.st_size);
	if (n < 0)
		return garret_fail_errno(err, "read %s", w->rq.path);
	lines_init(&t, content, (size_t)n);
	if (t.latin && !(w->rq.flags & FILE_LATIN))
		return garret_fail(err, GARRET_INVALID, "[Binary File]");
	return slice(w, &t, err);
}
