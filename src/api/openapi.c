/*
 * Our own OpenAPI document, made once from the route tables, and a page for
 * /docs and /redoc that needs nothing from elsewhere.
 *
 * The shapes of answers are written as text: "name:type", a "?" for null, a
 * "*" for a list, a capital letter for another shape.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/wire.h"
#include "base/mem.h"

static const struct {
	const char *name, *fields;
} shapes[] = {
	{ "Health", "status:string sessions:integer limit:integer? open_sessions:integer "
		    "open_limit:integer? runtimes:string* ready:boolean" },
	{ "Index", "service:string health:Health docs_url:string openapi_url:string "
		   "ui_url:string? endpoints:string*" },
	{ "RuntimePolicy",
	  "alias:string image:string description:string builds:boolean "
	  "mem_limit:string? memswap_limit:string? cpus:number? cpu_shares:integer? "
	  "pids_limit:integer? network_mode:string? oci_runtime:string?" },
	{ "ServicePolicy",
	  "runtimes:RuntimePolicy* default_runtime:string max_sessions:integer? "
	  "max_open_sessions:integer? max_sessions_per_tenant:integer? evict_idle_after:integer? "
	  "mem_limit:string? memswap_limit:string? cpus:number? cpu_shares:integer? "
	  "pids_limit:integer? network_mode:string? oci_runtime:string? work_dir:string "
	  "idle_timeout:integer execute_timeout:integer max_read_bytes:integer "
	  "persist_containers:boolean sandbox_uid:integer? workspace_ttl:integer? "
	  "container_ttl:integer? tmpfs_size:string? prewarm:boolean buildkit:boolean "
	  "native_files:boolean native_writes:boolean native_realpath:boolean" },
	{ "Token", "name:string scope:string tenant:string? read_only:boolean active:boolean "
		   "created_at:number expires_at:number? last_used_at:number? revoked_at:number?" },
	{ "TokenList", "tokens:Token*" },
	{ "MintedToken", "token:string info:Token" },
	{ "SessionUsage", "memory_bytes:integer? memory_limit_bytes:integer? cpu_percent:number? "
			  "pids:integer?" },
	{ "SessionInfo", "session_id:string runtime:string tenant:string? alive:boolean "
			 "state:string created_at:number last_activity:number "
			 "idle_seconds:number usage:SessionUsage?" },
	{ "OpenedSession", "session:SessionInfo token:string" },
	{ "SessionList", "sessions:SessionInfo* limit:integer? open_limit:integer? "
			 "tenant_limit:integer?" },
	{ "SessionEvent", "seq:integer at:number op:string target:string ok:boolean detail:string "
			  "duration_ms:number" },
	{ "EventList", "events:SessionEvent* latest_seq:integer" },
	{ "Usage",
	  "memory_bytes:integer? memory_limit_bytes:integer? cpu_us:integer? pids:integer? oom_kills:integer? "
	  "io_read_bytes:integer? io_written_bytes:integer? disk_bytes:integer?" },
	{ "LogEntry",
	  "seq:integer at:number kind:string session_id:string? tenant:string? detail:string" },
	{ "LogEntries", "events:LogEntry* latest_seq:integer" },
	{ "KeptEvents", "events:SessionEvent*" },
	{ "FileEntry", "name:string path:string is_dir:boolean size:integer? modified_at:string?" },
	{ "RealPath", "path:string" },
	{ "FileTree", "entries:FileEntry* truncated:boolean" },
	{ "TreeResult", "session_id:string tree:FileTree? error:string? status_code:integer?" },
	{ "TreeResults", "results:TreeResult*" },
	{ "TextContent", "content:string" },
	{ "BytesContent", "content_b64:string" },
	{ "Workspace", "session_id:string open:boolean bytes:integer files:integer partial:boolean "
		       "used_at:number" },
	{ "WorkspaceList", "workspaces:Workspace*" },
	{ "FileDetails",
	  "name:string path:string is_dir:boolean size:integer? modified_at:string? "
	  "raw_path:string type:string mode:string link_target:string? etag:string" },
	{ "FileError", "error:string errno:integer? message:string" },
	{ "FileResult", "path:string entry:FileDetails? error:FileError? content_b64:string" },
	{ "FileResults", "results:FileResult*" },
	{ "FileList", "entries:FileDetails* truncated:boolean skipped:integer" },
	{ "FileMatch", "path:string raw_path:string line:integer column:integer length:integer "
		       "text:string cut:boolean" },
	{ "MatchList", "matches:FileMatch* truncated:boolean skipped:integer" },
	{ "FileDigest", "sha256:string size:integer etag:string replacements:integer" },
	{ "Unpacked", "entries:integer skipped:integer" },
	{ "Connection",
	  "id:string kind:string name:string address:string? account:string? runtime:string? "
	  "is_default:boolean has_token:boolean" },
	{ "Connections", "connections:Connection*" },
	{ "ScopeKey", "key:string" },
	{ "ScopeWorkspace",
	  "key:string scope:string backend:string agent:string conversation:string? owner:string? "
	  "connection_id:string? session_id:string? bytes:integer version:integer created_at:number "
	  "last_used_at:number" },
	{ "ScopeWorkspaces", "workspaces:ScopeWorkspace* total:integer" },
	{ "RemovedWorkspaces", "workspaces:integer" },
	{ "Document", "files:object directories:string*" },
	{ "BrowsedFile",
	  "path:string type:string size:integer? modified_at:number thumbnail:boolean" },
	{ "BrowsedFiles", "entries:BrowsedFile* truncated:boolean unreadable:string?" },
	{ "BrowsedContent", "path:string size:integer content_b64:string" },
	{ "Operation",
	  "id:integer created_at:number agent:string? run:string? key:string op:string target:string "
	  "detail:string ok:boolean duration_ms:integer" },
	{ "Operations", "operations:Operation* total:integer" },
	{ "OperationNames", "names:string*" },
	{ "Purge",
	  "connection_id:string session_id:string tries:integer error:string? created_at:number "
	  "next_at:number" },
	{ "Purges", "purges:Purge*" },
	{ "Ref", "provider:string id:string" },
	{ "RunConnection", "id:string kind:string address:string?" },
	{ "ScopeRun",
	  "run:string key:string backend:string session_scope:string tenant:string runtime:string? "
	  "include_execute:boolean attached:boolean lost:boolean ref:Ref connection:RunConnection?" },
	{ "RunUsage",
	  "wall_ms:number user_ms:number system_ms:number max_rss_bytes:integer oom:boolean" },
	{ "RunInfo",
	  "run_id:string state:string exit_code:integer? timed_out:boolean "
	  "output_limited:boolean stopped:boolean gone:boolean asked_at:number? "
	  "started_at:number? ended_at:number? stdout_bytes:integer stderr_bytes:integer "
	  "stdin_bytes:integer usage:RunUsage?" },
	{ "RunList", "runs:RunInfo*" },
	{ "RunBegun", "run_id:string state:string" },
	{ "RunInput", "stdin_bytes:integer" },
	{ "RunResult", "stdout:string stderr:string exit_code:integer? timed_out:boolean "
		       "output_limited:boolean output_limit:integer?" },
};

static void text(struct strbuf *out, const char *key, const char *v)
{
	json_put_key(out, key);
	json_put_string(out, v);
}

/* {"type":"string"} or {"$ref":"#/components/schemas/Health"} */
static void plain_type(struct strbuf *out, const char *type, size_t n)
{
	autobuf struct strbuf name = STRBUF_INIT;

	if (isupper((unsigned char)*type))
		strbuf_addstr(&name, "#/components/schemas/");
	strbuf_add(&name, type, n);
	json_open(out, '{');
	text(out, isupper((unsigned char)*type) ? "$ref" : "type", name.buf);
	json_close(out, '}');
}

