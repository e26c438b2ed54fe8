/*
 * Is the environment still the one that the row means?
 *
 * The first run of a scope opens by name, and the row holds what it opened from its first operation
 * on; later runs attach to that.  Before its first operation a run looks at the row once more: what
 * was recorded meanwhile is attached to, and what was forgotten meanwhile is lost to it.  After
 * every operation, whichever it was, GONE means lost: this run uses it no more, whatever may
 * have that name by then, and the row forgets it, if it still means that one.
 */
#include <string.h>

#include "app/app_impl.h"

struct garret_app_run *app_root(struct garret_app_run *run)
{
	while (run->parent)
		run = run->parent;
	return run;
}

static int gone(struct garret_error *err)
{
	return garret_fail(err, GARRET_GONE,
			   "the session of this workspace is gone, with its files; the next run "
			   "begins a new one");
}

/* ---- it is gone ---- */

/* Is what has the name now gone?  Somebody who never had it asks. */
static bool is_name_gone(struct garret_app_run *run)
{
	struct garret_workspace *w = NULL;
	struct app_place *place;
	bool there;
	int rc = app_place_get(run->app, run->facts.organisation, run->connection.id, run->key,
			       NULL, APP_PLACE_OF_ITS_OWN, &place, NULL);

	if (rc == 0)
		rc = garret_provider_attach(app_place_provider(place), &run->ref, &w, NULL);
	if (rc == 0)
		rc = garret_exists(w, ".", &there, NULL);
	garret_workspace_free(w);
	app_place_put(run->app, place);
	return rc == -GARRET_GONE;
}

/*
 * Does the row mean the one that went?  What we had not recorded yet another run may have: the same one, or
 * a newer one of its name, which stays.
 */
static int is_meant(struct garret_app_run *run, uint64_t *ret_epoch, bool *ret,
		    struct garret_error *err)
{
	struct app_row_found row = { .epoch = run->epoch };
	int rc = run->attached ? 0 : app_row_look(run, &row, err);

	*ret_epoch = row.epoch;
	*ret = run->attached || (rc == 0 && *row.session_id && is_name_gone(run));
	return rc == -GARRET_NOT_FOUND ? 0 : rc;
}

static void forget(struct garret_app_run *run)
{
	struct garret_error why = { 0 };
	bool did = false, meant;
	uint64_t epoch;
	int rc = is_meant(run, &epoch, &meant, &why);

	if (rc == 0 && meant)
		rc = app_row_forget(run, epoch, &did, &why);
	run->forgotten = rc == 0;
	if (rc < 0)
		app_event(run->app, "workspace_session_not_forgotten", "scope", run->key, "error",
			  garret_code_name(why.code), NULL);
	else if (did)
		app_event(run->app, "workspace_session_forgotten", "scope", run->key, "session",
			  run->ref.id, NULL);
}

static void lose(struct garret_app_run *run)
{
	if (run->lost)
		return;
	run->lost = true;
	if (run->place)
		app_place_spoil(run->app, run->place);
	if (app_has_row(run) && !run->visit)
		forget(run);
	if (!run->visit)
		(void)app_own_ref(run, NULL); /* at worst who takes it over learns it anew */
}

/* ---- before ---- */

/* Another run has made it: it is attached to, never made anew. */
static void adopt(struct garret_app_run *run, const struct app_row_found *row)
{
	/* Where this fails a run of this process is opening it by its name just now. */
	if (garret_workspace_pin(run->bare, &run->ref, NULL) == 0)
		run->attached = true;
	run->epoch = run->attached ? row->epoch : row->epoch - 1;
}

static int look(struct garret_app_run *run, struct garret_error *err)
{
	struct app_row_found row;
	int rc = app_row_look(run, &row, err);

	if (rc == -GARRET_NOT_FOUND) {
		run->lost = run->forgotten = true;
		return garret_fail(err, GARRET_GONE, "the workspace of this run was deleted");
	}
	if (rc < 0)
		return rc;
	if (run->attached && (row.epoch != run->epoch || !*row.session_id)) {
		lose(run);
		return gone(err);
	}
	if (!run->attached && *row.session_id)
		adopt(run, &row);
	else
		run->epoch = row.epoch;
	return 0;
}

static int begin(struct garret_app_run *run, struct garret_error *err)
{
	int rc = 0;

	if (!run->visit && app_has_row(run))
		rc = look(run, err);
	if (rc == 0 && !run->attached)
		rc = app_purge_first(run->app, run->facts.organisation, run->connection.id,
				     run->ref.id, err);
	if (rc == 0 && !run->visit)
		rc = app_own_ref(run, err);
	run->begun = rc == 0;
	return rc;
}

