/* Attempts to see or change what is around the session: devices, /proc, the host. */
#include "attack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fanotify.h>
#include <linux/nsfs.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- 1: what was left open ---- */

static void inherited_fds(void)
{
	if (attack_host.first_fd >= 0)
		note("descriptor %d", attack_host.first_fd);
	errno = EBADF;
	(void)held(attack_host.first_fd >= 0 ? 0 : -1);
}

/* ---- 27 to 39: devices and /proc ---- */

static void make_block(void)
{
	(void)unlink("block");
	(void)held(mknod("block", S_IFBLK | 0666, makedev(8, 0)));
}

static void make_memory(void)
{
	(void)unlink("mem");
	(void)held(mknod("mem", S_IFCHR | 0666, makedev(1, 1)));
}

static void open_kmsg(void)
{
	(void)held(open("/dev/kmsg", O_RDONLY | O_NONBLOCK));
}

static void chmod_null(void)
{
	(void)held(chmod("/dev/null", 0600));
}

static void create_in_dev(void)
{
	(void)held(open("/dev/x", O_WRONLY | O_CREAT, 0600));
}

static void core_pattern(void)
{
	write_nothing("/proc/sys/kernel/core_pattern", "|/tmp/x");
}

static void sysrq(void)
{
	write_nothing("/proc/sysrq-trigger", "h");
}

static void oom_score(void)
{
	write_nothing("/proc/self/oom_score_adj", "-1000");
}

static void kcore(void)
{
	read_nothing("/proc/kcore");
}

static void keys(void)
{
	read_nothing("/proc/keys");
}

static void kmsg(void)
{
	read_nothing("/proc/kmsg");
}

static void kallsyms(void)
{
	FILE *f = fopen("/proc/kallsyms", "r");
	unsigned long address = 0;
	char line[256];

	if (!f) {
		(void)held(-1);
		return;
	}
	while (!address && fgets(line, sizeof(line), f))
		address = strtoul(line, NULL, 16);
	(void)fclose(f);
	if (address) {
		note("address %lx", address);
		(void)held(0);
		return;
	}
	note("only zeroes");
	held_error(EPERM);
}

static void kernel_log(void)
{
	char buf[64];

	(void)held(syscall(SYS_syslog, 2 /* READ */, buf, sizeof(buf)));
	(void)held(syscall(SYS_syslog, 3 /* READ_ALL */, buf, sizeof(buf)));
}

/* ---- 74 to 87: the host around us ---- */

static void cgroup_fs(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "r");
	char line[1024];

	while (f && fgets(line, sizeof(line), f))
		if (strstr(line, " - cgroup")) {
			note("%.100s", line);
			(void)held(0);
		}
	if (f)
		(void)fclose(f);
	(void)held(open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY));
}

static void shared_lock(void)
{
	int fd = open("/usr/bin/env", O_RDONLY);

	(void)unlink("fifo");
	if (!held(mkfifo("fifo", 0600)) || fd < 0)
		return;
	(void)held(flock(fd, LOCK_EX | LOCK_NB));
}

static void host_processes(void)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int n = 0;

	if (kill(attack_host.pid, 0) == 0 || errno != ESRCH) {
		note("process %d is there", attack_host.pid);
		(void)held(0);
	}
	held_as(ESRCH);
	while (d && (e = readdir(d)))
		n += e->d_name[0] >= '1' && e->d_name[0] <= '9';
	note("%d processes", n);
	if (n > 8) /* init, us, our parent, and what the test runs beside us */
		(void)held(0);
}

static void outside(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(53) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	a.sin_addr.s_addr = htonl(0x01010101);
	(void)held(fd < 0 ? -1 : connect(fd, (struct sockaddr *)&a, sizeof(a)));
}

static void schedule_1(void)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	(void)held(sched_setaffinity(1, sizeof(cpus), &cpus));
	(void)held(setpriority(PRIO_PROCESS, 1, 10));
	(void)held(syscall(SYS_ioprio_set, 1 /* process */, 1, 3 << 13 /* idle */));
}

static void uid_map(void)
{
	write_nothing("/proc/self/uid_map", "0 0 1\n");
}

static void parent_ns(void)
{
	int fd = open("/proc/self/ns/user", O_RDONLY);

	(void)held(fd < 0 ? -1 : ioctl(fd, NS_GET_PARENT));
	fd = open("/proc/self/ns/pid", O_RDONLY);
	(void)held(fd < 0 ? -1 : ioctl(fd, NS_GET_PARENT));
}

/* Is the host's path there, when the tour begins at `from`? */
static void reach(const char *from)
{
	char path[1024];

	(void)snprintf(path, sizeof(path), "%s/../../../../../../../..%s", from, attack_host.path);
	if (access(path, F_OK) == 0)
		note("%.150s", path);
	(void)held(access(path, F_OK));
}

static void magic_links(void)
{
	static const char *const from[] = {
		"/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2",
		"/proc/self/cwd",  "/proc/self/root", "/proc/self/exe"
	};

	for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++)
		reach(from[i]);
	held_as(ENOENT); /* or ENOTDIR: from a pipe */
}

static void state_dir(void)
{
	(void)held(access(attack_host.path, F_OK));
	(void)held(access("/var/lib/garret", F_OK));
	(void)held(access("/run/garret", F_OK));
}

