/* How much a tree holds. */
#ifndef ENGINE_MEASURE_H
#define ENGINE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct measure {
	uint64_t bytes; /* on disk; a file with several names counts once */
	uint64_t files; /* names, those of directories too */
	bool partial;   /* at least so much: it changed too quickly, or the time was over */
};

/*
 * Call fn for everything below dirfd: no link is followed and no other file system entered, two
 * descriptors and 24 bytes a level are needed.  For a process of its own: it may take long.
 * False: not everything was seen.
 */
typedef void (*measure_fn)(void *ctx, int dir, const char *name, const struct stat *st);
bool measure_visit(int dirfd, uint64_t deadline_ms, measure_fn fn, void *ctx);

struct measure measure_tree(int dirfd, uint64_t deadline_ms);

#endif
