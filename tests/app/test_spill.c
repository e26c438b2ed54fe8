/* Outputs that are too large for the context: kept, read back, and reduced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/mem.h"
#include "base/text.h"
#include "world.h"

#define RUN "00000000000000000000000000000001"

static char *spill(struct garret_app_spill *s, const char *call, unsigned retry, const char *text)
{
	char *handle = NULL;

	assert_int_equal(garret_app_spill_write(s, call, retry, text, strlen(text), &handle, NULL),
			 0);
	return handle;
}

static void spill_away(struct world *x, const char *call)
{
	struct garret_app_spill *s = garret_app_spill_new(&x->run);

	free(spill(s, call, 0, "output"));
	garret_app_spill_free(s);
}

static void reads(struct garret_app_spill *s, const char *handle, uint64_t offset, size_t bytes,
		  const char *want)
{
	struct garret_bytes b;

	assert_int_equal(garret_app_spill_read(s, handle, offset, bytes, &b, NULL), 0);
	assert_string_equal(b.data, want);
	assert_int_equal(b.n, strlen(want));
	garret_bytes_release(&b);
}

static void refuses(struct garret_app_spill *s, const char *handle, enum garret_code code)
{
	struct garret_error err = { 0 };
	struct garret_bytes b;

	assert_int_equal(garret_app_spill_read(s, handle, 0, 0, &b, &err), -(int)code);
	assert_int_equal(err.code, code);
	assert_null(b.data);
}

/* ---- D12: spills ---- */

TEST(D10_1_the_handle_is_the_path_that_the_workspace_resolved)
{
	struct world *x = world_new(NULL);
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	char *handle = spill(s, "call-1", 0, "whole output"), *path = NULL;

	assert_string_equal(handle, world_at(x, "tool_output/" RUN "/call-1.0")); /* D12_33 */
	assert_int_equal(
		garret_resolve(x->run.workspace, "tool_output/" RUN "/call-1.0", NULL, &path, NULL),
		0);
	assert_string_equal(handle, path);
	assert_int_equal(x->operations, 1);
	reads(s, handle, 0, 0, "whole output"); /* D12_32: read back by handle */
	reads(s, handle, 6, 3, "out");
	reads(s, handle, 6, 100, "output");
	assert_int_equal(x->run.spills->n, 1); /* D12_36: a written handle is in the list */
	assert_string_equal(x->run.spills->path[0], handle);
	assert_null(x->run.spills->path[1]);
	assert_ptr_equal(core_recorded, &x->run);
	free(path);
	free(handle);
	assert_null(garret_app_spill_free(s));
	assert_null(garret_app_spill_free(NULL));
	world_end(x);
}

TEST(each_try_is_a_file_and_the_same_one_is_listed_once)
{
	struct world *x = world_new(NULL);
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	char *a = spill(s, "call", 0, "a"), *b = spill(s, "call", 1, "b");
	char *again = spill(s, "call", 0, "a again");

	assert_string_not_equal(a, b);
	assert_string_equal(a, again);
	reads(s, a, 0, 0, "a again");
	reads(s, b, 0, 0, "b");
	assert_int_equal(x->run.spills->n, 2);
	free(a);
	free(b);
	free(again);
	garret_app_spill_free(s);
	world_end(x);
}

TEST(a_record_that_fails_is_told_and_the_output_is_kept)
{
	struct world *x = world_new(NULL);

	core_refuses = GARRET_UNAVAILABLE;
	spill_away(x, "call");
	assert_int_equal(x->run.spills->n, 1);
	assert_string_equal(x->event, "workspace_spill_not_recorded");
	has(x->fields, "error=UNAVAILABLE");
	lacks(x->fields, "database");
	spill_away(x, "call"); /* the same one changes nothing */
	assert_int_equal(x->events, 1);
	world_end(x);
}

