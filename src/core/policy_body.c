#include "core/policy_body.h"

#include <jansson.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"

/* What the engine takes at least; it says only what it takes at most. */
#define MEMORY_LEAST (8ull << 20)
#define TMPFS_LEAST (64ull << 10)
#define SHARES_LEAST 2
#define SHARES_MOST 262144
#define PIDS_LEAST 8
#define CPUS_LEAST 0.01

#define SETTING(member, k, f, h, ...)                                                            \
	{                                                                                        \
		.name = #member, .kind = (k), .flags = (f),                                      \
		.offset = offsetof(struct policy_draft, config.member), .help = (h), __VA_ARGS__ \
	}
#define OF_RUNTIME(member, k, f, h)                                           \
	{                                                                     \
		.name = #member, .kind = (k), .flags = (f),                   \
		.offset = offsetof(struct runtime_entry, member), .help = (h) \
	}
#define CEILING (JSON_NULLABLE | JSON_FROM_ZERO)
#define LIMIT (JSON_NULLABLE | JSON_ABOVE_ZERO)

/* clang-format off */
const struct json_field policy_fields[] = {
	SETTING(default_runtime,          JSON_KIND_STRING, 0, "an alias"),
	SETTING(max_sessions,             JSON_KIND_INT, CEILING, "sessions at once"),
	SETTING(max_open_sessions,        JSON_KIND_INT, CEILING, "at least max_sessions"),
	SETTING(max_sessions_per_tenant,  JSON_KIND_INT, CEILING, "for each label"),
	SETTING(evict_idle_after,         JSON_KIND_INT, CEILING, "seconds", .max = CONFIG_SECONDS_MAX),
	SETTING(idle_timeout,             JSON_KIND_INT, JSON_FROM_ZERO, "seconds", .max = CONFIG_SECONDS_MAX),
	SETTING(workspace_ttl,            JSON_KIND_INT, CEILING, "seconds", .max = CONFIG_SECONDS_MAX),
	SETTING(container_ttl,            JSON_KIND_INT, CEILING, "seconds", .max = CONFIG_SECONDS_MAX),
	SETTING(execute_timeout,          JSON_KIND_INT, JSON_ABOVE_ZERO, "seconds", .max = CONFIG_SECONDS_MAX),
	SETTING(max_read_bytes,           JSON_KIND_INT, JSON_ABOVE_ZERO, "of one file"),
	SETTING(mem_limit,                JSON_KIND_SIZE, JSON_NULLABLE, "such as 512m"),
	SETTING(memswap_limit,            JSON_KIND_SIZE, JSON_NULLABLE, "memory and swap together"),
	SETTING(cpus,                     JSON_KIND_FLOAT, LIMIT, "CPUs"),
	SETTING(cpu_shares,               JSON_KIND_INT, LIMIT, "weight; 1024 is normal"),
	SETTING(pids_limit,               JSON_KIND_INT, LIMIT, "processes"),
	SETTING(tmpfs_size,               JSON_KIND_SIZE, JSON_NULLABLE, "of /tmp"),
	{ .name = "runtimes", .kind = JSON_KIND_TABLE, .flags = JSON_NULLABLE,
	  .offset = offsetof(struct policy_draft, runtimes),
	  .help = "alias: {mem_limit, memswap_limit, cpus, cpu_shares, pids_limit}" },
	{ .name = NULL }
};

const struct json_field policy_runtime_fields[] = {
	OF_RUNTIME(mem_limit,     JSON_KIND_SIZE, JSON_NULLABLE, NULL),
	OF_RUNTIME(memswap_limit, JSON_KIND_SIZE, JSON_NULLABLE, NULL),
	OF_RUNTIME(cpus,          JSON_KIND_FLOAT, LIMIT, NULL),
	OF_RUNTIME(cpu_shares,    JSON_KIND_INT, LIMIT, NULL),
	OF_RUNTIME(pids_limit,    JSON_KIND_INT, LIMIT, NULL),
	{ .name = NULL }
};
/* clang-format on */

/* ---- what is wrong ---- */

/* path: the keys that lead to it, NULL-terminated. */
static void wrong(struct json_errors *e, const char *const *path, const json_t *input,
		  const char *type, const char *fmt, ...) __attribute__((format(printf, 5, 6)));

