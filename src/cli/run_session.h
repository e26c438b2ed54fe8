/*
 * A private session for `garret run`: an engine of our own, one session in it,
 * one command.  Everything ends with us.
 */
#ifndef CLI_RUN_SESSION_H
#define CLI_RUN_SESSION_H

#include <stdint.h>

#include "io/loop.h"
#include "provider/engine_client.h"
#include "provider/init_client.h"

struct private_session {
	struct loop *loop;
	struct engine_client *engine;
	struct init_client *init;
	pid_t engine_pid;
	uint64_t handle;
	char state_dir[128];
	int lock_fd; /* of state_dir: it is in use; -EBADF before the start */
	/* The session is open (err NULL), or can't be had. */
	void (*opened)(void *ctx, const struct garret_error *err);
	/* It ended under us. */
	void (*lost)(void *ctx, const struct garret_error *err);
	void (*closed)(void *ctx);
	void *ctx;
	const struct init_events *events;
	struct engine_open spec;
	const int *volume_fds;
	int init_sock; /* the engine's end, until OPEN was sent; -EBADF before the start */
	bool greeted, is_open, closing, failed;
	struct loop_later later;
};

/* Where private engines have their state, made when it isn't there; GARRET_RUN_DIR says where. */
int private_runs_dir(char runs[96], struct garret_error *err);
/* spec (strings borrowed until opened) lacks nonce and flags, which are set here. */
int private_session_start(struct private_session *s, const struct engine_open *spec,
			  const int *volume_fds, struct garret_error *err);
/* End everything; closed() is called when nothing is left. */
void private_session_close(struct private_session *s);

#endif
