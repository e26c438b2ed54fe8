/*
 * The tables of what an operator changes while the daemon runs: the policy,
 * service tokens, and whose the kept files are.
 *
 * Of the policy every change is a row (the newest thousand stay) that carries
 * the sum of all before it, so that the newest one is all a start needs.
 */
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
#include "registry/sqlite_impl.h"

#define CHANGES_MAX 1000
#define ENDED_SECONDS (30.0 * 24 * 3600) /* for which a token that ended is kept */

enum {
	BEGIN,
	COMMIT,
	ROLLBACK,
	POLICY_NEWEST,
	POLICY_ADD,
	POLICY_PRUNE,
	TOKENS_PRUNE,
	TOKENS_CUT,
	TOKENS_ALL,
	TOKEN_PUT,
	OWNERS_ALL,
	OWNER_SET,
	OWNER_DROP,
	STATEMENTS
};

static const char *const sql[STATEMENTS] = {
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[ROLLBACK] = "ROLLBACK",
	[POLICY_NEWEST] =
		"SELECT at, made_by, change, overlay, file FROM policy ORDER BY seq DESC LIMIT 1",
	[POLICY_ADD] = "INSERT INTO policy(at, made_by, change, overlay, file) VALUES(?,?,?,?,?)",
	[POLICY_PRUNE] = "DELETE FROM policy WHERE seq <= (SELECT max(seq) FROM policy) - ?1",
	[TOKENS_PRUNE] = "DELETE FROM tokens WHERE (revoked_at > 0 AND revoked_at < ?1) "
			 "OR (expires_at > 0 AND expires_at < ?1)",
	[TOKENS_CUT] = "DELETE FROM tokens WHERE digest IN (SELECT digest FROM tokens WHERE "
		       "revoked_at > 0 OR (expires_at > 0 AND expires_at < ?1) "
		       "ORDER BY created_at DESC LIMIT -1 OFFSET ?2)",
	[TOKENS_ALL] = "SELECT digest, name, tenant, read_only, created_at, expires_at, "
		       "last_used_at, revoked_at FROM tokens ORDER BY created_at",
	[TOKEN_PUT] = "INSERT OR REPLACE INTO tokens(digest, name, tenant, read_only, created_at, "
		      "expires_at, last_used_at, revoked_at) VALUES(?,?,?,?,?,?,?,?)",
	[OWNERS_ALL] = "SELECT id, tenant FROM owners",
	[OWNER_SET] = "INSERT OR REPLACE INTO owners(id, tenant) VALUES(?,?)",
	[OWNER_DROP] = "DELETE FROM owners WHERE id = ?",
};

_Static_assert(STATEMENTS <= POLICY_STATEMENTS, "room for the statements");

int sqlite_policy_prepare(struct registry *r, struct garret_error *err)
{
	for (int i = 0; i < STATEMENTS; i++)
		if (sqlite3_prepare_v3(r->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &r->policy[i],
				       NULL) != SQLITE_OK)
			return sqlite_fail(r, "prepare", err);
	return 0;
}

