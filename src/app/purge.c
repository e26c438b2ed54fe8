/*
 * Removing environments of a host.  A host that is down hinders nobody: what couldn't be removed stands
 * in a queue and is tried again, ever more seldom, until it is gone or its connection is forgotten.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/mem.h"

#define FIRST_WAIT 10.0
#define LONGEST_WAIT 3600.0

/* True in *ret_forgotten: there is no such connection any more, so nobody could be asked. */
static int remove_now(struct garret_app *app, const char *organisation, const char *connection_id,
		      const char *session_id, enum app_place_use use, bool *ret_forgotten,
		      struct garret_error *err)
{
	struct app_place *place = NULL;
	struct garret_ref ref;
	int rc =
		app_place_get(app, organisation, connection_id, session_id, NULL, use, &place, err);

	*ret_forgotten = rc == -GARRET_NOT_FOUND;
	if (rc == 0)
		rc = garret_ref_make(&ref, garret_provider_name(app_place_provider(place)),
				     session_id, err);
	if (rc == 0)
		rc = garret_provider_destroy(app_place_provider(place), &ref, err);
	app_place_put(app, place);
	return rc;
}

static int enqueue(struct garret_app *app, const char *organisation, const char *connection_id,
		   const char *session_id, enum garret_code code, struct garret_error *err)
{
	const double now = app_now();

	return app_query(app,
			 "INSERT INTO sandbox_purges(organisation, connection, session_id, tries, "
			 "code, created_at, next_at) VALUES(?1,?2,?3,1,?4,?5,?6) "
			 "ON CONFLICT(organisation, connection, session_id) DO NOTHING",
			 DB_ARGS(db_text(organisation), db_text(connection_id), db_text(session_id),
				 db_text(garret_code_name(code)), db_real(now),
				 db_real(now + FIRST_WAIT)),
			 NULL, err);
}

bool app_purge(struct garret_app *app, const char *organisation, const char *connection_id,
	       const char *session_id)
{
	struct garret_error why = { 0 }, again = { 0 };
	bool forgotten;

	if (remove_now(app, organisation, connection_id, session_id, APP_PLACE_SHARED, &forgotten,
		       &why) == 0)
		return true;
	app_event(app, "workspace_purge_failed", "connection", connection_id, "session", session_id,
		  "error", garret_code_name(why.code), NULL);
	if (forgotten ||
	    enqueue(app, organisation, connection_id, session_id, why.code, &again) == 0)
		return true;
	app_event(app, "workspace_purge_not_queued", "connection", connection_id, "session",
		  session_id, "error", garret_code_name(again.code), NULL);
	return false;
}

/* ---- the queue ---- */

static int dequeue(struct garret_app *app, const struct db_rows *r, size_t i,
		   struct garret_error *err)
{
	return app_query(app,
			 "DELETE FROM sandbox_purges WHERE organisation = ?1 AND connection = ?2 "
			 "AND session_id = ?3",
			 DB_ARGS(db_text(db_get_text(r, i, 0)), db_text(db_get_text(r, i, 1)),
				 db_text(db_get_text(r, i, 2))),
			 NULL, err);
}

/* Before it is tried: no two sweepers try it at once, and one that dies while it tries has tried it. */
static int claim(struct garret_app *app, const struct db_rows *r, size_t i, bool *ret,
		 struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	const int64_t tries = db_get_int(r, i, 3);
	const double wait = fmin(FIRST_WAIT * exp2((double)MIN(tries, 20)), LONGEST_WAIT);
	int rc = app_query(app,
			   "UPDATE sandbox_purges SET tries = tries + 1, next_at = ?5 "
			   "WHERE organisation = ?1 AND connection = ?2 AND session_id = ?3 "
			   "AND tries = ?4",
			   DB_ARGS(db_text(db_get_text(r, i, 0)), db_text(db_get_text(r, i, 1)),
				   db_text(db_get_text(r, i, 2)), db_int(tries),
				   db_real(app_now() + wait)),
			   &rows, err);

	*ret = rc == 0 && rows.changed > 0;
	return rc;
}

/* *ret_down: its host can't be reached, for the others that are queued for it neither. */
static int try_again(struct garret_app *app, const struct db_rows *r, size_t i, bool *ret_down,
		     struct garret_app_swept *ret, struct garret_error *err)
{
	struct garret_error why = { 0 };
	bool ours, forgotten;
	int rc = claim(app, r, i, &ours, err);

