/* Runs, with each statement of each part of their lives failing. */
#include "ground.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static int open_document(struct ground *g, struct garret_error *err)
{
	return open_run(g, GARRET_APP_SCOPE_CONVERSATION, GARRET_APP_STATE, err);
}

static int open_session(struct ground *g, struct garret_error *err)
{
	return open_run(g, GARRET_APP_SCOPE_USER, GARRET_APP_SERVICE, err);
}

static int open_own(struct ground *g, struct garret_error *err)
{
	return open_run(g, GARRET_APP_SCOPE_RUN, GARRET_APP_SERVICE, err);
}

static void is_open(struct ground *g)
{
	struct garret_error err = { 0 };
	struct garret_app_run *first = g->run;

	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs"), 1);
	assert_int_equal(open_document(g, &err), -GARRET_CONFLICT);
	g->run = first;
}

/* ---- opening ---- */

/* One that ended while the database took nothing: its row says that it is open, and ours. */
static void could_not_be_closed(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_document(g, &err), &err, "open");
	fault = (struct fault){ .at = 1, .on = true, .code = GARRET_UNAVAILABLE };
	g->run = garret_app_run_close(g->run, 0);
	memset(&fault, 0, sizeof(fault));
	assert_false(list_empty(&g->app->unclosed));
}

TEST(fault_run_open)
{
	everywhere(&(struct scenario){ "open", NULL, open_document, is_open, false });
	everywhere(
		&(struct scenario){ "open", could_not_be_closed, open_document, is_open, false });
	everywhere(&(struct scenario){ "open", ground_down, open_session, is_open, false });
	everywhere(&(struct scenario){ "open", ground_down, open_own, is_open, false });
}

/* A run that waits, with what it had in memory. */
static int open_memory(struct ground *g, struct garret_error *err)
{
	return open_run(g, GARRET_APP_SCOPE_RUN, GARRET_APP_STATE, err);
}

static void parked(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_memory(g, &err), &err, "open");
	must(put(g->run, "seed", "planted", &err), &err, "write");
	g->run = garret_app_run_close(g->run, GARRET_APP_PARKED);
}

static void has_seed(struct ground *g)
{
	struct garret_error err = { 0 };
	struct garret_bytes b = { 0 };

	must(garret_read(garret_app_run_workspace(g->run), "seed", &b, &err), &err, "read");
	assert_string_equal(b.data, "planted");
	garret_bytes_release(&b);
}

TEST(fault_parked_run_open)
{
	everywhere(&(struct scenario){ "open", parked, open_memory, has_seed, false });
}

/* ---- delegates ---- */

static void parent_is_open(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_document(g, &err), &err, "open");
	app_new_id(g->id);
}

static int delegate(struct ground *g, struct garret_error *err)
{
	struct garret_app_sandbox own;
	struct garret_app_delegate d = { .size = sizeof(d), .binding = &own };
	struct garret_app_run *run = NULL;
	int rc;

	garret_app_sandbox_defaults(&own);
	rc = garret_app_delegate_open(g->run, &d, g->agent, g->id, &run, err);
	garret_app_run_close(run, 0);
	g->events += rc == 0; /* as close_run() below */
	return rc;
}

TEST(fault_delegate_open)
{
	everywhere(&(struct scenario){ "delegate_open", parent_is_open, delegate, NULL, false });
}

/* ---- documents ---- */

static void document_is_open(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_document(g, &err), &err, "open");
}

static int work_in_document(struct ground *g, struct garret_error *err)
{
	int rc = put(g->run, "seed", "planted", err);

	return rc < 0 ? rc : put(g->run, "d/more", "text", err);
}

TEST(fault_document_write)
{
	everywhere(
		&(struct scenario){ "write", document_is_open, work_in_document, has_seed, false });
}

static void memory_is_open(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_memory(g, &err), &err, "open");
}

/* What couldn't be put on record isn't in memory either: who takes the run over would not have it. */
static int work_in_memory(struct ground *g, struct garret_error *err)
{
	struct garret_bytes b = { 0 };
	int rc = put(g->run, "seed", "planted", err);

	if (rc < 0)
		assert_int_equal(garret_read(garret_app_run_workspace(g->run), "seed", &b, NULL),
				 -GARRET_NOT_FOUND);
	garret_bytes_release(&b);
	return rc;
}

TEST(fault_memory_write)
{
	everywhere(&(struct scenario){ "write", memory_is_open, work_in_memory, has_seed, false });
}

/* ---- sessions ---- */

static void session_is_open(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_session(g, &err), &err, "open");
}

