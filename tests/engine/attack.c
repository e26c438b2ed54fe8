/*
 * Runs inside a session as its main user and tries to get out, one function a row.
 *
 *	attack [-p HOST_PID] [-s HOST_PATH] [-k HOST_SHM_KEY] [-l] [ROW...]
 *
 * Prints a line per row: number, HELD or NOT_HELD, name of the errno (or signal, or
 * "-"), what was tried, and a remark.  What is expected stands in attack.py: this
 * program only tells.  Each row runs in a child of its own, because some end in death.
 *
 * Rows 1 to 87 are those of the engine's first study; what follows came later.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/fanotify.h>
#include <linux/keyctl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef AF_VSOCK
#define AF_VSOCK 40
#endif
#define ROW_SECONDS 20

struct result {
	bool got_through;
	int sys;
	char note[160];
};

static struct result *out;
static struct {
	int pid;
	const char *path;
	key_t shm_key;
} host = { .pid = 4194303, .path = "/var/lib/garret", .shm_key = 0x6a57 };
static int first_fd = -1; /* a descriptor above 2 that we were born with */

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void note(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(out->note, sizeof(out->note), format, ap);
	va_end(ap);
}

/* The outcome of a call that must fail.  The first failure's errno is kept. */
static bool held(long rc)
{
	if (rc >= 0) {
		out->got_through = true;
		return false;
	}
	if (!out->sys)
		out->sys = errno;
	return true;
}

static void held_error(int sys)
{
	errno = sys;
	(void)held(-1);
}

static bool is_null(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

/* Reading must fail, or give nothing because the file is masked. */
static void read_nothing(const char *path)
{
	char buf[64];
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	ssize_t n;

	if (fd < 0) {
		(void)held(fd);
		return;
	}
	n = read(fd, buf, sizeof(buf));
	if (n > 0)
		note("%zd bytes", n);
	if (n == 0) {
		note(is_null(fd) ? "masked" : "empty");
		held_error(ENODATA);
		return;
	}
	(void)held(n);
}

static void write_nothing(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd >= 0 && is_null(fd)) {
		note("masked");
		held_error(ENODATA);
		return;
	}
	(void)held(fd < 0 ? fd : write(fd, text, strlen(text)));
}

static int scratch(const char *name)
{
	(void)unlink(name);
	return open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
}

/* ---- 1: what was left open ---- */

static void inherited_fds(void)
{
	if (first_fd >= 0)
		note("descriptor %d", first_fd);
	errno = EBADF;
	(void)held(first_fd >= 0 ? 0 : -1);
}

/* ---- 2 to 15: namespaces and mounts ---- */

static void unshare_user(void)
{
	(void)held(unshare(CLONE_NEWUSER));
}

static void unshare_mounts(void)
{
	(void)held(unshare(CLONE_NEWNS));
}

static void clone3_user(void)
{
	struct clone_args a = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	long pid = syscall(SYS_clone3, &a, sizeof(a));

	if (pid == 0)
		_exit(0);
	(void)held(pid);
}

static void clone_net(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWNET | SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0)
		_exit(0);
	(void)held(pid);
}

static void mount_tmpfs(void)
{
	(void)held(mount("x", "/tmp", "tmpfs", 0, NULL));
}

static void mount_bind(void)
{
	(void)held(mount("/", "/mnt", NULL, MS_BIND, NULL));
}

static void remount_sys(void)
{
	(void)held(mount(NULL, "/proc/sys", NULL, MS_REMOUNT | MS_BIND, NULL));
}

static void umount_keys(void)
{
	(void)held(umount2("/proc/keys", MNT_DETACH));
}

static void umount_sys(void)
{
	(void)held(umount2("/proc/sys", MNT_DETACH));
}

static void clone_tree(void)
{
	(void)held(syscall(SYS_open_tree, AT_FDCWD, "/", 1 /* CLONE */));
}

static void fsopen_proc(void)
{
	(void)held(syscall(SYS_fsopen, "proc", 0));
}

static void pivot(void)
{
	(void)held(syscall(SYS_pivot_root, "/tmp", "/tmp"));
}

static void change_root(void)
{
	(void)held(chroot("/tmp"));
}

