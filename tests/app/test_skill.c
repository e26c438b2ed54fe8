/* Skills: how they are staged, and what of them is proposed afterwards. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/mem.h"
#include "world.h"

static const struct garret_app_skill_file files[] = { { "run.py", "print(1)\n", 9 },
						      { ".config", "dot\n", 4 },
						      { "empty", NULL, 0 } };
static const struct garret_app_skill pdf = { .size = sizeof(pdf),
					     .name = "pdf",
					     .description =
						     "Fills \"forms\": all\nof them \xe2\x82\xac",
					     .body = "# How\n\nDo it.\n",
					     .files = files,
					     .n_files = 3 };

#define BODY                                                                     \
	"---\nname: \"pdf\"\ndescription: \"Fills \\\"forms\\\": all\\nof them " \
	"\xe2\x82\xac\"\n---\n\n# How\n\nDo it.\n"

static struct world *staged(void)
{
	struct world *x = world_new(NULL);
	struct garret_app_skills_staged r;

	assert_int_equal(garret_app_skills_stage(&x->run, &pdf, 1, &r, NULL), 0);
	assert_int_equal(r.written, 4);
	assert_int_equal(r.refused, 0);
	assert_int_equal(x->operations, 4);
	return x;
}

static struct garret_app_proposals collect(struct world *x)
{
	struct garret_app_proposals r;

	assert_int_equal(garret_app_skills_collect(&x->run, &r, NULL), 0);
	return r;
}

/* Nothing is proposed; what is refused, or NULL. */
static void proposes_nothing(struct world *x, const char *path, const char *why)
{
	struct garret_app_proposals r = collect(x);

	assert_int_equal(r.n, 0);
	assert_int_equal(r.code, GARRET_OK);
	assert_int_equal(r.n_refused, path != NULL);
	if (path) {
		assert_string_equal(r.refused[0].path, path);
		has(r.refused[0].why, why);
	}
	garret_app_proposals_release(&r);
}

/* One proposal, for as long as the caller looks at it. */
static struct garret_app_proposals proposes(struct world *x, enum garret_app_proposal_kind kind,
					    const char *path, const char *data, bool is_new)
{
	struct garret_app_proposals r = collect(x);

	assert_int_equal(r.n, 1);
	assert_int_equal(r.n_refused, 0);
	assert_int_equal(r.proposal[0].kind, kind);
	assert_string_equal(r.proposal[0].path, path);
	assert_string_equal(r.proposal[0].data, data);
	assert_int_equal(r.proposal[0].bytes, strlen(data));
	assert_int_equal(r.proposal[0].is_new, is_new);
	return r;
}

/* ---- staging ---- */

TEST(D12_52_body_and_resources_land_side_by_side)
{
	struct world *x = staged();
	char *text = world_get(x, "skills/pdf/run.py");

	assert_string_equal(text, "print(1)\n");
	assert_true(world_has(x, "skills/pdf/.config"));
	assert_true(world_has(x, "skills/pdf/empty"));
	free(text);
	text = world_get(x, "skills/pdf/SKILL.md");
	assert_string_equal(text, BODY); /* D12_53: it carries name and description */
	free(text);
	world_end(x);
}

