#include "net/http_range.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define BETWEEN " \t," /* members of a list, which may be empty */

static bool number(const char **at, uint64_t *ret)
{
	const char *s = *at;
	uint64_t v = 0;

	for (; *s >= '0' && *s <= '9'; s++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			v = UINT64_MAX; /* and so it stays: the next digit overflows again */
	if (s == *at)
		return false;
	*at = s;
	*ret = v;
	return true;
}

/* One range; *at moves behind it. */
static bool parse_one(const char **at, struct http_range *ret)
{
	uint64_t last = UINT64_MAX;

	*ret = (struct http_range){ .length = UINT64_MAX };
	if (**at == '-') {
		++*at;
		ret->from_end = true;
		return number(at, &ret->length);
	}
	if (!number(at, &ret->offset) || *(*at)++ != '-')
		return false;
	if (!number(at, &last))
		return true; /* to the end, or something else is found behind it */
	if (last < ret->offset)
		return false;
	ret->length = MAX(last - ret->offset + 1, last - ret->offset); /* 2^64 is to the end */
	return true;
}

bool http_range_parse(const char *header, struct http_range *ret)
{
	const char *at = header;

	if (strncasecmp(at, "bytes=", 6) != 0)
		return false;
	at += 6 + strspn(at + 6, BETWEEN);
	return parse_one(&at, ret) && !at[strspn(at, BETWEEN)];
}

uint64_t http_range_resolve(const struct http_range *r, uint64_t size, uint64_t *ret_from)
{
	uint64_t from = r->from_end ? size - MIN(size, r->length) : MIN(size, r->offset);

	*ret_from = from;
	return MIN(r->length, size - from);
}

/* The length of a member of a list; what stands in quotes belongs together. */
static size_t member_length(const char *s)
{
	const char *at = s;

	while (*at && !strchr(BETWEEN, *at)) {
		const char *end = *at == '"' ? strchr(at + 1, '"') : at;

		if (!end)
			return strlen(s);
		at = end + 1;
	}
	return (size_t)(at - s);
}

static bool match(const char *list, const char *etag, bool strong)
{
	const size_t n = strlen(etag);

	list += strspn(list, BETWEEN);
	if (*list == '*' && !list[1 + strspn(list + 1, BETWEEN)])
		return true;
	while (*list) {
		size_t length = member_length(list);
		size_t weak = !strncmp(list, "W/", 2) ? 2 : 0;

		if (length == n + weak && !memcmp(list + weak, etag, n) && !(strong && weak))
			return true;
		list += length;
		list += strspn(list, BETWEEN);
	}
	return false;
}

bool http_etag_weak_match(const char *list, const char *etag)
{
	return match(list, etag, false);
}

bool http_etag_strong_match(const char *list, const char *etag)
{
	return match(list, etag, true);
}
