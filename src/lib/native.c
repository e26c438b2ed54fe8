/*
 * Native workspaces without a daemon: sessions of an engine of our own, which ends with us, or
 * of the system's.  The state directory is ours alone while we run: it holds what finds a named
 * session again (marks/), so that the next process takes it over with all that runs in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "garret/workspace.h"
#include "lib/backend.h"
#include "provider/engine_client.h"
#include "provider/native.h"

#define START_MS 15000
#define MARK_MAX 128
#define SYSTEM_ENGINE "/run/garret/engine.sock"

static const struct option_row options[] = {
	{ "runtime", OPTION_NAME, NULL, "the root file system (host)" },
	{ "work_dir", OPTION_PATH, NULL, "where the files are, inside (/workspace)" },
	{ "network_mode", OPTION_CHOICE, "none host", "network (none)" },
	{ "mem_limit", OPTION_SIZE, NULL, "memory" },
	{ "memswap_limit", OPTION_SIZE, NULL, "memory and swap together (as memory)" },
	{ "cpus", OPTION_CPUS, NULL, "CPUs" },
	{ "pids_limit", OPTION_NUMBER, NULL, "processes" },
	{ "tmpfs_size", OPTION_SIZE, NULL, "size of /tmp" },
	{ "disk_limit", OPTION_SIZE, NULL, "size of the files" },
	{ "env", OPTION_ENV, NULL, "a variable of every command" },
	{ "volumes", OPTION_VOLUME, NULL, "a directory of the host inside" },
	{ "name", OPTION_NAME, NULL, "one session of that name, found by later processes" },
	{ "state_dir", OPTION_PATH, NULL, "where sessions and files are kept" },
	{ "engine", OPTION_PATH, NULL, "socket of the system's engine" },
	{ "provider", OPTION_TEXT, NULL, "the name in refs (native)" },
	{ NULL, OPTION_TEXT, NULL, NULL },
};

/* What we hold of a started provider. */
struct native {
	int lock_fd, marks_fd;
	pid_t engine_pid;
	bool told, ready; /* the engine answered, or there will be none */
	struct garret_error err;
	char *dir;
	struct box_volume *volumes;
	char **volume_texts;
	unsigned n_volumes;
	unsigned adopting;
	bool adopted;
};

static bool native_owns(const struct garret_options *o, const char *id)
{
	const char *name = option_text(o, "name");

	return name ? !strcmp(name, id) : name_valid(id);
}

static const char *native_named(const struct garret_options *o)
{
	return option_text(o, "name");
}

static bool native_ends(const struct garret_options *o)
{
	return !option_text(o, "name");
}

static void native_spec(struct garret_provider *p, struct box_spec *spec)
{
	const struct garret_options *o = p->options;
	const struct native *n = p->own;
	const char *runtime = option_text(o, "runtime"), *dir = option_text(o, "work_dir");

	spec->runtime = runtime ? runtime : "host";
	spec->work_dir = dir ? dir : "/workspace";
	spec->network = option_text(o, "network_mode");
	spec->memory_bytes = option_size(o, "mem_limit");
	spec->memory_swap_bytes = option_size(o, "memswap_limit");
	spec->tmpfs_bytes = option_size(o, "tmpfs_size");
	spec->disk_bytes = option_size(o, "disk_limit");
	spec->cpu_millis = option_millis(o, "cpus");
	spec->pids = option_number(o, "pids_limit");
	spec->volumes = n->volumes;
	spec->n_volumes = n->n_volumes;
}

/* ---- the state directory ---- */

static char *default_dir(void)
{
	const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");

	if (geteuid() == 0)
		return xstrdup("/var/lib/garret/lib");
	if (state && *state == '/')
		return xasprintf("%s/garret", state);
	return xasprintf("%s/.local/state/garret", home && *home == '/' ? home : "/tmp");
}

static int make_dirs(const char *dir, struct garret_error *err)
{
	autofree char *path = xstrdup(dir);

	for (char *p = path + 1;; p++) {
		const char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		if (mkdir(path, c ? 0755 : 0700) < 0 && errno != EEXIST)
			return garret_fail_errno(err, "state_dir: make the directory");
		*p = c;
		if (!c)
			return 0;
	}
}