static void setns_own(void)
{
	int fd = open("/proc/self/ns/mnt", O_RDONLY);

	(void)held(fd < 0 ? fd : setns(fd, 0));
}

/* ---- 16 to 25: pid 1 ---- */

static void open_ns_of_1(void)
{
	(void)held(open("/proc/1/ns/mnt", O_RDONLY));
}

static void open_root_of_1(void)
{
	(void)held(open("/proc/1/root/", O_RDONLY | O_DIRECTORY));
	(void)held(open("/proc/1/cwd/", O_RDONLY | O_DIRECTORY));
}

static void list_fds_of_1(void)
{
	(void)held(open("/proc/1/fd", O_RDONLY | O_DIRECTORY));
}

static void exe_of_1(void)
{
	char buf[256];

	(void)held(readlink("/proc/1/exe", buf, sizeof(buf)));
	(void)held(open("/proc/1/exe", O_RDONLY));
}

static void write_memory_of_1(void)
{
	(void)held(open("/proc/1/mem", O_RDWR));
	(void)held(open("/proc/1/environ", O_RDONLY));
	(void)held(open("/proc/1/maps", O_RDONLY));
}

static void ptrace_1(void)
{
	(void)held(ptrace(PTRACE_ATTACH, 1, NULL, NULL));
	(void)held(ptrace(PTRACE_SEIZE, 1, NULL, NULL));
}

static void read_memory_of_1(void)
{
	char buf[16];
	struct iovec a = { buf, sizeof(buf) }, b = { (void *)0x400000, sizeof(buf) };

	(void)held(process_vm_readv(1, &a, 1, &b, 1, 0));
	(void)held(process_vm_writev(1, &a, 1, &b, 1, 0));
}

static void fd_of_1(void)
{
	int fd = (int)syscall(SYS_pidfd_open, 1, 0);

	(void)held(fd < 0 ? fd : syscall(SYS_pidfd_getfd, fd, 3, 0));
}

static void kill_1(void)
{
	(void)held(kill(1, SIGKILL));
	(void)held(kill(1, SIGSTOP));
}

static void prlimit_1(void)
{
	struct rlimit l = { 3, 3 };

	(void)held(prlimit(1, RLIMIT_NOFILE, &l, NULL));
}

static void real_time(void)
{
	struct sched_param p = { .sched_priority = 1 };

	(void)held(sched_setscheduler(0, SCHED_FIFO, &p));
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
	unsigned long address;
	char line[256];

	if (!f) {
		(void)held(-1);
		return;
	}
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx", &address) == 1 && address) {
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

/* ---- 40 to 49: kernel surface ---- */

static void load_bpf(void)
{
	union bpf_attr a;

	memset(&a, 0, sizeof(a));
	a.map_type = BPF_MAP_TYPE_ARRAY;
	a.key_size = a.value_size = 4;
	a.max_entries = 1;
	(void)held(syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof(a)));
}

static void open_perf(bool user_only)
{
	struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE,
				     .size = sizeof(a),
				     .config = PERF_COUNT_SW_CPU_CLOCK,
				     .exclude_kernel = user_only,
				     .exclude_hv = user_only };

	(void)held(syscall(SYS_perf_event_open, &a, 0, -1, -1, 0));
}

static void perf_kernel(void)
{
	open_perf(false);
}

static void perf_user(void)
{
	open_perf(true);
}

static void uffd(void)
{
	(void)held(syscall(SYS_userfaultfd, 0));
}

static void uffd_user(void)
{
	(void)held(syscall(SYS_userfaultfd, 1 /* USER_MODE_ONLY */));
}

static void uring(void)
{
	char params[120] = { 0 };

	(void)held(syscall(SYS_io_uring_setup, 1, params));
}

