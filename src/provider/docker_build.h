/* Images of recipes: found, or built once for all that wait. */
#ifndef PROVIDER_DOCKER_BUILD_H
#define PROVIDER_DOCKER_BUILD_H

#include "provider/docker_api.h"
#include "provider/docker_recipe.h"

struct docker_builder;
struct docker_build; /* somebody who waits */

/* host: as docker_host_find() had it, for the docker command.  owner: in a label. */
struct docker_builder *docker_builder_new(struct docker_api *a, const char *host,
					  const char *owner);
struct docker_builder *docker_builder_free(struct docker_builder *b);

typedef void (*docker_built_fn)(void *ctx, const struct garret_error *err);
/* Of a recipe that builds.  The callback comes once, never before this returned. */
struct docker_build *docker_build(struct docker_builder *b, const struct docker_recipe *r,
				  docker_built_fn fn, void *ctx);
/* Nobody waits; the build goes on, its image will be used by the next. */
void docker_build_leave(struct docker_build *w);

/* Will BuildKit be used?  -1: not known yet. */
int docker_builder_buildkit(const struct docker_builder *b);

#endif
