/*
 * The database that a test of src/db runs on: a file of SQLite's, or with GARRET_TEST_POSTGRES in the
 * environment that URL's (tests/db/postgres.py).  Every test finds it empty.
 */
#ifndef TESTS_DB_DATABASE_H
#define TESTS_DB_DATABASE_H

#include "unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "db/db.h"

static char sqlite_dir[32];

static inline const char *postgres_url(void)
{
	return getenv("GARRET_TEST_POSTGRES");
}

/* Another connection to what fresh() opened. */
static inline struct db *connect_again(void)
{
	autofree char *file = xasprintf("sqlite:%s/db", sqlite_dir);
	struct garret_error err = { 0 };
	struct db *db;

	if (db_open(postgres_url() ? postgres_url() : file, &db, &err) < 0)
		fail_msg("%s", err.msg);
	return db;
}

static inline void script(struct db *db, const char *sql)
{
	struct garret_error err = { 0 };

	if (db_script(db, sql, &err) < 0)
		fail_msg("%s: %s", sql, err.msg);
}

static inline struct db *fresh(void)
{
	struct db *db;

	if (!postgres_url()) {
		(void)snprintf(sqlite_dir, sizeof(sqlite_dir), "/tmp/garret-db-XXXXXX");
		assert_non_null(mkdtemp(sqlite_dir));
	}
	db = connect_again();
	if (postgres_url())
		script(db, "DROP SCHEMA public CASCADE; CREATE SCHEMA public;");
	return db;
}

static inline void done(struct db *db)
{
	db_close(db);
	if (!postgres_url())
		assert_int_equal(remove_tree_at(AT_FDCWD, sqlite_dir), 0);
}

/* What must work; the rows are the caller's. */
static inline struct db_rows ask(struct db *db, const char *sql, const struct db_value *args,
				 size_t n)
{
	struct db_rows rows = DB_ROWS_INIT;
	struct garret_error err = { 0 };

	if (db_query(db, sql, args, n, &rows, &err) < 0)
		fail_msg("%s: %s", sql, err.msg);
	return rows;
}

/* The same for one number. */
static inline int64_t number(struct db *db, const char *sql, const struct db_value *args, size_t n)
{
	autorows struct db_rows rows = ask(db, sql, args, n);

	return rows.rows ? db_get_int(&rows, 0, 0) : -1;
}

/* How many rows it changes. */
static inline int64_t change(struct db *db, const char *sql, const struct db_value *args, size_t n)
{
	autorows struct db_rows rows = ask(db, sql, args, n);

	return rows.changed;
}

/* What must fail with that code; the message, until the next. */
static inline const char *refused(struct db *db, enum garret_code code, const char *sql,
				  const struct db_value *args, size_t n)
{
	static struct garret_error err;
	int rc = db_query(db, sql, args, n, NULL, &err);

	if (rc != -(int)code)
		fail_msg("%s: %s (%s)", sql, rc < 0 ? garret_code_name(-rc) : "worked",
			 rc < 0 ? err.msg : "");
	assert_int_equal(err.code, code);
	return err.msg;
}

static inline void begin(struct db *db)
{
	struct garret_error err = { 0 };

	if (db_begin(db, &err) < 0)
		fail_msg("%s", err.msg);
}

static inline void commit(struct db *db)
{
	struct garret_error err = { 0 };

	if (db_end(db, 0, &err) < 0)
		fail_msg("%s", err.msg);
}

/* Wait for a child, which must exit with 0. */
static inline void join(pid_t child)
{
	int status;

	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
