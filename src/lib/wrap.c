#include "garret/wrap.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/mem.h"
#include "lib/workspace.h"
#include "net/json.h"

static int wrap(struct garret_workspace *w, struct layer *layer, struct garret_workspace **ret,
		struct garret_error *err)
{
	struct garret_context *c = w->backend->context;
	int rc = context_enter(c, err);

	*ret = NULL;
	if (rc < 0) {
		free(layer);
		return rc;
	}
	*ret = workspace_wrap(w, layer);
	context_leave(c);
	return 0;
}

static struct layer *layer_new(enum layer_kind kind)
{
	struct layer *l = xnew(struct layer);

	l->kind = kind;
	return l;
}

int garret_wrap_read_only(struct garret_workspace *w, struct garret_workspace **ret,
			  struct garret_error *err)
{
	return wrap(w, layer_new(LAYER_READ_ONLY), ret, err);
}

int garret_wrap_confined(struct garret_workspace *w, struct garret_workspace **ret,
			 struct garret_error *err)
{
	return wrap(w, layer_new(LAYER_CONFINED), ret, err);
}

int garret_wrap_recording(struct garret_workspace *w, garret_record_fn *record, void *data,
			  struct garret_workspace **ret, struct garret_error *err)
{
	struct layer *l;

	*ret = NULL;
	if (!record)
		return garret_fail(err, GARRET_TYPE, "record: a function is wanted, not NULL");
	l = layer_new(LAYER_RECORDING);
	l->record = record;
	l->data = data;
	return wrap(w, l, ret, err);
}

int garret_wrap_guarded(struct garret_workspace *w, garret_guard_fn *guard, void *data,
			struct garret_workspace **ret, struct garret_error *err)
{
	struct layer *l;

	*ret = NULL;
	if (!guard)
		return garret_fail(err, GARRET_TYPE, "guard: a function is wanted, not NULL");
	l = layer_new(LAYER_GUARDED);
	l->guard = guard;
	l->data = data;
	return wrap(w, l, ret, err);
}

/* ---- authority ---- */

static bool level_valid(enum garret_authority level)
{
	return (unsigned)level <= GARRET_AUTHORITY_OPERATOR;
}

static int check_rules(const struct garret_authority_rule *rules, size_t n,
		       struct garret_error *err)
{
	if (n && !rules)
		return garret_fail(err, GARRET_TYPE, "rules: a list is wanted, not NULL");
	for (size_t i = 0; i < n; i++) {
		int rc = path_check("rules", rules[i].path, err);

		if (rc < 0)
			return rc;
		if (*rules[i].path == '~')
			return garret_fail(err, GARRET_MISUSE,
					   "rules: a path can't begin with \"~\" (rule %zu)", i);
		if (!level_valid(rules[i].level))
			return garret_fail(err, GARRET_INVALID, "rules: rule %zu has no level", i);
	}
	return 0;
}

int garret_wrap_authority(struct garret_workspace *w, enum garret_authority level,
			  const struct garret_authority_rule *rules, size_t n,
			  struct garret_workspace **ret, struct garret_error *err)
{
	struct layer *l;
	int rc;

	*ret = NULL;
	if (!level_valid(level))
		return garret_fail(err, GARRET_INVALID, "level: none, user or operator");
	rc = check_rules(rules, n, err);
	if (rc < 0)
		return rc;
	l = layer_new(LAYER_AUTHORITY);
	l->level = level;
	l->n_rules = n;
	l->rules = n ? xcalloc(n, sizeof(*l->rules)) : NULL;
	for (size_t i = 0; i < n; i++) {
		l->rules[i].level = rules[i].level;
		l->rules[i].path = xstrdup(rules[i].path);
	}
	return wrap(w, l, ret, err);
}

enum garret_authority garret_workspace_authority(const struct garret_workspace *w)
{
	enum garret_authority lowest = GARRET_AUTHORITY_OPERATOR;

	for (const struct layer *l = w->top; l; l = l->inner)
		if (l->kind == LAYER_AUTHORITY)
			lowest = MIN(lowest, l->level);
	return lowest;
}

/* As path_below(), for names that differ in the case of ASCII letters only. */
static bool below_folded(const char *path, const char *base)
{
	const size_t n = strlen(base);

	return n == 1 || (!strncasecmp(path, base, n) && (!path[n] || path[n] == '/'));
}

/* The rules of one layer with what they name, looked up once. */
struct rule_paths {
	char *named, *real;
};

/* Level of the rule with the longest path that covers it, or -1. */
static int longest(const struct layer *l, const struct rule_paths *rp, const char *path,
		   bool folded)
{
	size_t best = 0;
	int level = -1;

	for (size_t i = 0; i < l->n_rules; i++) {
		const char *base = rp[i].named;

		if (!(folded ? below_folded(path, base) : path_below(path, base)))
			continue;
		if (level < 0 || strlen(base) > best) {
			best = strlen(base);
			level = (int)l->rules[i].level;
		}
	}
	return level;
}

