/*
 * A recipe comes from an operator or from a library's caller, and each of its
 * strings ends in a line of a Dockerfile that a shell reads.  Packages and names
 * are let through by what they may hold; commands are shell by intent, and may
 * only not begin another line.
 */
#include "provider/docker_recipe.h"

#include <ctype.h>
#include <jansson.h>
#include <nettle/md5.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/json.h"

#define ITEMS_MAX 500
#define VENV "/opt/venv"

static const char *const managers[RECIPE_MANAGERS] = { "pip", "npm", "apt", "cargo" };

static void free_strings(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

void docker_recipe_release(struct docker_recipe *r)
{
	free(r->name);
	free(r->description);
	free(r->image);
	free(r->base_image);
	free(r->work_dir);
	free_strings(r->packages);
	free_strings(r->setup_commands);
	free_strings(r->env);
	*r = (struct docker_recipe){ 0 };
}

static char **copy_strings(char *const *list)
{
	size_t n = 0;
	char **out;

	while (list[n])
		n++;
	out = xcalloc(n + 1, sizeof(char *));
	for (size_t i = 0; i < n; i++)
		out[i] = xstrdup(list[i]);
	return out;
}

void docker_recipe_copy(const struct docker_recipe *r, struct docker_recipe *ret)
{
	*ret = *r;
	ret->name = xstrdup(r->name);
	ret->description = xstrdup(r->description);
	ret->image = r->image ? xstrdup(r->image) : NULL;
	ret->base_image = r->base_image ? xstrdup(r->base_image) : NULL;
	ret->work_dir = xstrdup(r->work_dir);
	ret->packages = copy_strings(r->packages);
	ret->setup_commands = copy_strings(r->setup_commands);
	ret->env = copy_strings(r->env);
}

/* ---- what may be in it ---- */

static bool package_valid(const char *s)
{
	if (!isalnum((unsigned char)*s) && *s != '@')
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._@/+=<>~![]-", *s))
			return false;
	return true;
}

static bool variable_valid(const char *setting)
{
	if (!isalpha((unsigned char)*setting) && *setting != '_')
		return false;
	while (isalnum((unsigned char)*setting) || *setting == '_')
		setting++;
	return *setting == '=' && !strpbrk(setting, "\r\n");
}

static bool image_valid(const char *s)
{
	if (!isalnum((unsigned char)*s))
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("._/:@+-", *s))
			return false;
	return true;
}

static int check(const struct docker_recipe *r, struct garret_error *err)
{
	/* In the tag, before the digest. */
	if (!name_valid(r->name))
		return garret_fail(err, GARRET_INVALID, "a runtime's name is a word");
	if (!r->image == !r->base_image)
		return garret_fail(err, GARRET_INVALID,
				   "runtime %s needs an image or a base image, one of them",
				   r->name);
	if (!image_valid(r->image ? r->image : r->base_image))
		return garret_fail(err, GARRET_INVALID, "runtime %s: that is no image", r->name);
	if (r->work_dir[0] != '/' || strpbrk(r->work_dir, ";&|`$()<>\r\n"))
		return garret_fail(err, GARRET_INVALID, "runtime %s: that is no work directory",
				   r->name);
	for (char **p = r->packages; *p; p++)
		if (!package_valid(*p))
			return garret_fail(err, GARRET_INVALID, "runtime %s: package %.60s",
					   r->name, *p);
	for (char **p = r->setup_commands; *p; p++)
		if (!**p || strpbrk(*p, "\r\n"))
			return garret_fail(err, GARRET_INVALID,
					   "runtime %s: a setup command is one line", r->name);
	for (char **p = r->env; *p; p++)
		if (!variable_valid(*p))
			return garret_fail(err, GARRET_INVALID, "runtime %s: variable %.*s",
					   r->name, (int)MIN(strcspn(*p, "="), 60u), *p);
	return 0;
}

/* ---- reading ---- */

static int take_strings(const json_t *v, const char *key, char ***ret, struct garret_error *err)
{
	const json_t *list = json_object_get(v, key);
	const size_t n = json_array_size(list);

	*ret = xcalloc(MIN(n, ITEMS_MAX) + 1, sizeof(char *));
	if (list && !json_is_null(list) && !json_is_array(list))
		return garret_fail(err, GARRET_INVALID, "a runtime's %s are a list", key);
	if (n > ITEMS_MAX)
		return garret_fail(err, GARRET_INVALID, "a runtime has too many %s", key);
	for (size_t i = 0; i < n; i++) {
		const char *s = json_string_value(json_array_get(list, i));

		if (!s)
			return garret_fail(err, GARRET_INVALID, "a runtime's %s are strings", key);
		(*ret)[i] = xstrdup(s);
	}
	return 0;
}

