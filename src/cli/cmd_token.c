/* garret token ...: the service tokens of a daemon. Secrets are on standard output only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/show.h"

struct token_opts {
	const char *url, *tenant, *expires, *overlap;
	bool read_only, json, help;
};

#define TOK(f, n, l, k, a, h) OPT(struct token_opts, f, n, l, k, a, h)
/* clang-format off */
#define COMMON                                                                            \
	TOK(url, "url", 0, OPT_STRING, "URL", "the daemon: http://HOST:PORT or unix:PATH"), \
	TOK(json, "json", 0, OPT_FLAG, NULL, "print the daemon's answer as it is"),         \
	TOK(help, "help", 'h', OPT_FLAG, NULL, "show this"), { 0 }

static const struct opt add_table[] = {
	TOK(tenant,    "tenant",    0, OPT_STRING, "LABEL", "only what is of this tenant"),
	TOK(read_only, "read-only", 0, OPT_FLAG, NULL, "may look and nothing else"),
	TOK(expires,   "expires",   0, OPT_STRING, "TIME", "ends after this long: 12h, 30d (never)"),
	COMMON
};
static const struct opt rotate_table[] = {
	TOK(overlap,   "overlap",   0, OPT_STRING, "TIME", "the old one lives on for this long: 1h (not at all)"),
	COMMON
};
static const struct opt plain_table[] = {
	COMMON
};
/* clang-format on */

/* Seconds, or with a unit: 90s, 15m, 12h, 30d, 8w. */
static int parse_time(const char *option, const char *text, double *ret, struct garret_error *err)
{
	static const struct {
		char unit;
		double seconds;
	} units[] = { { 's', 1 }, { 'm', 60 }, { 'h', 3600 }, { 'd', 86400 }, { 'w', 604800 } };
	size_t n = strlen(text);
	autofree char *number = xstrndup(text, n ? n - 1 : 0);

	for (size_t i = 0; n && i < ARRAY_SIZE(units); i++)
		if (text[n - 1] == units[i].unit && parse_seconds(number, ret)) {
			*ret *= units[i].seconds;
			return 0;
		}
	if (parse_seconds(text, ret))
		return 0;
	return garret_fail(err, GARRET_INVALID,
			   "--%s takes a time such as 12h or 30d, not \"%.40s\"", option, text);
}

/* Options, the one word (a name) that must follow, and the daemon; false: *status is all. */
static bool begin(const struct command *c, int argc, char **argv, int words, struct token_opts *o,
		  struct remote *r, const char **ret_name, int *status)
{
	struct garret_error err = { 0 };
	int used = opt_parse_all(c->table, argc, argv, o, &err);

	if (used >= 0 && o->help) {
		struct command shown = *c;
		char name[32];

		(void)snprintf(name, sizeof(name), "token %s", c->name);
		shown.name = name;
		*status = cli_help(&shown);
		return false;
	}
	if (used >= 0 && argc - used > words)
		used = garret_fail(&err, GARRET_INVALID, "token %s takes %s, not also \"%.80s\"",
				   c->name, words ? "one name" : "no words", argv[used + words]);
	if (used >= 0 && argc - used < words)
		used = garret_fail(&err, GARRET_INVALID, "token %s needs the name of a token",
				   c->name);
	if (used >= 0 && words && !name_valid(argv[used]))
		used = garret_fail(&err, GARRET_INVALID, "\"%.80s\" is no name for a token",
				   argv[used]);
	if (used < 0 || remote_find(r, o->url, &err) < 0) {
		*status = cli_fail(&err);
		return false;
	}
	*ret_name = argv[used];
	return true;
}

/* Ask for a token, and print its secret. */
static int show_minted(const struct remote *r, const char *path, json_t *body, bool as_json)
{
	struct garret_error err = { 0 };
	json_t *answer = NULL;
	int rc = remote_call(r, "POST", path, body, &answer, &err);

	json_decref(body);
	if (rc < 0)
		return cli_fail(&err);
	if (as_json)
		show_json(answer);
	else
		(void)puts(json_string_value(json_object_get(answer, "token")));
	json_decref(answer);
	/* Nobody can be told it again. */
	return show_flush(&err) < 0 ? cli_fail(&err) : 0;
}

