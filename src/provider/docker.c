/*
 * The provider: its configuration, and the operations on a container as a whole.
 */
#include "provider/docker.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/json.h"
#include "provider/docker_impl.h"

int docker_random(void *buf, size_t n, struct garret_error *err)
{
	if (getrandom(buf, n, 0) != (ssize_t)n)
		return garret_fail_errno(err, "random bytes");
	return 0;
}

static void on_died_before(struct loop_later *l)
{
	struct box *b = l->ctx;

	b->died(b->died_ctx);
}

static void docker_watch(struct box *b, box_died_fn died, void *ctx)
{
	b->died = died;
	b->died_ctx = ctx;
	if (b->dead && !b->died_told && !b->closing) {
		b->died_told = true;
		loop_later_add(b->p->loop, &b->later, on_died_before, b);
	}
}

static const char *docker_mark(const struct box *b)
{
	return b->mark;
}

static const char *docker_ref(const struct box *b)
{
	return b->name;
}

static const char *docker_reach_text(const struct box *b)
{
	return b->reach;
}

static enum box_layer docker_layer(const struct box *b)
{
	(void)b; /* a container has it in itself */
	return BOX_LAYER_NONE;
}

/* ---- closing ---- */

static void tell_closed(struct box *b, const struct garret_error *err)
{
	box_done_fn closed = b->closed;
	void *ctx = b->closed_ctx;

	docker_box_free(b);
	closed(ctx, err);
}

static void on_closed(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)json;
	b->call = NULL;
	/* Gone already, or going: that was the aim. */
	if (err && (err->code == GARRET_NOT_FOUND || err->code == GARRET_CONFLICT))
		err = NULL;
	tell_closed(b, err);
}

static void on_left(struct loop_later *l)
{
	tell_closed(l->ctx, NULL);
}

static void docker_close(struct box *b, enum box_close how, box_done_fn done, void *ctx)
{
	b->closing = true;
	b->closed = done;
	b->closed_ctx = ctx;
	docker_unreach(b);
	if (b->watching)
		docker_cancel(take_ptr(&b->watching));
	if (b->call)
		docker_cancel(take_ptr(&b->call));
	loop_timer_clear(&b->rewatch);
	loop_later_cancel(b->p->loop, &b->later);
	if (how == BOX_CLOSE_LEAVE)
		loop_later_add(b->p->loop, &b->later, on_left, b);
	else if (how == BOX_CLOSE_PURGE || (how == BOX_CLOSE_PLAIN && b->p->config.remove_closed))
		b->call = docker_box_ask(b, "DELETE", "?force=1&v=1", on_closed);
	else
		b->call = docker_box_ask(b, "POST", "/stop", on_closed);
}

/* ---- usage ---- */

struct wait {
	union {
		box_usage_fn usage;
		box_done_fn done;
	};
	void *ctx;
};

static uint64_t number(const json_t *v, const char *a, const char *b)
{
	const json_t *n = json_object_get(json_object_get(v, a), b);

	return json_is_integer(n) && json_integer_value(n) >= 0 ? (uint64_t)json_integer_value(n)
								: UINT64_MAX;
}

static uint64_t io_bytes(const json_t *stats, const char *op)
{
	const json_t *list = json_object_get(json_object_get(stats, "blkio_stats"),
					     "io_service_bytes_recursive");
	uint64_t sum = 0;

	if (!json_is_array(list))
		return UINT64_MAX;
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *row = json_array_get(list, i);
		const char *name = json_string_value(json_object_get(row, "op"));

		if (name && !strcasecmp(name, op))
			sum += (uint64_t)json_integer_value(json_object_get(row, "value"));
	}
	return sum;
}

