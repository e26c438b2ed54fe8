/* System calls that fail, files that are damaged, and calls that can't be right. */
#include "ground.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/spool_impl.h"
#include "base/mem.h"

/* ---- calls that fail ---- */

static const char *broken; /* that call does, once; with errno ENOSPC */
static bool shortly;       /* a write does the half of it before */

static bool fails(const char *call)
{
	if (!broken || strcmp(broken, call) != 0)
		return false;
	broken = NULL;
	errno = ENOSPC;
	return true;
}

#define FAILING(type, name, parameters, arguments, failure)              \
	type __real_##name parameters;                                   \
	type __wrap_##name parameters;                                   \
	type __wrap_##name parameters                                    \
	{                                                                \
		return fails(#name) ? failure : __real_##name arguments; \
	}

FAILING(int, ftruncate64, (int fd, off_t n), (fd, n), -1)
FAILING(ssize_t, pread64, (int fd, void *buf, size_t n, off_t at), (fd, buf, n, at), -1)
FAILING(int, linkat, (int a, const char *b, int c, const char *d, int e), (a, b, c, d, e), -1)
FAILING(int, mkdirat, (int fd, const char *name, mode_t mode), (fd, name, mode), -1)
FAILING(int, unlinkat, (int fd, const char *name, int flags), (fd, name, flags), -1)
FAILING(int, flock, (int fd, int how), (fd, how), -1)
FAILING(DIR *, fdopendir, (int fd), (fd), NULL)
FAILING(struct garret_workspace *, garret_workspace_dup, (struct garret_workspace * w), (w), NULL)
FAILING(int, garret_provider_attach,
	(struct garret_provider * p, const struct garret_ref *ref, struct garret_workspace **ret,
	 struct garret_error *err),
	(p, ref, ret, err), garret_fail(err, GARRET_EXHAUSTED, "refused"))
FAILING(int, garret_provider_open,
	(struct garret_context * c, struct garret_options *o, struct garret_provider **ret,
	 struct garret_error *err),
	(c, o, ret, err), garret_fail(err, GARRET_EXHAUSTED, "refused"))
FAILING(int, garret_wrap_guarded,
	(struct garret_workspace * w, garret_guard_fn *guard, void *data,
	 struct garret_workspace **ret, struct garret_error *err),
	(w, guard, data, ret, err), garret_fail(err, GARRET_EXHAUSTED, "refused"))

ssize_t __real_write(int fd, const void *buf, size_t n);
ssize_t __wrap_write(int fd, const void *buf, size_t n);
ssize_t __wrap_write(int fd, const void *buf, size_t n)
{
	if (!fails("write"))
		return __real_write(fd, buf, n);
	return shortly ? __real_write(fd, buf, n / 2) : -1;
}

static void refused(int rc, const struct garret_error *err, enum garret_code code,
		    const char *names)
{
	if (rc != -(int)code || err->code != code || !strstr(err->msg, names))
		fail_msg("%s (%s) instead of %s that names %s",
			 rc < 0 ? garret_code_name(-rc) : "OK", err->msg, garret_code_name(code),
			 names);
}

/* ---- the state directory ---- */

static void fresh_state(struct ground *g)
{
	g->app = garret_app_free(g->app);
	assert_int_equal(remove_tree_at(AT_FDCWD, g->dir), 0);
	g->db = db_close(g->db);
	assert_int_equal(mkdir(g->dir, 0700), 0);
	ground_empty(g);
}

TEST(a_state_directory_that_cannot_be_made_whole)
{
	static const struct {
		const char *call, *names;
	} cases[] = {
		{ "write", "the file key" },
		{ "linkat", "the file key" },
		{ "mkdirat", "make spool" },
		{ "flock", "make a spool" },
	};
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		fresh_state(g);
		broken = cases[i].call;
		refused(ground_open(g, &err), &err, GARRET_NO_SPACE, cases[i].names);
		assert_null(g->app);
		must(ground_open(g, &err), &err, "open"); /* as if nothing had been */
	}
	ground_end(g);
}

