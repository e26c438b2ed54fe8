/*
 * Init over one byte stream: what the owner and `garret-init connect` (the relay,
 * a process beside init) say to each other.  The stream is whatever joins them: a
 * hijacked exec, a WebSocket's payload, a pipe.  A frame begins with 12 bytes:
 *
 *	u32 length (of what follows the header)  u32 channel  u8 type  u8[3] zero
 *
 * Both say HELLO first, without waiting for the other.  After it:
 *
 *	CONTROL	one frame of proto/init.h, as it is.  What natively travels as a
 *		descriptor is made by the relay: the file of a long RUN from the
 *		BLOBs before it, a worker's socket pair from WORKER, spool files by
 *		init itself (SPOOL without descriptors).
 *	WORKER	the INIT_WORKER frame; the channel is that worker's from now on.
 *	DATA	on a worker's channel one frame of proto/files.h, on a pipe's some bytes.
 *	PIPE	on a worker's channel: FILE_PIPE; u32: the channel of its bytes
 *	CLOSE	the channel is over; its number isn't used again
 *	CREDIT	u32: so many more bytes of DATA may be sent on that channel
 *
 * A channel begins with STREAM_WINDOW bytes of credit each way, and whoever can't
 * pass bytes on gives none back: so a slow reader holds up its own channel, and
 * nobody keeps more than a window for it.  CONTROL has no credit: both ends of it
 * bound what they have under way (provider/init_stream.c, init/conn.c).
 */
#ifndef PROTO_STREAM_H
#define PROTO_STREAM_H

#include "proto/init.h"

#define STREAM_MAGIC 0x53545247 /* "GRTS" */
#define STREAM_MAJOR 1
#define STREAM_MINOR 0

#define STREAM_HEADER_BYTES 12
#define STREAM_FRAME_MAX INIT_FRAME_MAX /* behind the header */
#define STREAM_BYTES_MAX (60 * 1024)    /* of a pipe or a spool in one frame */
#define STREAM_WINDOW (1024 * 1024)
#define STREAM_CHANNELS_MAX 64
#define STREAM_SPOOL_READ_MAX (1024 * 1024) /* asked for at once */
#define STREAM_SPOOL_READS_MAX 16           /* at a time; an owner asks for half of it */

enum stream_type {
	STREAM_HELLO = 1, /* struct stream_hello */
	STREAM_CONTROL,
	STREAM_BLOB, /* bytes of the strings of the next RUN */
	STREAM_WORKER,
	STREAM_DATA,
	STREAM_PIPE,
	STREAM_CLOSE,
	STREAM_CREDIT,
	STREAM_SPOOL_READ, /* struct stream_spool; answered by SPOOL_DATA until all was sent */
	STREAM_SPOOL_DATA, /* struct stream_spool without length, the bytes; none: not there */
	STREAM_PING,       /* answered by PONG at once */
	STREAM_PONG,
	STREAM_END, /* the relay's last word: struct stream_end */
	STREAM_TYPES
};

struct stream_hello {
	uint16_t major, minor;
	uint8_t nonce[INIT_NONCE]; /* from the relay: which init this is.  Zero from the owner */
	const char *program;       /* for people: version and machine */
};
#define STREAM_PROGRAM_MAX 200

/* A part of an output that init put into a file. */
struct stream_spool {
	uint32_t index;
	uint8_t stream;  /* 0, 1 */
	uint64_t offset; /* in a READ: what is before it was taken, and may be thrown away */
	uint32_t length;
};

enum stream_why {
	STREAM_END_INPUT = 1, /* the owner hung up */
	STREAM_END_NO_INIT,   /* nobody listens */
	STREAM_END_INIT,      /* init has ended */
	STREAM_END_REPLACED,  /* another owner, or another stream of the same one, came */
	STREAM_END_PROTOCOL,  /* a frame that makes no sense */
	STREAM_END_SYSTEM,    /* no memory, no descriptors */
	STREAM_ENDS
};
struct stream_end {
	uint8_t why;     /* enum stream_why */
	uint32_t sys;    /* errno, or 0 */
	const char *msg; /* for people */
};
#define STREAM_MSG_MAX 400

struct stream_frame {
	uint8_t type;
	uint32_t channel;
	const uint8_t *data; /* borrowed */
	size_t n;
};

/* The header in front of n bytes. */
void stream_put_header(uint8_t out[STREAM_HEADER_BYTES], uint8_t type, uint32_t channel, size_t n);

/*
 * Cut frames out of bytes as they come: take from *data and *n.  1 with a frame
 * (borrowed until the next call), 0 when more bytes are needed, -1 when what comes
 * is no frame (and nothing behind it can be either).
 */
struct stream_reader {
	uint8_t header[STREAM_HEADER_BYTES];
	size_t have; /* of header and body together */
	uint8_t *body;
};
int stream_read(struct stream_reader *r, const uint8_t **data, size_t *n, struct stream_frame *ret);
void stream_reader_release(struct stream_reader *r);

void stream_put_hello(struct put *p, const struct stream_hello *h);
/* False also when it is no HELLO of ours at all; majors are for the caller to compare. */
bool stream_get_hello(struct get *g, struct stream_hello *ret);
void stream_put_spool(struct put *p, const struct stream_spool *s, bool with_length);
bool stream_get_spool(struct get *g, struct stream_spool *ret, bool with_length);
void stream_put_end(struct put *p, const struct stream_end *e);
bool stream_get_end(struct get *g, struct stream_end *ret);

#endif
