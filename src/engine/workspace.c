/*
 * Workspaces: <root>/<id>/workspace, where <id> is ours alone (0700), so that no
 * other user of the host can reach what sessions leave.  A few stand ready in
 * .spare, to be given a name: on a journalling file system that is several times
 * cheaper than making two directories while a client waits.
 */
#include "engine/workspace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/time.h"
#include "engine/engine.h"
#include "engine/image.h"

#define MARK "trusted.garret" /* on what lies above a workspace */
#define SPARES 4
#define REFILL_MS 20 /* after the last open, so that it never delays one */

/* Our own parent of a workspace: nobody else may pass through it. */
static int open_parent(struct engine *e, const char *id, struct garret_error *err)
{
	autoclose int fd = open_dir_make(e->workspaces_fd, id, 0700, err);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return garret_fail_errno(err, "look at %s", id);
	if (st.st_uid == 0 && st.st_mode & 077 && fchmodat(e->workspaces_fd, id, 0700, 0) == 0)
		st.st_mode &= ~077u;
	if (st.st_uid != 0 || st.st_mode & 077)
		return garret_fail(err, GARRET_DENIED,
				   "the directory of workspace %s can be entered by others: "
				   "chown root and chmod 700 it",
				   id);
	return take_fd(&fd);
}

static int open_existing(struct engine *e, const char *id, struct garret_error *err)
{
	char path[ENGINE_ID_MAX + 16];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/workspace", id);
	fd = open_beneath(e->workspaces_fd, path, O_PATH | O_DIRECTORY, 0);
	/* What else lies in the operator's directory isn't ours: a file, a link, no `workspace`. */
	if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
		return garret_fail(err, GARRET_NOT_FOUND, "there is no workspace %s", id);
	return fd < 0 ? garret_fail_errno(err, "open workspace %s", id) : fd;
}

/* Is there one?  Looked at before anything is made. */
static int must_exist(struct engine *e, const char *id, struct garret_error *err)
{
	autoclose int fd = open_existing(e, id, err);

	return fd < 0 ? fd : 0;
}

/* Owned by no account: a session can leave a set-user-id file of this id. */
static uint32_t workspace_owner(const struct engine *e)
{
	return e->conf.id_start + SLOT_IDS - 1;
}

/* Refused by few file systems; there nothing is removed by age. */
static void mark(int parent)
{
	autoclose int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char c;

	if (fd >= 0 && fgetxattr(fd, MARK, &c, 1) < 0)
		(void)fsetxattr(fd, MARK, "1", 1, 0);
}

static int make_workspace(const struct engine *e, int parent)
{
	const uint32_t owner = workspace_owner(e);

	mark(parent);
	if (mkdirat(parent, "workspace", 0755) < 0)
		return errno == EEXIST ? 0 : -1;
	return fchownat(parent, "workspace", owner, owner, AT_SYMLINK_NOFOLLOW);
}

static int check_owner(const struct engine *e, const char *id, const struct stat *st,
		       struct garret_error *err)
{
	const uint32_t owner = workspace_owner(e);

	if (st->st_uid != 0)
		return 0;
	return garret_fail(err, GARRET_DENIED,
			   "workspace %s belongs to root; give it away with: chown -R %u:%u", id,
			   owner, owner);
}

/* Have one more workspace ready; the timer comes again until there are enough. */
static void make_spare(struct loop_timer *t)
{
	struct engine *e = t->ctx;
	autoclose int parent = -EBADF;
	char name[12];

	(void)snprintf(name, sizeof(name), "%u", e->n_spares);
	parent = open_dir_make(e->spares_fd, name, 0700, NULL);
	if (parent < 0 || make_workspace(e, parent) < 0)
		return; /* what keeps us from it will be told to the open that meets it */
	if (++e->n_spares < SPARES)
		loop_timer_set(e->loop, t, now_ms() + 1, make_spare, e);
}

void workspace_refill(struct engine *e)
{
	if (e->n_spares < SPARES)
		loop_timer_set(e->loop, &e->spare_timer, now_ms() + REFILL_MS, make_spare, e);
}

/* Give a ready one the name ID, unless that exists. */
static void use_spare(struct engine *e, const char *id)
{
	char name[12];

	(void)snprintf(name, sizeof(name), "%u", e->n_spares - 1);
	if (e->n_spares &&
	    renameat2(e->spares_fd, name, e->workspaces_fd, id, RENAME_NOREPLACE) == 0)
		e->n_spares--;
	workspace_refill(e);
}

