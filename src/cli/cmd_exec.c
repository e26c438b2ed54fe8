/*
 * garret exec: a command in a session of a daemon, as if it ran here: input,
 * output, signals, window size and exit status.  The frames are described in
 * api/stream.c.
 *
 * Nothing here waits for anybody: the daemon isn't read while our own output is
 * blocked, and no more of the input is sent than the daemon reads at once, so
 * that a signal is never stuck behind it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/remote.h"
#include "cli/tty.h"
#include "io/loop.h"

#define PROTOCOL "garret-stream/1"
#define HEADER 5
#define FRAME_MAX 65536u
#define INPUT_WINDOW (128u * 1024) /* the daemon stops reading at 256 KiB */
#define OUTPUT_WINDOW (64u * 1024)
#define PIECE 4096 /* what a pipe that polls writable takes at once without blocking */

enum to_daemon { TO_STDIN, TO_SIZE, TO_SIGNAL };
enum from_daemon { FROM_STDOUT = 1, FROM_STDERR, FROM_EXIT, FROM_TAKEN };

struct exec_opts {
	const char *url;
	bool tty, interactive, no_stdin, json, help;
	double timeout;
	struct opt_list env;
};

#define EXEC(f, n, l, k, a, h) OPT(struct exec_opts, f, n, l, k, a, h)
/* clang-format off */
static const struct opt exec_table[] = {
	EXEC(timeout,     "timeout",      0,  OPT_SECONDS, "SECONDS", "stop the command after this long (exit 124)"),
	EXEC(env,         "env",         'e', OPT_LIST,    "NAME=VALUE", "set a variable; NAME alone passes ours on"),
	EXEC(interactive, "interactive", 'i', OPT_FLAG,    NULL, "with -t; standard input is passed in any case"),
	EXEC(tty,         "tty",         't', OPT_FLAG,    NULL, "a terminal inside, for editors and shells"),
	EXEC(no_stdin,    "no-stdin",     0,  OPT_FLAG,    NULL, "standard input of the command is at its end"),
	EXEC(url,         "url",          0,  OPT_STRING,  "URL", "the daemon: http://HOST:PORT or unix:PATH"),
	EXEC(json,        "json",         0,  OPT_FLAG,    NULL, "at the end, one JSON line on stderr says how it ended"),
	EXEC(help,        "help",        'h', OPT_FLAG,    NULL, "show this"),
	{ 0 },
};
/* clang-format on */

/* Our standard output or error. */
struct sink {
	struct exec *exec;
	int fd;
	struct strbuf queue;
	struct loop_io io;
};

struct exec {
	struct exec_opts opts;
	struct loop *loop;
	uint64_t started_us;
	int fd; /* to the daemon */
	struct loop_io sock;
	struct strbuf to_daemon, from_daemon;
	struct loop_io input;
	struct loop_later input_later; /* a file is always ready, and epoll takes none */
	bool input_ended;
	uint64_t sent, taken;
	struct sink sinks[2];
	struct tty tty;
	bool over; /* the last frame is here, or the connection is lost */
	bool timed_out, gone;
	int exit_code; /* -1: not known */
};

/* ---- the end ---- */

static void report(const struct exec *e)
{
	const char *cause = e->gone ? "gone" : e->timed_out ? "timeout" : "exited";

	if (e->opts.json) {
		(void)fprintf(stderr, "{\"cause\":\"%s\",\"exit_code\":", cause);
		if (e->exit_code < 0)
			(void)fputs("null", stderr);
		else
			(void)fprintf(stderr, "%d", e->exit_code);
		(void)fprintf(stderr, ",\"wall_us\":%llu}\n",
			      (unsigned long long)(now_us() - e->started_us));
	} else if (e->gone) {
		(void)fputs("garret: the session ended while the command ran\n", stderr);
	} else if (e->timed_out) {
		(void)fprintf(stderr, "garret: stopped after %g s\n", e->opts.timeout);
	}
}

static void finish(struct exec *e, int status)
{
	tty_restore(&e->tty);
	loop_quit(e->loop, status);
}

static void maybe_finish(struct exec *e)
{
	if (!e->over || e->sinks[0].queue.len || e->sinks[1].queue.len)
		return;
	tty_restore(&e->tty);
	report(e);
	finish(e, e->gone ? EXIT_SANDBOX : e->timed_out ? EXIT_TIMEOUT : e->exit_code);
}

