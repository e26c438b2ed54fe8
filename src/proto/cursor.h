/*
 * Typed cursors over a message.  Numbers are little-endian.  Both sides keep
 * going after a failure and say so once at the end (bad), so that encoders and
 * decoders are straight lists of fields.  A decoder never reads behind its
 * message and hands out pointers into it (borrowed).
 */
#ifndef PROTO_CURSOR_H
#define PROTO_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct put {
	uint8_t *buf;
	size_t cap, len;
	bool bad; /* something did not fit */
};

struct get {
	const uint8_t *buf;
	size_t len, at;
	bool bad; /* something was missing or out of bounds */
};

void put_init(struct put *p, void *buf, size_t cap);
void put_u8(struct put *p, uint8_t v);
void put_u16(struct put *p, uint16_t v);
void put_u32(struct put *p, uint32_t v);
void put_u64(struct put *p, uint64_t v);
void put_bytes(struct put *p, const void *data, size_t n); /* no length in front */
void put_blob(struct put *p, const void *data, size_t n);  /* u32 length, bytes */
void put_str(struct put *p, const char *s);                /* u32 length, bytes, NUL */

void get_init(struct get *g, const void *buf, size_t len);
uint8_t get_u8(struct get *g);
uint16_t get_u16(struct get *g);
uint32_t get_u32(struct get *g);
uint64_t get_u64(struct get *g);
void get_bytes(struct get *g, void *out, size_t n); /* zeroes when bad */
const void *get_blob(struct get *g, size_t max, size_t *ret_n);
/* NUL-terminated, no NUL inside, at most max bytes; "" when bad. */
const char *get_str(struct get *g, size_t max);
/* What is left, as it is. */
const void *get_rest(struct get *g, size_t *ret_n);
/* Everything was there, and nothing is left over. */
bool get_done(const struct get *g);

#endif
