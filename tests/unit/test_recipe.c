/* Recipes: what may be in one, its published tag, its Dockerfile. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "provider/docker_recipe.h"
#include "test.h"

#define BASE "\"name\":\"x\",\"base_image\":\"b\""

static struct docker_recipe parse(const char *json)
{
	struct docker_recipe r = { 0 };
	struct garret_error err = { 0 };

	if (docker_recipe_parse(json, &r, &err) < 0)
		fail_msg("%s", err.msg);
	return r;
}

/* Computed by the published library. */
TEST(tags_are_those_of_the_published_service)
{
	static const struct {
		const char *json, *tag;
	} cases[] = {
		{ "{\"name\":\"mine\",\"base_image\":\"python:3.12-slim\",\"packages\":[\"duckdb\",\"a[b]>=1\"]}",
		  "pydantic-ai-backend-runtime:mine-45aaea4665d9" },
		{ "{\"run_as_uid\":1000,\"cache_image\":false,\"work_dir\":\"/app\",\"env_vars\":{\"Z\":\"1\",\"A\":\"two words\"},"
		  "\"setup_commands\":[\"echo a > b\"],\"package_manager\":\"npm\",\"packages\":[\"@types/react\"],"
		  "\"base_image\":\"node:20\",\"description\":\"caf\xc3\xa9 \\\"quoted\\\" / 100%\",\"name\":\"node-x\"}",
		  "pydantic-ai-backend-runtime:node-x-083d01512a1a" },
		{ "{\"name\":\"ready\",\"image\":\"python:3.12-slim\"}", "python:3.12-slim" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct docker_recipe r = parse(cases[i].json), copy;
		char *tag = docker_recipe_image(&r), *again;

		docker_recipe_copy(&r, &copy);
		again = docker_recipe_image(&copy);
		assert_string_equal(tag, cases[i].tag);
		assert_string_equal(again, tag);
		assert_int_equal(docker_recipe_builds(&r), i != 2);
		free(tag);
		free(again);
		docker_recipe_release(&copy);
		docker_recipe_release(&r);
	}
}

TEST(a_dockerfile_has_its_parts_in_order)
{
	struct docker_recipe r = parse(
		"{" BASE ",\"setup_commands\":[\"echo a && b\"],\"packages\":[\"a>=1\",\"c[d]\"],"
		"\"env_vars\":{\"K\":\"v \\\"$HOME\\\\\"},\"run_as_uid\":7,\"work_dir\":\"/w x\"}");
	struct strbuf out = STRBUF_INIT;

	docker_recipe_dockerfile(&r, false, &out);
	assert_string_equal(
		out.buf, "FROM b\n"
			 "RUN echo a && b\n"
			 "RUN pip install --no-cache-dir 'a>=1' 'c[d]'\n"
			 "RUN useradd --create-home --uid 7 agent"
			 " && python3 -m venv --system-site-packages /opt/venv"
			 " && chown -R agent:agent /opt/venv\n"
			 "ENV VIRTUAL_ENV=/opt/venv\nENV HOME=/home/agent\nENV UV_SYSTEM_PYTHON=0\n"
			 "ENV PATH=/opt/venv/bin:$PATH\n"
			 "ENV K=\"v \\\"\\$HOME\\\\\"\n"
			 "WORKDIR /w x\n");
	strbuf_reset(&out);
	docker_recipe_dockerfile(&r, true, &out);
	assert_non_null(strstr(out.buf, "# syntax="));
	assert_non_null(strstr(
		out.buf,
		"RUN --mount=type=cache,target=/root/.cache/pip,sharing=locked pip install '"));
	docker_recipe_release(&r);
	strbuf_release(&out);
}

TEST(managers_install_in_their_own_way)
{
	static const char *const want[][2] = {
		{ "npm", "RUN mkdir -p /app && cd /app && npm install p\n" },
		{ "apt", "RUN apt-get update && apt-get install -y --no-install-recommends p" },
		{ "cargo", "RUN cargo install p\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
		char *json = xasprintf(
			"{" BASE
			",\"packages\":[\"p\"],\"work_dir\":\"/app\",\"package_manager\":\"%s\"}",
			want[i][0]);
		struct docker_recipe r = parse(json);
		struct strbuf out = STRBUF_INIT;

		docker_recipe_dockerfile(&r, false, &out);
		if (!strstr(out.buf, want[i][1]))
			fail_msg("%s", out.buf);
		docker_recipe_release(&r);
		strbuf_release(&out);
		free(json);
	}
}

TEST(what_would_become_something_else_is_refused)
{
	static const char *const bad[] = {
		"[]",
		"{\"name\":\"x\"}",
		"{" BASE ",\"image\":\"i\"}",
		"{\"name\":\"x y\",\"base_image\":\"b\"}",
		"{\"name\":\"\",\"base_image\":\"b\"}",
		"{\"name\":\"x\",\"base_image\":\"b\\nRUN evil\"}",
		"{\"name\":\"x\",\"base_image\":\"--platform=x b\"}",
		"{" BASE ",\"packages\":[\"a;b\"]}",
		"{" BASE ",\"packages\":[\"--index-url=http://evil\"]}",
		"{" BASE ",\"packages\":[\"a b\"]}",
		"{" BASE ",\"packages\":[\"$(x)\"]}",
		"{" BASE ",\"packages\":[1]}",
		"{" BASE ",\"packages\":\"a\"}",
		"{" BASE ",\"setup_commands\":[\"a\\nUSER root\"]}",
		"{" BASE ",\"setup_commands\":[\"\"]}",
		"{" BASE ",\"env_vars\":{\"A B\":\"1\"}}",
		"{" BASE ",\"env_vars\":{\"1A\":\"1\"}}",
		"{" BASE ",\"env_vars\":{\"A\":\"1\\n2\"}}",
		"{" BASE ",\"env_vars\":{\"A\":1}}",
		"{" BASE ",\"work_dir\":\"/a;b\"}",
		"{" BASE ",\"work_dir\":\"a\"}",
		"{" BASE ",\"work_dir\":\"/a\\n\"}",
		"{" BASE ",\"run_as_uid\":0}",
		"{" BASE ",\"run_as_uid\":-1}",
		"{" BASE ",\"run_as_uid\":\"x\"}",
		"{" BASE ",\"package_manager\":\"brew\"}",
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct docker_recipe r = { 0 };
		struct garret_error err = { 0 };

		if (docker_recipe_parse(bad[i], &r, &err) != -GARRET_INVALID)
			fail_msg("%s was taken", bad[i]);
		assert_non_null(err.msg[0] ? err.msg : NULL);
		assert_null(r.name);
	}
}

TEST(values_of_variables_are_not_in_messages)
{
	struct docker_recipe r = { 0 };
	struct garret_error err = { 0 };

	(void)docker_recipe_parse("{" BASE ",\"env_vars\":{\"A\":\"s3cret\\n\"}}", &r, &err);
	assert_null(strstr(err.msg, "s3cret"));
}

TEST_MAIN
