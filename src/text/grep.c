#include "text/grep.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

/* ---- patterns ---- */

static int compile(const char *pattern, uint32_t options, pcre2_code **ret,
		   struct garret_error *err)
{
	pcre2_compile_context *c = pcre2_compile_context_create(NULL);
	PCRE2_UCHAR text[200];
	PCRE2_SIZE at;
	int code;

	if (!c)
		return garret_fail(err, GARRET_EXHAUSTED, "no memory for the pattern");
	(void)pcre2_set_newline(c, PCRE2_NEWLINE_ANYCRLF);
	*ret = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern), options, &code, &at, c);
	pcre2_compile_context_free(c);
	if (*ret)
		return 0;
	(void)pcre2_get_error_message(code, text, sizeof(text));
	return garret_fail(err, GARRET_INVALID, "the pattern is wrong at byte %zu: %s",
			   (size_t)at + 1, (const char *)text);
}

/* Nothing in it means anything but itself. */
static bool is_plain(const char *pattern, uint32_t flags)
{
	return *pattern && !(flags & FILE_NO_CASE) &&
	       (flags & FILE_FIXED || !pattern[strcspn(pattern, "\\^$.|?*+()[]{}")]);
}

int grep_compile(struct grep *g, const char *pattern, uint32_t flags, struct garret_error *err)
{
	/* Literal text has no classes that UCP could change. */
	uint32_t options = PCRE2_UTF | (flags & FILE_FIXED ? PCRE2_LITERAL : PCRE2_UCP) |
			   (flags & FILE_NO_CASE ? PCRE2_CASELESS : 0);
	int rc;

	*g = (struct grep){ .buf = try_alloc(GREP_PIECE) };
	if (!g->buf)
		return garret_fail(err, GARRET_EXHAUSTED, "no memory to search");
	if (is_plain(pattern, flags)) {
		g->fixed = xstrdup(pattern);
		g->fixed_bytes = strlen(pattern);
		return 0;
	}
	rc = compile(pattern, options, &g->valid, err);
	if (rc == 0)
		rc = compile(pattern, options | PCRE2_MATCH_INVALID_UTF, &g->any, err);
	if (rc == 0) {
		g->data = pcre2_match_data_create_from_pattern(g->valid, NULL);
		g->limits = pcre2_match_context_create(NULL);
		if (!g->data || !g->limits)
			rc = garret_fail(err, GARRET_EXHAUSTED, "no memory for the pattern");
	}
	if (rc < 0) {
		grep_done(g);
		return rc;
	}
	(void)pcre2_set_match_limit(g->limits, GREP_STEPS_MAX);
	(void)pcre2_set_depth_limit(g->limits, GREP_DEPTH_MAX);
	(void)pcre2_set_heap_limit(g->limits, GREP_HEAP_KIB);
	return 0;
}

void grep_done(struct grep *g)
{
	pcre2_match_data_free(g->data);
	pcre2_match_context_free(g->limits);
	pcre2_code_free(g->valid);
	pcre2_code_free(g->any);
	free(g->fixed);
	free(g->buf);
	*g = (struct grep){ .buf = NULL };
}

/* ---- a line ---- */

/* A line, or a piece of a long one. */
struct line {
	const char *text;
	size_t n; /* without \n */
	bool begins, ends;
	bool valid; /* UTF-8 */
};

struct search {
	struct grep *g;
	uint64_t line;            /* of what is searched next, from 1 */
	uint64_t before;          /* bytes of the line in earlier pieces */
	bool checked;             /* that it isn't binary */
	char head[FILE_LINE_MAX]; /* the beginning of a line that came in pieces */
};

static int may_go_on(const struct search *s, struct garret_error *err)
{
	return s->g->check ? s->g->check(s->g->ctx, err) : 0;
}

