/*
 * Which runs are open, and whose they are.  A row is written before a run can make anything, so that what
 * a crash leaves is known: who finds that its process is gone takes the run over and closes it.  A run
 * that waits for a person is parked: its row keeps what the next process needs to go on with it.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/mem.h"

#define PARKED_FOR (30 * 86400.0) /* then nobody will come back to it */
#define FIRST_DOUBT 10.0          /* seconds until a host is asked, later a half of what went by */
#define TRIES 100                 /* then its row is none that anybody can take */
#define COLUMNS                                                                                 \
	"organisation, run, agent, scope_key, scope, backend, connection, session_id, parked, " \
	"document, spills, owner, seen_at, runtime, include_execute, session_epoch, attached, lost, opened_at"
enum {
	ORGANISATION,
	RUN,
	AGENT,
	KEY,
	SCOPE,
	BACKEND,
	CONNECTION,
	SESSION,
	PARKED,
	DOCUMENT,
	SPILLS,
	OWNER,
	SEEN,
	RUNTIME,
	EXECUTE,
	EPOCH,
	ATTACHED,
	LOST,
	OPENED
};

/* ---- spills as text ---- */

static char *format_spills(const struct app_spills *s)
{
	json_t *list = json_array();
	char *text;

	for (size_t i = 0; i < s->n; i++)
		(void)json_array_append_new(list, json_string(s->path[i]));
	text = json_dumps(list, JSON_COMPACT);
	json_decref(list);
	return text;
}

static void parse_spills(const char *text, struct app_spills *s)
{
	json_t *list = text ? json_loads(text, 0, NULL) : NULL, *item;
	size_t i;

	json_array_foreach(list, i, item) if (json_is_string(item))
		app_spills_add(s, json_string_value(item));
	json_decref(list);
}

/* ---- taking over ---- */

/* The row of a run, if there is one. */
static int find(struct garret_app *app, const char *organisation, const char *run,
		struct db_rows *ret, struct garret_error *err)
{
	return app_query(app,
			 "SELECT " COLUMNS " FROM sandbox_runs "
			 "WHERE organisation = ?1 AND run = ?2",
			 DB_ARGS(db_text(organisation), db_text(run)), ret, err);
}

static void restore(struct garret_app_run *run, const struct db_rows *r, size_t i)
{
	run->taken = true;
	run->was = (enum app_ending)db_get_int(r, i, PARKED);
	run->begun = db_get_text(r, i, SESSION) != NULL;
	run->attached = db_get_int(r, i, ATTACHED) != 0;
	run->epoch = (uint64_t)db_get_int(r, i, EPOCH);
	run->lost = run->forgotten = db_get_int(r, i, LOST) != 0;
	run->doubted = db_get_int(r, i, PARKED) == APP_DOUBTFUL;
	parse_spills(db_get_text(r, i, SPILLS), run->spills);
	if (db_get_text(r, i, DOCUMENT)) {
		app_document_free(run->document);
		run->document = app_document_new(run->app, run->facts.organisation, NULL, 0,
						 run->facts.run, db_get_text(r, i, DOCUMENT));
	}
}

static bool is_orphan(struct garret_app *app, const struct db_rows *r, size_t i)
{
	const double age = app_now() - db_get_real(r, i, SEEN);
	const int gone = app_spool_gone(app, db_get_text(r, i, OWNER));

	return gone < 0 ? age > app->lease : gone > 0;
}

/* True: it is ours now, and nobody else's. */
static int take(struct garret_app *app, const struct db_rows *r, size_t i, bool *ret,
		struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(app,
			   "UPDATE sandbox_runs SET owner = ?3, parked = 0, seen_at = ?5 "
			   "WHERE organisation = ?1 AND run = ?2 AND owner = ?4 AND parked = ?6",
			   DB_ARGS(db_text(db_get_text(r, i, ORGANISATION)),
				   db_text(db_get_text(r, i, RUN)), db_text(app_spool_owner(app)),
				   db_text(db_get_text(r, i, OWNER)), db_real(app_now()),
				   db_int(db_get_int(r, i, PARKED))),
			   &rows, err);

	*ret = rc == 0 && rows.changed > 0;
	return rc;
}

static int take_over(struct garret_app_run *run, bool *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = find(run->app, run->facts.organisation, run->facts.run, &rows, err);

	*ret = false;
	if (rc < 0 || !rows.rows)
		return rc;
	if (strcmp(db_get_text(&rows, 0, KEY), run->key) != 0)
		return garret_fail(err, GARRET_CONFLICT,
				   "run: it was opened with another workspace");
	if (!db_get_int(&rows, 0, PARKED) && !is_orphan(run->app, &rows, 0))
		return garret_fail(err, GARRET_CONFLICT, "run: it is open");
	rc = take(run->app, &rows, 0, ret, err);
	if (rc == 0 && *ret)
		restore(run, &rows, 0);
	return rc;
}

/* ---- a run of ours ---- */

