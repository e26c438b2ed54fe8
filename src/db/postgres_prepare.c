/*
 * Prepared statements.  One is found by its literal's address and the types of its arguments: a
 * number that was an integer once may be a fraction next time, and the server is told the types when
 * it prepares.  A text has no type, the server infers one, so that it can be a document.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "db/postgres.h"

/* Behind the comment, text in quotes, or single byte at s. */
static const char *skip(const char *s)
{
	const char *end = s + 1;

	/* A quote in quotes is doubled: that is one end and one beginning. */
	if (*s == '\'' || *s == '"')
		end = strchr(s + 1, *s);
	else if (!strncmp(s, "--", 2))
		end = strchr(s, '\n');
	else if (!strncmp(s, "/*", 2))
		end = strstr(s + 2, "*/");
	else
		return end;
	return end ? end + 1 : s + strlen(s);
}

size_t postgres_parameters(struct strbuf *out, const char *sql)
{
	size_t highest = 0;

	while (*sql) {
		const char *behind = skip(sql);

		if (sql[0] == '?' && isdigit((unsigned char)sql[1])) {
			highest = MAX(highest, strtoul(sql + 1, NULL, 10));
			strbuf_addch(out, '$');
		} else {
			strbuf_add(out, sql, (size_t)(behind - sql));
		}
		sql = behind;
	}
	return highest;
}

static const struct {
	char letter;
	Oid oid;
} types[] = {
	[DB_NULL] = { 't', 0 },         [DB_TEXT] = { 't', 0 },
	[DB_INT] = { 'i', OID_INT8 },   [DB_REAL] = { 'r', OID_FLOAT8 },
	[DB_BLOB] = { 'b', OID_BYTEA },
};

static bool same_types(const struct prepared *k, const struct db_value *args, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (k->types[i] != types[args[i].type].letter)
			return false;
	return true;
}

static struct prepared *find(struct postgres *p, const char *sql, const struct db_value *args,
			     size_t n)
{
	/* The text as well: somebody's buffer may hold another by now. */
	for (size_t i = 0; i < p->n_kept; i++) {
		struct prepared *k = &p->kept[i];

		if (k->sql == sql && strlen(k->types) == n && same_types(k, args, n) &&
		    !strcmp(k->text, sql))
			return k;
	}
	return NULL;
}

static const struct prepared *keep(struct postgres *p, const char *sql, const char *name,
				   const struct db_value *args, size_t n)
{
	struct prepared *k = &p->kept[p->n_kept++];

	*k = (struct prepared){ .sql = sql, .text = xstrdup(sql), .types = xcalloc(n + 1, 1) };
	for (size_t i = 0; i < n; i++)
		k->types[i] = types[args[i].type].letter;
	(void)snprintf(k->name, sizeof(k->name), "%s", name);
	return k;
}

int postgres_prepare(struct postgres *p, const char *sql, const struct db_value *args,
		     size_t n_args, const struct prepared **ret, struct garret_error *err)
{
	autobuf struct strbuf text = STRBUF_INIT;
	autofree Oid *oids = xcalloc(n_args + 1, sizeof(*oids));
	char name[24];
	PGresult *result;
	size_t want;
	int rc = 0;

	*ret = find(p, sql, args, n_args);
	if (*ret)
		return 0;
	if (p->n_kept == KEPT)
		postgres_discard(p);
	for (size_t i = 0; i < n_args; i++)
		oids[i] = types[args[i].type].oid;
	want = postgres_parameters(&text, sql);
	if (want != n_args)
		return garret_fail(err, GARRET_MISUSE, "database: %zu values for %zu parameters",
				   n_args, want);
	(void)snprintf(name, sizeof(name), "g%lu", p->n_made++);
	result = PQprepare(p->own, name, text.buf, (int)n_args, oids);
	if (PQresultStatus(result) == PGRES_COMMAND_OK)
		*ret = keep(p, sql, name, args, n_args);
	else
		rc = postgres_fail(p->own, result, "prepare", err);
	PQclear(result);
	return rc;
}

void postgres_forget(struct postgres *p)
{
	for (size_t i = 0; i < p->n_kept; i++) {
		free(p->kept[i].text);
		free(p->kept[i].types);
	}
	p->n_kept = 0;
}

void postgres_discard(struct postgres *p)
{
	postgres_forget(p);
	PQclear(PQexec(p->own, "DEALLOCATE ALL"));
}
