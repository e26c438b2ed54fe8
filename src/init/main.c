/*
 * garret-init: pid 1 of a session as a program, for containers and pods.
 *
 *	garret-init serve --dir DIR --work-dir DIR [--uid N] [--gid N] [--detach]
 *	garret-init connect --dir DIR
 *	garret-init --version
 *	garret-init --conn FD --work-dir DIR [--uid N] [--gid N]
 *	garret-init --listen FD ...
 *
 * The descriptors are inherited.  Ids default to our own; the environment of
 * runs is the one we were given.  That --version answers says that this build
 * runs here at all.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "init/init.h"
#include "init/serve.h"

static int usage(const char *what)
{
	(void)fprintf(stderr, "garret-init: %s\n", what);
	return 2;
}

static bool number(const char *text, uint32_t *ret)
{
	uint64_t v;

	if (!parse_u64(text, &v) || v > INT32_MAX)
		return false;
	*ret = (uint32_t)v;
	return true;
}

struct options {
	uint32_t conn, listening, uid, gid;
	const char *dir, *work_dir;
	bool detach;
};

static int parse(int argc, char **argv, struct options *o)
{
	const struct {
		const char *name;
		uint32_t *number;
		const char **text;
		bool *flag;
	} table[] = {
		{ "--conn", &o->conn, NULL, NULL },    { "--listen", &o->listening, NULL, NULL },
		{ "--uid", &o->uid, NULL, NULL },      { "--gid", &o->gid, NULL, NULL },
		{ "--dir", NULL, &o->dir, NULL },      { "--work-dir", NULL, &o->work_dir, NULL },
		{ "--detach", NULL, NULL, &o->detach }
	};

	for (int i = 0; i < argc; i++) {
		size_t n = 0;

		while (n < ARRAY_SIZE(table) && strcmp(argv[i], table[n].name) != 0)
			n++;
		if (n == ARRAY_SIZE(table))
			return usage("unknown option");
		if (table[n].flag) {
			*table[n].flag = true;
			continue;
		}
		if (++i == argc)
			return usage("an option has no value");
		if (table[n].text)
			*table[n].text = argv[i];
		else if (!number(argv[i], table[n].number))
			return usage("a number is not one");
	}
	return 0;
}

static int serve(const struct options *o)
{
	if (!o->dir || !o->work_dir)
		return usage("serve wants --dir and --work-dir");
	return serve_main(&(struct serve_options){ .dir = o->dir,
						   .work_dir = o->work_dir,
						   .uid = o->uid,
						   .gid = o->gid,
						   .detach = o->detach });
}

static int inherited(const struct options *o)
{
	const bool conn = o->conn != UINT32_MAX, listening = o->listening != UINT32_MAX;

	if (!conn && !listening)
		return usage("serve, connect, --conn or --listen is needed");
	if ((conn && fd_set_cloexec((int)o->conn, true) < 0) ||
	    (listening && fd_set_cloexec((int)o->listening, true) < 0))
		return usage("that descriptor is not open");
	(void)prctl(PR_SET_DUMPABLE, 0); /* runs of our own uid could read our memory otherwise */
	init_main(&(struct init_params){
		.listen_fd = listening ? (int)o->listening : -EBADF,
		.conn_fd = conn ? (int)o->conn : -EBADF,
		.cgroup_fd = -EBADF,
		.v1_memory_fd = -EBADF,
		.run_uid = o->uid,
		.run_gid = o->gid,
		.work_dir = o->work_dir ? o->work_dir : "/",
		.env = (const char *const *)environ,
	});
}

int main(int argc, char **argv)
{
	struct options o = {
		.conn = UINT32_MAX, .listening = UINT32_MAX, .uid = getuid(), .gid = getgid()
	};
	const char *mode = argc > 1 && argv[1][0] != '-' ? argv[1] : NULL;
	int rc;

	if (argc == 2 && strcmp(argv[1], "--version") == 0)
		return puts(SERVE_VERSION) < 0;
	rc = parse(argc - (mode ? 2 : 1), argv + (mode ? 2 : 1), &o);
	if (rc)
		return rc;
	if (!mode)
		return inherited(&o);
	if (strcmp(mode, "serve") == 0)
		return serve(&o);
	if (strcmp(mode, "connect") == 0)
		return o.dir ? connect_main(o.dir) : usage("connect wants --dir");
	return usage("unknown command");
}
