/* Each public call that needs no environment, with each of its statements failing. */
#include "ground.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- the application itself ---- */

static void closed(struct ground *g)
{
	g->app = garret_app_free(g->app);
	ground_empty(g);
}

TEST(fault_open)
{
	everywhere(&(struct scenario){ "open", closed, ground_open, NULL, false });
}

static int migrate(struct ground *g, struct garret_error *err)
{
	autofree char *at = NULL;
	int rc = garret_app_migrate(g->database, "0002_workspace_directories", &at, err);

	if (rc == 0)
		rc = garret_app_migrate(g->database, NULL, NULL, err);
	return rc;
}

static void migrated(struct ground *g)
{
	struct garret_error err = { 0 };
	autofree char *at = NULL;

	must(garret_app_migrate(g->database, NULL, &at, &err), &err, "migrate");
	assert_string_equal(at, app_steps[app_n_steps - 1].name);
}

static void close_app(struct ground *g)
{
	g->app = garret_app_free(g->app);
}

TEST(fault_migrate)
{
	everywhere(&(struct scenario){ "migrate", close_app, migrate, migrated, false });
}

static int schema(struct ground *g, struct garret_error *err)
{
	char *text = NULL;
	int rc = garret_app_schema(g->database, &text, err);

	assert_int_equal(text != NULL, rc == 0);
	free(text);
	return rc;
}

TEST(fault_schema)
{
	everywhere(&(struct scenario){ "schema", NULL, schema, NULL, false });
}

/* ---- connections ---- */

static int put_connection(struct ground *g, struct garret_error *err)
{
	struct garret_app_connection c = { .size = sizeof(c),
					   .kind = GARRET_APP_SANDBOXD,
					   .name = "new",
					   .address = "http://127.0.0.1:1",
					   .is_default = true };
	int rc = garret_app_connection_put(g->app, g->org, &c, "secret", err);

	assert_true(rc < 0 ? !*c.id : *c.id && c.is_default && c.has_token);
	return rc;
}

static void one_default(struct ground *g)
{
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_connections"), 2);
	assert_int_equal(count(g,
			       "SELECT COUNT(*) FROM sandbox_connections WHERE is_default = 1 AND "
			       "name = 'new'"),
			 1);
}

TEST(fault_connection_put)
{
	everywhere(&(struct scenario){ "connection_put", ground_down, put_connection, one_default,
				       false });
}

static int change_connection(struct ground *g, struct garret_error *err)
{
	struct garret_app_connection c = { .size = sizeof(c),
					   .kind = GARRET_APP_DOCKER,
					   .name = "changed",
					   .address = "unix:///run/nowhere.sock" };
	int rc;

	app_copy(c.id, sizeof(c.id), g->connection);
	rc = garret_app_connection_put(g->app, g->org, &c, "", err);
	assert_true(rc < 0 || (c.is_default && !c.has_token));
	return rc;
}

static void changed(struct ground *g)
{
	assert_int_equal(count(g,
			       "SELECT COUNT(*) FROM sandbox_connections WHERE token IS NULL AND "
			       "kind = 'docker' AND name = 'changed' AND changes = 2"),
			 1);
}

TEST(fault_connection_change)
{
	everywhere(&(struct scenario){ "connection_put", ground_down, change_connection, changed,
				       false });
}

static int read_connections(struct ground *g, struct garret_error *err)
{
	struct garret_app_connection c = { .size = sizeof(c) }, *all = NULL;
	size_t n = 7;
	int rc = garret_app_connection_get(g->app, g->org, NULL, &c, err);

	if (rc == 0)
		rc = garret_app_connection_get(g->app, g->org, g->connection, &c, err);
	if (rc == 0)
		rc = garret_app_connection_list(g->app, g->org, &all, &n, err);
	assert_true(rc < 0 ? !all && (n == 7 || n == 0) : n == 1);
	free(all);
	return rc;
}

TEST(fault_connection_read)
{
	everywhere(
		&(struct scenario){ "connection_get", ground_down, read_connections, NULL, false });
}

