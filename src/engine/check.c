#include "engine/check.h"

#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define MEMORY_LEAST (8ull << 20) /* below it init itself may not start */
#define TMPFS_LEAST (64ull << 10)
/* Of a file-only session: init, four workers and what they read ahead. */
#define FILES_MEMORY (256ull << 20)
#define FILES_PIDS 16u

/* Of the engine or of the host, with everything below. */
static const char *const closed_trees[] = {
	"/proc", "/dev",   "/sys",   "/usr",    "/etc",  "/bin",  "/sbin",
	"/lib",  "/lib32", "/lib64", "/libx32", "/root", "/boot",
};
/* Only themselves: other mounts of a session lie below. */
static const char *const closed_places[] = { "/home", "/var",     "/run",
					     "/tmp",  "/var/tmp", "/var/empty" };
/* Where the template has a mount point, or a session's own file system to make one in. */
static const char *const ready_trees[] = { "/workspace", "/tmp", "/home/agent", "/var/tmp",
					   "/etc/hosts" };

static bool below(const char *path, const char *tree)
{
	size_t n = strlen(tree);

	return !strncmp(path, tree, n) && (path[n] == '\0' || path[n] == '/');
}

bool path_normal(const char *path)
{
	if (path[0] != '/' || !path[1])
		return false;
	for (const char *p = path; *p;) {
		size_t n;

		p++; /* the slash */
		n = strcspn(p, "/");
		if (n == 0 || n > 255 || (n == 1 && p[0] == '.') || (n == 2 && !memcmp(p, "..", 2)))
			return false;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f)
				return false;
		p += n;
	}
	return true;
}

int check_mount_point(const char *what, const char *path, struct garret_error *err)
{
	if (!path_normal(path))
		return garret_fail(err, GARRET_INVALID,
				   "%s must be an absolute path without . or ..", what);
	for (size_t i = 0; i < ARRAY_SIZE(closed_trees); i++)
		if (below(path, closed_trees[i]))
			return garret_fail(err, GARRET_DENIED, "%s can't be in %s", what,
					   closed_trees[i]);
	for (size_t i = 0; i < ARRAY_SIZE(closed_places); i++)
		if (!strcmp(path, closed_places[i]))
			return garret_fail(err, GARRET_DENIED, "%s can't be %s itself", what, path);
	return 0;
}

bool path_needs_own_root(const char *path)
{
	for (size_t i = 0; i < ARRAY_SIZE(ready_trees); i++)
		if (below(path, ready_trees[i]))
			return false;
	return true;
}

static bool hostname_valid(const char *s)
{
	size_t n = strlen(s);

	if (n > 63 || s[0] == '-' || s[0] == '.')
		return false;
	for (size_t i = 0; i < n; i++)
		if (!((s[i] >= 'a' && s[i] <= 'z') || (s[i] >= 'A' && s[i] <= 'Z') ||
		      (s[i] >= '0' && s[i] <= '9') || s[i] == '-' || s[i] == '.'))
			return false;
	return true;
}

static int check_network(const struct engine *e, uint8_t network, struct garret_error *err)
{
	if (network == ENGINE_NET_BRIDGE)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "network mode bridge comes later; use none");
	if (!(e->conf.networks & 1u << network))
		return garret_fail(
			err, GARRET_DENIED,
			"network mode host is not allowed by this engine's configuration");
	return 0;
}

/* What there is nothing of in a file-only session can't be asked for either. */
static int check_files(const struct engine_open *o, struct garret_error *err)
{
	const struct {
		const char *name;
		bool asked;
	} fields[] = {
		{ "memory", o->memory_bytes },
		{ "memory and swap", o->memory_swap_bytes },
		{ "cpus", o->cpu_millis },
		{ "cpu shares", o->cpu_shares },
		{ "pids", o->pids },
		{ "tmpfs", o->tmpfs_bytes },
		{ "disk", o->disk_bytes },
		{ "volumes", o->n_volumes },
		{ "network", o->network != ENGINE_NET_NONE },
		{ "ephemeral", o->flags & ENGINE_OPEN_EPHEMERAL },
		{ "durable", o->flags & ENGINE_OPEN_DURABLE },
	};

	for (size_t i = 0; o->flags & ENGINE_OPEN_FILES && i < ARRAY_SIZE(fields); i++)
		if (fields[i].asked)
			return garret_fail(err, GARRET_INVALID,
					   "a file-only session can't be given: %s",
					   fields[i].name);
	return 0;
}