static void spoil(struct ground *g, const char *name, const char *text)
{
	autofree char *path = xasprintf("%s/app/%s", g->dir, name);
	autofile FILE *f = NULL;

	g->app = garret_app_free(g->app);
	assert_int_equal(remove_tree_at(AT_FDCWD, path), 0);
	if (!text)
		return;
	f = fopen(path, "we");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fchmod(fileno(f), 0600), 0);
}

TEST(a_state_directory_that_is_damaged)
{
	struct ground *g = ground_new();
	autofree char *key = xasprintf("%s/app/key", g->dir), *id = xasprintf("%s/app/id", g->dir),
		      *spool = xasprintf("%s/app/spool", g->dir);
	struct garret_error err = { 0 };

	spoil(g, "key", "short");
	refused(ground_open(g, &err), &err, GARRET_DENIED, "key");
	spoil(g, "key", "this text is longer than a key is, which has 32 bytes");
	refused(ground_open(g, &err), &err, GARRET_DENIED, "key");
	spoil(g, "key", NULL);
	assert_int_equal(symlink("/dev/zero", key), 0);
	assert_true(ground_open(g, &err) < 0);
	assert_non_null(strstr(err.msg, "key"));
	spoil(g, "key", NULL);

	spoil(g, "id", "not an id");
	refused(ground_open(g, &err), &err, GARRET_DENIED, "id");
	spoil(g, "id", NULL);
	assert_int_equal(symlink("nowhere", id), 0);
	assert_true(ground_open(g, &err) < 0);
	assert_non_null(strstr(err.msg, "id"));
	spoil(g, "id", NULL);
	broken = "linkat"; /* the key is there */
	refused(ground_open(g, &err), &err, GARRET_NO_SPACE, "the file id");

	spoil(g, "spool", "a file");
	assert_true(ground_open(g, &err) < 0);
	assert_non_null(strstr(err.msg, "spool"));
	spoil(g, "spool", NULL);
	must(ground_open(g, &err), &err, "open");
	assert_int_equal(access(spool, F_OK), 0);
	ground_end(g);
}

TEST(a_state_directory_that_is_none)
{
	struct ground *g = ground_new();
	autofree char *path = xasprintf("%s/file", g->dir), *below = xasprintf("%s/file/x", g->dir);
	struct garret_app_options o = { .size = sizeof(o),
					.database = g->database,
					.state_dir = below };
	struct garret_error err = { 0 };
	struct garret_app *app = NULL;

	assert_int_equal(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
	refused(garret_app_open(g->context, &o, &app, &err), &err, GARRET_NOT_DIRECTORY,
		"state_dir");
	o.size = 1;
	refused(garret_app_open(g->context, &o, &app, &err), &err, GARRET_MISUSE, "");
	assert_null(app);
	ground_end(g);
}

/* ---- the spool ---- */

static void open_document(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_run(g, GARRET_APP_SCOPE_CONVERSATION, GARRET_APP_STATE, &err), &err, "run");
}

static uint64_t logged(struct ground *g)
{
	struct garret_app_log l;
	struct garret_error err = { 0 };
	uint64_t n;

	must(garret_app_log_query(g->app, g->org, NULL, &l, &err), &err, "log");
	n = l.total;
	garret_app_log_release(&l);
	return n;
}

TEST(a_row_that_cannot_be_written_is_told_and_nothing_is_torn)
{
	struct ground *g = ground_new();

	open_document(g);
	record(g->run, "first");
	for (int i = 0; i < 2; i++) {
		g->events = 0;
		shortly = i != 0;
		broken = "write";
		record(g->run, "not kept");
		assert_int_equal(g->events, 1);
		assert_string_equal(g->event, "sandbox_operation_not_recorded");
		record(g->run, "kept");
	}
	shortly = false;
	assert_int_equal(logged(g), 3);
	ground_end(g);
}

/* The half of a row stays where it is: behind it nothing is written that would not be found. */
TEST(a_file_that_stays_torn_takes_no_more)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	autofree char *data = NULL;
	char name[64];
	size_t n;

	open_document(g);
	record(g->run, "first");
	data = read_spool(g, &n);
	g->app->spool->torn = true;
	g->events = 0;
	record(g->run, "not kept");
	assert_int_equal(g->events, 1);
	assert_int_equal(logged(g), 1);
	g->app->spool->torn = false;
	/* Of a process that died of it: what is whole is brought, and the rest is told. */
	data = xrealloc(data, 2 * n);
	memcpy(data + n, data, n - 1);
	leave_spool(g, data, 2 * n - 1, name);
	g->events = 0;
	assert_int_equal(logged(g), 2);
	assert_int_equal(g->events, 1);
	assert_string_equal(g->event, "sandbox_spool_torn");
	must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
	ground_end(g);
}

