/*
 * Starting a command: clone3 that shares our memory, without CLONE_VFORK, so
 * that pid 1 goes on serving while the child is on its way to exec.
 *
 * The child uses the stack, the strings and the plan of its struct start.  They
 * may be used again only when the pipe `ready` is at its end, which exec
 * (close-on-exec) and death both cause, or when the child was reaped.  What went
 * wrong stands in the plan by then.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "init/child.h"
#include "init/env.h"
#include "init/session.h"

#define STACK_BYTES (32 * 1024) /* the child's largest need is one path */
#define GUARD_BYTES 4096
#define STACKS_KEPT 2

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

/* At the bottom of its memory while it is kept for the next start. */
struct stack {
	struct list link;
};

struct start {
	struct session *s;
	struct run *run; /* NULL: abandoned */
	struct loop_io ready;
	int child_fds[3]; /* kept until the end of the start: the child may be made twice */
	uint8_t *memory;  /* guard page, then the stack */
	uint8_t *strings;
	char *cwd;
	char **vars;
	char **args; /* one place more in front */
	struct child_plan plan;
};

static uint8_t *stack_take(struct session *s)
{
	uint8_t *m;

	if (!list_empty(&s->stacks)) {
		struct stack *st = list_entry(s->stacks.next, struct stack, link);

		list_remove(&st->link);
		s->n_stacks--;
		return (uint8_t *)st - GUARD_BYTES;
	}
	m = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
	if (m == MAP_FAILED)
		return NULL;
	if (mprotect(m, GUARD_BYTES, PROT_NONE) < 0) {
		(void)munmap(m, GUARD_BYTES + STACK_BYTES);
		return NULL;
	}
	return m;
}

static void stack_give(struct session *s, uint8_t *m)
{
	struct stack *st;

	if (!m)
		return;
	if (s->n_stacks >= STACKS_KEPT) {
		(void)munmap(m, GUARD_BYTES + STACK_BYTES);
		return;
	}
	st = (struct stack *)(void *)(m + GUARD_BYTES);
	list_append(&s->stacks, &st->link);
	s->n_stacks++;
}

void spawn_trim(struct session *s)
{
	while (!list_empty(&s->stacks))
		(void)munmap(stack_take(s), GUARD_BYTES + STACK_BYTES);
}

static void ready_close(struct start *st)
{
	int fd = st->ready.fd;

	loop_io_remove(&st->ready);
	fd_close(fd);
}

static void start_free(struct start *st)
{
	ready_close(st);
	for (int i = 0; i < 3; i++)
		fd_close(st->child_fds[i]);
	stack_give(st->s, st->memory);
	free(st->strings);
	free(st->cwd);
	free(st->vars);
	free(st->args);
	if (st->run)
		st->run->start = NULL;
	free(st);
}

/*
 * When memory runs out, runs go before init.  Not by the child itself: while it
 * shares our memory the kernel would give us the same number.  Afterwards the
 * file is the run's user's, so it is opened with that user's rights; the change
 * of ids makes us dumpable where the host is configured so, hence the last call.
 */
static void raise_oom(struct session *s, int pid)
{
	char path[40] = "/proc/", digits[12];
	size_t n = sizeof("/proc/") - 1, i = 0;
	autoclose int fd = -EBADF;

	if (s->oom_refused)
		return;
	for (int v = pid; v > 0; v /= 10)
		digits[i++] = (char)('0' + v % 10);
	while (i)
		path[n++] = digits[--i];
	memcpy(path + n, "/oom_score_adj", sizeof("/oom_score_adj"));
	(void)setfsuid(s->p.run_uid);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	s->oom_refused = fd < 0 && errno == EACCES;
	(void)setfsuid(geteuid());
	if (prctl(PR_GET_DUMPABLE) != s->dumpable)
		(void)prctl(PR_SET_DUMPABLE, s->dumpable);
	if (fd >= 0)
		(void)write_full(fd, "500", 3); /* refused only where it is higher already */
}

/* The child has executed its program, or has told why not and is about to exit. */
static void start_over(struct start *st)
{
	struct run *r = st->run;
	uint32_t step = st->plan.step, sys = st->plan.sys;

	start_free(st);
	if (!r)
		return;
	r->exit.step = (uint8_t)step;
	r->exit.sys = sys;
	if (step)
		return;
	run_started(r);
	raise_oom(r->s, r->pid);
}

static void on_ready(struct loop_io *io, uint32_t events)
{
	struct start *st = io->ctx;
	char byte;

	(void)events;
	/* Nothing is ever written; anything but the end is a spurious wake-up. */
	if (read(io->fd, &byte, 1) != 0)
		return;
	if (st->plan.born || !st->run)
		start_over(st);
	else
		ready_close(st); /* it died at birth: spawn_reaped() sees to it */
}

static long clone_child(struct session *s, struct start *st, struct leaf *leaf)
{
	struct child_clone a = {
		.flags = CLONE_VM | CLONE_CLEAR_SIGHAND | (leaf ? CLONE_INTO_CGROUP : 0),
		.exit_signal = SIGCHLD,
		.stack = (uint64_t)(uintptr_t)(st->memory + GUARD_BYTES),
		.stack_size = STACK_BYTES,
		.cgroup = leaf ? (uint64_t)leaf->fd : 0,
	};
	long pid;

	st->plan.born = 0;
	st->plan.step = 0;
	pid = child_clone3(&a, sizeof(a), child_main, &st->plan);
	/* The usual filter of containers has none.  We catch no signal, so that none is to clear. */
	if (pid == -ENOSYS && !leaf)
		pid = child_clone(CLONE_VM | SIGCHLD, st->memory + GUARD_BYTES + STACK_BYTES,
				  child_main, &st->plan);
	if (pid > 0)
		s->childless = false;
	return pid;
}