static int take_env(const json_t *v, char ***ret, struct garret_error *err)
{
	json_t *env = json_object_get(v, "env_vars"), *value;
	const char *key;
	size_t n = 0;

	*ret = xcalloc(MIN(json_object_size(env), ITEMS_MAX) + 1, sizeof(char *));
	if (env && !json_is_null(env) && !json_is_object(env))
		return garret_fail(err, GARRET_INVALID, "a runtime's env_vars are an object");
	if (json_object_size(env) > ITEMS_MAX)
		return garret_fail(err, GARRET_INVALID, "a runtime has too many env_vars");
	json_object_foreach(env, key, value)
	{
		if (!json_is_string(value))
			return garret_fail(err, GARRET_INVALID, "a runtime's env_vars are strings");
		(*ret)[n++] = xasprintf("%s=%s", key, json_string_value(value));
	}
	return 0;
}

static char *take_text(const json_t *v, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(v, key));

	return s ? xstrdup(s) : otherwise ? xstrdup(otherwise) : NULL;
}

static int take_rest(const json_t *v, struct docker_recipe *r, struct garret_error *err)
{
	const char *manager = json_string_value(json_object_get(v, "package_manager"));
	const json_t *uid = json_object_get(v, "run_as_uid"),
		     *cache = json_object_get(v, "cache_image");

	for (int i = 0; manager; i++) {
		if (i == RECIPE_MANAGERS)
			return garret_fail(err, GARRET_INVALID, "there is no package manager %.40s",
					   manager);
		r->manager = (enum recipe_manager)i;
		if (!strcmp(manager, managers[i]))
			break;
	}
	r->cache_image = !json_is_false(cache);
	if (!uid || json_is_null(uid))
		return 0;
	if (!json_is_integer(uid) || json_integer_value(uid) <= 0 ||
	    json_integer_value(uid) > INT32_MAX)
		return garret_fail(err, GARRET_INVALID, "run_as_uid is above 0");
	r->run_as_uid = (uint32_t)json_integer_value(uid);
	return 0;
}

static int take_all(const json_t *v, struct docker_recipe *r, struct garret_error *err)
{
	int rc;

	r->name = take_text(v, "name", "");
	r->description = take_text(v, "description", "");
	r->image = take_text(v, "image", NULL);
	r->base_image = take_text(v, "base_image", NULL);
	r->work_dir = take_text(v, "work_dir", "/workspace");
	rc = take_strings(v, "packages", &r->packages, err);
	if (rc == 0)
		rc = take_strings(v, "setup_commands", &r->setup_commands, err);
	if (rc == 0)
		rc = take_env(v, &r->env, err);
	if (rc == 0)
		rc = take_rest(v, r, err);
	return rc == 0 ? check(r, err) : rc;
}

int docker_recipe_parse(const char *json, struct docker_recipe *ret, struct garret_error *err)
{
	struct docker_recipe r = { 0 };
	json_t *v = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
	int rc;

	if (json_is_object(v))
		rc = take_all(v, &r, err);
	else
		rc = garret_fail(err, GARRET_INVALID, "a runtime is a JSON object");
	json_decref(v);
	if (rc < 0)
		docker_recipe_release(&r);
	else
		*ret = r;
	return rc;
}

/* ---- its tag ---- */

static void put_text(struct strbuf *b, const char *key, const char *s)
{
	json_put_key(b, key);
	json_put_string(b, s);
}

static void put_list(struct strbuf *b, const char *key, char *const *list)
{
	json_put_key(b, key);
	json_open(b, '[');
	for (; *list; list++)
		json_put_string(b, *list);
	json_close(b, ']');
}

/* The text that the published service takes the digest of: order and nulls count. */
static void put_all(struct strbuf *b, const struct docker_recipe *r)
{
	json_open(b, '{');
	put_text(b, "name", r->name);
	put_text(b, "description", r->description);
	put_text(b, "image", r->image);
	put_text(b, "base_image", r->base_image);
	put_list(b, "packages", r->packages);
	put_text(b, "package_manager", managers[r->manager]);
	put_list(b, "setup_commands", r->setup_commands);
	json_put_key(b, "env_vars");
	json_open(b, '{');
	for (char *const *p = r->env; *p; p++) {
		autofree char *key = xstrndup(*p, strcspn(*p, "="));

		put_text(b, key, *p + strlen(key) + 1);
	}
	json_close(b, '}');
	put_text(b, "work_dir", r->work_dir);
	json_put_key(b, "cache_image");
	json_put_bool(b, r->cache_image);
	json_put_key(b, "run_as_uid");
	if (r->run_as_uid)
		json_put_int(b, r->run_as_uid);
	else
		json_put_null(b);
	json_close(b, '}');
}