TEST(hostile_ids_of_calls_stay_in_the_directory_of_the_run)
{
	static const char *const calls[] = {
		"../../etc/passwd", "/abs", "..", ".", "", "-rf", "a b", "a/b", "x\ny"
	};
	struct world *x = world_new(NULL);
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	const char *begin = world_at(x, "tool_output/" RUN "/_");
	char longer[100], digest[65], *handle, *hash;

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		handle = spill(s, calls[i], 0, calls[i]);
		assert_memory_equal(handle, begin, strlen(begin));
		assert_null(strchr(handle + strlen(begin), '/'));
		reads(s, handle, 0, 0, calls[i]);
		free(handle);
	}
	memset(longer, 'x', 99);
	longer[99] = '\0';
	handle = spill(s, longer, 0, "long");
	assert_true(strlen(handle) < strlen(begin) + 83);
	/* who calls itself as that hash is another file */
	app_sha256(longer, 99, digest);
	has(handle, digest);
	hash = spill(s, digest, 0, "hash");
	assert_string_not_equal(hash, handle);
	reads(s, hash, 0, 0, "hash");
	assert_int_equal(x->run.spills->n, ARRAY_SIZE(calls) + 2);
	free(hash);
	free(handle);
	garret_app_spill_free(s);
	world_end(x);
}

TEST(D12_34_a_refused_write_is_an_error_and_D12_37_is_not_listed)
{
	static const enum garret_code codes[] = { GARRET_FAILED, GARRET_NO_SPACE, GARRET_READ_ONLY,
						  GARRET_GONE, GARRET_DENIED };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		struct world *x = world_new(NULL);
		struct garret_app_spill *s = garret_app_spill_new(&x->run);
		struct garret_error err = { 0 };
		char *handle = NULL;

		world_refuse(x, GARRET_OP_WRITE, NULL, codes[i]);
		assert_int_equal(garret_app_spill_write(s, "c", 0, "x", 1, &handle, &err),
				 -(int)codes[i]);
		assert_int_equal(err.code, codes[i]);
		assert_null(handle);
		assert_int_equal(x->run.spills->n, 0);
		assert_int_equal(x->events, 0);
		garret_app_spill_free(s);
		world_end(x);
	}
}

TEST(D12_34_one_whose_working_directory_is_not_known)
{
	struct world *x = world_new(NULL);
	struct garret_app_spill *s;
	struct garret_workspace *w;
	struct garret_error err = { 0 };
	char *handle = NULL;

	assert_int_equal(garret_unavailable(x->context, "purged", &w, NULL), 0);
	world_use(x, w);
	s = garret_app_spill_new(&x->run);
	assert_int_equal(garret_app_spill_write(s, "c", 0, "x", 1, &handle, &err), -GARRET_GONE);
	refuses(s, "/tool_output/" RUN "/c.0", GARRET_GONE);
	garret_app_spill_free(s);
	world_end(x);
}

TEST(D12_35_an_unknown_handle_is_an_error)
{
	struct world *x = world_new(NULL);
	const char *const handles[] = {
		world_at(x, "tool_output/" RUN "/none.0"),
		"/etc/passwd",
		world_at(x, "secret.txt"),
		world_at(x, "tool_output"),
		world_at(x, "tool_output/../secret.txt"),
		world_at(x, "tool_output/" RUN "/../../secret.txt"),
		world_at(x, "tool_output_/x"),
		"tool_output/" RUN "/c.0",
		"",
	};

	world_put(x, "secret.txt", "secret");
	spill_away(x, "c");
	for (int memory = 0; memory < 2; memory++) {
		struct garret_app_spill *s = garret_app_spill_new(memory ? NULL : &x->run);

		for (size_t i = 0; i < ARRAY_SIZE(handles); i++)
			refuses(s, handles[i], GARRET_NOT_FOUND);
		refuses(s, world_at(x, "tool_output/"),
			memory ? GARRET_NOT_FOUND : GARRET_IS_DIRECTORY);
		refuses(s, NULL, GARRET_NOT_FOUND);
		garret_app_spill_free(s);
	}
	world_end(x);
}

