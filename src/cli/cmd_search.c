/* garret find, garret grep: what is where in a session. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "cli/cmd_file.h"
#include "cli/show.h"

#define GREP_NONE 1
#define GREP_ERROR 2

/* clang-format off */
#define SEARCH_OPTS                                                                                  \
	FILE_OPT(hidden,      "hidden",       0,  OPT_FLAG, NULL, "names that begin with a dot as well"), \
	FILE_OPT(no_ignore,   "no-ignore",    0,  OPT_FLAG, NULL, "what .gitignore names as well"),      \
	FILE_OPT(ignore_case, "ignore-case", 'i', OPT_FLAG, NULL, "letters match in either case")
static const struct opt find_table[] = {
	SEARCH_OPTS,
	FILE_OPT(directories, "directories", 'd', OPT_FLAG, NULL, "directories as well as files"),
	FILE_OPT_JSON("one JSON object a line"),
	FILE_OPTS_END
};
static const struct opt grep_table[] = {
	SEARCH_OPTS,
	FILE_OPT(fixed,       "fixed-strings", 'F', OPT_FLAG, NULL, "the pattern is text, no expression"),
	FILE_OPT(number,      "line-number",   'n', OPT_FLAG, NULL, "lines have their numbers in any case"),
	FILE_OPT(include,     "include",        0,  OPT_STRING, "GLOB", "only files that match this"),
	FILE_OPT(files_only,  "files-with-matches", 'l', OPT_FLAG, NULL, "only the names of the files"),
	FILE_OPT(count_lines, "count",         'c', OPT_FLAG, NULL, "only how many lines of each file"),
	FILE_OPT_JSON("one JSON object a match and line"),
	FILE_OPTS_END
};
/* clang-format on */

static int find_main(int argc, char **argv);
static int grep_main(int argc, char **argv);

const struct command command_find = {
	.name = "find",
	.synopsis = "[OPTIONS] ID:PATH PATTERN",
	.help = "Find files of a session by name: * ? [a-z] {a,b} **; without a / it matches at any depth.",
	.table = find_table,
	.main = find_main,
};
const struct command command_grep = {
	.name = "grep",
	.synopsis = "[OPTIONS] PATTERN ID:PATH...",
	.help = "Find lines in files of a session, by a Perl-compatible expression.",
	.table = grep_table,
	.main = grep_main,
};

struct search {
	struct file_command *c;
	const struct place *at;
	bool found;
	/* grep: the line that was shown, or the file whose lines are counted. */
	char *path;
	int64_t line;
	uint64_t lines;
};

static json_t *search_body(const struct file_opts *o, const char *pattern)
{
	json_t *body = json_pack("{s:s, s:b, s:b, s:b}", "pattern", pattern, "hidden", o->hidden,
				 "no_ignore", o->no_ignore, "ignore_case", o->ignore_case);

	if (body && o->directories)
		(void)json_object_set_new(body, "directories", json_true());
	if (body && o->fixed)
		(void)json_object_set_new(body, "fixed", json_true());
	if (body && o->include)
		(void)json_object_set_new(body, "include", json_string(o->include));
	return body;
}

/* What was typed stands in front of what was found, as with find and grep. */
static char *as_typed(const struct place *at, const char *path)
{
	size_t n = strlen(at->path), m = strlen(at->typed);

	while (n && at->path[n - 1] == '/')
		n--;
	while (m && at->typed[m - 1] == '/')
		m--;
	if (strncmp(path, at->path, n) != 0 || (path[n] && path[n] != '/'))
		return xstrdup(path);
	if (!m && at->typed[0] != '/')
		return xstrdup(path[n] ? path + n + 1 : path);
	return xasprintf("%.*s%s", (int)m, at->typed, path + n);
}

/* ---- find ---- */

static int show_found(void *ctx, json_t *item, struct garret_error *err)
{
	struct search *s = ctx;
	autoentry struct entry e = { 0 };
	autofree char *path = NULL;
	int rc;

	if (s->c->opts.json) {
		show_json(item);
		return 0;
	}
	rc = entry_parse(item, &e, err);
	if (rc < 0)
		return rc;
	path = as_typed(s->at, e.path);
	show_text(path);
	(void)putchar('\n');
	return 0;
}

/*
 * Files that are no text are counted with those that can't be read.  They are
 * nothing unusual, so that they are said but don't make it a failure.
 */
