#include "db/db.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "db/db_impl.h"

/* ---- connections ---- */

/* libpq brings a dozen libraries: only who uses PostgreSQL loads them. */
#define OBJECT "libgarret-postgres.so"

/* Beside the program or library that holds this code; never from the working directory by a bare name. */
static void *open_object(void)
{
	autofree char *near = NULL;
	const char *slash = NULL;
	void *object = NULL;
	Dl_info here;

	if (dladdr((void *)(uintptr_t)db_open, &here) && here.dli_fname)
		slash = strrchr(here.dli_fname, '/');
	if (slash) {
		near = xasprintf("%.*s/" OBJECT, (int)(slash - here.dli_fname), here.dli_fname);
		/* libpq's threads and locks aren't made to be unloaded. */
		object = dlopen(near, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	}
	return object ? object
		      : dlopen(GARRET_LIB_DIR "/" OBJECT, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static int postgres_open(const char *url, struct db **ret, struct garret_error *err)
{
	static const struct db_module *m;
	void *object;

	if (!m) {
		object = open_object();
		if (!object)
			return garret_fail(err, GARRET_UNSUPPORTED,
					   "PostgreSQL needs " OBJECT
					   " (built with -Dpostgres=false?): %s",
					   dlerror());
		m = dlsym(object, DB_MODULE_SYMBOL);
	}
	if (!m || m->version != DB_MODULE_VERSION || m->db_size != sizeof(struct db) ||
	    m->value_size != sizeof(struct db_value) || m->rows_size != sizeof(struct db_rows) ||
	    m->error_size != sizeof(struct garret_error))
		return garret_fail(err, GARRET_UNSUPPORTED, OBJECT " is of another build");
	return m->open(url, ret, err);
}

int db_open(const char *url, struct db **ret, struct garret_error *err)
{
	*ret = NULL;
	if (!strncmp(url, "sqlite:", 7) && url[7])
		return db_sqlite_open(url + 7, ret, err);
	if (!strncmp(url, "postgresql://", 13) || !strncmp(url, "postgres://", 11))
		return postgres_open(url, ret, err);
	return garret_fail(err, GARRET_INVALID,
			   "database: \"sqlite:PATH\" or \"postgresql://...\"");
}

struct db *db_close(struct db *db)
{
	if (db)
		db->ops->close(db);
	return NULL;
}

const char *db_kind(const struct db *db)
{
	return db->ops->kind;
}

/*
 * What one kind would refuse or change, none takes.  PostgreSQL has no NUL in a text and checks
 * its UTF-8; SQLite makes null of what is not a number.
 */
static int check_value(const struct db_value *v, size_t number, struct garret_error *err)
{
	if ((v->type == DB_TEXT || v->type == DB_BLOB) && v->n > DB_VALUE_MAX)
		return garret_fail(
			err, GARRET_TOO_LARGE,
			"database: parameter %zu has %zu bytes, at most %d can be stored", number,
			v->n, DB_VALUE_MAX);
	if (v->type == DB_TEXT && v->n && memchr(v->p, '\0', v->n))
		return garret_fail(err, GARRET_INVALID,
				   "database: parameter %zu: a text can't hold a NUL", number);
	if (v->type == DB_TEXT && !utf8_valid(v->p, v->n))
		return garret_fail(err, GARRET_INVALID,
				   "database: parameter %zu: a text must be UTF-8", number);
	if (v->type == DB_REAL && isnan(v->r))
		return garret_fail(err, GARRET_INVALID, "database: parameter %zu: not a number",
				   number);
	return 0;
}

/*
 * After a failure PostgreSQL takes nothing more in a transaction, and SQLite may have ended it, so
 * that a statement would be one of its own: both refuse here.
 */
static int usable(const struct db *db, struct garret_error *err)
{
	return db->failed ? garret_fail(err, GARRET_MISUSE,
					"database: a statement of this transaction failed before")
			  : 0;
}

static int note_failure(struct db *db, int rc)
{
	db->failed |= rc < 0 && db->in_transaction;
	return rc;
}

int db_query(struct db *db, const char *sql, const struct db_value *args, size_t n_args,
	     struct db_rows *ret, struct garret_error *err)
{
	struct garret_error own = { 0 };
	int rc;

	err = err ? err : &own;
	if (ret)
		db_rows_release(ret);
	rc = usable(db, err);
	for (size_t i = 0; rc == 0 && i < n_args; i++)
		rc = check_value(&args[i], i + 1, err);
	if (rc == 0)
		rc = db->ops->query(db, sql, args, n_args, ret, err);
	if (rc < 0 && ret)
		db_rows_release(ret);
	return note_failure(db, rc);
}

static const char *const placeholders[] = { "{ID}", "{JSON}", "{BLOB}" };

int db_script(struct db *db, const char *sql, struct garret_error *err)
{
	autobuf struct strbuf text = STRBUF_INIT;
	struct garret_error own = { 0 };
	int rc;

	while (*sql) {
		size_t i;

		for (i = 0; i < ARRAY_SIZE(placeholders); i++)
			if (!strncmp(sql, placeholders[i], strlen(placeholders[i])))
				break;
		if (i == ARRAY_SIZE(placeholders)) {
			strbuf_addch(&text, *sql++);
			continue;
		}
		strbuf_addstr(&text, db->ops->words[i]);
		sql += strlen(placeholders[i]);
	}
	err = err ? err : &own;
	rc = usable(db, err);
	if (rc == 0)
		rc = db->ops->script(db, text.buf, err);
	return note_failure(db, rc);
}

int db_describe(struct db *db, struct strbuf *out, struct garret_error *err)
{
	struct garret_error own = { 0 };
	int rc;

	err = err ? err : &own;
	rc = usable(db, err);
	if (rc == 0)
		rc = db->ops->describe(db, out, err);
	return note_failure(db, rc);
}

/* ---- transactions ---- */

int db_begin(struct db *db, struct garret_error *err)
{
	int rc;

	if (db->in_transaction)
		return garret_fail(err, GARRET_MISUSE, "database: a transaction in a transaction");
	rc = db_query(db, db->ops->begin, DB_NO_ARGS, NULL, err);
	db->in_transaction = rc == 0;
	return rc;
}

int db_end(struct db *db, int rc, struct garret_error *err)
{
	struct garret_error unread = { 0 };

	if (!db->in_transaction)
		return rc;
	if (rc >= 0) {
		int done = usable(db, err);

		if (done == 0)
			done = db_query(db, "COMMIT", DB_NO_ARGS, NULL, err);
		rc = done < 0 ? done : rc;
	}
	/* A connection that broke rolled back by that. */
	if (rc < 0)
		(void)db->ops->query(db, "ROLLBACK", DB_NO_ARGS, NULL, &unread);
	db->in_transaction = db->failed = false;
	return rc;
}
