#include "engine/store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "engine/layer.h"
#include "engine/ownfs.h"

#define LOCK_MS 10000   /* of a garretd that was killed: its engine may be ending its sessions */
#define MAKERS_MS 10000 /* much more than preparing takes on a loaded machine */

/* mkdir -p with 0700 for what is made, root's all the way down from what was there. */
static int make_path(const char *path, struct garret_error *err)
{
	autofree char *copy = xstrdup(path);
	struct stat st;
	int fd;

	for (char *p = copy + 1;; p++) {
		p = strchrnul(p, '/');
		if (*p || p[-1] != '/') {
			char c = *p;

			*p = '\0';
			if (mkdir(copy, 0700) < 0 && errno != EEXIST)
				return garret_fail_errno(err, "make %s", copy);
			*p = c;
		}
		if (!*p)
			break;
	}
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "open %s", path);
	if (fstat(fd, &st) < 0 || st.st_uid != 0 || st.st_mode & 022) {
		fd_close(fd);
		return garret_fail(err, GARRET_DENIED,
				   "%s must belong to root and not be writable by others: "
				   "chown root %s && chmod go-w %s",
				   path, path, path);
	}
	return fd;
}

static int open_sub(int dir, const char *name, struct garret_error *err)
{
	autoclose int path_fd = open_dir_make(dir, name, 0700, err);
	int fd;

	if (path_fd < 0)
		return path_fd;
	fd = openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fchmod(fd, 0700) < 0)
		return garret_fail_errno(err, "open %s", name);
	return fd;
}

/* Lock file NAME, waiting a while when another process has it. */
static int lock_file(struct engine *e, const char *name, uint64_t wait_ms, struct garret_error *err)
{
	const uint64_t end = now_ms() + wait_ms;
	autoclose int fd = open_beneath(e->state_fd, name, O_RDWR | O_CREAT, 0600);

	if (fd < 0)
		return garret_fail_errno(err, "open %s of %s", name, e->conf.state_dir);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (now_ms() >= end)
			return garret_fail(err, GARRET_CONFLICT, "another engine works in %s",
					   e->conf.state_dir);
		(void)nanosleep(&(struct timespec){ .tv_nsec = 2 * 1000 * 1000 }, NULL);
	}
	return take_fd(&fd);
}

/*
 * One lock says that an engine lives.  The other is shared with its zygote and helpers:
 * those of a killed engine still finish what they prepare, and only then is all of it
 * there to be swept.
 */
static int take_locks(struct engine *e, struct garret_error *err)
{
	e->lock_fd = lock_file(e, "lock", LOCK_MS, err);
	if (e->lock_fd < 0)
		return e->lock_fd;
	e->makers_fd = lock_file(e, "makers", MAKERS_MS, err);
	return e->makers_fd < 0 ? e->makers_fd : 0;
}

