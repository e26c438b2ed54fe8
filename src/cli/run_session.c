#include "cli/run_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "cli/cli.h"

#define PREFIX "run-" /* sweep() removes nothing else */

static void fail(struct private_session *s, const struct garret_error *err)
{
	if (s->failed || s->closing)
		return;
	s->failed = true;
	if (s->is_open)
		s->lost(s->ctx, err);
	else
		s->opened(s->ctx, err);
}

static void check_open(struct private_session *s)
{
	if (s->failed || s->is_open || !s->greeted || !s->handle)
		return;
	s->is_open = true;
	s->opened(s->ctx, NULL);
}

/* ---- init ---- */

static void on_init_ready(void *ctx)
{
	struct private_session *s = ctx;

	s->greeted = true;
	check_open(s);
}

static void on_init_lost(void *ctx, const struct garret_error *err)
{
	struct private_session *s = ctx;
	struct garret_error gone = { 0 };

	(void)err;
	s->init = init_client_free(s->init);
	/* Before the session is open the engine says what went wrong. */
	if (!s->is_open)
		return;
	(void)garret_fail(&gone, GARRET_GONE, "the session ended under the command");
	fail(s, &gone);
}

/* The caller's events, with ours in front. */
static struct init_events merged;

/* ---- the engine ---- */

static void on_opened(void *ctx, const struct engine_opened *o, const struct garret_error *err)
{
	struct private_session *s = ctx;

	s->init_sock = fd_close(s->init_sock);
	if (err) {
		fail(s, err);
		return;
	}
	s->handle = o->handle;
	check_open(s);
}

static void on_engine_ready(void *ctx, const struct engine_hello *hello)
{
	struct private_session *s = ctx;

	(void)hello;
	engine_client_open(s->engine, &s->spec, s->init_sock, s->volume_fds, on_opened, s);
}

static void on_engine_lost(void *ctx, const struct garret_error *err)
{
	fail(ctx, err);
}

static void on_engine_died(void *ctx, uint64_t handle, enum engine_death how)
{
	struct private_session *s = ctx;
	struct garret_error gone = { 0 };

	if (handle != s->handle)
		return;
	(void)garret_fail(&gone, GARRET_GONE, "the session ended under the command%s",
			  how == ENGINE_DEATH_OOM ? " (out of memory)" : "");
	fail(s, &gone);
}

static const struct engine_events engine_events = {
	.ready = on_engine_ready,
	.lost = on_engine_lost,
	.died = on_engine_died,
};

/* A new directory that others can see is in use: they don't remove what is locked. */
static int make_locked(struct private_session *s, const char *runs, struct garret_error *err)
{
	for (int tries = 0; tries < 16; tries++) {
		autoclose int fd = -EBADF;
		struct stat st;

		(void)snprintf(s->state_dir, sizeof(s->state_dir), "%s/" PREFIX "XXXXXX", runs);
		if (!mkdtemp(s->state_dir)) {
			s->state_dir[0] = '\0';
			return garret_fail_errno(err, "make a directory in %s", runs);
		}
		fd = open(s->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
		    st.st_nlink > 0) {
			s->lock_fd = take_fd(&fd);
			return 0;
		}
		if (fd < 0 && errno != ENOENT) {
			(void)garret_fail_errno(err, "open %s", s->state_dir);
			(void)rmdir(s->state_dir);
			s->state_dir[0] = '\0';
			return -(int)err->code;
		}
		/* Another run saw it before it was locked, and took it for a leftover. */
	}
	return garret_fail(err, GARRET_INTERNAL, "make a directory in %s", runs);
}