static void session_keyring(void)
{
	(void)held(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
}

static void add_one_key(void)
{
	(void)held(syscall(SYS_add_key, "user", "garret", "x", 1, KEY_SPEC_PROCESS_KEYRING));
}

struct handle {
	unsigned bytes;
	int type;
	unsigned char f[128];
};

static void open_handle(void)
{
	struct handle h = { .bytes = 8, .type = 1, .f = { 2 } }; /* inode 2: an ext4 root */
	int fd = open("/workspace", O_RDONLY | O_DIRECTORY);

	(void)held(syscall(SYS_open_by_handle_at, fd, &h, O_RDONLY));
}

static void name_handle(void)
{
	struct handle h = { .bytes = sizeof(h.f) };
	int mount_id;

	(void)held(syscall(SYS_name_to_handle_at, AT_FDCWD, "/workspace", &h, &mount_id, 0));
}

static void alg(void)
{
	(void)held(socket(AF_ALG, SOCK_SEQPACKET, 0));
}

static void vsock(void)
{
	(void)held(socket(AF_VSOCK, SOCK_STREAM, 0));
}

static void packet(void)
{
	(void)held(socket(AF_PACKET, SOCK_RAW, 0));
}

static void raw_inet(void)
{
	(void)held(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP));
	(void)held(socket(AF_INET, SOCK_RAW, IPPROTO_RAW));
}

/* A new table: the answer's error counts. */
static void netfilter(void)
{
	struct {
		struct nlmsghdr begin;
		struct nfgenmsg begin_family;
		struct nlmsghdr table;
		struct nfgenmsg table_family;
		struct nlattr name;
		char text[4];
		struct nlmsghdr end;
		struct nfgenmsg end_family;
	} m = {
		.begin = { 20, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 1, 0 },
		.begin_family = { AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES) },
		.table = { 28, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE,
			   NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 2, 0 },
		.table_family = { AF_INET, NFNETLINK_V0, 0 },
		.name = { 8, NFTA_TABLE_NAME },
		.text = "evl",
		.end = { 20, NFNL_MSG_BATCH_END, NLM_F_REQUEST, 3, 0 },
		.end_family = { AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES) },
	};
	struct timeval second = { 1, 0 };
	char buf[512];
	struct nlmsghdr *h = (struct nlmsghdr *)buf;
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
	ssize_t n;

	if (fd < 0) {
		(void)held(fd);
		return;
	}
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
	if (send(fd, &m, sizeof(m), 0) < 0) {
		(void)held(-1);
		return;
	}
	n = recv(fd, buf, sizeof(buf), 0);
	if (n < (ssize_t)(sizeof(*h) + sizeof(int)) || h->nlmsg_type != NLMSG_ERROR) {
		note("no answer");
		(void)held(0);
		return;
	}
	errno = -((struct nlmsgerr *)NLMSG_DATA(h))->error;
	(void)held(errno ? -1 : 0);
}

/* ---- 53 to 58: terminals, other call tables ---- */

static void any_terminal(unsigned long request)
{
	char c[2] = "x";
	int tty;

	for (int fd = 0; fd < 3; fd++)
		(void)held(syscall(SYS_ioctl, fd, request, c));
	tty = open("/dev/tty", O_RDWR);
	(void)held(tty < 0 ? -1 : syscall(SYS_ioctl, tty, request, c));
}

static void tiocsti(void)
{
	any_terminal(TIOCSTI);
}

static void tiocsti_high(void)
{
	any_terminal(TIOCSTI | 1ul << 32);
}

static void tioclinux(void)
{
	any_terminal(TIOCLINUX);
}

static void x32(void)
{
#ifdef __x86_64__
	(void)held(syscall(0x40000000 | SYS_getpid));
#else
	held_error(ENOSYS);
#endif
}

static void int80(void)
{
#ifdef __x86_64__
	int rc;

	__asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "r8", "r9", "r10", "r11", "memory");
	errno = -rc;
	(void)held(rc < 0 ? -1 : rc);
#else
	held_error(ENOSYS);
#endif
}

static void no_randomize(void)
{
	(void)held(personality(ADDR_NO_RANDOMIZE));
}

/* ---- 59 to 66: the machine.  Each is harmless should it be allowed. ---- */

static void kexec(void)
{
	(void)held(syscall(SYS_kexec_load, 0, 0, NULL, 0));
}

static void module(void)
{
	(void)held(syscall(SYS_init_module, "x", 1, ""));
}

static void do_reboot(void)
{
	(void)held(syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2,
			   LINUX_REBOOT_CMD_CAD_OFF, NULL));
}

static void swap(void)
{
	(void)held(swapon("/workspace/none", 0));
}

static void set_time(void)
{
	struct timeval tv;

	(void)gettimeofday(&tv, NULL);
	(void)held(settimeofday(&tv, NULL));
}

