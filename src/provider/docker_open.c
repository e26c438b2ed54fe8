/*
 * Opening: look what is there by that name, make it when nothing is and that is
 * wanted, bring it up, find the way in.
 *
 *	look ─ running ─────────────────────────────── reach
 *	  │  └ created, exited: start; paused: unpause ──┘
 *	  └ nothing: create ─ (no image: pull, create) ─ put init ─ start ─ reach
 *
 * The name is decided before the create call and the labels are in it, so that
 * whoever is killed at any point of this leaves one container at most, which the
 * next open of the same workspace finds.  Two that create at once: the engine
 * lets one of them, the other gets CONFLICT and attaches.  Once its id is known a
 * container is spoken to by that, so that another of the same name isn't meant.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "provider/docker_impl.h"

#define RETRY_MS 200
#define TRIES 25 /* 5 s: how long a removal may take */
#define START_MS 120000

static void look(struct box *b);

/* ---- ends ---- */

static char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

void docker_box_free(struct box *b)
{
	if (b->call)
		docker_cancel(b->call);
	if (b->watching)
		docker_cancel(b->watching);
	if (b->step)
		docker_exec_leave(b->step);
	if (b->pull)
		docker_pull_leave(b->pull);
	if (b->build)
		docker_build_leave(b->build);
	docker_recipe_release(&b->recipe);
	free(b->image);
	loop_timer_clear(&b->retry);
	loop_timer_clear(&b->rewatch);
	loop_later_cancel(b->p->loop, &b->later);
	docker_unreach(b);
	init_box_release(&b->common);
	list_remove(&b->link);
	strbuf_release(&b->said);
	free((void *)(uintptr_t)b->spec.runtime);
	free((void *)(uintptr_t)b->spec.network);
	free((void *)(uintptr_t)b->spec.oci_runtime);
	free(b->name);
	free(b->id);
	free(b->mark);
	free(b->work_dir);
	free(b->session);
	free(b);
}

void docker_opened(struct box *b)
{
	box_opened_fn opened = b->opened;

	if (!opened)
		return;
	b->opened = NULL;
	free(b->mark);
	b->mark = xasprintf("docker %s %s", b->name, b->id);
	docker_watch_container(b);
	opened(b->opened_ctx, b, NULL);
}

static void tell_failed(struct box *b)
{
	box_opened_fn opened = take_ptr(&b->opened);

	opened(b->opened_ctx, NULL, &b->open_error);
	docker_box_free(b);
}

static void on_tell_failed(struct loop_later *l)
{
	tell_failed(l->ctx);
}

static void on_removed_failed(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	(void)err; /* the first error says more; it has our labels and can be removed by them */
	b->call = NULL;
	tell_failed(b);
}

/* What this open made goes away with it: nobody was given more than its name. */
void docker_open_failed(struct box *b, const struct garret_error *err)
{
	if (!b->opened)
		return;
	b->open_error = *err;
	docker_unreach(b);
	if (b->made && b->id)
		b->call = docker_box_ask(b, "DELETE", "?force=1&v=1", on_removed_failed);
	else
		loop_later_add(b->p->loop, &b->later, on_tell_failed, b);
}

void docker_open_fail(struct box *b, enum garret_code code, const char *text)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, code, "container %.120s %s", b->name, text);
	docker_open_failed(b, &err);
}

struct docker_call *docker_box_ask(struct box *b, const char *method, const char *rest,
				   docker_fn fn)
{
	autobuf struct strbuf path = STRBUF_INIT;

	strbuf_addstr(&path, "/containers/");
	docker_escape(&path, b->id ? b->id : b->name);
	strbuf_addstr(&path, rest);
	return docker_ask(b->p->api,
			  &(struct docker_request){
				  .method = method, .path = path.buf, .total_ms = START_MS },
			  fn, b);
}

/* ---- what is there ---- */

static const char *label(const json_t *config, const char *name)
{
	return json_string_value(json_object_get(json_object_get(config, "Labels"), name));
}

