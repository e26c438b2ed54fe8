#include "engine/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/identity.h"
#include "engine/mount.h"
#include "engine/tree.h"
#include "io/msg.h"

#define SOCK_FD 3

/* The filters lie behind each other in one file. */
static int read_filters(struct zygote *z, int fd, struct garret_error *err)
{
	off_t at = 0;

	for (int i = 0; i < FILTERS; i++) {
		size_t n = z->setup.filter_bytes[i];

		if (!n)
			continue;
		z->filter[i] = xmalloc(n);
		if (pread(fd, z->filter[i], n, at) != (ssize_t)n)
			return garret_fail(err, GARRET_INTERNAL, "read the filters");
		at += (off_t)n;
	}
	return 0;
}

static int receive_setup(struct zygote *z, struct garret_error *err)
{
	autoclose int filters = -EBADF;
	struct msg_fds fds;
	ssize_t n = msg_recv(z->sock, &z->setup, sizeof(z->setup), &fds, err);

	if (n < 0)
		return (int)n;
	if (n != sizeof(z->setup))
		return garret_fail(err, GARRET_PROTOCOL, "the zygote got no orders");
	z->cg.mode = z->setup.cgroup_mode;
	for (int h = 0; h < CG_HIERARCHIES; h++)
		z->cg.dir[h] = z->setup.cgroup_mask & 1u << h ? msg_fds_take(&fds) : -EBADF;
	z->sessions_fd = msg_fds_take(&fds);
	z->makers_fd = msg_fds_take(&fds);
	filters = msg_fds_take(&fds);
	msg_fds_close(&fds);
	return read_filters(z, filters, err);
}

/* From the host's view to the template's, where nothing of the host is in reach. */
static int leave_host(struct zygote *z, struct garret_error *err)
{
	int rc, null_fd;

	if (unshare(CLONE_NEWNS) < 0)
		return garret_fail_errno(err, "a mount namespace for the zygote");
	rc = mount_private(err);
	if (rc < 0)
		return rc;
	/* Never attached: no session can put something else over it. */
	z->proc_fd = mount_new("proc", NULL,
			       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, err);
	if (z->proc_fd < 0)
		return z->proc_fd;
	z->host_net_fd = openat(z->proc_fd, "self/ns/net", O_RDONLY | O_CLOEXEC);
	if (z->host_net_fd < 0)
		return garret_fail_errno(err, "open the host's network namespace");
	rc = tree_build(z->setup.etc_copy, err);
	if (rc < 0)
		return rc;
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null_fd < 0 || setgroups(0, NULL) < 0)
		return garret_fail_errno(err, "leave the host");
	(void)setsid();
	(void)prctl(PR_SET_NAME, "garret-zygote");
	/* From here on nothing of a terminal or a log is inherited by a session. */
	for (int fd = 0; fd < 3; fd++)
		(void)dup2(null_fd, fd);
	fd_close(null_fd);
	return identity_rlimits(err);
}

static void send_note(int sock, const struct zygote_note *n)
{
	(void)msg_send(sock, n, sizeof(*n), NULL, 0, NULL);
}

static void report_ended(int sock)
{
	struct zygote_note n = { .type = ZYGOTE_EXITED };

	while ((n.pid = waitpid(-1, &n.status, WNOHANG)) > 0)
		send_note(sock, &n);
}

/* False at the end of the engine. */
static bool take_order(const struct zygote *z, int signal_fd)
{
	autoclose int sock = -EBADF, net = -EBADF;
	struct slot_order order;
	struct msg_fds fds;
	ssize_t n = msg_recv(z->sock, &order, sizeof(order), &fds, NULL);

	if (n <= 0)
		return false;
	sock = msg_fds_take(&fds);
	net = msg_fds_take(&fds);
	msg_fds_close(&fds);
	if (n != sizeof(order) || sock < 0)
		return true;
	if (fork() == 0) {
		sigset_t none;

		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		fd_close(signal_fd);
		fd_close(z->sock);
		helper_main(z, &order, sock, net);
	}
	/* A failed fork shows at the engine as a helper whose socket closed. */
	return true;
}

static int serve(const struct zygote *z, struct garret_error *err)
{
	autoclose int signal_fd = -EBADF;
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return garret_fail_errno(err, "block signals");
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signal_fd < 0)
		return garret_fail_errno(err, "receive signals");
	for (;;) {
		struct pollfd p[] = { { z->sock, POLLIN, 0 }, { signal_fd, POLLIN, 0 } };
		struct signalfd_siginfo info;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return garret_fail_errno(err, "wait");
		while (read(signal_fd, &info, sizeof(info)) == sizeof(info))
			;
		report_ended(z->sock);
		if (p[0].revents && !take_order(z, signal_fd))
			return 0; /* what is left of the children goes to the engine */
	}
}

int zygote_main(zygote_init_fn *init, const char *const *env)
{
	struct zygote z = { .sock = SOCK_FD, .init = init, .env = env };
	struct zygote_note note = { .type = ZYGOTE_READY };
	int rc;

	if (fd_set_cloexec(SOCK_FD, true) < 0)
		return 2;
	/* The engine's stop is the end of its socket, not a signal to its group. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGPIPE, SIG_DFL);
	rc = receive_setup(&z, &note.err);
	if (rc == 0)
		rc = leave_host(&z, &note.err);
	if (rc < 0)
		note.type = ZYGOTE_FAILED;
	send_note(z.sock, &note);
	if (rc < 0)
		return 1;
	return serve(&z, NULL) < 0 ? 1 : 0;
}
