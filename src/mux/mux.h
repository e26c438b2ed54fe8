/*
 * Many channels over one byte stream (proto/stream.h), the same at both ends.
 *
 * A channel joins a local descriptor with its other half at the peer: a
 * SEQPACKET socket whose messages arrive whole, or a pipe.  What the descriptor
 * doesn't take waits here, at most a window; what the peer may not be sent yet
 * isn't read.  When the transport takes no more nothing is read at all.
 *
 * A pipe whose reader has gone is found out by writing: SIGPIPE has to be ignored.
 * Frames that belong to no channel are the user's (frame()).
 */
#ifndef MUX_MUX_H
#define MUX_MUX_H

#include "base/list.h"
#include "base/strbuf.h"
#include "io/chan.h"
#include "proto/stream.h"

/* How bytes get out.  Bytes from the other side come by mux_feed(). */
struct mux_transport {
	/* How many bytes were taken; after fewer than n, mux_writable() is due. */
	size_t (*write)(void *ctx, const void *data, size_t n);
	void *ctx;
};

struct mux;
struct mux_channel;

struct mux_events {
	/* False: it makes no sense; the stream is over then (broken()). */
	bool (*frame)(void *ctx, const struct stream_frame *f);
	/* What came is no frame, or one that may not come.  The mux is silent from now on. */
	void (*broken)(void *ctx, const char *why);
	/* The transport takes bytes again: who held back may go on. */
	void (*room)(void *ctx);
};

struct mux {
	struct loop *loop;
	struct mux_transport transport;
	const struct mux_events *events;
	void *ctx;
	struct stream_reader reader;
	struct strbuf out; /* what the transport hasn't taken, from out_at on */
	size_t out_at;
	struct loop_later flush;
	struct list channels;
	unsigned n_channels;
	bool full; /* channels aren't read until the transport has taken what waits */
	bool over;
	bool *gone; /* set when it is ended inside its own callback */
};

enum mux_kind { MUX_MESSAGES, MUX_PIPE_IN /* read here */, MUX_PIPE_OUT /* written here */ };

struct mux_hooks {
	/*
	 * A message of the local socket on its way out.  False: it isn't passed on.  Its
	 * descriptors are closed if nobody takes them.
	 */
	bool (*outgoing)(struct mux_channel *c, const uint8_t *msg, size_t n, struct msg_fds *fds);
	/* The channel is over, by whichever end, and will be freed. */
	void (*ended)(struct mux_channel *c);
};

struct mux_channel {
	struct list link;
	struct mux *mux;
	uint32_t id;
	enum mux_kind kind;
	const struct mux_hooks *hooks; /* may be NULL */
	void *ctx;

	struct chan chan;  /* MESSAGES */
	struct loop_io io; /* pipes */
	int fd;
	struct strbuf queue; /* of PIPE_OUT, from queue_at on */
	size_t queue_at;

	size_t credit;  /* bytes that we may send */
	size_t allowed; /* bytes that the peer may send */
	size_t owed;    /* passed on, and not yet given back as credit */
	bool closing;   /* the peer closed it: over once all is passed on */
};

void mux_begin(struct mux *m, struct loop *loop, const struct mux_transport *t,
	       const struct mux_events *events, void *ctx);
/* Every channel ends; nothing is sent. */
void mux_end(struct mux *m);
void mux_feed(struct mux *m, const void *data, size_t n);
void mux_writable(struct mux *m);
/* Never fails; who produces much looks at mux_full() first. */
void mux_send(struct mux *m, uint8_t type, uint32_t channel, const void *data, size_t n);
static inline bool mux_full(const struct mux *m)
{
	return m->full;
}

/* fd passes to the channel, also on failure.  NULL with err. */
struct mux_channel *mux_open(struct mux *m, uint32_t id, enum mux_kind kind, int fd,
			     const struct mux_hooks *hooks, void *ctx, struct garret_error *err);
/* Tells the peer. */
void mux_close(struct mux_channel *c);
struct mux_channel *mux_find(struct mux *m, uint32_t id);
/* A message for the local socket, with descriptors, outside the flow control. */
void mux_deliver(struct mux_channel *c, const void *msg, size_t n, const int *fds, unsigned n_fds);

#endif