static void lost(struct exec *e, const char *why)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_UNAVAILABLE, "%s", why);
	tty_restore(&e->tty);
	finish(e, cli_no_sandbox(&err));
}

/* ---- to the daemon ---- */

static void on_sock(struct loop_io *io, uint32_t events);

/* A descriptor that nothing is wanted of isn't watched at all: it would report its hangup for ever. */
static void watch_sock(struct exec *e)
{
	bool full = e->sinks[0].queue.len > OUTPUT_WINDOW || e->sinks[1].queue.len > OUTPUT_WINDOW;
	uint32_t want = (full || e->over ? 0u : EPOLLIN) | (e->to_daemon.len ? EPOLLOUT : 0u);

	if (!want)
		loop_io_remove(&e->sock);
	else if (e->sock.fd >= 0)
		loop_io_mod(&e->sock, want);
	else
		(void)loop_io_add(e->loop, &e->sock, e->fd, want, on_sock, e, NULL);
}

static void flush(struct exec *e)
{
	while (e->to_daemon.len) {
		ssize_t n = send(e->fd, e->to_daemon.buf, e->to_daemon.len,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) /* what it still has to say can be read all the same */
			n = (ssize_t)e->to_daemon.len;
		strbuf_remove_front(&e->to_daemon, (size_t)n);
	}
	watch_sock(e);
}

static void send_frame(struct exec *e, uint8_t type, const void *data, size_t n)
{
	uint32_t length = htonl((uint32_t)n);

	if (e->over)
		return;
	strbuf_addch(&e->to_daemon, type);
	strbuf_add(&e->to_daemon, &length, sizeof(length));
	strbuf_add(&e->to_daemon, data, n);
	flush(e);
}

/* ---- our input ---- */

static void on_input(struct loop_io *io, uint32_t events);

static void on_input_later(struct loop_later *l)
{
	on_input(&((struct exec *)l->ctx)->input, 0);
}

static void watch_input(struct exec *e)
{
	if (e->input_ended || e->over || e->sent - e->taken >= INPUT_WINDOW)
		loop_io_remove(&e->input);
	else if (e->input.fd < 0 &&
		 loop_io_add(e->loop, &e->input, STDIN_FILENO, EPOLLIN, on_input, e, NULL) < 0)
		loop_later_add(e->loop, &e->input_later, on_input_later, e);
}

static void on_input(struct loop_io *io, uint32_t events)
{
	struct exec *e = io->ctx;
	char buf[16384];
	ssize_t n;

	(void)events;
	if (e->over)
		return;
	n = read(STDIN_FILENO, buf, sizeof(buf));
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	e->input_ended = n <= 0;
	n = MAX(n, 0);
	e->sent += (size_t)n;
	send_frame(e, TO_STDIN, buf, (size_t)n);
	watch_input(e);
}

/* ---- our output ---- */

static void on_room(struct loop_io *io, uint32_t events);

/* Write what goes without blocking; the flags of the descriptor aren't ours to change. */
static void write_sink(struct sink *s)
{
	struct exec *e = s->exec;

	while (s->queue.len) {
		struct pollfd pf = { .fd = s->fd, .events = POLLOUT };
		ssize_t n = -1;

		errno = EAGAIN;
		if (poll(&pf, 1, 0) == 1)
			n = write(s->fd, s->queue.buf, MIN(s->queue.len, (size_t)PIECE));
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			if (s->io.fd < 0)
				(void)loop_io_add(e->loop, &s->io, s->fd, EPOLLOUT, on_room, s,
						  NULL);
			return;
		}
		if (n < 0 && s->fd == STDOUT_FILENO) {
			/* Nobody reads: the command ends with us, as it would by SIGPIPE. */
			finish(e, 128 + SIGPIPE);
			strbuf_reset(&s->queue);
			return;
		}
		strbuf_remove_front(&s->queue, n < 0 ? s->queue.len : (size_t)n);
	}
	loop_io_remove(&s->io);
}

static void on_room(struct loop_io *io, uint32_t events)
{
	struct sink *s = io->ctx;

	(void)events;
	write_sink(s);
	watch_sock(s->exec);
	maybe_finish(s->exec);
}

