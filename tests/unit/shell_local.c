#include "shell_local.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"

struct shell_run {
	struct local *local;
	const struct shell_events *events;
	void *ctx;
	pid_t pid;
	unsigned number;
	size_t told; /* of its standard output */
	struct loop_io in, out[2];
	struct loop_later later;
	bool wants_room, paused, ended;
	bool *gone;
};

static void close_io(struct loop_io *io)
{
	int fd = io->fd;

	loop_io_remove(io);
	fd_close(fd);
	io->fd = -EBADF;
}

static void run_free(struct shell_run *r)
{
	if (r->gone)
		*r->gone = true;
	close_io(&r->in);
	close_io(&r->out[0]);
	close_io(&r->out[1]);
	loop_later_cancel(r->local->host.loop, &r->later);
	r->local->running--;
	free(r);
}

static void kill_all(struct shell_run *r)
{
	if (r->pid <= 0)
		return;
	(void)kill(-r->pid, SIGKILL);
	while (waitpid(r->pid, NULL, 0) < 0 && errno == EINTR)
		;
	r->pid = 0;
}

static void end(struct shell_run *r)
{
	const struct shell_events *events = r->events;
	struct garret_error err = { 0 };
	void *ctx = r->ctx;
	int status = 0;
	bool gone = r->local->gone_at == r->number;

	if (gone)
		kill_all(r);
	else
		while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
			;
	run_free(r);
	if (gone)
		(void)garret_fail(&err, GARRET_GONE, "the environment has ended");
	events->end(ctx, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
		    gone ? &err : NULL);
}

static void on_out(struct loop_io *io, uint32_t events)
{
	struct shell_run *r = io->ctx;
	int stream = io == &r->out[1];
	static char buf[65536];
	ssize_t n = read(io->fd, buf, sizeof(buf));
	bool gone = false;

	(void)events;
	if (n < 0)
		return;
	if (n == 0) {
		close_io(io);
		if (r->out[0].fd < 0 && r->out[1].fd < 0)
			end(r);
		return;
	}
	if (!stream && r->local->cut_at == r->number) {
		n = (ssize_t)MIN((size_t)n,
				 r->local->cut_bytes - MIN(r->local->cut_bytes, r->told));
		r->told += (size_t)n;
	}
	r->gone = &gone;
	r->events->out(r->ctx, stream, buf, (size_t)n);
	if (gone)
		return;
	r->gone = NULL;
	if (r->local->gone_at == r->number)
		end(r);
}

static void on_in(struct loop_io *io, uint32_t events)
{
	struct shell_run *r = io->ctx;

	loop_io_mod(io, 0);
	if (events & EPOLLERR) {
		close_io(io);
		return;
	}
	if (r->wants_room) {
		r->wants_room = false;
		r->events->room(r->ctx);
	}
}

static size_t input_more(struct shell_run *r, const void *data, size_t n)
{
	size_t most = r->local->input_piece ? MIN(n, r->local->input_piece) : n;
	ssize_t done;

	if (r->in.fd < 0)
		return n; /* it doesn't read any more */
	done = write(r->in.fd, data, most);
	if (done < 0 && errno == EPIPE) {
		close_io(&r->in);
		return n;
	}
	done = done < 0 ? 0 : done;
	if (done && r->local->cut_input_at == r->number) {
		close_io(&r->in);
		return n;
	}
	if ((size_t)done < n) {
		r->wants_room = true;
		loop_io_mod(&r->in, EPOLLOUT);
	}
	return (size_t)done;
}

static void input_end(struct shell_run *r)
{
	close_io(&r->in);
}

static void pause_out(struct shell_run *r, bool pause)
{
	for (int i = 0; i < 2; i++)
		if (r->out[i].fd >= 0)
			loop_io_mod(&r->out[i], pause ? 0 : EPOLLIN);
}

static void cancel(struct shell_run *r)
{
	kill_all(r);
	run_free(r);
}

