/* Operations that only look: stat, list, walk, realpath, digest. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "init/content.h"
#include "init/paths.h"

#define LIST_MAX 1000000 /* names of one directory, which are sorted in memory */
#define WALK_MAX 1000000
#define DEPTH_MAX 4096

static int look_at_link(struct worker *w, struct file_info *info, char *target,
			struct garret_error *err)
{
	char name[PATH_NAME];
	autoclose int dir = worker_open_parent(w, w->rq.path, name, err);

	if (dir < 0)
		return dir;
	if (worker_look(dir, name, true, info, target) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	return 0;
}

int op_stat(struct worker *w, struct garret_error *err)
{
	struct file_info info = { .name = "" };
	char target[PATH_MAX];
	autoclose int fd = -EBADF;
	struct stat st;
	int rc;

	if (w->rq.flags & FILE_NOFOLLOW) {
		rc = look_at_link(w, &info, target, err);
		if (rc < 0)
			return rc;
		worker_info(w, &info);
		return 0;
	}
	fd = worker_open(w, w->rq.path, O_PATH);
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	worker_fill_info(&info, &st);
	if (w->rq.flags & FILE_READABLE && info.type == FILE_REGULAR &&
	    faccessat(AT_FDCWD, w->rq.path, R_OK, 0) < 0 && errno == EACCES)
		return garret_fail_errno(err, "%s", w->rq.path);
	worker_info(w, &info);
	return 0;
}

/* A name that can't be looked at (no right to search) is still one. */
static bool look_at_entry(struct worker *w, int dir, const struct names *ns, size_t i,
			  const char *below, struct file_info *info, char *target)
{
	const char *name = names_get(ns, i);

	*info = (struct file_info){ .name = name, .type = FILE_OTHER };
	if (worker_look_below(w, dir, name, below, false, info, target) == 0)
		return true;
	if (errno == ENOENT)
		return false; /* it went away meanwhile */
	info->link = ns->list[i].type == DT_LNK;
	info->type = ns->list[i].type == DT_DIR ? FILE_DIRECTORY : FILE_OTHER;
	return true;
}

static int list_names(struct worker *w, int fd, struct names *ns, struct garret_error *err)
{
	struct file_info info;
	char target[PATH_MAX];

	names_sort(ns, w->rq.flags & FILE_DIRS_FIRST);
	for (size_t i = 0; i < ns->n; i++) {
		int rc = i % 256 ? 0 : worker_check_time(w, err);

		if (rc < 0)
			return rc;
		if (w->rq.flags & FILE_NOFOLLOW && ns->list[i].type == DT_LNK)
			continue;
		if (!look_at_entry(w, fd, ns, i, names_get(ns, i), &info, target))
			continue;
		worker_entry(w, &info);
		w->end.count++;
	}
	return 0;
}

int op_list(struct worker *w, struct garret_error *err)
{
	const size_t max = w->rq.max_entries ? w->rq.max_entries : LIST_MAX;
	autoclose int fd = worker_open(w, w->rq.path, O_RDONLY | O_DIRECTORY);
	int copy = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	struct names ns;
	int rc;

	if (copy < 0)
		return garret_fail_errno(err, "%s", w->rq.path);
	rc = names_read(&ns, copy, max, err);
	w->end.truncated = ns.more;
	if (rc == 0)
		rc = list_names(w, fd, &ns, err);
	names_release(&ns);
	return rc;
}

/* ---- walk ---- */

struct walk {
	struct worker *w;
	struct tree tree;
	uint32_t depth, wanted;
};

static void walk_entry(struct walk *k, int fd, const char *dir, const struct names *ns, size_t i)
{
	char path[FILE_NAME_MAX + 1], target[PATH_MAX];
	struct file_info info;

	if (k->w->rq.flags & FILE_NOFOLLOW && ns->list[i].type == DT_LNK)
		return;
	if (!tree_join(path, dir, names_get(ns, i))) {
		k->w->end.truncated = true;
		return;
	}
	if (!look_at_entry(k->w, fd, ns, i, path, &info, target))
		return;
	info.name = path;
	worker_entry(k->w, &info);
	k->w->end.count++;
	k->wanted--;
	if (info.type != FILE_DIRECTORY || info.link)
		return;
	if (k->tree.depth >= k->depth)
		k->w->end.truncated = true; /* even when it is empty: nobody looked */
	else
		tree_add(&k->tree, dir, names_get(ns, i));
}

/* Of each directory one name more is read than is still wanted: the work is bounded as well. */
static int walk_dir(struct walk *k, const char *dir, struct garret_error *err)
{
	autoclose int fd = tree_open(&k->tree, dir);
	int copy = fd < 0 ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	struct names ns;
	int rc;

	if (copy < 0 && *dir) { /* it went away, became a link, or may not be read */
		k->w->end.truncated = true;
		k->w->end.skipped++;
		return 0;
	}
	if (copy < 0)
		return garret_fail_errno(err, "%s", k->w->rq.path);
	rc = names_read(&ns, copy, (size_t)k->wanted + 1, err);
	if (rc == 0)
		names_sort(&ns, k->w->rq.flags & FILE_DIRS_FIRST);
	for (size_t i = 0; rc == 0 && i < ns.n; i++) {
		if (!k->wanted) {
			k->w->end.truncated = true;
			break;
		}
		walk_entry(k, fd, dir, &ns, i);
		rc = i % 256 ? 0 : worker_check_time(k->w, err);
	}
	if (ns.more) {
		k->w->end.truncated = true;
		k->wanted = 0;
	}
	names_release(&ns);
	return rc;
}

int op_walk(struct worker *w, struct garret_error *err)
{
	const struct file_request *rq = &w->rq;
	struct walk k = { .w = w,
			  .depth = rq->max_depth ? rq->max_depth : DEPTH_MAX,
			  .wanted = rq->max_entries ? rq->max_entries : WALK_MAX };
	autoclose int root = worker_open(w, rq->path, O_PATH | O_DIRECTORY);
	const char *dir;
	int rc = 0;

	if (root < 0)
		return garret_fail_errno(err, "%s", rq->path);
	tree_init(&k.tree, root);
	while (rc == 0 && (dir = tree_next(&k.tree))) {
		/* tree_add() may move what dir points to. */
		autofree char *own = xstrdup(dir);

		if (!k.wanted) {
			w->end.truncated = true;
			break;
		}
		rc = walk_dir(&k, own, err);
		if (rc == 0)
			rc = worker_check_time(w, err);
	}
	tree_release(&k.tree);
	return rc;
}

/* ---- realpath, digest ---- */

int op_realpath(struct worker *w, struct garret_error *err)
{
	return path_real(w, w->rq.path, &w->end_path, err);
}

int op_digest(struct worker *w, struct garret_error *err)
{
	static uint8_t buf[128 * 1024];
	struct stat st;
	autoclose int fd = content_open(w, &st, err);
	struct file_info info = { .name = "" };
	struct sha256_ctx sha;
	ssize_t n;
	int rc = 0;

	if (fd < 0)
		return fd;
	sha256_init(&sha);
	while (rc == 0 && (n = read(fd, buf, sizeof(buf))) != 0) {
		if (n < 0)
			return garret_fail_errno(err, "read %s", w->rq.path);
		sha256_update(&sha, (size_t)n, buf);
		w->end.count += (uint64_t)n;
		rc = worker_check_time(w, err);
	}
	if (rc < 0)
		return rc;
	sha256_digest(&sha, sizeof(w->end.digest), w->end.digest);
	worker_fill_info(&info, &st);
	worker_info(w, &info);
	return 0;
}
