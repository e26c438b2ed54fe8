/* What the files of the SQLite registry share; nobody else includes this. */
#ifndef REGISTRY_SQLITE_IMPL_H
#define REGISTRY_SQLITE_IMPL_H

#include <sqlite3.h>

#include "base/list.h"
#include "core/registry.h"
#include "io/loop.h"

#define SESSION_STATEMENTS 32 /* at most, of sqlite.c */
#define POLICY_STATEMENTS 16  /* of sqlite_policy.c */

struct registry {
	struct loop *loop;
	struct list told; /* results that are due in this round */
	sqlite3 *db;
	sqlite3_stmt *stmt[SESSION_STATEMENTS], *policy[POLICY_STATEMENTS];
};

/* sqlite.c */
/* Tell a caller its result in the next round; err NULL: it went well. */
void sqlite_tell(struct registry *r, registry_done done, void *ctx, const struct garret_error *err);
/* What SQLite's last call failed with. */
int sqlite_fail(struct registry *r, const char *what, struct garret_error *err);
/* Run a statement that returns nothing, and make it ready for the next time. */
int sqlite_write(struct registry *r, sqlite3_stmt *s, struct garret_error *err);

/* sqlite_policy.c */
#define SQLITE_POLICY_TABLES                                                         \
	"CREATE TABLE policy("                                                       \
	" seq INTEGER PRIMARY KEY, at REAL NOT NULL, made_by TEXT NOT NULL,"         \
	" change TEXT NOT NULL, overlay TEXT NOT NULL, file TEXT NOT NULL);"         \
	"CREATE TABLE tokens("                                                       \
	" digest BLOB PRIMARY KEY, name TEXT NOT NULL, tenant TEXT,"                 \
	" read_only INTEGER NOT NULL, created_at REAL NOT NULL,"                     \
	" expires_at REAL NOT NULL, last_used_at REAL NOT NULL,"                     \
	" revoked_at REAL NOT NULL);"                                                \
	"CREATE TABLE owners(id TEXT PRIMARY KEY, tenant TEXT);"                     \
	"INSERT OR REPLACE INTO owners(id, tenant) SELECT id, tenant FROM sessions " \
	"ORDER BY created_at;"                                                       \
	"DELETE FROM owners WHERE id IN (SELECT id FROM sessions WHERE purged AND "  \
	"ended_at = (SELECT max(ended_at) FROM sessions s WHERE s.id = sessions.id))"
#define SQLITE_POLICY_TABLES_DROP "DROP TABLE owners; DROP TABLE tokens; DROP TABLE policy;"
int sqlite_policy_prepare(struct registry *r, struct garret_error *err);
void sqlite_policy_finalize(struct registry *r);
void sqlite_policy_load(struct registry *r, void (*each)(void *ctx, const struct policy_row *row),
			registry_done done, void *ctx);
void sqlite_policy_add(struct registry *r, const struct policy_row *row, registry_done done,
		       void *ctx);
void sqlite_tokens_load(struct registry *r, void (*each)(void *ctx, const struct token_row *row),
			registry_done done, void *ctx);
void sqlite_tokens_put(struct registry *r, const struct token_row *rows, size_t n,
		       registry_done done, void *ctx);
void sqlite_owners_load(struct registry *r,
			void (*each)(void *ctx, const char *id, const char *tenant),
			registry_done done, void *ctx);
void sqlite_owner_set(struct registry *r, const char *id, const char *tenant, registry_done done,
		      void *ctx);
void sqlite_owner_drop(struct registry *r, const char *id, registry_done done, void *ctx);

#endif
