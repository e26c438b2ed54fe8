#include "engine/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"

/* What programs need, without conditions.  Absent on purpose: everything that mounts, makes
 * or enters namespaces, opens by handle, traces the kernel, or speaks to hardware; keyrings
 * (not per session), io_uring and userfaultfd (kernel surface), process_vm_writev,
 * pidfd_getfd and kcmp (nothing needs them), modify_ldt, vmsplice. */
// clang-format off
static const char *const allowed[] = {
	"accept", "accept4", "access", "adjtimex", "alarm", "arch_prctl", "bind", "brk",
	"cachestat", "capget", "capset", "chdir", "chown", "clock_getres", "clock_gettime",
	"clock_nanosleep", "clone3", "close", "close_range", "connect", "copy_file_range", "dup",
	"dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2",
	"epoll_wait", "eventfd", "eventfd2", "execve", "execveat", "exit", "exit_group",
	"faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchown", "fchownat",
	"fcntl", "fdatasync", "fgetxattr", "flistxattr", "flock", "fork", "fremovexattr",
	"fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futex", "futex_waitv", "futimesat",
	"get_robust_list", "get_thread_area", "getcpu", "getcwd", "getdents", "getdents64",
	"getegid", "geteuid", "getgid", "getgroups", "getitimer", "getpeername", "getpgid",
	"getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid", "getresuid",
	"getrlimit", "getrusage", "getsid", "getsockname", "getsockopt", "gettid", "gettimeofday",
	"getuid", "getxattr", "inotify_add_watch", "inotify_init", "inotify_init1",
	"inotify_rm_watch", "io_cancel", "io_destroy", "io_getevents", "io_pgetevents", "io_setup",
	"io_submit", "ioctl", "ioprio_get", "ioprio_set", "kill", "landlock_add_rule",
	"landlock_create_ruleset", "landlock_restrict_self", "lchown", "lgetxattr", "link",
	"linkat", "listen", "listxattr", "llistxattr", "lremovexattr", "lseek", "lsetxattr",
	"lstat", "madvise", "membarrier", "memfd_create", "memfd_secret", "mincore", "mkdir",
	"mkdirat", "mlock", "mlock2", "mlockall", "mmap", "mprotect", "mq_getsetattr", "mq_notify",
	"mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink", "mremap", "msgctl", "msgget",
	"msgrcv", "msgsnd", "msync", "munlock", "munlockall", "munmap", "nanosleep", "newfstatat",
	"openat2", "pause", "pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc",
	"pkey_free", "pkey_mprotect", "poll", "ppoll", "prctl", "pread64", "preadv", "preadv2",
	"prlimit64", "process_madvise", "process_mrelease", "process_vm_readv", "pselect6",
	"ptrace", "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat",
	"readv", "recvfrom", "recvmmsg", "recvmsg", "remap_file_pages", "removexattr", "rename",
	"renameat", "renameat2", "restart_syscall", "rmdir", "rseq", "rt_sigaction",
	"rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
	"rt_sigtimedwait", "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min",
	"sched_getaffinity", "sched_getattr", "sched_getparam", "sched_getscheduler",
	"sched_rr_get_interval", "sched_setaffinity", "sched_setattr", "sched_setparam",
	"sched_setscheduler", "sched_yield", "seccomp", "select", "semctl", "semget", "semop",
	"semtimedop", "sendfile", "sendmmsg", "sendmsg", "sendto", "set_robust_list",
	"set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid", "setgroups",
	"setitimer", "setpgid", "setpriority", "setregid", "setresgid", "setresuid", "setreuid",
	"setrlimit", "setsid", "setsockopt", "setuid", "setxattr", "shmat", "shmctl", "shmdt",
	"shmget", "shutdown", "sigaltstack", "signalfd", "signalfd4", "socketpair", "splice",
	"stat", "statfs", "statx", "symlink", "symlinkat", "sync", "sync_file_range", "syncfs",
	"sysinfo", "tee", "tgkill", "time", "timer_create", "timer_delete", "timer_getoverrun",
	"timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
	"times", "tkill", "truncate", "umask", "uname", "unlink", "unlinkat", "utime", "utimensat",
	"utimes", "vfork", "wait4", "waitid", "waitpid", "write", "writev",
};
// clang-format on

/*
 * What init and a file worker need where nothing is executed and every mount is read-only.
 * openat2 stays without conditions: its flags can't be seen here, and that nothing is
 * written is the mounts' part.
 */
