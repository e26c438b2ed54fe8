/* The log of operations, for people: newest first, with how many there are. */
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/sized.h"
#include "net/json.h"

#define ROWS_MAX 1000
#define ROWS_USUAL 100

/* What rows from before today's names are called; NULL: nothing. */
static const struct {
	const char *name, *also, *too;
} names[] = {
	{ "read", "read_bytes", NULL }, { "write", "edit", NULL },
	{ "ls_info", NULL, NULL },      { "mkdir", NULL, NULL },
	{ "remove", NULL, NULL },       { "execute", "glob_info", "grep_raw" },
};

#define WHERE                                                                                 \
	" FROM sandbox_operations WHERE organisation = ?1 AND (?2 = '' OR session_key = ?2) " \
	"AND (?3 = '' OR agent = ?3) AND (?4 = '' OR run = ?4) "                              \
	"AND (?5 = '' OR op = ?5 OR op = ?6 OR op = ?7) AND (?8 < 0 OR ok = ?8) "             \
	"AND created_at >= ?9 AND (?10 = 0 OR created_at < ?10)"
enum { ARGS = 12 };

/* An id of a filter, "" for any. */
static int filter_id(const char *field, const char *text, char ret[GARRET_APP_ID],
		     struct garret_error *err)
{
	ret[0] = '\0';
	return text ? app_id(field, text, ret, err) : 0;
}

struct filter {
	char organisation[GARRET_APP_ID], agent[GARRET_APP_ID], run[GARRET_APP_ID];
	const char *op, *also, *too;
	struct db_value arg[ARGS];
};

static void find_names(struct filter *f, const char *op)
{
	f->op = op ? op : "";
	f->also = f->too = f->op;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(names[i].name, f->op)) {
			f->also = names[i].also ? names[i].also : f->op;
			f->too = names[i].too ? names[i].too : f->op;
		}
}

static int prepare(struct filter *f, const char *organisation,
		   const struct garret_app_log_filter *q, struct garret_error *err)
{
	int rc = app_id("organisation", organisation, f->organisation, err);

	if (rc == 0)
		rc = filter_id("agent", q->agent, f->agent, err);
	if (rc == 0)
		rc = filter_id("run", q->run, f->run, err);
	if (rc == 0 && q->key)
		rc = app_check_text("key", q->key, 1, 128, err);
	if (rc == 0 && q->op)
		rc = app_check_text("op", q->op, 1, 32, err);
	if (rc == 0 && !(q->since >= 0 && q->until >= 0))
		rc = garret_fail(err, GARRET_INVALID, "since, until: seconds since 1970");
	if (rc == 0 && q->max > ROWS_MAX)
		rc = garret_fail(err, GARRET_INVALID, "max: 1 to %d rows", ROWS_MAX);
	if (rc == 0 && q->offset > INT64_MAX)
		rc = garret_fail(err, GARRET_INVALID, "offset: too large");
	if (rc < 0)
		return rc;
	find_names(f, q->op);
	f->arg[0] = db_text(f->organisation);
	f->arg[1] = db_text(q->key ? q->key : "");
	f->arg[2] = db_text(f->agent);
	f->arg[3] = db_text(f->run);
	f->arg[4] = db_text(f->op);
	f->arg[5] = db_text(f->also);
	f->arg[6] = db_text(f->too);
	f->arg[7] = db_int(q->ok == 0 ? -1 : q->ok > 0);
	f->arg[8] = db_real(q->since);
	f->arg[9] = db_real(q->until);
	f->arg[10] = db_int((int64_t)(q->max ? q->max : ROWS_USUAL));
	f->arg[11] = db_int((int64_t)q->offset);
	return 0;
}

static void fill(struct garret_app_log_row *row, const struct db_rows *r, size_t i)
{
	row->id = (uint64_t)db_get_int(r, i, 0);
	app_copy(row->agent, sizeof(row->agent), db_get_text(r, i, 1));
	app_copy(row->run, sizeof(row->run), db_get_text(r, i, 2));
	app_copy(row->key, sizeof(row->key), db_get_text(r, i, 3));
	app_copy(row->op, sizeof(row->op), db_get_text(r, i, 4));
	row->target = xstrdup(db_get_text(r, i, 5));
	app_copy(row->detail, sizeof(row->detail), db_get_text(r, i, 6));
	row->ok = db_get_int(r, i, 7) != 0;
	row->duration_ms = (unsigned)db_get_int(r, i, 8);
	row->created_at = db_get_real(r, i, 9);
}

static int query(struct garret_app *app, const struct filter *f, struct garret_app_log *ret,
		 struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(app, "SELECT COUNT(*)" WHERE, f->arg, ARGS - 2, &rows, err);

	if (rc < 0)
		return rc;
	ret->total = (uint64_t)db_get_int(&rows, 0, 0);
	rc = app_query(app,
		       "SELECT id, agent, run, session_key, op, target, detail, ok, duration_ms, "
		       "created_at" WHERE " ORDER BY id DESC LIMIT ?11 OFFSET ?12",
		       f->arg, ARGS, &rows, err);
	if (rc < 0)
		return rc;
	ret->n = rows.rows;
	ret->row = xcalloc(rows.rows + 1, sizeof(*ret->row));
	for (size_t i = 0; i < rows.rows; i++)
		fill(&ret->row[i], &rows, i);
	return 0;
}

int garret_app_log_query(struct garret_app *app, const char *organisation,
			 const struct garret_app_log_filter *given, struct garret_app_log *ret,
			 struct garret_error *err)
{
	struct garret_app_log_filter q = { 0 };
	struct filter f;
	int rc = given ? sized_copy(&q, sizeof(q), given, given->size, err) : 0;

	memset(ret, 0, sizeof(*ret));
	if (rc == 0)
		rc = prepare(&f, organisation, &q, err);
	if (rc == 0)
		rc = app_spool_drain(app, err);
	return rc < 0 ? rc : query(app, &f, ret, err);
}

void garret_app_log_release(struct garret_app_log *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->row[i].target);
	free(l->row);
	memset(l, 0, sizeof(*l));
}

int garret_app_log_names(struct garret_app *app, const char *organisation, char **ret,
			 struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct strbuf out = STRBUF_INIT;
	char org[GARRET_APP_ID];
	int rc = app_id("organisation", organisation, org, err);

	*ret = NULL;
	if (rc == 0)
		rc = app_spool_drain(app, err);
	if (rc == 0)
		rc = app_query(app,
			       "SELECT DISTINCT op FROM sandbox_operations WHERE organisation = ?1 "
			       "ORDER BY op",
			       DB_ARGS(db_text(org)), &rows, err);
	if (rc < 0)
		return rc;
	json_open(&out, '[');
	for (size_t i = 0; i < rows.rows; i++)
		json_put_string(&out, db_get_text(&rows, i, 0));
	json_close(&out, ']');
	*ret = strbuf_detach(&out, NULL);
	return 0;
}
