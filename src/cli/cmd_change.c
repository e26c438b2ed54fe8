/* garret cp, mv, rm, mkdir, edit: changes inside of a session. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cmd_file.h"
#include "cli/show.h"

#define TEXT_MAX (8u * 1024 * 1024) /* of --old-file and --new-file */

/* clang-format off */
static const struct opt cp_table[] = {
	FILE_OPT(recursive, "recursive", 'r', OPT_FLAG, NULL, "a directory with what is in it, links as links"),
	FILE_OPTS_END
};
static const struct opt mv_table[] = {
	FILE_OPTS_END
};
static const struct opt rm_table[] = {
	FILE_OPT(recursive, "recursive", 'r', OPT_FLAG, NULL, "directories with what is in them"),
	FILE_OPT(force,     "force",     'f', OPT_FLAG, NULL, "what isn't there is no error"),
	FILE_OPTS_END
};
static const struct opt mkdir_table[] = {
	FILE_OPT(parents, "parents", 'p', OPT_FLAG, NULL, "make missing parents; one that exists is no error"),
	FILE_OPTS_END
};
static const struct opt edit_table[] = {
	FILE_OPT(old,      "old",      0, OPT_STRING, "TEXT", "what is replaced, exactly"),
	FILE_OPT(new,      "new",      0, OPT_STRING, "TEXT", "what takes its place"),
	FILE_OPT(old_file, "old-file", 0, OPT_STRING, "FILE", "the same from a file of the host, byte for byte"),
	FILE_OPT(new_file, "new-file", 0, OPT_STRING, "FILE", "the same from a file of the host, byte for byte"),
	FILE_OPT(all,      "all",     'a', OPT_FLAG, NULL, "every occurrence; else there must be one"),
	FILE_OPT(count,    "count",    0, OPT_NUMBER, "NUMBER", "there must be so many occurrences"),
	FILE_OPT_JSON("print the daemon's answer as it is"),
	FILE_OPTS_END
};
/* clang-format on */

static int cp_main(int argc, char **argv);
static int mv_main(int argc, char **argv);
static int rm_main(int argc, char **argv);
static int mkdir_main(int argc, char **argv);
static int edit_main(int argc, char **argv);

const struct command command_cp = {
	.name = "cp",
	.synopsis = "[-r] ID:PATH ID:PATH",
	.help = "Copy a file or a directory (-r) inside of a session.",
	.table = cp_table,
	.main = cp_main,
};
const struct command command_mv = {
	.name = "mv",
	.synopsis = "ID:PATH ID:PATH",
	.help = "Rename a file or a directory inside of a session.",
	.table = mv_table,
	.main = mv_main,
};
const struct command command_rm = {
	.name = "rm",
	.synopsis = "[-r] [-f] ID:PATH...",
	.help = "Remove files and empty directories of a session.",
	.table = rm_table,
	.main = rm_main,
};
const struct command command_mkdir = {
	.name = "mkdir",
	.synopsis = "[-p] ID:PATH...",
	.help = "Make directories in a session.",
	.table = mkdir_table,
	.main = mkdir_main,
};
const struct command command_edit = {
	.name = "edit",
	.synopsis = "--old TEXT --new TEXT [--all] [--count NUMBER] ID:PATH",
	.help = "Replace text in a file of a session; every other byte stays.",
	.table = edit_table,
	.main = edit_main,
};

/* ---- cp, mv ---- */

static int two_places(struct file_command *c, const char *what, struct place p[2],
		      struct garret_error *err)
{
	int rc;

	for (int i = 0; i < 2; i++)
		if (!place_is(c->words[i]))
			return garret_fail(
				err, GARRET_INVALID,
				"%s: %s works inside of one session: to and from the host use put and get",
				c->words[i], what);
	rc = files_place(&c->files, c->words[0], &p[0], err);
	if (rc == 0)
		rc = files_place(&c->files, c->words[1], &p[1], err);
	if (rc == 0 && strcmp(p[0].id, p[1].id) != 0)
		rc = garret_fail(
			err, GARRET_INVALID,
			"%s: %s works inside of one session: from one to another use get, then put",
			p[1].text, what);
	return rc;
}

/* Of two paths the daemon's message names the one that it is about. */
static int two_paths(int argc, char **argv, const struct command *command, const char *op)
{
	struct file_command c;
	struct place p[2] = { PLACE_INIT, PLACE_INIT };
	struct garret_error err = { 0 };
	autofree char *name = NULL;
	int rc;

	if (!file_command_begin(&c, command, argc, argv, 2, 2))
		return c.status;
	rc = two_places(&c, command->name, p, &err);
	if (rc == 0)
		rc = files_is_directory(&c.files, &p[1], &err);
	if (rc > 0) {
		name = place_name(&p[0]);
		if (name)
			place_append(&p[1], name);
		rc = 0;
	}
	if (rc == 0)
		rc = files_call(&c.files, &p[0], &p[1], op,
				c.opts.recursive ? json_pack("{s:b}", "recursive", 1) : NULL, NULL,
				&err);
	if (rc < 0)
		file_command_failed(&c, &err);
	place_release(&p[0]);
	place_release(&p[1]);
	return file_command_end(&c);
}

