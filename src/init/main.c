/*
 * garret-init: pid 1 of a session as a program, for containers and pods.
 *
 *	garret-init --conn FD --work-dir DIR [--uid N] [--gid N]
 *	garret-init --listen FD ...
 *
 * The descriptors are inherited.  Ids default to our own; the environment of
 * runs is the one we were given.
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

int main(int argc, char **argv)
{
	uint32_t conn = UINT32_MAX, listening = UINT32_MAX, uid = getuid(), gid = getgid();
	struct {
		const char *name;
		uint32_t *ret;
	} numbers[] = { { "--conn", &conn },
			{ "--listen", &listening },
			{ "--uid", &uid },
			{ "--gid", &gid } };
	const char *work_dir = "/";

	for (int i = 1; i < argc; i += 2) {
		size_t n = 0;

		if (i + 1 == argc)
			return usage("each option wants a value");
		if (strcmp(argv[i], "--work-dir") == 0) {
			work_dir = argv[i + 1];
			continue;
		}
		while (n < ARRAY_SIZE(numbers) && strcmp(argv[i], numbers[n].name) != 0)
			n++;
		if (n == ARRAY_SIZE(numbers))
			return usage("unknown option");
		if (!number(argv[i + 1], numbers[n].ret))
			return usage("a number is not one");
	}
	if (conn == UINT32_MAX && listening == UINT32_MAX)
		return usage("--conn or --listen is needed");
	if ((conn != UINT32_MAX && fd_set_cloexec((int)conn, true) < 0) ||
	    (listening != UINT32_MAX && fd_set_cloexec((int)listening, true) < 0))
		return usage("that descriptor is not open");
	(void)prctl(PR_SET_DUMPABLE, 0); /* runs of our own uid could read our memory otherwise */
	init_main(&(struct init_params){
		.listen_fd = listening == UINT32_MAX ? -EBADF : (int)listening,
		.conn_fd = conn == UINT32_MAX ? -EBADF : (int)conn,
		.cgroup_fd = -EBADF,
		.v1_memory_fd = -EBADF,
		.run_uid = uid,
		.run_gid = gid,
		.work_dir = work_dir,
		.env = (const char *const *)environ,
	});
}