TEST(a_full_spool_takes_no_more)
{
	struct ground *g = ground_new();

	open_document(g);
	g->app->event = NULL; /* nobody listens */
	g->app->spool->size += 64 << 20;
	record(g->run, "not kept");
	g->app->spool->size -= 64 << 20;
	assert_int_equal(logged(g), 0);
	ground_end(g);
}

/* Each byte of a row damaged: rows that are as they were, or none. */
TEST(garbage_in_a_spool_makes_no_wrong_rows)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	autofree char *data = NULL;
	char name[64];
	size_t n;

	open_document(g);
	record(g->run, "tärget");
	data = read_spool(g, &n);
	assert_int_equal(logged(g), 1);
	for (size_t i = 0; i < n; i++) {
		const char was = data[i];

		for (int bit = 0; bit < 2; bit++) {
			data[i] = bit ? '\0' : (char)(was ^ 0x80);
			leave_spool(g, data, n, name);
			(void)logged(g); /* it must not fail */
			data[i] = was;
		}
	}
	for (int i = 0; i < 20; i++) {
		char noise[300];

		app_random(noise, 250);
		memset(noise, 0, i % 4);
		noise[0] = (char)(i % 2 ? 250 : 20);
		noise[1] = noise[2] = noise[3] = 0;
		leave_spool(g, noise, 250, name);
		(void)logged(g);
	}
	/* Where its length or a text was hit there is no row.  Whole ones have the shape of one. */
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_operations WHERE "
				  "LENGTH(run) <> 32 OR LENGTH(target) <> 6"),
			 0);
	assert_true(count(g, "SELECT COUNT(*) FROM sandbox_operations") < 100);
	must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
	ground_end(g);
}

TEST(a_spool_that_cannot_be_read_fails_the_query_and_loses_nothing)
{
	static const char *const calls[] = { "pread64", "fdopendir" };
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	struct garret_app_log l;
	autofree char *dir = NULL;

	open_document(g);
	record(g->run, "target");
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		broken = calls[i];
		refused(garret_app_log_query(g->app, g->org, NULL, &l, &err), &err, GARRET_NO_SPACE,
			"");
		assert_int_equal(l.n, 0);
	}
	assert_int_equal(logged(g), 1);
	/* Something of that name that is no file. */
	dir = xasprintf("%s/app/spool/%032d.ops", g->dir, 1);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_true(garret_app_log_query(g->app, g->org, NULL, &l, &err) < 0);
	assert_non_null(strstr(err.msg, "open a spool"));
	assert_int_equal(rmdir(dir), 0);
	assert_int_equal(logged(g), 1);
	ground_end(g);
}

TEST(a_spool_that_cannot_be_removed_is_not_brought_twice)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	autofree char *data = NULL;
	struct garret_app_log l;
	char name[64];
	size_t n;

	open_document(g);
	record(g->run, "target");
	data = read_spool(g, &n);
	leave_spool(g, data, n, name);
	broken = "unlinkat";
	refused(garret_app_log_query(g->app, g->org, NULL, &l, &err), &err, GARRET_NO_SPACE,
		"remove a spool");
	assert_int_equal(logged(g), 2);
	ground_end(g);
}

/* Another process has brought all of it, and has removed the file and its mark. */
TEST(a_spool_that_was_removed_meanwhile_is_not_brought_again)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	char name[64];

	open_document(g);
	record(g->run, "target");
	spool_file_name(g->app->spool->name, name);
	assert_int_equal(unlinkat(g->app->spool->dir_fd, name, 0), 0);
	must(app_spool_flush(g->app, &err), &err, "flush");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_operations"), 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_spools"), 0);
	g->app->spool->drained = g->app->spool->size;
	ground_end(g);
}