void sqlite_policy_finalize(struct registry *r)
{
	for (int i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(r->policy[i]);
}

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
	if (text)
		sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

static const char *text_of(sqlite3_stmt *s, int at)
{
	return (const char *)sqlite3_column_text(s, at);
}

/* A reading came to its end, or to a failure. */
static void read_done(struct registry *r, sqlite3_stmt *s, int rc, registry_done done, void *ctx)
{
	struct garret_error err = { 0 };

	if (rc != SQLITE_DONE && rc != SQLITE_ROW)
		(void)sqlite_fail(r, "read", &err);
	(void)sqlite3_reset(s);
	sqlite_tell(r, done, ctx, err.code ? &err : NULL);
}

/* ---- policy ---- */

void sqlite_policy_load(struct registry *r, void (*each)(void *ctx, const struct policy_row *row),
			registry_done done, void *ctx)
{
	sqlite3_stmt *s = r->policy[POLICY_NEWEST];
	int rc = sqlite3_step(s);

	if (rc == SQLITE_ROW) {
		const struct policy_row row = { .at = sqlite3_column_double(s, 0),
						.by = text_of(s, 1),
						.change = text_of(s, 2),
						.overlay = text_of(s, 3),
						.file = text_of(s, 4) };

		each(ctx, &row);
	}
	read_done(r, s, rc, done, ctx);
}

void sqlite_policy_add(struct registry *r, const struct policy_row *row, registry_done done,
		       void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->policy[POLICY_ADD];

	sqlite3_bind_double(s, 1, row->at);
	bind_text(s, 2, row->by);
	bind_text(s, 3, row->change);
	bind_text(s, 4, row->overlay);
	bind_text(s, 5, row->file);
	if (sqlite_write(r, s, &err) == 0) {
		struct garret_error ignored = { 0 }; /* the next change tries again */

		sqlite3_bind_int(r->policy[POLICY_PRUNE], 1, CHANGES_MAX);
		(void)sqlite_write(r, r->policy[POLICY_PRUNE], &ignored);
	}
	sqlite_tell(r, done, ctx, err.code ? &err : NULL);
}

/* ---- tokens ---- */

static int prune_tokens(struct registry *r, struct garret_error *err)
{
	double now = (double)wall_us() / 1e6;
	int rc;

	sqlite3_bind_double(r->policy[TOKENS_PRUNE], 1, now - ENDED_SECONDS);
	rc = sqlite_write(r, r->policy[TOKENS_PRUNE], err);
	if (rc < 0)
		return rc;
	sqlite3_bind_double(r->policy[TOKENS_CUT], 1, now);
	sqlite3_bind_int(r->policy[TOKENS_CUT], 2, TOKENS_ENDED_MAX);
	return sqlite_write(r, r->policy[TOKENS_CUT], err);
}

void sqlite_tokens_load(struct registry *r, void (*each)(void *ctx, const struct token_row *row),
			registry_done done, void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->policy[TOKENS_ALL];
	int rc;

	if (prune_tokens(r, &err) < 0) {
		sqlite_tell(r, done, ctx, &err);
		return;
	}
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		struct token_row row = { .name = text_of(s, 1),
					 .tenant = text_of(s, 2),
					 .read_only = sqlite3_column_int(s, 3),
					 .created_at = sqlite3_column_double(s, 4),
					 .expires_at = sqlite3_column_double(s, 5),
					 .last_used_at = sqlite3_column_double(s, 6),
					 .revoked_at = sqlite3_column_double(s, 7) };

		if (!row.name || sqlite3_column_bytes(s, 0) != REGISTRY_DIGEST)
			continue;
		memcpy(row.digest, sqlite3_column_blob(s, 0), REGISTRY_DIGEST);
		each(ctx, &row);
	}
	read_done(r, s, rc, done, ctx);
}

static int put_token(struct registry *r, const struct token_row *row, struct garret_error *err)
{
	sqlite3_stmt *s = r->policy[TOKEN_PUT];

	sqlite3_bind_blob(s, 1, row->digest, REGISTRY_DIGEST, SQLITE_STATIC);
	bind_text(s, 2, row->name);
	bind_text(s, 3, row->tenant);
	sqlite3_bind_int(s, 4, row->read_only);
	sqlite3_bind_double(s, 5, row->created_at);
	sqlite3_bind_double(s, 6, row->expires_at);
	sqlite3_bind_double(s, 7, row->last_used_at);
	sqlite3_bind_double(s, 8, row->revoked_at);
	return sqlite_write(r, s, err);
}

void sqlite_tokens_put(struct registry *r, const struct token_row *rows, size_t n,
		       registry_done done, void *ctx)
{
	struct garret_error err = { 0 }, ignored = { 0 };
	int rc = sqlite_write(r, r->policy[BEGIN], &err);

	for (size_t i = 0; rc == 0 && i < n; i++)
		rc = put_token(r, &rows[i], &err);
	if (rc == 0)
		rc = prune_tokens(r, &err);
	if (rc == 0)
		rc = sqlite_write(r, r->policy[COMMIT], &err);
	/* Some failures have ended the transaction already. */
	if (rc < 0 && !sqlite3_get_autocommit(r->db))
		(void)sqlite_write(r, r->policy[ROLLBACK], &ignored);
	sqlite_tell(r, done, ctx, rc < 0 ? &err : NULL);
}

/* ---- owners ---- */

void sqlite_owners_load(struct registry *r,
			void (*each)(void *ctx, const char *id, const char *tenant),
			registry_done done, void *ctx)
{
	sqlite3_stmt *s = r->policy[OWNERS_ALL];
	int rc;

	while ((rc = sqlite3_step(s)) == SQLITE_ROW)
		if (text_of(s, 0))
			each(ctx, text_of(s, 0), text_of(s, 1));
	read_done(r, s, rc, done, ctx);
}

void sqlite_owner_set(struct registry *r, const char *id, const char *tenant, registry_done done,
		      void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->policy[OWNER_SET];

	bind_text(s, 1, id);
	bind_text(s, 2, tenant);
	sqlite_tell(r, done, ctx, sqlite_write(r, s, &err) < 0 ? &err : NULL);
}

void sqlite_owner_drop(struct registry *r, const char *id, registry_done done, void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->policy[OWNER_DROP];

	bind_text(s, 1, id);
	sqlite_tell(r, done, ctx, sqlite_write(r, s, &err) < 0 ? &err : NULL);
}
