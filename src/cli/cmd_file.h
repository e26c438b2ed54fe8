/* What the file commands share: their options, and how they begin and end. */
#ifndef CLI_CMD_FILE_H
#define CLI_CMD_FILE_H

#include "cli/cli.h"
#include "cli/files.h"

struct file_opts {
	const char *url, *include, *old, *new, *old_file, *new_file;
	uint64_t count;
	bool json, help, details, recursive, force, parents, all;
	bool hidden, no_ignore, ignore_case, fixed, directories, number, files_only, count_lines;
};

#define FILE_OPT(f, n, l, k, a, h) OPT(struct file_opts, f, n, l, k, a, h)
/* clang-format off */
#define FILE_OPTS_END                                                                          \
	FILE_OPT(url,  "url",   0,  OPT_STRING, "URL", "the daemon: http://HOST:PORT or unix:PATH"), \
	FILE_OPT(help, "help", 'h', OPT_FLAG, NULL, "show this"),                                  \
	{ 0 }
#define FILE_OPT_JSON(what) FILE_OPT(json, "json", 0, OPT_FLAG, NULL, what)
/* clang-format on */

struct file_command {
	struct file_opts opts;
	struct files files;
	char **words; /* NULL-terminated */
	int n_words;
	int status; /* the exit status: that of the first thing that failed */
};

/*
 * Options, min to max words (max 0: any number), the daemon.  False: it ends
 * here with c->status.
 */
bool file_command_begin(struct file_command *c, const struct command *command, int argc,
			char **argv, int min, int max);
/* fn for each word, with its place; what fails is said, and the others' turn comes. */
typedef int file_command_fn(struct file_command *c, const struct place *p, void *ctx,
			    struct garret_error *err);
void file_command_each(struct file_command *c, file_command_fn *fn, void *ctx);
/* Say what failed and go on. */
void file_command_failed(struct file_command *c, const struct garret_error *err);
/* Returns the exit status. */
int file_command_end(struct file_command *c);

/* "N could not be read" and "there is more" of a list's answer; takes it. */
void file_command_partial(struct file_command *c, const struct place *p, json_t *answer);

/* What an answer to an archive says that isn't in the session now. */
void file_command_left_out(struct file_command *c, const struct place *p, const json_t *answer);

#endif
