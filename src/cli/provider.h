/*
 * Commands on a workspace of any provider, through libgarret instead of a daemon:
 *
 *	garret ls --provider state --set file=/tmp/doc.json :/
 *	garret exec --provider native --set name=work : -- make
 *
 * A place is ID:PATH; without an ID it is the workspace that the provider's options name.
 */
#ifndef CLI_PROVIDER_H
#define CLI_PROVIDER_H

#include <stdbool.h>

#include "cli/cli.h"
#include "garret/garret.h"

/* Is there a --provider among the words of a command, in front of "--"? */
bool provider_asked(int argc, char **argv);
/* argv[0] is the command's name; the exit status. */
int provider_main(int argc, char **argv);

struct provider_opts {
	const char *provider, *cwd, *include, *old, *new;
	struct opt_list set, env;
	double timeout;
	uint64_t count;
	bool help, json, details, recursive, force, parents, all;
	bool hidden, no_ignore, ignore_case, fixed, stdin_too;
};

struct provider_command {
	struct provider_opts opts;
	struct garret_context *context;
	struct garret_provider *provider;
	char **words; /* NULL-terminated */
	int n_words;
	int status; /* of the first thing that failed */
};

/* The workspace of an id ("" is none); NULL when it can't be, which is said. */
struct garret_workspace *provider_workspace(struct provider_command *c, const char *id);
/* That of ID:PATH, with *ret_path in the word. */
struct garret_workspace *provider_place(struct provider_command *c, char *word,
					const char **ret_path);
/* Say what failed, remember its status. */
void provider_failed(struct provider_command *c, const char *what, const struct garret_error *err);

/* provider_files.c, provider_run.c: false when there is no such command. */
bool provider_file_command(struct provider_command *c, const char *name);
bool provider_run_command(struct provider_command *c, const char *name);

#endif