// clang-format off
static const char *const allowed_files[] = {
	/* the loop: connections, timers, children */
	"accept4", "clock_gettime", "clock_nanosleep", "close", "close_range", "dup", "dup3",
	"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_wait", "fcntl", "getsockopt",
	"nanosleep", "pipe2", "poll", "ppoll", "recvfrom", "recvmsg", "sendmsg", "sendto",
	"setitimer", "setsockopt", "shutdown", "signalfd4", "timerfd_create", "timerfd_settime",
	"wait4", "waitid",
	/* becoming a worker, and ending one */
	"capset", "exit", "exit_group", "kill", "pidfd_open", "pidfd_send_signal", "prctl",
	"prlimit64", "setgroups", "setresgid", "setresuid", "setrlimit", "setsid", "umask",
	/* files */
	"chdir", "faccessat", "faccessat2", "fadvise64", "fchdir", "fgetxattr", "flistxattr",
	"fstat", "fstatfs", "getdents64", "getxattr", "lgetxattr", "listxattr", "llistxattr",
	"lseek", "newfstatat", "openat2", "pread64", "preadv", "read", "readahead", "readlink",
	"readlinkat", "readv", "sendfile", "splice", "statfs", "statx", "write", "writev",
	/* the C library */
	"brk", "capget", "futex", "getegid", "geteuid", "getgid", "getpid", "getppid", "getrandom",
	"getrlimit", "gettid", "getuid", "madvise", "mremap", "munmap", "restart_syscall",
	"rseq", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_yield",
	"set_robust_list", "set_tid_address", "sigaltstack", "tgkill",
};
// clang-format on

/* Younger than this libseccomp's table; the same number on every architecture. */
enum {
	NR_MAP_SHADOW_STACK = 453,
	NR_FCHMODAT2 = 452,
	NR_FUTEX_WAKE = 454,
	NR_FUTEX_WAIT = 455,
	NR_FUTEX_REQUEUE = 456,
	NR_MSEAL = 462,
	NR_NEWEST = 480
};
static const int allowed_numbers[] = { NR_MAP_SHADOW_STACK, NR_FUTEX_WAKE, NR_FUTEX_WAIT,
				       NR_FUTEX_REQUEUE, NR_MSEAL };

/* Everything of clone(2) that would make a namespace. */
#define CLONE_NAMESPACES                                                                         \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | (uint64_t)CLONE_NEWUSER | \
	 CLONE_NEWPID | CLONE_NEWNET)

/* Without the part of O_TMPFILE that is O_DIRECTORY. */
#define OPEN_MAKES (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))

#define LOW32 0xffffffffull

struct builder {
	scmp_filter_ctx ctx;
	int rc; /* the first failure, -errno */
};

static void rule(struct builder *b, uint32_t action, int nr, unsigned n,
		 const struct scmp_arg_cmp *args)
{
	int rc;

	/* Negative: this architecture has no such call. */
	if (nr < 0 || b->rc < 0)
		return;
	rc = seccomp_rule_add_exact_array(b->ctx, action, nr, n, args);
	if (rc < 0 && rc != -EEXIST)
		b->rc = rc;
}

static int number(const char *name)
{
	return seccomp_syscall_resolve_name(name);
}

static void allow_if(struct builder *b, int nr, struct scmp_arg_cmp a)
{
	rule(b, SCMP_ACT_ALLOW, nr, 1, &a);
}

static void allow_if2(struct builder *b, int nr, struct scmp_arg_cmp a, struct scmp_arg_cmp c)
{
	const struct scmp_arg_cmp both[] = { a, c };

	rule(b, SCMP_ACT_ALLOW, nr, 2, both);
}

static struct scmp_arg_cmp bits_are(unsigned arg, uint64_t mask, uint64_t value)
{
	return SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, mask, value);
}

/*
 * A file's owner outside may be a person, or root (a volume of theirs).  A setuid
 * file made there by the session would be run by others with their rights.
 */
static void mode_rules(struct builder *b, uint64_t bad)
{
	static const uint64_t node_types[] = { 0, S_IFREG, S_IFIFO, S_IFSOCK };

	allow_if(b, number("chmod"), bits_are(1, bad, 0));
	allow_if(b, number("fchmod"), bits_are(1, bad, 0));
	allow_if(b, number("fchmodat"), bits_are(2, bad, 0));
	allow_if(b, NR_FCHMODAT2, bits_are(2, bad, 0));
	allow_if(b, number("creat"), bits_are(1, bad, 0));
	/* The mode is only looked at (and only then not garbage) when a file is made. */
	allow_if(b, number("open"), bits_are(1, OPEN_MAKES, 0));
	allow_if(b, number("open"), bits_are(2, bad, 0));
	allow_if(b, number("openat"), bits_are(2, OPEN_MAKES, 0));
	allow_if(b, number("openat"), bits_are(3, bad, 0));
	/* No devices; 0:0 (a whiteout) needs no privilege and is one as well. */
	for (size_t i = 0; i < ARRAY_SIZE(node_types); i++) {
		allow_if(b, number("mknod"), bits_are(1, bad | S_IFMT, node_types[i]));
		allow_if(b, number("mknodat"), bits_are(2, bad | S_IFMT, node_types[i]));
	}
}

static void socket_rules(struct builder *b)
{
	/* Default, TCP, UDP, ICMP and ICMPv6: no family or protocol that loads rare modules. */
	static const uint64_t protocols[] = { 0, 6, 17, 1, 58 };
	int nr = number("socket");

	allow_if(b, nr, bits_are(0, LOW32, AF_UNIX));
	allow_if2(b, nr, bits_are(0, LOW32, AF_NETLINK), bits_are(2, LOW32, 0));
	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++) {
		allow_if2(b, nr, bits_are(0, LOW32, AF_INET), bits_are(2, LOW32, protocols[i]));
		allow_if2(b, nr, bits_are(0, LOW32, AF_INET6), bits_are(2, LOW32, protocols[i]));
	}
}

