/* Names, kinds, pages, images that a model made, artifacts, and text for a prompt. */
#include <stdlib.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/mem.h"
#include "world.h"

static void safe(const char *name, const char *want)
{
	char got[GARRET_APP_SAFE_NAME];

	garret_app_safe_name(name, got);
	assert_string_equal(got, want);
}

TEST(D12_22_a_hostile_name_is_one_plain_word)
{
	safe("report.pdf", "report.pdf");
	safe("../../etc/passwd", "etc_passwd");
	safe("/etc/passwd", "etc_passwd");
	safe("..", "attachment");
	safe("....//....//x", "x");
	safe("a...b", "a_b");
	safe("-rf", "rf");
	safe(".bashrc", "bashrc");
	safe("a b;rm -rf $HOME`x`\n.txt", "a_b_rm_-rf__HOME_x__.txt");
	safe("r\xc3\xa9sum\xc3\xa9.doc", "r_sum_.doc"); /* one for a character */
	safe("\xe6\x97\xa5\xe6\x9c\xac.png", "png");
	safe("C:\\Users\\x.txt", "C__Users_x.txt");
}

TEST(D12_23_long_names_are_bounded)
{
	char name[300], got[GARRET_APP_SAFE_NAME];

	memset(name, 'a', sizeof(name) - 1);
	name[299] = '\0';
	garret_app_safe_name(name, got);
	assert_int_equal(strlen(got), 96);
	memcpy(name + 295, ".txt", 4);
	garret_app_safe_name(name, got);
	assert_int_equal(strlen(got), 96);
	assert_string_equal(got + 91, "a.txt");
	name[91] = '.'; /* it would be cut behind a dot */
	garret_app_safe_name(name, got);
	assert_string_equal(got + 90, "a.txt");
	memset(name + 270, '.', 1); /* what is as long is no extension */
	memset(name + 271, 'b', 28);
	garret_app_safe_name(name, got);
	assert_int_equal(strlen(got), 96);
	assert_null(strchr(got + 92, 'b'));
}

TEST(D12_24_an_empty_name_gets_one)
{
	safe("", "attachment");
	safe("._-", "attachment");
	safe("\xe6\x97\xa5", "attachment");
}

