/*
 * The life of one slot before it is a session.  Everything slow happens here and
 * ahead of a request: on an idle machine each write to cgroup.procs waits for
 * 12 ms, and what is cloned from here inherits the groups for nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/disk.h"
#include "engine/image.h"
#include "engine/mount.h"
#include "engine/net.h"
#include "engine/userns.h"
#include "engine/zygote.h"
#include "io/msg.h"

struct helper {
	const struct zygote *z;
	const struct slot_order *slot;
	int sock, net_fd, userns_fd, idmap_fd;
	uint32_t disk_owner; /* W = G of what the engine makes */
};

static int make_dir(int sessions, const char *slot, const char *name, mode_t mode, uint32_t owner,
		    struct garret_error *err)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "%s%s%s", slot, *name ? "/" : "", name);
	if (mkdirat(sessions, path, mode & 0700) < 0)
		return garret_fail_errno(err, "make %s of a session", path);
	if (fchownat(sessions, path, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fchmodat(sessions, path, mode, 0) < 0)
		return garret_fail_errno(err, "hand %s to a session", path);
	return 0;
}

/* Made empty ahead, so that only its content is written while somebody waits. */
static int write_hosts(const struct helper *h, const char *text, int flags,
		       struct garret_error *err)
{
	char path[64];
	autoclose int fd = -EBADF;

	(void)snprintf(path, sizeof(path), "%s/hosts", h->slot->name);
	fd = openat(h->z->sessions_fd, path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | flags, 0644);
	if (fd < 0 || write_full(fd, text, strlen(text)) < 0)
		return garret_fail_errno(err, "write the session's hosts file");
	return 0;
}

/* Empty until the session is there: then the engine writes whose it is. */
static int make_meta(const struct helper *h, struct garret_error *err)
{
	char path[64];
	autoclose int fd = -EBADF;

	(void)snprintf(path, sizeof(path), "%s/meta", h->slot->name);
	fd = openat(h->z->sessions_fd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? garret_fail_errno(err, "make the session's meta file") : 0;
}

static int give_project(const struct helper *h, struct garret_error *err)
{
	autoclose int dir = open_beneath(h->z->sessions_fd, h->slot->name, O_PATH | O_DIRECTORY, 0);

	if (dir < 0)
		return garret_fail_errno(err, "open the directory of a slot");
	return disk_set_project(dir, h->slot->project, err);
}

static int prepare_dirs(const struct helper *h, struct garret_error *err)
{
	static const struct {
		const char *name;
		mode_t mode;
	} dirs[] = { { "home", 0755 }, { "work", 0755 }, { "vartmp", 01777 } };
	int sessions = h->z->sessions_fd, rc;

	rc = make_dir(sessions, h->slot->name, "", 0700, 0, err);
	if (rc == 0 && h->slot->project)
		rc = give_project(h, err); /* what is made in it inherits it */
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(dirs); i++)
		rc = make_dir(sessions, h->slot->name, dirs[i].name, dirs[i].mode, h->disk_owner,
			      err);
	if (rc == 0)
		rc = make_meta(h, err);
	return rc < 0 ? rc : write_hosts(h, "", O_CREAT | O_EXCL, err);
}

static int prepare_net(struct helper *h, struct garret_error *err)
{
	if (h->net_fd < 0) {
		h->net_fd = net_unshare(h->z->proc_fd, err);
		return h->net_fd < 0 ? h->net_fd : 0;
	}
	if (setns(h->net_fd, CLONE_NEWNET) < 0)
		return garret_fail_errno(err, "enter a network namespace");
	return 0;
}

static int prepare(struct helper *h, struct garret_error *err)
{
	int rc = cgroups_enter(&h->z->cg, h->slot->name, h->slot->base + INIT_ID, err);

	if (rc < 0)
		return rc;
	h->userns_fd = userns_session(h->z->proc_fd, h->slot->base, err);
	if (h->userns_fd < 0)
		return h->userns_fd;
	h->idmap_fd = userns_idmap(h->z->proc_fd, h->slot->base, h->z->setup.disk_id, h->disk_owner,
				   h->disk_owner, err);
	if (h->idmap_fd < 0)
		return h->idmap_fd;
	rc = prepare_net(h, err);
	return rc < 0 ? rc : prepare_dirs(h, err);
}

