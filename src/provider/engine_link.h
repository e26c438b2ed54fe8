/*
 * Where connections to an engine come from, the first and every later one: from the
 * keeper of a private engine, which sends a socket for each engine it starts, or by
 * connecting to the system's engine until it is there again.
 */
#ifndef PROVIDER_ENGINE_LINK_H
#define PROVIDER_ENGINE_LINK_H

#include "base/error.h"
#include "io/loop.h"

struct engine_link {
	struct loop *loop;
	/* fd is the callee's. */
	void (*socket)(void *ctx, int fd);
	/* The keeper has ended: there will be no engine again. */
	void (*gone)(void *ctx, const struct garret_error *err);
	void *ctx;

	/* The rest is the link's own. */
	int control;      /* to the keeper, or -EBADF */
	const char *path; /* of the system's socket (borrowed), or NULL */
	struct loop_io io;
	struct loop_timer retry;
	unsigned pause_ms;
};

/* One of control (taken) and path. socket() is called from the loop. */
int engine_link_open(struct engine_link *l, int control, const char *path,
		     struct garret_error *err);
/* The connection was lost: look for the next one. */
void engine_link_again(struct engine_link *l);
void engine_link_close(struct engine_link *l);

#endif
