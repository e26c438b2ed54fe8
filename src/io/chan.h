/*
 * A framed connection in the loop: sends in order, queues what the socket
 * doesn't take, hands over each frame that arrives.  Descriptors given to
 * chan_send() are duplicated when the frame has to wait, so that the caller may
 * close its own at once; when that fails the connection ends, because a frame
 * without its descriptors would mean something else.
 */
#ifndef IO_CHAN_H
#define IO_CHAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "io/loop.h"
#include "io/msg.h"

struct chan_frame;
struct chan {
	struct loop *loop;
	struct loop_io io;
	int fd; /* owned */
	size_t frame_max;
	struct chan_frame *first, **last;
	size_t queued_bytes;

	/* A frame (borrowed). fds is NULL unless accept_fds; what stays in it is closed. */
	void (*on_frame)(struct chan *c, const uint8_t *frame, size_t n, struct msg_fds *fds);
	/* The connection ended; err says why (code OK: end of file).  The chan is closed. */
	void (*on_end)(struct chan *c, const struct garret_error *err);
	/*
	 * NULL, or called from the loop when a queue that some chan_send() left above
	 * room_mark bytes is empty: who produces may go on.
	 */
	void (*on_room)(struct chan *c);
	size_t room_mark;
	void *ctx;
	bool accept_fds;

	/* The rest is the chan's own. */
	bool paused, full, broken;
	struct garret_error why; /* broken: what on_end is told */
	bool *gone;              /* set when it is closed inside its own callback */
};

/* fd passes to the chan (also on failure) and becomes non-blocking. */
int chan_open(struct chan *c, struct loop *l, int fd, size_t frame_max, struct garret_error *err);
void chan_close(struct chan *c); /* idempotent; on_end isn't called */
bool chan_is_open(const struct chan *c);
/*
 * Read nothing from the peer until it is ended with false: frames wait in the
 * socket, and with them that the peer hung up.  A chan that can't send any more
 * ends all the same.
 */
void chan_pause(struct chan *c, bool pause);
/* Failures are told by on_end, from the loop and never from inside. */
void chan_send(struct chan *c, const void *frame, size_t n, const int *fds, unsigned n_fds);

#endif