/* Give one mount its ids and attributes, and look whether it can be written as it should. */
static int dress_mount(const struct helper *h, const struct build_mount *m, bool files, int fd,
		       struct garret_error *err)
{
	uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
			 (m->read_only ? MOUNT_ATTR_RDONLY : 0) | (files ? MOUNT_ATTR_NOEXEC : 0);
	bool ours = m->uid == h->disk_owner && m->gid == h->disk_owner;
	autoclose int own = -EBADF;
	struct statvfs vfs;
	int rc;

	if (m->project) {
		/* Before the ids are mapped: then root could not open what isn't in the map. */
		rc = disk_convert(fd, m->project, err);
		if (rc < 0)
			return rc;
	}
	if (!ours && !m->plain) {
		own = userns_idmap(h->z->proc_fd, h->slot->base, h->z->setup.disk_id, m->uid,
				   m->gid, err);
		if (own < 0)
			return own;
	}
	rc = mount_attr(fd, true, attrs, m->plain ? -EBADF : ours ? h->idmap_fd : own, err);
	if (rc < 0)
		return garret_wrap(rc, err, "%s", m->inside);
	if (fstatvfs(fd, &vfs) < 0)
		return garret_fail_errno(err, "look at the mount of %s", m->inside);
	if (!m->read_only && vfs.f_flag & ST_RDONLY)
		return garret_fail(err, GARRET_UNSUPPORTED, "%s lies on a read-only file system",
				   m->inside);
	return 0;
}

/* The mount of an image takes the place of the directory that it lies in. */
static int mount_image(const struct build_mount *m, int *fd, struct garret_error *err)
{
	int mounted = image_mount(*fd, m->image_bytes, m->uid, m->gid, err);

	if (mounted < 0)
		return garret_wrap(mounted, err, "%s", m->inside);
	fd_close(*fd);
	*fd = mounted;
	return 0;
}

/* Descriptors through which init moves its runs and sees what memory pressure killed. */
static int open_cgroups(const struct helper *h, struct build *b, struct garret_error *err)
{
	const struct cgroups *cg = &h->z->cg;
	char path[64];

	b->cgroup_fd = b->memory_fd = -EBADF;
	if (cg->dir[CG_UNIFIED] >= 0) {
		b->cgroup_fd =
			open_beneath(cg->dir[CG_UNIFIED], h->slot->name, O_PATH | O_DIRECTORY, 0);
		if (b->cgroup_fd < 0)
			return garret_fail_errno(err, "open the session's control group");
	}
	if (cg->dir[CG_MEMORY] >= 0) {
		(void)snprintf(path, sizeof(path), "%s/memory.oom_control", h->slot->name);
		b->memory_fd = open_beneath(cg->dir[CG_MEMORY], path, O_RDONLY, 0);
	}
	return 0;
}

/* Clone the session's first process and wait until it has prepared itself; its pid. */
static int give_birth(const struct helper *h, int *ret_child, int *ret_pidfd,
		      struct garret_error *err)
{
	autoclose int ours = -EBADF, theirs = -EBADF;
	int pidfd = -EBADF, pair[2], rc = msg_pair(pair, false, err);
	struct build b = { .z = h->z, .base = h->slot->base, .userns_fd = h->userns_fd };
	struct clone_args args = {
		.flags = CLONE_PARENT | CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC |
			 CLONE_NEWUTS,
		.pidfd = (uint64_t)(uintptr_t)&pidfd,
	};
	struct slot_note note = { 0 };
	long pid;

