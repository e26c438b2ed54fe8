/*
 * Delegates: what a run that another run begins may see.  The workspace of the parent only when the
 * parent shares its sandbox; else one of its own when it is configured for that; else none.
 */
#include <string.h>

#include "app/app_impl.h"
#include "base/sized.h"

#define SANDBOX "sandbox"
#define DELEGATION "delegation"

enum garret_app_delegate_workspace garret_app_delegate_choice(
	const struct garret_app_delegate *given, bool parent_has_one)
{
	struct garret_app_delegate d = { 0 };

	if (sized_copy(&d, sizeof(d), given, given->size, NULL) < 0)
		return GARRET_APP_DELEGATE_NONE;
	if (d.shares_sandbox && parent_has_one)
		return GARRET_APP_DELEGATE_SHARED;
	return d.binding ? GARRET_APP_DELEGATE_OWN : GARRET_APP_DELEGATE_NONE;
}

static bool has(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

int garret_app_delegate_check(const char *const *shared, size_t n_shared, const char *const *bound,
			      size_t n_bound, struct garret_error *err)
{
	for (size_t i = 0; i < n_shared; i++) {
		if (!strcmp(shared[i], DELEGATION))
			return garret_fail(err, GARRET_INVALID,
					   "share_with_delegates: delegation can't be shared");
		if (has(shared, i, shared[i]))
			return garret_fail(err, GARRET_INVALID,
					   "share_with_delegates: %.64s is there twice", shared[i]);
		if (!has(bound, n_bound, shared[i]))
			return garret_fail(
				err, GARRET_INVALID,
				"share_with_delegates: this agent has no capability %.64s",
				shared[i]);
	}
	return 0;
}

/* It stands on the parent's environment, and its operations are its own in the log. */
static int share(struct garret_app_run *parent, struct garret_app_run *run,
		 struct garret_error *err)
{
	run->parent = parent;
	app_copy(run->key, sizeof(run->key), parent->key);
	run->sandbox = parent->sandbox;
	run->connection = parent->connection;
	run->place = parent->place;
	app_spills_drop(run->spills);
	run->spills = app_spills_hold(parent->spills);
	return app_run_share(run, parent, err);
}

int garret_app_delegate_open(struct garret_app_run *parent, const struct garret_app_delegate *given,
			     const char *agent, const char *run_id, struct garret_app_run **ret,
			     struct garret_error *err)
{
	struct garret_app_delegate d = { 0 };
	struct garret_app_facts facts = { .size = sizeof(facts),
					  .organisation = parent->facts.organisation,
					  .agent = agent,
					  .run = run_id };
	struct garret_app_sandbox own;
	struct garret_app_run *run;
	int rc = sized_copy(&d, sizeof(d), given, given->size, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	switch (garret_app_delegate_choice(&d, true)) {
	case GARRET_APP_DELEGATE_NONE:
		return 0;
	case GARRET_APP_DELEGATE_OWN:
		own = *d.binding;
		own.session_scope = GARRET_APP_SCOPE_RUN;
		return garret_app_run_open(parent->app, &facts, &own, ret, err);
	default:
		break;
	}
	run = app_run_new(parent->app);
	rc = app_facts_check(&facts, &run->facts, err);
	if (rc == 0)
		rc = share(parent, run, err);
	if (rc < 0)
		app_run_free(run);
	else
		*ret = run;
	return rc;
}
