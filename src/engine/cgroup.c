#include "engine/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "engine/mount.h"

static const char *const v1_names[CG_UNIFIED] = {
	[CG_MEMORY] = "memory",
	[CG_PIDS] = "pids",
	[CG_CPU] = "cpu",
	[CG_CPUACCT] = "cpuacct",
};

/* Every run has a leaf, and init keeps two ready. */
#define DESCENDANTS_MAX (INIT_RUNS_MAX + 8)
#define CPU_PERIOD_US 100000u

static bool has_word(const char *list, const char *word, const char *separators)
{
	size_t n = strlen(word);

	for (const char *p = list; *p;) {
		size_t len = strcspn(p, separators);

		if (len == n && !memcmp(p, word, n))
			return true;
		p += len;
		p += strspn(p, separators);
	}
	return false;
}

/* One line of mountinfo: ... root mount-point options - type source super-options. */
static void take_mount(struct cgroups *cg, char *line)
{
	char *fields[5] = { NULL }, *type, *super, *save = NULL, *p = line;
	int fd;

	for (int i = 0; i < 5 && p; i++)
		fields[i] = strsep(&p, " ");
	type = p ? strstr(p, " - ") : NULL;
	if (!type || !fields[4])
		return;
	type = strtok_r(type + 3, " ", &save);
	(void)strtok_r(NULL, " ", &save);
	super = strtok_r(NULL, " \n", &save);
	if (!type || (strcmp(type, "cgroup") != 0 && strcmp(type, "cgroup2") != 0))
		return;
	fd = open(fields[4], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (!strcmp(type, "cgroup2") && cg->above[CG_UNIFIED] < 0)
		cg->above[CG_UNIFIED] = take_fd(&fd);
	for (int h = 0; h < CG_UNIFIED && fd >= 0 && super && !strcmp(type, "cgroup"); h++)
		if (cg->above[h] < 0 && has_word(super, v1_names[h], ","))
			cg->above[h] = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	fd_close(fd);
}

static int find_mounts(struct cgroups *cg, struct garret_error *err)
{
	autofile FILE *f = fopen("/proc/self/mountinfo", "re");
	autofree char *line = NULL;
	size_t cap = 0;

	if (!f)
		return garret_fail_errno(err, "read the mounts");
	while (getline(&line, &cap, f) > 0)
		take_mount(cg, line);
#ifdef GARRET_TEST_SWITCHES
	/* As on a host with cgroup v1 only. */
	if (getenv("GARRET_TEST_NO_CGROUP2")) {
		cg->above[CG_UNIFIED] = fd_close(cg->above[CG_UNIFIED]);
		return 0;
	}
#endif
	if (cg->above[CG_UNIFIED] < 0)
		cg->above[CG_UNIFIED] =
			mount_new("cgroup2", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, NULL);
	return 0;
}

/* Controllers of dir passed on to its children; what can't be is simply not available. */
static void pass_controllers(int dir)
{
	static const char *const wanted[] = { "+memory", "+pids", "+cpu", "+io" };

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		(void)write_file_at(dir, "cgroup.subtree_control", wanted[i]);
}

/* <parent>/<instance> in one hierarchy.  Another engine may remove an empty parent meanwhile. */
static int open_own(const struct cgroups *cg, enum cgroup_hierarchy h)
{
	for (int tries = 0; tries < 8; tries++) {
		autoclose int parent = -EBADF;
		int fd;

		if (mkdirat(cg->above[h], cg->parent, 0755) < 0 && errno != EEXIST)
			return -EBADF;
		if (h == CG_UNIFIED)
			pass_controllers(cg->above[h]);
		parent = open_beneath(cg->above[h], cg->parent, O_RDONLY | O_DIRECTORY, 0);
		if (parent < 0)
			continue;
		/* Before 5.11 a v1 hierarchy had to be told; later this is refused or ignored. */
		if (h == CG_MEMORY)
			(void)write_file_at(parent, "memory.use_hierarchy", "1");
		if (h == CG_UNIFIED)
			pass_controllers(parent);
		if (mkdirat(parent, cg->instance, 0755) < 0 && errno != EEXIST)
			continue;
		fd = open_beneath(parent, cg->instance, O_RDONLY | O_DIRECTORY, 0);
		if (fd >= 0 && h == CG_UNIFIED)
			pass_controllers(fd);
		if (fd >= 0)
			return fd;
	}
	return -EBADF;
}

static bool there(int dir, const char *file)
{
	return dir >= 0 && faccessat(dir, file, F_OK, 0) == 0;
}

static void find_limits(struct cgroups *cg)
{
	char text[256] = "";
	bool v1 = cg->dir[CG_MEMORY] >= 0 || cg->dir[CG_PIDS] >= 0 || cg->dir[CG_CPU] >= 0;
	int v2 = cg->dir[CG_UNIFIED];

	if (v2 >= 0)
		(void)read_file_at(v2, "cgroup.subtree_control", text, sizeof(text));
	if (!v1) {
		cg->mode = v2 >= 0 ? ENGINE_CGROUP_V2 : ENGINE_CGROUP_NONE;
		cg->limits = (has_word(text, "memory", " \n") ? LIMIT_MEMORY : 0) |
			     (has_word(text, "memory", " \n") && there(v2, "memory.swap.max")
				      ? LIMIT_SWAP
				      : 0) |
			     (has_word(text, "cpu", " \n") ? LIMIT_CPUS | LIMIT_SHARES : 0) |
			     (has_word(text, "pids", " \n") ? LIMIT_PIDS : 0);
		return;
	}
	cg->mode = v2 >= 0 ? ENGINE_CGROUP_HYBRID : ENGINE_CGROUP_V1;
	cg->limits = (there(cg->dir[CG_MEMORY], "memory.limit_in_bytes") ? LIMIT_MEMORY : 0) |
		     (there(cg->dir[CG_MEMORY], "memory.memsw.limit_in_bytes") ? LIMIT_SWAP : 0) |
		     (there(cg->dir[CG_CPU], "cpu.cfs_quota_us") ? LIMIT_CPUS : 0) |
		     (there(cg->dir[CG_CPU], "cpu.shares") ? LIMIT_SHARES : 0) |
		     (cg->dir[CG_PIDS] >= 0 ? LIMIT_PIDS : 0);
}

int cgroups_open(struct cgroups *cg, const char *parent, const char *instance,
		 struct garret_error *err)
{
	int rc;

	*cg = (struct cgroups){ .mode = ENGINE_CGROUP_NONE };
	for (int h = 0; h < CG_HIERARCHIES; h++)
		cg->dir[h] = cg->above[h] = -EBADF;
	(void)snprintf(cg->parent, sizeof(cg->parent), "%s", parent);
	(void)snprintf(cg->instance, sizeof(cg->instance), "%s", instance);
	rc = find_mounts(cg, err);
	if (rc < 0)
		return rc;
	for (int h = 0; h < CG_HIERARCHIES; h++)
		if (cg->above[h] >= 0)
			cg->dir[h] = open_own(cg, h);
	find_limits(cg);
	return 0;
}

/* Twice: nobody comes back for it, and the kernel may have been short of memory. */
static void remove_empty(int parent, const char *name)
{
	if (unlinkat(parent, name, AT_REMOVEDIR) < 0)
		(void)unlinkat(parent, name, AT_REMOVEDIR);
}

void cgroups_done(struct cgroups *cg)
{
	for (int h = 0; h < CG_HIERARCHIES; h++) {
		autoclose int parent = -EBADF;

		if (cg->dir[h] >= 0 && cg->above[h] >= 0)
			parent = open_beneath(cg->above[h], cg->parent, O_RDONLY | O_DIRECTORY, 0);
		if (parent >= 0) {
			remove_empty(parent, cg->instance);
			remove_empty(cg->above[h], cg->parent); /* others' may be in it */
		}
		cg->dir[h] = fd_close(cg->dir[h]);
		cg->above[h] = fd_close(cg->above[h]);
	}
}

/* cpu and cpuacct may be one hierarchy: then the second mkdir finds the first's directory. */
static int make_dir(const struct cgroups *cg, enum cgroup_hierarchy h, const char *name)
{
	struct stat a, b;

	if (mkdirat(cg->dir[h], name, 0755) == 0)
		return 0;
	if (errno == EEXIST && h == CG_CPUACCT && cg->dir[CG_CPU] >= 0 &&
	    fstat(cg->dir[h], &a) == 0 && fstat(cg->dir[CG_CPU], &b) == 0 && a.st_dev == b.st_dev &&
	    a.st_ino == b.st_ino)
		return 0;
	return -1;
}

/* The slot's directory and the two cgroup.procs that moving between leaves needs. */
static int make_unified(int dir, const char *name, uint32_t owner, struct garret_error *err)
{
	autoclose int fd = -EBADF;

	if (mkdirat(dir, name, 0755) < 0)
		return garret_fail_errno(err, "make a control group");
	fd = open_beneath(dir, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0 || mkdirat(fd, "init", 0755) < 0)
		return garret_fail_errno(err, "make a control group for init");
	if (write_file_atf(fd, "cgroup.max.descendants", "%d", DESCENDANTS_MAX) < 0)
		return garret_fail_errno(err, "bound the control groups of a session");
	if (fchown(fd, owner, owner) < 0 || fchownat(fd, "cgroup.procs", owner, owner, 0) < 0 ||
	    fchownat(fd, "init/cgroup.procs", owner, owner, 0) < 0)
		return garret_fail_errno(err, "hand a control group to init");
	return 0;
}

int cgroups_enter(const struct cgroups *cg, const char *name, uint32_t owner,
		  struct garret_error *err)
{
	char path[128];

	for (int h = 0; h < CG_HIERARCHIES; h++) {
		int rc = 0;

		if (cg->dir[h] < 0)
			continue;
		if (h == CG_UNIFIED)
			rc = make_unified(cg->dir[h], name, owner, err);
		else if (make_dir(cg, h, name) < 0)
			rc = garret_fail_errno(err, "make a %s control group", v1_names[h]);
		if (rc < 0)
			return rc;
		(void)snprintf(path, sizeof(path), "%s/cgroup.procs", name);
		if (write_file_at(cg->dir[h], path, "0") < 0)
			return garret_fail_errno(err, "enter a control group");
	}
	/*
	 * Begun in the slot's own group and not in init's leaf: where cgroup2 is mounted with
	 * nsdelegate, nothing can be moved to what lies outside of the namespace's root.
	 */
	if (unshare(CLONE_NEWCGROUP) < 0)
		return garret_fail_errno(err, "make a control group namespace");
	(void)snprintf(path, sizeof(path), "%s/init/cgroup.procs", name);
	if (cg->dir[CG_UNIFIED] >= 0 && write_file_at(cg->dir[CG_UNIFIED], path, "0") < 0)
		return garret_fail_errno(err, "enter init's control group");
	return 0;
}

static int put(int dir, const char *name, const char *file, uint64_t value,
	       struct garret_error *err)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", name, file);
	if (write_file_atf(dir, path, "%llu", (unsigned long long)value) < 0)
		return garret_fail_errno(err, "set %s to %llu", file, (unsigned long long)value);
	return 0;
}

