/* Attachments: workspaces that refuse, turns without room, and no workspace at all. */
#include "attach.h"
#include "base/text.h"

/* ---- a workspace that refuses ---- */

TEST(D12_09_a_full_workspace_still_names_and_samples)
{
	struct world *x = world_new("1k");
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	autobuf struct strbuf text = STRBUF_INIT;
	struct garret_app_attached r;

	for (int i = 1; i <= 1000; i++)
		strbuf_addf(&text, "line %d\n", i);
	r = attach(turn, file("big.txt", text.buf));
	assert_int_equal(r.refused, GARRET_NO_SPACE);
	/* D12_11: no path is given */
	assert_null(r.path);
	lacks(r.text, "uploads/");
	has(r.text, "don't guess why");
	has(r.text, "\"big.txt\"");
	has(r.text, "| line 1\n");
	/* D12_10: not pasted whole */
	lacks(r.text, "line 21");
	/* D12_29: size isn't blamed */
	lacks(r.text, "large");
	lacks(r.text, " space");
	lacks(r.text, "full");
	assert_true(r.processed);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_30_a_refusal_is_said_once_in_a_turn)
{
	struct world *x = world_new("1k");
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	char *large = xcalloc(1, 3001);
	struct garret_app_attached r;

	memset(large, 'a', 3000);
	r = attach(turn, file("a.txt", large));
	has(r.text, "The workspace would not take a file in this turn.\n");
	garret_app_attached_release(&r);
	r = attach(turn, file("b.txt", large));
	lacks(r.text, "would not take");
	assert_int_equal(r.refused, GARRET_NO_SPACE);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	turn = turn_of(x, 0, 0); /* another turn */
	r = attach(turn, file("b.txt", large));
	has(r.text, "would not take");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	free(large);
	world_end(x);
}

TEST(D12_31_nothing_is_said_when_all_landed)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attached r = attach(turn, file("a.txt", "x"));

	lacks(r.text, "would not");
	lacks(r.text, "guess");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	turn = turn_of(NULL, 0, 0); /* or without a workspace */
	r = attach(turn, file("a.txt", "x"));
	lacks(r.text, "would not");
	lacks(r.text, "guess");
	lacks(r.text, "uploads");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_12_an_unparsed_one_that_is_not_stored_is_still_named)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attached r;

	world_refuse(x, GARRET_OP_WRITE, NULL, GARRET_FAILED);
	r = attach(turn, file("x.bin", "\x01\xff\xfe"));
	has(r.text, "\"x.bin\" (file, 3 bytes)");
	has(r.text, "could not be processed");
	assert_false(r.processed);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_13_an_image_that_is_not_stored_is_still_shown)
{
	struct world *x = world_new("1k");
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = picture("x.png", 5000);
	struct garret_app_attached r = attach(turn, a);

	assert_int_equal(r.refused, GARRET_NO_SPACE);
	assert_null(r.path);
	assert_int_equal(r.shown, 1);
	assert_true(r.processed);
	garret_app_attached_release(&r);
	free((void *)(uintptr_t)a.data);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_14_one_that_could_not_be_loaded_is_named)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = file("lost.png", "");
	struct garret_app_attached r;

	a.data = NULL;
	r = attach(turn, a);
	has(r.text, "\"lost.png\" (image)");
	has(r.text, "could not be loaded");
	assert_false(r.processed);
	assert_null(r.path);
	assert_int_equal(r.shown, 0);
	assert_int_equal(x->operations, 0);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D11_F3_whatever_the_workspace_says_the_turn_goes_on)
{
	static const enum garret_code codes[] = {
		GARRET_FAILED,  GARRET_GONE,      GARRET_UNAVAILABLE, GARRET_READ_ONLY,
		GARRET_TIMEOUT, GARRET_DENIED,    GARRET_OUTSIDE,     GARRET_NOT_DIRECTORY,
		GARRET_MISUSE,  GARRET_TOO_LARGE, GARRET_PROTOCOL,    GARRET_UNSUPPORTED,
	};
	static const enum garret_operation ops[] = { GARRET_OP_STAT, GARRET_OP_WRITE };

	for (size_t i = 0; i < 2 * ARRAY_SIZE(codes); i++) {
		struct world *x = world_new(NULL);
		struct garret_app_turn *turn = turn_of(x, 0, 0);
		struct garret_app_attached r;

		world_refuse(x, ops[i % 2], NULL, codes[i / 2]);
		r = attach(turn, file("a.txt", "hello"));
		assert_int_equal(r.refused, codes[i / 2]);
		assert_null(r.path);
		has(r.text, "| hello\n");
		has(r.text, "would not take");
		garret_app_attached_release(&r);
		garret_app_turn_free(turn);
		world_end(x);
	}
}

