/*
 * Runs: a row that is open, and a workspace on it.  Opening touches the database alone; the first
 * operation opens the environment.  Over the provider's handle stand two rules of ours: a guard
 * (session.c) and, around it, the record (record.c), which also sees what the guard refuses.
 */
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/sized.h"

/* ---- memory ---- */

static void free_digest(const char *key, void *value, void *ctx)
{
	(void)key;
	(void)ctx;
	free(value);
}

struct garret_app_run *app_run_new(struct garret_app *app)
{
	struct garret_app_run *run = xnew(struct garret_app_run);

	run->app = app;
	run->sandbox.include_execute = true;
	run->spills = app_spills_new();
	map_init(&run->staged);
	(void)pthread_mutex_init(&run->gate, NULL);
	app_lock(app);
	app->runs++;
	app_unlock(app);
	return run;
}

struct garret_app_run *app_run_free(struct garret_app_run *run)
{
	struct garret_app *app = run->app;

	garret_workspace_free(run->workspace);
	garret_workspace_free(run->bare);
	garret_provider_free(run->state);
	if (!run->parent)
		app_place_put(app, run->place);
	app_document_free(run->document);
	app_spills_drop(run->spills);
	map_foreach(&run->staged, free_digest, NULL);
	map_release(&run->staged);
	app_facts_release(&run->facts);
	(void)pthread_mutex_destroy(&run->gate);
	free(run);
	app_lock(app);
	app->runs--;
	app_unlock(app);
	return NULL;
}

/* ---- building ---- */

static int wrap(struct garret_app_run *run, struct garret_error *err)
{
	struct garret_workspace *guarded = NULL;
	int rc = garret_wrap_guarded(run->bare, app_session_guard, run, &guarded, err);

	if (rc == 0)
		rc = garret_wrap_recording(guarded, app_record, run, &run->workspace, err);
	garret_workspace_free(guarded);
	return rc;
}

static int duplicate(struct garret_workspace *w, struct garret_workspace **ret,
		     struct garret_error *err)
{
	*ret = garret_workspace_dup(w);
	return *ret ? 0 : garret_fail(err, GARRET_MISUSE, "a child of fork() can't use it");
}

static int build_document(struct garret_app_run *run, struct garret_error *err)
{
	int rc;

	if (!run->document)
		run->document = app_document_new(run->app, run->facts.organisation,
						 app_has_row(run) ? run->key : NULL, run->epoch,
						 run->facts.run, NULL);
	rc = app_document_provider(run->document, &run->state, err);
	if (rc == 0)
		rc = garret_ref_make(&run->ref, garret_provider_name(run->state), run->key, err);
	if (rc == 0)
		rc = garret_provider_attach(run->state, &run->ref, &run->bare, err);
	return rc < 0 ? rc : duplicate(run->bare, &run->workspace, err);
}

static int find_place(struct garret_app_run *run, struct garret_error *err)
{
	return app_place_get(run->app, run->facts.organisation, run->connection.id, run->key,
			     run->sandbox.runtime, APP_PLACE_SHARED, &run->place, err);
}

static int build_session(struct garret_app_run *run, bool attach, struct garret_error *err)
{
	struct garret_provider *p;
	int rc = run->place ? 0 : find_place(run, err);

	if (rc < 0)
		return rc;
	p = app_place_provider(run->place);
	if (!*run->ref.id)
		app_copy(run->ref.id, sizeof(run->ref.id), run->key);
	app_copy(run->ref.provider, sizeof(run->ref.provider), garret_provider_name(p));
	rc = garret_provider_attach(p, attach ? &run->ref : NULL, &run->bare, err);
	return rc < 0 ? rc : wrap(run, err);
}

int app_run_build(struct garret_app_run *run, bool attach, struct garret_error *err)
{
	return run->sandbox.backend == GARRET_APP_STATE ? build_document(run, err)
							: build_session(run, attach, err);
}

int app_run_share(struct garret_app_run *run, struct garret_app_run *parent,
		  struct garret_error *err)
{
	int rc = duplicate(parent->bare, &run->bare, err);

	run->ref = parent->ref;
	if (rc < 0)
		return rc;
	return run->place ? wrap(run, err) : duplicate(run->bare, &run->workspace, err);
}

/* ---- opening ---- */