static int insert(struct garret_app_run *run, struct garret_error *err)
{
	const bool service = run->sandbox.backend == GARRET_APP_SERVICE;

	return app_query(
		run->app,
		"INSERT INTO sandbox_runs(organisation, run, agent, scope_key, scope, backend, "
		"connection, runtime, include_execute, session_epoch, attached, lost, parked, owner, "
		"opened_at, seen_at) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?12,0,0,0,?10,?11,?11)",
		DB_ARGS(db_text(run->facts.organisation), db_text(run->facts.run),
			db_text(run->facts.agent), db_text(run->key),
			db_text(garret_app_scope_name(run->sandbox.session_scope)),
			db_text(garret_app_backend_name(run->sandbox.backend)),
			db_text(service ? run->connection.id : NULL), db_text(run->sandbox.runtime),
			db_int(run->sandbox.include_execute), db_text(app_spool_owner(run->app)),
			db_real(app_now()), db_int((int64_t)run->epoch)),
		NULL, err);
}

int app_own_begin(struct garret_app_run *run, struct garret_error *err)
{
	bool ours = false;
	int rc = app_own_settle(run->app, err); /* this one may be among them */

	if (rc < 0)
		return rc;
	for (int i = 0; i < TRIES; i++) {
		rc = take_over(run, &ours, err);
		if (rc < 0 || ours)
			return rc;
		rc = insert(run, err);
		if (rc != -GARRET_EXISTS)
			return rc;
		/* another was first */
	}
	return garret_fail(err, GARRET_CONFLICT, "run: others take it over at the same time");
}

int app_own_ref(struct garret_app_run *run, struct garret_error *err)
{
	return app_query(
		run->app,
		"UPDATE sandbox_runs SET session_id = ?3, session_epoch = ?4, attached = ?5, "
		"lost = ?6 WHERE organisation = ?1 AND run = ?2",
		DB_ARGS(db_text(run->facts.organisation), db_text(run->facts.run),
			db_text(run->ref.id), db_int((int64_t)run->epoch), db_int(run->attached),
			db_int(run->lost && run->forgotten)),
		NULL, err);
}

int app_own_spills(struct garret_app_run *run, struct garret_error *err)
{
	autofree char *spills = NULL;
	int rc;

	/* One lock for both: what a delegate adds meanwhile must not be overwritten by what was there before. */
	app_lock(run->app);
	spills = format_spills(run->spills);
	rc = db_query(
		run->app->db,
		"UPDATE sandbox_runs SET spills = ?3 WHERE organisation = ?1 AND run = ?2",
		DB_ARGS(db_text(run->facts.organisation), db_text(run->facts.run), db_text(spills)),
		NULL, err);
	app_unlock(run->app);
	return rc;
}

/* ---- its end ---- */

/* A run that ended while the database took nothing: what its row should say. */
struct unclosed {
	struct list link;
	char organisation[GARRET_APP_ID], run[GARRET_APP_ID];
	enum app_ending how;
	char *document;
};

static void keep(struct garret_app_run *run, enum app_ending how)
{
	struct unclosed *u = xnew(struct unclosed);
	const char *text = run->document ? app_document_text(run->document) : NULL;

	app_copy(u->organisation, GARRET_APP_ID, run->facts.organisation);
	app_copy(u->run, GARRET_APP_ID, run->facts.run);
	u->how = how == APP_ENDED ? APP_LEFT : how;
	u->document = text ? xstrdup(text) : NULL;
	app_lock(run->app);
	list_append(&run->app->unclosed, &u->link);
	app_unlock(run->app);
}

static void drop(struct unclosed *u)
{
	list_remove(&u->link);
	free(u->document);
	free(u);
}

/* With app->lock held. */
static int park(struct garret_app *app, const char *organisation, const char *run,
		enum app_ending how, const char *document, struct garret_error *err)
{
	return db_query(app->db,
			"UPDATE sandbox_runs SET parked = ?5, document = ?3, seen_at = ?4 "
			"WHERE organisation = ?1 AND run = ?2",
			DB_ARGS(db_text(organisation), db_text(run), db_text(document),
				db_real(app_now()), db_int(how)),
			NULL, err);
}

/* The same: a sweeper takes it, as if its process had ended. */
static int abandon(struct garret_app *app, const char *organisation, const char *run,
		   struct garret_error *err)
{
	char nobody[APP_OWNER];

	app_spool_nobody(app, nobody);
	return db_query(app->db,
			"UPDATE sandbox_runs SET owner = ?3 WHERE organisation = ?1 AND run = ?2",
			DB_ARGS(db_text(organisation), db_text(run), db_text(nobody)), NULL, err);
}

int app_own_settle(struct garret_app *app, struct garret_error *err)
{
	int rc = 0;

	app_lock(app);
	while (rc == 0 && !list_empty(&app->unclosed)) {
		struct unclosed *u = list_entry(app->unclosed.next, struct unclosed, link);

		rc = u->how == APP_LEFT
			     ? abandon(app, u->organisation, u->run, err)
			     : park(app, u->organisation, u->run, u->how, u->document, err);
		if (rc == 0)
			drop(u);
	}
	app_unlock(app);
	return rc;
}

void app_own_forget(struct garret_app *app)
{
	while (!list_empty(&app->unclosed))
		drop(list_entry(app->unclosed.next, struct unclosed, link));
}

