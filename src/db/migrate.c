/* The schema in steps: which were made stands in a table of the database, by their names. */
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "db/db_impl.h"

static int made(struct db *db, struct db_rows *ret, struct garret_error *err)
{
	return db_query(db, "SELECT name FROM garret_schema ORDER BY name", DB_NO_ARGS, ret, err);
}

static int ensure_table(struct db *db, struct garret_error *err)
{
	return db_script(db,
			 "CREATE TABLE IF NOT EXISTS garret_schema("
			 "name TEXT NOT NULL PRIMARY KEY, made_at DOUBLE PRECISION NOT NULL);",
			 err);
}

int db_at(struct db *db, char **ret, struct garret_error *err)
{
	struct db_rows autorows rows = DB_ROWS_INIT;
	int rc = ensure_table(db, err);

	*ret = NULL;
	if (rc == 0)
		rc = made(db, &rows, err);
	if (rc == 0)
		*ret = xstrdup(rows.rows ? db_get_text(&rows, rows.rows - 1, 0) : "base");
	return rc;
}

static int step_up(struct db *db, const struct db_step *step, struct garret_error *err)
{
	int rc = db_script(db, step->up, err);

	if (rc == 0)
		rc = db_query(db, "INSERT INTO garret_schema(name, made_at) VALUES(?1, ?2)",
			      DB_ARGS(db_text(step->name), db_real((double)wall_us() / 1e6)), NULL,
			      err);
	return garret_wrap(rc, err, "step %s", step->name);
}

static int step_down(struct db *db, const struct db_step *step, struct garret_error *err)
{
	int rc = db_script(db, step->down, err);

	if (rc == 0)
		rc = db_query(db, "DELETE FROM garret_schema WHERE name = ?1",
			      DB_ARGS(db_text(step->name)), NULL, err);
	return garret_wrap(rc, err, "step %s, back", step->name);
}

/* How many of the steps are made: they are made in order, so it must be the first of them. */
static int count(struct db *db, const struct db_step *steps, size_t n, size_t *ret,
		 struct garret_error *err)
{
	struct db_rows autorows rows = DB_ROWS_INIT;
	int rc = made(db, &rows, err);

	*ret = rows.rows;
	for (size_t i = 0; rc == 0 && i < rows.rows; i++)
		if (i >= n || strcmp(db_get_text(&rows, i, 0), steps[i].name) != 0)
			rc = garret_fail(err, GARRET_CONFLICT,
					 "the database has the step %s, which this program "
					 "doesn't know: use a newer one",
					 db_get_text(&rows, i, 0));
	return rc;
}

/* One step towards `want`, in a transaction of its own; *ret: there was none to make. */
static int step(struct db *db, const struct db_step *steps, size_t n, size_t want, bool *ret,
		struct garret_error *err)
{
	size_t at = 0;
	int rc = db_begin(db, err);

	if (rc < 0)
		return rc;
	if (db->ops->migration_lock)
		rc = db_query(db, db->ops->migration_lock, DB_NO_ARGS, NULL, err);
	if (rc == 0)
		rc = count(db, steps, n, &at, err);
	*ret = at == want;
	if (rc == 0 && at < want)
		rc = step_up(db, &steps[at], err);
	else if (rc == 0 && at > want)
		rc = step_down(db, &steps[at - 1], err);
	return db_end(db, rc, err);
}

int db_migrate(struct db *db, const struct db_step *steps, size_t n, const char *target,
	       struct garret_error *err)
{
	size_t want = n;
	bool done = false;
	int rc;

	for (size_t i = 0; target && i < n; i++)
		if (!strcmp(target, steps[i].name))
			want = i + 1;
	if (target && !strcmp(target, "base"))
		want = 0;
	else if (target && (want == n && strcmp(target, steps[n - 1].name) != 0))
		return garret_fail(err, GARRET_INVALID,
				   "target: \"base\", or the name of a step (the last is %s)",
				   steps[n - 1].name);
	rc = ensure_table(db, err);
	while (rc == 0 && !done)
		rc = step(db, steps, n, want, &done, err);
	return rc;
}
