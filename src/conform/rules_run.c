/* Commands. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/time.h"
#include "conform/ground.h"

static int run(struct garret_workspace *w, struct garret_run_options o, struct garret_result *r,
	       struct garret_error *err)
{
	o.size = sizeof(o);
	return garret_run(w, &o, r, err);
}

#define RUN(w, r, err, ...) run(w, (struct garret_run_options){ __VA_ARGS__ }, r, err)
#define ARGV(...)                     \
	.argv = (const char *const[]) \
	{                             \
		__VA_ARGS__, NULL     \
	}

static void form_of_commands(struct ground *g)
{
	autoresult r = { 0 };

	WANT_CODE(g, RUN(g->shared, &r, err, .argv = NULL), -GARRET_TYPE);
	WANT_CODE(g, RUN(g->shared, &r, err, ARGV("true"), .shell = "true"), -GARRET_TYPE);
	WANT_CODE(g, RUN(g->shared, &r, err, .argv = (const char *const[]){ NULL }),
		  -GARRET_INVALID);
}

static void input_is_at_its_end(struct ground *g)
{
	WANT(g, ground_says(g, g->shared, "read x && echo got || echo eof", "eof\n"));
}

static void bytes_that_are_no_text(struct ground *g)
{
	autoresult r = { 0 };
	autofree char *out = NULL, *err_text = NULL;

	WANT_OK(g, ground_sh(g, g->shared, "printf '\\377'; printf '\\376' >&2", &r, err));
	WANT(g, r.out_bytes >= 1 && r.err_bytes >= 1);
	out = garret_text(r.out, r.out_bytes);
	err_text = garret_text(r.err, r.err_bytes);
	WANT(g, !strcmp(out, "\xef\xbf\xbd") && !strcmp(err_text, "\xef\xbf\xbd"));
}

static void output_is_complete(struct ground *g)
{
	autoresult r = { 0 };

	WANT_OK(g, ground_sh(g, g->shared,
			     "i=0; while [ $i -lt 1024 ]; do echo complete; echo complete >&2; "
			     "i=$((i+1)); done",
			     &r, err));
	WANT(g, r.exit_code == 0 && r.out_bytes == 9216 && r.err_bytes == 9216);
}

static void background_does_not_hold_it_up(struct ground *g)
{
	const uint64_t begun = now_ms();
	autoresult r = { 0 }, alive = { 0 };

	WANT_OK(g, ground_sh(g, g->shared, "sleep 300 & echo $!", &r, err));
	WANT(g, now_ms() - begun < 20000);
	WANT(g, r.out_bytes > 1);
	{
		char script[80];

		(void)snprintf(script, sizeof(script), "kill -0 %d", number(r.out));
		WANT_OK(g, ground_sh(g, g->shared, script, &alive, err));
		WANT(g, alive.exit_code == 0);
		(void)snprintf(script, sizeof(script), "kill %d", number(r.out));
		garret_result_release(&alive);
		WANT_OK(g, ground_sh(g, g->shared, script, &alive, err));
	}
}

static void streams_come_apart(struct ground *g)
{
	autoresult r = { 0 };

	WANT_OK(g, ground_sh(g, g->shared, "echo out; echo err >&2; exit 7", &r, err));
	WANT(g, r.exit_code == 7 && !strcmp((char *)r.out, "out\n") &&
			!strcmp((char *)r.err, "err\n"));
}

static void a_missing_program_is_127(struct ground *g)
{
	autoresult r = { 0 };

	WANT_OK(g, RUN(g->shared, &r, err, ARGV("no-such-program-anywhere"), .timeout = 60));
	WANT(g, r.exit_code == 127);
}

static void arguments_are_literal(struct ground *g)
{
	autoresult r = { 0 };

	WANT_OK(g, RUN(g->shared, &r, err,
		       ARGV("printf", "%s|", "a b", "$(id)", "`id`", ";", "&&", "\"", "'", "*", ""),
		       .timeout = 60));
	WANT(g, !strcmp((char *)r.out, "a b|$(id)|`id`|;|&&|\"|'|*||"));
}

static void it_starts_in_cwd(struct ground *g)
{
	autoresult r = { 0 }, s = { 0 };
	autofree char *dir = NULL, *abs = NULL, *want = NULL;
	const char *own = ground_dir(g);

	WANT_OK(g, garret_working_dir(g->shared, &dir, err));
	abs = xasprintf("%s/%s", dir[1] ? dir : "", own);
	want = xasprintf("%s\n", abs);
	WANT_OK(g, RUN(g->shared, &r, err, ARGV("pwd"), .cwd = own, .timeout = 60));
	WANT(g, !strcmp((char *)r.out, want));
	WANT_OK(g, RUN(g->shared, &s, err, .shell = "pwd", .cwd = abs, .timeout = 60));
	WANT(g, !strcmp((char *)s.out, want));
}

static void cwd_must_be_a_directory(struct ground *g)
{
	const char *own = ground_dir(g);
	autoresult r = { 0 };

	WANT_OK(g, garret_write(g->shared, in(own, "file"), "x", 1, 0, err));
	WANT_CODE(g, RUN(g->shared, &r, err, ARGV("true"), .cwd = in(own, "nothing")),
		  -GARRET_NOT_FOUND);
	WANT_CODE(g, RUN(g->shared, &r, err, ARGV("true"), .cwd = in(own, "file")),
		  -GARRET_NOT_DIRECTORY);
}

static void a_timeout_ends_it(struct ground *g)
{
	const uint64_t begun = now_ms();
	autoresult r = { 0 };

	WANT_CODE(g, RUN(g->shared, &r, err, .shell = "echo before; sleep 3600", .timeout = 1),
		  -GARRET_TIMEOUT);
	WANT(g, now_ms() - begun >= 900 && now_ms() - begun < 15000);
	WANT(g, !strcmp((char *)r.out, "before\n"));
}

static void timeouts_are_numbers_above_zero(struct ground *g)
{
	static const double bad[] = { -1, -0.0, (double)INFINITY, (double)-INFINITY, (double)NAN };
	autoresult r = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		WANT_CODE(g, RUN(g->shared, &r, err, ARGV("true"), .timeout = bad[i]),
			  -GARRET_INVALID);
}

/* Is a process with this pid there?  -1: that can't be told. */
static int lives(struct ground *g, struct garret_workspace *w, int pid)
{
	autoresult r = { 0 };
	char script[40];

	(void)snprintf(script, sizeof(script), "kill -0 %d", pid);
	return ground_sh(g, w, script, &r, NULL) < 0 ? -1 : r.exit_code == 0;
}

