/*
 * Settings come from the environment through one table: name, kind, place,
 * range.  The published service accepts any number and fails later; here the
 * variable is named at start.
 */
#include "core/config.h"

#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "core/runtimes.h"

enum kind { STR, STR_OPT, INT, INT_OPT, CPUS_OPT, SIZE_OPT, FLAG, PORT };

struct setting {
	const char *name;
	enum kind kind;
	size_t offset;
	const char *fallback; /* as if it had been written; NULL: null */
	int64_t least, most;  /* most 0: none */
};

#define S(name, kind, field, fallback, least)                                  \
	{                                                                      \
		name, kind, offsetof(struct config, field), fallback, least, 0 \
	}
#define SECONDS(name, kind, field, fallback, least)                                             \
	{                                                                                       \
		name, kind, offsetof(struct config, field), fallback, least, CONFIG_SECONDS_MAX \
	}
/* clang-format off */
static const struct setting settings[] = {
	S("SANDBOXD_TOKEN",                    STR_OPT,  token,                       NULL, 0),
	S("SANDBOXD_HOST",                     STR,      host,                        "127.0.0.1", 0),
	S("SANDBOXD_PORT",                     PORT,     port,                        "8080", 0),
	S("SANDBOXD_DEFAULT_RUNTIME",          STR_OPT,  default_runtime,             NULL, 0),
	S("SANDBOXD_MAX_SESSIONS",             INT_OPT,  max_sessions,                "20", 1),
	S("SANDBOXD_MAX_OPEN_SESSIONS",        INT_OPT,  max_open_sessions,           NULL, 1),
	S("SANDBOXD_MAX_SESSIONS_PER_TENANT",  INT_OPT,  max_sessions_per_tenant,     NULL, 1),
	SECONDS("SANDBOXD_EVICT_IDLE_AFTER",         INT_OPT,  evict_idle_after,            NULL, 0),
	S("SANDBOXD_MEM_LIMIT",                SIZE_OPT, mem_limit,                   "1g", 0),
	S("SANDBOXD_MEMSWAP_LIMIT",            SIZE_OPT, memswap_limit,               NULL, 0),
	S("SANDBOXD_CPUS",                     CPUS_OPT, cpus,                        "2.0", 0),
	S("SANDBOXD_CPU_SHARES",               INT_OPT,  cpu_shares,                  NULL, 2),
	S("SANDBOXD_PIDS_LIMIT",               INT_OPT,  pids_limit,                  "512", 8),
	S("SANDBOXD_TMPFS_SIZE",               SIZE_OPT, tmpfs_size,                  "64m", 0),
	S("SANDBOXD_NETWORK_MODE",             STR_OPT,  network_mode,                "none", 0),
	S("SANDBOXD_OCI_RUNTIME",              STR_OPT,  oci_runtime,                 NULL, 0),
	S("SANDBOXD_WORK_DIR",                 STR,      work_dir,                    "/workspace", 0),
	S("SANDBOXD_WORKSPACE_ROOT",           STR_OPT,  workspace_root,              NULL, 0),
	S("SANDBOXD_PERSIST_CONTAINERS",       FLAG,     persist_containers,          "0", 0),
	S("SANDBOXD_PREWARM",                  FLAG,     prewarm,                     "1", 0),
	SECONDS("SANDBOXD_IDLE_TIMEOUT",             INT,      idle_timeout,                "1800", 1),
	SECONDS("SANDBOXD_CLEANUP_INTERVAL",         INT,      cleanup_interval,            "300", 1),
	SECONDS("SANDBOXD_WORKSPACE_TTL",            INT_OPT,  workspace_ttl,               NULL, 1),
	SECONDS("SANDBOXD_CONTAINER_TTL",            INT_OPT,  container_ttl,               NULL, 1),
	S("SANDBOXD_SANDBOX_UID",              INT_OPT,  sandbox_uid,                 NULL, 1),
	S("SANDBOXD_MAX_READ_BYTES",           INT,      max_read_bytes,              "8388608", 1),
	SECONDS("SANDBOXD_EXECUTE_TIMEOUT",          INT,      execute_timeout,             "300", 1),
	S("SANDBOXD_MAX_WORKERS",              INT,      max_workers,                 "32", 1),
	S("SANDBOXD_MAX_RUNNING_COMMANDS",     INT,      max_running_commands,        "256", 1),
	S("SANDBOXD_NATIVE_FILES",             FLAG,     native_files,                "1", 0),
	S("SANDBOXD_UI_ENABLED",               FLAG,     ui_enabled,                  "0", 0),
	S("SANDBOXD_POLICY_OVERRIDES",         STR_OPT,  policy_overrides,            NULL, 0),
	S("GARRET_STATE_DIR",                  STR,      state_dir,                   "/var/lib/garret", 0),
	S("GARRET_SOCKET",                     STR_OPT,  socket,                      NULL, 0),
	S("GARRET_ENGINE",                     STR_OPT,  engine,                      NULL, 0),
	S("GARRET_APP_DATABASE",               STR_OPT,  app_database,                NULL, 0),
	S("SANDBOX_STATE_MAX_BYTES",           INT,      state_max_bytes,             "4194304", 1),
	S("SANDBOX_INLINE_IMAGE_MAX_BYTES",    INT,      inline_image_max_bytes,      "5242880", 1),
	S("GARRET_EVENT_RETENTION",            INT,      event_retention,             "604800", 1),
	S("GARRET_SLEEP_AFTER",                INT_OPT,  sleep_after,                 NULL, 1),
	S("GARRET_DISK_LIMIT",                 SIZE_OPT, disk_limit,                  NULL, 0),
	S("GARRET_RUN_RETENTION",              INT,      run_retention,               "3600", 0),
	S("GARRET_RUN_BYTES",                  INT,      run_bytes,                   "67108864", 0),
	S("GARRET_MAX_CONNECTIONS",            INT,      max_connections,             "4096", 1),
	S("GARRET_MAX_CONNECTIONS_PER_ADDRESS", INT_OPT, max_connections_per_address, NULL, 1),
	S("GARRET_LOG_LEVEL",                  STR,      log_level,                   "info", 0),
	S("GARRET_LOG_JSON",                   FLAG,     log_json,                    "0", 0),
};
/* clang-format on */