TEST(who_was_overtaken_begins_again)
{
	struct ground *g = ground_new();

	open_document(g);
	record(g->run, "one");
	assert_int_equal(logged(g), 1);
	record(g->run, "two");
	/* In the transaction, which is rolled back: then the mark is where it was. */
	meanwhile = (struct meanwhile){ "UPDATE sandbox_spools",
					"UPDATE sandbox_spools SET drained = drained + 1" };
	assert_int_equal(logged(g), 2);
	assert_null(meanwhile.at);
	ground_end(g);
}

TEST(marks_without_a_file_are_dropped_and_others_kept)
{
	struct ground *g = ground_new();
	autofree char *sql = xasprintf("INSERT INTO sandbox_spools(owner, drained) VALUES"
				       "('%s/%032d', 5), ('elsewhere/%032d', 5), ('%sx', 5);",
				       g->app->spool->id, 1, 2, g->app->spool->id);
	struct garret_error err = { 0 };

	open_document(g);
	record(g->run, "target");
	assert_int_equal(logged(g), 1);
	execute(g, sql);
	must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_spools"), 3); /* its own, too */
	execute(g, "DELETE FROM sandbox_spools WHERE drained = 5;");
	ground_end(g);
}

/* ---- handles that can't be had ---- */

TEST(a_run_that_cannot_be_built_leaves_nothing)
{
	static const struct {
		const char *call;
		enum garret_app_backend backend;
		enum garret_code code;
	} cases[] = {
		{ "garret_workspace_dup", GARRET_APP_STATE, GARRET_MISUSE },
		{ "garret_provider_attach", GARRET_APP_STATE, GARRET_EXHAUSTED },
		{ "garret_provider_open", GARRET_APP_STATE, GARRET_EXHAUSTED },
		{ "garret_provider_attach", GARRET_APP_SERVICE, GARRET_EXHAUSTED },
		{ "garret_provider_open", GARRET_APP_SERVICE, GARRET_EXHAUSTED },
		{ "garret_wrap_guarded", GARRET_APP_SERVICE, GARRET_EXHAUSTED },
	};
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	ground_down(g);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		broken = cases[i].call;
		refused(open_run(g, GARRET_APP_SCOPE_AGENT, cases[i].backend, &err), &err,
			cases[i].code, "");
		assert_null(broken);
		assert_null(g->run);
		assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs"), 0);
		must(open_run(g, GARRET_APP_SCOPE_AGENT, cases[i].backend, &err), &err, "open");
		g->run = garret_app_run_close(g->run, 0);
	}
	ground_end(g);
}

TEST(a_run_that_cannot_be_resumed_waits_on)
{
	static const unsigned flags[] = { GARRET_APP_PARKED, GARRET_APP_DETACHED };
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		must(open_run(g, GARRET_APP_SCOPE_RUN, GARRET_APP_STATE, &err), &err, "open");
		must(put(g->run, "f", "1", &err), &err, "write");
		g->run = garret_app_run_close(g->run, flags[i]);
		broken = "garret_provider_attach";
		refused(garret_app_run_resume(g->app, g->org, g->id, &g->run, &err), &err,
			GARRET_EXHAUSTED, "");
		broken = "garret_provider_attach";
		refused(open_run(g, GARRET_APP_SCOPE_RUN, GARRET_APP_STATE, &err), &err,
			GARRET_EXHAUSTED, "");
		must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
		assert_int_equal(count(g, "SELECT parked FROM sandbox_runs"), i + 1);
		must(garret_app_run_resume(g->app, g->org, g->id, &g->run, &err), &err, "resume");
		must(garret_remove(garret_app_run_workspace(g->run), "f", &err), &err, "remove");
		g->run = garret_app_run_close(g->run, 0);
	}
	ground_end(g);
}

