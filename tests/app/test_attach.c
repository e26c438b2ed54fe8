/* Attachments: where they go, and what is said of them. */
#include "attach.h"

/* ---- in a workspace ---- */

TEST(D12_01_it_is_written_and_referenced_not_pasted)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	autobuf struct strbuf text = STRBUF_INIT;
	struct garret_app_attached r;

	for (int i = 1; i <= 100; i++)
		strbuf_addf(&text, "line %d\n", i);
	r = attach(turn, file("notes.txt", text.buf));
	assert_string_equal(r.path, "uploads/0a1b2c3d-notes.txt");
	is_at(x, "uploads/0a1b2c3d-notes.txt", text.buf);
	assert_true(r.written && r.processed && !r.dropped);
	assert_int_equal(r.refused, GARRET_OK);
	has(r.text, "\"notes.txt\" (text, ");
	has(r.text, " bytes): uploads/0a1b2c3d-notes.txt\n");
	/* D12_02: its head is shown */
	has(r.text, "It begins:\n| line 1\n| line 2\n");
	has(r.text, "| line 20\n(there is more)\n");
	lacks(r.text, "line 21");
	assert_int_equal(x->operations, 2); /* is it there, and in with it */
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_02_a_short_head_is_the_whole)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attached r = attach(turn, file("a.txt", "one\r\ntwo"));

	has(r.text, "It begins:\n| one\n| two\n");
	lacks(r.text, "there is more");
	garret_app_attached_release(&r);
	r = attach(turn, file("empty.txt", ""));
	assert_true(r.written);
	lacks(r.text, "It begins");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_03_an_image_is_both_seen_and_written)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	static const char *const begins[] = { PNG, "\xff\xd8\xff\xe0", "GIF87a", "GIF89a",
					      "RIFF1234WEBP" };

	for (size_t i = 0; i < ARRAY_SIZE(begins); i++) {
		char id[] = "00000000";
		struct garret_app_attachment a = file("x.png", begins[i]);
		struct garret_app_attached r;

		id[0] = (char)('1' + i);
		a.id = id;
		r = attach(turn, a);
		assert_int_equal(r.shown, 1);
		assert_true(r.written);
		has(r.text, "(image, ");
		has(r.text, "It is shown.\n");
		garret_app_attached_release(&r);
	}
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(what_only_calls_itself_an_image_is_not_shown)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = file("x.png", "#!/bin/sh\n");
	struct garret_app_attached r;

	a.media_type = "image/png";
	r = attach(turn, a);
	assert_int_equal(r.shown, 0);
	has(r.text, "It is not shown.\n");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_04_a_large_image_is_written_and_not_shown)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn;
	struct garret_app_attachment a = picture("x.png", 1001), small = picture("y.png", 1000);
	struct garret_app_attached r;

	x->app.inline_image_max_bytes = 1000;
	turn = turn_of(x, 0, 0);
	r = attach(turn, a);
	assert_int_equal(r.shown, 0);
	assert_true(r.written && world_has(x, "uploads/0a1b2c3d-x.png"));
	has(r.text, "It is not shown.");
	garret_app_attached_release(&r);
	r = attach(turn, small);
	assert_int_equal(r.shown, 1);
	garret_app_attached_release(&r);
	free((void *)(uintptr_t)a.data);
	free((void *)(uintptr_t)small.data);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_05_a_turn_stops_showing_when_its_bytes_are_spent)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 2500, 0);
	struct garret_app_attachment a = picture("x.png", 1000);
	static const size_t want[] = { 1, 1, 0, 0 };

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		struct garret_app_attached r = attach(turn, a);

		assert_int_equal(r.shown, want[i]);
		has(r.text, "\"x.png\""); /* the rest is named */
		garret_app_attached_release(&r);
	}
	free((void *)(uintptr_t)a.data);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(a_model_without_eyes_is_shown_nothing)
{
	struct world *x = world_new(NULL);
	const struct garret_app_turn_options o = { .size = sizeof(o), .no_images = true };
	struct garret_app_turn *turn;
	struct garret_app_attached r;

	assert_int_equal(garret_app_turn_new(&x->run, &o, &turn, NULL), 0);
	r = attach(turn, file("x.png", PNG));
	assert_int_equal(r.shown, 0);
	assert_true(r.written);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_06_a_pdf_keeps_its_bytes_and_gains_text)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = file("r.pdf", "%PDF-1.7 \x01\xff");
	struct garret_app_attached r;
	struct garret_bytes b;

	a.text = "Annual report";
	r = attach(turn, a);
	assert_string_equal(r.path, "uploads/0a1b2c3d-r.pdf");
	assert_string_equal(r.text_path, "uploads/0a1b2c3d-r.pdf.txt");
	assert_true(r.text_written);
	is_at(x, r.text_path, "Annual report");
	assert_int_equal(garret_read(x->bare, r.path, &b, NULL), 0);
	assert_memory_equal(b.data, a.data, a.bytes);
	garret_bytes_release(&b);
	has(r.text, "Its text: uploads/0a1b2c3d-r.pdf.txt\n");
	has(r.text, "| Annual report\n");
	assert_int_equal(x->operations, 3); /* beside a new file nothing is: it isn't asked for */
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_07_on_a_later_turn_it_is_not_written_again)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attached r = attach(turn, file("a.txt", "as it came"));

	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_put(x, "uploads/0a1b2c3d-a.txt", "edited since");
	world_allow(x);
	turn = turn_of(x, 0, 0);
	r = attach(turn, file("a.txt", "as it came"));
	assert_false(r.written);
	assert_string_equal(r.path, "uploads/0a1b2c3d-a.txt");
	is_at(x, r.path, "edited since");
	assert_int_equal(x->operations, 1);
	assert_int_equal(x->count[GARRET_OP_STAT], 1);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_08_two_files_of_one_name_do_not_overwrite)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment other = file("a.txt", "second");
	struct garret_app_attached r = attach(turn, file("a.txt", "first"));

	garret_app_attached_release(&r);
	other.id = "ffffffff-0000-4000-8000-000000000000";
	r = attach(turn, other);
	is_at(x, "uploads/0a1b2c3d-a.txt", "first");
	is_at(x, "uploads/ffffffff-a.txt", "second");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

