/* The file commands with --provider. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/provider.h"
#include "cli/show.h"

/* ---- showing ---- */

static void show_entry(const struct provider_command *c, const struct garret_entry *e,
		       const char *name)
{
	if (c->opts.details) {
		(void)printf("%c%04o ", e->is_dir ? 'd' : e->is_link ? 'l' : '-', e->mode);
		if (e->bytes == GARRET_SIZE_UNKNOWN)
			(void)printf("%12s ", "-");
		else
			(void)printf("%12llu ", (unsigned long long)e->bytes);
	}
	show_text(name);
	if (c->opts.details && e->target) {
		(void)fputs(" -> ", stdout);
		show_text(e->target);
	}
	(void)putchar('\n');
}

static int ls(struct provider_command *c, struct garret_workspace *w, const char *path,
	      struct garret_error *err)
{
	struct garret_list l;
	struct garret_entry e = { 0 };
	int rc = garret_stat(w, path, &e, err);

	if (rc == 0 && !e.is_dir) {
		show_entry(c, &e, path);
		garret_entry_release(&e);
		return 0;
	}
	garret_entry_release(&e);
	if (rc < 0)
		return rc;
	rc = c->opts.recursive ? garret_walk(w, path, 0, 0, &l, err)
			       : garret_list_dir(w, path, &l, err);
	for (size_t i = 0; rc == 0 && i < l.n; i++)
		show_entry(c, &l.entry[i], l.entry[i].name);
	if (rc == 0 && l.truncated)
		(void)fputs("garret: there is more\n", stderr);
	garret_list_release(&l);
	return rc;
}

static int stat_(struct provider_command *c, struct garret_workspace *w, const char *path,
		 struct garret_error *err)
{
	struct garret_entry e = { 0 };
	int rc = garret_lstat(w, path, &e, err);

	if (rc < 0)
		return rc;
	c->opts.details = true;
	show_entry(c, &e, e.path);
	garret_entry_release(&e);
	return 0;
}

/* ---- streams ---- */

static int reader_to(struct garret_reader *r, int fd, struct garret_error *err)
{
	autofree char *buf = xmalloc(1 << 16);
	ssize_t n;

	while ((n = garret_reader_read(r, buf, 1 << 16, err)) > 0)
		if (write_full(fd, buf, (size_t)n) < 0)
			return garret_fail_errno(err, "write");
	return (int)n;
}

static int writer_from(struct garret_writer *wr, int fd, struct garret_error *err)
{
	autofree char *buf = xmalloc(1 << 16);
	ssize_t n;
	int rc = 0;

	while ((n = read(fd, buf, 1 << 16)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			rc = garret_fail_errno(err, "read");
			break;
		}
		rc = garret_writer_write(wr, buf, (size_t)n, err);
		if (rc < 0)
			break;
	}
	if (rc < 0) {
		garret_writer_abort(wr);
		return rc;
	}
	return garret_writer_commit(wr, err);
}

static int cat(struct provider_command *c, struct garret_workspace *w, const char *path,
	       struct garret_error *err)
{
	struct garret_reader *r = NULL;
	int rc = garret_reader_open(w, path, 0, UINT64_MAX, &r, err);

	(void)c;
	if (rc == 0)
		rc = reader_to(r, STDOUT_FILENO, err);
	garret_reader_close(r);
	return rc;
}

static int no_trees(struct garret_error *err)
{
	return garret_fail(err, GARRET_UNSUPPORTED,
			   "with --provider a directory is an archive: garret tar c|x ID:PATH");
}

static int put(struct provider_command *c, struct garret_error *err)
{
	autoclose int fd = -EBADF;
	struct garret_writer *wr = NULL;
	struct garret_workspace *w;
	const char *path;
	int rc;

	if (c->n_words != 2)
		return garret_fail(err, GARRET_INVALID, "put takes FILE (or -) and ID:PATH");
	if (c->opts.recursive)
		return no_trees(err);
	fd = strcmp(c->words[0], "-") != 0 ? open(c->words[0], O_RDONLY | O_CLOEXEC)
					   : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return garret_fail_errno(err, "%s", c->words[0]);
	w = provider_place(c, c->words[1], &path);
	if (!w)
		return 0;
	rc = garret_writer_open(w, path, 0, &wr, err);
	if (rc == 0)
		rc = writer_from(wr, fd, err);
	garret_workspace_free(w);
	return rc;
}

