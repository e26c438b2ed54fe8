/* Opening a database: what a URL may be, and that none is in an error.  None of these needs a server. */
#include "database.h"

#include <stdbool.h>
#include <sys/stat.h>

static char dir[32], path[64], url[80];

/* A directory for a file of SQLite's, and the URL of one in it. */
static void make_dir(void)
{
	(void)snprintf(dir, sizeof(dir), "/tmp/garret-db-XXXXXX");
	assert_non_null(mkdtemp(dir));
	(void)snprintf(path, sizeof(path), "%s/db", dir);
	(void)snprintf(url, sizeof(url), "sqlite:%s", path);
}

/* Every password in this file is "hidden". */
static const char *cannot_open(const char *from, enum garret_code code)
{
	static struct garret_error err;
	struct db *db = (struct db *)(uintptr_t)1;
	int rc;

	memset(&err, 0, sizeof(err));
	rc = db_open(from, &db, &err);
	if (rc != -(int)code)
		fail_msg("%s: %s: %s", from, rc < 0 ? garret_code_name(-rc) : "opened", err.msg);
	assert_null(db);
	assert_null(strstr(err.msg, "hidden"));
	assert_null(strstr(err.msg, "\n"));
	return err.msg;
}

TEST(a_url_is_of_a_kind_that_is_known)
{
	static const char *const urls[] = { "",
					    "sqlite:",
					    "sqlite",
					    "/a/path",
					    "mysql://me:hidden@h",
					    "postgresql:me:hidden",
					    "SQLITE:x" };

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++)
		assert_non_null(strstr(cannot_open(urls[i], GARRET_INVALID), "\"sqlite:PATH\""));
	assert_null(db_close(NULL));
}

TEST(a_file_is_made_for_its_owner_alone)
{
	static const char *const files[] = { "db", "db-wal", "db-shm" };
	struct garret_error err;
	struct db *db;
	struct stat st;

	make_dir();
	assert_int_equal(db_open(url, &db, &err), 0);
	assert_string_equal(db_kind(db), "sqlite");
	script(db, "CREATE TABLE t(i BIGINT);");
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", dir, files[i]);
		assert_int_equal(stat(path, &st), 0);
		assert_int_equal(st.st_mode & 0777, 0600);
	}
	db_close(db);
	assert_int_equal(remove_tree_at(AT_FDCWD, dir), 0);
}

TEST(a_path_is_a_file_in_a_directory)
{
	int fd;

	(void)cannot_open("sqlite:/tmp/garret-nowhere/db", GARRET_NOT_FOUND);
	make_dir();
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "this is no database, it is a text", 33), 33);
	(void)cannot_open(url, GARRET_INTERNAL);
	fd_close(fd);
	assert_int_equal(remove_tree_at(AT_FDCWD, dir), 0);
}

/* SQLite has names that are no files. */
TEST(a_relative_path_is_one)
{
	autofree char *before = getcwd(NULL, 0);
	struct db *db;

	make_dir();
	assert_int_equal(chdir(dir), 0);
	assert_int_equal(db_open("sqlite::memory:", &db, NULL), 0);
	script(db, "CREATE TABLE t(i BIGINT); INSERT INTO t VALUES(7);");
	db_close(db);
	assert_int_equal(db_open("sqlite::memory:", &db, NULL), 0);
	assert_int_equal(number(db, "SELECT i FROM t", DB_NO_ARGS), 7);
	db_close(db);
	assert_int_equal(chdir(before), 0);
	assert_int_equal(remove_tree_at(AT_FDCWD, dir), 0);
}

#if WITH_POSTGRES

/* libpq would quote what it can't understand, and that may be a part of a password. */
TEST(a_url_that_is_not_clear_is_refused_without_its_words)
{
	static const char *const urls[] = {
		"postgresql://me:hidden/x@host/db",       "postgresql://me:1/hidden@host/db",
		"postgresql://me:pass@hidden@host/db",    "postgresql://me:hidden@host:hidden/db",
		"postgresql://me:%zzhidden@host/db",      "postgresql://me:hidden@host/db?hidden=1",
		"postgresql://me:1?hidden/@host",         "postgresql://[hidden",
		"postgresql://me:hidden@host/db?sslmode", "postgres://me:12/hidden?@host/db",
	};

	for (size_t i = 0; i < ARRAY_SIZE(urls); i++)
		assert_non_null(strstr(cannot_open(urls[i], GARRET_INVALID), "%40"));
}

TEST(a_server_that_is_not_there_is_unavailable)
{
	const char *said = cannot_open("postgresql://me:hidden@127.0.0.1:1/db", GARRET_UNAVAILABLE);

	assert_non_null(strstr(said, "127.0.0.1"));
	(void)cannot_open("postgres://me%40org:hidden@/db?host=%2Ftmp%2Fgarret-nowhere",
			  GARRET_UNAVAILABLE);
	said = cannot_open("postgresql://me:hidden@127.0.0.1:1/db?sslmode=bogus", GARRET_INVALID);
	assert_non_null(strstr(said, "sslmode"));
}

#else

TEST(what_was_not_built_is_unsupported)
{
	const char *said = cannot_open("postgresql://me:hidden@host/db", GARRET_UNSUPPORTED);

	assert_non_null(strstr(said, "-Dpostgres=false"));
}

#endif

TEST_MAIN
