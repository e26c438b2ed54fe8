/* garret serve: the daemon, found beside this program. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cli.h"

struct serve_opts {
	const char *host, *port, *socket, *state;
	bool check, help;
};

#define SERVE(f, n, l, k, a, h) OPT(struct serve_opts, f, n, l, k, a, h)
static const struct opt serve_table[] = {
	SERVE(host, "host", 0, OPT_STRING, "ADDRESS", "listen there (SANDBOXD_HOST, 127.0.0.1)"),
	SERVE(port, "port", 'p', OPT_STRING, "PORT",
	      "and on that port (SANDBOXD_PORT, 8080; 0: any)"),
	SERVE(socket, "socket", 's', OPT_STRING, "PATH", "a Unix socket as well (GARRET_SOCKET)"),
	SERVE(state, "state", 0, OPT_STRING, "DIR", "state directory (GARRET_STATE_DIR)"),
	SERVE(check, "check", 0, OPT_FLAG, NULL, "check the configuration and exit"),
	SERVE(help, "help", 'h', OPT_FLAG, NULL, "show this"),
	{ 0 },
};

/* The daemon takes absolute paths only; a word of ours is meant from where we are. */
static char *absolute(const char *path)
{
	autofree char *here = path && *path && path[0] != '/' ? getcwd(NULL, 0) : NULL;

	return here ? xasprintf("%s/%s", here, path) : path ? xstrdup(path) : NULL;
}

static int serve_main(int argc, char **argv)
{
	struct serve_opts o = { 0 };
	struct garret_error err = { 0 };
	autofree char *program = program_beside("garretd");
	int used = opt_parse(serve_table, argc, argv, &o, &err);
	autofree char *sock = absolute(o.socket), *state = absolute(o.state);
	const struct {
		const char *value, *name;
	} settings[] = { { o.host, "SANDBOXD_HOST" },
			 { o.port, "SANDBOXD_PORT" },
			 { sock, "GARRET_SOCKET" },
			 { state, "GARRET_STATE_DIR" } };

	if (used < 0)
		return cli_fail(&err);
	if (o.help)
		return cli_help(&command_serve);
	if (argv[used])
		(void)garret_fail(&err, GARRET_INVALID, "serve takes no words, only options");
	else if (geteuid() != 0 && !getenv("GARRET_ENGINE") && !o.check)
		(void)garret_fail(
			&err, GARRET_DENIED,
			"serve needs root for now (it gives that up itself): use sudo, or set GARRET_ENGINE to a running engine's socket");
	for (size_t i = 0; i < ARRAY_SIZE(settings) && !err.code; i++)
		if (settings[i].value && setenv(settings[i].name, settings[i].value, 1) < 0)
			(void)garret_fail_errno(&err, "%s", settings[i].name);
	if (!err.code) {
		(void)execl(program, "garretd", o.check ? "--check" : (char *)NULL, (char *)NULL);
		(void)garret_fail_errno(&err, "start %s", program);
	}
	return cli_fail(&err);
}

const struct command command_serve = {
	.name = "serve",
	.synopsis = "[OPTIONS]",
	.help = "Start the daemon; its other settings are environment variables (garretd(8)).",
	.table = serve_table,
	.main = serve_main,
};
