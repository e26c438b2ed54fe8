/* engine.conf: what the operator lets sessions be.  `key = value`, '#' begins a comment line. */
#ifndef ENGINE_CONF_H
#define ENGINE_CONF_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

#define CONF_DEFAULT_PATH "/etc/garret/engine.conf"
#define CONF_UIDS_MAX 16
#define CONF_WORKSPACE_LEAST (1u << 20) /* a file system in a file has nothing below it */
#define CONF_FILES_MAX 64               /* of max_files_sessions: each takes a range of ids */

struct conf {
	char *state_dir, *workspace_root; /* workspace_root NULL: <state_dir>/workspaces */
	char *etc_copy, *cgroup_parent;
	uint32_t id_start, id_count, ranges; /* ranges: slots that id_count is enough for */
	uint32_t networks;                   /* bit per enum engine_network */
	uint64_t max_memory, max_tmpfs, default_memory, default_tmpfs;
	uint64_t max_workspace, default_workspace; /* 0: none */
	uint32_t max_cpu_millis, max_pids, max_sessions, default_cpu_millis, default_pids;
	uint32_t max_files_sessions; /* beside max_sessions */
	uint32_t pool_slots, pool_networks;
	uid_t uids[CONF_UIDS_MAX]; /* who may connect besides root */
	unsigned n_uids;
	bool keep_suspect_layers; /* write layers of an earlier boot are used all the same */
	bool no_filter;           /* test builds only */
};

/* The values of a machine without a configuration. */
void conf_init(struct conf *c);
void conf_done(struct conf *c);
/*
 * Read path over what is there.  The file must be root's and not writable by
 * others.  A missing file is fine unless required; an unknown key is an error
 * with its line number.
 */
int conf_read(struct conf *c, const char *path, bool required, struct garret_error *err);
/* The same from text; name is used in errors. */
int conf_parse(struct conf *c, const char *name, char *text, struct garret_error *err);
/* Fit the parts to each other and to this machine. */
int conf_finish(struct conf *c, struct garret_error *err);

#endif
