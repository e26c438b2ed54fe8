#include "cli/cmd_file.h"

#include <stdio.h>

#include "cli/show.h"

bool file_command_begin(struct file_command *c, const struct command *command, int argc,
			char **argv, int min, int max)
{
	struct garret_error err = { 0 };
	int used;

	*c = (struct file_command){ 0 };
	used = opt_parse_all(command->table, argc, argv, &c->opts, &err);
	if (used >= 0 && c->opts.help) {
		c->status = cli_help(command);
		return false;
	}
	c->words = used < 0 ? NULL : argv + used;
	c->n_words = argc - used;
	if (used >= 0 && (c->n_words < min || (max && c->n_words > max)))
		used = garret_fail(&err, GARRET_INVALID, "usage: garret %s %s", command->name,
				   command->synopsis);
	if (used < 0 || files_prepare(&c->files, c->opts.url, &err) < 0) {
		c->status = cli_fail(&err);
		return false;
	}
	return true;
}

void file_command_each(struct file_command *c, file_command_fn *fn, void *ctx)
{
	for (int i = 0; i < c->n_words; i++) {
		autoplace struct place p = PLACE_INIT;
		struct garret_error err = { 0 };
		int rc = files_place(&c->files, c->words[i], &p, &err);

		if (rc == 0)
			rc = fn(c, &p, ctx, &err);
		if (rc < 0)
			file_command_failed(c, &err);
	}
}

void file_command_failed(struct file_command *c, const struct garret_error *err)
{
	int status;

	/* In the order in which things happened, when both go to one place. */
	(void)fflush(stdout);
	status = cli_fail(err);
	if (!c->status)
		c->status = status;
}

int file_command_end(struct file_command *c)
{
	struct garret_error err = { 0 };

	if (show_flush(&err) < 0)
		file_command_failed(c, &err);
	files_release(&c->files);
	return c->status;
}

void file_command_partial(struct file_command *c, const struct place *p, json_t *answer)
{
	const long long skipped = json_integer_value(json_object_get(answer, "skipped"));
	const bool more = json_is_true(json_object_get(answer, "truncated"));
	struct garret_error err = { 0 };

	/* A directory that can't be read is a bound as well: there may be more in it. */
	if (skipped)
		(void)garret_fail(&err, GARRET_DENIED, "%s: %lld of it could not be read", p->text,
				  skipped);
	else if (more)
		(void)garret_fail(&err, GARRET_TOO_LARGE, "%s: there is more than this", p->text);
	if (err.code)
		file_command_failed(c, &err);
	json_decref(answer);
}

void file_command_left_out(struct file_command *c, const struct place *p, const json_t *answer)
{
	long long skipped = json_integer_value(json_object_get(answer, "skipped"));
	struct garret_error err = { 0 };

	if (!skipped)
		return;
	(void)garret_fail(&err, GARRET_NOT_REGULAR,
			  "%s: %lld of the archive can't be there and was left out", p->text,
			  skipped);
	file_command_failed(c, &err);
}
