/* SQL on one connection: the same of SQLite and of PostgreSQL. */
#include "database.h"

#include <math.h>
#include <stdbool.h>
#include <sys/stat.h>

static void same_value(const struct db_value *got, const struct db_value *put)
{
	assert_int_equal(got->type, put->type);
	if (put->type == DB_INT)
		assert_true(got->i == put->i);
	if (put->type == DB_REAL)
		assert_memory_equal(&got->r, &put->r, sizeof(put->r));
	if (put->type != DB_TEXT && put->type != DB_BLOB)
		return;
	assert_int_equal(got->n, put->n);
	if (put->n)
		assert_memory_equal(got->p, put->p, put->n);
	assert_int_equal(((const char *)got->p)[got->n], '\0');
}

/* Put v into a column, which has a row of its own for it, and take it back. */
static void round_trip(struct db *db, const char *column, struct db_value v)
{
	autofree char *put = xasprintf("INSERT INTO t(%s) VALUES(?1)", column);
	autofree char *get = xasprintf("SELECT %s FROM t", column);
	struct db_rows rows;

	(void)change(db, "DELETE FROM t", DB_NO_ARGS);
	assert_int_equal(change(db, put, &v, 1), 1);
	rows = ask(db, get, DB_NO_ARGS);
	assert_int_equal(rows.rows, 1);
	assert_int_equal(rows.columns, 1);
	same_value(db_get(&rows, 0, 0), &v);
	db_rows_release(&rows);
}

static struct db *with_columns(void)
{
	struct db *db = fresh();

	script(db,
	       "CREATE TABLE t(i BIGINT, r DOUBLE PRECISION, s TEXT, b {BLOB}, j {JSON}, id {ID});");
	return db;
}

TEST(numbers_come_back_as_they_were)
{
	static const int64_t ints[] = {
		0, 1, -1, INT64_MAX, INT64_MIN, 1LL << 53, (1LL << 53) + 1
	};
	static const double reals[] = { 0,        0.1,      -1.0 / 3,
					1e308,    5e-324,   2.2250738585072014e-308,
					1e16,     1e15,     123456.7,
					INFINITY, -INFINITY };
	struct db *db = with_columns();

	for (size_t i = 0; i < ARRAY_SIZE(ints); i++)
		round_trip(db, "i", db_int(ints[i]));
	for (size_t i = 0; i < ARRAY_SIZE(reals); i++)
		round_trip(db, "r", db_real(reals[i]));
	round_trip(db, "i", db_null());
	round_trip(db, "r", db_null());
	done(db);
}

TEST(texts_and_bytes_come_back_as_they_were)
{
	static const char *const texts[] = { "",
					     " ",
					     "it's \"so\"",
					     "?1 $1 %s \\ \\x41 \\000 --",
					     "NULL",
					     "\xc3\xbc \xe2\x82\xac \xf0\x9f\x98\x80",
					     "e\xcc\x81 is two, \xc3\xa9 one",
					     "\t\r\n\x01\x7f",
					     "\xef\xbb\xbf\xef\xbf\xbf" };
	struct db *db = with_columns();
	char bytes[256];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		round_trip(db, "s", db_text(texts[i]));
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (char)i;
	round_trip(db, "b", db_blob(bytes, sizeof(bytes)));
	round_trip(db, "b", db_blob(bytes, 1));
	round_trip(db, "b", db_blob("\\x00", 4));
	round_trip(db, "b", db_blob(NULL, 0)); /* which isn't null */
	round_trip(db, "s", db_text(NULL));
	round_trip(db, "b", db_null());
	done(db);
}

/* Byte for byte: the order of keys, a key twice, spaces, how a number is written, a NUL. */
TEST(documents_come_back_byte_for_byte)
{
	static const char *const documents[] = {
		"{\"z\": 1,\"a\":[ 1.50, 1e+02, -0, 12345678901234567890 ]}\n",
		"{\"a\":1,\"a\":2}",
		"\"a\\u0000b\"",
		"\"\\ud83d\\ude00 \xf0\x9f\x98\x80 \\u00e9\"",
		"null",
		"[]",
		"  7 "
	};
	struct db *db = with_columns();

	for (size_t i = 0; i < ARRAY_SIZE(documents); i++)
		round_trip(db, "j", db_text(documents[i]));
	round_trip(db, "j", db_null());
	done(db);
}