/* Is it, or will it be, a file system in a file? */
static int choose_image(const struct engine *e, int parent, int dir, uint64_t disk_bytes,
			struct workspace *ret, struct garret_error *err)
{
	bool there = image_there(parent);

	if (!there && (!disk_bytes || e->disk.quota))
		return 0;
	if (!there && !disk_dir_empty(dir))
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "it has files of a time without a limit of disk; only a new "
				   "workspace can get one here");
	ret->image = true;
	ret->image_bytes = disk_bytes;
	return 0;
}

int workspace_open(struct engine *e, const char *id, bool attach, uint64_t disk_bytes,
		   struct workspace *ret, struct garret_error *err)
{
	autoclose int parent = -EBADF, fd = -EBADF;
	struct workspace w = { .fd = -EBADF };
	struct stat st;
	int rc = attach ? must_exist(e, id, err) : 0;

	if (rc < 0)
		return rc;
	use_spare(e, id);
	parent = open_parent(e, id, err);
	if (parent < 0)
		return garret_wrap(parent, err, "workspace %s", id);
	if (make_workspace(e, parent) < 0)
		return garret_fail_errno(err, "make workspace %s", id);
	fd = open_beneath(parent, "workspace", O_PATH | O_DIRECTORY, 0);
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "open workspace %s", id);
	rc = check_owner(e, id, &st, err);
	if (rc == 0)
		rc = choose_image(e, parent, fd, disk_bytes, &w, err);
	if (rc == 0 && !w.image)
		rc = disk_bound(e, parent, fd, disk_bytes, &w.project, err);
	if (rc < 0)
		return garret_wrap(rc, err, "workspace %s", id);
	workspace_touch(e, id);
	w.uid = st.st_uid;
	w.gid = st.st_gid;
	w.fd = w.image ? take_fd(&parent) : take_fd(&fd);
	*ret = w;
	return 0;
}

int workspace_find(struct engine *e, const char *id, struct workspace *ret,
		   struct garret_error *err)
{
	autoclose int fd = open_existing(e, id, err);
	autoclose int parent =
		fd < 0 ? -EBADF : open_beneath(e->workspaces_fd, id, O_PATH | O_DIRECTORY, 0);
	struct stat st;
	int rc;

	if (fd < 0)
		return fd;
	if (parent < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "look at workspace %s", id);
	rc = check_owner(e, id, &st, err);
	if (rc < 0)
		return rc;
	*ret = (struct workspace){ .uid = st.st_uid,
				   .gid = st.st_gid,
				   .image = image_there(parent) };
	ret->fd = ret->image ? take_fd(&parent) : take_fd(&fd);
	return 0;
}

bool workspace_marked(int root, const char *id)
{
	autoclose int fd = open_beneath(root, id, O_RDONLY | O_DIRECTORY, 0);
	char c;

	return fd >= 0 && fgetxattr(fd, MARK, &c, 1) == 1;
}

uint64_t workspace_used_ms(const struct engine *e, const char *id)
{
	struct stat st;

	if (fstatat(e->workspaces_fd, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
}

uint64_t workspace_bytes(const struct engine *e, const char *id)
{
	autoclose int parent = open_beneath(e->workspaces_fd, id, O_RDONLY | O_DIRECTORY, 0);
	uint32_t project = parent < 0 ? 0 : disk_project(parent);
	uint64_t bytes, files;

	if (!project || disk_usage(e->workspaces_fd, project, &bytes, &files) < 0)
		return UINT64_MAX;
	return bytes;
}

void workspace_touch(struct engine *e, const char *id)
{
	(void)utimensat(e->workspaces_fd, id, NULL, AT_SYMLINK_NOFOLLOW);
}

int workspace_remove(struct engine *e, const char *id, struct garret_error *err)
{
	int rc = must_exist(e, id, err);
	char name[40];

	if (rc < 0)
		return rc;
	/* The same id may come back and go again before this one is deleted. */
	(void)snprintf(name, sizeof(name), "%016llx-%u", (unsigned long long)wall_us(),
		       e->n_removed++);
	if (renameat2(e->workspaces_fd, id, e->workspaces_trash_fd, name, RENAME_NOREPLACE) < 0)
		return garret_fail_errno(err, "remove workspace %s", id);
	return 0;
}
