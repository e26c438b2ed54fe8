#include "cli/show.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"

bool show_on_terminal(void)
{
	static int known = -1;

	if (known < 0)
		known = isatty(STDOUT_FILENO) == 1;
	return known;
}

/* The length of the UTF-8 character at s, with its number; 0 when there is none. */
static size_t character(const unsigned char *s, size_t n, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
	uint32_t c;

	if (!len || len > n || s[0] > 0xF4)
		return 0;
	c = len == 1 ? s[0] : s[0] & (0x7Fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xC0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3F);
	}
	if (c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
		return 0;
	*ret = c;
	return len;
}

static bool is_harmless(uint32_t c)
{
	if (c < 0x20 || (c >= 0x7F && c < 0xA0))
		return false;
	/* Marks, embeddings and isolates of direction; line and paragraph separators; tags. */
	return !(c == 0x200E || c == 0x200F || c == 0x061C || (c >= 0x2028 && c <= 0x202E) ||
		 (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF || (c >= 0xE0000 && c <= 0xE007F));
}

void show_escape(struct strbuf *out, const char *s, size_t n)
{
	static const char letters[] = "abtnvfr"; /* 7 to 13 */
	const unsigned char *p = (const unsigned char *)s;

	while (n) {
		uint32_t c = 0;
		size_t len = character(p, n, &c);

		if (len && c == '\\') {
			strbuf_addstr(out, "\\\\");
		} else if (len && is_harmless(c)) {
			strbuf_add(out, p, len);
		} else if (len && c >= 7 && c <= 13) {
			strbuf_addch(out, '\\');
			strbuf_addch(out, letters[c - 7]);
		} else {
			for (size_t i = 0; i < (len ? len : 1); i++)
				strbuf_addf(out, "\\%03o", p[i]);
		}
		p += len ? len : 1;
		n -= len ? len : 1;
	}
}

void show_bytes(const char *s, size_t n)
{
	autobuf struct strbuf out = STRBUF_INIT;

	if (show_on_terminal()) {
		show_escape(&out, s, n);
		s = out.buf;
		n = out.len;
	}
	(void)fwrite(s, 1, n, stdout);
}

void show_text(const char *s)
{
	show_bytes(s, strlen(s));
}

void show_json(const json_t *doc)
{
	/* JSON escapes the controls of ASCII only. */
	(void)json_dumpf(doc, stdout,
			 JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) |
				 (show_on_terminal() ? JSON_ENSURE_ASCII : 0));
	(void)putchar('\n');
}

int show_flush(struct garret_error *err)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return garret_fail(err, garret_code_of_errno(errno), "write standard output: %s",
			   errno ? strerror(errno) : "failed");
}

bool show_base64(char *s, size_t *ret)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	uint32_t acc = 0;
	unsigned bits = 0;
	size_t n = 0;

	for (const char *p = s; *p && *p != '='; p++) {
		const char *at = strchr(digits, *p);

		if (!at)
			return false;
		acc = acc << 6 | (uint32_t)(at - digits);
		bits += 6;
		if (bits >= 8) {
			bits -= 8;
			s[n++] = (char)(acc >> bits);
		}
	}
	*ret = n;
	return true;
}