int app_own_end(struct garret_app_run *run, enum app_ending how, struct garret_error *err)
{
	const char *organisation = run->facts.organisation, *id = run->facts.run;
	const char *text = run->document ? app_document_text(run->document) : NULL;
	int rc;

	if (how == APP_DOUBTFUL) {
		run->lost = false; /* it is asked anew */
		(void)app_own_ref(run, NULL);
	}
	app_lock(run->app);
	if (how == APP_LEFT)
		rc = abandon(run->app, organisation, id, err);
	else if (how != APP_ENDED)
		rc = park(run->app, organisation, id, how, text, err);
	else
		rc = db_query(run->app->db,
			      "DELETE FROM sandbox_runs WHERE organisation = ?1 AND run = ?2",
			      DB_ARGS(db_text(organisation), db_text(id)), NULL, err);
	app_unlock(run->app);
	if (rc < 0)
		keep(run, how);
	return rc;
}

void app_own_undo(struct garret_app_run *run)
{
	const enum app_ending orphan = run->was == APP_ENDED ? APP_LEFT : run->was;

	(void)app_own_end(run, run->taken ? orphan : APP_ENDED, NULL);
}

int app_own_alive(struct garret_app *app, struct garret_error *err)
{
	return app_query(app,
			 "UPDATE sandbox_runs SET seen_at = ?2 WHERE owner = ?1 AND parked = 0",
			 DB_ARGS(db_text(app_spool_owner(app)), db_real(app_now())), NULL, err);
}

/* ---- orphans ---- */

/* As its row tells, without a workspace. */
static struct garret_app_run *revive(struct garret_app *app, const struct db_rows *r, size_t i)
{
	struct garret_app_run *run = app_run_new(app);

	app_copy(run->facts.organisation, GARRET_APP_ID, db_get_text(r, i, ORGANISATION));
	app_copy(run->facts.agent, GARRET_APP_ID, db_get_text(r, i, AGENT));
	app_copy(run->facts.run, GARRET_APP_ID, db_get_text(r, i, RUN));
	app_copy(run->key, sizeof(run->key), db_get_text(r, i, KEY));
	app_copy(run->connection.id, GARRET_APP_ID, db_get_text(r, i, CONNECTION));
	app_copy(run->sandbox.runtime, sizeof(run->sandbox.runtime), db_get_text(r, i, RUNTIME));
	app_copy(run->ref.id, sizeof(run->ref.id), run->key);
	run->sandbox.include_execute = db_get_int(r, i, EXECUTE) != 0;
	(void)app_backend_parse(db_get_text(r, i, BACKEND), &run->sandbox.backend, NULL);
	(void)garret_app_scope_parse(db_get_text(r, i, SCOPE), &run->sandbox.session_scope, NULL);
	restore(run, r, i);
	return run;
}

static bool is_due(struct garret_app *app, const struct db_rows *r, size_t i)
{
	const double age = app_now() - db_get_real(r, i, SEEN);

	if (db_get_int(r, i, PARKED) == APP_PARKED)
		return age > PARKED_FOR;
	if (db_get_int(r, i, PARKED) == APP_DETACHED)
		return age > app->lease;
	if (db_get_int(r, i, PARKED) == APP_DOUBTFUL)
		return age >
		       fmax(FIRST_DOUBT, (db_get_real(r, i, SEEN) - db_get_real(r, i, OPENED)) / 2);
	return is_orphan(app, r, i);
}

int app_own_orphans(struct garret_app *app, struct db_rows *ret, struct garret_error *err)
{
	return app_query(app,
			 "SELECT " COLUMNS " FROM sandbox_runs WHERE owner <> ?1 OR parked <> 0 "
			 "ORDER BY seen_at",
			 DB_ARGS(db_text(app_spool_owner(app))), ret, err);
}

int app_own_orphan(struct garret_app *app, const struct db_rows *r, size_t i,
		   struct garret_app_run **ret, struct garret_error *err)
{
	bool ours = false;
	int rc = is_due(app, r, i) ? take(app, r, i, &ours, err) : 0;

	*ret = rc == 0 && ours ? revive(app, r, i) : NULL;
	return rc;
}

int app_own_resume(struct garret_app *app, const char *organisation, const char *run,
		   struct garret_app_run **ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	bool ours = false;
	int rc = app_own_settle(app, err); /* this one may be among them */

	*ret = NULL;
	if (rc == 0)
		rc = find(app, organisation, run, &rows, err);
	if (rc == 0 && (!rows.rows || db_get_int(&rows, 0, PARKED) == APP_DOUBTFUL))
		rc = garret_fail(err, GARRET_NOT_FOUND,
				 "run: there is none that is open or parked");
	if (rc == 0 && (db_get_int(&rows, 0, PARKED) || is_orphan(app, &rows, 0)))
		rc = take(app, &rows, 0, &ours, err);
	if (rc == 0 && !ours)
		rc = garret_fail(err, GARRET_CONFLICT, "run: it is open");
	if (rc == 0)
		*ret = revive(app, &rows, 0);
	return rc;
}
