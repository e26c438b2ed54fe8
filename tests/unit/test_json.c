#include <string.h>

#include "base/mem.h"
#include "net/json.h"
#include "test.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* ---- writing ---- */

TEST(the_writer_puts_commas_where_they_belong)
{
	autobuf struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "a");
	json_open(&out, '[');
	json_put_int(&out, 1);
	json_put_null(&out);
	json_open(&out, '{');
	json_close(&out, '}');
	json_close(&out, ']');
	json_put_key(&out, "b{");
	json_put_string(&out, "x:");
	json_put_key(&out, "c");
	json_put_bool(&out, true);
	json_close(&out, '}');
	assert_string_equal(out.buf, "{\"a\":[1,null,{}],\"b{\":\"x:\",\"c\":true}");
}

TEST(numbers_are_written_as_python_prints_them)
{
	static const struct {
		double v;
		const char *want;
	} cases[] = {
		{ 7, "7.0" },
		{ 0.1, "0.1" },
		{ 1795971124.885182, "1795971124.885182" },
		{ -0.25, "-0.25" },
		{ 1.0 / 3, "0.3333333333333333" },
		{ __builtin_nan(""), "null" },
		{ __builtin_inf(), "null" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		autobuf struct strbuf out = STRBUF_INIT;

		json_put_double(&out, cases[i].v);
		assert_string_equal(out.buf, cases[i].want);
	}
}

TEST(strings_are_escaped_and_repaired)
{
	static const struct {
		const char *s;
		size_t n;
		const char *want;
	} cases[] = {
		{ "a\"\\/", 4, "\"a\\\"\\\\/\"" },
		{ "\x01\x1f\x7f\n\t", 5, "\"\\u0001\\u001f\x7f\\n\\t\"" },
		{ "a\0b", 3, "\"a\\u0000b\"" },
		{ "caf\xc3\xa9", 5, "\"caf\xc3\xa9\"" },
		{ "\xff\xc3", 2, "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		autobuf struct strbuf out = STRBUF_INIT;

		json_put_string_n(&out, cases[i].s, cases[i].n);
		assert_string_equal(out.buf, cases[i].want);
	}
}

TEST(streamed_text_does_not_depend_on_where_it_was_cut)
{
	static const char raw[] = "a\"\xe2\x82\xac\xf0\x9f\x98\x80\x80\0\xe2\x82"
				  "b\xf0\x9f\x98";
	const size_t n = sizeof(raw) - 1;
	autobuf struct strbuf whole = STRBUF_INIT;
	struct json_text t = { .repair = { .n = 0 } };

	json_text_add(&t, &whole, raw, n);
	json_text_end(&t, &whole);
	for (size_t cut = 0; cut <= n; cut++) {
		autobuf struct strbuf out = STRBUF_INIT;
		struct json_text u = { .repair = { .n = 0 } };

		json_text_add(&u, &out, raw, cut);
		json_text_add(&u, &out, raw + cut, n - cut);
		json_text_end(&u, &out);
		assert_string_equal(out.buf, whole.buf);
	}
}

/* ---- reading ---- */

static enum json_problem_kind problem_of(const char *text, struct json_problem *p)
{
	autobuf struct strbuf body = STRBUF_INIT;
	struct json_t *v;

	*p = (struct json_problem){ .kind = JSON_FINE };
	strbuf_addstr(&body, text);
	v = json_read(&body, p);
	json_done(v);
	assert_true(v ? p->kind == JSON_FINE : p->kind != JSON_FINE);
	return p->kind;
}

TEST(the_reader_takes_what_clients_send_and_nothing_else)
{
	static const struct {
		const char *text;
		enum json_problem_kind want;
	} cases[] = {
		{ "", JSON_EMPTY },
		{ "{}", JSON_FINE },
		{ " [1, 2.5] ", JSON_FINE },
		{ "\xEF\xBB\xBF{}", JSON_FINE },
		{ "\"\\ud800\"", JSON_FINE },
		{ "\"\\ud83d\\ude00\"", JSON_FINE },
		{ "\"\\udc00\\ud800x\"", JSON_FINE },
		{ "\"\\\\ud800\"", JSON_FINE },
		{ "\"\\u0000\"", JSON_FINE },
		{ "{\"a\":1,\"a\":2}", JSON_FINE },
		{ "   ", JSON_SYNTAX },
		{ "{} x", JSON_SYNTAX },
		{ "{", JSON_SYNTAX },
		{ "\"\\ud8", JSON_SYNTAX },
		{ "\"\\", JSON_SYNTAX },
		{ "[NaN]", JSON_SYNTAX },
		{ "[Infinity]", JSON_SYNTAX },
		{ "[1e400]", JSON_SYNTAX },
		{ "[99999999999999999999]", JSON_SYNTAX },
		{ "\"\x01\"", JSON_SYNTAX },
		{ "\"\xff\"", JSON_NOT_UTF8 },
	};
	struct json_problem p;

	for (size_t i = 0; i < COUNT(cases); i++)
		assert_int_equal(problem_of(cases[i].text, &p), cases[i].want);
}

TEST(a_deep_document_is_an_error_and_not_a_crash)
{
	autobuf struct strbuf text = STRBUF_INIT;
	struct json_problem p;

	for (int i = 0; i < 60000; i++)
		strbuf_addch(&text, '[');
	assert_int_equal(problem_of(text.buf, &p), JSON_SYNTAX);
}

TEST(a_syntax_error_says_at_which_character)
{
	struct json_problem p;

	assert_int_equal(problem_of("{\"\xc3\xa9\":1,}", &p), JSON_SYNTAX);
	assert_in_range(p.offset, 7, 8);
}

/* ---- checking ---- */

struct values {
	const char *name, *text, *id;
	bool flag;
	int64_t count;
	double seconds;
	const char **list, **env;
};

#define F(m, k, f)                                                                          \
	{                                                                                   \
		.name = #m, .kind = (k), .flags = (f), .offset = offsetof(struct values, m) \
	}
static const struct json_field fields[] = {
	F(name, JSON_KIND_NAME, JSON_NULLABLE),
	F(text, JSON_KIND_STRING, 0),
	F(id, JSON_KIND_RUN_ID, 0),
	F(flag, JSON_KIND_BOOL, 0),
	F(count, JSON_KIND_INT, JSON_FROM_ZERO),
	F(seconds, JSON_KIND_FLOAT, JSON_NULLABLE | JSON_ABOVE_ZERO),
	F(list, JSON_KIND_STRINGS, JSON_NOT_EMPTY),
	F(env, JSON_KIND_ENVIRON, 0),
	{ .name = NULL },
};

/* The items for that text; what it set is in *v until values_done(). */
static char *check(const char *text, struct values *v, struct json_t **root)
{
	autobuf struct strbuf body = STRBUF_INIT;
	struct json_errors e = JSON_ERRORS_INIT;
	struct json_problem p;

	*v = (struct values){ .count = -1, .seconds = -1 };
	strbuf_addstr(&body, text);
	*root = json_read(&body, &p);
	assert_non_null(*root);
	json_check_body(*root, fields, v, &e);
	return strbuf_detach(&e.items, NULL);
}

static void values_done(struct values *v, struct json_t *root)
{
	json_values_release(fields, v);
	json_done(root);
}

TEST(good_values_land_in_the_struct)
{
	struct json_t *root;
	struct values v;
	autofree char *items =
		check("{\"name\":\"a.b\",\"text\":\"\",\"flag\":\"YES\",\"count\":\" 7 \","
		      "\"seconds\":true,\"list\":[\"x\",\"\"],\"env\":{\"A\":\"1=2\"},"
		      "\"unknown\":null}",
		      &v, &root);

	assert_string_equal(items, "");
	assert_string_equal(v.name, "a.b");
	assert_string_equal(v.text, "");
	assert_true(v.flag);
	assert_int_equal(v.count, 7);
	assert_true(v.seconds == 1);
	assert_string_equal(v.list[0], "x");
	assert_string_equal(v.list[1], "");
	assert_null(v.list[2]);
	assert_string_equal(v.env[0], "A=1=2");
	assert_null(v.env[1]);
	values_done(&v, root);
}

TEST(mistakes_are_described_as_published)
{
	static const struct {
		const char *text, *want; /* beginning of what is said */
	} cases[] = {
		{ "[]", "{\"type\":\"model_attributes_type\",\"loc\":[\"body\"]," },
		{ "null", "{\"type\":\"model_attributes_type\",\"loc\":[\"body\"]," },
		{ "{\"name\":\".a\"}",
		  "{\"type\":\"string_pattern_mismatch\",\"loc\":[\"body\",\"name\"],"
		  "\"msg\":\"String should match pattern "
		  "'^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$'\",\"input\":\".a\",\"ctx\":"
		  "{\"pattern\":\"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$\"}}" },
		{ "{\"name\":\"a\\n\"}", "{\"type\":\"string_pattern_mismatch\"" },
		{ "{\"name\":\"a\\u0000\"}", "{\"type\":\"string_pattern_mismatch\"" },
		{ "{\"text\":null}",
		  "{\"type\":\"string_type\",\"loc\":[\"body\",\"text\"],\"msg\":"
		  "\"Input should be a valid string\",\"input\":null}" },
		{ "{\"text\":\"\\u0000\"}", "{\"type\":\"value_error\"" },
		{ "{\"id\":\"0123456789ABCDEF0123456789ABCDEF\"}",
		  "{\"type\":\"string_pattern_mismatch\"" },
		{ "{\"flag\":2}", "{\"type\":\"bool_parsing\"" },
		{ "{\"flag\":\"\"}", "{\"type\":\"bool_parsing\"" },
		{ "{\"flag\":null}", "{\"type\":\"bool_type\"" },
		{ "{\"count\":1.5}", "{\"type\":\"int_from_float\"" },
		{ "{\"count\":\"5.1\"}", "{\"type\":\"int_parsing\"" },
		{ "{\"count\":\"1__0\"}", "{\"type\":\"int_parsing\"" },
		{ "{\"count\":{}}", "{\"type\":\"int_type\"" },
		{ "{\"count\":-1}",
		  "{\"type\":\"greater_than_equal\",\"loc\":[\"body\",\"count\"],\"msg\":"
		  "\"Input should be greater than or equal to 0\",\"input\":-1,\"ctx\":"
		  "{\"ge\":0}}" },
		{ "{\"seconds\":0}",
		  "{\"type\":\"greater_than\",\"loc\":[\"body\",\"seconds\"],\"msg\":"
		  "\"Input should be greater than 0\",\"input\":0,\"ctx\":{\"gt\":0.0}}" },
		{ "{\"seconds\":\"nan\"}", "{\"type\":\"greater_than\"" },
		{ "{\"seconds\":\"x\"}", "{\"type\":\"float_parsing\"" },
		{ "{\"list\":[]}", "{\"type\":\"too_short\"" },
		{ "{\"list\":{}}", "{\"type\":\"list_type\"" },
		{ "{\"list\":[\"a\",1]}",
		  "{\"type\":\"string_type\",\"loc\":[\"body\",\"list\",1]" },
		{ "{\"list\":[\"a\\u0000\"]}",
		  "{\"type\":\"value_error\",\"loc\":[\"body\",\"list\",0]" },
		{ "{\"env\":null}", "{\"type\":\"dict_type\"" },
		{ "{\"env\":{\"A\":1}}",
		  "{\"type\":\"string_type\",\"loc\":[\"body\",\"env\",\"A\"]" },
		{ "{\"env\":{\"\":\"x\"}}",
		  "{\"type\":\"value_error\",\"loc\":[\"body\",\"env\",\"\"]" },
		{ "{\"env\":{\"A=B\":\"x\"}}", "{\"type\":\"value_error\"" },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct json_t *root;
		struct values v;
		autofree char *items = check(cases[i].text, &v, &root);

		if (strncmp(items, cases[i].want, strlen(cases[i].want)))
			fail_msg("%s: %s", cases[i].text, items);
		values_done(&v, root);
	}
}

TEST(leniency_is_that_of_the_published_service)
{
	static const char *const fine[] = {
		"{\"flag\":1}",       "{\"flag\":0.0}",        "{\"flag\":\"off\"}",
		"{\"count\":5.0}",    "{\"count\":\"5.0\"}",   "{\"count\":\"1_000\"}",
		"{\"count\":true}",   "{\"seconds\":\"inf\"}", "{\"seconds\":\"1e3\"}",
		"{\"seconds\":null}", "{\"name\":null}",
	};

	for (size_t i = 0; i < COUNT(fine); i++) {
		struct json_t *root;
		struct values v;
		autofree char *items = check(fine[i], &v, &root);

		if (*items)
			fail_msg("%s: %s", fine[i], items);
		values_done(&v, root);
	}
}

TEST(an_answer_shows_little_of_a_large_input)
{
	autobuf struct strbuf text = STRBUF_INIT;
	struct json_t *root;
	struct values v;

	strbuf_addstr(&text, "{\"name\":\"");
	for (int i = 0; i < 100000; i++)
		strbuf_addstr(&text, "\xc3\xa9");
	strbuf_addstr(&text, "\",\"list\":[");
	for (int i = 0; i < 5000; i++)
		strbuf_addf(&text, "%s%d", i ? "," : "", i);
	strbuf_addstr(&text, "],\"flag\":[");
	for (int i = 0; i < 5000; i++)
		strbuf_addstr(&text, "[],");
	strbuf_addstr(&text, "0]}");
	autofree char *items = check(text.buf, &v, &root);
	assert_true(strlen(items) < 20000);
	assert_true(utf8_valid(items, strlen(items)));
	assert_non_null(strstr(items, "\"input\":\"[…]\""));
	values_done(&v, root);
}

TEST(a_strict_check_takes_no_other_key_and_says_where)
{
	struct limits {
		const char *size;
		int64_t count;
		const struct json_t *inner;
	} v = { NULL, 5, NULL };
	static const struct json_field strict_fields[] = {
		{ .name = "size",
		  .kind = JSON_KIND_SIZE,
		  .flags = JSON_NULLABLE,
		  .offset = offsetof(struct limits, size) },
		{ .name = "count",
		  .kind = JSON_KIND_INT,
		  .flags = JSON_FROM_ZERO,
		  .offset = offsetof(struct limits, count) },
		{ .name = "inner",
		  .kind = JSON_KIND_TABLE,
		  .offset = offsetof(struct limits, inner) },
		{ .name = NULL }
	};
	static const char *const above[] = { "runtimes", "a \"b\"", NULL };
	static const struct {
		const char *body, *says;
	} cases[] = {
		{ "{\"size\":\"512m\",\"inner\":{\"x\":1}}", "" },
		{ "{\"size\":null}", "" },
		{ "{\"size\":\"0\"}", "{\"type\":\"value_error\"" },
		{ "{\"size\":\"512m\\u0000\"}", "{\"type\":\"value_error\"" },
		{ "{\"size\":7}", "{\"type\":\"string_type\"" },
		{ "{\"inner\":[]}", "{\"type\":\"dict_type\"" },
		{ "{\"count\":null}",
		  "{\"type\":\"int_type\",\"loc\":[\"body\",\"runtimes\",\"a \\\"b\\\"\",\"count\"]" },
		{ "{\"q\":[1]}",
		  "{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"runtimes\",\"a \\\"b\\\"\",\"q\"],"
		  "\"msg\":\"Extra inputs are not permitted\",\"input\":[1]}" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct strbuf body = STRBUF_INIT;
		struct json_errors e = JSON_ERRORS_INIT;
		struct json_problem p;
		struct json_t *root;

		strbuf_addstr(&body, cases[i].body);
		root = json_read(&body, &p);
		assert_non_null(root);
		json_check_strict(root, above, strict_fields, &v, &e);
		if (strncmp(e.items.buf, cases[i].says, strlen(cases[i].says)) != 0 ||
		    (!*cases[i].says && e.n))
			fail_msg("%s: %s", cases[i].body, e.items.buf);
		json_done(root);
		strbuf_release(&e.items);
		strbuf_release(&body);
	}
	assert_int_equal(v.count, 5); /* untouched by what was refused */
}

TEST_MAIN