/*
 * Make the child in a leaf of its own.  Where that can't be (no rights, an old
 * kernel, a cgroup that was killed) it is made without one.
 */
static int clone_somewhere(struct run *r, struct start *st)
{
	struct session *s = r->s;
	long pid;

	r->leaf = leaf_take(s);
	pid = clone_child(s, st, r->leaf);
	if (pid < 0 && r->leaf && pid != -EAGAIN && pid != -ENOMEM) {
		leaf_retire(s, r->leaf);
		r->leaf = NULL;
		s->leaf_failures++;
		pid = clone_child(s, st, NULL);
	} else if (pid > 0 && r->leaf) {
		s->leaf_failures = 0;
	}
	if (r->leaf)
		leaf_used(r->leaf);
	r->pid = pid > 0 ? (int)pid : 0;
	return pid > 0 ? 0 : (int)pid;
}

/* False when the strings aren't what they should be. */
static bool fill_strings(struct start *st, const struct init_run *req)
{
	autofree char **argv = NULL, **envp = NULL;

	if (!init_strings(st->strings, req->strings_bytes, req->argc, req->envc, &argv, &envp))
		return false;
	st->args = xcalloc(req->argc + 2, sizeof(char *));
	memcpy(st->args + 1, argv, req->argc * sizeof(char *));
	st->vars = env_merge(st->run->s->p.env, envp, req->envc);
	return true;
}

static void fill_plan(struct start *st, int ready_fd, const int stdio[3])
{
	struct run *r = st->run;
	struct session *s = r->s;
	const char *path = env_find(st->vars, "PATH");

	for (int i = 0; i < 3; i++)
		st->plan.stdio[i] = stdio[i];
	st->plan.ready_fd = ready_fd;
	st->plan.terminal = r->flags & INIT_RUN_PTY;
	st->plan.filter = s->p.run_filter;
	st->plan.uid = s->p.run_uid;
	st->plan.gid = s->p.run_gid;
	st->plan.nofile_soft = s->files.rlim_cur;
	st->plan.nofile_hard = s->files.rlim_max;
	st->plan.processes = s->p.run_processes;
	st->plan.path = path ? path : "/usr/local/bin:/usr/bin:/bin";
	st->plan.cwd = st->cwd;
	st->plan.argv = st->args + 1;
	st->plan.envp = st->vars;
}

/* A pipe whose reading end is watched; the other is for one child. */
static int watch_ready(struct start *st, int *ret_write)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	(void)fcntl(p[0], F_SETFL, O_NONBLOCK);
	if (loop_io_add(st->run->s->loop, &st->ready, p[0], EPOLLIN, on_ready, st, NULL) < 0) {
		fd_close(p[0]);
		fd_close(p[1]);
		return -ENOMEM;
	}
	*ret_write = p[1];
	return 0;
}

int spawn(struct run *r, const struct init_run *req, uint8_t *strings, const int stdio[3])
{
	struct start *st = xnew(struct start);
	autoclose int ready = -EBADF;
	int rc;

	st->s = r->s;
	st->run = r;
	r->start = st;
	st->ready.fd = -EBADF;
	st->strings = strings;
	for (int i = 0; i < 3; i++)
		st->child_fds[i] = stdio[i];
	st->memory = stack_take(r->s);
	if (!fill_strings(st, req)) {
		start_free(st);
		return -EBADMSG;
	}
	rc = st->memory ? watch_ready(st, &ready) : -ENOMEM;
	if (rc == 0) {
		st->cwd = xstrdup(req->cwd[0] ? req->cwd : r->s->p.work_dir);
		fill_plan(st, ready, stdio);
		rc = clone_somewhere(r, st);
	}
	if (rc < 0)
		start_free(st);
	return rc;
}

/*
 * A child that was killed before its first instruction: its leaf is below a
 * cgroup that was killed once (the kernel then kills whatever enters).  Give up
 * leaves and make it again; nothing was executed, so nobody can tell.
 */
static bool make_again(struct start *st)
{
	struct run *r = st->run;
	autoclose int ready = -EBADF;
	long pid;

	r->s->leaf_failures = UINT32_MAX / 2;
	leaf_retire(r->s, r->leaf);
	r->leaf = NULL;
	ready_close(st);
	if (watch_ready(st, &ready) < 0)
		return false;
	st->plan.ready_fd = ready;
	pid = clone_child(r->s, st, NULL);
	if (pid <= 0)
		return false;
	r->pid = (int)pid;
	return true;
}

bool spawn_reaped(struct run *r, int status)
{
	struct start *st = r->start;

	if (!st)
		return false;
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !st->plan.born && r->leaf &&
	    r->phase == STOP_NONE && make_again(st))
		return true;
	start_over(st);
	return false;
}

void spawn_abandon(struct run *r)
{
	if (r->start)
		r->start->run = NULL;
	r->start = NULL;
}
