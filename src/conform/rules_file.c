/* Files. */
#include <stdlib.h>

#include "base/mem.h"
#include "conform/ground.h"

static void eight_mebibytes(struct ground *g)
{
	const size_t n = 8u << 20;
	autofree uint8_t *data = xmalloc(n);
	const char *path = in(ground_dir(g), "large");

	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i ^ (i >> 9));
	WANT_OK(g, garret_write(g->shared, path, data, n, 0, err));
	WANT(g, has_bytes(g, g->shared, path, data, n));
}

static void any_bytes(struct ground *g)
{
	const char *path = in(ground_dir(g), "deep/down/bytes");
	uint8_t all[256];

	for (int i = 0; i < 256; i++)
		all[i] = (uint8_t)i;
	WANT_OK(g, garret_write(g->shared, path, all, sizeof(all), 0, err));
	WANT(g, has_bytes(g, g->shared, path, all, sizeof(all)));
	WANT_OK(g, garret_write(g->shared, path, "\0\377", 2, 0, err));
	WANT(g, has_bytes(g, g->shared, path, "\0\377", 2));
	WANT_OK(g, garret_write(g->shared, path, NULL, 0, 0, err));
	WANT(g, has_bytes(g, g->shared, path, "", 0));
}

static void exists(struct ground *g)
{
	const char *dir = ground_dir(g), *file = in(dir, "file");
	bool there = false;

	WANT_OK(g, garret_write(g->shared, file, "x", 1, 0, err));
	WANT_OK(g, garret_exists(g->shared, file, &there, err));
	WANT(g, there);
	WANT_OK(g, garret_exists(g->shared, dir, &there, err));
	WANT(g, there);
	WANT_OK(g, garret_exists(g->shared, in(dir, "absent"), &there, err));
	WANT(g, !there);
	WANT_OK(g, garret_exists(g->shared, in(file, "below"), &there, err));
	WANT(g, !there);
}

static void stat_and_list(struct ground *g)
{
	const char *dir = ground_dir(g);
	autoentry e = { 0 }, d = { 0 };
	autolist l = { 0 };
	autofree char *abs = NULL;

	WANT_OK(g, garret_write(g->shared, in(dir, "sub/four"), "four", 4, 0, err));
	WANT_OK(g, garret_stat(g->shared, in(dir, "sub/four"), &e, err));
	WANT_OK(g, garret_resolve(g->shared, in(dir, "sub/four"), NULL, &abs, err));
	WANT(g, !strcmp(e.name, "four") && !strcmp(e.path, abs) && !e.is_dir);
	WANT(g, e.bytes == 4 || e.bytes == GARRET_SIZE_UNKNOWN);
	WANT_OK(g, garret_stat(g->shared, in(dir, "sub"), &d, err));
	WANT(g, !strcmp(d.name, "sub") && d.is_dir && d.bytes == GARRET_SIZE_UNKNOWN);
	WANT_OK(g, garret_list_dir(g->shared, in(dir, "sub"), &l, err));
	WANT(g, l.n == 1 && !strcmp(l.entry[0].name, "four") && !strcmp(l.entry[0].path, abs));
	WANT(g, !l.entry[0].is_dir);
	WANT(g, l.entry[0].bytes == 4 || l.entry[0].bytes == GARRET_SIZE_UNKNOWN);
}

static void make_dir(struct ground *g)
{
	const char *dir = ground_dir(g);
	autoentry e = { 0 };

	WANT_OK(g, garret_make_dir(g->shared, in(dir, "a/b/c"), err));
	WANT_OK(g, garret_make_dir(g->shared, in(dir, "a/b/c"), err));
	WANT_OK(g, garret_stat(g->shared, in(dir, "a/b/c"), &e, err));
	WANT(g, e.is_dir);
}

