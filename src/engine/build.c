/*
 * The first process of a session, from its birth in new namespaces until it is
 * init.  Half of that is done ahead, before anybody wants it.  It mounts as real
 * root in namespaces that belong to the host, and only then enters the user
 * namespace of the session: so the session owns none of them, and nothing in it
 * can mount, whatever it becomes.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/filter.h"
#include "engine/identity.h"
#include "engine/mount.h"
#include "engine/tree.h"
#include "engine/zygote.h"
#include "io/msg.h"

#define PLAIN (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

/* Host state that /proc shows to everybody.  Ownership protects most of it as well. */
static const char *const masked[] = {
	"/proc/acpi", "/proc/asound",        "/proc/interrupts",    "/proc/kcore",
	"/proc/keys", "/proc/kmsg",          "/proc/latency_stats", "/proc/sched_debug",
	"/proc/scsi", "/proc/sysrq-trigger", "/proc/timer_list",    "/proc/timer_stats",
};
static const char *const read_only[] = { "/proc/bus", "/proc/fs", "/proc/irq", "/proc/pressure",
					 "/proc/sys" };

/* A small file system of the session. */
static int add_new(int root, const char *inside, const char *type,
		   const struct mount_option *options, uint64_t attrs, struct garret_error *err)
{
	autoclose int fd = mount_new(type, options, attrs, err);

	return fd < 0 ? fd : mount_at(fd, root, inside, err);
}

static int mask(int root, const char *path, struct garret_error *err)
{
	autoclose int target = mount_target(root, path, NULL), cover = -EBADF;
	struct stat st;
	int rc;

	if (target < 0)
		return 0; /* this kernel has no such file */
	if (fstat(target, &st) < 0)
		return garret_fail_errno(err, "look at %s", path);
	cover = mount_clone(root, S_ISDIR(st.st_mode) ? TREE_EMPTY + 1 : "dev/null", false, err);
	if (cover < 0)
		return cover;
	rc = mount_attr(cover, false, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
			-EBADF, err);
	return rc < 0 ? rc : mount_attach(cover, target, err);
}

static int freeze_dir(int root, const char *path, struct garret_error *err)
{
	autoclose int target = mount_target(root, path, NULL), copy = -EBADF;
	int rc;

	if (target < 0)
		return 0;
	copy = mount_clone(target, "", false, err);
	if (copy < 0)
		return copy;
	rc = mount_attr(copy, false, MOUNT_ATTR_RDONLY, -EBADF, err);
	return rc < 0 ? rc : mount_attach(copy, target, err);
}

static int add_proc(int root, struct garret_error *err)
{
	int rc = add_new(root, "/proc", "proc", NULL, PLAIN | MOUNT_ATTR_NOEXEC, err);

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(masked); i++)
		rc = garret_wrap(mask(root, masked[i], err), err, "mask %s", masked[i]);
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(read_only); i++)
		rc = garret_wrap(freeze_dir(root, read_only[i], err), err, "%s", read_only[i]);
	return rc;
}

static int add_tmpfs(int root, const char *inside, uint64_t bytes, struct garret_error *err)
{
	char size[24], inodes[24];
	const struct mount_option options[] = {
		{ "mode", "1777" }, { "size", size }, { "nr_inodes", inodes }, { NULL, NULL }
	};

	(void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
	/* An inode costs about 1 KiB of kernel memory: no more of it than of content. */
	(void)snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)(bytes / 1024 + 256));
	return add_new(root, inside, "tmpfs", options, PLAIN, err);
}

static int add_ptys(int root, uint32_t main_id, struct garret_error *err)
{
	char id[16];
	const struct mount_option options[] = { { "newinstance", NULL }, { "ptmxmode", "0666" },
						{ "mode", "0620" },      { "uid", id },
						{ "gid", id },           { "max", "64" },
						{ NULL, NULL } };

	(void)snprintf(id, sizeof(id), "%u", main_id);
	return add_new(root, "/dev/pts", "devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
		       err);
}

/* Mounts that every session has alike. */
static int prepare(const struct build *b, struct garret_error *err)
{
	const uint64_t shm_bytes = 64ull << 20; /* what Docker gives */
	autoclose int root = -EBADF;
	int rc = mount_private(err);

	if (rc < 0)
		return rc;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return garret_fail_errno(err, "open the root");
	rc = add_proc(root, err);
	if (rc == 0)
		rc = add_ptys(root, b->base + MAIN_ID, err);
	if (rc == 0)
		rc = add_tmpfs(root, "/dev/shm", shm_bytes, err);
	(void)setsid();
	(void)prctl(PR_SET_NAME, "garret-init");
	return rc;
}

/* What came with the order: home, /var/tmp, the workspace, volumes. */
static int add_ordered(const struct build *b, const struct build_order *o, const int *mounts,
		       int root, struct garret_error *err)
{
	for (uint32_t i = 0; i < o->n_mounts; i++) {
		const struct build_mount *m = &o->mounts[i];
		autoclose int target =
			mount_target_make(root, m->inside, m->file, b->base + MAIN_ID, err);
		int rc = target < 0 ? target : mount_attach(mounts[i], target, err);

		if (rc < 0)
			return garret_wrap(rc, err, "%s", m->inside);
	}
	return 0;
}

