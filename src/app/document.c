/*
 * Documents behind the state provider's store: of a row, saved with every change in the place of
 * exactly the version that was loaded; or in memory, of a run-scoped run, whose ownership row has it too.
 *
 * Called with the context's lock held: nothing of the library is used here.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "net/json.h"

#define PATHS_TOLD 20

struct app_document {
	struct garret_app *app;
	char organisation[GARRET_APP_ID], key[GARRET_APP_KEY];
	uint64_t
		epoch; /* of the row that is meant: one that was made anew is another; 0: whichever */
	char run[GARRET_APP_ID]; /* of one in memory: whose it is; "": nobody's */
	bool memory;
	char *text; /* of one in memory; NULL: nothing was written */
	uint64_t version;
};

static char *compose(const char *files, const char *directories)
{
	return xasprintf("{\"files\":%s,\"directories\":%s}", files ? files : "{}",
			 directories ? directories : "[]");
}

/*
 * The two lists of a text that the state provider wrote: files first, then directories.  Inside of a
 * string the quotes of that key would be escaped, so its last place is the right one.
 */
static const char directories_key[] = ",\"directories\":";
#define FILES_KEY "{\"files\":"

static void split(const char *text, size_t n, char **ret_files, char **ret_directories)
{
	const char *at = text + n - 1;
	const size_t length = sizeof(directories_key) - 1;

	while (memcmp(at, directories_key, MIN(length, (size_t)(text + n - at))) != 0)
		at--;
	*ret_files = xstrndup(text + sizeof(FILES_KEY) - 1,
			      (size_t)(at - text) - (sizeof(FILES_KEY) - 1));
	*ret_directories = xstrndup(at + length, (size_t)(text + n - 1 - (at + length)));
}

static int row_of(struct app_document *d, struct db_rows *ret)
{
	int rc =
		app_query(d->app,
			  "SELECT files, directories, version, session_epoch FROM agent_workspaces "
			  "WHERE organisation = ?1 AND scope_key = ?2",
			  DB_ARGS(db_text(d->organisation), db_text(d->key)), ret, NULL);

	if (rc == 0 && !ret->rows)
		return -GARRET_NOT_FOUND;
	/* That one is gone, with its files. */
	return rc == 0 && d->epoch && d->epoch != (uint64_t)db_get_int(ret, 0, 3)
		       ? -GARRET_NOT_FOUND
		       : rc;
}

static int document_load(void *data, const char *id, char **ret, size_t *ret_n,
			 uint64_t *ret_version)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct app_document *d = data;
	int rc = d->memory ? 0 : row_of(d, &rows);

	(void)id;
	if (rc < 0)
		return rc;
	*ret = d->memory ? d->text ? xstrdup(d->text) : compose(NULL, NULL)
			 : compose(db_get_text(&rows, 0, 0), db_get_text(&rows, 0, 1));
	*ret_n = strlen(*ret);
	*ret_version = d->memory ? d->version : (uint64_t)db_get_int(&rows, 0, 2);
	return 0;
}

static int document_version(void *data, const char *id, uint64_t *ret_version)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct app_document *d = data;
	int rc = 0;

	(void)id;
	*ret_version = d->version;
	if (d->memory)
		return 0;
	rc = app_query(
		d->app,
		"SELECT version FROM agent_workspaces WHERE organisation = ?1 AND "
		"scope_key = ?2 AND (session_epoch = ?3 OR ?3 = 0)",
		DB_ARGS(db_text(d->organisation), db_text(d->key), db_int((int64_t)d->epoch)),
		&rows, NULL);
	if (rc == 0 && rows.rows)
		*ret_version = (uint64_t)db_get_int(&rows, 0, 0);
	return rc == 0 && !rows.rows ? -GARRET_NOT_FOUND : rc;
}

/* ---- who was overtaken ---- */

/* The paths of files that differ, at most PATHS_TOLD, as text. */
static void differing(const char *ours, const char *theirs, struct strbuf *out)
{
	json_t *a = json_loads(ours, JSON_ALLOW_NUL, NULL),
	       *b = json_loads(theirs, JSON_ALLOW_NUL, NULL), *entry;
	const char *path;
	unsigned n = 0;

	json_object_foreach(a, path, entry) if (!json_equal(entry, json_object_get(b, path)) &&
						n++ < PATHS_TOLD)
		strbuf_addf(out, "%s%s", out->len ? " " : "", path);
	json_object_foreach(b, path, entry) if (!json_object_get(a, path) && n++ < PATHS_TOLD)
		strbuf_addf(out, "%s%s", out->len ? " " : "", path);
	json_decref(a);
	json_decref(b);
}

