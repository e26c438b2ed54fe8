/* garret doctor: what this machine can give, each thing tried by the engine. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "cli/run_session.h"
#include "provider/engine_client.h"

struct doctor_opts {
	bool json, help;
};

#define DOCTOR(f, n, l, k, a, h) OPT(struct doctor_opts, f, n, l, k, a, h)
static const struct opt doctor_table[] = {
	DOCTOR(json, "json", 0, OPT_FLAG, NULL, "one JSON object per line"),
	DOCTOR(help, "help", 'h', OPT_FLAG, NULL, "show this"),
	{ 0 },
};

struct doctor {
	struct loop *loop;
	struct engine_client *engine;
	bool json;
	unsigned missing;
};

static const char *const levels[] = { "ok", "weaker", "missing" };

static void print_json_string(const char *s)
{
	(void)putchar('"');
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			(void)printf("\\%c", *s);
		else if ((unsigned char)*s < 0x20)
			(void)printf("\\u%04x", *s);
		else
			(void)putchar(*s);
	}
	(void)putchar('"');
}

static void on_row(void *ctx, unsigned level, const char *name, const char *text)
{
	struct doctor *d = ctx;

	level = MIN(level, 2u);
	d->missing += level == 2;
	if (!d->json) {
		(void)printf("%-8s %-22s %s\n", levels[level], name, text);
		return;
	}
	(void)printf("{\"level\":\"%s\",\"name\":", levels[level]);
	print_json_string(name);
	(void)printf(",\"text\":");
	print_json_string(text);
	(void)puts("}");
}

static void on_done(void *ctx, const struct garret_error *err)
{
	struct doctor *d = ctx;

	loop_quit(d->loop, err ? cli_fail(err) : d->missing ? 1 : 0);
}

static void on_ready(void *ctx, const struct engine_hello *hello)
{
	struct doctor *d = ctx;

	(void)hello;
	engine_client_doctor(d->engine, on_done, d);
}

static void on_lost(void *ctx, const struct garret_error *err)
{
	struct doctor *d = ctx;

	loop_quit(d->loop, cli_fail(err));
}

static const struct engine_events events = { .ready = on_ready,
					     .lost = on_lost,
					     .doctor_row = on_row };

static int doctor_main(int argc, char **argv)
{
	struct doctor_opts o = { 0 };
	struct doctor d = { 0 };
	struct garret_error err = { 0 };
	char runs[96], state[128] = "";
	autofree char *program = program_beside("garret-engine");
	int used = opt_parse(doctor_table, argc, argv, &o, &err), fd, status = 1;
	pid_t pid = -1;

	if (used < 0)
		return cli_fail(&err);
	if (o.help)
		return cli_help(&command_doctor);
	d.json = o.json;
	if (geteuid() != 0)
		(void)garret_fail(
			&err, GARRET_DENIED,
			"sessions need root for now; running without it (rootless) comes later");
	else if (private_runs_dir(runs, &err) == 0 &&
		 (snprintf(state, sizeof(state), "%s/doctor-XXXXXX", runs) < 0 || !mkdtemp(state)))
		(void)garret_fail_errno(&err, "make %s", state);
	if (err.code)
		return cli_fail(&err);
	if (loop_new(&d.loop, &err) < 0 ||
	    engine_start(program, state, NULL, &fd, &pid, &err) < 0 ||
	    engine_client_new(d.loop, fd, &events, &d, &d.engine, &err) < 0)
		status = cli_fail(&err);
	else
		status = loop_run(d.loop);
	d.engine = engine_client_free(d.engine);
	if (pid > 0)
		(void)waitpid(pid, NULL, 0);
	loop_free(d.loop);
	(void)remove_tree_at(AT_FDCWD, state);
	return status;
}

const struct command command_doctor = {
	.name = "doctor",
	.synopsis = "[OPTIONS]",
	.help = "Try what this machine can give to sessions; exit 1 when something needed is missing.",
	.table = doctor_table,
	.main = doctor_main,
};
