/*
 * A session from the request to its last trace:
 *
 *	QUEUED    waits for a slot
 *	BUILDING  the helper has its order
 *	RUNNING   init answers its owner
 *	KILLING   its first process was told to die, and everything in it dies with it
 *	CLEANING  groups and directories are removed; then the owner is told
 */
#ifndef ENGINE_SESSION_H
#define ENGINE_SESSION_H

#include "engine/engine.h"
#include "engine/store.h"
#include "io/msg.h"

struct peer;

/*
 * Begin one.  The answer (OPENED or ERROR) goes to the peer later; a failure here
 * is the caller's to report.  Takes the descriptors it uses out of fds.
 */
int session_open(struct engine *e, struct peer *peer, uint64_t request, const struct engine_open *o,
		 struct msg_fds *fds, struct garret_error *err);
/* End it; DONE is the answer to request when nothing of it is left. */
int session_close(struct engine *e, struct peer *peer, uint64_t request, uint64_t handle,
		  enum engine_close how, struct garret_error *err);
/*
 * Remove what (bits of enum engine_purge) is kept of an id that no session has open, unless
 * it was used at another time than used_ms (0: whenever).  File-only sessions over it end.
 */
int session_purge(struct engine *e, const char *id, unsigned what, uint64_t used_ms,
		  struct garret_error *err);
int session_usage(struct engine *e, const struct peer *peer, uint64_t handle,
		  struct engine_usage *ret, struct garret_error *err);
/*
 * What a living session would have for limits, and has now; *ret_group (borrowed) is its
 * control group.  Then: it was given them.
 */
int session_limits_check(struct engine *e, const struct peer *peer, const struct engine_limits *l,
			 struct cgroup_limits *ret_before, struct cgroup_limits *ret_after,
			 const char **ret_group, struct garret_error *err);
int session_limits_taken(struct engine *e, const struct peer *peer, uint64_t handle,
			 const struct cgroup_limits *l, struct garret_error *err);
/* The peer is gone: its sessions end, but for durable ones. */
void session_peer_gone(struct engine *e, struct peer *peer);
void session_end_everything(struct engine *e);
/* The same, but durable ones are forgotten and go on: a later engine restores them. */
void session_leave_durable(struct engine *e);

/* A durable session of an earlier engine, proven to live by pidfd (taken); false: it can't be. */
bool session_restore(struct engine *e, const char *slot, const struct store_meta *m, int *pidfd);
/* Give one whose owner has gone to a peer of the same user and tag: OPENED is the answer. */
int session_adopt(struct engine *e, struct peer *peer, uint64_t request, uint64_t handle,
		  struct garret_error *err);
/* End those that the peer could have adopted, and didn't. */
void session_settle(struct engine *e, const struct peer *peer);

bool session_in_slot(const struct engine *e, const char *slot);

/* From the slots: one is ready; preparing fails; and how many sessions wait for one. */
void session_slot_ready(struct engine *e);
void session_slot_failed(struct engine *e);
unsigned session_queue(const struct engine *e);
/* From the zygote: a first process (or a helper) has ended. */
void session_exited(struct engine *e, int pid, int status);

#endif
