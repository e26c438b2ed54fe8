/* garret run and exec with --provider; garret session open and close. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "cli/provider.h"
#include "cli/show.h"

/* ---- signals ---- */

static volatile sig_atomic_t caught;  /* the last one; 0: none */
static struct garret_cancel *opening; /* while there is no command yet that could get it */

static void on_signal(int signo)
{
	caught = signo;
	if (opening)
		garret_cancel(opening);
}

static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2 };

/* They are blocked everywhere but in ppoll(), so that none is missed, and while it is opened. */
static void signals_catch(sigset_t *ret_before)
{
	struct sigaction sa = { .sa_handler = on_signal }, old;
	sigset_t ours;

	(void)sigemptyset(&ours);
	for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
			(void)sigaction(signals[i], &sa, NULL);
			(void)sigaddset(&ours, signals[i]);
		}
	(void)signal(SIGPIPE, SIG_IGN);
	(void)sigprocmask(SIG_BLOCK, &ours, ret_before);
}

/* To the command; where that can't be, it is stopped by what would stop us. */
static void signal_pass(struct garret_run *r)
{
	const int signo = caught;

	caught = 0;
	if (signo && garret_run_signal(r, signo, NULL) == -GARRET_UNSUPPORTED && signo != SIGUSR1 &&
	    signo != SIGUSR2)
		garret_run_stop(r, 2);
}

/* ---- a command ---- */

/* What came since the last time goes where it belongs. */
static bool pass_on(struct garret_run *r, int stream)
{
	char buf[65536];
	ssize_t n;
	bool some = false;

	while ((n = garret_run_read(r, stream, buf, sizeof(buf), NULL)) > 0) {
		some = true;
		if (write_full(stream == 1 ? STDOUT_FILENO : STDERR_FILENO, buf, (size_t)n) < 0)
			break; /* nobody reads us any more; the command goes on */
	}
	return some;
}

static void feed(struct provider_command *c, struct garret_run *r, bool *open)
{
	struct garret_error err = { 0 };
	char buf[32768];
	ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

	if (n < 0 && errno == EINTR)
		return;
	*open = n > 0;
	/* The command may have ended, or closed its input: that is no failure of ours. */
	if (garret_run_write(r, buf, n > 0 ? (size_t)n : 0, &err) < 0) {
		*open = false;
		if (err.code != GARRET_CONFLICT)
			provider_failed(c, "standard input", &err);
	}
}

static void follow(struct provider_command *c, struct garret_run *r, const sigset_t *open)
{
	const struct timespec most = { .tv_sec = 1 };
	bool input = c->opts.stdin_too;

	for (;;) {
		const bool ended = garret_run_ended(r);
		bool some = pass_on(r, 1);
		struct pollfd fds[2] = { { .fd = garret_context_fd(c->context), .events = POLLIN },
					 { .fd = input ? STDIN_FILENO : -1, .events = POLLIN } };

		some = pass_on(r, 2) || some;
		if (ended)
			return;
		signal_pass(r);
		/* Arms the context's clock as well. */
		(void)garret_context_dispatch(c->context, NULL);
		if (some)
			continue;
		if (ppoll(fds, 2, &most, open) > 0 && fds[1].revents)
			feed(c, r, &input);
	}
}

static int exit_status(enum garret_code code)
{
	return code == GARRET_GONE || code == GARRET_UNAVAILABLE ? EXIT_SANDBOX
								 : garret_code_exit((int)code);
}

/* As garret exec without a provider. */
static void report(int rc, const struct garret_result *end, uint64_t took_us)
{
	const char *cause = rc == 0                 ? "exited"
			    : rc == -GARRET_TIMEOUT ? "timeout"
			    : rc == -GARRET_GONE    ? "gone"
						    : garret_code_name(-rc);

	(void)fprintf(stderr, "{\"cause\":\"%s\",\"exit_code\":", cause);
	if (rc < 0)
		(void)fputs("null", stderr);
	else
		(void)fprintf(stderr, "%d", end->exit_code);
	(void)fprintf(stderr, ",\"wall_us\":%llu}\n", (unsigned long long)took_us);
}