TEST(D12_54_a_workspace_that_refuses_still_runs_the_agent)
{
	static const struct {
		enum garret_code code;
		unsigned tried;
	} rows[] = {
		{ GARRET_FAILED, 1 },      { GARRET_READ_ONLY, 1 }, { GARRET_GONE, 1 },
		{ GARRET_UNAVAILABLE, 1 }, /* the same for all: each would cost its time */
		{ GARRET_NO_SPACE, 4 },    { GARRET_DENIED, 4 },    { GARRET_TOO_LARGE, 4 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world *x = world_new(NULL);
		struct garret_app_skills_staged r;

		world_refuse(x, GARRET_OP_WRITE, NULL, rows[i].code);
		assert_int_equal(garret_app_skills_stage(&x->run, &pdf, 1, &r, NULL), 0);
		assert_int_equal(r.written, 0);
		assert_int_equal(r.refused, 4);
		assert_int_equal(r.code, rows[i].code);
		assert_int_equal(x->operations, rows[i].tried);
		world_allow(x);
		proposes_nothing(x, NULL, NULL);
		world_end(x);
	}
}

TEST(without_a_workspace_nothing_is_staged)
{
	struct garret_app_skills_staged r;
	struct garret_app_proposals p;

	assert_int_equal(garret_app_skills_stage(NULL, &pdf, 1, &r, NULL), 0);
	assert_int_equal(r.refused, 4);
	assert_int_equal(r.code, GARRET_GONE);
	assert_int_equal(garret_app_skills_collect(NULL, &p, NULL), 0);
	assert_int_equal(p.n, 0);
}

TEST(names_that_are_none_are_refused)
{
	static const struct garret_app_skill_file bad[] = {
		{ "../x", "x", 1 },     { "..", "x", 1 },       { ".", "x", 1 },
		{ "", "x", 1 },         { "a/b", "x", 1 },      { NULL, "x", 1 },
		{ "a\nb", "x", 1 },     { "a\x7f", "x", 1 },    { "\xff", "x", 1 },
		{ "SKILL.md", "x", 1 }, { "no data", NULL, 1 },
	};
	struct garret_app_skill skills[7];
	struct world *x = world_new(NULL);
	struct garret_app_skills_staged r;
	struct garret_error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(skills); i++) {
		skills[i] = pdf;
		skills[i].n_files = 0;
	}
	skills[0].files = bad;
	skills[0].n_files = ARRAY_SIZE(bad);
	skills[1].name = "../../evil";
	skills[2].name = NULL;
	skills[3].description = "\xff";
	skills[4].description = NULL;
	skills[5].body = "\xff";
	skills[6].body = NULL;
	assert_int_equal(garret_app_skills_stage(&x->run, skills, 7, &r, NULL), 0);
	assert_int_equal(r.written, 1);
	assert_int_equal(r.refused, ARRAY_SIZE(bad) + 6);
	assert_int_equal(r.code, GARRET_INVALID);
	assert_int_equal(x->operations, 1);
	skills[0].size = 2;
	assert_int_equal(garret_app_skills_stage(&x->run, skills, 1, &r, &err), -GARRET_MISUSE);
	world_refuse(x, GARRET_OP_WRITE, NULL, GARRET_CANCELLED);
	assert_int_equal(garret_app_skills_stage(&x->run, &pdf, 1, &r, &err), -GARRET_CANCELLED);
	world_end(x);
}

/* ---- what is proposed ---- */

TEST(D12_55_untouched_proposes_nothing)
{
	struct world *x = staged();

	proposes_nothing(x, NULL, NULL);
	world_end(x);
}

TEST(D12_56_an_edited_body_is_proposed)
{
	struct world *x = staged();
	const char *text = "---\nname: pdf\ndescription: Better\n---\n\n# New\n";
	struct garret_app_proposals r;

	world_put(x, "skills/pdf/SKILL.md", text);
	r = proposes(x, GARRET_APP_PROPOSAL_BODY, "skills/pdf/SKILL.md", text, false);
	assert_string_equal(r.proposal[0].skill, "pdf");
	assert_string_equal(r.proposal[0].file, GARRET_APP_SKILL_BODY);
	assert_string_equal(r.proposal[0].description, "Better");
	assert_string_equal(r.proposal[0].body, "# New\n");
	garret_app_proposals_release(&r);
	world_end(x);
}

TEST(D12_57_a_new_and_a_changed_resource_are_proposed)
{
	struct world *x = staged();
	struct garret_app_proposals r;

	world_put(x, "skills/pdf/extra.md", "more");
	r = proposes(x, GARRET_APP_PROPOSAL_RESOURCE, "skills/pdf/extra.md", "more", true);
	assert_string_equal(r.proposal[0].file, "extra.md");
	assert_null(r.proposal[0].body);
	assert_null(r.proposal[0].description);
	garret_app_proposals_release(&r);
	assert_int_equal(garret_remove(x->bare, "skills/pdf/extra.md", NULL), 0);
	world_put(x, "skills/pdf/run.py", "print(2)\n");
	r = proposes(x, GARRET_APP_PROPOSAL_RESOURCE, "skills/pdf/run.py", "print(2)\n", false);
	garret_app_proposals_release(&r);
	world_end(x);
}