/* ---- from the daemon ---- */

static bool take_exit(struct exec *e, const char *p, size_t n)
{
	json_t *doc = json_loadb(p, n, 0, NULL), *code = json_object_get(doc, "exit_code");

	e->over = true;
	e->gone = json_is_true(json_object_get(doc, "gone"));
	e->timed_out = json_is_true(json_object_get(doc, "timed_out"));
	e->exit_code = json_is_integer(code) ? (int)json_integer_value(code) : -1;
	json_decref(doc);
	return doc && (e->exit_code >= 0 || e->gone || e->timed_out);
}

static bool take_frame(struct exec *e, uint8_t type, const char *p, size_t n)
{
	if (type == FROM_STDOUT || type == FROM_STDERR) {
		strbuf_add(&e->sinks[type - FROM_STDOUT].queue, p, n);
		write_sink(&e->sinks[type - FROM_STDOUT]);
		return true;
	}
	if (type == FROM_EXIT)
		return take_exit(e, p, n);
	if (type != FROM_TAKEN)
		return true; /* a later daemon may say more */
	e->taken = 0;
	for (size_t i = 0; i < n && i < 8; i++)
		e->taken = e->taken << 8 | (uint8_t)p[i];
	watch_input(e);
	return n == 8 && e->taken <= e->sent;
}

static void take_frames(struct exec *e)
{
	size_t at = 0;

	while (!e->over && e->from_daemon.len - at >= HEADER) {
		const char *p = e->from_daemon.buf + at;
		uint32_t n;

		memcpy(&n, p + 1, sizeof(n));
		n = ntohl(n);
		if (n > FRAME_MAX) {
			lost(e, "the daemon sent what is no frame");
			return;
		}
		if (e->from_daemon.len - at < HEADER + n)
			break;
		at += HEADER + n;
		if (!take_frame(e, (uint8_t)*p, p + HEADER, n)) {
			lost(e, "the daemon sent a frame that makes no sense");
			return;
		}
	}
	strbuf_remove_front(&e->from_daemon, at);
	watch_sock(e);
	maybe_finish(e);
}

static void on_sock(struct loop_io *io, uint32_t events)
{
	struct exec *e = io->ctx;
	char buf[65536];
	ssize_t n;

	if (events & EPOLLOUT)
		flush(e);
	if (!(events & ~(uint32_t)EPOLLOUT) || e->over)
		return;
	n = recv(e->fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		lost(e, "the daemon went away");
		return;
	}
	strbuf_add(&e->from_daemon, buf, (size_t)n);
	take_frames(e);
}

/* ---- signals ---- */

static void on_signal(void *ctx, int signo)
{
	struct exec *e = ctx;
	uint8_t number = (uint8_t)signo;
	uint16_t size[2];

	if (signo != SIGWINCH) {
		send_frame(e, TO_SIGNAL, &number, 1);
	} else if (e->opts.tty && tty_size(&size[0], &size[1])) {
		size[0] = htons(size[0]);
		size[1] = htons(size[1]);
		send_frame(e, TO_SIZE, size, sizeof(size));
	}
}

/* ---- starting ---- */

static int add_variable(json_t *env, const char *item, struct garret_error *err)
{
	const char *eq = strchr(item, '='), *value = eq ? eq + 1 : getenv(item);
	autofree char *name = eq ? xstrndup(item, (size_t)(eq - item)) : xstrdup(item);

	if (!*name)
		return garret_fail(err, GARRET_INVALID, "--env takes NAME=VALUE, not \"%.100s\"",
				   item);
	if (value && json_object_set_new(env, name, json_string(value)) < 0)
		return garret_fail(err, GARRET_INVALID, "--env %.100s isn't UTF-8", item);
	return 0;
}

