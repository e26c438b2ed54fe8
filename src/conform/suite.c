#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/time.h"
#include "conform/ground.h"

/* ---- the ground ---- */

bool ground_fail(struct ground *g, const char *fmt, ...)
{
	va_list ap;

	if (g->failed)
		return false;
	g->failed = true;
	va_start(ap, fmt);
	(void)vsnprintf(g->why, sizeof(g->why), fmt, ap);
	va_end(ap);
	return false;
}

void ground_skip(struct ground *g, const char *why)
{
	g->skipped = true;
	(void)snprintf(g->why, sizeof(g->why), "%s", why);
}

const char *in(const char *dir, const char *name)
{
	static char buf[8][600];
	static unsigned at;
	char *out = buf[at++ % 8];

	(void)snprintf(out, sizeof(buf[0]), "%s/%s", dir, name);
	return out;
}

const char *ground_dir(struct ground *g)
{
	static char dir[64];
	static unsigned n;
	struct garret_error err = { 0 };

	(void)snprintf(dir, sizeof(dir), "conform-%u", ++n);
	if (garret_make_dir(g->shared, dir, &err) < 0)
		(void)ground_fail(g, "make %s: %s", dir, err.msg);
	return dir;
}

struct garret_workspace *ground_fresh(struct ground *g)
{
	struct garret_error err = { 0 };
	struct garret_workspace *w;

	if (garret_provider_attach(g->provider, NULL, &w, &err) < 0)
		(void)ground_fail(g, "a new workspace: %s", err.msg);
	else if (g->n_fresh < GROUND_FRESH)
		g->fresh[g->n_fresh++] = garret_workspace_dup(w);
	return w;
}

void ground_drop(struct ground *g, struct garret_workspace *w)
{
	struct garret_error err = { 0 };
	struct garret_ref ref;

	if (!w)
		return;
	if (garret_workspace_ref(w, &ref) == 0 &&
	    garret_provider_destroy(g->provider, &ref, &err) < 0)
		(void)ground_fail(g, "destroy: %s", err.msg);
	garret_workspace_free(w);
}

int ground_sh(struct ground *g, struct garret_workspace *w, const char *script,
	      struct garret_result *ret, struct garret_error *err)
{
	const struct garret_run_options o = { .size = sizeof(o), .shell = script, .timeout = 60 };

	(void)g;
	return garret_run(w, &o, ret, err);
}

bool ground_says(struct ground *g, struct garret_workspace *w, const char *script, const char *text)
{
	autoresult r = { 0 };
	struct garret_error err = { 0 };
	int rc = ground_sh(g, w, script, &r, &err);

	if (rc < 0)
		return ground_fail(g, "%s: %s", script, err.msg);
	if (r.exit_code)
		return ground_fail(g, "%s: exit %d, %.200s", script, r.exit_code, (char *)r.err);
	if (strcmp((char *)r.out, text) != 0)
		return ground_fail(g, "%s: said \"%.200s\", not \"%.200s\"", script, (char *)r.out,
				   text);
	return true;
}

bool has_bytes(struct ground *g, struct garret_workspace *w, const char *path, const void *data,
	       size_t n)
{
	autobytes b = { 0 };
	struct garret_error err = { 0 };

	if (garret_read(w, path, &b, &err) < 0)
		return ground_fail(g, "read %s: %s", path, err.msg);
	if (b.n != n || (n && memcmp(b.data, data, n) != 0))
		return ground_fail(g, "%s: %zu bytes came back, or other ones than the %zu written",
				   path, b.n, n);
	return true;
}

/* A rule that is broken returns in the middle: what it made goes all the same. */
static void drop_fresh(struct ground *g)
{
	while (g->n_fresh)
		ground_drop(g, g->fresh[--g->n_fresh]);
}

/* ---- running them ---- */

static const struct rule *const tables[] = { run_rules, file_rules, life_rules, more_rules };

static bool wants(const struct conform_options *o, const struct rule *r)
{
	return !o->only || strstr(r->name, o->only);
}

static const char *missing(const struct ground *g, const struct rule *r)
{
	const unsigned lacks = r->needs & ~g->abilities;

	if (lacks & GARRET_HAS_COMMANDS)
		return "it runs no commands";
	if (lacks & GARRET_HAS_STREAMS)
		return "its commands have no streams";
	if (lacks & GARRET_HAS_CONFINED)
		return "it can't confine files";
	if (lacks)
		return "it lacks what this is about";
	return r->fresh && g->named ? "with a name there is one workspace only" : NULL;
}

static void run_rule(struct ground *g, const struct rule *r, FILE *out, struct conform_counts *c)
{
	const char *lacks = missing(g, r);
	const uint64_t begun = now_us();

	g->failed = g->skipped = false;
	if (lacks)
		ground_skip(g, lacks);
	else
		r->fn(g);
	drop_fresh(g);
	if (g->failed) {
		c->failed++;
		(void)fprintf(out, "FAILED  %s: %s\n", r->name, g->why);
	} else if (g->skipped) {
		c->skipped++;
		(void)fprintf(out, "skipped %s: %s\n", r->name, g->why);
	} else {
		c->passed++;
		(void)fprintf(out, "ok      %s (%llu ms)\n", r->name,
			      (unsigned long long)(now_us() - begun) / 1000);
	}
	(void)fflush(out);
}

static int open_ground(struct ground *g, const struct conform_options *o, struct garret_error *err)
{
	const struct garret_context_options co = { .size = sizeof(co),
						   .program_dir = o->program_dir };
	int rc = garret_context_new(&co, &g->context, err);

	if (rc == 0)
		rc = garret_provider_open_settings(g->context, o->provider, o->settings,
						   &g->provider, err);
	if (rc == 0)
		rc = garret_provider_attach(g->provider, NULL, &g->shared, err);
	if (rc == 0)
		rc = garret_workspace_ensure(g->shared, err);
	if (rc == 0)
		rc = garret_workspace_abilities(g->shared, &g->abilities, err);
	for (const char *const *s = o->settings; s && *s; s++)
		g->named = g->named || !strncmp(*s, "name=", 5) ||
			   !strncmp(*s, "session_name=", 13) ||
			   !strncmp(*s, "container_name=", 15) || !strncmp(*s, "file=", 5);
	return rc;
}

static void close_ground(struct ground *g)
{
	ground_drop(g, g->shared);
	garret_provider_free(g->provider);
	garret_context_free(g->context);
}

int conform_run(const struct conform_options *o, FILE *out, struct conform_counts *ret,
		struct garret_error *err)
{
	struct ground g = { 0 };
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	if (!o->list)
		rc = open_ground(&g, o, err);
	for (size_t t = 0; t < ARRAY_SIZE(tables) && rc == 0; t++)
		for (const struct rule *r = tables[t]; r->name; r++) {
			if (!wants(o, r))
				continue;
			if (o->list)
				(void)fprintf(out, "%s\n", r->name);
			else
				run_rule(&g, r, out, ret);
		}
	if (!o->list)
		close_ground(&g);
	return rc;
}
