/* Options of a sandbox, and the capability as data: one sentence, seven tools, the rules of paths. */
#include <jansson.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/mem.h"
#include "net/json.h"

static const char *const backends[] = {
	[GARRET_APP_STATE] = "state",
	[GARRET_APP_SERVICE] = "service",
};

const char *garret_app_backend_name(enum garret_app_backend b)
{
	return (unsigned)b < ARRAY_SIZE(backends) ? backends[b] : "unknown";
}

int app_backend_parse(const char *name, enum garret_app_backend *ret, struct garret_error *err)
{
	for (unsigned i = 0; i < ARRAY_SIZE(backends); i++)
		if (!strcmp(backends[i], name)) {
			*ret = (enum garret_app_backend)i;
			return 0;
		}
	return garret_fail(err, GARRET_INVALID, "backend: state or service");
}

void garret_app_sandbox_defaults(struct garret_app_sandbox *ret)
{
	*ret = (struct garret_app_sandbox){ .include_execute = true };
}

static int parse_text(const char *name, const json_t *v, size_t most, const char **ret,
		      struct garret_error *err)
{
	*ret = json_string_value(v);
	if (!*ret || strlen(*ret) != json_string_length(v))
		return garret_fail(err, GARRET_INVALID, "%s: text is wanted", name);
	return app_check_text(name, *ret, 1, most, err);
}

static int parse_option(const char *name, const json_t *v, struct garret_app_sandbox *ret,
			struct garret_error *err)
{
	const bool backend = !strcmp(name, "backend"), scope = !strcmp(name, "session_scope"),
		   connection = !strcmp(name, "connection_id"), runtime = !strcmp(name, "runtime");
	const char *text;
	int rc;

	if (!strcmp(name, "include_execute")) {
		ret->include_execute = json_is_true(v);
		return json_is_boolean(v)
			       ? 0
			       : garret_fail(err, GARRET_INVALID, "include_execute: true or false");
	}
	if (!backend && !scope && !connection && !runtime)
		return garret_fail(err, GARRET_INVALID,
				   "%.40s: there is no such option; there are backend, "
				   "connection_id, session_scope, runtime, include_execute",
				   name);
	rc = parse_text(name, v, GARRET_APP_NAME - 1, &text, err);
	if (rc < 0)
		return rc;
	if (backend)
		return app_backend_parse(text, &ret->backend, err);
	if (scope)
		return garret_app_scope_parse(text, &ret->session_scope, err);
	if (connection)
		return app_id("connection_id", text, ret->connection_id, err);
	app_copy(ret->runtime, sizeof(ret->runtime), text);
	return 0;
}

int garret_app_sandbox_parse(const char *json, struct garret_app_sandbox *ret,
			     struct garret_error *err)
{
	json_t *v = json_loads(json, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL), *value;
	const char *name;
	int rc = 0;

	garret_app_sandbox_defaults(ret);
	if (!json_is_object(v))
		rc = garret_fail(err, GARRET_INVALID, "the options of a sandbox: a JSON object");
	json_object_foreach(v, name, value) if (rc == 0 && !json_is_null(value)) rc =
		parse_option(name, value, ret, err);
	json_decref(v);
	return rc;
}

static void put_text(struct strbuf *out, const char *name, const char *text)
{
	json_put_key(out, name);
	json_put_string(out, *text ? text : NULL);
}

char *garret_app_sandbox_format(const struct garret_app_sandbox *s)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	put_text(&out, "backend", garret_app_backend_name(s->backend));
	put_text(&out, "connection_id", s->connection_id);
	put_text(&out, "session_scope", garret_app_scope_name(s->session_scope));
	put_text(&out, "runtime", s->runtime);
	json_put_key(&out, "include_execute");
	json_put_bool(&out, s->include_execute);
	json_close(&out, '}');
	return strbuf_detach(&out, NULL);
}

/* What must not be read or changed, whatever else is allowed. */
#define DENY(pattern) "{\"pattern\":\"" pattern "\",\"action\":\"deny\"}"
#define SECRETS                                                                                                                    \
	DENY("**/.env")                                                                                                            \
	"," DENY("**/.env.*") "," DENY("**/*.pem") "," DENY("**/*.key") "," DENY("**/*.crt") "," DENY("**/credentials*") "," DENY( \
		"**/secrets*") "," DENY("**/*secret*") "," DENY("**/*password*") "," DENY("**/.aws/**") "," DENY("**/.ssh/**") "," DENY("**/.gnupg/**")
#define SYSTEM                                                                                     \
	DENY("/etc/**")                                                                            \
	"," DENY("/var/**") "," DENY("/usr/**") "," DENY("/bin/**") "," DENY("/sbin/**") "," DENY( \
		"/boot/**") "," DENY("/sys/**") "," DENY("/proc/**")
#define RULES "{\"default\":\"allow\",\"rules\":[" SECRETS "," SYSTEM "]}"
#define TOOL(name, effects) "{\"name\":\"" name "\",\"side_effects\":" effects "}"

const char *garret_app_catalogue(void)
{
	return "{\"id\":\"sandbox\",\"name\":\"Files & shell\",\"permission\":\"sandbox:execute\","
	       "\"summary\":\"A workspace of its own, where the agent reads, searches, writes and "
	       "edits files and runs commands.\","
	       "\"tools\":[" TOOL("ls", "false") "," TOOL("read_file", "false") "," TOOL("glob", "false") "," TOOL(
		       "grep",
		       "false") "," TOOL("write_file",
					 "false") "," TOOL("edit_file",
							   "false") "," TOOL("execute",
									     "true") "],"
										     "\"console\":{\"profile\":\"agent\",\"images\":true,\"documents\":true,"
										     "\"ask_fallback\":\"deny\"},"
										     "\"permissions\":{\"default\":\"allow\",\"operations\":{\"read\":" RULES
										     ",\"write\":" RULES
										     ",\"edit\":" RULES
										     "}}}";
}