static void shape_type(struct strbuf *out, const char *type, size_t n)
{
	char last = type[n - 1];

	if (last == '?') {
		json_open(out, '{');
		json_put_key(out, "anyOf");
		json_open(out, '[');
		plain_type(out, type, n - 1);
		json_put_raw(out, "{\"type\":\"null\"}");
		json_close(out, ']');
		json_close(out, '}');
	} else if (last == '*') {
		json_put_raw(out, "{\"type\":\"array\",\"items\":");
		plain_type(out, type, n - 1);
		json_close(out, '}');
	} else {
		plain_type(out, type, n);
	}
}

static void shape(struct strbuf *out, const char *fields)
{
	json_put_raw(out, "{\"type\":\"object\",\"properties\":{");
	while (*fields) {
		size_t n = strcspn(fields, " "), name = strcspn(fields, ":");

		json_put_string_n(out, fields, name);
		strbuf_addch(out, ':');
		shape_type(out, fields + name + 1, n - name - 1);
		fields += n + (fields[n] == ' ');
	}
	json_close(out, '}');
	json_close(out, '}');
}

/* ---- from the tables of fields ---- */

static void field_type(struct strbuf *out, const struct json_field *f)
{
	static const char *const types[] = {
		[JSON_KIND_STRING] = "{\"type\":\"string\"",
		[JSON_KIND_BOOL] = "{\"type\":\"boolean\"",
		[JSON_KIND_INT] = "{\"type\":\"integer\"",
		[JSON_KIND_FLOAT] = "{\"type\":\"number\"",
		[JSON_KIND_STRINGS] = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}",
		[JSON_KIND_ENVIRON] =
			"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}",
		[JSON_KIND_RUN_ID] = "{\"type\":\"string\"",
		[JSON_KIND_NAME] = "{\"type\":\"string\"",
		[JSON_KIND_PATH] = "{\"type\":\"string\"",
		[JSON_KIND_NAMES] = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}",
		[JSON_KIND_SIZE] = "{\"type\":\"string\"",
		[JSON_KIND_TABLE] = "{\"type\":\"object\"",
		[JSON_KIND_PATHS] = "{\"type\":\"array\",\"items\":{\"type\":\"string\"}",
		[JSON_KIND_SIGNAL] = "{\"type\":[\"string\",\"integer\"]",
	};
	bool nullable = f->flags & JSON_NULLABLE;

	if (nullable)
		json_put_raw(out, "{\"anyOf\":[");
	json_put_raw(out, types[f->kind]);
	if (json_kind_pattern(f->kind))
		text(out, "pattern", json_kind_pattern(f->kind));
	if (f->flags & JSON_ABOVE_ZERO)
		json_put_raw(out, "\"exclusiveMinimum\":0");
	if (f->flags & JSON_FROM_ZERO)
		json_put_raw(out, "\"minimum\":0");
	if (f->flags & JSON_FROM_ONE)
		json_put_raw(out, "\"minimum\":1");
	if (f->flags & JSON_NOT_EMPTY)
		json_put_raw(out, "\"minItems\":1");
	if (f->max) {
		json_put_key(out, f->kind == JSON_KIND_INT || f->kind == JSON_KIND_FLOAT
					  ? "maximum"
					  : "maxItems");
		json_put_int(out, f->max);
	}
	if (!nullable && f->help)
		text(out, "description", f->help);
	json_close(out, '}');
	if (!nullable)
		return;
	json_put_raw(out, "{\"type\":\"null\"}");
	json_close(out, ']');
	if (f->help)
		text(out, "description", f->help);
	json_close(out, '}');
}

