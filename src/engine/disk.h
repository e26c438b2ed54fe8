/*
 * How much a session may write to the disk.  Where the file system has project quotas (ext4 with
 * the feature, xfs), every workspace is a project, whose number its parent directory carries,
 * and so is what else a session has on the disk.  The file system answers the writer with
 * EDQUOT, and knows how much there is without a walk.
 */
#ifndef ENGINE_DISK_H
#define ENGINE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct engine;

/* In e->disk. */
struct disk {
	bool quota;        /* limits are project quotas */
	bool images;       /* else: file systems in files (image.h) */
	uint32_t next;     /* where to look for a project that nothing uses */
	char missing[256]; /* why not, when not */
};

/* Find out by doing it, in a child that is waited for: at the start only. */
void disk_open(struct engine *e);

bool disk_dir_empty(int dir);

/* A project that nothing uses, or 0. */
uint32_t disk_pick(struct engine *e);
/* bytes 0: no limit. */
int disk_limit(int fs_fd, uint32_t project, uint64_t bytes, struct garret_error *err);
int disk_usage(int fs_fd, uint32_t project, uint64_t *ret_bytes, uint64_t *ret_files);
/* Of the directory itself; 0: none of ours. The descriptor may be an O_PATH one. */
uint32_t disk_project(int dir);
/* Give the directory to a project, and what will be made in it. */
int disk_set_project(int dir, uint32_t project, struct garret_error *err);
/* And everything in it first; what has it already costs little. For a process that may wait. */
int disk_convert(int dir, uint32_t project, struct garret_error *err);

/*
 * Bound workspace DIR below PARENT.  *ret_convert: the project that has yet to be given to
 * what is in it, with disk_convert(), or 0.
 */
int disk_bound(struct engine *e, int parent, int dir, uint64_t bytes, uint32_t *ret_convert,
	       struct garret_error *err);

#endif
