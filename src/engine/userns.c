#include "engine/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "engine/wire.h"

/* Written as 0 inside a namespace: then even a hole in the filter makes no other one. */
static const char *const namespace_limits[] = {
	"sys/user/max_user_namespaces",   "sys/user/max_mnt_namespaces",
	"sys/user/max_pid_namespaces",    "sys/user/max_net_namespaces",
	"sys/user/max_ipc_namespaces",    "sys/user/max_uts_namespaces",
	"sys/user/max_cgroup_namespaces", "sys/user/max_time_namespaces",
};

/*
 * The kernel counts what users have (inotify instances and watches, queued signals, message
 * queues) in each user namespace, and in the one above for the user who made it.  Made by
 * root, all sessions and root itself would share one count: one session could use it up.
 */
static bool enter_namespace(uid_t maker)
{
	/* The capabilities stay: where users may not make namespaces, this one may. */
	return (!maker || (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0 &&
			   syscall(SYS_setresuid, maker, maker, maker) == 0)) &&
	       unshare(CLONE_NEWUSER) == 0;
}

/* The process that the namespace is born with.  Says one byte, waits to be let go. */
static void first_process(int proc_fd, uid_t maker, int sock)
{
	bool closed = maker != 0;
	char c = 0;

	if (!enter_namespace(maker))
		_exit(1);
	for (size_t i = 0; closed && i < sizeof(namespace_limits) / sizeof(*namespace_limits); i++)
		/* max_time_namespaces is younger than 5.15's users may expect: may be absent. */
		if (write_file_at(proc_fd, namespace_limits[i], "0") < 0 && errno != ENOENT)
			_exit(1);
	if (write(sock, &c, 1) == 1)
		(void)!read(sock, &c, 1);
	_exit(0);
}

static int write_map(int proc_fd, int pid, const char *file, const struct id_line *lines,
		     unsigned n, struct garret_error *err)
{
	char path[64], text[512];
	size_t len = 0;

	for (unsigned i = 0; i < n; i++) {
		int r = snprintf(text + len, sizeof(text) - len, "%u %u %u\n", lines[i].inside,
				 lines[i].outside, lines[i].count);

		if (r < 0 || (size_t)r >= sizeof(text) - len)
			return garret_fail(err, GARRET_MISUSE, "an id map with too many lines");
		len += (size_t)r;
	}
	(void)snprintf(path, sizeof(path), "%d/%s", pid, file);
	if (write_file_at(proc_fd, path, text) < 0)
		return garret_fail_errno(err, "write %s", file);
	return 0;
}

static int fill(int proc_fd, int pid, int sock, const struct id_line *uids, unsigned n_uids,
		const struct id_line *gids, unsigned n_gids, struct garret_error *err)
{
	char path[64], c;
	int rc, fd;

	if (read_full(sock, &c, 1) != 1)
		return garret_fail(err, GARRET_INTERNAL, "close a user namespace to others");
	rc = write_map(proc_fd, pid, "uid_map", uids, n_uids, err);
	if (rc == 0)
		rc = write_map(proc_fd, pid, "gid_map", gids, n_gids, err);
	if (rc < 0)
		return rc;
	(void)snprintf(path, sizeof(path), "%d/ns/user", pid);
	fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "open a user namespace");
	return fd;
}

int userns_make(int proc_fd, const struct id_line *uids, unsigned n_uids,
		const struct id_line *gids, unsigned n_gids, uid_t maker, struct garret_error *err)
{
	autoclose int ours = -EBADF, theirs = -EBADF;
	int pair[2], rc;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return garret_fail_errno(err, "make a socket pair");
	ours = pair[0];
	theirs = pair[1];
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid < 0)
		return garret_fail_errno(err, "make a user namespace");
	if (pid == 0) {
		fd_close(ours);
		first_process(proc_fd, maker, theirs);
	}
	fd_close(take_fd(&theirs));
	rc = fill(proc_fd, pid, ours, uids, n_uids, gids, n_gids, err);
	fd_close(take_fd(&ours)); /* lets it go */
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return rc;
}

int userns_session(int proc_fd, uint32_t base, struct garret_error *err)
{
	const struct id_line lines[] = {
		{ MAIN_ID, base + MAIN_ID, 1 },
		{ INIT_ID, base + INIT_ID, 1 },
	};
	/* The first id of the slot: no process ever has it, inside or outside. */
	int fd = userns_make(proc_fd, lines, 2, lines, 2, base, err);

	return garret_wrap(fd, err, "the session's user namespace");
}

/* As they lie on disk -> kernel ids of the slot. */
static void idmap_lines(struct id_line *l, uint32_t base, uint32_t disk_id, uint32_t owner)
{
	l[0] = (struct id_line){ owner, base + MAIN_ID, 1 };
	l[1] = (struct id_line){ disk_id, base, MAIN_ID };
	l[2] = (struct id_line){ disk_id + MAIN_ID + 1, base + MAIN_ID + 1, 65535 - MAIN_ID };
	/* Files of a time when another user was the main one can be removed at least. */
	l[3] = (struct id_line){ disk_id + MAIN_ID, base + 65536, 1 };
}

int userns_idmap(int proc_fd, uint32_t base, uint32_t disk_id, uint32_t uid, uint32_t gid,
		 struct garret_error *err)
{
	struct id_line uids[4], gids[4];
	int fd;

	idmap_lines(uids, base, disk_id, uid);
	idmap_lines(gids, base, disk_id, gid);
	fd = userns_make(proc_fd, uids, 4, gids, 4, 0, err);
	return garret_wrap(fd, err, "an id map for %u:%u", uid, gid);
}
