/* The runtimes that have a name of their own, where sessions are containers. */
#ifndef CORE_RUNTIMES_H
#define CORE_RUNTIMES_H

#include "base/error.h"

/* The image, or the recipe as JSON (provider/docker_recipe.h); NULL: no such name.  free(). */
char *runtime_recipe(const char *name);
/*
 * How a recipe is shown: its image, or "BASE + N package(s)"; free().  -GARRET_INVALID when it
 * is none.
 */
int runtime_shown(const char *recipe, char **ret);
/* "@coding @polyglot ..."; free(). */
char *runtime_names(void);

#endif
