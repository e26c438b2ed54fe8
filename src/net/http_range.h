/* Range and entity tags of HTTP requests (RFC 9110, 13 and 14). */
#ifndef NET_HTTP_RANGE_H
#define NET_HTTP_RANGE_H

#include <stdbool.h>
#include <stdint.h>

struct http_range {
	uint64_t offset, length; /* length UINT64_MAX: to the end */
	bool from_end;           /* the last `length` bytes */
};

/*
 * "bytes=a-b", "bytes=a-", "bytes=-n".  False for everything else, which is to
 * be ignored: other units, several ranges, nonsense.  A number that is larger
 * than any file is a number all the same.
 */
bool http_range_parse(const char *header, struct http_range *ret);
/* How many bytes of a file of that size, and from where; 0: none (416). */
uint64_t http_range_resolve(const struct http_range *r, uint64_t size, uint64_t *ret_from);

/*
 * Is etag (a strong one, with its quotes) in the list, or the list "*"?  For
 * If-None-Match a W/ in front of one doesn't count; for If-Match what is only
 * about the same is not the same.
 */
bool http_etag_weak_match(const char *list, const char *etag);
bool http_etag_strong_match(const char *list, const char *etag);

#endif
