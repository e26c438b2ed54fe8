/*
 * PostgreSQL through libpq: a module that db.c loads when a URL asks for it.
 *
 * A connection that was lost is made again at the next statement outside a transaction.  The
 * statement that was under way fails, UNAVAILABLE: it may have been carried out, so it is never
 * repeated here.
 */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "db/postgres.h"

/* ---- arguments: numbers and blobs as bytes, so that no format or locale touches them ---- */

struct arguments {
	const char **value;
	int *length, *binary;
	uint64_t *number; /* what values of numbers point to */
	struct strbuf texts;
};

static void arguments_release(struct arguments *a)
{
	free(a->value);
	free(a->length);
	free(a->binary);
	free(a->number);
	strbuf_release(&a->texts);
}

static void set_number(struct arguments *a, size_t i, const void *v)
{
	uint64_t bits;

	memcpy(&bits, v, sizeof(bits));
	a->number[i] = htobe64(bits);
	a->value[i] = (const char *)&a->number[i];
	a->length[i] = sizeof(bits);
	a->binary[i] = 1;
}

static void set_arguments(struct arguments *a, const struct db_value *args, size_t n)
{
	size_t room = 0;

	a->value = xcalloc(n + 1, sizeof(*a->value));
	a->length = xcalloc(n + 1, sizeof(*a->length));
	a->binary = xcalloc(n + 1, sizeof(*a->binary));
	a->number = xcalloc(n + 1, sizeof(*a->number));
	for (size_t i = 0; i < n; i++)
		room += args[i].type == DB_TEXT ? args[i].n + 1 : 0;
	strbuf_reserve(&a->texts, room); /* so that it never moves */
	for (size_t i = 0; i < n; i++) {
		const struct db_value *v = &args[i];

		if (v->type == DB_INT) {
			set_number(a, i, &v->i);
		} else if (v->type == DB_REAL) {
			set_number(a, i, &v->r);
		} else if (v->type == DB_TEXT) {
			/* Its type is the server's choice, so it goes as a C string. */
			a->value[i] = a->texts.buf + a->texts.len;
			strbuf_add(&a->texts, v->p, v->n);
			strbuf_addch(&a->texts, '\0');
		} else if (v->type == DB_BLOB) {
			a->value[i] = v->n ? v->p : "";
			a->length[i] = (int)v->n; /* db.c has a limit */
			a->binary[i] = 1;
		}
	}
}

/* ---- results ---- */

static int collect_blob(struct db_collector *c, const char *text, struct garret_error *err)
{
	size_t n;
	unsigned char *bytes = PQunescapeBytea((const unsigned char *)text, &n);
	const struct db_value v = db_blob(bytes, n);

	if (!bytes)
		return garret_fail(err, GARRET_EXHAUSTED, "database: no memory for a blob");
	db_collect(c, &v);
	PQfreemem(bytes);
	return 0;
}

/* What adds integers up gives a NUMERIC that is one; SQLite gives an integer. */
static struct db_value numeric(struct postgres *p, const char *text)
{
	char *end;
	long long i;

	errno = 0;
	i = strtoll(text, &end, 10);
	return *end || errno ? db_real(strtod_l(text, NULL, p->c)) : db_int(i);
}

static int collect(struct postgres *p, struct db_collector *c, const PGresult *result, int row,
		   int column, struct garret_error *err)
{
	const char *text = PQgetvalue(result, row, column);
	struct db_value v = db_null();

	if (!PQgetisnull(result, row, column))
		switch (PQftype(result, column)) {
		case OID_BOOL:
			v = db_int(text[0] == 't');
			break;
		case OID_INT2:
		case OID_INT4:
		case OID_INT8:
			v = db_int(strtoll(text, NULL, 10));
			break;
		case OID_FLOAT4:
		case OID_FLOAT8:
			v = db_real(strtod_l(text, NULL, p->c));
			break;
		case OID_NUMERIC:
			v = numeric(p, text);
			break;
		case OID_BYTEA:
			return collect_blob(c, text, err);
		default:
			v.type = DB_TEXT;
			v.p = text;
			v.n = (size_t)PQgetlength(result, row, column);
		}
	db_collect(c, &v);
	return 0;
}

