/* Peers: who may connect, which message is allowed when, and the answers. */
#ifndef ENGINE_SERVE_H
#define ENGINE_SERVE_H

#include "engine/engine.h"
#include "engine/volume.h"

struct peer;

/*
 * The only peer of a private engine, on a connected socket (taken).  uid: whom it
 * will be, or (uid_t)-1 to ask the socket.
 */
int serve_private(struct engine *e, int sock, uid_t uid, struct garret_error *err);
/* Listen for peers on path, for root and `group` (NULL: root only). */
int serve_system(struct engine *e, const char *path, const char *group, struct garret_error *err);
void serve_stop(struct engine *e); /* no new peers; those there are let go */

int serve_socket(const struct peer *p);
const struct credentials *serve_credentials(const struct peer *p);
/* The tag of those for whom it keeps durable sessions: ENGINE_OWNER_TAG bytes, zero for none. */
const uint8_t *serve_owner(const struct peer *p);

/* Answers.  A peer that doesn't read its answers is let go. */
void serve_done(struct peer *p, uint64_t request);
void serve_error(struct peer *p, uint64_t request, const struct garret_error *err);
void serve_opened(struct peer *p, uint64_t request, const struct engine_opened *o);
void serve_died(struct peer *p, uint64_t handle, uint8_t death);

#endif
