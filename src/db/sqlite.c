/*
 * SQLite: WAL and synchronous=NORMAL, as the daemon's registry has it (process death loses nothing,
 * power loss at most the last second).  Several processes may use one file.
 */
#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
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

	if (extended == SQLITE_CONSTRAINT_UNIQUE || extended == SQLITE_CONSTRAINT_PRIMARYKEY ||
	    extended == SQLITE_CONSTRAINT_ROWID)
		ours = GARRET_EXISTS;
	else if (code == SQLITE_FULL)
		ours = GARRET_NO_SPACE;
	else if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
		ours = GARRET_UNAVAILABLE;
	return garret_fail(err, ours, "database: %s: %s", what, sqlite3_errmsg(s->own));
}

/* Whether a text has nothing more than a statement's end. */
static bool ended(const char *tail)
{
	return tail[strspn(tail, " \t\n;")] == '\0';
}

/* Sets *ret_kept when the statement outlives the call. */
static int prepare(struct sqlite *s, const char *sql, sqlite3_stmt **ret, bool *ret_kept,
		   struct garret_error *err)
{
	const char *tail = NULL;
	size_t at = 0;

	while (at < s->n_kept && s->kept[at].sql != sql)
		at++;
	*ret_kept = at < KEPT;
	if (at < s->n_kept) {
		*ret = s->kept[at].stmt;
		/* Somebody's buffer may hold another text by now. */
		if (!strcmp(sqlite3_sql(*ret), sql))
			return 0;
		(void)sqlite3_finalize(*ret);
		s->kept[at] = s->kept[--s->n_kept];
		at = s->n_kept;
	}
	if (sqlite3_prepare_v3(s->own, sql, -1, SQLITE_PREPARE_PERSISTENT, ret, &tail) != SQLITE_OK)
		return fail(s, "prepare", err);
	if (!*ret || !ended(tail)) {
		(void)sqlite3_finalize(*ret);
		return garret_fail(err, GARRET_MISUSE, "database: not one statement");
	}
	if (*ret_kept) {
		s->kept[at].sql = sql;
		s->kept[at].stmt = *ret;
		s->n_kept++;
	}
	return 0;
}

/* Arguments live until the statement is reset: nothing is copied. */
static int bind(struct sqlite *s, sqlite3_stmt *stmt, const struct db_value *args, size_t n,
		struct garret_error *err)
{
	const int want = sqlite3_bind_parameter_count(stmt);
	int rc = SQLITE_OK;

	if (n != (size_t)want)
		return garret_fail(err, GARRET_MISUSE, "database: %zu values for %d parameters", n,
				   want);
	for (size_t i = 0; rc == SQLITE_OK && i < n; i++) {
		const struct db_value *v = &args[i];
		const int at = (int)i + 1;

		if (v->type == DB_INT)
			rc = sqlite3_bind_int64(stmt, at, v->i);
		else if (v->type == DB_REAL)
			rc = sqlite3_bind_double(stmt, at, v->r);
		else if (v->type == DB_TEXT)
			rc = sqlite3_bind_text64(stmt, at, v->p, v->n, SQLITE_STATIC, SQLITE_UTF8);
		else if (v->type == DB_BLOB)
			rc = sqlite3_bind_blob64(stmt, at, v->n ? v->p : "", v->n, SQLITE_STATIC);
		else
			rc = sqlite3_bind_null(stmt, at);
	}
	return rc == SQLITE_OK ? 0 : fail(s, "parameters", err);
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
	const sqlite3_int64 before = sqlite3_total_changes64(s->own);
	autorows struct db_rows none = DB_ROWS_INIT;
	struct db_collector c;
	int rc;

