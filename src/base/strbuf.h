/*
 * Text and bytes that grow.  buf is never NULL and always has a NUL behind
 * len bytes, so it can be read as a C string at any time.
 */
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct strbuf {
	char *buf;
	size_t len, cap; /* cap 0: buf is the shared empty string */
};

extern char strbuf_empty[1];
#define STRBUF_INIT                                     \
	{                                               \
		.buf = strbuf_empty, .len = 0, .cap = 0 \
	}

void strbuf_init(struct strbuf *sb);
void strbuf_release(struct strbuf *sb); /* frees; usable again */
void strbuf_reset(struct strbuf *sb);   /* len = 0, memory kept */
void strbuf_reserve(struct strbuf *sb, size_t extra);
void strbuf_add(struct strbuf *sb, const void *data, size_t n);
void strbuf_addstr(struct strbuf *sb, const char *s);
void strbuf_addch(struct strbuf *sb, int c);
void strbuf_addf(struct strbuf *sb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void strbuf_remove_front(struct strbuf *sb, size_t n);
/* The memory passes to the caller (free()); sb is empty again. */
char *strbuf_detach(struct strbuf *sb, size_t *ret_len);

#define autobuf __attribute__((cleanup(strbuf_release)))

#endif
