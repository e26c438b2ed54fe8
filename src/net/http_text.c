/*
 * The request target: path and query, percent-decoded once.
 *
 * Decoded by us and not by the library, because "%00" must not cut a path
 * short: what an id check sees and what a handler uses must be the same text.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/text.h"
#include "net/http_internal.h"

#define PARAMS_MAX 64 /* no route has more than three */

/* The byte of two digits behind a "%", or -1. */
static int hex_byte(const char *s)
{
	unsigned v = 0;

	for (int i = 0; i < 2; i++) {
		unsigned char c = (unsigned char)(s[i] | 32);

		if (s[i] >= '0' && s[i] <= '9')
			v = v * 16 + (unsigned char)s[i] - '0';
		else if (c >= 'a' && c <= 'f')
			v = v * 16 + c - 'a' + 10;
		else
			return -1;
	}
	return (int)v;
}

/* The next byte that s + *i means; *i moves behind it. */
static char decode_one(const char *s, size_t n, size_t *i, bool plus)
{
	char c = s[(*i)++];

	if (c == '+' && plus)
		return ' ';
	if (c != '%' || *i + 1 >= n || hex_byte(s + *i) < 0)
		return c;
	*i += 2;
	return (char)hex_byte(s + *i - 2);
}

char *http_decode(const char *s, size_t n, bool plus)
{
	struct strbuf out = STRBUF_INIT;
	struct utf8_repair u = { .n = 0 };

	for (size_t i = 0; i < n;) {
		char c = decode_one(s, n, &i, plus);

		if (c)
			utf8_repair_add(&u, &out, &c, 1);
		else
			utf8_repair_add(&u, &out, "\xFF", 1); /* becomes U+FFFD */
	}
	utf8_repair_end(&u, &out);
	return strbuf_detach(&out, NULL);
}

char *http_decode_bytes(const char *s, size_t n, size_t *ret_n)
{
	char *out = xmalloc(n + 1);
	size_t len = 0;

	for (size_t i = 0; i < n;)
		out[len++] = decode_one(s, n, &i, true);
	out[len] = '\0';
	*ret_n = len;
	return out;
}

static void parse_query(struct http_request *rq, const char *q)
{
	rq->params = xcalloc(PARAMS_MAX, sizeof(*rq->params));
	while (*q && rq->n_params < PARAMS_MAX) {
		size_t n = strcspn(q, "&");
		const char *eq = memchr(q, '=', n);
		size_t name = eq ? (size_t)(eq - q) : n;

		if (n) {
			struct http_param *p = &rq->params[rq->n_params++];

			p->name = http_decode(q, name, true);
			p->raw = eq ? eq + 1 : q + n;
			p->raw_n = eq ? n - name - 1 : 0;
			p->value = http_decode(p->raw, p->raw_n, true);
		}
		q += n + (q[n] == '&');
	}
}

void http_parse_target(struct http_request *rq)
{
	const char *path = rq->target;
	size_t n;

	if (!strncasecmp(path, "http://", 7)) { /* as proxies are asked */
		path += 7 + strcspn(path + 7, "/?");
		if (*path != '/')
			path = "/";
	}
	n = strcspn(path, "?");
	rq->path = http_decode(path, n, false);
	if (path[n] == '?' && path[n + 1])
		parse_query(rq, path + n + 1);
}
