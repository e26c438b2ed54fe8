/*
 * Workspaces and sessions in containers of a Docker engine.
 *
 * A container has garret-init as its command, and all commands and files go over
 * one connection to it.  Where init can't run (a container that somebody else
 * made, of a foreign architecture, that can't be written to) each command is an
 * exec of its own and files come from commands; which of the two it is, reach()
 * says.
 *
 * Everything made here carries the labels io.garret.owner, .workspace, .version.
 * A container with another owner's label is never touched; one without labels
 * only by its exact name, for the caller who gave it.
 */
#ifndef PROVIDER_DOCKER_H
#define PROVIDER_DOCKER_H

#include "core/provider.h"
#include "io/loop.h"

extern const struct provider_ops docker_ops;

enum docker_way {
	DOCKER_AUTO, /* init where it runs */
	DOCKER_INIT, /* or fail */
	DOCKER_EXEC, /* never: a command is an exec */
};

/*
 * All is copied.  What a box_spec doesn't say comes from here.  An image that
 * begins with '{' is a recipe (docker_recipe.h), here and in a box_spec.
 */
struct docker_config {
	struct loop *loop;
	const char *host;  /* as docker_host_find() */
	const char *owner; /* whose the containers are: a word */
	int runs_fd;       /* a directory for spool files, borrowed; -EBADF: none */
	const char *init;  /* the program garret-init, static; NULL: DOCKER_EXEC */
	enum docker_way way;

	const char *image;          /* NULL: python:3.12-slim */
	const char *work_dir;       /* NULL: /workspace */
	const char *container_name; /* NULL: a name of its own for each */
	bool sessions;              /* names are sandboxd-<session id> */
	bool remove_closed;         /* BOX_CLOSE_PLAIN removes it as well */
	bool no_pull;               /* an image that isn't there is NOT_FOUND */

	const char *network;                      /* NULL: the engine's default */
	const char *oci_runtime;                  /* NULL: the same */
	const char *user;                         /* "uid:gid"; NULL: the image's */
	const char *workspace_root;               /* {root}/{id}/workspace is mounted at work_dir */
	const char *const *env;                   /* "NAME=VALUE", over the usual ones */
	const char *const *volumes;               /* "/HOST:/CONTAINER[:ro]" */
	const char *const *labels;                /* "name=value", besides ours */
	uint64_t memory_bytes, memory_swap_bytes; /* 0: none */
	uint64_t tmpfs_bytes;                     /* of /tmp; 0: it is no tmpfs */
	uint32_t cpu_millis, cpu_shares;
	uint32_t pids; /* 0: 512 */
	/* NULL, or told what an open waits for: an image that is pulled or built. */
	void (*notice)(void *ctx, const char *text);
	void *notice_ctx;
};

int docker_new(const struct docker_config *config, struct provider **ret, struct garret_error *err);
struct provider *docker_free(struct provider *p); /* boxes must be closed */

#endif
