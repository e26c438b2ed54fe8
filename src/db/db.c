#include "db/db.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "db/db_impl.h"

/* ---- values and rows ---- */

struct db_value db_null(void)
{
	return (struct db_value){ .type = DB_NULL };
}

struct db_value db_int(int64_t i)
{
	return (struct db_value){ .type = DB_INT, .i = i };
}

struct db_value db_real(double r)
{
	return (struct db_value){ .type = DB_REAL, .r = r };
}

struct db_value db_text(const char *s)
{
	return (struct db_value){ .type = s ? DB_TEXT : DB_NULL, .p = s, .n = s ? strlen(s) : 0 };
}

struct db_value db_blob(const void *p, size_t n)
{
	return (struct db_value){ .type = DB_BLOB, .p = p, .n = n };
}

void db_rows_release(struct db_rows *r)
{
	free(r->cell);
	free(r->memory);
	*r = (struct db_rows)DB_ROWS_INIT;
}

const struct db_value *db_get(const struct db_rows *r, size_t row, size_t column)
{
	return &r->cell[row * r->columns + column];
}

const char *db_get_text(const struct db_rows *r, size_t row, size_t column)
{
	const struct db_value *v = db_get(r, row, column);

	return v->type == DB_TEXT ? v->p : NULL;
}

int64_t db_get_int(const struct db_rows *r, size_t row, size_t column)
{
	const struct db_value *v = db_get(r, row, column);

	return v->type == DB_REAL ? (int64_t)v->r : v->i;
}

double db_get_real(const struct db_rows *r, size_t row, size_t column)
{
	const struct db_value *v = db_get(r, row, column);

	return v->type == DB_INT ? (double)v->i : v->r;
}

void db_collect_begin(struct db_collector *c, struct db_rows *rows, size_t columns)
{
	*c = (struct db_collector){ .rows = rows, .memory = STRBUF_INIT };
	rows->columns = columns;
}

/* Until the end a text's place is its offset: the block may still move. */
void db_collect(struct db_collector *c, const struct db_value *v)
{
	struct db_rows *r = c->rows;
	struct db_value *at;
	const size_t n = r->rows;

	if (n == c->cap) {
		c->cap = n ? 2 * n : 16;
		r->cell = xrealloc(r->cell, c->cap * sizeof(*r->cell));
	}
	at = &r->cell[r->rows++];
	*at = *v;
	if (v->type != DB_TEXT && v->type != DB_BLOB)
		return;
	at->i = (int64_t)c->memory.len;
	strbuf_add(&c->memory, v->p, v->n);
	strbuf_addch(&c->memory, '\0');
}

void db_collect_end(struct db_collector *c)
{
	struct db_rows *r = c->rows;

	if (c->memory.len)
		r->memory = strbuf_detach(&c->memory, NULL);
	for (size_t i = 0; i < r->rows; i++)
		if (r->cell[i].type == DB_TEXT || r->cell[i].type == DB_BLOB)
			r->cell[i].p = r->memory + r->cell[i].i;
	if (r->columns)
		r->rows /= r->columns;
}

/* ---- connections ---- */

/* libpq brings a dozen libraries: only who uses PostgreSQL loads them, from beside this object. */
static int postgres_open(const char *url, struct db **ret, struct garret_error *err)
{
	autofree char *path = NULL;
	const struct db_module *m;
	Dl_info here;
	const char *slash;
	void *handle;

	if (!dladdr((void *)postgres_open, &here) || !here.dli_fname)
		return garret_fail(err, GARRET_INTERNAL, "PostgreSQL: where is this library?");
	slash = strrchr(here.dli_fname, '/');
	path = xasprintf("%.*s/libgarret-postgres.so", slash ? (int)(slash - here.dli_fname) : 1,
			 slash ? here.dli_fname : ".");
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!handle)
		return garret_fail(err, GARRET_MISUSE,
				   "PostgreSQL: %s (built with -Dpostgres=false?)", dlerror());
	m = dlsym(handle, DB_MODULE_SYMBOL);
	if (!m || m->version != DB_MODULE_VERSION || m->value_size != sizeof(struct db_value) ||
	    m->rows_size != sizeof(struct db_rows) || m->error_size != sizeof(struct garret_error))
		return garret_fail(err, GARRET_MISUSE, "PostgreSQL: %s is of another build", path);
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

int db_query(struct db *db, const char *sql, const struct db_value *args, size_t n_args,
	     struct db_rows *ret, struct garret_error *err)
{
	struct garret_error own = { 0 };

	if (ret)
		db_rows_release(ret);
	return db->ops->query(db, sql, args, n_args, ret, err ? err : &own);
}

static const char *const placeholders[] = { "{ID}", "{JSON}", "{BLOB}" };

int db_script(struct db *db, const char *sql, struct garret_error *err)
{
	struct strbuf autobuf text = STRBUF_INIT;
	struct garret_error own = { 0 };

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
	return db->ops->script(db, text.buf, err ? err : &own);
}

int db_describe(struct db *db, struct strbuf *out, struct garret_error *err)
{
	return db->ops->describe(db, out, err);
}

/* ---- transactions ---- */

int db_begin(struct db *db, struct garret_error *err)
{
	int rc = db_query(db, db->ops->begin, DB_NO_ARGS, NULL, err);

	db->in_transaction = rc == 0;
	return rc;
}

int db_end(struct db *db, int rc, struct garret_error *err)
{
	if (!db->in_transaction)
		return rc;
	if (rc >= 0)
		rc = db_query(db, "COMMIT", DB_NO_ARGS, NULL, err);
	/* A connection that broke rolled back by that. */
	if (rc < 0)
		(void)db_query(db, "ROLLBACK", DB_NO_ARGS, NULL, NULL);
	db->in_transaction = false;
	return rc;
}
