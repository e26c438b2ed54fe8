/* Extended headers: records of "<length> <key>=<value>\n", and what is in them. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "init/tar.h"

#define XATTRS_MAX 1024
#define XATTR_PREFIX "SCHILY.xattr."

bool tar_decimal(const char *s, size_t n, uint64_t *ret)
{
	char text[24];

	if (!n || n >= sizeof(text) || memchr(s, '\0', n))
		return false;
	memcpy(text, s, n);
	text[n] = '\0';
	return parse_u64(text, ret) && *ret <= INT64_MAX;
}

/* Seconds with a sign and a fraction of any length. */
static bool get_time(const char *s, size_t n, int64_t *ret, uint32_t *ret_ns)
{
	bool negative = n && *s == '-';
	const char *dot;
	size_t whole;
	uint64_t seconds;
	uint32_t ns = 0, unit = 100000000;

	s += negative;
	n -= negative;
	dot = memchr(s, '.', n);
	whole = dot ? (size_t)(dot - s) : n;
	if (!tar_decimal(s, whole, &seconds) || seconds > INT64_MAX / 2)
		return false;
	for (size_t i = whole + 1; i < n; i++, unit /= 10) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		ns += (uint32_t)(s[i] - '0') * unit;
	}
	*ret = negative ? -(int64_t)seconds - (ns > 0) : (int64_t)seconds;
	*ret_ns = negative && ns ? 1000000000 - ns : ns;
	return true;
}

bool tar_add_region(struct tar_reader *r, uint64_t offset, uint64_t length)
{
	if (r->n_map == TAR_REGIONS_MAX)
		return false;
	if (r->n_map == r->cap_map) {
		r->cap_map = r->cap_map ? 2 * r->cap_map : 16;
		r->map = xrealloc(r->map, r->cap_map * sizeof(*r->map));
	}
	r->map[r->n_map++] = (struct tar_region){ offset, length };
	return true;
}

/* "offset,length,offset,length" */
static bool parse_map(struct tar_reader *r, const char *s, size_t n)
{
	const char *end = s + n;
	uint64_t number[2];
	unsigned which = 0;

	while (s < end) {
		const char *comma = memchr(s, ',', (size_t)(end - s));

		if (!comma)
			comma = end;
		if (!tar_decimal(s, (size_t)(comma - s), &number[which]))
			return false;
		if (which && !tar_add_region(r, number[0], number[1]))
			return false;
		which = !which;
		s = comma + 1;
	}
	return !which;
}

static bool set_text(struct strbuf *to, bool *has, const char *value, size_t n)
{
	if (memchr(value, '\0', n) || n > FILE_NAME_MAX)
		return false;
	strbuf_reset(to);
	strbuf_add(to, value, n);
	*has = n > 0; /* an empty value takes one back */
	return true;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* As GNU tar writes them: %3D and %25 in names, because = ends one.  In place. */
static void decode_name(char *s)
{
	char *to = s;

	for (; *s; s++) {
		if (*s == '%' && hex(s[1]) >= 0 && hex(s[2]) >= 0) {
			*to++ = (char)(hex(s[1]) << 4 | hex(s[2]));
			s += 2;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

static bool add_xattr(struct tar_reader *r, char *name, const char *value, size_t n)
{
	decode_name(name);
	/* What else there is (security.*, trusted.*) isn't an archive's to give. */
	if (strncmp(name, "user.", 5) != 0)
		return true;
	if (r->n_xattrs == XATTRS_MAX)
		return false;
	if (r->n_xattrs == r->cap_xattrs) {
		r->cap_xattrs = r->cap_xattrs ? 2 * r->cap_xattrs : 8;
		r->xattrs = xrealloc(r->xattrs, r->cap_xattrs * sizeof(*r->xattrs));
	}
	r->xattrs[r->n_xattrs++] = (struct tar_xattr){ name, value, n };
	return true;
}

static bool sparse_key(struct tar_reader *r, const char *key, const char *value, size_t n)
{
	uint64_t v;

	r->has_sparse = true;
	if (!strcmp(key, "name"))
		return set_text(&r->name, &r->has_name, value, n);
	if (!strcmp(key, "map")) {
		r->n_map = 0;
		return parse_map(r, value, n);
	}
	if (!tar_decimal(value, n, &v))
		return false;
	if (!strcmp(key, "major"))
		r->sparse_major = (unsigned)MIN(v, 99u);
	else if (!strcmp(key, "realsize") || !strcmp(key, "size"))
		r->sparse_size = v;
	else if (!strcmp(key, "offset"))
		return tar_add_region(r, v, 0);
	else if (!strcmp(key, "numbytes") && r->n_map)
		r->map[r->n_map - 1].length = v;
	return true;
}

/* One key and its value (n bytes, a NUL behind them). */
static bool pax_key(struct tar_reader *r, char *key, const char *value, size_t n)
{
	if (!strcmp(key, "path"))
		return r->has_sparse && r->has_name ? true
						    : set_text(&r->name, &r->has_name, value, n);
	if (!strcmp(key, "linkpath"))
		return set_text(&r->target, &r->has_target, value, n);
	if (!strcmp(key, "size")) {
		r->has_size = n > 0;
		return !n || tar_decimal(value, n, &r->pax_size);
	}
	if (!strcmp(key, "mtime")) {
		r->has_mtime = n > 0;
		return !n || get_time(value, n, &r->mtime, &r->mtime_ns);
	}
	if (!strncmp(key, "GNU.sparse.", 11))
		return sparse_key(r, key + 11, value, n);
	if (!strncmp(key, XATTR_PREFIX, sizeof(XATTR_PREFIX) - 1))
		return add_xattr(r, key + sizeof(XATTR_PREFIX) - 1, value, n);
	return true;
}

/* Headers for all that follows: nothing in them is needed, but some of it would change everything. */
static bool global_key(const char *key)
{
	return strcmp(key, "path") != 0 && strcmp(key, "linkpath") != 0 &&
	       strcmp(key, "size") != 0 && strncmp(key, "GNU.sparse.", 11) != 0;
}

bool tar_parse_pax(struct tar_reader *r, bool global)
{
	char *at = r->pax.buf, *end = at + r->pax.len;

	while (at < end) {
		char *blank = memchr(at, ' ', MIN((size_t)(end - at), (size_t)12));
		char *key, *value;
		uint64_t n;

		if (!blank || !tar_decimal(at, (size_t)(blank - at), &n) ||
		    n > (uint64_t)(end - at))
			return false;
		at += n;
		key = blank + 1;
		if (key >= at || at[-1] != '\n')
			return false;
		value = memchr(key, '=', (size_t)(at - key));
		if (!value || value == key || memchr(key, '\0', (size_t)(value - key)))
			return false;
		*value++ = '\0';
		at[-1] = '\0';
		if (global ? !global_key(key) : !pax_key(r, key, value, (size_t)(at - 1 - value)))
			return false;
	}
	return true;
}