TEST(long_values_come_back)
{
	const size_t n = 3 << 20;
	autofree char *p = xcalloc(n + 1, 1);
	struct db *db = with_columns();

	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 7 + i / 255);
	round_trip(db, "b", db_blob(p, n));
	memset(p, 'x', n);
	round_trip(db, "s", db_text(p));
	p[0] = p[n - 1] = '"';
	round_trip(db, "j", db_text(p));
	done(db);
}

/* One of the two would refuse or change these. */
TEST(values_that_not_both_can_hold_are_refused)
{
	static const char put[] = "INSERT INTO t(i, s) VALUES(?1, ?2)";
	const struct db_value nul = { .type = DB_TEXT, .p = "a\0b", .n = 3 };
	const struct db_value huge = { .type = DB_BLOB, .p = put, .n = (size_t)DB_VALUE_MAX + 1 };
	struct db *db = with_columns();
	const char *said;

	said = refused(db, GARRET_INVALID, put, DB_ARGS(db_int(1), nul));
	assert_non_null(strstr(said, "parameter 2"));
	assert_non_null(strstr(said, "NUL"));
	said = refused(db, GARRET_INVALID, put, DB_ARGS(db_int(1), db_text("a\xc3(")));
	assert_non_null(strstr(said, "UTF-8"));
	/* A lone surrogate, and one byte too many. */
	(void)refused(db, GARRET_INVALID, put, DB_ARGS(db_int(1), db_text("\xed\xa0\x80")));
	(void)refused(db, GARRET_INVALID, put, DB_ARGS(db_int(1), db_text("\xc0\xaf")));
	said = refused(db, GARRET_INVALID, put, DB_ARGS(db_real(NAN), db_null()));
	assert_non_null(strstr(said, "parameter 1: not a number"));
	said = refused(db, GARRET_TOO_LARGE, put, DB_ARGS(huge, db_null()));
	assert_non_null(strstr(said, "268435457 bytes, at most 268435456"));
	assert_int_equal(number(db, "SELECT COUNT(*) FROM t", DB_NO_ARGS), 0);
	done(db);
}

TEST(rows_come_in_their_order)
{
	struct db *db = with_columns();
	struct db_rows rows;

	begin(db);
	for (int i = 0; i < 1000; i++) {
		autofree char *name = xasprintf("name %d", i);

		assert_int_equal(change(db, "INSERT INTO t(i, s) VALUES(?1, ?2)",
					DB_ARGS(db_int(i), i % 2 ? db_text(name) : db_null())),
				 1);
	}
	commit(db);
	rows = ask(db, "SELECT i, s, i * 0.5 FROM t WHERE i >= ?1 ORDER BY i DESC",
		   DB_ARGS(db_int(100)));
	assert_int_equal(rows.rows, 900);
	assert_int_equal(rows.columns, 3);
	for (size_t i = 0; i < rows.rows; i++) {
		const int64_t at = 999 - (int64_t)i;
		autofree char *name = xasprintf("name %d", (int)at);

		assert_int_equal(db_get_int(&rows, i, 0), at);
		assert_true(db_get_real(&rows, i, 2) == 0.5 * (double)at);
		if (at % 2)
			assert_string_equal(db_get_text(&rows, i, 1), name);
		else
			assert_null(db_get_text(&rows, i, 1));
		assert_int_equal(db_get_int(&rows, i, 1), 0);
	}
	/* Used again, it is another answer. */
	assert_int_equal(db_query(db, "SELECT i FROM t WHERE i < 0", DB_NO_ARGS, &rows, NULL), 0);
	assert_int_equal(rows.rows, 0);
	assert_int_equal(rows.columns, 1);
	db_rows_release(&rows);
	done(db);
}

TEST(what_a_statement_changed_is_counted)
{
	struct db *db = with_columns();

	assert_int_equal(change(db, "INSERT INTO t(i) VALUES(1), (2), (3)", DB_NO_ARGS), 3);
	assert_int_equal(change(db, "SELECT i FROM t", DB_NO_ARGS), 0);
	assert_int_equal(change(db, "CREATE INDEX t_i ON t(i)", DB_NO_ARGS), 0);
	assert_int_equal(change(db, "UPDATE t SET i = i + 1 WHERE i > ?1", DB_ARGS(db_int(1))), 2);
	assert_int_equal(change(db, "UPDATE t SET i = 9 WHERE i = 100", DB_NO_ARGS), 0);
	assert_int_equal(change(db, "DELETE FROM t WHERE i = 3 RETURNING i", DB_NO_ARGS), 1);
	assert_int_equal(change(db, "DELETE FROM t", DB_NO_ARGS), 2);
	done(db);
}