static int cp_main(int argc, char **argv)
{
	return two_paths(argc, argv, &command_cp, "copy");
}

static int mv_main(int argc, char **argv)
{
	return two_paths(argc, argv, &command_mv, "rename");
}

/* ---- rm, mkdir ---- */

static int remove_place(struct file_command *c, const struct place *p, void *ctx,
			struct garret_error *err)
{
	int rc = files_call(&c->files, p, NULL, "remove",
			    json_pack("{s:b}", "recursive", c->opts.recursive), NULL, err);

	(void)ctx;
	/* With an errno it is the path that is missing, else the session. */
	if (rc == -GARRET_NOT_FOUND && err->sys && c->opts.force)
		return 0;
	if (rc < 0 && err->sys == ENOTEMPTY && !c->opts.recursive)
		return garret_fail(err, err->code, "%s: Directory not empty (rm -r)", p->text);
	return rc;
}

static int rm_main(int argc, char **argv)
{
	struct file_command c;

	if (!file_command_begin(&c, &command_rm, argc, argv, 1, 0))
		return c.status;
	file_command_each(&c, remove_place, NULL);
	return file_command_end(&c);
}

static int make_place(struct file_command *c, const struct place *p, void *ctx,
		      struct garret_error *err)
{
	(void)ctx;
	return files_call(&c->files, p, NULL, "mkdir",
			  json_pack("{s:b}", "parents", c->opts.parents), NULL, err);
}

static int mkdir_main(int argc, char **argv)
{
	struct file_command c;

	if (!file_command_begin(&c, &command_mkdir, argc, argv, 1, 0))
		return c.status;
	file_command_each(&c, make_place, NULL);
	return file_command_end(&c);
}

/* ---- edit ---- */

static int read_text(const char *path, struct strbuf *out, struct garret_error *err)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return garret_fail_errno(err, "%s", path);
	strbuf_reserve(out, TEXT_MAX + 1);
	n = read_full(fd, out->buf, TEXT_MAX + 1);
	if (n < 0)
		return garret_fail_errno(err, "%s", path);
	if (n > (ssize_t)TEXT_MAX)
		return garret_fail(err, GARRET_TOO_LARGE, "%s: a text has at most %u bytes", path,
				   TEXT_MAX);
	out->len = (size_t)n;
	out->buf[n] = '\0';
	return 0;
}

static int find_text(const char *what, const char *text, const char *file, json_t **ret,
		     struct garret_error *err)
{
	autobuf struct strbuf buf = STRBUF_INIT;
	int rc = 0;

	if (!text == !file)
		return garret_fail(err, GARRET_INVALID, "edit needs one of --%s and --%s-file",
				   what, what);
	if (file)
		rc = read_text(file, &buf, err);
	else
		strbuf_addstr(&buf, text);
	if (rc < 0)
		return rc;
	if (!utf8_valid(buf.buf, buf.len) || strlen(buf.buf) != buf.len)
		return garret_fail(err, GARRET_INVALID,
				   "--%s%s: the text must be UTF-8 without NUL", what,
				   file ? "-file" : "");
	*ret = json_stringn(buf.buf, buf.len);
	return 0;
}

static int edit(struct file_command *c, const struct place *p, struct garret_error *err)
{
	const struct file_opts *o = &c->opts;
	json_t *old = NULL, *new = NULL, *body, *answer = NULL;
	int rc = find_text("old", o->old, o->old_file, &old, err);

	if (rc == 0)
		rc = find_text("new", o->new, o->new_file, &new, err);
	if (rc < 0) {
		json_decref(old);
		return rc;
	}
	body = json_pack("{s:o, s:o, s:b}", "old", old, "new", new, "all", o->all);
	if (o->count)
		(void)json_object_set_new(body, "count", json_integer((json_int_t)o->count));
	rc = files_call(&c->files, p, NULL, "edit", body, &answer, err);
	if (rc == 0 && o->json)
		show_json(answer);
	json_decref(answer);
	return rc;
}

static int edit_main(int argc, char **argv)
{
	struct file_command c;
	autoplace struct place p = PLACE_INIT;
	struct garret_error err = { 0 };
	int rc;

	if (!file_command_begin(&c, &command_edit, argc, argv, 1, 1))
		return c.status;
	rc = files_place(&c.files, c.words[0], &p, &err);
	if (rc == 0)
		rc = edit(&c, &p, &err);
	if (rc < 0)
		file_command_failed(&c, &err);
	return file_command_end(&c);
}
