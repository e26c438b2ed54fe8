/*
 * Building the image of a recipe.
 *
 *	is the tag there? ─ yes ─ done
 *	  └ no: buildx there? ─ yes: `docker buildx build` (downloads are cached)
 *	          └ no: POST /build
 *	        then: older tags of the same runtime, of ours, go
 *
 * Whoever wants a tag that is being built waits for that build.  What is removed
 * afterwards carries our owner's label; another owner's images of the same
 * runtime, and those that the published service has built, are not ours.
 */
#include "provider/docker_build.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "net/json.h"
#include "provider/docker_child.h"
#include "provider/docker_impl.h"

#define PROBE_MS 10000
#define BUILD_MS (3600 * 1000)
#define KEEP 8192 /* of what a builder says */

struct docker_builder {
	struct docker_api *a;
	char *host, *owner;
	struct list jobs;
	struct docker_child *probe;
	int buildkit; /* -1: not known */
};

struct job {
	struct list link; /* builder.jobs */
	struct docker_builder *b;
	struct docker_recipe recipe;
	char *tag;
	struct list waiting;
	struct docker_call *call;
	struct docker_child *child;
	struct loop_later later;
	char dir[32]; /* with the Dockerfile, for buildx; "" when there is none */
	struct strbuf said;
	struct garret_error failed;
};

struct docker_build {
	struct list link; /* job.waiting */
	docker_built_fn fn;
	void *ctx;
};

static void build(struct job *j);

/* ---- ends ---- */

static void drop_dir(struct job *j)
{
	autofree char *file = xasprintf("%s/Dockerfile", j->dir);

	if (!j->dir[0])
		return;
	(void)unlink(file);
	(void)rmdir(j->dir);
	j->dir[0] = '\0';
}

static void job_free(struct job *j)
{
	while (!list_empty(&j->waiting)) {
		struct docker_build *w = list_entry(j->waiting.next, struct docker_build, link);

		list_remove(&w->link);
		free(w);
	}
	if (j->call)
		docker_cancel(j->call);
	if (j->child)
		docker_child_leave(j->child);
	loop_later_cancel(docker_api_loop(j->b->a), &j->later);
	drop_dir(j);
	list_remove(&j->link);
	docker_recipe_release(&j->recipe);
	strbuf_release(&j->said);
	free(j->tag);
	free(j);
}

static void finish(struct job *j, const struct garret_error *err)
{
	struct garret_error why = { 0 };
	struct list waiting;

	if (err)
		why = *err;
	list_init(&waiting);
	list_move_all(&waiting, &j->waiting);
	/* Whoever comes from now on starts anew. */
	job_free(j);
	while (!list_empty(&waiting)) {
		struct docker_build *w = list_entry(waiting.next, struct docker_build, link);

		list_remove(&w->link);
		w->fn(w->ctx, why.code ? &why : NULL);
		free(w);
	}
}

/* What a builder said last says most. */
static void fail(struct job *j, enum garret_code code, const char *text, size_t n)
{
	const size_t most = 380;
	autofree char *clean = xstrndup(n > most ? text + n - most : text, MIN(n, most));

	docker_clean(clean);
	(void)garret_fail(&j->failed, code, "build %.60s: %s", j->recipe.name, clean);
	finish(j, &j->failed);
}

/* ---- older tags ---- */

static void ignore(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	(void)ctx;
	(void)json;
	(void)err; /* in use: it goes after another build */
}

/* Exactly RECIPE_REPOSITORY:NAME-<digest>: "python-" is not the beginning of "python-web-". */
static bool same_runtime(const struct job *j, const char *tag)
{
	const size_t n = strlen(j->tag) - RECIPE_TAG_HEX;

	return !strncmp(tag, j->tag, n) && strlen(tag) == n + RECIPE_TAG_HEX &&
	       strspn(tag + n, "0123456789abcdef") == RECIPE_TAG_HEX && strcmp(tag, j->tag) != 0;
}

static void remove_tag(struct job *j, const char *tag)
{
	autobuf struct strbuf path = STRBUF_INIT;

	strbuf_addstr(&path, "/images/");
	docker_escape(&path, tag);
	(void)docker_ask(j->b->a, &(struct docker_request){ .method = "DELETE", .path = path.buf },
			 ignore, NULL);
}

static void on_images(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct job *j = ctx;

	j->call = NULL;
	for (size_t i = 0; !err && i < json_array_size((const json_t *)json); i++) {
		const json_t *v = json_array_get((const json_t *)json, i);
		const json_t *tags = json_object_get(v, "RepoTags");
		const char *owner = json_string_value(
			json_object_get(json_object_get(v, "Labels"), LABEL_OWNER));

		for (size_t k = 0;
		     owner && !strcmp(owner, j->b->owner) && k < json_array_size(tags); k++) {
			const char *tag = json_string_value(json_array_get(tags, k));

			if (tag && same_runtime(j, tag))
				remove_tag(j, tag);
		}
	}
	finish(j, NULL);
}