TEST(D12_12_an_unavailable_a_read_only_and_a_blocked_one)
{
	struct world *x = world_new(NULL);
	struct garret_workspace *w;
	struct garret_app_turn *turn;
	struct garret_app_attached r;

	assert_int_equal(garret_wrap_read_only(x->bare, &w, NULL), 0);
	world_use(x, w);
	turn = turn_of(x, 0, 0);
	r = attach(turn, file("a.txt", "hello"));
	assert_int_equal(r.refused, GARRET_READ_ONLY);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	assert_int_equal(garret_unavailable(x->context, "purged", &w, NULL), 0);
	world_use(x, w);
	turn = turn_of(x, 0, 0);
	r = attach(turn, file("a.txt", "hello"));
	assert_int_equal(r.refused, GARRET_GONE);
	lacks(r.text, "purged");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_use(x, garret_workspace_dup(x->bare));
	turn = turn_of(x, 0, 0);
	assert_int_equal(garret_make_dir(x->bare, "uploads/0a1b2c3d-a.txt", NULL), 0);
	r = attach(turn, file("a.txt", "hello"));
	assert_int_equal(r.refused, GARRET_IS_DIRECTORY);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

/* ---- what a turn has room for ---- */

TEST(D12_25_one_enormous_line_is_bounded)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	char *large = xcalloc(1, (1 << 20) + 1);
	struct garret_app_attached r;

	memset(large, 'x', 1 << 20);
	r = attach(turn, file("one.txt", large));
	assert_true(strlen(r.text) < 2200);
	has(r.text, "\n(there is more)\n");
	garret_app_attached_release(&r);
	free(large);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_26_a_reference_without_room_is_dropped_whole)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 200);
	struct garret_app_attachment a = file("x.png", PNG);
	struct garret_app_attached r = attach(turn, file("a.txt", "first"));

	assert_false(r.dropped);
	garret_app_attached_release(&r);
	r = attach(turn, a);
	assert_false(r.dropped);
	garret_app_attached_release(&r);
	r = attach(turn, a);
	assert_true(r.dropped);
	assert_string_equal(r.text, "");
	assert_int_equal(r.shown, 0); /* what isn't named isn't shown */
	assert_non_null(r.path);      /* it is in the workspace, though */
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_26_a_reference_is_never_half)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 300);
	char large[1001];
	struct garret_app_attached r;

	memset(large, 'x', 1000);
	large[1000] = '\0';
	r = attach(turn, file("a.txt", large)); /* its first line alone would fit */
	assert_true(r.dropped);
	assert_string_equal(r.text, "");
	garret_app_attached_release(&r);
	r = attach(turn, file("b.txt", "short")); /* a smaller one has room */
	assert_false(r.dropped);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_26_a_paste_is_cut_once)
{
	struct garret_app_turn *turn = turn_of(NULL, 0, 1000);
	char *large = xcalloc(1, 5001);
	struct garret_app_attached r;

	memset(large, 'x', 5000);
	for (size_t i = 2; i < 4998; i += 2)
		memcpy(large + i, "\xc3\xa9", 2); /* no half of a character */
	r = attach(turn, file("a.txt", large));
	assert_false(r.dropped);
	assert_true(strlen(r.text) <= 1000 && strlen(r.text) > 990);
	has(r.text, "\n(cut here)\n");
	assert_true(utf8_valid(r.text, strlen(r.text)));
	garret_app_attached_release(&r);
	r = attach(turn, file("b.txt", "y"));
	assert_true(r.dropped);
	assert_string_equal(r.text, "");
	garret_app_attached_release(&r);
	free(large);
	garret_app_turn_free(turn);
}

/* ---- without a workspace ---- */

TEST(D8_1_without_a_workspace_text_is_pasted)
{
	struct garret_app_turn *turn = turn_of(NULL, 0, 0);
	char *large = xcalloc(1, 40001);
	struct garret_app_attachment a = file("r.pdf", "%PDF \x01\xff");
	struct garret_app_attached r = attach(turn, file("a.txt", "one\ntwo\n"));

	has(r.text, "It holds:\n| one\n| two\n");
	assert_null(r.path);
	assert_true(r.processed);
	garret_app_attached_release(&r);
	a.text = "of a pdf \xff";
	r = attach(turn, a);
	has(r.text, "| of a pdf \xef\xbf\xbd\n");
	garret_app_attached_release(&r);
	memset(large, 'x', 40000);
	r = attach(turn, file("b.txt", large));
	has(r.text, "\n(cut here)\n");
	assert_true(strlen(r.text) > 32000 && strlen(r.text) < 32200);
	garret_app_attached_release(&r);
	r = attach(turn, file("c.png", PNG));
	assert_int_equal(r.shown, 1);
	garret_app_attached_release(&r);
	r = attach(turn, file("d.bin", "\x01\xff"));
	has(r.text, "could not be processed");
	garret_app_attached_release(&r);
	free(large);
	garret_app_turn_free(turn);
}

