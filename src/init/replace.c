#include "init/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"

static bool same_tag(const struct file_tag *a, const struct file_tag *b)
{
	return a->inode == b->inode && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

/*
 * The kernel follows no magic link for us, and the text of one (/proc/self/fd/4)
 * says nothing either: it is of this process.
 */
static int refuse_magic(struct worker *w, const char *path, struct garret_error *err)
{
	autoclose int fd = worker_open(w, path, O_PATH);

	return fd < 0 && errno == ELOOP ? garret_fail_errno(err, "%s", path) : 0;
}

/* The directory and the name, through a link at the end and with missing parents made. */
static int find_place(struct worker *w, struct replace *r, const char *path,
		      struct garret_error *err)
{
	autobuf struct strbuf real = STRBUF_INIT;
	struct stat st;
	int rc;

	r->dir = worker_open_parent(w, path, r->name, err);
	if (r->dir >= 0 &&
	    (fstatat(r->dir, r->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISLNK(st.st_mode)))
		return 0;
	if (r->dir < 0 && !(err->sys == ENOENT && w->rq.flags & FILE_PARENTS))
		return r->dir;
	r->dir = fd_close(r->dir);
	rc = refuse_magic(w, path, err);
	if (rc == 0)
		rc = path_real(w, path, &real, err);
	if (rc < 0)
		return rc;
	*err = (struct garret_error){ 0 };
	r->dir = path_place(w, real.buf, r->name, err);
	return r->dir < 0 ? r->dir : 0;
}

static int check_old(struct worker *w, struct replace *r, const char *path,
		     struct garret_error *err)
{
	struct file_info info;

	r->exists = fstatat(r->dir, r->name, &r->st, AT_SYMLINK_NOFOLLOW) == 0;
	if (!r->exists && errno != ENOENT)
		return garret_fail_errno(err, "%s", path);
	if (!r->exists)
		return w->rq.flags & FILE_IF_MATCH
			       ? garret_fail(err, GARRET_CHANGED, "%s is gone", path)
			       : 0;
	if (S_ISDIR(r->st.st_mode))
		return garret_fail(err, GARRET_IS_DIRECTORY, "%s", path);
	if (!S_ISREG(r->st.st_mode)) {
		errno = ELOOP; /* a link that 40 links lead to */
		return S_ISLNK(r->st.st_mode) ? garret_fail_errno(err, "%s", path)
					      : garret_fail(err, GARRET_NOT_REGULAR, "%s", path);
	}
	if (w->rq.flags & FILE_EXCLUSIVE)
		return garret_fail(err, GARRET_EXISTS, "%s", path);
	worker_fill_info(&info, &r->st);
	if (w->rq.flags & FILE_IF_MATCH && w->rq.tag.inode && !same_tag(&info.tag, &w->rq.tag))
		return garret_fail(err, GARRET_CHANGED, "%s is not what it was", path);
	if (faccessat(r->dir, r->name, W_OK, 0) < 0)
		return garret_fail_errno(err, "%s", path);
	return 0;
}

static int temp_name(struct worker *w, const struct replace *r)
{
	if (path_temp_name(w->temp_name) < 0)
		return -1;
	w->temp_dir = r->dir;
	return 0;
}

static int open_temp(struct worker *w, struct replace *r, mode_t mode)
{
	r->fd = openat(r->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
	if (r->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT))
		return r->fd;
	if (temp_name(w, r) < 0)
		return -1;
	r->fd = openat(r->dir, w->temp_name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, mode);
	if (r->fd < 0)
		w->temp_name[0] = '\0';
	return r->fd;
}

int replace_begin(struct worker *w, struct replace *r, const char *path, mode_t new_mode,
		  struct garret_error *err)
{
	mode_t mode = new_mode & 0777;
	int rc;

	*r = (struct replace){ .dir = -EBADF, .fd = -EBADF };
	w->temp_name[0] = '\0';
	rc = find_place(w, r, path, err);
	if (rc == 0)
		rc = check_old(w, r, path, err);
	if (rc == 0 && r->exists)
		mode = r->st.st_mode & 0777;
	if (rc == 0 && open_temp(w, r, mode) < 0)
		rc = garret_fail_errno(err, "%s", path);
	if (rc == 0 && r->exists && fchmod(r->fd, mode) < 0)
		rc = garret_fail_errno(err, "set the mode of %s", path);
	if (rc < 0)
		replace_abort(w, r);
	return rc;
}

void replace_abort(struct worker *w, struct replace *r)
{
	int saved = errno;

	if (w->temp_name[0])
		(void)unlinkat(w->temp_dir, w->temp_name, 0);
	w->temp_name[0] = '\0';
	r->fd = fd_close(r->fd);
	r->dir = fd_close(r->dir);
	errno = saved;
}

/* Give the nameless file a name; false with errno. */
static bool link_as(const struct replace *r, const char *name)
{
	char from[32];

	(void)snprintf(from, sizeof(from), "/proc/self/fd/%d", r->fd);
	return linkat(AT_FDCWD, from, r->dir, name, AT_SYMLINK_FOLLOW) == 0;
}

static bool put_in_place(struct worker *w, struct replace *r)
{
	bool exclusive = w->rq.flags & FILE_EXCLUSIVE;

	if (!w->temp_name[0]) {
		if (!r->exists && link_as(r, r->name))
			return true;
		if (!r->exists && (errno != EEXIST || exclusive))
			return false;
		if (temp_name(w, r) < 0 || !link_as(r, w->temp_name)) {
			w->temp_name[0] = '\0';
			return false;
		}
	}
	if (renameat2(r->dir, w->temp_name, r->dir, r->name, exclusive ? RENAME_NOREPLACE : 0) < 0)
		return false;
	w->temp_name[0] = '\0';
	return true;
}

static bool sync_dir(const struct replace *r)
{
	autoclose int fd = openat(r->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd >= 0 && fsync(fd) == 0;
}

int replace_commit(struct worker *w, struct replace *r, struct file_info *ret_info,
		   struct garret_error *err)
{
	bool sync = w->rq.flags & FILE_SYNC;
	struct stat st;
	int rc = 0;

	if ((sync && fsync(r->fd) < 0) || !put_in_place(w, r) || (sync && !sync_dir(r)))
		rc = garret_fail_errno(err, "%s", r->name);
	else if (ret_info && fstat(r->fd, &st) < 0)
		rc = garret_fail_errno(err, "look at %s", r->name);
	else if (ret_info)
		worker_fill_info(ret_info, &st);
	replace_abort(w, r);
	return rc;
}