static void other_rules(struct builder *b)
{
	/* Linux, its 32-bit and its "uname 2.6" faces, and the question which one it is. */
	static const uint64_t personas[] = { 0, 8, 0x20000, 0x20008, 0xffffffff };

	for (size_t i = 0; i < ARRAY_SIZE(personas); i++)
		allow_if(b, number("personality"), bits_are(0, LOW32, personas[i]));
	allow_if(b, number("clone"), bits_are(0, CLONE_NAMESPACES, 0));
}

static void files_rules(struct builder *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(allowed_files); i++)
		rule(b, SCMP_ACT_ALLOW, number(allowed_files[i]), 0, NULL);
	allow_if(b, number("openat"), bits_are(2, O_WRONLY | O_RDWR | O_TRUNC | OPEN_MAKES, 0));
	allow_if(b, number("mmap"), bits_are(2, PROT_EXEC, 0));
	allow_if(b, number("mprotect"), bits_are(2, PROT_EXEC, 0));
	/* A worker is a fork, and adds a filter of its own. */
	allow_if(b, number("clone"), bits_are(0, CLONE_NAMESPACES, 0));
	rule(b, SCMP_ACT_ERRNO(ENOSYS), number("clone3"), 0, NULL);
	allow_if2(b, number("seccomp"), bits_are(0, LOW32, SECCOMP_SET_MODE_FILTER),
		  bits_are(1, LOW32, 0));
}

static void list_rules(struct builder *b)
{
	for (size_t i = 0; i < ARRAY_SIZE(allowed); i++)
		rule(b, SCMP_ACT_ALLOW, number(allowed[i]), 0, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(allowed_numbers); i++)
		rule(b, SCMP_ACT_ALLOW, allowed_numbers[i], 0, NULL);
	/* Calls that nobody here has heard of don't exist, so that libraries fall back. */
	for (int nr = NR_FUTEX_REQUEUE + 1; nr <= NR_NEWEST; nr++)
		if (nr != NR_MSEAL)
			rule(b, SCMP_ACT_ERRNO(ENOSYS), nr, 0, NULL);
}

/*
 * Put in front of what libseccomp made, because it can't say "all but these" of
 * one argument: ioctls that push input into a terminal or change its discipline.
 * Only the low half counts, as in the kernel.
 */
static const struct sock_filter ioctl_guard[] = {
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5),
	BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 2, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCLINUX, 1, 0),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSETD, 0, 1),
	BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
};

static int export(scmp_filter_ctx ctx, struct filter *ret, struct garret_error *err)
{
	autoclose int fd = memfd_create("filter", MFD_CLOEXEC);
	off_t n;
	char *code;
	int rc;

	if (fd < 0)
		return garret_fail_errno(err, "memory for a filter");
	rc = seccomp_export_bpf(ctx, fd);
	n = lseek(fd, 0, SEEK_END);
	if (rc < 0 || n <= 0 || n % (off_t)sizeof(struct sock_filter))
		return garret_fail(err, GARRET_INTERNAL, "export the system call filter");
	code = xmalloc(sizeof(ioctl_guard) + (size_t)n);
	memcpy(code, ioctl_guard, sizeof(ioctl_guard));
	if (pread(fd, code + sizeof(ioctl_guard), (size_t)n, 0) != (ssize_t)n) {
		free(code);
		return garret_fail(err, GARRET_INTERNAL, "read the system call filter back");
	}
	*ret = (struct filter){ code, sizeof(ioctl_guard) + (size_t)n };
	return 0;
}

int filter_compile(enum filter_kind kind, struct filter *ret, struct garret_error *err)
{
	struct builder b = { .ctx = seccomp_init(SCMP_ACT_ERRNO(EPERM)) };
	int rc;

	if (!b.ctx)
		return garret_fail(err, GARRET_INTERNAL, "start a system call filter");
	/* Another architecture's calls have other numbers: the list would not mean what it says. */
	b.rc = seccomp_attr_set(b.ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (b.rc == 0)
		b.rc = seccomp_attr_set(b.ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (kind == FILTER_FILES) {
		files_rules(&b);
	} else {
		list_rules(&b);
		mode_rules(&b, kind == FILTER_NO_SUID_SGID ? S_ISUID | S_ISGID : S_ISUID);
		socket_rules(&b);
		other_rules(&b);
	}
	if (b.rc < 0)
		rc = garret_fail(err, GARRET_INTERNAL, "build the system call filter: %s",
				 strerror(-b.rc));
	else
		rc = export(b.ctx, ret, err);
	seccomp_release(b.ctx);
	return rc;
}

void filter_release(struct filter *f)
{
	free(f->code);
	*f = (struct filter){ NULL, 0 };
}

int filter_load(const void *code, size_t bytes)
{
	struct sock_fprog p = {
		.len = (unsigned short)(bytes / sizeof(struct sock_filter)),
		.filter = (struct sock_filter *)(uintptr_t)code,
	};

	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &p);
}