static void tidy(struct job *j)
{
	autobuf struct strbuf path = STRBUF_INIT;
	autofree char *filter = xasprintf("{\"label\":[\"" LABEL_OWNER "=%s\"]}", j->b->owner);

	drop_dir(j);
	strbuf_addstr(&path, "/images/json?filters=");
	docker_escape(&path, filter);
	j->call = docker_ask(j->b->a, &(struct docker_request){ .method = "GET", .path = path.buf },
			     on_images, j);
}

/* ---- by the engine itself ---- */

static void on_value(void *ctx, const struct json_t *json)
{
	struct job *j = ctx;
	const char *said = json_string_value(json_object_get((const json_t *)json, "stream"));
	const char *wrong = json_string_value(json_object_get((const json_t *)json, "error"));

	if (said && j->said.len < 1u << 20)
		strbuf_addstr(&j->said, said);
	if (wrong && !j->failed.code) {
		j->failed.code = GARRET_INTERNAL;
		strbuf_addch(&j->said, ' ');
		strbuf_addstr(&j->said, wrong);
	}
}

static void on_built(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct job *j = ctx;

	(void)json;
	j->call = NULL;
	if (err)
		fail(j, err->code, err->msg, strlen(err->msg));
	else if (j->failed.code)
		fail(j, GARRET_INTERNAL, j->said.buf, j->said.len);
	else
		tidy(j);
}

static void build_classic(struct job *j)
{
	autobuf struct strbuf file = STRBUF_INIT, tar = STRBUF_INIT, path = STRBUF_INIT;
	autofree char *labels = xasprintf("{\"" LABEL_OWNER "\":\"%s\",\"" LABEL_VERSION
					  "\":\"" GARRET_VERSION "\"}",
					  j->b->owner);
	static const char zeros[1024];

	docker_recipe_dockerfile(&j->recipe, false, &file);
	docker_tar_head(&tar, "Dockerfile", '0', 0644, file.len);
	strbuf_add(&tar, file.buf, file.len);
	strbuf_add(&tar, zeros, (size_t)(-file.len & 511));
	strbuf_add(&tar, zeros, sizeof(zeros));
	strbuf_addstr(&path, "/build?rm=1&forcerm=1&t=");
	docker_escape(&path, j->tag);
	strbuf_addstr(&path, "&labels=");
	docker_escape(&path, labels);
	j->call = docker_ask(j->b->a,
			     &(struct docker_request){ .method = "POST",
						       .path = path.buf,
						       .body = tar.buf,
						       .body_bytes = tar.len,
						       .type = "application/x-tar",
						       .total_ms = BUILD_MS,
						       .value = on_value },
			     on_built, j);
}

/* ---- by buildx ---- */

/* The docker command's own settings, its address, a place for its state; nothing else of ours. */
static char **command_env(const struct docker_builder *b)
{
	static const char *const names[] = { "PATH",
					     "HOME",
					     "DOCKER_CONFIG",
					     "DOCKER_CERT_PATH",
					     "DOCKER_TLS_VERIFY",
					     "DOCKER_TLS",
					     "DOCKER_CONTEXT",
					     "DOCKER_HOST",
					     "BUILDX_BUILDER",
					     "BUILDX_CONFIG",
					     "XDG_RUNTIME_DIR",
					     "https_proxy",
					     "http_proxy",
					     "no_proxy" };
	char **env = xcalloc(ARRAY_SIZE(names) + 2, sizeof(char *));
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *value = getenv(names[i]);

		if (b->host &&
		    (!strcmp(names[i], "DOCKER_HOST") || !strcmp(names[i], "DOCKER_CONTEXT")))
			continue;
		if (value && *value)
			env[n++] = xasprintf("%s=%s", names[i], value);
	}
	if (b->host)
		env[n++] = xasprintf("DOCKER_HOST=%s", b->host);
	return env;
}

static struct docker_child *command(struct docker_builder *b, const char *const *argv, uint32_t ms,
				    docker_child_fn fn, void *ctx, struct garret_error *err)
{
	char **env = command_env(b);
	struct docker_child *c =
		docker_child_start(docker_api_loop(b->a),
				   &(struct docker_child_spec){ .argv = argv,
								.env = (const char *const *)env,
								.timeout_ms = ms,
								.keep = KEEP },
				   fn, ctx, err);

	for (char **p = env; *p; p++)
		free(*p);
	free(env);
	return c;
}

static void on_command_built(void *ctx, int code, struct strbuf *out,
			     const struct garret_error *err)
{
	struct job *j = ctx;

	j->child = NULL;
	if (err)
		fail(j, err->code, err->msg, strlen(err->msg));
	else if (code != 0)
		fail(j, GARRET_INTERNAL, out->buf, out->len);
	else
		tidy(j);
}