int check_open(const struct engine *e, const struct engine_open *o, struct garret_error *err)
{
	int rc;

	if (!name_valid(o->id))
		return garret_fail(err, GARRET_INVALID, "the session id is no name");
	if (strcmp(o->runtime, "host") != 0)
		return garret_fail(err, GARRET_INVALID,
				   "unknown runtime \"%.64s\"; this engine has: host", o->runtime);
	if (!hostname_valid(o->hostname))
		return garret_fail(err, GARRET_INVALID, "the host name is none");
	if (o->flags & ENGINE_OPEN_EPHEMERAL && o->flags & ENGINE_OPEN_ATTACH)
		return garret_fail(err, GARRET_INVALID,
				   "nothing is kept of an ephemeral session to attach to");
	if (o->flags & ENGINE_OPEN_DURABLE && o->flags & ENGINE_OPEN_CONNECTED)
		return garret_fail(err, GARRET_INVALID,
				   "a durable session listens: it can't be connected to one owner");
	rc = check_files(o, err);
	if (rc == 0)
		rc = check_mount_point("the work directory", o->work_dir, err);
	if (rc == 0)
		rc = check_network(e, o->network, err);
	for (uint32_t i = 0; rc == 0 && i < o->n_volumes; i++) {
		rc = check_mount_point("a volume", o->volumes[i].inside, err);
		for (uint32_t k = 0; rc == 0 && k < i; k++)
			if (!strcmp(o->volumes[i].inside, o->volumes[k].inside))
				rc = garret_fail(err, GARRET_INVALID, "two volumes at %s",
						 o->volumes[i].inside);
	}
	return rc;
}

/* One limit: 0 is the default; a number must be givable and in bounds. */
static int pick(const char *name, uint64_t asked, uint64_t fallback, uint64_t least, uint64_t most,
		bool can, uint64_t *ret, struct garret_error *err)
{
	*ret = asked ? asked : fallback;
	if (!asked)
		return 0;
	if (!can)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "a limit of %s can't be given on this host (see doctor)", name);
	if (asked < least || asked > most)
		return garret_fail(err, GARRET_INVALID, "%s must be between %llu and %llu", name,
				   (unsigned long long)least, (unsigned long long)most);
	return 0;
}

int check_limits(const struct engine *e, const struct engine_open *o, struct cgroup_limits *ret,
		 uint64_t *ret_tmpfs, struct garret_error *err)
{
	const struct conf *c = &e->conf;
	const bool files = o->flags & ENGINE_OPEN_FILES;
	const uint64_t default_memory =
		files ? MIN(FILES_MEMORY, c->max_memory) : c->default_memory;
	const uint64_t default_pids = files ? MIN(FILES_PIDS, c->max_pids) : c->default_pids;
	uint8_t can = e->cg.limits;
	uint64_t memory = 0, swap = 0, cpu = 0, shares = 0, pids = 0;
	int rc;

	rc = pick("memory", o->memory_bytes, default_memory, MEMORY_LEAST, c->max_memory,
		  can & LIMIT_MEMORY, &memory, err);
	if (rc == 0)
		rc = pick("memory and swap", o->memory_swap_bytes, memory, memory, c->max_memory,
			  can & LIMIT_SWAP, &swap, err);
	if (rc == 0)
		rc = pick("cpus (in thousandths)", o->cpu_millis, c->default_cpu_millis, 10,
			  c->max_cpu_millis, can & LIMIT_CPUS, &cpu, err);
	if (rc == 0)
		rc = pick("cpu shares", o->cpu_shares, 0, 2, 262144, can & LIMIT_SHARES, &shares,
			  err);
	if (rc == 0)
		rc = pick("pids", o->pids, default_pids, 1, c->max_pids, can & LIMIT_PIDS, &pids,
			  err);
	if (rc == 0)
		rc = pick("tmpfs", o->tmpfs_bytes, c->default_tmpfs, TMPFS_LEAST, c->max_tmpfs,
			  true, ret_tmpfs, err);
	if (rc < 0)
		return rc;
	/* All of the machine needs no quota, whose accounting costs a little. */
	if (!o->cpu_millis && cpu >= c->max_cpu_millis)
		cpu = 0;
	*ret = (struct cgroup_limits){ .memory_bytes = memory,
				       .memory_swap_bytes = swap,
				       .cpu_millis = (uint32_t)cpu,
				       .cpu_shares = (uint32_t)shares,
				       .pids = (uint32_t)pids };
	return 0;
}