static json_t *make_request(const struct exec_opts *o, char **argv, struct garret_error *err)
{
	json_t *list = json_array(), *env = json_object(), *body;
	uint16_t rows, columns;
	int rc = 0;

	(void)tty_size(&rows, &columns);
	for (; *argv && rc == 0; argv++)
		if (json_array_append_new(list, json_string(*argv)) < 0)
			rc = garret_fail(err, GARRET_INVALID, "an argument isn't UTF-8");
	/* A terminal program needs to know what it draws on. */
	if (o->tty && rc == 0)
		rc = add_variable(env, "TERM", err);
	for (unsigned i = 0; i < o->env.n && rc == 0; i++)
		rc = add_variable(env, o->env.item[i], err);
	body = json_pack("{s:o, s:o, s:b, s:i, s:i}", "argv", list, "env", env, "tty", o->tty,
			 "rows", MAX(rows, 1), "columns", MAX(columns, 1));
	if (o->timeout > 0)
		(void)json_object_set_new(body, "timeout_seconds", json_real(o->timeout));
	if (rc == 0)
		return body;
	json_decref(body);
	return NULL;
}

static int start(struct exec *e, const char *session, char **argv, struct garret_error *err)
{
	struct remote r;
	char path[160];
	json_t *body;
	int rc;

	body = make_request(&e->opts, argv, err);
	if (!body)
		return -GARRET_INVALID;
	(void)snprintf(path, sizeof(path), "/v1/sessions/%s/stream", session);
	rc = remote_find(&r, e->opts.url, err);
	if (rc == 0)
		rc = loop_new(&e->loop, err);
	if (rc == 0 && e->opts.tty && !isatty(STDIN_FILENO))
		rc = garret_fail(err, GARRET_INVALID, "-t needs a terminal on standard input");
	if (rc == 0)
		rc = remote_upgrade(&r, path, PROTOCOL, body, &e->fd, &e->from_daemon, err);
	json_decref(body);
	if (rc == 0)
		rc = tty_signals(e->loop, on_signal, e, err);
	if (rc == 0 && e->opts.tty) /* not before: until now a Ctrl-C is for us */
		rc = tty_raw(&e->tty, err);
	if (rc < 0)
		return rc;
	e->input.ctx = e;
	e->input_ended = e->opts.no_stdin;
	if (e->opts.no_stdin)
		send_frame(e, TO_STDIN, NULL, 0);
	watch_input(e);
	take_frames(e);
	return 0;
}

static void release(struct exec *e)
{
	tty_restore(&e->tty);
	fd_close(e->fd);
	strbuf_release(&e->to_daemon);
	strbuf_release(&e->from_daemon);
	strbuf_release(&e->sinks[0].queue);
	strbuf_release(&e->sinks[1].queue);
	loop_free(e->loop);
}

static void init(struct exec *e)
{
	e->started_us = now_us();
	e->fd = e->sock.fd = e->input.fd = -EBADF;
	e->exit_code = -1;
	strbuf_init(&e->to_daemon);
	strbuf_init(&e->from_daemon);
	for (int i = 0; i < 2; i++) {
		e->sinks[i].exec = e;
		e->sinks[i].fd = i + 1;
		e->sinks[i].io.fd = -EBADF;
		strbuf_init(&e->sinks[i].queue);
	}
}

static int exec_main(int argc, char **argv)
{
	struct exec e = { .opts = { .url = NULL } };
	struct garret_error err = { 0 };
	int used = opt_parse(exec_table, argc, argv, &e.opts, &err), status;
	char **words;

	if (used < 0)
		return cli_fail(&err);
	if (e.opts.help)
		return cli_help(&command_exec);
	init(&e);
	words = argv + used;
	if (!*words)
		(void)garret_fail(&err, GARRET_INVALID, "exec needs the id of a session");
	else if (!name_valid(*words))
		(void)garret_fail(&err, GARRET_INVALID, "\"%.80s\" is no session id", *words);
	else if (!words[1] || (!strcmp(words[1], "--") && !words[2]))
		(void)garret_fail(&err, GARRET_INVALID,
				  "exec: which command? garret exec ID -- CMD");
	if (err.code)
		return cli_fail(&err);
	(void)signal(SIGPIPE, SIG_IGN);
	if (start(&e, words[0], words + (strcmp(words[1], "--") ? 1 : 2), &err) < 0) {
		tty_restore(&e.tty);
		status = cli_no_sandbox(&err);
	} else {
		status = loop_run(e.loop);
	}
	release(&e);
	return status;
}

const struct command command_exec = {
	.name = "exec",
	.synopsis = "[OPTIONS] ID -- CMD [ARG...]",
	.help = "Run a command in a session of a daemon.",
	.table = exec_table,
	.main = exec_main,
};