TEST(D12_58_an_invented_skill_is_proposed)
{
	struct world *x = staged();
	struct garret_app_proposals r;

	world_put(x, "skills/pdf-2/SKILL.md", "just a body\n");
	r = proposes(x, GARRET_APP_PROPOSAL_SKILL, "skills/pdf-2/SKILL.md", "just a body\n", true);
	assert_string_equal(r.proposal[0].skill, "pdf-2");
	assert_string_equal(r.proposal[0].description, ""); /* D12_63: none is empty */
	assert_string_equal(r.proposal[0].body, "just a body\n");
	garret_app_proposals_release(&r);
	world_put(x, "skills/pdf-2/tool.sh", "x");
	r = collect(x);
	assert_int_equal(r.n, 2);
	assert_int_equal(r.proposal[1].kind, GARRET_APP_PROPOSAL_RESOURCE);
	garret_app_proposals_release(&r);
	world_end(x);
}

TEST(D12_59_a_deletion_is_no_change)
{
	struct world *x = staged();

	assert_int_equal(garret_remove(x->bare, "skills/pdf/run.py", NULL), 0);
	proposes_nothing(x, NULL, NULL);
	assert_int_equal(garret_remove(x->bare, "skills/pdf/SKILL.md", NULL), 0);
	proposes_nothing(x, NULL, NULL);
	assert_int_equal(garret_remove(x->bare, "skills", NULL), 0);
	proposes_nothing(x, NULL, NULL); /* D12_68: no folder */
	world_end(x);
}

TEST(D12_60_no_body_is_refused)
{
	struct world *x = world_new(NULL);

	world_put(x, "skills/a/SKILL.md", "---\ndescription: x\n---\n \n\n");
	proposes_nothing(x, "skills/a", "no body");
	world_put(x, "skills/a/SKILL.md", "");
	proposes_nothing(x, "skills/a", "no body");
	assert_int_equal(garret_remove(x->bare, "skills/a/SKILL.md", NULL), 0);
	world_put(x, "skills/a/notes.txt", "x");
	proposes_nothing(x, "skills/a", "no SKILL.md");
	world_end(x);
}

TEST(D11_F3_D12_61_unmeasured_files_obey_the_ceiling)
{
	struct world *x = staged();
	char *large = xcalloc(1, GARRET_APP_SKILL_MAX_BYTES + 2);
	struct garret_app_proposals r;

	memset(large, 'x', GARRET_APP_SKILL_MAX_BYTES + 1);
	for (int i = 0; i < 2; i++) {
		world_unmeasured = i;
		world_put(x, "skills/pdf/new.md", "new");
		world_put(x, "skills/pdf/large.bin", large); /* D12_65: dropped, not cut */
		world_allow(x);
		r = collect(x);
		assert_int_equal(r.n, 1);
		assert_string_equal(r.proposal[0].file, "new.md");
		assert_int_equal(r.n_refused, 1);
		assert_string_equal(r.refused[0].path, "skills/pdf/large.bin");
		has(r.refused[0].why, "too large");
		garret_app_proposals_release(&r);
		/* what is too large isn't read: it is asked, where the listing doesn't tell */
		assert_int_equal(x->count[GARRET_OP_READ], 5);
		assert_int_equal(x->count[GARRET_OP_STAT], i ? 6 : 0);
		assert_int_equal(x->count[GARRET_OP_WALK], 1);
		large[GARRET_APP_SKILL_MAX_BYTES] = '\0';
		world_put(x, "skills/pdf/large.bin", large); /* exactly as large */
		r = collect(x);
		assert_int_equal(r.n, 2);
		assert_int_equal(r.proposal[0].bytes, GARRET_APP_SKILL_MAX_BYTES);
		garret_app_proposals_release(&r);
		large[GARRET_APP_SKILL_MAX_BYTES] = 'x';
	}
	free(large);
	world_end(x);
}

