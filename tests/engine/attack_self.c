/* Attempts to become more: namespaces, mounts, pid 1, ids and capabilities. */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

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
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap) >= 0; cap++)
		if (prctl(PR_CAPBSET_READ, cap) == 1) {
			note("bounding set has %d", cap);
			(void)held(0);
		}
}

static void new_privs(void)
{
	(void)held(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)
		(void)held(0);
}

/* ---- later rows ---- */

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

// clang-format off
const struct attack_row attack_self_rows[] = {
	{ 2, "unshare(NEWUSER)", unshare_user },
	{ 3, "unshare(NEWNS)", unshare_mounts },
	{ 4, "clone3(NEWUSER)", clone3_user },
	{ 5, "clone(NEWNET)", clone_net },
	{ 6, "mount tmpfs", mount_tmpfs },
	{ 7, "bind mount / over /mnt", mount_bind },
	{ 8, "remount /proc/sys rw", remount_sys },
	{ 9, "umount the mask of /proc/keys", umount_keys },
	{ 10, "umount /proc/sys", umount_sys },
	{ 11, "open_tree clone", clone_tree },
	{ 12, "fsopen proc", fsopen_proc },
	{ 13, "pivot_root", pivot },
	{ 14, "chroot", change_root },
	{ 15, "setns own mnt ns", setns_own },
	{ 16, "open /proc/1/ns/mnt", open_ns_of_1 },
	{ 17, "open /proc/1/root/", open_root_of_1 },
	{ 18, "list /proc/1/fd", list_fds_of_1 },
	{ 19, "readlink /proc/1/exe", exe_of_1 },
	{ 20, "write /proc/1/mem", write_memory_of_1 },
	{ 21, "ptrace attach pid 1", ptrace_1 },
	{ 22, "process_vm_readv pid 1", read_memory_of_1 },
	{ 23, "pidfd_getfd(pid1, 3)", fd_of_1 },
	{ 24, "kill -9 pid 1", kill_1 },
	{ 25, "prlimit on pid 1", prlimit_1 },
	{ 26, "sched_setscheduler FIFO", real_time },
	{ 67, "setuid to unmapped 70000", unmapped_user },
	{ 68, "setgroups unmapped", unmapped_group },
	{ 69, "create a setuid file", set_user_id_file },
	{ 70, "setxattr trusted.overlay.opaque", opaque },
	{ 71, "setxattr security.capability", file_caps },
	{ 72, "capset full", all_caps },
	{ 73, "disable no_new_privs", new_privs },
	{ 89, "setuid mode of a new file", set_user_id_new },
	{ 90, "openat2 with a setuid mode", openat2_mode },
	{ 0, NULL, NULL },
};
// clang-format on
