/* Schema steps: up, down, half way, by several processes at once, and what a description tells. */
#include "database.h"

#include <stdbool.h>

extern const struct db_step app_steps[];
extern const size_t app_n_steps;

static const struct db_step steps[] = {
	{ "0001_base",
	  "CREATE TABLE a(id {ID}, name TEXT NOT NULL, owner TEXT, document {JSON}, bytes {BLOB}, "
	  "n BIGINT NOT NULL DEFAULT 3, at DOUBLE PRECISION, UNIQUE(owner, name));"
	  "CREATE TABLE b(x TEXT NOT NULL, y TEXT NOT NULL, a BIGINT REFERENCES a(id) ON DELETE CASCADE, "
	  "PRIMARY KEY(x, y));"
	  "CREATE INDEX a_at ON a(at DESC, n); CREATE UNIQUE INDEX a_one ON a(owner) WHERE n = 1;",
	  "DROP TABLE b; DROP TABLE a;" },
	{ "0002_more", "ALTER TABLE a ADD COLUMN more {JSON}; CREATE INDEX a_owner ON a(owner);",
	  "DROP INDEX a_owner; ALTER TABLE a DROP COLUMN more;" },
	{ "0003_last", "ALTER TABLE a ADD COLUMN last TEXT NOT NULL DEFAULT 'x';",
	  "ALTER TABLE a DROP COLUMN last;" },
};

static void move(struct db *db, const struct db_step *from, size_t n, const char *to)
{
	struct garret_error err = { 0 };

	if (db_migrate(db, from, n, to, &err) < 0)
		fail_msg("to %s: %s", to ? to : "the last", err.msg);
}

static char *described(struct db *db)
{
	struct strbuf out = STRBUF_INIT;
	struct garret_error err = { 0 };

	if (db_describe(db, &out, &err) < 0)
		fail_msg("%s", err.msg);
	return strbuf_detach(&out, NULL);
}

static void is_at(struct db *db, const char *name)
{
	autofree char *at = NULL;
	struct garret_error err = { 0 };

	if (db_at(db, &at, &err) < 0)
		fail_msg("%s", err.msg);
	assert_string_equal(at, name);
}

/* Down to each step and up again: every schema is what it was. */
static void up_and_down(struct db *db, const struct db_step *s, size_t n)
{
	char *was[16];

	assert_true(n < ARRAY_SIZE(was));
	move(db, s, n, "base");
	was[0] = described(db);
	for (size_t i = 0; i < n; i++) {
		move(db, s, n, s[i].name);
		is_at(db, s[i].name);
		was[i + 1] = described(db);
		assert_string_not_equal(was[i + 1], was[i]);
	}
	for (size_t i = n + 1; i-- > 0;) {
		autofree char *down = NULL, *up = NULL;

		move(db, s, n, i ? s[i - 1].name : "base");
		is_at(db, i ? s[i - 1].name : "base");
		down = described(db);
		assert_string_equal(down, was[i]);
		move(db, s, n, NULL);
		up = described(db);
		assert_string_equal(up, was[n]);
	}
	for (size_t i = 0; i <= n; i++)
		free(was[i]);
}

TEST(steps_go_up_and_down_without_drift)
{
	struct db *db = fresh();

	is_at(db, "base");
	up_and_down(db, steps, ARRAY_SIZE(steps));
	move(db, steps, ARRAY_SIZE(steps), NULL); /* which changes nothing */
	is_at(db, "0003_last");
	done(db);
}

TEST(the_application_layers_steps_do_as_well)
{
	struct db *db = fresh();

	up_and_down(db, app_steps, app_n_steps);
	done(db);
}

/* In whatever way it was made. */
TEST(equal_schemas_have_equal_descriptions)
{
	struct db *db = fresh();
	autofree char *first = NULL, *second = NULL;

	script(db,
	       "CREATE TABLE a(x TEXT NOT NULL, y BIGINT DEFAULT 2); CREATE INDEX ai ON a(y, x);"
	       "CREATE TABLE b(i BIGINT);");
	first = described(db);
	script(db,
	       "DROP TABLE a; DROP TABLE b; CREATE TABLE b(i BIGINT); CREATE TABLE a(z TEXT,"
	       " y BIGINT DEFAULT 2); CREATE INDEX other ON a(z); DROP INDEX other;"
	       "ALTER TABLE a ADD COLUMN x TEXT NOT NULL DEFAULT ''; ALTER TABLE a DROP COLUMN z;"
	       "CREATE INDEX another ON a(y, x);");
	second = described(db);
	assert_string_not_equal(first, second); /* x has a default */
	free(take_ptr(&second));
	script(db, "DROP TABLE a; CREATE TABLE a(y BIGINT DEFAULT 2, x TEXT NOT NULL);"
		   "CREATE INDEX another ON a(y, x);");
	second = described(db);
	assert_string_equal(first, second);
	done(db);
}

