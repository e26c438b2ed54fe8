/*
 * What a run spilled goes with it: exactly the files of its list, since others may work in the same
 * workspace.  Never by a pattern, nothing outside of the reserved directory, and that itself stays.
 */
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"

#define AT_ONCE 200 /* paths in one command: some 32 KiB of arguments, which any service takes */
#define TIMEOUT 60  /* seconds: whoever closes a run waits for it */

struct paths {
	const char **path;
	size_t n;
};

static void add(struct paths *p, const char *path)
{
	if ((p->n & (p->n - 1)) == 0)
		p->path = xrealloc(p->path, (p->n ? 2 * p->n : 1) * sizeof(*p->path));
	p->path[p->n++] = path;
}

/* Children before their parents: those are longer. */
static int deepest_first(const void *a, const void *b)
{
	const char *x = *(const char *const *)a, *y = *(const char *const *)b;
	const size_t n = strlen(x), m = strlen(y);

	return n == m ? strcmp(x, y) : n < m ? 1 : -1;
}

/* The directories of files below root, each once, without root; to be freed one by one. */
static void directories(const struct paths *files, const char *root, struct paths *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < files->n; i++)
		for (const char *at = files->path[i] + strlen(root) + 1; (at = strchr(at, '/'));
		     at++)
			add(ret, xstrndup(files->path[i], (size_t)(at - files->path[i])));
	if (ret->n) /* none: they lie in root itself */
		qsort(ret->path, ret->n, sizeof(*ret->path), deepest_first);
	for (size_t i = 0; i < ret->n; i++)
		if (n && !strcmp(ret->path[n - 1], ret->path[i]))
			free((char *)(uintptr_t)ret->path[i]);
		else
			ret->path[n++] = ret->path[i];
	ret->n = n;
}

/* Run a command on all of them.  -FAILED and *ret_exit when it didn't end with 0. */
static int on_each(struct garret_workspace *w, const char *program, const char *option,
		   const struct paths *p, int *ret_exit)
{
	const char *argv[AT_ONCE + 4];
	struct garret_run_options o = { .size = sizeof(o), .argv = argv, .timeout = TIMEOUT };
	int worst = 0;

	for (size_t i = 0; i < p->n; i += AT_ONCE) {
		const size_t n = MIN(p->n - i, (size_t)AT_ONCE);
		struct garret_result r = { 0 };
		size_t words = 0;
		int rc;

		argv[words++] = program;
		if (option)
			argv[words++] = option;
		argv[words++] = "--";
		memcpy(argv + words, p->path + i, n * sizeof(*argv));
		argv[words + n] = NULL;
		rc = garret_run(w, &o, &r, NULL);
		if (rc == 0 && r.exit_code) {
			*ret_exit = r.exit_code;
			worst = -GARRET_FAILED;
		}
		garret_result_release(&r);
		if (rc < 0)
			return rc;
	}
	return worst;
}

static int prune(struct garret_workspace *w, const struct app_spills *spills, int *ret_exit)
{
	struct paths files = { 0 }, dirs = { 0 };
	autofree char *root = NULL;
	int rc = garret_resolve(w, APP_SPILLS, NULL, &root, NULL), exit_code;

	for (size_t i = 0; rc == 0 && i < spills->n; i++)
		if (app_spill_ours(spills->path[i], root))
			add(&files, spills->path[i]);
	if (rc == 0)
		rc = on_each(w, "rm", "-f", &files, ret_exit);
	if (rc == 0 && files.n) {
		directories(&files, root, &dirs);
		/* One that isn't empty stays, and that is no fault. */
		(void)on_each(w, "rmdir", NULL, &dirs, &exit_code);
	}
	for (size_t i = 0; i < dirs.n; i++)
		free((char *)(uintptr_t)dirs.path[i]);
	free(dirs.path);
	free(files.path);
	return rc;
}

void app_spills_prune(struct garret_app_run *run)
{
	autofree char *code = NULL;
	int exit_code = 0, rc;

	/* A delegate's are the parent's; those of a lost or run-scoped environment go with it. */
	if (!run->bare || !run->spills || !run->spills->n || run->parent || run->lost ||
	    !app_has_row(run))
		return;
	/* The rules of the run's handle are for its agent, which may have no commands. */
	rc = prune(run->bare, run->spills, &exit_code);
	/* Without commands they are left to the host: a document drops them when it is saved. */
	if (rc == 0 || rc == -GARRET_MISUSE || rc == -GARRET_UNSUPPORTED)
		return;
	code = xasprintf("%d", exit_code);
	app_event(run->app, "workspace_spill_prune_failed", "run", run->facts.run, "error",
		  garret_code_name(-rc), "exit", code, NULL);
}
