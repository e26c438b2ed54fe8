/*
 * SQLite: WAL and synchronous=NORMAL, as the daemon's registry has it (process death loses nothing,
 * power loss at most the last second).  Several processes may use one file.
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "db/db_impl.h"

#define KEPT 96 /* prepared statements; beyond it they are made each time */

struct sqlite {
	struct db db;
	sqlite3 *own;
	struct {
		const char *sql;
		sqlite3_stmt *stmt;
	} kept[KEPT];
	size_t n_kept;
};

static int fail(struct sqlite *s, const char *what, struct garret_error *err)
{
	const int code = sqlite3_errcode(s->own), extended = sqlite3_extended_errcode(s->own);
	enum garret_code ours = GARRET_INTERNAL;

	if (extended == SQLITE_CONSTRAINT_UNIQUE || extended == SQLITE_CONSTRAINT_PRIMARYKEY)
		ours = GARRET_EXISTS;
	else if (code == SQLITE_FULL)
		ours = GARRET_NO_SPACE;
	else if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
		ours = GARRET_UNAVAILABLE;
	return garret_fail(err, ours, "database: %s: %s", what, sqlite3_errmsg(s->own));
}

static int prepare(struct sqlite *s, const char *sql, sqlite3_stmt **ret, bool *ret_kept,
		   struct garret_error *err)
{
	*ret_kept = true;
	for (size_t i = 0; i < s->n_kept; i++)
		if (s->kept[i].sql == sql) {
			*ret = s->kept[i].stmt;
			return 0;
		}
	if (sqlite3_prepare_v3(s->own, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, NULL) != SQLITE_OK)
		return fail(s, "prepare", err);
	*ret_kept = s->n_kept < KEPT;
	if (*ret_kept) {
		s->kept[s->n_kept].sql = sql;
		s->kept[s->n_kept++].stmt = *ret;
	}
	return 0;
}

/* Arguments live until the statement is reset: nothing is copied. */
static void bind(sqlite3_stmt *stmt, const struct db_value *args, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		const struct db_value *v = &args[i];
		const int at = (int)i + 1;

		if (v->type == DB_INT)
			sqlite3_bind_int64(stmt, at, v->i);
		else if (v->type == DB_REAL)
			sqlite3_bind_double(stmt, at, v->r);
		else if (v->type == DB_TEXT)
			sqlite3_bind_text64(stmt, at, v->p, v->n, SQLITE_STATIC, SQLITE_UTF8);
		else if (v->type == DB_BLOB)
			sqlite3_bind_blob64(stmt, at, v->n ? v->p : "", v->n, SQLITE_STATIC);
		else
			sqlite3_bind_null(stmt, at);
	}
}

static void collect(struct db_collector *c, sqlite3_stmt *stmt, int column)
{
	const int type = sqlite3_column_type(stmt, column);
	struct db_value v = { .type = DB_NULL };

	if (type == SQLITE_INTEGER) {
		v = db_int(sqlite3_column_int64(stmt, column));
	} else if (type == SQLITE_FLOAT) {
		v = db_real(sqlite3_column_double(stmt, column));
	} else if (type != SQLITE_NULL) {
		v.type = type == SQLITE_TEXT ? DB_TEXT : DB_BLOB;
		v.p = sqlite3_column_blob(stmt, column);
		v.n = (size_t)sqlite3_column_bytes(stmt, column);
	}
	db_collect(c, &v);
}

static int step_all(struct sqlite *s, sqlite3_stmt *stmt, struct db_rows *ret,
		    struct garret_error *err)
{
	const int columns = sqlite3_column_count(stmt);
	struct db_rows none = DB_ROWS_INIT;
	struct db_collector c;
	int rc;

