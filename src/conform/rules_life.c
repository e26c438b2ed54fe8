/* Environments: when they are made, named, shared, attached to, destroyed. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "conform/ground.h"

static void it_has_a_ref_and_a_directory(struct ground *g)
{
	autofree char *dir = NULL;
	struct garret_ref ref;

	WANT_OK(g, garret_working_dir(g->shared, &dir, err));
	WANT(g, garret_workspace_ref(g->shared, &ref) == 0 && *ref.provider && *ref.id);
	WANT(g, !strcmp(ref.provider, garret_provider_name(g->provider)));
}

static bool normal(const char *path)
{
	return *path == '/' && !strstr(path, "//") && !strstr(path, "/./") &&
	       !strstr(path, "/../") && (!path[1] || path[strlen(path) - 1] != '/');
}

static void the_working_directory(struct ground *g)
{
	autofree char *dir = NULL, *again = NULL, *want = NULL;

	WANT_OK(g, garret_working_dir(g->shared, &dir, err));
	WANT_OK(g, garret_working_dir(g->shared, &again, err));
	WANT(g, normal(dir) && !strcmp(dir, again));
	if (!(g->abilities & GARRET_HAS_COMMANDS))
		return;
	want = xasprintf("%s\n", dir);
	WANT(g, ground_says(g, g->shared, "pwd -P", want));
}

static void check_ref_is_stable(struct ground *g, struct garret_workspace *w)
{
	struct garret_ref before, after, later;
	const int had = garret_workspace_ref(w, &before);

	WANT_OK(g, garret_write(w, "file", "x", 1, 0, err));
	WANT(g, garret_workspace_ref(w, &after) == 0);
	WANT(g, had < 0 || garret_ref_equal(&before, &after));
	WANT_OK(g, garret_remove(w, "file", err));
	WANT(g, garret_workspace_ref(w, &later) == 0 && garret_ref_equal(&after, &later));
}

static void the_ref_is_stable(struct ground *g)
{
	struct garret_workspace *w = ground_fresh(g);

	if (w)
		check_ref_is_stable(g, w);
	ground_drop(g, w);
}

struct first_use {
	struct garret_workspace *w;
	int number, rc;
	struct garret_error err;
	pthread_t thread;
};

static void *use_first(void *arg)
{
	struct first_use *u = arg;
	char path[32];

	(void)snprintf(path, sizeof(path), "first-%d", u->number);
	u->rc = garret_write(u->w, path, path, strlen(path), 0, &u->err);
	return NULL;
}

static void check_first_use(struct ground *g, struct garret_workspace *w)
{
	struct first_use u[5] = { 0 };
	autolist l = { 0 };

	for (int i = 0; i < 5; i++) {
		u[i].w = garret_workspace_dup(w);
		u[i].number = i;
		if (pthread_create(&u[i].thread, NULL, use_first, &u[i]) != 0)
			u[i].rc = use_first(&u[i]) == NULL ? u[i].rc : -1;
	}
	for (int i = 0; i < 5; i++) {
		(void)pthread_join(u[i].thread, NULL);
		garret_workspace_free(u[i].w);
		if (u[i].rc < 0)
			(void)ground_fail(g, "write %d: %s", i, u[i].err.msg);
	}
	WANT_OK(g, garret_list_dir(w, ".", &l, err));
	WANT(g, l.n == 5);
}

static void many_first_uses_make_one(struct ground *g)
{
	struct garret_workspace *w = ground_fresh(g);

	if (w)
		check_first_use(g, w);
	ground_drop(g, w);
}

static void check_attached(struct ground *g, struct garret_workspace *w)
{
	struct garret_ref ref, other_ref;
	struct garret_workspace *other = NULL;

	WANT_OK(g, garret_write(w, "shared", "between", 7, 0, err));
	WANT(g, garret_workspace_ref(w, &ref) == 0);
	WANT_OK(g, garret_provider_attach(g->provider, &ref, &other, err));
	if (has_bytes(g, other, "shared", "between", 7) &&
	    (garret_workspace_ref(other, &other_ref) < 0 || !garret_ref_equal(&ref, &other_ref)))
		(void)ground_fail(g, "another ref");
	if (g->abilities & GARRET_HAS_COMMANDS)
		(void)ground_says(g, other, "cat shared", "between");
	garret_workspace_free(other);
}

static void attached_by_ref(struct ground *g)
{
	check_attached(g, g->shared);
}

static void check_detached(struct ground *g, struct garret_workspace *w)
{
	struct garret_workspace *other = NULL;
	autoresult r = { 0 }, alive = { 0 };
	struct garret_ref ref;
	char script[80];

	WANT_OK(g, ground_sh(g, w, "setsid sleep 300 >/dev/null 2>&1 & echo $!", &r, err));
	(void)usleep(300000); /* setsid has become sleep */
	WANT(g, garret_workspace_ref(w, &ref) == 0);
	WANT_OK(g, garret_provider_attach(g->provider, &ref, &other, err));
	(void)snprintf(script, sizeof(script), "kill %d", number(r.out));
	if (ground_sh(g, other, script, &alive, NULL) < 0 || alive.exit_code)
		(void)ground_fail(g, "the process is not there: %.80s",
				  alive.err ? (char *)alive.err : "");
	garret_workspace_free(other);
}

