#include "engine/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/mount.h"
#include "engine/net.h"
#include "engine/userns.h"
#include "io/msg.h"

#define DOCTOR_MS 10000

struct doctor {
	struct engine *engine;
	int sock;
	int pidfd;
	struct loop_io io;
	void (*fn)(void *ctx, const struct doctor_row *row);
	void *ctx;
};

/* In the child: one row. */
static void row(int sock, enum doctor_level level, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

static void row(int sock, enum doctor_level level, const char *name, const char *fmt, ...)
{
	struct doctor_row r = { .level = (uint8_t)level };
	va_list ap;

	(void)snprintf(r.name, sizeof(r.name), "%s", name);
	va_start(ap, fmt);
	(void)vsnprintf(r.text, sizeof(r.text), fmt, ap);
	va_end(ap);
	(void)msg_send(sock, &r, sizeof(r), NULL, 0, NULL);
}

static void see_kernel(int sock)
{
	struct utsname u;
	unsigned long major, minor;
	char *rest;

	(void)uname(&u);
	major = strtoul(u.release, &rest, 10);
	minor = *rest == '.' ? strtoul(rest + 1, NULL, 10) : 0;
	if (major < 5 || (major == 5 && minor < 15))
		row(sock, DOCTOR_MISSING, "kernel", "Linux %s; 5.15 is the oldest supported",
		    u.release);
	else
		row(sock, DOCTOR_OK, "kernel", "Linux %s %s", u.release, u.machine);
}

static void see_cgroups(const struct engine *e, int sock)
{
	static const char *const modes[] = { "none", "v1", "v2", "v1 for limits, v2 for grouping" };
	static const struct {
		uint8_t bit;
		const char *name, *without;
	} limits[] = {
		{ LIMIT_MEMORY, "limit memory", "a session can take all memory" },
		{ LIMIT_SWAP, "limit swap", "swap is not limited apart from memory" },
		{ LIMIT_CPUS, "limit cpus", "a session can use every CPU" },
		{ LIMIT_SHARES, "limit cpu shares", "sessions have no weights" },
		{ LIMIT_PIDS, "limit pids", "a fork bomb is only bounded by memory" },
	};
	struct sysinfo si = { 0 };

	row(sock, e->cg.mode == ENGINE_CGROUP_NONE ? DOCTOR_MISSING : DOCTOR_OK, "cgroup", "%s%s",
	    modes[e->cg.mode],
	    e->cg.mode == ENGINE_CGROUP_V1 ? "; runs have no groups of their own" : "");
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		row(sock, e->cg.limits & limits[i].bit ? DOCTOR_OK : DOCTOR_WEAKER, limits[i].name,
		    "%s", e->cg.limits & limits[i].bit ? "can be given" : limits[i].without);
	(void)sysinfo(&si);
	if (si.totalswap && !(e->cg.limits & LIMIT_SWAP))
		row(sock, DOCTOR_WEAKER, "swap", "this host swaps, and sessions may too");
}

static void see_idmap(const struct engine *e, int sock, int proc_fd)
{
	struct garret_error err = { 0 };
	uint32_t base = e->conf.id_start + SLOT_IDS, owner = e->conf.id_start + SLOT_IDS - 1;
	autoclose int ns = userns_idmap(proc_fd, base, e->conf.id_start, owner, owner, &err);
	autoclose int state = ns < 0 ? -EBADF : mount_clone(e->sessions_fd, "", false, &err);
	autoclose int root = ns < 0 ? -EBADF : mount_clone(e->workspaces_fd, "", false, &err);
	autoclose int session = userns_session(proc_fd, base, &err);

	if (e->own_fs)
		row(sock, DOCTOR_WEAKER, "store",
		    "an image, %s/store/image: the file system there can't be mounted with other "
		    "ids",
		    e->conf.state_dir);
	row(sock, session < 0 ? DOCTOR_MISSING : DOCTOR_OK, "user namespace", "%s",
	    session < 0 ? err.msg : "works");
	if (ns < 0 || state < 0 || root < 0 || mount_attr(state, false, 0, ns, &err) < 0 ||
	    mount_attr(root, false, 0, ns, &err) < 0)
		row(sock, DOCTOR_MISSING, "id-mapped mounts", "%s", err.msg);
	else
		row(sock, DOCTOR_OK, "id-mapped mounts",
		    "work on the state directory and the workspaces");
}

static void see_net(const struct engine *e, int sock, int proc_fd)
{
	struct garret_error err = { 0 };
	autoclose int fd = net_unshare(proc_fd, &err);

	if (fd < 0)
		row(sock, DOCTOR_MISSING, "network none", "%s", err.msg);
	else
		row(sock, DOCTOR_OK, "network none", "works, loopback only");
	row(sock, e->conf.networks & 1u << ENGINE_NET_HOST ? DOCTOR_OK : DOCTOR_WEAKER,
	    "network host", "%s",
	    e->conf.networks & 1u << ENGINE_NET_HOST ? "allowed by the configuration"
						     : "not allowed by the configuration");
	row(sock, DOCTOR_WEAKER, "network bridge", "not in this version");
}

static void see_filter(const struct engine *e, int sock)
{
	if (e->conf.no_filter)
		row(sock, DOCTOR_MISSING, "seccomp", "switched off: a test build");
	else
		row(sock, DOCTOR_OK, "seccomp", "%zu instructions",
		    e->filters[FILTER_NO_SUID].bytes / 8);
}

static bool overlaps(uint64_t start, uint64_t count, const struct engine *e)
{
	return start < (uint64_t)e->conf.id_start + e->conf.id_count &&
	       e->conf.id_start < start + count;
}

static void see_ids(const struct engine *e, int sock)
{
	autofile FILE *passwd = fopen("/etc/passwd", "re"), *subuid = fopen("/etc/subuid", "re");
	autofree char *line = NULL;
	struct passwd *p;
	size_t cap = 0;
	bool bad = false;

	while (passwd && (p = fgetpwent(passwd)))
		if (overlaps(p->pw_uid, 1, e)) {
			row(sock, DOCTOR_MISSING, "ids",
			    "the account %s lies in the engine's range", p->pw_name);
			bad = true;
		}
	while (subuid && getline(&line, &cap, subuid) > 0) {
		char *rest = strchr(line, ':');
		unsigned long start = rest ? strtoul(rest + 1, &rest, 10) : 0;

		if (rest && *rest == ':' && overlaps(start, strtoul(rest + 1, NULL, 10), e)) {
			row(sock, DOCTOR_MISSING, "ids", "/etc/subuid gives the range at %lu away",
			    start);
			bad = true;
		}
	}
	if (!bad)
		row(sock, DOCTOR_OK, "ids", "%u to %u are used by no account", e->conf.id_start,
		    e->conf.id_start + e->conf.id_count - 1);
	if (e->ids_fd < 0)
		row(sock, DOCTOR_WEAKER, "id claims",
		    "/run/garret can't be made: engines may share ids");
}

static void see_disk(const struct engine *e, int sock)
{
	if (e->disk.quota)
		row(sock, DOCTOR_OK, "limit disk", "project quotas");
	else if (e->disk.images)
		row(sock, DOCTOR_OK, "limit disk", "images in loop devices (%s)", e->disk.missing);
	else
		row(sock, e->conf.default_workspace ? DOCTOR_MISSING : DOCTOR_WEAKER, "limit disk",
		    "a session can fill the disk: %s", e->disk.missing);
}

static void see_rest(const struct engine *e, int sock)
{
	struct rlimit l = { 0 };
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, 1);

	if (e->zygote_err.code != GARRET_OK)
		row(sock, DOCTOR_MISSING, "runtime host", "%s", e->zygote_err.msg);
	else if (e->slot_err.code != GARRET_OK)
		row(sock, DOCTOR_MISSING, "runtime host", "%s", e->slot_err.msg);
	else
		row(sock, DOCTOR_OK, "runtime host", "%u slots exist, %u sessions", e->n_slots,
		    e->n_sessions);
	if (abi > 0)
		row(sock, DOCTOR_OK, "landlock", "ABI %ld (reported only)", abi);
	else
		row(sock, DOCTOR_OK, "landlock", "not available (not needed)");
	(void)getrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_cur / 4 < e->conf.max_sessions)
		row(sock, DOCTOR_WEAKER, "open files", "%llu allow about %llu sessions, not %u",
		    (unsigned long long)l.rlim_cur, (unsigned long long)l.rlim_cur / 4,
		    e->conf.max_sessions);
	else
		row(sock, DOCTOR_OK, "open files", "%llu", (unsigned long long)l.rlim_cur);
}