static void wrong(struct json_errors *e, const char *const *path, const json_t *input,
		  const char *type, const char *fmt, ...)
{
	autobuf struct strbuf loc = STRBUF_INIT;
	/* Numbers and sizes, checked for their form: short. */
	autofree char *shown = input ? json_dumps(input, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	char msg[300];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	strbuf_addstr(&loc, "\"body\"");
	for (; *path; path++)
		json_put_string(&loc, *path);
	json_add_error(e, type, loc.buf, msg, shown ? shown : "null", "{\"error\":\"policy\"}");
}

/* ---- bounds ---- */

struct bound {
	const char *name;
	unsigned bit; /* enum box_limit; 0: can always be given */
	double least, most;
};

static double value_of(const struct json_field *f, const void *values)
{
	const void *at = (const char *)values + f->offset;
	uint64_t bytes = 0;

	if (f->kind == JSON_KIND_INT)
		return (double)*(const int64_t *)at;
	if (f->kind == JSON_KIND_FLOAT)
		return *(const double *)at;
	(void)parse_size(*(char *const *)at, &bytes);
	return (double)bytes;
}

/* above: where the object stands in the body, or { NULL }. */
static void check_bound(const json_t *object, const char *const above[2],
			const struct json_field *f, const void *values, const struct bound *b,
			const struct limit_bounds *bounds, struct json_errors *e)
{
	const char *path[] = { above[0] ? above[0] : f->name, above[1], above[0] ? f->name : NULL,
			       NULL };
	const json_t *given = json_object_get(object, f->name);
	const char *unit = f->kind == JSON_KIND_SIZE ? " bytes" : "";
	double v;

	if (!given || json_is_null(given))
		return;
	v = value_of(f, values);
	if (bounds->known && b->bit && !(bounds->can & b->bit))
		wrong(e, path, given, "value_error",
		      "Value error, this limit can't be given on this host (see garret doctor)");
	else if (!(v >= b->least))
		wrong(e, path, given, "value_error", "Value error, must be at least %.17g%s",
		      b->least, unit);
	else if (b->most > 0 && !(v <= b->most))
		wrong(e, path, given, "value_error", "Value error, must be at most %.17g%s",
		      b->most, unit);
}

static void check_bounds(const json_t *object, const char *const above[2],
			 const struct json_field *fields, const void *values,
			 const struct limit_bounds *bounds, struct json_errors *e)
{
	const struct bound table[] = {
		{ "mem_limit", BOX_MEMORY, MEMORY_LEAST, (double)bounds->memory_bytes },
		{ "memswap_limit", BOX_SWAP, MEMORY_LEAST, (double)bounds->memory_bytes },
		{ "cpus", BOX_CPUS, CPUS_LEAST,
		  bounds->cpu_millis ? bounds->cpu_millis / 1000.0 : CONFIG_CPUS_MAX },
		{ "cpu_shares", BOX_SHARES, SHARES_LEAST, SHARES_MOST },
		{ "pids_limit", BOX_PIDS, PIDS_LEAST, bounds->pids ? bounds->pids : UINT32_MAX },
		{ "tmpfs_size", 0, TMPFS_LEAST, (double)bounds->tmpfs_bytes },
	};

	for (const struct json_field *f = fields; f->name; f++)
		for (size_t i = 0; i < ARRAY_SIZE(table); i++)
			if (!strcmp(f->name, table[i].name))
				check_bound(object, above, f, values, &table[i], bounds, e);
}

/* ---- nulls ---- */

/* The check leaves alone what is null; here it becomes "not set". */
static void set_nulls(const json_t *object, const struct json_field *fields, void *values)
{
	for (const struct json_field *f = fields; f->name; f++) {
		void *to = (char *)values + f->offset;

		if (!json_is_null(json_object_get(object, f->name)))
			continue;
		if (f->kind == JSON_KIND_INT)
			*(int64_t *)to = CONFIG_NULL;
		else if (f->kind == JSON_KIND_FLOAT)
			*(double *)to = CONFIG_NULL;
		else
			*(const char **)to = NULL;
	}
}

/* ---- runtimes ---- */

static void lay_runtimes(struct policy_draft *d, const struct limit_bounds *bounds,
			 struct json_errors *e, struct refusal *no)
{
	json_t *runtimes = (json_t *)(uintptr_t)d->runtimes, *entry;
	const char *alias;

	json_object_foreach(runtimes, alias, entry)
	{
		const char *above[] = { "runtimes", alias, NULL };
		struct runtime_entry *r =
			(struct runtime_entry *)(uintptr_t)config_runtime(&d->config, alias);
		struct runtime_entry unknown = { 0 };
		unsigned before = e->n;

		if (!r && !no->status) {
			no->status = 400;
			(void)snprintf(no->detail, sizeof(no->detail), "Unknown runtime: %.80s",
				       alias);
		}
		json_check_strict(entry, above, policy_runtime_fields, r ? r : &unknown, e);
		if (e->n == before)
			check_bounds(entry, above, policy_runtime_fields, r ? r : &unknown, bounds,
				     e);
		if (r)
			set_nulls(entry, policy_runtime_fields, r);
	}
}

/* ---- what doesn't go together ---- */

/* The key of the change that has to do with it: of the runtime, or of all. */
static void blame(const json_t *change, const char *alias, const char *const names[2],
		  const char *why, struct json_errors *e)
{
	const json_t *own =
		alias ? json_object_get(json_object_get(change, "runtimes"), alias) : NULL;

	for (int i = 0; i < 2; i++) {
		const char *path[] = { "runtimes", alias, names[i], NULL };

		if (json_object_get(own, names[i])) {
			wrong(e, path, json_object_get(own, names[i]), "value_error",
			      "Value error, %s", why);
			return;
		}
	}
	for (int i = 0; i < 2; i++) {
		const char *path[] = { names[i], NULL };

		if (i == 1 || json_object_get(change, names[i])) {
			wrong(e, path, json_object_get(change, names[i]), "value_error",
			      "Value error, %s%s%s", alias ? alias : "", alias ? ": " : "", why);
			return;
		}
	}
}

static void check_together(const struct policy_draft *d, const json_t *change,
			   struct json_errors *e)
{
	static const char *const open[] = { "max_open_sessions", "max_sessions" };
	static const char *const memory[] = { "memswap_limit", "mem_limit" };
	const struct config *c = &d->config;
	char why[160];

	if (!config_ceilings_fit(c))
		blame(change, NULL, open, "max_open_sessions must be at least max_sessions", e);
	if (!config_memory_fits(c->mem_limit, c->memswap_limit, why))
		blame(change, NULL, memory, why, e);
	for (unsigned i = 0; i < c->n_runtimes; i++) {
		const struct runtime_entry *r = &c->runtimes[i];

		if ((r->mem_limit || r->memswap_limit) &&
		    !config_memory_fits(config_mem_limit(c, r), config_memswap_limit(c, r), why))
			blame(change, r->alias, memory, why, e);
	}
}

/* Settings that come with a later version are refused here as at start. */
static void check_given(const struct policy_draft *d, const json_t *change, struct json_errors *e)
{
	const char *why, *variable = config_not_given(&d->config, &why);

	for (const struct json_field *f = policy_fields; variable && f->name; f++) {
		const char *path[] = { f->name, NULL };

		/* A field's variable is its name in capitals. */
		if (!strcasecmp(f->name, variable + strlen("SANDBOXD_")))
			wrong(e, path, json_object_get(change, f->name), "value_error",
			      "Value error, %s", why);
	}
}

bool policy_draft(const struct config *c, const struct limit_bounds *bounds,
		  const struct json_t *change, struct policy_draft *ret, struct json_errors *e,
		  struct refusal *no)
{
	struct policy_draft d = { .config = *c };

	d.config.runtimes = xmemdup(c->runtimes, c->n_runtimes * sizeof(*c->runtimes));
	json_check_strict(change, NULL, policy_fields, &d, e);
	if (json_is_object(change)) {
		if (!e->n)
			check_bounds(change, (const char *const[2]){ NULL, NULL }, policy_fields,
				     &d, bounds, e);
		set_nulls(change, policy_fields, &d);
		lay_runtimes(&d, bounds, e, no);
	}
	if (!e->n && !no->status && !config_runtime(&d.config, d.config.default_runtime)) {
		no->status = 400;
		(void)snprintf(no->detail, sizeof(no->detail), "Unknown runtime: %.80s",
			       d.config.default_runtime);
	}
	if (!e->n && !no->status)
		check_together(&d, change, e);
	if (!e->n && !no->status)
		check_given(&d, change, e);
	if (e->n || no->status) {
		policy_draft_release(&d);
		return false;
	}
	*ret = d;
	return true;
}

void policy_draft_release(struct policy_draft *d)
{
	free(d->config.runtimes);
	d->config.runtimes = NULL;
}