static int add_main(int argc, char **argv)
{
	struct token_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	const char *name;
	double expires = 0;
	json_t *body;
	int status = 0;

	if (!begin(&token_commands[0], argc, argv, 1, &o, &r, &name, &status))
		return status;
	if (o.expires && parse_time("expires", o.expires, &expires, &err) < 0)
		return cli_fail(&err);
	body = json_pack("{s:s, s:s?, s:b}", "name", name, "tenant", o.tenant, "read_only",
			 o.read_only);
	if (!o.tenant && !o.read_only)
		(void)json_object_set_new(body, "scope", json_string("all"));
	if (o.expires)
		(void)json_object_set_new(body, "expires_in", json_real(expires));
	return show_minted(&r, "/tokens", body, o.json);
}

static const char *when(json_t *at, char out[32])
{
	time_t t = (time_t)json_number_value(at);
	struct tm tm;

	(void)snprintf(out, 32, "-");
	if (json_is_number(at) && localtime_r(&t, &tm))
		(void)strftime(out, 32, "%Y-%m-%d %H:%M", &tm);
	return out;
}

static const char *state_of(json_t *t)
{
	if (json_is_true(json_object_get(t, "active")))
		return "active";
	return json_is_number(json_object_get(t, "revoked_at")) ? "revoked" : "expired";
}

static void print_token(json_t *t)
{
	char created[32], expires[32], used[32];

	(void)printf("%-24s %-24s %-8s %-16s %-16s %s\n",
		     json_string_value(json_object_get(t, "name")),
		     json_string_value(json_object_get(t, "scope")), state_of(t),
		     when(json_object_get(t, "created_at"), created),
		     when(json_object_get(t, "expires_at"), expires),
		     when(json_object_get(t, "last_used_at"), used));
}

static int list_main(int argc, char **argv)
{
	struct token_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	const char *name;
	json_t *answer = NULL, *t;
	int status = 0;
	size_t i;

	if (!begin(&token_commands[1], argc, argv, 0, &o, &r, &name, &status))
		return status;
	if (remote_call(&r, "GET", "/tokens", NULL, &answer, &err) < 0)
		return cli_fail(&err);
	if (o.json) {
		show_json(answer);
	} else {
		if (show_on_terminal())
			(void)printf("%-24s %-24s %-8s %-16s %-16s %s\n", "NAME", "SCOPE", "STATE",
				     "CREATED", "EXPIRES", "LAST USED");
		json_array_foreach(json_object_get(answer, "tokens"), i, t) print_token(t);
	}
	json_decref(answer);
	return show_flush(&err) < 0 ? cli_fail(&err) : 0;
}

static int revoke_main(int argc, char **argv)
{
	struct token_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	const char *name;
	char path[160];
	int status = 0;

	if (!begin(&token_commands[2], argc, argv, 1, &o, &r, &name, &status))
		return status;
	(void)snprintf(path, sizeof(path), "/tokens/%s", name);
	return remote_call(&r, "DELETE", path, NULL, NULL, &err) < 0 ? cli_fail(&err) : 0;
}

static int rotate_main(int argc, char **argv)
{
	struct token_opts o = { 0 };
	struct garret_error err = { 0 };
	struct remote r;
	const char *name;
	double overlap = 0;
	char path[160];
	int status = 0;

	if (!begin(&token_commands[3], argc, argv, 1, &o, &r, &name, &status))
		return status;
	if (o.overlap && parse_time("overlap", o.overlap, &overlap, &err) < 0)
		return cli_fail(&err);
	(void)snprintf(path, sizeof(path), "/tokens/%s/rotate", name);
	return show_minted(&r, path, json_pack("{s:f}", "overlap_seconds", overlap), o.json);
}

const struct command token_commands[] = {
	{ .name = "add",
	  .synopsis = "[OPTIONS] NAME",
	  .help = "Mint a service token and print it; it isn't shown again.",
	  .table = add_table,
	  .main = add_main },
	{ .name = "list",
	  .synopsis = "[OPTIONS]",
	  .help = "List the tokens, without their secrets.",
	  .table = plain_table,
	  .main = list_main },
	{ .name = "revoke",
	  .synopsis = "[OPTIONS] NAME",
	  .help = "End a token at once.",
	  .table = plain_table,
	  .main = revoke_main },
	{ .name = "rotate",
	  .synopsis = "[OPTIONS] NAME",
	  .help = "Print a new token in place of one.",
	  .table = rotate_table,
	  .main = rotate_main },
	{ 0 },
};

static int token_main(int argc, char **argv)
{
	return cli_subcommand(&command_token, argc, argv);
}

const struct command command_token = {
	.name = "token",
	.synopsis = "add|list|revoke|rotate [OPTIONS] [NAME]",
	.help = "Mint, list, revoke and rotate service tokens of a daemon.",
	.subcommands = token_commands,
	.main = token_main,
};
