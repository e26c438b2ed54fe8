/* The directories of sessions that are kept. */
#ifndef ENGINE_WORKSPACE_H
#define ENGINE_WORKSPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct engine;

struct workspace {
	int fd;            /* O_PATH: the directory, or the one that its image lies in */
	uint32_t uid, gid; /* whose it is, on disk */
	uint32_t project;  /* see disk_bound() */
	bool image;
	uint64_t image_bytes; /* see image_mount() */
};

/*
 * Workspace ID, made when it doesn't exist, bound to disk_bytes (0: no limit); attach:
 * NOT_FOUND instead of making one.  One that belongs to root is refused: a session's files
 * would be root's.  ret->fd is the caller's.
 */
int workspace_open(struct engine *e, const char *id, bool attach, uint64_t disk_bytes,
		   struct workspace *ret, struct garret_error *err);
/* The same for who only looks: NOT_FOUND when there is none, and nothing is made or changed. */
int workspace_find(struct engine *e, const char *id, struct workspace *ret,
		   struct garret_error *err);
/* When it was used last, in ms of wall time; 0: there is none. */
uint64_t workspace_used_ms(const struct engine *e, const char *id);
/* Was it made, or used, by an engine?  What isn't is never removed by age. */
bool workspace_marked(int root, const char *id);
/* What it takes on the disk, without a walk: by its quota, or UINT64_MAX. */
uint64_t workspace_bytes(const struct engine *e, const char *id);
/* It was used now. */
void workspace_touch(struct engine *e, const char *id);
/* Move it to the trash. */
int workspace_remove(struct engine *e, const char *id, struct garret_error *err);

/* Prepare a few, when nothing else is to be done. */
void workspace_refill(struct engine *e);

#endif
