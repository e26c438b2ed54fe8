/* Connections that an organisation registered: where its environments are, with a sealed token. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/mem.h"
#include "base/sized.h"

#define TOKEN_MAX 4096
#define COLUMNS "id, kind, name, address, account, runtime, is_default, token, changes"

static const char *const kinds[GARRET_APP_CONNECTION_KINDS] = {
	[GARRET_APP_SANDBOXD] = "sandboxd",
	[GARRET_APP_NATIVE] = "native",
	[GARRET_APP_DOCKER] = "docker",
	[GARRET_APP_DAYTONA] = "daytona",
};

int garret_app_connection_kind_parse(const char *name, enum garret_app_connection_kind *ret,
				     struct garret_error *err)
{
	for (unsigned i = 0; name && i < GARRET_APP_CONNECTION_KINDS; i++)
		if (!strcmp(kinds[i], name)) {
			*ret = (enum garret_app_connection_kind)i;
			return 0;
		}
	return garret_fail(err, GARRET_INVALID, "kind: sandboxd, native, docker or daytona");
}

const char *garret_app_connection_kind_name(enum garret_app_connection_kind kind)
{
	return (unsigned)kind < GARRET_APP_CONNECTION_KINDS ? kinds[kind] : "unknown";
}

/* ---- checking ---- */

static bool begins(const char *s, const char *with)
{
	return !strncmp(s, with, strlen(with));
}

/* A host, and nothing that would send the token elsewhere or show a secret. */
static bool is_host_url(const char *s)
{
	const char *host = strstr(s, "://") + 3;

	return *host && strcspn(host, "/@?#") == strlen(host) && *host != ':';
}

static bool is_path_url(const char *s)
{
	return begins(s, "unix:///") && s[8];
}

static int check_address(const struct garret_app_connection *c, struct garret_error *err)
{
	const char *a = c->address, *wanted;
	bool fine;

	switch (c->kind) {
	case GARRET_APP_SANDBOXD:
		fine = is_path_url(a) ||
		       ((begins(a, "http://") || begins(a, "https://")) && is_host_url(a));
		wanted = "http(s)://HOST[:PORT] or unix:///PATH";
		break;
	case GARRET_APP_NATIVE:
		fine = *a == '/';
		wanted = "the absolute path of a state directory";
		break;
	case GARRET_APP_DOCKER:
		fine = is_path_url(a) || (begins(a, "tcp://") && is_host_url(a));
		wanted = "unix:///PATH or tcp://HOST:PORT";
		break;
	default:
		fine = !*a || (begins(a, "https://") && is_host_url(a));
		wanted = "https://HOST, or none";
	}
	return fine ? 0
		    : garret_fail(err, GARRET_INVALID, "address: of kind %s it is %s",
				  kinds[c->kind], wanted);
}

/* As it goes into a header. */
static int check_token_text(const char *token, struct garret_error *err)
{
	size_t n = 0;

	while (token[n] > ' ' && token[n] <= '~')
		n++;
	return !token[n] && n <= TOKEN_MAX
		       ? 0
		       : garret_fail(err, GARRET_INVALID,
				     "token: at most %d characters of ASCII without blanks",
				     TOKEN_MAX);
}

static int check(const struct garret_app_connection *c, const char *token, struct garret_error *err)
{
	const char *empty = strnlen(c->address, sizeof(c->address)) ? NULL : c->address;
	int rc;

	if ((unsigned)c->kind >= GARRET_APP_CONNECTION_KINDS)
		return garret_app_connection_kind_parse(NULL, NULL, err);
	rc = app_check_text("name", c->name, 1, sizeof(c->name) - 1, err);
	if (rc == 0 && empty && c->kind != GARRET_APP_DAYTONA)
		rc = garret_fail(err, GARRET_INVALID, "address: it is needed");
	if (rc == 0)
		rc = app_check_text("address", c->address, 0, sizeof(c->address) - 1, err);
	if (rc == 0)
		rc = check_address(c, err);
	if (rc == 0)
		rc = app_check_text("account", c->account, 0, sizeof(c->account) - 1, err);
	if (rc == 0 && *c->account && c->kind != GARRET_APP_DAYTONA)
		rc = garret_fail(err, GARRET_INVALID, "account: only daytona has one");
	if (rc == 0)
		rc = app_check_text("runtime", c->runtime, 0, sizeof(c->runtime) - 1, err);
	return rc == 0 && token ? check_token_text(token, err) : rc;
}

