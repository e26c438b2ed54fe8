/*
 * The writer and the reader.
 *
 * The writer keeps no state: whether a comma is due shows in the last byte, as
 * only an opening bracket, a colon or nothing can stand before a first value; a
 * comma is there when the caller put one because what was before it is sent.
 *
 * jansson refuses an escaped lone surrogate.  Such escapes are rewritten to
 * \ufffd before it sees them, which has the same length, so that offsets in
 * messages stay right.
 */
#include "net/json.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "net/json_internal.h"

#define SMALL 16384 /* bytes that the parser may have as they are */

/* ---- writing ---- */

static void separate(struct strbuf *out)
{
	if (out->len && !strchr("{[:,", out->buf[out->len - 1]))
		strbuf_addch(out, ',');
}

void json_open(struct strbuf *out, char bracket)
{
	separate(out);
	strbuf_addch(out, bracket);
}

void json_close(struct strbuf *out, char bracket)
{
	strbuf_addch(out, bracket);
}

void json_put_raw(struct strbuf *out, const char *text)
{
	separate(out);
	strbuf_addstr(out, text);
}

void json_put_null(struct strbuf *out)
{
	json_put_raw(out, "null");
}

void json_put_bool(struct strbuf *out, bool v)
{
	json_put_raw(out, v ? "true" : "false");
}

void json_put_int(struct strbuf *out, int64_t v)
{
	separate(out);
	strbuf_addf(out, "%lld", (long long)v);
}

void json_put_double(struct strbuf *out, double v)
{
	char text[40];

	if (!isfinite(v)) {
		json_put_null(out);
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, v);
		if (strtod(text, NULL) == v)
			break;
	}
	separate(out);
	strbuf_addstr(out, text);
	if (!strpbrk(text, ".e"))
		strbuf_addstr(out, ".0");
}

static void put_escape(struct strbuf *out, unsigned char c)
{
	static const char shorts[32] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'
	};
	char text[6] = { '\\', 'u', '0', '0', 0, 0 };

	if (c >= 0x20 || shorts[c]) {
		text[1] = c >= 0x20 ? (char)c : shorts[c];
		strbuf_add(out, text, 2);
		return;
	}
	text[4] = (char)('0' + (c >> 4));
	text[5] = "0123456789abcdef"[c & 15];
	strbuf_add(out, text, 6);
}

/* Valid UTF-8 in, the inside of a string out: plain runs are copied whole. */
static void escape(struct strbuf *out, const char *s, size_t n)
{
	const char *end = s + n, *run = s;

	for (; s < end; s++) {
		unsigned char c = (unsigned char)*s;

		if (c >= 0x20 && c != '"' && c != '\\')
			continue;
		strbuf_add(out, run, (size_t)(s - run));
		run = s + 1;
		put_escape(out, c);
	}
	strbuf_add(out, run, (size_t)(s - run));
}

void json_text_add(struct json_text *t, struct strbuf *out, const void *data, size_t n)
{
	autobuf struct strbuf repaired = STRBUF_INIT;

	utf8_repair_add(&t->repair, &repaired, data, n);
	escape(out, repaired.buf, repaired.len);
}

void json_text_end(struct json_text *t, struct strbuf *out)
{
	utf8_repair_end(&t->repair, out);
}

void json_put_string_n(struct strbuf *out, const char *s, size_t n)
{
	separate(out);
	strbuf_addch(out, '"');
	if (utf8_valid(s, n)) {
		escape(out, s, n);
	} else {
		struct json_text t = { .repair = { .n = 0 } };

		json_text_add(&t, out, s, n);
		json_text_end(&t, out);
	}
	strbuf_addch(out, '"');
}

void json_put_string(struct strbuf *out, const char *s)
{
	if (s)
		json_put_string_n(out, s, strlen(s));
	else
		json_put_null(out);
}

void json_put_key(struct strbuf *out, const char *key)
{
	json_put_string(out, key);
	strbuf_addch(out, ':');
}

/* ---- reading ---- */

static int hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		char c = p[i];

		if (c >= '0' && c <= '9')
			v = v * 16 + c - '0';
		else if ((c | 32) >= 'a' && (c | 32) <= 'f')
			v = v * 16 + (c | 32) - 'a' + 10;
		else
			return -1;
	}
	return v;
}

/* The NUL behind the text stops every look ahead. */
static void replace_lone_surrogates(char *p, const char *end)
{
	while (p < end && (p = memchr(p, '\\', (size_t)(end - p)))) {
		int v = p[1] == 'u' ? hex4(p + 2) : -1;

		if (v < 0xD800 || v > 0xDFFF) {
			p += p[1] ? 2 : 1;
		} else if (v < 0xDC00 && p[6] == '\\' && p[7] == 'u' &&
			   (hex4(p + 8) & 0xFC00) == 0xDC00 && hex4(p + 8) >= 0) {
			p += 12;
		} else {
			memcpy(p + 2, "fffd", 4);
			p += 6;
		}
	}
}

static size_t count_characters(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xC0) != 0x80;
	return count;
}

static bool blank(const char *s)
{
	return s[strspn(s, " \t\r\n")] == '\0';
}

static void syntax_problem(struct json_problem *p, bool utf8, size_t offset, const char *text)
{
	p->kind = utf8 ? JSON_SYNTAX : JSON_NOT_UTF8;
	p->offset = offset;
	(void)snprintf(p->text, sizeof(p->text), "%s", text);
}

static struct json_t *read_small(const struct strbuf *body, struct json_problem *p)
{
	json_error_t err;
	json_t *v = json_loadb(body->buf, body->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
	size_t at = !v && err.position > 0 ? (size_t)err.position : 0;

	if (!v)
		syntax_problem(p, utf8_valid(body->buf, body->len),
			       count_characters(body->buf, MIN(at, body->len)),
			       blank(body->buf) ? "Expecting value" : err.text);
	return v;
}

static struct json_t *read_large(struct strbuf *body, struct json_problem *p)
{
	struct json_condensed c = { .text = STRBUF_INIT };
	json_error_t err;
	json_t *v = NULL;

	if (!json_condense(body, &c)) {
		*p = c.problem;
	} else if ((v = json_loadb(c.text.buf, c.text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL,
				   &err))) {
		v = json_condensed_restore(&c, v);
	} else {
		syntax_problem(
			p, utf8_valid(c.text.buf, c.text.len),
			json_condensed_offset(&c, err.position > 0 ? (size_t)err.position : 0),
			blank(c.text.buf) ? "Expecting value" : err.text);
	}
	json_condensed_release(&c);
	return v;
}

struct json_t *json_read(struct strbuf *body, struct json_problem *ret_problem)
{
	struct json_problem p = { .kind = JSON_EMPTY };
	json_t *v = NULL;

	if (body->len >= 3 && !memcmp(body->buf, "\xEF\xBB\xBF", 3))
		memcpy(body->buf, "   ", 3);
	if (body->len) {
		replace_lone_surrogates(body->buf, body->buf + body->len);
		v = body->len <= SMALL ? read_small(body, &p) : read_large(body, &p);
	}
	if (!v)
		*ret_problem = p;
	return v;
}

void json_done(struct json_t *v)
{
	json_decref(v);
}