static int write_dockerfile(struct job *j, struct garret_error *err)
{
	autobuf struct strbuf file = STRBUF_INIT;
	autoclose int fd = -EBADF;
	autofree char *path = NULL;

	(void)snprintf(j->dir, sizeof(j->dir), "/tmp/garret-build-XXXXXX");
	if (!mkdtemp(j->dir)) {
		j->dir[0] = '\0';
		return garret_fail_errno(err, "make a directory for a build");
	}
	path = xasprintf("%s/Dockerfile", j->dir);
	docker_recipe_dockerfile(&j->recipe, true, &file);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || write_full(fd, file.buf, file.len) < 0)
		return garret_fail_errno(err, "write a Dockerfile");
	return 0;
}

static void build_by_command(struct job *j)
{
	autofree char *owner = xasprintf(LABEL_OWNER "=%s", j->b->owner);
	static const char version[] = LABEL_VERSION "=" GARRET_VERSION;
	const char *const argv[] = { "docker",  "buildx", "build",   "--load", "--progress=plain",
				     "--label", owner,    "--label", version,  "--tag",
				     j->tag,    j->dir,   NULL };
	struct garret_error err = { 0 };

	if (write_dockerfile(j, &err) == 0)
		j->child = command(j->b, argv, BUILD_MS, on_command_built, j, &err);
	if (!j->child)
		fail(j, err.code, err.msg, strlen(err.msg));
}

static void on_probed(void *ctx, int code, struct strbuf *out, const struct garret_error *err)
{
	struct docker_builder *b = ctx;
	struct job *j;

	(void)out;
	b->probe = NULL;
	b->buildkit = !err && code == 0;
	list_foreach (j, &b->jobs, link)
		if (!j->call && !j->child)
			build(j);
}

static void build(struct job *j)
{
	static const char *const argv[] = { "docker", "buildx", "version", NULL };
	struct docker_builder *b = j->b;

	if (b->buildkit < 0 && !b->probe) {
		b->probe = command(b, argv, PROBE_MS, on_probed, b, NULL);
		if (!b->probe)
			b->buildkit = 0; /* there is no docker command */
	}
	if (b->buildkit < 0)
		return;
	if (b->buildkit)
		build_by_command(j);
	else
		build_classic(j);
}

/* ---- starting ---- */

static void on_looked(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct job *j = ctx;

	(void)json;
	j->call = NULL;
	if (!err)
		finish(j, NULL);
	else if (err->code == GARRET_NOT_FOUND)
		build(j);
	else
		finish(j, err);
}

static void on_begin(struct loop_later *l)
{
	build(l->ctx);
}

static struct job *new_job(struct docker_builder *b, const struct docker_recipe *r, char *tag)
{
	autobuf struct strbuf path = STRBUF_INIT;
	struct job *j = xnew(struct job);

	j->b = b;
	j->tag = tag;
	docker_recipe_copy(r, &j->recipe);
	list_init(&j->waiting);
	strbuf_init(&j->said);
	list_append(&b->jobs, &j->link);
	strbuf_addstr(&path, "/images/");
	docker_escape(&path, tag);
	strbuf_addstr(&path, "/json");
	if (r->cache_image)
		j->call = docker_ask(b->a,
				     &(struct docker_request){ .method = "GET", .path = path.buf },
				     on_looked, j);
	else
		loop_later_add(docker_api_loop(b->a), &j->later, on_begin, j);
	return j;
}

struct docker_build *docker_build(struct docker_builder *b, const struct docker_recipe *r,
				  docker_built_fn fn, void *ctx)
{
	struct docker_build *w = xnew(struct docker_build);
	char *tag = docker_recipe_image(r);
	struct job *j, *found = NULL;

	list_foreach (j, &b->jobs, link)
		if (!strcmp(j->tag, tag))
			found = j;
	if (found)
		free(tag);
	else
		found = new_job(b, r, tag);
	w->fn = fn;
	w->ctx = ctx;
	list_append(&found->waiting, &w->link);
	return w;
}

void docker_build_leave(struct docker_build *w)
{
	list_remove(&w->link);
	free(w);
}

struct docker_builder *docker_builder_new(struct docker_api *a, const char *host, const char *owner)
{
	struct docker_builder *b = xnew(struct docker_builder);

	b->a = a;
	b->host = host ? xstrdup(host) : NULL;
	b->owner = xstrdup(owner);
	b->buildkit = -1;
	list_init(&b->jobs);
	return b;
}

struct docker_builder *docker_builder_free(struct docker_builder *b)
{
	if (!b)
		return NULL;
	while (!list_empty(&b->jobs))
		job_free(list_entry(b->jobs.next, struct job, link));
	if (b->probe)
		docker_child_leave(b->probe);
	free(b->host);
	free(b->owner);
	free(b);
	return NULL;
}

int docker_builder_buildkit(const struct docker_builder *b)
{
	return b->buildkit;
}
