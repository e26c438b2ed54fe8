#include "ground.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/spool_impl.h"
#include "base/mem.h"
#include "db/db_impl.h"

struct fault fault;
struct meanwhile meanwhile;

/* ---- a database that fails ---- */

void must(int rc, const struct garret_error *err, const char *what)
{
	if (rc < 0)
		fail_msg("%s: %s: %s", what, garret_code_name(-rc), err->msg);
}

int __real_db_open(const char *url, struct db **ret, struct garret_error *err);
int __wrap_db_open(const char *url, struct db **ret, struct garret_error *err);

static const struct db_ops *real;
static struct db_ops faulty;

/* A ROLLBACK is the way out, and is never refused. */
static bool due(const char *sql)
{
	if (!fault.at || !strncmp(sql, "ROLLBACK", 8) || (fault.only && !strstr(sql, fault.only)))
		return false;
	fault.seen++;
	if (fault.seen != fault.at && !(fault.on && fault.seen > fault.at))
		return false;
	fault.hit = true;
	return true;
}

static int refuse(struct garret_error *err)
{
	return garret_fail(err, fault.code, "database: refused by the test");
}

static int faulty_query(struct db *db, const char *sql, const struct db_value *args, size_t n_args,
			struct db_rows *ret, struct garret_error *err)
{
	if (meanwhile.at && strstr(sql, meanwhile.at)) {
		meanwhile.at = NULL;
		must(real->query(db, meanwhile.sql, DB_NO_ARGS, NULL, err), err, meanwhile.sql);
	}
	return due(sql) ? refuse(err) : real->query(db, sql, args, n_args, ret, err);
}

static int faulty_script(struct db *db, const char *sql, struct garret_error *err)
{
	return due(sql) ? refuse(err) : real->script(db, sql, err);
}

static int faulty_describe(struct db *db, struct strbuf *out, struct garret_error *err)
{
	return due("describe") ? refuse(err) : real->describe(db, out, err);
}

int __wrap_db_open(const char *url, struct db **ret, struct garret_error *err)
{
	int rc = due("open") ? refuse(err) : __real_db_open(url, ret, err);

	if (rc < 0)
		return rc;
	if (!real) {
		real = (*ret)->ops;
		faulty = *real;
		faulty.query = faulty_query;
		faulty.script = faulty_script;
		faulty.describe = faulty_describe;
	}
	(*ret)->ops = &faulty;
	return 0;
}

/* ---- what must work ---- */

/* A connection of the test's own, whose statements never fail. */
static struct db *own(struct ground *g)
{
	struct garret_error err = { 0 };

	if (!g->db)
		must(__real_db_open(g->database, &g->db, &err), &err, "open");
	return g->db;
}

void execute(struct ground *g, const char *sql)
{
	struct garret_error err = { 0 };

	must(db_script(own(g), sql, &err), &err, sql);
}

int64_t count(struct ground *g, const char *sql)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	struct garret_error err = { 0 };

	must(db_query(own(g), sql, DB_NO_ARGS, &rows, &err), &err, sql);
	return rows.rows ? db_get_int(&rows, 0, 0) : 0;
}

void ground_empty(struct ground *g)
{
	if (strncmp(g->database, "sqlite:", 7) != 0) {
		execute(g, "DROP SCHEMA public CASCADE; CREATE SCHEMA public;");
		return;
	}
	g->db = db_close(g->db);
	(void)remove(g->database + 7);
}

/* What another test left on the server: its rows, or, where its schema isn't this one, all. */
static void clean(struct ground *g)
{
	if (db_script(own(g),
		      "DELETE FROM sandbox_connections; DELETE FROM agent_workspaces; DELETE FROM "
		      "sandbox_operations; DELETE FROM sandbox_runs; DELETE FROM sandbox_purges; "
		      "DELETE FROM sandbox_spools;",
		      NULL) < 0)
		ground_empty(g);
}

/* ---- ground ---- */

static void on_event(void *data, const char *event, const char *fields)
{
	struct ground *g = data;

	g->events++;
	(void)snprintf(g->event, sizeof(g->event), "%s", event);
	(void)snprintf(g->fields, sizeof(g->fields), "%s", fields);
}

static int open_in(struct ground *g, const char *state, struct garret_app **ret,
		   struct garret_error *err)
{
	char dir[64];
	const struct garret_app_options o = { .size = sizeof(o),
					      .database = g->database,
					      .state_dir = dir,
					      .event = on_event,
					      .event_data = g };