static int check_sandbox(const struct garret_app_sandbox *s, struct garret_error *err)
{
	if (s->backend != GARRET_APP_STATE && s->backend != GARRET_APP_SERVICE)
		return garret_fail(err, GARRET_INVALID, "backend: state or service");
	if (s->backend == GARRET_APP_STATE)
		return 0;
	return app_check_text("runtime", s->runtime, 0, sizeof(s->runtime) - 1, err);
}

static int resolve(struct garret_app_run *run, struct garret_error *err)
{
	char *token = NULL, id[GARRET_APP_ID];
	const char *given = run->sandbox.connection_id;
	uint64_t changes;
	int rc = *given ? app_id("connection_id", given, id, err) : 0;

	if (rc == 0)
		rc = app_place_resolve(run->app, run->facts.organisation, *given ? id : NULL,
				       &run->connection, &token, &changes, err);
	if (token)
		explicit_bzero(token, strlen(token));
	free(token);
	if (rc == 0 && !*run->sandbox.runtime)
		app_copy(run->sandbox.runtime, sizeof(run->sandbox.runtime),
			 run->connection.runtime);
	return rc;
}

/* What it was attached to before it was parked, or what its row holds now. */
static int build(struct garret_app_run *run, const struct app_row_found *found,
		 struct garret_error *err)
{
	if (run->sandbox.backend == GARRET_APP_SERVICE && app_has_row(run)) {
		run->begun = false; /* the row is looked at again before the first operation */
		if (!run->attached && !run->lost) {
			run->epoch = found->epoch;
			run->attached = *found->session_id != '\0';
		}
	}
	return app_run_build(run, run->attached || run->lost, err);
}

static int open_run(struct garret_app_run *run, struct garret_error *err)
{
	const bool service = run->sandbox.backend == GARRET_APP_SERVICE;
	struct app_row_found found = { 0 };
	int rc = app_scope_check(&run->facts, run->sandbox.session_scope, err);

	if (rc == 0)
		rc = check_sandbox(&run->sandbox, err);
	if (rc == 0 && service)
		rc = resolve(run, err);
	if (rc < 0)
		return rc;
	app_scope_key(&run->facts, run->sandbox.session_scope, service ? run->connection.id : NULL,
		      run->key);
	/* Once the run is ours nothing needs the database any more. */
	if (service)
		rc = find_place(run, err);
	if (rc == 0 && app_has_row(run))
		rc = app_row_open(run, &found, err);
	run->epoch = found.epoch;
	if (rc == 0)
		rc = app_own_begin(run, err);
	if (rc < 0)
		return rc;
	rc = build(run, &found, err);
	if (rc < 0)
		app_own_undo(run);
	return rc;
}

int garret_app_run_open(struct garret_app *app, const struct garret_app_facts *facts,
			const struct garret_app_sandbox *sandbox, struct garret_app_run **ret,
			struct garret_error *err)
{
	struct garret_app_run *run = app_run_new(app);
	int rc = app_facts_check(facts, &run->facts, err);

	*ret = NULL;
	if (sandbox)
		run->sandbox = *sandbox;
	else
		garret_app_sandbox_defaults(&run->sandbox);
	if (rc == 0)
		rc = open_run(run, err);
	if (rc < 0)
		app_run_free(run);
	else
		*ret = run;
	return rc;
}

static int reopen(struct garret_app_run *run, struct garret_error *err)
{
	struct app_row_found found = { 0 };
	int rc = 0;

	/* One whose row was deleted can still be closed; its first operation says so. */
	if (app_has_row(run))
		rc = app_row_look(run, &found, err);
	return rc < 0 && rc != -GARRET_NOT_FOUND ? rc : build(run, &found, err);
}

int garret_app_run_resume(struct garret_app *app, const char *organisation, const char *run_id,
			  struct garret_app_run **ret, struct garret_error *err)
{
	char org[GARRET_APP_ID], id[GARRET_APP_ID];
	struct garret_app_run *run = NULL;
	int rc = app_id("organisation", organisation, org, err);

	*ret = NULL;
	if (rc == 0)
		rc = app_id("run", run_id, id, err);
	if (rc == 0)
		rc = app_own_resume(app, org, id, &run, err);
	if (!run)
		return rc;
	rc = reopen(run, err);
	if (rc < 0) {
		app_own_undo(run);
		app_run_free(run);
		return rc;
	}
	*ret = run;
	return 0;
}

struct garret_workspace *garret_app_run_workspace(struct garret_app_run *run)
{
	return run->workspace;
}

