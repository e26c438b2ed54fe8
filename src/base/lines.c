#include "base/lines.h"

#include <string.h>

#include "base/text.h"

void lines_init(struct lines *t, const void *text, size_t n)
{
	t->at = text;
	t->end = t->at + n;
	t->latin = !utf8_valid(text, n);
	if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3))
		t->at += 3;
}

/* How many bytes of a line's end are at p; 0: none. */
static size_t line_end(const struct lines *t, const uint8_t *p)
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

bool lines_next(struct lines *t, const uint8_t **ret, size_t *ret_n)
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

void lines_put(const struct lines *t, struct strbuf *out, const uint8_t *line, size_t n)
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