TEST(a_delegate_that_cannot_share_is_none)
{
	struct garret_app_delegate d = { .size = sizeof(d), .shares_sandbox = true };
	struct ground *g = ground_new();
	struct garret_app_run *run = NULL;
	struct garret_error err = { 0 };

	open_document(g);
	broken = "garret_workspace_dup";
	refused(garret_app_delegate_open(g->run, &d, g->agent, g->conversation, &run, &err), &err,
		GARRET_MISUSE, "");
	assert_null(run);
	refused(garret_app_delegate_open(g->run, &d, "nobody", g->conversation, &run, &err), &err,
		GARRET_INVALID, "agent");
	d.size = 1;
	refused(garret_app_delegate_open(g->run, &d, g->agent, g->conversation, &run, &err), &err,
		GARRET_MISUSE, "");
	assert_int_equal(garret_app_delegate_choice(&d, true), GARRET_APP_DELEGATE_NONE);
	ground_end(g);
}

/* ---- the database went away with the process ---- */

TEST(a_run_that_could_not_be_closed_is_the_next_processes)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	open_document(g);
	fault = (struct fault){ .at = 1, .on = true, .code = GARRET_UNAVAILABLE };
	g->run = garret_app_run_close(g->run, 0);
	assert_string_equal(g->event, "workspace_run_not_closed");
	refused(open_run(g, GARRET_APP_SCOPE_AGENT, GARRET_APP_STATE, &err), &err,
		GARRET_UNAVAILABLE, "");
	g->app = garret_app_free(g->app);
	memset(&fault, 0, sizeof(fault));
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs"), 1);
	must(ground_open(g, &err), &err, "open");
	must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs"), 0);
	ground_end(g);
}

/* ---- what happens in between ---- */

TEST(a_document_that_is_deleted_while_it_is_saved_is_gone)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	open_document(g);
	meanwhile = (struct meanwhile){ "UPDATE agent_workspaces SET files",
					"DELETE FROM agent_workspaces" };
	refused(put(g->run, "f", "1", &err), &err, GARRET_GONE, "");
	assert_null(meanwhile.at);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM agent_workspaces"), 0);
	ground_end(g);
}

/* What another run saves just before: the files that are there, and n more of its own. */
static char *saved_by_another(struct ground *g, unsigned n)
{
	static const char entry[] = "{\"content\":[\"theirs\"],"
				    "\"created_at\":\"2026-01-01T00:00:00+00:00\","
				    "\"modified_at\":\"2026-01-01T00:00:00+00:00\"}";
	autobuf struct strbuf sql = STRBUF_INIT;
	autofree char *text = NULL;
	struct garret_error err = { 0 };

	must(garret_app_document_get(g->app, g->org, g->key, &text, &err), &err, "document");
	*strstr(text, "},\"directories\"") = '\0';
	strbuf_addf(&sql, "UPDATE agent_workspaces SET version = version + 1, files = '%s",
		    text + strlen("{\"files\":"));
	for (unsigned i = 0; i < n; i++)
		strbuf_addf(&sql, ",\"/t%02u\":%s", i, entry);
	strbuf_addstr(&sql, "}'");
	return strbuf_detach(&sql, NULL);
}

static void reads(struct ground *g, const char *path, const char *text)
{
	struct garret_error err = { 0 };
	struct garret_bytes b = { 0 };

	must(garret_read(garret_app_run_workspace(g->run), path, &b, &err), &err, path);
	assert_string_equal(b.data, text);
	garret_bytes_release(&b);
}

static void is_told(struct ground *g, const char *fields)
{
	assert_int_equal(g->events, 1);
	assert_string_equal(g->event, "workspace_flush_overtaken");
	if (!strstr(g->fields, fields))
		fail_msg("%s isn't in %s", fields, g->fields);
}

TEST(who_was_overtaken_in_a_document_saves_again_and_is_told_of_the_paths)
{
	struct ground *g = ground_new();
	autofree char *sql = NULL;
	struct garret_error err = { 0 };

	open_document(g);
	must(put(g->run, "same", "1", &err), &err, "write");
	sql = saved_by_another(g, 25);
	meanwhile = (struct meanwhile){ "UPDATE agent_workspaces SET files", sql };
	must(put(g->run, "ours", "1", &err), &err, "write");
	assert_null(meanwhile.at);
	/* Twenty of the 26 that differ. */
	is_told(g, "\"loaded\":\"2\",\"found\":\"3\",\"paths\":\"/ours /t00 /t01 /t02 /t03 "
		   "/t04 /t05 /t06 /t07 /t08 /t09 /t10 /t11 /t12 /t13 /t14 /t15 /t16 /t17 "
		   "/t18\"");
	reads(g, "same", "1");
	reads(g, "ours", "1");
	reads(g, "t24", "theirs");
	assert_int_equal(count(g, "SELECT version FROM agent_workspaces"), 4);
	ground_end(g);
}

