/* What nobody else does: close runs whose process is gone, try purges again, drop old log rows. */
#include <string.h>

#include "app/app_impl.h"
#include "base/sized.h"

#define LOG_FOR (30 * 86400.0)

/*
 * What there may be to be closed: an environment that was being made (was it? then its row must hold it,
 * or nobody would notice its loss), and spills.  By ref: nothing is made for it.
 */
static int build(struct garret_app_run *run, struct garret_error *err)
{
	int rc = app_run_build(run, run->begun, err);

	if (rc < 0)
		app_event(run->app, "workspace_run_not_opened", "run", run->facts.run, "error",
			  garret_code_name(-rc), NULL);
	else if (run->place && run->begun && app_has_row(run))
		(void)garret_workspace_ensure(run->workspace, NULL);
	/* Its connection is forgotten, or of a kind that we can't open: nobody could be asked. */
	return rc == -GARRET_NOT_FOUND || rc == -GARRET_UNSUPPORTED ? 0 : rc;
}

static int close_orphan(struct garret_app_run *run, struct garret_app_swept *ret,
			struct garret_error *err)
{
	int rc = run->begun || run->spills->n ? build(run, err) : 0;

	if (rc < 0) { /* the next sweep may know more */
		app_own_undo(run);
		app_run_free(run);
		return rc;
	}
	garret_app_run_close(run, 0);
	ret->runs++;
	return 0;
}

static int close_orphans(struct garret_app *app, struct garret_app_swept *ret,
			 struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct garret_app_run *run;
	int first = app_own_orphans(app, &rows, err), rc;

	for (size_t i = 0; i < rows.rows; i++) {
		rc = app_own_orphan(app, &rows, i, &run, first < 0 ? NULL : err);
		if (rc == 0 && run)
			rc = close_orphan(run, ret, first < 0 ? NULL : err);
		first = first < 0 ? first : rc;
	}
	return first;
}

static int drop_old(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(app, "DELETE FROM sandbox_operations WHERE created_at < ?1",
			   DB_ARGS(db_real(app_now() - LOG_FOR)), &rows, err);

	ret->operations += rc == 0 ? (uint64_t)rows.changed : 0;
	return rc;
}

static int settle(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	(void)ret;
	return app_own_settle(app, err);
}

static int drain(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	(void)ret;
	return app_spool_drain(app, err);
}

static int tidy(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	(void)ret;
	return app_spool_tidy(app, err);
}

static int purge(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	return app_purge_due(app, ret, err);
}

/* Each part is done, whatever came of the one before; the first failure is told. */
int garret_app_sweep(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	struct garret_app_swept swept = { 0 };
	int (*const parts[])(struct garret_app *, struct garret_app_swept *,
			     struct garret_error *) = { settle,        drain, tidy,
							close_orphans, purge, drop_old };
	int first = app_own_alive(app, err), rc;

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		rc = parts[i](app, &swept, first < 0 ? NULL : err);
		first = first < 0 ? first : rc;
	}
	if (ret)
		sized_give(ret, &swept, sizeof(swept));
	return first;
}
