/*
 * The owner's end of a stream to an init, for tests.
 *
 *	test-stream-host SPOOL_DIR COMMAND...
 *
 * COMMAND is started with one socket as its stdin and stdout, again after each
 * cut.  Descriptor 3 (a Unix socket) gets the control socket.  What happens is
 * said on stdout, a line each; lines on stdin: `kill` the command, `drop` the
 * transport, `hold` and `go`: whether another is started.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/text.h"
#include "base/time.h"
#include "io/msg.h"
#include "provider/init_stream.h"

static struct host {
	struct loop *loop;
	struct init_stream *stream;
	struct loop_timer again;
	struct loop_io commands;
	const char *spools;
	char **argv;
	pid_t pid;
	bool held;
} t;

static void start(struct loop_timer *timer)
{
	int pair[2];

	(void)timer;
	if (t.held || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return;
	t.pid = fork();
	if (!t.pid) {
		sigset_t none;

		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		(void)dup2(pair[1], 0);
		(void)dup2(pair[1], 1);
		execvp(t.argv[0], t.argv);
		_exit(127);
	}
	fd_close(pair[1]);
	if (init_stream_begin_fds(t.stream, pair[0], pair[0], NULL) < 0)
		_exit(1);
}

static void on_live(void *ctx)
{
	char hex[2 * INIT_NONCE + 1];

	(void)ctx;
	hex_encode(init_stream_nonce(t.stream), INIT_NONCE, hex);
	printf("live %s %s\n", hex, init_stream_program(t.stream));
}

static void on_cut(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	printf("cut %d %s\n", (int)err->code, err->msg);
	if (err->code == GARRET_UNAVAILABLE)
		loop_timer_set(t.loop, &t.again, now_ms() + 5, start, NULL);
	else
		t.stream = init_stream_free(t.stream);
}

static int on_spool(void *ctx, uint32_t index, int stream)
{
	char path[300];

	(void)ctx;
	(void)snprintf(path, sizeof(path), "%s/%u.%s", t.spools, index, stream ? "err" : "out");
	return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
}

static const struct init_stream_events events = { .live = on_live,
						  .cut = on_cut,
						  .spool = on_spool };

static void on_child(void *ctx, int signo)
{
	(void)ctx;
	(void)signo;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
}

static void on_command(struct loop_io *io, uint32_t ready)
{
	struct garret_error err = { 0 };
	char line[32];
	ssize_t n = read(io->fd, line, sizeof(line) - 1);

	(void)ready;
	if (n <= 0) {
		loop_quit(t.loop, 0);
		return;
	}
	line[n] = '\0';
	if (strstr(line, "kill"))
		(void)kill(t.pid, SIGKILL);
	if (strstr(line, "hold"))
		t.held = true;
	if (strstr(line, "drop") && t.stream) {
		(void)garret_fail(&err, GARRET_UNAVAILABLE, "dropped");
		init_stream_ended(t.stream, &err);
	}
	if (strstr(line, "go")) {
		t.held = false;
		start(NULL);
	}
	if (strstr(line, "fds"))
		printf("fds %d\n", fd_count());
}

int main(int argc, char **argv)
{
	int control;
	char byte = 'c';

	if (argc < 3 || loop_new(&t.loop, NULL) < 0)
		return 2;
	(void)signal(SIGPIPE, SIG_IGN);
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	t.spools = argv[1];
	t.argv = argv + 2;
	if (loop_signal(t.loop, SIGCHLD, on_child, NULL, NULL) < 0 ||
	    init_stream_new(
		    &(struct init_stream_config){ .loop = t.loop, .events = &events, .ctx = &t },
		    &t.stream, &control, NULL) < 0 ||
	    msg_send(3, &byte, 1, &control, 1, NULL) < 0)
		return 1;
	fd_close(control);
	fd_close(3);
	start(NULL);
	if (loop_io_add(t.loop, &t.commands, 0, EPOLLIN, on_command, NULL, NULL) < 0)
		return 1;
	return loop_run(t.loop);
}
