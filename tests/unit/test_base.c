/* Errors, text, buffers, maps and trees. */
#include "test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/strbuf.h"
#include "base/text.h"

TEST(error_text_carries_errno_and_context)
{
	struct garret_error err = { 0 };

	errno = ENOENT;
	assert_int_equal(garret_fail_errno(&err, "open %s", "w1"), -GARRET_NOT_FOUND);
	assert_int_equal(garret_wrap(-GARRET_NOT_FOUND, &err, "workspace %s", "x"),
			 -GARRET_NOT_FOUND);
	assert_string_equal(err.msg, "workspace x: open w1: No such file or directory");
	assert_int_equal(err.sys, ENOENT);
	assert_int_equal(garret_code_http(GARRET_NOT_FOUND), 404);
	assert_int_equal(garret_fail(NULL, GARRET_GONE, "x"), -GARRET_GONE);
}

TEST(sizes_are_powers_of_1024_and_whole_strings)
{
	static const struct {
		const char *text;
		int64_t want; /* -1: refused */
	} rows[] = {
		{ "0", 0 },
		{ "1g", 1 << 30 },
		{ "512M", 512 << 20 },
		{ "1.5k", 1536 },
		{ "64kb", 64 << 10 },
		{ "10b", 10 },
		{ "", -1 },
		{ "-1", -1 },
		{ "1x", -1 },
		{ "1gg", -1 },
		{ "0x10", -1 },
		{ "1e3", -1 },
		{ " 1", -1 },
		{ "99999999999999999999g", -1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t v = 0;
		bool ok = parse_size(rows[i].text, &v);

		assert_int_equal(ok, rows[i].want >= 0);
		if (ok)
			assert_int_equal(v, rows[i].want);
	}
}

static void repair(const char *in, size_t n, size_t step, struct strbuf *out)
{
	struct utf8_repair u = { 0 };

	strbuf_reset(out);
	for (size_t i = 0; i < n; i += step)
		utf8_repair_add(&u, out, in + i, MIN(step, n - i));
	utf8_repair_end(&u, out);
}

/* Expected texts are what Python's bytes.decode("utf-8", "replace") gives. */
TEST(invalid_utf8_becomes_one_replacement_per_maximal_subpart)
{
#define R "\xEF\xBF\xBD"
	static const struct {
		const char *in, *out;
	} rows[] = {
		{ "plain", "plain" },
		{ "\xE2\x82\xAC!", "\xE2\x82\xAC!" },
		{ "\xFF\xFE", R R },
		{ "\xE2\x82", R },
		{ "\xE2\x82x", R "x" },
		{ "\xF0\x9F\x98", R },
		{ "\xF0\x9F\x98\xF0\x9F\x98\x80", R "\xF0\x9F\x98\x80" },
		{ "\xED\xA0\x80", R R R },
		{ "\xC0\xAF", R R },
		{ "\xF4\x90\x80\x80", R R R R },
		{ "\xE0\x80\x80", R R R },
		{ "a\xF1\x80\x80\xE1\x80\xC2"
		  "b",
		  "a" R R R "b" },
	};
	autobuf struct strbuf out = STRBUF_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		for (size_t step = 1; step < 6; step++) {
			repair(rows[i].in, strlen(rows[i].in), step, &out);
			assert_string_equal(out.buf, rows[i].out);
		}
}

TEST(names_follow_the_published_pattern)
{
	assert_true(name_valid("a"));
	assert_true(name_valid("a..b"));
	assert_true(name_valid("A1-_."));
	assert_false(name_valid(""));
	assert_false(name_valid(".a"));
	assert_false(name_valid("-a"));
	assert_false(name_valid("a/b"));
	assert_false(name_valid("a\n"));
	assert_false(
		name_valid("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"));
}

TEST(shell_quoting_is_what_a_shell_reads_back)
{
	autobuf struct strbuf out = STRBUF_INIT;

	shell_quote(&out, "plain-1.0");
	strbuf_addch(&out, ' ');
	shell_quote(&out, "it's $x");
	strbuf_addch(&out, ' ');
	shell_quote(&out, "");
	assert_string_equal(out.buf, "plain-1.0 'it'\"'\"'s $x' ''");
}

struct some_opts {
	bool flag, other;
	const char *text;
	uint64_t size;
	double seconds;
	struct opt_list list;
};

static const struct opt some_table[] = {
	OPT(struct some_opts, flag, "flag", 'f', OPT_FLAG, NULL, "a flag"),
	OPT(struct some_opts, other, "other", 'o', OPT_FLAG, NULL, "another"),
	OPT(struct some_opts, text, "text", 't', OPT_STRING, "TEXT", "a text"),
	OPT(struct some_opts, size, "size", 0, OPT_SIZE, "BYTES", "a size"),
	OPT(struct some_opts, seconds, "seconds", 's', OPT_SECONDS, "SECONDS", "a time"),
	OPT(struct some_opts, list, "item", 'i', OPT_LIST, "ITEM", "several"),
	{ 0 },
};

TEST(options_are_parsed_up_to_the_first_word)
{
	char *argv[] = { (char *)"x",
			 (char *)"-fo",
			 (char *)"--text=a b",
			 (char *)"--size",
			 (char *)"2k",
			 (char *)"-s0.5",
			 (char *)"-i",
			 (char *)"1",
			 (char *)"--item",
			 (char *)"2",
			 (char *)"--",
			 (char *)"-f",
			 NULL };
	struct some_opts o = { 0 };

	assert_int_equal(opt_parse(some_table, 12, argv, &o, NULL), 11);
	assert_true(o.flag && o.other);
	assert_string_equal(o.text, "a b");
	assert_int_equal(o.size, 2048);
	assert_true(o.seconds == 0.5);
	assert_int_equal(o.list.n, 2);
	assert_string_equal(o.list.item[1], "2");
}

TEST(options_between_and_behind_words)
{
	char a[] = "x", b[] = "one", c[] = "--flag", d[] = "-", e[] = "--text", f[] = "a b",
	     g[] = "two", h[] = "--", i[] = "--other";
	char *argv[] = { a, b, c, d, e, f, g, h, i, NULL };
	char bogus[] = "--bogus", *bad[] = { a, b, bogus, NULL };
	struct some_opts o = { 0 };

	assert_int_equal(opt_parse_all(some_table, 9, argv, &o, NULL), 5);
	assert_true(o.flag && !o.other);
	assert_string_equal(o.text, "a b");
	assert_ptr_equal(argv[5], b);
	assert_ptr_equal(argv[6], d);
	assert_ptr_equal(argv[7], g);
	assert_ptr_equal(argv[8], i);
	assert_null(argv[9]);
	assert_int_equal(opt_parse_all(some_table, 3, bad, &o, NULL), -GARRET_INVALID);
}

TEST(a_bad_option_is_named_with_what_it_wants)
{
	static const struct {
		const char *const argv[4];
		const char *word;
	} rows[] = {
		{ { "x", "--bogus" }, "--bogus" },         { { "x", "-z" }, "-z" },
		{ { "x", "--size", "lots" }, "BYTES" },    { { "x", "--size=0" }, "BYTES" },
		{ { "x", "--seconds", "-1" }, "SECONDS" }, { { "x", "--text" }, "TEXT" },
		{ { "x", "--flag=1" }, "no value" },       { { "x", "-s" }, "SECONDS" },
		{ { "x", "--seconds=1e5" }, "SECONDS" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct garret_error err = { 0 };
		struct some_opts o = { 0 };
		int argc = 0;

		while (rows[i].argv[argc])
			argc++;
		assert_int_equal(opt_parse(some_table, argc, (char *const *)(uintptr_t)rows[i].argv,
					   &o, &err),
				 -GARRET_INVALID);
		if (!strstr(err.msg, rows[i].word))
			fail_msg("row %zu: %s", i, err.msg);
	}
}

TEST(map_keeps_what_it_was_given)
{
	struct map m;
	char key[16];
	static int values[1000];

	map_init(&m);
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		assert_null(map_set(&m, key, &values[i]));
	}
	for (int i = 0; i < 1000; i += 2) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		assert_ptr_equal(map_remove(&m, key), &values[i]);
	}
	assert_int_equal(m.count, 500);
	for (int i = 0; i < 1000; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		assert_ptr_equal(map_find(&m, key), i % 2 ? &values[i] : NULL);
	}
	map_release(&m);
}

