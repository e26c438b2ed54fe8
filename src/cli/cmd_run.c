/*
 * garret run: one command in a session of its own, without a daemon.
 *
 * The command gets pipes that we make, never our own descriptors: a session
 * must not hold a file or a terminal of the host.  With -t init makes a terminal
 * inside the session and we carry its bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "cli/cli.h"
#include "cli/pump.h"
#include "cli/run_session.h"
#include "cli/tty.h"

#define DRAIN_MS 50 /* for pipes that a background child still holds */
#define KILL_AFTER_MS 2000

struct run_opts {
	const char *runtime, *network, *work_dir, *name;
	uint64_t memory, pids, cpu_shares, tmpfs, memory_swap;
	double cpus, timeout;
	struct opt_list env, volumes;
	bool tty, interactive, json, help, no_stdin;
};

#define RUN(f, n, l, k, a, h) OPT(struct run_opts, f, n, l, k, a, h)
/* clang-format off */
static const struct opt run_table[] = {
	RUN(runtime,     "runtime",     'r', OPT_STRING,  "NAME", "root file system: host (the default)"),
	RUN(timeout,     "timeout",      0,  OPT_SECONDS, "SECONDS", "stop the command after this long (exit 124)"),
	RUN(env,         "env",         'e', OPT_LIST,    "NAME=VALUE", "set a variable; NAME alone passes ours on"),
	RUN(volumes,     "volume",      'v', OPT_LIST,    "HOST:INSIDE[:ro]", "show a host directory or file inside"),
	RUN(work_dir,    "work-dir",    'w', OPT_STRING,  "PATH", "work directory inside (/workspace)"),
	RUN(memory,      "mem",         'm', OPT_SIZE,    "BYTES", "memory limit, e.g. 512m (1g)"),
	RUN(memory_swap, "memswap",      0,  OPT_SIZE,    "BYTES", "memory and swap together (as --mem)"),
	RUN(cpus,        "cpus",        'c', OPT_CPUS,    "NUMBER", "CPUs, e.g. 1.5 (all)"),
	RUN(cpu_shares,  "cpu-shares",   0,  OPT_NUMBER,  "WEIGHT", "CPU weight, 1024 is normal"),
	RUN(pids,        "pids",         0,  OPT_NUMBER,  "NUMBER", "processes at most (512)"),
	RUN(tmpfs,       "tmpfs",        0,  OPT_SIZE,    "BYTES", "size of /tmp (256m)"),
	RUN(network,     "network",     'n', OPT_STRING,  "MODE", "none (the default) or host"),
	RUN(interactive, "interactive", 'i', OPT_FLAG,    NULL, "with -t; standard input is passed in any case"),
	RUN(tty,         "tty",         't', OPT_FLAG,    NULL, "a terminal inside, for editors and shells"),
	RUN(no_stdin,    "no-stdin",     0,  OPT_FLAG,    NULL, "standard input of the command is at its end"),
	RUN(json,        "json",         0,  OPT_FLAG,    NULL, "at the end, one JSON line on stderr says how it ended"),
	RUN(help,        "help",        'h', OPT_FLAG,    NULL, "show this"),
	{ 0 },
};
/* clang-format on */

struct run {
	struct run_opts opts;
	const char *const *argv;
	struct loop *loop;
	struct private_session session;
	uint8_t id[INIT_RUN_ID];
	struct strbuf env_text;
	const char *env[OPT_LIST_MAX + 2];
	char *env_owned[OPT_LIST_MAX + 2];
	int volume_fds[ENGINE_VOLUMES_MAX];
	char *inside[ENGINE_VOLUMES_MAX];

	int stdin_pipe[2], out_pipe[2], err_pipe[2];
	struct pump in, out, err;
	struct loop_timer drain;
	bool exited;
	struct init_exit end;
	int status;

	/* the terminal */
	struct tty tty;
	struct loop_io tty_in;
	uint64_t stdin_sent, stdin_taken;
};

static void finish(struct run *r, int status)
{
	r->status = status;
	pump_stop(&r->in);
	pump_stop(&r->out);
	pump_stop(&r->err);
	loop_timer_clear(&r->drain);
	loop_io_remove(&r->tty_in);
	tty_restore(&r->tty);
	private_session_close(&r->session);
}

