/*
 * Which processes belong to whom.  A run owns the processes of its POSIX
 * session, whose number is the pid of its command; the number stays taken while
 * one of them lives.  The leaf cgroup says where to look; without one the whole
 * of /proc is walked.
 */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "init/session.h"

#define RECOUNT_MAX 16 /* lingering leaves looked at for one answer */

struct visit {
	struct session *s;
	int sid;                      /* of the run we look for, or 0 */
	void (*fn)(int pid, int sid); /* may be NULL */
	uint32_t count;
};

static void visit_member(struct visit *v, int pid)
{
	if (v->sid && getsid(pid) != v->sid)
		return;
	v->count++;
	if (v->fn)
		v->fn(pid, v->sid);
}

/* Each process of the leaf; those outside our pid namespace show as 0. */
static void each_of_leaf(const struct leaf *l, struct visit *v)
{
	char path[48] = "", buf[1024];
	size_t name = strlen(l->name);
	autoclose int fd = -EBADF;
	int pid = 0;
	ssize_t n;

	memcpy(path, l->name, name);
	memcpy(path + name, "/cgroup.procs", sizeof("/cgroup.procs"));
	fd = openat(v->s->p.cgroup_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((n = read(fd, buf, sizeof(buf))) > 0)
		for (ssize_t i = 0; i < n; i++) {
			if (isdigit((unsigned char)buf[i])) {
				pid = pid * 10 + (buf[i] - '0');
				continue;
			}
			if (pid > 0)
				visit_member(v, pid);
			pid = 0;
		}
}

bool procs_look(int proc_fd, int pid, int *ret_parent)
{
	char path[32], buf[512];
	const char *end;

	(void)snprintf(path, sizeof(path), "%d/stat", pid);
	if (read_file_at(proc_fd, path, buf, sizeof(buf)) <= 0)
		return false;
	end = strrchr(buf, ')'); /* the program's name may have any byte */
	if (!end || strlen(end) < sizeof(") S 1") - 1)
		return false;
	*ret_parent = (int)strtol(end + sizeof(") S ") - 1, NULL, 10);
	return end[2] != 'Z' && end[2] != 'X';
}

/*
 * Is it of this session at all?  Into a container others come from outside (their
 * parent is not to be seen), and where we are not pid 1 most are not ours.
 */
static bool is_ours(const struct session *s, int proc_fd, int parent)
{
	if (!s->p.container)
		return true;
	if (getpid() == 1)
		return parent != 0;
	for (int depth = 0; depth < 1000 && parent > 1; depth++) {
		if (parent == getpid())
			return true;
		if (!procs_look(proc_fd, parent, &parent))
			return false;
	}
	return false;
}

static bool owned_by_live_run(struct session *s, int sid, const struct run *but)
{
	struct run *r;

	list_foreach (r, &s->live, in_list)
		if (r != but && r->pid == sid)
			return true;
	return false;
}

/* Walk /proc.  sid 0: everything but us that no live run (other than `but`) owns. */
static void each_of_proc(struct visit *v, const struct run *but)
{
	autodir DIR *dir = opendir("/proc");
	struct dirent *e;

	while (dir && (e = readdir(dir))) {
		int pid = 0, sid, parent = 0;

		for (const char *c = e->d_name; isdigit((unsigned char)*c) && pid < 100000000; c++)
			pid = pid * 10 + (*c - '0');
		if (pid <= 1 || pid == getpid() || files_is_worker(v->s, pid))
			continue;
		sid = getsid(pid);
		if (sid < 0 || (v->sid ? sid != v->sid : owned_by_live_run(v->s, sid, but)))
			continue;
		if (procs_look(dirfd(dir), pid, &parent) &&
		    (v->sid || is_ours(v->s, dirfd(dir), parent)))
			visit_member(v, pid);
	}
}

unsigned procs_of(struct run *r, void (*fn)(int pid, int sid))
{
	struct visit v = { .s = r->s, .sid = r->pid, .fn = fn };

	if (r->pid <= 0)
		return 0;
	if (r->leaf)
		each_of_leaf(r->leaf, &v);
	else
		each_of_proc(&v, NULL);
	return v.count;
}

void procs_kill(int pid, int sid)
{
	autoclose int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	/* The pidfd pins who it is; only then the question whose it is means something. */
	if (fd >= 0 && getsid(pid) == sid)
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

uint32_t procs_in_leaf(struct session *s, const struct leaf *l)
{
	struct visit v = { .s = s };

	each_of_leaf(l, &v);
	return v.count;
}

uint32_t procs_background(struct session *s, struct run *r)
{
	struct visit v = { .s = s };
	int left = RECOUNT_MAX;
	struct leaf *l;

	if (s->childless)
		return 0;
	if (s->last_leaf == 0 || (r && !r->leaf)) {
		each_of_proc(&v, r);
		return v.count;
	}
	if (r)
		each_of_leaf(r->leaf, &v);
	list_foreach (l, &s->used_leaves, link)
		each_of_leaf(l, &v);
	list_foreach (l, &s->lingering_leaves, link) {
		if (left-- > 0)
			l->procs = procs_in_leaf(s, l);
		v.count += l->procs;
	}
	return v.count;
}
