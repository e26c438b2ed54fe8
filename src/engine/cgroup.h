/*
 * Control groups.  The engine has one directory of its own in each hierarchy it
 * can use, <parent>/<instance>, and in it one directory per slot.  Limits are
 * written there by the engine before anything runs; in a cgroup2 hierarchy the
 * slot's init gets the right to make leaves below it, in `init` it lives itself.
 *
 * On hosts with cgroup v1 the cgroup2 hierarchy (mounted privately when nobody
 * did) is used for grouping only.  cgroup.kill is never written: a group that was
 * killed once also kills what is cloned into it later.
 */
#ifndef ENGINE_CGROUP_H
#define ENGINE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/engine.h"

enum cgroup_hierarchy { CG_MEMORY, CG_PIDS, CG_CPU, CG_CPUACCT, CG_UNIFIED, CG_HIERARCHIES };

enum cgroup_limit_bits {
	LIMIT_MEMORY = 1,
	LIMIT_SWAP = 2,
	LIMIT_CPUS = 4,
	LIMIT_SHARES = 8,
	LIMIT_PIDS = 16,
	LIMIT_DISK = 32, /* disk.c */
};

struct cgroups {
	enum engine_cgroup mode;
	uint8_t limits;            /* enum cgroup_limit_bits that can be given */
	int dir[CG_HIERARCHIES];   /* <parent>/<instance>, or -EBADF */
	int above[CG_HIERARCHIES]; /* the hierarchy's root, or -EBADF */
	char parent[64], instance[32];
};

struct cgroup_limits {
	uint64_t memory_bytes, memory_swap_bytes;
	uint32_t cpu_millis, cpu_shares, pids;
};

/* Find the hierarchies and make the engine's directories.  Nothing usable is not an error. */
int cgroups_open(struct cgroups *cg, const char *parent, const char *instance,
		 struct garret_error *err);
/* Remove the engine's directories when they are empty, close the descriptors. */
void cgroups_done(struct cgroups *cg);

/* In a helper: make NAME everywhere, give its unified part to `owner`, and enter it,
 * with a cgroup namespace that begins there. */
int cgroups_enter(const struct cgroups *cg, const char *name, uint32_t owner,
		  struct garret_error *err);
int cgroups_set(const struct cgroups *cg, const char *name, const struct cgroup_limits *l,
		struct garret_error *err);
/*
 * Other limits for a group that lives: all of them, or it has those of before.  CONFLICT: it
 * uses more memory, and that can't be taken from it.  May wait for the kernel when it lowers.
 */
int cgroups_change(const struct cgroups *cg, const char *name, const struct cgroup_limits *before,
		   const struct cgroup_limits *after, struct garret_error *err);
/* What is set, as far as the kernel tells it: 0 is "not limited". */
void cgroups_get(const struct cgroups *cg, const char *name, struct cgroup_limits *ret);
/* Remove NAME and everything below; 0 when nothing is left, -1 while something lives in it. */
int cgroups_remove(const struct cgroups *cg, const char *name);
/* SIGKILL what is found in NAME; how many. */
unsigned cgroups_kill(const struct cgroups *cg, const char *name);
void cgroups_usage(const struct cgroups *cg, const char *name, struct engine_usage *ret);
/*
 * Remove empty groups of other instances below the parent for which dead() is true;
 * what lives in them is left alone.
 */
void cgroups_tidy(const struct cgroups *cg, bool (*dead)(void *ctx, const char *instance),
		  void *ctx);
/*
 * Kill and remove everything that an earlier engine of this instance left but what
 * keep() wants; how many are left.
 */
unsigned cgroups_sweep(const struct cgroups *cg, bool (*keep)(void *ctx, const char *name),
		       void *ctx, uint64_t deadline_ms);

#endif