TEST(who_was_overtaken_in_the_same_file_does_not_overwrite_it)
{
	struct ground *g = ground_new();
	autofree char *sql = NULL;
	struct garret_error err = { 0 };

	open_document(g);
	must(put(g->run, "same", "1", &err), &err, "write");
	sql = saved_by_another(g, 1);
	meanwhile = (struct meanwhile){ "UPDATE agent_workspaces SET files", sql };
	refused(put(g->run, "t00", "ours", &err), &err, GARRET_CHANGED, "t00");
	assert_null(meanwhile.at);
	is_told(g, "\"paths\":\"/t00\"");
	reads(g, "t00", "theirs");
	assert_int_equal(count(g, "SELECT version FROM agent_workspaces"), 3);
	ground_end(g);
}

TEST(a_document_is_not_removed_by_what_works_in_it)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	open_document(g);
	must(put(g->run, "f", "1", &err), &err, "write");
	refused(garret_provider_destroy(g->run->state, &g->run->ref, &err), &err, GARRET_DENIED,
		"");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM agent_workspaces"), 1);
	ground_end(g);
}

TEST(a_session_whose_row_is_deleted_while_it_is_made_is_purged)
{
	struct garret_app_run_info info = { .size = sizeof(info) };
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	ground_down(g);
	must(open_run(g, GARRET_APP_SCOPE_AGENT, GARRET_APP_SERVICE, &err), &err, "open");
	garret_app_run_info(g->run, &info);
	meanwhile = (struct meanwhile){ "UPDATE agent_workspaces SET session_id",
					"DELETE FROM agent_workspaces" };
	must(garret_app_run_report(g->run, &info.ref, false, &err), &err, "report");
	garret_app_run_info(g->run, &info);
	assert_true(info.lost);
	refused(put(g->run, "f", "1", &err), &err, GARRET_GONE, "");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_purges"), 1);
	execute(g, "DELETE FROM sandbox_purges;");
	ground_end(g);
}

TEST(a_name_whose_purge_waits_is_not_used_again)
{
	struct garret_app_run_info info = { .size = sizeof(info) };
	struct garret_app_purge *all = NULL;
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	size_t n = 0;

	ground_down(g);
	must(open_run(g, GARRET_APP_SCOPE_AGENT, GARRET_APP_SERVICE, &err), &err, "open");
	garret_app_run_info(g->run, &info);
	must(garret_app_run_report(g->run, &info.ref, false, &err), &err, "report");
	g->run = garret_app_run_close(g->run, 0);
	must(garret_app_row_remove(g->app, g->org, g->key, &err), &err, "remove");
	must(open_run(g, GARRET_APP_SCOPE_AGENT, GARRET_APP_SERVICE, &err), &err, "open");
	refused(put(g->run, "f", "1", &err), &err, GARRET_UNAVAILABLE, "had this name before");
	/* A code that another version wrote. */
	execute(g, "UPDATE sandbox_purges SET code = 'of another version';");
	must(garret_app_purge_list(g->app, g->org, &all, &n, &err), &err, "purges");
	assert_int_equal(n, 1);
	assert_int_equal(all->code, GARRET_INTERNAL);
	free(all);
	execute(g, "DELETE FROM sandbox_purges;");
	ground_end(g);
}

/* A list of another version's: what isn't below the directory of spills is none, and stays. */
TEST(what_is_no_spill_is_not_removed_as_one)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	autofree char *text = NULL;

	open_document(g);
	must(put(g->run, "elsewhere/ab/f", "1", &err), &err, "write");
	must(put(g->run, "tool_output/run/call.0", "1", &err), &err, "write");
	g->run = garret_app_run_close(g->run, GARRET_APP_PARKED);
	execute(g, "UPDATE sandbox_runs SET spills = "
		   "'[\"/\",\"/elsewhere/ab/f\",\"/tool_output/run/call.0\"]';");
	must(garret_app_run_resume(g->app, g->org, g->id, &g->run, &err), &err, "resume");
	g->run = garret_app_run_close(g->run, 0);
	must(garret_app_document_get(g->app, g->org, g->key, &text, &err), &err, "document");
	assert_non_null(strstr(text, "/elsewhere/ab/f"));
	assert_null(strstr(text, "/tool_output/run"));
	ground_end(g);
}

