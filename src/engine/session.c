#include "engine/session.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "engine/check.h"
#include "engine/layer.h"
#include "engine/nursery.h"
#include "engine/plan.h"
#include "engine/reaper.h"
#include "engine/serve.h"
#include "engine/slots.h"
#include "engine/store.h"
#include "engine/workspace.h"

#define STATUS_MS 200  /* for the zygote to report how init ended */
#define START_MS 10000 /* for a slot and for the build together */

enum session_state { QUEUED, BUILDING, RUNNING, KILLING, CLEANING };

struct session {
	struct list link;
	struct engine *engine;
	struct peer *peer; /* borrowed; NULL when it is gone */
	enum session_state state;
	char id[ENGINE_ID_MAX + 1];
	uint32_t flags;
	uint64_t request, close_request, since_us, handle;
	bool closing; /* close_request waits for DONE */
	bool opened;  /* the owner knows it */
	bool own_workspace;
	bool layer; /* it has the kept write layer of its id */
	enum engine_layer layer_fate;
	enum engine_close how;
	uid_t uid; /* of a durable one: who may take it over, with this tag */
	uint8_t owner[ENGINE_OWNER_TAG];

	struct cgroup_limits limits;
	uint64_t disk_bytes; /* 0: no limit */
	struct plan plan;    /* until it is sent */

	struct slot *slot;
	int pidfd, pid, status;
	struct loop_io pid_io;
	bool dead, exited; /* it has ended; and how is known */
	bool clean;        /* nothing is left, its end is still to be told */
	uint64_t oom_kills;
	struct garret_error failure; /* why it never ran, when code is set */
	struct garret_error left;    /* the same of what could not be removed */
	struct loop_timer deadline;
};

static void on_deadline(struct loop_timer *t);
static void start_queued(struct engine *e);
static void session_end(struct session *s);
static void fail(struct session *s, const struct garret_error *err);

static bool holds_files(const struct session *s)
{
	return s->flags & ENGINE_OPEN_FILES;
}

static bool is_durable(const struct session *s)
{
	return s->flags & ENGINE_OPEN_DURABLE;
}

static void session_free(struct session *s)
{
	struct engine *e = s->engine;

	plan_done(&s->plan);
	loop_io_remove(&s->pid_io);
	loop_timer_clear(&s->deadline);
	fd_close(s->pidfd);
	list_remove(&s->link);
	e->n_sessions--;
	e->n_files -= holds_files(s);
	free(s);
	engine_check_end(e);
}

static void tell_end(struct session *s)
{
	uint8_t death = ENGINE_DEATH_EXIT;

	if (s->peer && s->failure.code != GARRET_OK) {
		serve_error(s->peer, s->request, &s->failure);
	} else if (s->peer && s->closing && s->left.code != GARRET_OK) {
		serve_error(s->peer, s->close_request, &s->left);
	} else if (s->peer && s->closing) {
		serve_done(s->peer, s->close_request);
	} else if (s->peer && s->opened) {
		if (s->exited && WIFSIGNALED(s->status) && s->oom_kills &&
		    s->oom_kills != UINT64_MAX)
			death = ENGINE_DEATH_OOM;
		else if (s->flags & ENGINE_OPEN_CONNECTED && s->exited && s->status == 0)
			death = ENGINE_DEATH_CLOSED;
		serve_died(s->peer, s->handle, death);
	}
	session_free(s);
}

static void on_no_status(struct loop_timer *t)
{
	tell_end(t->ctx);
}

/*
 * Nobody goes on looking at a workspace that is being deleted, nor keeps its files on the
 * disk.  They may end after the answer: what they see has lost its name already.
 */
static void end_views(struct engine *e, const char *id)
{
	struct garret_error err = { 0 };
	struct session *s;

	(void)garret_fail(&err, GARRET_NOT_FOUND, "workspace %s was removed", id);
	list_foreach (s, &e->sessions, link) {
		if (!holds_files(s) || strcmp(s->id, id) != 0)
			continue;
		if (s->opened)
			session_end(s);
		else
			fail(s, &err);
	}
}

static void drop_layer(struct engine *e, const char *id, struct garret_error *ret)
{
	struct garret_error err = { 0 };

	if (layer_remove(e, id, &err) < 0 && err.code != GARRET_NOT_FOUND)
		*ret = err;
}

