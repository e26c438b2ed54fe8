/*
 * The connection: made, made again when it was lost, and what its failures are called.
 *
 * A URL may hold a password and libpq quotes what it can't understand, so that a URL that isn't
 * clear is refused here, in our words: of "postgresql://user:a/b@host" libpq would say that "a" is
 * no port.
 */
#include <poll.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "db/postgres.h"

static const char bad_url[] =
	"not a URL for PostgreSQL: postgresql://USER:PASSWORD@HOST:PORT/NAME, in each of these "
	"'@', '/', ':', '?' and '%' are written %40, %2F, %3A, %3F and %25";

static bool clear_option(const PQconninfoOption *o)
{
	if (!o->val)
		return true;
	if (!strcmp(o->keyword, "port"))
		return strspn(o->val, "0123456789,") == strlen(o->val);
	if (!strcmp(o->keyword, "host") || !strcmp(o->keyword, "hostaddr") ||
	    !strcmp(o->keyword, "dbname"))
		return !strchr(o->val, '@');
	return true;
}

static bool clear_url(const char *url)
{
	char *said = NULL;
	PQconninfoOption *options = PQconninfoParse(url, &said);
	bool ok = options != NULL;

	for (const PQconninfoOption *o = options; ok && o->keyword; o++)
		ok = clear_option(o);
	PQconninfoFree(options);
	PQfreemem(said);
	return ok;
}

static void ignore_notice(void *ctx, const char *text)
{
}

int postgres_start(const char *url, PGconn **ret, struct garret_error *err)
{
	/* Behind "dbname" stands what a URL can't change; before it what it can. */
	static const char *const keys[] = {
		"connect_timeout",  "keepalives_idle",  "keepalives_interval",
		"keepalives_count", "tcp_user_timeout", "fallback_application_name",
		"dbname",           "client_encoding",  NULL
	};
	/* A host that fell silent is given up after a minute, not after the kernel's two hours. */
	const char *const values[] = {
		"10", "30", "10", "3", "60000", "garret", url, "UTF8", NULL
	};
	PGconn *conn;

	_Static_assert(ARRAY_SIZE(keys) == ARRAY_SIZE(values), "a value for each");
	if (!clear_url(url))
		return garret_fail(err, GARRET_INVALID, "database: %s", bad_url);
	/*
	 * A server warns while one connects (of its collations, say), and what receives that can only
	 * be set on a connection that exists: it is begun here, and from the start in postgres_connect().
	 */
	conn = PQconnectStartParams(keys, values, 1);
	if (!conn)
		return garret_fail(err, GARRET_EXHAUSTED, "database: no memory for a connection");
	(void)PQsetNoticeProcessor(conn, ignore_notice, NULL);
	*ret = conn;
	return 0;
}

static bool begins(const char *state, const char *with)
{
	return !strncmp(state, with, strlen(with));
}

static enum garret_code code_of(const char *state)
{
	/* A connection, a server that ends, is full or not ready yet, a cancelled statement; locks. */
	static const char *const later[] = { "08",    "57P0",  "57014", "40001",
					     "40P01", "55P03", "25P03", "53300" };

	if (!strcmp(state, "23505"))
		return GARRET_EXISTS;
	if (!strcmp(state, "53100"))
		return GARRET_NO_SPACE;
	if (!strcmp(state, "08P01"))
		return GARRET_INTERNAL; /* what we said was wrong, and will be */
	for (size_t i = 0; i < ARRAY_SIZE(later); i++)
		if (begins(state, later[i]))
			return GARRET_UNAVAILABLE;
	return GARRET_INTERNAL;
}

/* One line of what libpq says in several. */
static char *one_line(const char *text)
{
	char *out = xstrdup(text);
	size_t n = strlen(out);

	while (n && (unsigned char)out[n - 1] <= ' ')
		out[--n] = '\0';
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)out[i] < ' ')
			out[i] = ' ';
	return out;
}

int postgres_fail(PGconn *conn, const PGresult *result, const char *doing, struct garret_error *err)
{
	const char *state = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
	const char *primary = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	autofree char *text = one_line(primary ? primary : PQerrorMessage(conn));

	if (PQstatus(conn) != CONNECTION_OK)
		return garret_fail(err, GARRET_UNAVAILABLE,
				   "database: %s: the connection is lost: %s", doing, text);
	if (!state)
		return garret_fail(err, GARRET_INTERNAL, "database: %s: %s", doing, text);
	/* These quote the value, which may be anybody's secret. */
	if (begins(state, "22"))
		return garret_fail(err, GARRET_INTERNAL,
				   "database: %s: a value that can't be there (SQLSTATE %s)", doing,
				   state);
	return garret_fail(err, code_of(state), "database: %s: %s (SQLSTATE %s)", doing, text,
			   state);
}

/* What the URL or the role sets for locks stays. */
static const char settings[] =
	"SELECT set_config('extra_float_digits', '3', false), set_config('bytea_output', 'hex', false), "
	"set_config('standard_conforming_strings', 'on', false), "
	"CASE WHEN current_setting('lock_timeout') = '0' THEN set_config('lock_timeout', '%d', false) END";

static int set_up(PGconn *conn, struct garret_error *err)
{
	const char *encoding = PQparameterStatus(conn, "server_encoding");
	autofree char *sql = xasprintf(settings, DB_BUSY_MS);
	PGresult *result;
	int rc = 0;

	if (!encoding || strcmp(encoding, "UTF8") != 0)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "database: its encoding is %s, it must be UTF8 "
				   "(createdb --encoding=UTF8 --template=template0)",
				   encoding ? encoding : "not known");
	result = PQexec(conn, sql);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		rc = postgres_fail(conn, result, "settings", err);
	PQclear(result);
	return rc;
}

int postgres_connect(struct postgres *p, struct garret_error *err)
{
	autofree char *before = one_line(PQerrorMessage(p->own));
	int rc;

	p->fit = false;
	PQreset(p->own);
	if (PQstatus(p->own) != CONNECTION_OK) {
		autofree char *text = one_line(PQerrorMessage(p->own));

		/* What it found wrong with the URL's options it says at the start alone. */
		if (!*text)
			return garret_fail(err, GARRET_INVALID, "database: its URL: %s", before);
		return garret_fail(err, GARRET_UNAVAILABLE, "database: %s", text);
	}
	rc = set_up(p->own, err);
	p->fit = rc == 0;
	return rc;
}

bool postgres_lost(PGconn *conn)
{
	struct pollfd p = { .fd = PQsocket(conn), .events = POLLRDHUP };

	return PQstatus(conn) != CONNECTION_OK || p.fd < 0 || poll(&p, 1, 0) > 0;
}
