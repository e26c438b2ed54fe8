/* Rows as people see them: listed, looked at, deleted with what they mean on a host. */
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/mem.h"

#define ROWS_MAX 1000
#define COLUMNS                                                                               \
	"scope_key, scope, backend, agent, conversation, owner_ref, connection, session_id, " \
	"bytes_total, version, created_at, last_used_at"

static void fill(struct garret_app_row *row, const struct db_rows *r, size_t i)
{
	app_copy(row->key, sizeof(row->key), db_get_text(r, i, 0));
	(void)garret_app_scope_parse(db_get_text(r, i, 1), &row->scope, NULL);
	(void)app_backend_parse(db_get_text(r, i, 2), &row->backend, NULL);
	app_copy(row->agent, sizeof(row->agent), db_get_text(r, i, 3));
	app_copy(row->conversation, sizeof(row->conversation), db_get_text(r, i, 4));
	app_copy(row->owner, sizeof(row->owner), db_get_text(r, i, 5));
	app_copy(row->connection_id, sizeof(row->connection_id), db_get_text(r, i, 6));
	app_copy(row->session_id, sizeof(row->session_id), db_get_text(r, i, 7));
	row->bytes = (uint64_t)db_get_int(r, i, 8);
	row->version = (uint64_t)db_get_int(r, i, 9);
	row->created_at = db_get_real(r, i, 10);
	row->last_used_at = db_get_real(r, i, 11);
}

int garret_app_row_list(struct garret_app *app, const char *organisation, uint64_t offset,
			size_t max, struct garret_app_row **ret, size_t *ret_n, uint64_t *ret_total,
			struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	char org[GARRET_APP_ID];
	int rc = app_id("organisation", organisation, org, err);

	*ret = NULL;
	*ret_n = 0;
	if (rc == 0 && (max < 1 || max > ROWS_MAX || offset > INT64_MAX))
		rc = garret_fail(err, GARRET_INVALID, "max: 1 to %d rows, from an offset",
				 ROWS_MAX);
	if (rc == 0)
		rc = app_query(app, "SELECT COUNT(*) FROM agent_workspaces WHERE organisation = ?1",
			       DB_ARGS(db_text(org)), &rows, err);
	if (rc < 0)
		return rc;
	if (ret_total)
		*ret_total = (uint64_t)db_get_int(&rows, 0, 0);
	rc = app_query(app,
		       "SELECT " COLUMNS " FROM agent_workspaces WHERE organisation = ?1 "
		       "ORDER BY last_used_at DESC, scope_key LIMIT ?2 OFFSET ?3",
		       DB_ARGS(db_text(org), db_int((int64_t)max), db_int((int64_t)offset)), &rows,
		       err);
	if (rc < 0)
		return rc;
	*ret = xcalloc(rows.rows + 1, sizeof(**ret));
	*ret_n = rows.rows;
	for (size_t i = 0; i < rows.rows; i++)
		fill(&(*ret)[i], &rows, i);
	return 0;
}

static int check(const char *organisation, const char *key, char ret_org[GARRET_APP_ID],
		 struct garret_error *err)
{
	int rc = app_id("organisation", organisation, ret_org, err);

	return rc < 0 ? rc : app_check_text("key", key, 1, GARRET_APP_KEY - 1, err);
}

int garret_app_row_get(struct garret_app *app, const char *organisation, const char *key,
		       struct garret_app_row *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	char org[GARRET_APP_ID];
	int rc = check(organisation, key, org, err);

	memset(ret, 0, sizeof(*ret));
	if (rc == 0)
		rc = app_query(app,
			       "SELECT " COLUMNS " FROM agent_workspaces WHERE organisation = ?1 "
			       "AND scope_key = ?2",
			       DB_ARGS(db_text(org), db_text(key)), &rows, err);
	if (rc == 0 && !rows.rows)
		rc = garret_fail(err, GARRET_NOT_FOUND, "key: there is no such workspace");
	if (rc == 0)
		fill(ret, &rows, 0);
	return rc;
}

