/* garret ls, garret stat: what there is in a session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/mem.h"
#include "cli/cmd_file.h"
#include "cli/show.h"

/* clang-format off */
static const struct opt ls_table[] = {
	FILE_OPT(details,   "long",      'l', OPT_FLAG, NULL, "with type, mode, size, time and where links lead"),
	FILE_OPT(recursive, "recursive", 'R', OPT_FLAG, NULL, "and everything below, one directory after the other"),
	FILE_OPT_JSON("one JSON object a line"),
	FILE_OPTS_END
};
static const struct opt stat_table[] = {
	FILE_OPT_JSON("the daemon's description as one line of JSON"),
	FILE_OPTS_END
};
/* clang-format on */

struct listing {
	struct file_command *c;
	const struct place *at;
	char *directory; /* of the entry before, below `at`; NULL at the beginning */
	bool heads;      /* show which directory it is */
	bool shown;      /* there is something above */
};

static void show_mode(const struct entry *e)
{
	char text[11] = "?rwxrwxrwx";

	/* A list describes where a link leads; of the link itself there is only that. */
	text[0] = e->type;
	for (int i = 0; i < 9 && !e->link; i++)
		if (!(e->mode & (0400u >> i)))
			text[i + 1] = '-';
	(void)fputs(text, stdout);
}

static void show_time(double when)
{
	time_t t = (time_t)when;
	char text[32] = "-";
	struct tm tm;

	if (when != 0 && localtime_r(&t, &tm))
		(void)strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &tm);
	(void)printf("%16s", text);
}

static void show_entry(const struct entry *e, const char *name, bool details)
{
	if (details) {
		show_mode(e);
		if (e->size >= 0 && !e->link)
			(void)printf(" %12lld ", (long long)e->size);
		else
			(void)printf(" %12s ", "-");
		show_time(e->mtime);
		(void)putchar(' ');
	}
	show_text(name);
	if (details && e->link) {
		(void)fputs(" -> ", stdout);
		show_text(e->link);
	}
	(void)putchar('\n');
}

/* The path of an entry below the place: what the user typed stands in front. */
static char *below(const struct place *at, const char *path)
{
	size_t n = strlen(at->path);

	while (n && at->path[n - 1] == '/')
		n--;
	if (strncmp(path, at->path, n) != 0 || path[n] != '/')
		return xstrdup(path);
	return xstrdup(path + n + 1);
}

/* A head when the directory is another one than before. */
static void show_directory(struct listing *l, const char *relative, size_t n)
{
	if (!l->heads ||
	    (l->directory && strlen(l->directory) == n && !memcmp(l->directory, relative, n)))
		return;
	free(l->directory);
	l->directory = xstrndup(relative, n);
	if (l->shown)
		(void)putchar('\n');
	show_text(l->at->text);
	if (n && l->at->typed[0] && l->at->typed[strlen(l->at->typed) - 1] != '/')
		(void)putchar('/');
	show_text(l->directory);
	(void)fputs(":\n", stdout);
	l->shown = true;
}

static int show_item(void *ctx, json_t *item, struct garret_error *err)
{
	struct listing *l = ctx;
	const struct file_opts *o = &l->c->opts;
	autoentry struct entry e = { 0 };
	autofree char *relative = NULL;
	const char *slash;
	int rc;

	if (o->json) {
		show_json(item);
		return 0;
	}
	rc = entry_parse(item, &e, err);
	if (rc < 0)
		return rc;
	relative = below(l->at, e.path);
	slash = strrchr(relative, '/');
	show_directory(l, relative, slash ? (size_t)(slash - relative) : 0);
	show_entry(&e, slash ? slash + 1 : relative, o->details);
	l->shown = true;
	return 0;
}

/* A single file, also one that a link leads to: as it was typed. */
static int list_file(struct file_command *c, const struct place *p, struct garret_error *err)
{
	json_t *item = NULL;
	autoentry struct entry e = { 0 };
	int rc = files_stat(&c->files, p, false, &item, err);

	if (rc == 0 && c->opts.json)
		show_json(item);
	else if (rc == 0)
		rc = entry_parse(item, &e, err);
	if (rc == 0 && !c->opts.json)
		show_entry(&e, p->typed, c->opts.details);
	json_decref(item);
	return rc;
}

static int list_place(struct file_command *c, const struct place *p, bool *shown,
		      struct garret_error *err)
{
	struct listing l = { .c = c, .at = p, .shown = *shown };
	json_t *body = json_object(), *rest = NULL;
	int rc;

	l.heads = !c->opts.json && (c->opts.recursive || c->n_words > 1);
	if (c->opts.recursive)
		(void)json_object_set_new(body, "max_depth", json_integer(4096));
	rc = files_list(&c->files, p, "list", body, show_item, &l, &rest, err);
	if (rc == 0 && !l.directory) /* it is empty */
		show_directory(&l, "", 0);
	*shown = l.shown;
	free(l.directory);
	if (rc == 0)
		file_command_partial(c, p, rest);
	return rc;
}

static int ls_main(int argc, char **argv);
static int stat_main(int argc, char **argv);

const struct command command_ls = {
	.name = "ls",
	.synopsis = "[-l] [-R] [--json] ID:PATH...",
	.help = "List directories of a session; ID: is its work directory.",
	.table = ls_table,
	.main = ls_main,
};

const struct command command_stat = {
	.name = "stat",
	.synopsis = "[--json] ID:PATH...",
	.help = "Describe files of a session; links are not followed.",
	.table = stat_table,
	.main = stat_main,
};

static int ls_place(struct file_command *c, const struct place *p, void *shown,
		    struct garret_error *err)
{
	int rc = list_place(c, p, shown, err);

	if (rc == -GARRET_NOT_DIRECTORY && p->typed[0] && p->typed[strlen(p->typed) - 1] != '/')
		rc = list_file(c, p, err);
	return rc;
}

static int ls_main(int argc, char **argv)
{
	struct file_command c;
	bool shown = false;

	if (!file_command_begin(&c, &command_ls, argc, argv, 1, 0))
		return c.status;
	file_command_each(&c, ls_place, &shown);
	return file_command_end(&c);
}

static void show_stat(const struct place *p, const struct entry *e)
{
	const char *kind = e->type == 'd'   ? "directory"
			   : e->type == 'l' ? "link"
			   : e->type == '-' ? "file"
					    : "special file";

	show_text(p->text);
	(void)printf("\n  type:     %s\n", kind);
	if (e->link) {
		(void)fputs("  target:   ", stdout);
		show_text(e->link);
		(void)putchar('\n');
	}
	if (e->size >= 0)
		(void)printf("  size:     %lld\n", (long long)e->size);
	(void)printf("  mode:     %04o\n  modified: ", e->mode);
	show_time(e->mtime);
	(void)putchar('\n');
}

static int stat_main(int argc, char **argv)
{
	struct file_command c;

	if (!file_command_begin(&c, &command_stat, argc, argv, 1, 0))
		return c.status;
	for (int i = 0; i < c.n_words; i++) {
		autoplace struct place p = PLACE_INIT;
		autoentry struct entry e = { 0 };
		struct garret_error err = { 0 };
		json_t *item = NULL;
		int rc = files_place(&c.files, c.words[i], &p, &err);

		if (rc == 0)
			rc = files_stat(&c.files, &p, false, &item, &err);
		if (rc == 0 && c.opts.json)
			show_json(item);
		else if (rc == 0 && (rc = entry_parse(item, &e, &err)) == 0)
			show_stat(&p, &e);
		json_decref(item);
		if (rc < 0)
			file_command_failed(&c, &err);
	}
	return file_command_end(&c);
}
