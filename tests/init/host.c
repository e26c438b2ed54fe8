/*
 * Runs init_main() as the engine does: pid 1 of its own namespaces, never
 * exec'd, with the identity and the three capabilities it has in a session.
 *
 *	test-init-host LISTEN_FD WORK_DIR [CGROUP_DIR] [key=value ...]
 *
 * conn=1: the descriptor is the only connection instead.  oom=FILE: where OOM
 * kills are counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "base/text.h"
#include "init/init.h"

#define INIT_UID 65530

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	_exit(99);
}

static void set_mounts(void)
{
	must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0, "private");
	must(mount("proc", "/proc", "proc", 0, NULL) == 0, "proc");
	must(mount("devpts", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=0620") == 0,
	     "devpts");
	must(mount("/dev/pts/ptmx", "/dev/ptmx", NULL, MS_BIND, NULL) == 0, "ptmx");
}

static void set_identity(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	uint32_t bits = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL;
	struct __user_cap_data_struct d[2] = { { bits, bits, 0 }, { 0, 0, 0 } };

	must(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0, "keepcaps");
	must(setresgid(INIT_UID, INIT_UID, INIT_UID) == 0, "setresgid");
	must(setresuid(INIT_UID, INIT_UID, INIT_UID) == 0, "setresuid");
	must(syscall(SYS_capset, &h, d) == 0, "capset");
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no_new_privs");
	must(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "dumpable");
}

static int open_cgroup(const char *dir)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

	must(fd >= 0, dir);
	must(write_file_at(fd, "init/cgroup.procs", "0") == 0, "enter the cgroup");
	must(fchownat(fd, "", INIT_UID, INIT_UID, AT_EMPTY_PATH) == 0, "chown");
	must(fchownat(fd, "cgroup.procs", INIT_UID, INIT_UID, 0) == 0, "chown");
	must(fchownat(fd, "init/cgroup.procs", INIT_UID, INIT_UID, 0) == 0, "chown");
	return fd;
}

static __attribute__((noreturn)) void be_init(int fd, const char *work_dir, int cgroup, int oom,
					      bool conn)
{
	struct init_params p = { .listen_fd = conn ? -EBADF : fd,
				 .conn_fd = conn ? fd : -EBADF,
				 .cgroup_fd = cgroup,
				 .v1_memory_fd = oom,
				 .run_uid = 1000,
				 .run_gid = 1000,
				 .run_filter = true,
				 .work_dir = work_dir };
	struct rlimit files;

	memset(p.nonce, 0x5a, sizeof(p.nonce));
	set_mounts();
	set_identity();
	/* What a run must not inherit: a mask, a low limit of ours, a descriptor. */
	(void)umask(077);
	must(getrlimit(RLIMIT_NOFILE, &files) == 0, "getrlimit");
	files.rlim_cur = 256;
	must(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit");
	must(fcntl(0, F_DUPFD, 50) >= 0, "dup");
	(void)signal(SIGCHLD, SIG_IGN); /* as the zygote leaves it */
	init_main(&p);
}

int main(int argc, char **argv)
{
	bool conn = false;
	int cgroup = -EBADF, oom = -EBADF, status, pid;
	uint64_t fd;

	must(argc >= 3 && parse_u64(argv[1], &fd), "usage");
	for (int i = 3; i < argc; i++) {
		if (strcmp(argv[i], "conn=1") == 0)
			conn = true;
		else if (strncmp(argv[i], "oom=", 4) == 0)
			oom = open(argv[i] + 4, O_RDONLY | O_CLOEXEC);
		else
			cgroup = open_cgroup(argv[i]);
	}
	must(fd_set_cloexec((int)fd, true) == 0, "cloexec");
	must(unshare(CLONE_NEWPID | CLONE_NEWNS) == 0, "unshare");
	pid = fork();
	must(pid >= 0, "fork");
	if (pid == 0)
		be_init((int)fd, argv[2], cgroup, oom, conn);
	/* The test kills init by this number, and learns from our status how it ended. */
	printf("%d\n", pid);
	must(fflush(stdout) == 0, "stdout");
	close((int)fd);
	must(waitpid(pid, &status, 0) == pid, "wait");
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
