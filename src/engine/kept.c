#include "engine/kept.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "engine/image.h"
#include "engine/measure.h"
#include "engine/workspace.h"
#include "io/msg.h"

#define MEASURE_MS 60000 /* for one workspace: millions of files */
#define NICE 10     /* not idle: somebody waits, and that would be for ever on a busy machine */
#define DISK_LAST 7 /* the last of the best-effort levels */

struct kept {
	struct engine *engine;
	int sock, pidfd;
	struct loop_io io;
	kept_fn fn;
	void *ctx;
};

/* What the child says; the last one has no id. */
struct kept_note {
	char id[ENGINE_ID_MAX + 1];
	uint64_t used_ms, layer_ms;
	uint32_t ours;
	struct measure sum;
};

struct look {
	int root, layers, sock;
	bool sizes;
};

/* ---- the child ---- */

/* Where everything in it belongs to one project, the file system has counted it already. */
static bool ask_quota(int root, const char *id, int dir, struct measure *ret)
{
	autoclose int parent = open_beneath(root, id, O_PATH | O_DIRECTORY, 0);
	uint32_t project = parent < 0 ? 0 : disk_project(parent);

	*ret = (struct measure){ 0 };
	if (!project || disk_project(dir) != project ||
	    disk_usage(root, project, &ret->bytes, &ret->files) < 0)
		return false;
	ret->files -= MIN(ret->files, (uint64_t)2); /* the two directories themselves */
	return true;
}

/* Of a file system in a file only this is known while it isn't mounted. */
static bool ask_image(int root, const char *id, struct measure *ret)
{
	char path[ENGINE_ID_MAX + 16];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%.*s/" IMAGE_NAME, ENGINE_ID_MAX, id);
	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
		return false;
	*ret = (struct measure){ .bytes = (uint64_t)st.st_blocks * 512, .partial = true };
	return true;
}

static uint64_t used_ms(int dir, const char *id)
{
	struct stat st;

	if (fstatat(dir, id, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	return (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
}

static void look_at(const struct look *l, const char *id)
{
	struct kept_note n = { .used_ms = used_ms(l->root, id) };
	char path[ENGINE_ID_MAX + 16];
	autoclose int dir = -EBADF;

	(void)snprintf(path, sizeof(path), "%.*s/workspace", ENGINE_ID_MAX, id);
	dir = open_beneath(l->root, path, O_RDONLY | O_DIRECTORY, 0);
	if (dir < 0 || !n.used_ms)
		return; /* not one of ours, or gone */
	(void)snprintf(n.id, sizeof(n.id), "%.*s", ENGINE_ID_MAX, id);
	n.layer_ms = used_ms(l->layers, id);
	n.ours = workspace_marked(l->root, id);
	if (l->sizes && !ask_image(l->root, id, &n.sum) && !ask_quota(l->root, id, dir, &n.sum))
		n.sum = measure_tree(dir, now_ms() + MEASURE_MS);
	if (msg_send(l->sock, &n, sizeof(n), NULL, 0, NULL) < 0)
		_exit(1); /* nobody wants to know any more */
}

static void count(const struct look *l)
{
	int fd = openat(l->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;

	if (!d)
		_exit(1);
	while ((entry = readdir(d)))
		if (name_valid(entry->d_name))
			look_at(l, entry->d_name);
}

static void kept_main(const struct look *l) __attribute__((noreturn));

static void kept_main(const struct look *l)
{
	const struct kept_note end = { .used_ms = 0 };
	sigset_t signals;

	sigemptyset(&signals);
	(void)sigprocmask(SIG_SETMASK, &signals, NULL);
	engine_keep_fds((const int[]){ l->root, l->layers, l->sock }, 3);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "garret-kept");
	(void)setpriority(PRIO_PROCESS, 0, NICE);
	(void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0,
		      IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, DISK_LAST));
	count(l);
	(void)msg_send(l->sock, &end, sizeof(end), NULL, 0, NULL);
	_exit(0);
}

/* ---- the engine ---- */

static void on_note(struct loop_io *io, uint32_t events)
{
	struct kept *k = io->ctx;
	struct garret_error err = { 0 };
	struct engine_workspace w;
	struct kept_note n;
	ssize_t r = msg_recv(k->sock, &n, sizeof(n), NULL, &err);

	if (r < 0 && err.sys == EAGAIN)
		return;
	if (r == sizeof(n) && n.id[0]) {
		n.id[sizeof(n.id) - 1] = '\0';
		w = (struct engine_workspace){ .id = n.id,
					       .bytes = n.sum.bytes,
					       .files = n.sum.files,
					       .used_ms = n.used_ms,
					       .layer_ms = n.layer_ms,
					       .ours = n.ours != 0,
					       .partial = n.sum.partial };
		k->fn(k->ctx, &w, NULL);
		return;
	}
	loop_io_remove(&k->io);
	if (r == sizeof(n)) {
		k->fn(k->ctx, NULL, NULL);
		return;
	}
	(void)garret_fail(&err, GARRET_INTERNAL, "what counts the workspaces has ended");
	k->fn(k->ctx, NULL, &err);
}

int kept_start(struct engine *e, bool sizes, kept_fn fn, void *ctx, struct kept **ret,
	       struct garret_error *err)
{
	struct kept *k;
	int pair[2], rc = msg_pair(pair, false, err);
	pid_t pid;

	if (rc < 0)
		return rc;
	pid = fork();
	if (pid == 0)
		kept_main(&(struct look){ e->workspaces_fd, e->layers_fd, pair[1], sizes });
	fd_close(pair[1]);
	if (pid < 0) {
		fd_close(pair[0]);
		return garret_fail_errno(err, "fork what counts the workspaces");
	}
	k = xnew(struct kept);
	*k = (struct kept){
		.engine = e, .sock = pair[0], .pidfd = pidfd_open(pid, 0), .fn = fn, .ctx = ctx
	};
	k->io.fd = -EBADF;
	(void)fd_set_nonblock(k->sock, true);
	rc = loop_io_add(e->loop, &k->io, k->sock, EPOLLIN, on_note, k, err);
	if (rc < 0)
		k = kept_stop(k);
	*ret = k;
	return rc;
}

void kept_pause(struct kept *k)
{
	/* Removed, because the end of the child can't be waited for less often than always. */
	if (k)
		loop_io_remove(&k->io);
}

void kept_resume(struct kept *k)
{
	struct garret_error err = { 0 };

	if (k && k->io.fd < 0 &&
	    loop_io_add(k->engine->loop, &k->io, k->sock, EPOLLIN, on_note, k, &err) < 0)
		k->fn(k->ctx, NULL, &err);
}

struct kept *kept_stop(struct kept *k)
{
	if (!k)
		return NULL;
	loop_io_remove(&k->io);
	fd_close(k->sock);
	if (k->pidfd >= 0)
		(void)pidfd_send_signal(k->pidfd, SIGKILL, NULL, 0);
	fd_close(k->pidfd);
	free(k);
	return NULL;
}