TEST(one_that_grew_since_the_listing_obeys_the_ceiling)
{
	struct world *x = world_new(NULL);
	struct garret_error err = { 0 };
	struct garret_bytes b;

	world_put(x, "a", "12345");
	assert_int_equal(app_read_file(x->bare, "a", 3, 4, &b, &err), -GARRET_TOO_LARGE);
	assert_null(b.data);
	assert_int_equal(app_read_file(x->bare, "a", 3, 5, &b, &err), 0);
	assert_int_equal(b.n, 5);
	garret_bytes_release(&b);
	world_end(x);
}

TEST(D12_62_mangled_front_matter_is_refused)
{
	struct world *x = world_new(NULL);

	world_put(x, "skills/a/SKILL.md", "---\njust text\n---\nbody\n");
	world_put(x, "skills/a/good.txt", "goes with it");
	proposes_nothing(x, "skills/a", "mangled");
	world_put(x, "skills/a/SKILL.md", "---\nname: x\nbody without end\n");
	proposes_nothing(x, "skills/a", "no end");
	world_put(x, "skills/a/SKILL.md", "---\nname: x\n---\nb\xff\n");
	proposes_nothing(x, "skills/a", "no text");
	assert_int_equal(garret_write(x->bare, "skills/a/SKILL.md", "a\0b", 3, 0, NULL), 0);
	proposes_nothing(x, "skills/a", "no text");
	world_end(x);
}

TEST(D12_64_what_is_nested_deeper_belongs_to_no_skill)
{
	struct world *x = staged();

	world_put(x, "skills/pdf/sub/x.md", "deep"); /* D12_66: a directory isn't read */
	world_put(x, "skills/loose.md", "in no skill");
	world_put(x, "skills/other/sub/SKILL.md", "deep");
	proposes_nothing(x, NULL, NULL);
	world_end(x);
}

TEST(D12_67_a_dot_file_is_proposed)
{
	struct world *x = staged();
	struct garret_app_proposals r;

	world_put(x, "skills/pdf/.env.example", "A=1");
	r = proposes(x, GARRET_APP_PROPOSAL_RESOURCE, "skills/pdf/.env.example", "A=1", true);
	garret_app_proposals_release(&r);
	world_end(x);
}

TEST(D12_68_an_unlistable_workspace_proposes_nothing)
{
	static const enum garret_code codes[] = { GARRET_FAILED, GARRET_GONE,
						  GARRET_NOT_DIRECTORY };
	static const enum garret_operation ops[] = { GARRET_OP_WALK, GARRET_OP_READ };
	struct garret_app_proposals r;
	struct garret_error err = { 0 };

	for (size_t i = 0; i < 5; i++) {
		struct world *x = staged();

		world_put(x, "skills/pdf/a.md", "new");
		world_refuse(x, ops[i % 2], i % 2 ? "run.py" : NULL, codes[i / 2]);
		r = collect(x);
		assert_int_equal(r.n, 0);
		assert_int_equal(r.n_refused, 0);
		assert_int_equal(r.code, codes[i / 2]);
		garret_app_proposals_release(&r);
		world_allow(x);
		world_refuse(x, ops[i % 2], NULL, GARRET_CANCELLED);
		assert_int_equal(garret_app_skills_collect(&x->run, &r, &err), -GARRET_CANCELLED);
		assert_int_equal(r.n, 0);
		world_end(x);
	}
}

