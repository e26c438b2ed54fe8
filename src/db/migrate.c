/* The schema in steps: which were made stands in a table of the database, by their names. */
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "db/db_impl.h"

/* Without an order: a database has its own for texts. */
static int made(struct db *db, struct db_rows *ret, struct garret_error *err)
{
	return db_query(db, "SELECT name FROM garret_schema", DB_NO_ARGS, ret, err);
}

/* Only with the migration's lock: two at once would both find that it isn't there. */
static int ensure_table(struct db *db, struct garret_error *err)
{
	return db_script(db,
			 "CREATE TABLE IF NOT EXISTS garret_schema("
			 "name TEXT NOT NULL PRIMARY KEY, made_at DOUBLE PRECISION NOT NULL);",
			 err);
}

/* Names are numbered, so the newest is the last of them. */
int db_at(struct db *db, char **ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	const char *newest = NULL;
	int rc = db_query(db, db->ops->has_schema, DB_NO_ARGS, &rows, err);

	*ret = NULL;
	if (rc == 0 && rows.rows)
		rc = made(db, &rows, err);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < rows.rows; i++)
		if (!newest || strcmp(db_get_text(&rows, i, 0), newest) > 0)
			newest = db_get_text(&rows, i, 0);
	*ret = xstrdup(newest ? newest : "base");
	return 0;
}

static int step_up(struct db *db, const struct db_step *step, struct garret_error *err)
{
	int rc = db_script(db, step->up, err);

	if (rc == 0)
		rc = db_query(db, "INSERT INTO garret_schema(name, made_at) VALUES(?1, ?2)",
			      DB_ARGS(db_text(step->name), db_real((double)wall_us() / 1e6)), NULL,
			      err);
	return rc < 0 ? garret_wrap(rc, err, "step %s", step->name) : 0;
}

static int step_down(struct db *db, const struct db_step *step, struct garret_error *err)
{
	int rc = db_script(db, step->down, err);

	if (rc == 0)
		rc = db_query(db, "DELETE FROM garret_schema WHERE name = ?1",
			      DB_ARGS(db_text(step->name)), NULL, err);
	return rc < 0 ? garret_wrap(rc, err, "step %s, back", step->name) : 0;
}

static size_t find(const struct db_step *steps, size_t n, const char *name)
{
	size_t i = 0;

	while (i < n && strcmp(steps[i].name, name) != 0)
		i++;
	return i;
}

/* How many of the steps are made: they are made in order, so it must be the first of them. */
static int count(struct db *db, const struct db_step *steps, size_t n, size_t *ret,
		 struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = made(db, &rows, err);

	for (size_t i = 0; rc == 0 && i < rows.rows; i++) {
		const char *name = db_get_text(&rows, i, 0);
		const size_t at = find(steps, n, name);

		if (at == n)
			rc = garret_fail(err, GARRET_CONFLICT,
					 "the database has the step %s, which this program "
					 "doesn't know: use a newer one",
					 name);
		else if (at >= rows.rows)
			rc = garret_fail(err, GARRET_CONFLICT,
					 "the database has the step %s, but not all before it",
					 name);
	}
	*ret = rows.rows;
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
		rc = ensure_table(db, err);
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
	int rc = 0;

	if (target && !strcmp(target, "base"))
		want = 0;
	else if (target)
		want = find(steps, n, target) + 1;
	if (want > n)
		return garret_fail(err, GARRET_INVALID,
				   "target: \"base\", or the name of a step (the last is %s)",
				   n ? steps[n - 1].name : "base");
	while (rc == 0 && !done)
		rc = step(db, steps, n, want, &done, err);
	return rc;
}
