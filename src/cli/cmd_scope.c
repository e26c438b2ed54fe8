/* garret scope ...: whose files an agent sees, and where they are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "cli/org.h"
#include "cli/show.h"

#define TOKEN_MAX 4096

/* clang-format off */
static const struct opt plain_table[] = {
	ORG_COMMON
};
static const struct opt list_table[] = {
	ORG_RANGE, ORG_COMMON
};
static const struct opt rm_table[] = {
	ORG_OPT(conversation, "conversation", OPT_STRING, "ID", "all of this conversation"),
	ORG_COMMON
};
static const struct opt key_table[] = {
	ORG_OPT(agent, "agent", OPT_STRING, "ID", "needed"),
	ORG_OPT(run, "run", OPT_STRING, "ID", "needed"),
	ORG_OPT(scope, "scope", OPT_STRING, "SCOPE", "conversation, run, channel, user or agent"),
	ORG_OPT(conversation, "conversation", OPT_STRING, "ID", "of scope conversation"),
	ORG_OPT(channel, "channel", OPT_STRING, "NAME", "of scope channel"),
	ORG_OPT(user, "user", OPT_STRING, "NAME", "of scope user"),
	ORG_OPT(connection, "connection", OPT_STRING, "ID", "of a session; without: of a document"),
	ORG_COMMON
};
static const struct opt connect_table[] = {
	ORG_OPT(kind, "kind", OPT_STRING, "KIND", "sandboxd (as when not given), native, docker, daytona"),
	ORG_OPT(address, "address", OPT_STRING, "URL", "where it is"),
	ORG_OPT(account, "account", OPT_STRING, "NAME", "of a cloud account"),
	ORG_OPT(runtime, "runtime", OPT_STRING, "ALIAS", "the usual one"),
	ORG_OPT(token_file, "token-file", OPT_STRING, "FILE", "its token is in there (-: standard input)"),
	ORG_OPT(is_default, "default", OPT_FLAG, NULL, "for what names none"),
	ORG_OPT(connection, "connection", OPT_STRING, "ID", "change this one"),
	ORG_COMMON
};
/* clang-format on */

/* ---- workspaces ---- */

static void show_workspace(const json_t *w)
{
	char used[32];

	(void)printf("%-64s %-12s %-7s %10lld  %s\n", org_text(w, "key"), org_text(w, "scope"),
		     org_text(w, "backend"),
		     (long long)json_integer_value(json_object_get(w, "bytes")),
		     org_time(w, "last_used_at", used));
}

static void show_workspaces(const json_t *answer)
{
	const json_t *list = json_object_get(answer, "workspaces");
	size_t i;
	json_t *w;

	if (show_on_terminal())
		(void)printf("%-64s %-12s %-7s %10s  %s\n", "KEY", "SCOPE", "BACKEND", "BYTES",
			     "LAST USED");
	json_array_foreach(list, i, w) show_workspace(w);
}

static int list_main(int argc, char **argv)
{
	autobuf struct strbuf path = STRBUF_INIT;
	struct org_command c;

	if (!org_begin(&c, "scope", &scope_commands[0], argc, argv, 0, 0))
		return c.status;
	org_path(&path, &c, "workspaces", "");
	org_range(&path, &c.opts);
	return org_show(&c, "GET", path.buf, NULL, show_workspaces);
}

/* Each field in a line, as any object of the daemon can be shown. */
static void show_fields(const json_t *answer)
{
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)answer, name, v)
	{
		autofree char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);

		(void)printf("%-14s ", name);
		show_text(text ? json_is_null(v) ? "-" : text : json_string_value(v));
		(void)puts("");
	}
}

static int show_main(int argc, char **argv)
{
	return org_simple("scope", &scope_commands[1], argc, argv, "GET", "workspaces/%",
			  show_fields);
}

static void show_removed(const json_t *answer)
{
	(void)printf("%lld\n",
		     (long long)json_integer_value(json_object_get(answer, "workspaces")));
}

static int rm_main(int argc, char **argv)
{
	autobuf struct strbuf path = STRBUF_INIT;
	struct garret_error err = { 0 };
	struct org_command c;

	if (!org_begin(&c, "scope", &scope_commands[2], argc, argv, 0, 1))
		return c.status;
	if (!c.opts.conversation == !c.n_words) {
		(void)garret_fail(&err, GARRET_INVALID,
				  "scope rm takes a KEY or --conversation ID, one of them");
		return cli_fail(&err);
	}
	if (c.opts.conversation && !*c.opts.conversation) {
		(void)garret_fail(&err, GARRET_INVALID, "--conversation: it is empty");
		return cli_fail(&err);
	}
	if (c.n_words)
		org_path(&path, &c, "workspaces/%", c.words[0]);
	else
		org_path(&path, &c, "conversations/%", c.opts.conversation);
	return org_show(&c, "DELETE", path.buf, NULL, show_removed);
}

static void show_key(const json_t *answer)
{
	(void)puts(org_text(answer, "key"));
}

