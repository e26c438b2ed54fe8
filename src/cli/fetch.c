/*
 * The tree is hostile: it is listed and each file read by itself, and every name
 * of the host is opened below the destination without following a link, so that
 * neither a name, nor a link of the tree, nor one that is there already leads
 * out.  Links are made as they are when they can only lead inside.  Devices and
 * the like don't exist in a list, set-id bits are never kept.
 */
#include "cli/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/host.h"
#include "cli/transfer.h"

struct fetch {
	struct file_command *c;
	const struct place *root;
	int into;
	mode_t mask;
	struct progress progress;
	/* The directory that the last entry lay in: most entries follow one of the same. */
	int parent;
	char *parent_path;
};

/* Below the root, of names only: no empty one, no . and no .. */
static const char *relative_path(const struct fetch *f, const char *path)
{
	size_t n = strlen(f->root->path);

	while (n && f->root->path[n - 1] == '/')
		n--;
	if (strncmp(path, f->root->path, n) != 0 || path[n] != '/')
		return NULL;
	path += n + 1;
	for (const char *p = path;; p++) {
		size_t len = strcspn(p, "/");

		if (!len || (len == 1 && *p == '.') || (len == 2 && !memcmp(p, "..", 2)))
			return NULL;
		p += len;
		if (!*p)
			return path;
	}
}

/*
 * Can a link at `path` only lead inside?  Not by cutting `x/..` out of the target:
 * x may be a link itself, and `..` then leaves what it points to.  So `..` may
 * only stand in front, where it counts from the directory that the link is in.
 */
static bool stays_inside(const char *path, const char *target)
{
	unsigned depth = 0;
	bool down = false;

	for (const char *p = path; *p; p++)
		depth += *p == '/';
	if (*target == '/' || !*target)
		return false;
	while (*target) {
		size_t len = strcspn(target, "/");

		if (len == 2 && !memcmp(target, "..", 2)) {
			if (down || !depth)
				return false;
			depth--;
		} else if (len && !(len == 1 && *target == '.')) {
			down = true;
		}
		target += len;
		target += strspn(target, "/");
	}
	return true;
}

/* The directory of the host that `path` is made in: borrowed, until the next call. */
static int open_parent(struct fetch *f, const char *path, const char **name,
		       struct garret_error *err)
{
	const char *slash = strrchr(path, '/');
	autofree char *dir = slash ? xstrndup(path, (size_t)(slash - path)) : NULL;

	*name = slash ? slash + 1 : path;
	if (!dir)
		return f->into;
	if (f->parent_path && !strcmp(f->parent_path, dir))
		return f->parent;
	f->parent = fd_close(f->parent);
	free(take_ptr(&f->parent_path));
	f->parent = open_beneath(f->into, dir, O_PATH | O_DIRECTORY, 0);
	if (f->parent < 0)
		return garret_fail_errno(err, "%s", dir);
	f->parent_path = take_ptr(&dir);
	return f->parent;
}

/* A link there, also to a directory, is not what we made. */
static int make_directory(const struct fetch *f, int dir, const char *name, const struct entry *e,
			  struct garret_error *err)
{
	struct stat st;

	/* Without w and x for us nothing could be made in it. */
	if (mkdirat(dir, name, (e->mode | 0700) & 0777 & ~f->mask) == 0)
		return 0;
	if (errno == EEXIST && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    S_ISDIR(st.st_mode))
		return 0;
	errno = errno == EEXIST ? ENOTDIR : errno;
	return garret_fail_errno(err, "%s", name);
}

static int make_link(int dir, const char *name, const char *path, const struct entry *e,
		     struct garret_error *err)
{
	struct stat st;