static void tell_overtaken(struct app_document *d, const char *files, uint64_t version,
			   const struct db_rows *now)
{
	autobuf struct strbuf paths = STRBUF_INIT;
	char was[24], is[24];

	differing(files, db_get_text(now, 0, 0) ? db_get_text(now, 0, 0) : "{}", &paths);
	(void)snprintf(was, sizeof(was), "%llu", (unsigned long long)version);
	(void)snprintf(is, sizeof(is), "%llu", (unsigned long long)db_get_int(now, 0, 2));
	app_event(d->app, "workspace_flush_overtaken", "scope", d->key, "loaded", was, "found", is,
		  "paths", paths.buf, NULL);
}

/* ---- saving ---- */

static int save_row(struct app_document *d, const char *files, const char *directories,
		    uint64_t version)
{
	const bool none = !strcmp(directories, "[]");
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(d->app,
			   "UPDATE agent_workspaces SET files = ?3, directories = ?4, "
			   "bytes_total = ?5, version = version + 1 "
			   "WHERE organisation = ?1 AND scope_key = ?2 AND version = ?6 "
			   "AND (session_epoch = ?7 OR ?7 = 0)",
			   DB_ARGS(db_text(d->organisation), db_text(d->key), db_text(files),
				   none ? db_null() : db_text(directories),
				   db_int((int64_t)(strlen(files) + strlen(directories))),
				   db_int((int64_t)version), db_int((int64_t)d->epoch)),
			   &rows, NULL);

	if (rc < 0 || rows.changed)
		return rc;
	rc = row_of(d, &rows);
	if (rc == -GARRET_NOT_FOUND)
		return -GARRET_GONE; /* the conversation was deleted: nothing is saved */
	if (rc == 0)
		tell_overtaken(d, files, version, &rows);
	return rc < 0 ? rc : -GARRET_CHANGED;
}

/* For who goes on with the run when this process is gone.  Nobody's is looked at, and never saved. */
static int save_run(struct app_document *d, const char *text, size_t n)
{
	const struct db_value document = { .type = DB_TEXT, .p = text, .n = n };

	return app_query(
		d->app,
		"UPDATE sandbox_runs SET document = ?3 WHERE organisation = ?1 AND run = ?2",
		DB_ARGS(db_text(d->organisation), db_text(d->run), document), NULL, NULL);
}

static int document_save(void *data, const char *id, const char *text, size_t n, uint64_t version,
			 uint64_t *ret_version)
{
	autofree char *files = NULL, *directories = NULL;
	struct app_document *d = data;
	int rc = 0;

	(void)id;
	if (d->memory) {
		rc = save_run(d, text, n);
		if (rc < 0)
			return rc;
		free(d->text);
		d->text = xstrndup(text, n);
		*ret_version = ++d->version;
		return 0;
	}
	split(text, n, &files, &directories);
	rc = save_row(d, files, directories, version);
	*ret_version = version + 1;
	return rc;
}

/* Rows are removed by those who delete what they belong to, not by what works in them. */
static int document_remove(void *data, const char *id)
{
	(void)data;
	(void)id;
	return -GARRET_DENIED;
}

/* ---- the provider ---- */

struct app_document *app_document_new(struct garret_app *app, const char *organisation,
				      const char *key, uint64_t epoch, const char *run,
				      const char *text)
{
	struct app_document *d = xnew(struct app_document);

	d->app = app;
	d->version = 1;
	d->epoch = epoch;
	d->memory = !key;
	d->text = text ? xstrdup(text) : NULL;
	app_copy(d->organisation, sizeof(d->organisation), organisation);
	app_copy(d->key, sizeof(d->key), key);
	app_copy(d->run, sizeof(d->run), run);
	return d;
}

struct app_document *app_document_free(struct app_document *d)
{
	if (d)
		free(d->text);
	free(d);
	return NULL;
}

const char *app_document_text(const struct app_document *d)
{
	return d->text;
}

int app_document_provider(struct app_document *d, struct garret_provider **ret,
			  struct garret_error *err)
{
	const struct garret_store store = { .size = sizeof(store),
					    .data = d,
					    .load = document_load,
					    .save = document_save,
					    .remove = document_remove,
					    .version = document_version };
	struct garret_options *o = NULL;
	char bound[24];
	int rc = garret_options_new("state", &o, err);

	(void)snprintf(bound, sizeof(bound), "%llu", (unsigned long long)d->app->state_max_bytes);
	if (rc == 0)
		rc = garret_options_set(o, "max_bytes", bound, err);
	if (rc == 0)
		rc = garret_options_set_store(o, &store, err);
	if (rc == 0)
		rc = garret_provider_open(d->app->context, o, ret, err);
	garret_options_free(o);
	return rc;
}

/* ---- as a whole ---- */

int garret_app_document_get(struct garret_app *app, const char *organisation, const char *key,
			    char **ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	char org[GARRET_APP_ID];
	int rc = app_id("organisation", organisation, org, err);

	*ret = NULL;
	if (rc == 0)
		rc = app_query(app,
			       "SELECT files, directories FROM agent_workspaces WHERE "
			       "organisation = ?1 AND scope_key = ?2 AND backend = 'state'",
			       DB_ARGS(db_text(org), db_text(key)), &rows, err);
	if (rc == 0 && !rows.rows)
		rc = garret_fail(err, GARRET_NOT_FOUND, "key: there is no such document");
	if (rc == 0)
		*ret = compose(db_get_text(&rows, 0, 0), db_get_text(&rows, 0, 1));
	return rc;
}

