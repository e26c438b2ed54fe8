/*
 * Workspaces that are containers of a Docker engine.  A container goes on when nobody holds a
 * handle on it: only its destruction ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "garret/workspace.h"
#include "lib/backend.h"
#include "provider/remote.h"

#define REF_PREFIX "pydantic-ai-workspace-"
#define REF_HEX 16

static const struct option_row options[] = {
	{ "image", OPTION_TEXT, NULL, "image of a new container (python:3.12-slim)" },
	{ "runtime", OPTION_TEXT, NULL, "in place of an image what one is built from: JSON" },
	{ "work_dir", OPTION_PATH, NULL, "where the files are, inside (/workspace)" },
	{ "network_mode", OPTION_TEXT, NULL, "a network of the engine (its default)" },
	{ "mem_limit", OPTION_SIZE, NULL, "memory" },
	{ "memswap_limit", OPTION_SIZE, NULL, "memory and swap together (as memory)" },
	{ "cpus", OPTION_CPUS, NULL, "CPUs" },
	{ "pids_limit", OPTION_NUMBER, NULL, "processes (512)" },
	{ "tmpfs_size", OPTION_SIZE, NULL, "size of /tmp, as a tmpfs" },
	{ "oci_runtime", OPTION_TEXT, NULL, "the engine's runtime, such as runsc" },
	{ "env", OPTION_ENV, NULL, "a variable of every command" },
	{ "volumes", OPTION_VOLUME, NULL, "a directory of the host inside" },
	{ "container_name", OPTION_NAME, NULL, "one container of that name" },
	{ "host", OPTION_TEXT, NULL, "unix:///PATH or tcp://HOST:PORT (as the docker command)" },
	{ "owner", OPTION_NAME, NULL, "whose label new containers carry (garret)" },
	{ "provider", OPTION_TEXT, NULL, "the name in refs, one for each engine (docker)" },
	{ "reach", OPTION_CHOICE, "auto init exec", "how commands get in (auto)" },
	{ NULL, OPTION_TEXT, NULL, NULL },
};

struct remote {
	const struct remote_table *table;
	char *spools; /* a directory for output that is fetched, ours */
	int spools_fd;
};

static int remote_check(struct garret_options *o, struct garret_error *err)
{
	if (option_text(o, "image") && option_text(o, "runtime"))
		return garret_fail(err, GARRET_INVALID, "image and runtime: one of them");
	if (option_text(o, "runtime") && *option_text(o, "runtime") != '{')
		return garret_fail(err, GARRET_INVALID,
				   "runtime: a JSON object with name and base_image or image");
	return 0;
}

/* Only names of that shape, or the configured one: a ref comes from a history. */
static bool remote_owns(const struct garret_options *o, const char *id)
{
	const char *name = option_text(o, "container_name");
	const size_t prefix = strlen(REF_PREFIX);

	if (name && !strcmp(name, id))
		return true;
	return !strncmp(id, REF_PREFIX, prefix) && strlen(id) == prefix + REF_HEX &&
	       strspn(id + prefix, "0123456789abcdef") == REF_HEX;
}

static const char *remote_named(const struct garret_options *o)
{
	return option_text(o, "container_name");
}

static void remote_spec(struct garret_provider *p, struct box_spec *spec)
{
	const struct garret_options *o = p->options;
	const char *dir = option_text(o, "work_dir"), *recipe = option_text(o, "runtime");

	spec->runtime = recipe ? recipe : option_text(o, "image");
	spec->work_dir = dir ? dir : "/workspace";
}

static int make_spools(struct remote *r, struct garret_error *err)
{
	char path[] = "/tmp/garret-docker-XXXXXX";

	if (!mkdtemp(path))
		return garret_fail_errno(err, "make a directory for output in /tmp");
	r->spools = xstrdup(path);
	r->spools_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return r->spools_fd < 0 ? garret_fail_errno(err, "open %s", path) : 0;
}

static void remote_release(struct remote *r)
{
	r->spools_fd = fd_close(r->spools_fd);
	if (r->spools)
		(void)remove_tree_at(AT_FDCWD, r->spools);
	free(r->spools);
	free(r);
}

static void on_notice(void *ctx, const char *text)
{
	const struct garret_options *o = ((struct garret_provider *)ctx)->options;

	if (o->notice)
		o->notice(o->notice_data, text);
}

static int remote_start(struct garret_provider *p, const struct garret_cancel *cancel,
			struct garret_error *err)
{
	static const enum docker_way ways[] = {
		['a'] = DOCKER_AUTO, ['i'] = DOCKER_INIT, ['e'] = DOCKER_EXEC
	};
	const struct garret_options *o = p->options;
	autofree char *init = xasprintf("%s/garret-init", p->context->program_dir);
	const char *reach = option_text(o, "reach"), *owner = option_text(o, "owner");
	struct remote *r = xnew(struct remote);
	struct docker_config config = {
		.loop = p->context->loop,
		.host = option_text(o, "host"),
		.owner = owner ? owner : "garret",
		.init = init,
		.way = ways[reach ? (unsigned char)*reach : 'a'],
		.image = option_text(o, "image"),
		.work_dir = option_text(o, "work_dir"),
		.container_name = option_text(o, "container_name"),
		.network = option_text(o, "network_mode"),
		.oci_runtime = option_text(o, "oci_runtime"),
		.volumes = (const char *const *)o->volumes,
		.memory_bytes = option_size(o, "mem_limit"),
		.memory_swap_bytes = option_size(o, "memswap_limit"),
		.tmpfs_bytes = option_size(o, "tmpfs_size"),
		.cpu_millis = option_millis(o, "cpus"),
		.pids = option_number(o, "pids_limit"),
		.notice = on_notice,
		.notice_ctx = p,
	};
	int rc;

	(void)cancel;
	r->spools_fd = -EBADF;
	rc = remote_load(&r->table, err);
	if (rc == 0)
		rc = make_spools(r, err);
	config.runs_fd = r->spools_fd;
	if (rc == 0)
		rc = r->table->docker_new(&config, &p->impl, err);
	if (rc < 0) {
		remote_release(r);
		return rc;
	}
	p->own = r;
	p->ops = r->table->docker;
	return 0;
}

static void remote_stop(struct garret_provider *p)
{
	struct remote *r = p->own;

	p->impl = r->table->docker_free(p->impl);
	remote_release(r);
}

/* Where init is, all of it; else what an exec can. */
static unsigned remote_more(const struct backend *b)
{
	const char *reach = b->provider->ops->reach(b->box);

	return reach && !strcmp(reach, "init") ? GARRET_HAS_STREAMS | GARRET_HAS_CONFINED : 0;
}

static bool remote_ends(const struct garret_options *o)
{
	(void)o;
	return false;
}

const struct provider_kind docker_kind = {
	.name = "docker",
	.options = options,
	.abilities = GARRET_HAS_COMMANDS | GARRET_HAS_FILES | GARRET_HAS_REALPATH | GARRET_ISOLATES,
	.goes_on = true,
	.check = remote_check,
	.owns = remote_owns,
	.named = remote_named,
	.start = remote_start,
	.stop = remote_stop,
	.spec = remote_spec,
	.more = remote_more,
	.ends = remote_ends,
};
