/*
 * What the engine keeps on disk, all root's and 0700:
 *
 *	<state>/lock, sessions/<slot>/{home,vartmp,meta}, trash/
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

/* Proof of who the session's init is, for a start after a crash. */
int store_write_meta(struct engine *e, const char *slot, int pid, uint64_t start_time,
		     uint64_t pid_namespace, struct garret_error *err);
/* Kill what earlier sessions left (proven by meta), then move their directories to the trash. */
void store_sweep(struct engine *e);

/* Start time and pid namespace of a process; 0 or -1. */
int proof_of(int pid, uint64_t *ret_start_time, uint64_t *ret_pid_namespace);

#endif
