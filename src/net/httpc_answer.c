/* Answers that curl doesn't read: the head, and a body in chunks. */
#include <stdlib.h>
#include <string.h>

#include "net/httpc_impl.h"

static bool parse(const struct strbuf *in, size_t n, struct strbuf *head, int *status)
{
	const char *p = in->buf, *end = p + n;

	strbuf_reset(head);
	if (n < 12 || strncmp(p, "HTTP/1.", 7) != 0 || p[8] != ' ')
		return false;
	*status = 0;
	for (int i = 9; i < 12; i++) {
		if (p[i] < '0' || p[i] > '9')
			return false;
		*status = *status * 10 + (p[i] - '0');
	}
	for (p = memchr(p, '\n', n); p && ++p < end;) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));

		if (!eol || !httpc_head_add(head, p, (size_t)(eol - p)))
			break;
		p = eol;
	}
	return true;
}

int httpc_answer_head(struct strbuf *in, struct strbuf *head, int *status)
{
	for (;;) {
		char *end = memmem(in->buf, in->len, "\r\n\r\n", 4);
		size_t n = end ? (size_t)(end - in->buf) + 4 : 0;

		if (!end)
			return in->len <= HTTPC_HEAD_MAX ? 0 : -1;
		if (!parse(in, n, head, status))
			return -1;
		strbuf_remove_front(in, n);
		if (*status == 101 || *status >= 200)
			return 1;
	}
}

int httpc_answer_unchunk(const struct strbuf *in, struct strbuf *body)
{
	size_t at = 0;

	strbuf_reset(body);
	for (;;) {
		char *eol = memmem(in->buf + at, in->len - at, "\r\n", 2);
		unsigned long n;
		char *stop;

		if (!eol)
			return in->len - at > 256 ? -1 : 0;
		n = strtoul(in->buf + at, &stop, 16);
		if (stop == in->buf + at || n > in->len)
			return stop == in->buf + at ? -1 : 0;
		at = (size_t)(eol - in->buf) + 2;
		if (n == 0)
			return 1;
		if (in->len - at < n + 2)
			return 0;
		strbuf_add(body, in->buf + at, n);
		at += n + 2;
	}
}