static int too_much(const struct search *s, int code, struct garret_error *err)
{
	PCRE2_UCHAR text[120];

	switch (code) {
	case PCRE2_ERROR_MATCHLIMIT:
		return garret_fail(err, GARRET_TOO_LARGE,
				   "line %llu takes the pattern more than %u steps (match limit)",
				   (unsigned long long)s->line, GREP_STEPS_MAX);
	case PCRE2_ERROR_DEPTHLIMIT:
		return garret_fail(err, GARRET_TOO_LARGE,
				   "line %llu takes the pattern deeper than %u (depth limit)",
				   (unsigned long long)s->line, GREP_DEPTH_MAX);
	case PCRE2_ERROR_HEAPLIMIT:
	case PCRE2_ERROR_NOMEMORY:
		return garret_fail(err, GARRET_TOO_LARGE,
				   "line %llu takes the pattern more than %u MiB (heap limit)",
				   (unsigned long long)s->line, GREP_HEAP_KIB / 1024);
	default:
		(void)pcre2_get_error_message(code, text, sizeof(text));
		return garret_fail(err, GARRET_INTERNAL, "match: %s", (const char *)text);
	}
}

/*
 * The next match at or behind `from`, not empty unless it is the line's first:
 * 1 with its bounds, 0, or -code.
 */
static int next_match(struct search *s, const struct line *l, size_t from, bool first,
		      size_t bounds[2], struct garret_error *err)
{
	const struct grep *g = s->g;
	uint32_t options = (first ? 0 : PCRE2_NOTEMPTY) | (l->begins ? 0 : PCRE2_NOTBOL) |
			   (l->ends ? 0 : PCRE2_NOTEOL) | (l->valid ? PCRE2_NO_UTF_CHECK : 0);
	const PCRE2_SIZE *found;
	int rc;

	if (g->fixed) {
		const char *at = memmem(l->text + from, l->n - from, g->fixed, g->fixed_bytes);

		bounds[0] = at ? (size_t)(at - l->text) : 0;
		bounds[1] = bounds[0] + g->fixed_bytes;
		return at != NULL;
	}
	rc = pcre2_match(l->valid ? g->valid : g->any, (PCRE2_SPTR)l->text, l->n, from, options,
			 g->data, g->limits);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0)
		return too_much(s, rc, err);
	found = pcre2_get_ovector_pointer(g->data);
	bounds[0] = found[0];
	bounds[1] = found[1];
	return found[0] <= found[1]; /* \K can put the start behind the end */
}

static uint32_t clamp(uint64_t n)
{
	return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void set_text(const struct search *s, const struct line *l, struct file_match *m)
{
	size_t n = l->n;

	m->text = s->before ? s->head : l->text;
	if (!s->before && l->ends && n && l->text[n - 1] == '\r')
		n--;
	m->cut = s->before || !l->ends || n > FILE_LINE_MAX;
	m->text_bytes = m->cut ? FILE_LINE_MAX : (uint32_t)n;
}

/* 0, GREP_STOP or -code. */
static int search_line(struct search *s, const struct line *l, struct garret_error *err)
{
	struct file_match m = { .name = "", .line = s->line };
	size_t from = 0, bounds[2] = { 0, 0 };
	bool first = true;
	int rc;

	while (from <= l->n && (rc = next_match(s, l, from, first, bounds, err)) != 0) {
		if (rc < 0)
			return rc;
		set_text(s, l, &m);
		m.column = clamp(s->before + bounds[0] + 1);
		m.length = clamp(bounds[1] - bounds[0]);
		rc = s->g->found(s->g->ctx, &m, err);
		if (rc == 0)
			rc = may_go_on(s, err);
		if (rc != 0)
			return rc;
		from = MAX(bounds[1], from);
		first = false;
	}
	return 0;
}

/* ---- a file ---- */

static uint64_t count_lines(const char *at, const char *end)
{
	uint64_t n = 0;

	while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
		at++;
		n++;
	}
	return n;
}

/* Where the line begins that the plain text is in next; NULL when it is in none. */
static const char *next_candidate(struct search *s, const char *at, const char *end)
{
	const char *hit = memmem(at, (size_t)(end - at), s->g->fixed, s->g->fixed_bytes);
	const char *start = hit ? memrchr(at, '\n', (size_t)(hit - at)) : NULL;

	start = start ? start + 1 : at;
	s->line += count_lines(at, hit ? start : end);
	return hit ? start : NULL;
}