static void on_stats(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct wait *w = ctx;
	const json_t *v = json;
	const json_t *cpu = json_object_get(v, "cpu_stats");
	const uint64_t ns = number(cpu, "cpu_usage", "total_usage");
	const struct box_usage u = { .memory_bytes = number(v, "memory_stats", "usage"),
				     .memory_limit_bytes = number(v, "memory_stats", "limit"),
				     .cpu_us = ns == UINT64_MAX ? ns : ns / 1000,
				     .pids = number(v, "pids_stats", "current"),
				     .oom_kills = UINT64_MAX,
				     .io_read_bytes = io_bytes(v, "read"),
				     .io_written_bytes = io_bytes(v, "write"),
				     .disk_bytes = UINT64_MAX };

	w->usage(w->ctx, err ? NULL : &u, err);
	free(w);
}

static void docker_usage(struct box *b, box_usage_fn done, void *ctx)
{
	struct wait *w = xnew(struct wait);
	autofree char *path = xasprintf("/containers/%s/stats?stream=false&one-shot=true", b->id);

	w->usage = done;
	w->ctx = ctx;
	(void)docker_ask(b->p->api, &(struct docker_request){ .method = "GET", .path = path },
			 on_stats, w);
}

/* ---- limits ---- */

static void on_simple(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct wait *w = ctx;

	(void)json;
	w->done(w->ctx, err);
	free(w);
}

static void put_number(struct strbuf *b, const char *key, uint64_t n)
{
	json_put_key(b, key);
	json_put_int(b, (int64_t)n);
}

static void docker_limits(struct box *b, unsigned which, const struct box_limits *l,
			  box_done_fn done, void *ctx)
{
	autofree char *path = xasprintf("/containers/%s/update", b->id);
	autobuf struct strbuf body = STRBUF_INIT;
	struct wait *w = xnew(struct wait);

	json_open(&body, '{');
	if (which & BOX_MEMORY) {
		put_number(&body, "Memory", l->memory_bytes);
		put_number(&body, "MemorySwap", MAX(l->memory_swap_bytes, l->memory_bytes));
	}
	if (which & BOX_CPUS)
		put_number(&body, "NanoCpus", (uint64_t)l->cpu_millis * 1000000u);
	if (which & BOX_SHARES)
		put_number(&body, "CpuShares", l->cpu_shares);
	if (which & BOX_PIDS)
		put_number(&body, "PidsLimit", l->pids ? l->pids : 512);
	json_close(&body, '}');
	w->done = done;
	w->ctx = ctx;
	(void)docker_ask(
		b->p->api,
		&(struct docker_request){
			.method = "POST", .path = path, .body = body.buf, .body_bytes = body.len },
		on_simple, w);
}

/* ---- configuration ---- */

static int docker_spool_open(struct provider *p, const char *runs, uint32_t spool, int stream)
{
	return init_box_spool_open(p->config.runs_fd, runs, spool, stream);
}

static void docker_spool_remove(struct provider *p, const char *runs, uint32_t spool)
{
	init_box_spool_remove(p->config.runs_fd, runs, spool);
}

static const char *copy(const char *s)
{
	return s ? xstrdup(s) : NULL;
}

static const char *const *copy_list(const char *const *list)
{
	size_t n = 0;
	const char **out;

	if (!list)
		return NULL;
	while (list[n])
		n++;
	out = xcalloc(n + 1, sizeof(*out));
	for (size_t i = 0; i < n; i++)
		out[i] = xstrdup(list[i]);
	return out;
}

static void free_list(const char *const *list)
{
	for (const char *const *p = list; p && *p; p++)
		free((void *)(uintptr_t)*p);
	free((void *)(uintptr_t)list);
}

static void release(struct docker_config *c)
{
	const char *const texts[] = { c->owner,   c->image,       c->work_dir, c->container_name,
				      c->network, c->oci_runtime, c->user,     c->workspace_root };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		free((void *)(uintptr_t)texts[i]);
	free_list(c->env);
	free_list(c->volumes);
	free_list(c->labels);
}

/* What the engine takes as a name. */
static bool container_name_valid(const char *s)
{
	if (!isalnum((unsigned char)*s) || strlen(s) < 2 || strlen(s) > 200)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && !strchr("_.-", *s))
			return false;
	return true;
}