int store_open(struct engine *e, struct garret_error *err)
{
	autoclose int base = -EBADF;
	int rc;

	e->state_fd = make_path(e->conf.state_dir, err);
	if (e->state_fd < 0)
		return e->state_fd;
	rc = take_locks(e, err);
	if (rc < 0)
		return rc;
	base = ownfs_open(e, err);
	if (base < 0)
		return base;
	if (read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", e->boot, sizeof(e->boot)) < 0)
		return garret_fail_errno(err, "the host's boot id");
	e->boot[strcspn(e->boot, "\n")] = '\0';
	if ((e->sessions_fd = rc = open_sub(base, "sessions", err)) < 0 ||
	    (e->layers_fd = rc = open_sub(base, "layers", err)) < 0 ||
	    (e->trash_fd = rc = open_sub(base, "trash", err)) < 0)
		return garret_wrap(rc, err, "%s", e->conf.state_dir);
	if (e->conf.workspace_root)
		e->workspaces_fd = make_path(e->conf.workspace_root, err);
	else
		e->workspaces_fd = open_sub(base, "workspaces", err);
	if (e->workspaces_fd < 0)
		return e->workspaces_fd;
	if ((e->workspaces_trash_fd = rc = open_sub(e->workspaces_fd, ".trash", err)) < 0 ||
	    (e->spares_fd = rc = open_sub(e->workspaces_fd, ".spare", err)) < 0)
		return rc;
	/* Shared by all engines of the host; without it their ranges may coincide. */
	if (mkdir("/run/garret", 0755) < 0 && errno != EEXIST)
		return 0;
	e->ids_fd = open("/run/garret/ids", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	return 0;
}

void store_close(struct engine *e)
{
	int *fds[] = { &e->state_fd, &e->sessions_fd,   &e->layers_fd,
		       &e->trash_fd, &e->lock_fd,       &e->makers_fd,
		       &e->ids_fd,   &e->workspaces_fd, &e->workspaces_trash_fd };

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		*fds[i] = fd_close(*fds[i]);
	ownfs_close(e);
}

/* The byte of the shared file that stands for an instance, behind those for the ids. */
static off_t instance_place(const char *instance)
{
	return (off_t)((1ull << 40) | (strtoull(instance, NULL, 16) & 0xffffffffu));
}

void store_instance(const struct engine *e, char *ret)
{
	uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a over what names the directory for good */
	struct stat st = { 0 };
	uint64_t id[2] = { 0 };

	(void)fstat(e->sessions_fd, &st);
	id[0] = st.st_dev;
	id[1] = st.st_ino;
	for (size_t i = 0; i < sizeof(id); i++)
		h = (h ^ ((const uint8_t *)id)[i]) * 0x100000001b3ull;
	(void)snprintf(ret, 17, "%016llx", (unsigned long long)h);
	(void)fcntl(e->ids_fd, F_OFD_SETLK,
		    &(struct flock){ .l_type = F_WRLCK,
				     .l_whence = SEEK_SET,
				     .l_start = instance_place(ret),
				     .l_len = 1 });
}

bool store_instance_dead(const struct engine *e, const char *instance)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1 };

	l.l_start = instance_place(instance);
	return e->ids_fd >= 0 && fcntl(e->ids_fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK;
}

int proof_of(int pid, uint64_t *ret_start_time, uint64_t *ret_pid_namespace)
{
	char path[64], text[1024], *p;
	struct stat st;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (read_file_at(AT_FDCWD, path, text, sizeof(text)) < 0 || !(p = strrchr(text, ')')))
		return -1;
	/* The start time is field 22; field 3 comes after the name. */
	for (int field = 2; field < 22 && p; field++)
		p = strchr(p + 1, ' ');
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/pid", pid);
	if (!p || stat(path, &st) < 0)
		return -1;
	*ret_start_time = strtoull(p + 1, NULL, 10);
	*ret_pid_namespace = st.st_ino;
	return 0;
}

/* One line; its end says that it is whole. */
int store_write_meta(struct engine *e, const char *slot, const struct store_meta *m,
		     struct garret_error *err)
{
	char path[64], text[320], owner[2 * ENGINE_OWNER_TAG + 1];
	autoclose int fd = -EBADF;
	int n;

	(void)snprintf(path, sizeof(path), "%s/meta", slot);
	/* The slot was prepared with an empty one: making a file costs more than all the rest. */
	fd = open_beneath(e->sessions_fd, path, O_WRONLY, 0);
	hex_encode(m->owner, sizeof(m->owner), owner);
	n = snprintf(text, sizeof(text), "1 %d %llu %llu %u %u %u %d %d %d %s %s %s\n", m->pid,
		     (unsigned long long)m->start_time, (unsigned long long)m->pid_namespace,
		     m->base, m->project, (unsigned)m->uid, m->durable, m->own_workspace, m->layer,
		     owner, m->id, e->boot);
	if (fd < 0 || write_full(fd, text, (size_t)n) < 0)
		return garret_fail_errno(err, "write the session's meta file");
	return 0;
}

static bool number(const char *word, uint64_t most, uint64_t *ret)
{
	return parse_u64(word, ret) && *ret <= most;
}

/* Another version's, half a line, or none: not proven. */
static bool read_meta(const struct engine *e, const char *slot, struct store_meta *m)
{
	enum {
		VERSION,
		PID,
		START,
		NAMESPACE,
		BASE,
		PROJECT,
		UID,
		DURABLE,
		OWN,
		LAYER,
		TAG,
		ID,
		BOOT,
		WORDS
	};
	uint64_t v[TAG];
	char path[300], text[320], *w[WORDS];
	size_t n;

	(void)snprintf(path, sizeof(path), "%s/meta", slot);
	if (read_file_at(e->sessions_fd, path, text, sizeof(text)) < 0)
		return false;
	n = strlen(text);
	if (!n || text[n - 1] != '\n' || split_words(text, w, WORDS) != WORDS)
		return false;
	for (int i = 0; i < TAG; i++)
		if (!number(w[i], i == START || i == NAMESPACE ? UINT64_MAX : UINT32_MAX, &v[i]))
			return false;
	if (v[VERSION] != 1 || v[PID] <= 1 || v[PID] > INT_MAX || !v[START] || !v[NAMESPACE] ||
	    !hex_decode(w[TAG], m->owner, sizeof(m->owner)) || strlen(w[ID]) >= sizeof(m->id) ||
	    strlen(w[BOOT]) >= sizeof(m->boot))
		return false;
	m->pid = (int)v[PID];
	m->start_time = v[START];
	m->pid_namespace = v[NAMESPACE];
	m->base = (uint32_t)v[BASE];
	m->project = (uint32_t)v[PROJECT];
	m->uid = (uid_t)v[UID];
	m->durable = v[DURABLE];
	m->own_workspace = v[OWN];
	m->layer = v[LAYER];
	(void)snprintf(m->id, sizeof(m->id), "%s", w[ID]);
	(void)snprintf(m->boot, sizeof(m->boot), "%s", w[BOOT]);
	return true;
}

/* Its pidfd when the process is the one that was meant, or -EBADF. */
static int prove(const struct store_meta *m)
{
	/* Opened first: what is compared then cannot be another process's number. */
	autoclose int pidfd = pidfd_open(m->pid, 0);
	uint64_t start, ns;

	if (pidfd < 0 || proof_of(m->pid, &start, &ns) < 0 || start != m->start_time ||
	    ns != m->pid_namespace)
		return -EBADF;
	return take_fd(&pidfd);
}

/* What a session had on the disk that died with its engine, or with the host, is its next one's. */
static bool keep_layer(struct engine *e, const char *slot, const struct store_meta *m)
{
	int rc;

	if (!m->durable || !m->own_workspace || m->layer || !name_valid(m->id))
		return false;
	rc = layer_keep(e, slot, m->id, "host", m->boot);
	if (rc < 0)
		log_error("layer_lost", "session=%s errno=%d", m->id, -rc);
	return rc == 0;
}

void store_sweep(struct engine *e, bool (*restore)(struct engine *e, const char *slot,
						   const struct store_meta *m, int *pidfd))
{
	int fd = openat(e->sessions_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	while (d && (entry = readdir(d))) {
		struct store_meta m = { 0 };
		const char *slot = entry->d_name;
		autoclose int pidfd = -EBADF;

		if (slot[0] == '.')
			continue;
		/* Of another boot of the host the numbers say nothing. */
		if (read_meta(e, slot, &m) && !strcmp(m.boot, e->boot))
			pidfd = prove(&m);
		if (pidfd >= 0 && m.durable && restore(e, slot, &m, &pidfd))
			continue;
		if (pidfd < 0 && m.pid && keep_layer(e, slot, &m))
			continue;
		if (pidfd >= 0) {
			log_info("session_leftover", "slot=%s pid=%d", slot, m.pid);
			(void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
		}
		if (renameat(e->sessions_fd, slot, e->trash_fd, slot) < 0)
			log_warn("session_stuck", "slot=%s errno=%d", slot, errno);
	}
}
