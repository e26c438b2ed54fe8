/* The directories of sessions that are kept. */
#ifndef ENGINE_WORKSPACE_H
#define ENGINE_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct engine;

/*
 * The directory of workspace ID, made when it doesn't exist; its descriptor (O_PATH)
 * and owner; attach: NOT_FOUND instead of making one.  One that belongs to root is
 * refused: a session's files would be root's.  It is bound to disk_bytes (0: no limit);
 * *ret_project: see disk_bound().
 */
int workspace_open(struct engine *e, const char *id, bool attach, uint64_t disk_bytes,
		   uint32_t *ret_uid, uint32_t *ret_gid, uint32_t *ret_project,
		   struct garret_error *err);
/* The same for who only looks: NOT_FOUND when there is none, and nothing is made or changed. */
int workspace_find(struct engine *e, const char *id, uint32_t *ret_uid, uint32_t *ret_gid,
		   struct garret_error *err);
/* It was used now. */
void workspace_touch(struct engine *e, const char *id);
/* Move it to the trash. */
int workspace_remove(struct engine *e, const char *id, struct garret_error *err);

/* Prepare a few, when nothing else is to be done. */
void workspace_refill(struct engine *e);

#endif
