/* Front matter: what is read, and what is refused. */
#include <stdlib.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "world.h"

static void matter(const char *inside, const char *want)
{
	char *text = xasprintf("---\n%s---\n\nbody\n", inside), *description = NULL;
	const char *body, *why = app_front_matter(text, &body, &description);

	if (want && why)
		fail_msg("%s:\n%s", why, text);
	if (!want && !why)
		fail_msg("not refused, \"%s\":\n%s", description, text);
	if (want) {
		assert_string_equal(description, want);
		assert_string_equal(body, "body\n");
	}
	free(description);
	free(text);
}

TEST(D12_53_front_matter_of_people)
{
	matter("", "");
	matter("name: x\n", "");
	matter("description: Some plain text\n", "Some plain text");
	matter("description: it's 100% \"fine\": no\n", NULL); /* ": " inside */
	matter("description: it's 100% \"fine\":no -x #y\n", "it's 100% \"fine\":no -x");
	matter("description:   spaces around  \r\n", "spaces around");
	matter("# comment\n\nname: x # another\ndescription: y # more\n", "y");
	matter("description:\n", "");
	matter("description: # nothing\n", "");
	matter("description: goes\n  on here\n\n  and there\n\n\n  x\nname: y\n",
	       "goes on here\nand there\n\nx");
	matter("description: -5 a\n", "-5 a");
	matter("description: 'it''s' # quoted\n", "it's");
	matter("description: ''\n", "");
	matter("description: \"a \\\"b\\\" \\u20ac\\n\"\n", "a \"b\" \xe2\x82\xac\n");
	matter("description: |\n  one\n   two\n\n  three\n\nname: x\n", "one\n two\n\nthree\n");
	matter("description: |-\n  one\n  two\n", "one\ntwo");
	matter("description: |+\n  one\n\n\n", "one\n\n\n");
	matter("description: >\n  one\n  two\n\n  three\n", "one two\nthree\n");
	matter("description: >- # folded\n\n  one\n", "\none");
	matter("description: |\nname: x\n", "");
	matter("allowed-tools: [Read, \"Write\", 'Run' ]\ndescription: x\n", "x");
	matter("a: []\nb: [ ] # none\ndescription: x\n", "x");
	matter("metadata:\n  author: me\n  n: 1\n\n  # comment\n  empty:\ndescription: x\n", "x");
	matter("tools:\n- a\n- 'b'\n-\ndescription: x\n", "x");
	matter("tools:\n  - a\n  - [x]\ndescription: x\n", "x");
	matter("a.b_c-d: 1\ndescription: x\n", "x");
}

TEST(D12_62_everything_else_is_mangled)
{
	static const char *const bad[] = {
		"no colon\n",
		"key:value\n",
		": x\n",
		"a b: x\n",
		" indented: x\n",
		"name: a\nname: b\n",
		"description:\n  a: 1\n",
		"description: [a]\n",
		"description: {a: b}\n",
		"description: &anchor x\n",
		"description: *alias\n",
		"description: !tag x\n",
		"description: %x\n",
		"description: @x\n",
		"description: `x`\n",
		"description: , x\n",
		"description: - x\n",
		"description: ?\n",
		"description: x:\n",
		"description: 'open\n",
		"description: \"open\n",
		"description: \"bad \\x\"\n",
		"description: \"a\" b\n",
		"description: \"a\"# b\n",
		"description: 'a'\n  more\n",
		"description: a # comment\n  more\n",
		"description: a\n  more: x\n",
		"description: a\n  - more\n",
		"description: a\n  b # comment\n",
		"description: |2\n  a\n",
		"description: | text\n",
		"description: |\n   a\n  b\n",
		"description: >\n  a\n   b\n",
		"description: a\tb\n",
		"description: a\x1b[31m\n",
		"list: [a\n",
		"list: [a] b\n",
		"list: [a: b]\n",
		"list: [[a]]\n",
		"list: [a,, b]\n",
		"list: [\n",
		"map:\n  a: 1\n   b: 2\n",
		"map:\n  a: 1\n  - b\n",
		"map:\n  - a\n  b: 1\n",
		"map:\n  a: 1\n  a: 2\n",
		"map:\n  a: 'x\n",
		"map:\n  text\n",
		"- a\n- b\n",
		"\"name\": x\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		matter(bad[i], NULL);
}

TEST(D12_63_without_front_matter_the_description_is_empty)
{
	static const char *const texts[] = { "body\n",
					     "",
					     "----\nx\n---\n",
					     "--- x\n---\n",
					     " ---\na: b\n---\n",
					     "# T\n\n---\nrule\n" };
	const char *body;
	char *description;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		assert_null(app_front_matter(texts[i], &body, &description));
		assert_string_equal(description, "");
		assert_string_equal(body, texts[i]);
		free(description);
	}
	assert_null(app_front_matter("\xef\xbb\xbf---\r\ndescription: x\r\n--- \r\n\r\nb", &body,
				     &description));
	assert_string_equal(description, "x");
	assert_string_equal(body, "b");
	free(description);
	assert_non_null(app_front_matter("---", &body, &description));
	assert_null(description);
}

TEST(what_is_put_reads_back)
{
	static const char *const texts[] = { "",
					     "plain",
					     "a: b # c",
					     "'\"\\",
					     "two\nlines\n\n",
					     "tab\t \x7f \x1b",
					     "--- ",
					     "\xe2\x80\xa8 \xf0\x9f\x98\x80",
					     "- x",
					     "123",
					     "true",
					     "{}" };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		autobuf struct strbuf out = STRBUF_INIT;
		const char *body;
		char *description;

		app_front_matter_put(&out, "name", texts[i]);
		strbuf_addstr(&out, "body");
		assert_null(app_front_matter(out.buf, &body, &description));
		assert_string_equal(description, texts[i]);
		assert_string_equal(body, "body");
		free(description);
	}
}
TEST_MAIN
