/*
 * Pid 1: set up, accept, reap.
 *
 * Every signal is blocked and none is ignored: an ignored one would stay ignored
 * in the programs that runs execute, and a SIGCHLD ignored by whoever forked us
 * would let the kernel reap children before we see their status.
 */
#include "init/session.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"

#define CONNS_MAX 8
#define IDLE_MS 1000

static struct run *run_of_pid(struct session *s, int pid)
{
	struct run *r;

	list_foreach (r, &s->live, in_list)
		if (r->pid == pid && !r->exited)
			return r;
	return NULL;
}

static void on_child(void *ctx, int signo)
{
	struct session *s = ctx;
	bool orphans = false;
	struct run *r;

	(void)signo;
	for (;;) {
		struct rusage ru;
		int status;
		int pid = wait4(-1, &status, WNOHANG, &ru);

		if (pid <= 0) {
			s->childless = pid < 0 && errno == ECHILD;
			break;
		}
		files_reaped(s, pid);
		r = run_of_pid(s, pid);
		if (r && !spawn_reaped(r, status)) {
			run_reaped(r, status, &ru);
			list_append(&s->reaped, &r->in_reaped);
		}
		orphans = orphans || !r;
	}
	/* Only now is it known whether anything lives on besides them. */
	list_foreach (r, &s->reaped, in_reaped) {
		list_remove(&r->in_reaped);
		run_settle(r);
	}
	if (orphans)
		leaf_retry_soon(s);
	if (s->n_stopping)
		stop_hurry(s);
}

static void on_idle(struct loop_timer *t)
{
	struct session *s = t->ctx;

	if (s->n_live)
		return;
	spawn_trim(s);
	conn_trim();
	(void)malloc_trim(0);
}

void session_note_live(struct session *s)
{
	loop_timer_set(s->loop, &s->idle_timer, now_ms() + IDLE_MS, on_idle, s);
}

static int open_oom(const struct init_params *p)
{
	int fd = -EBADF;

	if (p->v1_memory_fd >= 0 && fcntl(p->v1_memory_fd, F_GETFL) & O_PATH)
		fd = openat(p->v1_memory_fd, "memory.oom_control", O_RDONLY | O_CLOEXEC);
	else if (p->v1_memory_fd >= 0)
		return p->v1_memory_fd;
	if (fd < 0 && p->cgroup_fd >= 0)
		fd = openat(p->cgroup_fd, "memory.events", O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -EBADF : fd;
}

uint64_t session_oom_kills(struct session *s)
{
	char buf[512], *at;
	ssize_t n;
	uint64_t v;

	if (s->oom_fd < 0)
		return 0;
	n = pread(s->oom_fd, buf, sizeof(buf) - 1, 0);
	if (n <= 0)
		return 0;
	buf[n] = '\0';
	at = strstr(buf, "oom_kill ");
	if (!at)
		return 0;
	at += strlen("oom_kill ");
	at[strcspn(at, "\n")] = '\0';
	return parse_u64(at, &v) ? v : 0;
}

/* The only owner is gone: with pid 1 the kernel ends every process of the session. */
void session_end(struct session *s)
{
	struct run *r;

	if (getpid() != 1)
		list_foreach (r, &s->live, in_list)
			if (r->pid > 0) {
				(void)kill(r->start ? r->pid : -r->pid, SIGKILL);
				if (s->p.container)
					(void)procs_of(r, procs_kill);
			}
	_exit(0);
}

static void on_term(void *ctx, int signo)
{
	(void)signo;
	session_end(ctx);
}

static void on_listener(struct loop_io *io, uint32_t events)
{
	struct session *s = io->ctx;
	int fd = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd < 0)
		return;
	if ((s->p.admit && !s->p.admit(fd)) || s->n_conns >= CONNS_MAX || conn_add(s, fd) < 0)
		fd_close(fd);
}

static void set_signals(void)
{
	/*
	 * The kernel's own structure: libc's sigaction() leaves out 32 and 33, which
	 * somebody above us may have ignored, and runs would inherit that.
	 */
	const struct {
		uint64_t handler, flags, restorer, mask;
	} plain = { 0 };
	sigset_t all;

	for (int i = 1; i < NSIG; i++) /* refused for SIGKILL and SIGSTOP */
		(void)syscall(SYS_rt_sigaction, i, &plain, NULL, sizeof(plain.mask));
	sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, NULL);
}

/* Runs get descriptors 0 to 2 by dup3; ours must never be among them. */
static void fill_stdio(struct session *s)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	while (fd >= 0 && fd <= 2);
	s->null_fd = fd < 0 ? -EBADF : fd;
}

static void set_files(struct session *s)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &s->files) < 0)
		s->files = (struct rlimit){ 1024, 4096 };
	most = s->files;
	most.rlim_cur = most.rlim_max; /* four descriptors per live run are ours */
	(void)setrlimit(RLIMIT_NOFILE, &most);
}

static void set_lists(struct session *s)
{
	struct list *all[] = { &s->conns,        &s->live,        &s->ended,           &s->spools,
			       &s->thirsty,      &s->drains,      &s->stacks,          &s->reaped,
			       &s->ready_leaves, &s->used_leaves, &s->lingering_leaves };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		list_init(all[i]);
	for (size_t i = 0; i < BUCKETS; i++)
		list_init(&s->buckets[i]);
}

void init_main(const struct init_params *p)
{
	struct session *s = xnew(struct session);

	s->p = *p;
	if (!s->p.env)
		s->p.env = init_base_env;
	set_signals();
	fill_stdio(s);
	set_files(s);
	set_lists(s);
	s->listener.fd = -EBADF;
	s->oom_fd = open_oom(p);
	s->childless = true;
	s->dumpable = prctl(PR_GET_DUMPABLE);
	if (loop_new(&s->loop, NULL) < 0 || loop_signal(s->loop, SIGCHLD, on_child, s, NULL) < 0)
		_exit(1);
	if (p->container && loop_signal(s->loop, SIGTERM, on_term, s, NULL) < 0)
		_exit(1);
	if (p->listen_fd >= 0 &&
	    (fd_set_nonblock(p->listen_fd, true) < 0 ||
	     loop_io_add(s->loop, &s->listener, p->listen_fd, EPOLLIN, on_listener, s, NULL) < 0))
		_exit(1);
	if (p->conn_fd >= 0 &&
	    (fd_set_nonblock(p->conn_fd, true) < 0 || conn_add(s, p->conn_fd) < 0))
		_exit(1);
	if (p->conn_fd < 0 && p->listen_fd < 0)
		_exit(1); /* nobody could ever reach us */
	leaf_prepare(s);
	for (;;)
		(void)loop_run(s->loop);
}