/* *ret: why something is left of it. */
static void purge(struct engine *e, const char *id, struct garret_error *ret)
{
	struct garret_error err = { 0 };

	drop_layer(e, id, ret);
	if (workspace_remove(e, id, &err) < 0 && err.code != GARRET_NOT_FOUND) {
		log_warn("workspace_stuck", "session=%s error=\"%s\"", id, err.msg);
		*ret = err;
	}
	end_views(e, id);
	reaper_poke(e);
}

static void on_gone(void *ctx, bool clean)
{
	struct session *s = ctx;

	s->slot = NULL;
	if (s->own_workspace && s->how == ENGINE_CLOSE_PURGE)
		purge(s->engine, s->id, &s->left);
	else if (s->own_workspace)
		workspace_touch(s->engine, s->id);
	/* One that never was there has changed nothing of it, and may be asked for again. */
	if (s->layer && (s->how == ENGINE_CLOSE_KEEP || !s->opened))
		layer_touch(s->engine, s->id);
	else if (s->layer && s->how == ENGINE_CLOSE_PLAIN)
		drop_layer(s->engine, s->id, &s->left);
	log_info("session_closed", "session=%s clean=%d", s->id, clean);
	s->clean = true;
	/* How init ended is known to its parent, the zygote, which may not have said it yet. */
	if (s->peer && s->opened && !s->closing && !s->exited)
		loop_timer_set(s->engine->loop, &s->deadline, now_ms() + STATUS_MS, on_no_status,
			       s);
	else
		tell_end(s);
}

static void clean_up(struct session *s)
{
	struct engine_usage u = { .oom_kills = UINT64_MAX };

	s->state = CLEANING;
	loop_timer_clear(&s->deadline);
	loop_io_remove(&s->pid_io);
	s->pidfd = fd_close(s->pidfd);
	cgroups_usage(&s->engine->cg, s->slot->name, &u);
	s->oom_kills = u.oom_kills;
	/* One that died: its owner says what becomes of it, with a purge or the next open. */
	if (is_durable(s) && s->opened && !s->closing && s->failure.code == GARRET_OK)
		s->how = ENGINE_CLOSE_KEEP;
	if (s->how == ENGINE_CLOSE_KEEP && s->own_workspace && !s->layer)
		(void)snprintf(s->slot->keep_as, sizeof(s->slot->keep_as), "%s", s->id);
	slot_end(s->slot, on_gone, s);
}

static void on_pid(struct loop_io *io, uint32_t events)
{
	struct session *s = io->ctx;

	s->dead = true;
	loop_io_remove(&s->pid_io);
	/* One that failed to build says why before its end; both may be seen in either order. */
	if (s->state != BUILDING)
		clean_up(s);
}

