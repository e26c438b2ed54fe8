/*
 * Making a container: its image, the create call, init's program, the start.
 * Where init turns out not to run it is made again without, under the same name.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "provider/docker_impl.h"

#define CREATE_MS 120000

static void start(struct box *b);

static void on_pulled(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	b->pull = NULL;
	if (err)
		docker_open_failed(b, err);
	else
		docker_make(b);
}

static void on_built(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	b->build = NULL;
	if (err)
		docker_open_failed(b, err);
	else
		docker_make(b);
}

/* Once: what is still not there then will not be after another time. */
static void no_image(struct box *b, const struct garret_error *err)
{
	const bool builds = b->recipe.name && docker_recipe_builds(&b->recipe);

	if (b->pulled || (b->p->config.no_pull && !builds)) {
		docker_open_failed(b, err);
		return;
	}
	b->pulled = true;
	if (builds) {
		autofree char *text = xasprintf("building %.100s", b->image);

		if (b->p->config.notice)
			b->p->config.notice(b->p->config.notice_ctx, text);
		b->build = docker_build(b->p->builder, &b->recipe, on_built, b);
	} else {
		b->pull = docker_pull(b->p->api, b->image, on_pulled, b);
		docker_pull_tell(b->pull, b->p->config.notice, b->p->config.notice_ctx);
	}
}

static void on_put(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	b->call = NULL;
	if (err)
		docker_open_without_init(b, err);
	else
		start(b);
}

static void put_program(struct box *b)
{
	autofree char *path = xasprintf("/containers/%s/archive?path=%%2F", b->id);

	b->call = docker_ask(b->p->api,
			     &(struct docker_request){ .method = "PUT",
						       .path = path,
						       .body = b->p->init_tar.buf,
						       .body_bytes = b->p->init_tar.len,
						       .type = "application/x-tar" },
			     on_put, b);
}

static void on_created(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;
	const char *id = json_string_value(json_object_get((const json_t *)json, "Id"));

	b->call = NULL;
	if (err && err->code == GARRET_CONFLICT) {
		docker_look_again(b); /* somebody else has made it */
		return;
	}
	if (err && err->code == GARRET_NOT_FOUND) {
		no_image(b, err);
		return;
	}
	if (err || !id) {
		if (err)
			docker_open_failed(b, err);
		else
			docker_open_fail(b, GARRET_PROTOCOL,
					 "was made, and the engine gave it no id");
		return;
	}
	b->id = xstrdup(id);
	b->made = b->ours = true;
	if (b->spec.named)
		b->spec.named(b->spec.named_ctx, b->name);
	docker_bring_up(b);
}

void docker_make(struct box *b)
{
	autobuf struct strbuf body = STRBUF_INIT, path = STRBUF_INIT;

	if (b->recipe.name && !b->recipe.cache_image && !b->pulled &&
	    docker_recipe_builds(&b->recipe)) {
		b->pulled = true;
		b->build = docker_build(b->p->builder, &b->recipe, on_built, b);
		return;
	}
	b->via_init = b->p->init_tar.len && !b->no_init && b->p->config.way != DOCKER_EXEC;
	docker_create_body(b, &body);
	strbuf_addstr(&path, "/containers/create?name=");
	docker_escape(&path, b->name);
	b->call = docker_ask(b->p->api,
			     &(struct docker_request){ .method = "POST",
						       .path = path.buf,
						       .body = body.buf,
						       .body_bytes = body.len,
						       .total_ms = CREATE_MS },
			     on_created, b);
}

static void on_removed_for_exec(void *ctx, const struct json_t *json,
				const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	b->call = NULL;
	/* CONFLICT: it is being removed already; creating waits for the name. */
	if (err && err->code != GARRET_NOT_FOUND && err->code != GARRET_CONFLICT) {
		docker_open_failed(b, err);
		return;
	}
	free(b->id);
	b->id = NULL;
	b->made = false;
	docker_make(b);
}

void docker_open_without_init(struct box *b, const struct garret_error *why)
{
	if (!b->made || b->no_init || b->p->config.way == DOCKER_INIT) {
		docker_open_failed(b, why);
		return;
	}
	b->no_init = true;
	(void)snprintf(b->reach, sizeof(b->reach), "exec: %.240s", why->msg);
	docker_unreach(b);
	/* Nobody has used it yet: only its name was told, and that stays. */
	b->call = docker_box_ask(b, "DELETE", "?force=1&v=1", on_removed_for_exec);
}

/* ---- bringing it up ---- */

/* What it was made for isn't there, such as its network: another try can't help, nor without init. */
static void start_lacks(struct box *b, const struct garret_error *why)
{
	struct garret_error err = *why;

	err.code = GARRET_INVALID;
	docker_open_failed(b, &err);
}

static void on_started(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	b->call = NULL;
	if (!err)
		docker_reach(b);
	else if (err->code == GARRET_NOT_FOUND && !b->made)
		docker_open_fail(b, GARRET_GONE, "no longer exists");
	else if (err->code == GARRET_NOT_FOUND && !strcasestr(err->msg, "no such container"))
		start_lacks(b, err);
	else if (b->via_init && b->made)
		docker_open_without_init(b, err);
	else
		docker_open_failed(b, err);
}

static void start(struct box *b)
{
	b->call = docker_box_ask(b, "POST", "/start", on_started);
}

/*
 * Also of one that was found: who made it may have been killed before init was in it, or
 * while it was being written.
 */
void docker_bring_up(struct box *b)
{
	if (b->via_init && b->p->init_tar.len)
		put_program(b);
	else
		start(b);
}