static int set_v1(const struct cgroups *cg, const char *name, const struct cgroup_limits *l,
		  struct garret_error *err)
{
	int mem = cg->dir[CG_MEMORY], cpu = cg->dir[CG_CPU], rc = 0;

	if (cg->limits & LIMIT_MEMORY)
		rc = put(mem, name, "memory.limit_in_bytes", l->memory_bytes, err);
	if (rc == 0 && cg->limits & LIMIT_SWAP)
		rc = put(mem, name, "memory.memsw.limit_in_bytes", l->memory_swap_bytes, err);
	if (rc == 0 && cg->limits & LIMIT_PIDS)
		rc = put(cg->dir[CG_PIDS], name, "pids.max", l->pids + 1ull, err);
	if (rc == 0 && cg->limits & LIMIT_CPUS && l->cpu_millis) {
		rc = put(cpu, name, "cpu.cfs_period_us", CPU_PERIOD_US, err);
		if (rc == 0)
			rc = put(cpu, name, "cpu.cfs_quota_us",
				 MAX(1000u, l->cpu_millis * (CPU_PERIOD_US / 1000u)), err);
	}
	if (rc == 0 && cg->limits & LIMIT_SHARES && l->cpu_shares)
		rc = put(cpu, name, "cpu.shares", l->cpu_shares, err);
	return rc;
}

