/* What the route table names: one handler a route, one file a resource. */
#ifndef API_HANDLERS_H
#define API_HANDLERS_H

#include "api/route.h"

/* index.c */
void index_root(struct call *c);
void index_health(struct call *c);
/* policy.c */
void policy_get(struct call *c);
/* sessions.c */
void sessions_open(struct call *c);
void sessions_list(struct call *c);
void sessions_get(struct call *c);
void sessions_close(struct call *c);
/* events.c */
void events_list(struct call *c);
/* runs.c */
void runs_run(struct call *c);
void runs_stop(struct call *c);
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
/* openapi.c */
void openapi_document(struct call *c);
void openapi_page(struct call *c);

/* ---- the values that the tables of routes.c fill ---- */

struct open_values {
	const char *session_id, *runtime, *tenant;
	bool reuse, attach;
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

struct run_values {
	const char **argv, **env;
	double timeout_seconds;
	const char *run_id;
	bool keep;
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

struct path_values {
	const char *path;
};

#endif