	db_collect_begin(&c, ret ? ret : &none, (size_t)columns);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		for (int i = 0; i < columns; i++)
			collect(&c, stmt, i);
	db_collect_end(&c);
	c.rows->changed = sqlite3_stmt_readonly(stmt) ? 0 : sqlite3_changes64(s->own);
	db_rows_release(&none);
	return rc == SQLITE_DONE ? 0 : fail(s, "statement", err);
}

static int sqlite_query(struct db *db, const char *sql, const struct db_value *args, size_t n_args,
			struct db_rows *ret, struct garret_error *err)
{
	struct sqlite *s = (struct sqlite *)db;
	sqlite3_stmt *stmt;
	bool kept;
	int rc = prepare(s, sql, &stmt, &kept, err);

	if (rc < 0)
		return rc;
	bind(stmt, args, n_args);
	rc = step_all(s, stmt, ret, err);
	(void)sqlite3_reset(stmt);
	(void)sqlite3_clear_bindings(stmt);
	if (!kept)
		(void)sqlite3_finalize(stmt);
	return rc;
}

static int sqlite_script(struct db *db, const char *sql, struct garret_error *err)
{
	struct sqlite *s = (struct sqlite *)db;

	return sqlite3_exec(s->own, sql, NULL, NULL, NULL) == SQLITE_OK ? 0
									: fail(s, "script", err);
}

static int sqlite_describe(struct db *db, struct strbuf *out, struct garret_error *err)
{
	static const char columns[] =
		"SELECT 'column '||m.name||'.'||c.name||' '||c.type||CASE WHEN c.\"notnull\" THEN ' not null' "
		"ELSE '' END||coalesce(' default '||c.dflt_value,'') FROM sqlite_master m, "
		"pragma_table_info(m.name) c WHERE m.type='table' AND m.name NOT LIKE 'sqlite_%' "
		"UNION ALL SELECT 'index '||m.tbl_name||' ('||(SELECT group_concat(i.name,',') FROM "
		"pragma_index_info(l.name) i)||')'||CASE WHEN l.\"unique\" THEN ' unique' ELSE '' END||"
		"CASE WHEN l.partial THEN ' partial' ELSE '' END FROM sqlite_master m, "
		"pragma_index_list(m.name) l WHERE m.type='table' ORDER BY 1";
	struct db_rows autorows rows = DB_ROWS_INIT;
	int rc = db_query(db, columns, DB_NO_ARGS, &rows, err);

	for (size_t i = 0; rc == 0 && i < rows.rows; i++)
		strbuf_addf(out, "%s\n", db_get_text(&rows, i, 0));
	return rc;
}

static void sqlite_close(struct db *db)
{
	struct sqlite *s = (struct sqlite *)db;

	for (size_t i = 0; i < s->n_kept; i++)
		(void)sqlite3_finalize(s->kept[i].stmt);
	(void)sqlite3_close_v2(s->own);
	free(s);
}

static const struct db_ops sqlite_ops = {
	.kind = "sqlite",
	.query = sqlite_query,
	.script = sqlite_script,
	.describe = sqlite_describe,
	.close = sqlite_close,
	.begin = "BEGIN IMMEDIATE",
	.words = { "INTEGER PRIMARY KEY", "TEXT", "BLOB" },
};

int db_sqlite_open(const char *path, struct db **ret, struct garret_error *err)
{
	struct sqlite *s;
	/* SQLite gives its log the mode of the file: that must be right from the beginning. */
	int autoclose fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return garret_fail_errno(err, "database: open %s", path);
	s = xnew(struct sqlite);
	s->db.ops = &sqlite_ops;
	if (sqlite3_open_v2(path, &s->own, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
		    SQLITE_OK ||
	    sqlite3_busy_timeout(s->own, DB_BUSY_MS) != SQLITE_OK ||
	    sqlite3_exec(
		    s->own,
		    "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON",
		    NULL, NULL, NULL) != SQLITE_OK) {
		int rc = fail(s, "open", err);

		sqlite_close(&s->db);
		return rc;
	}
	*ret = &s->db;
	return 0;
}
