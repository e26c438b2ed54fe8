#include "engine/nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "engine/session.h"
#include "engine/slots.h"
#include "io/msg.h"

#define ZYGOTE_FD 3
#define RETRY_LEAST_MS 500
#define RETRY_MOST_MS 30000

/* In the fork: become a fresh copy of this program with one descriptor. */
static void become_zygote(int sock)
{
	static char name[] = "garret-engine", mode[] = "zygote";
	char *argv[] = { name, mode, NULL }, *envp[] = { NULL };
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	if (dup2(sock, ZYGOTE_FD) < 0 || fd_set_cloexec(ZYGOTE_FD, false) < 0)
		_exit(2);
	(void)close_range(ZYGOTE_FD + 1, ~0u, 0);
	(void)execve("/proc/self/exe", argv, envp);
	_exit(2);
}

static int filters_file(const struct engine *e, struct zygote_setup *setup,
			struct garret_error *err)
{
	autoclose int fd = memfd_create("filters", MFD_CLOEXEC);

	if (fd < 0)
		return garret_fail_errno(err, "memory for the filters");
	for (int i = 0; i < FILTERS; i++) {
		setup->filter_bytes[i] = (uint32_t)e->filters[i].bytes;
		if (write_full(fd, e->filters[i].code, e->filters[i].bytes) < 0)
			return garret_fail_errno(err, "write the filters");
	}
	return take_fd(&fd);
}

static int send_setup(struct engine *e, struct garret_error *err)
{
	autofree struct zygote_setup *s = xnew(struct zygote_setup);
	autoclose int filters = -EBADF;
	int fds[CG_HIERARCHIES + 3];
	unsigned n = 0;

	filters = filters_file(e, s, err);
	if (filters < 0)
		return filters;
	s->cgroup_mode = e->cg.mode;
	s->disk_id = e->conf.id_start;
	(void)snprintf(s->etc_copy, sizeof(s->etc_copy), "%s", e->conf.etc_copy);
	for (int h = 0; h < CG_HIERARCHIES; h++) {
		if (e->cg.dir[h] < 0)
			continue;
		s->cgroup_mask |= 1u << h;
		fds[n++] = e->cg.dir[h];
	}
	fds[n++] = e->sessions_fd;
	fds[n++] = e->makers_fd;
	fds[n++] = filters;
	return msg_send(e->zygote_sock, s, sizeof(*s), fds, n, err);
}

/* Forget it, without waiting: it ends when its socket is closed, and is buried as an orphan. */
static bool let_go(struct engine *e)
{
	bool was_ready = e->zygote_ready;

	loop_io_remove(&e->zygote_io);
	e->zygote_sock = fd_close(e->zygote_sock);
	e->zygote_ready = false;
	return was_ready;
}

static void on_retry(struct loop_timer *t);

/*
 * Those who wait are told, and so is who asks until there is one.  It is tried again: what
 * was missing (memory, processes, descriptors, room below /proc) may be there in a while.
 */
static void unavailable(struct engine *e)
{
	e->zygote_pause_ms =
		MAX((unsigned)RETRY_LEAST_MS, MIN(2 * e->zygote_pause_ms, (unsigned)RETRY_MOST_MS));
	loop_timer_set(e->loop, &e->zygote_retry, now_ms() + e->zygote_pause_ms, on_retry, e);
	session_slot_failed(e);
}

static void on_retry(struct loop_timer *t)
{
	struct engine *e = t->ctx;

	if (!e->ending && e->zygote_sock < 0 && nursery_start(e, &e->zygote_err) < 0)
		unavailable(e);
}

