/*
 * A run from its request to its answer, and after that until its owner forgets
 * it.  The answer is given when the command has exited, everything it wrote
 * before is taken, and the other holders of its pipes had 50 ms to end too; or,
 * for a run that was ended, when nothing of its session is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "init/session.h"

#define DRAIN_MS 50
#define STOP_GRACE_MS 2000 /* of a run that is over its time */

static struct list *bucket(struct session *s, const uint8_t *id)
{
	uint64_t h;

	memcpy(&h, id, sizeof(h));
	return &s->buckets[(h * 0x9e3779b97f4a7c15u >> 32) % BUCKETS];
}

struct run *run_find(struct session *s, const uint8_t *id)
{
	struct list *b = bucket(s, id);
	struct run *r;

	list_foreach (r, b, in_bucket)
		if (memcmp(r->id, id, INIT_RUN_ID) == 0)
			return r;
	return NULL;
}

static struct run *run_new(struct session *s, const struct init_run *req)
{
	struct run *r = xnew(struct run);

	r->s = s;
	memcpy(r->id, req->id, INIT_RUN_ID);
	r->flags = req->flags;
	r->limit = req->output_limit;
	r->started_us = now_us();
	list_init(&r->subs);
	list_init(&r->waiters);
	list_init(&r->in_reaped);
	for (int i = 0; i < 2; i++) {
		r->out[i].run = r;
		r->out[i].fd = -EBADF;
		r->out[i].io.fd = -EBADF;
		list_init(&r->out[i].in_thirsty);
	}
	input_open(r, -EBADF, false);
	list_append(bucket(s, r->id), &r->in_bucket);
	list_append(&s->live, &r->in_list);
	s->n_live++;
	s->n_runs++;
	return r;
}

void run_free(struct run *r)
{
	conn_forget(r);
	output_free(r);
	if (r->s->p.container && r->took_spool)
		spool_remove(r->s, r->exit.spool_index);
	list_remove(&r->in_bucket);
	list_remove(&r->in_list);
	r->s->n_runs--;
	free(r);
}

bool run_drop_one(struct session *s)
{
	struct run *r;

	list_foreach (r, &s->ended, in_list)
		/* An owner that was killed is one that comes back. */
		if (r->unwanted && list_empty(&r->subs)) {
			run_free(r);
			return true;
		}
	return false;
}

/* The run is over: answer, and let go of all but the result. */
static void run_end(struct run *r)
{
	struct session *s = r->s;

	r->ended = true;
	r->exit.wall_us = now_us() - r->started_us;
	r->exit.total[0] = r->out[0].total;
	r->exit.total[1] = r->out[1].total;
	r->exit.oom = session_oom_kills(s) > r->oom_before;
	list_remove(&r->in_list);
	s->n_live--;
	r->exit.background = procs_background(s, r);
	list_append(&s->ended, &r->in_list);
	if (r->phase != STOP_NONE && r->phase != STOP_DONE)
		s->n_stopping--;
	loop_timer_clear(&r->deadline_timer);
	loop_timer_clear(&r->tick_timer);
	output_end(r);
	input_close(r);
	leaf_retire(s, r->leaf);
	r->leaf = NULL;
	conn_notify(r);
	conn_release(r);
	session_note_live(s);
}

static void on_drained(struct loop_timer *t)
{
	run_check(t->ctx);
}

void run_check(struct run *r)
{
	bool open = false, owed = false;

	if (r->ended || !r->exited || r->start)
		return;
	if (r->phase == STOP_DONE)
		for (int i = 0; i < 2; i++)
			output_turn(&r->out[i]); /* all writers are dead: this is the rest */
	else if (r->phase != STOP_NONE)
		return;
	for (int i = 0; i < 2 && r->phase == STOP_NONE; i++) {
		open = open || r->out[i].fd >= 0;
		owed = owed || r->out[i].owed;
	}
	if (open && (owed || now_ms() < r->drain_ms)) {
		/* Owed bytes come by the stream's own events, whatever the time. */
		if (!r->tick_timer.index && now_ms() < r->drain_ms)
			loop_timer_set(r->s->loop, &r->tick_timer, r->drain_ms, on_drained, r);
		return;
	}
	run_end(r);
}

void run_started(struct run *r)
{
	r->started = true;
	/* A Ctrl-C may be quicker than exec; before it the child runs our code, not the program. */
	for (int n = 1; n <= 64 && (r->early[0] | r->early[1]); n++) {
		if (r->early[0] & 1ull << (n - 1))
			(void)kill(r->pid, n);
		if (r->early[1] & 1ull << (n - 1))
			(void)kill(-r->pid, n);
	}
	r->early[0] = r->early[1] = 0;
	conn_notify(r);
}

void run_reaped(struct run *r, int status, const struct rusage *ru)
{
	r->exited = true;
	r->exit.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
	r->exit.user_us = (uint64_t)ru->ru_utime.tv_sec * 1000000u + (uint64_t)ru->ru_utime.tv_usec;
	r->exit.system_us =
		(uint64_t)ru->ru_stime.tv_sec * 1000000u + (uint64_t)ru->ru_stime.tv_usec;
	r->exit.max_rss_bytes = (uint64_t)ru->ru_maxrss * 1024u;
	r->drain_ms = now_ms() + DRAIN_MS;
}

void run_settle(struct run *r)
{
	output_settle(r);
	if (r->phase == STOP_NONE)
		run_check(r);
	else
		stop_tick(r);
}