static char *dump(const json_t *list, const char *none)
{
	char *text = list ? json_dumps(list, JSON_COMPACT) : NULL;

	return text ? text : xstrdup(none);
}

/* A document of the caller's, checked by loading it. */
static int check_document(struct garret_app *app, const char *json, struct garret_error *err)
{
	struct app_document *d = app_document_new(app, "", NULL, 0, NULL, json);
	struct garret_provider *p = NULL;
	struct garret_workspace *w = NULL;
	struct garret_ref ref;
	int rc = app_document_provider(d, &p, err);

	if (rc == 0)
		rc = garret_ref_make(&ref, garret_provider_name(p), "document", err);
	if (rc == 0)
		rc = garret_provider_attach(p, &ref, &w, err);
	if (rc == 0)
		rc = garret_workspace_ensure(w, err);
	garret_workspace_free(w);
	garret_provider_free(p);
	app_document_free(d);
	return rc;
}

int garret_app_document_put(struct garret_app *app, const char *organisation, const char *key,
			    const char *json, struct garret_error *err)
{
	autofree char *files = NULL, *directories = NULL;
	autorows struct db_rows rows = DB_ROWS_INIT;
	char org[GARRET_APP_ID];
	size_t bytes;
	json_t *v;
	int rc = app_id("organisation", organisation, org, err);

	if (rc == 0)
		rc = check_document(app, json, err);
	if (rc < 0)
		return rc;
	/* Its two lists, as the state provider writes them. */
	v = json ? json_loads(json, JSON_ALLOW_NUL, NULL) : NULL;
	files = dump(json_object_get(v, "files"), "{}");
	directories = json_is_array(json_object_get(v, "directories"))
			      ? dump(json_object_get(v, "directories"), "[]")
			      : xstrdup("[]");
	json_decref(v);
	bytes = strlen(files) + strlen(directories);
	if (bytes > app->state_max_bytes)
		return garret_fail(err, GARRET_NO_SPACE,
				   "the document would have %zu bytes, at most %llu may be kept",
				   bytes, (unsigned long long)app->state_max_bytes);
	rc = app_query(
		app,
		"UPDATE agent_workspaces SET files = ?3, directories = ?4, bytes_total = ?5, "
		"version = version + 1 WHERE organisation = ?1 AND scope_key = ?2 AND "
		"backend = 'state'",
		DB_ARGS(db_text(org), db_text(key), db_text(files),
			!strcmp(directories, "[]") ? db_null() : db_text(directories),
			db_int((int64_t)bytes)),
		&rows, err);
	return rc == 0 && !rows.changed
		       ? garret_fail(err, GARRET_NOT_FOUND, "key: there is no such document")
		       : rc;
}

/* ---- at the end of a run ---- */

/* Is another run open, or parked, on the same row? */
static bool alone(struct garret_app_run *run)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = app_query(run->app,
			   "SELECT 1 FROM sandbox_runs WHERE organisation = ?1 AND scope_key = ?2 "
			   "AND run <> ?3",
			   DB_ARGS(db_text(run->facts.organisation), db_text(run->key),
				   db_text(run->facts.run)),
			   &rows, NULL);

	return rc == 0 && !rows.rows;
}

/* The directory of a run's spills, "/tool_output/<run>"; NULL: it is none. */
static char *spill_dir(const char *handle)
{
	static const char root[] = "/tool_output/";
	const char *run = handle + sizeof(root) - 1, *end;

	if (strncmp(handle, root, sizeof(root) - 1) != 0)
		return NULL;
	end = strchr(run, '/');
	return end ? xstrndup(handle, (size_t)(end - handle)) : NULL;
}

static int drop_path(struct garret_app_run *run, const char *path)
{
	int rc = garret_remove(run->bare, path, NULL);

	return rc == -GARRET_NOT_FOUND ? 0 : rc;
}

void app_document_tidy(struct garret_app_run *run)
{
	int rc = 0;

	/* One of a run alone goes with it. */
	if (run->document->memory || run->parent)
		return;
	for (size_t i = 0; i < run->spills->n; i++) {
		autofree char *dir = spill_dir(run->spills->path[i]);

		if (dir && rc == 0)
			rc = drop_path(run, dir);
	}
	/* Skills that another run has staged and still reads stay as long as it. */
	if (rc == 0 && alone(run))
		rc = drop_path(run, "/skills");
	if (rc < 0 && rc != -GARRET_GONE)
		app_event(run->app, "workspace_spill_prune_failed", "run", run->facts.run, "error",
			  garret_code_name(-rc), NULL);
}
