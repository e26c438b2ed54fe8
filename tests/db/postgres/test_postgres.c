/*
 * What only a server can do to a connection: go away, at any moment, and say so in its own words.
 * Wants GARRET_TEST_POSTGRES and GARRET_TEST_POSTGRES_CONTROL (tests/db/postgres.py).
 */
#include "database.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Stop or start the server; when this returns that is done. */
static void control(const char *word)
{
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const char *path = getenv("GARRET_TEST_POSTGRES_CONTROL");
	char answer[8] = "";

	assert_non_null(path);
	(void)snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	assert_int_equal(write(fd, word, strlen(word)), strlen(word));
	assert_int_equal(read(fd, answer, sizeof(answer) - 1), 3);
	assert_string_equal(answer, "ok\n");
}

/* A table with one row, 1. */
static struct db *with_row(void)
{
	struct db *db = fresh();

	script(db, "CREATE TABLE t(i BIGINT); INSERT INTO t VALUES(1);");
	return db;
}

static int64_t sum(struct db *db)
{
	return number(db, "SELECT SUM(i) FROM t", DB_NO_ARGS);
}

static const char put[] = "INSERT INTO t VALUES(?1)";

/* End the connection db from another, and wait until it is gone. */
static void cut(struct db *db, struct db *other)
{
	const int64_t pid = number(db, "SELECT pg_backend_pid()", DB_NO_ARGS);

	assert_int_equal(number(other, "SELECT pg_terminate_backend(CAST(?1 AS INT), 5000)",
				DB_ARGS(db_int(pid))),
			 1);
}

static struct db *with_options(const char *options)
{
	autofree char *url = xasprintf("%s&%s", postgres_url(), options);
	struct garret_error err = { 0 };
	struct db *db;

	if (db_open(url, &db, &err) < 0)
		fail_msg("%s", err.msg);
	return db;
}

/* ---- it goes away ---- */

TEST(a_connection_lost_between_statements_is_made_again)
{
	struct db *db = with_row(), *other = connect_again();

	for (int i = 0; i < 3; i++) {
		(void)change(db, put, DB_ARGS(db_int(10)));
		cut(db, other);
		(void)change(db, put, DB_ARGS(db_int(100))); /* a prepared one, prepared again */
	}
	assert_int_equal(sum(db), 331);
	cut(db, other);
	begin(db);
	(void)change(db, put, DB_ARGS(db_int(1000)));
	commit(db);
	cut(db, other);
	script(db, "INSERT INTO t VALUES(10000);");
	assert_int_equal(sum(db), 11331);
	db_close(other);
	done(db);
}

TEST(a_transaction_that_lost_its_connection_is_never_half_made)
{
	struct db *db = with_row(), *other = connect_again();

	begin(db);
	(void)change(db, put, DB_ARGS(db_int(10)));
	cut(db, other);
	(void)refused(db, GARRET_UNAVAILABLE, put, DB_ARGS(db_int(100)));
	(void)refused(db, GARRET_MISUSE, put, DB_ARGS(db_int(100)));
	assert_int_equal(db_end(db, -GARRET_UNAVAILABLE, NULL), -GARRET_UNAVAILABLE);
	assert_int_equal(sum(other), 1);

	/* Lost before its end, which nobody has seen. */
	begin(db);
	(void)change(db, put, DB_ARGS(db_int(10)));
	cut(db, other);
	assert_int_equal(db_end(db, 0, NULL), -GARRET_UNAVAILABLE);
	assert_int_equal(sum(other), 1);

	/* In a script. */
	begin(db);
	script(db, "INSERT INTO t VALUES(10);");
	cut(db, other);
	assert_int_equal(db_script(db, "INSERT INTO t VALUES(100);", NULL), -GARRET_UNAVAILABLE);
	assert_int_equal(db_end(db, -GARRET_UNAVAILABLE, NULL), -GARRET_UNAVAILABLE);

	/* Now the whole of it. */
	begin(db);
	(void)change(db, put, DB_ARGS(db_int(10)));
	(void)change(db, put, DB_ARGS(db_int(100)));
	commit(db);
	assert_int_equal(sum(other), 111);
	db_close(other);
	done(db);
}

