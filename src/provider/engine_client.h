/*
 * The engine as garretd and the CLI see it: one connection, requests answered
 * in the loop.  A private engine is started as a child and ends with the
 * connection; a system engine is connected to by its socket.
 */
#ifndef PROVIDER_ENGINE_CLIENT_H
#define PROVIDER_ENGINE_CLIENT_H

#include "io/chan.h"
#include "proto/engine.h"

struct engine_client;

struct engine_events {
	void (*ready)(void *ctx, const struct engine_hello *hello);
	/* The connection is gone, and with it every session of a private engine. */
	void (*lost)(void *ctx, const struct garret_error *err);
	void (*died)(void *ctx, uint64_t handle, enum engine_death how);
	void (*doctor_row)(void *ctx, unsigned level, const char *name, const char *text);
};

typedef void (*engine_opened_fn)(void *ctx, const struct engine_opened *o,
				 const struct garret_error *err);
typedef void (*engine_done_fn)(void *ctx, const struct garret_error *err);
typedef void (*engine_workspace_fn)(void *ctx, const struct engine_workspace *w);
typedef void (*engine_usage_fn)(void *ctx, const struct engine_usage *u,
				const struct garret_error *err);

/*
 * Start PROGRAM as a private engine over STATE and return our end of its
 * socket; the child's pid in *ret_pid.  ARGS (may be NULL) are added.
 */
int engine_start(const char *program, const char *state, const char *const *args, int *ret_fd,
		 pid_t *ret_pid, struct garret_error *err);
/* Connect to a running engine's socket. */
int engine_connect(const char *path, int *ret_fd, struct garret_error *err);

/*
 * A client that has no connection yet, or fd (passes to it).  events is borrowed and must
 * outlive it.  What is asked while there is none is answered with UNAVAILABLE.
 */
int engine_client_new(struct loop *l, int fd, const struct engine_events *events, void *ctx,
		      struct engine_client **ret, struct garret_error *err);
/* A connection after the one that was lost; ready() comes again. */
int engine_client_connect(struct engine_client *c, int fd, struct garret_error *err);
/* Is there an engine, or one that is just starting? */
bool engine_client_connected(const struct engine_client *c);
struct engine_client *engine_client_free(struct engine_client *c); /* no callback after it */

/*
 * init_sock and volume_fds are borrowed.  err NULL in the callback: success.
 * A request whose answer is lost with the connection is answered with UNAVAILABLE.
 */
void engine_client_open(struct engine_client *c, const struct engine_open *o, int init_sock,
			const int *volume_fds, engine_opened_fn done, void *ctx);
void engine_client_close(struct engine_client *c, uint64_t handle, enum engine_close how,
			 engine_done_fn done, void *ctx);
/* CONFLICT: the session uses more memory than that, and it can't be taken back. */
void engine_client_limits(struct engine_client *c, const struct engine_limits *l,
			  engine_done_fn done, void *ctx);
void engine_client_usage(struct engine_client *c, uint64_t handle, engine_usage_fn done, void *ctx);
/*
 * The workspaces on the engine's disk: row for each (borrowed), in no order, and then done.
 * What is counted takes a while and nobody waits for it; one question at a time.
 */
void engine_client_workspaces(struct engine_client *c, bool sizes, engine_workspace_fn row,
			      engine_done_fn done, void *ctx);
/*
 * Remove what of one (bits of enum engine_purge): CONFLICT while a session of that id is open
 * or when it was used at another time than used_ms (0: whenever), NOT_FOUND when there is none.
 */
void engine_client_purge(struct engine_client *c, const char *id, unsigned what, uint64_t used_ms,
			 engine_done_fn done, void *ctx);
/* Before any durable session: for whom they are kept. */
void engine_client_owner(struct engine_client *c, const uint8_t tag[ENGINE_OWNER_TAG],
			 engine_done_fn done, void *ctx);
/* Take over a durable session whose owner has gone: NOT_FOUND when there is none. */
void engine_client_adopt(struct engine_client *c, uint64_t handle, engine_opened_fn done,
			 void *ctx);
/* Those of the owner that were not adopted end. */
void engine_client_settle(struct engine_client *c, engine_done_fn done, void *ctx);
void engine_client_doctor(struct engine_client *c, engine_done_fn done, void *ctx);

#endif