static void doctor_main(const struct engine *e, int sock)
{
	autoclose int proc_fd = mount_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, NULL);

	see_kernel(sock);
	see_cgroups(e, sock);
	see_idmap(e, sock, proc_fd);
	see_filter(e, sock);
	see_net(e, sock, proc_fd);
	see_ids(e, sock);
	see_disk(e, sock);
	see_rest(e, sock);
	_exit(0);
}

static void on_row(struct loop_io *io, uint32_t events)
{
	struct doctor *d = io->ctx;
	struct garret_error err = { 0 };
	struct doctor_row r;
	ssize_t n = msg_recv(d->sock, &r, sizeof(r), NULL, &err);

	if (n < 0 && err.sys == EAGAIN)
		return;
	if (n == sizeof(r)) {
		r.name[sizeof(r.name) - 1] = r.text[sizeof(r.text) - 1] = '\0';
		d->fn(d->ctx, &r);
		return;
	}
	loop_io_remove(&d->io);
	d->fn(d->ctx, NULL);
}

int doctor_start(struct engine *e, void (*fn)(void *ctx, const struct doctor_row *row_), void *ctx,
		 struct doctor **ret, struct garret_error *err)
{
	struct doctor *d;
	int pair[2], rc = msg_pair(pair, false, err);
	pid_t pid;

	if (rc < 0)
		return rc;
	pid = fork();
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		engine_keep_fds((const int[]){ pair[1], e->sessions_fd, e->workspaces_fd }, 3);
		(void)alarm(DOCTOR_MS / 1000);
		doctor_main(e, pair[1]);
	}
	fd_close(pair[1]);
	if (pid < 0) {
		fd_close(pair[0]);
		return garret_fail_errno(err, "fork the doctor");
	}
	d = xnew(struct doctor);
	*d = (struct doctor){
		.engine = e, .sock = pair[0], .pidfd = pidfd_open(pid, 0), .fn = fn, .ctx = ctx
	};
	d->io.fd = -EBADF;
	(void)fd_set_nonblock(d->sock, true);
	rc = loop_io_add(e->loop, &d->io, d->sock, EPOLLIN, on_row, d, err);
	if (rc < 0)
		d = doctor_stop(d);
	*ret = d;
	return rc;
}

struct doctor *doctor_stop(struct doctor *d)
{
	if (!d)
		return NULL;
	loop_io_remove(&d->io);
	fd_close(d->sock);
	if (d->pidfd >= 0)
		(void)pidfd_send_signal(d->pidfd, SIGKILL, NULL, 0);
	fd_close(d->pidfd);
	free(d);
	return NULL;
}
