/* garret session ...: sessions of a daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/show.h"

struct session_opts {
	const char *url, *runtime, *tenant;
	bool reuse, attach, purge, usage, json, help;
};

#define SES(f, n, l, k, a, h) OPT(struct session_opts, f, n, l, k, a, h)
/* clang-format off */
#define COMMON                                                                            \
	SES(url, "url", 0, OPT_STRING, "URL", "the daemon: http://HOST:PORT or unix:PATH"), \
	SES(json, "json", 0, OPT_FLAG, NULL, "print the daemon's answer as it is"),         \
	SES(help, "help", 'h', OPT_FLAG, NULL, "show this"), { 0 }

static const struct opt open_table[] = {
	SES(runtime, "runtime", 'r', OPT_STRING, "ALIAS", "an alias of the daemon's list"),
	SES(tenant,  "tenant",   0,  OPT_STRING, "LABEL", "count it for this tenant"),
	SES(reuse,   "reuse",    0,  OPT_FLAG, NULL, "attach when it is open, else make it"),
	SES(attach,  "attach",   0,  OPT_FLAG, NULL, "only to what is open or kept"),
	COMMON
};
static const struct opt list_table[] = {
	SES(usage,   "usage",   'u', OPT_FLAG, NULL, "with memory, CPU and processes"),
	COMMON
};
static const struct opt close_table[] = {
	SES(purge,   "purge",    0,  OPT_FLAG, NULL, "delete its files as well, also when it is closed already"),
	COMMON
};
static const struct opt common_table[] = { COMMON };
/* clang-format on */

enum { OPEN, LIST, SHOW, CLOSE, SLEEP, WAKE, EVENTS };

/* Options, the one word (an id) that must or may follow, and the daemon. */
static int begin(const struct command *c, int argc, char **argv, int words, struct session_opts *o,
		 struct remote *r, char ***rest, int *status)
{
	struct garret_error err = { 0 };
	int used = opt_parse_all(c->table, argc, argv, o, &err);

	if (used >= 0 && o->help) {
		struct command shown = *c;
		char name[32];

		(void)snprintf(name, sizeof(name), "session %s", c->name);
		shown.name = name;
		*status = cli_help(&shown);
		return 1;
	}
	if (used >= 0 && argc - used > 1)
		used = garret_fail(&err, GARRET_INVALID, "%s takes one session, not also \"%.80s\"",
				   c->name, argv[used + 1]);
	if (used >= 0 && argc - used < words)
		used = garret_fail(&err, GARRET_INVALID, "%s needs the id of a session", c->name);
	if (used >= 0 && words && !name_valid(argv[used]))
		used = garret_fail(&err, GARRET_INVALID, "\"%.80s\" is no session id", argv[used]);
	if (used < 0 || remote_find(r, o->url, &err) < 0) {
		*status = cli_fail(&err);
		return 1;
	}
	*rest = argv + used;
	return 0;
}

static const char *state_word(const json_t *s)
{
	const char *state = json_string_value(json_object_get(s, "state"));

	if (state && strcmp(state, "hibernated") == 0)
		return "asleep";
	return json_is_true(json_object_get(s, "alive")) ? "alive" : "dead";
}

static void print_session(json_t *s)
{
	json_t *u = json_object_get(s, "usage");
	double idle = json_number_value(json_object_get(s, "idle_seconds"));
	json_t *tenant = json_object_get(s, "tenant");

	(void)printf("%-24s %-10s %-10s %-6s %8.0fs",
		     json_string_value(json_object_get(s, "session_id")),
		     json_string_value(json_object_get(s, "runtime")),
		     json_is_string(tenant) ? json_string_value(tenant) : "-", state_word(s), idle);
	if (json_is_object(u))
		(void)printf(" %8.1f MiB %5.1f%% %4lld process%s",
			     json_number_value(json_object_get(u, "memory_bytes")) / 1048576.0,
			     json_number_value(json_object_get(u, "cpu_percent")),
			     (long long)json_integer_value(json_object_get(u, "pids")),
			     json_integer_value(json_object_get(u, "pids")) == 1 ? "" : "es");
	(void)putchar('\n');
}

/* For people: a line that says what is in the columns. */
static void print_head(bool usage)
{
	if (!show_on_terminal())
		return;
	(void)printf("%-24s %-10s %-10s %-6s %9s", "SESSION", "RUNTIME", "TENANT", "STATE", "IDLE");
	if (usage)
		(void)printf(" %12s %6s %s", "MEMORY", "CPU", "PROCESSES");
	(void)putchar('\n');
}

static int open_main(int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest;
	json_t *body, *answer = NULL;
	int status = 0, rc;

	if (begin(&session_commands[OPEN], argc, argv, 0, &o, &r, &rest, &status))
		return status;
	body = json_pack("{s:s?, s:s?, s:s?, s:b, s:b}", "session_id", rest[0], "runtime",
			 o.runtime, "tenant", o.tenant, "reuse", o.reuse, "attach", o.attach);
	rc = remote_call(&r, "POST", "/sessions", body, &answer, &err);
	json_decref(body);
	if (rc < 0)
		return cli_fail(&err);
	if (o.json)
		show_json(answer);
	else
		(void)puts(json_string_value(
			json_object_get(json_object_get(answer, "session"), "session_id")));
	json_decref(answer);
	return 0;
}

static int list_main(int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest;
	json_t *answer = NULL, *s;
	int status = 0;
	size_t i;

	if (begin(&session_commands[LIST], argc, argv, 0, &o, &r, &rest, &status))
		return status;
	if (remote_call(&r, "GET", o.usage ? "/sessions?usage=true" : "/sessions", NULL, &answer,
			&err) < 0)
		return cli_fail(&err);
	if (o.json) {
		show_json(answer);
	} else {
		print_head(o.usage);
		json_array_foreach(json_object_get(answer, "sessions"), i, s) print_session(s);
	}
	json_decref(answer);
	return 0;
}