static void on_retry(struct loop_timer *t)
{
	look(t->ctx);
}

void docker_look_again(struct box *b)
{
	/* One of that name may be another by now; who is adopted may not. */
	if (b->mode != OPEN_ADOPT) {
		free(b->id);
		b->id = NULL;
	}
	if (++b->tries > TRIES)
		docker_open_fail(b, GARRET_UNAVAILABLE, "is being removed, and that doesn't end");
	else
		loop_timer_set(b->p->loop, &b->retry, now_ms() + RETRY_MS, on_retry, b);
}

static void on_removed(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	(void)err; /* looking tells */
	b->call = NULL;
	docker_look_again(b);
}

static void on_unpaused(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	b->call = NULL;
	if (err && err->code != GARRET_CONFLICT) /* not paused any more */
		docker_open_failed(b, err);
	else
		docker_reach(b);
}

/* One that nobody can use any more. */
static void found_dead(struct box *b, const char *status)
{
	autofree char *text = xasprintf("is %.40s", status);

	if (b->mode != OPEN_NAMED || !b->ours)
		docker_open_fail(b, GARRET_GONE, text);
	else if (!strcmp(status, "dead"))
		b->call = docker_box_ask(b, "DELETE", "?force=1&v=1", on_removed);
	else
		docker_look_again(b);
}

static void found(struct box *b, const char *status)
{
	if (!strcmp(status, "running"))
		docker_reach(b);
	else if (!strcmp(status, "created") || !strcmp(status, "exited"))
		docker_bring_up(b);
	else if (!strcmp(status, "paused"))
		b->call = docker_box_ask(b, "POST", "/unpause", on_unpaused);
	else
		found_dead(b, status);
}

static void found_nothing(struct box *b)
{
	if (b->mode == OPEN_REF)
		docker_open_fail(b, GARRET_GONE, "no longer exists");
	else if (b->mode == OPEN_ADOPT)
		docker_open_fail(b, GARRET_NOT_FOUND, "no longer exists");
	else if (b->spec.attach)
		docker_open_fail(b, GARRET_NOT_FOUND, "does not exist");
	else
		docker_make(b);
}

static void on_looked(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;
	const json_t *v = json;
	const json_t *config = json_object_get(v, "Config");
	const char *name = json_string_value(json_object_get(v, "Name"));
	const char *id = json_string_value(json_object_get(v, "Id"));
	const char *status =
		json_string_value(json_object_get(json_object_get(v, "State"), "Status"));
	const char *owner = label(config, LABEL_OWNER), *reach = label(config, LABEL_REACH);

	b->call = NULL;
	if (err && err->code != GARRET_NOT_FOUND) {
		docker_open_failed(b, err);
		return;
	}
	/* The engine also finds by the beginning of an id: that isn't who was named. */
	if (err || !name || name[0] != '/' || strcmp(name + 1, b->name) != 0) {
		found_nothing(b);
		return;
	}
	if (!id || !status) {
		docker_open_fail(b, GARRET_PROTOCOL,
				 "is described by the engine without an id or a state");
		return;
	}
	b->ours = owner && !strcmp(owner, b->p->config.owner);
	if (owner && !b->ours) {
		docker_open_fail(b, GARRET_GONE, "belongs to another owner");
		return;
	}
	if (!b->ours && b->mode == OPEN_NEW) {
		docker_open_fail(b, GARRET_CONFLICT,
				 "was not made here, and has the name of one that would be");
		return;
	}
	free(b->id);
	b->id = xstrdup(id);
	b->via_init = b->ours && reach && !strcmp(reach, "init");
	b->no_init = b->ours && reach && !strcmp(reach, "exec");
	found(b, status);
}

static void look(struct box *b)
{
	b->call = docker_box_ask(b, "GET", "/json", on_looked);
}

/* ---- the operations ---- */

