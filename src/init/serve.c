#include "init/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "init/session.h"

#define BACKLOG 8
#define DETACH_WAIT_MS 10000 /* for one that began before us */
#define RETRY_MS 5

static bool peers_from_outside; /* who may connect came into the container from outside */

/* ---- the directory ---- */

static int make_parents(const char *path, struct garret_error *err)
{
	autofree char *part = xstrdup(path);

	for (char *at = part + 1; *part && *at; at++)
		if (*at == '/') {
			*at = '\0';
			if (mkdir(part, 0755) < 0 && errno != EEXIST)
				return garret_fail_errno(err, "make %s", part);
			*at = '/';
		}
	return 0;
}

int serve_open_dir(const char *dir, bool make, int *ret_fd, struct garret_error *err)
{
	autoclose int fd = -EBADF;
	struct stat st;

	if (make && access(dir, F_OK) < 0 && make_parents(dir, err) < 0)
		return -(int)err->code;
	if (make && mkdir(dir, 0700) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make %s", dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "open %s", dir);
	if (st.st_uid != geteuid() && st.st_uid != 0)
		return garret_fail(err, GARRET_DENIED, "%s belongs to user %u", dir, st.st_uid);
	/* Made by the container's settings it may have any mode; then nobody is in it yet. */
	if (make && st.st_mode & 0077 && fchmod(fd, 0700) < 0)
		return garret_fail_errno(err, "close %s to others", dir);
	*ret_fd = take_fd(&fd);
	return 0;
}

static void socket_name(int dir_fd, const char *name, struct sockaddr_un *sa)
{
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	/* Not by its path, which may be too long for an address. */
	(void)snprintf(sa->sun_path, sizeof(sa->sun_path), "/proc/self/fd/%d/%s", dir_fd, name);
}

static int connect_once(int dir_fd, int *ret_fd)
{
	autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa;

	socket_name(dir_fd, "init.sock", &sa);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}

int serve_connect(int dir_fd, unsigned wait_ms, int *ret_fd, struct garret_error *err)
{
	const struct timespec nap = { 0, RETRY_MS * 1000000L };
	const uint64_t until = now_ms() + wait_ms;
	struct ucred peer = { 0 };
	socklen_t n = sizeof(peer);
	autoclose int fd = -EBADF;
	struct stat st;
	int rc;

	for (;;) {
		rc = connect_once(dir_fd, &fd);
		if ((rc != -ENOENT && rc != -ECONNREFUSED) || now_ms() >= until)
			break;
		(void)nanosleep(&nap, NULL); /* the container may have started a moment ago */
	}
	if (rc < 0) {
		errno = -rc;
		return garret_fail_errno(err, "connect to init");
	}
	/* Who owns the directory is who serves; another user's socket is a trap. */
	if (fstat(dir_fd, &st) < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 ||
	    peer.uid != st.st_uid)
		return garret_fail(err, GARRET_DENIED, "init's socket is served by user %u",
				   peer.uid);
	*ret_fd = take_fd(&fd);
	return 0;
}

/* A socket that can be connected to as soon as it has its name. */
static int make_socket(int dir_fd, int *ret_fd, struct garret_error *err)
{
	autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un sa;

	socket_name(dir_fd, "init.sock.new", &sa);
	(void)unlinkat(dir_fd, "init.sock.new", 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 ||
	    fchmodat(dir_fd, "init.sock.new", 0600, 0) < 0 || listen(fd, BACKLOG) < 0 ||
	    renameat(dir_fd, "init.sock.new", dir_fd, "init.sock") < 0)
		return garret_fail_errno(err, "make init's socket");
	*ret_fd = take_fd(&fd);
	return 0;
}

/* Empty: what an earlier init left are outputs of runs that nobody knows any more. */
static int make_spool_dir(int dir_fd, int *ret_fd, struct garret_error *err)
{
	autoclose int fd = -EBADF;

	if (remove_tree_at(dir_fd, "spool") < 0 && errno != ENOENT)
		return garret_fail_errno(err, "empty the spool directory");
	if (mkdirat(dir_fd, "spool", 0700) < 0)
		return garret_fail_errno(err, "make the spool directory");
	fd = openat(dir_fd, "spool", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "open the spool directory");
	*ret_fd = take_fd(&fd);
	return 0;
}

/* ---- the work directory ---- */

/* Every part that is missing; the last one belongs to the runs' user. */
static int make_work_dir(const struct serve_options *o, struct garret_error *err)
{
	const char *path = o->work_dir;
	struct stat st;

	if (*path != '/')
		return garret_fail(err, GARRET_INVALID, "the work directory is relative: %s", path);
	if (stat(path, &st) == 0) {
		if (!S_ISDIR(st.st_mode))
			return garret_fail(err, GARRET_INVALID, "%s is no directory", path);
		return 0;
	}
	if (make_parents(path, err) < 0)
		return -(int)err->code;
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make %s", path);
	if (geteuid() == 0 && lchown(path, o->uid, o->gid) < 0)
		return garret_fail_errno(err, "give %s to user %u", path, o->uid);
	return 0;
}

/* ---- who may connect ---- */

/*
 * Processes of the container have a parent in it; who was put into it by the
 * container's engine (docker exec) has one outside, which shows as 0.  So a run
 * can't speak to init, not even one of init's own user.
 */
static bool is_from_outside(int pid)
{
	autoclose int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int parent = -1;

	if (!pid)
		return true; /* it isn't even in our pid namespace */
	return procs_look(proc, pid, &parent) && parent == 0;
}

static bool admit(int conn)
{
	struct ucred peer;
	socklen_t n = sizeof(peer);

	if (getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
		return false;
	if (peer.uid != 0 && peer.uid != geteuid())
		return false;
	return !peers_from_outside || is_from_outside(peer.pid);
}

/* ---- serving ---- */

static int open_oom_counter(void)
{
	int fd = open("/sys/fs/cgroup/memory.events", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		fd = open("/sys/fs/cgroup/memory/memory.oom_control", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -EBADF : fd;
}

static int fail(const struct garret_error *err)
{
	(void)fprintf(stderr, "garret-init: %s\n", err->msg);
	return 1;
}

/*
 * A container's kernel may be none of Linux (gVisor), or its filter older than a call.
 * Without these a run could not be ended, or a file be opened as it has to be.
 */
static int check_calls(struct garret_error *err)
{
	struct open_how how = { .flags = O_PATH | O_CLOEXEC };
	const struct {
		const char *name;
		int fd;
	} calls[] = {
		{ "openat2", (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how)) },
		{ "pidfd_open", (int)syscall(SYS_pidfd_open, getpid(), 0) },
		{ "memfd_create", memfd_create("garret-probe", MFD_CLOEXEC) },
		{ "close_range", close_range(~0u, ~0u, 0) },
	};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		if (calls[i].fd < 0 && rc == 0)
			rc = garret_fail(err, GARRET_UNSUPPORTED,
					 "this container can't hold sessions: it has no %s",
					 calls[i].name);
		if (calls[i].fd > 0)
			fd_close(calls[i].fd);
	}
	return rc;
}

/* Another user's commands can't be begun, or not be ended, without these. */
static int check_capabilities(uint32_t uid, struct garret_error *err)
{
	static const struct {
		unsigned number;
		const char *name;
	} needed[] = { { CAP_SETUID, "SETUID" },
		       { CAP_SETGID, "SETGID" },
		       { CAP_KILL, "KILL" },
		       { CAP_CHOWN, "CHOWN" } };
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct have[2] = { { 0 } };

	if (uid == geteuid())
		return 0;
	if (syscall(SYS_capget, &head, have) < 0)
		return garret_fail_errno(err, "read our capabilities");
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (!(have[0].effective & 1u << needed[i].number))
			return garret_fail(err, GARRET_DENIED,
					   "commands of user %u need the capability %s here", uid,
					   needed[i].name);
	return 0;
}

static int prepare(const struct serve_options *o, int dir_fd, struct init_params *p,
		   struct garret_error *err)
{
	int rc = check_calls(err);

	if (rc == 0)
		rc = check_capabilities(o->uid, err);
	if (rc == 0)
		rc = make_work_dir(o, err);
	if (rc == 0)
		rc = make_spool_dir(dir_fd, &p->spool_fd, err);
	if (rc == 0 && getrandom(p->nonce, sizeof(p->nonce), 0) != (ssize_t)sizeof(p->nonce))
		rc = garret_fail_errno(err, "random bytes");
	if (rc == 0)
		rc = make_socket(dir_fd, &p->listen_fd, err);
	return rc;
}

/* Of a container that others made: apart from whoever started us, and parent of all orphans. */
static int become_daemon(int ready, struct garret_error *err)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)setsid();
	if (null < 0 || chdir("/") < 0)
		return garret_fail_errno(err, "become a daemon");
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (int i = 0; i < 3; i++)
		(void)dup2(null, i);
	if (null > 2)
		fd_close(null);
	/* Only now: whoever waits for the end of our output would wait for ever otherwise. */
	(void)write_full(ready, "", 1);
	fd_close(ready);
	return 0;
}

