/*
 * A runtime that is built: a base image, setup commands, packages, variables.
 * Its tag is that of the published service, so that what that has built is used.
 */
#ifndef PROVIDER_DOCKER_RECIPE_H
#define PROVIDER_DOCKER_RECIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"

#define RECIPE_REPOSITORY "pydantic-ai-backend-runtime"
#define RECIPE_TAG_HEX 12

enum recipe_manager { RECIPE_PIP, RECIPE_NPM, RECIPE_APT, RECIPE_CARGO, RECIPE_MANAGERS };

struct docker_recipe {
	char *name, *description;
	char *image, *base_image; /* one of them */
	char **packages, **setup_commands;
	char **env; /* "NAME=VALUE", in their order */
	enum recipe_manager manager;
	char *work_dir;
	bool cache_image;
	uint32_t run_as_uid; /* 0: none */
};

/*
 * From a JSON object with the fields of the published RuntimeConfig.  INVALID
 * names what is wrong: also what would end up as something else in a Dockerfile.
 */
int docker_recipe_parse(const char *json, struct docker_recipe *ret, struct garret_error *err);
void docker_recipe_copy(const struct docker_recipe *r, struct docker_recipe *ret);
void docker_recipe_release(struct docker_recipe *r);
/* The image that it stands for: its own, or the tag to be built; free(). */
char *docker_recipe_image(const struct docker_recipe *r);
bool docker_recipe_builds(const struct docker_recipe *r);
/* mounts: BuildKit is there, downloads are cached. */
void docker_recipe_dockerfile(const struct docker_recipe *r, bool mounts, struct strbuf *out);

#endif
