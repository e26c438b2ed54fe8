/*
 * Large bodies, made small for the parser.
 *
 * jansson takes some 25 ns a byte and 100 bytes for an empty list, so that a
 * body of the permitted size could hold the loop for a second and take half a
 * gigabyte.  But what is large in an honest body is strings.  So in one fast
 * pass over the body each long string is checked, decoded where it lies and
 * replaced by a short one; runs of blanks become one blank; and what is then
 * still large, or has more values than any request can use, is refused.  The
 * parser gets the rest, and the strings are put into its result.
 *
 * A replacement begins with a NUL, and every string of the body that begins
 * with one is replaced as well: so none is mistaken for another.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "net/json_internal.h"

#define LONG 48             /* bytes of a string as written */
#define VALUES_MAX 65536    /* four times what a command may have of arguments and variables */
#define TEXT_MAX (1u << 20) /* 25 ms of parsing */
#define MARK "\\u0000"

struct condenser {
	char *p, *end; /* of the body that isn't read yet */
	size_t chars;  /* read so far */
	size_t values;
	struct strbuf text;
	size_t text_chars;
	struct json_condensed *out;
	size_t cap_strings, cap_places;
};

/* Eight bytes at a time: most text is this. */
static bool is_ascii(const char *s, size_t n)
{
	uint64_t all = 0, some;

	for (; n >= sizeof(some); s += sizeof(some), n -= sizeof(some)) {
		memcpy(&some, s, sizeof(some));
		all |= some;
	}
	for (; n; n--)
		all |= (unsigned char)*s++;
	return !(all & 0x8080808080808080u);
}

static size_t characters(const char *s, size_t n)
{
	size_t count = 0;

	if (is_ascii(s, n))
		return n;
	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xC0) != 0x80;
	return count;
}

static bool fail(struct condenser *c, enum json_problem_kind kind, size_t at, const char *text)
{
	c->out->problem.kind = kind;
	c->out->problem.offset = at;
	(void)snprintf(c->out->problem.text, sizeof(c->out->problem.text), "%s", text);
	return false;
}

static void put(struct condenser *c, const char *s, size_t n, size_t chars)
{
	strbuf_add(&c->text, s, n);
	c->text_chars += chars;
}

/* From here on the text is shorter than the body by so much. */
static void note_place(struct condenser *c)
{
	struct json_condensed *o = c->out;

	if (o->n_places == c->cap_places) {
		c->cap_places = c->cap_places ? c->cap_places * 2 : 64;
		o->places = xrealloc(o->places, c->cap_places * sizeof(*o->places));
	}
	o->places[o->n_places].at = c->text.len;
	o->places[o->n_places++].extra = c->chars - c->text_chars;
}

/* ---- strings ---- */

/* Four hexadecimal digits, or -1. */
static int hex4(const char *p, const char *end)
{
	int v = 0;

	if (end - p < 4)
		return -1;
	for (int i = 0; i < 4; i++) {
		int c = (unsigned char)p[i], letter = (c | 32) - 'a';

		if (c - '0' >= 0 && c - '0' <= 9)
			v = v << 4 | (c - '0');
		else if (letter >= 0 && letter <= 5)
			v = v << 4 | (letter + 10);
		else
			return -1;
	}
	return v;
}

static char *put_utf8(char *to, unsigned v)
{
	if (v < 0x80) {
		*to++ = (char)v;
		return to;
	}
	if (v < 0x800) {
		*to++ = (char)(0xC0 | v >> 6);
	} else {
		if (v < 0x10000) {
			*to++ = (char)(0xE0 | v >> 12);
		} else {
			*to++ = (char)(0xF0 | v >> 18);
			*to++ = (char)(0x80 | (v >> 12 & 0x3F));
		}
		*to++ = (char)(0x80 | (v >> 6 & 0x3F));
	}
	*to++ = (char)(0x80 | (v & 0x3F));
	return to;
}

