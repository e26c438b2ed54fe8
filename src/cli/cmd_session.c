/* garret session ... and garret exec: sessions of a daemon. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote.h"

struct session_opts {
	const char *url, *runtime, *tenant;
	bool reuse, attach, purge, usage, json, help, tty, interactive;
	double timeout;
	struct opt_list env;
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
	SES(purge,   "purge",    0,  OPT_FLAG, NULL, "delete its files as well"),
	COMMON
};
static const struct opt exec_table[] = {
	SES(timeout, "timeout",  0,  OPT_SECONDS, "SECONDS", "stop the command after this long (exit 124)"),
	SES(env,     "env",     'e', OPT_LIST, "NAME=VALUE", "set a variable"),
	COMMON
};
/* clang-format on */

/* Options, the one word (an id) that must or may follow, and the daemon. */
static int begin(const struct command *c, int argc, char **argv, int words, struct session_opts *o,
		 struct remote *r, char ***rest, int *status)
{
	struct garret_error err = { 0 };
	int used = opt_parse(c->table, argc, argv, o, &err);

	if (used >= 0 && o->help) {
		*status = cli_help(c);
		return 1;
	}
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

static void print_json(json_t *doc)
{
	(void)json_dumpf(doc, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
	(void)putchar('\n');
}

static void print_session(json_t *s)
{
	json_t *u = json_object_get(s, "usage");
	double idle = json_number_value(json_object_get(s, "idle_seconds"));
	json_t *tenant = json_object_get(s, "tenant");

	(void)printf("%-24s %-10s %-10s %s %8.0fs", json_string_value(json_object_get(s, "session_id")),
		     json_string_value(json_object_get(s, "runtime")),
		     json_is_string(tenant) ? json_string_value(tenant) : "-",
		     json_is_true(json_object_get(s, "alive")) ? "alive" : "dead ", idle);
	if (json_is_object(u))
		(void)printf(" %8.1f MiB %5.1f%% %4lld processes",
			     json_number_value(json_object_get(u, "memory_bytes")) / 1048576.0,
			     json_number_value(json_object_get(u, "cpu_percent")),
			     (long long)json_integer_value(json_object_get(u, "pids")));
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

	if (begin(&session_commands[0], argc, argv, 0, &o, &r, &rest, &status))
		return status;
	body = json_pack("{s:s?, s:s?, s:s?, s:b, s:b}", "session_id", rest[0], "runtime", o.runtime, "tenant",
			 o.tenant, "reuse", o.reuse, "attach", o.attach);
	rc = remote_call(&r, "POST", "/sessions", body, &answer, &err);
	json_decref(body);
	if (rc < 0)
		return cli_fail(&err);
	if (o.json)
		print_json(answer);
	else
		(void)puts(json_string_value(json_object_get(json_object_get(answer, "session"), "session_id")));
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

	if (begin(&session_commands[1], argc, argv, 0, &o, &r, &rest, &status))
		return status;
	if (remote_call(&r, "GET", o.usage ? "/sessions?usage=true" : "/sessions", NULL, &answer, &err) < 0)
		return cli_fail(&err);
	if (o.json)
		print_json(answer);
	else
		json_array_foreach (json_object_get(answer, "sessions"), i, s)
			print_session(s);
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

	if (begin(&session_commands[2], argc, argv, 1, &o, &r, &rest, &status))
		return status;
	(void)snprintf(path, sizeof(path), "/sessions/%s?usage=true", rest[0]);
	if (remote_call(&r, "GET", path, NULL, &answer, &err) < 0)
		return cli_fail(&err);
	if (o.json)
		print_json(answer);
	else
		print_session(answer);
	json_decref(answer);
	return 0;
}

static int close_main(int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest, path[160];
	int status = 0;

	if (begin(&session_commands[3], argc, argv, 1, &o, &r, &rest, &status))
		return status;
	(void)snprintf(path, sizeof(path), "/sessions/%s%s", rest[0], o.purge ? "?purge=true" : "");
	if (remote_call(&r, "DELETE", path, NULL, NULL, &err) < 0)
		return cli_fail(&err);
	return 0;
}

const struct command session_commands[] = {
	{ "open", "[OPTIONS] [ID]", "Open a session and print its id.", open_table, open_main },
	{ "list", "[OPTIONS]", "List the open sessions.", list_table, list_main },
	{ "show", "[OPTIONS] ID", "Show one session, with what it uses.", list_table, show_main },
	{ "close", "[OPTIONS] ID", "End a session; its files stay unless --purge.", close_table, close_main },
	{ 0 },
};

static int session_main(int argc, char **argv)
{
	for (const struct command *c = session_commands; argc > 1 && c->name; c++)
		if (!strcmp(argv[1], c->name))
			return c->main(argc - 1, argv + 1);
	(void)fputs("Usage: garret session COMMAND [OPTIONS]\n\n", argc > 1 && !strcmp(argv[1], "--help") ? stdout : stderr);
	for (const struct command *c = session_commands; c->name; c++)
		(void)fprintf(argc > 1 && !strcmp(argv[1], "--help") ? stdout : stderr, "  %-8s %s\n", c->name, c->help);
	return argc > 1 && !strcmp(argv[1], "--help") ? 0 : 2;
}

const struct command command_session = {
	.name = "session",
	.synopsis = "open|list|show|close [OPTIONS] [ID]",
	.help = "Open, list, show and close sessions of a daemon.",
	.main = session_main,
};

/* ---- exec ---- */

static json_t *exec_request(const struct session_opts *o, char **argv, struct garret_error *err)
{
	json_t *body, *list = json_array(), *env = json_object();
	uint8_t random[16];
	char id[33];

	for (; *argv; argv++)
		if (json_array_append_new(list, json_string(*argv)) < 0)
			(void)garret_fail(err, GARRET_INVALID, "an argument isn't UTF-8");
	for (unsigned i = 0; i < o->env.n; i++) {
		const char *eq = strchr(o->env.item[i], '=');
		autofree char *name = eq ? xstrndup(o->env.item[i], (size_t)(eq - o->env.item[i])) : NULL;

		if (!eq || !*name || json_object_set_new(env, name, json_string(eq + 1)) < 0)
			(void)garret_fail(err, GARRET_INVALID, "--env takes NAME=VALUE, not \"%.100s\"", o->env.item[i]);
	}
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		(void)garret_fail_errno(err, "random bytes");
	hex_encode(random, sizeof(random), id);
	body = json_pack("{s:o, s:o, s:s}", "argv", list, "env", env, "run_id", id);
	if (o->timeout > 0)
		(void)json_object_set_new(body, "timeout_seconds", json_real(o->timeout));
	return body;
}

static int print_run(json_t *answer)
{
	static const char *const streams[] = { "stdout", "stderr" };

	for (int i = 0; i < 2; i++) {
		json_t *s = json_object_get(answer, streams[i]);

		(void)write_full(i + 1, json_string_value(s), json_string_length(s));
	}
	if (json_is_true(json_object_get(answer, "timed_out"))) {
		(void)fputs("garret: stopped: time limit\n", stderr);
		return EXIT_TIMEOUT;
	}
	if (json_is_true(json_object_get(answer, "output_limited"))) {
		(void)fprintf(stderr, "garret: stopped: more than %lld bytes of output\n",
			      (long long)json_integer_value(json_object_get(answer, "output_limit")));
		return garret_code_exit(GARRET_OUTPUT_LIMIT);
	}
	return (int)json_integer_value(json_object_get(answer, "exit_code"));
}

static int exec_main(int argc, char **argv)
{
	struct session_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	char **rest, path[160];
	json_t *body, *answer = NULL;
	int status = 0;

	if (begin(&command_exec, argc, argv, 1, &o, &r, &rest, &status))
		return status;
	(void)snprintf(path, sizeof(path), "/sessions/%s/run", rest[0]);
	rest++;
	if (*rest && !strcmp(*rest, "--"))
		rest++;
	if (!*rest)
		(void)garret_fail(&err, GARRET_INVALID, "exec: which command? garret exec ID -- CMD");
	body = exec_request(&o, rest, &err);
	if (err.code || remote_call(&r, "POST", path, body, &answer, &err) < 0) {
		json_decref(body);
		return cli_no_sandbox(&err);
	}
	if (o.json)
		print_json(answer);
	status = o.json ? 0 : print_run(answer);
	json_decref(body);
	json_decref(answer);
	return status;
}

const struct command command_exec = {
	.name = "exec",
	.synopsis = "[OPTIONS] ID -- CMD [ARG...]",
	.help = "Run a command in a session of a daemon.",
	.table = exec_table,
	.main = exec_main,
};
