#include "cli/provider.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/show.h"

/* clang-format off */
#define P(f, n, l, k, a, h) OPT(struct provider_opts, f, n, l, k, a, h)
static const struct opt table[] = {
	P(provider,  "provider",  0,   OPT_STRING,  "NAME", "native, docker, sandboxd or state"),
	P(set,       "set",       's', OPT_LIST,    "NAME=VALUE", "an option of the provider (garret-providers(7))"),
	P(timeout,   "timeout",   0,   OPT_SECONDS, "SECONDS", "run, exec: a time limit"),
	P(env,       "env",       'e', OPT_LIST,    "NAME=VALUE", "run, exec: a variable"),
	P(cwd,       "work-dir",  'w', OPT_STRING,  "PATH", "run, exec: where it begins"),
	P(stdin_too, "interactive", 'i', OPT_FLAG,  NULL, "run, exec: with our standard input"),
	P(details,   "long",      'l', OPT_FLAG,    NULL, "ls: with type, mode and size"),
	P(recursive, "recursive", 'r', OPT_FLAG,    NULL, "ls: everything below; rm: directories as well; cp: taken for granted"),
	P(recursive, "tree",      'R', OPT_FLAG,    NULL, "ls: the same"),
	P(force,     "force",     'f', OPT_FLAG,    NULL, "rm: what is missing is fine"),
	P(parents,   "parents",   'p', OPT_FLAG,    NULL, "mkdir: taken for granted"),
	P(include,   "include",   0,   OPT_STRING,  "GLOB", "grep: only files of such names"),
	P(hidden,    "hidden",    0,   OPT_FLAG,    NULL, "find, grep: hidden names as well"),
	P(no_ignore, "no-ignore", 0,   OPT_FLAG,    NULL, "find, grep: what .gitignore names as well"),
	P(ignore_case, "ignore-case", 0, OPT_FLAG,  NULL, "find, grep: without case"),
	P(fixed,     "fixed",     'F', OPT_FLAG,    NULL, "grep: plain text"),
	P(count,     "max",       0,   OPT_NUMBER,  "N", "find, grep: at most so many"),
	P(old,       "old",       0,   OPT_STRING,  "TEXT", "edit: what is replaced"),
	P(new,       "new",       0,   OPT_STRING,  "TEXT", "edit: by what"),
	P(all,       "all",       0,   OPT_FLAG,    NULL, "edit: everywhere"),
	P(json,      "json",      0,   OPT_FLAG,    NULL, "run, exec: at the end, one JSON line on stderr says how it ended"),
	P(help,      "help",      'h', OPT_FLAG,    NULL, "show this"),
	{ 0 },
};
/* clang-format on */

static bool is_program(const char *name)
{
	return !strcmp(name, "run") || !strcmp(name, "exec");
}

bool provider_asked(int argc, char **argv)
{
	struct provider_opts o = { 0 };

	/* conform and doctor have their own. */
	if (argc < 2 || !strcmp(argv[1], "conform"))
		return false;
	/* What stands behind the id or the program is the program's, also without a `--`. */
	if (is_program(argv[1]) && opt_parse(table, argc - 1, argv + 1, &o, NULL) >= 0)
		return o.provider != NULL;
	for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (!strcmp(argv[i], "--provider") || !strncmp(argv[i], "--provider=", 11))
			return true;
	return false;
}

void provider_failed(struct provider_command *c, const char *what, const struct garret_error *err)
{
	struct garret_error e = *err;

	if (what && *what)
		(void)garret_wrap(0, &e, "%s", what);
	(void)cli_fail(&e);
	if (!c->status)
		c->status = garret_code_exit((int)err->code);
}

struct garret_workspace *provider_workspace(struct provider_command *c, const char *id)
{
	struct garret_workspace *w = NULL;
	struct garret_error err = { 0 };
	struct garret_ref ref;
	int rc = 0;

	if (*id)
		rc = garret_ref_make(&ref, garret_provider_name(c->provider), id, &err);
	if (rc == 0)
		rc = garret_provider_attach(c->provider, *id ? &ref : NULL, &w, &err);
	if (rc < 0)
		provider_failed(c, "", &err);
	return w;
}