static int remove_connection(struct ground *g, struct garret_error *err)
{
	return garret_app_connection_remove(g->app, g->org, g->connection, err);
}

TEST(fault_connection_remove)
{
	everywhere(&(struct scenario){ "connection_remove", ground_down, remove_connection, NULL,
				       false });
}

/* ---- rows and documents ---- */

static void written(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_run(g, GARRET_APP_SCOPE_CONVERSATION, GARRET_APP_STATE, &err), &err, "run");
	must(put(g->run, "seed", "planted", &err), &err, "write");
	g->run = garret_app_run_close(g->run, 0);
	app_new_id(g->id);
}

static int read_rows(struct ground *g, struct garret_error *err)
{
	struct garret_app_row row, *all = NULL;
	uint64_t total = 0;
	size_t n = 0;
	char *text = NULL;
	int rc = garret_app_row_list(g->app, g->org, 0, 10, &all, &n, &total, err);

	assert_true(rc < 0 ? !all && !n : n == 1 && total == 1);
	free(all);
	if (rc == 0)
		rc = garret_app_row_get(g->app, g->org, g->key, &row, err);
	if (rc == 0)
		rc = garret_app_document_get(g->app, g->org, g->key, &text, err);
	assert_int_equal(text != NULL, rc == 0);
	free(text);
	return rc;
}

TEST(fault_rows)
{
	everywhere(&(struct scenario){ "row_list", written, read_rows, NULL, false });
}

static int remove_row(struct ground *g, struct garret_error *err)
{
	return garret_app_row_remove(g->app, g->org, g->key, err);
}

static int remove_conversation(struct ground *g, struct garret_error *err)
{
	size_t n = 7;
	int rc = garret_app_conversation_remove(g->app, g->org, g->conversation, &n, err);

	assert_int_equal(n, rc == 0 ? 1 : 0);
	return rc;
}

static void no_row(struct ground *g)
{
	assert_int_equal(count(g, "SELECT COUNT(*) FROM agent_workspaces"), 0);
}

/* The purge of what was deleted is tried at once; what fails there is the sweeper's, and no event. */
static int remove_row_quietly(struct ground *g, struct garret_error *err)
{
	int rc = remove_row(g, err);

	if (rc == 0)
		g->events++;
	return rc;
}

static int remove_conversation_quietly(struct ground *g, struct garret_error *err)
{
	int rc = remove_conversation(g, err);

	if (rc == 0)
		g->events++;
	return rc;
}

TEST(fault_row_remove)
{
	everywhere(&(struct scenario){ "row_remove", written, remove_row_quietly, no_row, false });
	everywhere(&(struct scenario){ "conversation_remove", written, remove_conversation_quietly,
				       no_row, false });
}

static int put_document(struct ground *g, struct garret_error *err)
{
	return garret_app_document_put(g->app, g->org, g->key,
				       "{\"files\":{},\"directories\":[\"/d\"]}", err);
}

static void document_is_put(struct ground *g)
{
	struct garret_error err = { 0 };
	autofree char *text = NULL;

	must(garret_app_document_get(g->app, g->org, g->key, &text, &err), &err, "document");
	assert_string_equal(text, "{\"files\":{},\"directories\":[\"/d\"]}");
}

TEST(fault_document_put)
{
	everywhere(&(struct scenario){ "document_put", written, put_document, document_is_put,
				       false });
}

static int look_in(struct ground *g, struct garret_error *err)
{
	struct garret_app_run *visit = NULL;
	struct garret_bytes b = { 0 };
	int rc = garret_app_visit(g->app, g->org, g->key, &visit, err);

	if (rc == 0)
		rc = garret_read(garret_app_run_workspace(visit), "seed", &b, err);
	if (rc == 0)
		assert_int_equal(b.n, 7);
	garret_bytes_release(&b);
	garret_app_run_close(visit, 0);
	return rc;
}

TEST(fault_visit)
{
	everywhere(&(struct scenario){ "visit", written, look_in, NULL, false });
}

/* ---- the log ---- */