/* ---- reading ---- */

static void fill(struct garret_app_connection *c, const struct db_rows *r, size_t i)
{
	struct garret_error none;

	memset(c, 0, sizeof(*c));
	c->size = sizeof(*c);
	app_copy(c->id, sizeof(c->id), db_get_text(r, i, 0));
	(void)garret_app_connection_kind_parse(db_get_text(r, i, 1), &c->kind, &none);
	app_copy(c->name, sizeof(c->name), db_get_text(r, i, 2));
	app_copy(c->address, sizeof(c->address), db_get_text(r, i, 3));
	app_copy(c->account, sizeof(c->account), db_get_text(r, i, 4));
	app_copy(c->runtime, sizeof(c->runtime), db_get_text(r, i, 5));
	c->is_default = db_get_int(r, i, 6) != 0;
	c->has_token = db_get(r, i, 7)->type != DB_NULL;
	c->changes = (uint64_t)db_get_int(r, i, 8);
}

/* With app->lock held. */
static int find(struct garret_app *app, const char *organisation, const char *id,
		struct db_rows *ret, struct garret_error *err)
{
	int rc = id ? db_query(app->db,
			       "SELECT " COLUMNS " FROM sandbox_connections "
			       "WHERE organisation = ?1 AND id = ?2",
			       DB_ARGS(db_text(organisation), db_text(id)), ret, err)
		    : db_query(app->db,
			       "SELECT " COLUMNS " FROM sandbox_connections "
			       "WHERE organisation = ?1 AND is_default = 1",
			       DB_ARGS(db_text(organisation)), ret, err);

	if (rc == 0 && !ret->rows)
		rc = garret_fail(err, GARRET_NOT_FOUND,
				 id ? "connection_id: this organisation has no such connection"
				    : "this organisation has no connection");
	return rc;
}

static int find_alone(struct garret_app *app, const char *organisation, const char *id,
		      struct db_rows *ret, struct garret_error *err)
{
	int rc;

	app_lock(app);
	rc = find(app, organisation, id, ret, err);
	app_unlock(app);
	return rc;
}

/* Both ids of a call; id NULL stays NULL. */
static int ids(const char *organisation, const char *id, char ret_org[GARRET_APP_ID],
	       char ret_id[GARRET_APP_ID], struct garret_error *err)
{
	int rc = app_id("organisation", organisation, ret_org, err);

	return rc == 0 && id ? app_id("connection_id", id, ret_id, err) : rc;
}

int garret_app_connection_get(struct garret_app *app, const char *organisation, const char *id,
			      struct garret_app_connection *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct garret_app_connection c;
	char org[GARRET_APP_ID], own[GARRET_APP_ID];
	int rc = ids(organisation, id, org, own, err);

	if (rc == 0)
		rc = find_alone(app, org, id ? own : NULL, &rows, err);
	if (rc < 0)
		return rc;
	fill(&c, &rows, 0);
	sized_give(ret, &c, sizeof(c));
	return 0;
}

int garret_app_connection_list(struct garret_app *app, const char *organisation,
			       struct garret_app_connection **ret, size_t *ret_n,
			       struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	char org[GARRET_APP_ID];
	int rc = app_id("organisation", organisation, org, err);

	*ret = NULL;
	*ret_n = 0;
	if (rc == 0)
		rc = app_query(app,
			       "SELECT " COLUMNS " FROM sandbox_connections "
			       "WHERE organisation = ?1 ORDER BY name",
			       DB_ARGS(db_text(org)), &rows, err);
	if (rc < 0)
		return rc;
	*ret = xcalloc(rows.rows + 1, sizeof(**ret));
	*ret_n = rows.rows;
	for (size_t i = 0; i < rows.rows; i++)
		fill(&(*ret)[i], &rows, i);
	return 0;
}