static void on_closed(void *ctx)
{
	struct run *r = ctx;

	loop_quit(r->loop, r->status);
}

/* ---- the end of the command ---- */

static const char *cause_text(const struct init_exit *e)
{
	return e->cause == INIT_CAUSE_TIMEOUT ? "timeout"
	       : e->cause == INIT_CAUSE_STOP  ? "stopped"
					      : "exited";
}

static void report(const struct run *r)
{
	const struct init_exit *e = &r->end;

	if (r->opts.json)
		(void)fprintf(
			stderr,
			"{\"cause\":\"%s\",\"exit_code\":%d,\"oom\":%s,\"background\":%u,\"wall_us\":%llu,"
			"\"user_us\":%llu,\"system_us\":%llu,\"max_rss_bytes\":%llu}\n",
			cause_text(e), e->exit_code, e->oom ? "true" : "false", e->background,
			(unsigned long long)e->wall_us, (unsigned long long)e->user_us,
			(unsigned long long)e->system_us, (unsigned long long)e->max_rss_bytes);
	else if (e->cause == INIT_CAUSE_TIMEOUT)
		(void)fprintf(stderr, "garret: stopped after %g s\n", r->opts.timeout);
	else if (e->oom && e->exit_code == 137)
		(void)fprintf(stderr, "garret: killed: out of memory\n");
}

static void finish_with_exit(struct run *r)
{
	report(r);
	if (r->end.step == INIT_STEP_SPAWN)
		(void)fprintf(stderr, "garret: the command could not be started: %s\n",
			      strerror((int)r->end.sys));
	else if (r->end.step == INIT_STEP_CWD)
		(void)fprintf(stderr, "garret: the work directory: %s\n",
			      strerror((int)r->end.sys));
	finish(r, r->end.cause == INIT_CAUSE_TIMEOUT ? EXIT_TIMEOUT : r->end.exit_code);
}

static void maybe_finish(struct run *r)
{
	if (r->exited && r->out.done && r->err.done)
		finish_with_exit(r);
}

static void on_drained(struct loop_timer *t)
{
	struct run *r = t->ctx;

	/* What is in the pipes was written before the end: it isn't lost, however slow our reader. */
	if (pump_pending(&r->out) || pump_pending(&r->err)) {
		loop_timer_set(r->loop, t, now_ms() + 5, on_drained, r);
		return;
	}
	finish_with_exit(r);
}

static void on_output_ended(struct pump *p)
{
	struct run *r = p->ctx;
	int *end = p == &r->out ? &r->out_pipe[0] : &r->err_pipe[0];

	/* When our reader went away, the command is to notice as it would without us. */
	*end = fd_close(*end);
	maybe_finish(r);
}

static void on_input_ended(struct pump *p)
{
	struct run *r = p->ctx;

	r->stdin_pipe[1] = fd_close(r->stdin_pipe[1]);
}

/* ---- events of init ---- */

static void on_exited(void *ctx, const uint8_t *id, const struct init_exit *e)
{
	struct run *r = ((struct private_session *)ctx)->ctx;

	(void)id;
	r->end = *e;
	r->exited = true;
	if (r->opts.tty) {
		finish_with_exit(r);
		return;
	}
	loop_timer_set(r->loop, &r->drain, now_ms() + DRAIN_MS, on_drained, r);
	maybe_finish(r);
}

static void on_out(void *ctx, const uint8_t *id, unsigned stream, uint64_t offset, const void *data,
		   size_t n)
{
	struct run *r = ((struct private_session *)ctx)->ctx;

	/* A terminal's output is small and our stdout is that terminal: a plain write will do. */
	(void)write_full(STDOUT_FILENO, data, n);
	init_client_ack(r->session.init, id, stream, offset + n);
}

static void on_tty_in(struct loop_io *io, uint32_t events);

static void watch_tty(struct run *r, bool on)
{
	if (!on)
		loop_io_remove(&r->tty_in);
	else if (r->tty_in.fd < 0)
		(void)loop_io_add(r->loop, &r->tty_in, STDIN_FILENO, EPOLLIN, on_tty_in, r, NULL);
}