struct garret_workspace *provider_place(struct provider_command *c, char *word,
					const char **ret_path)
{
	char *colon = strchr(word, ':');
	struct garret_error err = { 0 };

	if (!colon) {
		(void)garret_fail(&err, GARRET_INVALID,
				  "%.100s is no place: ID:PATH, or :PATH of what the options name",
				  word);
		provider_failed(c, "", &err);
		return NULL;
	}
	*colon = '\0';
	*ret_path = colon[1] ? colon + 1 : ".";
	return provider_workspace(c, word);
}

static int usage(const char *name)
{
	autobuf struct strbuf out = STRBUF_INIT;

	opt_help(table, &out);
	(void)printf(
		"Usage: garret %s --provider NAME [--set NAME=VALUE]... [OPTIONS] WORDS\n\n"
		"With --provider a command works on a workspace of that provider, without a daemon.\n\n%s",
		name, out.buf);
	return 0;
}

static void on_notice(void *data, const char *text)
{
	autobuf struct strbuf shown = STRBUF_INIT;

	(void)data;
	show_escape(&shown, text, strlen(text));
	(void)fprintf(stderr, "garret: %s\n", shown.buf);
}

static int set_option(struct garret_options *o, const char *setting, struct garret_error *err)
{
	const char *eq = strchr(setting, '=');
	autofree char *name = eq ? xstrndup(setting, (size_t)(eq - setting)) : NULL;

	if (!name || !*name)
		return garret_fail(err, GARRET_INVALID, "--set takes NAME=VALUE");
	return garret_options_set(o, name, eq + 1, err);
}

/* As the daemon's commands have it: what stands among arguments can be read by every user. */
static const char *token_of_environment(const struct provider_command *c)
{
	const char *token = getenv("SANDBOXD_TOKEN");

	if (strcmp(c->opts.provider, "sandboxd") != 0 || !token || !*token)
		return NULL;
	for (unsigned i = 0; i < c->opts.set.n; i++)
		if (!strncmp(c->opts.set.item[i], "token=", 6))
			return NULL;
	return token;
}

static int open_provider(struct provider_command *c, struct garret_error *err)
{
	autofree char *beside = program_beside("");
	const struct garret_context_options co = { .size = sizeof(co), .program_dir = beside };
	const char *token = token_of_environment(c);
	struct garret_options *o = NULL;
	int rc = garret_context_new(&co, &c->context, err);

	if (rc == 0)
		rc = garret_options_new(c->opts.provider, &o, err);
	for (const char *const *s = c->opts.set.item; rc == 0 && *s; s++)
		rc = set_option(o, *s, err);
	if (rc == 0 && token)
		rc = garret_options_set(o, "token", token, err);
	if (rc == 0) {
		garret_options_set_notice(o, on_notice, NULL);
		rc = garret_provider_open(c->context, o, &c->provider, err);
	}
	garret_options_free(o);
	return rc;
}

int provider_main(int argc, char **argv)
{
	struct provider_command c = { .status = 0 };
	struct garret_error err = { 0 };
	int used = is_program(argv[0]) ? opt_parse(table, argc, argv, &c.opts, &err)
				       : opt_parse_all(table, argc, argv, &c.opts, &err);

	if (used < 0)
		return cli_fail(&err);
	if (c.opts.help)
		return usage(argv[0]);
	c.words = argv + used;
	c.n_words = argc - used;
	if (open_provider(&c, &err) < 0)
		provider_failed(&c, "", &err);
	else if (!provider_file_command(&c, argv[0]) && !provider_run_command(&c, argv[0])) {
		(void)garret_fail(&err, GARRET_INVALID, "%s doesn't take --provider", argv[0]);
		provider_failed(&c, "", &err);
	}
	garret_provider_free(c.provider);
	garret_context_free(c.context);
	if (show_flush(&err) < 0)
		provider_failed(&c, "", &err);
	return c.status;
}
