/* Files that go with a channel's reply, and what people see of a workspace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "world.h"

static struct garret_app_snapshot *snapshot(struct world *x)
{
	struct garret_app_snapshot *s = NULL;

	assert_int_equal(garret_app_snapshot_take(&x->run, &s, NULL), 0);
	return s;
}

static struct garret_app_reply reply(struct world *x, const struct garret_app_snapshot *before)
{
	struct garret_app_reply r;

	assert_int_equal(garret_app_reply_files(&x->run, before, &r, NULL), 0);
	return r;
}

/* ---- D8.7 ---- */

TEST(D8_7_only_new_paths_are_posted)
{
	struct world *x = world_new(NULL);
	struct garret_app_snapshot *before;
	struct garret_app_reply r;

	world_put(x, "old.txt", "old");
	before = snapshot(x);
	world_put(x, "old.txt", "changed");
	world_put(x, "out/new.txt", "new");
	world_put(x, "uploads/u.txt", "x");
	world_put(x, "skills/s/SKILL.md", "x");
	world_put(x, "tool_output/r/c.0", "x");
	world_put(x, "uploads_of_mine.txt", "mine");
	world_allow(x);
	r = reply(x, before);
	assert_int_equal(r.n, 2);
	assert_string_equal(r.file[0].path, "uploads_of_mine.txt"); /* shallow ones first */
	assert_string_equal(r.file[0].name, "uploads_of_mine.txt");
	assert_string_equal(r.file[1].path, "out/new.txt");
	assert_string_equal(r.file[1].name, "new.txt");
	assert_string_equal(r.file[1].data, "new");
	assert_int_equal(r.file[1].bytes, 3);
	assert_int_equal(r.left_out, 0);
	assert_int_equal(r.code, GARRET_OK);
	assert_int_equal(x->operations, 3); /* a walk, and a read of each */
	garret_app_reply_release(&r);
	assert_null(garret_app_snapshot_free(before));
	assert_null(garret_app_snapshot_free(NULL));
	world_end(x);
}

TEST(D8_7_at_most_three_each_of_at_most_8_mib)
{
	struct world *x = world_new(NULL);
	struct garret_app_snapshot *before = snapshot(x);
	char *large = xcalloc(1, GARRET_APP_REPLY_BYTES + 2);
	struct garret_app_reply r;

	memset(large, 'x', GARRET_APP_REPLY_BYTES + 1);
	for (int i = 0; i < 2; i++) {
		world_unmeasured = i;
		world_put(x, "a.bin", large);
		large[GARRET_APP_REPLY_BYTES] = '\0';
		world_put(x, "b.bin", large); /* exactly as large */
		large[GARRET_APP_REPLY_BYTES] = 'x';
		world_put(x, "c.txt", "c");
		world_put(x, "d.txt", "d");
		world_put(x, "e.txt", "e");
		world_allow(x);
		r = reply(x, before);
		assert_int_equal(r.n, 3);
		assert_string_equal(r.file[0].path, "b.bin");
		assert_int_equal(r.file[0].bytes, GARRET_APP_REPLY_BYTES);
		assert_string_equal(r.file[2].path, "d.txt");
		assert_int_equal(r.left_out, 2);
		assert_int_equal(x->count[GARRET_OP_READ], 3);
		assert_int_equal(x->count[GARRET_OP_STAT], i ? 4 : 0);
		garret_app_reply_release(&r);
	}
	garret_app_snapshot_free(before);
	free(large);
	world_end(x);
}

TEST(D8_7_a_failed_snapshot_posts_nothing)
{
	static const enum garret_code codes[] = { GARRET_FAILED, GARRET_GONE, GARRET_UNAVAILABLE };
	struct garret_app_snapshot *before;
	struct garret_app_reply r;
	struct garret_error err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		struct world *x = world_new(NULL);

		world_refuse(x, GARRET_OP_WALK, NULL, codes[i]);
		assert_null(snapshot(x));
		world_allow(x);
		world_put(x, "new.txt", "new");
		r = reply(x, NULL);
		assert_int_equal(r.n, 0);
		assert_int_equal(r.code, GARRET_UNAVAILABLE);
		assert_int_equal(x->operations, 0);
		garret_app_reply_release(&r);
		before = snapshot(x);
		world_put(x, "newer.txt", "new");
		/* the second one fails */
		world_refuse(x, GARRET_OP_WALK, NULL, codes[i]);
		r = reply(x, before);
		assert_int_equal(r.n, 0);
		assert_int_equal(r.code, codes[i]);
		garret_app_reply_release(&r);
		/* or the environment goes on the way */
		world_allow(x);
		world_put(x, "newest.txt", "new");
		world_refuse(x, GARRET_OP_READ, "newest", codes[i]);
		r = reply(x, before);
		assert_int_equal(r.n, 0);
		assert_int_equal(r.code, codes[i]);
		garret_app_reply_release(&r);
		world_allow(x);
		world_refuse(x, GARRET_OP_WALK, NULL, GARRET_CANCELLED);
		assert_int_equal(garret_app_reply_files(&x->run, before, &r, &err),
				 -GARRET_CANCELLED);
		garret_app_snapshot_free(before);
		assert_int_equal(garret_app_snapshot_take(&x->run, &before, &err),
				 -GARRET_CANCELLED);
		assert_null(before);
		world_end(x);
	}
}