static enum garret_authority level_of(const struct layer *l, const struct rule_paths *rp,
				      const char *path, const char *dir)
{
	int level = longest(l, rp, path, false), folded = longest(l, rp, path, true);

	if (level < 0)
		level = path_below(path, dir) ? (int)l->level : (int)GARRET_AUTHORITY_NONE;
	/* A file system that folds case opens the same file: that can only lower it. */
	if (folded >= 0 && folded < level)
		level = folded;
	for (size_t i = 0; i < l->n_rules; i++)
		if (path_below(path, rp[i].real))
			level = MIN(level, (int)l->rules[i].level +
						   (strcmp(rp[i].real, rp[i].named) == 0 ? 2 : 0));
	return (enum garret_authority)level;
}

static void free_rule_paths(struct rule_paths *rp, size_t n)
{
	for (size_t i = 0; rp && i < n; i++) {
		free(rp[i].named);
		free(rp[i].real);
	}
	free(rp);
}

static int layer_authority(struct garret_workspace *w, const struct layer *l, const char *named,
			   const char *real, const char *dir, enum garret_authority *lowest,
			   struct garret_error *err)
{
	struct rule_paths *rp = xcalloc(l->n_rules + 1, sizeof(*rp));
	int rc = 0;

	for (size_t i = 0; i < l->n_rules && rc == 0; i++) {
		rp[i].named = path_normal(dir, l->rules[i].path);
		rc = garret_realpath(w, rp[i].named, &rp[i].real, err);
	}
	for (size_t i = 0; i < l->n_rules; i++)
		if (!rp[i].real)
			goto out;
	if (rc == 0) {
		*lowest = MIN(*lowest, level_of(l, rp, named, dir));
		*lowest = MIN(*lowest, level_of(l, rp, real, dir));
	}
out:
	free_rule_paths(rp, l->n_rules);
	return rc;
}

int garret_authority_of(struct garret_workspace *w, const char *path, enum garret_authority *ret,
			struct garret_error *err)
{
	enum garret_authority lowest = GARRET_AUTHORITY_OPERATOR;
	autofree char *dir = NULL, *named = NULL, *real = NULL;
	int rc = path_check("path", path, err);

	*ret = GARRET_AUTHORITY_NONE;
	if (rc < 0)
		return rc;
	if (workspace_has(w, LAYER_AUTHORITY)) {
		rc = garret_working_dir(w, &dir, err);
		if (rc == 0)
			rc = garret_realpath(w, path, &real, err);
		if (!dir || !real)
			return rc;
		named = path_normal(dir, path);
	}
	for (const struct layer *l = w->top; l && named && rc == 0; l = l->inner)
		if (l->kind == LAYER_AUTHORITY)
			rc = layer_authority(w, l, named, real, dir, &lowest, err);
	if (rc == 0)
		*ret = lowest;
	return rc;
}

/* ---- unavailable ---- */

static int unavailable(struct garret_context *c, const char *reason, bool none,
		       struct garret_workspace **ret, struct garret_error *err)
{
	int rc = context_enter(c, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	*ret = workspace_new(backend_unavailable(c, reason, none));
	context_leave(c);
	return 0;
}

int garret_unavailable(struct garret_context *c, const char *reason, struct garret_workspace **ret,
		       struct garret_error *err)
{
	*ret = NULL;
	if (!reason || !*reason)
		return garret_fail(err, GARRET_INVALID, "reason: some text");
	return unavailable(c, reason, false, ret, err);
}

int garret_no_workspace(struct garret_context *c, struct garret_workspace **ret,
			struct garret_error *err)
{
	return unavailable(c, "no workspace is attached", true, ret, err);
}

bool garret_workspace_is_none(const struct garret_workspace *w)
{
	return w->backend->none;
}

/* ---- the durable policy ---- */

static const char *const level_names[] = { "none", "user", "operator" };

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct garret_authority_rule *)a)->path,
		      ((const struct garret_authority_rule *)b)->path);
}

static void put_authority(struct strbuf *out, const struct layer *l)
{
	autofree struct garret_authority_rule *sorted =
		l->n_rules ? xmemdup(l->rules, l->n_rules * sizeof(*sorted)) : NULL;

	if (sorted)
		qsort(sorted, l->n_rules, sizeof(*sorted), by_path);
	json_open(out, '{');
	json_put_key(out, "level");
	json_put_string(out, level_names[l->level]);
	json_put_key(out, "paths");
	json_open(out, '[');
	for (size_t i = 0; sorted && i < l->n_rules; i++) {
		json_open(out, '[');
		json_put_string(out, sorted[i].path);
		json_put_string(out, level_names[sorted[i].level]);
		json_close(out, ']');
	}
	json_close(out, ']');
	json_close(out, '}');
}

char *garret_workspace_policy(const struct garret_workspace *w)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "read_only");
	json_put_bool(&out, workspace_has(w, LAYER_READ_ONLY));
	json_put_key(&out, "confined");
	json_put_bool(&out, workspace_has(w, LAYER_CONFINED));
	json_put_key(&out, "authority");
	json_open(&out, '[');
	for (const struct layer *l = w->top; l; l = l->inner)
		if (l->kind == LAYER_AUTHORITY)
			put_authority(&out, l);
	json_close(&out, ']');
	json_close(&out, '}');
	return strbuf_detach(&out, NULL);
}