static void a_missing_path(struct ground *g)
{
	const char *path = in(ground_dir(g), "missing");
	autobytes b = { 0 };
	autoentry e = { 0 };
	autolist l = { 0 };

	WANT_CODE(g, garret_read(g->shared, path, &b, err), -GARRET_NOT_FOUND);
	WANT_CODE(g, garret_stat(g->shared, path, &e, err), -GARRET_NOT_FOUND);
	WANT_CODE(g, garret_list_dir(g->shared, path, &l, err), -GARRET_NOT_FOUND);
	WANT_CODE(g, garret_remove(g->shared, path, err), -GARRET_NOT_FOUND);
}

static void a_directory_is_not_read(struct ground *g)
{
	autobytes b = { 0 };

	WANT_CODE(g, garret_read(g->shared, ground_dir(g), &b, err), -GARRET_IS_DIRECTORY);
}

static void a_file_is_not_listed(struct ground *g)
{
	const char *file = in(ground_dir(g), "file");
	autolist l = { 0 };

	WANT_OK(g, garret_write(g->shared, file, "x", 1, 0, err));
	WANT_CODE(g, garret_list_dir(g->shared, file, &l, err), -GARRET_NOT_DIRECTORY);
}

static void a_directory_is_not_written(struct ground *g)
{
	const char *dir = ground_dir(g);

	WANT_CODE(g, garret_write(g->shared, dir, "x", 1, 0, err), -GARRET_IS_DIRECTORY);
	WANT_CODE(g, garret_write(g->shared, ".", "x", 1, 0, err), -GARRET_IS_DIRECTORY);
}

static void a_link_to_itself(struct ground *g)
{
	const char *dir = ground_dir(g);
	char script[100];
	autolist l = { 0 };

	(void)snprintf(script, sizeof(script), "ln -s loop %s/loop", dir);
	WANT(g, ground_says(g, g->shared, script, ""));
	WANT_OK(g, garret_list_dir(g->shared, dir, &l, err));
	WANT(g, l.n == 1 && !strcmp(l.entry[0].name, "loop") && !l.entry[0].is_dir);
}

static void a_fifo_is_not_read(struct ground *g)
{
	const char *dir = ground_dir(g);
	char script[100];
	autobytes b = { 0 };
	autoentry e = { 0 };

	(void)snprintf(script, sizeof(script), "mkfifo %s/fifo", dir);
	WANT(g, ground_says(g, g->shared, script, ""));
	WANT_CODE(g, garret_read(g->shared, in(dir, "fifo"), &b, err), -GARRET_NOT_REGULAR);
	WANT_CODE(g, garret_stat(g->shared, in(dir, "fifo"), &e, err), -GARRET_NOT_REGULAR);
}

static void what_may_not_be_read(struct ground *g)
{
	const char *dir = ground_dir(g), *file = in(dir, "closed");
	autoresult r = { 0 };
	autobytes b = { 0 };

	WANT_OK(g, ground_sh(g, g->shared, "id -u", &r, err));
	if (!strcmp((char *)r.out, "0\n")) {
		ground_skip(g, "commands run as root, whom no mode stops");
		return;
	}
	WANT_OK(g, garret_write(g->shared, file, "x", 1, 0, err));
	WANT_OK(g, garret_chmod(g->shared, file, 0, err));
	WANT_CODE(g, garret_read(g->shared, file, &b, err), -GARRET_DENIED);
	WANT_CODE(g, garret_write(g->shared, file, "y", 1, 0, err), -GARRET_DENIED);
}

static void a_file_as_a_parent(struct ground *g)
{
	const char *file = in(ground_dir(g), "file");

	WANT_OK(g, garret_write(g->shared, file, "x", 1, 0, err));
	WANT_CODE(g, garret_write(g->shared, in(file, "below"), "x", 1, 0, err),
		  -GARRET_NOT_DIRECTORY);
	WANT_CODE(g, garret_make_dir(g->shared, in(file, "below/deep"), err),
		  -GARRET_NOT_DIRECTORY);
	WANT_CODE(g, garret_make_dir(g->shared, file, err), -GARRET_EXISTS);
}