/* What Python's int() takes: blanks around, a sign, single underscores between digits. */
static bool parse_int(const char *s, int64_t *ret)
{
	bool negative = false, digit = false;
	int64_t v = 0;

	s += strspn(s, " \t\r\n\v\f");
	if (*s == '-' || *s == '+')
		negative = *s++ == '-';
	for (;; s++) {
		if (*s >= '0' && *s <= '9') {
			if (__builtin_mul_overflow(v, 10, &v) ||
			    __builtin_add_overflow(v, *s - '0', &v))
				return false;
			digit = true;
		} else if (*s == '_' && digit && s[1] >= '0' && s[1] <= '9') {
			continue;
		} else {
			break;
		}
	}
	if (!digit || s[strspn(s, " \t\r\n\v\f")])
		return false;
	*ret = negative ? -v : v;
	return true;
}

static bool parse_float(const char *s, double *ret)
{
	char *end;

	if (s[strspn(s, "0123456789.eE+- \t\r\n\v\f")])
		return false; /* strtod() reads hexadecimal and names as well */
	errno = 0;
	*ret = strtod(s, &end);
	return !errno && end != s && !end[strspn(end, " \t\r\n\v\f")] && isfinite(*ret);
}

static bool cpus_fit(double cpus)
{
	return cpus >= 0.01 && cpus <= CONFIG_CPUS_MAX;
}

static bool parse_flag(const char *s, bool *ret)
{
	static const struct {
		const char *word;
		bool value;
	} words[] = { { "1", true },   { "0", false },  { "true", true }, { "false", false },
		      { "yes", true }, { "no", false }, { "on", true },   { "off", false } };
	char word[8];
	size_t n;

	s += strspn(s, " \t\r\n\v\f");
	n = strcspn(s, " \t\r\n\v\f");
	if (n >= sizeof(word) || s[n + strspn(s + n, " \t\r\n\v\f")])
		return false;
	memcpy(word, s, n);
	word[n] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcasecmp(word, words[i].word)) {
			*ret = words[i].value;
			return true;
		}
	return false;
}

