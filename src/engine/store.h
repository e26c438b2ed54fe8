/*
 * What the engine keeps on disk, all root's and 0700:
 *
 *	<state>/lock, sessions/<slot>/{home,vartmp,meta}, layers/<id>, trash/
 *	<workspace root>/<id>/workspace, .trash/
 *
 * Directories are held open; names below them are ids that were checked.
 */
#ifndef ENGINE_STORE_H
#define ENGINE_STORE_H

#include "engine/engine.h"

/* Open or make the directories and take the lock: one engine per state directory. */
int store_open(struct engine *e, struct garret_error *err);
void store_close(struct engine *e);

/* A name for the engine of this state directory that survives restarts; claimed while it runs. */
void store_instance(const struct engine *e, char *ret /* 17 */);
/* Does no engine with that name run?  False when that can't be told. */
bool store_instance_dead(const struct engine *e, const char *instance);

/* What a later engine has to know of a session: who its init is, and what it was given. */
struct store_meta {
	int pid;
	uint64_t start_time, pid_namespace; /* the proof */
	uint32_t base, project;
	uid_t uid; /* whose it is */
	bool durable, own_workspace;
	bool layer; /* what it has on the disk is in layers/<id> */
	uint8_t owner[ENGINE_OWNER_TAG];
	char id[ENGINE_ID_MAX + 1];
	char boot[40];
};
int store_write_meta(struct engine *e, const char *slot, const struct store_meta *m,
		     struct garret_error *err);
/*
 * Look at what earlier sessions left.  restore() is asked for each durable one whose init
 * is proven to live (it takes pidfd); what it doesn't take is killed, and the
 * directory moved to the trash.
 */
void store_sweep(struct engine *e, bool (*restore)(struct engine *e, const char *slot,
						   const struct store_meta *m, int *pidfd));

/* Start time and pid namespace of a process; 0 or -1. */
int proof_of(int pid, uint64_t *ret_start_time, uint64_t *ret_pid_namespace);

#endif