static void removing(struct ground *g)
{
	const char *dir = ground_dir(g);
	bool there = true;

	WANT_OK(g, garret_write(g->shared, in(dir, "file"), "x", 1, 0, err));
	WANT_OK(g, garret_write(g->shared, in(dir, "tree/a/b"), "x", 1, 0, err));
	WANT_OK(g, garret_remove(g->shared, in(dir, "file"), err));
	WANT_OK(g, garret_remove(g->shared, in(dir, "tree"), err));
	WANT_OK(g, garret_exists(g->shared, in(dir, "tree"), &there, err));
	WANT(g, !there);
}

static void the_working_directory_stays(struct ground *g)
{
	autofree char *dir = NULL, *up = NULL;
	bool there = false;

	WANT_OK(g, garret_working_dir(g->shared, &dir, err));
	WANT_OK(g, garret_resolve(g->shared, "..", NULL, &up, err));
	WANT_CODE(g, garret_remove(g->shared, ".", err), -GARRET_INVALID);
	WANT_CODE(g, garret_remove(g->shared, dir, err), -GARRET_INVALID);
	WANT_CODE(g, garret_remove(g->shared, up, err), -GARRET_INVALID);
	WANT_CODE(g, garret_remove(g->shared, "/", err), -GARRET_INVALID);
	WANT_OK(g, garret_exists(g->shared, dir, &there, err));
	WANT(g, there);
}

/* realpath() of dir/name is WD/dir/rest. */
static bool leads_to(struct ground *g, const char *dir, const char *name, const char *rest)
{
	autofree char *wd = NULL, *real = NULL, *want = NULL;
	struct garret_error err = { 0 };

	if (garret_working_dir(g->shared, &wd, &err) < 0 ||
	    garret_realpath(g->shared, in(dir, name), &real, &err) < 0)
		return ground_fail(g, "%s: %s", name, err.msg);
	want = xasprintf("%s/%s%s", wd && wd[1] ? wd : "", dir, rest);
	return (real && !strncmp(real, want, strlen(want))) ||
	       ground_fail(g, "%s leads to %s, not %s", name, real ? real : "nothing", want);
}

static bool is_dir_in_list(struct ground *g, const char *dir, const char *name)
{
	struct garret_list l = { 0 };
	bool ok = garret_list_dir(g->shared, dir, &l, NULL) == 0, found = false;

	for (size_t i = 0; ok && i < l.n; i++)
		found = found || (!strcmp(l.entry[i].name, name) && l.entry[i].is_dir);
	garret_list_release(&l);
	return found;
}

static void links_are_followed(struct ground *g)
{
	const char *dir = ground_dir(g);
	struct garret_error err = { 0 };
	char script[300], *loop = NULL;
	autoentry e = { 0 };

	(void)snprintf(script, sizeof(script),
		       "cd %s && mkdir -p target/sub other && ln -s target link && "
		       "ln -s ../target other/up && ln -s target/sub deep && ln -s two one && "
		       "ln -s one two",
		       dir);
	if (!ground_says(g, g->shared, script, "") ||
	    !leads_to(g, dir, "link/missing", "/target/missing") ||
	    !leads_to(g, dir, "other/up/missing", "/target/missing") ||
	    !leads_to(g, dir, "deep/../missing", "/target/missing")) /* it climbs from target/sub */
		return;
	/* Two links in a circle: inside their directory, or a failure. */
	if (garret_realpath(g->shared, in(dir, "one"), &loop, NULL) == 0) {
		free(loop);
		(void)leads_to(g, dir, "one", "");
	}
	if (garret_stat(g->shared, in(dir, "link"), &e, &err) < 0)
		(void)ground_fail(g, "stat link: %s", err.msg);
	WANT(g, e.is_dir);
	WANT(g, is_dir_in_list(g, dir, "link"));
}

