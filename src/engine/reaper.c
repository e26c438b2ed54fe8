#include "engine/reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "engine/mount.h"
#include "engine/net.h"
#include "io/msg.h"

#define NETS_MAX 64
#define LOOK_MS 200       /* between two looks at namespaces that weren't clean */
#define NET_WAIT_MS 90000 /* a closed connection lingers for 60 s */
#define RESTART_MS 1000   /* one that dies at its start would do so again at once */

struct reaper {
	int sock, proc_fd, trash[2];
	struct {
		int fd;
		uint64_t since_ms;
	} nets[NETS_MAX];
	unsigned n_nets;
	bool ending;
};

static void empty_dir(int dir)
{
	int fd = dir < 0 ? -1 : openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    remove_tree_at(dir, e->d_name) < 0 &&
		    errno != ENOENT) /* an engine that is ending removes it as well */
			log_warn("trash_stuck", "name=%s errno=%d", e->d_name, errno);
}

static bool is_clean(const struct reaper *r, int net_fd)
{
	return r->proc_fd >= 0 && setns(net_fd, CLONE_NEWNET) == 0 && net_unused(r->proc_fd);
}

/* Give back what is clean, drop what doesn't become it. */
static void look_at_nets(struct reaper *r)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < r->n_nets; i++) {
		int fd = r->nets[i].fd;
		char c = 'N';

		if (is_clean(r, fd))
			(void)msg_send(r->sock, &c, 1, &fd, 1, NULL);
		else if (now_ms() - r->nets[i].since_ms < NET_WAIT_MS) {
			r->nets[kept++] = r->nets[i];
			continue;
		}
		fd_close(fd);
	}
	r->n_nets = kept;
}

static void receive(struct reaper *r)
{
	struct msg_fds fds;
	char c;
	ssize_t n = msg_recv(r->sock, &c, 1, &fds, NULL);
	int fd;

	if (n <= 0) {
		r->ending = true;
		return;
	}
	fd = msg_fds_take(&fds);
	msg_fds_close(&fds);
	if (fd >= 0 && r->n_nets < NETS_MAX) {
		r->nets[r->n_nets].fd = fd;
		r->nets[r->n_nets++].since_ms = now_ms();
	} else {
		fd_close(fd);
	}
}

static void reaper_main(struct reaper *r)
{
	struct sched_param none = { 0 };
	sigset_t all;

	sigemptyset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN); /* it ends when the engine does */
	(void)prctl(PR_SET_NAME, "garret-reaper");
	(void)sched_setscheduler(0, SCHED_IDLE, &none);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		      IOPRIO_PRIO_VALUE(IOPRIO_CLASS_IDLE, 0));
	r->proc_fd = mount_new("proc", NULL,
			       MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, NULL);
	while (!r->ending) {
		struct pollfd p = { r->sock, POLLIN, 0 };

		empty_dir(r->trash[0]);
		empty_dir(r->trash[1]);
		look_at_nets(r);
		if (poll(&p, 1, r->n_nets ? LOOK_MS : -1) > 0)
			receive(r);
	}
	empty_dir(r->trash[0]);
	empty_dir(r->trash[1]);
	_exit(0);
}

static void on_restart(struct loop_timer *t);

static void let_go(struct engine *e)
{
	loop_io_remove(&e->reaper_io);
	e->reaper_sock = fd_close(e->reaper_sock);
}

static void restart_later(struct engine *e)
{
	let_go(e);
	if (!e->ending)
		loop_timer_set(e->loop, &e->reaper_retry, now_ms() + RESTART_MS, on_restart, e);
}

static void on_restart(struct loop_timer *t)
{
	struct engine *e = t->ctx;
	struct garret_error err = { 0 };

	if (e->ending || reaper_start(e, &err) == 0)
		return;
	log_warn("reaper_missing", "error=\"%s\"", err.msg);
	restart_later(e);
}

static void on_clean_net(struct loop_io *io, uint32_t events)
{
	struct engine *e = io->ctx;
	struct garret_error err = { 0 };
	struct msg_fds fds;
	char c;
	ssize_t n = msg_recv(e->reaper_sock, &c, 1, &fds, &err);
	int fd;

	if (n < 0 && (err.sys == EAGAIN || fds.lost))
		return;
	if (n <= 0) {
		/*
		 * Nothing of a session depends on it, but what is closed would stay on the disk
		 * until the next start.  The namespaces that it looked at are gone: others are made.
		 */
		log_error("reaper_died", "restart=yes");
		restart_later(e);
		return;
	}
	fd = msg_fds_take(&fds);
	msg_fds_close(&fds);
	if (fd >= 0 && e->n_nets < MIN(e->conf.pool_networks, ARRAY_SIZE(e->nets)))
		e->nets[e->n_nets++] = take_fd(&fd);
	fd_close(fd);
}

static int start_reaper(struct engine *e, struct garret_error *err)
{
	struct reaper r = { .trash = { e->trash_fd, e->workspaces_trash_fd } };
	autoclose int theirs = -EBADF;
	int pair[2], rc = msg_pair(pair, false, err);
	pid_t pid;

	if (rc < 0)
		return rc;
	e->reaper_sock = pair[0];
	theirs = pair[1];
	if (fd_set_nonblock(e->reaper_sock, true) < 0)
		return garret_fail_errno(err, "the reaper's socket");
	pid = fork();
	if (pid < 0)
		return garret_fail_errno(err, "fork the reaper");
	if (pid == 0) {
		/* The lock, strangers' and the loop's descriptors must not live on in here. */
		const int keep[] = { theirs, e->trash_fd, e->workspaces_trash_fd };

		engine_keep_fds(keep, ARRAY_SIZE(keep));
		r.sock = theirs;
		reaper_main(&r);
	}
	return loop_io_add(e->loop, &e->reaper_io, e->reaper_sock, EPOLLIN, on_clean_net, e, err);
}

int reaper_start(struct engine *e, struct garret_error *err)
{
	int rc = start_reaper(e, err);

	if (rc < 0)
		let_go(e);
	return rc;
}

void reaper_poke(struct engine *e)
{
	char c = 'T';

	/* A full socket is full of pokes. */
	if (e->reaper_sock >= 0)
		(void)msg_send(e->reaper_sock, &c, 1, NULL, 0, NULL);
}

void reaper_give_net(struct engine *e, int fd)
{
	char c = 'N';

	if (fd >= 0 && e->reaper_sock >= 0 && !e->ending && e->n_nets < e->conf.pool_networks)
		(void)msg_send(e->reaper_sock, &c, 1, &fd, 1, NULL);
	fd_close(fd);
}

int reaper_take_net(struct engine *e)
{
	return e->n_nets ? e->nets[--e->n_nets] : -EBADF;
}

void reaper_stop(struct engine *e)
{
	loop_timer_clear(&e->reaper_retry);
	let_go(e);
	while (e->n_nets)
		fd_close(e->nets[--e->n_nets]);
}
