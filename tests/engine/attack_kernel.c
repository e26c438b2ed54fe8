/* Attempts on the kernel: calls, sockets and devices that no command needs. */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <linux/perf_event.h>
#include <linux/reboot.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/quota.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef AF_VSOCK
#define AF_VSOCK 40
#endif

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

/* ---- later rows ---- */

/* The test has put it into the keyring of whoever started the engine. */
static void host_key(void)
{
	(void)held(syscall(SYS_keyctl, KEYCTL_SEARCH, KEY_SPEC_SESSION_KEYRING, "user",
			   "garret-canary", 0));
	(void)held(syscall(SYS_request_key, "user", "garret-canary", NULL, 0));
	if (syscall(SYS_keyctl, KEYCTL_READ, KEY_SPEC_SESSION_KEYRING, NULL, 0) > 0)
		(void)held(0);
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
const struct attack_row attack_kernel_rows[] = {
	{ 40, "bpf()", load_bpf },
	{ 41, "perf_event_open", perf_kernel },
	{ 42, "userfaultfd", uffd },
	{ 43, "io_uring_setup", uring },
	{ 44, "keyctl get session keyring", session_keyring },
	{ 45, "add_key", add_one_key },
	{ 46, "open_by_handle_at", open_handle },
	{ 47, "name_to_handle_at", name_handle },
	{ 48, "socket AF_ALG", alg },
	{ 49, "socket AF_VSOCK", vsock },
	{ 50, "socket AF_PACKET", packet },
	{ 51, "socket AF_INET RAW", raw_inet },
	{ 52, "AF_NETLINK NETFILTER create", netfilter },
	{ 53, "ioctl TIOCSTI", tiocsti },
	{ 54, "ioctl TIOCSTI high bits", tiocsti_high },
	{ 55, "ioctl TIOCLINUX", tioclinux },
	{ 56, "x32 system call bit", x32 },
	{ 57, "int80 32-bit getpid", int80 },
	{ 58, "personality(ADDR_NO_RANDOMIZE)", no_randomize },
	{ 59, "kexec_load", kexec },
	{ 60, "init_module", module },
	{ 61, "reboot", do_reboot },
	{ 62, "swapon", swap },
	{ 63, "settimeofday", set_time },
	{ 64, "sethostname", host_name },
	{ 65, "iopl", io_privilege },
	{ 66, "quotactl", quota },
	{ 91, "ioctl TIOCSETD", line_discipline },
	{ 92, "other netlink protocols", other_netlink },
	{ 93, "rare socket families", rare_families },
	{ 94, "rare protocols", rare_protocols },
	{ 95, "vmsplice", page_tools },
	{ 97, "clock_settime", set_clock },
	{ 98, "modify_ldt", modify_segments },
	{ 99, "perf_event_open, user only", perf_user },
	{ 100, "userfaultfd, user only", uffd_user },
	{ 103, "find a key of the host", host_key },
	{ 0, NULL, NULL },
};
// clang-format on
