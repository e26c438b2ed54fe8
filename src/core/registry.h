/*
 * What outlives the daemon: sessions, their generations, tombstones.
 * Asynchronous: done is called once, from the loop, never before the call
 * returned, although SQLite answers at once (a shared PostgreSQL will not).
 */
#ifndef CORE_REGISTRY_H
#define CORE_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define REGISTRY_NONCE 16

enum row_state {
	ROW_CLAIMED, /* its open was begun; not one that a client was told of */
	ROW_RUNNING,
	ROW_ASLEEP, /* or falling asleep, when it has a mark */
};

/* One generation of a session. */
struct session_row {
	const char *id, *runtime, *tenant; /* tenant may be NULL */
	uint64_t generation;
	uint8_t nonce[REGISTRY_NONCE];
	double created_at, ended_at; /* ended_at 0: open */
	bool purged;                 /* its files were deleted */
	enum row_state state;
	double used_at;
	const char *mark; /* by which the provider finds it again; NULL: not running */
	const char *boot; /* of the host, when that was written; NULL as well */
};

struct registry;
typedef void (*registry_done)(void *ctx, const struct garret_error *err);

struct registry_ops {
	/* Every row that still matters: open ones and tombstones, oldest first. */
	void (*load)(struct registry *r, void (*each)(void *ctx, const struct session_row *row),
		     registry_done done, void *ctx);
	void (*add)(struct registry *r, const struct session_row *row, registry_done done,
		    void *ctx);
	/* What may change of an open one: state, mark, boot, used_at. */
	void (*set)(struct registry *r, const struct session_row *row, registry_done done,
		    void *ctx);
	/* When they were used last: of each of n rows used_at alone. */
	void (*used)(struct registry *r, const struct session_row *rows, size_t n,
		     registry_done done, void *ctx);
	void (*end)(struct registry *r, const char *id, uint64_t generation, double at, bool purged,
		    registry_done done, void *ctx);
	struct registry *(*free)(struct registry *r);
};

#endif
