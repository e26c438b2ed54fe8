/*
 * The registry in SQLite: WAL, synchronous=NORMAL (DESIGN 5: process death
 * loses nothing, power loss at most the last second), one connection, prepared
 * statements kept.  user_version counts the migrations.
 */
#include "registry/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "registry/sqlite_impl.h"

#define TOMBSTONE_SECONDS (30.0 * 24 * 3600)
#define TOMBSTONES_MAX 20000 /* the newest; each costs about 150 bytes in the daemon */

enum { ADD, SET, USED, END, LOAD, PRUNE_AGE, PRUNE_COUNT, BEGIN, COMMIT, ROLLBACK, STATEMENTS };

static const char *const sql[STATEMENTS] = {
	[ADD] = "INSERT INTO sessions(id,generation,nonce,runtime,tenant,created_at,state,used_at) "
		"VALUES(?1,?2,?3,?4,?5,?6,?7,?6)",
	[SET] = "UPDATE sessions SET state=?3, mark=?4, boot=?5, used_at=?6 WHERE id=?1 AND generation=?2",
	[USED] = "UPDATE sessions SET used_at=?3 WHERE id=?1 AND generation=?2",
	[END] = "UPDATE sessions SET ended_at=?3, purged=?4 WHERE id=?1 AND generation=?2",
	[LOAD] = "SELECT id,generation,nonce,runtime,tenant,created_at,coalesce(ended_at,0),purged,"
		 "state,coalesce(used_at,created_at),mark,boot FROM sessions ORDER BY created_at",
	[PRUNE_AGE] = "DELETE FROM sessions WHERE ended_at < ?1",
	[PRUNE_COUNT] =
		"DELETE FROM sessions WHERE rowid IN (SELECT rowid FROM sessions WHERE ended_at "
		"IS NOT NULL ORDER BY ended_at DESC LIMIT -1 OFFSET ?1)",
	[BEGIN] = "BEGIN IMMEDIATE",
	[COMMIT] = "COMMIT",
	[ROLLBACK] = "ROLLBACK",
};

/* Step i brings version i to i + 1 and back; steps are never edited once released. */
static const struct {
	const char *up, *down;
} migrations[] = {
	{ "CREATE TABLE sessions("
	  " id TEXT NOT NULL, generation INTEGER NOT NULL, nonce BLOB NOT NULL,"
	  " runtime TEXT NOT NULL, tenant TEXT, created_at REAL NOT NULL,"
	  " ended_at REAL, purged INTEGER NOT NULL DEFAULT 0,"
	  " UNIQUE(id, generation));"
	  "CREATE INDEX sessions_ended ON sessions(ended_at);",
	  "DROP TABLE sessions;" },
	/* Sessions outlive the daemon. */
	{ "ALTER TABLE sessions ADD COLUMN state INTEGER NOT NULL DEFAULT 0;"
	  "ALTER TABLE sessions ADD COLUMN used_at REAL;"
	  "ALTER TABLE sessions ADD COLUMN mark TEXT;"
	  "ALTER TABLE sessions ADD COLUMN boot TEXT;",
	  "ALTER TABLE sessions DROP COLUMN boot;"
	  "ALTER TABLE sessions DROP COLUMN mark;"
	  "ALTER TABLE sessions DROP COLUMN used_at;"
	  "ALTER TABLE sessions DROP COLUMN state;" },
	/* The policy, service tokens, owners. */
	{ SQLITE_POLICY_TABLES ";", SQLITE_POLICY_TABLES_DROP },
};

_Static_assert(STATEMENTS <= SESSION_STATEMENTS, "room for the statements");

/* Tells a caller its result in the next round. */
struct told {
	struct list link; /* registry.told */
	struct loop_later later;
	registry_done done;
	void *ctx;
	struct garret_error err;
};

static void tell_now(struct loop_later *l)
{
	struct told *t = l->ctx;

	list_remove(&t->link);
	t->done(t->ctx, t->err.code ? &t->err : NULL);
	free(t);
}

void sqlite_tell(struct registry *r, registry_done done, void *ctx, const struct garret_error *err)
{
	struct told *t = xnew(struct told);

	t->done = done;
	t->ctx = ctx;
	if (err)
		t->err = *err;
	list_append(&r->told, &t->link);
	loop_later_add(r->loop, &t->later, tell_now, t);
}

int sqlite_fail(struct registry *r, const char *what, struct garret_error *err)
{
	int code = sqlite3_errcode(r->db), sys = sqlite3_system_errno(r->db);
	/* SQLite knows one errno for it; quotas and limits of a file's size have their own. */
	bool full = code == SQLITE_FULL ||
		    ((code & 0xff) == SQLITE_IOERR && (sys == EDQUOT || sys == EFBIG));

	return garret_fail(err, full ? GARRET_NO_SPACE : GARRET_INTERNAL, "registry: %s: %s", what,
			   sqlite3_errmsg(r->db));
}

int sqlite_write(struct registry *r, sqlite3_stmt *s, struct garret_error *err)
{
	int rc = sqlite3_step(s);

	if (rc != SQLITE_DONE)
		(void)sqlite_fail(r, "write", err);
	(void)sqlite3_reset(s);
	(void)sqlite3_clear_bindings(s);
	return rc == SQLITE_DONE ? 0 : -(int)err->code;
}

