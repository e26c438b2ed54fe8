/*
 * A file worker without an init: descriptor 3 is its socket.
 *
 *	test-worker-host WORK_DIR UID [GID]
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "init/worker.h"

int main(int argc, char **argv)
{
	struct init_params p = { .listen_fd = -EBADF,
				 .conn_fd = -EBADF,
				 .cgroup_fd = -EBADF,
				 .v1_memory_fd = -EBADF,
				 .work_dir = argv[1] };
	uint64_t uid, gid;

	if (argc < 3 || !parse_u64(argv[2], &uid) || !parse_u64(argv[argc - 1], &gid))
		return 2;
	p.run_uid = (uint32_t)uid;
	p.run_gid = (uint32_t)gid;
	(void)fcntl(3, F_SETFD, FD_CLOEXEC);
	worker_main(&p, 3);
}
