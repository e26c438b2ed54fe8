/* Many at once: threads of one app, sweepers, and processes that share a state directory. */
#include "ground.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"

#define THREADS 8
#define TURNS 12
#define RECORDS 10

struct worker {
	struct ground *g;
	struct garret_app *app;
	enum garret_app_backend backend;
	bool own_key;
	unsigned number, failed, changed;
	uint64_t swept;
	struct garret_error err;
};

static void in_threads(struct worker *w, size_t n, void *(*work)(void *))
{
	pthread_t thread[THREADS];

	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	for (size_t i = 0; i < n; i++)
		if (w[i].failed)
			fail_msg("%u failed, the last: %s", w[i].failed, w[i].err.msg);
}

static void note(struct worker *w, int rc)
{
	/* Who was overtaken in a document is told so. */
	if (rc == -GARRET_CHANGED)
		w->changed++;
	else
		w->failed += rc < 0;
}

static void *work(void *data)
{
	struct worker *w = data;
	char run_id[GARRET_APP_ID], path[64];
	const char *conversation = w->g->conversation;
	char own[GARRET_APP_ID];

	(void)snprintf(own, sizeof(own), "%032u", w->number);
	for (unsigned turn = 0; turn < TURNS; turn++) {
		const struct garret_app_facts facts = { .size = sizeof(facts),
							.organisation = w->g->org,
							.agent = w->g->agent,
							.run = run_id,
							.conversation =
								w->own_key ? own : conversation };
		struct garret_app_sandbox sandbox;
		struct garret_app_run *run = NULL;
		struct garret_app_log l;
		int rc;

		app_new_id(run_id);
		garret_app_sandbox_defaults(&sandbox);
		sandbox.backend = w->backend;
		rc = garret_app_run_open(w->app, &facts, &sandbox, &run, &w->err);
		note(w, rc);
		if (rc < 0)
			continue;
		(void)snprintf(path, sizeof(path), "d%u/f%u", w->number, turn);
		note(w, put(run, path, "text", &w->err));
		for (int i = 0; w->backend == GARRET_APP_STATE && i < RECORDS; i++)
			record(run, path);
		if (turn % 4 == 0) {
			note(w, garret_app_log_query(w->app, w->g->org, NULL, &l, &w->err));
			garret_app_log_release(&l);
		}
		if (turn % 5 == 0)
			note(w, garret_app_sweep(w->app, NULL, &w->err));
		garret_app_run_close(run, 0);
	}
	return NULL;
}

static void threads_of_one(bool own_key, enum garret_app_backend backend)
{
	struct ground *g = ground_new();
	struct worker w[THREADS];
	struct garret_error err = { 0 };
	unsigned changed = 0;

	memset(w, 0, sizeof(w));
	if (backend == GARRET_APP_SERVICE && !ground_native(g)) {
		print_message("skipped: sessions of this machine need root\n");
		ground_end(g);
		return;
	}
	for (unsigned i = 0; i < THREADS; i++)
		w[i] = (struct worker){
			.g = g, .app = g->app, .backend = backend, .own_key = own_key, .number = i
		};
	in_threads(w, THREADS, work);
	for (unsigned i = 0; i < THREADS; i++)
		changed += w[i].changed;
	must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs"), 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM agent_workspaces"), own_key ? THREADS : 1);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_operations"),
			 backend == GARRET_APP_STATE ? THREADS * TURNS * RECORDS : THREADS * TURNS);
	assert_int_equal(count(g, "SELECT COUNT(DISTINCT run) FROM sandbox_operations"),
			 THREADS * TURNS);
	assert_true(changed < THREADS * TURNS);
	ground_end(g);
}

TEST(threads_on_one_document)
{
	threads_of_one(false, GARRET_APP_STATE);
}

TEST(threads_on_many_documents)
{
	threads_of_one(true, GARRET_APP_STATE);
}

TEST(threads_in_one_session)
{
	threads_of_one(false, GARRET_APP_SERVICE);
}

