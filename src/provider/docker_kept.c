/*
 * What there is of ours while nobody has it open: listed, removed, swept.  The
 * engine filters by the owner's label, and each row is looked at again.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "net/json.h"
#include "provider/docker_impl.h"

struct wait {
	struct provider *p;
	char *name; /* of the one to be removed */
	box_kept_fn row;
	box_done_fn done;
	void *ctx;
};

static void on_simple(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct wait *w = ctx;

	(void)json;
	w->done(w->ctx, err);
	free(w->name);
	free(w);
}

static char *list_path(const struct provider *p)
{
	autobuf struct strbuf filter = STRBUF_INIT, path = STRBUF_INIT;
	autofree char *label = xasprintf(LABEL_OWNER "=%s", p->config.owner);

	json_open(&filter, '{');
	json_put_key(&filter, "label");
	json_open(&filter, '[');
	json_put_string(&filter, label);
	json_close(&filter, ']');
	json_close(&filter, '}');
	strbuf_addstr(&path, "/containers/json?all=1&filters=");
	docker_escape(&path, filter.buf);
	return xstrdup(path.buf);
}

static const char *own_label(const json_t *v, const char *name)
{
	return json_string_value(json_object_get(json_object_get(v, "Labels"), name));
}

/* The engine filtered; what isn't ours is none of our business all the same. */
static bool row_is_ours(const struct provider *p, const json_t *v)
{
	const char *owner = own_label(v, LABEL_OWNER);

	return owner && !strcmp(owner, p->config.owner) && own_label(v, LABEL_WORKSPACE);
}

/* What it is asked for by: a session by its id, others by their name.  NULL: by nothing. */
static const char *kept_id(const struct provider *p, const char *name)
{
	const size_t n = strlen(DOCKER_SESSION);

	if (!p->config.sessions)
		return name;
	return strncmp(name, DOCKER_SESSION, n) != 0 ? NULL : name + n;
}

static void on_kept(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct wait *w = ctx;

	for (size_t i = 0; !err && w->row && i < json_array_size((const json_t *)json); i++) {
		const json_t *v = json_array_get((const json_t *)json, i);
		struct kept_files k = { .ours = true };

		if (!row_is_ours(w->p, v))
			continue;
		k.id = kept_id(w->p, own_label(v, LABEL_WORKSPACE));
		if (!k.id)
			continue;
		k.used_ms = (uint64_t)json_integer_value(json_object_get(v, "Created")) * 1000;
		w->row(w->ctx, &k);
	}
	w->done(w->ctx, err);
	free(w);
}

void docker_kept(struct provider *p, bool sizes, box_kept_fn row, box_done_fn done, void *ctx)
{
	struct wait *w = xnew(struct wait);
	autofree char *path = list_path(p);

	(void)sizes; /* the engine counts them by walking every layer */
	w->p = p;
	w->row = row;
	w->done = done;
	w->ctx = ctx;
	(void)docker_ask(p->api, &(struct docker_request){ .method = "GET", .path = path }, on_kept,
			 w);
}

static void forget_failed(struct wait *w, enum garret_code code, const char *text)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, code, "container %.120s %s", w->name, text);
	on_simple(w, NULL, &err);
}

static void on_forget_looked(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct wait *w = ctx;
	const json_t *v = json;
	const char *name = json_string_value(json_object_get(v, "Name"));
	const char *id = json_string_value(json_object_get(v, "Id"));
	const char *owner = own_label(json_object_get(v, "Config"), LABEL_OWNER);
	autofree char *path = NULL;

	if (err && err->code != GARRET_NOT_FOUND) {
		on_simple(w, NULL, err);
		return;
	}
	if (err || !name || strcmp(name + (name[0] == '/'), w->name) != 0 || !id) {
		forget_failed(w, GARRET_NOT_FOUND, "does not exist");
		return;
	}
	if (owner && strcmp(owner, w->p->config.owner) != 0) {
		forget_failed(w, GARRET_INVALID, "belongs to another owner");
		return;
	}
	path = xasprintf("/containers/%s?force=1&v=1", id);
	(void)docker_ask(w->p->api, &(struct docker_request){ .method = "DELETE", .path = path },
			 on_simple, w);
}

struct refused {
	struct loop_later later;
	struct wait *w;
	enum garret_code code;
	const char *text;
};

static void on_refused(struct loop_later *l)
{
	struct refused *r = l->ctx;

	forget_failed(r->w, r->code, r->text);
	free(r);
}

static void refuse_later(struct wait *w, enum garret_code code, const char *text)
{
	struct refused *r = xnew(struct refused);

	r->w = w;
	r->code = code;
	r->text = text;
	loop_later_add(w->p->loop, &r->later, on_refused, r);
}

/* A session that is open keeps what it works with. */
static bool session_is_open(const struct provider *p, const char *name)
{
	struct box *b;

	list_foreach (b, &p->boxes, link)
		if (p->config.sessions && b->name && !strcmp(b->name, name))
			return true;
	return false;
}

/* A ref comes from a history: what only resembles one of ours is never removed. */
void docker_forget(struct provider *p, const char *id, enum box_forget what, uint64_t used_ms,
		   box_done_fn done, void *ctx)
{
	struct wait *w = xnew(struct wait);
	autobuf struct strbuf path = STRBUF_INIT;

	(void)what;
	(void)used_ms;
	w->p = p;
	w->done = done;
	w->ctx = ctx;
	w->name = p->config.sessions ? xasprintf(DOCKER_SESSION "%s", id) : xstrdup(id);
	if (!docker_name_is_ours(p, w->name)) {
		refuse_later(w, GARRET_INVALID, "was not created by this provider");
		return;
	}
	if (session_is_open(p, w->name)) {
		refuse_later(w, GARRET_CONFLICT, "is in use");
		return;
	}
	strbuf_addstr(&path, "/containers/");
	docker_escape(&path, w->name);
	strbuf_addstr(&path, "/json");
	(void)docker_ask(p->api, &(struct docker_request){ .method = "GET", .path = path.buf },
			 on_forget_looked, w);
}

/* ---- sweeping ---- */

static void ignore(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	(void)ctx;
	(void)json;
	(void)err; /* the next sweep finds it again */
}

static void on_swept(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct provider *p = ctx;

	for (size_t i = 0; !err && i < json_array_size((const json_t *)json); i++) {
		const json_t *v = json_array_get((const json_t *)json, i);
		const char *id = json_string_value(json_object_get(v, "Id"));
		const char *state = json_string_value(json_object_get(v, "State"));
		autofree char *path = id ? xasprintf("/containers/%s/stop", id) : NULL;
		bool wanted = !id || !row_is_ours(p, v) || !state || strcmp(state, "running") != 0;
		struct box *b;

		list_foreach (b, &p->boxes, link)
			wanted = wanted || !b->id || !strcmp(b->id, id);
		if (!wanted)
			(void)docker_ask(p->api,
					 &(struct docker_request){ .method = "POST", .path = path },
					 ignore, p);
	}
}

/* Only of a daemon: workspaces of a library outlive whoever made them. */
void docker_settle(struct provider *p)
{
	autofree char *path = list_path(p);

	if (p->config.sessions)
		(void)docker_ask(p->api, &(struct docker_request){ .method = "GET", .path = path },
				 on_swept, p);
}