/* A file of ours is replaced when all of it is there. */
static int get_file(struct garret_reader *r, const char *to, struct garret_error *err)
{
	autofree char *temp = xasprintf("%s.garret-part", to);
	int fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
	int rc;

	if (fd < 0)
		return garret_fail_errno(err, "%s", temp);
	rc = reader_to(r, fd, err);
	if (close(fd) < 0 && rc == 0)
		rc = garret_fail_errno(err, "write %s", temp);
	if (rc == 0 && rename(temp, to) < 0)
		rc = garret_fail_errno(err, "%s", to);
	if (rc < 0)
		(void)unlink(temp);
	return rc;
}

static int get(struct provider_command *c, struct garret_error *err)
{
	struct garret_reader *r = NULL;
	struct garret_workspace *w;
	const char *path;
	int rc;

	if (c->n_words != 2)
		return garret_fail(err, GARRET_INVALID, "get takes ID:PATH and FILE (or -)");
	if (c->opts.recursive)
		return no_trees(err);
	w = provider_place(c, c->words[0], &path);
	if (!w)
		return 0;
	rc = garret_reader_open(w, path, 0, UINT64_MAX, &r, err);
	if (rc == 0)
		rc = strcmp(c->words[1], "-") != 0 ? get_file(r, c->words[1], err)
						   : reader_to(r, STDOUT_FILENO, err);
	garret_reader_close(r);
	garret_workspace_free(w);
	return rc;
}

static int tar(struct provider_command *c, struct garret_error *err)
{
	struct garret_reader *r = NULL;
	struct garret_writer *wr = NULL;
	struct garret_workspace *w;
	const char *path;
	int rc;

	if (c->n_words != 2 || (strcmp(c->words[0], "c") != 0 && strcmp(c->words[0], "x") != 0))
		return garret_fail(err, GARRET_INVALID, "tar takes c or x, and ID:PATH");
	w = provider_place(c, c->words[1], &path);
	if (!w)
		return 0;
	if (*c->words[0] == 'c') {
		rc = garret_archive_open(w, path, &r, err);
		if (rc == 0)
			rc = reader_to(r, STDOUT_FILENO, err);
		garret_reader_close(r);
	} else {
		rc = garret_unpack_open(w, path, &wr, err);
		if (rc == 0)
			rc = writer_from(wr, STDIN_FILENO, err);
	}
	garret_workspace_free(w);
	return rc;
}

/* ---- changing ---- */

static int rm(struct provider_command *c, struct garret_workspace *w, const char *path,
	      struct garret_error *err)
{
	struct garret_entry e = { 0 };
	int rc = c->opts.recursive ? 0 : garret_lstat(w, path, &e, err);

	if (rc == 0 && e.is_dir && !e.is_link)
		rc = garret_fail(err, GARRET_IS_DIRECTORY, "%s: is a directory (rm -r)", path);
	garret_entry_release(&e);
	if (rc == 0)
		rc = garret_remove(w, path, err);
	return rc == -GARRET_NOT_FOUND && c->opts.force ? 0 : rc;
}

static int mkdir_(struct provider_command *c, struct garret_workspace *w, const char *path,
		  struct garret_error *err)
{
	(void)c;
	return garret_make_dir(w, path, err);
}

static int edit(struct provider_command *c, struct garret_workspace *w, const char *path,
		struct garret_error *err)
{
	uint64_t n = 0;
	int rc;

	if (!c->opts.old || !c->opts.new)
		return garret_fail(err, GARRET_INVALID, "edit takes --old TEXT and --new TEXT");
	rc = garret_edit(w, path, c->opts.old, c->opts.new, c->opts.all, &n, err);
	if (rc == 0)
		(void)printf("%llu\n", (unsigned long long)n);
	return rc;
}

/* Both places in the same workspace. */
static int two_places(struct provider_command *c,
		      int (*fn)(struct garret_workspace *, const char *, const char *,
				struct garret_error *),
		      struct garret_error *err)
{
	struct garret_workspace *w;
	const char *from;
	char *to;
	int rc;

	if (c->n_words != 2)
		return garret_fail(err, GARRET_INVALID, "two places are wanted: ID:PATH ID:PATH");
	to = strchr(c->words[1], ':');
	if (!to || (size_t)(to - c->words[1]) != strcspn(c->words[0], ":") ||
	    strncmp(c->words[0], c->words[1], (size_t)(to - c->words[1])) != 0)
		return garret_fail(err, GARRET_INVALID, "both places must be of one workspace");
	w = provider_place(c, c->words[0], &from);
	if (!w)
		return 0;
	rc = fn(w, from, to[1] ? to + 1 : ".", err);
	garret_workspace_free(w);
	return rc;
}

