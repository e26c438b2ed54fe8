/* garret workspace ...: what the daemon keeps of sessions, open or not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cmd_file.h"
#include "cli/show.h"

/* clang-format off */
static const struct opt list_table[] = {
	FILE_OPT_JSON("one JSON object a line"),
	FILE_OPTS_END
};
static const struct opt plain_table[] = {
	FILE_OPTS_END
};
/* clang-format on */

/* The tables of subcommands name themselves without the command. */
static bool begin(struct file_command *c, const struct command *command, int argc, char **argv,
		  int min, int max)
{
	struct command shown = *command;
	char name[32];

	(void)snprintf(name, sizeof(name), "workspace %s", command->name);
	shown.name = name;
	return file_command_begin(c, &shown, argc, argv, min, max);
}

/* ---- list, rm ---- */

static void show_head(void)
{
	if (show_on_terminal())
		(void)printf("%-24s %-5s %12s %10s  %s\n", "WORKSPACE", "OPEN", "BYTES", "FILES",
			     "LAST USED");
}

static int show_kept(void *ctx, json_t *item, struct garret_error *err)
{
	const struct file_command *c = ctx;
	time_t used = (time_t)json_number_value(json_object_get(item, "used_at"));
	const char *id = json_string_value(json_object_get(item, "session_id"));
	char when[32] = "-";
	struct tm tm;

	(void)err;
	if (c->opts.json) {
		show_json(item);
		return 0;
	}
	if (used && localtime_r(&used, &tm))
		(void)strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
	(void)printf("%-24s %-5s %12lld %10lld%c %s\n", id ? id : "?",
		     json_is_true(json_object_get(item, "open")) ? "yes" : "no",
		     (long long)json_integer_value(json_object_get(item, "bytes")),
		     (long long)json_integer_value(json_object_get(item, "files")),
		     json_is_true(json_object_get(item, "partial")) ? '+' : ' ', when);
	return 0;
}

static int list_main(int argc, char **argv)
{
	struct file_command c;
	struct files_list l = { .path = "/workspaces", .item = show_kept, .ctx = &c };
	struct garret_error err = { 0 };

	if (!begin(&c, &workspace_commands[0], argc, argv, 0, 0))
		return c.status;
	if (c.n_words)
		(void)garret_fail(&err, GARRET_INVALID, "workspace list takes no words");
	else if (!c.opts.json)
		show_head();
	if (err.code || files_list_any(&c.files, &l, NULL, &err) < 0)
		file_command_failed(&c, &err);
	return file_command_end(&c);
}

static int rm_main(int argc, char **argv)
{
	struct file_command c;

	if (!begin(&c, &workspace_commands[1], argc, argv, 1, 0))
		return c.status;
	for (int i = 0; i < c.n_words; i++) {
		autofree char *path = xasprintf("/workspaces/%s", c.words[i]);
		struct garret_error err = { 0 };
		int rc = name_valid(c.words[i])
				 ? remote_call(&c.files.remote, "DELETE", path, NULL, NULL, &err)
				 : garret_fail(&err, GARRET_INVALID, "\"%.80s\" is no session id",
					       c.words[i]);

		if (rc < 0)
			file_command_failed(&c, &err);
	}
	return file_command_end(&c);
}

/* ---- ls, tree, cat ---- */

/* ID or ID:PATH; the archive's routes take paths below the work directory, as JSON. */
static int kept_place(const char *word, struct place *ret, struct garret_error *err)
{
	autofree char *with_colon = strchr(word, ':') ? xstrdup(word) : xasprintf("%s:", word);
	int rc = place_parse(with_colon, ret, err);

	if (rc == 0 && !ret->path)
		ret->path = xstrdup(*ret->typed ? ret->typed : ".");
	if (rc == 0 && !utf8_valid(ret->path, strlen(ret->path)))
		rc = garret_fail(err, GARRET_INVALID,
				 "%s: of a closed session only names in UTF-8 can be asked for",
				 ret->text);
	return rc;
}

static int show_entry(void *ctx, json_t *item, struct garret_error *err)
{
	const struct file_command *c = ctx;
	autoentry struct entry e = { 0 };
	int rc;

	if (c->opts.json) {
		show_json(item);
		return 0;
	}
	rc = entry_parse(item, &e, err);
	if (rc < 0)
		return rc;
	show_text(e.path);
	(void)puts(e.type == 'd' ? "/" : "");
	return 0;
}

