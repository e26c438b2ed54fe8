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
	/* argv[0] is the command's name. */
	int (*main)(int argc, char **argv);
};

extern const struct command command_run, command_serve, command_doctor, command_session,
	command_exec;
/* Its subcommands have tables of their own (cmd_session.c). */
extern const struct command session_commands[];

/* Print "garret: MESSAGE" on stderr; returns the exit status of the code. */
int cli_fail(const struct garret_error *err);
/* The same with EXIT_SANDBOX. */
int cli_no_sandbox(const struct garret_error *err);
/* Print a command's help; returns 0. */
int cli_help(const struct command *c);

/* A program that was installed (or built) beside this one. Free it. */
char *cli_sibling(const char *program);

#endif