/* PostgreSQL adds BIGINT up to NUMERIC, and has a type for truth. */
TEST(what_is_computed_has_the_same_type)
{
	struct db *db = with_columns();
	struct db_rows rows;

	(void)change(db, "INSERT INTO t(i, r) VALUES(9007199254740993, 1), (2, 2)", DB_NO_ARGS);
	rows = ask(db,
		   "SELECT SUM(i), AVG(r), COUNT(*), i > 3, i < 3, LENGTH('abc'), SUM(r) "
		   "FROM t GROUP BY i, r ORDER BY i DESC",
		   DB_NO_ARGS);
	same_value(db_get(&rows, 0, 0),
		   &(struct db_value){ .type = DB_INT, .i = 9007199254740993 });
	same_value(db_get(&rows, 0, 1), &(struct db_value){ .type = DB_REAL, .r = 1 });
	same_value(db_get(&rows, 0, 2), &(struct db_value){ .type = DB_INT, .i = 1 });
	same_value(db_get(&rows, 0, 3), &(struct db_value){ .type = DB_INT, .i = 1 });
	same_value(db_get(&rows, 0, 4), &(struct db_value){ .type = DB_INT, .i = 0 });
	same_value(db_get(&rows, 0, 5), &(struct db_value){ .type = DB_INT, .i = 3 });
	same_value(db_get(&rows, 1, 6), &(struct db_value){ .type = DB_REAL, .r = 2 });
	db_rows_release(&rows);
	done(db);
}

TEST(an_id_is_given_and_a_row_put_over_another)
{
	static const char put[] = "INSERT INTO u(k, n) VALUES(?1, 1) "
				  "ON CONFLICT(k) DO UPDATE SET n = u.n + 1 RETURNING n";
	struct db *db = with_columns();
	const int64_t first = number(db, "INSERT INTO t(i) VALUES(1) RETURNING id", DB_NO_ARGS);

	assert_true(first > 0);
	assert_true(number(db, "INSERT INTO t(i) VALUES(1) RETURNING id", DB_NO_ARGS) > first);
	script(db, "CREATE TABLE u(k TEXT NOT NULL PRIMARY KEY, n BIGINT NOT NULL);");
	assert_int_equal(number(db, put, DB_ARGS(db_text("a"))), 1);
	assert_int_equal(number(db, put, DB_ARGS(db_text("a"))), 2);
	assert_int_equal(number(db, put, DB_ARGS(db_text("b"))), 1);
	done(db);
}

TEST(errors_have_their_codes_and_no_values)
{
	static const char put[] = "INSERT INTO u(k, n) VALUES(?1, ?2)";
	struct db *db = fresh();
	const char *said;

	script(db, "CREATE TABLE u(k TEXT NOT NULL PRIMARY KEY, n BIGINT UNIQUE);"
		   "CREATE TABLE v(k TEXT NOT NULL REFERENCES u(k), n BIGINT CHECK(n > 0));");
	(void)change(db, put, DB_ARGS(db_text("hidden"), db_int(7)));
	said = refused(db, GARRET_EXISTS, put, DB_ARGS(db_text("hidden"), db_int(8)));
	assert_null(strstr(said, "hidden"));
	(void)refused(db, GARRET_EXISTS, put, DB_ARGS(db_text("other"), db_int(7)));
	(void)change(db, put, DB_ARGS(db_text("second"), db_int(8)));
	(void)refused(db, GARRET_EXISTS, "UPDATE u SET n = ?1", DB_ARGS(db_int(9)));
	(void)refused(db, GARRET_INTERNAL, put, DB_ARGS(db_null(), db_int(9)));
	said = refused(db, GARRET_INTERNAL, "INSERT INTO v VALUES(?1, 1)",
		       DB_ARGS(db_text("hidden2")));
	assert_null(strstr(said, "hidden2"));
	(void)refused(db, GARRET_INTERNAL, "INSERT INTO v VALUES('hidden', 0)", DB_NO_ARGS);
	(void)refused(db, GARRET_INTERNAL, "SELEKT 1", DB_NO_ARGS);
	(void)refused(db, GARRET_INTERNAL, "SELECT nothing FROM nowhere", DB_NO_ARGS);
	said = refused(db, GARRET_MISUSE, put, DB_ARGS(db_text("x")));
	assert_non_null(strstr(said, "1 values for 2 parameters"));
	(void)refused(db, GARRET_MISUSE, "SELECT 1", DB_ARGS(db_int(1)));
	assert_int_equal(db_query(db, "SELEKT 1", DB_NO_ARGS, NULL, NULL), -GARRET_INTERNAL);
	assert_int_equal(db_script(db, "SELEKT 1;", NULL), -GARRET_INTERNAL);
	/* And it still works. */
	assert_int_equal(number(db, "SELECT COUNT(*) FROM u", DB_NO_ARGS), 2);
	done(db);
}