static void writing_through_a_link(struct ground *g)
{
	const char *dir = ground_dir(g);
	autofree char *real = NULL, *target = NULL;
	char script[200];

	(void)snprintf(script, sizeof(script), "cd %s && printf old > target && ln -s target link",
		       dir);
	WANT(g, ground_says(g, g->shared, script, ""));
	WANT_OK(g, garret_write(g->shared, in(dir, "link"), "new", 3, 0, err));
	WANT(g, has_bytes(g, g->shared, in(dir, "target"), "new", 3));
	WANT_OK(g, garret_realpath(g->shared, in(dir, "link"), &real, err));
	WANT_OK(g, garret_realpath(g->shared, in(dir, "target"), &target, err));
	WANT(g, !strcmp(real, target));
}

static bool real_is(struct ground *g, const char *path, const char *want)
{
	autofree char *real = NULL;
	struct garret_error err = { 0 };

	if (garret_realpath(g->shared, path, &real, &err) < 0)
		return ground_fail(g, "%s: %s", path, err.msg);
	return (real && !strcmp(real, want)) ||
	       ground_fail(g, "%s is %s, not %s", path, real ? real : "nothing", want);
}

static void realpath_keeps_names(struct ground *g)
{
	struct garret_error err = { 0 };
	char *wd = NULL, *want;

	if (garret_working_dir(g->shared, &wd, &err) < 0 || !wd) {
		(void)ground_fail(g, "the working directory: %s", err.msg);
		return;
	}
	want = xasprintf("%s/no/such/name", wd[1] ? wd : "");
	if (real_is(g, ".", wd))
		(void)real_is(g, "no/such/name", want);
	free(want);
	free(wd);
}

/* ---- ours ---- */

static void odd_names(struct ground *g)
{
	static const char *const names[] = { "with space",  "-rf",       "new\nline", "tab\t",
					     "quote'\"",    "$(id)`id`", "*?[a]",     "ünïcödé",
					     "back\\slash", "#%&=+",     "...",       "~" };
	const char *dir = ground_dir(g);
	autolist l = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		WANT_OK(g, garret_write(g->shared, in(dir, names[i]), names[i], strlen(names[i]), 0,
					err));
		WANT(g, has_bytes(g, g->shared, in(dir, names[i]), names[i], strlen(names[i])));
	}
	WANT_OK(g, garret_list_dir(g->shared, dir, &l, err));
	WANT(g, l.n == ARRAY_SIZE(names));
	for (size_t i = 0; i + 1 < l.n; i++)
		WANT(g, strcmp(l.entry[i].path, l.entry[i + 1].path) < 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		WANT_OK(g, garret_remove(g->shared, in(dir, names[i]), err));
}

static void names_that_are_no_text(struct ground *g)
{
	const char *dir = ground_dir(g);
	autolist l = { 0 };

	WANT_OK(g, garret_write(g->shared, in(dir, "\xff\xfe-name"), "x", 1, 0, err));
	WANT_OK(g, garret_list_dir(g->shared, dir, &l, err));
	WANT(g, l.n == 1 && !strcmp(l.entry[0].name, "\xff\xfe-name"));
	WANT(g, has_bytes(g, g->shared, l.entry[0].path, "x", 1));
}

static void parts_of_a_file(struct ground *g)
{
	const char *path = in(ground_dir(g), "digits");
	autobytes a = { 0 }, b = { 0 }, c = { 0 };

	WANT_OK(g, garret_write(g->shared, path, "0123456789", 10, 0, err));
	WANT_OK(g, garret_read_at(g->shared, path, 3, 4, &a, err));
	WANT(g, a.n == 4 && !memcmp(a.data, "3456", 4));
	WANT_OK(g, garret_read_at(g->shared, path, 8, 100, &b, err));
	WANT(g, b.n == 2 && !memcmp(b.data, "89", 2));
	WANT_OK(g, garret_read_at(g->shared, path, 50, 1, &c, err));
	WANT(g, c.n == 0);
}