TEST(D12_38_without_a_workspace_it_is_in_memory_and_not_listed)
{
	struct world *x = world_new(NULL);
	struct garret_app_spill *s;
	struct garret_workspace *none;
	struct garret_error err = { 0 };
	char *handle, *large = xcalloc(1, GARRET_APP_SPILL_MEMORY);

	assert_int_equal(garret_no_workspace(x->context, &none, NULL), 0);
	world_use(x, none);
	s = garret_app_spill_new(&x->run);
	handle = spill(s, "call", 0, "output");
	assert_string_equal(handle, "/tool_output/" RUN "/call.0");
	reads(s, handle, 0, 0, "output");
	reads(s, handle, 3, 0, "output");
	reads(s, handle, 3, 2, "pu");
	reads(s, handle, 50, 2, "");
	assert_int_equal(x->run.spills->n, 0);
	free(handle);
	handle = spill(s, "call", 0, "in its place");
	reads(s, handle, 0, 0, "in its place");
	free(handle);
	/* bounded: what one had is not counted twice */
	assert_int_equal(garret_app_spill_write(s, "big", 0, large, GARRET_APP_SPILL_MEMORY - 12,
						&handle, &err),
			 0);
	free(handle);
	assert_int_equal(garret_app_spill_write(s, "big", 0, large, GARRET_APP_SPILL_MEMORY - 12,
						&handle, &err),
			 0);
	free(handle);
	assert_int_equal(garret_app_spill_write(s, "more", 0, "x", 1, &handle, &err),
			 -GARRET_NO_SPACE);
	assert_null(handle);
	garret_app_spill_free(s);
	s = garret_app_spill_new(NULL);
	handle = spill(s, "call", 2, "");
	assert_string_equal(handle, "/tool_output/run/call.2");
	reads(s, handle, 0, 0, "");
	free(handle);
	assert_int_equal(garret_app_spill_write(s, NULL, 0, "x", 1, &handle, &err),
			 -GARRET_INVALID);
	has(err.msg, "call");
	garret_app_spill_free(s);
	free(large);
	world_end(x);
}

/* ---- reducing ---- */

static struct garret_app_reduced reduce(struct garret_app_spill *s, const void *data, size_t n,
					size_t limit)
{
	const struct garret_app_output o = {
		.size = sizeof(o), .call = "call", .data = data, .bytes = n, .limit = limit
	};
	struct garret_app_reduced r;

	assert_int_equal(garret_app_reduce(s, &o, &r, NULL), 0);
	return r;
}

TEST(D12_39_small_returns_are_untouched)
{
	struct world *x = world_new(NULL);
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	char *large = xcalloc(1, GARRET_APP_OUTPUT_LIMIT + 1);
	struct garret_app_reduced r = reduce(s, "small", 5, 0);

	assert_null(r.text);
	assert_null(r.handle);
	garret_app_reduced_release(&r);
	memset(large, 'x', GARRET_APP_OUTPUT_LIMIT + 1);
	r = reduce(s, large, GARRET_APP_OUTPUT_LIMIT, 0);
	assert_null(r.text);
	assert_int_equal(x->operations, 0);
	garret_app_reduced_release(&r);
	r = reduce(s, large, GARRET_APP_OUTPUT_LIMIT + 1, 0);
	assert_non_null(r.text);
	assert_true(strlen(r.text) < GARRET_APP_OUTPUT_HEAD + 200);
	garret_app_reduced_release(&r);
	free(large);
	garret_app_spill_free(s);
	world_end(x);
}