static int cp(struct provider_command *c, struct garret_error *err)
{
	return two_places(c, garret_copy, err);
}

static int mv(struct provider_command *c, struct garret_error *err)
{
	return two_places(c, garret_rename, err);
}

/* ---- searching ---- */

static unsigned search_flags(const struct provider_command *c)
{
	return (c->opts.hidden ? GARRET_SEARCH_HIDDEN : 0u) |
	       (c->opts.no_ignore ? GARRET_SEARCH_NO_IGNORE : 0u) |
	       (c->opts.ignore_case ? GARRET_SEARCH_NO_CASE : 0u) |
	       (c->opts.fixed ? GARRET_SEARCH_FIXED : 0u);
}

static int find(struct provider_command *c, struct garret_error *err)
{
	struct garret_workspace *w;
	struct garret_list l;
	const char *path;
	int rc;

	if (c->n_words != 2)
		return garret_fail(err, GARRET_INVALID, "find takes ID:PATH and PATTERN");
	w = provider_place(c, c->words[0], &path);
	if (!w)
		return 0;
	rc = garret_glob(w, path, c->words[1], search_flags(c) & ~(unsigned)GARRET_SEARCH_FIXED,
			 (size_t)c->opts.count, &l, err);
	for (size_t i = 0; rc == 0 && i < l.n; i++)
		show_entry(c, &l.entry[i], l.entry[i].path);
	garret_list_release(&l);
	garret_workspace_free(w);
	return rc;
}

static int grep(struct provider_command *c, struct garret_error *err)
{
	struct garret_matches m;
	struct garret_workspace *w;
	const char *path;
	int rc;

	if (c->n_words != 2)
		return garret_fail(err, GARRET_INVALID, "grep takes PATTERN and ID:PATH");
	w = provider_place(c, c->words[1], &path);
	if (!w)
		return 0;
	rc = garret_grep(w, path, c->words[0], c->opts.include, search_flags(c),
			 (size_t)c->opts.count, &m, err);
	for (size_t i = 0; rc == 0 && i < m.n; i++) {
		show_text(m.match[i].path);
		(void)printf(":%llu:", (unsigned long long)m.match[i].line);
		show_bytes(m.match[i].text, m.match[i].text_bytes);
		(void)putchar('\n');
	}
	if (rc == 0 && !m.n && !c->status)
		c->status = 1; /* as grep has it */
	garret_matches_release(&m);
	garret_workspace_free(w);
	return rc;
}

/* ---- the table ---- */

static const struct {
	const char *name;
	int (*each)(struct provider_command *c, struct garret_workspace *w, const char *path,
		    struct garret_error *err);
	int (*once)(struct provider_command *c, struct garret_error *err);
} commands[] = {
	{ "ls", ls, NULL },     { "stat", stat_, NULL },   { "cat", cat, NULL },
	{ "rm", rm, NULL },     { "mkdir", mkdir_, NULL }, { "edit", edit, NULL },
	{ "put", NULL, put },   { "get", NULL, get },      { "tar", NULL, tar },
	{ "cp", NULL, cp },     { "mv", NULL, mv },        { "find", NULL, find },
	{ "grep", NULL, grep },
};

static void each(struct provider_command *c, size_t k)
{
	struct garret_error err = { 0 };

	if (!c->n_words) {
		(void)garret_fail(&err, GARRET_INVALID, "%s takes places: ID:PATH",
				  commands[k].name);
		provider_failed(c, "", &err);
	}
	for (char **word = c->words; *word; word++) {
		const char *path;
		struct garret_workspace *w = provider_place(c, *word, &path);

		memset(&err, 0, sizeof(err));
		if (w && commands[k].each(c, w, path, &err) < 0)
			provider_failed(c, "", &err);
		garret_workspace_free(w);
	}
}

bool provider_file_command(struct provider_command *c, const char *name)
{
	struct garret_error err = { 0 };

	for (size_t k = 0; k < ARRAY_SIZE(commands); k++) {
		if (strcmp(commands[k].name, name) != 0)
			continue;
		if (commands[k].each)
			each(c, k);
		else if (commands[k].once(c, &err) < 0)
			provider_failed(c, "", &err);
		return true;
	}
	return false;
}