static void host_name(void)
{
	(void)held(sethostname("evil", 4));
}

static void io_privilege(void)
{
#ifdef SYS_iopl
	(void)held(syscall(SYS_iopl, 3));
#else
	held_error(ENOSYS);
#endif
}

static void quota(void)
{
	struct dqblk q = { .dqb_valid = QIF_LIMITS };
	int fd = open("/workspace", O_RDONLY | O_DIRECTORY);

	(void)held(quotactl(QCMD(Q_SETQUOTA, USRQUOTA), "/dev/vda", 1000, (void *)&q));
	(void)held(syscall(SYS_quotactl_fd, fd, QCMD(Q_SETQUOTA, USRQUOTA), 1000, &q));
}

/* ---- 67 to 73: who we are ---- */

static void unmapped_user(void)
{
	(void)held(setuid(70000));
	(void)held(setresuid(0, 0, 0));
	(void)held(setuid(65530)); /* init's */
	(void)held(setgid(65530));
}

static void unmapped_group(void)
{
	gid_t g = 70000;

	(void)held(setgroups(1, &g));
	(void)held(setgroups(0, NULL));
}

static void set_user_id_file(void)
{
	int fd = scratch("suid");

	(void)held(fchmod(fd, 04755));
	(void)held(chmod("suid", 06755));
	(void)held(fchmodat(AT_FDCWD, "suid", 04711, 0));
	(void)held(syscall(452 /* fchmodat2 */, AT_FDCWD, "suid", 04755, 0));
}

static void opaque(void)
{
	close(scratch("opaque"));
	(void)held(setxattr("opaque", "trusted.overlay.opaque", "y", 1, 0));
}

static void file_caps(void)
{
	struct {
		uint32_t magic, low, inh, high, inh_high, root;
	} v3 = { 0x03000001, 1u << CAP_SYS_ADMIN, 0, 0, 0, 1000 };

	close(scratch("caps"));
	(void)held(setxattr("caps", "security.capability", &v3, sizeof(v3), 0));
}

static void all_caps(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2];

	memset(d, 0xff, sizeof(d));
	(void)held(syscall(SYS_capset, &h, d));
}

