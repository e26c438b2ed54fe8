/*
 * A slice of a text file, by lines.  The bytes are UTF-8 (a byte order mark is
 * left out), or where the request allows it Latin-1; else the file is binary.
 * Lines end as Python's splitlines() has it and are joined with newlines.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "init/content.h"

#define TEXT_MAX (64u << 20)

struct text {
	const uint8_t *at, *end;
	bool latin;
};

/* How many bytes of a line's end are at p; 0: none. */
static size_t line_end(const struct text *t, const uint8_t *p)
{
	const size_t left = (size_t)(t->end - p);

	switch (*p) {
	case '\r':
		return left > 1 && p[1] == '\n' ? 2 : 1;
	case '\n':
	case '\v':
	case '\f':
	case 0x1C:
	case 0x1D:
	case 0x1E:
		return 1;
	case 0x85: /* NEL */
		return t->latin;
	case 0xC2: /* the same */
		return !t->latin && left > 1 && p[1] == 0x85 ? 2 : 0;
	case 0xE2: /* U+2028, U+2029 */
		return !t->latin && left > 2 && p[1] == 0x80 && (p[2] == 0xA8 || p[2] == 0xA9) ? 3
											       : 0;
	default:
		return 0;
	}
}

/* The next line, without its end; false when there is none. */
static bool next_line(struct text *t, const uint8_t **ret, size_t *ret_n)
{
	const uint8_t *p = t->at;
	size_t end = 0;

	if (p == t->end)
		return false;
	while (p < t->end && !(end = line_end(t, p)))
		p++;
	*ret = t->at;
	*ret_n = (size_t)(p - t->at);
	t->at = p + end;
	return true;
}

static void put_line(const struct text *t, struct strbuf *out, const uint8_t *line, size_t n)
{
	if (!t->latin) {
		strbuf_add(out, line, n);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		if (line[i] < 0x80) {
			strbuf_addch(out, line[i]);
		} else {
			strbuf_addch(out, 0xC0 | line[i] >> 6);
			strbuf_addch(out, 0x80 | (line[i] & 0x3F));
		}
	}
}

static int slice(struct worker *w, struct text *t, struct garret_error *err)
{
	const uint64_t from = w->rq.offset;
	autobuf struct strbuf out = STRBUF_INIT;
	const uint8_t *line;
	size_t n;

	for (; next_line(t, &line, &n); w->end.count++) {
		int rc = w->end.count % 4096 ? 0 : worker_check_time(w, err);

		if (rc < 0)
			return rc;
		if (w->end.count < from || w->end.count - from >= w->rq.length)
			continue;
		if (w->end.count > from)
			strbuf_addch(&out, '\n');
		put_line(t, &out, line, n);
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
	struct text t;
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
	t = (struct text){ .at = content, .end = content + n };
	t.latin = !utf8_valid((const char *)content, (size_t)n);
	if (t.latin && !(w->rq.flags & FILE_LATIN))
		return garret_fail(err, GARRET_INVALID, "[Binary File]");
	if (n >= 3 && !memcmp(content, "\xEF\xBB\xBF", 3))
		t.at += 3;
	return slice(w, &t, err);
}
