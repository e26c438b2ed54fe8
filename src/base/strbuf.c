#include "base/strbuf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

char strbuf_empty[1];

void strbuf_init(struct strbuf *sb)
{
	*sb = (struct strbuf)STRBUF_INIT;
}

void strbuf_release(struct strbuf *sb)
{
	if (sb->cap)
		free(sb->buf);
	strbuf_init(sb);
}

void strbuf_reset(struct strbuf *sb)
{
	sb->len = 0;
	if (sb->cap)
		sb->buf[0] = '\0';
}

void strbuf_reserve(struct strbuf *sb, size_t extra)
{
	size_t need = sb->len + extra + 1, cap = sb->cap ? sb->cap : 64;

	assert(need > extra);
	if (need <= sb->cap)
		return;
	while (cap < need)
		cap += cap / 2 + 16;
	sb->buf = xrealloc(sb->cap ? sb->buf : NULL, cap);
	sb->cap = cap;
	sb->buf[sb->len] = '\0';
}

void strbuf_add(struct strbuf *sb, const void *data, size_t n)
{
	if (!n)
		return;
	strbuf_reserve(sb, n);
	memcpy(sb->buf + sb->len, data, n);
	sb->len += n;
	sb->buf[sb->len] = '\0';
}

void strbuf_addstr(struct strbuf *sb, const char *s)
{
	strbuf_add(sb, s, strlen(s));
}

void strbuf_addch(struct strbuf *sb, int c)
{
	char ch = (char)c;

	strbuf_add(sb, &ch, 1);
}

void strbuf_addf(struct strbuf *sb, const char *fmt, ...)
{
	va_list ap;
	int n;

	/* Most texts fit at once; the second round knows how much it needs. */
	for (size_t room = 64;; room = (size_t)n + 1) {
		strbuf_reserve(sb, room);
		va_start(ap, fmt);
		n = vsnprintf(sb->buf + sb->len, room, fmt, ap);
		va_end(ap);
		assert(n >= 0);
		if ((size_t)n < room)
			break;
	}
	sb->len += (size_t)n;
}

void strbuf_remove_front(struct strbuf *sb, size_t n)
{
	assert(n <= sb->len);
	if (!n)
		return;
	memmove(sb->buf, sb->buf + n, sb->len - n + 1);
	sb->len -= n;
}

char *strbuf_detach(struct strbuf *sb, size_t *ret_len)
{
	char *out;

	strbuf_reserve(sb, 0);
	out = sb->buf;
	if (ret_len)
		*ret_len = sb->len;
	strbuf_init(sb);
	return out;
}
