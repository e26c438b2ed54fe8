/* What nobody else does: close runs whose process is gone, try purges again, drop old log rows. */
#include <string.h>

#include "app/app_impl.h"
#include "base/sized.h"

#define LOG_FOR (30 * 86400.0)

/*
 * What there may be to be closed: an environment that was being made (was it? then its row must hold it,
 * or nobody would notice its loss), and spills.  By ref: nothing is made for it.
 */
static void build(struct garret_app_run *run)
{
	struct garret_error why = { 0 };

	if (!run->begun && !run->spills->n)
		return;
	if (app_run_build(run, run->begun, &why) < 0)
		app_event(run->app, "workspace_run_not_opened", "run", run->facts.run, "error",
			  garret_code_name(why.code), NULL);
	else if (run->place && run->begun && run->sandbox.session_scope != GARRET_APP_SCOPE_RUN)
		(void)garret_workspace_ensure(run->workspace, NULL);
}

static int close_orphans(struct garret_app *app, struct garret_app_swept *ret,
			 struct garret_error *err)
{
	struct garret_app_run *run;
	int rc;

	while ((rc = app_own_orphan(app, &run, err)) == 0 && run) {
		build(run);
		garret_app_run_close(run, 0);
		ret->runs++;
	}
	return rc;
}

static int drop_old(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(app, "DELETE FROM sandbox_operations WHERE created_at < ?1",
			   DB_ARGS(db_real(app_now() - LOG_FOR)), &rows, err);

	ret->operations += rc == 0 ? (uint64_t)rows.changed : 0;
	return rc;
}

/* Each part is done, whatever came of the one before; the first failure is told. */
int garret_app_sweep(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err)
{
	struct garret_app_swept swept = { 0 };
	int (*const parts[])(struct garret_app *, struct garret_app_swept *,
			     struct garret_error *) = { close_orphans, app_purge_due, drop_old };
	int first = app_own_alive(app, err), rc;

	rc = app_spool_drain(app, first < 0 ? NULL : err);
	first = first < 0 ? first : rc;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		rc = parts[i](app, &swept, first < 0 ? NULL : err);
		first = first < 0 ? first : rc;
	}
	if (ret)
		sized_give(ret, &swept, sizeof(swept));
	return first;
}
