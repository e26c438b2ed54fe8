/*
 * What a session will be made of, gathered while its request is at hand: the order
 * for the helper, the init socket and a detached mount for each part.
 */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include "engine/engine.h"
#include "engine/volume.h"
#include "io/msg.h"

struct slot;

struct plan {
	struct build_order *order;       /* NULL when done */
	int init_fd, mounts[MOUNTS_MAX]; /* in the order's order */
	bool ephemeral;
	const char *layer;   /* the id (borrowed) whose kept write layer it uses, or NULL */
	uint64_t disk_bytes; /* 0: no limit */
};

void plan_init(struct plan *p, const struct engine_open *o, uint64_t tmpfs_bytes,
	       uint64_t disk_bytes);
void plan_done(struct plan *p); /* safe to call again */

/* The init socket (taken from fds) must be of the kind that the request announced. */
int plan_add_socket(struct plan *p, const struct engine_open *o, struct msg_fds *fds,
		    struct garret_error *err);
/* The volumes in fds, and the workspace unless a volume takes its place. */
int plan_add_host(struct plan *p, struct engine *e, const struct engine_open *o,
		  struct msg_fds *fds, int sock, const struct credentials *peer,
		  bool *ret_workspace, struct garret_error *err);
/* What the slot has prepared; the last. */
int plan_add_slot(struct plan *p, const struct engine *e, const struct slot *s,
		  struct garret_error *err);
int plan_send(struct plan *p, const struct engine *e, int sock, struct garret_error *err);

#endif