static int set_v2(const struct cgroups *cg, const char *name, const struct cgroup_limits *l,
		  struct garret_error *err)
{
	int dir = cg->dir[CG_UNIFIED], rc = 0;
	char path[128];

	if (cg->limits & LIMIT_MEMORY)
		rc = put(dir, name, "memory.max", l->memory_bytes, err);
	if (rc == 0 && cg->limits & LIMIT_SWAP)
		rc = put(dir, name, "memory.swap.max", l->memory_swap_bytes - l->memory_bytes, err);
	if (rc == 0 && cg->limits & LIMIT_PIDS)
		rc = put(dir, name, "pids.max", l->pids + 1ull, err);
	if (rc == 0 && cg->limits & LIMIT_CPUS && l->cpu_millis) {
		(void)snprintf(path, sizeof(path), "%s/cpu.max", name);
		if (write_file_atf(dir, path, "%u %u",
				   MAX(1000u, l->cpu_millis * (CPU_PERIOD_US / 1000u)),
				   CPU_PERIOD_US) < 0)
			rc = garret_fail_errno(err, "set cpu.max");
	}
	/* 2..262144 of Docker's scale to 1..10000, as the kernel's own documents have it. */
	if (rc == 0 && cg->limits & LIMIT_SHARES && l->cpu_shares)
		rc = put(dir, name, "cpu.weight",
			 1 + (MAX(2u, MIN(l->cpu_shares, 262144u)) - 2ull) * 9999 / 262142, err);
	return rc;
}