/* ---- deleting ---- */

/*
 * What the rows recorded is queued in the transaction that deletes them, and only then tried: whatever
 * happens between, it will be removed.  So is what a run may just be making, which no row holds yet.
 */
#define QUEUE                                                                            \
	"INSERT INTO sandbox_purges(organisation, connection, session_id, tries, code, " \
	"created_at, next_at) SELECT organisation, connection, "                         \
	"COALESCE(session_id, scope_key), 0, '', "                                       \
	"CAST(?3 AS DOUBLE PRECISION), CAST(?3 AS DOUBLE PRECISION) FROM agent_workspaces w WHERE "
#define RECORDED                                                                              \
	" AND backend = 'service' AND (session_id IS NOT NULL OR EXISTS (SELECT 1 FROM "      \
	"sandbox_runs r WHERE r.organisation = w.organisation AND r.scope_key = w.scope_key " \
	"AND r.session_id IS NOT NULL)) ON CONFLICT(organisation, connection, session_id) "   \
	"DO UPDATE SET next_at = excluded.next_at"

struct deletion {
	const char *queue, *drop; /* statements, with ?1 the organisation and ?2 what is deleted */
};
static const struct deletion of_key = {
	QUEUE "w.organisation = ?1 AND w.scope_key = ?2" RECORDED,
	"DELETE FROM agent_workspaces WHERE organisation = ?1 AND scope_key = ?2",
};
static const struct deletion of_conversation = {
	QUEUE "w.organisation = ?1 AND w.conversation = ?2" RECORDED,
	"DELETE FROM agent_workspaces WHERE organisation = ?1 AND conversation = ?2",
};

static int drop(struct garret_app *app, const struct deletion *d, const char *organisation,
		const char *what, double now, size_t *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = db_begin(app->db, err);

	if (rc < 0)
		return rc;
	rc = db_query(app->db, d->queue,
		      DB_ARGS(db_text(organisation), db_text(what), db_real(now)), NULL, err);
	if (rc == 0)
		rc = db_query(app->db, d->drop, DB_ARGS(db_text(organisation), db_text(what)),
			      &rows, err);
	rc = db_end(app->db, rc, err);
	*ret = rc == 0 ? (size_t)rows.changed : 0;
	return rc;
}

static int remove_rows(struct garret_app *app, const struct deletion *d, const char *organisation,
		       const char *what, size_t *ret, struct garret_error *err)
{
	const double now = app_now();
	int rc;

	app_lock(app);
	rc = drop(app, d, organisation, what, now, ret, err);
	app_unlock(app);
	/*
	 * A host that is down, or a database that fails now, leaves the rest to the sweeper; what waits
	 * from before isn't waited for.
	 */
	if (rc == 0 && *ret)
		(void)app_purge_queued(app, organisation, now, NULL);
	return rc;
}

int garret_app_row_remove(struct garret_app *app, const char *organisation, const char *key,
			  struct garret_error *err)
{
	char org[GARRET_APP_ID];
	size_t n = 0;
	int rc = check(organisation, key, org, err);

	if (rc == 0)
		rc = remove_rows(app, &of_key, org, key, &n, err);
	return rc == 0 && !n ? garret_fail(err, GARRET_NOT_FOUND, "key: there is no such workspace")
			     : rc;
}

int garret_app_conversation_remove(struct garret_app *app, const char *organisation,
				   const char *conversation, size_t *ret_rows,
				   struct garret_error *err)
{
	char org[GARRET_APP_ID], id[GARRET_APP_ID];
	size_t n = 0;
	int rc = app_id("organisation", organisation, org, err);

	if (rc == 0)
		rc = app_id("conversation", conversation, id, err);
	if (rc == 0)
		rc = remove_rows(app, &of_conversation, org, id, &n, err);
	if (ret_rows)
		*ret_rows = n;
	return rc;
}