static void request_body(struct strbuf *out, const struct json_field *fields)
{
	json_put_raw(out,
		     "\"requestBody\":{\"required\":true,\"content\":"
		     "{\"application/json\":{\"schema\":{\"type\":\"object\",\"properties\":{");
	for (const struct json_field *f = fields; f->name; f++) {
		json_put_key(out, f->name);
		field_type(out, f);
	}
	strbuf_addstr(out, "},\"required\":[");
	for (const struct json_field *f = fields; f->name; f++)
		if (f->flags & JSON_REQUIRED)
			json_put_string(out, f->name);
	strbuf_addstr(out, "]}}}}");
}

/* What is no JSON is taken as it comes: the bytes of a file, an archive. */
static void plain_body(struct strbuf *out)
{
	json_put_raw(out, "\"requestBody\":{\"required\":true,\"content\":"
			  "{\"application/octet-stream\":{\"schema\":"
			  "{\"type\":\"string\",\"format\":\"binary\"}}}}");
}

static void raw_json_body(struct strbuf *out)
{
	json_put_raw(out, "\"requestBody\":{\"required\":true,\"content\":"
			  "{\"application/json\":{\"schema\":{\"type\":\"object\"}}}}");
}

static void parameters(struct strbuf *out, const char *place, const struct json_field *fields)
{
	for (const struct json_field *f = fields; f && f->name; f++) {
		json_open(out, '{');
		text(out, "name", f->name);
		text(out, "in", place);
		json_put_key(out, "required");
		json_put_bool(out, f->flags & JSON_REQUIRED);
		json_put_key(out, "schema");
		field_type(out, f);
		json_close(out, '}');
	}
}

