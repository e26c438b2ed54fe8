#include "engine/conf.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "engine/etc.h"
#include "engine/wire.h"

#define FILE_CAP (64 * 1024)

enum kind {
	KIND_PATH,
	KIND_WORDS,
	KIND_NAME,
	KIND_U32,
	KIND_BYTES,
	KIND_CPUS,
	KIND_FLAG,
	KIND_NETWORKS,
	KIND_UIDS
};

// clang-format off
static const struct {
	const char *key;
	enum kind kind;
	size_t offset;
} keys[] = {
	{ "state_dir",       KIND_PATH,     offsetof(struct conf, state_dir) },
	{ "workspace_root",  KIND_PATH,     offsetof(struct conf, workspace_root) },
	{ "etc_copy",        KIND_WORDS,    offsetof(struct conf, etc_copy) },
	{ "cgroup_parent",   KIND_NAME,     offsetof(struct conf, cgroup_parent) },
	{ "id_start",        KIND_U32,      offsetof(struct conf, id_start) },
	{ "id_count",        KIND_U32,      offsetof(struct conf, id_count) },
	{ "networks",        KIND_NETWORKS, offsetof(struct conf, networks) },
	{ "allow_uids",      KIND_UIDS,     offsetof(struct conf, uids) },
	{ "max_memory",      KIND_BYTES,    offsetof(struct conf, max_memory) },
	{ "max_tmpfs",       KIND_BYTES,    offsetof(struct conf, max_tmpfs) },
	{ "max_cpus",        KIND_CPUS,     offsetof(struct conf, max_cpu_millis) },
	{ "max_pids",        KIND_U32,      offsetof(struct conf, max_pids) },
	{ "max_sessions",    KIND_U32,      offsetof(struct conf, max_sessions) },
	{ "max_files_sessions", KIND_U32,   offsetof(struct conf, max_files_sessions) },
	{ "default_memory",  KIND_BYTES,    offsetof(struct conf, default_memory) },
	{ "default_tmpfs",   KIND_BYTES,    offsetof(struct conf, default_tmpfs) },
	{ "default_cpus",    KIND_CPUS,     offsetof(struct conf, default_cpu_millis) },
	{ "default_pids",    KIND_U32,      offsetof(struct conf, default_pids) },
	{ "workspace_bytes", KIND_BYTES,    offsetof(struct conf, default_workspace) },
	{ "max_workspace_bytes", KIND_BYTES, offsetof(struct conf, max_workspace) },
	{ "keep_suspect_layers", KIND_FLAG, offsetof(struct conf, keep_suspect_layers) },
	{ "pool_slots",      KIND_U32,      offsetof(struct conf, pool_slots) },
	{ "pool_networks",   KIND_U32,      offsetof(struct conf, pool_networks) },
};
// clang-format on

void conf_init(struct conf *c)
{
	*c = (struct conf){
		.state_dir = xstrdup("/var/lib/garret"),
		.etc_copy = xstrdup(etc_default),
		.cgroup_parent = xstrdup("garret"),
		/* No distribution and no account tool gives out ids up here. */
		.id_start = 0x6F000000,
		/* The range on disk, and a slot for each session. */
		.id_count = SLOT_IDS * (1 + 4096 + CONF_FILES_MAX),
		.networks = 1u << ENGINE_NET_NONE,
		.max_pids = 32768,
		.max_sessions = 4096,
		.max_files_sessions = 4,
		.default_memory = 1ull << 30,
		.default_tmpfs = 256ull << 20,
		.default_pids = 512,
		.pool_slots = 4,
		.pool_networks = 64,
	};
}

void conf_done(struct conf *c)
{
	free(c->state_dir);
	free(c->workspace_root);
	free(c->etc_copy);
	free(c->cgroup_parent);
	*c = (struct conf){ 0 };
}

static bool set_text(char **at, const char *value, bool ok)
{
	if (!ok)
		return false;
	free(*at);
	*at = xstrdup(value);
	return true;
}

static bool set_u32(uint32_t *at, const char *value)
{
	uint64_t v;

	if (!parse_u64(value, &v) || v > UINT32_MAX)
		return false;
	*at = (uint32_t)v;
	return true;
}

static bool set_cpus(uint32_t *at, const char *value)
{
	double v;

	if (!parse_seconds(value, &v) || v < 0.01 || v > 100000)
		return false;
	*at = (uint32_t)(v * 1000 + 0.5);
	return true;
}

static bool set_networks(uint32_t *at, char *value)
{
	char *save = NULL;

	*at = 1u << ENGINE_NET_NONE;
	for (char *w = strtok_r(value, " \t,", &save); w; w = strtok_r(NULL, " \t,", &save)) {
		if (!strcmp(w, "host"))
			*at |= 1u << ENGINE_NET_HOST;
		else if (strcmp(w, "none") != 0)
			return false;
	}
	return true;
}

static bool set_uids(struct conf *c, char *value)
{
	char *save = NULL;

	c->n_uids = 0;
	for (char *w = strtok_r(value, " \t,", &save); w; w = strtok_r(NULL, " \t,", &save))
		if (c->n_uids == CONF_UIDS_MAX || !set_u32(&c->uids[c->n_uids++], w))
			return false;
	return true;
}