static int bad(const struct setting *s, const char *text, const char *want,
	       struct garret_error *err)
{
	return garret_fail(err, GARRET_INVALID, "%s: %s, not \"%.100s\"", s->name, want, text);
}

static int set_number(const struct setting *s, void *at, const char *text, struct garret_error *err)
{
	char want[64];
	int64_t v;

	(void)snprintf(want, sizeof(want), "a whole number of at least %lld", (long long)s->least);
	if (!parse_int(text, &v) || v < s->least)
		return bad(s, text, want, err);
	if (s->most && v > s->most) {
		(void)snprintf(want, sizeof(want), "at most %lld", (long long)s->most);
		return bad(s, text, want, err);
	}
	if (s->kind == PORT) {
		if (v > 65535)
			return bad(s, text, "a port of at most 65535", err);
		*(uint16_t *)at = (uint16_t)v;
	} else {
		*(int64_t *)at = v;
	}
	return 0;
}

/* text NULL: the setting is null. */
static int set_one(const struct setting *s, void *at, const char *text, struct garret_error *err)
{
	uint64_t size;

	switch (s->kind) {
	case STR:
		if (!text || !*text)
			return garret_fail(err, GARRET_INVALID, "%s: must not be empty", s->name);
		/* fallthrough */
	case STR_OPT:
		*(char **)at = text && *text ? xstrdup(text) : NULL;
		return 0;
	case SIZE_OPT:
		if (text && (!parse_size(text, &size) || !size))
			return bad(s, text, "a size such as 512m, above 0", err);
		*(char **)at = text ? xstrdup(text) : NULL;
		return 0;
	case CPUS_OPT:
		*(double *)at = CONFIG_NULL;
		if (text && (!parse_float(text, at) || !cpus_fit(*(double *)at)))
			return bad(s, text, "a number of CPUs from 0.01 to 4096", err);
		return 0;
	case FLAG:
		if (!parse_flag(text ? text : "", at))
			return bad(s, text ? text : "", "one of 1 0 true false yes no on off", err);
		return 0;
	case INT_OPT:
		*(int64_t *)at = CONFIG_NULL;
		if (!text)
			return 0;
		/* fallthrough */
	case INT:
	case PORT:
		return set_number(s, at, text ? text : "", err);
	}
	return 0;
}

static bool optional(enum kind k)
{
	return k == STR_OPT || k == INT_OPT || k == CPUS_OPT || k == SIZE_OPT;
}

/* The allowlist of the published service. */
#define CONTAINER_RUNTIMES \
	"coding=@coding;network_mode=bridge,python=python:3.12-slim,node=node:20-slim"

/* ---- runtimes ---- */

static struct runtime_entry *add_runtime(struct config *c, const char *alias)
{
	struct runtime_entry *r;

	c->runtimes = xrealloc(c->runtimes, (c->n_runtimes + 1) * sizeof(*c->runtimes));
	r = &c->runtimes[c->n_runtimes++];
	*r = (struct runtime_entry){ .alias = xstrdup(alias),
				     .description = xstrdup(""),
				     .cpus = CONFIG_NULL,
				     .cpu_shares = CONFIG_NULL,
				     .pids_limit = CONFIG_NULL };
	return r;
}

static int bad_runtime(const char *alias, const char *what, struct garret_error *err)
{
	return garret_fail(err, GARRET_INVALID, "SANDBOXD_RUNTIMES: %.80s: %.360s", alias, what);
}

static int set_string(char **at, const char *value)
{
	free(*at);
	*at = xstrdup(value);
	return 0;
}

/* One field of an entry, as text; numbers of JSON come here printed. */
static int set_runtime_field(struct runtime_entry *r, const char *field, const char *value,
			     struct garret_error *err)
{
	uint64_t size;

