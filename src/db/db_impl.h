/* What the kinds of connections are to db.c; only they, and tests that make statements fail, include this. */
#ifndef DB_DB_IMPL_H
#define DB_DB_IMPL_H

#include "db/db.h"

struct db_ops {
	const char *kind;
	int (*query)(struct db *db, const char *sql, const struct db_value *args, size_t n_args,
		     struct db_rows *ret, struct garret_error *err);
	int (*script)(struct db *db, const char *sql, struct garret_error *err);
	int (*describe)(struct db *db, struct strbuf *out, struct garret_error *err);
	void (*close)(struct db *db); /* frees it */
	const char *begin;            /* what begins a transaction that writes */
	/* A statement that keeps other migrations out until the transaction ends; NULL: begin does. */
	const char *migration_lock;
	const char *has_schema; /* gives a row when the table garret_schema is there */
	/* {ID}, {JSON}, {BLOB} */
	const char *words[3];
};

/* Each kind's own struct begins with it. */
struct db {
	const struct db_ops *ops;
	bool in_transaction, failed; /* failed: a statement of this transaction */
};

int db_sqlite_open(const char *path, struct db **ret, struct garret_error *err);

/* The module for PostgreSQL has one symbol, this table; another build's is refused by its sizes. */
#define DB_MODULE_VERSION 1
struct db_module {
	unsigned version;
	size_t db_size, value_size, rows_size, error_size;
	int (*open)(const char *url, struct db **ret, struct garret_error *err);
};
#define DB_MODULE_SYMBOL "garret_db_module"

/*
 * Rows as they come: begin with how many columns, then cells one by one; texts are copied into one
 * block, whose address may change until the end.
 */
struct db_collector {
	struct db_rows *rows;
	struct strbuf memory;
	size_t cap;
};
void db_collect_begin(struct db_collector *c, struct db_rows *rows, size_t columns);
void db_collect(struct db_collector *c, const struct db_value *v);
void db_collect_end(struct db_collector *c); /* rows is complete; also after a failure */

#endif
