/* garret get: files of a session to the host. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "cli/cmd_file.h"
#include "cli/fetch.h"
#include "cli/host.h"
#include "cli/transfer.h"

/* clang-format off */
static const struct opt get_table[] = {
	FILE_OPT(recursive, "recursive", 'r', OPT_FLAG, NULL, "a directory with what is in it"),
	FILE_OPTS_END
};
/* clang-format on */

static int get_main(int argc, char **argv);

const struct command command_get = {
	.name = "get",
	.synopsis = "[-r] ID:PATH FILE|-",
	.help = "Copy a file or a directory (-r) of a session to the host, or a file to standard output (-).",
	.table = get_table,
	.main = get_main,
};

/* Where something is made on the host. */
struct target {
	int dir;    /* the directory; -EBADF: path is written to in place */
	char *name; /* in it */
	char *path;
};

static void target_release(struct target *target)
{
	target->dir = fd_close(target->dir);
	free(take_ptr(&target->name));
	free(take_ptr(&target->path));
}

static int open_directory_of(struct target *t, struct garret_error *err)
{
	const char *slash = strrchr(t->path, '/');
	autofree char *dir =
		slash ? xstrndup(t->path, slash == t->path ? 1 : (size_t)(slash - t->path))
		      : xstrdup(".");

	t->name = xstrdup(slash ? slash + 1 : t->path);
	t->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return t->dir < 0 ? garret_fail_errno(err, "%s", dir) : 0;
}

/*
 * As cp: into a directory that is there, through a link to its target.  What is
 * there and no regular file (a device, a pipe) is written to, never replaced.
 */
static int find_target(const struct place *p, const char *to, struct target *t,
		       struct garret_error *err)
{
	autofree char *name = place_name(p);
	char real[PATH_MAX];
	struct stat st;
	size_t n = strlen(to);

	t->path = xstrdup(to);
	if (stat(to, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (!name)
			return garret_fail(err, GARRET_IS_DIRECTORY, "%s: Is a directory", to);
		free(t->path);
		t->path = xasprintf("%s%s%s", to, to[n - 1] == '/' ? "" : "/", name);
	} else if (n && to[n - 1] == '/') {
		return garret_fail(err, GARRET_NOT_FOUND, "%s: no such directory", to);
	}
	if (stat(t->path, &st) < 0)
		return open_directory_of(t, err);
	if (S_ISDIR(st.st_mode))
		return garret_fail(err, GARRET_IS_DIRECTORY, "%s: Is a directory", t->path);
	if (!S_ISREG(st.st_mode))
		return 0;
	if (!realpath(t->path, real))
		return garret_fail_errno(err, "%s", t->path);
	free(t->path);
	t->path = xstrdup(real);
	return open_directory_of(t, err);
}

static int write_file(void *ctx, const void *data, size_t n, struct garret_error *err)
{
	return host_file_write(ctx, data, n, err);
}

static int get_into(struct file_command *c, const struct place *p, const struct target *t,
		    struct progress *progress, struct garret_error *err)
{
	struct host_file file = HOST_FILE_INIT;
	const struct sink to = { write_file, &file };
	mode_t mode = 0;
	int rc = 0;

	if (t->dir >= 0) {
		rc = host_file_create(&file, t->dir, t->name, err);
		/* It knows the last name only. */
		if (rc < 0 && err->sys) {
			errno = err->sys;
			rc = garret_fail_errno(err, "%s", t->path);
		}
	} else if ((file.fd = open(t->path, O_WRONLY | O_NOCTTY | O_CLOEXEC)) < 0) {
		rc = garret_fail_errno(err, "%s", t->path);
	}
	if (rc == 0)
		rc = transfer_get(&c->files, p, &to, &mode, progress, err);
	if (rc == 0)
		rc = host_file_commit(&file, mode, err);
	host_file_abandon(&file);
	return rc;
}

static int get_file(struct file_command *c, const struct place *p, const char *to,
		    struct garret_error *err)
{
	struct target t = { .dir = -EBADF };
	int out = STDOUT_FILENO, rc;
	const struct sink plain = { sink_fd, &out };
	struct progress progress;

	progress_begin(&progress, p->text, -1);
	if (!strcmp(to, "-"))
		rc = transfer_get(&c->files, p, &plain, NULL, isatty(out) ? NULL : &progress, err);
	else if ((rc = find_target(p, to, &t, err)) == 0)
		rc = get_into(c, p, &t, &progress, err);
	progress_end(&progress);
	target_release(&t);
	return rc;
}

/* DIR becomes the copy; when it is there already, the copy is made in it. */
static int get_tree(struct file_command *c, const struct place *p, const char *to,
		    struct garret_error *err)
{
	autofree char *name = place_name(p), *path = NULL;
	autoclose int dir = -EBADF;
	struct stat st;
	bool there = stat(to, &st) == 0;

	if (there && !S_ISDIR(st.st_mode))
		return garret_fail(err, GARRET_NOT_DIRECTORY, "%s: Not a directory", to);
	path = there && name ? xasprintf("%s/%s", to, name) : xstrdup(to);
	if (mkdir(path, 0777) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "%s", path);
	/* A link in its place was there before, and isn't what was asked for. */
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (there && name ? O_NOFOLLOW : 0));
	if (dir < 0)
		return garret_fail_errno(err, "%s", path);
	return fetch_tree(c, p, dir, err);
}

static int get(struct file_command *c, const struct place *p, const char *to,
	       struct garret_error *err)
{
	int rc = c->opts.recursive ? files_is_directory(&c->files, p, err) : 0;

	if (rc < 0)
		return rc;
	if (rc && !strcmp(to, "-"))
		return garret_fail(err, GARRET_IS_DIRECTORY,
				   "%s: Is a directory (as a stream: garret tar c)", p->text);
	return rc ? get_tree(c, p, to, err) : get_file(c, p, to, err);
}

static int get_main(int argc, char **argv)
{
	struct file_command c;
	autoplace struct place p = PLACE_INIT;
	struct garret_error err = { 0 };
	int rc = -GARRET_INVALID;

	if (!file_command_begin(&c, &command_get, argc, argv, 2, 2))
		return c.status;
	if (place_is(c.words[1]))
		(void)garret_fail(
			&err, GARRET_INVALID,
			"%s: get copies to a file of the host (one with such a name: ./%s)",
			c.words[1], c.words[1]);
	else
		rc = files_place(&c.files, c.words[0], &p, &err);
	if (rc == 0)
		rc = get(&c, &p, c.words[1], &err);
	if (rc < 0)
		file_command_failed(&c, &err);
	return file_command_end(&c);
}