/* Idempotent; on_gone() is called once nothing is left. */
static void session_end(struct session *s)
{
	if (s->state >= KILLING)
		return;
	loop_timer_clear(&s->deadline);
	plan_done(&s->plan);
	if (s->state == QUEUED) {
		on_gone(s, true);
		return;
	}
	if (s->dead || s->pid_io.fd < 0) {
		clean_up(s);
		return;
	}
	s->state = KILLING;
	if (pidfd_send_signal(s->pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
		log_error("session_kill", "session=%s errno=%d", s->id, errno);
}

static void fail(struct session *s, const struct garret_error *err)
{
	/* Answered when nothing is left of it, so that the same name can be tried again. */
	log_info("session_failed", "session=%s error=\"%s\"", s->id, err->msg);
	s->failure = *err;
	/* That would say that there is no workspace. */
	if (err->code == GARRET_NOT_FOUND && !holds_files(s))
		s->failure.code = GARRET_INTERNAL;
	session_end(s);
}

static void on_deadline(struct loop_timer *t)
{
	struct session *s = t->ctx;
	struct garret_error err = { 0 };

	if (s->state == QUEUED && s->engine->slot_err.code != GARRET_OK)
		err = s->engine->slot_err;
	else
		(void)garret_fail(&err, GARRET_UNAVAILABLE, "the session was not ready within %d s",
				  START_MS / 1000);
	fail(s, &err);
}

/* Before the owner hears of it, so that no durable session is known to nobody. */
static int write_meta(const struct session *s, const struct engine_opened *o,
		      struct garret_error *err)
{
	struct store_meta m = { .pid = s->pid,
				.start_time = o->start_time,
				.pid_namespace = o->pid_namespace,
				.base = s->slot->base,
				.project = s->slot->project,
				.uid = s->uid,
				.durable = is_durable(s),
				.own_workspace = s->own_workspace,
				.layer = s->layer };

	memcpy(m.owner, s->owner, sizeof(m.owner));
	(void)snprintf(m.id, sizeof(m.id), "%s", s->id);
	if (m.durable)
		slot_bequeath(s->slot, s->pid, o->start_time);
	return store_write_meta(s->engine, s->slot->name, &m, err);
}

static void ready(struct session *s)
{
	char id[ENGINE_ID_MAX + 1];
	struct engine_opened o = { .handle = s->handle,
				   .pid = (uint32_t)s->pid,
				   .layer = (uint8_t)s->layer_fate };
	struct garret_error err = { 0 };
	int rc = 0;

	if (proof_of(s->pid, &o.start_time, &o.pid_namespace) < 0)
		rc = garret_fail(&err, GARRET_INTERNAL, "the session's init ended at once");
	/* A connected one ends with its owner whatever happens to us: nothing to prove later. */
	else if (!(s->flags & ENGINE_OPEN_CONNECTED))
		rc = write_meta(s, &o, &err);
	if (rc < 0) {
		fail(s, &err);
		return;
	}
	s->state = RUNNING;
	s->opened = true;
	loop_timer_clear(&s->deadline);
	o.build_us = (uint32_t)(now_us() - s->since_us);
	/* The line after the answer, and of copies: telling the peer may end the session. */
	(void)snprintf(id, sizeof(id), "%s", s->id);
	serve_opened(s->peer, s->request, &o);
	log_info("session_opened", "session=%s pid=%u us=%u", id, o.pid, o.build_us);
}

/* What the helper and the session's first process say. */
static void on_note(void *ctx, const struct slot_note *n)
{
	struct session *s = ctx;
	struct garret_error err = { 0 };

	if (s->state != BUILDING)
		return;
	if (n && n->type == SLOT_BUILT) {
		ready(s);
		return;
	}
	if (n && n->type == SLOT_FAILED)
		err = n->err;
	else
		(void)garret_fail(&err, GARRET_INTERNAL, "the session's first process died");
	fail(s, &err);
}

static void start(struct session *s)
{
	struct engine *e = s->engine; /* a failure frees s */
	struct garret_error err = { 0 };
	int rc;

	s->state = BUILDING;
	s->handle = s->slot->handle;
	s->pid = s->slot->pid;
	s->pidfd = take_fd(&s->slot->pidfd);
	rc = loop_io_add(s->engine->loop, &s->pid_io, s->pidfd, EPOLLIN, on_pid, s, &err);
	if (rc == 0)
		rc = cgroups_set(&s->engine->cg, s->slot->name, &s->limits, &err);
	if (rc == 0 && s->slot->project)
		rc = disk_limit(e->sessions_fd, s->slot->project, s->disk_bytes, &err);
	if (rc == 0 && s->disk_bytes && e->disk.quota && !s->slot->project)
		rc = garret_fail(&err, GARRET_EXHAUSTED, "no project is free for a disk limit");
	if (rc == 0)
		rc = plan_add_slot(&s->plan, s->engine, s->slot, &err);
	if (rc == 0)
		rc = plan_send(&s->plan, s->engine, s->slot->sock, &err);
	plan_done(&s->plan);
	if (rc < 0)
		fail(s, &err);
	slots_fill(e);
}

static void start_queued(struct engine *e)
{
	struct session *s;

	list_foreach (s, &e->sessions, link) {
		if (s->state != QUEUED)
			continue;
		s->slot = slots_take(e, on_note, s);
		if (!s->slot)
			break;
		start(s);
	}
}

void session_slot_ready(struct engine *e)
{
	start_queued(e);
}

void session_slot_failed(struct engine *e)
{
	struct session *s;

	/* A slot may succeed next time; without a zygote none ever will. */
	if (e->zygote_err.code == GARRET_OK)
		return;
	list_foreach (s, &e->sessions, link)
		if (s->state == QUEUED)
			fail(s, &e->zygote_err);
}

unsigned session_queue(const struct engine *e)
{
	struct session *s;
	unsigned n = 0;

	list_foreach (s, &e->sessions, link)
		n += s->state == QUEUED;
	return n;
}

void session_exited(struct engine *e, int pid, int status)
{
	struct session *s;

	list_foreach (s, &e->sessions, link) {
		if (s->pid != pid || s->exited)
			continue;
		s->exited = true;
		s->status = status;
		if (s->clean)
			tell_end(s);
	}
}

static struct session *session_new(struct engine *e, struct peer *peer, const struct engine_open *o,
				   uint64_t tmpfs_bytes, uint64_t disk_bytes)
{
	struct session *s = xnew(struct session);

	s->engine = e;
	s->peer = peer;
	s->since_us = now_us();
	s->flags = o->flags;
	s->pidfd = s->pid_io.fd = -EBADF;
	(void)snprintf(s->id, sizeof(s->id), "%s", o->id);
	s->disk_bytes = disk_bytes;
	plan_init(&s->plan, o, tmpfs_bytes, disk_bytes);
	list_append(&e->sessions, &s->link);
	e->n_sessions++;
	e->n_files += holds_files(s);
	return s;
}

/* The one that may write to workspace ID, or NULL. */
static struct session *find_owner(struct engine *e, const char *id)
{
	struct session *s;

	list_foreach (s, &e->sessions, link)
		if (!holds_files(s) && !strcmp(s->id, id))
			return s;
	return NULL;
}

static int admit_files(struct engine *e, const struct peer *peer, const struct engine_open *o,
		       struct garret_error *err)
{
	const struct session *owner = find_owner(e, o->id);

	if (e->n_files >= e->conf.max_files_sessions)
		return garret_fail(err, GARRET_EXHAUSTED,
				   "%u file-only sessions are open, no more are allowed",
				   e->n_files);
	/* What another peer is working on is not for us to read. */
	if (owner && owner->peer != peer)
		return garret_fail(err, GARRET_CONFLICT, "session %s is open", o->id);
	return 0;
}

static int admit(struct engine *e, const struct peer *peer, const struct engine_open *o,
		 const struct msg_fds *fds, struct garret_error *err)
{
	if (e->zygote_err.code != GARRET_OK) {
		*err = e->zygote_err;
		return -(int)err->code;
	}
	if (fds->n != o->n_volumes + 1)
		return garret_fail(err, GARRET_INVALID,
				   "%u descriptors for %u volumes and a socket", fds->n,
				   o->n_volumes);
	if (o->flags & ENGINE_OPEN_FILES)
		return admit_files(e, peer, o, err);
	if (e->n_sessions - e->n_files >= e->conf.max_sessions)
		return garret_fail(err, GARRET_EXHAUSTED,
				   "%u sessions are open, no more are allowed",
				   e->n_sessions - e->n_files);
	if (find_owner(e, o->id))
		return garret_fail(err, GARRET_CONFLICT, "session %s is open", o->id);
	return 0;
}

int session_open(struct engine *e, struct peer *peer, uint64_t request, const struct engine_open *o,
		 struct msg_fds *fds, struct garret_error *err)
{
	struct cgroup_limits limits = { 0 };
	struct session *s;
	uint64_t tmpfs = 0, disk = 0;
	int rc = check_open(e, o, err);

	if (rc == 0)
		rc = check_limits(e, o, &limits, &tmpfs, err);
	if (rc == 0)
		rc = check_disk(e, o, &disk, err);
	if (rc == 0)
		rc = admit(e, peer, o, fds, err);
	if (rc < 0)
		return rc;
	s = session_new(e, peer, o, tmpfs, disk);
	s->uid = serve_credentials(peer)->uid;
	memcpy(s->owner, serve_owner(peer), sizeof(s->owner));
	s->request = request;
	s->limits = limits;
	s->plan.order->pids = limits.pids;
	s->plan.order->max_pids = e->conf.max_pids;
	rc = plan_add_socket(&s->plan, o, fds, err);
	if (rc == 0)
		rc = plan_add_host(&s->plan, e, o, fds, serve_socket(peer), serve_credentials(peer),
				   &s->own_workspace, err);
	if (rc == 0 && s->own_workspace) {
		s->layer = layer_find(e, s->id, o->runtime, &s->layer_fate);
		s->plan.layer = s->layer ? s->id : NULL;
	}
	if (rc < 0) {
		s->peer = NULL; /* the caller answers */
		session_end(s);
		return rc;
	}
	loop_timer_set(e->loop, &s->deadline, now_ms() + START_MS, on_deadline, s);
	nursery_refresh(e);
	start_queued(e);
	slots_fill(e);
	return 0;
}

static struct session *find(struct engine *e, const struct peer *peer, uint64_t handle)
{
	struct session *s;

	list_foreach (s, &e->sessions, link)
		if (s->peer == peer && s->opened && s->handle == handle)
			return s;
	return NULL;
}

int session_close(struct engine *e, struct peer *peer, uint64_t request, uint64_t handle,
		  enum engine_close how, struct garret_error *err)
{
	struct session *s = find(e, peer, handle);

	if (!s)
		return garret_fail(err, GARRET_NOT_FOUND, "no such session");
	if (s->closing)
		return garret_fail(err, GARRET_CONFLICT, "session %s is closing", s->id);
	if (how != ENGINE_CLOSE_PLAIN && holds_files(s))
		return garret_fail(err, GARRET_INVALID,
				   "a file-only session can neither purge nor keep %s", s->id);
	s->closing = true;
	s->close_request = request;
	s->how = how;
	session_end(s);
	return 0;
}

int session_purge(struct engine *e, const char *id, unsigned what, uint64_t used_ms,
		  struct garret_error *err)
{
	int rc;

	if (!name_valid(id))
		return garret_fail(err, GARRET_INVALID, "the session id is no name");
	/* Also one that keeps nothing or works on a volume: the next of its name may not. */
	if (find_owner(e, id))
		return garret_fail(err, GARRET_CONFLICT, "session %s is open", id);
	if (used_ms && used_ms != workspace_used_ms(e, id))
		return garret_fail(err, GARRET_CONFLICT, "session %s was used since", id);
	rc = what & ENGINE_PURGE_LAYER ? layer_remove(e, id, err) : 0;
	if (!(what & ENGINE_PURGE_WORKSPACE) || (rc < 0 && err->code != GARRET_NOT_FOUND))
		return rc;
	rc = workspace_remove(e, id, err);
	if (rc < 0)
		return rc;
	log_info("workspace_purged", "session=%s", id);
	end_views(e, id);
	reaper_poke(e);
	return 0;
}

int session_usage(struct engine *e, const struct peer *peer, uint64_t handle,
		  struct engine_usage *ret, struct garret_error *err)
{
	struct session *s = find(e, peer, handle);

	if (!s || !s->slot || s->state != RUNNING)
		return garret_fail(err, GARRET_NOT_FOUND, "no such session");
	cgroups_usage(&e->cg, s->slot->name, ret);
	if (s->own_workspace && e->disk.quota)
		ret->disk_bytes = workspace_bytes(e, s->id);
	return 0;
}

static struct session *find_running(struct engine *e, const struct peer *peer, uint64_t handle,
				    struct garret_error *err)
{
	struct session *s = find(e, peer, handle);

	if (s && s->slot && s->state == RUNNING)
		return s;
	(void)garret_fail(err, GARRET_NOT_FOUND, "no such session");
	return NULL;
}

int session_limits_check(struct engine *e, const struct peer *peer, const struct engine_limits *l,
			 struct cgroup_limits *ret_before, struct cgroup_limits *ret_after,
			 const char **ret_group, struct garret_error *err)
{
	const struct session *s = find_running(e, peer, l->handle, err);

	if (!s)
		return -(int)err->code;
	if (holds_files(s))
		return garret_fail(err, GARRET_INVALID,
				   "a file-only session can't be given other limits");
	*ret_before = s->limits;
	*ret_group = s->slot->name;
	return check_new_limits(e, l, &s->limits, ret_after, err);
}

int session_limits_taken(struct engine *e, const struct peer *peer, uint64_t handle,
			 const struct cgroup_limits *l, struct garret_error *err)
{
	struct session *s = find_running(e, peer, handle, err);

	if (!s)
		return -(int)err->code;
	s->limits = *l;
	log_info("session_limits", "session=%s memory=%llu swap=%llu cpus=%u shares=%u pids=%u",
		 s->id, (unsigned long long)l->memory_bytes,
		 (unsigned long long)l->memory_swap_bytes, l->cpu_millis, l->cpu_shares, l->pids);
	return 0;
}

void session_peer_gone(struct engine *e, struct peer *peer)
{
	struct session *s;

	list_foreach (s, &e->sessions, link) {
		if (s->peer != peer)
			continue;
		s->peer = NULL;
		/* One that is closing does so; of one that was not ready nobody knows. */
		if (!is_durable(s) || s->state != RUNNING)
			session_end(s);
	}
}

void session_end_everything(struct engine *e)
{
	struct session *s;

	list_foreach (s, &e->sessions, link)
		session_end(s);
}

void session_leave_durable(struct engine *e)
{
	struct session *s;

	list_foreach (s, &e->sessions, link) {
		if (!is_durable(s) || s->state != RUNNING) {
			session_end(s);
			continue;
		}
		log_info("session_left", "session=%s pid=%d", s->id, s->pid);
		e->left = true;
		slot_forget(s->slot);
		session_free(s);
	}
}

/* ---- sessions that outlived their engine or their owner ---- */

bool session_restore(struct engine *e, const char *slot_name, const struct store_meta *m,
		     int *pidfd)
{
	struct engine_open o = { .hostname = "", .work_dir = "", .flags = ENGINE_OPEN_DURABLE };
	struct slot *slot;
	struct session *s;

	if (!name_valid(m->id))
		return false;
	slot = slots_restore(e, slot_name, m->base, m->project);
	if (!slot)
		return false;
	o.id = m->id;
	s = session_new(e, NULL, &o, 0, 0);
	plan_done(&s->plan);
	s->state = RUNNING;
	s->opened = true;
	s->own_workspace = m->own_workspace;
	s->layer = m->layer;
	s->uid = m->uid;
	memcpy(s->owner, m->owner, sizeof(s->owner));
	s->slot = slot;
	s->handle = slot->handle;
	s->pid = m->pid;
	cgroups_get(&e->cg, slot->name, &s->limits);
	s->pidfd = take_fd(pidfd);
	if (loop_io_add(e->loop, &s->pid_io, s->pidfd, EPOLLIN, on_pid, s, NULL) < 0)
		session_end(s); /* its end is noticed by its groups becoming empty */
	log_info("session_restored", "session=%s pid=%d", s->id, s->pid);
	return true;
}

bool session_in_slot(const struct engine *e, const char *slot)
{
	struct session *s;

	list_foreach (s, &e->sessions, link)
		if (s->slot && !strcmp(s->slot->name, slot))
			return true;
	return false;
}

static bool is_heir(const struct session *s, const struct peer *peer)
{
	return !s->peer && is_durable(s) && s->state == RUNNING &&
	       s->uid == serve_credentials(peer)->uid &&
	       !memcmp(s->owner, serve_owner(peer), sizeof(s->owner));
}

int session_adopt(struct engine *e, struct peer *peer, uint64_t request, uint64_t handle,
		  struct garret_error *err)
{
	struct engine_opened o = { .handle = handle };
	struct session *s;

	list_foreach (s, &e->sessions, link) {
		if (s->handle != handle || !is_heir(s, peer))
			continue;
		if (proof_of(s->pid, &o.start_time, &o.pid_namespace) < 0)
			break; /* on_pid() is about to say so */
		s->peer = peer;
		o.pid = (uint32_t)s->pid;
		log_info("session_adopted", "session=%s pid=%d", s->id, s->pid);
		serve_opened(peer, request, &o);
		return 0;
	}
	return garret_fail(err, GARRET_NOT_FOUND, "there is no such session to take over");
}

void session_settle(struct engine *e, const struct peer *peer)
{
	struct session *s;

	list_foreach (s, &e->sessions, link) {
		/* A private engine has one owner, whoever it says it is now: nobody else comes. */
		if (!is_heir(s, peer) &&
		    !(e->private && !s->peer && is_durable(s) && s->state == RUNNING))
			continue;
		log_info("session_unwanted", "session=%s pid=%d", s->id, s->pid);
		s->closing = true;
		/*
		 * It was being opened.  If it was to wake up, its kept write layer is still that
		 * of the one that sleeps; what a new one wrote nobody will ask for.
		 */
		s->how = s->layer ? ENGINE_CLOSE_KEEP : ENGINE_CLOSE_PLAIN;
		session_end(s);
	}
}