void run_abandon(struct run *r)
{
	if (r->exited)
		return;
	spawn_abandon(r);
	r->exited = true;
	r->exit.exit_code = 128 + SIGKILL;
}

void run_cut(struct run *r, uint8_t cause)
{
	if (r->out[0].owed || r->out[1].owed)
		r->exit.cause = cause;
	run_end(r);
}

static void run_failed(struct run *r, int sys)
{
	r->exited = true;
	r->exit.step = INIT_STEP_SPAWN;
	r->exit.sys = (uint32_t)sys;
	r->exit.exit_code = 125;
	run_end(r);
}

static void on_deadline(struct loop_timer *t)
{
	struct run *r = t->ctx;

	stop_begin(r, INIT_CAUSE_TIMEOUT, STOP_GRACE_MS);
}

/* ---- the request ---- */

/* The strings in memory of their own; NULL with errno. */
static uint8_t *copy_strings(const struct init_run *req, int body)
{
	uint8_t *m = try_alloc(req->strings_bytes ? req->strings_bytes : 1);
	size_t done = 0;
	struct stat st;

	if (!m || req->strings) {
		if (m)
			memcpy(m, req->strings, req->strings_bytes);
		return m;
	}
	/* Only a file: reading from anything else could wait. */
	if (fstat(body, &st) < 0 || !S_ISREG(st.st_mode) ||
	    st.st_size != (off_t)req->strings_bytes) {
		free(m);
		errno = EINVAL;
		return NULL;
	}
	while (done < req->strings_bytes) {
		ssize_t n = pread(body, m + done, req->strings_bytes - done, (off_t)done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			free(m);
			errno = n < 0 ? errno : EINVAL;
			return NULL;
		}
		done += (size_t)n;
	}
	return m;
}

static int open_terminal(struct run *r, const struct init_run *req, int stdio[3])
{
	int rc = pty_open(req->rows, req->columns, &r->out[0].fd, &stdio[0]);
	int in;

	if (rc < 0)
		return rc;
	if (r->s->p.container && geteuid() == 0 && fchown(stdio[0], r->s->p.run_uid, (gid_t)-1) < 0)
		return -errno;
	stdio[1] = fcntl(stdio[0], F_DUPFD_CLOEXEC, 3);
	stdio[2] = fcntl(stdio[0], F_DUPFD_CLOEXEC, 3);
	in = fcntl(r->out[0].fd, F_DUPFD_CLOEXEC, 3); /* one descriptor can't be watched twice */
	if (in >= 0)
		input_open(r, in, true);
	return stdio[1] < 0 || stdio[2] < 0 || in < 0 ? -errno : 0;
}

static int open_input(struct run *r, int *ret_child)
{
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	input_open(r, p[1], false);
	*ret_child = p[0];
	return fcntl(p[1], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static int open_stdio(struct run *r, const struct init_run *req, struct msg_fds *fds, int stdio[3])
{
	int rc = 0;

	if (r->flags & INIT_RUN_FDS) {
		for (int i = 0; i < 3; i++)
			stdio[i] = msg_fds_take(fds);
		return 0;
	}
	if (r->flags & INIT_RUN_PTY)
		return open_terminal(r, req, stdio);
	if (r->flags & INIT_RUN_STDIN)
		rc = open_input(r, &stdio[0]);
	return rc < 0 ? rc : output_open(r, &stdio[1]);
}

static void run_begin(struct conn *c, uint64_t request, const struct init_run *req,
		      uint8_t *strings, struct msg_fds *fds)
{
	struct session *s = conn_session(c);
	struct run *r = run_new(s, req);
	int stdio[3] = { -EBADF, -EBADF, -EBADF };
	int rc;

	r->oom_before = session_oom_kills(s);
	conn_attach(c, r, request);
	rc = open_stdio(r, req, fds, stdio);
	if (rc == 0) {
		rc = spawn(r, req, strings, stdio);
	} else {
		free(strings);
		for (int i = 0; i < 3; i++)
			fd_close(stdio[i]);
	}
	if (rc < 0) {
		run_failed(r, -rc);
		if (rc == -EBADMSG) {
			run_free(r);
			conn_error(c, request, GARRET_INVALID, 0, "the strings of a run");
		}
		return;
	}
	for (int i = 0; i < 2; i++)
		output_watch(&r->out[i]);
	if (req->timeout_ms)
		loop_timer_set(s->loop, &r->deadline_timer, r->started_us / 1000 + req->timeout_ms,
			       on_deadline, r);
	session_note_live(s);
}

void run_request(struct conn *c, uint64_t request, const struct init_run *req, struct msg_fds *fds)
{
	struct session *s = conn_session(c);
	struct run *known = run_find(s, req->id);
	autoclose int body = -EBADF;
	uint8_t *strings;

	if (known) {
		conn_attach(c, known, request);
		return;
	}
	if (s->n_runs >= INIT_RUNS_MAX && !run_drop_one(s)) {
		conn_error(c, request, GARRET_EXHAUSTED, 0, "too many runs");
		return;
	}
	if (req->flags & INIT_RUN_BODY_FD)
		body = msg_fds_take(fds);
	if (req->flags & INIT_RUN_FDS && fds->n != 3) {
		conn_error(c, request, GARRET_INVALID, 0, "a run wants three descriptors");
		return;
	}
	strings = copy_strings(req, body);
	if (!strings)
		conn_error(c, request, errno == ENOMEM ? GARRET_EXHAUSTED : GARRET_INVALID, errno,
			   "the body of a run");
	else
		run_begin(c, request, req, strings, fds);
}
