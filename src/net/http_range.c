#include "net/http_range.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static bool number(const char **at, uint64_t *ret)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	errno = 0;
	*ret = strtoull(*at, &end, 10);
	*at = end;
	return !errno;
}

bool http_range_parse(const char *header, struct http_range *ret)
{
	const char *at = header;
	uint64_t last;

	if (strncasecmp(at, "bytes=", 6) != 0)
		return false;
	at += 6 + strspn(at + 6, " \t");
	*ret = (struct http_range){ .length = UINT64_MAX };
	if (*at == '-') {
		at++;
		ret->from_end = true;
		return number(&at, &ret->length) && !*at;
	}
	if (!number(&at, &ret->offset) || *at++ != '-')
		return false;
	if (!*at)
		return true;
	if (!number(&at, &last) || *at || last < ret->offset)
		return false;
	ret->length = last == UINT64_MAX ? UINT64_MAX : last - ret->offset + 1;
	return true;
}

uint64_t http_range_resolve(const struct http_range *r, uint64_t size, uint64_t *ret_from)
{
	uint64_t from = r->from_end ? size - MIN(size, r->length) : MIN(size, r->offset);

	*ret_from = from;
	return MIN(r->length, size - from);
}

bool http_etag_weak_match(const char *list, const char *etag)
{
	const size_t n = strlen(etag);

	for (;;) {
		list += strspn(list, " \t,");
		if (!strncmp(list, "W/", 2))
			list += 2;
		if (!*list)
			return false;
		if (*list == '*' || (!strncmp(list, etag, n) && strchr(" \t,", list[n])))
			return true;
		/* A comma inside of quotes belongs to the tag. */
		if (*list == '"') {
			const char *end = strchr(list + 1, '"');

			list = end ? end + 1 : list + strlen(list);
		} else {
			list += strcspn(list, ",");
		}
	}
}
