/* Transactions: whole or not at all, and who waits for whom. */
#include "database.h"

/* A table without a row. */
static struct db *with_table(void)
{
	struct db *db = fresh();

	script(db, "CREATE TABLE t(i BIGINT, s TEXT);");
	return db;
}

static int64_t rows_of(struct db *db)
{
	return number(db, "SELECT COUNT(*) FROM t", DB_NO_ARGS);
}

TEST(a_transaction_is_seen_when_it_ends_or_never)
{
	struct db *db = with_table(), *other = connect_again();

	begin(db);
	(void)change(db, "INSERT INTO t(i) VALUES(1)", DB_NO_ARGS);
	assert_int_equal(rows_of(db), 1);
	assert_int_equal(rows_of(other), 0);
	commit(db);
	assert_int_equal(rows_of(other), 1);

	begin(db);
	(void)change(db, "INSERT INTO t(i) VALUES(2)", DB_NO_ARGS);
	script(db, "CREATE TABLE other(i BIGINT);");
	assert_int_equal(db_end(db, -GARRET_CONFLICT, NULL), -GARRET_CONFLICT);
	assert_int_equal(rows_of(db), 1);
	(void)refused(db, GARRET_INTERNAL, "SELECT * FROM other", DB_NO_ARGS);

	begin(db);
	db_close(other);
	db_close(db); /* in the middle: rolled back */
	db = connect_again();
	assert_int_equal(rows_of(db), 1);
	done(db);
}

TEST(after_a_failure_a_transaction_takes_nothing_more)
{
	struct garret_error err = { 0 };
	struct db *db = with_table();
	struct strbuf text = STRBUF_INIT;

	script(db, "CREATE UNIQUE INDEX t_s ON t(s);");
	begin(db);
	(void)change(db, "INSERT INTO t(s) VALUES('a')", DB_NO_ARGS);
	(void)refused(db, GARRET_EXISTS, "INSERT INTO t(s) VALUES('a')", DB_NO_ARGS);
	(void)refused(db, GARRET_MISUSE, "INSERT INTO t(s) VALUES('b')", DB_NO_ARGS);
	assert_int_equal(db_script(db, "SELECT 1;", NULL), -GARRET_MISUSE);
	assert_int_equal(db_describe(db, &text, NULL), -GARRET_MISUSE);
	/* Somebody forgot that it failed. */
	assert_int_equal(db_end(db, 0, &err), -GARRET_MISUSE);
	assert_int_equal(rows_of(db), 0);
	(void)change(db, "INSERT INTO t(s) VALUES('b')", DB_NO_ARGS);

	/* A value that db.c refuses counts as well. */
	begin(db);
	(void)refused(db, GARRET_INVALID, "INSERT INTO t(s) VALUES(?1)", DB_ARGS(db_text("\xff")));
	assert_int_equal(db_end(db, -GARRET_INVALID, NULL), -GARRET_INVALID);
	assert_int_equal(rows_of(db), 1);
	strbuf_release(&text);
	done(db);
}

TEST(begin_and_end_belong_together)
{
	struct db *db = with_table();

	assert_int_equal(db_end(db, 3, NULL), 3);
	assert_int_equal(db_end(db, -GARRET_CONFLICT, NULL), -GARRET_CONFLICT);
	begin(db);
	assert_int_equal(db_begin(db, NULL), -GARRET_MISUSE);
	(void)change(db, "INSERT INTO t(i) VALUES(1)", DB_NO_ARGS);
	assert_int_equal(db_end(db, 3, NULL), 3);
	assert_int_equal(rows_of(db), 1);
	done(db);
}

/*
 * Another process: take the row, tell it, keep it for a while.  It begins while nobody has a
 * connection: SQLite's locks don't go through a fork.
 */
static pid_t hold_row(int ready, int wait_ms)
{
	const pid_t child = fork();
	struct garret_error err = { 0 };
	struct db *db;
	int rc;

	if (child != 0)
		return child;
	db = connect_again();
	rc = db_begin(db, &err);
	if (rc == 0)
		rc = db_query(db, "UPDATE t SET i = i + 1", DB_NO_ARGS, NULL, &err);
	if (rc < 0 || write(ready, "r", 1) != 1)
		_exit(1);
	(void)usleep((useconds_t)wait_ms * 1000);
	_exit(db_end(db, rc, &err) < 0);
}

TEST(who_writes_waits_for_who_wrote)
{
	struct db *db = with_table();
	int ready[2];
	pid_t child;
	char c;

	(void)change(db, "INSERT INTO t(i) VALUES(0)", DB_NO_ARGS);
	db_close(db);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = hold_row(ready[1], 300);
	assert_int_equal(read(ready[0], &c, 1), 1);
	db = connect_again();
	begin(db);
	(void)change(db, "UPDATE t SET i = i + 1", DB_NO_ARGS);
	commit(db);
	assert_int_equal(number(db, "SELECT i FROM t", DB_NO_ARGS), 2);
	join(child);
	fd_close(ready[0]);
	fd_close(ready[1]);
	done(db);
}

TEST(a_lock_that_is_not_given_is_unavailable)
{
	struct db *db = with_table(), *other = connect_again();
	struct db_rows rows;

	(void)change(db, "INSERT INTO t(i) VALUES(0)", DB_NO_ARGS);
	/* What stands for DB_BUSY_MS here: nobody wants to wait for ten seconds. */
	rows = ask(other,
		   postgres_url() ? "SET lock_timeout = '100ms'" : "PRAGMA busy_timeout = 100",
		   DB_NO_ARGS);
	db_rows_release(&rows);
	begin(db);
	(void)change(db, "UPDATE t SET i = 1", DB_NO_ARGS);
	(void)refused(other, GARRET_UNAVAILABLE, "UPDATE t SET i = 2", DB_NO_ARGS);
	commit(db);
	assert_int_equal(change(other, "UPDATE t SET i = 2", DB_NO_ARGS), 1);
	db_close(other);
	done(db);
}

TEST_MAIN