	(void)snprintf(dir, sizeof(dir), "%s/%s", g->dir, state);
	return garret_app_open(g->context, &o, ret, err);
}

int ground_open(struct ground *g, struct garret_error *err)
{
	return open_in(g, "app", &g->app, err);
}

struct garret_app *ground_another(struct ground *g)
{
	struct garret_error err = { 0 };
	struct garret_app *app = NULL;

	must(open_in(g, "app", &app, &err), &err, "another app");
	return app;
}

static void find_programs(char ret[4096])
{
	ssize_t n = readlink("/proc/self/exe", ret, 4095);

	assert_true(n > 0);
	ret[n] = '\0';
	for (int up = 0; up < 4; up++) /* BUILD/tests/app/fault/PROGRAM */
		*strrchr(ret, '/') = '\0';
}

struct ground *ground_new(void)
{
	const char *url = getenv("GARRET_TEST_POSTGRES");
	struct ground *g = xnew(struct ground);
	struct garret_error err = { 0 };
	char programs[4096];
	struct garret_context_options o = { .size = sizeof(o), .program_dir = programs };

	memset(&fault, 0, sizeof(fault));
	find_programs(programs);
	(void)snprintf(g->dir, sizeof(g->dir), "/tmp/garret-fault-XXXXXX");
	assert_non_null(mkdtemp(g->dir));
	if (url)
		(void)snprintf(g->database, sizeof(g->database), "%s", url);
	else
		(void)snprintf(g->database, sizeof(g->database), "sqlite:%s/db", g->dir);
	if (url)
		clean(g);
	app_new_id(g->org);
	app_new_id(g->agent);
	app_new_id(g->conversation);
	app_new_id(g->id);
	must(garret_context_new(&o, &g->context, &err), &err, "context");
	must(ground_open(g, &err), &err, "app");
	return g;
}

static unsigned entries(const char *dir, const char *name)
{
	autofree char *path = xasprintf("%s/%s", dir, name);
	autodir DIR *d = opendir(path);
	unsigned n = 0;

	while (d && readdir(d))
		n++;
	return n > 2 ? n - 2 : 0;
}

static void check_free(struct garret_app *app)
{
	assert_false(app->db->in_transaction);
	assert_int_equal(pthread_mutex_trylock(&app->lock), 0);
	(void)pthread_mutex_unlock(&app->lock);
	assert_int_equal(pthread_mutex_trylock(&app->place_lock), 0);
	(void)pthread_mutex_unlock(&app->place_lock);
}

void ground_end(struct ground *g)
{
	struct garret_app_swept swept = { .size = sizeof(swept) };
	struct garret_app_row *row;
	struct garret_error err = { 0 };
	uint64_t total;
	size_t n;

	memset(&fault, 0, sizeof(fault));
	if (!g->app)
		must(ground_open(g, &err), &err, "app");
	check_free(g->app);
	g->run = garret_app_run_close(g->run, 0);
	execute(g, "UPDATE sandbox_purges SET next_at = 0;");
	must(garret_app_sweep(g->app, &swept, &err), &err, "sweep");
	must(garret_app_row_list(g->app, g->org, 0, 1000, &row, &n, &total, &err), &err, "rows");
	for (size_t i = 0; i < n; i++)
		must(garret_app_row_remove(g->app, g->org, row[i].key, &err), &err, "remove");
	free(row);
	assert_int_equal(g->app->runs, 0);
	assert_true(list_empty(&g->app->places));
	assert_true(list_empty(&g->app->unclosed));
	g->app = garret_app_free(g->app);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs"), 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_purges"), 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_spools"), 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM agent_workspaces"), 0);
	assert_int_equal(entries(g->dir, "app/spool"), 0);
	assert_int_equal(entries(g->dir, "native"), 0);
	assert_int_equal(entries(g->dir, "app"), 3); /* key, id, spool */
	assert_null(garret_context_free(g->context));
	db_close(g->db);
	assert_int_equal(remove_tree_at(AT_FDCWD, g->dir), 0);
	free(g);
}