static void giving_up_stops_it(struct ground *g)
{
	const char *dir = ground_dir(g);
	autofree char *script = xasprintf("echo $$ > %s/pid; exec sleep 3600", dir);
	struct garret_run_options o = { .size = sizeof(o), .shell = script };
	struct garret_run *r = NULL;
	int pid = 0;

	WANT_OK(g, garret_run_start(g->shared, &o, &r, err));
	for (int i = 0; i < 3000 && !pid; i++) {
		autobytes b = { 0 };

		(void)garret_run_ended(r);
		if (garret_read(g->shared, in(dir, "pid"), &b, NULL) == 0)
			pid = number(b.data);
		(void)usleep(10000);
	}
	garret_run_free(r);
	WANT(g, pid > 0);
	for (int i = 0; i < 600 && lives(g, g->shared, pid) != 0; i++)
		(void)usleep(100000);
	WANT(g, lives(g, g->shared, pid) == 0);
}

static void env_reaches_it(struct ground *g)
{
	static const char *const env[] = { "CONFORM_A=x y", "CONFORM_B=", NULL };
	autoresult r = { 0 };

	WANT_OK(g, RUN(g->shared, &r, err, .shell = "echo \"$CONFORM_A|${CONFORM_B-unset}|\"",
		       .env = env, .timeout = 60));
	WANT(g, !strcmp((char *)r.out, "x y||\n"));
}