	if (!strcmp(field, "image") || !strcmp(field, "runtime")) {
		autofree char *source = xasprintf("%s%s", *field == 'r' ? "@" : "", value);

		if (r->source)
			return bad_runtime(r->alias, "give either image or runtime, not both", err);
		return set_string(&r->source, source);
	}
	if (!strcmp(field, "description"))
		return set_string(&r->description, value);
	if (!strcmp(field, "network_mode"))
		return set_string(&r->network_mode, value);
	if (!strcmp(field, "oci_runtime"))
		return set_string(&r->oci_runtime, value);
	if (!strcmp(field, "mem_limit") || !strcmp(field, "memswap_limit")) {
		if (!parse_size(value, &size) || !size)
			return bad_runtime(r->alias,
					   "mem_limit and memswap_limit take a size such as 512m",
					   err);
		return set_string(field[3] == '_' ? &r->mem_limit : &r->memswap_limit, value);
	}
	if (!strcmp(field, "cpus"))
		return parse_float(value, &r->cpus) && cpus_fit(r->cpus)
			       ? 0
			       : bad_runtime(r->alias, "cpus takes a number from 0.01 to 4096",
					     err);
	if (!strcmp(field, "cpu_shares"))
		return parse_int(value, &r->cpu_shares) && r->cpu_shares >= 2
			       ? 0
			       : bad_runtime(r->alias,
					     "cpu_shares takes a whole number of at least 2", err);
	if (!strcmp(field, "pids_limit"))
		return parse_int(value, &r->pids_limit) && r->pids_limit >= 8
			       ? 0
			       : bad_runtime(r->alias,
					     "pids_limit takes a whole number of at least 8", err);
	{
		autofree char *what = xasprintf("unknown field \"%.60s\"", field);

		return bad_runtime(r->alias, what, err);
	}
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t\r\n");
	n = strlen(s);
	while (n && strchr(" \t\r\n", s[n - 1]))
		s[--n] = '\0';
	return s;
}

