/*
 * Providers by connection and key.  Runs of one process that share a workspace share the provider, and
 * so one environment and its connections; a connection that was changed, or whose environment was
 * lost, gives the next run a new one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"

#define REQUEST_SECONDS 30 /* that a provider gives a request of its own accord */

struct app_place {
	struct list link; /* garret_app.places */
	unsigned refs;
	bool spoiled;
	char connection[GARRET_APP_ID], key[GARRET_APP_KEY], runtime[GARRET_APP_NAME];
	uint64_t changes; /* of the connection */
	struct garret_provider *provider;
	char *state_dir; /* of this machine's: below it is one for each session; else NULL */
};

struct settings {
	struct garret_options *options;
	struct garret_error *err;
	int rc;
};

/* One option, unless something failed before; an empty value is none. */
static void set(struct settings *s, const char *name, const char *value)
{
	if (s->rc == 0 && value && *value)
		s->rc = garret_options_set(s->options, name, value, s->err);
}

static void set_sandboxd(struct settings *s, const struct garret_app *app,
			 const struct garret_app_connection *c, const char *organisation,
			 const char *key, const char *token)
{
	const bool socket = !strncmp(c->address, "unix://", 7);
	char seconds[32];

	if (app->opening_timeout > 0) {
		(void)snprintf(seconds, sizeof(seconds), "%.3f", app->opening_timeout);
		set(s, "opening_timeout", seconds);
		/* One request has no longer than all of them together. */
		if (app->opening_timeout < REQUEST_SECONDS)
			set(s, "request_timeout", seconds);
	}
	set(s, socket ? "socket" : "service_url", c->address + (socket ? 7 : 0));
	set(s, "token", token);
	set(s, "tenant", organisation);
	set(s, "session_name", key);
}

static int open_provider(struct garret_app *app, const struct garret_app_connection *c,
			 const char *organisation, const char *key, const char *runtime,
			 const char *token, struct garret_provider **ret, struct garret_error *err)
{
	const char *kind = garret_app_connection_kind_name(c->kind);
	autofree char *name = xasprintf("%s:%s", kind, c->id);
	struct settings s = { .err = err };

	s.rc = garret_options_new(kind, &s.options, err);
	set(&s, "provider", name);
	if (c->kind == GARRET_APP_SANDBOXD) {
		set_sandboxd(&s, app, c, organisation, key, token);
	} else if (c->kind == GARRET_APP_NATIVE) {
		autofree char *dir = xasprintf("%s/%s", c->address, key);

		set(&s, "state_dir", dir);
		set(&s, "name", key);
	} else {
		set(&s, "host", c->address);
		set(&s, "owner", organisation);
		set(&s, "container_name", key);
	}
	/* A Docker engine has no aliases: there it is the image. */
	set(&s, c->kind == GARRET_APP_DOCKER ? "image" : "runtime", runtime);
	if (s.rc == 0)
		s.rc = garret_provider_open(app->context, s.options, ret, err);
	garret_options_free(s.options);
	return s.rc;
}

static bool fits(const struct app_place *p, const struct garret_app_connection *c, uint64_t changes,
		 const char *runtime)
{
	/* Another one couldn't have that directory meanwhile, whatever else was changed or is wanted. */
	if (p->state_dir)
		return c->kind == GARRET_APP_NATIVE && !strcmp(p->state_dir, c->address);
	return p->changes == changes && (!runtime || !strcmp(p->runtime, runtime));
}

static struct app_place *cached(struct garret_app *app, const struct garret_app_connection *c,
				uint64_t changes, const char *key, const char *runtime)
{
	struct app_place *p;

	list_foreach (p, &app->places, link)
		if (!p->spoiled && !strcmp(p->connection, c->id) && !strcmp(p->key, key) &&
		    fits(p, c, changes, runtime))
			return p;
	return NULL;
}

static int place_new(struct garret_app *app, const struct garret_app_connection *c,
		     const char *organisation, const char *key, const char *runtime,
		     const char *token, uint64_t changes, struct app_place **ret,
		     struct garret_error *err)
{
	struct app_place *p = xnew(struct app_place);
	int rc = open_provider(app, c, organisation, key, runtime, token, &p->provider, err);