TEST(kinds_come_from_the_type_or_the_name)
{
	static const struct {
		const char *type, *name;
		enum garret_app_kind kind;
	} rows[] = {
		{ "image/png", NULL, GARRET_APP_KIND_IMAGE },
		{ "IMAGE/PNG", NULL, GARRET_APP_KIND_IMAGE },
		{ "text/csv; charset=utf-8", NULL, GARRET_APP_KIND_SPREADSHEET },
		{ "text/markdown", NULL, GARRET_APP_KIND_TEXT },
		{ "application/pdf", "x.png", GARRET_APP_KIND_PDF },
		{ "application/pdfx", NULL, GARRET_APP_KIND_OTHER },
		{ "message/rfc822", NULL, GARRET_APP_KIND_EMAIL },
		{ "application/octet-stream", "a.DOCX", GARRET_APP_KIND_DOCX },
		{ NULL, "x.tar.gz", GARRET_APP_KIND_OTHER },
		{ NULL, "deck.pptx", GARRET_APP_KIND_PRESENTATION },
		{ NULL, "old.doc", GARRET_APP_KIND_DOCUMENT },
		{ NULL, "x.", GARRET_APP_KIND_OTHER },
		{ "", "", GARRET_APP_KIND_OTHER },
		{ NULL, NULL, GARRET_APP_KIND_OTHER },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(garret_app_kind_guess(rows[i].type, rows[i].name), rows[i].kind);
	assert_string_equal(garret_app_kind_name(GARRET_APP_KIND_PDF), "pdf");
	assert_string_equal(garret_app_kind_name((enum garret_app_kind)77), "file");
}

/* ---- TIFF ---- */

#define PAGE(next) \
	"\x01\x00" \
	"\x00\x01\x03\x00\x01\x00\x00\x00\x01\x00\x00\x00" next

TEST(D12_27_pages_of_a_tiff_are_counted)
{
	static const char one[] = "II*\0\x08\0\0\0" PAGE("\0\0\0\0");
	static const char two[] = "II*\0\x08\0\0\0" PAGE("\x1a\0\0\0") PAGE("\0\0\0\0");
	static const char loop[] = "II*\0\x08\0\0\0" PAGE("\x08\0\0\0");
	static const char out[] = "II*\0\x08\0\0\0" PAGE("\xff\xff\xff\xff");
	static const char none[] = "II*\0\xff\xff\xff\x7f";
	static const char fields[] = "II*\0\x08\0\0\0\xff\xff";
	static const char big[] = "MM\0*\0\0\0\x08"
				  "\0\x01"
				  "\x01\x00\0\x03\0\0\0\x01\0\0\0\x01"
				  "\0\0\0\0";
	static const char wide[] = "II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0"
				   "\x01\0\0\0\0\0\0\0"
				   "12345678901234567890"
				   "\0\0\0\0\0\0\0\0";

	assert_int_equal(app_tiff_pages(one, sizeof(one) - 1), 1);
	assert_int_equal(app_tiff_pages(two, sizeof(two) - 1), 2);
	assert_int_equal(app_tiff_pages(loop, sizeof(loop) - 1), 1);
	assert_int_equal(app_tiff_pages(out, sizeof(out) - 1), 1);
	assert_int_equal(app_tiff_pages(none, sizeof(none) - 1), 0);
	assert_int_equal(app_tiff_pages(fields, sizeof(fields) - 1), 1);
	assert_int_equal(app_tiff_pages(big, sizeof(big) - 1), 1);
	assert_int_equal(app_tiff_pages(wide, sizeof(wide) - 1), 1);
	assert_int_equal(app_tiff_pages("II\0\0\0\0\0\0", 8), 0);
	assert_int_equal(app_tiff_pages("\x89PNG\r\n\x1a\n", 8), 0);
	assert_int_equal(app_tiff_pages("II*", 3), 0);
	for (size_t n = 0; n < sizeof(two); n++) /* wherever it is cut off */
		assert_true(app_tiff_pages(two, n) <= 2);
}

TEST(a_tiff_of_very_many_pages_is_bounded)
{
	enum { PAGES = 1200, PAGE_BYTES = 18 };
	uint8_t *t = xcalloc(PAGES, PAGE_BYTES);

	memcpy(t, "II*\0\x08\0\0\0", 8);
	for (size_t i = 0, at = 8; i + 1 < PAGES; i++, at += PAGE_BYTES) {
		t[at] = 1;
		t[at + 14] = (uint8_t)(at + PAGE_BYTES);
		t[at + 15] = (uint8_t)((at + PAGE_BYTES) >> 8);
	}
	assert_int_equal(app_tiff_pages(t, (size_t)PAGES * PAGE_BYTES), 1000);
	free(t);
}

/* ---- images that a model made ---- */

TEST(D12_16_a_generated_image_has_a_relative_path)
{
	struct world *x = world_new(NULL);
	struct garret_app_stored r;
	char *text;

	assert_int_equal(garret_app_image_store(&x->run, "../a cat.png", "pixels", 6, &r, NULL), 0);
	assert_string_equal(r.path, "output/a_cat.png");
	assert_int_equal(r.refused, GARRET_OK);
	has(r.text, "output/a_cat.png");
	text = world_get(x, "output/a_cat.png");
	assert_string_equal(text, "pixels");
	assert_int_equal(x->operations, 1);
	free(text);
	garret_app_stored_release(&r);
	/* over one of that name */
	assert_int_equal(garret_app_image_store(&x->run, "a cat.png", "other", 5, &r, NULL), 0);
	text = world_get(x, "output/a_cat.png");
	assert_string_equal(text, "other");
	free(text);
	garret_app_stored_release(&r);
	assert_int_equal(garret_app_image_store(&x->run, NULL, "p", 1, &r, NULL), 0);
	assert_string_equal(r.path, "output/attachment");
	garret_app_stored_release(&r);
	world_end(x);
}

TEST(D11_F3_a_workspace_that_refuses_does_not_lose_the_image)
{
	static const enum garret_code codes[] = { GARRET_FAILED,       GARRET_NO_SPACE,
						  GARRET_READ_ONLY,    GARRET_GONE,
						  GARRET_UNAVAILABLE,  GARRET_DENIED,
						  GARRET_NOT_DIRECTORY };

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		struct world *x = world_new(NULL);
		struct garret_app_stored r;

		world_refuse(x, GARRET_OP_WRITE, NULL, codes[i]);
		assert_int_equal(garret_app_image_store(&x->run, "a.png", "p", 1, &r, NULL), 0);
		assert_null(r.path);
		assert_int_equal(r.refused, codes[i]);
		has(r.text, "The image was made");
		lacks(r.text, "output/");
		garret_app_stored_release(&r);
		world_end(x);
	}
}

