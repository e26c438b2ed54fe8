#include "core/runtimes.h"

#include <jansson.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/strbuf.h"

#define PYTHON "python:3.12-slim"
#define NODE "node:20-slim"

/* Words are separated by blanks, commands by newlines. */
static const struct {
	const char *name, *image, *base, *manager, *packages, *setup;
} table[] = {
	{ "coding", NULL, PYTHON, "apt", "git curl ca-certificates ripgrep fd-find jq less procps",
	  "pip install --no-cache-dir uv\nln -sf /usr/bin/fdfind /usr/local/bin/fd" },
	{ "polyglot", NULL, PYTHON, "pip", "numpy duckdb polars httpx",
	  "apt-get update && apt-get install -y --no-install-recommends curl ca-certificates git "
	  "nodejs npm && rm -rf /var/lib/apt/lists/*\nnpm install -g npm@10" },
	{ "python-minimal", PYTHON, NULL, NULL, NULL, NULL },
	{ "python-datascience", NULL, PYTHON, "pip", "pandas numpy matplotlib scikit-learn seaborn",
	  NULL },
	{ "python-analytics", NULL, PYTHON, "pip", "duckdb polars pyarrow", NULL },
	{ "python-web", NULL, PYTHON, "pip", "fastapi uvicorn sqlalchemy httpx", NULL },
	{ "python-scraping", NULL, PYTHON, "pip", "httpx beautifulsoup4 lxml markdownify", NULL },
	{ "python-documents", NULL, PYTHON, "pip", "pypdf python-docx openpyxl pillow", NULL },
	{ "node-minimal", NODE, NULL, NULL, NULL, NULL },
	{ "node-typescript", NULL, NODE, "npm", "typescript tsx vitest", NULL },
	{ "node-react", NULL, NODE, "npm", "typescript vite react react-dom @types/react", NULL },
	{ "bun", "oven/bun:1-slim", NULL, NULL, NULL, NULL },
	{ "deno", "denoland/deno:alpine", NULL, NULL, NULL, NULL },
	{ "go", "golang:1.23-alpine", NULL, NULL, NULL, NULL },
	{ "rust", "rust:1-slim", NULL, NULL, NULL, NULL },
};

static json_t *split(const char *text, const char *by)
{
	json_t *list = json_array();

	for (const char *at = text; at && *at;) {
		const size_t n = strcspn(at, by);

		(void)json_array_append_new(list, json_stringn(at, n));
		at += n + (at[n] != '\0');
	}
	return list;
}

char *runtime_recipe(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		json_t *v;
		char *text;

		if (strcmp(table[i].name, name) != 0)
			continue;
		if (table[i].image)
			return xstrdup(table[i].image);
		v = json_object();
		(void)json_object_set_new(v, "name", json_string(name));
		(void)json_object_set_new(v, "base_image", json_string(table[i].base));
		(void)json_object_set_new(v, "packages", split(table[i].packages, " "));
		(void)json_object_set_new(v, "package_manager", json_string(table[i].manager));
		(void)json_object_set_new(v, "setup_commands", split(table[i].setup, "\n"));
		text = json_dumps(v, JSON_COMPACT);
		json_decref(v);
		return text;
	}
	return NULL;
}

char *runtime_names(void)
{
	autobuf struct strbuf names = STRBUF_INIT;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		strbuf_addf(&names, "%s@%s", i ? " " : "", table[i].name);
	return xstrdup(names.buf);
}

int runtime_shown(const char *recipe, char **ret)
{
	json_error_t problem;
	json_t *v = json_loads(recipe, 0, &problem);
	const char *image = json_string_value(json_object_get(v, "image"));
	const char *base = json_string_value(json_object_get(v, "base_image"));
	const size_t n = json_array_size(json_object_get(v, "packages"));
	int rc = 0;

	if (!json_string_value(json_object_get(v, "name")) || !image == !base)
		rc = -GARRET_INVALID;
	else
		*ret = image ? xstrdup(image)
			     : xasprintf("%s + %zu package%s", base, n, n == 1 ? "" : "s");
	json_decref(v);
	return rc;
}