/* It may have been carried out, so it isn't repeated; here it wasn't. */
TEST(a_statement_under_way_is_not_repeated)
{
	struct db *db = with_row();
	const int64_t pid = number(db, "SELECT pg_backend_pid()", DB_NO_ARGS);
	const pid_t child = fork();

	if (child == 0) {
		struct db *other = NULL;
		int rc = db_open(postgres_url(), &other, NULL);

		(void)usleep(300000);
		if (rc == 0)
			rc = db_query(other, "SELECT pg_terminate_backend(CAST(?1 AS INT), 5000)",
				      DB_ARGS(db_int(pid)), NULL, NULL);
		_exit(rc < 0);
	}
	(void)refused(db, GARRET_UNAVAILABLE,
		      "INSERT INTO t SELECT 10 FROM (SELECT pg_sleep(20)) s", DB_NO_ARGS);
	join(child);
	assert_int_equal(sum(db), 1);
	done(db);
}

TEST(a_server_that_restarts_is_found_again)
{
	struct garret_error err = { 0 };
	struct db *db = with_row(), *unopened;
	const char *password = strchr(postgres_url() + strlen("postgresql://garret:"), '@');
	autofree char *secret = xasprintf("%.*s", 24, password - 24);

	control("stop");
	for (int i = 0; i < 2; i++)
		assert_null(
			strstr(refused(db, GARRET_UNAVAILABLE, put, DB_ARGS(db_int(10))), secret));
	assert_int_equal(db_begin(db, NULL), -GARRET_UNAVAILABLE);
	assert_int_equal(db_script(db, "INSERT INTO t VALUES(10);", NULL), -GARRET_UNAVAILABLE);
	assert_int_equal(db_open(postgres_url(), &unopened, &err), -GARRET_UNAVAILABLE);
	assert_null(strstr(err.msg, secret));
	control("start");
	(void)change(db, put, DB_ARGS(db_int(100)));
	assert_int_equal(sum(db), 101);

	begin(db);
	(void)change(db, put, DB_ARGS(db_int(1000)));
	control("stop");
	control("start");
	(void)refused(db, GARRET_UNAVAILABLE, put, DB_ARGS(db_int(1000)));
	assert_int_equal(db_end(db, 0, &err), -GARRET_MISUSE);
	assert_int_equal(sum(db), 101);
	done(db);
}

/* ---- what it says ---- */

TEST(states_have_our_codes)
{
	static const struct {
		const char *state;
		enum garret_code code;
	} cases[] = {
		{ "23505", GARRET_EXISTS },      { "23503", GARRET_INTERNAL },
		{ "23502", GARRET_INTERNAL },    { "53100", GARRET_NO_SPACE },
		{ "40001", GARRET_UNAVAILABLE }, { "40P01", GARRET_UNAVAILABLE },
		{ "55P03", GARRET_UNAVAILABLE }, { "57014", GARRET_UNAVAILABLE },
		{ "57P01", GARRET_UNAVAILABLE }, { "57P03", GARRET_UNAVAILABLE },
		{ "53300", GARRET_UNAVAILABLE }, { "08006", GARRET_UNAVAILABLE },
		{ "08P01", GARRET_INTERNAL },    { "42P01", GARRET_INTERNAL },
		{ "XX000", GARRET_INTERNAL },
	};
	struct garret_error err = { 0 };
	struct db *db = fresh();

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		autofree char *raise = xasprintf(
			"DO $$ BEGIN RAISE EXCEPTION E'two\\nlines' USING ERRCODE = '%s'; END $$;",
			cases[i].state);
		int rc = db_script(db, raise, &err);

		if (rc != -(int)cases[i].code)
			fail_msg("%s: %s", cases[i].state, err.msg);
		assert_non_null(strstr(err.msg, "two lines (SQLSTATE "));
		assert_non_null(strstr(err.msg, cases[i].state));
	}
	done(db);
}

/* PostgreSQL quotes what it can't read. */
TEST(a_value_is_not_in_an_error)
{
	struct db *db = fresh();

	script(db, "CREATE TABLE t(j {JSON}, i BIGINT);");
	assert_null(strstr(refused(db, GARRET_INTERNAL, "INSERT INTO t(j) VALUES(?1)",
				   DB_ARGS(db_text("hidden"))),
			   "hidden"));
	assert_null(strstr(refused(db, GARRET_INTERNAL, "INSERT INTO t(i) VALUES(?1)",
				   DB_ARGS(db_text("hidden"))),
			   "hidden"));
	done(db);
}

static int lock_two(struct db *db, int first, int ready, int go)
{
	char c;
	int rc = db_begin(db, NULL);

	if (rc == 0)
		rc = db_query(db, "UPDATE t SET n = n + 1 WHERE i = ?1", DB_ARGS(db_int(first)),
			      NULL, NULL);
	if (rc < 0 || write(ready, "r", 1) != 1 || read(go, &c, 1) != 1)
		return -GARRET_INTERNAL;
	rc = db_query(db, "UPDATE t SET n = n + 1 WHERE i = ?1", DB_ARGS(db_int(1 - first)), NULL,
		      NULL);
	return db_end(db, rc, NULL);
}

