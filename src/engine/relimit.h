/*
 * New limits for living sessions, one order after the other.  Taking memory back
 * may keep the kernel busy for seconds, so whatever lowers a limit is done by a
 * child; orders wait their turn meanwhile, and nothing else does.
 */
#ifndef ENGINE_RELIMIT_H
#define ENGINE_RELIMIT_H

#include "engine/engine.h"

struct peer;

/* The answer (DONE or ERROR) goes to the peer later; a failure here is the caller's to report. */
int relimit_order(struct engine *e, struct peer *peer, uint64_t request,
		  const struct engine_limits *l, struct garret_error *err);
void relimit_peer_gone(struct engine *e, const struct peer *peer);

#endif