static void on_fail(struct loop_later *l)
{
	struct shell_run *r = container_of(l, struct shell_run, later);
	const struct shell_events *events = r->events;
	struct garret_error err = { 0 };
	void *ctx = r->ctx;

	run_free(r);
	(void)garret_fail(&err, GARRET_UNAVAILABLE, "the connection broke");
	events->end(ctx, 0, &err);
}

static int spawn(struct local *l, const struct shell_command *cmd, int in, int out, int errs,
		 pid_t *pid)
{
	autofree char *path = xasprintf("PATH=%s", l->path);
	char *const env[] = { path, (char *)(uintptr_t) "HOME=/", NULL };
	const char *argv[64];
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	int n = 0, rc;

	for (; cmd->argv[n]; n++)
		argv[n] = cmd->argv[n];
	argv[0] = "sh"; /* busybox is what it is called */
	argv[n] = NULL;
	(void)posix_spawn_file_actions_init(&fa);
	(void)posix_spawn_file_actions_adddup2(&fa, in, 0);
	(void)posix_spawn_file_actions_adddup2(&fa, out, 1);
	(void)posix_spawn_file_actions_adddup2(&fa, errs, 2);
	(void)posix_spawnattr_init(&at);
	(void)posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
	(void)posix_spawnattr_setpgroup(&at, 0);
	rc = posix_spawn(pid, l->shell, &fa, &at, (char *const *)(uintptr_t)argv, env);
	(void)posix_spawn_file_actions_destroy(&fa);
	(void)posix_spawnattr_destroy(&at);
	return rc;
}

static struct shell_run *run(void *ctx, const struct shell_command *cmd,
			     const struct shell_events *events, void *events_ctx,
			     struct garret_error *err)
{
	struct local *l = ctx;
	struct shell_run *r = xnew(struct shell_run);
	int in[2] = { -EBADF, -EBADF }, out[2], errs[2], none;

	r->local = l;
	r->events = events;
	r->ctx = events_ctx;
	r->number = ++l->commands;
	r->in.fd = r->out[0].fd = r->out[1].fd = -EBADF;
	l->running++;
	if (l->before)
		l->before(r->number);
	if (l->fail_at == r->number) {
		loop_later_add(l->host.loop, &r->later, on_fail, r);
		return r;
	}
	none = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if ((cmd->input && pipe2(in, O_CLOEXEC) < 0) || pipe2(out, O_CLOEXEC) < 0 ||
	    pipe2(errs, O_CLOEXEC) < 0 ||
	    spawn(l, cmd, cmd->input ? in[0] : none, out[1], errs[1], &r->pid) != 0)
		abort();
	fd_close(none);
	fd_close(in[0]);
	fd_close(out[1]);
	fd_close(errs[1]);
	(void)fd_set_nonblock(out[0], true);
	(void)fd_set_nonblock(errs[0], true);
	(void)loop_io_add(l->host.loop, &r->out[0], out[0], EPOLLIN, on_out, r, err);
	(void)loop_io_add(l->host.loop, &r->out[1], errs[0], EPOLLIN, on_out, r, err);
	if (cmd->input) {
		(void)fd_set_nonblock(in[1], true);
		(void)loop_io_add(l->host.loop, &r->in, in[1], 0, on_in, r, err);
	}
	return r;
}

void local_init(struct local *l, struct loop *loop, const char *work_dir)
{
	*l = (struct local){ .shell = "/bin/sh", .path = "/usr/bin:/bin" };
	l->host = (struct shell_host){ .loop = loop,
				       .work_dir = work_dir,
				       .input = true,
				       .raw = true,
				       .run = run,
				       .input_more = input_more,
				       .input_end = input_end,
				       .pause = pause_out,
				       .cancel = cancel,
				       .ctx = l };
	(void)signal(SIGPIPE, SIG_IGN);
}