int cgroups_set(const struct cgroups *cg, const char *name, const struct cgroup_limits *l,
		struct garret_error *err)
{
	if (cg->mode == ENGINE_CGROUP_V2)
		return set_v2(cg, name, l, err);
	return set_v1(cg, name, l, err);
}

/* ---- changing ---- */

static int put_text(int dir, const char *name, const char *file, const char *text,
		    struct garret_error *err)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", name, file);
	return write_file_at(dir, path, text) < 0
		       ? garret_fail_errno(err, "set %s to %s", file, text)
		       : 0;
}

/*
 * Memory may never be above memory and swap together, so what grows goes first.  The kernel
 * takes back what it can, and refuses what it can't: EBUSY.
 */
static int change_memory_v1(const struct cgroups *cg, const char *name,
			    const struct cgroup_limits *before, const struct cgroup_limits *l,
			    struct garret_error *err)
{
	const bool swap = cg->limits & LIMIT_SWAP,
		   grows = l->memory_swap_bytes > before->memory_swap_bytes;
	int mem = cg->dir[CG_MEMORY], rc = 0;

	if (swap && grows)
		rc = put(mem, name, "memory.memsw.limit_in_bytes", l->memory_swap_bytes, err);
	if (rc == 0)
		rc = put(mem, name, "memory.limit_in_bytes", l->memory_bytes, err);
	if (rc == 0 && swap && !grows)
		rc = put(mem, name, "memory.memsw.limit_in_bytes", l->memory_swap_bytes, err);
	return rc;
}

static uint64_t number(int dir, const char *name, const char *file, const char *word);

/*
 * Lowering memory.max below what is used would kill.  So memory.high comes first, which makes
 * the kernel take back what it can.
 */
