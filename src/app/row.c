/*
 * Rows of workspaces: one for an organisation and a key.  A row that means a session of a service holds
 * its id and an epoch, which counts the sessions that it ever held, from when it was made: two of one
 * name are told apart by it, also over a row that was deleted and made again, so that nobody forgets a
 * session that came later.
 */
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/mem.h"

#define FOUND "session_id, session_epoch"

static void fill_found(const struct db_rows *r, struct app_row_found *ret)
{
	app_copy(ret->session_id, sizeof(ret->session_id), db_get_text(r, 0, 0));
	ret->epoch = (uint64_t)db_get_int(r, 0, 1);
}

static int look(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = db_query(run->app->db,
			  "SELECT " FOUND " FROM agent_workspaces "
			  "WHERE organisation = ?1 AND scope_key = ?2",
			  DB_ARGS(db_text(run->facts.organisation), db_text(run->key)), &rows, err);

	if (rc == 0 && !rows.rows)
		rc = garret_fail(err, GARRET_NOT_FOUND, "the workspace of this run was deleted");
	if (rc == 0)
		fill_found(&rows, ret);
	return rc;
}

int app_row_look(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err)
{
	int rc;

	app_lock(run->app);
	rc = look(run, ret, err);
	app_unlock(run->app);
	return rc;
}

/* ---- finding or making ---- */

static int insert(struct garret_app_run *run, double now, struct garret_error *err)
{
	const bool conversation = run->sandbox.session_scope == GARRET_APP_SCOPE_CONVERSATION,
		   user = run->sandbox.session_scope == GARRET_APP_SCOPE_USER,
		   service = run->sandbox.backend == GARRET_APP_SERVICE;
	char id[GARRET_APP_ID], owner[GARRET_APP_KEY];

	app_new_id(id);
	if (user)
		app_user_hash(run->facts.user, owner);
	return app_query(
		run->app,
		"INSERT INTO agent_workspaces(id, organisation, scope_key, scope, backend, agent, "
		"conversation, owner_ref, connection, files, bytes_total, version, session_epoch, "
		"created_at, last_used_at) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,1,?13,?12,?12)",
		DB_ARGS(db_text(id), db_text(run->facts.organisation), db_text(run->key),
			db_text(garret_app_scope_name(run->sandbox.session_scope)),
			db_text(garret_app_backend_name(run->sandbox.backend)),
			db_text(run->facts.agent),
			db_text(conversation ? run->facts.conversation : NULL),
			db_text(user ? owner : NULL), db_text(service ? run->connection.id : NULL),
			db_text(service ? NULL : "{}"), db_int(service ? 0 : 4), db_real(now),
			db_int((int64_t)(now * 1e6))),
		NULL, err);
}

int app_row_open(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	const double now = app_now();

	for (;;) {
		int rc = app_query(
			run->app,
			"UPDATE agent_workspaces SET last_used_at = ?3 "
			"WHERE organisation = ?1 AND scope_key = ?2 RETURNING " FOUND,
			DB_ARGS(db_text(run->facts.organisation), db_text(run->key), db_real(now)),
			&rows, err);

		if (rc == 0 && rows.rows) {
			fill_found(&rows, ret);
			return 0;
		}
		if (rc == 0)
			rc = insert(run, now, err);
		/* Another run of the same scope may have been first. */
		if (rc < 0 && rc != -GARRET_EXISTS)
			return rc;
	}
}

/* ---- the session that it means ---- */

static int record(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = db_query(
		run->app->db,
		"UPDATE agent_workspaces SET session_id = ?3, "
		"session_epoch = session_epoch + 1 WHERE organisation = ?1 AND "
		"scope_key = ?2 AND session_id IS NULL RETURNING " FOUND,
		DB_ARGS(db_text(run->facts.organisation), db_text(run->key), db_text(run->ref.id)),
		&rows, err);

	if (rc < 0 || !rows.rows)
		return rc < 0 ? rc : look(run, ret, err);
	fill_found(&rows, ret);
	return 0;
}

int app_row_record(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err)
{
	int rc;

	app_lock(run->app);
	rc = db_begin(run->app->db, err);
	if (rc == 0)
		rc = db_end(run->app->db, record(run, ret, err), err);
	app_unlock(run->app);
	return rc;
}

int app_row_forget(struct garret_app_run *run, uint64_t epoch, bool *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(
		run->app,
		"UPDATE agent_workspaces SET session_id = NULL WHERE organisation = ?1 AND "
		"scope_key = ?2 AND session_id = ?3 AND session_epoch = ?4",
		DB_ARGS(db_text(run->facts.organisation), db_text(run->key), db_text(run->ref.id),
			db_int((int64_t)epoch)),
		&rows, err);

	*ret = rc == 0 && rows.changed > 0;
	return rc;
}
