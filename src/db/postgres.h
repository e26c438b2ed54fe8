/* What the files of the module for PostgreSQL share. */
#ifndef DB_POSTGRES_H
#define DB_POSTGRES_H

#include <libpq-fe.h>
#include <locale.h>

#include "db/db_impl.h"

/* A statement that the server has prepared, for arguments of certain types. */
struct prepared {
	const char *sql; /* borrowed: the literal it is found by */
	char *text;      /* what was there then */
	char *types;     /* a letter for each argument */
	char name[24];
};

#define KEPT 192 /* then all are forgotten, and made again as they are needed */

struct postgres {
	struct db db;
	PGconn *own;
	bool fit;   /* connected, and its settings made */
	locale_t c; /* numbers have a point, whatever the process's locale says */
	struct prepared kept[KEPT];
	size_t n_kept;
	unsigned long n_made; /* names are never used twice on a connection */
};

/* ---- postgres_connect.c ---- */

/* A connection that isn't made yet; INVALID, without the URL in the text. */
int postgres_start(const char *url, PGconn **ret, struct garret_error *err);
/* (Re)make it: blocks, with libpq's connect_timeout for each address.  UNAVAILABLE when it can't be. */
int postgres_connect(struct postgres *p, struct garret_error *err);
/* Whether the server has gone, as far as that can be seen without asking it. */
bool postgres_lost(PGconn *conn);
/* Fail with what the server or libpq said.  result may be NULL; `doing` names what was tried. */
int postgres_fail(PGconn *conn, const PGresult *result, const char *doing,
		  struct garret_error *err);

/* ---- postgres_prepare.c ---- */

/* The prepared statement for these arguments: found, or made. */
int postgres_prepare(struct postgres *p, const char *sql, const struct db_value *args,
		     size_t n_args, const struct prepared **ret, struct garret_error *err);
/* The server has them no more. */
void postgres_forget(struct postgres *p);
/* Both forget.  Should the server fail to, its names are still never used again. */
void postgres_discard(struct postgres *p);
/* ?1 outside of quotes and comments becomes $1; returns the highest number. */
size_t postgres_parameters(struct strbuf *out, const char *sql);

/* OIDs from PostgreSQL's pg_type.dat: fixed for ever, but in no header that libpq installs. */
enum {
	OID_BOOL = 16,
	OID_BYTEA = 17,
	OID_INT8 = 20,
	OID_INT2 = 21,
	OID_INT4 = 23,
	OID_FLOAT4 = 700,
	OID_FLOAT8 = 701,
	OID_NUMERIC = 1700,
};

#endif
