/* What a run spilled is pruned at its end: exactly that. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "world.h"

#define RUN "00000000000000000000000000000001"

static void spill_away(struct world *x, const char *call)
{
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	char *handle = NULL;

	assert_int_equal(garret_app_spill_write(s, call, 0, "output", 6, &handle, NULL), 0);
	free(handle);
	garret_app_spill_free(s);
}

/* As a handle in the list, whoever wrote it there. */
static void list(struct world *x, const char *handle)
{
	app_spills_add(x->run.spills, handle);
}

TEST(D10_5_D12_43_a_run_is_pruned_off_a_workspace_with_a_real_shell)
{
	struct world *x = world_native();

	if (!x)
		skip();
	spill_away(x, "call");
	spill_away(x, "-rf \"$(touch pwned)\"");
	assert_string_equal(x->run.spills->path[0], world_at(x, "tool_output/" RUN "/call.0"));
	/* D12_44: what else is there stays */
	world_put(x, "tool_output/" RUN "x/call.0", "of another run");
	world_put(x, "tool_output/notes", "of a person");
	world_put(x, "call.0", "another file");
	list(x, world_at(x, "call.0"));
	list(x, "/etc/hostname");
	/* D12_48 */
	list(x, world_at(x, "tool_output/../call.0"));
	list(x, world_at(x, "tool_output/" RUN "/../notes"));
	/* gone already */
	list(x, world_at(x, "tool_output/" RUN "/gone.0"));
	world_allow(x);
	app_spills_prune(&x->run);
	assert_int_equal(x->events, 0);
	assert_int_equal(x->count[GARRET_OP_RUN], 2);
	assert_int_equal(x->operations, 2);
	assert_false(world_has(x, "tool_output/" RUN));
	assert_true(world_has(x, "tool_output/" RUN "x/call.0"));
	assert_true(world_has(x, "tool_output/notes"));
	assert_true(world_has(x, "call.0"));
	assert_false(world_has(x, "pwned"));
	world_end(x);
}

static void on_record(void *data, const struct garret_record *r)
{
	if (r->command)
		strbuf_addf(data, "%s\n", r->command);
}

TEST(D8_5_the_commands_are_exact_handles_as_arguments)
{
	struct world *x = world_native();
	autobuf struct strbuf commands = STRBUF_INIT, want = STRBUF_INIT;
	struct garret_workspace *w;
	const char *dir;

	if (!x)
		skip();
	dir = world_at(x, "tool_output");
	assert_int_equal(garret_wrap_recording(x->bare, on_record, &commands, &w, NULL), 0);
	world_use(x, w);
	spill_away(x, "a");
	list(x, world_at(x, "tool_output/x y/$(b)/c.0"));
	app_spills_prune(&x->run);
	strbuf_addf(&want, "rm -f -- %s/" RUN "/a.0 '%s/x y/$(b)/c.0'\n", dir, dir);
	strbuf_addf(&want, "rmdir -- %s/" RUN " '%s/x y/$(b)' '%s/x y'\n", dir, dir, dir);
	assert_string_equal(commands.buf, want.buf);
	world_end(x);
}

TEST(a_directory_that_is_not_empty_stays_and_is_no_fault)
{
	struct world *x = world_native();

	if (!x)
		skip();
	list(x, world_at(x, "tool_output/flat.0"));
	world_put(x, "tool_output/flat.0", "x");
	app_spills_prune(&x->run);
	assert_false(world_has(x, "tool_output/flat.0"));
	spill_away(x, "call");
	list(x, world_at(x, "tool_output/deep/er/x.0"));
	world_put(x, "tool_output/deep/er/x.0", "x");
	world_put(x, "tool_output/" RUN "/mine.txt", "kept by the agent");
	app_spills_prune(&x->run);
	assert_int_equal(x->events, 0);
	assert_false(world_has(x, "tool_output/" RUN "/call.0"));
	assert_true(world_has(x, "tool_output/" RUN "/mine.txt"));
	assert_false(world_has(x, "tool_output/deep")); /* deepest first */
	assert_true(world_has(x, "tool_output"));
	world_end(x);
}