TEST(an_image_without_a_workspace_is_told)
{
	struct garret_app_stored r;
	struct garret_error err = { 0 };
	struct world *x = world_new(NULL);

	assert_int_equal(garret_app_image_store(NULL, "a.png", "p", 1, &r, NULL), 0);
	assert_null(r.path);
	has(r.text, "no workspace");
	garret_app_stored_release(&r);
	assert_int_equal(garret_app_image_store(NULL, "a.png", NULL, 0, &r, &err), -GARRET_INVALID);
	has(err.msg, "data");
	world_refuse(x, GARRET_OP_WRITE, NULL, GARRET_CANCELLED);
	assert_int_equal(garret_app_image_store(&x->run, "a.png", "p", 1, &r, &err),
			 -GARRET_CANCELLED);
	assert_null(r.text);
	world_end(x);
}

/* ---- artifacts ---- */

static void artifact(struct world *x, const char *path, enum garret_app_artifact_answer want,
		     enum garret_code refused)
{
	struct garret_app_artifact r;

	assert_int_equal(garret_app_artifact_read(&x->run, path, 0, &r, NULL), 0);
	assert_int_equal(r.answer, want);
	assert_int_equal(r.refused, refused);
	assert_null(r.data);
	has(r.text, path);
	garret_app_artifact_release(&r);
}

TEST(D8_3_an_artifact_is_read_in_one_operation)
{
	struct world *x = world_new(NULL);
	struct garret_app_artifact r;

	world_put(x, "out/page.html", "<p>");
	assert_int_equal(garret_app_artifact_read(&x->run, "out/page.html", 0, &r, NULL), 0);
	assert_int_equal(r.answer, GARRET_APP_ARTIFACT_READ);
	assert_string_equal(r.data, "<p>");
	assert_int_equal(r.bytes, 3);
	assert_null(r.text);
	assert_int_equal(x->operations, 1);
	garret_app_artifact_release(&r);
	/* exactly as many bytes, and one more */
	assert_int_equal(garret_app_artifact_read(&x->run, "out/page.html", 3, &r, NULL), 0);
	assert_int_equal(r.answer, GARRET_APP_ARTIFACT_READ);
	garret_app_artifact_release(&r);
	assert_int_equal(garret_app_artifact_read(&x->run, "out/page.html", 2, &r, NULL), 0);
	assert_int_equal(r.answer, GARRET_APP_ARTIFACT_TOO_LARGE);
	has(r.text, "at most 2 bytes");
	garret_app_artifact_release(&r);
	world_end(x);
}

TEST(D8_3_missing_directory_and_empty_ask_for_another_path)
{
	struct world *x = world_new(NULL);

	world_put(x, "out/empty", "");
	artifact(x, "nothing.txt", GARRET_APP_ARTIFACT_OTHER_PATH, GARRET_NOT_FOUND);
	artifact(x, "out", GARRET_APP_ARTIFACT_OTHER_PATH, GARRET_IS_DIRECTORY);
	artifact(x, "out/empty/x", GARRET_APP_ARTIFACT_OTHER_PATH, GARRET_NOT_DIRECTORY);
	artifact(x, "out/empty", GARRET_APP_ARTIFACT_OTHER_PATH, GARRET_OK);
	world_end(x);
}