static void on_stdin_taken(void *ctx, const uint8_t *id, uint64_t bytes)
{
	struct run *r = ((struct private_session *)ctx)->ctx;

	(void)id;
	r->stdin_taken = bytes;
	if (!r->exited && r->stdin_sent - r->stdin_taken < INIT_WINDOW / 2)
		watch_tty(r, true);
}

static void on_tty_in(struct loop_io *io, uint32_t events)
{
	struct run *r = io->ctx;
	char buf[4096];
	ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

	(void)events;
	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (n <= 0) {
		watch_tty(r, false);
		n = 0;
	}
	init_client_stdin(r->session.init, r->id, buf, (size_t)n);
	r->stdin_sent += (size_t)n;
	if (r->stdin_sent - r->stdin_taken >= INIT_WINDOW)
		watch_tty(r, false);
}

static const struct init_events init_events = {
	.exited = on_exited,
	.out = on_out,
	.stdin_taken = on_stdin_taken,
};

/* ---- starting ---- */

static void on_signal(void *ctx, int signo)
{
	struct run *r = ctx;
	uint16_t rows, columns;

	if (!r->session.is_open || r->exited)
		return;
	if (signo != SIGWINCH)
		init_client_signal(r->session.init, r->id, signo, true);
	else if (r->opts.tty && tty_size(&rows, &columns))
		init_client_winch(r->session.init, r->id, rows, columns);
}

static int go_raw(struct run *r, struct init_start *s, struct garret_error *err)
{
	int rc;

	(void)tty_size(&s->rows, &s->columns);
	rc = tty_raw(&r->tty, err);
	if (rc == 0)
		watch_tty(r, true);
	return rc;
}

static int make_pipe(int fds[2], struct garret_error *err)
{
	return pipe2(fds, O_CLOEXEC) < 0 ? garret_fail_errno(err, "make a pipe") : 0;
}

static int start_pumps(struct run *r, struct garret_error *err)
{
	int rc = pump_start(&r->out, r->loop, r->out_pipe[0], STDOUT_FILENO, on_output_ended, r,
			    err);

	if (rc == 0)
		rc = pump_start(&r->err, r->loop, r->err_pipe[0], STDERR_FILENO, on_output_ended, r,
				err);
	if (rc == 0 && !r->opts.no_stdin)
		rc = pump_start(&r->in, r->loop, STDIN_FILENO, r->stdin_pipe[1], on_input_ended, r,
				err);
	else if (rc == 0)
		r->stdin_pipe[1] = fd_close(r->stdin_pipe[1]);
	return rc;
}

static int start_command(struct run *r, struct garret_error *err)
{
	int stdio[3], rc = 0;
	struct init_start s = { .id = r->id, .argv = r->argv, .env = r->env, .stdio = stdio };

	if (r->opts.timeout > 0)
		s.timeout_ms = (uint32_t)fmin(4e9, fmax(1, ceil(r->opts.timeout * 1000)));
	if (r->opts.tty) {
		s.flags = INIT_RUN_STREAM | INIT_RUN_PTY | INIT_RUN_STDIN;
		rc = go_raw(r, &s, err);
	} else {
		s.flags = INIT_RUN_FDS;
		if ((rc = make_pipe(r->stdin_pipe, err)) < 0 ||
		    (rc = make_pipe(r->out_pipe, err)) < 0 ||
		    (rc = make_pipe(r->err_pipe, err)) < 0)
			return rc;
		stdio[0] = r->stdin_pipe[0];
		stdio[1] = r->out_pipe[1];
		stdio[2] = r->err_pipe[1];
	}
	if (rc == 0)
		rc = init_client_run(r->session.init, &s, err);
	if (rc < 0 || r->opts.tty)
		return rc;
	r->stdin_pipe[0] = fd_close(r->stdin_pipe[0]);
	r->out_pipe[1] = fd_close(r->out_pipe[1]);
	r->err_pipe[1] = fd_close(r->err_pipe[1]);
	return start_pumps(r, err);
}