static void new_privs(void)
{
	(void)held(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		(void)held(0);
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

	if (kill(host.pid, 0) == 0 || errno != ESRCH) {
		note("process %d is there", host.pid);
		(void)held(0);
	}
	out->sys = ESRCH;
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

	(void)snprintf(path, sizeof(path), "%s/../../../../../../../..%s", from, host.path);
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
	out->sys = ENOENT; /* or ENOTDIR: from a pipe */
}

static void state_dir(void)
{
	(void)held(access(host.path, F_OK));
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
	(void)held(shmget(host.shm_key, 0, 0));
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

static void whiteout(void)
{
	(void)unlink("whiteout");
	(void)held(mknod("whiteout", S_IFCHR | 0666, makedev(0, 0)));
}

static void set_user_id_new(void)
{
	(void)unlink("suid2");
	(void)held(open("suid2", O_WRONLY | O_CREAT, 04755));
	(void)unlink("suid2");
	(void)held(creat("suid2", 04755));
	(void)unlink("suid2");
	(void)held(mknod("suid2", S_IFREG | 04755, 0));
	(void)held(open(".", O_WRONLY | O_TMPFILE, 04755));
}

static void openat2_mode(void)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = { O_WRONLY | O_CREAT, 04755, 0 };

	(void)unlink("suid3");
	(void)held(syscall(SYS_openat2, AT_FDCWD, "suid3", &how, sizeof(how)));
}

static void line_discipline(void)
{
	int one = 1;

	(void)held(ioctl(0, TIOCSETD, &one));
}

static void other_netlink(void)
{
	static const int protocols[] = { NETLINK_SOCK_DIAG, NETLINK_AUDIT, NETLINK_XFRM,
					 NETLINK_KOBJECT_UEVENT };

	for (size_t i = 0; i < sizeof(protocols) / sizeof(protocols[0]); i++)
		(void)held(socket(AF_NETLINK, SOCK_RAW, protocols[i]));
}

static void rare_families(void)
{
	static const int families[] = { AF_X25,  AF_AX25, AF_IPX,   AF_APPLETALK, AF_KEY,   AF_CAN,
					AF_TIPC, AF_RDS,  AF_PPPOX, AF_XDP,       AF_PHONET };

	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		for (int type = SOCK_STREAM; type <= SOCK_SEQPACKET; type++)
			(void)held(socket(families[i], type, 0));
}

static void rare_protocols(void)
{
	(void)held(socket(AF_INET, SOCK_STREAM, 132 /* SCTP */));
	(void)held(socket(AF_INET, SOCK_STREAM, 262 /* MPTCP */));
	(void)held(socket(AF_INET, SOCK_DGRAM, IPPROTO_UDPLITE));
}

static void page_tools(void)
{
	struct iovec v = { (void *)"x", 1 };
	int p[2];

	if (pipe(p) < 0)
		return;
	(void)held(vmsplice(p[1], &v, 1, SPLICE_F_GIFT));
}

static void write_shared_program(void)
{
	(void)held(open("/usr/bin/env", O_WRONLY));
	(void)held(open("/etc/passwd", O_WRONLY));
	(void)held(unlink("/etc/hosts"));
	(void)held(truncate("/usr/bin/env", 0));
}

static void set_clock(void)
{
	struct timespec ts = { .tv_sec = 1 };

	(void)held(clock_settime(CLOCK_REALTIME, &ts));
}

static void modify_segments(void)
{
#ifdef SYS_modify_ldt
	char buf[16];

	(void)held(syscall(SYS_modify_ldt, 0, buf, sizeof(buf)));
#else
	held_error(ENOSYS);
#endif
}

// clang-format off
static const struct {
	const char *name;
	void (*fn)(void);
} rows[] = {
	{ NULL, NULL },
	{ "inherited descriptors beyond 2", inherited_fds },			/* 1 */
	{ "unshare(NEWUSER)", unshare_user },
	{ "unshare(NEWNS)", unshare_mounts },
	{ "clone3(NEWUSER)", clone3_user },
	{ "clone(NEWNET)", clone_net },
	{ "mount tmpfs", mount_tmpfs },
	{ "bind mount / over /mnt", mount_bind },
	{ "remount /proc/sys rw", remount_sys },
	{ "umount the mask of /proc/keys", umount_keys },
	{ "umount /proc/sys", umount_sys },					/* 10 */
	{ "open_tree clone", clone_tree },
	{ "fsopen proc", fsopen_proc },
	{ "pivot_root", pivot },
	{ "chroot", change_root },
	{ "setns own mnt ns", setns_own },
	{ "open /proc/1/ns/mnt", open_ns_of_1 },
	{ "open /proc/1/root/", open_root_of_1 },
	{ "list /proc/1/fd", list_fds_of_1 },
	{ "readlink /proc/1/exe", exe_of_1 },
	{ "write /proc/1/mem", write_memory_of_1 },				/* 20 */
	{ "ptrace attach pid 1", ptrace_1 },
	{ "process_vm_readv pid 1", read_memory_of_1 },
	{ "pidfd_getfd(pid1, 3)", fd_of_1 },
	{ "kill -9 pid 1", kill_1 },
	{ "prlimit on pid 1", prlimit_1 },
	{ "sched_setscheduler FIFO", real_time },
	{ "mknod block 8:0", make_block },
	{ "mknod char mem 1:1", make_memory },
	{ "open /dev/kmsg", open_kmsg },
	{ "chmod /dev/null", chmod_null },					/* 30 */
	{ "create file in /dev", create_in_dev },
	{ "write core_pattern", core_pattern },
	{ "write /proc/sysrq-trigger", sysrq },
	{ "write oom_score_adj -1000", oom_score },
	{ "read /proc/kcore", kcore },
	{ "read /proc/keys", keys },
	{ "read /proc/kmsg", kmsg },
	{ "read /proc/kallsyms nonzero", kallsyms },
	{ "syslog read", kernel_log },
	{ "bpf()", load_bpf },							/* 40 */
	{ "perf_event_open", perf_kernel },
	{ "userfaultfd", uffd },
	{ "io_uring_setup", uring },
	{ "keyctl get session keyring", session_keyring },
	{ "add_key", add_one_key },
	{ "open_by_handle_at", open_handle },
	{ "name_to_handle_at", name_handle },
	{ "socket AF_ALG", alg },
	{ "socket AF_VSOCK", vsock },
	{ "socket AF_PACKET", packet },						/* 50 */
	{ "socket AF_INET RAW", raw_inet },
	{ "AF_NETLINK NETFILTER create", netfilter },
	{ "ioctl TIOCSTI", tiocsti },
	{ "ioctl TIOCSTI high bits", tiocsti_high },
	{ "ioctl TIOCLINUX", tioclinux },
	{ "x32 system call bit", x32 },
	{ "int80 32-bit getpid", int80 },
	{ "personality(ADDR_NO_RANDOMIZE)", no_randomize },
	{ "kexec_load", kexec },
	{ "init_module", module },						/* 60 */
	{ "reboot", do_reboot },
	{ "swapon", swap },
	{ "settimeofday", set_time },
	{ "sethostname", host_name },
	{ "iopl", io_privilege },
	{ "quotactl", quota },
	{ "setuid to unmapped 70000", unmapped_user },
	{ "setgroups unmapped", unmapped_group },
	{ "create a setuid file", set_user_id_file },
	{ "setxattr trusted.overlay.opaque", opaque },				/* 70 */
	{ "setxattr security.capability", file_caps },
	{ "capset full", all_caps },
	{ "disable no_new_privs", new_privs },
	{ "cgroup fs visible", cgroup_fs },
	{ "mkfifo, flock on a shared file", shared_lock },
	{ "see host processes", host_processes },
	{ "connect 1.1.1.1", outside },
	{ "schedule pid 1", schedule_1 },
	{ "write own uid_map", uid_map },
	{ "NS_GET_PARENT", parent_ns },						/* 80 */
	{ "host path via magic links", magic_links },
	{ "host state directory", state_dir },
	{ "fanotify on the root mount", watch_root },
	{ "SysV shm of the host", host_shm },
	{ "MAP_FIXED page 0", page_zero },
	{ "process_madvise, kcmp pid 1", advise_1 },
	{ "fork bomb", bomb },							/* 87 */
	{ "mknod 0:0", whiteout },
	{ "setuid mode of a new file", set_user_id_new },
	{ "openat2 with a setuid mode", openat2_mode },				/* 90 */
	{ "ioctl TIOCSETD", line_discipline },
	{ "other netlink protocols", other_netlink },
	{ "rare socket families", rare_families },
	{ "rare protocols", rare_protocols },
	{ "vmsplice", page_tools },						/* 95 */
	{ "write what sessions share", write_shared_program },
	{ "clock_settime", set_clock },
	{ "modify_ldt", modify_segments },
	{ "perf_event_open, user only", perf_user },
	{ "userfaultfd, user only", uffd_user },				/* 100 */
};
// clang-format on

#define N_ROWS ((int)(sizeof(rows) / sizeof(rows[0])))

static void run_row(int i)
{
	char how[32] = "-";
	int status;
	pid_t pid;

	memset(out, 0, sizeof(*out));
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)alarm(ROW_SECONDS);
		rows[i].fn();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		printf("%d BROKEN %s %s\n", i, strerrorname_np(errno), rows[i].name);
		return;
	}
	if (WIFSIGNALED(status))
		(void)snprintf(how, sizeof(how), "SIG%s", sigabbrev_np(WTERMSIG(status)));
	else if (out->sys)
		(void)snprintf(how, sizeof(how), "%s", strerrorname_np(out->sys));
	printf("%d %s %s %s%s%s\n", i, out->got_through ? "NOT_HELD" : "HELD", how, rows[i].name,
	       *out->note ? ": " : "", out->note);
}

int main(int argc, char **argv)
{
	int o;

	for (int fd = 3; fd < 4096 && first_fd < 0; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			first_fd = fd;
	out = mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (out == MAP_FAILED)
		return 1;
	while ((o = getopt(argc, argv, "p:s:k:")) != -1) {
		if (o == 'p')
			host.pid = atoi(optarg);
		else if (o == 's')
			host.path = optarg;
		else if (o == 'k')
			host.shm_key = atoi(optarg);
		else
			return 2;
	}
	if (optind < argc)
		for (int i = optind; i < argc; i++)
			run_row(atoi(argv[i]));
	else
		for (int i = 1; i < N_ROWS; i++)
			run_row(i);
	return 0;
}