	db_collect_begin(&c, ret ? ret : &none, (size_t)columns);
	while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
		for (int i = 0; i < columns; i++)
			collect(&c, stmt, i);
	db_collect_end(&c);
	/* SQLite's count stays what it was when a statement isn't of those that change rows. */
	if (sqlite3_total_changes64(s->own) != before)
		c.rows->changed = sqlite3_changes64(s->own);
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
	rc = bind(s, stmt, args, n_args, err);
	if (rc == 0)
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
	static const char lines[] =
		"WITH t AS (SELECT name FROM sqlite_master WHERE type='table' AND name NOT GLOB 'sqlite_*') "
		"SELECT 'column '||t.name||'.'||c.name||' '||c.type||CASE WHEN c.\"notnull\" THEN ' not null' "
		"ELSE '' END||CASE WHEN c.pk THEN ' key '||c.pk ELSE '' END||"
		"coalesce(' default '||c.dflt_value,'') FROM t, pragma_table_info(t.name) c "
		"UNION ALL SELECT 'index '||t.name||' ('||(SELECT group_concat(coalesce(i.name,'expression')||"
		"CASE WHEN i.\"desc\" THEN ' desc' ELSE '' END,',') FROM pragma_index_xinfo(l.name) i WHERE i.key)"
		"||')'||CASE WHEN l.\"unique\" THEN ' unique' ELSE '' END||CASE WHEN l.partial THEN "
		"(SELECT substr(m.sql,instr(upper(m.sql),' WHERE ')) FROM sqlite_master m WHERE m.name=l.name) "
		"ELSE '' END FROM t, pragma_index_list(t.name) l "
		"UNION ALL SELECT 'reference '||t.name||' ('||group_concat(f.\"from\",',')||') to '||f.\"table\""
		"||coalesce(' ('||group_concat(f.\"to\",',')||')','')||' on delete '||lower(f.on_delete) "
		"FROM t, pragma_foreign_key_list(t.name) f GROUP BY t.name, f.id ORDER BY 1";
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = db_query(db, lines, DB_NO_ARGS, &rows, err);

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
	.has_schema = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'garret_schema'",
	.words = { "INTEGER PRIMARY KEY", "TEXT", "BLOB" },
};

/*
 * SQLite gives its log the mode of the file: that must be right from the beginning.  A file that is
 * there isn't opened here: closing it would drop the locks that this process has on it.
 */
static int ensure_file(const char *path, struct garret_error *err)
{
	autoclose int fd = -EBADF;

	if (access(path, R_OK | W_OK) == 0)
		return 0;
	if (errno == ENOENT)
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	return fd < 0 ? garret_fail_errno(err, "database: open %s", path) : 0;
}

/* Two that make a file a WAL database at once are told so without waiting for each other. */
static int set_up(struct sqlite *s)
{
	const uint64_t until = now_ms() + DB_BUSY_MS;
	int rc = sqlite3_busy_timeout(s->own, DB_BUSY_MS);

	while (rc == SQLITE_OK &&
	       (rc = sqlite3_exec(s->own, "PRAGMA journal_mode=WAL", NULL, NULL, NULL)) ==
		       SQLITE_BUSY &&
	       now_ms() < until) {
		(void)usleep(10000);
		rc = SQLITE_OK;
	}
	if (rc == SQLITE_OK)
		rc = sqlite3_exec(s->own, "PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON", NULL,
				  NULL, NULL);
	return rc;
}

int db_sqlite_open(const char *path, struct db **ret, struct garret_error *err)
{
	/* Without it ":memory:" would be no file. */
	autofree char *name = xasprintf("%s%s", path[0] == '/' ? "" : "./", path);
	struct sqlite *s;
	int rc = ensure_file(name, err);

	if (rc < 0)
		return rc;
	s = xnew(struct sqlite);
	s->db.ops = &sqlite_ops;
	if (sqlite3_open_v2(name, &s->own, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
		    SQLITE_OK ||
	    set_up(s) != SQLITE_OK) {
		rc = fail(s, "open", err);
		sqlite_close(&s->db);
		return rc;
	}
	*ret = &s->db;
	return 0;
}