/* alias=source[;field=value...] */
static int parse_compact_entry(struct config *c, char *entry, struct garret_error *err)
{
	char *rest = strchr(entry, ';'), *eq, *source, *field;
	struct runtime_entry *r;
	int rc;

	if (rest)
		*rest++ = '\0';
	eq = strchr(entry, '=');
	if (!eq)
		return bad_runtime(entry, "expected alias=source", err);
	*eq = '\0';
	r = add_runtime(c, trim(entry));
	source = trim(eq + 1);
	if (!*r->alias || !*source)
		return bad_runtime(r->alias, "alias and source must not be empty", err);
	r->source = xstrdup(source);
	while ((field = rest)) {
		rest = strchr(field, ';');
		if (rest)
			*rest++ = '\0';
		field = trim(field);
		if (!*field)
			continue;
		eq = strchr(field, '=');
		if (!eq)
			return bad_runtime(r->alias, "expected field=value", err);
		*eq = '\0';
		rc = set_runtime_field(r, trim(field), trim(eq + 1), err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int parse_json_entry(struct config *c, const char *alias, json_t *v,
			    struct garret_error *err)
{
	struct runtime_entry *r = add_runtime(c, alias);
	const char *field;
	json_t *value;
	int rc;

	if (json_is_string(v)) {
		r->source = xstrdup(json_string_value(v));
		return *r->source ? 0 : bad_runtime(alias, "the source must not be empty", err);
	}
	if (!json_is_object(v))
		return bad_runtime(alias, "expected a string or an object", err);
	json_object_foreach(v, field, value)
	{
		autofree char *number = NULL;

		if (json_is_null(value))
			continue;
		if (json_is_number(value))
			number = xasprintf("%.17g", json_number_value(value));
		else if (json_is_object(value) && !strcmp(field, "runtime")) {
			if (r->source)
				return bad_runtime(alias, "give either image or runtime, not both",
						   err);
			r->source = json_dumps(value, JSON_COMPACT);
			continue;
		} else if (!json_is_string(value))
			return bad_runtime(alias, "a field has the wrong type", err);
		rc = set_runtime_field(r, field, number ? number : json_string_value(value), err);
		if (rc < 0)
			return rc;
	}
	return r->source ? 0 : bad_runtime(alias, "give one of image and runtime", err);
}

static int parse_runtimes(struct config *c, const char *text, struct garret_error *err)
{
	autofree char *copy = xstrdup(text);
	char *s = trim(copy), *next;
	const char *alias;
	json_error_t je;
	json_t *doc, *v;
	int rc = 0;

	if (*s == '{' || *s == '[') {
		doc = json_loads(s, JSON_REJECT_DUPLICATES, &je);
		if (!json_is_object(doc)) {
			json_decref(doc);
			return garret_fail(err, GARRET_INVALID,
					   "SANDBOXD_RUNTIMES: expected a JSON object (%s)",
					   doc ? "an array" : je.text);
		}
		json_object_foreach(doc, alias, v)
		{
			rc = parse_json_entry(c, alias, v, err);
			if (rc < 0)
				break;
		}
		json_decref(doc);
	} else {
		for (; s && rc == 0; s = next) {
			next = strchr(s, ',');
			if (next)
				*next++ = '\0';
			if (*trim(s))
				rc = parse_compact_entry(c, s, err);
		}
	}
	if (rc == 0 && !c->n_runtimes)
		return garret_fail(err, GARRET_INVALID, "SANDBOXD_RUNTIMES: names no runtime");
	return rc;
}

/* ---- what the engine can't give, by name ---- */

static int check_network(const struct config *c, const char *where, const char *mode,
			 struct garret_error *err)
{
	if (c->docker) /* it has networks of its own, and says when there is none of that name */
		return 0;
	if (!mode || !strcmp(mode, "none") || !strcmp(mode, "host"))
		return 0;
	if (!strcmp(mode, "bridge"))
		return garret_fail(
			err, GARRET_UNSUPPORTED,
			"%s: native sessions have no network \"bridge\" yet; give \"none\" (or \"host\" "
			"where the engine's configuration allows it), or GARRET_ENGINE=docker",
			where);
	return garret_fail(
		err, GARRET_UNSUPPORTED,
		"%s: network \"%.60s\" would be one of Docker (GARRET_ENGINE=docker); native "
		"sessions have: none, host",
		where, mode);
}

/* What a source stands for, where sessions are containers: an image, or a recipe. */
static int take_source(struct runtime_entry *r, struct garret_error *err)
{
	if (!strcmp(r->source, "host"))
		return bad_runtime(
			r->alias,
			"the source \"host\" is for native sessions; with Docker give an "
			"image, a recipe or @NAME",
			err);
	if (*r->source == '@') {
		char *recipe = runtime_recipe(r->source + 1);

		if (!recipe) {
			autofree char *names = runtime_names();
			autofree char *why = xasprintf(
				"\"%.40s\" is no built-in runtime; there are %s", r->source, names);

			return bad_runtime(r->alias, why, err);
		}
		free(r->source);
		r->source = recipe;
	}
	r->builds = *r->source == '{';
	if (r->builds && runtime_shown(r->source, &r->shown) < 0)
		return bad_runtime(r->alias, "a recipe has a name, and one of image and base_image",
				   err);
	return 0;
}

static int check_runtime(const struct config *c, struct runtime_entry *r, struct garret_error *err)
{
	int rc;

	if (c->docker)
		return take_source(r, err);
	if (strcmp(r->source, "host") != 0)
		return bad_runtime(r->alias,
				   "native sessions have only the source \"host\" for now; images "
				   "and recipes need GARRET_ENGINE=docker",
				   err);
	if (r->oci_runtime)
		return bad_runtime(
			r->alias, "oci_runtime needs GARRET_ENGINE=docker; leave it out here", err);
	rc = check_network(c, "SANDBOXD_RUNTIMES", r->network_mode, err);
	return rc < 0 ? garret_wrap(rc, err, "%s", r->alias) : 0;
}

const char *config_not_given(const struct config *c, const char **ret_why)
{
	const struct {
		bool set;
		const char *name, *why;
	} later[] = {
		{ c->oci_runtime && !c->docker, "SANDBOXD_OCI_RUNTIME",
		  "needs GARRET_ENGINE=docker" },
		{ c->sandbox_uid != CONFIG_NULL, "SANDBOXD_SANDBOX_UID",
		  c->docker ? "a container's user is that of its image"
			    : "comes with images; the host runtime's user is 1000" },
		{ c->ui_enabled, "SANDBOXD_UI_ENABLED", "comes with the dashboard" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(later); i++) {
		if (!later[i].set)
			continue;
		*ret_why = later[i].why;
		return later[i].name;
	}
	return NULL;
}

static int check_given(const struct config *c, struct garret_error *err)
{
	const char *why, *name = config_not_given(c, &why);

	if (name)
		return garret_fail(err, GARRET_UNSUPPORTED, "%s: %s; unset it", name, why);
	if (c->docker && c->disk_limit)
		return garret_fail(
			err, GARRET_UNSUPPORTED,
			"GARRET_DISK_LIMIT: Docker gives no limit of the disk; unset it");
	return check_network(c, "SANDBOXD_NETWORK_MODE", c->network_mode, err);
}

/* ---- what doesn't go together ---- */

bool config_ceilings_fit(const struct config *c)
{
	return c->max_open_sessions == CONFIG_NULL ||
	       (c->max_sessions != CONFIG_NULL && c->max_open_sessions >= c->max_sessions);
}

bool config_memory_fits(const char *mem, const char *memswap, char why[160])
{
	uint64_t memory = 0, both = 0;

	if (!memswap)
		return true;
	if (!mem) {
		(void)snprintf(why, 160, "memswap_limit needs a mem_limit");
		return false;
	}
	if (parse_size(mem, &memory) && parse_size(memswap, &both) && both >= memory)
		return true;
	(void)snprintf(why, 160, "memswap_limit (%.40s) must be at least mem_limit (%.40s)",
		       memswap, mem);
	return false;
}

static int check_memory(const struct config *c, struct garret_error *err)
{
	char why[160];

	if (!config_memory_fits(c->mem_limit, c->memswap_limit, why))
		return garret_fail(err, GARRET_INVALID, "SANDBOXD_MEMSWAP_LIMIT: %s", why);
	for (unsigned i = 0; i < c->n_runtimes; i++) {
		const struct runtime_entry *r = &c->runtimes[i];

		if ((r->mem_limit || r->memswap_limit) &&
		    !config_memory_fits(config_mem_limit(c, r), config_memswap_limit(c, r), why))
			return bad_runtime(r->alias, why, err);
	}
	return 0;
}

static int check_work_dir(const char *dir, struct garret_error *err)
{
	if (dir[0] != '/' || !dir[1] || strstr(dir, "//") || strstr(dir, "/./") ||
	    strstr(dir, "/../") || dir[strlen(dir) - 1] == '/' || strlen(dir) > 512)
		return garret_fail(err, GARRET_INVALID,
				   "SANDBOXD_WORK_DIR: an absolute path without . .. or a "
				   "trailing slash, not \"%.100s\"",
				   dir);
	return 0;
}

static int check(struct config *c, struct garret_error *err)
{
	int rc;

	for (unsigned i = 0; i < c->n_runtimes; i++) {
		for (unsigned k = 0; k < i; k++)
			if (!strcmp(c->runtimes[k].alias, c->runtimes[i].alias))
				return bad_runtime(c->runtimes[i].alias, "named twice", err);
		rc = check_runtime(c, &c->runtimes[i], err);
		if (rc < 0)
			return rc;
	}
	if (!c->default_runtime)
		c->default_runtime = xstrdup(c->runtimes[0].alias);
	if (!config_runtime(c, c->default_runtime))
		return garret_fail(err, GARRET_INVALID,
				   "SANDBOXD_DEFAULT_RUNTIME: \"%.80s\" is not a runtime",
				   c->default_runtime);
	if (!config_ceilings_fit(c))
		return garret_fail(
			err, GARRET_INVALID,
			"SANDBOXD_MAX_OPEN_SESSIONS: must be at least SANDBOXD_MAX_SESSIONS");
	/* Whoever reads it may be in another directory, and so may the next start. */
	if (c->state_dir[0] != '/')
		return garret_fail(err, GARRET_INVALID,
				   "GARRET_STATE_DIR: an absolute path, not \"%.100s\"",
				   c->state_dir);
	if (c->policy_overrides && c->policy_overrides[0] != '/')
		return garret_fail(err, GARRET_INVALID,
				   "SANDBOXD_POLICY_OVERRIDES: an absolute path, not \"%.100s\"",
				   c->policy_overrides);
	if (c->app_database && strncmp(c->app_database, "sqlite:/", 8) != 0 &&
	    strncmp(c->app_database, "postgresql://", 13) != 0 &&
	    strncmp(c->app_database, "postgres://", 11) != 0)
		return garret_fail(err, GARRET_INVALID,
				   "GARRET_APP_DATABASE: sqlite:/PATH or postgresql://...");
	rc = check_memory(c, err);
	if (rc == 0)
		rc = check_work_dir(c->work_dir, err);
	return rc < 0 ? rc : check_given(c, err);
}

/* GARRET_ENGINE: native, docker, or the socket of a running engine. */
static int take_engine(struct config *c, struct garret_error *err)
{
	const char *engine = c->engine;

	if (!engine || *engine == '/')
		return 0;
	c->docker = !strcmp(engine, "docker");
	if (!c->docker && strcmp(engine, "native") != 0)
		return garret_fail(err, GARRET_INVALID,
				   "GARRET_ENGINE: native, docker, or the absolute path of an "
				   "engine's socket, not \"%.80s\"",
				   engine);
	free(c->engine);
	c->engine = NULL;
	return 0;
}

int config_from_env(struct config *ret, struct garret_error *err)
{
	struct config c = { 0 };
	const char *runtimes = getenv("SANDBOXD_RUNTIMES");
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(settings) && rc == 0; i++) {
		const struct setting *s = &settings[i];
		const char *text = getenv(s->name);

		if (text && s->offset == offsetof(struct config, token) && !*text)
			rc = garret_fail(err, GARRET_INVALID, "%s: must not be empty", s->name);
		else if (!text)
			rc = set_one(s, (char *)&c + s->offset, s->fallback, err);
		else
			rc = set_one(s, (char *)&c + s->offset,
				     !*text && optional(s->kind) ? NULL : text, err);
	}
	if (rc == 0)
		rc = take_engine(&c, err);
	if (rc == 0)
		rc = parse_runtimes(&c,
				    runtimes && *runtimes ? runtimes
				    : c.docker            ? CONTAINER_RUNTIMES
							  : "host=host",
				    err);
	if (rc == 0)
		rc = check(&c, err);
	if (rc < 0) {
		config_release(&c);
		return rc;
	}
	*ret = c;
	return 0;
}

void config_release(struct config *c)
{
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (settings[i].kind == STR || settings[i].kind == STR_OPT ||
		    settings[i].kind == SIZE_OPT)
			free(*(char **)((char *)c + settings[i].offset));
	for (unsigned i = 0; i < c->n_runtimes; i++) {
		struct runtime_entry *r = &c->runtimes[i];

		free(r->alias);
		free(r->source);
		free(r->shown);
		free(r->description);
		free(r->mem_limit);
		free(r->memswap_limit);
		free(r->network_mode);
		free(r->oci_runtime);
	}
	free(c->runtimes);
	*c = (struct config){ 0 };
}

const struct runtime_entry *config_runtime(const struct config *c, const char *alias)
{
	for (unsigned i = 0; i < c->n_runtimes; i++)
		if (!strcmp(c->runtimes[i].alias, alias))
			return &c->runtimes[i];
	return NULL;
}

uint64_t config_bytes(const char *size)
{
	uint64_t v = 0;

	if (size)
		(void)parse_size(size, &v);
	return v;
}

const char *config_mem_limit(const struct config *c, const struct runtime_entry *r)
{
	return r->mem_limit ? r->mem_limit : c->mem_limit;
}

const char *config_memswap_limit(const struct config *c, const struct runtime_entry *r)
{
	return r->memswap_limit ? r->memswap_limit : c->memswap_limit;
}

const char *config_network(const struct config *c, const struct runtime_entry *r)
{
	return r->network_mode ? r->network_mode : c->network_mode;
}

double config_cpus(const struct config *c, const struct runtime_entry *r)
{
	return r->cpus >= 0 ? r->cpus : c->cpus;
}

int64_t config_cpu_shares(const struct config *c, const struct runtime_entry *r)
{
	return r->cpu_shares >= 0 ? r->cpu_shares : c->cpu_shares;
}

int64_t config_pids_limit(const struct config *c, const struct runtime_entry *r)
{
	return r->pids_limit >= 0 ? r->pids_limit : c->pids_limit;
}