/* Does nobody hold this lock?  Missing counts as free. */
static bool is_free(int dir, const char *name)
{
	autoclose int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? errno == ENOENT : flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/*
 * What a run left that was killed: nobody else would ever remove it, because each run has
 * a directory of its own.  An engine that outlives its owner for a moment still holds its locks.
 */
/* An engine that was killed left the file system of its own mounted, where it needed one. */
static void unmount_store(const char *runs, const char *name)
{
	char path[400];

	(void)snprintf(path, sizeof(path), "%s/%s/store/mounted", runs, name);
	(void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW); /* nearly always there is none */
}

static void sweep(const char *runs)
{
	autodir DIR *d = opendir(runs);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		autoclose int fd = -EBADF;

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || !is_free(fd, "lock") ||
		    !is_free(fd, "makers"))
			continue;
		unmount_store(runs, e->d_name);
		(void)remove_tree_at(dirfd(d), e->d_name);
	}
}

int private_runs_dir(char runs[96], struct garret_error *err)
{
	const char *base = getenv("GARRET_RUN_DIR");
	struct stat st;

	if (!base)
		base = "/var/lib/garret";
	if ((size_t)snprintf(runs, 96, "%s/run", base) >= 96)
		return garret_fail(err, GARRET_INVALID, "GARRET_RUN_DIR: the path is too long");
	if (mkdir(base, 0755) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make %s", base);
	if (mkdir(runs, 0700) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make %s", runs);
	/* What is in it is removed by us, as root: nobody else may say what that is. */
	if (lstat(runs, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
	    st.st_mode & 022)
		return garret_fail(err, GARRET_DENIED,
				   "%s must be a directory of ours that nobody else can write",
				   runs);
	return 0;
}

int private_session_start(struct private_session *s, const struct engine_open *spec,
			  const int *volume_fds, struct garret_error *err)
{
	autofree char *program = program_beside("garret-engine");
	int pair[2] = { -EBADF, -EBADF }, engine_fd = -EBADF, rc;
	char runs[96];

	s->spec = *spec;
	s->spec.flags = ENGINE_OPEN_CONNECTED | ENGINE_OPEN_EPHEMERAL;
	s->volume_fds = volume_fds;
	if (getrandom(s->spec.nonce, INIT_NONCE, 0) != INIT_NONCE)
		return garret_fail_errno(err, "random bytes");
	rc = private_runs_dir(runs, err);
	if (rc == 0)
		rc = make_locked(s, runs, err);
	if (rc < 0)
		return rc;
	rc = engine_start(program, s->state_dir, NULL, &engine_fd, &s->engine_pid, err);
	sweep(runs); /* while the engine starts */
	if (rc == 0)
		rc = engine_client_new(s->loop, engine_fd, &engine_events, s, &s->engine, err);
	if (rc == 0)
		rc = msg_pair(pair, false, err);
	if (rc < 0)
		return rc;
	s->init_sock = pair[1];
	merged = *s->events;
	merged.ready = on_init_ready;
	merged.lost = on_init_lost;
	return init_client_new(s->loop, pair[0], s->spec.nonce, &merged, s, &s->init, err);
}

/* The engine's end is the proof that nothing is left; bounded, so that we end in any case. */
static void wait_for_engine(struct private_session *s)
{
	uint64_t until = now_ms() + 5000;

	s->init = init_client_free(s->init);
	s->engine = engine_client_free(s->engine);
	s->init_sock = fd_close(s->init_sock);
	while (s->engine_pid > 0 && waitpid(s->engine_pid, NULL, WNOHANG) == 0 && now_ms() < until)
		(void)usleep(1000);
	if (s->state_dir[0])
		(void)remove_tree_at(AT_FDCWD, s->state_dir);
	s->lock_fd = fd_close(s->lock_fd);
	s->closed(s->ctx);
}

static void end_later(struct loop_later *l)
{
	wait_for_engine(l->ctx);
}

/* Not from inside a callback of the clients that it frees. */
static void on_closed(void *ctx, const struct garret_error *err)
{
	struct private_session *s = ctx;

	(void)err;
	loop_later_add(s->loop, &s->later, end_later, s);
}

void private_session_close(struct private_session *s)
{
	if (s->closing)
		return;
	s->closing = true;
	if (s->handle && s->engine)
		engine_client_close(s->engine, s->handle, true, on_closed, s);
	else
		on_closed(s, NULL);
}