/* Whole lines; the last one may be without an end. */
static int search_lines(struct search *s, const char *at, const char *end, struct garret_error *err)
{
	bool valid = !s->g->fixed && utf8_valid(at, (size_t)(end - at));
	int rc = 0;

	while (rc == 0 && at < end) {
		struct line l = { .text = at, .ends = true, .valid = valid };
		const char *line_end;

		if (s->g->fixed && !(l.text = next_candidate(s, at, end)))
			break;
		/* Only the first line of all can have begun in an earlier piece. */
		if (l.text != at)
			s->before = 0;
		at = l.text;
		l.begins = !s->before;
		line_end = memchr(at, '\n', (size_t)(end - at));
		l.n = (size_t)((line_end ? line_end : end) - at);
		if (!valid && !s->g->fixed)
			l.valid = utf8_valid(at, l.n);
		rc = s->line % 16 ? 0 : may_go_on(s, err);
		if (rc == 0)
			rc = search_line(s, &l, err);
		s->line += line_end != NULL;
		s->before = 0;
		at = line_end ? line_end + 1 : end;
	}
	s->before = 0;
	return rc;
}

/* Without a character that is cut off at the end. */
static size_t whole_characters(const char *text, size_t n)
{
	size_t back = 1;

	while (back < 4 && back < n && ((unsigned char)text[n - back] & 0xc0) == 0x80)
		back++;
	return (unsigned char)text[n - back] >= 0xc0 ? n - back : n;
}

/* All of the buffer belongs to one line, which goes on. */
static int search_piece(struct search *s, size_t n, struct garret_error *err)
{
	struct line l = { .text = s->g->buf, .n = n, .begins = !s->before };
	int rc;

	l.valid = !s->g->fixed && utf8_valid(l.text, n);
	if (!s->before)
		memcpy(s->head, l.text, sizeof(s->head));
	rc = search_line(s, &l, err);
	s->before += n;
	return rc;
}

/* What can be searched of the n bytes in the buffer; how many that are, in *ret. */
static int search_buffer(struct search *s, size_t n, bool all, size_t *ret,
			 struct garret_error *err)
{
	const char *buf = s->g->buf, *last = all ? NULL : memrchr(buf, '\n', n);

	*ret = all ? n : last ? (size_t)(last - buf) + 1 : 0;
	if (*ret)
		return search_lines(s, buf, buf + *ret, err);
	if (n < GREP_PIECE)
		return 0;
	*ret = whole_characters(buf, n);
	return search_piece(s, *ret, err);
}

int grep_bytes(struct grep *g, const void *data, size_t n, bool binary_too,
	       struct garret_error *err)
{
	struct search s = { .g = g, .line = 1, .checked = true };
	const char *text = data;

	if (!binary_too && memchr(text, '\0', MIN(n, (size_t)GREP_BINARY_BYTES)))
		return GREP_BINARY;
	return n ? search_lines(&s, text, text + n, err) : GREP_DONE;
}

int grep_fd(struct grep *g, int fd, bool binary_too, struct garret_error *err)
{
	struct search s = { .g = g, .line = 1, .checked = binary_too };
	size_t held = 0, used;

	for (;;) {
		ssize_t n = read(fd, g->buf + held, GREP_PIECE - held);
		int rc;

		if (n < 0)
			return GREP_UNREADABLE;
		held += (size_t)n;
		if (!s.checked && memchr(g->buf, '\0', MIN(held, (size_t)GREP_BINARY_BYTES)))
			return GREP_BINARY;
		s.checked = true;
		rc = search_buffer(&s, held, n == 0, &used, err);
		if (rc == 0)
			rc = may_go_on(&s, err);
		if (rc != 0)
			return rc;
		if (n == 0)
			return GREP_DONE;
		held -= used;
		memmove(g->buf, g->buf + used, held);
	}
}