TEST(one_file_that_cannot_be_read_is_one_file)
{
	struct world *x = staged();
	struct garret_app_proposals r;

	world_put(x, "skills/pdf/a.md", "new");
	world_put(x, "skills/pdf/b.md", "new");
	world_refuse(x, GARRET_OP_READ, "a.md", GARRET_DENIED);
	r = collect(x);
	assert_int_equal(r.n, 1);
	assert_string_equal(r.proposal[0].file, "b.md");
	assert_string_equal(r.refused[0].path, "skills/pdf/a.md");
	has(r.refused[0].why, "can't be read");
	garret_app_proposals_release(&r);
	world_allow(x);
	world_refuse(x, GARRET_OP_READ, "a.md", GARRET_NOT_FOUND); /* it went meanwhile */
	r = collect(x);
	assert_int_equal(r.n, 1);
	assert_int_equal(r.n_refused, 0);
	garret_app_proposals_release(&r);
	/* without its SKILL.md nothing of a skill is of use */
	world_allow(x);
	world_refuse(x, GARRET_OP_READ, "SKILL.md", GARRET_NOT_FOUND);
	proposes_nothing(x, "skills/pdf", "SKILL.md can't be read");
	world_end(x);
}

TEST(what_a_refused_write_left_is_not_taken_for_a_change)
{
	struct world *x = world_new(NULL);
	struct garret_app_skills_staged r;
	struct garret_app_proposals p;

	world_put(x, "skills/pdf/run.py", "of an older run");
	world_put(x, "skills/pdf/SKILL.md", "of an older run");
	world_refuse(x, GARRET_OP_WRITE, NULL, GARRET_NO_SPACE);
	assert_int_equal(garret_app_skills_stage(&x->run, &pdf, 1, &r, NULL), 0);
	proposes_nothing(x, NULL, NULL);
	world_put(x, "skills/pdf/new.md", "new");
	p = proposes(x, GARRET_APP_PROPOSAL_RESOURCE, "skills/pdf/new.md", "new", true);
	garret_app_proposals_release(&p);
	world_end(x);
}

TEST(hostile_names_and_very_many_files)
{
	struct world *x = staged();
	struct garret_app_proposals r;

	world_put(x, "skills/-x y/SKILL.md", "body");
	proposes_nothing(x, "skills/-x y", "name");
	assert_int_equal(garret_remove(x->bare, "skills/-x y", NULL), 0);
	world_put(x, "skills/pdf/a\nb", "x");
	proposes_nothing(x, "skills/pdf/a\nb", "name");
	assert_int_equal(garret_remove(x->bare, "skills/pdf/a\nb", NULL), 0);
	world_fill(x, "skills/pdf", GARRET_APP_SKILL_MAX_FILES + 1);
	r = collect(x);
	assert_int_equal(r.n, GARRET_APP_SKILL_MAX_FILES);
	assert_true(r.n_refused >= 1);
	assert_string_equal(r.refused[0].path, "skills/pdf/0200");
	has(r.refused[0].why, "too many");
	garret_app_proposals_release(&r);
	world_end(x);
}

TEST(a_folder_that_no_walk_sees_whole_proposes_nothing)
{
	struct world *x = world_new(NULL);
	struct garret_app_proposals r;

	world_fill(x, "skills/x", 4000);
	r = collect(x);
	assert_int_equal(r.n, 0);
	assert_int_equal(r.code, GARRET_TOO_LARGE);
	garret_app_proposals_release(&r);
	world_end(x);
}

TEST(links_and_devices_are_not_followed)
{
	static const char *const argv[] = {
		"sh", "-c",
		"cd skills/pdf && ln -s /etc/passwd link && mkfifo pipe && ln -s /etc dir", NULL
	};
	struct garret_run_options o = { .size = sizeof(o), .argv = argv };
	struct world *x = world_native();
	struct garret_result result = { 0 };
	struct garret_app_skills_staged s;
	struct garret_app_proposals r;

	if (!x)
		skip();
	assert_int_equal(garret_app_skills_stage(&x->run, &pdf, 1, &s, NULL), 0);
	assert_int_equal(garret_run(x->bare, &o, &result, NULL), 0);
	assert_int_equal(result.exit_code, 0);
	garret_result_release(&result);
	r = collect(x);
	assert_int_equal(r.n, 0);
	assert_int_equal(r.n_refused, 3);
	assert_string_equal(r.refused[0].path, "skills/pdf/dir");
	has(r.refused[0].why, "link");
	has(r.refused[1].why, "link");
	has(r.refused[2].why, "no regular file");
	garret_app_proposals_release(&r);
	world_end(x);
}
TEST_MAIN