TEST(a_workspace_that_stands_for_none_is_none)
{
	struct world *x = world_new(NULL);
	struct garret_workspace *none;
	struct garret_app_turn *turn;
	struct garret_app_attached r;

	assert_int_equal(garret_no_workspace(x->context, &none, NULL), 0);
	world_use(x, none);
	turn = turn_of(x, 0, 0);
	r = attach(turn, file("a.txt", "hello"));
	has(r.text, "It holds:\n| hello\n");
	assert_int_equal(r.refused, GARRET_OK);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

/* ---- pages ---- */

TEST(D12_27_a_tiff_of_several_pages_is_named_and_its_pages_shown)
{
	static const char two[] =
		"II*\0\x08\0\0\0"
		"\x01\x00\x00\x01\x03\x00\x01\x00\x00\x00\x01\x00\x00\x00\x1a\0\0\0"
		"\x01\x00\x00\x01\x03\x00\x01\x00\x00\x00\x01\x00\x00\x00\0\0\0\0";
	const struct garret_app_page pages[] = { { "page 1", 400 }, { "page 2", 400 } };
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 1000, 0);
	struct garret_app_attachment a = file("scan.tiff", "");
	struct garret_app_attached r;

	a.data = two;
	a.bytes = sizeof(two) - 1;
	r = attach(turn, a); /* models don't take it as it is */
	assert_int_equal(r.pages, 2);
	assert_int_equal(r.shown, 0);
	has(r.text, ", 2 pages): uploads/");
	has(r.text, "It is not shown.");
	garret_app_attached_release(&r);
	a.pages = pages;
	a.n_pages = 2;
	r = attach(turn, a);
	assert_int_equal(r.shown, 2);
	has(r.text, "Shown: the first 2 of its pages.");
	garret_app_attached_release(&r);
	r = attach(turn, a); /* 200 bytes are left */
	assert_int_equal(r.shown, 0);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	turn = turn_of(x, 500, 0);
	r = attach(turn, a);
	assert_int_equal(r.shown, 1);
	has(r.text, "Shown: the first 1 of its pages.");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	turn = turn_of(x, 500, 0);
	a.n_pages = 1;
	a.data = PNG;
	a.bytes = 8;
	r = attach(turn, a);
	has(r.text, ", 1 page)");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_28_an_image_that_is_there_already_is_shown)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attached r = attach(turn, file("x.png", PNG));

	garret_app_attached_release(&r);
	r = attach(turn, file("x.png", PNG));
	assert_false(r.written);
	assert_int_equal(r.shown, 1);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

/* ---- what the program gave wrong ---- */

TEST(bad_arguments_are_named)
{
	static const enum garret_app_kind bad[] = { GARRET_APP_KINDS };
	struct garret_app_turn_options o = { .size = sizeof(o), .parsed = bad, .n_parsed = 1 };
	struct garret_app_turn *turn = NULL;
	struct garret_app_attachment a = file("x", "x");
	struct garret_app_attached r;
	struct garret_error err = { 0 };

	assert_int_equal(garret_app_turn_new(NULL, &o, &turn, &err), -GARRET_INVALID);
	has(err.msg, "parsed");
	o.size = 3;
	assert_int_equal(garret_app_turn_new(NULL, &o, &turn, &err), -GARRET_MISUSE);
	assert_int_equal(garret_app_turn_new(NULL, NULL, &turn, &err), 0);
	a.id = "0a1b2c3";
	assert_int_equal(garret_app_attach(turn, &a, &r, &err), -GARRET_INVALID);
	has(err.msg, "id");
	a.id = NULL;
	assert_int_equal(garret_app_attach(turn, &a, &r, &err), -GARRET_INVALID);
	a = file("x", "x");
	a.kind = GARRET_APP_KINDS;
	assert_int_equal(garret_app_attach(turn, &a, &r, &err), -GARRET_INVALID);
	has(err.msg, "kind");
	a.size = 1;
	assert_int_equal(garret_app_attach(turn, &a, &r, &err), -GARRET_MISUSE);
	assert_null(garret_app_turn_free(turn));
	assert_null(garret_app_turn_free(NULL));
}

TEST(a_cancelled_handle_ends_the_call)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = file("r.pdf", "%PDF");
	struct garret_app_attached r;
	struct garret_error err = { 0 };

	a.text = "text";
	world_refuse(x, GARRET_OP_WRITE, ".txt", GARRET_CANCELLED);
	assert_int_equal(garret_app_attach(turn, &a, &r, &err), -GARRET_CANCELLED);
	assert_int_equal(err.code, GARRET_CANCELLED);
	assert_null(r.path);
	garret_app_turn_free(turn);
	world_end(x);
}
TEST_MAIN