int check_new_limits(const struct engine *e, const struct engine_limits *l,
		     const struct cgroup_limits *old, struct cgroup_limits *ret,
		     struct garret_error *err)
{
	const uint8_t w = l->which;
	struct engine_open o = { .cpu_millis = l->cpu_millis,
				 .cpu_shares = l->cpu_shares,
				 .pids = l->pids,
				 .memory_bytes = l->memory_bytes,
				 .memory_swap_bytes = l->memory_swap_bytes };
	struct cgroup_limits n = { 0 };
	uint64_t tmpfs;
	int rc;

	/* What is not to change has passed already; but swap is compared with the memory. */
	if (!(w & LIMIT_MEMORY))
		o.memory_bytes = w & LIMIT_SWAP ? old->memory_bytes : 0;
	if (!(w & LIMIT_SWAP))
		o.memory_swap_bytes = 0;
	if (!(w & LIMIT_CPUS))
		o.cpu_millis = 0;
	if (!(w & LIMIT_SHARES))
		o.cpu_shares = 0;
	if (!(w & LIMIT_PIDS))
		o.pids = 0;
	if (w & ~e->cg.limits)
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "limits %#x can't be given on this host (see doctor)",
				   w & ~e->cg.limits);
	rc = check_limits(e, &o, &n, &tmpfs, err);
	if (rc < 0)
		return rc;
	*ret = *old;
	if (w & LIMIT_MEMORY)
		ret->memory_bytes = n.memory_bytes;
	if (w & LIMIT_SWAP)
		ret->memory_swap_bytes = n.memory_swap_bytes;
	if (w & LIMIT_CPUS)
		ret->cpu_millis = n.cpu_millis;
	if (w & LIMIT_SHARES)
		ret->cpu_shares = n.cpu_shares;
	if (w & LIMIT_PIDS)
		ret->pids = n.pids;
	if (ret->memory_swap_bytes < ret->memory_bytes)
		return garret_fail(err, GARRET_INVALID,
				   "memory and swap must be at least %llu, as memory",
				   (unsigned long long)ret->memory_bytes);
	return 0;
}

int check_disk(const struct engine *e, const struct engine_open *o, uint64_t *ret,
	       struct garret_error *err)
{
	const struct conf *c = &e->conf;
	/* 1 EiB: a file system's own arithmetic ends soon above. */
	const uint64_t most = c->max_workspace ? c->max_workspace : 1ull << 60;

	*ret = 0;
	if (o->flags & ENGINE_OPEN_FILES)
		return 0;
	/* Asked for by the operator or by the peer: never silently none. */
	if ((o->disk_bytes || c->default_workspace) && !e->disk.quota && !e->disk.images)
		return garret_fail(err, GARRET_UNSUPPORTED, "no limit of disk can be given: %s",
				   e->disk.missing);
	return pick("disk", o->disk_bytes, c->default_workspace, CONF_WORKSPACE_LEAST, most, true,
		    ret, err);
}
