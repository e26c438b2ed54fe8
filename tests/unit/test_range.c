/* Ranges and entity tags as clients write them. */
#include "net/http_range.h"
#include "test.h"

static void check(const char *header, uint64_t size, uint64_t from, uint64_t n)
{
	struct http_range r;
	uint64_t at;

	assert_true(http_range_parse(header, &r));
	assert_int_equal(http_range_resolve(&r, size, &at), n);
	if (n)
		assert_int_equal(at, from);
}

TEST(a_range_is_cut_to_the_file)
{
	check("bytes=0-0", 10, 0, 1);
	check("bytes=2-5", 10, 2, 4);
	check("bytes=2-500", 10, 2, 8);
	check("bytes=7-", 10, 7, 3);
	check("bytes=-3", 10, 7, 3);
	check("bytes=-30", 10, 0, 10);
	check("Bytes= 0-18446744073709551615", 10, 0, 10);
	check("bytes=0-99999999999999999999", 10, 0, 10);
	check("bytes=-99999999999999999999", 10, 0, 10);
	check("bytes=99999999999999999999-", 10, 0, 0);
	check("bytes=99999999999999999999-99999999999999999999", 10, 0, 0);
	check("bytes=18446744073709551614-18446744073709551615", UINT64_MAX, 18446744073709551614u,
	      1);
	check("bytes=\t, 2-5 , ", 10, 2, 4);
	check("bytes=7-,", 10, 7, 3);
	check("bytes=10-", 10, 0, 0);
	check("bytes=-0", 10, 0, 0);
	check("bytes=0-", 0, 0, 0);
}

TEST(what_is_no_single_range_is_ignored)
{
	static const char *const bad[] = { "",
					   "bytes",
					   "bytes=",
					   "bytes=-",
					   "bytes=a-b",
					   "bytes=5-2",
					   "bytes=1-2,4-5",
					   "items=0-1",
					   "bytes=0-1x",
					   "bytes=--1",
					   "bytes=1",
					   "bytes=+1-2",
					   "bytes=1-2-3",
					   "bytes=1 -2",
					   "bytes=1- 2",
					   "bytes=-",
					   "bytes=,",
					   "bytes =1-2",
					   "bytes=1-,-1",
					   "bytes=99999999999999999999-5" };
	struct http_range r;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_false(http_range_parse(bad[i], &r));
}

TEST(a_tag_is_found_in_a_list)
{
	assert_true(http_etag_weak_match("\"a\"", "\"a\""));
	assert_true(http_etag_weak_match("W/\"a\"", "\"a\""));
	assert_true(http_etag_weak_match("\"x\", W/\"y,z\" ,\"a\"", "\"a\""));
	assert_true(http_etag_weak_match("*", "\"a\""));
	assert_false(http_etag_weak_match("\"x,\"a\"", "\"b\""));
	assert_false(http_etag_weak_match("\"ab\"", "\"a\""));
	assert_false(http_etag_weak_match("a, \"", "\"a\""));
	assert_false(http_etag_weak_match("", "\"a\""));
	assert_true(http_etag_weak_match(" ,\t\"a\" ,", "\"a\""));
	assert_true(http_etag_weak_match(", * ,", "\"a\""));
	assert_true(http_etag_weak_match("x, \"a\"", "\"a\""));
	assert_false(http_etag_weak_match("\"b\", *", "\"a\""));
	assert_false(http_etag_weak_match("**", "\"a\""));
	assert_false(http_etag_weak_match("\"b, \"a\"", "\"a\""));
	assert_false(http_etag_weak_match("\"a\"\"b\"", "\"a\""));
	assert_false(http_etag_weak_match("w/\"a\"", "\"a\""));
	assert_false(http_etag_weak_match("W/", "\"a\""));
}

TEST(only_the_same_file_matches_strongly)
{
	assert_true(http_etag_strong_match("\"a\"", "\"a\""));
	assert_true(http_etag_strong_match("*", "\"a\""));
	assert_true(http_etag_strong_match("W/\"a\", \"a\"", "\"a\""));
	assert_true(http_etag_strong_match("\"b\",\"W/\",\"a\"", "\"a\""));
	assert_false(http_etag_strong_match("W/\"a\"", "\"a\""));
	assert_false(http_etag_strong_match("\"b\", W/\"a\"", "\"a\""));
}

TEST_MAIN
