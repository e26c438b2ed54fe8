/*
 * An init behind a byte stream (proto/stream.h), as if it were on this machine.
 *
 * What this gives out is a SEQPACKET socket: whoever speaks proto/init.h over it
 * (init_client) may pass the descriptors of file workers, of strings and of pipes
 * as to a native init.  The other ends of all of them are here, and travel as
 * channels of one stream.  Spool files are made on both sides: what init writes
 * to its own is fetched into ours, and only then told.
 *
 * The stream may be cut at any moment and another given: commands go on
 * meanwhile, nothing of them is lost or done twice, and the socket's user sees
 * nothing of it.  File operations under way end with UNAVAILABLE (those that only
 * read are asked again once).
 */
#ifndef PROVIDER_INIT_STREAM_H
#define PROVIDER_INIT_STREAM_H

#include "io/loop.h"
#include "proto/stream.h"

struct init_stream;

/* How bytes get out and are held back.  All of it belongs to whoever made it. */
struct init_transport {
	/* How many bytes were taken; after fewer than n, init_stream_writable() is due. */
	size_t (*write)(void *ctx, const void *data, size_t n);
	/* Feed nothing for now, or go on.  May be NULL: then feed() is always allowed. */
	void (*pause)(void *ctx, bool pause);
	/* It isn't used any more (never called from inside write). */
	void (*close)(void *ctx);
	void *ctx;
};

struct init_stream_events {
	/* Init answers: the first time, and again after each cut.  Not to be freed inside. */
	void (*live)(void *ctx);
	/*
	 * The transport is over and closed.  GONE: there is no such init any more.
	 * UNSUPPORTED, PROTOCOL: what answers is something else.  Otherwise another
	 * init_stream_begin() makes sense.  The stream may be freed inside.
	 */
	void (*cut)(void *ctx, const struct garret_error *err);
	/* Our own file for the spool of that number, to be written (O_RDWR); -1 with errno. */
	int (*spool)(void *ctx, uint32_t index, int stream);
};

struct init_stream_config {
	struct loop *loop;
	const struct init_stream_events *events;
	void *ctx;
	const uint8_t *nonce; /* NULL, or of the init that it has to be */
};

/* *ret_control: the socket, for init_client_new(). */
int init_stream_new(const struct init_stream_config *config, struct init_stream **ret,
		    int *ret_control, struct garret_error *err);
/* The socket ends for its user, the transport is closed, no event comes. */
struct init_stream *init_stream_free(struct init_stream *s);

/* A connected transport; the last one is closed. */
void init_stream_begin(struct init_stream *s, const struct init_transport *t);
/* The same with descriptors (which pass, also on failure; both may be the same one). */
int init_stream_begin_fds(struct init_stream *s, int in, int out, struct garret_error *err);
/* What the transport brought.  live() may come from inside, cut() comes later. */
void init_stream_feed(struct init_stream *s, const void *data, size_t n);
void init_stream_writable(struct init_stream *s);
/* It ended, err (may be NULL) says why.  cut() comes from inside. */
void init_stream_ended(struct init_stream *s, const struct garret_error *err);

struct loop *init_stream_loop(const struct init_stream *s);
bool init_stream_is_live(const struct init_stream *s);
/* Which init it is, once it was live: for the box's mark. */
const uint8_t *init_stream_nonce(const struct init_stream *s);
/* What it says of itself: version and machine; "" before. */
const char *init_stream_program(const struct init_stream *s);

#endif