	if (rc < 0)
		return rc;
	ours = pair[0];
	theirs = pair[1];
	b.note_fd = h->sock;
	b.order_fd = theirs;
	rc = open_cgroups(h, &b, err);
	if (rc < 0)
		return rc;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid < 0)
		return garret_fail_errno(err, "clone the session's first process");
	if (pid == 0) {
		(void)close(ours); /* or the end of the helper would not be seen */
		(void)close(h->z->makers_fd);
		build_main(&b);
	}
	fd_close(b.cgroup_fd);
	fd_close(b.memory_fd);
	fd_close(take_fd(&theirs));
	if (msg_recv(ours, &note, sizeof(note), NULL, NULL) != sizeof(note)) {
		rc = garret_fail(err, GARRET_INTERNAL, "the session's first process died");
	} else if (note.type != SLOT_READY) {
		*err = note.err;
		rc = -(int)note.err.code;
	}
	if (rc < 0) {
		fd_close(pidfd);
		return rc;
	}
	*ret_child = take_fd(&ours);
	*ret_pidfd = pidfd;
	return (int)pid;
}

static int check_order(const struct build_order *o, size_t n, unsigned fds,
		       struct garret_error *err)
{
	if (n < BUILD_ORDER_BYTES(0) || o->n_mounts > MOUNTS_MAX ||
	    n != BUILD_ORDER_BYTES(o->n_mounts) || fds != o->n_mounts + 1 || o->filter >= FILTERS)
		return garret_fail(err, GARRET_PROTOCOL, "a build order that makes no sense");
	if (o->flags & BUILD_FILES && (o->n_mounts != 1 || !o->mounts[0].read_only))
		return garret_fail(err, GARRET_PROTOCOL, "a build order for more than files");
	return 0;
}

/* Many programs look their own name up. */
static int set_hosts(const struct helper *h, const char *hostname, struct garret_error *err)
{
	char hosts[256];

	(void)snprintf(
		hosts, sizeof(hosts),
		"127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost ip6-loopback\n",
		hostname);
	return write_hosts(h, hosts, 0, err);
}

/* Dress the mounts of the order and hand it on. */
static int pass_order(const struct helper *h, int child, struct garret_error *err)
{
	static struct build_order order; /* 40 KiB */
	struct msg_fds fds;
	ssize_t n = msg_recv(h->sock, &order, sizeof(order), &fds, err);
	bool files = order.flags & BUILD_FILES;
	int rc;

	if (n <= 0)
		return 0; /* the end of the engine, or of this slot */
	rc = check_order(&order, (size_t)n, fds.n, err);
	for (uint32_t i = 0; rc == 0 && i < order.n_mounts; i++)
		if (order.mounts[i].image)
			rc = mount_image(&order.mounts[i], &fds.fd[i + 1], err);
	for (uint32_t i = 0; rc == 0 && i < order.n_mounts; i++)
		rc = dress_mount(h, &order.mounts[i], files, fds.fd[i + 1], err);
	if (rc < 0)
		return rc;
	rc = files ? 0 : set_hosts(h, order.hostname, err);
	if (rc == 0)
		rc = msg_send(child, &order, (size_t)n, fds.fd, fds.n, err);
	return garret_wrap(rc, err, "the order");
}

void helper_main(const struct zygote *z, const struct slot_order *slot, int sock, int net_fd)
{
	struct helper h = { .z = z,
			    .slot = slot,
			    .sock = sock,
			    .net_fd = net_fd,
			    .disk_owner = z->setup.disk_id + SLOT_IDS - 1 };
	struct slot_note note = { .type = SLOT_READY };
	int child = -EBADF, pidfd = -EBADF, rc = prepare(&h, &note.err);

	if (rc == 0)
		rc = note.pid = give_birth(&h, &child, &pidfd, &note.err);
	if (rc >= 0) {
		(void)msg_send(sock, &note, sizeof(note), (const int[]){ pidfd, h.net_fd }, 2,
			       NULL);
		fd_close(pidfd);
		fd_close(h.net_fd);
		rc = pass_order(&h, child, &note.err);
	}
	if (rc < 0) {
		note.type = SLOT_FAILED;
		(void)msg_send(sock, &note, sizeof(note), NULL, 0, NULL);
	}
	_exit(rc < 0);
}