static int change_memory_v2(const struct cgroups *cg, const char *name,
			    const struct cgroup_limits *l, struct garret_error *err)
{
	int dir = cg->dir[CG_UNIFIED], rc = put(dir, name, "memory.high", l->memory_bytes, err);
	uint64_t used = number(dir, name, "memory.current", NULL);

	if (rc == 0 && used != UINT64_MAX && used > l->memory_bytes)
		rc = garret_fail(err, GARRET_CONFLICT, "%llu bytes of memory are in use",
				 (unsigned long long)used);
	if (rc == 0)
		rc = put(dir, name, "memory.max", l->memory_bytes, err);
	if (put_text(dir, name, "memory.high", "max", NULL) < 0 && rc == 0)
		rc = garret_fail_errno(err, "set memory.high to max");
	if (rc == 0 && cg->limits & LIMIT_SWAP)
		rc = put(dir, name, "memory.swap.max", l->memory_swap_bytes - l->memory_bytes, err);
	return rc;
}

static int change_memory(const struct cgroups *cg, const char *name,
			 const struct cgroup_limits *before, const struct cgroup_limits *l,
			 struct garret_error *err)
{
	int rc;

	if (!(cg->limits & LIMIT_MEMORY) || (before->memory_bytes == l->memory_bytes &&
					     before->memory_swap_bytes == l->memory_swap_bytes))
		return 0;
	rc = cg->mode == ENGINE_CGROUP_V2 ? change_memory_v2(cg, name, l, err)
					  : change_memory_v1(cg, name, before, l, err);
	if (rc < 0 && err && err->sys == EBUSY)
		rc = garret_fail(
			err, GARRET_CONFLICT,
			"the session uses more than %llu bytes of memory, and they can't be "
			"taken back",
			(unsigned long long)l->memory_bytes);
	return rc;
}

/* cgroups_set() writes only what limits; what doesn't any more has to be taken back. */
static int lift(const struct cgroups *cg, const char *name, const struct cgroup_limits *before,
		const struct cgroup_limits *l, struct garret_error *err)
{
	const bool v2 = cg->mode == ENGINE_CGROUP_V2;
	int dir = v2 ? cg->dir[CG_UNIFIED] : cg->dir[CG_CPU], rc = 0;

	if (before->cpu_millis && !l->cpu_millis)
		rc = put_text(dir, name, v2 ? "cpu.max" : "cpu.cfs_quota_us", v2 ? "max" : "-1",
			      err);
	if (rc == 0 && before->cpu_shares && !l->cpu_shares)
		rc = put_text(dir, name, v2 ? "cpu.weight" : "cpu.shares", v2 ? "100" : "1024",
			      err);
	return rc;
}

static int change(const struct cgroups *cg, const char *name, const struct cgroup_limits *before,
		  const struct cgroup_limits *after, struct garret_error *err)
{
	struct cgroups rest = *cg; /* all but the memory, which is there by then */
	int rc = change_memory(cg, name, before, after, err);

	rest.limits &= (uint8_t) ~(LIMIT_MEMORY | LIMIT_SWAP);
	if (rc == 0)
		rc = cgroups_set(&rest, name, after, err);
	return rc < 0 ? rc : lift(cg, name, before, after, err);
}

int cgroups_change(const struct cgroups *cg, const char *name, const struct cgroup_limits *before,
		   const struct cgroup_limits *after, struct garret_error *err)
{
	int rc = change(cg, name, before, after, err);

	/* Whatever of it was done is undone: as if it went from there back. */
	if (rc < 0)
		(void)change(cg, name, after, before, NULL);
	return rc;
}