static void on_opened(void *ctx, const struct garret_error *err)
{
	struct run *r = ctx;
	struct garret_error start_error = { 0 };

	if (!err && start_command(r, &start_error) == 0)
		return;
	finish(r, cli_no_sandbox(err ? err : &start_error));
}

static void on_lost(void *ctx, const struct garret_error *err)
{
	finish(ctx, cli_no_sandbox(err));
}

/* ---- options ---- */

/* The colon in HOST:INSIDE[:ro].  The path inside has none, and begins with a slash. */
static char *find_colon(char *text)
{
	char *found = NULL;

	for (char *at = strstr(text, ":/"); at; at = strstr(at + 1, ":/"))
		found = at;
	return found;
}

static bool is_host_root(int fd)
{
	struct stat root, st;

	return fstat(fd, &st) == 0 && stat("/", &root) == 0 && st.st_dev == root.st_dev &&
	       st.st_ino == root.st_ino;
}

/* HOST:INSIDE[:ro]; opened here, by us, so that the engine mounts what *we* may open. */
static int add_volume(struct run *r, struct engine_open *spec, const char *text,
		      struct garret_error *err)
{
	autofree char *copy = xstrdup(text);
	struct engine_volume *v = &spec->volumes[spec->n_volumes];
	char *inside = find_colon(copy), *mode;
	int fd;

	if (spec->n_volumes == ENGINE_VOLUMES_MAX)
		return garret_fail(err, GARRET_INVALID, "--volume: at most %d", ENGINE_VOLUMES_MAX);
	if (!inside || inside == copy)
		return garret_fail(
			err, GARRET_INVALID,
			"--volume takes HOST:INSIDE[:ro], INSIDE from / on, not \"%.100s\"", text);
	*inside++ = '\0';
	mode = strchr(inside, ':');
	if (mode)
		*mode++ = '\0';
	if (mode && strcmp(mode, "ro") != 0 && strcmp(mode, "rw") != 0)
		return garret_fail(err, GARRET_INVALID,
				   "--volume: the mode is ro or rw, not \"%.20s\"", mode);
	if (!inside[strspn(inside, "/")])
		return garret_fail(
			err, GARRET_INVALID,
			"--volume %.100s: a session's / is its own: show it below, as /host", text);
	fd = open(copy, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "--volume: %s", copy);
	r->volume_fds[spec->n_volumes] = fd;
	if (is_host_root(fd))
		return garret_fail(
			err, GARRET_INVALID,
			"--volume %.100s: not the whole machine: name the directories that are needed",
			text);
	r->inside[spec->n_volumes] = xstrdup(inside);
	*v = (struct engine_volume){ r->inside[spec->n_volumes], mode && !strcmp(mode, "ro") };
	spec->n_volumes++;
	return 0;
}

static int add_env(struct run *r, struct garret_error *err)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->opts.env.n; i++) {
		const char *e = r->opts.env.item[i], *value;

		if (!*e || *e == '=')
			return garret_fail(err, GARRET_INVALID,
					   "--env takes NAME=VALUE, not \"%.100s\"", e);
		if (strchr(e, '=')) {
			r->env[n++] = e;
		} else if ((value = getenv(e))) {
			r->env_owned[n] = xasprintf("%s=%s", e, value);
			r->env[n] = r->env_owned[n];
			n++;
		}
	}
	/* A terminal program needs to know what it draws on. */
	if (r->opts.tty && getenv("TERM")) {
		r->env_owned[n] = xasprintf("TERM=%s", getenv("TERM"));
		r->env[n] = r->env_owned[n];
	}
	return 0;
}

