/* Settings, tokens, changes of the policy. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/config.h"
#include "core/policy_body.h"
#include "core/token.h"

static void clear_settings(void)
{
	static const char *const names[] = {
		"SANDBOXD_RUNTIMES",          "SANDBOXD_MAX_SESSIONS", "SANDBOXD_CPUS",
		"SANDBOXD_MEM_LIMIT",         "SANDBOXD_NATIVE_FILES", "SANDBOXD_DEFAULT_RUNTIME",
		"SANDBOXD_MAX_OPEN_SESSIONS", "SANDBOXD_WORK_DIR",     "SANDBOXD_PIDS_LIMIT",
		"SANDBOXD_IDLE_TIMEOUT",      "GARRET_STATE_DIR",      "GARRET_ENGINE",
		"SANDBOXD_OCI_RUNTIME",       "SANDBOXD_SANDBOX_UID",  "GARRET_DISK_LIMIT",
		"SANDBOXD_NETWORK_MODE"
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)unsetenv(names[i]);
}

TEST(defaults_are_the_published_ones)
{
	struct config c;

	clear_settings();
	assert_int_equal(config_from_env(&c, NULL), 0);
	assert_string_equal(c.host, "127.0.0.1");
	assert_int_equal(c.port, 8080);
	assert_int_equal(c.max_sessions, 20);
	assert_int_equal(c.max_open_sessions, CONFIG_NULL);
	assert_string_equal(c.mem_limit, "1g");
	assert_int_equal(c.execute_timeout, 300);
	assert_string_equal(c.default_runtime, "host");
	config_release(&c);
}

TEST(values_are_read_as_published)
{
	struct config c;

	clear_settings();
	(void)setenv("SANDBOXD_MAX_SESSIONS", " 1_000 ", 1);
	(void)setenv("SANDBOXD_CPUS", "", 1); /* empty: null */
	(void)setenv("SANDBOXD_MEM_LIMIT", "", 1);
	(void)setenv("SANDBOXD_NATIVE_FILES", " OFF ", 1);
	(void)setenv("SANDBOXD_RUNTIMES", "a=host;cpus=1.5;mem_limit=512m , b=host;pids_limit=64",
		     1);
	assert_int_equal(config_from_env(&c, NULL), 0);
	assert_int_equal(c.max_sessions, 1000);
	assert_true(c.cpus < 0);
	assert_null(c.mem_limit);
	assert_false(c.native_files);
	assert_int_equal(c.n_runtimes, 2);
	assert_string_equal(c.default_runtime, "a");
	assert_true(config_cpus(&c, &c.runtimes[0]) == 1.5);
	assert_string_equal(config_mem_limit(&c, &c.runtimes[0]), "512m");
	assert_null(config_mem_limit(&c, &c.runtimes[1]));
	assert_int_equal(config_pids_limit(&c, &c.runtimes[1]), 64);
	assert_int_equal(config_pids_limit(&c, &c.runtimes[0]), 512);
	config_release(&c);

	(void)setenv("SANDBOXD_RUNTIMES",
		     "{\"x\": \"host\", \"y\": {\"image\": \"host\", \"cpus\": 2}}", 1);
	assert_int_equal(config_from_env(&c, NULL), 0);
	assert_string_equal(c.runtimes[1].alias, "y");
	assert_true(c.runtimes[1].cpus == 2);
	config_release(&c);
	clear_settings();
}