static int check(const struct docker_config *c, struct garret_error *err)
{
	if (!c->owner || !name_valid(c->owner))
		return garret_fail(err, GARRET_INVALID, "docker: an owner is a word");
	if (c->work_dir && c->work_dir[0] != '/')
		return garret_fail(err, GARRET_INVALID,
				   "docker: the work directory is no absolute path");
	if (c->container_name && !container_name_valid(c->container_name))
		return garret_fail(err, GARRET_INVALID, "docker: that is no name of a container");
	for (const char *const *p = c->volumes; p && *p; p++)
		if ((*p)[0] != '/' || !strstr(*p, ":/"))
			return garret_fail(err, GARRET_INVALID,
					   "docker: a volume is /HOST:/CONTAINER");
	for (const char *const *p = c->env; p && *p; p++)
		if (!strchr(*p, '=') || (*p)[0] == '=')
			return garret_fail(err, GARRET_INVALID, "docker: a variable is NAME=VALUE");
	if (c->way == DOCKER_INIT && !c->init)
		return garret_fail(err, GARRET_INVALID,
				   "docker: there is no garret-init to be used");
	return 0;
}

int docker_new(const struct docker_config *c, struct provider **ret, struct garret_error *err)
{
	struct docker_host host = { 0 };
	struct provider *p;
	int rc = check(c, err);

	if (rc == 0)
		rc = docker_host_find(c->host, &host, err);
	if (rc < 0)
		return rc;
	p = xnew(struct provider);
	p->loop = c->loop;
	p->config = *c;
	p->config.owner = copy(c->owner);
	p->config.image = copy(c->image ? c->image : "python:3.12-slim");
	p->config.work_dir = copy(c->work_dir ? c->work_dir : "/workspace");
	p->config.container_name = copy(c->container_name);
	p->config.network = copy(c->network);
	p->config.oci_runtime = copy(c->oci_runtime);
	p->config.user = copy(c->user);
	p->config.workspace_root = copy(c->workspace_root);
	p->config.env = copy_list(c->env);
	p->config.volumes = copy_list(c->volumes);
	p->config.labels = copy_list(c->labels);
	p->config.host = p->config.init = NULL;
	strbuf_init(&p->init_tar);
	list_init(&p->boxes);
	if (c->init && c->way != DOCKER_EXEC)
		rc = docker_init_tar(c->init, &p->init_tar, err);
	if (rc == 0)
		rc = docker_api_new(c->loop, &host, &p->api, err);
	if (rc == 0)
		p->builder = docker_builder_new(p->api, c->host, c->owner);
	docker_host_release(&host);
	if (rc < 0)
		docker_free(p);
	else
		*ret = p;
	return rc;
}

struct provider *docker_free(struct provider *p)
{
	if (!p)
		return NULL;
	while (!list_empty(&p->boxes))
		docker_box_free(list_entry(p->boxes.next, struct box, link));
	docker_builder_free(p->builder);
	docker_api_free(p->api);
	strbuf_release(&p->init_tar);
	release(&p->config);
	free(p);
	return NULL;
}

const struct provider_ops docker_ops = {
	.name = "docker",
	.open = docker_open,
	.watch = docker_watch,
	.mark = docker_mark,
	.adopt = docker_adopt,
	.settle = docker_settle,
	.close = docker_close,
	.layer = docker_layer,
	.ref = docker_ref,
	.reach = docker_reach_text,
	.usage = docker_usage,
	.limits = docker_limits,
	.run = docker_run,
	.state = docker_state,
	.runs = docker_runs,
	.attach = docker_attach,
	.stop = docker_stop,
	.stream = docker_stream,
	.input = docker_input,
	.ack = docker_ack,
	.winch = docker_winch,
	.signal = docker_signal,
	.busy = docker_busy,
	.leave = docker_leave,
	.file = docker_file,
	.file_body = docker_file_body,
	.file_body_end = docker_file_body_end,
	.file_pipe = docker_file_pipe,
	.file_pause = docker_file_pause,
	.file_leave = docker_file_leave,
	.kept = docker_kept,
	.forget = docker_forget,
	.spool_open = docker_spool_open,
	.spool_remove = docker_spool_remove,
};
