/*
 * The child leads a process group, so that what it began can be ended with it.
 * It is over when it has exited, whoever still holds its pipe.
 */
#include "provider/docker_child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"

struct docker_child {
	struct loop *loop;
	pid_t pid;
	int pid_fd, out_fd;
	struct loop_io pid_io, out_io;
	struct loop_timer timer;
	struct strbuf out;
	size_t keep;
	bool late;
	docker_child_fn fn;
	void *ctx;
};

static void child_free(struct docker_child *c)
{
	loop_timer_clear(&c->timer);
	loop_io_remove(&c->pid_io);
	loop_io_remove(&c->out_io);
	fd_close(c->pid_fd);
	fd_close(c->out_fd);
	explicit_bzero(c->out.buf, c->out.len);
	strbuf_release(&c->out);
	free(c);
}

/* false: there is no more for now, or ever. */
static bool read_some(struct docker_child *c)
{
	char buf[4096];
	ssize_t n = read(c->out_fd, buf, sizeof(buf));

	if (n <= 0) {
		if (n == 0 || errno != EAGAIN)
			loop_io_remove(&c->out_io);
		return false;
	}
	strbuf_add(&c->out, buf, (size_t)n);
	explicit_bzero(buf, (size_t)n);
	if (c->out.len > 2 * c->keep)
		strbuf_remove_front(&c->out, c->out.len - c->keep);
	return true;
}

static void on_output(struct loop_io *io, uint32_t events)
{
	(void)events;
	(void)read_some(io->ctx);
}

static void on_exit_seen(struct loop_io *io, uint32_t events)
{
	struct docker_child *c = io->ctx;
	struct garret_error err = { 0 };
	int status = 0;

	(void)events;
	if (waitpid(c->pid, &status, WNOHANG) <= 0)
		return;
	while (read_some(c))
		;
	(void)kill(-c->pid, SIGKILL); /* what it left behind */
	if (c->out.len > c->keep)
		strbuf_remove_front(&c->out, c->out.len - c->keep);
	if (c->late)
		(void)garret_fail(&err, GARRET_TIMEOUT, "it took too long");
	c->fn(c->ctx, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), &c->out,
	      c->late ? &err : NULL);
	child_free(c);
}

static void on_late(struct loop_timer *t)
{
	struct docker_child *c = t->ctx;

	c->late = true;
	(void)kill(-c->pid, SIGKILL);
}

static int spawn(const struct docker_child_spec *spec, int in, int out, pid_t *ret)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none, all;
	int rc;

	(void)posix_spawn_file_actions_init(&files);
	(void)posix_spawnattr_init(&attr);
	sigemptyset(&none);
	sigfillset(&all);
	(void)posix_spawnattr_setsigmask(&attr, &none);
	(void)posix_spawnattr_setsigdefault(&attr, &all);
	(void)posix_spawnattr_setpgroup(&attr, 0);
	(void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
						      POSIX_SPAWN_SETSIGDEF);
	(void)posix_spawn_file_actions_adddup2(&files, in, 0);
	(void)posix_spawn_file_actions_adddup2(&files, out, 1);
	(void)posix_spawn_file_actions_adddup2(&files, out, 2);
	rc = posix_spawnp(ret, spec->argv[0], &files, &attr, (char *const *)(uintptr_t)spec->argv,
			  (char *const *)(uintptr_t)spec->env);
	(void)posix_spawn_file_actions_destroy(&files);
	(void)posix_spawnattr_destroy(&attr);
	return rc;
}

static int open_input(const char *text, int *ret, struct garret_error *err)
{
	autoclose int from = -EBADF, to = -EBADF;
	int p[2];

	if (!text) {
		*ret = open("/dev/null", O_RDONLY | O_CLOEXEC);
		return *ret < 0 ? garret_fail_errno(err, "/dev/null") : 0;
	}
	if (pipe2(p, O_CLOEXEC) < 0)
		return garret_fail_errno(err, "make a pipe");
	from = p[0];
	to = p[1];
	if (strlen(text) > 4096 || write_full(to, text, strlen(text)) < 0)
		return garret_fail(err, GARRET_INVALID, "the input of a helper is too long");
	*ret = take_fd(&from);
	return 0;
}

struct docker_child *docker_child_start(struct loop *l, const struct docker_child_spec *spec,
					docker_child_fn fn, void *ctx, struct garret_error *err)
{
	autoclose int in = -EBADF, from = -EBADF, to = -EBADF;
	struct docker_child *c;
	int p[2], rc;
	pid_t pid;

	if (open_input(spec->input, &in, err) < 0)
		return NULL;
	if (pipe2(p, O_CLOEXEC) < 0) {
		(void)garret_fail_errno(err, "make a pipe");
		return NULL;
	}
	from = p[0];
	to = p[1];
	(void)fd_set_nonblock(from, true);
	rc = spawn(spec, in, to, &pid);
	if (rc != 0) {
		errno = rc;
		(void)garret_fail_errno(err, "run %.100s", spec->argv[0]);
		return NULL;
	}
	c = xnew(struct docker_child);
	c->loop = l;
	c->pid = pid;
	c->out_fd = take_fd(&from);
	c->pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	c->pid_io.fd = c->out_io.fd = -EBADF;
	c->keep = spec->keep;
	c->fn = fn;
	c->ctx = ctx;
	strbuf_init(&c->out);
	if (c->pid_fd < 0 ||
	    loop_io_add(l, &c->pid_io, c->pid_fd, EPOLLIN, on_exit_seen, c, err) < 0) {
		(void)garret_fail(err, GARRET_EXHAUSTED, "watch %.100s", spec->argv[0]);
		docker_child_leave(c);
		return NULL;
	}
	(void)loop_io_add(l, &c->out_io, c->out_fd, EPOLLIN, on_output, c, NULL);
	if (spec->timeout_ms)
		loop_timer_set(l, &c->timer, now_ms() + spec->timeout_ms, on_late, c);
	return c;
}

void docker_child_leave(struct docker_child *c)
{
	(void)kill(-c->pid, SIGKILL);
	(void)waitpid(c->pid, NULL, 0); /* killed: at once */
	child_free(c);
}