static void appending(struct ground *g)
{
	const char *path = in(ground_dir(g), "deep/log");

	WANT_OK(g, garret_append(g->shared, path, "one", 3, 0, err));
	WANT_OK(g, garret_append(g->shared, path, "two", 3, 0, err));
	WANT(g, has_bytes(g, g->shared, path, "onetwo", 6));
}

static void only_a_new_file(struct ground *g)
{
	const char *path = in(ground_dir(g), "once");

	WANT_OK(g, garret_write(g->shared, path, "1", 1, GARRET_WRITE_EXCLUSIVE, err));
	WANT_CODE(g, garret_write(g->shared, path, "2", 1, GARRET_WRITE_EXCLUSIVE, err),
		  -GARRET_EXISTS);
	WANT(g, has_bytes(g, g->shared, path, "1", 1));
}

static void moving_and_copying(struct ground *g)
{
	const char *dir = ground_dir(g);
	bool there = true;

	WANT_OK(g, garret_write(g->shared, in(dir, "from/a/file"), "x", 1, 0, err));
	WANT_OK(g, garret_copy(g->shared, in(dir, "from"), in(dir, "copy/of/it"), err));
	WANT(g, has_bytes(g, g->shared, in(dir, "copy/of/it/a/file"), "x", 1));
	WANT_OK(g, garret_rename(g->shared, in(dir, "from/a/file"), in(dir, "to/here"), err));
	WANT(g, has_bytes(g, g->shared, in(dir, "to/here"), "x", 1));
	WANT_OK(g, garret_exists(g->shared, in(dir, "from/a/file"), &there, err));
	WANT(g, !there);
	WANT_CODE(g, garret_rename(g->shared, in(dir, "nothing"), in(dir, "x"), err),
		  -GARRET_NOT_FOUND);
}

static void editing(struct ground *g)
{
	const char *path = in(ground_dir(g), "text");
	uint64_t n = 0;

	WANT_OK(g, garret_write(g->shared, path, "one two two\r\n\377", 14, 0, err));
	WANT_OK(g, garret_edit(g->shared, path, "one", "1", false, &n, err));
	WANT_CODE(g, garret_edit(g->shared, path, "two", "2", false, &n, err), -GARRET_CONFLICT);
	WANT(g, n == 2);
	WANT_CODE(g, garret_edit(g->shared, path, "ten", "2", false, &n, err), -GARRET_CONFLICT);
	WANT(g, n == 0);
	WANT_OK(g, garret_edit(g->shared, path, "two", "2", true, &n, err));
	WANT(g, n == 2 && has_bytes(g, g->shared, path, "1 2 2\r\n\377", 8));
}

static void searching(struct ground *g)
{
	const char *dir = ground_dir(g);
	struct garret_matches m = { 0 };
	autolist l = { 0 };
	bool ok;

	WANT_OK(g, garret_write(g->shared, in(dir, "a.c"), "int one;\nint two;\n", 18, 0, err));
	WANT_OK(g, garret_write(g->shared, in(dir, "sub/b.c"), "int two;\n", 9, 0, err));
	WANT_OK(g, garret_write(g->shared, in(dir, "sub/c.txt"), "two\n", 4, 0, err));
	WANT_OK(g, garret_glob(g->shared, dir, "**/*.c", 0, 0, &l, err));
	WANT(g, l.n == 2 && strstr(l.entry[0].path, "/a.c") && strstr(l.entry[1].path, "sub/b.c"));
	WANT_OK(g, garret_grep(g->shared, dir, "two;", "*.c", GARRET_SEARCH_FIXED, 0, &m, err));
	ok = m.n == 2 && m.match[0].line == 2 && strstr(m.match[0].path, "/a.c") &&
	     !strcmp(m.match[0].text, "int two;") && m.match[1].line == 1;
	garret_matches_release(&m);
	WANT(g, ok);
}