static void note_unsearched(const struct place *at, json_t *rest)
{
	autobuf struct strbuf text = STRBUF_INIT;
	long long n = json_integer_value(json_object_get(rest, "skipped"));

	if (!n)
		return;
	show_escape(&text, at->text, strlen(at->text));
	(void)fflush(stdout);
	(void)fprintf(stderr, "garret: %s: %lld not searched: no text, or not readable\n", text.buf,
		      n);
	(void)json_object_del(rest, "skipped");
}

/* A pattern that isn't UTF-8 can't be asked for. */
static int search(struct search *s, const char *op, const char *pattern,
		  int (*item)(void *ctx, json_t *item, struct garret_error *err),
		  struct garret_error *err)
{
	json_t *body = search_body(&s->c->opts, pattern), *rest = NULL;
	int rc;

	if (!body)
		return garret_fail(err, GARRET_INVALID, "the pattern must be UTF-8");
	rc = files_list(&s->c->files, s->at, op, body, item, s, &rest, err);
	if (rc < 0)
		return rc;
	if (!strcmp(op, "grep"))
		note_unsearched(s->at, rest);
	file_command_partial(s->c, s->at, rest);
	return 0;
}

static int find_main(int argc, char **argv)
{
	struct file_command c;
	autoplace struct place p = PLACE_INIT;
	struct garret_error err = { 0 };
	struct search s = { .c = &c, .at = &p };
	int rc;

	if (!file_command_begin(&c, &command_find, argc, argv, 2, 2))
		return c.status;
	rc = files_place(&c.files, c.words[0], &p, &err);
	if (rc == 0)
		rc = search(&s, "glob", c.words[1], show_found, &err);
	if (rc < 0)
		file_command_failed(&c, &err);
	return file_command_end(&c);
}

/* ---- grep ---- */

static void show_count(struct search *s)
{
	autofree char *path = NULL;

	if (!s->path || !s->c->opts.count_lines)
		return;
	path = as_typed(s->at, s->path);
	show_text(path);
	(void)printf(":%llu\n", (unsigned long long)s->lines);
}

static void show_line(const struct search *s, const json_t *item)
{
	autofree char *path = as_typed(s->at, s->path);
	const json_t *text = json_object_get(item, "text");

	show_text(path);
	if (!s->c->opts.files_only) {
		(void)printf(":%lld:", (long long)s->line);
		show_bytes(json_string_value(text), json_string_length(text));
		if (json_is_true(json_object_get(item, "cut")))
			(void)fputs(" [...]", stdout);
	}
	(void)putchar('\n');
}

/* Several matches of one line come one after the other, and so do those of one file. */
static int show_match(void *ctx, json_t *item, struct garret_error *err)
{
	struct search *s = ctx;
	const struct file_opts *o = &s->c->opts;
	const int64_t line = json_integer_value(json_object_get(item, "line"));
	autoentry struct entry e = { 0 };
	bool same_file;
	int rc;

	s->found = true;
	if (o->json) {
		show_json(item);
		return 0;
	}
	rc = entry_parse(item, &e, err);
	if (rc < 0)
		return rc;
	same_file = s->path && !strcmp(s->path, e.path);
	if (same_file && (s->line == line || o->files_only))
		return 0;
	if (!same_file) {
		show_count(s);
		free(s->path);
		s->path = take_ptr(&e.path);
		s->lines = 0;
	}
	s->line = line;
	s->lines++;
	if (!o->count_lines)
		show_line(s, item);
	return 0;
}

static int grep_main(int argc, char **argv)
{
	struct file_command c;
	struct search s = { .c = &c };

	if (!file_command_begin(&c, &command_grep, argc, argv, 2, 0))
		return c.status ? GREP_ERROR : 0;
	for (int i = 1; i < c.n_words; i++) {
		autoplace struct place p = PLACE_INIT;
		struct garret_error err = { 0 };
		int rc = files_place(&c.files, c.words[i], &p, &err);

		s.at = &p;
		if (rc == 0)
			rc = search(&s, "grep", c.words[0], show_match, &err);
		show_count(&s);
		free(take_ptr(&s.path));
		if (rc < 0)
			file_command_failed(&c, &err);
	}
	if (file_command_end(&c))
		return GREP_ERROR;
	return s.found ? 0 : GREP_NONE;
}