	if (rc < 0) {
		free(p);
		return rc;
	}
	p->changes = changes;
	if (c->kind == GARRET_APP_NATIVE)
		p->state_dir = xstrdup(c->address);
	app_copy(p->connection, sizeof(p->connection), c->id);
	app_copy(p->key, sizeof(p->key), key);
	app_copy(p->runtime, sizeof(p->runtime), runtime);
	list_append(&app->places, &p->link);
	*ret = p;
	return 0;
}

int app_place_resolve(struct garret_app *app, const char *organisation, const char *connection_id,
		      struct garret_app_connection *ret, char **ret_token, uint64_t *ret_changes,
		      struct garret_error *err)
{
	int rc = app_connection_open(app, organisation, connection_id, ret, ret_token, ret_changes,
				     err);

	if (rc == 0 && ret->kind == GARRET_APP_DAYTONA)
		rc = garret_fail(err, GARRET_UNSUPPORTED,
				 "connection_id: this library has no provider for daytona");
	return rc;
}

int app_place_get(struct garret_app *app, const char *organisation, const char *connection_id,
		  const char *key, const char *runtime, enum app_place_use use,
		  struct app_place **ret, struct garret_error *err)
{
	struct garret_app_connection c;
	autofree char *token = NULL;
	uint64_t changes = 0;
	int rc = app_place_resolve(app, organisation, connection_id, &c, &token, &changes, err);

	*ret = NULL;
	if (rc == 0) {
		(void)pthread_mutex_lock(&app->place_lock);
		if (use != APP_PLACE_OF_ITS_OWN)
			*ret = cached(app, &c, changes, key, runtime);
		if (!*ret)
			rc = place_new(app, &c, organisation, key, runtime ? runtime : c.runtime,
				       token, changes, ret, err);
		if (*ret && use == APP_PLACE_OF_ITS_OWN)
			(*ret)->spoiled = true;
		if (*ret)
			(*ret)->refs++;
		(void)pthread_mutex_unlock(&app->place_lock);
	}
	if (token)
		explicit_bzero(token, strlen(token));
	return rc;
}

struct garret_provider *app_place_provider(struct app_place *p)
{
	return p->provider;
}

void app_place_spoil(struct garret_app *app, struct app_place *p)
{
	(void)pthread_mutex_lock(&app->place_lock);
	/* On this machine two providers can't share a state directory, and one is never mistaken. */
	p->spoiled = !p->state_dir;
	(void)pthread_mutex_unlock(&app->place_lock);
}

/* Nothing is in it, but what begins with a dot: that isn't a session's. */
static bool is_bare(const struct app_place *p, const char *name)
{
	autofree char *path = xasprintf("%s/%s/%s", p->state_dir, p->key, name);
	autodir DIR *dir = opendir(path);
	const struct dirent *e;

	while (dir && (e = readdir(dir)) != NULL)
		if (*e->d_name != '.')
			return false;
	return dir || errno == ENOENT;
}

/*
 * What the engine leaves where no session is (any more), unless somebody begins one there just now.
 * Nobody's word is taken for it: a new one of that name may have been made since the last was removed.
 */
static void remove_state(const struct app_place *p)
{
	autofree char *lock = xasprintf("%s/%s/lock", p->state_dir, p->key);
	autoclose int fd = open(lock, O_RDONLY | O_CLOEXEC),
		      dir = open(p->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_bare(p, "workspaces") &&
	    is_bare(p, "lib/marks"))
		(void)remove_tree_at(dir, p->key);
}

void app_place_put(struct garret_app *app, struct app_place *p)
{
	if (!p)
		return;
	(void)pthread_mutex_lock(&app->place_lock);
	if (!--p->refs) {
		list_remove(&p->link);
		garret_provider_free(p->provider);
		if (p->state_dir)
			remove_state(p);
		free(p->state_dir);
		free(p);
	}
	(void)pthread_mutex_unlock(&app->place_lock);
}
