#include "proto/edit.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

bool edit_next(struct get *g, struct edit *ret)
{
	uint8_t flags;

	if (g->bad || g->at == g->len)
		return false;
	flags = get_u8(g);
	ret->old = get_blob(g, EDIT_BODY_MAX, &ret->old_bytes);
	ret->new = get_blob(g, EDIT_BODY_MAX, &ret->new_bytes);
	ret->all = flags & EDIT_ALL;
	if (flags > EDIT_ALL || !ret->old_bytes)
		g->bad = true;
	return !g->bad;
}

/*
 * How often old is in the text: for `all` one behind the other, else also where
 * they overlap, because then too it is open which one was meant.
 */
static size_t count(const struct edit *e, const char *text, size_t n)
{
	const char *at = text, *end = text + n;
	size_t found = 0;

	while ((at = memmem(at, (size_t)(end - at), e->old, e->old_bytes))) {
		at += e->all ? e->old_bytes : 1;
		found++;
	}
	return found;
}

static void replace_all(const struct edit *e, const char *from, size_t n, char *to)
{
	const char *end = from + n, *hit;

	while ((hit = memmem(from, (size_t)(end - from), e->old, e->old_bytes))) {
		memcpy(to, from, (size_t)(hit - from));
		to += hit - from;
		memcpy(to, e->new, e->new_bytes);
		to += e->new_bytes;
		from = hit + e->old_bytes;
	}
	memcpy(to, from, (size_t)(end - from));
}

int edit_apply(const struct edit *e, char **text, size_t *n, size_t max, size_t *ret_count,
	       struct garret_error *err)
{
	const size_t found = *ret_count = count(e, *text, *n);
	size_t size;
	char *out;

	if (!found)
		return garret_fail(err, GARRET_CONFLICT, "the old text is not there");
	if (found > 1 && !e->all)
		return garret_fail(err, GARRET_CONFLICT, "the old text is there %zu times", found);
	size = *n - found * e->old_bytes;
	if (e->new_bytes && found > (max - MIN(size, max)) / e->new_bytes)
		return garret_fail(err, GARRET_TOO_LARGE, "the result has more than %zu bytes",
				   max);
	size += found * e->new_bytes;
	out = try_alloc(size);
	if (!out)
		return garret_fail(err, GARRET_EXHAUSTED, "no memory for %zu bytes", size);
	replace_all(e, *text, *n, out);
	free(*text);
	*text = out;
	*n = size;
	return 0;
}
