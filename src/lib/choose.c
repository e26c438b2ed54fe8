/* Which workspace a run gets: rules without I/O. */
#include <string.h>

#include "base/sized.h"
#include "lib/workspace.h"

static bool is_choice(const struct garret_workspace *w)
{
	return w && !w->backend->none;
}

/* One provider's answer: *ret NULL is "not mine". */
static int ask(struct garret_provider *p, const struct garret_ref *ref,
	       struct garret_workspace **ret, struct garret_error *err)
{
	struct garret_ref got;
	int rc;

	*ret = NULL;
	if (p->kind && ref && !garret_provider_owns(p, ref))
		return 0;
	rc = p->kind ? garret_provider_attach(p, ref, ret, err)
		     : p->custom.get(p->custom.data, ref, ret, err);
	if (rc < 0 || !*ret || !ref)
		return rc;
	if (garret_workspace_ref(*ret, &got) == 0 && garret_ref_equal(&got, ref))
		return 0;
	*ret = garret_workspace_free(*ret);
	return garret_fail(err, GARRET_MISUSE,
			   "provider \"%s\" answered with another workspace than was asked for",
			   p->name);
}

static int ask_all(const struct garret_choice *c, const struct garret_ref *ref,
		   struct garret_workspace **ret, struct garret_error *err)
{
	int rc = 0;

	for (size_t i = 0; i < c->n_providers && rc == 0 && !*ret; i++)
		rc = ask(c->providers[i], ref, ret, err);
	return rc;
}

static int nobody_knows(const struct garret_choice *c, const struct garret_ref *ref,
			struct garret_error *err)
{
	if (!c->n_providers)
		return garret_fail(err, GARRET_MISUSE,
				   "a ref was given, but there is no provider of workspaces");
	return garret_fail(err, GARRET_MISUSE, "no provider knows the ref of provider \"%.*s\"",
			   GARRET_PROVIDER_MAX - 1, ref->provider);
}

static int choose(struct garret_context *context, const struct garret_choice *c,
		  struct garret_workspace **ret, struct garret_error *err)
{
	const struct garret_ref *ref = c->ref;
	int rc;

	if (is_choice(c->override) || is_choice(c->workspace)) {
		*ret = garret_workspace_dup(is_choice(c->override) ? c->override : c->workspace);
		return *ret ? 0 : garret_fail(err, GARRET_MISUSE, "a context of another process");
	}
	if (!ref && !c->fresh && c->n_providers)
		ref = c->history;
	rc = ask_all(c, ref, ret, err);
	if (rc < 0 || *ret)
		return rc;
	if (ref)
		return nobody_knows(c, ref, err);
	if (c->fresh)
		return garret_fail(err, GARRET_MISUSE,
				   "a new workspace was asked for, but no provider makes one");
	return garret_no_workspace(context, ret, err);
}

int garret_choose(struct garret_context *c, const struct garret_choice *choice,
		  struct garret_workspace **ret, struct garret_error *err)
{
	struct garret_choice own = { 0 };
	int rc = sized_copy(&own, sizeof(own), choice, choice->size, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	if (own.n_providers && !own.providers)
		return garret_fail(err, GARRET_TYPE, "providers: a list is wanted, not NULL");
	if ((own.workspace != NULL) + (own.ref != NULL) + own.fresh > 1)
		return garret_fail(err, GARRET_TYPE, "one of workspace, ref and fresh at most");
	return choose(c, &own, ret, err);
}