static void purpose(char ret[128], const char *organisation, const char *id)
{
	(void)snprintf(ret, 128, "connection %s %s", organisation, id);
}

int app_connection_open(struct garret_app *app, const char *organisation, const char *id,
			struct garret_app_connection *ret, char **ret_token, uint64_t *ret_changes,
			struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct strbuf token = STRBUF_INIT;
	char what[128];
	int rc = find_alone(app, organisation, id, &rows, err);

	*ret_token = NULL;
	if (rc < 0)
		return rc;
	fill(ret, &rows, 0);
	*ret_changes = (uint64_t)db_get_int(&rows, 0, 8);
	if (!ret->has_token)
		return 0;
	purpose(what, organisation, ret->id);
	rc = app_unseal(app, what, db_get(&rows, 0, 7)->p, db_get(&rows, 0, 7)->n, &token, err);
	*ret_token = strbuf_detach(&token, NULL);
	return rc;
}

/* ---- changing ---- */

/* Why nothing was changed. */
static int not_as_read(struct garret_app *app, const char *organisation,
		       const struct garret_app_connection *c, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = find(app, organisation, c->id, &rows, err);

	return rc < 0 ? rc
		      : garret_fail(err, GARRET_CHANGED,
				    "connection_id: it was changed since it was read");
}

static int put(struct garret_app *app, const char *organisation, struct garret_app_connection *c,
	       const char *token, bool is_new, struct garret_error *err)
{
	autobuf struct strbuf sealed = STRBUF_INIT;
	autorows struct db_rows rows = DB_ROWS_INIT;
	char what[128];
	int rc;

	purpose(what, organisation, c->id);
	if (token && *token)
		app_seal(app, what, token, &sealed);
	rc = db_query(app->db, "SELECT 1 FROM sandbox_connections WHERE organisation = ?1",
		      DB_ARGS(db_text(organisation)), &rows, err);
	c->is_default = c->is_default || (rc == 0 && !rows.rows);
	if (rc == 0 && c->is_default)
		rc = db_query(app->db,
			      "UPDATE sandbox_connections SET is_default = 0 "
			      "WHERE organisation = ?1 AND is_default = 1 AND id <> ?2",
			      DB_ARGS(db_text(organisation), db_text(c->id)), NULL, err);
	if (rc == 0 && is_new)
		rc = db_query(
			app->db,
			"INSERT INTO sandbox_connections(id, organisation, kind, name, address, account, "
			"runtime, is_default, changes, created_at) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,1,?9)",
			DB_ARGS(db_text(c->id), db_text(organisation), db_text(kinds[c->kind]),
				db_text(c->name), db_text(c->address), db_text(c->account),
				db_text(c->runtime), db_int(c->is_default), db_real(app_now())),
			&rows, err);
	else if (rc == 0)
		rc = db_query(
			app->db,
			"UPDATE sandbox_connections SET kind = ?3, name = ?4, address = ?5, account = ?6, "
			"runtime = ?7, is_default = CASE WHEN ?8 = 1 THEN 1 ELSE is_default END, "
			"changes = changes + 1 WHERE id = ?1 AND organisation = ?2 "
			"AND (?9 = 0 OR changes = ?9)",
			DB_ARGS(db_text(c->id), db_text(organisation), db_text(kinds[c->kind]),
				db_text(c->name), db_text(c->address), db_text(c->account),
				db_text(c->runtime), db_int(c->is_default),
				db_int((int64_t)c->changes)),
			&rows, err);
	if (rc == 0 && !rows.changed)
		rc = not_as_read(app, organisation, c, err);
	if (rc == 0 && token)
		rc = db_query(app->db,
			      "UPDATE sandbox_connections SET token = ?3 WHERE id = ?1 AND "
			      "organisation = ?2",
			      DB_ARGS(db_text(c->id), db_text(organisation),
				      *token ? db_blob(sealed.buf, sealed.len) : db_null()),
			      NULL, err);
	return rc;
}