static int lock_state(struct native *n, int top, struct garret_error *err)
{
	n->lock_fd = openat(top, "owner", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (n->lock_fd < 0)
		return garret_fail_errno(err, "state_dir: open the lock");
	if (flock(n->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	if (errno != EWOULDBLOCK)
		return garret_fail_errno(err, "state_dir: lock it");
	return garret_fail(
		err, GARRET_UNAVAILABLE,
		"state_dir: another program works with it now; give each one of its own, "
		"or share a daemon (provider sandboxd)");
}

/* For whom the engine keeps our sessions: whoever has this directory. */
static int read_owner(struct native *n, uint8_t tag[ENGINE_OWNER_TAG], struct garret_error *err)
{
	ssize_t got = pread(n->lock_fd, tag, ENGINE_OWNER_TAG, 0);

	if (got == ENGINE_OWNER_TAG)
		return 0;
	if (got < 0 || getrandom(tag, ENGINE_OWNER_TAG, 0) != ENGINE_OWNER_TAG ||
	    pwrite(n->lock_fd, tag, ENGINE_OWNER_TAG, 0) != ENGINE_OWNER_TAG)
		return garret_fail_errno(err, "state_dir: the owner's tag");
	return 0;
}

static int open_state(struct garret_provider *p, struct native *n, struct garret_error *err)
{
	const char *dir = option_text(p->options, "state_dir");
	autofree char *base = dir ? xstrdup(dir) : default_dir();
	autoclose int top = -EBADF;
	struct stat st;
	int rc;

	free(n->dir);
	n->dir = xasprintf("%s/lib", base);
	rc = make_dirs(n->dir, err);
	if (rc < 0)
		return rc;
	top = open(n->dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (top < 0 || fstat(top, &st) < 0)
		return garret_fail_errno(err, "state_dir: open it");
	if (st.st_uid != geteuid() || st.st_mode & 022)
		return garret_fail(err, GARRET_DENIED,
				   "state_dir: it must be ours, and nobody else may write there");
	rc = lock_state(n, top, err);
	if (rc < 0)
		return rc;
	n->marks_fd = open_dir_make(top, "marks", 0700, err);
	return n->marks_fd < 0 ? n->marks_fd : 0;
}

/* ---- volumes ---- */

static void parse_volumes(struct garret_provider *p, struct native *n)
{
	char *const *list = p->options->volumes;

	n->n_volumes = (unsigned)strings_count(list);
	n->volumes = xcalloc(n->n_volumes + 1, sizeof(*n->volumes));
	for (unsigned i = 0; i < n->n_volumes; i++) {
		char *inside, *more;

		strings_add(&n->volume_texts, list[i]);
		inside = strstr(n->volume_texts[i], ":/"); /* the option's check saw it */
		*inside++ = '\0';
		more = strchr(inside, ':');
		if (more)
			*more++ = '\0';
		n->volumes[i] = (struct box_volume){ .host = n->volume_texts[i],
						     .inside = inside,
						     .read_only = more && !strcmp(more, "ro") };
	}
}

/* ---- the engine ---- */

static void on_ready(void *ctx, const struct engine_hello *hello)
{
	struct native *n = ctx;

	(void)hello;
	n->told = n->ready = true;
	memset(&n->err, 0, sizeof(n->err));
}

static void on_away(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	(void)err; /* the next one is waited for; what is asked meanwhile says UNAVAILABLE */
}

static void on_lost(void *ctx, const struct garret_error *err)
{
	struct native *n = ctx;

	n->told = true;
	n->ready = false;
	n->err = *err;
}

static int start_engine(struct garret_provider *p, struct native *n, int *ret_fd,
			struct garret_error *err)
{
	autofree char *program = xasprintf("%s/garret-engine", p->context->program_dir);
	autofree char *top = xstrdup(n->dir);
	static const char *const args[] = { "--keep", NULL };

	*strrchr(top, '/') = '\0'; /* ours is a directory in the engine's */
	return engine_start(program, top, args, ret_fd, &n->engine_pid, err);
}

/* The system's engine: the one that was named, or for who can't have one of his own. */
static const char *engine_socket(const struct garret_options *o)
{
	const char *given = option_text(o, "engine");

	if (given)
		return given;
	return geteuid() != 0 && access(SYSTEM_ENGINE, W_OK) == 0 ? SYSTEM_ENGINE : NULL;
}

static int connect_engine(struct garret_provider *p, struct native *n, struct garret_error *err)
{
	struct native_config config = { .loop = p->context->loop,
					.keeper_fd = -EBADF,
					.engine_path = engine_socket(p->options),
					.state_dir = n->dir,
					.ready = on_ready,
					.away = on_away,
					.lost = on_lost,
					.ctx = n };
	int rc = read_owner(n, config.owner, err);

	if (rc == 0 && !config.engine_path)
		rc = start_engine(p, n, &config.keeper_fd, err);
	return rc < 0 ? rc : native_new(&config, &p->impl, err);
}

/* It was asked again and again; once more tells why not. */
static int silent_engine(const struct garret_provider *p, struct garret_error *err)
{
	const char *path = engine_socket(p->options);
	struct garret_error why = { 0 };
	int fd = -EBADF;

	if (path && engine_connect(path, &fd, &why) == 0)
		fd_close(fd);
	return garret_fail(err, GARRET_UNAVAILABLE, "the engine did not answer in %d s%s%s",
			   START_MS / 1000, why.msg[0] ? ": " : "", why.msg);
}

static int await_engine(struct garret_provider *p, struct native *n,
			const struct garret_cancel *cancel, struct garret_error *err)
{
	int rc = context_wait(p->context, &n->told, cancel, now_ms() + START_MS, err);

	if (rc == -GARRET_TIMEOUT)
		return silent_engine(p, err);
	if (rc < 0 || n->ready)
		return rc;
	if (err)
		*err = n->err;
	return garret_wrap(-(int)n->err.code, err, "the engine");
}

/* ---- sessions that live already ---- */

static void on_found(void *ctx, struct box *box, const struct garret_error *err)
{
	struct backend *b = ctx;
	struct native *n = b->provider->own;

	(void)err; /* it has ended since; its files are there all the same */
	if (box)
		backend_found(b, box);
	else
		(void)unlinkat(n->marks_fd, b->ref.id, 0);
	backend_drop(b);
	if (!--n->adopting)
		n->adopted = true;
}

/* The backend that wants it already, or one that nobody holds. */
static struct backend *waiting_for(struct garret_provider *p, const struct garret_ref *ref)
{
	struct backend *b;

	list_foreach (b, &p->backends, link)
		if (!b->box && !b->dead && !strcmp(b->id, ref->id)) {
			backend_hold(b);
			b->ref = *ref;
			b->has_ref = true;
			return b;
		}
	return backend_get(p, ref);
}

static void adopt_one(struct garret_provider *p, const char *id, const char *mark)
{
	struct native *n = p->own;
	struct garret_ref ref = { 0 };
	struct box_spec spec = { 0 };
	struct backend *b;

	if (garret_ref_make(&ref, p->name, id, NULL) < 0)
		return;
	b = waiting_for(p, &ref);
	b->ends = false;
	native_spec(p, &spec);
	spec.id = spec.runs = id;
	n->adopting++;
	p->ops->adopt(p->impl, &spec, mark, on_found, b);
}

static int adopt_all(struct garret_provider *p, struct garret_error *err)
{
	struct native *n = p->own;
	int fd = openat(n->marks_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	int rc = 0;

	n->adopting = 1;
	while (d && (e = readdir(d))) {
		char mark[MARK_MAX];

		if (name_valid(e->d_name) &&
		    read_file_at(n->marks_fd, e->d_name, mark, sizeof(mark)) > 0)
			adopt_one(p, e->d_name, mark);
	}
	n->adopted = !--n->adopting;
	/* Not to be given up: who is not taken over now would be ended below. */
	if (!n->adopted)
		rc = context_wait(p->context, &n->adopted, NULL, 0, err);
	if (rc == 0)
		p->ops->settle(p->impl); /* what a killed process left without a name ends */
	return rc;
}

static void let_go(struct garret_provider *p, struct native *n)
{
	p->impl = native_free(p->impl); /* a private engine ends with its socket */
	if (n->engine_pid > 0)
		(void)waitpid(n->engine_pid, NULL, 0);
	n->engine_pid = 0;
	n->told = n->ready = false;
	n->marks_fd = fd_close(n->marks_fd);
	n->lock_fd = fd_close(n->lock_fd);
}

static int native_start(struct garret_provider *p, const struct garret_cancel *cancel,
			struct garret_error *err)
{
	struct native *n = p->own;
	int rc;

	if (!n) {
		n = p->own = xnew(struct native);
		n->lock_fd = n->marks_fd = -EBADF;
		p->ops = &native_ops;
		parse_volumes(p, n);
	}
	if (geteuid() != 0 && !engine_socket(p->options)) /* before a directory is looked at */
		return garret_fail(
			err, GARRET_DENIED,
			"making native sessions needs root, or the socket of the system's engine "
			"(option engine)");
	rc = open_state(p, n, err);
	if (rc == 0)
		rc = connect_engine(p, n, err);
	if (rc == 0)
		rc = await_engine(p, n, cancel, err);
	if (rc == 0)
		rc = adopt_all(p, err);
	if (rc < 0) /* the next operation begins anew */
		let_go(p, n);
	return rc;
}

static void native_stop(struct garret_provider *p)
{
	struct native *n = p->own;

	let_go(p, n);
	strings_free(n->volume_texts);
	free(n->volumes);
	free(n->dir);
	free(n);
}

static void native_opened(struct garret_provider *p, struct backend *b)
{
	struct native *n = p->own;
	const char *mark = p->ops->mark(b->box);
	autoclose int fd = -EBADF;

	if (b->ends)
		return;
	fd = openat(n->marks_fd, ".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
		    0600);
	/* Without it only the processes are lost to the next one, never the files. */
	if (fd >= 0 && write_full(fd, mark, strlen(mark)) == 0)
		(void)renameat(n->marks_fd, ".new", n->marks_fd, b->ref.id);
}

static void native_forgotten(struct garret_provider *p, const char *id)
{
	const struct native *n = p->own;

	(void)unlinkat(n->marks_fd, id, 0);
}

const struct provider_kind native_kind = {
	.name = "native",
	.options = options,
	.abilities = GARRET_HAS_COMMANDS | GARRET_HAS_FILES | GARRET_HAS_REALPATH |
		     GARRET_HAS_STREAMS | GARRET_HAS_CONFINED | GARRET_ISOLATES,
	.owns = native_owns,
	.named = native_named,
	.start = native_start,
	.stop = native_stop,
	.spec = native_spec,
	.busy_ms = 5000,
	.opened = native_opened,
	.forgotten = native_forgotten,
	.ends = native_ends,
};