static int step(struct registry *r, int which, struct garret_error *err)
{
	return sqlite_write(r, r->stmt[which], err);
}

static void sqlite_add(struct registry *r, const struct session_row *row, registry_done done,
		       void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->stmt[ADD];

	sqlite3_bind_text(s, 1, row->id, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (sqlite3_int64)row->generation);
	sqlite3_bind_blob(s, 3, row->nonce, REGISTRY_NONCE, SQLITE_STATIC);
	sqlite3_bind_text(s, 4, row->runtime, -1, SQLITE_STATIC);
	if (row->tenant)
		sqlite3_bind_text(s, 5, row->tenant, -1, SQLITE_STATIC);
	sqlite3_bind_double(s, 6, row->created_at);
	sqlite3_bind_int(s, 7, row->state);
	sqlite_tell(r, done, ctx, step(r, ADD, &err) < 0 ? &err : NULL);
}

static void bind_key(sqlite3_stmt *s, const struct session_row *row)
{
	sqlite3_bind_text(s, 1, row->id, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (sqlite3_int64)row->generation);
}

static void sqlite_set(struct registry *r, const struct session_row *row, registry_done done,
		       void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->stmt[SET];

	bind_key(s, row);
	sqlite3_bind_int(s, 3, row->state);
	if (row->mark)
		sqlite3_bind_text(s, 4, row->mark, -1, SQLITE_STATIC);
	if (row->boot)
		sqlite3_bind_text(s, 5, row->boot, -1, SQLITE_STATIC);
	sqlite3_bind_double(s, 6, row->used_at);
	sqlite_tell(r, done, ctx, step(r, SET, &err) < 0 ? &err : NULL);
}

/* All or nothing, and one write to the log for them together. */
static void sqlite_used(struct registry *r, const struct session_row *rows, size_t n,
			registry_done done, void *ctx)
{
	struct garret_error err = { 0 };
	int rc = step(r, BEGIN, &err);

	for (size_t i = 0; i < n && rc == 0; i++) {
		bind_key(r->stmt[USED], &rows[i]);
		sqlite3_bind_double(r->stmt[USED], 3, rows[i].used_at);
		rc = step(r, USED, &err);
	}
	if (rc == 0)
		rc = step(r, COMMIT, &err);
	if (rc < 0 && !sqlite3_get_autocommit(r->db))
		(void)step(r, ROLLBACK, &(struct garret_error){ 0 });
	sqlite_tell(r, done, ctx, rc < 0 ? &err : NULL);
}

static void sqlite_end(struct registry *r, const char *id, uint64_t generation, double at,
		       bool purged, registry_done done, void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->stmt[END];

	sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
	sqlite3_bind_int64(s, 2, (sqlite3_int64)generation);
	sqlite3_bind_double(s, 3, at);
	sqlite3_bind_int(s, 4, purged);
	sqlite_tell(r, done, ctx, step(r, END, &err) < 0 ? &err : NULL);
}

static enum row_state row_state(int stored)
{
	return stored == ROW_RUNNING || stored == ROW_ASLEEP ? (enum row_state)stored : ROW_CLAIMED;
}

static void sqlite_load(struct registry *r, void (*each)(void *ctx, const struct session_row *row),
			registry_done done, void *ctx)
{
	struct garret_error err = { 0 };
	sqlite3_stmt *s = r->stmt[LOAD];
	int rc;

	sqlite3_bind_double(r->stmt[PRUNE_AGE], 1, (double)wall_us() / 1e6 - TOMBSTONE_SECONDS);
	sqlite3_bind_int(r->stmt[PRUNE_COUNT], 1, TOMBSTONES_MAX);
	if (step(r, PRUNE_AGE, &err) < 0 || step(r, PRUNE_COUNT, &err) < 0) {
		sqlite_tell(r, done, ctx, &err);
		return;
	}
	while ((rc = sqlite3_step(s)) == SQLITE_ROW) {
		struct session_row row = {
			.id = (const char *)sqlite3_column_text(s, 0),
			.generation = (uint64_t)sqlite3_column_int64(s, 1),
			.runtime = (const char *)sqlite3_column_text(s, 3),
			.tenant = (const char *)sqlite3_column_text(s, 4),
			.created_at = sqlite3_column_double(s, 5),
			.ended_at = sqlite3_column_double(s, 6),
			.purged = sqlite3_column_int(s, 7),
			.state = row_state(sqlite3_column_int(s, 8)),
			.used_at = sqlite3_column_double(s, 9),
			.mark = (const char *)sqlite3_column_text(s, 10),
			.boot = (const char *)sqlite3_column_text(s, 11),
		};

		if (!row.id || !row.runtime || sqlite3_column_bytes(s, 2) != REGISTRY_NONCE)
			continue;
		memcpy(row.nonce, sqlite3_column_blob(s, 2), REGISTRY_NONCE);
		each(ctx, &row);
	}
	if (rc != SQLITE_DONE)
		(void)sqlite_fail(r, "read", &err);
	(void)sqlite3_reset(s);
	sqlite_tell(r, done, ctx, rc == SQLITE_DONE ? NULL : &err);
}