TEST(a_bad_value_is_refused_by_name)
{
	static const struct {
		const char *name, *value, *word;
	} rows[] = {
		{ "SANDBOXD_MAX_SESSIONS", "0", "SANDBOXD_MAX_SESSIONS" },
		{ "SANDBOXD_MAX_SESSIONS", "1__0", "whole number" },
		{ "SANDBOXD_MAX_SESSIONS", "99999999999999999999", "SANDBOXD_MAX_SESSIONS" },
		{ "SANDBOXD_MAX_OPEN_SESSIONS", "5", "SANDBOXD_MAX_OPEN_SESSIONS" },
		{ "SANDBOXD_CPUS", "nan", "SANDBOXD_CPUS" },
		{ "SANDBOXD_CPUS", "0x10", "SANDBOXD_CPUS" },
		{ "SANDBOXD_CPUS", "99999999999999999999", "4096" },
		{ "SANDBOXD_MEM_LIMIT", "0", "SANDBOXD_MEM_LIMIT" },
		{ "SANDBOXD_IDLE_TIMEOUT", "", "SANDBOXD_IDLE_TIMEOUT" },
		{ "SANDBOXD_NATIVE_FILES", "maybe", "SANDBOXD_NATIVE_FILES" },
		{ "SANDBOXD_WORK_DIR", "/a/../b", "SANDBOXD_WORK_DIR" },
		{ "GARRET_STATE_DIR", "state", "absolute" },
		{ "SANDBOXD_RUNTIMES", "a", "alias=source" },
		{ "SANDBOXD_RUNTIMES", "a=", "must not be empty" },
		{ "SANDBOXD_RUNTIMES", "a=host,a=host", "twice" },
		{ "SANDBOXD_RUNTIMES", "a=host;bogus=1", "bogus" },
		{ "SANDBOXD_RUNTIMES", "a=host;network_mode=container:x", "container:x" },
		{ "SANDBOXD_RUNTIMES", "{\"a\": 5}", "a" },
		{ "SANDBOXD_RUNTIMES", "{\"a\": {\"cpus\": 1}}", "image and runtime" },
		{ "SANDBOXD_RUNTIMES", "{", "JSON" },
		{ "SANDBOXD_DEFAULT_RUNTIME", "zzz", "zzz" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct garret_error err = { 0 };
		struct config c;

		clear_settings();
		(void)setenv(rows[i].name, rows[i].value, 1);
		assert_true(config_from_env(&c, &err) < 0);
		if (!strstr(err.msg, rows[i].word))
			fail_msg("%s=%s: %s", rows[i].name, rows[i].value, err.msg);
	}
	clear_settings();
}

TEST(what_only_the_other_place_gives_is_refused_and_says_where)
{
	static const struct {
		const char *engine, *name, *value, *says;
	} rows[] = {
		{ "dokcer", "SANDBOXD_CPUS", "1", "native, docker, or the absolute path" },
		{ "native", "SANDBOXD_OCI_RUNTIME", "runsc", "GARRET_ENGINE=docker" },
		{ "native", "SANDBOXD_NETWORK_MODE", "bridge", "GARRET_ENGINE=docker" },
		{ "native", "SANDBOXD_RUNTIMES", "a=python:3", "GARRET_ENGINE=docker" },
		{ "native", "SANDBOXD_SANDBOX_UID", "5", "user is 1000" },
		{ "docker", "SANDBOXD_SANDBOX_UID", "5", "of its image" },
		{ "docker", "GARRET_DISK_LIMIT", "1g", "Docker gives no limit" },
		{ "docker", "SANDBOXD_RUNTIMES", "a=host", "for native sessions" },
		{ "docker", "SANDBOXD_RUNTIMES", "a=@nope", "\"@nope\" is no built-in runtime" },
		{ "docker", "SANDBOXD_RUNTIMES", "a=@nope", "@coding @polyglot" },
		{ "docker", "SANDBOXD_RUNTIMES", "a=@nope", " @rust" },
		{ "docker", "SANDBOXD_RUNTIMES", "{\"x\": {\"runtime\": {\"name\": \"n\"}}}",
		  "SANDBOXD_RUNTIMES: x: a recipe has a name, and one of image and base_image" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct garret_error err = { 0 };
		struct config c;

		clear_settings();
		(void)setenv("GARRET_ENGINE", rows[i].engine, 1);
		(void)setenv(rows[i].name, rows[i].value, 1);
		assert_true(config_from_env(&c, &err) < 0);
		if (!strstr(err.msg, rows[i].says))
			fail_msg("%s=%s: %s", rows[i].name, rows[i].value, err.msg);
	}
	clear_settings();
}

/* From Python: hmac.new(key, b"session" + id + b"\0" + nonce, "sha256"), base64url. */
TEST(a_token_is_what_another_program_derives)
{
	struct token_key key;
	uint8_t nonce[TOKEN_NONCE];
	char token[TOKEN_LENGTH + 1];

	for (unsigned i = 0; i < sizeof(key.bytes); i++)
		key.bytes[i] = (uint8_t)i;
	for (unsigned i = 0; i < sizeof(nonce); i++)
		nonce[i] = (uint8_t)(0xA0 + i);
	token_derive(&key, "work", nonce, token);
	assert_string_equal(token, "GLnRRJLJ6I-5cvFpjRj2ijcKEYNNa9B8spxWXFcODdU");
	assert_true(token_matches(&key, "work", nonce, token));
	assert_false(token_matches(&key, "worK", nonce, token));
	nonce[0] ^= 1;
	assert_false(token_matches(&key, "work", nonce, token));
	assert_false(token_matches(&key, "work", nonce, ""));
}

TEST(tombstones_keep_the_newest_generations)
{
	struct token_key key = { { 1 } };
	struct tombstones t;
	char token[8][TOKEN_LENGTH + 1];

	tombstones_init(&t);
	for (uint8_t i = 0; i < 8; i++) {
		uint8_t nonce[TOKEN_NONCE] = { i };

		token_derive(&key, "s", nonce, token[i]);
		tombstones_add(&t, "s", nonce);
	}
	for (int i = 0; i < 8; i++) {
		assert_int_equal(tombstones_match(&t, &key, "s", token[i]), i >= 4);
		assert_false(tombstones_match(&t, &key, "other", token[i]));
	}
	tombstones_release(&t);
}

/* What a change makes of the settings: "" or the beginning of what is wrong. */
static void draft(const struct config *c, const struct limit_bounds *bounds, const char *change,
		  struct policy_draft *ret, char says[300])
{
	struct json_errors e = JSON_ERRORS_INIT;
	struct strbuf body = STRBUF_INIT;
	struct refusal no = { 0 };
	struct json_problem p;
	struct json_t *root;

	strbuf_addstr(&body, change);
	root = json_read(&body, &p);
	assert_non_null(root);
	says[0] = '\0';
	*ret = (struct policy_draft){ .runtimes = NULL };
	if (!policy_draft(c, bounds, root, ret, &e, &no))
		(void)snprintf(says, 300, "%.299s", no.status ? no.detail : e.items.buf);
	/* Strings of the draft are the change's: nobody looks at them below. */
	json_done(root);
	strbuf_release(&e.items);
	strbuf_release(&body);
}

TEST(a_change_is_laid_over_a_copy_or_refused)
{
	static const struct limit_bounds bounds = { .known = true,
						    .can = BOX_MEMORY | BOX_CPUS | BOX_PIDS,
						    .memory_bytes = 8ull << 30,
						    .tmpfs_bytes = 1ull << 30,
						    .cpu_millis = 4000,
						    .pids = 1000 };
	static const struct {
		const char *change, *says;
	} cases[] = {
		{ "{\"max_sessions\":5,\"runtimes\":{\"b\":{\"cpus\":3}},\"mem_limit\":\"2g\"}",
		  "" },
		{ "{\"cpus\":4}", "" },
		{ "{\"cpus\":4.001}", "must be at most 4\"" },
		{ "{\"pids_limit\":1001}", "must be at most 1000\"" },
		{ "{\"mem_limit\":\"9g\"}", "must be at most 8589934592 bytes" },
		{ "{\"tmpfs_size\":\"2g\"}", "must be at most 1073741824 bytes" },
		{ "{\"cpu_shares\":100}", "can't be given on this host" },
		{ "{\"memswap_limit\":\"2g\"}", "can't be given on this host" },
		{ "{\"memswap_limit\":null}", "" },
		{ "{\"runtimes\":{\"b\":{\"pids_limit\":5000}}}",
		  "\"loc\":[\"body\",\"runtimes\",\"b\",\"pids_limit\"]" },
		{ "{\"runtimes\":{\"c\":{}}}", "Unknown runtime: c" },
		{ "{\"max_open_sessions\":19}", "at least max_sessions" },
	};
	struct policy_draft d;
	struct config c;
	char says[300];

	clear_settings();
	(void)setenv("SANDBOXD_RUNTIMES", "a=host,b=host;cpus=1", 1);
	assert_int_equal(config_from_env(&c, NULL), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		draft(&c, &bounds, cases[i].change, &d, says);
		if ((!*cases[i].says && *says) || !strstr(says, cases[i].says))
			fail_msg("%s: %s", cases[i].change, says);
		if (i == 0) {
			assert_int_equal(d.config.max_sessions, 5);
			assert_true(d.config.runtimes[1].cpus == 3);
		}
		policy_draft_release(&d);
		/* The settings themselves are as they were. */
		assert_int_equal(c.max_sessions, 20);
		assert_true(c.runtimes[1].cpus == 1);
		assert_string_equal(c.mem_limit, "1g");
	}
	config_release(&c);
}

TEST_MAIN