TEST(one_that_cannot_be_read_is_left_out)
{
	struct world *x = world_new(NULL);
	struct garret_app_snapshot *before = snapshot(x);
	struct garret_app_reply r;

	world_put(x, "a.txt", "a");
	world_put(x, "b.txt", "b");
	world_refuse(x, GARRET_OP_READ, "a.txt", GARRET_DENIED);
	r = reply(x, before);
	assert_int_equal(r.n, 1);
	assert_string_equal(r.file[0].path, "b.txt");
	assert_int_equal(r.left_out, 1);
	garret_app_reply_release(&r);
	garret_app_snapshot_free(before);
	world_end(x);
}

TEST(what_no_snapshot_holds_posts_nothing)
{
	struct world *x = world_new(NULL);
	autobuf struct strbuf path = STRBUF_INIT;
	struct garret_app_snapshot *before = snapshot(x);
	struct garret_app_reply r;

	for (int i = 0; i < GARRET_APP_SNAPSHOT_DEPTH + 1; i++)
		strbuf_addstr(&path, "d/");
	strbuf_addstr(&path, "x");
	world_put(x, path.buf, "deep");
	r = reply(x, before);
	assert_int_equal(r.n, 0);
	assert_int_equal(r.code, GARRET_TOO_LARGE);
	garret_app_reply_release(&r);
	assert_null(snapshot(x));
	garret_app_snapshot_free(before);
	world_end(x);
}

TEST(without_a_workspace_there_is_nothing_to_post)
{
	struct garret_app_snapshot *before = NULL;
	struct garret_app_reply r;

	assert_int_equal(garret_app_snapshot_take(NULL, &before, NULL), 0);
	assert_non_null(before);
	assert_int_equal(garret_app_reply_files(NULL, before, &r, NULL), 0);
	assert_int_equal(r.n, 0);
	assert_int_equal(r.code, GARRET_OK);
	garret_app_snapshot_free(before);
}

TEST(links_are_not_posted)
{
	static const char *const argv[] = { "sh", "-c", "ln -s /etc/passwd users; echo x >real",
					    NULL };
	struct garret_run_options o = { .size = sizeof(o), .argv = argv };
	struct world *x = world_native();
	struct garret_app_snapshot *before;
	struct garret_result result = { 0 };
	struct garret_app_reply r;

	if (!x)
		skip();
	before = snapshot(x);
	assert_int_equal(garret_run(x->bare, &o, &result, NULL), 0);
	garret_result_release(&result);
	r = reply(x, before);
	assert_int_equal(r.n, 1);
	assert_string_equal(r.file[0].path, "real");
	garret_app_reply_release(&r);
	garret_app_snapshot_free(before);
	world_end(x);
}

/* ---- D8.8 ---- */

static struct garret_app_browse browse(struct world *x)
{
	struct garret_app_browse r;

	assert_int_equal(garret_app_browse(x->run.workspace, &r, NULL), 0);
	return r;
}

TEST(D8_8_what_the_platform_keeps_is_hidden)
{
	struct world *x = world_new(NULL);
	struct garret_app_browse r;

	world_put(x, "b/c.txt", "c");
	world_put(x, "a.txt", "abc");
	world_put(x, "skills/s/SKILL.md", "x");
	world_put(x, "tool_output/r/c.0", "x");
	world_put(x, "uploads/u.txt", "x");
	world_put(x, "skillset.txt", "x");
	world_allow(x);
	r = browse(x);
	assert_int_equal(x->operations, 1);
	assert_int_equal(r.n, 6);
	assert_string_equal(r.entry[0].path, "a.txt");
	assert_int_equal(r.entry[0].type, GARRET_REGULAR);
	assert_int_equal(r.entry[0].bytes, 3);
	assert_string_equal(r.entry[1].path, "b");
	assert_int_equal(r.entry[1].type, GARRET_DIRECTORY);
	assert_string_equal(r.entry[2].path, "b/c.txt");
	assert_string_equal(r.entry[3].path, "skillset.txt");
	assert_false(r.truncated);
	assert_null(r.unreadable);
	garret_app_browse_release(&r);
	world_end(x);
}