static int work(struct ground *g, struct garret_error *err)
{
	int rc = put(g->run, "seed", "planted", err);

	if (rc == 0)
		rc = put(g->run, "d/more", "text", err);
	g->events +=
		rc == 0; /* what a takeover would find is at worst learned anew, without a word */
	return rc;
}

static void session_is_recorded(struct ground *g)
{
	has_seed(g);
	g->run = garret_app_run_close(g->run, 0);
	assert_int_equal(
		count(g, "SELECT COUNT(*) FROM agent_workspaces WHERE session_id IS NOT NULL"), 1);
}

TEST(fault_session_work)
{
	everywhere(&(struct scenario){ "write", session_is_open, work, session_is_recorded, true });
}

static void session_was_used(struct ground *g)
{
	struct garret_error err = { 0 };

	session_is_open(g);
	must(work(g, &err), &err, "write");
}

/* Closing can't fail: what couldn't be done is told, and a sweeper does it. */
static int close_run(struct ground *g, struct garret_error *err)
{
	(void)err;
	g->run = garret_app_run_close(g->run, 0);
	g->events++; /* rows stay in the spool without a word */
	return 0;
}

/* What a run may have made is asked for a while later, and once more when it isn't there. */
static void swept(struct ground *g)
{
	struct garret_error err = { 0 };

	for (int i = 0; i < 3; i++) {
		must(garret_app_sweep(g->app, NULL, &err), &err, "sweep");
		execute(g, "UPDATE sandbox_runs SET seen_at = seen_at - 1000000 WHERE parked = 4;");
	}
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs"), 0);
}

static void swept_and_recorded(struct ground *g)
{
	swept(g);
	assert_int_equal(
		count(g, "SELECT COUNT(*) FROM agent_workspaces WHERE session_id IS NOT NULL"), 1);
	/* What failed is recorded too, and so is what was done again. */
	assert_int_equal(
		count(g, "SELECT COUNT(DISTINCT target) FROM sandbox_operations WHERE ok = 1"), 2);
}

TEST(fault_session_close)
{
	everywhere(&(struct scenario){ "close", session_was_used, close_run, swept_and_recorded,
				       true });
}

static void own_was_used(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_own(g, &err), &err, "open");
	must(work(g, &err), &err, "write");
}

/* ground_end() finds that nothing of it is left on this machine. */
TEST(fault_own_session_close)
{
	everywhere(&(struct scenario){ "close", own_was_used, close_run, swept, true });
}

static int park(struct ground *g, struct garret_error *err)
{
	(void)err;
	g->run = garret_app_run_close(g->run, GARRET_APP_PARKED);
	g->events++;
	return 0;
}

static void memory_was_used(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_memory(g, &err), &err, "open");
	must(put(g->run, "seed", "planted", &err), &err, "write");
}

static void goes_on(struct ground *g)
{
	struct garret_error err = { 0 };

	must(open_memory(g, &err), &err, "open again");
	has_seed(g);
}

TEST(fault_park)
{
	everywhere(&(struct scenario){ "park", memory_was_used, park, goes_on, false });
}

/* A document's spills and skills go at the end; where they can't, that is told. */
static void document_has_spills(struct ground *g)
{
	struct garret_error err = { 0 };
	struct garret_app_spill *s;
	char *handle = NULL;

	must(open_document(g, &err), &err, "open");
	s = garret_app_spill_new(g->run);
	must(garret_app_spill_write(s, "call", 0, "text", 4, &handle, &err), &err, "spill");
	free(handle);
	garret_app_spill_free(s);
	must(put(g->run, "skills/one", "1", &err), &err, "write");
	(void)map_set(&g->run->staged, "skills/one", xstrdup("digest"));
}

static int close_document(struct ground *g, struct garret_error *err)
{
	(void)err;
	g->run = garret_app_run_close(g->run, 0);
	g->events += fault.seen > 0;
	return 0;
}

TEST(fault_document_close)
{
	everywhere(
		&(struct scenario){ "close", document_has_spills, close_document, swept, false });
}

static void parked_with_spills(struct ground *g)
{
	document_has_spills(g);
	g->run = garret_app_run_close(g->run, GARRET_APP_PARKED);
}

static void has_its_spills(struct ground *g)
{
	assert_int_equal(g->run->spills->n, 1);
}

TEST(fault_parked_spills)
{
	everywhere(&(struct scenario){ "open", parked_with_spills, open_document, has_its_spills,
				       false });
}

/* The whole life, in which the database goes away somewhere. */
static int whole(struct ground *g, struct garret_error *err)
{
	int rc = g->run ? 0 : open_session(g, err);

	if (rc == 0)
		rc = work(g, err);
	if (rc == 0)
		rc = close_run(g, err);
	g->events += rc == 0;
	return rc;
}