/* Remove a group and its children, depth first.  Sessions can't nest deeper than two. */
static int remove_group(int parent, const char *name, int depth)
{
	autoclose int fd = -EBADF;
	autodir DIR *d = NULL;
	struct dirent *e;

	if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
		return 0;
	fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0 || depth > 8)
		return -1;
	d = fdopendir(fd);
	if (!d)
		return -1;
	(void)take_fd(&fd); /* d's now */
	while ((e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			(void)remove_group(dirfd(d), e->d_name, depth + 1);
	return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -1;
}

int cgroups_remove(const struct cgroups *cg, const char *name)
{
	int left = 0;

	for (int h = 0; h < CG_HIERARCHIES; h++)
		if (cg->dir[h] >= 0 && remove_group(cg->dir[h], name, 0) < 0)
			left = -1;
	return left;
}

/* The processes of one group itself. */
static unsigned kill_members(int dir)
{
	int fd = openat(dir, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	autofile FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	autofree char *line = NULL;
	size_t cap = 0;
	unsigned n = 0;

	while (f && getline(&line, &cap, f) > 0) {
		long pid = strtol(line, NULL, 10);

		if (pid > 1 && pid != getpid() && kill((pid_t)pid, SIGKILL) == 0)
			n++;
	}
	return n;
}

static unsigned kill_group(int parent, const char *name, int depth)
{
	int fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY, 0);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	unsigned n;

	if (!d || depth > 8)
		return 0;
	n = kill_members(dirfd(d));
	while ((e = readdir(d)))
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			n += kill_group(dirfd(d), e->d_name, depth + 1);
	return n;
}

unsigned cgroups_kill(const struct cgroups *cg, const char *name)
{
	unsigned n = 0;

	for (int h = 0; h < CG_HIERARCHIES; h++)
		if (cg->dir[h] >= 0)
			n += kill_group(cg->dir[h], name, 0);
	return n;
}

/* A number in a file, or behind `word` in a file of "word number" lines; UINT64_MAX for none. */
static uint64_t number(int dir, const char *name, const char *file, const char *word)
{
	char path[128], text[4096], *p = text;

	(void)snprintf(path, sizeof(path), "%s/%s", name, file);
	if (dir < 0 || read_file_at(dir, path, text, sizeof(text)) < 0)
		return UINT64_MAX;
	for (; word && p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (!strncmp(p, word, strlen(word)) && p[strlen(word)] == ' ') {
			p += strlen(word) + 1;
			break;
		}
	}
	if (!p || *p < '0' || *p > '9')
		return UINT64_MAX;
	return strtoull(p, NULL, 10);
}

static uint64_t set_number(int dir, const char *name, const char *file)
{
	uint64_t n = number(dir, name, file, NULL);

	return n == UINT64_MAX ? 0 : n;
}

void cgroups_get(const struct cgroups *cg, const char *name, struct cgroup_limits *ret)
{
	const bool v2 = cg->mode == ENGINE_CGROUP_V2;
	const int dir = cg->dir[CG_UNIFIED], mem = v2 ? dir : cg->dir[CG_MEMORY];
	uint64_t weight, pids = set_number(v2 ? dir : cg->dir[CG_PIDS], name, "pids.max");

	*ret = (struct cgroup_limits){ 0 };
	ret->memory_bytes = set_number(mem, name, v2 ? "memory.max" : "memory.limit_in_bytes");
	ret->memory_swap_bytes = v2 ? ret->memory_bytes + set_number(dir, name, "memory.swap.max")
				    : set_number(mem, name, "memory.memsw.limit_in_bytes");
	ret->pids = pids ? (uint32_t)pids - 1 : 0; /* init has one more */
	if (!v2) {
		ret->cpu_millis = (uint32_t)(set_number(cg->dir[CG_CPU], name, "cpu.cfs_quota_us") /
					     (CPU_PERIOD_US / 1000u));
		ret->cpu_shares = (uint32_t)set_number(cg->dir[CG_CPU], name, "cpu.shares");
		return;
	}
	/* "max" is no number; the period behind it is the one we write. */
	ret->cpu_millis = (uint32_t)(set_number(dir, name, "cpu.max") / (CPU_PERIOD_US / 1000u));
	weight = set_number(dir, name, "cpu.weight");
	ret->cpu_shares = weight ? (uint32_t)(2 + (weight - 1) * 262142 / 9999) : 0;
}

/* The sum over all devices of one of the words in io.stat; UINT64_MAX when it isn't counted. */
static uint64_t io_sum(int dir, const char *name, const char *word)
{
	char path[128], text[4096];
	const size_t n = strlen(word);
	uint64_t sum = 0;

	(void)snprintf(path, sizeof(path), "%s/io.stat", name);
	if (dir < 0 || read_file_at(dir, path, text, sizeof(text)) < 0)
		return UINT64_MAX;
	for (const char *p = text; (p = strstr(p, word)); p += n)
		if (p > text && p[-1] == ' ' && p[n] == '=')
			sum += strtoull(p + n + 1, NULL, 10);
	return sum;
}

void cgroups_usage(const struct cgroups *cg, const char *name, struct engine_usage *ret)
{
	int mem = cg->dir[CG_MEMORY], v2 = cg->dir[CG_UNIFIED];

	if (cg->mode == ENGINE_CGROUP_V2) {
		ret->memory_bytes = number(v2, name, "memory.current", NULL);
		ret->memory_limit_bytes = number(v2, name, "memory.max", NULL);
		ret->pids = number(v2, name, "pids.current", NULL);
		ret->oom_kills = number(v2, name, "memory.events", "oom_kill");
	} else {
		ret->memory_bytes = number(mem, name, "memory.usage_in_bytes", NULL);
		ret->memory_limit_bytes = number(mem, name, "memory.limit_in_bytes", NULL);
		ret->pids = number(cg->dir[CG_PIDS], name, "pids.current", NULL);
		ret->oom_kills = number(mem, name, "memory.oom_control", "oom_kill");
	}
	ret->cpu_us = number(cg->dir[CG_CPUACCT], name, "cpuacct.usage", NULL);
	if (ret->cpu_us != UINT64_MAX)
		ret->cpu_us /= 1000;
	else
		ret->cpu_us = number(v2, name, "cpu.stat", "usage_usec");
	ret->io_read_bytes = io_sum(v2, name, "rbytes");
	ret->io_written_bytes = io_sum(v2, name, "wbytes");
	ret->disk_bytes = UINT64_MAX; /* not of a group */
}

void cgroups_tidy(const struct cgroups *cg, bool (*dead)(void *ctx, const char *instance),
		  void *ctx)
{
	for (int h = 0; h < CG_HIERARCHIES; h++) {
		int fd = cg->above[h] < 0 ? -1
					  : open_beneath(cg->above[h], cg->parent,
							 O_RDONLY | O_DIRECTORY, 0);
		autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *e;

		while (d && (e = readdir(d)))
			if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
			    strcmp(e->d_name, cg->instance) != 0 && dead(ctx, e->d_name) &&
			    remove_group(fd, e->d_name, 0) < 0)
				log_info("cgroup_stuck", "instance=%s errno=%d", e->d_name, errno);
	}
}

unsigned cgroups_sweep(const struct cgroups *cg, bool (*keep)(void *ctx, const char *name),
		       void *ctx, uint64_t deadline_ms)
{
	for (;;) {
		unsigned left = 0;

		for (int h = 0; h < CG_HIERARCHIES; h++) {
			int fd =
				cg->dir[h] < 0 ? -1 : openat(cg->dir[h], ".", O_RDONLY | O_CLOEXEC);
			autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
			struct dirent *e;

			while (d && (e = readdir(d))) {
				if (e->d_type != DT_DIR || e->d_name[0] == '.' ||
				    keep(ctx, e->d_name))
					continue;
				(void)kill_group(cg->dir[h], e->d_name, 0);
				left += remove_group(cg->dir[h], e->d_name, 0) < 0;
			}
		}
		if (!left || now_ms() >= deadline_ms)
			return left;
		(void)nanosleep(&(struct timespec){ .tv_nsec = 5 * 1000 * 1000 }, NULL);
	}
}
