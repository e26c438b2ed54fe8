/*
 * What a container is made of: its name, the settings of the create call, and
 * the archive with init.
 */
#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/json.h"
#include "provider/docker_impl.h"

#define PIDS 512
#define INIT_SPACE "size=256m" /* spool files live there */
#define TAR_BLOCK 512
#define PROGRAM_MAX (64u << 20)

/* ---- names ---- */

/* Exactly the shape of those that are made here; a ref comes from a history, which anybody wrote. */
static bool has_shape(const char *name)
{
	const size_t n = strlen(DOCKER_PREFIX);

	return !strncmp(name, DOCKER_PREFIX, n) && strlen(name) == n + DOCKER_PREFIX_HEX &&
	       strspn(name + n, "0123456789abcdef") == DOCKER_PREFIX_HEX;
}

bool docker_name_is_ours(const struct provider *p, const char *name)
{
	const size_t n = strlen(DOCKER_SESSION);

	if (p->config.container_name)
		return !strcmp(name, p->config.container_name) || has_shape(name);
	if (p->config.sessions)
		return !strncmp(name, DOCKER_SESSION, n) && name_valid(name + n);
	return has_shape(name);
}

/*
 * The same for the same workspace of the same owner: whoever opens it again after being
 * killed in the middle finds what was made.
 */
char *docker_new_name(const struct provider *p, const char *id)
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	char hex[DOCKER_PREFIX_HEX + 1];
	struct sha256_ctx c;

	if (id) {
		sha256_init(&c);
		sha256_update(&c, strlen(p->config.owner) + 1, (const uint8_t *)p->config.owner);
		sha256_update(&c, strlen(id), (const uint8_t *)id);
		sha256_digest(&c, sizeof(digest), digest);
	} else if (getrandom(digest, sizeof(digest), 0) != (ssize_t)sizeof(digest)) {
		abort(); /* never for so few bytes */
	}
	hex_encode(digest, DOCKER_PREFIX_HEX / 2, hex);
	return xasprintf(DOCKER_PREFIX "%s", hex);
}

/* ---- settings ---- */

static void put_text(struct strbuf *b, const char *key, const char *text)
{
	json_put_key(b, key);
	json_put_string(b, text);
}

static void put_number(struct strbuf *b, const char *key, uint64_t n)
{
	json_put_key(b, key);
	json_put_int(b, (int64_t)n);
}

static void put_bool(struct strbuf *b, const char *key, bool v)
{
	json_put_key(b, key);
	json_put_bool(b, v);
}

static const char *const usual_env[] = {
	"GIT_CONFIG_COUNT=5",
	"GIT_CONFIG_KEY_0=safe.directory",
	"GIT_CONFIG_VALUE_0=*",
	"GIT_CONFIG_KEY_1=user.name",
	"GIT_CONFIG_VALUE_1=Agent",
	"GIT_CONFIG_KEY_2=user.email",
	"GIT_CONFIG_VALUE_2=agent@sandbox.local",
	"GIT_CONFIG_KEY_3=init.defaultBranch",
	"GIT_CONFIG_VALUE_3=main",
	"GIT_CONFIG_KEY_4=advice.detachedHead",
	"GIT_CONFIG_VALUE_4=false",
	"GIT_TERMINAL_PROMPT=0",
	"PYTHONUNBUFFERED=1",
	"PIP_DISABLE_PIP_VERSION_CHECK=1",
	"PIP_NO_INPUT=1",
	"PIP_ROOT_USER_ACTION=ignore",
	"UV_SYSTEM_PYTHON=1",
	"UV_CONCURRENT_DOWNLOADS=2",
	"UV_CONCURRENT_INSTALLS=2",
	"UV_COMPILE_BYTECODE=1",
	"DEBIAN_FRONTEND=noninteractive",
	"NO_COLOR=1",
	"PAGER=cat",
	"GIT_PAGER=cat",
	"LANG=C.UTF-8",
	NULL,
};

static bool overridden(const char *const *env, const char *setting)
{
	const size_t n = strcspn(setting, "=") + 1;

	for (; env && *env; env++)
		if (!strncmp(*env, setting, n))
			return true;
	return false;
}

