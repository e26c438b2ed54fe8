/* garret cat, garret tar: streams between a session and our standard streams. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "cli/cmd_file.h"
#include "cli/show.h"
#include "cli/transfer.h"

/* clang-format off */
static const struct opt cat_table[] = {
	FILE_OPTS_END
};
static const struct opt tar_table[] = {
	FILE_OPT_JSON("with x: print the daemon's answer as it is"),
	FILE_OPTS_END
};
/* clang-format on */

static int cat_main(int argc, char **argv);
static int tar_main(int argc, char **argv);

const struct command command_cat = {
	.name = "cat",
	.synopsis = "ID:PATH...",
	.help = "Print files of a session, of any size and content.",
	.table = cat_table,
	.main = cat_main,
};

const struct command command_tar = {
	.name = "tar",
	.synopsis = "[--json] c|x ID:PATH",
	.help = "Write a tree as a tar archive to standard output (c), or unpack one from standard input (x).",
	.table = tar_table,
	.main = tar_main,
};

static int cat_place(struct file_command *c, const struct place *p, void *ctx,
		     struct garret_error *err)
{
	return transfer_get(&c->files, p, ctx, NULL, NULL, err);
}

static int cat_main(int argc, char **argv)
{
	int out = STDOUT_FILENO;
	struct sink to = { sink_fd, &out };
	struct file_command c;

	if (!file_command_begin(&c, &command_cat, argc, argv, 1, 0))
		return c.status;
	file_command_each(&c, cat_place, &to);
	return file_command_end(&c);
}

static int pack(struct file_command *c, const struct place *p, struct garret_error *err)
{
	const struct files_request q = { .method = "GET", .route = "tar", .length = HTTP1_NO_BODY };
	struct progress progress;
	int out = STDOUT_FILENO;
	const struct sink to = { sink_fd, &out };
	int rc;

	if (isatty(STDOUT_FILENO))
		return garret_fail(err, GARRET_INVALID,
				   "tar c: an archive is nothing for a terminal: redirect it");
	rc = files_begin(&c->files, p, &q, err);
	if (rc == 0)
		rc = files_answer(&c->files, p, NULL, err);
	if (rc < 0)
		return rc;
	progress_begin(&progress, p->text, -1);
	rc = transfer_rest(&c->files, p, &to, &progress, err);
	progress_end(&progress);
	return rc;
}

static int unpack(struct file_command *c, const struct place *p, struct garret_error *err)
{
	const struct files_request q = { .method = "PUT",
					 .route = "tar",
					 .query = "&parents=1",
					 .type = "application/x-tar",
					 .length = HTTP1_CHUNKED };
	struct progress progress;
	json_t *answer = NULL;
	int rc;

	if (isatty(STDIN_FILENO))
		return garret_fail(err, GARRET_INVALID,
				   "tar x: an archive comes on standard input: redirect it");
	progress_begin(&progress, p->text, -1);
	rc = transfer_put(&c->files, p, &q, STDIN_FILENO, "standard input", &progress, err);
	progress_end(&progress);
	if (rc == 0)
		rc = files_read_json(&c->files, &answer, err);
	if (rc == 0 && c->opts.json)
		show_json(answer);
	if (rc == 0)
		file_command_left_out(c, p, answer);
	json_decref(answer);
	return rc;
}

static int tar_main(int argc, char **argv)
{
	struct file_command c;
	autoplace struct place p = PLACE_INIT;
	struct garret_error err = { 0 };
	bool packs;
	int rc;

	if (!file_command_begin(&c, &command_tar, argc, argv, 2, 2))
		return c.status;
	packs = !strcmp(c.words[0], "c");
	rc = !packs && strcmp(c.words[0], "x") != 0
		     ? garret_fail(&err, GARRET_INVALID,
				   "tar: c packs and x unpacks, not \"%.60s\"", c.words[0])
		     : files_place(&c.files, c.words[1], &p, &err);
	if (rc == 0)
		rc = packs ? pack(&c, &p, &err) : unpack(&c, &p, &err);
	if (rc < 0)
		file_command_failed(&c, &err);
	return file_command_end(&c);
}