static void commands_and_files_see_each_other(struct ground *g)
{
	const char *own = ground_dir(g);
	char script[200];

	WANT_OK(g, garret_write(g->shared, in(own, "by-file"), "from file", 9, 0, err));
	(void)snprintf(script, sizeof(script),
		       "cat %s/by-file; printf 'from command' > %s/by-command", own, own);
	WANT(g, ground_says(g, g->shared, script, "from file"));
	WANT(g, has_bytes(g, g->shared, in(own, "by-command"), "from command", 12));
}

static void a_signal_is_a_result(struct ground *g)
{
	autoresult r = { 0 };

	WANT_OK(g, ground_sh(g, g->shared, "kill -KILL $$", &r, err));
	WANT(g, r.exit_code == 128 + SIGKILL);
}

static void the_output_limit_is_an_error(struct ground *g)
{
	autoresult r = { 0 };

	WANT_CODE(g,
		  RUN(g->shared, &r, err, .shell = "while :; do echo 0123456789; done",
		      .output_limit = 100000, .timeout = 60),
		  -GARRET_OUTPUT_LIMIT);
	WANT(g, r.limit == 100000 && r.out_bytes >= 1000 && r.out_bytes <= GARRET_PREVIEW);
	WANT(g, !strncmp((char *)r.out, "0123456789\n0123456789\n", 22));
}

static void much_output_is_whole(struct ground *g)
{
	autoresult r = { 0 };

	WANT_OK(g, RUN(g->shared, &r, err,
		       .shell = "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2",
		       .timeout = 60));
	WANT(g, r.out_bytes == 3000000 && r.err_bytes == 2000000);
}

static void input_is_given(struct ground *g)
{
	const size_t n = 3u << 20;
	autofree uint8_t *data = xmalloc(n);
	autoresult r = { 0 };

	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	WANT_OK(g, RUN(g->shared, &r, err, ARGV("cat"), .input = data, .input_bytes = n,
		       .timeout = 60));
	WANT(g, r.out_bytes == n && !memcmp(r.out, data, n));
}

static void step_by_step(struct ground *g)
{
	struct garret_run_options o = { .size = sizeof(o),
					.shell = "while read x; do echo \"<$x>\"; "
						 "done; exit 3",
					.feed = true,
					.timeout = 60 };
	struct garret_run *r = NULL;
	autoresult end = { 0 };
	char text[64] = "";
	size_t have = 0;

	WANT_OK(g, garret_run_start(g->shared, &o, &r, err));
	(void)garret_run_write(r, "one\n", 4, NULL);
	for (int i = 0; i < 3000 && have < 6; i++) {
		ssize_t got;

		(void)garret_run_ended(r);
		got = garret_run_read(r, 1, text + have, sizeof(text) - 1 - have, NULL);
		have += got > 0 ? (size_t)got : 0;
		(void)usleep(10000);
	}
	(void)garret_run_write(r, "two\n", 4, NULL);
	(void)garret_run_write(r, NULL, 0, NULL);
	if (garret_run_wait(r, INFINITY, &end, NULL) != 0 || end.exit_code != 3 ||
	    strcmp((char *)end.out, "<one>\n<two>\n") != 0 || strcmp(text, "<one>\n") != 0)
		(void)ground_fail(g, "exit %d, \"%.60s\", first \"%s\"", end.exit_code,
				  end.out ? (char *)end.out : "", text);
	garret_run_free(r);
}

static void a_signal_is_sent(struct ground *g)
{
	struct garret_run_options o = { .size = sizeof(o),
					.timeout = 60,
					.shell = "trap 'echo got; exit 5' USR1; echo ready; "
						 "while :; do sleep 0.05; done" };
	struct garret_run *r = NULL;
	autoresult end = { 0 };
	char text[64] = "";

	WANT_OK(g, garret_run_start(g->shared, &o, &r, err));
	for (int i = 0; i < 3000 && !*text; i++) {
		(void)garret_run_ended(r);
		(void)garret_run_read(r, 1, text, sizeof(text) - 1, NULL);
		(void)usleep(10000);
	}
	if (garret_run_signal(r, SIGUSR1, NULL) < 0 ||
	    garret_run_wait(r, INFINITY, &end, NULL) != 0 || end.exit_code != 5 ||
	    strcmp((char *)end.out, "ready\ngot\n") != 0)
		(void)ground_fail(g, "exit %d, \"%.60s\"", end.exit_code,
				  end.out ? (char *)end.out : "");
	garret_run_free(r);
}