static void connect_to(struct ground *g, enum garret_app_connection_kind kind, const char *address,
		       const char *token)
{
	struct garret_app_connection c = { .size = sizeof(c), .kind = kind, .name = "host" };
	struct garret_error err = { 0 };

	app_copy(c.address, sizeof(c.address), address);
	must(garret_app_connection_put(g->app, g->org, &c, token, &err), &err, "connection");
	app_copy(g->connection, sizeof(g->connection), c.id);
}

bool ground_native(struct ground *g)
{
	autofree char *dir = xasprintf("%s/native", g->dir);

	if (geteuid() != 0)
		return false;
	assert_int_equal(mkdir(dir, 0700), 0);
	connect_to(g, GARRET_APP_NATIVE, dir, NULL);
	return true;
}

void ground_down(struct ground *g)
{
	connect_to(g, GARRET_APP_SANDBOXD, "http://127.0.0.1:1", "token");
}

int open_run(struct ground *g, enum garret_app_scope scope, enum garret_app_backend backend,
	     struct garret_error *err)
{
	const struct garret_app_facts facts = { .size = sizeof(facts),
						.organisation = g->org,
						.agent = g->agent,
						.run = g->id,
						.conversation = g->conversation,
						.channel = "C1",
						.user = "U1" };
	struct garret_app_run_info info = { .size = sizeof(info) };
	struct garret_app_sandbox sandbox;
	int rc;

	garret_app_sandbox_defaults(&sandbox);
	sandbox.backend = backend;
	sandbox.session_scope = scope;
	rc = garret_app_run_open(g->app, &facts, &sandbox, &g->run, err);
	if (rc < 0)
		return rc;
	garret_app_run_info(g->run, &info);
	app_copy(g->key, sizeof(g->key), info.key);
	return 0;
}

int put(struct garret_app_run *run, const char *path, const char *text, struct garret_error *err)
{
	return garret_write(garret_app_run_workspace(run), path, text, strlen(text), 0, err);
}

void record(struct garret_app_run *run, const char *target)
{
	const struct app_operation o = {
		.op = "read", .target = target, .detail = "", .ok = true, .seconds = 0.001
	};

	app_spool_add(run, &o);
}

char *read_spool(struct ground *g, size_t *ret_n)
{
	struct app_spool *s = g->app->spool;
	char *data = xmalloc(s->size + 1);

	assert_int_equal(pread(s->fd, data, s->size, 0), (ssize_t)s->size);
	*ret_n = s->size;
	return data;
}

void leave_spool(struct ground *g, const void *data, size_t n, char ret[64])
{
	char id[GARRET_APP_ID];
	autoclose int fd = -EBADF;

	app_new_id(id);
	spool_file_name(id, ret);
	fd = openat(g->app->spool->dir_fd, ret, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write_full(fd, data, n), 0);
}

/* ---- each statement fails ---- */

static const struct fault modes[] = {
	{ .code = GARRET_UNAVAILABLE },
	{ .code = GARRET_NO_SPACE },
	{ .code = GARRET_UNAVAILABLE, .on = true },
	{ .code = GARRET_EXISTS, .only = "INSERT" },
};

/* False: act() has fewer statements. */
static bool once(const struct scenario *s, struct fault mode, unsigned at)
{
	struct garret_error err = { 0 };
	struct ground *g = ground_new();
	bool hit;
	int rc;

	if (s->native)
		assert_true(ground_native(g));
	if (s->prepare)
		s->prepare(g);
	g->events = 0;
	mode.at = at;
	fault = mode;
	rc = s->act(g, &err);
	hit = fault.hit;
	memset(&fault, 0, sizeof(fault));
	if (g->app)
		check_free(g->app);
	if (rc < 0) {
		if (!hit || rc != -(int)mode.code || err.code != mode.code)
			fail_msg("%s, statement %u: %s: %s", s->name, at, garret_code_name(-rc),
				 err.msg);
		must(s->act(g, &err), &err, s->name);
	} else if (hit && !g->events && mode.code != GARRET_EXISTS) {
		fail_msg("%s, statement %u: nobody was told", s->name, at);
	}
	if (s->check)
		s->check(g);
	ground_end(g);
	return hit;
}

void everywhere(const struct scenario *s)
{
	unsigned statements = 0;

	if (s->native && geteuid() != 0) {
		print_message("skipped: %s: sessions of this machine need root\n", s->name);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		unsigned at = 1;

		while (once(s, modes[i], at))
			assert_true(++at < 300);
		statements += at - 1;
	}
	assert_true(statements);
}