/* ---- calls that can't be right ---- */

TEST(a_document_has_no_session_to_be_reported)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	open_document(g);
	refused(garret_app_run_report(g->run, NULL, true, &err), &err, GARRET_MISUSE, "document");
	refused(garret_app_run_report(g->run, &g->run->ref, false, &err), &err, GARRET_MISUSE,
		"document");
	must(put(g->run, "f", "1", &err), &err, "write"); /* it isn't lost */
	ground_end(g);
}

TEST(bad_arguments_are_named)
{
	struct garret_app_facts facts = { .size = sizeof(facts) };
	struct garret_app_log_filter filter = { .size = sizeof(filter), .offset = UINT64_MAX };
	struct garret_app_connection c = { .size = sizeof(c), .kind = 99, .name = "c" };
	enum garret_app_connection_kind kind;
	struct garret_app_sandbox sandbox;
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	char upper[37], key[GARRET_APP_KEY];
	struct garret_app_row *row = NULL;
	struct garret_app_log l;
	size_t n = 0;

	facts.organisation = g->org;
	facts.agent = g->agent;
	facts.run = g->id;
	refused(garret_app_log_query(g->app, g->org, &filter, &l, &err), &err, GARRET_INVALID,
		"offset");
	refused(garret_app_connection_put(g->app, g->org, &c, NULL, &err), &err, GARRET_INVALID,
		"kind");
	c.size = 1;
	refused(garret_app_connection_put(g->app, g->org, &c, NULL, &err), &err, GARRET_MISUSE, "");
	refused(garret_app_connection_kind_parse("kubernetes", &kind, &err), &err, GARRET_INVALID,
		"kind");
	assert_string_equal(garret_app_connection_kind_name(99), "unknown");
	assert_string_equal(garret_app_scope_name(99), "unknown");
	refused(garret_app_scope_key(&facts, 99, NULL, key, &err), &err, GARRET_INVALID,
		"session_scope");
	garret_app_sandbox_defaults(&sandbox);
	sandbox.backend = 99;
	sandbox.session_scope = GARRET_APP_SCOPE_AGENT;
	refused(garret_app_run_open(g->app, &facts, &sandbox, &g->run, &err), &err, GARRET_INVALID,
		"backend");
	/* Without options: the defaults, which need a conversation. */
	refused(garret_app_run_open(g->app, &facts, NULL, &g->run, &err), &err, GARRET_INVALID,
		"conversation");
	/* An id in capitals is the same one. */
	open_document(g);
	for (n = 0; g->org[n]; n++)
		upper[n] = (char)(g->org[n] >= 'a' ? g->org[n] - 'a' + 'A' : g->org[n]);
	upper[n] = '\0';
	must(garret_app_row_list(g->app, upper, 0, 10, &row, &n, NULL, &err), &err, "rows");
	assert_int_equal(n, 1);
	free(row);
	ground_end(g);
}

TEST(a_docker_engine_is_not_asked_when_a_run_is_opened)
{
	struct garret_app_connection c = { .size = sizeof(c),
					   .kind = GARRET_APP_DOCKER,
					   .name = "docker",
					   .address = "unix:///nowhere.sock",
					   .runtime = "debian:12" };
	struct ground *g = ground_new();
	struct garret_error err = { 0 };

	must(garret_app_connection_put(g->app, g->org, &c, NULL, &err), &err, "connection");
	must(open_run(g, GARRET_APP_SCOPE_AGENT, GARRET_APP_SERVICE, &err), &err, "open");
	refused(put(g->run, "f", "1", &err), &err, GARRET_UNAVAILABLE, "");
	g->run = garret_app_run_close(g->run, 0);
	execute(g, "DELETE FROM sandbox_runs; DELETE FROM agent_workspaces;");
	ground_end(g);
}

TEST_MAIN