static bool set_value(struct conf *c, size_t row, char *value)
{
	void *at = (char *)c + keys[row].offset;

	switch (keys[row].kind) {
	case KIND_PATH:
		return set_text(at, value, value[0] == '/');
	case KIND_WORDS:
		return set_text(at, value, strlen(value) < ETC_CAP && !strstr(value, ".."));
	case KIND_NAME:
		return set_text(at, value, name_valid(value) && strlen(value) < 48);
	case KIND_U32:
		return set_u32(at, value);
	case KIND_BYTES:
		return parse_size(value, at);
	case KIND_CPUS:
		return set_cpus(at, value);
	case KIND_FLAG:
		*(bool *)at = !strcmp(value, "yes");
		return *(bool *)at || !strcmp(value, "no");
	case KIND_NETWORKS:
		return set_networks(at, value);
	case KIND_UIDS:
		return set_uids(c, value);
	}
	return false;
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t");
	n = strlen(s);
	while (n && strchr(" \t\r", s[n - 1]))
		s[--n] = '\0';
	return s;
}

static int parse_line(struct conf *c, const char *name, unsigned number, char *line,
		      struct garret_error *err)
{
	char *value = strchr(line, '='), *key;

	if (!value)
		return garret_fail(err, GARRET_INVALID, "%s line %u: expected key = value", name,
				   number);
	*value++ = '\0';
	key = trim(line);
	value = trim(value);
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		if (strcmp(key, keys[i].key) != 0)
			continue;
		if (!set_value(c, i, value))
			return garret_fail(err, GARRET_INVALID, "%s line %u: no good value for %s",
					   name, number, key);
		return 0;
	}
	return garret_fail(err, GARRET_INVALID, "%s line %u: unknown key %s", name, number, key);
}

int conf_parse(struct conf *c, const char *name, char *text, struct garret_error *err)
{
	unsigned number = 0;
	char *line;

	while ((line = strsep(&text, "\n"))) {
		int rc = 0;

		number++;
		line = trim(line);
		if (*line && *line != '#')
			rc = parse_line(c, name, number, line, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int conf_read(struct conf *c, const char *path, bool required, struct garret_error *err)
{
	autoclose int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	autofree char *text = xmalloc(FILE_CAP);
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno == ENOENT && !required)
		return 0;
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "open %s", path);
	if (!S_ISREG(st.st_mode) || st.st_uid != 0 || st.st_mode & 022)
		return garret_fail(err, GARRET_DENIED,
				   "%s must be a file of root that nobody else can write", path);
	n = read_full(fd, text, FILE_CAP - 1);
	if (n < 0)
		return garret_fail_errno(err, "read %s", path);
	if (n == FILE_CAP - 1 || memchr(text, 0, (size_t)n))
		return garret_fail(err, GARRET_INVALID, "%s is no configuration", path);
	text[n] = '\0';
	return conf_parse(c, path, text, err);
}

int conf_finish(struct conf *c, struct garret_error *err)
{
	struct sysinfo si;
	uint32_t slots;

	if (c->id_start < 65536 || (uint64_t)c->id_start + c->id_count > 0xFFFE0000u ||
	    c->id_count < 2 * SLOT_IDS)
		return garret_fail(
			err, GARRET_INVALID,
			"id_start and id_count: want at least %u ids between 65536 and %u",
			2 * SLOT_IDS, 0xFFFE0000u);
	if (c->max_files_sessions > CONF_FILES_MAX)
		return garret_fail(err, GARRET_INVALID, "max_files_sessions is at most %d",
				   CONF_FILES_MAX);
	slots = c->ranges = c->id_count / SLOT_IDS - 1;
	c->max_files_sessions = MIN(c->max_files_sessions, slots - 1);
	slots -= c->max_files_sessions;
	if (!c->max_sessions || c->max_sessions > slots)
		c->max_sessions = slots;
	if (sysinfo(&si) < 0)
		return garret_fail_errno(err, "ask for the size of memory");
	if (!c->max_memory)
		c->max_memory = (uint64_t)si.totalram * si.mem_unit;
	if (!c->max_tmpfs)
		c->max_tmpfs = c->max_memory;
	if (!c->max_cpu_millis)
		c->max_cpu_millis = (uint32_t)get_nprocs() * 1000;
	if (!c->default_cpu_millis)
		c->default_cpu_millis = c->max_cpu_millis;
	c->default_memory = MIN(c->default_memory, c->max_memory);
	c->default_tmpfs = MIN(c->default_tmpfs, c->max_tmpfs);
	c->default_cpu_millis = MIN(c->default_cpu_millis, c->max_cpu_millis);
	c->default_pids = MIN(c->default_pids, c->max_pids);
	if (c->max_workspace && (!c->default_workspace || c->default_workspace > c->max_workspace))
		c->default_workspace = c->max_workspace;
	if (c->default_workspace && c->default_workspace < CONF_WORKSPACE_LEAST)
		return garret_fail(err, GARRET_INVALID, "workspace_bytes is at least %u",
				   CONF_WORKSPACE_LEAST);
	c->pool_slots = MAX(1u, MIN(c->pool_slots, c->max_sessions));
	return 0;
}