TEST(one_call_is_one_statement)
{
	struct db *db = with_columns();

	assert_true(db_query(db, "DELETE FROM t; DELETE FROM t", DB_NO_ARGS, NULL, NULL) < 0);
	assert_int_equal(number(db, "SELECT 1; ", DB_NO_ARGS), 1);
	done(db);
}

TEST(parameters_are_numbered)
{
	static const char sql[] = "SELECT ?2, 'a?1''?2' /* ?3 */, ?1, \"k?1\", ?2 -- ?4\n FROM u";
	struct db *db = fresh();
	struct db_rows rows;

	script(db, "CREATE TABLE u(\"k?1\" TEXT); INSERT INTO u VALUES('k');");
	rows = ask(db, sql, DB_ARGS(db_text("one"), db_text("two")));
	assert_string_equal(db_get_text(&rows, 0, 0), "two");
	assert_string_equal(db_get_text(&rows, 0, 1), "a?1'?2");
	assert_string_equal(db_get_text(&rows, 0, 2), "one");
	assert_string_equal(db_get_text(&rows, 0, 3), "k");
	assert_string_equal(db_get_text(&rows, 0, 4), "two");
	db_rows_release(&rows);
	done(db);
}

/* What is kept is found by a literal's address: its arguments' types and its text may be others. */
TEST(a_prepared_statement_fits_what_it_is_called_with)
{
	static const char put[] = "INSERT INTO t(r, s) VALUES(?1, ?2)";
	struct db *db = with_columns();
	char sql[32];

	for (int i = 0; i < 3; i++) {
		(void)change(db, put, DB_ARGS(db_int(1), db_text("a")));
		(void)change(db, put, DB_ARGS(db_real(0.5), db_null()));
		(void)change(db, put, DB_ARGS(db_null(), db_text("b")));
	}
	assert_int_equal(number(db, "SELECT COUNT(*) FROM t WHERE r = ?1", DB_ARGS(db_real(0.5))),
			 3);
	for (int i = 0; i < 500; i++) {
		(void)snprintf(sql, sizeof(sql), "SELECT %d", i % 250);
		assert_int_equal(number(db, sql, DB_NO_ARGS), i % 250);
	}
	done(db);
}

TEST(many_statements_are_kept_or_made_again)
{
	struct db *db = with_columns();
	char *sql[300];

	for (int i = 0; i < 300; i++)
		sql[i] = xasprintf("SELECT %d + ?1", i);
	begin(db);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 300; i++)
			assert_int_equal(number(db, sql[i], DB_ARGS(db_int(round))), i + round);
	commit(db);
	done(db);
	for (int i = 0; i < 300; i++)
		free(sql[i]);
}

TEST(no_space_is_said)
{
	const struct db_value much = { .type = DB_BLOB, .p = xcalloc(1, 1 << 20), .n = 1 << 20 };
	struct db *db = with_columns();
	struct garret_error err = { 0 };

	if (postgres_url()) {
		/* A server can't be filled here, but it can say that it is. */
		assert_int_equal(
			db_script(db,
				  "DO $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; "
				  "END $$;",
				  &err),
			-GARRET_NO_SPACE);
	} else {
		struct db_rows rows = ask(db, "PRAGMA max_page_count = 20", DB_NO_ARGS);

		db_rows_release(&rows);
		(void)refused(db, GARRET_NO_SPACE, "INSERT INTO t(b) VALUES(?1)", DB_ARGS(much));
	}
	assert_int_equal(number(db, "SELECT COUNT(*) FROM t", DB_NO_ARGS), 0);
	free((void *)(uintptr_t)much.p);
	done(db);
}

TEST_MAIN