TEST(fault_whole_run)
{
	everywhere(&(struct scenario){ "a run", NULL, whole, swept_and_recorded, true });
}

/* ---- what was lost ---- */

static void session_is_lost(struct ground *g)
{
	struct garret_app_run_info info = { .size = sizeof(info) };
	struct garret_error err = { 0 };

	ground_down(g);
	must(open_session(g, &err), &err, "open");
	garret_app_run_info(g->run, &info);
	must(garret_app_run_report(g->run, &info.ref, false, &err), &err, "report");
	assert_true(count(g, "SELECT COUNT(*) FROM agent_workspaces WHERE session_id IS NOT NULL"));
}

static int lose(struct ground *g, struct garret_error *err)
{
	return garret_app_run_report(g->run, NULL, true, err);
}

static void row_has_forgotten(struct ground *g)
{
	g->run = garret_app_run_close(g->run, 0);
	assert_int_equal(
		count(g, "SELECT COUNT(*) FROM agent_workspaces WHERE session_id IS NOT NULL"), 0);
}

TEST(fault_loss)
{
	everywhere(&(struct scenario){ "report", session_is_lost, lose, row_has_forgotten, false });
}

static int report_open(struct ground *g, struct garret_error *err)
{
	struct garret_app_run_info info = { .size = sizeof(info) };
	int rc;

	garret_app_run_info(g->run, &info);
	rc = garret_app_run_report(g->run, &info.ref, false, err);
	g->events += rc == 0; /* as in work() */
	return rc;
}

static void report_is_recorded(struct ground *g)
{
	g->run = garret_app_run_close(g->run, 0);
	assert_int_equal(
		count(g, "SELECT COUNT(*) FROM agent_workspaces WHERE session_id IS NOT NULL"), 1);
	execute(g, "DELETE FROM agent_workspaces;");
}

static void down_is_open(struct ground *g)
{
	struct garret_error err = { 0 };

	ground_down(g);
	must(open_session(g, &err), &err, "open");
}

TEST(fault_report)
{
	everywhere(&(struct scenario){ "report", down_is_open, report_open, report_is_recorded,
				       false });
}

static void down_own_is_open(struct ground *g)
{
	struct garret_error err = { 0 };

	ground_down(g);
	must(open_own(g, &err), &err, "open");
}

/* Who takes it over knows that it was there; at its end it is removed. */
static void own_report_is_recorded(struct ground *g)
{
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_runs WHERE attached = 1"), 1);
	g->run = garret_app_run_close(g->run, 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_purges"), 1);
	execute(g, "DELETE FROM sandbox_purges;");
}

TEST(fault_own_report)
{
	everywhere(&(struct scenario){ "report", down_own_is_open, report_open,
				       own_report_is_recorded, false });
}

/* ---- what a crash left ---- */

static void crashed(struct ground *g, int (*open)(struct ground *, struct garret_error *))
{
	struct garret_error err = { 0 };

	must(open(g, &err), &err, "open");
	must(work(g, &err), &err, "write");
	g->run = garret_app_run_close(g->run, GARRET_APP_PARKED);
	/* As if its process had gone while it was open. */
	execute(g, "UPDATE sandbox_runs SET parked = 0, owner = '0/0', seen_at = 0;");
}

static void session_crashed(struct ground *g)
{
	crashed(g, open_session);
}

static void own_crashed(struct ground *g)
{
	crashed(g, open_own);
}

static int sweep(struct ground *g, struct garret_error *err)
{
	int rc = garret_app_sweep(g->app, NULL, err);

	g->events += rc == 0; /* of what is done while a run is closed the events tell */
	return rc;
}

TEST(fault_sweep_of_runs)
{
	everywhere(&(struct scenario){ "sweep", session_crashed, sweep, swept_and_recorded, true });
	everywhere(&(struct scenario){ "sweep", own_crashed, sweep, swept, true });
}

/* ---- deleting ---- */

static void session_was_closed(struct ground *g)
{
	session_was_used(g);
	g->run = garret_app_run_close(g->run, 0);
}

static int remove_row(struct ground *g, struct garret_error *err)
{
	int rc = garret_app_row_remove(g->app, g->org, g->key, err);

	g->events +=
		rc == 0; /* the purge that it begins is queued before, and then the sweeper's */
	return rc;
}

static void purge_is_done(struct ground *g)
{
	execute(g, "UPDATE sandbox_purges SET next_at = 0;");
	swept(g);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM sandbox_purges"), 0);
	assert_int_equal(count(g, "SELECT COUNT(*) FROM agent_workspaces"), 0);
}

TEST(fault_row_remove_with_its_session)
{
	everywhere(&(struct scenario){ "row_remove", session_was_closed, remove_row, purge_is_done,
				       true });
}

TEST_MAIN