TEST(threads_in_many_sessions)
{
	threads_of_one(true, GARRET_APP_SERVICE);
}

/* ---- sweepers ---- */

#define ORPHANS 30

static void *sweep(void *data)
{
	struct worker *w = data;
	struct garret_app_swept swept = { .size = sizeof(swept) };

	note(w, garret_app_sweep(w->app, &swept, &w->err));
	w->swept = swept.runs;
	return NULL;
}

TEST(each_run_is_swept_by_one_sweeper)
{
	struct ground *g = ground_new();
	struct garret_error err = { 0 };
	struct worker w[4];

	memset(w, 0, sizeof(w));
	for (int i = 0; i < ORPHANS; i++) {
		app_new_id(g->id);
		must(open_run(g, GARRET_APP_SCOPE_AGENT, GARRET_APP_STATE, &err), &err, "open");
		g->run = garret_app_run_close(g->run, GARRET_APP_DETACHED);
	}
	execute(g, "UPDATE sandbox_runs SET parked = 0, owner = 'gone/gone', seen_at = 0;");
	for (unsigned i = 0; i < 4; i++)
		w[i] = (struct worker){ .g = g, .app = i < 2 ? g->app : ground_another(g) };
	in_threads(w, 4, sweep);
	assert_int_equal(w[0].swept + w[1].swept + w[2].swept + w[3].swept, ORPHANS);
	garret_app_free(w[2].app);
	garret_app_free(w[3].app);
	ground_end(g);
}

/* ---- processes that share a state directory ---- */

#define MANY 6000

/* Reads the log, so that it brings the other's spool, until it is told to end. */
static int reader(int from)
{
	struct garret_app_options o = { .size = sizeof(o) };
	struct garret_context *c = NULL;
	struct garret_app *app = NULL;
	struct garret_error err = { 0 };
	char text[1024], *database, *org, more;
	struct garret_app_log l;
	int rc = 0;

	if (read(from, text, sizeof(text)) != sizeof(text) ||
	    garret_context_new(NULL, &c, &err) < 0)
		return 1;
	database = text + strlen(text) + 1;
	org = database + strlen(database) + 1;
	o.state_dir = text;
	o.database = database;
	rc = garret_app_open(c, &o, &app, &err);
	while (rc == 0) {
		rc = garret_app_log_query(app, org, NULL, &l, &err);
		if (rc == 0)
			garret_app_log_release(&l);
		if (recv(from, &more, 1, MSG_DONTWAIT) == 0)
			break;
	}
	if (rc < 0)
		print_error("reader: %s\n", err.msg);
	garret_app_free(app);
	(void)garret_context_free(c);
	return rc < 0;
}

TEST(another_process_brings_the_same_spool)
{
	int pair[2], status;
	char text[1024] = { 0 };
	struct ground *g;
	struct garret_error err = { 0 };
	size_t n;
	pid_t child;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	child = fork(); /* before there is anything that a child mustn't use */
	assert_true(child >= 0);
	if (!child) {
		(void)close(pair[0]);
		_exit(reader(pair[1]));
	}
	(void)close(pair[1]);
	g = ground_new();
	n = (size_t)snprintf(text, sizeof(text), "%s/app", g->dir) + 1;
	n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", g->database) + 1;
	(void)snprintf(text + n, sizeof(text) - n, "%s", g->org);
	assert_int_equal(write(pair[0], text, sizeof(text)), sizeof(text));
	must(open_run(g, GARRET_APP_SCOPE_AGENT, GARRET_APP_STATE, &err), &err, "open");
	for (int i = 0; i < MANY; i++) {
		record(g->run, "target");
		if (i % 500 == 0)
			must(app_spool_flush(g->app, &err), &err, "flush");
	}
	must(app_spool_drain(g->app, &err), &err, "drain");
	(void)close(pair[0]);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_operations"), MANY);
	ground_end(g);
}

TEST_MAIN
