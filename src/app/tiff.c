/*
 * How many pages a TIFF has: the length of its chain of directories.  The bytes are a stranger's:
 * every offset is checked, a chain that leads back into itself ends where it does, and nothing
 * above a bound is counted.
 */
#include <string.h>

#include "app/files_impl.h"

#define PAGES_MAX 1000

struct tiff {
	const uint8_t *data;
	size_t n;
	bool big_endian, wide; /* wide: BigTIFF, offsets of 8 bytes */
};

/* A number of `bytes` at an offset; 0 (which leads nowhere) where there is none. */
static uint64_t number(const struct tiff *t, uint64_t at, size_t bytes)
{
	uint64_t v = 0;

	if (at > t->n || t->n - at < bytes)
		return 0;
	for (size_t i = 0; i < bytes; i++)
		v = v << 8 | t->data[at + (t->big_endian ? i : bytes - 1 - i)];
	return v;
}

/* Where the directory behind the one at an offset is; 0: nowhere. */
static uint64_t next(const struct tiff *t, uint64_t at)
{
	const uint64_t count = number(t, at, t->wide ? 8 : 2);

	if (!count || count > t->n) /* a directory without fields is none; no overflow below */
		return 0;
	return t->wide ? number(t, at + 8 + count * 20, 8) : number(t, at + 2 + count * 12, 4);
}

size_t app_tiff_pages(const void *data, size_t n)
{
	struct tiff t = { .data = data, .n = n };
	uint64_t seen[PAGES_MAX], at;
	size_t pages = 0;

	if (n < 8 || (memcmp(data, "II", 2) != 0 && memcmp(data, "MM", 2) != 0))
		return 0;
	t.big_endian = *t.data == 'M';
	t.wide = number(&t, 2, 2) == 43;
	if (!t.wide && number(&t, 2, 2) != 42)
		return 0;
	at = t.wide ? number(&t, 8, 8) : number(&t, 4, 4);
	while (at && pages < PAGES_MAX && number(&t, at, t.wide ? 8 : 2)) {
		for (size_t i = 0; i < pages; i++)
			if (seen[i] == at)
				return pages;
		seen[pages++] = at;
		at = next(&t, at);
	}
	return pages;
}