/* The rows that a statement changed; of a SELECT the same word of libpq counts what it found. */
static int64_t changed(PGresult *result)
{
	static const char *const changing[] = { "INSERT", "UPDATE", "DELETE", "MERGE" };
	const char *status = PQcmdStatus(result);

	for (size_t i = 0; i < ARRAY_SIZE(changing); i++)
		if (!strncmp(status, changing[i], strlen(changing[i])))
			return strtoll(PQcmdTuples(result), NULL, 10);
	return 0;
}

static int take_rows(struct postgres *p, PGresult *result, struct db_rows *ret,
		     struct garret_error *err)
{
	struct db_collector c;
	int rc = 0;

	db_collect_begin(&c, ret, (size_t)PQnfields(result));
	for (int row = 0; rc == 0 && row < PQntuples(result); row++)
		for (int column = 0; rc == 0 && column < PQnfields(result); column++)
			rc = collect(p, &c, result, row, column, err);
	db_collect_end(&c);
	ret->changed = changed(result);
	return rc;
}

/* ---- statements ---- */

static bool done(const PGresult *result)
{
	const ExecStatusType status = PQresultStatus(result);

	return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* Fit for a statement: outside a transaction a connection that isn't any more is made again. */
static int ready(struct postgres *p, struct garret_error *err)
{
	const bool lost = postgres_lost(p->own);

	if (p->db.in_transaction)
		return lost ? garret_fail(err, GARRET_UNAVAILABLE,
					  "database: the connection was lost in a transaction")
			    : 0;
	/* Where a transaction is open that nobody knows of, its ROLLBACK didn't come through. */
	if (!lost && p->fit && PQtransactionStatus(p->own) == PQTRANS_IDLE)
		return 0;
	postgres_forget(p);
	return postgres_connect(p, err);
}

/*
 * Whether the server refused because what it had prepared before fits no more: another connection
 * changed a table (0A000), or something between us discarded it (26000).  Nothing was carried out.
 */
static bool stale(const PGresult *result)
{
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	return state && (!strcmp(state, "0A000") || !strcmp(state, "26000"));
}

static int run(struct postgres *p, const char *sql, const struct db_value *args, size_t n_args,
	       struct db_rows *ret, bool *ret_stale, struct garret_error *err)
{
	__attribute__((cleanup(arguments_release))) struct arguments a = { .texts = STRBUF_INIT };
	const unsigned long made = p->n_made;
	const struct prepared *k;
	PGresult *result;
	int rc = postgres_prepare(p, sql, args, n_args, &k, err);

	if (rc < 0)
		return rc;
	set_arguments(&a, args, n_args);
	result = PQexecPrepared(p->own, k->name, (int)n_args, a.value, a.length, a.binary, 0);
	if (!done(result)) {
		rc = postgres_fail(p->own, result, "statement", err);
		*ret_stale = p->n_made == made && stale(result);
	} else if (ret) {
		rc = take_rows(p, result, ret, err);
	}
	PQclear(result);
	return rc;
}

static int postgres_query(struct db *db, const char *sql, const struct db_value *args,
			  size_t n_args, struct db_rows *ret, struct garret_error *err)
{
	struct postgres *p = (struct postgres *)db;
	struct garret_error first = { 0 };
	bool is_stale = false;
	int rc = ready(p, err);

	if (rc < 0)
		return rc;
	rc = run(p, sql, args, n_args, ret, &is_stale, &first);
	if (is_stale && !db->in_transaction) {
		postgres_discard(p);
		return run(p, sql, args, n_args, ret, &is_stale, err);
	}
	if (is_stale) {
		postgres_forget(p); /* the server keeps its own: names aren't used twice */
		return garret_fail(err, GARRET_UNAVAILABLE,
				   "database: the schema changed within a transaction: %s",
				   first.msg);
	}
	if (rc < 0)
		*err = first;
	return rc;
}

static int postgres_script(struct db *db, const char *sql, struct garret_error *err)
{
	struct postgres *p = (struct postgres *)db;
	PGresult *result;
	int rc = ready(p, err);

	if (rc < 0)
		return rc;
	result = PQexec(p->own, sql);
	if (!done(result) && PQresultStatus(result) != PGRES_EMPTY_QUERY)
		rc = postgres_fail(p->own, result, "script", err);
	PQclear(result);
	/* It may have changed what the statements are about. */
	if (rc == 0)
		postgres_discard(p);
	return rc;
}

static int postgres_describe(struct db *db, struct strbuf *out, struct garret_error *err)
{
	static const char lines[] =
		"WITH t AS (SELECT c.oid, c.relname AS name FROM pg_class c JOIN pg_namespace s "
		"ON s.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND s.nspname = current_schema()) "
		"SELECT * FROM (SELECT 'column '||t.name||'.'||a.attname||' '||"
		"format_type(a.atttypid, a.atttypmod)||CASE WHEN a.attnotnull THEN ' not null' ELSE '' END||"
		"CASE WHEN a.attidentity <> '' THEN ' identity' ELSE '' END||"
		"coalesce(' default '||pg_get_expr(d.adbin, d.adrelid), '') AS line FROM t "
		"JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped "
		"LEFT JOIN pg_attrdef d ON d.adrelid = t.oid AND d.adnum = a.attnum "
		"UNION ALL SELECT 'index '||t.name||' ('||(SELECT string_agg("
		"pg_get_indexdef(i.indexrelid, k, false)||"
		"CASE WHEN i.indoption[k - 1] & 1 = 1 THEN ' desc' ELSE '' END, ',' ORDER BY k) "
		"FROM generate_series(1, i.indnkeyatts) k)||')'||"
		"CASE WHEN i.indisunique THEN ' unique' ELSE '' END||"
		"CASE WHEN i.indisprimary THEN ' key' ELSE '' END||"
		"coalesce(' where '||pg_get_expr(i.indpred, i.indrelid), '') "
		"FROM t JOIN pg_index i ON i.indrelid = t.oid "
		"UNION ALL SELECT CASE WHEN o.contype = 'f' THEN 'reference ' ELSE 'check ' END||t.name||' '||"
		"pg_get_constraintdef(o.oid) FROM t JOIN pg_constraint o ON o.conrelid = t.oid "
		"WHERE o.contype IN ('f', 'c')) x ORDER BY line COLLATE \"C\"";
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = postgres_query(db, lines, DB_NO_ARGS, &rows, err);

	for (size_t i = 0; rc == 0 && i < rows.rows; i++)
		strbuf_addf(out, "%s\n", db_get_text(&rows, i, 0));
	return rc;
}

static void postgres_close(struct db *db)
{
	struct postgres *p = (struct postgres *)db;

	postgres_forget(p);
	PQfinish(p->own);
	if (p->c)
		freelocale(p->c);
	free(p);
}

static const struct db_ops postgres_ops = {
	.kind = "postgresql",
	.query = postgres_query,
	.script = postgres_script,
	.describe = postgres_describe,
	.close = postgres_close,
	/* Whatever the role's default is: what a statement finds is what is there when it begins. */
	.begin = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
	.migration_lock = "SELECT pg_advisory_xact_lock(7449366112519938932)", /* any number */
	.has_schema = "SELECT 1 FROM pg_class WHERE oid = to_regclass('garret_schema')",
	.words = { "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "JSON", "BYTEA" },
};

static int postgres_open(const char *url, struct db **ret, struct garret_error *err)
{
	struct postgres *p = xnew(struct postgres);
	int rc = postgres_start(url, &p->own, err);

	p->db.ops = &postgres_ops;
	if (rc == 0)
		rc = postgres_connect(p, err);
	if (rc == 0) {
		p->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
		if (!p->c)
			rc = garret_fail_errno(err, "database: newlocale");
	}
	if (rc < 0)
		postgres_close(&p->db);
	else
		*ret = &p->db;
	return rc;
}

GARRET_PUBLIC extern const struct db_module garret_db_module;
const struct db_module garret_db_module = {
	.version = DB_MODULE_VERSION,
	.db_size = sizeof(struct db),
	.value_size = sizeof(struct db_value),
	.rows_size = sizeof(struct db_rows),
	.error_size = sizeof(struct garret_error),
	.open = postgres_open,
};
