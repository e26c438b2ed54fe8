#include "proto/cursor.h"

#include <endian.h>
#include <string.h>

void put_init(struct put *p, void *buf, size_t cap)
{
	*p = (struct put){ .buf = buf, .cap = cap };
}

void put_bytes(struct put *p, const void *data, size_t n)
{
	if (p->bad || n > p->cap - p->len) {
		p->bad = true;
		return;
	}
	if (n)
		memcpy(p->buf + p->len, data, n);
	p->len += n;
}

void put_u8(struct put *p, uint8_t v)
{
	put_bytes(p, &v, sizeof(v));
}

void put_u16(struct put *p, uint16_t v)
{
	v = htole16(v);
	put_bytes(p, &v, sizeof(v));
}

void put_u32(struct put *p, uint32_t v)
{
	v = htole32(v);
	put_bytes(p, &v, sizeof(v));
}

void put_u64(struct put *p, uint64_t v)
{
	v = htole64(v);
	put_bytes(p, &v, sizeof(v));
}

void put_blob(struct put *p, const void *data, size_t n)
{
	if (n > UINT32_MAX) {
		p->bad = true;
		return;
	}
	put_u32(p, (uint32_t)n);
	put_bytes(p, data, n);
}

void put_str(struct put *p, const char *s)
{
	size_t n = strlen(s);

	put_blob(p, s, n);
	put_u8(p, 0);
}

void get_init(struct get *g, const void *buf, size_t len)
{
	*g = (struct get){ .buf = buf, .len = len };
}

static const void *take(struct get *g, size_t n)
{
	const void *p;

	if (g->bad || n > g->len - g->at) {
		g->bad = true;
		return NULL;
	}
	p = g->buf + g->at;
	g->at += n;
	return p;
}

void get_bytes(struct get *g, void *out, size_t n)
{
	const void *p = take(g, n);

	if (p)
		memcpy(out, p, n);
	else
		memset(out, 0, n);
}

uint8_t get_u8(struct get *g)
{
	uint8_t v;

	get_bytes(g, &v, sizeof(v));
	return v;
}

uint16_t get_u16(struct get *g)
{
	uint16_t v;

	get_bytes(g, &v, sizeof(v));
	return le16toh(v);
}

uint32_t get_u32(struct get *g)
{
	uint32_t v;

	get_bytes(g, &v, sizeof(v));
	return le32toh(v);
}

uint64_t get_u64(struct get *g)
{
	uint64_t v;

	get_bytes(g, &v, sizeof(v));
	return le64toh(v);
}

const void *get_blob(struct get *g, size_t max, size_t *ret_n)
{
	size_t n = get_u32(g);
	const void *p;

	if (n > max)
		g->bad = true;
	p = take(g, n);
	*ret_n = p ? n : 0;
	return p ? p : "";
}

const char *get_str(struct get *g, size_t max)
{
	size_t n;
	const char *s = get_blob(g, max, &n);
	const char *end = take(g, 1);

	if (!end || *end || memchr(s, 0, n)) {
		g->bad = true;
		return "";
	}
	return s;
}

const void *get_rest(struct get *g, size_t *ret_n)
{
	const void *p;

	*ret_n = g->bad ? 0 : g->len - g->at;
	p = take(g, *ret_n);
	return p ? p : "";
}

bool get_done(const struct get *g)
{
	return !g->bad && g->at == g->len;
}