TEST(D12_40_an_oversized_one_is_spilled_and_read_back_whole)
{
	struct world *x = world_new(NULL);
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	char *text = xcalloc(1, 3001);
	struct garret_app_reduced r;

	for (size_t i = 0; i < 3000; i += 3)
		memcpy(text + i, "\xe2\x82\xac", 3);
	r = reduce(s, text, 3000, 1000);
	assert_true(strlen(r.text) <= 1000 && strlen(r.text) > 990);
	assert_true(utf8_valid(r.text, strlen(r.text)));
	has(r.text, r.handle);
	has(r.text, "3000 bytes");
	has(r.text, "\xe2\x82\xac");
	assert_false(r.truncated);
	reads(s, r.handle, 0, 0, text);
	assert_int_equal(x->run.spills->n, 1);
	garret_app_reduced_release(&r);
	free(text);
	garret_app_spill_free(s);
	world_end(x);
}

TEST(D12_41_a_refused_spill_is_a_visible_truncation)
{
	struct world *x = world_new("2k");
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	uint8_t data[3000];
	struct garret_app_reduced r;

	memset(data, 0xff, sizeof(data)); /* repaired, each becomes three bytes */
	r = reduce(s, data, sizeof(data), 600);
	assert_int_equal(r.refused, GARRET_NO_SPACE);
	assert_true(r.truncated);
	assert_null(r.handle);
	has(r.text, "cut: the rest is lost");
	has(r.text, "\xef\xbf\xbd");
	lacks(r.text, "tool_output");
	assert_true(strlen(r.text) <= 600 && strlen(r.text) > 590);
	assert_true(utf8_valid(r.text, strlen(r.text)));
	assert_int_equal(x->run.spills->n, 0);
	garret_app_reduced_release(&r);
	garret_app_spill_free(s);
	world_end(x);
}

TEST(bad_arguments_of_reduce_are_named)
{
	struct world *x = world_new(NULL);
	struct garret_app_spill *s = garret_app_spill_new(&x->run);
	struct garret_app_output o = { .size = sizeof(o), .data = "x", .bytes = 1 };
	struct garret_app_reduced r;
	struct garret_error err = { 0 };
	char large[2000] = { 0 };

	assert_int_equal(garret_app_reduce(s, &o, &r, &err), -GARRET_INVALID);
	has(err.msg, "call");
	o.call = "c";
	o.limit = GARRET_APP_OUTPUT_LEAST - 1;
	assert_int_equal(garret_app_reduce(s, &o, &r, &err), -GARRET_INVALID);
	has(err.msg, "limit");
	o.limit++;
	o.data = large;
	o.bytes = sizeof(large);
	world_refuse(x, GARRET_OP_WRITE, NULL, GARRET_CANCELLED);
	assert_int_equal(garret_app_reduce(s, &o, &r, &err), -GARRET_CANCELLED);
	o.size = 5;
	assert_int_equal(garret_app_reduce(s, &o, &r, &err), -GARRET_MISUSE);
	garret_app_spill_free(s);
	world_end(x);
}

TEST(delegates_share_the_list)
{
	struct world *x = world_new(NULL);
	struct garret_app_run delegate = { .app = &x->app,
					   .workspace = x->run.workspace,
					   .spills = app_spills_hold(x->run.spills),
					   .parent = &x->run };
	struct garret_app_spill *s = garret_app_spill_new(&delegate);

	memcpy(delegate.facts.run, "delegated", 10);
	spill_away(x, "a");
	core_recorded = NULL;
	free(spill(s, "b", 0, "b"));
	assert_int_equal(x->run.spills->n, 2);
	assert_string_equal(x->run.spills->path[1], world_at(x, "tool_output/delegated/b.0"));
	assert_ptr_equal(core_recorded, &x->run);
	/* they are the parent's to prune */
	world_allow(x);
	app_spills_prune(&delegate);
	assert_int_equal(x->operations, 0);
	garret_app_spill_free(s);
	assert_null(app_spills_drop(delegate.spills));
	assert_null(app_spills_drop(NULL));
	world_end(x);
}
TEST_MAIN