static int build_mounts(const struct build *b, const struct build_order *o, const int *mounts,
			struct garret_error *err)
{
	autoclose int root = -EBADF;
	int rc = 0;

	if (o->flags & BUILD_FILES)
		return tree_bare_root(o->mounts[0].inside, mounts[0], err);
	if (o->flags & BUILD_OWN_ROOT)
		rc = tree_own_root(err);
	if (rc < 0)
		return rc;
	root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return garret_fail_errno(err, "open the root");
	rc = add_tmpfs(root, "/tmp", o->tmpfs_bytes, err);
	if (rc == 0)
		rc = add_ordered(b, o, mounts, root, err);
	if (rc == 0 && o->flags & BUILD_OWN_ROOT)
		rc = mount_attr(root, false, MOUNT_ATTR_RDONLY, -EBADF, err);
	return rc;
}

static int build(const struct build *b, const struct build_order *o, const int *mounts,
		 struct garret_error *err)
{
	size_t filter_bytes = b->z->setup.filter_bytes[o->filter];
	int rc = build_mounts(b, o, mounts, err);

	if (rc < 0)
		return rc;
	if (o->flags & BUILD_HOST_NET && setns(b->z->host_net_fd, CLONE_NEWNET) < 0)
		return garret_fail_errno(err, "enter the host's network");
	if (sethostname(o->hostname, strlen(o->hostname)) < 0)
		return garret_fail_errno(err, "set the host name");
	rc = identity_take(b->userns_fd, err);
	if (rc < 0)
		return rc;
	if (filter_bytes && filter_load(b->z->filter[o->filter], filter_bytes) < 0)
		return garret_fail_errno(err, "load the system call filter");
	/* Last, because a change of user resets it: nothing inside may look into init. */
	if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_GET_DUMPABLE) != 0)
		return garret_fail_errno(err, "hide init");
	return 0;
}

static void say(int sock, enum slot_note_type type, const struct garret_error *err)
{
	struct slot_note n = { .type = type };

	if (err)
		n.err = *err;
	(void)msg_send(sock, &n, sizeof(n), NULL, 0, NULL);
}

/* What isn't in this list of descriptors is closed; they become 3, 4, ... */
static void keep_only(int **keep, int n)
{
	int next = 3;

	/* First out of the way of the places they go to. */
	for (int i = 0; i < n; i++)
		if (*keep[i] >= 0)
			*keep[i] = fcntl(*keep[i], F_DUPFD_CLOEXEC, 3 + n);
	for (int i = 0; i < n; i++) {
		if (*keep[i] < 0)
			continue;
		if (dup3(*keep[i], next, O_CLOEXEC) < 0)
			_exit(1);
		*keep[i] = next++;
	}
	(void)close_range((unsigned)next, ~0u, 0);
}

static void become_init(const struct build *b, const struct build_order *o, int init_fd)
	__attribute__((noreturn));

static void become_init(const struct build *b, const struct build_order *o, int init_fd)
{
	bool connected = o->flags & BUILD_CONNECTED, files = o->flags & BUILD_FILES;
	/* Without runs there is nothing to put into groups, nor a reason to reach them. */
	int cgroup_fd = files ? -EBADF : b->cgroup_fd, memory_fd = files ? -EBADF : b->memory_fd;
	int *keep[] = { &init_fd, &cgroup_fd, &memory_fd };
	struct init_params p = {
		.run_uid = MAIN_ID,
		.run_gid = MAIN_ID,
		.run_processes = o->pids,
		.max_run_processes = o->max_pids,
		.run_filter = o->filter != FILTER_NONE && !files,
		.files_only = files,
		.work_dir = o->work_dir,
		.env = b->z->env,
	};

	keep_only(keep, 3);
	memcpy(p.nonce, o->nonce, sizeof(p.nonce));
	p.listen_fd = connected ? -EBADF : init_fd;
	p.conn_fd = connected ? init_fd : -EBADF;
	p.cgroup_fd = cgroup_fd;
	p.v1_memory_fd = memory_fd;
	b->z->init(&p);
	_exit(1); /* init never returns */
}

void build_main(const struct build *b)
{
	static struct build_order order; /* 40 KiB; the helper has checked it */
	struct garret_error err = { 0 };
	struct msg_fds fds;

	if (prepare(b, &err) < 0) {
		say(b->order_fd, SLOT_FAILED, &err);
		_exit(1);
	}
	say(b->order_fd, SLOT_READY, NULL);
	if (msg_recv(b->order_fd, &order, sizeof(order), &fds, &err) <= 0)
		_exit(0); /* not needed any more */
	if (build(b, &order, fds.fd + 1, &err) < 0) {
		say(b->note_fd, SLOT_FAILED, &err);
		_exit(1);
	}
	say(b->note_fd, SLOT_BUILT, NULL);
	become_init(b, &order, fds.fd[0]);
}
