/* What the route table names: one handler a route, one file a resource. */
#ifndef API_HANDLERS_H
#define API_HANDLERS_H

#include "api/route.h"

/* index.c */
void index_root(struct call *c);
void index_health(struct call *c);
/* policy.c */
void policy_get(struct call *c);
void policy_put(struct call *c);
/* orgs.c */
void orgs_call(struct call *c);
struct org_values {
	const char *organisation, *key, *conversation, *connection_id, *run, *agent, *op, *ok,
		*path, *parked, *channel, *user, *scope, *kind, *name, *address, *account, *runtime,
		*token;
	bool is_default, opened, lost;
	int64_t offset, limit;
	double since, until;
	const struct json_t *sandbox;
};

/* tokens.c */
void tokens_list(struct call *c);
void tokens_add(struct call *c);
void tokens_revoke(struct call *c);
void tokens_rotate(struct call *c);
/* sessions.c */
void sessions_open(struct call *c);
void sessions_list(struct call *c);
void sessions_get(struct call *c);
void sessions_close(struct call *c);
void sessions_sleep(struct call *c);
void sessions_wake(struct call *c);
void sessions_usage(struct call *c);
/* events.c */
void events_list(struct call *c);
void events_service(struct call *c);
void events_kept(struct call *c);
void events_follow(struct call *c);
/* metrics.c */
void metrics_get(struct call *c);
/* runs.c */
void runs_run(struct call *c);
void runs_stop(struct call *c);
/* run_view.c */
void runs_get(struct call *c);
void runs_list(struct call *c);
void runs_output(struct call *c);
const char *run_state_name(enum run_phase phase);
void run_put_info(struct strbuf *out, const struct run_info *info);
/* run_follow.c */
void runs_follow(struct call *c);
/* run_input.c */
void runs_input(struct call *c);
void runs_signal(struct call *c);
/* True when the kernel would refuse to start it; answered then. */
bool runs_too_long(struct call *c, const char *const *argv, const char *const *env);
/* stream.c */
void stream_start(struct call *c);
/* files.c */
void files_read(struct call *c);
void files_write(struct call *c);
void files_stat(struct call *c);
void files_realpath(struct call *c);
void files_list(struct call *c);
void files_mkdir(struct call *c);
void files_remove(struct call *c);
/* files_v1.c */
void v1_stat(struct call *c);
void v1_read(struct call *c);
void v1_list(struct call *c);
void v1_glob(struct call *c);
void v1_grep(struct call *c);
void v1_mkdir(struct call *c);
void v1_remove(struct call *c);
void v1_rename(struct call *c);
void v1_copy(struct call *c);
void v1_chmod(struct call *c);
void v1_digest(struct call *c);
void v1_realpath(struct call *c);
void v1_edit(struct call *c);
/* file_v1.c */
void v1_file_get(struct call *c);
void v1_file_put(struct call *c);
void v1_tar_get(struct call *c);
void v1_tar_put(struct call *c);
/* archive.c */
void archive_ls(struct call *c);
void archive_tree(struct call *c);
void archive_trees(struct call *c);
void archive_read(struct call *c);
void archive_read_bytes(struct call *c);
void archive_list(struct call *c);
void archive_delete(struct call *c);
/* openapi.c */
void openapi_document(struct call *c);
void openapi_page(struct call *c);

/* ---- the values that the tables of routes.c fill ---- */

struct open_values {
	const char *session_id, *runtime, *tenant;
	bool reuse, attach;
};

struct token_values {
	const char *name, *scope, *tenant;
	bool read_only;
	double expires_in, overlap_seconds;
};

struct usage_values {
	bool usage;
};

struct purge_values {
	bool purge;
};

struct events_values {
	int64_t after;
};

struct log_values {
	int64_t after, limit;
	const char *session_id;
};

struct kept_events_values {
	int64_t after, limit;
	const char *session_id, *generation;
};

struct run_values {
	const char **argv, **env;
	double timeout_seconds;
	const char *run_id;
	bool keep;
	bool detach, input;
	const char *cwd;
};

struct stream_values {
	const char **argv, **env;
	double timeout_seconds;
	bool tty;
	int64_t rows, columns;
};

struct stop_values {
	const char *run_id;
};

struct run_view_values {
	const char *run_id;
	const char *stream;
	int64_t offset, limit, out, err;
};

struct run_input_values {
	const char *run_id;
	int64_t offset, signal;
	bool eof;
};

struct path_values {
	const char *path;
};

struct archive_values {
	const char *session_id, *path;
	const char **sessions;
	int64_t max_depth, max_entries, offset, limit;
};

struct batch_values {
	const char **paths;
	bool nofollow;
	int64_t max_bytes;
};

struct list_values {
	const char *path;
	int64_t max_depth, max_entries;
};

struct search_values {
	const char *path, *pattern, *include;
	bool hidden, no_ignore, ignore_case, fixed, directories;
	int64_t max_results;
};

struct change_values {
	const char *path, *to, *mode;
	bool parents, recursive, exclusive;
};

struct edit_values {
	const char *path, *old, *new, *etag, *sha256;
	bool all;
	int64_t count;
};

struct put_values {
	const char *path, *mode;
	bool parents, append, sync;
	int64_t max_bytes;
};

#endif
