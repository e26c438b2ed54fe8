/* Everything of an OPEN request that can be judged without touching the system. */
#ifndef ENGINE_CHECK_H
#define ENGINE_CHECK_H

#include "engine/engine.h"

/* Absolute, no empty part, no "." or "..", no control character, not "/". */
bool path_normal(const char *path);
/* May something of a session's be mounted there? */
int check_mount_point(const char *what, const char *path, struct garret_error *err);
/* True when the template has no such place to mount on. */
bool path_needs_own_root(const char *path);

int check_open(const struct engine *e, const struct engine_open *o, struct garret_error *err);
/* Fill the limits in, defaults included; refuse what is out of bounds or can't be given. */
int check_limits(const struct engine *e, const struct engine_open *o, struct cgroup_limits *ret,
		 uint64_t *ret_tmpfs, struct garret_error *err);
/* Limits of a session that has `old`, with those of l that are in l->which. */
int check_new_limits(const struct engine *e, const struct engine_limits *l,
		     const struct cgroup_limits *old, struct cgroup_limits *ret,
		     struct garret_error *err);
/* The same for what it may write to the disk; *ret 0: no limit. */
int check_disk(const struct engine *e, const struct engine_open *o, uint64_t *ret,
	       struct garret_error *err);

#endif