TEST(each_difference_is_described)
{
	static const char *const changes[] = {
		"ALTER TABLE a ADD COLUMN z TEXT;",
		"ALTER TABLE a DROP COLUMN r;",
		"ALTER TABLE a RENAME COLUMN r TO q;",
		"CREATE TABLE c(i BIGINT);",
		"CREATE INDEX i2 ON a(y);",
		"DROP INDEX i1; CREATE UNIQUE INDEX i1 ON a(y, x) WHERE y = 1;",
		"DROP INDEX i1; CREATE INDEX i1 ON a(y, x) WHERE y = 2;",
		"DROP INDEX i1; CREATE INDEX i1 ON a(y, x);",
		"DROP INDEX i1; CREATE INDEX i1 ON a(x, y) WHERE y = 1;",
		"DROP INDEX i1; CREATE INDEX i1 ON a(y DESC, x) WHERE y = 1;",
		"DROP TABLE b; CREATE TABLE b(k TEXT NOT NULL PRIMARY KEY, x TEXT REFERENCES a(x));",
		"DROP TABLE b; CREATE TABLE b(k TEXT NOT NULL PRIMARY KEY, x TEXT);",
		"DROP TABLE b; CREATE TABLE b(k TEXT NOT NULL, x TEXT REFERENCES a(x) ON DELETE CASCADE);",
		"DROP TABLE b; CREATE TABLE b(k TEXT NOT NULL PRIMARY KEY, x TEXT NOT NULL "
		"REFERENCES a(x) ON DELETE CASCADE);",
		"DROP TABLE b; CREATE TABLE b(k TEXT NOT NULL PRIMARY KEY, x TEXT DEFAULT 'y' "
		"REFERENCES a(x) ON DELETE CASCADE);",
		"DROP TABLE b; CREATE TABLE b(k TEXT NOT NULL PRIMARY KEY, x BIGINT);",
	};
	struct db *db = fresh();
	autofree char *before = NULL;

	script(db,
	       "CREATE TABLE a(x TEXT NOT NULL PRIMARY KEY, y BIGINT, r DOUBLE PRECISION);"
	       "CREATE INDEX i1 ON a(y, x) WHERE y = 1;"
	       "CREATE TABLE b(k TEXT NOT NULL PRIMARY KEY, x TEXT REFERENCES a(x) ON DELETE CASCADE);");
	before = described(db);
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		autofree char *changed = NULL, *after = NULL;

		begin(db);
		script(db, changes[i]);
		changed = described(db);
		if (!strcmp(before, changed))
			fail_msg("not told: %s\n%s", changes[i], before);
		assert_int_equal(db_end(db, -1, NULL), -1);
		after = described(db);
		assert_string_equal(before, after);
	}
	done(db);
}

TEST(a_step_that_fails_leaves_nothing)
{
	static const struct db_step broken[] = {
		{ "0001_base", "CREATE TABLE a(i BIGINT);", "DROP TABLE a;" },
		{ "0002_broken", "CREATE TABLE b(i BIGINT); INSERT INTO nowhere VALUES(1);", "" },
	};
	struct garret_error err = { 0 };
	struct db *db = fresh();
	autofree char *before = NULL, *after = NULL;

	move(db, broken, 1, NULL);
	before = described(db);
	assert_int_equal(db_migrate(db, broken, 2, NULL, &err), -GARRET_INTERNAL);
	assert_non_null(strstr(err.msg, "step 0002_broken: "));
	assert_non_null(strstr(err.msg, "nowhere"));
	after = described(db);
	assert_string_equal(before, after);
	is_at(db, "0001_base");
	done(db);
}

TEST(a_database_of_another_program_is_left_alone)
{
	struct garret_error err = { 0 };
	struct db *db = fresh();

	assert_int_equal(db_migrate(db, steps, 3, "0009_none", &err), -GARRET_INVALID);
	assert_non_null(strstr(err.msg, "0003_last"));
	move(db, steps, 3, NULL);
	/* An older program. */
	assert_int_equal(db_migrate(db, steps, 2, NULL, &err), -GARRET_CONFLICT);
	assert_non_null(strstr(err.msg, "0003_last"));
	is_at(db, "0003_last");
	(void)change(db, "DELETE FROM garret_schema WHERE name = '0002_more'", DB_NO_ARGS);
	assert_int_equal(db_migrate(db, steps, 3, NULL, &err), -GARRET_CONFLICT);
	assert_non_null(strstr(err.msg, "not all before it"));
	done(db);
}

static void migrate_and_exit(int start, const char *to)
{
	struct garret_error err = { 0 };
	struct db *db = connect_again();
	char c;
	int rc;

	/* All of them at once: when the other end is closed. */
	if (read(start, &c, 1) != 0)
		_exit(2);
	rc = db_migrate(db, steps, 3, to, &err);
	if (rc < 0)
		print_error("%s\n", err.msg);
	db_close(db);
	_exit(rc < 0);
}

/*
 * Four processes to the same step; the database must be as if one had gone there.  No connection
 * may be open: SQLite's locks don't go through a fork.
 */
static void all_at_once(const char *to)
{
	pid_t child[4];
	int start[2];

	assert_int_equal(pipe2(start, O_CLOEXEC), 0);
	for (size_t i = 0; i < ARRAY_SIZE(child); i++) {
		child[i] = fork();
		if (child[i] == 0) {
			fd_close(start[1]);
			migrate_and_exit(start[0], to);
		}
	}
	fd_close(start[1]);
	fd_close(start[0]);
	for (size_t i = 0; i < ARRAY_SIZE(child); i++)
		join(child[i]);
}

TEST(processes_that_migrate_at_once_agree)
{
	struct db *db = fresh();
	autofree char *want = NULL;

	move(db, steps, 3, NULL);
	want = described(db);
	move(db, steps, 3, "base");
	script(db, "DROP TABLE garret_schema;"); /* nobody has made it yet */
	for (int round = 0; round < 5; round++) {
		autofree char *got = NULL;

		db_close(db);
		all_at_once(NULL);
		db = connect_again();
		got = described(db);
		assert_string_equal(got, want);
		assert_int_equal(number(db, "SELECT COUNT(*) FROM garret_schema", DB_NO_ARGS), 3);
		db_close(db);
		all_at_once("base");
		db = connect_again();
		is_at(db, "base");
		if (round % 2)
			script(db, "DROP TABLE garret_schema;");
	}
	done(db);
}

TEST_MAIN
