/* What the commands of `garret` share: one table of commands, one way to fail. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>

#include "base/error.h"
#include "base/opt.h"

#define EXIT_TIMEOUT 124 /* as timeout(1) */
#define EXIT_SANDBOX 125 /* the sandbox could not be had; nothing ran */

struct command {
	const char *name;
	const char *synopsis; /* behind the name */
	const char *help;
	const struct opt *table;
	const struct command *subcommands; /* NULL: none; else it has no table of its own */
	/* argv[0] is the command's name. */
	int (*main)(int argc, char **argv);
};

extern const struct command command_run, command_serve, command_doctor, command_session,
	command_exec, command_workspace, command_token, command_conform, command_scope, command_doc,
	command_log;
/* Files of a session. */
extern const struct command command_ls, command_cat, command_put, command_get, command_cp,
	command_mv, command_rm, command_mkdir, command_stat, command_find, command_grep,
	command_edit, command_tar;
extern const struct command session_commands[], workspace_commands[], token_commands[],
	scope_commands[], doc_commands[];

/* Print "garret: MESSAGE" on stderr, as one line of harmless text; returns the exit status of the code. */
int cli_fail(const struct garret_error *err);
/* The same with EXIT_SANDBOX. */
int cli_no_sandbox(const struct garret_error *err);
/* Print a command's help; returns 0. */
int cli_help(const struct command *c);
/* Call the one that argv[1] names; without one, say which there are. */
int cli_subcommand(const struct command *c, int argc, char **argv);

#endif