TEST(a_deadlock_may_be_tried_again)
{
	struct db *db = fresh();
	int there[2], back[2], rc, status;
	pid_t child;

	script(db, "CREATE TABLE t(i BIGINT, n BIGINT); INSERT INTO t VALUES(0, 0), (1, 0);");
	assert_int_equal(pipe2(there, O_CLOEXEC), 0);
	assert_int_equal(pipe2(back, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		struct db *other = NULL;

		rc = db_open(postgres_url(), &other, NULL);
		_exit(rc < 0 ? -rc : -lock_two(other, 1, there[1], back[0]));
	}
	rc = lock_two(db, 0, back[1], there[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	/* One of the two, whichever the server took. */
	assert_int_equal(WEXITSTATUS(status) + -rc, GARRET_UNAVAILABLE);
	assert_int_equal(number(db, "SELECT SUM(n) FROM t", DB_NO_ARGS), 2);
	for (int i = 0; i < 2; i++) {
		fd_close(there[i]);
		fd_close(back[i]);
	}
	done(db);
}

/* ---- what is set elsewhere ---- */

TEST(settings_of_a_role_or_url_change_no_value)
{
	struct db *db = with_row(), *other;
	const double third = 1.0 / 3;
	struct db_rows rows;

	other = with_options(
		"client_encoding=LATIN1&options=-c%20extra_float_digits%3D0%20-c%20bytea_output%3Descape"
		"%20-c%20standard_conforming_strings%3Doff%20-c%20default_transaction_read_only%3Don"
		"%20-c%20backslash_quote%3Don%20-c%20default_transaction_isolation%3Dserializable");
	rows = ask(other, "SELECT CAST(?1 AS DOUBLE PRECISION), CAST(?2 AS BYTEA), ?3 || '\\n'",
		   DB_ARGS(db_real(third), db_blob("a\\\0\xff", 4), db_text("\xe2\x82\xac")));
	assert_memory_equal(&db_get(&rows, 0, 0)->r, &third, sizeof(third));
	assert_int_equal(db_get(&rows, 0, 1)->n, 4);
	assert_memory_equal(db_get(&rows, 0, 1)->p, "a\\\0\xff", 4);
	assert_string_equal(db_get_text(&rows, 0, 2), "\xe2\x82\xac\\n");
	db_rows_release(&rows);
	begin(other);
	(void)change(other, put, DB_ARGS(db_int(10)));
	/* Another's commit is seen, as in READ COMMITTED. */
	(void)change(db, put, DB_ARGS(db_int(100)));
	assert_int_equal(sum(other), 111);
	commit(other);
	db_close(other);
	done(db);
}

TEST(a_wait_for_a_lock_ends)
{
	struct db *db = with_row(), *other, *third = connect_again();

	assert_int_equal(
		number(third, "SELECT 1 WHERE current_setting('lock_timeout') = '10s'", DB_NO_ARGS),
		1);
	other = with_options("options=-c%20lock_timeout%3D100");
	begin(db);
	(void)change(db, "UPDATE t SET i = 2", DB_NO_ARGS);
	(void)refused(other, GARRET_UNAVAILABLE, "UPDATE t SET i = 3", DB_NO_ARGS);
	commit(db);
	db_close(other);
	db_close(third);
	done(db);
}

TEST(a_database_of_another_encoding_is_refused)
{
	struct garret_error err = { 0 };
	struct db *db = fresh(), *other;
	const char *from = postgres_url(), *query = strchr(from, '?'), *slash = query;
	autofree char *url = NULL;

	while (*slash != '/')
		slash--;
	url = xasprintf("%.*s/ascii%s", (int)(slash - from), from, query);
	(void)change(db, "DROP DATABASE IF EXISTS ascii", DB_NO_ARGS);
	(void)change(db,
		     "CREATE DATABASE ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' "
		     "TEMPLATE template0",
		     DB_NO_ARGS);
	assert_int_equal(db_open(url, &other, &err), -GARRET_UNSUPPORTED);
	assert_non_null(strstr(err.msg, "SQL_ASCII"));
	(void)change(db, "DROP DATABASE ascii", DB_NO_ARGS);
	done(db);
}

TEST(a_wrong_password_is_not_told)
{
	struct garret_error err = { 0 };
	const char *at = strchr(postgres_url() + strlen("postgresql://garret:"), '@');
	autofree char *url = xasprintf("postgresql://garret:hidden%s", at);
	struct db *db;

	assert_int_equal(db_open(url, &db, &err), -GARRET_UNAVAILABLE);
	assert_non_null(strstr(err.msg, "password authentication failed"));
	assert_null(strstr(err.msg, "hidden"));
}

/* ---- prepared statements ---- */

TEST(a_changed_table_is_noticed)
{
	static const char all[] = "SELECT * FROM t";
	struct db *db = with_row(), *other = connect_again();
	struct db_rows rows = ask(db, all, DB_NO_ARGS);

	db_rows_release(&rows);
	script(other, "ALTER TABLE t ADD COLUMN s TEXT;");
	rows = ask(db, all, DB_NO_ARGS);
	assert_int_equal(rows.columns, 2);
	db_rows_release(&rows);
	script(other, "ALTER TABLE t DROP COLUMN s;");
	begin(db);
	(void)refused(db, GARRET_UNAVAILABLE, all, DB_NO_ARGS);
	assert_int_equal(db_end(db, -GARRET_UNAVAILABLE, NULL), -GARRET_UNAVAILABLE);
	begin(db);
	rows = ask(db, all, DB_NO_ARGS);
	assert_int_equal(rows.columns, 1);
	db_rows_release(&rows);
	commit(db);
	db_close(other);
	done(db);
}

TEST(statements_that_the_server_forgot_are_prepared_again)
{
	struct db *db = with_row();

	(void)change(db, put, DB_ARGS(db_int(10)));
	(void)change(db, "DEALLOCATE ALL", DB_NO_ARGS);
	(void)change(db, put, DB_ARGS(db_int(100)));
	assert_int_equal(sum(db), 111);
	/* What isn't supported at all says so, and isn't repeated for ever. */
	for (int i = 0; i < 2; i++)
		(void)refused(db, GARRET_INTERNAL, "CREATE TABLE other.db.x(i BIGINT)", DB_NO_ARGS);
	done(db);
}

/* No more than 192 at a time, whatever is asked. */
TEST(the_server_keeps_no_more_statements_than_we)
{
	struct db *db = fresh();
	char *sql[400];

	for (int i = 0; i < 400; i++) {
		sql[i] = xasprintf("SELECT %d", i);
		assert_int_equal(number(db, sql[i], DB_NO_ARGS), i);
	}
	assert_true(number(db, "SELECT COUNT(*) FROM pg_prepared_statements", DB_NO_ARGS) <= 192);
	done(db);
	for (int i = 0; i < 400; i++)
		free(sql[i]);
}

/* ---- around it ---- */

/* Neither while connecting nor later: a library doesn't write to anybody's stderr. */
TEST(notices_are_not_printed)
{
	char text[64] = "";
	int out[2], saved;
	struct db *db;

	assert_int_equal(pipe2(out, O_CLOEXEC | O_NONBLOCK), 0);
	saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(dup2(out[1], STDERR_FILENO), STDERR_FILENO);
	db = fresh();
	script(db, "DROP TABLE IF EXISTS nothing;");
	script(db, "DO $$ BEGIN RAISE WARNING 'loud'; END $$;");
	assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	assert_int_equal(read(out[0], text, sizeof(text) - 1), -1);
	assert_string_equal(text, "");
	fd_close(saved);
	fd_close(out[0]);
	fd_close(out[1]);
	done(db);
}

/* Two objects of ours in one process: what the module has of our libraries stays its own. */
TEST(the_module_has_one_symbol)
{
	struct db *db = fresh();
	char path[512];
	void *object;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 64);

	assert_true(n > 0);
	path[n] = '\0';
	(void)snprintf(strrchr(path, '/'), 64, "/libgarret-postgres.so");
	object = dlopen(path, RTLD_NOW | RTLD_NOLOAD); /* it is loaded: beside the program */
	assert_non_null(object);
	assert_non_null(dlsym(object, "garret_db_module"));
	assert_null(dlsym(object, "garret_fail"));
	assert_null(dlsym(object, "garret_code_name"));
	assert_null(dlsym(object, "db_rows_release"));
	assert_int_equal(dlclose(object), 0);
	done(db);
}

int main(void)
{
	if (!postgres_url() || !getenv("GARRET_TEST_POSTGRES_CONTROL")) {
		print_error("run it by tests/db/postgres.py -- COMMAND\n");
		return 2;
	}
	return _cmocka_run_group_tests(__FILE__, __start_garret_tests,
				       (size_t)(__stop_garret_tests - __start_garret_tests), NULL,
				       NULL);
}
