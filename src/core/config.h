/*
 * The settings of the service: SANDBOXD_* with the published parsing rules,
 * GARRET_* for what is new.  Read once at start; a bad value is one error that
 * names the variable.
 */
#ifndef CORE_CONFIG_H
#define CORE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* "null" in a policy: an optional number that isn't set. */
#define CONFIG_NULL (-1)
#define CONFIG_CPUS_MAX 4096.0
#define CONFIG_SECONDS_MAX 4000000 /* 46 days: in milliseconds still 32 bits */

struct runtime_entry {
	char *alias;
	char *source;      /* "host"; an image name; a recipe as JSON */
	char *shown;       /* the image as people see it; NULL: the source */
	bool builds;       /* it is a recipe */
	char *description; /* never NULL */
	/* What the entry itself sets; NULL and CONFIG_NULL take the service's default. */
	char *mem_limit, *memswap_limit, *network_mode, *oci_runtime;
	double cpus;
	int64_t cpu_shares, pids_limit;
};

struct config {
	char *token; /* NULL: made at first start and kept in the state directory */
	char *host;
	uint16_t port; /* 0: any free one (the log says which) */
	char *socket;  /* GARRET_SOCKET: path of a Unix socket, or NULL */
	char *state_dir;
	char *engine;         /* GARRET_ENGINE: socket of a running engine; NULL: start one */
	bool docker;          /* GARRET_ENGINE=docker: sessions are containers */
	char *workspace_root; /* NULL: {state}/workspaces */

	struct runtime_entry *runtimes; /* in the order given */
	unsigned n_runtimes;
	char *default_runtime;

	/* CONFIG_NULL: no ceiling */
	int64_t max_sessions, max_open_sessions, max_sessions_per_tenant, evict_idle_after;
	int64_t workspace_ttl, container_ttl, sandbox_uid;
	char *app_database; /* GARRET_APP_DATABASE; NULL: a file in the state directory */
	int64_t state_max_bytes,
		inline_image_max_bytes; /* SANDBOX_STATE_MAX_BYTES, SANDBOX_INLINE_IMAGE_MAX_BYTES */
	int64_t event_retention;        /* GARRET_EVENT_RETENTION: seconds */
	int64_t sleep_after; /* GARRET_SLEEP_AFTER: seconds without use, or CONFIG_NULL */
	int64_t idle_timeout, cleanup_interval, execute_timeout; /* seconds */
	int64_t max_read_bytes, max_workers, max_running_commands;

	char *mem_limit, *memswap_limit, *tmpfs_size, *disk_limit; /* as written; NULL: none */
	double cpus;                                               /* < 0: null */
	int64_t cpu_shares, pids_limit;
	char *network_mode, *oci_runtime, *work_dir, *policy_overrides;
	bool persist_containers, prewarm, native_files, ui_enabled;

	int64_t run_retention, run_bytes; /* of finished runs: seconds, and of one session */
	int64_t max_connections, max_connections_per_address;
	char *log_level;
	bool log_json;
};

/* getenv() is asked for every variable of the table; *ret is owned (config_release). */
int config_from_env(struct config *ret, struct garret_error *err);
void config_release(struct config *c);
const struct runtime_entry *config_runtime(const struct config *c, const char *alias);

/* max_open_sessions isn't below max_sessions. */
bool config_ceilings_fit(const struct config *c);
/* Two effective limits (NULL: none) go together; else why not. */
bool config_memory_fits(const char *mem, const char *memswap, char why[160]);
/* The variable of the first setting that comes with a later version, and why; NULL: none. */
const char *config_not_given(const struct config *c, const char **ret_why);

/* A size that was checked when it was set; NULL: 0. */
uint64_t config_bytes(const char *size);

/* The effective limits of an entry: its own, else the service's. Borrowed. */
const char *config_mem_limit(const struct config *c, const struct runtime_entry *r);
const char *config_memswap_limit(const struct config *c, const struct runtime_entry *r);
const char *config_network(const struct config *c, const struct runtime_entry *r);
double config_cpus(const struct config *c, const struct runtime_entry *r);
int64_t config_cpu_shares(const struct config *c, const struct runtime_entry *r);
int64_t config_pids_limit(const struct config *c, const struct runtime_entry *r);

#endif
