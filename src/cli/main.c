/* garret: one binary, a table of commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/provider.h"
#include "cli/show.h"

/* clang-format off */
static const struct command *const commands[] = {
	&command_run, &command_exec, &command_session, &command_ls, &command_cat, &command_put,
	&command_get, &command_cp, &command_mv, &command_rm, &command_mkdir, &command_stat,
	&command_find, &command_grep, &command_edit, &command_tar, &command_workspace,
	&command_token, &command_scope, &command_doc, &command_log, &command_serve, &command_doctor, &command_conform,
	NULL
};
/* clang-format on */

int cli_fail(const struct garret_error *err)
{
	autobuf struct strbuf text = STRBUF_INIT;

	/* Messages have names in them, and a session may have chosen those. */
	show_escape(&text, err->msg, strlen(err->msg));
	(void)fprintf(stderr, "garret: %s\n", text.buf);
	return garret_code_exit(err->code);
}

int cli_no_sandbox(const struct garret_error *err)
{
	(void)cli_fail(err);
	return EXIT_SANDBOX;
}

int cli_help(const struct command *c)
{
	autobuf struct strbuf out = STRBUF_INIT;

	strbuf_addf(&out, "Usage: garret %s %s\n\n%s\n\n", c->name, c->synopsis, c->help);
	if (c->table)
		opt_help(c->table, &out);
	(void)fputs(out.buf, stdout);
	return 0;
}

int cli_subcommand(const struct command *c, int argc, char **argv)
{
	const bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
	FILE *to = help ? stdout : stderr;

	for (const struct command *s = c->subcommands; argc > 1 && s->name; s++)
		if (!strcmp(argv[1], s->name))
			return s->main(argc - 1, argv + 1);
	if (argc > 1 && !help)
		(void)fprintf(to, "garret: %s has no command \"%.60s\"\n", c->name, argv[1]);
	(void)fprintf(to, "Usage: garret %s COMMAND [OPTIONS]\n\n%s\n\n", c->name, c->help);
	for (const struct command *s = c->subcommands; s->name; s++)
		(void)fprintf(to, "  %-8s %s\n", s->name, s->help);
	return help ? 0 : 2;
}

static int usage(FILE *to)
{
	(void)fputs(
		"Usage: garret COMMAND [OPTIONS]\n\nIsolated workspaces for AI agents.\n\nCommands:\n",
		to);
	for (const struct command *const *c = commands; *c; c++)
		(void)fprintf(to, "  %-10s %s\n", (*c)->name, (*c)->help);
	(void)fputs(
		"  completion Print completion for a shell: bash\n"
		"\n`garret COMMAND --help` shows the options of a command, `garret --version` the\n"
		"version. With --provider NAME the commands for sessions and files work without a daemon\n"
		"(garret ls --provider native --help). The manual is garret(1).\n",
		to);
	return to == stdout ? 0 : 2;
}

static void complete_table(const char *name, const struct opt *table)
{
	(void)printf("    %s) words=\"", name);
	for (; table && table->name; table++)
		(void)printf(" --%s", table->name);
	(void)printf("\" ;;\n");
}

static void complete_subcommands(const struct command *c)
{
	(void)printf("    %s) words=\"", c->name);
	for (const struct command *s = c->subcommands; s->name; s++)
		(void)printf("%s ", s->name);
	(void)printf("\" ;;\n");
	for (const struct command *s = c->subcommands; s->name; s++) {
		autofree char *name = xasprintf("%s-%s", c->name, s->name);

		complete_table(name, s->table);
	}
}

/* For bash, from the same tables as --help. */
static int completion(int argc, char **argv)
{
	if (argc == 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		(void)fputs(
			"Usage: garret completion bash\n\n"
			"Print completion for a shell, as in: source <(garret completion bash)\n",
			stdout);
		return 0;
	}
	if (argc != 2 || strcmp(argv[1], "bash") != 0) {
		(void)fputs("garret: completion takes the name of a shell: bash\n", stderr);
		return 2;
	}
	(void)puts("_garret() {\n  local words cmd=${COMP_WORDS[1]}\n"
		   "  case $cmd in session|workspace|token|scope|doc)\n"
		   "    [ \"$COMP_CWORD\" -gt 2 ] && cmd=\"$cmd-${COMP_WORDS[2]}\" ;;\n  esac\n"
		   "  case $cmd in");
	for (const struct command *const *c = commands; *c; c++) {
		if ((*c)->subcommands)
			complete_subcommands(*c);
		else
			complete_table((*c)->name, (*c)->table);
	}
	(void)puts("    completion) words=bash ;;");
	(void)puts("  esac\n  if [ \"$COMP_CWORD\" = 1 ]; then");
	(void)printf("    words=\"");
	for (const struct command *const *c = commands; *c; c++)
		(void)printf("%s ", (*c)->name);
	(void)puts(
		"completion\"\n  fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\n"
		"complete -o default -F _garret garret");
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return usage(stderr);
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
		return usage(stdout);
	if (!strcmp(argv[1], "--version")) {
		(void)puts("garret " GARRET_VERSION);
		return 0;
	}
	if (!strcmp(argv[1], "completion"))
		return completion(argc - 1, argv + 1);
	if (provider_asked(argc, argv))
		return provider_main(argc - 1, argv + 1);
	for (const struct command *const *c = commands; *c; c++)
		if (!strcmp(argv[1], (*c)->name))
			return (*c)->main(argc - 1, argv + 1);
	(void)fprintf(stderr, "garret: no command \"%.60s\" (see garret --help)\n", argv[1]);
	return 2;
}