TEST(D11_F3_an_artifact_of_a_workspace_that_fails_is_answered)
{
	static const struct {
		enum garret_code code;
		enum garret_app_artifact_answer answer;
	} rows[] = {
		{ GARRET_DENIED, GARRET_APP_ARTIFACT_REFUSED },
		{ GARRET_OUTSIDE, GARRET_APP_ARTIFACT_REFUSED },
		{ GARRET_READ_ONLY, GARRET_APP_ARTIFACT_REFUSED },
		{ GARRET_OUTPUT_LIMIT, GARRET_APP_ARTIFACT_TOO_LARGE },
		{ GARRET_NOT_REGULAR, GARRET_APP_ARTIFACT_OTHER_PATH },
		{ GARRET_FAILED, GARRET_APP_ARTIFACT_FAILED },
		{ GARRET_GONE, GARRET_APP_ARTIFACT_FAILED },
		{ GARRET_UNAVAILABLE, GARRET_APP_ARTIFACT_FAILED },
		{ GARRET_TIMEOUT, GARRET_APP_ARTIFACT_FAILED },
		{ GARRET_MISUSE, GARRET_APP_ARTIFACT_FAILED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct world *x = world_new(NULL);

		world_put(x, "a.txt", "text");
		world_refuse(x, GARRET_OP_READ, NULL, rows[i].code);
		artifact(x, "a.txt", rows[i].answer, rows[i].code);
		world_end(x);
	}
}

TEST(D8_3_no_workspace_asks_for_the_content)
{
	struct world *x = world_new(NULL);
	struct garret_app_artifact r;
	struct garret_workspace *none;
	struct garret_error err = { 0 };

	assert_int_equal(garret_app_artifact_read(NULL, "a\"b\nc", 0, &r, NULL), 0);
	assert_int_equal(r.answer, GARRET_APP_ARTIFACT_CONTENT);
	has(r.text, "\"a'b c\"");
	garret_app_artifact_release(&r);
	assert_int_equal(garret_no_workspace(x->context, &none, NULL), 0);
	world_use(x, none);
	artifact(x, "a.txt", GARRET_APP_ARTIFACT_CONTENT, GARRET_OK);
	assert_int_equal(garret_app_artifact_read(NULL, NULL, 0, &r, &err), -GARRET_INVALID);
	assert_int_equal(garret_app_artifact_read(NULL, "a", 1u << 30, &r, &err), -GARRET_INVALID);
	has(err.msg, "max_bytes");
	world_end(x);
}

TEST(a_cancelled_handle_ends_the_call)
{
	struct world *x = world_new(NULL);
	struct garret_app_artifact r;
	struct garret_error err = { 0 };

	world_refuse(x, GARRET_OP_READ, NULL, GARRET_CANCELLED);
	assert_int_equal(garret_app_artifact_read(&x->run, "a", 0, &r, &err), -GARRET_CANCELLED);
	assert_int_equal(err.code, GARRET_CANCELLED);
	has(err.msg, "refused by the test");
	world_end(x);
}

TEST(D8_3_a_confined_workspace_refuses_what_is_outside)
{
	struct world *x = world_native();
	enum garret_app_artifact_answer answer = GARRET_APP_ARTIFACT_REFUSED;
	enum garret_code code = GARRET_OUTSIDE;
	struct garret_workspace *w;

	if (!x)
		skip();
	if (!strcmp(garret_provider_name(x->provider), "sandboxd")) {
		answer = GARRET_APP_ARTIFACT_FAILED; /* no file is confined over the wire: */
		code = GARRET_UNSUPPORTED;           /* none is read */
	}
	assert_int_equal(garret_wrap_confined(x->bare, &w, NULL), 0);
	world_use(x, w);
	artifact(x, "/etc/passwd", answer, code);
	artifact(x, "../etc/passwd", answer, code);
	world_end(x);
}

/* ---- text for a prompt ---- */

static void label(const char *name, const char *want)
{
	autobuf struct strbuf out = STRBUF_INIT;

	app_label(&out, name);
	assert_string_equal(out.buf, want);
}

TEST(a_label_is_one_line_without_tricks)
{
	autobuf struct strbuf out = STRBUF_INIT;
	char name[500];

	label("plain", "plain");
	label("a\nb\tc\x7f", "a b c ");
	label("say \"hi\"", "say 'hi'");
	label("bad \xff byte", "bad \xef\xbf\xbd byte");
	label("line\xe2\x80\xa8 sep \xe2\x80\xae turned \xe2\x81\xa6 x", "line  sep   turned   x");
	label("c1 \xc2\x85 x", "c1   x");
	label("\xe2\x82\xac \xc3\xa9", "\xe2\x82\xac \xc3\xa9");
	for (size_t i = 0; i < 240; i++)
		memcpy(name + 2 * i, "\xc3\xa9", 3);
	app_label(&out, name);
	assert_int_equal(out.len, 200 * 2 + 3);
	assert_string_equal(out.buf + 400, "...");
}

TEST(text_is_told_by_its_beginning)
{
	char *large = xmalloc(20000);

	assert_true(app_is_text("hello", 5));
	assert_false(app_is_text("a\0b", 3));
	assert_false(app_is_text("\xff\xfe", 2));
	for (size_t i = 0; i < 10000; i++)
		memcpy(large + 2 * i, "\xc3\xa9", 2);
	assert_true(app_is_text(large, 20000));
	assert_true(app_is_text(large, 8005));
	large[3] = '\xff';
	assert_false(app_is_text(large, 20000));
	free(large);
}
TEST_MAIN