static int wait_for_daemon(int ready)
{
	char byte;

	return read_full(ready, &byte, 1) == 1 ? 0 : 1; /* it has said why */
}

/* One serves already, or is about to. */
static int find_living(int dir_fd)
{
	struct garret_error err = { 0 };
	int fd = -EBADF;

	if (serve_connect(dir_fd, DETACH_WAIT_MS, &fd, &err) < 0)
		return fail(&err);
	fd_close(fd);
	return 0;
}

int serve_main(const struct serve_options *o)
{
	struct init_params p = { .listen_fd = -EBADF,
				 .conn_fd = -EBADF,
				 .cgroup_fd = -EBADF,
				 .v1_memory_fd = -EBADF,
				 .run_uid = o->uid,
				 .run_gid = o->gid,
				 .container = true,
				 .spool_fd = -EBADF,
				 .admit = admit,
				 .work_dir = o->work_dir,
				 .env = (const char *const *)environ };
	struct garret_error err = { 0 };
	int dir_fd = -EBADF, lock, ready[2] = { -EBADF, -EBADF };
	pid_t pid;

	/* Seen from pid 1, or from whoever was put in from outside, parents outside are 0. */
	peers_from_outside = getppid() == 0;
	if (serve_open_dir(o->dir, true, &dir_fd, &err) < 0)
		return fail(&err);
	lock = openat(dir_fd, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0) {
		if (lock >= 0 && errno == EWOULDBLOCK && o->detach)
			return find_living(dir_fd);
		(void)garret_fail_errno(&err, "lock %s", o->dir);
		return fail(&err);
	}
	if (o->detach) {
		if (pipe2(ready, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
			(void)garret_fail_errno(&err, "become a daemon");
			return fail(&err);
		}
		if (pid > 0) {
			fd_close(ready[1]);
			return wait_for_daemon(ready[0]);
		}
		fd_close(ready[0]);
	}
	if (prepare(o, dir_fd, &p, &err) < 0)
		return fail(&err);
	p.v1_memory_fd = open_oom_counter();
	if (o->detach && become_daemon(ready[1], &err) < 0)
		return fail(&err);
	(void)prctl(PR_SET_DUMPABLE, 0); /* runs of our own uid could read our memory otherwise */
	init_main(&p);
}