bool docker_recipe_builds(const struct docker_recipe *r)
{
	return !r->image;
}

char *docker_recipe_image(const struct docker_recipe *r)
{
	autobuf struct strbuf b = STRBUF_INIT;
	uint8_t digest[MD5_DIGEST_SIZE];
	char hex[RECIPE_TAG_HEX + 1];
	struct md5_ctx c;

	if (r->image)
		return xstrdup(r->image);
	put_all(&b, r);
	md5_init(&c);
	md5_update(&c, b.len, (const uint8_t *)b.buf);
	md5_digest(&c, sizeof(digest), digest);
	hex_encode(digest, RECIPE_TAG_HEX / 2, hex);
	return xasprintf(RECIPE_REPOSITORY ":%s-%s", r->name, hex);
}

/* ---- the Dockerfile ---- */

static void put_packages(struct strbuf *out, const struct docker_recipe *r)
{
	for (char *const *p = r->packages; *p; p++) {
		strbuf_addch(out, ' ');
		shell_quote(out, *p);
	}
}

static void put_install(struct strbuf *out, const struct docker_recipe *r, bool mounts)
{
	static const char *const caches[RECIPE_MANAGERS] = {
		"--mount=type=cache,target=/root/.cache/pip,sharing=locked ",
		"--mount=type=cache,target=/root/.npm,sharing=locked ",
		"--mount=type=cache,target=/var/cache/apt,sharing=locked "
		"--mount=type=cache,target=/var/lib/apt/lists,sharing=locked ",
		"--mount=type=cache,target=/usr/local/cargo/registry,sharing=locked ",
	};

	if (!r->packages[0])
		return;
	strbuf_addf(out, "RUN %s", mounts ? caches[r->manager] : "");
	switch (r->manager) {
	case RECIPE_PIP:
		strbuf_addf(out, "pip install%s", mounts ? "" : " --no-cache-dir");
		break;
	case RECIPE_NPM:
		strbuf_addstr(out, "mkdir -p ");
		shell_quote(out, r->work_dir);
		strbuf_addstr(out, " && cd ");
		shell_quote(out, r->work_dir);
		strbuf_addstr(out, " && npm install");
		break;
	case RECIPE_APT:
		strbuf_addstr(out, "apt-get update && apt-get install -y --no-install-recommends");
		break;
	default:
		strbuf_addstr(out, "cargo install");
	}
	put_packages(out, r);
	if (r->manager == RECIPE_APT && !mounts)
		strbuf_addstr(out, " && rm -rf /var/lib/apt/lists/*");
	strbuf_addch(out, '\n');
}

static void put_user(struct strbuf *out, const struct docker_recipe *r)
{
	if (!r->run_as_uid)
		return;
	strbuf_addf(out,
		    "RUN useradd --create-home --uid %u agent"
		    " && python3 -m venv --system-site-packages " VENV
		    " && chown -R agent:agent " VENV "\n",
		    r->run_as_uid);
	strbuf_addstr(out,
		      "ENV VIRTUAL_ENV=" VENV "\nENV HOME=/home/agent\nENV UV_SYSTEM_PYTHON=0\n"
		      "ENV PATH=" VENV "/bin:$PATH\n");
}

/* In an ENV line a dollar is a variable even between single quotes: it is escaped. */
static void put_env_value(struct strbuf *out, const char *s)
{
	strbuf_addch(out, '"');
	for (; *s; s++) {
		if (strchr("\"\\$", *s))
			strbuf_addch(out, '\\');
		strbuf_addch(out, *s);
	}
	strbuf_addch(out, '"');
}

void docker_recipe_dockerfile(const struct docker_recipe *r, bool mounts, struct strbuf *out)
{
	if (mounts)
		strbuf_addstr(out, "# syntax=docker/dockerfile:1\n");
	strbuf_addf(out, "FROM %s\n", r->base_image);
	for (char *const *p = r->setup_commands; *p; p++)
		strbuf_addf(out, "RUN %s\n", *p);
	put_install(out, r, mounts);
	put_user(out, r);
	for (char *const *p = r->env; *p; p++) {
		autofree char *key = xstrndup(*p, strcspn(*p, "="));

		strbuf_addf(out, "ENV %s=", key);
		put_env_value(out, *p + strlen(key) + 1);
		strbuf_addch(out, '\n');
	}
	strbuf_addstr(out, "WORKDIR ");
	strbuf_addstr(out, r->work_dir);
	strbuf_addch(out, '\n');
}