static void answers(struct strbuf *out, const struct route *r)
{
	json_put_raw(out, "\"responses\":{");
	if (r->upgrades) {
		json_put_raw(out, "\"101\":{\"description\":\"The protocol is garret-stream/1\"},"
				  "\"426\":{\"description\":\"Ask for the upgrade\"}");
	} else if (r->answer && strchr(r->answer, '/')) {
		json_put_raw(out, "\"200\":{\"description\":\"Done\",\"content\":{");
		json_put_key(out, r->answer);
		strbuf_addstr(out, "{\"schema\":{\"type\":\"string\",\"format\":\"binary\"}}}}");
	} else if (!r->answer) {
		json_put_raw(out, "\"204\":{\"description\":\"Done\"}");
	} else {
		json_put_raw(out, "\"200\":{\"description\":\"Done\",\"content\":"
				  "{\"application/json\":{\"schema\":");
		shape_type(out, r->answer, strlen(r->answer));
		strbuf_addstr(out, "}}}");
	}
	if (r->accepted) {
		json_put_raw(out, "\"202\":{\"description\":\"It goes on\",\"content\":"
				  "{\"application/json\":{\"schema\":");
		shape_type(out, r->accepted, strlen(r->accepted));
		strbuf_addstr(out, "}}}");
	}
	if (r->auth != ROUTE_OPEN)
		json_put_raw(out, "\"401\":{\"description\":\"Invalid or missing token\"},"
				  "\"403\":{\"description\":\"Not in the token's scope\"}");
	if (r->auth == ROUTE_SESSION)
		json_put_raw(out, "\"404\":{\"description\":\"No such session\"},"
				  "\"410\":{\"description\":\"The session has ended\"}");
	if (r->operation)
		json_put_raw(out, "\"400\":{\"description\":\"Something is wrong with it\"},"
				  "\"404\":{\"description\":\"It isn't there\"},"
				  "\"409\":{\"description\":\"It conflicts with what is there\"},"
				  "\"503\":{\"description\":\"Try again\"}");
	else if (r->strict)
		json_put_raw(out, "\"400\":{\"description\":\"An alias that isn't there\"},"
				  "\"507\":{\"description\":\"It can't be recorded; nothing "
				  "has changed\"}");
	if (r->params || r->query || r->body || r->auth == ROUTE_SESSION)
		json_put_raw(out, "\"422\":{\"description\":\"Invalid request\"}");
	json_close(out, '}');
}

static void operation(struct strbuf *out, const struct route *r)
{
	static const struct json_field session[] = {
		{ .name = "session_id", .kind = JSON_KIND_NAME, .flags = JSON_REQUIRED },
		{ .name = NULL },
	};

	json_put_key(out, strcmp(r->method, "GET") == 0    ? "get"
			  : strcmp(r->method, "POST") == 0 ? "post"
			  : strcmp(r->method, "PUT") == 0  ? "put"
							   : "delete");
	json_open(out, '{');
	text(out, "summary", r->summary);
	json_put_raw(out, "\"parameters\":[");
	if (r->auth == ROUTE_SESSION)
		parameters(out, "path", session);
	parameters(out, "path", r->params);
	parameters(out, "query", r->query);
	json_close(out, ']');
	if (r->body)
		request_body(out, r->body);
	else if (r->raw)
		raw_json_body(out);
	else if (r->unread)
		plain_body(out);
	answers(out, r);
	if (r->auth != ROUTE_OPEN)
		json_put_raw(out, "\"security\":[{\"SandboxToken\":[]}]");
	json_close(out, '}');
}

/* The pages that describe the service are no part of it; who wants those finds them at /. */
static bool is_page(const struct route *r)
{
	return r->handle == openapi_document || r->handle == openapi_page;
}

static bool seen_before(const struct route *r)
{
	for (const struct route *q = routes; q < r; q++)
		if (!strcmp(q->path, r->path))
			return true;
	return false;
}

static char *make_document(void)
{
	struct strbuf out = STRBUF_INIT;

	json_put_raw(&out, "{\"openapi\":\"3.1.0\",\"info\":{\"title\":\"sandboxd\",\"summary\":"
			   "\"Isolated workspaces for AI agents\",\"version\":\"" GARRET_VERSION
			   "\"},\"paths\":{");
	for (const struct route *r = routes; r->path; r++) {
		if (is_page(r) || seen_before(r))
			continue;
		json_put_key(&out, r->path);
		json_open(&out, '{');
		for (const struct route *q = r; q->path; q++)
			if (!strcmp(q->path, r->path))
				operation(&out, q);
		json_close(&out, '}');
	}
	strbuf_addstr(&out, "},\"components\":{\"schemas\":{");
	for (size_t i = 0; i < ARRAY_SIZE(shapes); i++) {
		json_put_key(&out, shapes[i].name);
		shape(&out, shapes[i].fields);
	}
	strbuf_addstr(&out, "},\"securitySchemes\":{\"SandboxToken\":{\"type\":\"apiKey\","
			    "\"in\":\"header\",\"name\":\"X-Sandbox-Token\"}}}}");
	return strbuf_detach(&out, NULL);
}

void openapi_document(struct call *c)
{
	if (!c->api->openapi)
		c->api->openapi = make_document();
	http_answer(c->rq, 200, WIRE_JSON, c->api->openapi, strlen(c->api->openapi));
}

void openapi_page(struct call *c)
{
	static const char page[] =
		"<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
		"<title>sandboxd</title></head><body>\n<h1>sandboxd</h1>\n"
		"<p>Isolated workspaces for AI agents, served by Garret.</p>\n"
		"<p>The routes are described in <a href=\"/openapi.json\">openapi.json</a>.</p>\n"
		"</body></html>\n";

	http_answer_static(c->rq, 200, "text/html; charset=utf-8", page, sizeof(page) - 1);
}
