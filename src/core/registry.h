/*
 * What outlives the daemon: sessions, their generations, tombstones; changes of
 * the policy; service tokens; whose the kept files are.
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

/* A change of the policy, as it was asked for and as what it made of all changes before. */
struct policy_row {
	double at;
	const char *by;      /* a token's name, or what else made the change */
	const char *change;  /* JSON */
	const char *overlay; /* JSON: all changes so far as one */
	const char *file;    /* which overrides file was read last, and of when; "" for none */
};

#define REGISTRY_DIGEST 32
#define TOKENS_ENDED_MAX 1000 /* of those that expired or were revoked the newest are kept */

/* A service token; several may have one name, because a rotated one lives on for a while. */
struct token_row {
	const char *name, *tenant; /* tenant NULL: any */
	uint8_t digest[REGISTRY_DIGEST];
	bool read_only;
	double created_at, expires_at, last_used_at, revoked_at; /* 0: never */
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
	/* The newest change of the policy, if there is one. */
	void (*policy_load)(struct registry *r,
			    void (*each)(void *ctx, const struct policy_row *row),
			    registry_done done, void *ctx);
	void (*policy_add)(struct registry *r, const struct policy_row *row, registry_done done,
			   void *ctx);

	/* Service tokens, oldest first, without those that ended long ago. */
	void (*tokens_load)(struct registry *r,
			    void (*each)(void *ctx, const struct token_row *row),
			    registry_done done, void *ctx);
	/* Add or replace (by digest) all of them, or none. */
	void (*tokens_put)(struct registry *r, const struct token_row *rows, size_t n,
			   registry_done done, void *ctx);

	/* Whose files are kept under an id: the tenant (NULL: none) of its last session. */
	void (*owners_load)(struct registry *r,
			    void (*each)(void *ctx, const char *id, const char *tenant),
			    registry_done done, void *ctx);
	void (*owner_set)(struct registry *r, const char *id, const char *tenant,
			  registry_done done, void *ctx);
	void (*owner_drop)(struct registry *r, const char *id, registry_done done, void *ctx);

	struct registry *(*free)(struct registry *r);
};

#endif
