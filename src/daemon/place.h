/* Where sessions are: native ones of an engine, or containers of Docker. */
#ifndef DAEMON_PLACE_H
#define DAEMON_PLACE_H

#include "core/config.h"
#include "daemon/state.h"
#include "provider/native.h"

struct place {
	const struct provider_ops *ops; /* NULL: nothing yet */
	struct provider *provider;
	struct provider *(*free)(struct provider *p);
};

/* Sessions in containers; it can be used at once. */
int place_docker(struct loop *l, const struct config *c, const struct state *s, int runs_fd,
		 struct place *ret, struct garret_error *err);
int place_native(const struct native_config *native, struct place *ret, struct garret_error *err);
void place_release(struct place *p);

/*
 * The group that may use the Docker engine's socket, which garretd keeps when it gives root up;
 * (gid_t)-1: it needs none, or it is not a socket of this machine.  DENIED when that is root's,
 * and an error when the socket isn't there.
 */
int place_docker_group(gid_t *ret, struct garret_error *err);

#endif