TEST(many_spills_take_several_commands)
{
	struct world *x = world_native();
	struct garret_list l;
	const char *dir;

	if (!x)
		skip();
	dir = world_at(x, "tool_output/" RUN);
	world_fill(x, "tool_output/" RUN, 450);
	for (int i = 0; i < 450; i++) {
		autofree char *handle = xasprintf("%s/%04d", dir, i);

		list(x, handle);
	}
	world_allow(x);
	app_spills_prune(&x->run);
	assert_int_equal(x->count[GARRET_OP_RUN], 4); /* 200, 200, 50, and the directory */
	assert_int_equal(garret_list_dir(x->bare, "tool_output", &l, NULL), 0);
	assert_int_equal(l.n, 0);
	garret_list_release(&l);
	world_end(x);
}

TEST(D12_50_a_refused_rm_reaches_the_warning)
{
	struct world *x = world_native();

	if (!x)
		skip();
	spill_away(x, "call");
	assert_int_equal(garret_remove(x->bare, "tool_output/" RUN "/call.0", NULL), 0);
	world_put(x, "tool_output/" RUN "/call.0/x", "rm -f removes no directory");
	app_spills_prune(&x->run);
	assert_int_equal(x->events, 1);
	assert_string_equal(x->event, "workspace_spill_prune_failed");
	has(x->fields, "run=" RUN);
	has(x->fields, "exit=1");
	has(x->fields, "error=FAILED");
	lacks(x->fields, "call.0"); /* no output, no path */
	assert_true(world_has(x, "tool_output/" RUN "/call.0/x"));
	world_end(x);
}

TEST(D12_47_a_failed_prune_is_logged_and_not_raised)
{
	static const enum garret_code codes[] = { GARRET_FAILED, GARRET_GONE, GARRET_READ_ONLY,
						  GARRET_TIMEOUT, GARRET_CANCELLED };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(codes); i++) {
		struct world *x = world_new(NULL);

		spill_away(x, "call");
		world_refuse(x, i % 2 ? GARRET_OP_RUN : GARRET_OP_WORKING_DIR, NULL, codes[i / 2]);
		app_spills_prune(&x->run);
		assert_int_equal(x->events, 1);
		has(x->fields, garret_code_name(codes[i / 2]));
		assert_true(world_has(x, "tool_output/" RUN "/call.0"));
		world_end(x);
	}
}

TEST(D12_45_no_spills_no_command)
{
	struct world *x = world_new(NULL);
	struct app_spills *spills = x->run.spills;

	world_allow(x);
	app_spills_prune(&x->run);
	x->run.spills = NULL;
	app_spills_prune(&x->run);
	x->run.spills = spills;
	list(x, "/elsewhere/x"); /* nothing of ours */
	app_spills_prune(&x->run);
	assert_int_equal(x->operations, 0);
	assert_int_equal(x->events, 0);
	world_end(x);
}

TEST(D12_46_without_commands_they_are_left_for_the_host)
{
	struct world *x = world_new("64m"); /* a document: it has none */

	spill_away(x, "call");
	app_spills_prune(&x->run);
	assert_int_equal(x->events, 0);
	assert_true(world_has(x, "tool_output/" RUN "/call.0"));
	world_refuse(x, GARRET_OP_RUN, NULL, GARRET_UNSUPPORTED); /* as a confined one says it */
	app_spills_prune(&x->run);
	assert_int_equal(x->events, 0);
	world_end(x);
}

TEST(D8_5_what_goes_with_its_environment_is_not_pruned)
{
	struct world *x = world_new(NULL);

	spill_away(x, "call");
	world_allow(x);
	x->run.sandbox.session_scope = GARRET_APP_SCOPE_RUN;
	app_spills_prune(&x->run);
	x->run.sandbox.session_scope = GARRET_APP_SCOPE_CONVERSATION;
	x->run.lost = true;
	app_spills_prune(&x->run);
	x->run.lost = false;
	x->run.bare = NULL; /* it was never opened */
	app_spills_prune(&x->run);
	assert_int_equal(x->operations, 0);
	assert_int_equal(x->events, 0);
	world_end(x);
}

TEST(an_agent_without_commands_is_pruned_as_well)
{
	struct world *x = world_native();
	struct garret_workspace *w;

	if (!x)
		skip();
	spill_away(x, "call");
	assert_int_equal(garret_wrap_read_only(x->run.workspace, &w, NULL), 0);
	x->run.workspace = w;
	app_spills_prune(&x->run);
	assert_int_equal(x->events, 0);
	assert_false(world_has(x, "tool_output/" RUN));
	garret_workspace_free(x->run.bare);
	world_end(x);
}
TEST_MAIN