/* Over the usual ones the recipe's, over those the configured ones. */
static void put_env(struct strbuf *b, const struct box *box)
{
	const struct docker_config *c = &box->p->config;
	const char *const *recipe = (const char *const *)box->recipe.env;

	json_put_key(b, "Env");
	json_open(b, '[');
	for (const char *const *p = usual_env; *p; p++) {
		/* With a user of its own, packages belong into its virtual environment. */
		if ((c->user || box->recipe.run_as_uid) && !strncmp(*p, "UV_SYSTEM_PYTHON=", 17))
			continue;
		if (!overridden(c->env, *p) && !overridden(recipe, *p))
			json_put_string(b, *p);
	}
	for (const char *const *p = recipe; p && *p; p++)
		if (!overridden(c->env, *p))
			json_put_string(b, *p);
	for (const char *const *p = c->env; p && *p; p++)
		json_put_string(b, *p);
	json_close(b, ']');
}

static void put_labels(struct strbuf *b, const struct box *box)
{
	json_put_key(b, "Labels");
	json_open(b, '{');
	for (const char *const *p = box->p->config.labels; p && *p; p++) {
		autofree char *key = xstrndup(*p, strcspn(*p, "="));
		const char *value = *p + strlen(key);

		/* Ours are behind them, and nobody else's. */
		if (strncmp(key, "io.garret.", 10) != 0)
			put_text(b, key, *value ? value + 1 : "");
	}
	put_text(b, LABEL_OWNER, box->p->config.owner);
	put_text(b, LABEL_WORKSPACE, box->name);
	put_text(b, LABEL_VERSION, GARRET_VERSION);
	put_text(b, LABEL_REACH, box->via_init ? "init" : "exec");
	json_close(b, '}');
}

static void put_command(struct strbuf *b, const struct box *box)
{
	static const char *const serve[] = { INIT_PROGRAM, "serve",      "--dir",
					     INIT_DIR,     "--work-dir", NULL };

	if (!box->via_init) {
		json_put_key(b, "Cmd");
		json_put_raw(b, "[\"sleep\",\"infinity\"]");
		return;
	}
	json_put_key(b, "Entrypoint");
	json_open(b, '[');
	for (const char *const *p = serve; *p; p++)
		json_put_string(b, *p);
	json_put_string(b, box->work_dir);
	json_close(b, ']');
	json_put_key(b, "Cmd");
	json_put_raw(b, "[]");
	/* The image's may be one that init doesn't end at, and stopping would take 10 s. */
	put_text(b, "StopSignal", "SIGTERM");
}

static void put_tmpfs(struct strbuf *b, const struct box *box)
{
	const uint64_t bytes =
		box->spec.tmpfs_bytes ? box->spec.tmpfs_bytes : box->p->config.tmpfs_bytes;
	char options[64];

	if (!bytes && !box->via_init)
		return;
	json_put_key(b, "Tmpfs");
	json_open(b, '{');
	if (bytes) {
		(void)snprintf(options, sizeof(options), "size=%llu,exec",
			       (unsigned long long)bytes);
		put_text(b, "/tmp", options);
	}
	/* Whoever the image runs as makes its own directory in there, closed to others. */
	if (box->via_init)
		put_text(b, INIT_PARENT, "mode=1777," INIT_SPACE);
	json_close(b, '}');
}

static void put_binds(struct strbuf *b, const struct box *box)
{
	const struct docker_config *c = &box->p->config;
	const bool root = c->workspace_root && box->session;

	if (!root && !c->volumes)
		return;
	json_put_key(b, "Binds");
	json_open(b, '[');
	if (root) {
		autofree char *bind = xasprintf("%s/%s/workspace:%s:rw", c->workspace_root,
						box->session, box->work_dir);

		json_put_string(b, bind);
	}
	for (const char *const *p = c->volumes; p && *p; p++)
		json_put_string(b, *p);
	json_close(b, ']');
}