static void recorded(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_run(g, GARRET_APP_SCOPE_CONVERSATION, GARRET_APP_STATE, &err), &err, "run");
	for (int i = 0; i < 120; i++)
		record(g->run, "file");
}

static int query_log(struct ground *g, struct garret_error *err)
{
	struct garret_app_log l;
	int rc = garret_app_log_query(g->app, g->org, NULL, &l, err);

	if (rc == 0)
		assert_int_equal(l.total, 120);
	assert_int_equal(l.n, rc == 0 ? 100 : 0);
	garret_app_log_release(&l);
	return rc;
}

static int name_log(struct ground *g, struct garret_error *err)
{
	autofree char *names = NULL;
	int rc = garret_app_log_names(g->app, g->org, &names, err);

	if (rc == 0)
		assert_string_equal(names, "[\"read\"]");
	return rc;
}

static void all_there(struct ground *g)
{
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_operations"), 120);
}

TEST(fault_log)
{
	everywhere(&(struct scenario){ "log_query", recorded, query_log, all_there, false });
	everywhere(&(struct scenario){ "log_names", recorded, name_log, all_there, false });
}

/* A process that was killed: its spool is there, and nobody holds it. */
static void left_spool(struct ground *g)
{
	autofree char *data = NULL;
	char name[64];
	size_t n;

	recorded(g);
	data = read_spool(g, &n);
	leave_spool(g, data, n, name);
}

static void both_are_there(struct ground *g)
{
	struct garret_error err = { 0 };

	must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_operations"), 240);
}

static int sweep(struct ground *g, struct garret_error *err)
{
	struct garret_app_swept swept = { .size = sizeof(swept) };

	int rc = garret_app_sweep(g->app, &swept, err);

	g->events += (unsigned)swept.waiting; /* told so */
	return rc;
}

/* ---- purges ---- */

static void queued(struct ground *g)
{
	struct garret_error err = { 0 };
	struct garret_app_run_info info = { .size = sizeof(info) };

	ground_down(g);
	must(open_run(g, GARRET_APP_SCOPE_CONVERSATION, GARRET_APP_SERVICE, &err), &err, "run");
	garret_app_run_info(g->run, &info);
	must(garret_app_run_report(g->run, &info.ref, false, &err), &err, "report");
	g->run = garret_app_run_close(g->run, 0);
	must(remove_conversation(g, &err), &err, "remove");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_purges"), 1);
	execute(g, "UPDATE sandbox_purges SET next_at = 0;");
}

static int list_purges(struct ground *g, struct garret_error *err)
{
	struct garret_app_purge *all = NULL;
	size_t n = 7;
	int rc = garret_app_purge_list(g->app, g->org, &all, &n, err);

	assert_int_equal(n, rc == 0 ? 1 : 0);
	free(all);
	return rc;
}

static void unqueue(struct ground *g)
{
	execute(g, "DELETE FROM sandbox_purges;");
}

TEST(fault_purges)
{
	everywhere(&(struct scenario){ "purge_list", queued, list_purges, unqueue, false });
	everywhere(&(struct scenario){ "sweep of a purge", queued, sweep, unqueue, false });
}

static void forgotten(struct ground *g)
{
	struct garret_error err = { 0 };

	queued(g);
	must(remove_connection(g, &err), &err, "disconnect");
}

static int sweep_due(struct ground *g, struct garret_error *err)
{
	execute(g, "UPDATE sandbox_purges SET next_at = 0;");
	return sweep(g, err);
}

static void purge_is_gone(struct ground *g)
{
	struct garret_error err = { 0 };

	must(sweep_due(g, &err), &err, "sweep");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_purges"), 0);
}

TEST(fault_purge_of_a_forgotten_connection)
{
	everywhere(&(struct scenario){ "sweep", forgotten, sweep_due, purge_is_gone, false });
}

TEST(fault_sweep_of_a_spool)
{
	everywhere(
		&(struct scenario){ "sweep of a spool", left_spool, sweep, both_are_there, false });
}

TEST_MAIN