	/* The list says U+FFFD for what it can't hold: another target than it was. */
	if (strstr(e->link, "\xEF\xBF\xBD"))
		return garret_fail(err, GARRET_INVALID, "a link to a name that isn't UTF-8");
	if (!stays_inside(path, e->link))
		return garret_fail(err, GARRET_DENIED, "a link that leads out, to %.200s", e->link);
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
		(void)unlinkat(dir, name, 0);
	return symlinkat(e->link, dir, name) < 0 ? garret_fail_errno(err, "%s", name) : 0;
}

static int write_file(void *ctx, const void *data, size_t n, struct garret_error *err)
{
	return host_file_write(ctx, data, n, err);
}

static int make_file(struct fetch *f, int dir, const char *name, const struct place *from,
		     struct garret_error *err)
{
	struct host_file file = HOST_FILE_INIT;
	const struct sink to = { write_file, &file };
	mode_t mode = 0;
	int rc = host_file_create(&file, dir, name, err);

	if (rc == 0)
		rc = transfer_get(&f->c->files, from, &to, &mode, &f->progress, err);
	if (rc == 0)
		rc = host_file_commit(&file, mode, err);
	host_file_abandon(&file);
	return rc;
}

static int make_entry(struct fetch *f, const char *path, const struct entry *e,
		      const struct place *from, struct garret_error *err)
{
	const char *name;
	int dir = open_parent(f, path, &name, err);

	if (dir < 0)
		return dir;
	switch (e->type) {
	case 'd':
		return make_directory(f, dir, name, e, err);
	case 'l':
		return make_link(dir, name, path, e, err);
	case '-':
		return make_file(f, dir, name, from, err);
	default:
		return garret_fail(err, GARRET_NOT_REGULAR,
				   "neither a file, a directory nor a link");
	}
}

/* Without the daemon, and without space, every further entry would fail as well. */
static bool is_hopeless(const struct garret_error *err)
{
	return err->code == GARRET_UNAVAILABLE || err->code == GARRET_GONE ||
	       err->code == GARRET_NO_SPACE || err->code == GARRET_UNAUTHORIZED;
}

static int on_item(void *ctx, json_t *item, struct garret_error *err)
{
	struct fetch *f = ctx;
	autoentry struct entry e = { 0 };
	autoplace struct place from = PLACE_INIT;
	struct garret_error why = { 0 }, said = { 0 };
	const char *path;
	int rc = entry_parse(item, &e, err);

	if (rc < 0)
		return rc;
	path = relative_path(f, e.path);
	if (!path)
		return garret_fail(err, GARRET_PROTOCOL,
				   "the list names what isn't below it: %.200s", e.path);
	memcpy(from.id, f->root->id, sizeof(from.id));
	from.path = xstrdup(e.path);
	from.typed = xstrdup(e.path);
	from.text = xasprintf("%s:%s", from.id, e.path);
	rc = make_entry(f, path, &e, &from, &why);
	if (rc < 0 && is_hopeless(&why)) {
		*err = why;
		return rc;
	}
	if (rc < 0) {
		progress_end(&f->progress);
		/* Some of them name the place already. */
		(void)garret_fail(&said, why.code, "%s%s%s",
				  strncmp(why.msg, from.text, strlen(from.text)) ? from.text : "",
				  strncmp(why.msg, from.text, strlen(from.text)) ? ": left out: "
										 : "",
				  why.msg);
		file_command_failed(f->c, &said);
	}
	return 0;
}

int fetch_tree(struct file_command *c, const struct place *p, int into, struct garret_error *err)
{
	struct fetch f = {
		.c = c, .root = p, .into = into, .mask = host_umask(), .parent = -EBADF
	};
	json_t *rest = NULL;
	int rc;

	progress_begin(&f.progress, p->text, -1);
	f.progress.many = true;
	rc = files_list(&c->files, p, "list", json_pack("{s:i}", "max_depth", 4096), on_item, &f,
			&rest, err);
	progress_end(&f.progress);
	fd_close(f.parent);
	free(f.parent_path);
	if (rc == 0)
		file_command_partial(c, p, rest);
	return rc;
}