static void run(struct provider_command *c, struct garret_workspace *w, char **words)
{
	const uint64_t begun_us = now_us();
	const struct garret_run_options o = { .size = sizeof(o),
					      .argv = (const char *const *)words,
					      .env = c->opts.env.item,
					      .cwd = c->opts.cwd,
					      .timeout = c->opts.timeout,
					      .feed = c->opts.stdin_too };
	struct garret_result end = { 0 };
	struct garret_error err = { 0 };
	struct garret_run *r = NULL;
	sigset_t before, blocked;
	int rc = garret_cancel_new(c->context, &opening, &err);

	if (rc == 0) {
		garret_workspace_set_cancel(w, opening);
		signals_catch(&before);
		(void)sigprocmask(SIG_SETMASK, &before, &blocked);
		rc = garret_run_start(w, &o, &r, &err);
		(void)sigprocmask(SIG_SETMASK, &blocked, NULL);
		garret_workspace_set_cancel(w, NULL);
		opening = garret_cancel_free(opening);
	}
	if (r) {
		follow(c, r, &before);
		rc = garret_run_wait(r, INFINITY, &end, &err);
	}
	if (rc < 0) {
		provider_failed(c, "", &err);
		c->status = exit_status(err.code);
	} else {
		c->status = end.exit_code;
	}
	if (c->opts.json)
		report(rc, &end, now_us() - begun_us);
	garret_result_release(&end);
	garret_run_free(r);
}

static void destroy(struct provider_command *c, struct garret_workspace *w)
{
	struct garret_error err = { 0 };
	struct garret_ref ref;

	if (garret_workspace_ref(w, &ref) == 0 &&
	    garret_provider_destroy(c->provider, &ref, &err) < 0)
		provider_failed(c, "remove the workspace", &err);
}

static void no_words(struct provider_command *c, const char *what)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_INVALID, "%s", what);
	provider_failed(c, "", &err);
}

/* The options name it (two handles without a ref are the same then): it is somebody's to keep. */
static bool is_named(struct provider_command *c, const struct garret_workspace *w)
{
	struct garret_workspace *other = provider_workspace(c, "");
	const bool same = other && garret_workspace_same(w, other);

	garret_workspace_free(other);
	return same;
}

static void do_run(struct provider_command *c)
{
	struct garret_workspace *w;
	bool kept;

	if (!c->n_words) {
		no_words(c, "run takes a command: garret run --provider NAME -- CMD [ARG...]");
		return;
	}
	w = provider_workspace(c, "");
	if (!w)
		return;
	kept = is_named(c, w);
	run(c, w, c->words);
	if (!kept)
		destroy(c, w);
	garret_workspace_free(w);
}

/* An id may be written with the colon that a place has. */
static void do_exec(struct provider_command *c)
{
	struct garret_workspace *w;
	char **words = c->words + 1;
	char *end;

	if (c->n_words < 2 || (!strcmp(*words, "--") && c->n_words < 3)) {
		no_words(c,
			 "exec takes an id and a command: garret exec --provider NAME ID -- CMD");
		return;
	}
	end = strchr(c->words[0], ':');
	if (end)
		*end = '\0';
	words += !strcmp(*words, "--");
	w = provider_workspace(c, c->words[0]);
	if (!w)
		return;
	run(c, w, words);
	garret_workspace_free(w);
}

static void session_open(struct provider_command *c)
{
	struct garret_workspace *w = provider_workspace(c, "");
	struct garret_error err = { 0 };
	struct garret_ref ref;

	if (!w)
		return;
	if (garret_workspace_ensure(w, &err) < 0)
		provider_failed(c, "", &err);
	else if (garret_workspace_ref(w, &ref) == 0)
		(void)printf("%s\n", ref.id);
	garret_workspace_free(w);
}

static void do_session(struct provider_command *c)
{
	struct garret_workspace *w;

	if (c->n_words == 1 && !strcmp(c->words[0], "open")) {
		session_open(c);
		return;
	}
	if (c->n_words != 2 || strcmp(c->words[0], "close") != 0) {
		no_words(c, "with --provider there are: session open, session close ID");
		return;
	}
	w = provider_workspace(c, c->words[1]);
	if (w)
		destroy(c, w);
	garret_workspace_free(w);
}

bool provider_run_command(struct provider_command *c, const char *name)
{
	static const struct {
		const char *name;
		void (*fn)(struct provider_command *c);
	} commands[] = { { "run", do_run }, { "exec", do_exec }, { "session", do_session } };

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		if (!strcmp(commands[i].name, name)) {
			commands[i].fn(c);
			return true;
		}
	return false;
}