static void watch_root(void)
{
	int fd = (int)syscall(SYS_fanotify_init, FAN_CLASS_CONTENT, O_RDONLY);

	if (!held(fd))
		return;
	/* Without rights one may be had, for inodes only. */
	fd = (int)syscall(SYS_fanotify_init, FAN_CLASS_NOTIF | FAN_REPORT_FID, O_RDONLY);
	(void)held(fd < 0 ? -1
			  : syscall(SYS_fanotify_mark, fd, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN,
				    AT_FDCWD, "/"));
	(void)held(fd < 0 ? -1
			  : syscall(SYS_fanotify_mark, fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM,
				    FAN_OPEN, AT_FDCWD, "/usr"));
}

static void host_shm(void)
{
	(void)held(shmget(attack_host.shm_key, 0, 0));
}

static void page_zero(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	(void)held(p == MAP_FAILED ? -1 : 0);
}

static void advise_1(void)
{
	struct iovec v = { (void *)0x400000, 4096 };
	int fd = (int)syscall(SYS_pidfd_open, 1, 0);

	(void)held(syscall(SYS_process_madvise, fd, &v, 1, 20 /* COLD */, 0));
	(void)held(syscall(SYS_kcmp, 1, getpid(), 0, 0, 0));
	(void)held(syscall(SYS_process_mrelease, fd, 0));
}

static void bomb(void)
{
	enum { MANY = 4000 };
	static pid_t pids[MANY];
	int n = 0;

	while (n < MANY) {
		pids[n] = fork();
		if (pids[n] == 0) {
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				(void)pause();
		}
		if (pids[n] < 0) {
			(void)held(-1);
			break;
		}
		n++;
	}
	note("%d processes", n);
	for (int i = 0; i < n; i++)
		(void)kill(pids[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	if (n == MANY)
		(void)held(0);
}

/* ---- later rows ---- */

/* A file of /proc behind a null device. */
static bool is_masked(const char *place)
{
	struct stat st;

	return !strncmp(place, "/proc/", 6) && stat(place, &st) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(1, 3);
}

/* Nothing may be mounted that honours set-id files, nor devices outside /dev. */
static void loose_mounts(void)
{
	FILE *f = fopen("/proc/self/mountinfo", "r");
	char line[4096], place[1024], flags[1024];

	held_error(EPERM);
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %*s %*s %*s %1023s %1023s", place, flags) != 2)
			continue;
		if (strstr(flags, "nosuid") &&
		    (strstr(flags, "nodev") || !strncmp(place, "/dev", 4) || is_masked(place)))
			continue;
		note("%.60s %.60s", place, flags);
		(void)held(0);
	}
	if (f)
		(void)fclose(f);
}

static void core_dump(void)
{
	struct rlimit l = { 1 << 20, 1 << 20 };

	(void)held(setrlimit(RLIMIT_CORE, &l));
}

static void whiteout(void)
{
	(void)unlink("whiteout");
	(void)held(mknod("whiteout", S_IFCHR | 0666, makedev(0, 0)));
}

static void write_shared_program(void)
{
	(void)held(open("/usr/bin/env", O_WRONLY));
	(void)held(open("/etc/passwd", O_WRONLY));
	(void)held(unlink("/etc/hosts"));
	(void)held(truncate("/usr/bin/env", 0));
}

// clang-format off
const struct attack_row attack_host_rows[] = {
	{ 1, "inherited descriptors beyond 2", inherited_fds },
	{ 27, "mknod block 8:0", make_block },
	{ 28, "mknod char mem 1:1", make_memory },
	{ 29, "open /dev/kmsg", open_kmsg },
	{ 30, "chmod /dev/null", chmod_null },
	{ 31, "create file in /dev", create_in_dev },
	{ 32, "write core_pattern", core_pattern },
	{ 33, "write /proc/sysrq-trigger", sysrq },
	{ 34, "write oom_score_adj -1000", oom_score },
	{ 35, "read /proc/kcore", kcore },
	{ 36, "read /proc/keys", keys },
	{ 37, "read /proc/kmsg", kmsg },
	{ 38, "read /proc/kallsyms nonzero", kallsyms },
	{ 39, "syslog read", kernel_log },
	{ 74, "cgroup fs visible", cgroup_fs },
	{ 75, "mkfifo, flock on a shared file", shared_lock },
	{ 76, "see host processes", host_processes },
	{ 77, "connect 1.1.1.1", outside },
	{ 78, "schedule pid 1", schedule_1 },
	{ 79, "write own uid_map", uid_map },
	{ 80, "NS_GET_PARENT", parent_ns },
	{ 81, "host path via magic links", magic_links },
	{ 82, "host state directory", state_dir },
	{ 83, "fanotify on the root mount", watch_root },
	{ 84, "SysV shm of the host", host_shm },
	{ 85, "MAP_FIXED page 0", page_zero },
	{ 86, "process_madvise, kcmp pid 1", advise_1 },
	{ 87, "fork bomb", bomb },
	{ 88, "mknod 0:0", whiteout },
	{ 96, "write what sessions share", write_shared_program },
	{ 101, "mounts with set-id files or devices", loose_mounts },
	{ 102, "allow core dumps", core_dump },
	{ 0, NULL, NULL },
};
// clang-format on
