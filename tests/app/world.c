#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"

bool world_unmeasured;

int __real_garret_walk(struct garret_workspace *w, const char *path, unsigned max_depth,
		       size_t max_entries, struct garret_list *ret, struct garret_error *err);
int __wrap_garret_walk(struct garret_workspace *w, const char *path, unsigned max_depth,
		       size_t max_entries, struct garret_list *ret, struct garret_error *err);

/* As a container's listing: it doesn't measure. */
int __wrap_garret_walk(struct garret_workspace *w, const char *path, unsigned max_depth,
		       size_t max_entries, struct garret_list *ret, struct garret_error *err)
{
	int rc = __real_garret_walk(w, path, max_depth, max_entries, ret, err);

	for (size_t i = 0; i < ret->n && world_unmeasured; i++)
		ret->entry[i].bytes = GARRET_SIZE_UNKNOWN;
	return rc;
}

static int guard(void *data, enum garret_operation op, const char *path, struct garret_error *err)
{
	struct world *x = data;

	if (op != GARRET_OP_WORKING_DIR) { /* known once it is open */
		x->count[op]++;
		x->operations++;
	}
	for (const struct rule *r = x->rules; r->code; r++)
		if (r->op == op && (!r->path || (path && strstr(path, r->path))))
			return garret_fail(err, r->code, "refused by the test");
	return 0;
}

static void on_event(void *data, const char *event, const char *fields)
{
	struct world *x = data;

	x->events++;
	(void)snprintf(x->event, sizeof(x->event), "%s", event);
	(void)snprintf(x->fields, sizeof(x->fields), "%s", fields);
}

static struct world *begin(const char *provider, const char *const *settings,
			   const char *program_dir)
{
	struct garret_context_options o = { .size = sizeof(o), .program_dir = program_dir };
	struct world *x = xnew(struct world);
	struct garret_workspace *w = NULL;

	assert_int_equal(garret_context_new(&o, &x->context, NULL), 0);
	assert_int_equal(
		garret_provider_open_settings(x->context, provider, settings, &x->provider, NULL),
		0);
	assert_int_equal(garret_provider_attach(x->provider, NULL, &x->bare, NULL), 0);
	x->app.context = x->context;
	x->app.inline_image_max_bytes = GARRET_APP_INLINE_IMAGE_MAX;
	x->app.event = on_event;
	x->app.event_data = x;
	(void)pthread_mutex_init(&x->app.lock, NULL);
	x->run.app = &x->app;
	x->run.spills = app_spills_new();
	map_init(&x->run.staged);
	(void)snprintf(x->run.facts.run, sizeof(x->run.facts.run), "%032d", 1);
	(void)snprintf(x->run.facts.organisation, sizeof(x->run.facts.organisation), "%032d", 7);
	w = garret_workspace_dup(x->bare);
	world_use(x, w);
	return x;
}

struct world *world_new(const char *max_bytes)
{
	char bound[64];
	const char *settings[] = { bound, NULL };

	(void)snprintf(bound, sizeof(bound), "max_bytes=%s", max_bytes ? max_bytes : "64m");
	return begin("state", settings, NULL);
}

struct world *world_native(void)
{
	char dir[] = "/tmp/garret-app-XXXXXX", setting[64], programs[4096];
	const char *settings[] = { setting, NULL };
	ssize_t n = readlink("/proc/self/exe", programs, sizeof(programs) - 1);
	struct world *x;

	if (geteuid() != 0) {
		print_message("skipped: sessions with commands need root\n");
		return NULL;
	}
	programs[n] = '\0';
	for (int up = 0; up < 3; up++) /* BUILD/tests/app/PROGRAM */
		*strrchr(programs, '/') = '\0';
	assert_non_null(mkdtemp(dir));
	(void)snprintf(setting, sizeof(setting), "state_dir=%s", dir);
	x = begin("native", settings, programs);
	(void)snprintf(x->dir, sizeof(x->dir), "%s", dir);
	return x;
}

void world_use(struct world *x, struct garret_workspace *w)
{
	garret_workspace_free(x->run.workspace);
	assert_int_equal(garret_wrap_guarded(w, guard, x, &x->run.workspace, NULL), 0);
	garret_workspace_free(w);
	x->run.bare = x->run.workspace;
}

void world_refuse(struct world *x, enum garret_operation op, const char *path,
		  enum garret_code code)
{
	struct rule *r = x->rules;

	while (r->code)
		r++;
	*r = (struct rule){ op, path, code };
}

void world_allow(struct world *x)
{
	memset(x->rules, 0, sizeof(x->rules));
	memset(x->count, 0, sizeof(x->count));
	x->operations = 0;
}

static void free_value(const char *key, void *value, void *ctx)
{
	(void)key;
	(void)ctx;
	free(value);
}

void world_end(struct world *x)
{
	struct garret_ref ref;

	map_foreach(&x->run.staged, free_value, NULL);
	map_release(&x->run.staged);
	x->run.spills = app_spills_drop(x->run.spills);
	if (*x->dir && garret_workspace_ref(x->bare, &ref) == 0)
		assert_int_equal(garret_provider_destroy(x->provider, &ref, NULL), 0);
	garret_workspace_free(x->run.workspace);
	garret_workspace_free(x->bare);
	garret_provider_free(x->provider);
	assert_null(garret_context_free(x->context));
	(void)pthread_mutex_destroy(&x->app.lock);
	if (*x->dir) {
		char *command = xasprintf("rm -rf %s", x->dir);

		assert_int_equal(system(command), 0);
		free(command);
	}
	world_unmeasured = false;
	core_recorded = NULL;
	core_refuses = GARRET_OK;
	free(x);
}

void world_put(struct world *x, const char *path, const char *text)
{
	assert_int_equal(garret_write(x->bare, path, text, strlen(text), 0, NULL), 0);
}

char *world_get(struct world *x, const char *path)
{
	char *text = NULL;

	(void)garret_read_text(x->bare, path, &text, NULL);
	return text;
}

bool world_has(struct world *x, const char *path)
{
	bool there = false;

	assert_int_equal(garret_exists(x->bare, path, &there, NULL), 0);
	return there;
}