static struct box *box_new(struct provider *p, const struct box_spec *spec, box_opened_fn done,
			   void *ctx)
{
	struct box *b = xnew(struct box);

	b->p = p;
	init_box_begin(&b->common, p->loop, p->config.runs_fd,
		       p->config.runs_fd >= 0 ? spec->runs : NULL);
	b->common.no_rings = true;
	b->spec = *spec;
	b->spec.runtime = copy(spec->runtime);
	b->spec.network = copy(spec->network);
	b->spec.oci_runtime = copy(spec->oci_runtime);
	b->spec.id = b->spec.runs = b->spec.work_dir = b->spec.ref = NULL;
	b->work_dir = xstrdup(spec->work_dir ? spec->work_dir : p->config.work_dir);
	b->session = copy(spec->id);
	strbuf_init(&b->said);
	list_init(&b->execs);
	list_append(&p->boxes, &b->link);
	b->opened = done;
	b->opened_ctx = ctx;
	return b;
}

/* The image, and with a recipe the work directory. */
static int choose_image(struct box *b, const struct box_spec *spec, struct garret_error *err)
{
	const char *image = spec->runtime ? spec->runtime : b->p->config.image;
	int rc;

	if (image[0] != '{') {
		b->image = xstrdup(image);
		return 0;
	}
	rc = docker_recipe_parse(image, &b->recipe, err);
	if (rc < 0)
		return rc;
	b->image = docker_recipe_image(&b->recipe);
	if (!spec->work_dir) {
		free(b->work_dir);
		b->work_dir = xstrdup(b->recipe.work_dir);
	}
	return 0;
}

/* Whose container it is to be. */
static void choose(struct box *b, const struct box_spec *spec)
{
	const struct docker_config *c = &b->p->config;

	b->mode = OPEN_NAMED;
	if (spec->ref) {
		b->mode = OPEN_REF;
		b->name = xstrdup(spec->ref);
	} else if (c->container_name) {
		b->name = xstrdup(c->container_name);
	} else if (c->sessions) {
		b->name = xasprintf(DOCKER_SESSION "%s", spec->id);
	} else {
		b->mode = OPEN_NEW;
		b->name = docker_new_name(b->p, spec->id);
	}
}

void docker_open(struct provider *p, const struct box_spec *spec, box_opened_fn done, void *ctx)
{
	struct box *b = box_new(p, spec, done, ctx);
	struct garret_error wrong = { 0 };

	choose(b, spec);
	if (choose_image(b, spec, &wrong) < 0) {
		docker_open_failed(b, &wrong);
		return;
	}
	if (spec->ref && !docker_name_is_ours(p, spec->ref)) {
		docker_open_fail(b, GARRET_GONE, "was not created by this provider");
		return;
	}
	if (spec->files || spec->disk_bytes) {
		struct garret_error err = { 0 };

		(void)garret_fail(
			&err, GARRET_UNSUPPORTED,
			spec->files ? "with Docker the files of a session are read while it is open"
				    : "docker: a limit of the disk");
		docker_open_failed(b, &err);
		return;
	}
	if (b->mode == OPEN_NEW)
		docker_make(b);
	else
		look(b);
}

void docker_adopt(struct provider *p, const struct box_spec *spec, const char *mark,
		  box_opened_fn done, void *ctx)
{
	enum { WORD, NAME, ID, WORDS };
	struct box *b = box_new(p, spec, done, ctx);
	autofree char *text = xstrdup(mark);
	char *w[WORDS] = { NULL };

	b->mode = OPEN_ADOPT;
	if (split_words(text, w, WORDS) != WORDS || strcmp(w[WORD], "docker") != 0) {
		b->name = xstrdup("");
		docker_open_fail(b, GARRET_NOT_FOUND, "is no mark of a container");
		return;
	}
	b->name = xstrdup(w[NAME]);
	/* By its id: another of the same name is not the one that we left. */
	b->id = xstrdup(w[ID]);
	look(b);
}
