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
 * be ignored: other units, several ranges, nonsense.
 */
bool http_range_parse(const char *header, struct http_range *ret);
/* How many bytes of a file of that size, and from where; 0: none (416). */
uint64_t http_range_resolve(const struct http_range *r, uint64_t size, uint64_t *ret_from);

/* Is etag (with its quotes) in the list, or the list "*"?  W/ in front of one doesn't count. */
bool http_etag_weak_match(const char *list, const char *etag);

#endif
