#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void hex_encode(const void *data, size_t n, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = data;

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[p[i] >> 4];
		out[2 * i + 1] = digits[p[i] & 15];
	}
	out[2 * n] = '\0';
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

bool hex_decode(const char *s, void *out, size_t n)
{
	unsigned char *p = out;

	if (strlen(s) != 2 * n)
		return false;
	for (size_t i = 0; i < n; i++) {
		int hi = hex_value(s[2 * i]), lo = hex_value(s[2 * i + 1]);

		if (hi < 0 || lo < 0)
			return false;
		p[i] = (unsigned char)(hi << 4 | lo);
	}
	return true;
}

void base64url_encode(const void *data, size_t n, char *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const unsigned char *p = data;
	uint32_t acc = 0;
	int bits = 0;

	for (size_t i = 0; i < n; i++) {
		acc = acc << 8 | p[i];
		for (bits += 8; bits >= 6; bits -= 6)
			*out++ = digits[(acc >> (bits - 6)) & 63];
	}
	if (bits)
		*out++ = digits[(acc << (6 - bits)) & 63];
	*out = '\0';
}

bool parse_u64(const char *s, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*s)
		return false;
	for (; *s; s++) {
		unsigned d = (unsigned)(*s - '0');

		if (*s < '0' || *s > '9' || v > (UINT64_MAX - d) / 10)
			return false;
		v = v * 10 + d;
	}
	*ret = v;
	return true;
}

/* Digits with an optional fraction; the rest of the text, or NULL. */
static const char *parse_decimal(const char *s, double *ret)
{
	char *end = NULL;

	if (*s < '0' || *s > '9')
		return NULL;
	for (const char *p = s; *p; p++)
		if (*p == 'x' || *p == 'X' || *p == 'e' || *p == 'E' || *p == 'p')
			return NULL; /* strtod() takes more than people mean */
	errno = 0;
	*ret = strtod(s, &end);
	return errno || !isfinite(*ret) ? NULL : end;
}

bool parse_size(const char *s, uint64_t *ret_bytes)
{
	static const char units[] = "bkmgt";
	double v = 0, scale = 1;
	const char *rest = parse_decimal(s, &v);

	if (!rest)
		return false;
	if (*rest) {
		char c = (char)(*rest >= 'A' && *rest <= 'Z' ? *rest + 32 : *rest);
		const char *u = strchr(units, c);

		if (!u)
			return false;
		scale = ldexp(1, (int)(u - units) * 10);
		rest++;
		if (c != 'b' && (*rest == 'b' || *rest == 'B'))
			rest++;
	}
	if (*rest || v * scale >= 9.2e18)
		return false;
	*ret_bytes = (uint64_t)(v * scale);
	return true;
}

bool parse_seconds(const char *s, double *ret)
{
	double v = 0;
	const char *rest = parse_decimal(s, &v);

	if (!rest || (*rest == 's' ? rest[1] : *rest))
		return false;
	*ret = v;
	return true;
}

void shell_quote(struct strbuf *out, const char *s)
{
	static const char plain[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";

	if (*s && strspn(s, plain) == strlen(s)) {
		strbuf_addstr(out, s);
		return;
	}
	strbuf_addch(out, '\'');
	for (; *s; s++) {
		if (*s == '\'')
			strbuf_addstr(out, "'\"'\"'");
		else
			strbuf_addch(out, *s);
	}
	strbuf_addch(out, '\'');
}

static bool alnum(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool name_valid(const char *s)
{
	size_t n = strlen(s);

	if (n < 1 || n > 64 || !alnum(s[0]))
		return false;
	for (size_t i = 1; i < n; i++)
		if (!alnum(s[i]) && s[i] != '.' && s[i] != '_' && s[i] != '-')
			return false;
	return true;
}

/*
 * How many bytes a sequence that begins with these n has in all: 1-4; 0 when
 * the bytes so far can't begin one.  *bad_at is then how many of them belong
 * to the maximal subpart that one U+FFFD stands for.
 */
static unsigned utf8_need(const unsigned char *p, unsigned n, unsigned *bad_at)
{
	unsigned char lo = 0x80, hi = 0xBF;
	unsigned need;

	*bad_at = 1;
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xC2 && p[0] <= 0xDF)
		need = 2;
	else if (p[0] >= 0xE0 && p[0] <= 0xEF)
		need = 3;
	else if (p[0] >= 0xF0 && p[0] <= 0xF4)
		need = 4;
	else
		return 0;
	if (p[0] == 0xE0)
		lo = 0xA0; /* no overlong forms */
	else if (p[0] == 0xED)
		hi = 0x9F; /* no surrogates */
	else if (p[0] == 0xF0)
		lo = 0x90;
	else if (p[0] == 0xF4)
		hi = 0x8F; /* nothing above U+10FFFF */
	for (unsigned i = 1; i < n && i < need; i++) {
		if (p[i] < lo || p[i] > hi) {
			*bad_at = i;
			return 0;
		}
		lo = 0x80;
		hi = 0xBF;
	}
	return need;
}

static const char replacement[] = "\xEF\xBF\xBD";

void utf8_repair_add(struct utf8_repair *u, struct strbuf *out, const void *data, size_t n)
{
	const unsigned char *p = data, *end = p + n;

	while (p < end || u->n) {
		unsigned need, bad, take;

		if (!u->n) {
			const unsigned char *start = p;

			while (p < end && *p < 0x80)
				p++;
			strbuf_add(out, start, (size_t)(p - start));
			if (p == end)
				return;
		}
		while (u->n < 4 && p < end)
			u->pending[u->n++] = *p++;
		need = utf8_need(u->pending, u->n, &bad);
		if (need > u->n)
			return; /* complete it with the next piece */
		take = need ? need : bad;
		if (need)
			strbuf_add(out, u->pending, need);
		else
			strbuf_add(out, replacement, 3);
		/* Bytes read ahead go back to the input where they came from it. */
		u->n -= take;
		if ((size_t)(p - (const unsigned char *)data) >= u->n) {
			p -= u->n;
			u->n = 0;
		} else {
			memmove(u->pending, u->pending + take, u->n);
		}
	}
}

void utf8_repair_end(struct utf8_repair *u, struct strbuf *out)
{
	while (u->n) {
		unsigned bad, need = utf8_need(u->pending, u->n, &bad);
		unsigned take = need ? u->n : bad;

		strbuf_add(out, replacement, 3);
		u->n -= take;
		memmove(u->pending, u->pending + take, u->n);
	}
}

bool utf8_valid(const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;

	while (n) {
		unsigned bad, need = utf8_need(p, n < 4 ? (unsigned)n : 4, &bad);

		if (!need || need > n)
			return false;
		p += need;
		n -= need;
	}
	return true;
}

int split_words(char *line, char **ret, int most)
{
	char *save = NULL;
	int n = 0;

	for (char *w = strtok_r(line, " \n", &save); w; w = strtok_r(NULL, " \n", &save)) {
		if (n == most)
			return -1;
		ret[n++] = w;
	}
	return n;
}