static void on_zygote_ended(struct engine *e)
{
	bool was_ready = let_go(e);

	if (e->ending)
		return;
	/* One that dies at its start without a word was killed, or will be again: once at once. */
	if (was_ready || (e->zygote_err.code == GARRET_OK && !e->zygote_pause_ms)) {
		log_error("zygote_died", "restart=yes");
		e->zygote_pause_ms = was_ready ? 0 : 1;
		if (nursery_start(e, &e->zygote_err) == 0)
			return;
	} else if (e->zygote_err.code == GARRET_OK) {
		(void)garret_fail(&e->zygote_err, GARRET_INTERNAL, "the zygote died at its start");
	}
	unavailable(e);
}

/* What the template has copied, and what changes whenever packages do. */
static void stamp_host(struct timespec *ret)
{
	static const char *const paths[] = { "/etc/ld.so.cache", "/etc/alternatives",
					     "/etc/ssl/certs", "/etc/resolv.conf" };

	for (size_t i = 0; i < NURSERY_STAMPS; i++) {
		struct stat st = { 0 };

		(void)stat(paths[i], &st);
		ret[i] = st.st_mtim;
	}
}

void nursery_refresh(struct engine *e)
{
	struct timespec now[NURSERY_STAMPS];

	if (!e->zygote_ready)
		return;
	stamp_host(now);
	if (!memcmp(now, e->host_stamps, sizeof(now)))
		return;
	log_info("template_renewed", "runtime=host");
	(void)let_go(e);
	slots_drop(e);
	if (nursery_start(e, &e->zygote_err) < 0)
		unavailable(e);
}

static void on_note(struct loop_io *io, uint32_t events)
{
	struct engine *e = io->ctx;
	struct zygote_note n;
	struct garret_error err = { 0 };
	ssize_t r = msg_recv(e->zygote_sock, &n, sizeof(n), NULL, &err);

	if (r < 0 && err.sys == EAGAIN)
		return;
	if (r != sizeof(n)) {
		on_zygote_ended(e);
		return;
	}
	if (n.type == ZYGOTE_EXITED) {
		session_exited(e, n.pid, n.status);
		return;
	}
	n.err.msg[sizeof(n.err.msg) - 1] = '\0';
	if (n.type == ZYGOTE_FAILED) {
		e->zygote_err = n.err;
		log_error("runtime_unavailable", "runtime=host error=\"%s\"", n.err.msg);
		session_slot_failed(e);
		return; /* its end comes next */
	}
	e->zygote_ready = true;
	e->zygote_err.code = GARRET_OK;
	e->zygote_pause_ms = 0;
	slots_fill(e);
}

static int start_zygote(struct engine *e, struct garret_error *err)
{
	autoclose int theirs = -EBADF;
	int pair[2], rc;
	pid_t pid;

	rc = msg_pair(pair, false, err);
	if (rc < 0)
		return rc;
	e->zygote_sock = pair[0];
	theirs = pair[1];
	if (fd_set_nonblock(e->zygote_sock, true) < 0)
		return garret_fail_errno(err, "the zygote's socket");
	pid = fork();
	if (pid < 0)
		return garret_fail_errno(err, "fork the zygote");
	if (pid == 0)
		become_zygote(theirs);
	rc = send_setup(e, err);
	if (rc < 0)
		return rc;
	return loop_io_add(e->loop, &e->zygote_io, e->zygote_sock, EPOLLIN, on_note, e, err);
}

int nursery_start(struct engine *e, struct garret_error *err)
{
	int rc;

	e->zygote_io.fd = -EBADF;
	stamp_host(e->host_stamps);
	rc = start_zygote(e, err);
	if (rc < 0)
		(void)let_go(e); /* half a start ends by the end of its socket */
	return rc;
}

void nursery_stop(struct engine *e)
{
	loop_timer_clear(&e->zygote_retry);
	(void)let_go(e);
}

/* Also inits whose zygote is no more: they have become children of the engine. */
static void on_child(void *ctx, int signo)
{
	int status, pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		session_exited(ctx, pid, status);
}

int nursery_adopt(struct engine *e, struct garret_error *err)
{
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return garret_fail_errno(err, "become the parent of orphans");
	return loop_signal(e->loop, SIGCHLD, on_child, e, err);
}