/* One escape at *from (a backslash); its bytes to *to.  Lone surrogates were replaced before. */
static bool decode_escape(const char **from, char **to, const char *end)
{
	static const char letters[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
	const char *p = *from + 1, *known;
	int v, low;

	if (p >= end || !*p)
		return false;
	if (*p != 'u') {
		known = strchr(letters, *p);
		if (known)
			*(*to)++ = bytes[known - letters];
		*from = p + 1;
		return known != NULL;
	}
	v = hex4(p + 1, end);
	p += 5;
	if (v >= 0xD800 && v < 0xDC00 && end - p >= 6 && p[0] == '\\' && p[1] == 'u') {
		low = hex4(p + 2, end);
		if (low < 0)
			return false;
		v = 0x10000 + ((v & 0x3FF) << 10) + (low & 0x3FF);
		p += 6;
	}
	if (v < 0)
		return false;
	*to = put_utf8(*to, (unsigned)v);
	*from = p;
	return true;
}

/* Decode the inside of a string in place. *ret_n is its length, or on failure where it failed. */
static bool decode(char *s, size_t n, size_t *ret_n)
{
	const char *from = s, *end = s + n;
	char *to = s;

	while (from < end) {
		const char *next = memchr(from, '\\', (size_t)(end - from));
		size_t run = (size_t)((next ? next : end) - from);

		for (size_t i = 0; i < run; i++) {
			if ((unsigned char)from[i] >= 0x20)
				continue;
			*ret_n = (size_t)(from + i - s);
			return false;
		}
		if (to != from)
			memmove(to, from, run);
		to += run;
		from += run;
		if (from < end && !decode_escape(&from, &to, end)) {
			*ret_n = (size_t)(from - s);
			return false;
		}
	}
	*ret_n = (size_t)(to - s);
	return true;
}

/* The closing quote of the string that begins at s, or NULL. */
static char *string_end(char *s, char *end)
{
	while ((s = memchr(s, '"', (size_t)(end - s)))) {
		size_t slashes = 0;

		while (s[-1 - (long)slashes] == '\\') /* the opening quote stops it */
			slashes++;
		if (!(slashes & 1))
			return s;
		s++;
	}
	return NULL;
}

static bool is_key(const char *p, const char *end)
{
	while (p < end && strchr(" \t\r\n", *p) && *p)
		p++;
	return p < end && *p == ':';
}

static bool take_out(struct condenser *c, char *s, size_t n)
{
	struct json_condensed *o = c->out;
	size_t chars = characters(s, n), decoded;
	char mark[40];
	int length;

	if (!is_ascii(s, n) && !utf8_valid(s, n))
		return fail(c, JSON_NOT_UTF8, c->chars, "");
	if (!decode(s, n, &decoded))
		return fail(c, JSON_SYNTAX, c->chars + 1 + characters(s, decoded),
			    "Invalid control character or escape");
	if (o->n_strings == c->cap_strings) {
		c->cap_strings = c->cap_strings ? c->cap_strings * 2 : 64;
		o->strings = xrealloc(o->strings, c->cap_strings * sizeof(*o->strings));
	}
	o->strings[o->n_strings].s = s;
	o->strings[o->n_strings].n = decoded;
	length = snprintf(mark, sizeof(mark), "\"" MARK "%zu\"", o->n_strings++);
	c->chars += chars + 2;
	put(c, mark, (size_t)length, (size_t)length);
	note_place(c);
	return true;
}

static bool take_string(struct condenser *c)
{
	char *s = c->p + 1, *close = string_end(s, c->end);
	size_t n, chars;

	if (!close)
		return fail(c, JSON_SYNTAX, c->chars, "Unterminated string");
	n = (size_t)(close - s);
	c->p = close + 1;
	if ((n >= LONG || (n >= sizeof(MARK) - 1 && !memcmp(s, MARK, sizeof(MARK) - 1))) &&
	    !is_key(c->p, c->end))
		return take_out(c, s, n);
	chars = characters(s, n) + 2;
	c->chars += chars;
	put(c, s - 1, n + 2, chars);
	return true;
}

/* ---- the rest ---- */

static void take_blanks(struct condenser *c)
{
	char *start = c->p;
	size_t n;

	c->p += strspn(c->p, " \t\r\n"); /* the NUL behind the body ends it */
	n = (size_t)(c->p - start);
	c->chars += n;
	put(c, start, 1, 1);
	if (n > 1)
		note_place(c);
}

static void take_byte(struct condenser *c)
{
	size_t chars = ((unsigned char)*c->p & 0xC0) != 0x80;

	c->values += *c->p && strchr(",:[{", *c->p);
	c->chars += chars;
	put(c, c->p++, 1, chars);
}

bool json_condense(struct strbuf *body, struct json_condensed *ret)
{
	struct condenser c = { .p = body->buf, .end = body->buf + body->len, .out = ret };

	strbuf_init(&c.text);
	while (c.p < c.end && !ret->problem.kind) {
		if (*c.p == '"')
			(void)take_string(&c);
		else if (*c.p && strchr(" \t\r\n", *c.p))
			take_blanks(&c);
		else
			take_byte(&c);
		if (!ret->problem.kind && (c.values > VALUES_MAX || c.text.len > TEXT_MAX))
			(void)fail(&c, JSON_TOO_MUCH, 0, "");
	}
	ret->text = c.text;
	return !ret->problem.kind;
}

size_t json_condensed_offset(const struct json_condensed *c, size_t at)
{
	size_t extra = 0;

	at = MIN(at, c->text.len);
	for (size_t i = 0; i < c->n_places && c->places[i].at <= at; i++)
		extra = c->places[i].extra;
	return characters(c->text.buf, at) + extra;
}

/* The string that V stands for, or NULL when it is what it is. */
static json_t *replacement(const struct json_condensed *c, const json_t *v)
{
	const char *s = json_string_value(v);
	uint64_t i;

	if (!s || !json_string_length(v) || *s)
		return NULL;
	if (!parse_u64(s + 1, &i) || i >= c->n_strings)
		return NULL; /* can't be */
	return json_stringn_nocheck(c->strings[i].s, c->strings[i].n);
}

static void restore_members(const struct json_condensed *c, json_t *v)
{
	json_t *new;

	for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it)) {
		new = replacement(c, json_object_iter_value(it));
		if (new)
			(void)json_object_iter_set_new(v, it, new);
		else
			json_condensed_restore(c, json_object_iter_value(it));
	}
	for (size_t i = 0; i < json_array_size(v); i++) {
		new = replacement(c, json_array_get(v, i));
		if (new)
			(void)json_array_set_new(v, i, new);
		else
			json_condensed_restore(c, json_array_get(v, i));
	}
}

/* As deep as the parser allows. */
json_t *json_condensed_restore(const struct json_condensed *c, json_t *v)
{
	json_t *new = replacement(c, v);

	if (!new) {
		restore_members(c, v);
		return v;
	}
	json_decref(v);
	return new;
}

void json_condensed_release(struct json_condensed *c)
{
	strbuf_release(&c->text);
	free(c->strings);
	free(c->places);
}