TEST(D8_8_an_empty_one_is_empty_and_an_unreadable_one_says_why)
{
	struct world *x = world_new(NULL);
	struct garret_workspace *w;
	struct garret_app_browse r = browse(x);
	struct garret_error err = { 0 };

	assert_int_equal(r.n, 0);
	assert_null(r.unreadable);
	assert_int_equal(r.code, GARRET_OK);
	garret_app_browse_release(&r);
	assert_int_equal(garret_unavailable(x->context, "it was purged\nyesterday", &w, NULL), 0);
	world_use(x, w);
	r = browse(x);
	assert_int_equal(r.n, 0);
	assert_string_equal(r.unreadable, "unreadable because it was purged yesterday");
	assert_int_equal(r.code, GARRET_GONE);
	garret_app_browse_release(&r);
	garret_app_browse_list(NULL, NULL, &r);
	has(r.unreadable, "unreadable because ");
	assert_int_equal(r.code, GARRET_UNAVAILABLE);
	garret_app_browse_release(&r);
	world_use(x, garret_workspace_dup(x->bare));
	world_refuse(x, GARRET_OP_WALK, NULL, GARRET_CANCELLED);
	assert_int_equal(garret_app_browse(x->run.workspace, &r, &err), -GARRET_CANCELLED);
	garret_app_browse_release(&r);
	world_end(x);
}

TEST(D8_8_depth_6_and_2000_entries)
{
	struct world *x = world_new(NULL);
	struct garret_app_browse r;

	world_put(x, "1/2/3/4/5/file", "x");
	r = browse(x);
	assert_int_equal(r.n, 6);
	assert_false(r.truncated);
	garret_app_browse_release(&r);
	world_put(x, "1/2/3/4/5/6/file", "x");
	r = browse(x);
	assert_true(r.truncated);
	assert_int_equal(r.n, 7);
	garret_app_browse_release(&r);
	assert_int_equal(garret_remove(x->bare, "1", NULL), 0);
	world_fill(x, "d", 1999);
	world_fill(x, "tool_output/r", 1500); /* takes no room */
	r = browse(x);
	assert_int_equal(r.n, 2000);
	assert_false(r.truncated);
	garret_app_browse_release(&r);
	world_put(x, "e", "");
	r = browse(x);
	assert_int_equal(r.n, 2000);
	assert_true(r.truncated);
	garret_app_browse_release(&r);
	world_end(x);
}

TEST(D8_8_at_most_24_thumbnails_of_sources_within_bounds)
{
	static const struct {
		const char *name;
		uint64_t bytes;
		enum garret_type type;
		bool thumbnail;
	} rows[] = {
		{ "a.png", 100, GARRET_REGULAR, true },
		{ "b.png", GARRET_APP_THUMBNAIL_BYTES, GARRET_REGULAR, true },
		{ "c.png", GARRET_APP_THUMBNAIL_BYTES + 1, GARRET_REGULAR, false },
		{ "d.png", GARRET_SIZE_UNKNOWN, GARRET_REGULAR, false },
		{ "e.png", 0, GARRET_REGULAR, false },
		{ "f.png", 100, GARRET_DIRECTORY, false },
		{ "g.txt", 100, GARRET_REGULAR, false },
		{ "h.JPG", 100, GARRET_REGULAR, true },
	};
	struct garret_entry entries[40] = { 0 };
	struct garret_list l = { .entry = entries, .n = ARRAY_SIZE(rows) };
	struct garret_app_browse r;
	char names[40][8];
	unsigned n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		entries[i].name = (char *)(uintptr_t)rows[i].name;
		entries[i].bytes = rows[i].bytes;
		entries[i].type = rows[i].type;
	}
	garret_app_browse_list(&l, NULL, &r);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(r.entry[i].thumbnail, rows[i].thumbnail);
	garret_app_browse_release(&r);
	for (size_t i = 0; i < 40; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "%02zu.png", i);
		entries[i] = (struct garret_entry){ .name = names[i], .bytes = 10 };
	}
	l.n = 40;
	garret_app_browse_list(&l, NULL, &r);
	for (size_t i = 0; i < 40; i++)
		n += r.entry[i].thumbnail;
	assert_int_equal(n, GARRET_APP_THUMBNAILS);
	assert_true(r.entry[23].thumbnail);
	garret_app_browse_release(&r);
}

TEST(a_list_of_a_stranger_leads_nowhere)
{
	static const char *const names[] = { "/etc/passwd",   "../x",     "a/../../b", "a//b",
					     "./a",           "",         "a/",        "..",
					     "1/2/3/4/5/6/7", "skills/x", "good" };
	struct garret_entry entries[ARRAY_SIZE(names)] = { 0 };
	struct garret_list l = { .entry = entries, .n = ARRAY_SIZE(names) };
	struct garret_app_browse r;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		entries[i].name = (char *)(uintptr_t)names[i];
	garret_app_browse_list(&l, NULL, &r);
	assert_int_equal(r.n, 1);
	assert_string_equal(r.entry[0].path, "good");
	assert_true(r.truncated); /* something lies deeper */
	garret_app_browse_release(&r);
}
TEST_MAIN