static int list_kept(struct file_command *c, const char *word, const char *op,
		     struct garret_error *err)
{
	autoplace struct place p = PLACE_INIT;
	autofree char *route = NULL;
	struct files_list l = { .at = &p, .item = show_entry, .ctx = c };
	json_t *rest = NULL;
	int rc = kept_place(word, &p, err);

	if (rc < 0)
		return rc;
	route = xasprintf("/workspaces/%s/%s", p.id, op);
	l.path = route;
	l.body = json_pack("{s:s}", "path", p.path);
	if (!strcmp(op, "tree")) {
		(void)json_object_set_new(l.body, "max_depth", json_integer(64));
		(void)json_object_set_new(l.body, "max_entries", json_integer(100000));
	}
	rc = files_list_any(&c->files, &l, &rest, err);
	if (rc == 0)
		file_command_partial(c, &p, rest);
	return rc;
}

static int list_each(int argc, char **argv, const struct command *command)
{
	struct file_command c;

	if (!begin(&c, command, argc, argv, 1, 0))
		return c.status;
	for (int i = 0; i < c.n_words; i++) {
		struct garret_error err = { 0 };

		if (list_kept(&c, c.words[i], command->name, &err) < 0)
			file_command_failed(&c, &err);
	}
	return file_command_end(&c);
}

static int ls_main(int argc, char **argv)
{
	return list_each(argc, argv, &workspace_commands[2]);
}

static int tree_main(int argc, char **argv)
{
	return list_each(argc, argv, &workspace_commands[3]);
}

static int cat_kept(struct file_command *c, const char *word, struct garret_error *err)
{
	autoplace struct place p = PLACE_INIT;
	autofree char *route = NULL, *text = NULL;
	json_t *body, *answer = NULL;
	const char *content;
	size_t n = 0;
	int rc = kept_place(word, &p, err);

	if (rc < 0)
		return rc;
	route = xasprintf("/workspaces/%s/read_bytes", p.id);
	body = json_pack("{s:s}", "path", p.path);
	rc = remote_call(&c->files.remote, "POST", route, body, &answer, err);
	json_decref(body);
	if (rc < 0)
		return garret_wrap(rc, err, "%s", p.text);
	content = json_string_value(json_object_get(answer, "content_b64"));
	text = content ? xstrdup(content) : NULL;
	json_decref(answer);
	if (!text || !show_base64(text, &n))
		return garret_fail(err, GARRET_PROTOCOL, "%s: the answer has no content", p.text);
	return write_full(STDOUT_FILENO, text, n) < 0
		       ? garret_fail_errno(err, "write standard output")
		       : 0;
}

static int cat_main(int argc, char **argv)
{
	struct file_command c;

	if (!begin(&c, &workspace_commands[4], argc, argv, 1, 0))
		return c.status;
	for (int i = 0; i < c.n_words; i++) {
		struct garret_error err = { 0 };

		if (cat_kept(&c, c.words[i], &err) < 0)
			file_command_failed(&c, &err);
	}
	return file_command_end(&c);
}

const struct command workspace_commands[] = {
	{ .name = "list",
	  .synopsis = "[--json]",
	  .help = "List what is kept, with its sizes.",
	  .table = list_table,
	  .main = list_main },
	{ .name = "rm",
	  .synopsis = "ID...",
	  .help = "Delete what is kept of sessions that aren't open.",
	  .table = plain_table,
	  .main = rm_main },
	{ .name = "ls",
	  .synopsis = "[--json] ID[:PATH]...",
	  .help = "List directories.",
	  .table = list_table,
	  .main = ls_main },
	{ .name = "tree",
	  .synopsis = "[--json] ID[:PATH]...",
	  .help = "List directories with what is below.",
	  .table = list_table,
	  .main = tree_main },
	{ .name = "cat",
	  .synopsis = "ID:PATH...",
	  .help = "Print files.",
	  .table = plain_table,
	  .main = cat_main },
	{ 0 },
};

static int workspace_main(int argc, char **argv)
{
	return cli_subcommand(&command_workspace, argc, argv);
}

const struct command command_workspace = {
	.name = "workspace",
	.synopsis = "list|rm|ls|tree|cat [OPTIONS] [ID[:PATH]...]",
	.help = "List, show and delete what is kept of sessions, open or closed.",
	.subcommands = workspace_commands,
	.main = workspace_main,
};
