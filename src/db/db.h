/*
 * SQL for the application layer: one connection to SQLite or PostgreSQL, behind the same few
 * calls.  Statements are written once, in what both understand: parameters are ?1 ?2 ..., numbers
 * are BIGINT and DOUBLE PRECISION, truth is 0 or 1, and schema steps use {ID}, {JSON} and {BLOB}
 * where the two have other words.
 *
 * Everything blocks, for SQLite at most DB_BUSY_MS on another's lock.  A connection is used by one
 * thread at a time.  Codes: EXISTS for a row that breaks a UNIQUE rule, NO_SPACE, UNAVAILABLE when
 * the server can't be reached or another holds the lock (it may be tried again), INTERNAL.
 */
#ifndef DB_DB_H
#define DB_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

#define DB_BUSY_MS 10000
#define DB_VALUE_MAX (256 << 20) /* bytes of a text or a blob: what PostgreSQL can also give back */

struct db;

enum db_type { DB_NULL, DB_INT, DB_REAL, DB_TEXT, DB_BLOB };

struct db_value {
	enum db_type type;
	int64_t i;
	double r;
	const void *p; /* of TEXT (a NUL behind the last byte, in results) and BLOB; borrowed */
	size_t n;
};

struct db_value db_null(void);
struct db_value db_int(int64_t i);
struct db_value db_real(double r);
struct db_value db_text(const char *s); /* NULL: null */
struct db_value db_blob(const void *p, size_t n);

/* The arguments of a call: DB_ARGS(db_text(id), db_int(3)), or DB_NO_ARGS. */
#define DB_ARGS(...)                                \
	((const struct db_value[]){ __VA_ARGS__ }), \
		sizeof((const struct db_value[]){ __VA_ARGS__ }) / sizeof(struct db_value)
#define DB_NO_ARGS NULL, 0

/* All rows of an answer.  Zero it before use, or DB_ROWS_INIT. */
struct db_rows {
	struct db_value *cell; /* row after row */
	size_t rows, columns;
	int64_t changed; /* rows that the statement inserted, updated or deleted */
	char *memory;    /* what TEXT and BLOB cells point into */
};
#define DB_ROWS_INIT         \
	{                    \
		.cell = NULL \
	}
void db_rows_release(struct db_rows *r);
#define autorows __attribute__((cleanup(db_rows_release)))

/*
 * A cell; text of a null is NULL, a number of a null 0.  What is of another kind than its column (SQLite takes
 * it from who edits a row) is no text, "", and so never taken for nothing.
 */
const char *db_get_text(const struct db_rows *r, size_t row, size_t column);
int64_t db_get_int(const struct db_rows *r, size_t row, size_t column);
double db_get_real(const struct db_rows *r, size_t row, size_t column);
const struct db_value *db_get(const struct db_rows *r, size_t row, size_t column);

/*
 * "sqlite:PATH" (made with its mode 0600 when it isn't there; the directory must be), or
 * "postgresql://..." or "postgres://..." as libpq takes it.  A URL is never in an error: it may
 * hold a password.
 */
int db_open(const char *url, struct db **ret, struct garret_error *err);
struct db *db_close(struct db *db); /* NULL is fine; returns NULL */
/* "sqlite" or "postgresql": which words of the schema it uses. */
const char *db_kind(const struct db *db);

/*
 * One statement.  ret may be NULL when no rows are wanted.  sql must live as long as the
 * connection (a literal): what was prepared is kept by its address.
 */
int db_query(struct db *db, const char *sql, const struct db_value *args, size_t n_args,
	     struct db_rows *ret, struct garret_error *err);
/*
 * A script of statements without parameters, {WORDS} replaced, ended by ';'.  Nothing is kept.
 * Outside a transaction a failure may leave a part of it done.
 */
int db_script(struct db *db, const char *sql, struct garret_error *err);

/*
 * A transaction that writes: it has SQLite's lock from its begin; on PostgreSQL it is READ COMMITTED.
 * After a failure inside, every statement is MISUSE until db_end(), which rolls back and returns rc
 * unchanged; with rc >= 0 it commits.  UNAVAILABLE from inside: nothing was done, the whole may be
 * tried again.  From db_end() itself: the server went away, and may have committed before.
 */
int db_begin(struct db *db, struct garret_error *err);
int db_end(struct db *db, int rc, struct garret_error *err);

/* ---- schema steps (migrate.c) ---- */

struct db_step {
	const char *name;      /* "0001_base" */
	const char *up, *down; /* scripts */
};

/*
 * Bring the schema to the step of that name: NULL is the last, "base" before the first.  Each step is one
 * transaction, and nobody else migrates meanwhile.  The table garret_schema keeps which were made.
 * CONFLICT when the database has a step that this program doesn't know.
 */
int db_migrate(struct db *db, const struct db_step *steps, size_t n, const char *target,
	       struct garret_error *err);
/* The name of the newest step that was made, "base" for none; malloc()ed. */
int db_at(struct db *db, char **ret, struct garret_error *err);
/*
 * What tables, columns and indexes there are, one a line and sorted, in words that don't depend on
 * the order they were made in: equal texts, equal schemas.
 */
int db_describe(struct db *db, struct strbuf *out, struct garret_error *err);

#endif