static int show_main(int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest, path[160];
	json_t *answer = NULL;
	int status = 0;

	if (begin(&session_commands[SHOW], argc, argv, 1, &o, &r, &rest, &status))
		return status;
	(void)snprintf(path, sizeof(path), "/sessions/%s?usage=true", rest[0]);
	if (remote_call(&r, "GET", path, NULL, &answer, &err) < 0)
		return cli_fail(&err);
	if (o.json)
		show_json(answer);
	else
		print_session(answer);
	json_decref(answer);
	return 0;
}

/* It is closed already: what is kept of it is all that is left. err is of the first try. */
static int purge_kept(const struct remote *r, const char *id, struct garret_error *err)
{
	struct garret_error why = { 0 };
	char path[160];
	int rc;

	(void)snprintf(path, sizeof(path), "/workspaces/%s", id);
	rc = remote_call(r, "DELETE", path, NULL, NULL, &why);
	if (rc == -GARRET_NOT_FOUND)
		return rc; /* there is neither: the first answer says so */
	if (rc < 0)
		*err = why;
	return rc;
}

static int close_main(int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest, path[160];
	int status = 0, rc;

	if (begin(&session_commands[CLOSE], argc, argv, 1, &o, &r, &rest, &status))
		return status;
	(void)snprintf(path, sizeof(path), "/sessions/%s%s", rest[0], o.purge ? "?purge=true" : "");
	rc = remote_call(&r, "DELETE", path, NULL, NULL, &err);
	if (rc == -GARRET_NOT_FOUND && o.purge)
		rc = purge_kept(&r, rest[0], &err);
	return rc < 0 ? cli_fail(&err) : 0;
}

static int rest_main(const struct command *c, int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest, path[160];
	int status = 0;

	if (begin(c, argc, argv, 1, &o, &r, &rest, &status))
		return status;
	(void)snprintf(path, sizeof(path), "/v1/sessions/%s/%s", rest[0], c->name);
	return remote_call(&r, "POST", path, NULL, NULL, &err) < 0 ? cli_fail(&err) : 0;
}

static int sleep_main(int argc, char **argv)
{
	return rest_main(&session_commands[SLEEP], argc, argv);
}

static int wake_main(int argc, char **argv)
{
	return rest_main(&session_commands[WAKE], argc, argv);
}

/* What happened to sessions has a kind; what was done in one an operation, its target and its end. */
static void print_event(const json_t *e)
{
	static const char *const words[] = { "kind", "session_id", "op", "target", "detail" };
	time_t at = (time_t)json_number_value(json_object_get(e, "at"));
	struct tm t;
	char text[32] = "";

	if (localtime_r(&at, &t))
		(void)strftime(text, sizeof(text), "%F %T", &t);
	(void)printf("%s", text);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		const json_t *word = json_object_get(e, words[i]);

		if (!json_is_string(word) || !json_string_length(word))
			continue;
		(void)printf("  ");
		show_bytes(json_string_value(word), json_string_length(word));
	}
	if (json_is_false(json_object_get(e, "ok")))
		(void)printf("  FAILED");
	(void)putchar('\n');
}

static int events_main(int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest, path[160] = "/v1/events";
	json_t *answer = NULL, *e;
	int status = 0;
	size_t i;

	if (begin(&session_commands[EVENTS], argc, argv, 0, &o, &r, &rest, &status))
		return status;
	if (rest[0])
		(void)snprintf(path, sizeof(path), "/sessions/%s/events", rest[0]);
	if (remote_call(&r, "GET", path, NULL, &answer, &err) < 0)
		return cli_fail(&err);
	if (o.json)
		show_json(answer);
	else
		json_array_foreach(json_object_get(answer, "events"), i, e) print_event(e);
	json_decref(answer);
	return 0;
}

const struct command session_commands[] = {
	[OPEN] = { .name = "open",
		   .synopsis = "[OPTIONS] [ID]",
		   .help = "Open a session and print its id.",
		   .table = open_table,
		   .main = open_main },
	[LIST] = { .name = "list",
		   .synopsis = "[OPTIONS]",
		   .help = "List the open sessions.",
		   .table = list_table,
		   .main = list_main },
	[SHOW] = { .name = "show",
		   .synopsis = "[OPTIONS] ID",
		   .help = "Show one session, with what it uses.",
		   .table = list_table,
		   .main = show_main },
	[CLOSE] = { .name = "close",
		    .synopsis = "[OPTIONS] ID",
		    .help = "End a session; its files stay unless --purge.",
		    .table = close_table,
		    .main = close_main },
	[SLEEP] = { .name = "sleep",
		    .synopsis = "[OPTIONS] ID",
		    .help = "End its processes; the next request wakes it on the same files.",
		    .table = common_table,
		    .main = sleep_main },
	[WAKE] = { .name = "wake",
		   .synopsis = "[OPTIONS] ID",
		   .help = "Wake it before it is needed.",
		   .table = common_table,
		   .main = wake_main },
	[EVENTS] = { .name = "events",
		     .synopsis = "[OPTIONS] [ID]",
		     .help = "What was done in a session; without ID, what happened to all of them.",
		     .table = common_table,
		     .main = events_main },
	{ 0 },
};

static int session_main(int argc, char **argv)
{
	return cli_subcommand(&command_session, argc, argv);
}

const struct command command_session = {
	.name = "session",
	.synopsis = "open|list|show|close|sleep|wake|events [OPTIONS] [ID]",
	.help = "Open, list, show, close, put to sleep and wake sessions of a daemon.",
	.subcommands = session_commands,
	.main = session_main,
};
