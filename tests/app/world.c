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

static struct world *begin(const char *provider, const char *const *settings)
{
	char programs[4096];
	struct garret_context_options o = { .size = sizeof(o), .program_dir = programs };
	ssize_t n = readlink("/proc/self/exe", programs, sizeof(programs) - 1);
	struct world *x = xnew(struct world);
	struct garret_workspace *w = NULL;

	assert_true(n > 0);
	programs[n] = '\0';
	for (int up = 0; up < 3; up++) /* BUILD/tests/app/PROGRAM */
		*strrchr(programs, '/') = '\0';
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

/* Where around.py wants them to be, with what is made there removed again; NULL: nowhere. */
static struct world *elsewhere(void)
{
	const char *provider = getenv("GARRET_APP_TEST_PROVIDER");
	const char *given = getenv("GARRET_APP_TEST_SETTINGS"), *settings[8] = { NULL };
	autofree char *text = given ? xstrdup(given) : NULL;
	struct world *x;
	size_t n = 0;

	if (!provider)
		return NULL;
	for (char *line = strtok(text, "\n"); line && n < ARRAY_SIZE(settings) - 1;
	     line = strtok(NULL, "\n"))
		settings[n++] = line;
	x = begin(provider, settings);
	x->made = true;
	return x;
}

struct world *world_new(const char *max_bytes)
{
	struct world *x = max_bytes ? NULL : elsewhere(); /* only documents have a bound */
	char bound[64];
	const char *settings[] = { bound, NULL };

	if (x)
		return x;
	(void)snprintf(bound, sizeof(bound), "max_bytes=%s", max_bytes ? max_bytes : "64m");
	return begin("state", settings);
}

struct world *world_native(void)
{
	char dir[] = "/tmp/garret-app-XXXXXX", setting[64];
	const char *settings[] = { setting, NULL };
	struct world *x = elsewhere();

	if (x)
		return x;
	if (geteuid() != 0) {
		print_message("skipped: sessions with commands need root\n");
		return NULL;
	}
	assert_non_null(mkdtemp(dir));
	(void)snprintf(setting, sizeof(setting), "state_dir=%s", dir);
	x = begin("native", settings);
	(void)snprintf(x->dir, sizeof(x->dir), "%s", dir);
	x->made = true;
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
	if (x->made && garret_workspace_ref(x->bare, &ref) == 0)
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
	for (char **at = x->at; *at; at++)
		free(*at);
	free(x);
}

void world_put(struct world *x, const char *path, const char *text)
{
	assert_int_equal(garret_write(x->bare, path, text, strlen(text), 0, NULL), 0);
}

void world_fill(struct world *x, const char *dir, unsigned n)
{
	static const char script[] = "mkdir -p \"$1\" && cd \"$1\" && i=10000 && "
				     "while [ $i -lt $((10000 + $2)) ]; do "
				     "echo x > ${i#1}; i=$((i + 1)); done";
	char number[16];
	const char *argv[] = { "sh", "-c", script, "sh", dir, number, NULL };
	const struct garret_run_options o = { .size = sizeof(o), .argv = argv };
	struct garret_result r;

	(void)snprintf(number, sizeof(number), "%u", n);
	if (x->made) {
		assert_int_equal(garret_run(x->bare, &o, &r, NULL), 0);
		assert_int_equal(r.exit_code, 0);
		garret_result_release(&r);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		autofree char *path = xasprintf("%s/%04u", dir, i);

		world_put(x, path, "x\n");
	}
}

char *world_get(struct world *x, const char *path)
{
	char *text = NULL;

	(void)garret_read_text(x->bare, path, &text, NULL);
	return text;
}

const char *world_at(struct world *x, const char *below)
{
	autofree char *dir = NULL;
	size_t n = 0;

	while (x->at[n])
		n++;
	assert_true(n < ARRAY_SIZE(x->at) - 1);
	assert_int_equal(garret_working_dir(x->bare, &dir, NULL), 0);
	x->at[n] = xasprintf("%s/%s", strcmp(dir, "/") ? dir : "", below);
	return x->at[n];
}

bool world_has(struct world *x, const char *path)
{
	bool there = false;

	assert_int_equal(garret_exists(x->bare, path, &there, NULL), 0);
	return there;
}