static int key_main(int argc, char **argv)
{
	autobuf struct strbuf path = STRBUF_INIT;
	struct org_command c;

	if (!org_begin(&c, "scope", &scope_commands[3], argc, argv, 0, 0))
		return c.status;
	org_path(&path, &c, "key", "");
	org_query(&path, "agent", c.opts.agent);
	org_query(&path, "run", c.opts.run);
	org_query(&path, "scope", c.opts.scope);
	org_query(&path, "conversation", c.opts.conversation);
	org_query(&path, "channel", c.opts.channel);
	org_query(&path, "user", c.opts.user);
	org_query(&path, "connection_id", c.opts.connection);
	return org_show(&c, "GET", path.buf, NULL, show_key);
}

/* ---- what is still to be removed ---- */

static void show_purges(const json_t *answer)
{
	const json_t *list = json_object_get(answer, "purges");
	char next[32];
	size_t i;
	json_t *p;

	json_array_foreach(list, i, p)(void)
		printf("%-64s %-32s %4lld %-14s %s\n", org_text(p, "session_id"),
		       org_text(p, "connection_id"),
		       (long long)json_integer_value(json_object_get(p, "tries")),
		       org_text(p, "error"), org_time(p, "next_at", next));
}

static int purges_main(int argc, char **argv)
{
	return org_simple("scope", &scope_commands[4], argc, argv, "GET", "purges", show_purges);
}

/* ---- connections ---- */

static void show_connections(const json_t *answer)
{
	const json_t *list = json_object_get(answer, "connections");
	size_t i;
	json_t *v;

	if (show_on_terminal())
		(void)printf("%-32s %-8s %-20s %s\n", "ID", "KIND", "NAME", "ADDRESS");
	json_array_foreach(list, i, v)
	{
		(void)printf("%-32s %-8s ", org_text(v, "id"), org_text(v, "kind"));
		show_text(org_text(v, "name"));
		(void)printf(" ");
		show_text(org_text(v, "address"));
		(void)puts(json_is_true(json_object_get(v, "is_default")) ? " (default)" : "");
	}
}

static int connections_main(int argc, char **argv)
{
	return org_simple("scope", &scope_commands[5], argc, argv, "GET", "connections",
			  show_connections);
}

/* Never an argument: everybody sees those. */
static int read_token(const char *file, char ret[TOKEN_MAX + 2], struct garret_error *err)
{
	ssize_t n = org_read(file, ret, TOKEN_MAX + 1, err);

	if (n < 0)
		return garret_wrap((int)n, err, "--token-file");
	ret[n] = '\0';
	ret[strcspn(ret, "\r\n")] = '\0';
	return 0;
}

static void set(json_t *body, const char *name, const char *value)
{
	if (value)
		(void)json_object_set_new(body, name, json_string(value));
}

static void show_id(const json_t *answer)
{
	(void)puts(org_text(answer, "id"));
}

static int connect_main(int argc, char **argv)
{
	autobuf struct strbuf path = STRBUF_INIT;
	char token[TOKEN_MAX + 2] = "";
	struct garret_error err = { 0 };
	struct org_command c;
	json_t *body;

	if (!org_begin(&c, "scope", &scope_commands[6], argc, argv, 0, 1))
		return c.status;
	if (!c.opts.connection && !c.n_words) {
		(void)garret_fail(&err, GARRET_INVALID, "scope connect NAME: it needs a name");
		return cli_fail(&err);
	}
	if (c.opts.token_file && read_token(c.opts.token_file, token, &err) < 0)
		return cli_fail(&err);
	body = json_object();
	set(body, "name", c.n_words ? c.words[0] : NULL);
	set(body, "kind", c.opts.kind ? c.opts.kind : c.opts.connection ? NULL : "sandboxd");
	set(body, "address", c.opts.address);
	set(body, "account", c.opts.account);
	set(body, "runtime", c.opts.runtime);
	set(body, "token", c.opts.token_file ? token : NULL);
	explicit_bzero(token, sizeof(token));
	if (c.opts.is_default)
		(void)json_object_set_new(body, "is_default", json_true());
	org_path(&path, &c, c.opts.connection ? "connections/%" : "connections", c.opts.connection);
	return org_show(&c, c.opts.connection ? "PUT" : "POST", path.buf, body, show_id);
}

static int disconnect_main(int argc, char **argv)
{
	return org_simple("scope", &scope_commands[7], argc, argv, "DELETE", "connections/%", NULL);
}

const struct command scope_commands[] = {
	{ "list", "[--limit N]", "Workspaces, newest use first", list_table, NULL, list_main },
	{ "show", "KEY", "One workspace", plain_table, NULL, show_main },
	{ "rm", "KEY | --conversation ID", "Delete it, and what it recorded on a host", rm_table,
	  NULL, rm_main },
	{ "key", "--agent ID --run ID [--scope SCOPE] ...", "The key that says who shares files",
	  key_table, NULL, key_main },
	{ "purges", "", "What is still to be removed on hosts", plain_table, NULL, purges_main },
	{ "connections", "", "Where environments are", plain_table, NULL, connections_main },
	{ "connect", "NAME --address URL --token-file FILE", "Register a connection, or change one",
	  connect_table, NULL, connect_main },
	{ "disconnect", "ID", "Forget a connection and its token", plain_table, NULL,
	  disconnect_main },
	{ NULL, NULL, NULL, NULL, NULL, NULL },
};

static int scope_main(int argc, char **argv)
{
	return cli_subcommand(&command_scope, argc, argv);
}

const struct command command_scope = {
	"scope", "COMMAND",      "Whose files an agent sees: workspaces, connections",
	NULL,    scope_commands, scope_main
};