static void searching_by_expressions(struct ground *g)
{
	const char *dir = ground_dir(g);
	struct garret_matches m = { 0 };
	struct garret_error found = { 0 };
	bool ok;
	int rc;

	WANT_OK(g, garret_write(g->shared, in(dir, "a.c"), "int one;\nint two2;\n", 19, 0, err));
	rc = garret_grep(g->shared, dir, "^int t\\w+\\d;$", NULL, 0, 0, &m, &found);
	if (rc == -GARRET_UNSUPPORTED) {
		ground_skip(g, found.msg);
		return;
	}
	ok = rc == 0 && m.n == 1 && m.match[0].line == 2 && m.match[0].column == 1;
	garret_matches_release(&m);
	WANT(g, ok);
	WANT_CODE(g, garret_grep(g->shared, dir, "(", NULL, 0, 0, &m, err), -GARRET_INVALID);
}

static void text_is_utf8(struct ground *g)
{
	const char *path = in(ground_dir(g), "text");
	autofree char *text = NULL, *bad = NULL;

	WANT_OK(g, garret_write_text(g->shared, path, "grüße\n", 0, err));
	WANT_OK(g, garret_read_text(g->shared, path, &text, err));
	WANT(g, !strcmp(text, "grüße\n"));
	WANT_CODE(g, garret_write_text(g->shared, path, "\377", 0, err), -GARRET_ENCODING);
	WANT_OK(g, garret_write(g->shared, path, "\377", 1, 0, err));
	WANT_CODE(g, garret_read_text(g->shared, path, &bad, err), -GARRET_ENCODING);
}

const struct rule file_rules[] = {
	{ "17 a file of 8 MiB", eight_mebibytes, 0, false },
	{ "18 any bytes, with missing parents", any_bytes, 0, false },
	{ "19 exists", exists, 0, false },
	{ "20 stat and list", stat_and_list, 0, false },
	{ "21 make_dir makes parents", make_dir, 0, false },
	{ "23 a missing path", a_missing_path, 0, false },
	{ "24 a directory is not read", a_directory_is_not_read, 0, false },
	{ "25 a file is not listed", a_file_is_not_listed, 0, false },
	{ "26 a directory is not written", a_directory_is_not_written, 0, false },
	{ "27 a link to itself", a_link_to_itself, GARRET_HAS_COMMANDS, false },
	{ "28 a FIFO is not read", a_fifo_is_not_read, GARRET_HAS_COMMANDS, false },
	{ "29 what may not be read", what_may_not_be_read, GARRET_HAS_COMMANDS, false },
	{ "30 31 a file as a parent", a_file_as_a_parent, 0, false },
	{ "32 remove", removing, 0, false },
	{ "33 the working directory stays", the_working_directory_stays, 0, false },
	{ "34 links are followed", links_are_followed, GARRET_HAS_COMMANDS, false },
	{ "35 writing through a link", writing_through_a_link, GARRET_HAS_COMMANDS, false },
	{ "36 realpath keeps names", realpath_keeps_names, 0, false },
	{ "50 odd names", odd_names, 0, false },
	{ "51 names that are no text", names_that_are_no_text, GARRET_HAS_COMMANDS, false },
	{ "52 parts of a file", parts_of_a_file, 0, false },
	{ "53 append", appending, 0, false },
	{ "54 only a new file", only_a_new_file, 0, false },
	{ "55 rename and copy", moving_and_copying, 0, false },
	{ "56 edit", editing, 0, false },
	{ "57 glob and grep", searching, 0, false },
	{ "58 text is UTF-8", text_is_utf8, 0, false },
	{ "70 grep by expressions", searching_by_expressions, 0, false },
	{ NULL, NULL, 0, false },
};