static void sixty_four_at_once(struct ground *g)
{
	enum { MANY = 64 };
	struct garret_run *r[MANY] = { 0 };

	for (int i = 0; i < MANY; i++) {
		struct garret_error err = { 0 };
		autofree char *script = xasprintf("sleep 0.2; echo %d", i);
		struct garret_run_options o = { .size = sizeof(o),
						.shell = script,
						.timeout = 120 };

		if (garret_run_start(g->shared, &o, &r[i], &err) < 0)
			(void)ground_fail(g, "run %d: %s", i, err.msg);
	}
	for (int i = 0; i < MANY; i++) {
		struct garret_error err = { 0 };
		autofree char *want = xasprintf("%d\n", i);
		autoresult end = { 0 };

		if (r[i] && (garret_run_wait(r[i], INFINITY, &end, &err) != 0 || end.exit_code ||
			     strcmp((char *)end.out, want) != 0))
			(void)ground_fail(g, "run %d: exit %d %s", i, end.exit_code, err.msg);
		garret_run_free(r[i]);
	}
}

const struct rule run_rules[] = {
	{ "02 the form of a command", form_of_commands, GARRET_HAS_COMMANDS, false },
	{ "03 input is at its end", input_is_at_its_end, GARRET_HAS_COMMANDS, false },
	{ "04 bytes that are no text", bytes_that_are_no_text, GARRET_HAS_COMMANDS, false },
	{ "05 output is complete", output_is_complete, GARRET_HAS_COMMANDS, false },
	{ "06 a process in the background", background_does_not_hold_it_up, GARRET_HAS_COMMANDS,
	  false },
	{ "07 both streams and the exit code", streams_come_apart, GARRET_HAS_COMMANDS, false },
	{ "08 a missing program is 127", a_missing_program_is_127, GARRET_HAS_COMMANDS, false },
	{ "09 arguments are literal", arguments_are_literal, GARRET_HAS_COMMANDS, false },
	{ "11 it starts in cwd", it_starts_in_cwd, GARRET_HAS_COMMANDS, false },
	{ "12 a time-out ends it", a_timeout_ends_it, GARRET_HAS_COMMANDS, false },
	{ "13 giving up stops it", giving_up_stops_it, GARRET_HAS_COMMANDS, false },
	{ "14 env reaches it", env_reaches_it, GARRET_HAS_COMMANDS, false },
	{ "22 commands and files see each other", commands_and_files_see_each_other,
	  GARRET_HAS_COMMANDS, false },
	{ "41 cwd must be a directory", cwd_must_be_a_directory, GARRET_HAS_COMMANDS, false },
	{ "42 time-outs are numbers above zero", timeouts_are_numbers_above_zero,
	  GARRET_HAS_COMMANDS, false },
	{ "43 a signal is a result", a_signal_is_a_result, GARRET_HAS_COMMANDS, false },
	{ "44 the output limit is an error", the_output_limit_is_an_error, GARRET_HAS_COMMANDS,
	  false },
	{ "45 much output is whole", much_output_is_whole, GARRET_HAS_COMMANDS, false },
	{ "46 input is given", input_is_given, GARRET_HAS_COMMANDS | GARRET_HAS_STREAMS, false },
	{ "47 a command step by step", step_by_step, GARRET_HAS_COMMANDS | GARRET_HAS_STREAMS,
	  false },
	{ "48 a signal is sent", a_signal_is_sent, GARRET_HAS_COMMANDS | GARRET_HAS_STREAMS,
	  false },
	{ "49 sixty-four commands at once", sixty_four_at_once, GARRET_HAS_COMMANDS, false },
	{ NULL, NULL, 0, false },
};