	if (rc < 0 || !ours)
		return rc;
	rc = remove_now(app, db_get_text(r, i, 0), db_get_text(r, i, 1), db_get_text(r, i, 2),
			APP_PLACE_SHARED, &forgotten, &why);
	if (rc == 0 || forgotten) {
		ret->purged += rc == 0;
		return dequeue(app, r, i, err);
	}
	ret->waiting++;
	*ret_down = why.code == GARRET_UNAVAILABLE || why.code == GARRET_TIMEOUT;
	return app_query(app,
			 "UPDATE sandbox_purges SET code = ?4 WHERE organisation = ?1 "
			 "AND connection = ?2 AND session_id = ?3",
			 DB_ARGS(db_text(db_get_text(r, i, 0)), db_text(db_get_text(r, i, 1)),
				 db_text(db_get_text(r, i, 2)),
				 db_text(garret_code_name(why.code))),
			 NULL, err);
}

/* Each in turn; a host that was found down is waited for once, however much is queued for it. */
static int try_all(struct garret_app *app, const struct db_rows *r, struct garret_app_swept *ret,
		   struct garret_error *err)
{
	struct map down;
	int rc = 0;

	map_init(&down);
	for (size_t i = 0; rc == 0 && i < r->rows; i++) {
		const char *connection = db_get_text(r, i, 1);
		bool is_down = false;

		if (map_find(&down, connection)) {
			ret->waiting++;
			continue;
		}
		rc = try_again(app, r, i, &is_down, ret, err);
		if (is_down)
			(void)map_set(&down, connection, ret);
	}
	map_release(&down);
	return rc;
}

#define DUE "SELECT organisation, connection, session_id, tries FROM sandbox_purges WHERE "

int app_purge_due(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(app, DUE "next_at <= ?1 ORDER BY next_at", DB_ARGS(db_real(app_now())),
			   &rows, err);

	return rc < 0 ? rc : try_all(app, &rows, ret, err);
}

int app_purge_queued(struct garret_app *app, const char *organisation, double at,
		     struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct garret_app_swept swept = { 0 };
	int rc = app_query(app, DUE "next_at = ?1 AND organisation = ?2",
			   DB_ARGS(db_real(at), db_text(organisation)), &rows, err);

	return rc < 0 ? rc : try_all(app, &rows, &swept, err);
}

int app_purge_first(struct garret_app *app, const char *organisation, const char *connection_id,
		    const char *session_id, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	bool forgotten;
	int rc = app_query(
		app,
		"SELECT organisation, connection, session_id FROM sandbox_purges WHERE "
		"organisation = ?1 AND connection = ?2 AND session_id = ?3",
		DB_ARGS(db_text(organisation), db_text(connection_id), db_text(session_id)), &rows,
		err);

	if (rc < 0 || !rows.rows)
		return rc;
	rc = remove_now(app, organisation, connection_id, session_id, APP_PLACE_OF_ITS_OWN,
			&forgotten, err);
	return rc < 0 ? garret_wrap(rc, err, "what had this name before is still there")
		      : dequeue(app, &rows, 0, err);
}

static enum garret_code code_of(const char *name)
{
	for (int code = 1; code < GARRET_CODES; code++)
		if (!strcmp(garret_code_name(code), name))
			return (enum garret_code)code;
	return GARRET_INTERNAL;
}

int garret_app_purge_list(struct garret_app *app, const char *organisation,
			  struct garret_app_purge **ret, size_t *ret_n, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	char org[GARRET_APP_ID];
	int rc = app_id("organisation", organisation, org, err);

	*ret = NULL;
	*ret_n = 0;
	if (rc == 0)
		rc = app_query(app,
			       "SELECT connection, session_id, tries, code, created_at, next_at "
			       "FROM sandbox_purges WHERE organisation = ?1 ORDER BY created_at",
			       DB_ARGS(db_text(org)), &rows, err);
	if (rc < 0)
		return rc;
	*ret = xcalloc(rows.rows + 1, sizeof(**ret));
	*ret_n = rows.rows;
	for (size_t i = 0; i < rows.rows; i++) {
		struct garret_app_purge *p = &(*ret)[i];

		app_copy(p->connection_id, sizeof(p->connection_id), db_get_text(&rows, i, 0));
		app_copy(p->session_id, sizeof(p->session_id), db_get_text(&rows, i, 1));
		p->tries = (unsigned)db_get_int(&rows, i, 2);
		p->code = code_of(db_get_text(&rows, i, 3));
		p->created_at = db_get_real(&rows, i, 4);
		p->next_at = db_get_real(&rows, i, 5);
	}
	return 0;
}