static void what_was_detached_is_reached(struct ground *g)
{
	check_detached(g, g->shared);
}

static void destroyed_under_a_command(struct ground *g)
{
	struct garret_run_options o = { .size = sizeof(o), .shell = "echo begun; sleep 300" };
	struct garret_workspace *w = ground_fresh(g);
	struct garret_run *r = NULL;
	struct garret_error ended = { 0 };
	struct garret_ref ref;
	autoresult end = { 0 };
	char text[16] = "";
	int rc;

	if (!w)
		return;
	WANT_OK(g, garret_run_start(w, &o, &r, err));
	for (int i = 0; i < 1000 && !*text; i++) {
		(void)garret_run_ended(r);
		(void)garret_run_read(r, 1, text, sizeof(text) - 1, NULL);
		(void)usleep(10000);
	}
	WANT(g, garret_workspace_ref(w, &ref) == 0);
	WANT_OK(g, garret_provider_destroy(g->provider, &ref, err));
	rc = garret_run_wait(r, 60, &end, &ended);
	if (rc != -GARRET_GONE)
		(void)ground_fail(g, "the command: %s (%s), not GONE", garret_code_name(-rc),
				  ended.msg);
	garret_run_free(r);
	garret_workspace_free(w);
}

static void destroyed_is_gone(struct ground *g)
{
	struct garret_workspace *w = ground_fresh(g), *again = NULL;
	struct garret_ref ref;
	autolist l = { 0 };

	if (!w)
		return;
	WANT_OK(g, garret_write(w, "file", "x", 1, 0, err));
	WANT(g, garret_workspace_ref(w, &ref) == 0);
	WANT_OK(g, garret_provider_destroy(g->provider, &ref, err));
	WANT_CODE(g, garret_list_dir(w, ".", &l, err), -GARRET_GONE);
	garret_workspace_free(w);
	WANT_OK(g, garret_provider_attach(g->provider, &ref, &again, err));
	WANT_CODE(g, garret_list_dir(again, ".", &l, err), -GARRET_GONE);
	garret_workspace_free(again);
	/* Once more: it is gone already, and that is what was wanted. */
	WANT_OK(g, garret_provider_destroy(g->provider, &ref, err));
}

static void refs_of_others(struct ground *g)
{
	struct garret_workspace *w = NULL;
	struct garret_ref ref;

	WANT_OK(g, garret_ref_make(&ref, "somebody-else", "s-0123456789abcdef", err));
	WANT(g, !garret_provider_owns(g->provider, &ref));
	WANT_CODE(g, garret_provider_attach(g->provider, &ref, &w, err), -GARRET_INVALID);
	WANT_CODE(g, garret_provider_destroy(g->provider, &ref, err), -GARRET_INVALID);
	WANT_CODE(g, garret_ref_make(&ref, "x", "new\nline", err), -GARRET_INVALID);
}

static void nothing_is_made_before_it_is_used(struct ground *g)
{
	struct garret_workspace *w = ground_fresh(g);
	struct garret_run_options bad = { .size = sizeof(bad) };
	struct garret_ref ref;
	autoresult r = { 0 };
	autofree char *path = NULL;

	if (!w)
		return;
	WANT_CODE(g, garret_run(w, &bad, &r, err), -GARRET_TYPE);
	WANT_CODE(g, garret_write(w, NULL, "x", 1, 0, err), -GARRET_TYPE);
	WANT_OK(g, garret_resolve(w, "/a/../b", NULL, &path, err));
	WANT(g, !strcmp(path, "/b"));
	WANT(g, garret_workspace_ref(w, &ref) == -GARRET_NOT_FOUND);
	garret_workspace_free(w);
}

const struct rule life_rules[] = {
	{ "01 a ref and a directory", it_has_a_ref_and_a_directory, 0, false },
	{ "10 the working directory", the_working_directory, 0, false },
	{ "15 the ref is stable", the_ref_is_stable, 0, true },
	{ "16 many first uses make one", many_first_uses_make_one, 0, true },
	{ "37 attached by its ref", attached_by_ref, 0, false },
	{ "38 what was detached is reached", what_was_detached_is_reached, GARRET_HAS_COMMANDS,
	  false },
	{ "39 destroyed under a command", destroyed_under_a_command, GARRET_HAS_COMMANDS, true },
	{ "40 what was destroyed is gone", destroyed_is_gone, 0, true },
	{ "59 refs of others", refs_of_others, 0, false },
	{ "60 nothing is made before it is used", nothing_is_made_before_it_is_used, 0, true },
	{ NULL, NULL, 0, false },
};