TEST(a_tree_20000_deep_is_removed_without_following_links)
{
	char dir[] = "/tmp/garret-unit-XXXXXX";
	autoclose int top = -EBADF, at = -EBADF;

	assert_non_null(mkdtemp(dir));
	top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(mkdirat(top, "keep", 0700), 0);
	assert_int_equal(mkdirat(top, "keep/file", 0700), 0);
	assert_int_equal(mkdirat(top, "t", 0700), 0);
	assert_int_equal(symlinkat("../keep", top, "t/link"), 0);
	at = openat(top, "t", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 20000; i++) {
		int next;

		assert_int_equal(mkdirat(at, "d", 0700), 0);
		next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		assert_true(next >= 0);
		fd_close(at);
		at = next;
	}
	at = fd_close(at);
	assert_int_equal(remove_tree_at(top, "t"), 0);
	assert_int_equal(faccessat(top, "t", F_OK, 0), -1);
	assert_int_equal(faccessat(top, "keep/file", F_OK, 0), 0);
	assert_int_equal(remove_tree_at(top, "keep"), 0);
	assert_int_equal(rmdir(dir), 0);
}

TEST(open_beneath_refuses_links_and_ways_out)
{
	char dir[] = "/tmp/garret-unit-XXXXXX";
	autoclose int top = -EBADF;

	assert_non_null(mkdtemp(dir));
	top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(symlinkat("/etc/passwd", top, "l"), 0);
	assert_int_equal(open_beneath(top, "l", O_RDONLY, 0), -1);
	assert_int_equal(errno, ELOOP);
	assert_int_equal(open_beneath(top, "../etc", O_RDONLY, 0), -1);
	assert_int_equal(errno, EXDEV);
	assert_int_equal(open_dir_make(top, "l", 0700, NULL), -GARRET_INVALID);
	assert_int_equal(unlinkat(top, "l", 0), 0);
	assert_int_equal(rmdir(dir), 0);
}

TEST(a_program_is_looked_for_beside_this_one)
{
	autofree char *self = program_beside("test-base"), *dir = program_beside("");
	struct stat a, b;

	assert_int_equal(stat(self, &a), 0);
	assert_int_equal(stat("/proc/self/exe", &b), 0);
	assert_true(a.st_dev == b.st_dev && a.st_ino == b.st_ino);
	assert_int_equal(strlen(dir), strlen(self) - strlen("test-base"));
	assert_int_equal(strncmp(self, dir, strlen(dir)), 0);
}

TEST_MAIN