void garret_app_run_info(struct garret_app_run *own, struct garret_app_run_info *ret)
{
	struct garret_app_run *run = app_root(own);
	struct garret_app_run_info info = { 0 };

	app_copy(info.run, sizeof(info.run), own->facts.run);
	app_copy(info.key, sizeof(info.key), run->key);
	info.backend = run->sandbox.backend;
	info.scope = run->sandbox.session_scope;
	info.ref = run->ref;
	app_copy(info.connection_id, sizeof(info.connection_id), run->connection.id);
	app_copy(info.runtime, sizeof(info.runtime), run->sandbox.runtime);
	app_copy(info.tenant, sizeof(info.tenant), run->facts.organisation);
	info.include_execute =
		own->sandbox.include_execute && run->sandbox.backend == GARRET_APP_SERVICE;
	(void)pthread_mutex_lock(&run->gate);
	info.attached = run->attached;
	info.lost = run->lost;
	(void)pthread_mutex_unlock(&run->gate);
	sized_give(ret, &info, sizeof(info));
}

/* ---- looking in, for people ---- */

static int visit(struct garret_app_run *run, const char *key, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(run->app,
			   "SELECT backend, connection, session_id FROM agent_workspaces "
			   "WHERE organisation = ?1 AND scope_key = ?2",
			   DB_ARGS(db_text(run->facts.organisation), db_text(key)), &rows, err);

	if (rc < 0)
		return rc;
	if (!rows.rows)
		return garret_fail(err, GARRET_NOT_FOUND, "key: there is no such workspace");
	app_copy(run->key, sizeof(run->key), key);
	if (!strcmp(db_get_text(&rows, 0, 0), "state"))
		return app_run_build(run, true, err);
	if (!db_get_text(&rows, 0, 2))
		return garret_fail(err, GARRET_NOT_FOUND, "key: no session is recorded for it");
	run->sandbox.backend = GARRET_APP_SERVICE;
	run->attached = true;
	app_copy(run->connection.id, GARRET_APP_ID, db_get_text(&rows, 0, 1));
	app_copy(run->ref.id, sizeof(run->ref.id), db_get_text(&rows, 0, 2));
	return app_run_build(run, true, err);
}

int garret_app_visit(struct garret_app *app, const char *organisation, const char *key,
		     struct garret_app_run **ret, struct garret_error *err)
{
	struct garret_app_run *run = app_run_new(app);
	int rc = app_id("organisation", organisation, run->facts.organisation, err);

	*ret = NULL;
	run->visit = true;
	if (rc == 0)
		rc = app_check_text("key", key, 1, GARRET_APP_KEY - 1, err);
	if (rc == 0)
		rc = visit(run, key, err);
	if (rc < 0)
		app_run_free(run);
	else
		*ret = run;
	return rc;
}

/* ---- closing ---- */

/* Its own environment goes with it; one that was never used isn't asked for. */
static bool remove_own(struct garret_app_run *run)
{
	if (app_has_row(run) || !run->begun || run->lost ||
	    run->sandbox.backend != GARRET_APP_SERVICE)
		return true;
	return app_purge(run->app, run->facts.organisation, run->connection.id, run->ref.id);
}

static void close_run(struct garret_app_run *run, enum app_ending how)
{
	struct garret_error why = { 0 };
	bool told = !run->place || app_session_end(run);

	if (how == APP_ENDED && app_session_doubtful(run))
		how = APP_DOUBTFUL;
	if (how == APP_ENDED && run->place)
		app_spills_prune(run);
	else if (how == APP_ENDED && run->bare)
		app_document_tidy(run);
	if (how == APP_ENDED)
		told = remove_own(run) && told;
	(void)app_spool_flush(run->app, NULL); /* later, if not now */
	if (how == APP_ENDED && !told)
		how = APP_LEFT;
	if (app_own_end(run, how, &why) < 0)
		app_event(run->app, "workspace_run_not_closed", "run", run->facts.run, "error",
			  garret_code_name(why.code), NULL);
}

struct garret_app_run *garret_app_run_close(struct garret_app_run *run, unsigned flags)
{
	if (!run)
		return NULL;
	if (!run->visit && !run->parent)
		close_run(run, flags & GARRET_APP_PARKED     ? APP_PARKED
			       : flags & GARRET_APP_DETACHED ? APP_DETACHED
							     : APP_ENDED);
	return app_run_free(run);
}