int app_session_guard(void *data, enum garret_operation op, const char *path,
		      struct garret_error *err)
{
	struct garret_app_run *own = data, *run = app_root(own);
	int rc = 0;

	(void)path;
	if (op == GARRET_OP_RUN && !own->sandbox.include_execute)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "this sandbox has no commands (include_execute is false)");
	(void)pthread_mutex_lock(&run->gate);
	if (run->lost)
		rc = gone(err);
	else if (!run->begun)
		rc = begin(run, err);
	(void)pthread_mutex_unlock(&run->gate);
	return rc;
}

/* ---- after ---- */

/* Its row was deleted while it was used: nobody else will ever remove what it made. */
static void orphaned(struct garret_app_run *run)
{
	run->lost = run->forgotten = true;
	(void)app_purge(run->app, run->facts.organisation, run->connection.id, run->ref.id);
}

/* The row holds it from now on; a run's own environment only who takes the run over has to know. */
static int record(struct garret_app_run *run, struct garret_error *err)
{
	struct app_row_found row = { 0 };
	int rc = app_has_row(run) ? app_row_record(run, &row, err) : 0;

	if (rc < 0)
		return rc;
	run->attached = true;
	run->epoch = row.epoch;
	rc = app_own_ref(run, app_has_row(run) ? NULL : err);
	if (rc < 0 && !app_has_row(run))
		run->attached = false; /* once more */
	return app_has_row(run) ? 0 : rc;
}

static int settle(struct garret_app_run *run, struct garret_error *err)
{
	int rc = run->visit || run->attached ? 0 : record(run, err);

	if (rc == -GARRET_NOT_FOUND)
		orphaned(run);
	else if (rc < 0)
		app_event(run->app, "workspace_session_not_recorded", "scope", run->key, "error",
			  garret_code_name(-rc), NULL);
	run->settled = rc == 0 || rc == -GARRET_NOT_FOUND;
	return rc == -GARRET_NOT_FOUND ? 0 : rc;
}

/* This handle has opened it, or a client of the application's own has. */
static bool is_there(const struct garret_app_run *run)
{
	struct garret_ref ref;

	return run->reported || garret_workspace_ref(run->bare, &ref) == 0;
}

void app_session_seen(struct garret_app_run *own, enum garret_code code)
{
	struct garret_app_run *run = app_root(own);

	(void)pthread_mutex_lock(&run->gate);
	if (code == GARRET_GONE)
		lose(run);
	else if (run->begun && !run->settled && !run->lost && is_there(run))
		(void)settle(run, NULL);
	(void)pthread_mutex_unlock(&run->gate);
}

bool app_session_end(struct garret_app_run *run)
{
	if (run->lost && !run->forgotten && app_has_row(run))
		forget(run);
	else if (run->begun)
		app_session_seen(run, GARRET_OK);
	if (run->lost)
		return run->forgotten || !app_has_row(run);
	return !run->begun || run->settled || !is_there(run);
}

/*
 * An operation began to make it, by name, and was cut short: what a host that was down has made, or one whose
 * process was killed, is found by the sweeper.  Where it isn't, it is asked for once more, because it
 * may have been on its way.
 */
bool app_session_doubtful(const struct garret_app_run *run)
{
	return run->place && app_has_row(run) && !run->visit && run->begun && !run->settled &&
	       !run->attached && (!run->lost || !run->doubted);
}

/* ---- what a client of the application's own saw ---- */

int garret_app_run_report(struct garret_app_run *own, const struct garret_ref *ref, bool lost,
			  struct garret_error *err)
{
	struct garret_app_run *run = app_root(own);
	int rc = 0;

	if (!run->place)
		return garret_fail(err, GARRET_MISUSE, "a document has no session to be reported");
	if (ref && strcmp(ref->id, run->ref.id) != 0)
		return garret_fail(err, GARRET_INVALID, "ref: it isn't of this run's session");
	(void)pthread_mutex_lock(&run->gate);
	if (ref && !run->begun && !run->lost)
		rc = begin(run, err);
	if (rc == 0 && ref && !run->settled && !run->lost) {
		run->reported = true;
		rc = settle(run, err);
	}
	if (lost)
		lose(run);
	(void)pthread_mutex_unlock(&run->gate);
	return rc;
}
