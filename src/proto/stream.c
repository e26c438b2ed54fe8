#include "proto/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void stream_put_header(uint8_t out[STREAM_HEADER_BYTES], uint8_t type, uint32_t channel, size_t n)
{
	struct put p;

	put_init(&p, out, STREAM_HEADER_BYTES);
	put_u32(&p, (uint32_t)n);
	put_u32(&p, channel);
	put_u8(&p, type);
	put_u8(&p, 0);
	put_u16(&p, 0);
}

/* The length of the body; -1: this is no header. */
static long parse_header(const uint8_t *header, struct stream_frame *ret)
{
	struct get g;
	uint32_t n;

	get_init(&g, header, STREAM_HEADER_BYTES);
	n = get_u32(&g);
	ret->channel = get_u32(&g);
	ret->type = get_u8(&g);
	if (get_u8(&g) || get_u16(&g) || n > STREAM_FRAME_MAX || !ret->type ||
	    ret->type >= STREAM_TYPES)
		return -1;
	return (long)n;
}

static size_t move(uint8_t *to, size_t want, const uint8_t **data, size_t *n)
{
	size_t now = MIN(want, *n);

	memcpy(to, *data, now);
	*data += now;
	*n -= now;
	return now;
}

int stream_read(struct stream_reader *r, const uint8_t **data, size_t *n, struct stream_frame *ret)
{
	long body;

	if (r->have < STREAM_HEADER_BYTES)
		r->have += move(r->header + r->have, STREAM_HEADER_BYTES - r->have, data, n);
	if (r->have < STREAM_HEADER_BYTES)
		return 0;
	body = parse_header(r->header, ret);
	if (body < 0)
		return -1;
	ret->n = (size_t)body;
	if (r->have == STREAM_HEADER_BYTES && *n >= ret->n) { /* often all of it is there */
		ret->data = *data;
		*data += ret->n;
		*n -= ret->n;
		r->have = 0;
		return 1;
	}
	if (!r->body)
		r->body = xmalloc(STREAM_FRAME_MAX);
	r->have += move(r->body + (r->have - STREAM_HEADER_BYTES),
			STREAM_HEADER_BYTES + ret->n - r->have, data, n);
	if (r->have < STREAM_HEADER_BYTES + ret->n)
		return 0;
	ret->data = r->body;
	r->have = 0;
	return 1;
}

void stream_reader_release(struct stream_reader *r)
{
	free(r->body);
	*r = (struct stream_reader){ .have = 0 };
}

void stream_put_hello(struct put *p, const struct stream_hello *h)
{
	put_u32(p, STREAM_MAGIC);
	put_u16(p, h->major);
	put_u16(p, h->minor);
	put_bytes(p, h->nonce, INIT_NONCE);
	put_str(p, h->program);
}

bool stream_get_hello(struct get *g, struct stream_hello *ret)
{
	uint32_t magic = get_u32(g);

	ret->major = get_u16(g);
	ret->minor = get_u16(g);
	get_bytes(g, ret->nonce, INIT_NONCE);
	ret->program = get_str(g, STREAM_PROGRAM_MAX);
	return get_done(g) && magic == STREAM_MAGIC;
}

void stream_put_spool(struct put *p, const struct stream_spool *s, bool with_length)
{
	put_u32(p, s->index);
	put_u8(p, s->stream);
	put_u64(p, s->offset);
	if (with_length)
		put_u32(p, s->length);
}

bool stream_get_spool(struct get *g, struct stream_spool *ret, bool with_length)
{
	ret->index = get_u32(g);
	ret->stream = get_u8(g);
	ret->offset = get_u64(g);
	ret->length = with_length ? get_u32(g) : 0;
	return !g->bad && ret->stream < 2 && ret->length <= STREAM_SPOOL_READ_MAX &&
	       ret->offset <= INT64_MAX - STREAM_SPOOL_READ_MAX;
}

void stream_put_end(struct put *p, const struct stream_end *e)
{
	put_u8(p, e->why);
	put_u32(p, e->sys);
	put_str(p, e->msg);
}

bool stream_get_end(struct get *g, struct stream_end *ret)
{
	ret->why = get_u8(g);
	ret->sys = get_u32(g);
	ret->msg = get_str(g, STREAM_MSG_MAX);
	return get_done(g) && ret->why > 0 && ret->why < STREAM_ENDS;
}