/* ---- paths ---- */

TEST(D12_15_the_path_is_relative_and_D12_17_real)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attached r = attach(turn, file("My notes (1).txt", "hello"));

	assert_int_not_equal(*r.path, '/');
	has(r.text, "\"My notes (1).txt\"");
	has(r.text, ": uploads/0a1b2c3d-My_notes__1_.txt\n");
	assert_true(world_has(x, r.path));
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_22_hostile_names_stay_under_uploads)
{
	static const char *const names[] = {
		"../../etc/passwd", "/abs", "..", "a/../../b", ".", "-rf", "x\n| forged line",
		"\"): secret/path", ""
	};
	struct world *x = world_new(NULL);
	struct garret_list l;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct garret_app_turn *turn = turn_of(x, 0, 0);
		struct garret_app_attached r = attach(turn, file(names[i], "x"));

		assert_memory_equal(r.path, "uploads/0a1b2c3d-", 17);
		assert_null(strchr(r.path + 17, '/'));
		lacks(r.text, "\n| forged");
		lacks(r.text, "\"): secret");
		garret_app_attached_release(&r);
		garret_app_turn_free(turn);
	}
	assert_int_equal(garret_list_dir(x->bare, ".", &l, NULL), 0);
	assert_int_equal(l.n, 1);
	assert_string_equal(l.entry[0].name, "uploads");
	garret_list_release(&l);
	world_end(x);
}

TEST(D12_24_no_name_at_all)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = file(NULL, "x");
	struct garret_app_attached r = attach(turn, a);

	assert_string_equal(r.path, "uploads/0a1b2c3d-attachment");
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

/* ---- text beside a file ---- */

TEST(D12_18_a_runtime_that_can_read_it_gets_no_copy)
{
	static const enum garret_app_kind parsed[] = { GARRET_APP_KIND_PDF, GARRET_APP_KIND_EMAIL };
	const struct garret_app_turn_options o = { .size = sizeof(o),
						   .parsed = parsed,
						   .n_parsed = 2 };
	static const struct {
		const char *name;
		bool copy;
	} rows[] = {
		{ "a.pdf", false }, { "a.docx", true }, /* D12_19: one that can't keeps the text */
		{ "a.xlsx", true }, { "a.doc", true },
		{ "a.pptx", true }, { "a.eml", true }, /* of email always */
		{ "a.txt", false }, { "a.bin", false },
	};
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn;

	assert_int_equal(garret_app_turn_new(&x->run, &o, &turn, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct garret_app_attachment a = file(rows[i].name, "\x01\x02\xff");
		struct garret_app_attached r;

		a.text = "extracted";
		r = attach(turn, a);
		assert_int_equal(r.text_path != NULL, rows[i].copy);
		assert_int_equal(strstr(r.text, "Its text:") != NULL, rows[i].copy);
		has(r.text, "| extracted\n"); /* its head is shown in any case */
		garret_app_attached_release(&r);
	}
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_20_a_refused_sibling_is_not_named)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = file("r.pdf", "%PDF");
	struct garret_app_attached r;

	a.text = "text";
	world_refuse(x, GARRET_OP_WRITE, ".pdf.txt", GARRET_FAILED);
	r = attach(turn, a);
	assert_string_equal(r.path, "uploads/0a1b2c3d-r.pdf");
	assert_null(r.text_path);
	lacks(r.text, ".pdf.txt");
	has(r.text, ": uploads/0a1b2c3d-r.pdf\n");
	has(r.text, "would not take a file"); /* and that is said */
	assert_int_equal(r.refused, GARRET_FAILED);
	garret_app_attached_release(&r);
	/* the next turn finds the file, not its text, and tries again */
	world_allow(x);
	r = attach(turn, a);
	assert_false(r.written);
	assert_true(r.text_written);
	assert_non_null(r.text_path);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}

TEST(D12_21_a_sibling_of_an_earlier_turn_is_named)
{
	struct world *x = world_new(NULL);
	struct garret_app_turn *turn = turn_of(x, 0, 0);
	struct garret_app_attachment a = file("r.pdf", "%PDF");
	struct garret_app_attached r;

	a.text = "text";
	r = attach(turn, a);
	garret_app_attached_release(&r);
	world_allow(x);
	a.text = NULL; /* nothing was extracted this time */
	r = attach(turn, a);
	assert_false(r.written || r.text_written);
	assert_string_equal(r.text_path, "uploads/0a1b2c3d-r.pdf.txt");
	assert_int_equal(x->operations, 2);
	garret_app_attached_release(&r);
	garret_app_turn_free(turn);
	world_end(x);
}
TEST_MAIN