static void put_limits(struct strbuf *b, const struct box *box)
{
	const struct docker_config *c = &box->p->config;
	const struct box_spec *s = &box->spec;
	const uint64_t memory = s->memory_bytes ? s->memory_bytes : c->memory_bytes;
	const uint64_t swap = s->memory_swap_bytes ? s->memory_swap_bytes : c->memory_swap_bytes;
	const uint32_t cpus = s->cpu_millis ? s->cpu_millis : c->cpu_millis;
	const uint32_t shares = s->cpu_shares ? s->cpu_shares : c->cpu_shares;
	const uint32_t pids = s->pids ? s->pids : c->pids;

	if (memory) {
		put_number(b, "Memory", memory);
		put_number(b, "MemorySwap", MAX(swap, memory));
	}
	if (cpus)
		put_number(b, "NanoCpus", (uint64_t)cpus * 1000000u);
	if (shares)
		put_number(b, "CpuShares", shares);
	put_number(b, "PidsLimit", pids ? pids : PIDS);
}

static void put_host(struct strbuf *b, const struct box *box)
{
	const struct docker_config *c = &box->p->config;
	const char *network = box->spec.network ? box->spec.network : c->network;

	json_put_key(b, "HostConfig");
	json_open(b, '{');
	put_bool(b, "Init", !box->via_init);
	/* One that is stopped may be asleep, or its engine was started again: never by itself. */
	put_bool(b, "AutoRemove", false);
	json_put_key(b, "SecurityOpt");
	json_put_raw(b, "[\"no-new-privileges:true\"]");
	put_limits(b, box);
	put_tmpfs(b, box);
	put_binds(b, box);
	if (network)
		put_text(b, "NetworkMode", network);
	if (box->spec.oci_runtime || c->oci_runtime)
		put_text(b, "Runtime",
			 box->spec.oci_runtime ? box->spec.oci_runtime : c->oci_runtime);
	json_close(b, '}');
}

void docker_create_body(const struct box *box, struct strbuf *b)
{
	const struct docker_config *c = &box->p->config;

	json_open(b, '{');
	put_text(b, "Image", box->image);
	put_text(b, "WorkingDir", box->work_dir);
	put_command(b, box);
	put_env(b, box);
	put_labels(b, box);
	if (box->recipe.run_as_uid) {
		autofree char *user =
			xasprintf("%u:%u", box->recipe.run_as_uid, box->recipe.run_as_uid);

		put_text(b, "User", user);
	} else if (c->user) {
		put_text(b, "User", c->user);
	}
	put_bool(b, "Tty", false);
	put_bool(b, "OpenStdin", false);
	put_host(b, box);
	json_close(b, '}');
}

/* ---- the archive ---- */

void docker_tar_head(struct strbuf *out, const char *name, char type, unsigned mode, uint64_t size)
{
	char h[TAR_BLOCK] = "";
	unsigned sum = 0;

	(void)snprintf(h, 100, "%s", name);
	(void)snprintf(h + 100, 8, "%07o", mode);
	(void)snprintf(h + 108, 8, "%07o", 0);
	(void)snprintf(h + 116, 8, "%07o", 0);
	(void)snprintf(h + 124, 12, "%011llo", (unsigned long long)size);
	(void)snprintf(h + 136, 12, "%011o", 0);
	memset(h + 148, ' ', 8);
	h[156] = type;
	memcpy(h + 257, "ustar", 6);
	h[263] = h[264] = '0';
	for (size_t i = 0; i < sizeof(h); i++)
		sum += (unsigned char)h[i];
	(void)snprintf(h + 148, 8, "%06o", sum);
	strbuf_add(out, h, sizeof(h));
}

int docker_init_tar(const char *program, struct strbuf *out, struct garret_error *err)
{
	static const char zeros[2 * TAR_BLOCK];
	autoclose int fd = open(program, O_RDONLY | O_CLOEXEC);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "%s", program);
	if (!S_ISREG(st.st_mode) || st.st_size > PROGRAM_MAX)
		return garret_fail(err, GARRET_INVALID, "%s is no program", program);
	docker_tar_head(out, ".garret/", '5', 0755, 0);
	docker_tar_head(out, ".garret/init", '0', 0555, (uint64_t)st.st_size);
	strbuf_reserve(out, (size_t)st.st_size + sizeof(zeros) + TAR_BLOCK);
	n = read_full(fd, out->buf + out->len, (size_t)st.st_size);
	if (n != st.st_size)
		return garret_fail(err, GARRET_INTERNAL, "%s can't be read", program);
	out->len += (size_t)n;
	strbuf_add(out, zeros, (size_t)(-n & (TAR_BLOCK - 1)));
	strbuf_add(out, zeros, sizeof(zeros));
	return 0;
}