/* What asks for a token gets the organisation's own, never one of the environment. */
static int check_token(struct garret_app *app, const char *organisation,
		       const struct garret_app_connection *c, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc;

	if (c->kind != GARRET_APP_DAYTONA && c->kind != GARRET_APP_SANDBOXD)
		return 0;
	rc = db_query(app->db,
		      "SELECT token FROM sandbox_connections WHERE organisation = ?1 AND id = ?2",
		      DB_ARGS(db_text(organisation), db_text(c->id)), &rows, err);
	if (rc == 0 && db_get(&rows, 0, 0)->type == DB_NULL)
		rc = garret_fail(err, GARRET_INVALID,
				 "token: a connection of kind %s needs the organisation's own",
				 kinds[c->kind]);
	return rc;
}

/* All of it or nothing; *c is what it is then. */
static int put_whole(struct garret_app *app, const char *organisation,
		     struct garret_app_connection *c, const char *token, bool is_new,
		     struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc;

	app_lock(app);
	rc = db_begin(app->db, err);
	if (rc == 0)
		rc = put(app, organisation, c, token, is_new, err);
	if (rc == 0)
		rc = check_token(app, organisation, c, err);
	if (rc == 0)
		rc = find(app, organisation, c->id, &rows, err);
	if (rc == 0)
		fill(c, &rows, 0);
	rc = db_end(app->db, rc, err);
	app_unlock(app);
	return rc;
}

/* EXISTS when it is; else two were about to be the default at once, and it may be tried again. */
static int check_name(struct garret_app *app, const char *organisation,
		      const struct garret_app_connection *c, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(
		app,
		"SELECT 1 FROM sandbox_connections WHERE organisation = ?1 AND name = ?2 "
		"AND id <> ?3",
		DB_ARGS(db_text(organisation), db_text(c->name), db_text(c->id)), &rows, err);

	return rc == 0 && rows.rows
		       ? garret_fail(err, GARRET_EXISTS, "name: another connection has that name")
		       : rc;
}

int garret_app_connection_put(struct garret_app *app, const char *organisation,
			      struct garret_app_connection *given, const char *token,
			      struct garret_error *err)
{
	struct garret_app_connection c = { 0 }, done;
	char org[GARRET_APP_ID], id[GARRET_APP_ID];
	bool is_new;
	int rc = sized_copy(&c, sizeof(c), given, given->size, err);

	if (rc < 0)
		return rc;
	is_new = !*c.id;
	rc = ids(organisation, is_new ? NULL : c.id, org, id, err);
	if (rc == 0)
		rc = check(&c, token, err);
	if (rc < 0)
		return rc;
	if (is_new)
		app_new_id(id);
	app_copy(c.id, sizeof(c.id), id);
	do {
		done = c;
		rc = put_whole(app, org, &done, token, is_new, err);
		if (rc == 0)
			sized_give(given, &done, sizeof(done));
		if (rc != -GARRET_EXISTS)
			return rc;
		rc = check_name(app, org, &c, err);
	} while (rc == 0);
	return rc;
}

int garret_app_connection_remove(struct garret_app *app, const char *organisation, const char *id,
				 struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	char org[GARRET_APP_ID], own[GARRET_APP_ID];
	int rc = ids(organisation, id ? id : "", org, own, err);

	if (rc == 0)
		rc = app_query(
			app, "DELETE FROM sandbox_connections WHERE organisation = ?1 AND id = ?2",
			DB_ARGS(db_text(org), db_text(own)), &rows, err);
	if (rc == 0 && !rows.changed)
		rc = garret_fail(err, GARRET_NOT_FOUND,
				 "connection_id: this organisation has no such connection");
	return rc;
}
