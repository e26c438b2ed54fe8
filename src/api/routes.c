/* The tables: what the wire offers.  The OpenAPI document is made from them. */
#include "api/handlers.h"

#define FIELD(type, member, kind, flags, help)                            \
	{                                                                 \
#member, kind, flags, offsetof(struct type, member), help \
	}
#define END                                        \
	{                                          \
		NULL, JSON_KIND_STRING, 0, 0, NULL \
	}
#define SIZE(type) .values_size = sizeof(struct type)

/* clang-format off */
static const struct json_field open_body[] = {
	FIELD(open_values, session_id, JSON_KIND_NAME, JSON_NULLABLE, "made up when not given"),
	FIELD(open_values, runtime, JSON_KIND_STRING, JSON_NULLABLE, "an alias; the default one when not given"),
	FIELD(open_values, tenant, JSON_KIND_NAME, JSON_NULLABLE, "a label that capacity is counted by"),
	FIELD(open_values, reuse, JSON_KIND_BOOL, 0, "attach when the session is open, else create it"),
	FIELD(open_values, attach, JSON_KIND_BOOL, 0, "attach to what exists, never start from nothing"),
	END
};
static const struct json_field usage_query[] = {
	FIELD(usage_values, usage, JSON_KIND_BOOL, 0, "with what each session uses"),
	END
};
static const struct json_field purge_query[] = {
	FIELD(purge_values, purge, JSON_KIND_BOOL, 0, "delete the files as well"),
	END
};
static const struct json_field events_query[] = {
	FIELD(events_values, after, JSON_KIND_INT, JSON_FROM_ZERO, "only entries with a larger seq"),
	END
};
static const struct json_field run_body[] = {
	FIELD(run_values, argv, JSON_KIND_STRINGS, JSON_REQUIRED | JSON_NOT_EMPTY, "program and arguments, literally"),
	FIELD(run_values, env, JSON_KIND_ENVIRON, 0, "laid over the session's environment"),
	FIELD(run_values, timeout_seconds, JSON_KIND_FLOAT, JSON_NULLABLE | JSON_ABOVE_ZERO, "at most execute_timeout"),
	FIELD(run_values, run_id, JSON_KIND_RUN_ID, JSON_REQUIRED, "chosen by the client, to stop it with"),
	FIELD(run_values, keep, JSON_KIND_BOOL, 0, "go on when the client goes away"),
	END
};
static const struct json_field stream_body[] = {
	FIELD(stream_values, argv, JSON_KIND_STRINGS, JSON_REQUIRED | JSON_NOT_EMPTY, "program and arguments, literally"),
	FIELD(stream_values, env, JSON_KIND_ENVIRON, 0, "laid over the session's environment"),
	FIELD(stream_values, timeout_seconds, JSON_KIND_FLOAT, JSON_NULLABLE | JSON_ABOVE_ZERO, "no limit when not given"),
	FIELD(stream_values, tty, JSON_KIND_BOOL, 0, "a terminal inside; there is only standard output then"),
	FIELD(stream_values, rows, JSON_KIND_INT, JSON_ABOVE_ZERO, "of the terminal (24)"),
	FIELD(stream_values, columns, JSON_KIND_INT, JSON_ABOVE_ZERO, "of the terminal (80)"),
	END
};
static const struct json_field stop_params[] = {
	FIELD(stop_values, run_id, JSON_KIND_RUN_ID, JSON_REQUIRED, NULL),
	END
};
static const struct json_field path_body[] = {
	FIELD(path_values, path, JSON_KIND_PATH, JSON_REQUIRED, "absolute"),
	END
};
static const struct json_field path_query[] = {
	FIELD(path_values, path, JSON_KIND_PATH, JSON_REQUIRED, "absolute"),
	END
};

#define FILES(op, what, shape)                                                         \
	{ "POST", "/sessions/{session_id}/files/" #op, ROUTE_SESSION, .body = path_body, \
	  SIZE(path_values), .handle = files_##op, .summary = what, .answer = shape }

/* Of several with one path the first one's method is what 405 allows. */
const struct route routes[] = {
	{ "GET", "/", ROUTE_OPEN, .handle = index_root,
	  .summary = "What this service is and where things are", .answer = "Index" },
	{ "GET", "/healthz", ROUTE_OPEN, .handle = index_health,
	  .summary = "Alive, and how full", .answer = "Health" },
	{ "GET", "/policy", ROUTE_SERVICE, .handle = policy_get,
	  .summary = "The limits in force", .answer = "ServicePolicy" },
	{ "POST", "/sessions", ROUTE_SERVICE, .body = open_body, SIZE(open_values),
	  .handle = sessions_open, .summary = "Open a session, or attach to one", .answer = "OpenedSession" },
	{ "GET", "/sessions", ROUTE_SERVICE, .query = usage_query, SIZE(usage_values),
	  .handle = sessions_list, .summary = "All sessions", .answer = "SessionList" },
	{ "GET", "/sessions/{session_id}", ROUTE_SESSION, .query = usage_query, SIZE(usage_values),
	  .handle = sessions_get, .summary = "One session", .answer = "SessionInfo" },
	{ "DELETE", "/sessions/{session_id}", ROUTE_SESSION, .query = purge_query, SIZE(purge_values),
	  .handle = sessions_close, .summary = "End a session" },
	{ "GET", "/sessions/{session_id}/events", ROUTE_SESSION, .query = events_query, SIZE(events_values),
	  .handle = events_list, .summary = "What was done in a session", .answer = "EventList" },
	/* Arguments of 1.9 MiB, every byte of them escaped as \u00XX: more can never be valid. */
	{ "POST", "/sessions/{session_id}/run", ROUTE_SESSION, .body = run_body, SIZE(run_values),
	  .body_limit = 12u << 20, .handle = runs_run,
	  .summary = "Run a program and wait for its end", .answer = "RunResult" },
	{ "POST", "/sessions/{session_id}/runs/{run_id}/stop", ROUTE_SESSION, .params = stop_params,
	  SIZE(stop_values), .handle = runs_stop, .summary = "Stop a run" },
	{ "POST", "/v1/sessions/{session_id}/stream", ROUTE_SESSION, .body = stream_body, SIZE(stream_values),
	  .body_limit = 12u << 20, .upgrades = true, .handle = stream_start,
	  .summary = "Run a program with live streams: garretd(8) has the protocol" },
	FILES(read, "Read a file", NULL),
	{ "POST", "/sessions/{session_id}/files/write", ROUTE_SESSION, .query = path_query,
	  SIZE(path_values), .unread = true, .handle = files_write, .summary = "Write a file" },
	FILES(stat, "Describe a file", "FileEntry"),
	FILES(realpath, "Resolve a path", "RealPath"),
	FILES(list, "List a directory", "FileEntry*"),
	FILES(mkdir, "Make a directory", NULL),
	FILES(remove, "Remove a file or directory", NULL),
	{ "GET", "/openapi.json", ROUTE_OPEN, .head = true, .handle = openapi_document,
	  .summary = "This description" },
	{ "GET", "/docs", ROUTE_OPEN, .head = true, .handle = openapi_page, .summary = "Where the description is" },
	{ "GET", "/redoc", ROUTE_OPEN, .head = true, .handle = openapi_page, .summary = "Where the description is" },
	{ NULL, NULL, ROUTE_OPEN, .handle = NULL },
};
/* clang-format on */