static int fill_spec(struct run *r, struct engine_open *spec, struct garret_error *err)
{
	const struct run_opts *o = &r->opts;
	int rc = 0;

	*spec = (struct engine_open){ .id = "run",
				      .runtime = o->runtime ? o->runtime : "host",
				      .work_dir = o->work_dir ? o->work_dir : "/workspace",
				      .hostname = "garret",
				      .memory_bytes = o->memory,
				      .memory_swap_bytes = o->memory_swap,
				      .cpu_millis = (uint32_t)fmin(4e9, o->cpus * 1000),
				      .cpu_shares =
					      (uint32_t)MIN(o->cpu_shares, (uint64_t)UINT32_MAX),
				      .pids = (uint32_t)MIN(o->pids, (uint64_t)UINT32_MAX),
				      .tmpfs_bytes = o->tmpfs };
	if (!o->network || !strcmp(o->network, "none"))
		spec->network = ENGINE_NET_NONE;
	else if (!strcmp(o->network, "host"))
		spec->network = ENGINE_NET_HOST;
	else if (!strcmp(o->network, "bridge"))
		spec->network = ENGINE_NET_BRIDGE; /* the engine says when that comes */
	else
		return garret_fail(err, GARRET_INVALID,
				   "--network takes none or host, not \"%.60s\"", o->network);
	if (spec->work_dir[0] != '/' || !spec->work_dir[strspn(spec->work_dir, "/")])
		return garret_fail(err, GARRET_INVALID,
				   "--work-dir takes a path below /, not \"%.100s\"",
				   spec->work_dir);
	for (unsigned i = 0; i < o->volumes.n && rc == 0; i++)
		rc = add_volume(r, spec, o->volumes.item[i], err);
	return rc < 0 ? rc : add_env(r, err);
}

static int setup_loop(struct run *r, struct garret_error *err)
{
	int rc = loop_new(&r->loop, err);

	return rc < 0 ? rc : tty_signals(r->loop, on_signal, r, err);
}

static void release(struct run *r)
{
	for (unsigned i = 0; i < ENGINE_VOLUMES_MAX; i++) {
		fd_close(r->volume_fds[i]);
		free(r->inside[i]);
	}
	for (unsigned i = 0; i < ARRAY_SIZE(r->env_owned); i++)
		free(r->env_owned[i]);
	for (int i = 0; i < 2; i++) {
		fd_close(r->stdin_pipe[i]);
		fd_close(r->out_pipe[i]);
		fd_close(r->err_pipe[i]);
	}
	loop_free(r->loop);
}

static int run_main(int argc, char **argv)
{
	struct run r = { .status = EXIT_SANDBOX };
	struct garret_error err = { 0 };
	struct engine_open spec;
	int used, status;

	used = opt_parse(run_table, argc, argv, &r.opts, &err);
	if (used < 0)
		return cli_fail(&err);
	if (r.opts.help)
		return cli_help(&command_run);
	for (unsigned i = 0; i < ENGINE_VOLUMES_MAX; i++)
		r.volume_fds[i] = -EBADF;
	for (int i = 0; i < 2; i++)
		r.stdin_pipe[i] = r.out_pipe[i] = r.err_pipe[i] = -EBADF;
	r.tty_in.fd = -EBADF;
	r.argv = (const char *const *)(argv + used);
	if (!*r.argv)
		(void)garret_fail(&err, GARRET_INVALID,
				  "run: which command? garret run [OPTIONS] -- CMD");
	else if (geteuid() != 0)
		(void)garret_fail(
			&err, GARRET_DENIED,
			"sessions need root for now; running without it (rootless) comes later");
	if (err.code)
		return cli_no_sandbox(&err);
	log_setup("garret", LOG_WARN, false);
	(void)signal(SIGPIPE, SIG_IGN);
	r.session = (struct private_session){ .lock_fd = -EBADF,
					      .init_sock = -EBADF,
					      .opened = on_opened,
					      .lost = on_lost,
					      .closed = on_closed,
					      .ctx = &r,
					      .events = &init_events };
	if (fill_spec(&r, &spec, &err) < 0 || init_check_strings(r.argv, r.env, &err) < 0 ||
	    setup_loop(&r, &err) < 0) {
		release(&r);
		return cli_no_sandbox(&err);
	}
	r.session.loop = r.loop;
	if (getrandom(r.id, sizeof(r.id), 0) != (ssize_t)sizeof(r.id) ||
	    private_session_start(&r.session, &spec, r.volume_fds, &err) < 0)
		finish(&r, cli_no_sandbox(&err));
	status = loop_run(r.loop);
	release(&r);
	return status;
}

const struct command command_run = {
	.name = "run",
	.synopsis = "[OPTIONS] -- CMD [ARG...]",
	.help = "Run a command in an isolated session of its own; no daemon needed.",
	.table = run_table,
	.main = run_main,
};
