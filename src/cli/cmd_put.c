/* garret put: files of the host into a session. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "cli/cmd_file.h"
#include "cli/show.h"
#include "cli/tar_write.h"
#include "cli/transfer.h"

/* clang-format off */
static const struct opt put_table[] = {
	FILE_OPT(recursive, "recursive", 'r', OPT_FLAG, NULL, "a directory with what is in it, links as links"),
	FILE_OPT_JSON("print the daemon's answer as it is"),
	FILE_OPTS_END
};
/* clang-format on */

static int put_main(int argc, char **argv);

const struct command command_put = {
	.name = "put",
	.synopsis = "[-r] [--json] FILE|- ID:PATH",
	.help = "Copy a file, standard input (-) or a directory (-r) into a session.",
	.table = put_table,
	.main = put_main,
};

/* As cp: into a directory that is there, under the name it has here. */
static int put_below(struct file_command *c, const char *from, struct place *p,
		     struct garret_error *err)
{
	autofree char *name = base_name_of(from);
	size_t n = strlen(p->typed);
	int rc = files_is_directory(&c->files, p, err);

	if (rc < 0)
		return rc;
	if (rc && name)
		place_append(p, name);
	else if (!rc && n && p->typed[n - 1] == '/' && !c->opts.recursive)
		return garret_fail(err, GARRET_NOT_FOUND, "%s: no such directory", p->text);
	return 0;
}

static int show_answer(struct file_command *c, const struct place *p, struct garret_error *err)
{
	json_t *answer = NULL;
	int rc = files_read_json(&c->files, &answer, err);

	if (rc == 0 && c->opts.json)
		show_json(answer);
	if (rc == 0)
		file_command_left_out(c, p, answer);
	json_decref(answer);
	return rc;
}

static int put_file(struct file_command *c, const struct place *p, int fd, const char *name,
		    const struct stat *st, struct garret_error *err)
{
	/* Files of /proc say that they are empty. */
	const bool known = S_ISREG(st->st_mode) && st->st_size > 0;
	struct files_request q = { .method = "PUT",
				   .route = "file",
				   .type = "application/octet-stream",
				   .length = known ? (int64_t)st->st_size : HTTP1_CHUNKED };
	struct progress progress;
	char query[24];
	int rc;

	(void)snprintf(query, sizeof(query), "&mode=%04o", (unsigned)st->st_mode & 0777);
	if (S_ISREG(st->st_mode))
		q.query = query;
	progress_begin(&progress, p->text, known ? q.length : -1);
	rc = transfer_put(&c->files, p, &q, fd, name, &progress, err);
	progress_end(&progress);
	return rc < 0 ? rc : show_answer(c, p, err);
}

/* ---- trees ---- */

struct upload {
	struct file_command *c;
	const struct place *place;
	const char *from;
	struct progress progress;
	size_t n;
	char buf[64 * 1024];
};

static int flush(struct upload *u, struct garret_error *err)
{
	int rc = http1_send(&u->c->files.http, u->buf, u->n, err);

	if (rc < 0)
		return garret_wrap(rc, err, "%s", u->place->text);
	progress_add(&u->progress, u->n);
	u->n = 0;
	return rc;
}

static int upload_write(void *ctx, const void *data, size_t n, struct garret_error *err)
{
	struct upload *u = ctx;
	const char *at = data;

	while (n) {
		size_t now = MIN(n, sizeof(u->buf) - u->n);

		memcpy(u->buf + u->n, at, now);
		u->n += now;
		at += now;
		n -= now;
		if (u->n == sizeof(u->buf)) {
			int rc = flush(u, err);

			if (rc)
				return rc;
		}
	}
	return 0;
}

static void upload_left_out(void *ctx, const char *path, const char *why)
{
	struct upload *u = ctx;
	struct garret_error err = { 0 };

	progress_end(&u->progress);
	(void)garret_fail(&err, GARRET_NOT_REGULAR, "%s/%s: left out: %s", u->from, path, why);
	file_command_failed(u->c, &err);
}

static int put_tree(struct file_command *c, const struct place *p, int dir, const char *from,
		    struct garret_error *err)
{
	static struct upload u;
	const struct tar_write to = { upload_write, upload_left_out, &u };
	const struct files_request q = { .method = "PUT",
					 .route = "tar",
					 .query = "&parents=1",
					 .type = "application/x-tar",
					 .length = HTTP1_CHUNKED };
	int rc = files_begin(&c->files, p, &q, err);

	u = (struct upload){ .c = c, .place = p, .from = from };
	progress_begin(&u.progress, p->text, -1);
	if (rc == 0)
		rc = tar_write_tree(&to, dir, from, err);
	if (rc == 0)
		rc = flush(&u, err);
	progress_end(&u.progress);
	if (rc < 0) {
		http1_close(&c->files.http);
		return rc;
	}
	rc = files_answer(&c->files, p, NULL, err);
	return rc < 0 ? rc : show_answer(c, p, err);
}

/* ---- the command ---- */

static int put(struct file_command *c, const char *from, struct place *p, struct garret_error *err)
{
	autoclose int opened = -EBADF;
	int fd = STDIN_FILENO, rc = 0;
	struct stat st;

	if (strcmp(from, "-") != 0)
		fd = opened = open(from, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "%s", from);
	if (S_ISDIR(st.st_mode) && !c->opts.recursive)
		return garret_fail(err, GARRET_IS_DIRECTORY, "%s: Is a directory (put -r)", from);
	if (fd == opened)
		rc = put_below(c, from, p, err);
	if (rc < 0)
		return rc;
	return S_ISDIR(st.st_mode)
		       ? put_tree(c, p, fd, from, err)
		       : put_file(c, p, fd, fd == opened ? from : "standard input", &st, err);
}

static int put_main(int argc, char **argv)
{
	struct file_command c;
	autoplace struct place p = PLACE_INIT;
	struct garret_error err = { 0 };
	int rc = -GARRET_INVALID;

	if (!file_command_begin(&c, &command_put, argc, argv, 2, 2))
		return c.status;
	if (place_is(c.words[0]))
		(void)garret_fail(&err, GARRET_INVALID,
				  "%s: put copies a file of the host (one with such a name: ./%s)",
				  c.words[0], c.words[0]);
	else
		rc = files_place(&c.files, c.words[1], &p, &err);
	if (rc == 0)
		rc = put(&c, c.words[0], &p, &err);
	if (rc < 0)
		file_command_failed(&c, &err);
	return file_command_end(&c);
}
