/* The environment of a run: the session's own with the run's laid over it. */
#ifndef INIT_ENV_H
#define INIT_ENV_H

#include <stddef.h>
#include <stdint.h>

/*
 * A NULL-terminated array (free() it) of borrowed strings.  A name that is in
 * both, or twice in over, has the later value at its first place.
 */
char **env_merge(const char *const *base, char **over, uint32_t n_over);
/* The value of name in env, or NULL. */
const char *env_find(char **env, const char *name);

#endif
