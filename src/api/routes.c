/* The tables: what the wire offers.  The OpenAPI document is made from them. */
#include "api/handlers.h"
#include "core/policy_body.h"

/* The last two arguments: the help, and a maximum (may be left out). */
#define FIELD(type, member, k, f, ...)                                       \
	{                                                                    \
		.name = #member, .kind = (k), .flags = (f),                  \
		.offset = offsetof(struct type, member), .help = __VA_ARGS__ \
	}
/* For what isn't called as it is on the wire. */
#define NAMED(type, member, k, f, n, ...)                                                        \
	{                                                                                        \
		.name = (n), .kind = (k), .flags = (f), .offset = offsetof(struct type, member), \
		.help = __VA_ARGS__                                                              \
	}
#define END                  \
	{                    \
		.name = NULL \
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
static const struct json_field log_query[] = {
	FIELD(log_values, after, JSON_KIND_INT, JSON_FROM_ZERO, "only entries with a larger seq"),
	FIELD(log_values, limit, JSON_KIND_INT, JSON_FROM_ONE, "1000 when not given", 10000),
	FIELD(log_values, session_id, JSON_KIND_NAME, 0, "only of this one"),
	END
};
static const struct json_field kept_events_query[] = {
	FIELD(kept_events_values, after, JSON_KIND_INT, JSON_FROM_ZERO, "only entries with a larger seq"),
	FIELD(kept_events_values, limit, JSON_KIND_INT, JSON_FROM_ONE, "1000 when not given", 10000),
	END
};
static const struct json_field kept_events_params[] = {
	FIELD(kept_events_values, session_id, JSON_KIND_NAME, JSON_REQUIRED, NULL),
	FIELD(kept_events_values, generation, JSON_KIND_STRING, JSON_REQUIRED, NULL),
	END
};
static const struct json_field run_body[] = {
	FIELD(run_values, argv, JSON_KIND_STRINGS, JSON_REQUIRED | JSON_NOT_EMPTY, "program and arguments, literally"),
	FIELD(run_values, env, JSON_KIND_ENVIRON, 0, "laid over the session's environment"),
	FIELD(run_values, timeout_seconds, JSON_KIND_FLOAT, JSON_NULLABLE | JSON_ABOVE_ZERO, "at most execute_timeout"),
	FIELD(run_values, run_id, JSON_KIND_RUN_ID, JSON_REQUIRED, "chosen by the client, to stop it with"),
	FIELD(run_values, keep, JSON_KIND_BOOL, 0, "go on when the client goes away"),
	FIELD(run_values, detach, JSON_KIND_BOOL, 0, "answer 202 once it has begun, and go on"),
	NAMED(run_values, input, JSON_KIND_BOOL, 0, "stdin", "with detach: it reads what is sent to .../stdin"),
	FIELD(run_values, cwd, JSON_KIND_PATH, JSON_NULLABLE, "absolute; the work directory when not given"),
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
static const struct json_field run_params[] = {
	FIELD(run_view_values, run_id, JSON_KIND_RUN_ID, JSON_REQUIRED, NULL),
	END
};
static const struct json_field runs_query[] = {
	FIELD(run_view_values, limit, JSON_KIND_INT, JSON_FROM_ONE, "100 when not given", 1000),
	END
};
static const struct json_field output_query[] = {
	FIELD(run_view_values, stream, JSON_KIND_STRING, 0, "stdout (as when not given) or stderr"),
	FIELD(run_view_values, offset, JSON_KIND_INT, JSON_FROM_ZERO, "from this byte on"),
	FIELD(run_view_values, limit, JSON_KIND_INT, JSON_FROM_ONE, "at most so many bytes"),
	END
};
static const struct json_field follow_query[] = {
	NAMED(run_view_values, out, JSON_KIND_INT, JSON_FROM_ZERO, "stdout", "from this byte on"),
	NAMED(run_view_values, err, JSON_KIND_INT, JSON_FROM_ZERO, "stderr", "from this byte on"),
	END
};
static const struct json_field input_params[] = {
	FIELD(run_input_values, run_id, JSON_KIND_RUN_ID, JSON_REQUIRED, NULL),
	END
};
static const struct json_field input_query[] = {
	FIELD(run_input_values, offset, JSON_KIND_INT, JSON_FROM_ZERO, "where the bytes belong: what is there already isn't taken twice; at the end when not given"),
	FIELD(run_input_values, eof, JSON_KIND_BOOL, 0, "nothing comes behind them"),
	END
};
static const struct json_field signal_body[] = {
	FIELD(run_input_values, signal, JSON_KIND_SIGNAL, JSON_REQUIRED, "a name or a number"),
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

static const struct json_field batch_stat_body[] = {
	FIELD(batch_values, paths, JSON_KIND_PATHS, JSON_REQUIRED | JSON_NOT_EMPTY, "absolute", 1000),
	FIELD(batch_values, nofollow, JSON_KIND_BOOL, 0, "describe links themselves"),
	END
};
static const struct json_field batch_read_body[] = {
	FIELD(batch_values, paths, JSON_KIND_PATHS, JSON_REQUIRED | JSON_NOT_EMPTY, "absolute", 1000),
	FIELD(batch_values, max_bytes, JSON_KIND_INT, JSON_ABOVE_ZERO, "of all files together (64 MiB)", 64 << 20),
	END
};
static const struct json_field list_body[] = {
	FIELD(list_values, path, JSON_KIND_PATH, 0, "absolute"),
	FIELD(list_values, max_depth, JSON_KIND_INT, JSON_FROM_ONE, "1 (as when not given): the directory alone", 4096),
	FIELD(list_values, max_entries, JSON_KIND_INT, JSON_FROM_ONE, "1000000 when not given", 1000000),
	END
};
static const struct json_field glob_body[] = {
	FIELD(search_values, pattern, JSON_KIND_STRING, JSON_REQUIRED, "* ? [a-z] {a,b} **; without a / it matches names at any depth"),
	FIELD(search_values, path, JSON_KIND_PATH, 0, "where to search; the work directory when not given"),
	FIELD(search_values, hidden, JSON_KIND_BOOL, 0, "names that begin with a dot as well"),
	FIELD(search_values, no_ignore, JSON_KIND_BOOL, 0, "what .gitignore names as well"),
	FIELD(search_values, ignore_case, JSON_KIND_BOOL, 0, "letters match in either case"),
	FIELD(search_values, directories, JSON_KIND_BOOL, 0, "directories as well as files"),
	FIELD(search_values, max_results, JSON_KIND_INT, JSON_FROM_ONE, "1000000 when not given", 1000000),
	END
};
static const struct json_field grep_body[] = {
	FIELD(search_values, pattern, JSON_KIND_STRING, JSON_REQUIRED, "a Perl-compatible regular expression"),
	FIELD(search_values, path, JSON_KIND_PATH, 0, "file or directory; the work directory when not given"),
	FIELD(search_values, include, JSON_KIND_STRING, JSON_NULLABLE, "only files that match this glob"),
	FIELD(search_values, hidden, JSON_KIND_BOOL, 0, "names that begin with a dot as well"),
	FIELD(search_values, no_ignore, JSON_KIND_BOOL, 0, "what .gitignore names as well"),
	FIELD(search_values, ignore_case, JSON_KIND_BOOL, 0, "letters match in either case"),
	FIELD(search_values, fixed, JSON_KIND_BOOL, 0, "the pattern is text, no expression"),
	FIELD(search_values, max_results, JSON_KIND_INT, JSON_FROM_ONE, "1000000 when not given", 1000000),
	END
};
static const struct json_field mkdir_body[] = {
	FIELD(change_values, path, JSON_KIND_PATH, 0, "absolute"),
	FIELD(change_values, mode, JSON_KIND_STRING, 0, "octal (0777, less the umask)"),
	FIELD(change_values, parents, JSON_KIND_BOOL, 0, "make missing parents; one that exists is fine"),
	END
};
static const struct json_field remove_body[] = {
	FIELD(change_values, path, JSON_KIND_PATH, 0, "absolute"),
	FIELD(change_values, recursive, JSON_KIND_BOOL, 0, "a directory with what is in it"),
	END
};
static const struct json_field rename_body[] = {
	FIELD(change_values, path, JSON_KIND_PATH, 0, "absolute"),
	FIELD(change_values, to, JSON_KIND_PATH, 0, "absolute"),
	FIELD(change_values, exclusive, JSON_KIND_BOOL, 0, "fail when something is there"),
	FIELD(change_values, parents, JSON_KIND_BOOL, 0, "make missing parents of the target"),
	END
};
static const struct json_field copy_body[] = {
	FIELD(change_values, path, JSON_KIND_PATH, 0, "absolute"),
	FIELD(change_values, to, JSON_KIND_PATH, 0, "absolute"),
	FIELD(change_values, recursive, JSON_KIND_BOOL, 0, "a directory with what is in it, links as links"),
	FIELD(change_values, exclusive, JSON_KIND_BOOL, 0, "fail when something is there"),
	FIELD(change_values, parents, JSON_KIND_BOOL, 0, "make missing parents of the target"),
	END
};
static const struct json_field chmod_body[] = {
	FIELD(change_values, path, JSON_KIND_PATH, 0, "absolute"),
	FIELD(change_values, mode, JSON_KIND_STRING, JSON_REQUIRED, "octal, up to 0777"),
	FIELD(change_values, recursive, JSON_KIND_BOOL, 0, "a directory with what is in it, but for links"),
	END
};
static const struct json_field any_path_body[] = {
	FIELD(change_values, path, JSON_KIND_PATH, 0, "absolute"),
	END
};
static const struct json_field edit_body[] = {
	FIELD(edit_values, path, JSON_KIND_PATH, 0, "absolute"),
	FIELD(edit_values, old, JSON_KIND_STRING, JSON_REQUIRED, "the text to replace, exactly"),
	FIELD(edit_values, new, JSON_KIND_STRING, JSON_REQUIRED, "what takes its place"),
	FIELD(edit_values, all, JSON_KIND_BOOL, 0, "every occurrence; else there must be one"),
	FIELD(edit_values, count, JSON_KIND_INT, JSON_FROM_ONE, "there must be so many occurrences"),
	FIELD(edit_values, etag, JSON_KIND_STRING, JSON_NULLABLE, "only if the file is still this one"),
	FIELD(edit_values, sha256, JSON_KIND_STRING, JSON_NULLABLE, "only if the content is this one"),
	END
};
static const struct json_field put_query[] = {
	FIELD(put_values, path, JSON_KIND_PATH, JSON_REQUIRED, "absolute"),
	FIELD(put_values, mode, JSON_KIND_STRING, 0, "octal, of a new file (0666, less the umask)"),
	FIELD(put_values, parents, JSON_KIND_BOOL, 0, "make missing parents"),
	FIELD(put_values, append, JSON_KIND_BOOL, 0, "at the end of what is there"),
	FIELD(put_values, sync, JSON_KIND_BOOL, 0, "on disk before the answer"),
	END
};
static const struct json_field untar_query[] = {
	FIELD(put_values, path, JSON_KIND_PATH, JSON_REQUIRED, "the directory to unpack below"),
	FIELD(put_values, parents, JSON_KIND_BOOL, 0, "make it and what is missing above"),
	FIELD(put_values, max_bytes, JSON_KIND_INT, JSON_ABOVE_ZERO, "refuse an archive with more content"),
	END
};

static const struct json_field archive_params[] = {
	FIELD(archive_values, session_id, JSON_KIND_NAME, JSON_REQUIRED, NULL),
	END
};
static const struct json_field archive_path_body[] = {
	FIELD(archive_values, path, JSON_KIND_PATH, JSON_REQUIRED, "below the work directory"),
	END
};
static const struct json_field tree_body[] = {
	FIELD(archive_values, path, JSON_KIND_PATH, 0, "below the work directory (.)"),
	FIELD(archive_values, max_depth, JSON_KIND_INT, JSON_FROM_ONE, "1: the directory alone (6)", 64),
	FIELD(archive_values, max_entries, JSON_KIND_INT, JSON_FROM_ONE, "(2000)", 100000),
	END
};
static const struct json_field trees_body[] = {
	FIELD(archive_values, sessions, JSON_KIND_NAMES, JSON_REQUIRED | JSON_NOT_EMPTY, "whose files", 100),
	FIELD(archive_values, path, JSON_KIND_PATH, 0, "below the work directory (.)"),
	FIELD(archive_values, max_depth, JSON_KIND_INT, JSON_FROM_ONE, "1: the directory alone (6)", 64),
	FIELD(archive_values, max_entries, JSON_KIND_INT, JSON_FROM_ONE, "(2000)", 100000),
	END
};
static const struct json_field archive_read_body[] = {
	FIELD(archive_values, path, JSON_KIND_PATH, JSON_REQUIRED, "below the work directory"),
	FIELD(archive_values, offset, JSON_KIND_INT, JSON_FROM_ZERO, "lines to leave out at the beginning"),
	FIELD(archive_values, limit, JSON_KIND_INT, JSON_FROM_ONE, "lines (2000)"),
	END
};

static const struct json_field token_params[] = {
	FIELD(token_values, name, JSON_KIND_NAME, JSON_REQUIRED, NULL),
	END
};
static const struct json_field token_body[] = {
	FIELD(token_values, name, JSON_KIND_NAME, JSON_REQUIRED, "to revoke and rotate it by"),
	FIELD(token_values, scope, JSON_KIND_STRING, JSON_NULLABLE, "all, read, tenant:NAME or tenant:NAME+read"),
	FIELD(token_values, tenant, JSON_KIND_NAME, JSON_NULLABLE, "only what is of this tenant"),
	FIELD(token_values, read_only, JSON_KIND_BOOL, 0, "may only look"),
	FIELD(token_values, expires_in, JSON_KIND_FLOAT, JSON_NULLABLE | JSON_ABOVE_ZERO, "seconds; never when not given", 315360000),
	END
};
static const struct json_field rotate_body[] = {
	FIELD(token_values, overlap_seconds, JSON_KIND_FLOAT, JSON_FROM_ZERO, "for which the old secret lives on (0)", 2592000),
	END
};

#define ORG FIELD(org_values, organisation, JSON_KIND_STRING, JSON_REQUIRED, "a UUID")
#define ORG_PARAMS(name, member)                                              \
	static const struct json_field name[] = {                             \
		ORG, FIELD(org_values, member, JSON_KIND_STRING, JSON_REQUIRED, NULL), END \
	}
static const struct json_field org_params[] = { ORG, END };
ORG_PARAMS(org_key_params, key);
ORG_PARAMS(org_connection_params, connection_id);
ORG_PARAMS(org_conversation_params, conversation);
ORG_PARAMS(org_run_params, run);
static const struct json_field org_range_query[] = {
	FIELD(org_values, offset, JSON_KIND_INT, JSON_FROM_ZERO, "leave out so many"),
	FIELD(org_values, limit, JSON_KIND_INT, JSON_FROM_ONE, "at most so many (100)", 1000),
	END
};
static const struct json_field org_log_query[] = {
	FIELD(org_values, key, JSON_KIND_STRING, 0, "of this workspace"),
	FIELD(org_values, agent, JSON_KIND_STRING, 0, "of this agent"),
	FIELD(org_values, run, JSON_KIND_STRING, 0, "of this run"),
	FIELD(org_values, op, JSON_KIND_STRING, 0, "read, write, ls_info, mkdir, remove or execute"),
	FIELD(org_values, ok, JSON_KIND_STRING, 0, "true: those that went well, false: those that failed"),
	FIELD(org_values, since, JSON_KIND_FLOAT, JSON_FROM_ZERO, "seconds since 1970"),
	FIELD(org_values, until, JSON_KIND_FLOAT, JSON_FROM_ZERO, "seconds since 1970"),
	FIELD(org_values, offset, JSON_KIND_INT, JSON_FROM_ZERO, "leave out so many"),
	FIELD(org_values, limit, JSON_KIND_INT, JSON_FROM_ONE, "at most so many (100)", 1000),
	END
};
static const struct json_field org_path_query[] = {
	FIELD(org_values, path, JSON_KIND_STRING, JSON_REQUIRED, "absolute, or below the work directory"),
	END
};
static const struct json_field org_parked_query[] = {
	FIELD(org_values, parked, JSON_KIND_STRING, 0, "anything: it waits for a person, and is kept for 30 days"),
	END
};
static const struct json_field org_key_query[] = {
	FIELD(org_values, agent, JSON_KIND_STRING, JSON_REQUIRED, "an id"),
	FIELD(org_values, run, JSON_KIND_STRING, JSON_REQUIRED, "an id"),
	FIELD(org_values, conversation, JSON_KIND_STRING, 0, "an id"),
	FIELD(org_values, channel, JSON_KIND_STRING, 0, "as the platform calls it"),
	FIELD(org_values, user, JSON_KIND_STRING, 0, "as the platform calls them"),
	FIELD(org_values, scope, JSON_KIND_STRING, 0, "conversation (as when not given), run, channel, user or agent"),
	FIELD(org_values, connection_id, JSON_KIND_STRING, 0, "of a session; not given: of a document"),
	END
};
static const struct json_field org_connection_body[] = {
	FIELD(org_values, kind, JSON_KIND_STRING, JSON_NULLABLE, "sandboxd, native, docker or daytona; needed for a new one"),
	FIELD(org_values, name, JSON_KIND_STRING, JSON_NULLABLE, "for people"),
	FIELD(org_values, address, JSON_KIND_STRING, JSON_NULLABLE, "http(s)://HOST[:PORT], unix:///PATH, a state directory, tcp://HOST:PORT"),
	FIELD(org_values, account, JSON_KIND_STRING, JSON_NULLABLE, "of a cloud account"),
	FIELD(org_values, runtime, JSON_KIND_STRING, JSON_NULLABLE, "the usual one"),
	FIELD(org_values, is_default, JSON_KIND_BOOL, JSON_NULLABLE, "for what names none"),
	FIELD(org_values, token, JSON_KIND_STRING, JSON_NULLABLE, "kept sealed, never told; \"\" removes it"),
	END
};
static const struct json_field org_run_body[] = {
	FIELD(org_values, agent, JSON_KIND_STRING, JSON_REQUIRED, "an id"),
	FIELD(org_values, run, JSON_KIND_STRING, JSON_REQUIRED, "an id, of your own"),
	FIELD(org_values, conversation, JSON_KIND_STRING, JSON_NULLABLE, "an id"),
	FIELD(org_values, channel, JSON_KIND_STRING, JSON_NULLABLE, "as the platform calls it"),
	FIELD(org_values, user, JSON_KIND_STRING, JSON_NULLABLE, "as the platform calls them"),
	FIELD(org_values, sandbox, JSON_KIND_TABLE, JSON_NULLABLE, "backend, connection_id, session_scope, runtime, include_execute"),
	END
};
static const struct json_field org_report_body[] = {
	FIELD(org_values, opened, JSON_KIND_BOOL, JSON_NULLABLE, "your client has opened that session"),
	FIELD(org_values, lost, JSON_KIND_BOOL, JSON_NULLABLE, "it was told that the session is gone"),
	END
};

#define ORGS(method, tail, scope, fields, op, what, ...) \
	{ method, "/v1/orgs/{organisation}/" tail, ROUTE_SERVICE, scope, .params = fields, SIZE(org_values), \
	  .handle = orgs_call, .operation = op, .summary = what, __VA_ARGS__ }
#define ARCHIVE(op, fields, what, shape)                                               \
	{ "POST", "/workspaces/{session_id}/" #op, ROUTE_SERVICE, SCOPE_READ, .params = archive_params, \
	  .kept = true, .body = fields, SIZE(archive_values), .handle = archive_##op, .summary = what, .answer = shape }
#define V1(op, scope, fields, values, what, shape)                                         \
	{ "POST", "/v1/sessions/{session_id}/files/" #op, ROUTE_SESSION, scope, .body = fields, \
	  SIZE(values), .wakes = true, .handle = v1_##op, .summary = what, .answer = shape }
#define FILES(op, scope, what, shape)                                                  \
	{ "POST", "/sessions/{session_id}/files/" #op, ROUTE_SESSION, scope, .body = path_body, \
	  SIZE(path_values), .wakes = true, .handle = files_##op, .summary = what, .answer = shape }

/* Of several with one path the first one's method is what 405 allows. */
const struct route routes[] = {
	{ "GET", "/", ROUTE_OPEN, SCOPE_READ, .handle = index_root,
	  .summary = "What this service is and where things are", .answer = "Index" },
	{ "GET", "/healthz", ROUTE_OPEN, SCOPE_READ, .handle = index_health,
	  .summary = "Alive, and how full", .answer = "Health" },
	{ "GET", "/policy", ROUTE_SERVICE, SCOPE_READ, .handle = policy_get,
	  .summary = "The limits in force", .answer = "ServicePolicy" },
	{ "PUT", "/policy", ROUTE_SERVICE, SCOPE_ALL, .body = policy_fields, .strict = true,
	  .handle = policy_put, .summary = "Change limits, whole or not at all", .answer = "ServicePolicy" },
	{ "GET", "/tokens", ROUTE_SERVICE, SCOPE_ALL, .handle = tokens_list,
	  .summary = "The service tokens that were minted, without their secrets", .answer = "TokenList" },
	{ "POST", "/tokens", ROUTE_SERVICE, SCOPE_ALL, .body = token_body, SIZE(token_values),
	  .handle = tokens_add, .summary = "Mint a service token", .answer = "MintedToken" },
	{ "DELETE", "/tokens/{name}", ROUTE_SERVICE, SCOPE_ALL, .params = token_params, SIZE(token_values),
	  .handle = tokens_revoke, .summary = "Revoke a service token" },
	{ "POST", "/tokens/{name}/rotate", ROUTE_SERVICE, SCOPE_ALL, .params = token_params,
	  .body = rotate_body, SIZE(token_values), .handle = tokens_rotate,
	  .summary = "A new secret; the old one lives on for a while", .answer = "MintedToken" },
	{ "POST", "/sessions", ROUTE_SERVICE, SCOPE_WRITE, .body = open_body, SIZE(open_values),
	  .handle = sessions_open, .summary = "Open a session, or attach to one", .answer = "OpenedSession" },
	{ "GET", "/sessions", ROUTE_SERVICE, SCOPE_READ, .query = usage_query, SIZE(usage_values),
	  .handle = sessions_list, .summary = "All sessions", .answer = "SessionList" },
	{ "GET", "/sessions/{session_id}", ROUTE_SESSION, SCOPE_READ, .query = usage_query, SIZE(usage_values),
	  .handle = sessions_get, .summary = "One session", .answer = "SessionInfo" },
	{ "DELETE", "/sessions/{session_id}", ROUTE_SESSION, SCOPE_WRITE, .query = purge_query, SIZE(purge_values),
	  .handle = sessions_close, .summary = "End a session" },
	{ "GET", "/v1/sessions/{session_id}/usage", ROUTE_SESSION, SCOPE_READ, .handle = sessions_usage,
	  .summary = "What it takes and took; null where that isn't counted", .answer = "Usage" },
	{ "POST", "/v1/sessions/{session_id}/sleep", ROUTE_SESSION, SCOPE_WRITE, .handle = sessions_sleep,
	  .summary = "End its processes and keep the rest, until it is used again" },
	{ "POST", "/v1/sessions/{session_id}/wake", ROUTE_SESSION, SCOPE_WRITE, .wakes = true, .handle = sessions_wake,
	  .summary = "Have it awake before it is used" },
	{ "GET", "/sessions/{session_id}/events", ROUTE_SESSION, SCOPE_READ, .query = events_query, SIZE(events_values),
	  .handle = events_list, .summary = "What was done in a session", .answer = "EventList" },
	{ "GET", "/v1/sessions/{session_id}/events/follow", ROUTE_SESSION, SCOPE_READ, .query = events_query,
	  SIZE(events_values), .handle = events_follow, .summary = "The same as it comes: server-sent events",
	  .answer = "text/event-stream" },
	{ "GET", "/v1/events", ROUTE_SERVICE, SCOPE_READ, .query = log_query, SIZE(log_values),
	  .handle = events_service, .summary = "What happened to sessions and to the service", .answer = "LogEntries" },
	{ "GET", "/v1/events/follow", ROUTE_SERVICE, SCOPE_READ, .query = events_query, SIZE(events_values),
	  .handle = events_follow, .summary = "The same as it comes: server-sent events", .answer = "text/event-stream" },
	{ "GET", "/v1/events/{session_id}/{generation}", ROUTE_SERVICE, SCOPE_READ, .params = kept_events_params,
	  .query = kept_events_query, SIZE(kept_events_values), .kept = true, .handle = events_kept,
	  .summary = "What was done in a session that may have ended", .answer = "KeptEvents" },
	{ "GET", "/metrics", ROUTE_SERVICE, SCOPE_READ, .handle = metrics_get,
	  .summary = "Counters in Prometheus' text format", .answer = "text/plain" },
	/* Arguments of 1.9 MiB, every byte of them escaped as \u00XX: more can never be valid. */
	{ "POST", "/sessions/{session_id}/run", ROUTE_SESSION, SCOPE_WRITE, .body = run_body, SIZE(run_values),
	  .body_limit = 12u << 20, .wakes = true, .handle = runs_run,
	  .summary = "Run a program and wait for its end", .answer = "RunResult", .accepted = "RunBegun" },
	{ "POST", "/sessions/{session_id}/runs/{run_id}/stop", ROUTE_SESSION, SCOPE_WRITE, .params = stop_params,
	  SIZE(stop_values), .handle = runs_stop, .summary = "Stop a run" },
	{ "GET", "/sessions/{session_id}/runs", ROUTE_SESSION, SCOPE_READ, .query = runs_query, SIZE(run_view_values),
	  .ended = true, .handle = runs_list, .summary = "What ran and runs, newest first", .answer = "RunList" },
	{ "GET", "/sessions/{session_id}/runs/{run_id}", ROUTE_SESSION, SCOPE_READ, .params = run_params,
	  SIZE(run_view_values), .ended = true, .handle = runs_get, .summary = "One run", .answer = "RunInfo" },
	{ "GET", "/sessions/{session_id}/runs/{run_id}/output", ROUTE_SESSION, SCOPE_READ, .params = run_params,
	  .query = output_query, SIZE(run_view_values), .ended = true, .handle = runs_output,
	  .summary = "The bytes of its output that are there now", .answer = "application/octet-stream" },
	{ "GET", "/sessions/{session_id}/runs/{run_id}/follow", ROUTE_SESSION, SCOPE_READ, .params = run_params,
	  .query = follow_query, SIZE(run_view_values), .ended = true, .handle = runs_follow,
	  .summary = "Its output as it comes, and its end: server-sent events", .answer = "text/event-stream" },
	{ "POST", "/sessions/{session_id}/runs/{run_id}/stdin", ROUTE_SESSION, SCOPE_WRITE, .params = input_params,
	  .query = input_query, SIZE(run_input_values), .unread = true, .handle = runs_input,
	  .summary = "Give it input (at most 1 MiB at a time)", .answer = "RunInput" },
	{ "POST", "/sessions/{session_id}/runs/{run_id}/signal", ROUTE_SESSION, SCOPE_WRITE, .params = input_params,
	  .body = signal_body, SIZE(run_input_values), .handle = runs_signal,
	  .summary = "Send a signal to its process group" },
	{ "POST", "/v1/sessions/{session_id}/stream", ROUTE_SESSION, SCOPE_WRITE, .body = stream_body, SIZE(stream_values),
	  .body_limit = 12u << 20, .upgrades = true, .wakes = true, .handle = stream_start,
	  .summary = "Run a program with live streams: garretd(8) has the protocol" },
	FILES(read, SCOPE_READ, "Read a file", "application/octet-stream"),
	{ "POST", "/sessions/{session_id}/files/write", ROUTE_SESSION, SCOPE_WRITE, .query = path_query,
	  SIZE(path_values), .unread = true, .wakes = true, .handle = files_write, .summary = "Write a file" },
	FILES(stat, SCOPE_READ, "Describe a file", "FileEntry"),
	FILES(realpath, SCOPE_READ, "Resolve a path", "RealPath"),
	FILES(list, SCOPE_READ, "List a directory", "FileEntry*"),
	FILES(mkdir, SCOPE_WRITE, "Make a directory", NULL),
	FILES(remove, SCOPE_WRITE, "Remove a file or directory", NULL),
	{ "POST", "/workspaces/trees", ROUTE_SERVICE, SCOPE_READ, .body = trees_body, SIZE(archive_values),
	  .handle = archive_trees, .summary = "The kept trees of several sessions", .answer = "TreeResults" },
	ARCHIVE(ls, archive_path_body, "A directory of what is kept of a session", "FileEntry*"),
	ARCHIVE(tree, tree_body, "A tree of it, breadth first", "FileTree"),
	ARCHIVE(read, archive_read_body, "Lines of a text file of it", "TextContent"),
	ARCHIVE(read_bytes, archive_path_body, "A whole file of it", "BytesContent"),
	{ "GET", "/workspaces", ROUTE_SERVICE, SCOPE_READ, .handle = archive_list,
	  .summary = "What is kept, with its sizes", .answer = "WorkspaceList" },
	{ "DELETE", "/workspaces/{session_id}", ROUTE_SERVICE, SCOPE_WRITE, .kept = true, .params = archive_params, SIZE(archive_values),
	  .handle = archive_delete, .summary = "Delete what is kept of a session that isn't open" },
	{ "GET", "/v1/sessions/{session_id}/file", ROUTE_SESSION, SCOPE_READ, .query = path_query, SIZE(path_values),
	  .head = true, .wakes = true, .handle = v1_file_get, .summary = "Read a file: Range, If-Range, If-None-Match",
	  .answer = "application/octet-stream" },
	{ "PUT", "/v1/sessions/{session_id}/file", ROUTE_SESSION, SCOPE_WRITE, .query = put_query, SIZE(put_values),
	  .unread = true, .wakes = true, .handle = v1_file_put, .summary = "Write a file: If-Match, If-None-Match: *",
	  .answer = "FileDetails" },
	{ "GET", "/v1/sessions/{session_id}/tar", ROUTE_SESSION, SCOPE_READ, .query = path_query, SIZE(path_values),
	  .wakes = true, .handle = v1_tar_get, .summary = "A tree as a tar archive",
	  .answer = "application/x-tar" },
	{ "PUT", "/v1/sessions/{session_id}/tar", ROUTE_SESSION, SCOPE_WRITE, .query = untar_query, SIZE(put_values),
	  .unread = true, .wakes = true, .handle = v1_tar_put, .summary = "Unpack a tar archive", .answer = "Unpacked" },
	V1(stat, SCOPE_READ, batch_stat_body, batch_values, "Describe files", "FileResults"),
	V1(read, SCOPE_READ, batch_read_body, batch_values, "Read files", "FileResults"),
	V1(list, SCOPE_READ, list_body, list_values, "List a directory, or a tree breadth first", "FileList"),
	V1(glob, SCOPE_READ, glob_body, search_values, "Find files by name", "FileList"),
	V1(grep, SCOPE_READ, grep_body, search_values, "Find text in files", "MatchList"),
	V1(mkdir, SCOPE_WRITE, mkdir_body, change_values, "Make a directory", NULL),
	V1(remove, SCOPE_WRITE, remove_body, change_values, "Remove a file or directory", NULL),
	V1(rename, SCOPE_WRITE, rename_body, change_values, "Rename, also to another file system", NULL),
	V1(copy, SCOPE_WRITE, copy_body, change_values, "Copy a file, or a tree", NULL),
	V1(chmod, SCOPE_WRITE, chmod_body, change_values, "Change permission bits", NULL),
	V1(digest, SCOPE_READ, any_path_body, change_values, "The SHA-256 of a file", "FileDigest"),
	V1(realpath, SCOPE_READ, any_path_body, change_values, "Resolve a path", "RealPath"),
	V1(edit, SCOPE_WRITE, edit_body, edit_values, "Replace text in a file, byte for byte", "FileDigest"),
	ORGS("GET", "connections", SCOPE_READ, org_params, "connection_list",
	     "Where the environments of an organisation are", .answer = "Connections"),
	ORGS("POST", "connections", SCOPE_WRITE, org_params, "connection_put", "Register a connection",
	     .body = org_connection_body, .strict = true, .answer = "Connection"),
	ORGS("GET", "connections/{connection_id}", SCOPE_READ, org_connection_params, "connection_get",
	     "One connection, without its token", .answer = "Connection"),
	ORGS("PUT", "connections/{connection_id}", SCOPE_WRITE, org_connection_params, "connection_put",
	     "Change what is given of a connection", .body = org_connection_body, .strict = true, .answer = "Connection"),
	ORGS("DELETE", "connections/{connection_id}", SCOPE_WRITE, org_connection_params, "connection_remove",
	     "Forget a connection and its token"),
	ORGS("GET", "key", SCOPE_READ, org_params, "scope_key", "The key that says who shares files",
	     .query = org_key_query, .answer = "ScopeKey"),
	ORGS("GET", "workspaces", SCOPE_READ, org_params, "workspace_list", "Newest use first",
	     .query = org_range_query, .answer = "ScopeWorkspaces"),
	ORGS("GET", "workspaces/{key}", SCOPE_READ, org_key_params, "workspace_get", "One workspace",
	     .answer = "ScopeWorkspace"),
	ORGS("DELETE", "workspaces/{key}", SCOPE_WRITE, org_key_params, "workspace_remove",
	     "Delete it, and what it recorded on a host"),
	ORGS("DELETE", "conversations/{conversation}", SCOPE_WRITE, org_conversation_params, "conversation_remove",
	     "Delete the workspaces of a conversation", .answer = "RemovedWorkspaces"),
	ORGS("GET", "workspaces/{key}/document", SCOPE_READ, org_key_params, "document_get",
	     "A document: its files and directories", .answer = "Document"),
	ORGS("PUT", "workspaces/{key}/document", SCOPE_WRITE, org_key_params, "document_put",
	     "Put another document in its place", .raw = true, .body_limit = 32u << 20),
	ORGS("GET", "workspaces/{key}/files", SCOPE_READ, org_key_params, "file_list",
	     "What is in it, for people; nothing of it is recorded", .answer = "BrowsedFiles"),
	ORGS("GET", "workspaces/{key}/file", SCOPE_READ, org_key_params, "file_read",
	     "A file of at most 16 MiB", .query = org_path_query, .answer = "BrowsedContent"),
	ORGS("GET", "log", SCOPE_READ, org_params, "log_query", "What was done, newest first",
	     .query = org_log_query, .answer = "Operations"),
	ORGS("GET", "log/names", SCOPE_READ, org_params, "log_names", "The operations that the log holds",
	     .answer = "OperationNames"),
	ORGS("GET", "purges", SCOPE_READ, org_params, "purge_list", "What is still to be removed on hosts",
	     .answer = "Purges"),
	ORGS("POST", "runs", SCOPE_WRITE, org_params, "run_open", "Open a run; nothing starts yet",
	     .body = org_run_body, .strict = true, .answer = "ScopeRun"),
	ORGS("GET", "runs/{run}", SCOPE_WRITE, org_run_params, "run_get", "A run that is open",
	     .answer = "ScopeRun"),
	ORGS("POST", "runs/{run}/report", SCOPE_WRITE, org_run_params, "run_report",
	     "What your client noticed of the session", .body = org_report_body, .strict = true, .answer = "ScopeRun"),
	ORGS("DELETE", "runs/{run}", SCOPE_WRITE, org_run_params, "run_close", "Close it",
	     .query = org_parked_query),
	{ "GET", "/openapi.json", ROUTE_OPEN, SCOPE_READ, .head = true, .handle = openapi_document,
	  .summary = "This description" },
	{ "GET", "/docs", ROUTE_OPEN, SCOPE_READ, .head = true, .handle = openapi_page, .summary = "Where the description is" },
	{ "GET", "/redoc", ROUTE_OPEN, SCOPE_READ, .head = true, .handle = openapi_page, .summary = "Where the description is" },
	{ NULL, NULL, ROUTE_OPEN, SCOPE_READ, .handle = NULL },
};
/* clang-format on */