static struct registry *sqlite_free(struct registry *r)
{
	if (!r)
		return NULL;
	while (!list_empty(&r->told)) {
		struct told *t = list_entry(r->told.next, struct told, link);

		list_remove(&t->link);
		loop_later_cancel(r->loop, &t->later);
		free(t);
	}
	for (int i = 0; i < STATEMENTS; i++)
		(void)sqlite3_finalize(r->stmt[i]);
	sqlite_policy_finalize(r);
	(void)sqlite3_close(r->db);
	free(r);
	return NULL;
}

const struct registry_ops sqlite_registry_ops = {
	.load = sqlite_load,
	.add = sqlite_add,
	.set = sqlite_set,
	.used = sqlite_used,
	.end = sqlite_end,
	.policy_load = sqlite_policy_load,
	.policy_add = sqlite_policy_add,
	.tokens_load = sqlite_tokens_load,
	.tokens_put = sqlite_tokens_put,
	.owners_load = sqlite_owners_load,
	.owner_set = sqlite_owner_set,
	.owner_drop = sqlite_owner_drop,
	.free = sqlite_free,
};

static int get_version(struct registry *r, int *ret)
{
	sqlite3_stmt *s = NULL;
	int rc = sqlite3_prepare_v2(r->db, "PRAGMA user_version", -1, &s, NULL);

	if (rc == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
		*ret = sqlite3_column_int(s, 0);
	else
		rc = rc == SQLITE_OK ? SQLITE_ERROR : rc;
	(void)sqlite3_finalize(s);
	return rc;
}

static int run_step(struct registry *r, const char *what, int version, struct garret_error *err)
{
	autofree char *text =
		xasprintf("BEGIN IMMEDIATE;%sPRAGMA user_version=%d;COMMIT;", what, version);

	if (sqlite3_exec(r->db, text, NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	(void)sqlite_fail(r, "migrate", err);
	(void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
	return -(int)err->code;
}

static int migrate(struct registry *r, const char *path, int to, struct garret_error *err)
{
	int version = 0, rc = 0;

	if (get_version(r, &version) != SQLITE_OK)
		return garret_fail(
			err, GARRET_INTERNAL,
			"%s is not a database that can be read (%s): move it away to start with none, "
			"or put back a copy",
			path, sqlite3_errmsg(r->db));
	if (version > (int)ARRAY_SIZE(migrations))
		return garret_fail(
			err, GARRET_INTERNAL,
			"%s was written by a newer version (%d, this one knows %zu): run that version, or "
			"its garretd --schema %zu, or another state directory",
			path, version, ARRAY_SIZE(migrations), ARRAY_SIZE(migrations));
	for (; version < to && rc == 0; version++)
		rc = run_step(r, migrations[version].up, version + 1, err);
	for (; version > to && rc == 0; version--)
		rc = run_step(r, migrations[version - 1].down, version - 1, err);
	return rc;
}

static int open_database(struct registry *r, const char *path, int to, struct garret_error *err)
{
	/* Made by us first: SQLite would make it with the umask's mode. */
	int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600), rc = 0;

	if (fd < 0)
		return garret_fail_errno(err, "registry: open %s", path);
	fd_close(fd);
	if (sqlite3_open_v2(path, &r->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
		    SQLITE_OK ||
	    sqlite3_exec(r->db,
			 /* One daemon a state directory (its lock says so): no locks and no shared
			  * memory for each statement. */
			 "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL;"
			 "PRAGMA synchronous=NORMAL; PRAGMA busy_timeout=2000;",
			 NULL, NULL, NULL) != SQLITE_OK)
		rc = sqlite_fail(r, "open", err);
	if (rc == 0 || sqlite3_errcode(r->db) == SQLITE_NOTADB)
		rc = migrate(r, path, to, err);
	return rc;
}

int sqlite_registry_migrate(const char *path, int version, struct garret_error *err)
{
	struct registry r = { 0 };
	int rc;

	if (version < 0 || version > (int)ARRAY_SIZE(migrations))
		return garret_fail(err, GARRET_INVALID, "the schema is a number up to %zu",
				   ARRAY_SIZE(migrations));
	rc = open_database(&r, path, version, err);
	(void)sqlite3_close(r.db);
	return rc;
}

int sqlite_registry_open(struct loop *l, const char *path, struct registry **ret,
			 struct garret_error *err)
{
	struct registry *r = xnew(struct registry);
	int rc = open_database(r, path, (int)ARRAY_SIZE(migrations), err);

	r->loop = l;
	list_init(&r->told);
	for (int i = 0; i < STATEMENTS && rc == 0; i++)
		if (sqlite3_prepare_v3(r->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT, &r->stmt[i],
				       NULL) != SQLITE_OK)
			rc = sqlite_fail(r, "prepare", err);
	if (rc == 0)
		rc = sqlite_policy_prepare(r, err);
	if (rc < 0) {
		sqlite_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}
