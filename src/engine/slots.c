#include "engine/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "engine/layer.h"
#include "engine/nursery.h"
#include "engine/reaper.h"
#include "engine/session.h"
#include "engine/store.h"

#define RETRY_MS 500
#define REFILL_MS 25
#define HELPER_MS 5000   /* a helper is preparing, or waits for its order */
#define STRAYS_MS 1000   /* then what is still in the groups is killed by number */
#define GIVE_UP_MS 15000 /* a process in D state: its ids stay taken until a restart */
#define CLAIM_MS 5000    /* for whoever has the range of a session that we found again */
#define MAKING_MAX 8     /* helpers that prepare at the same time */

static uint32_t slots_most(const struct engine *e)
{
	return e->conf.max_sessions + e->conf.max_files_sessions;
}

void slots_init(struct engine *e)
{
	list_init(&e->slots);
	e->indexes = xcalloc(e->conf.ranges, 1);
	/* Never the handle of an earlier engine, whose leftovers may still be there. */
	e->next_handle = (wall_us() / 1000u) << 16;
}

/* Who has a range when no engine does: the init of a session that outlived its own. */
struct heir {
	uint64_t start_time;
	int32_t pid, reserved;
};

static off_t heir_place(uint32_t base)
{
	/* Behind the bytes that are locked for ids and before those for instances. */
	return (off_t)((1ull << 36) + (base / SLOT_IDS) * sizeof(struct heir));
}

static bool has_heir(const struct engine *e, uint32_t base)
{
	uint64_t start, ns;
	struct heir h;

	return pread(e->ids_fd, &h, sizeof(h), heir_place(base)) == sizeof(h) && h.pid > 1 &&
	       proof_of(h.pid, &start, &ns) == 0 && start == h.start_time;
}

void slot_bequeath(const struct slot *s, int pid, uint64_t start_time)
{
	const struct heir h = { .start_time = start_time, .pid = pid };

	if (s->engine->ids_fd >= 0 &&
	    pwrite(s->engine->ids_fd, &h, sizeof(h), heir_place(s->base)) < 0)
		log_warn("ids", "slot=%s errno=%d", s->name, errno);
}

/*
 * Two engines of one host may be given the same ranges.  One byte per range is
 * locked in a file they share; the lock ends with the process that holds it.
 */
static bool claim_on_host(struct engine *e, uint32_t base, bool claim)
{
	struct flock l = {
		.l_type = claim ? F_WRLCK : F_UNLCK,
		.l_whence = SEEK_SET,
		.l_start = base,
		.l_len = 1,
	};

	return e->ids_fd < 0 || fcntl(e->ids_fd, F_OFD_SETLK, &l) == 0;
}

static uint32_t base_of(const struct engine *e, uint32_t index)
{
	return e->conf.id_start + SLOT_IDS * (index + 1);
}

/* Of all there are, not only of as many as we may use: other engines take from the same. */
static bool claim_index(struct engine *e, uint32_t *ret)
{
	for (uint32_t i = 0; i < e->conf.ranges; i++) {
		if (e->indexes[i])
			continue;
		if (!claim_on_host(e, base_of(e, i), true))
			continue;
		if (has_heir(e, base_of(e, i))) {
			(void)claim_on_host(e, base_of(e, i), false);
			continue;
		}
		e->indexes[i] = 1;
		*ret = i;
		return true;
	}
	return false;
}

void slot_forget(struct slot *s)
{
	loop_io_remove(&s->io);
	loop_io_remove(&s->pid_io);
	loop_timer_clear(&s->timer);
	list_remove(&s->link);
	fd_close(s->sock);
	fd_close(s->net_fd);
	fd_close(s->pidfd);
	s->engine->n_slots--;
	free(s);
}

static void release(struct slot *s, bool clean)
{
	struct engine *e = s->engine;
	void (*gone)(void *, bool) = s->gone;
	void *ctx = s->ctx;

	if (clean) {
		e->indexes[s->index] = 0;
		(void)claim_on_host(e, s->base, false);
	} else {
		log_error("slot_stuck", "slot=%s base=%u", s->name, s->base);
	}
	slot_forget(s);
	if (gone)
		gone(ctx, clean);
	slots_fill(e);
	engine_check_end(e);
}

static void remove_dir(struct slot *s)
{
	struct engine *e = s->engine;
	int rc = s->keep_as[0] ? layer_keep(e, s->name, s->keep_as, "host", e->boot) : -ENOENT;

	if (rc < 0 && s->keep_as[0])
		log_error("layer_lost", "session=%s errno=%d", s->keep_as, -rc);
	if (rc < 0 && renameat(e->sessions_fd, s->name, e->trash_fd, s->name) == 0)
		reaper_poke(e);
}

static void try_remove(struct loop_timer *t)
{
	struct slot *s = t->ctx;
	struct engine *e = s->engine;
	uint64_t now = now_ms(), age = now - s->ending_since;

	if (cgroups_remove(&e->cg, s->name) == 0) {
		remove_dir(s);
		reaper_give_net(e, take_fd(&s->net_fd));
		release(s, true);
		return;
	}
	if (age > STRAYS_MS)
		(void)cgroups_kill(&e->cg, s->name);
	if (age > GIVE_UP_MS) {
		release(s, false);
		return;
	}
	s->tries++;
	loop_timer_set(e->loop, &s->timer, now + MIN(50u, 1u + s->tries), try_remove, s);
}

void slot_end(struct slot *s, void (*gone)(void *ctx, bool clean), void *ctx)
{
	s->state = SLOT_ENDING;
	loop_io_remove(&s->pid_io);
	s->note = NULL;
	s->gone = gone;
	s->ctx = ctx;
	s->ending_since = now_ms();
	/*
	 * A helper ends by this; until it has, it could still make directories behind
	 * our back.  The end of its own side tells, and calls try_remove at once.
	 */
	(void)shutdown(s->sock, SHUT_WR);
	if (s->pidfd >= 0)
		(void)pidfd_send_signal(s->pidfd, SIGKILL, NULL, 0);
	loop_timer_set(s->engine->loop, &s->timer,
		       s->ending_since + (s->io.fd >= 0 ? HELPER_MS : 0), try_remove, s);
}

static void on_death(struct loop_io *io, uint32_t events)
{
	slot_end(io->ctx, NULL, NULL);
}

static void prepared(struct slot *s, const struct slot_note *n, struct msg_fds *fds)
{
	struct engine *e = s->engine;

	if (n && n->type == SLOT_READY && s->state == SLOT_PREPARING && fds->n == 2) {
		s->state = SLOT_WAITING;
		s->pid = n->pid;
		s->pidfd = msg_fds_take(fds);
		s->net_fd = msg_fds_take(fds);
		e->slot_err.code = GARRET_OK;
		(void)loop_io_add(e->loop, &s->pid_io, s->pidfd, EPOLLIN, on_death, s, NULL);
		session_slot_ready(e);
		slots_fill(e);
		return;
	}
	if (n && n->type == SLOT_FAILED)
		e->slot_err = n->err;
	else
		(void)garret_fail(&e->slot_err, GARRET_INTERNAL,
				  "a helper ended before it was needed");
	log_warn("slot_failed", "slot=%s error=\"%s\"", s->name, e->slot_err.msg);
	slot_end(s, NULL, NULL);
	session_slot_failed(e);
}

/* What is still said on the socket of a slot that is being removed. */
static void ending(struct slot *s, const struct slot_note *n, struct msg_fds *fds)
{
	if (n && n->type == SLOT_READY && fds->n == 2 && s->pidfd < 0) {
		s->pidfd = msg_fds_take(fds);
		s->net_fd = msg_fds_take(fds);
		(void)pidfd_send_signal(s->pidfd, SIGKILL, NULL, 0);
	}
	if (!n)
		loop_timer_set(s->engine->loop, &s->timer, now_ms(), try_remove, s);
}

static void on_note(struct loop_io *io, uint32_t events)
{
	struct slot *s = io->ctx;
	struct slot_note n;
	struct msg_fds fds;
	struct garret_error err = { 0 };
	ssize_t r = msg_recv(s->sock, &n, sizeof(n), &fds, &err);
	bool whole = r == sizeof(n);

	if (r < 0 && err.sys == EAGAIN)
		return;
	if (r < 0)
		fds.n = 0;
	if (!whole) {
		loop_io_remove(&s->io);
		s->sock = fd_close(s->sock);
	} else {
		n.err.msg[sizeof(n.err.msg) - 1] = '\0';
	}
	if (s->state == SLOT_ENDING)
		ending(s, whole ? &n : NULL, &fds);
	else if (s->note)
		s->note(s->ctx, whole ? &n : NULL);
	else
		prepared(s, whole ? &n : NULL, &fds);
	msg_fds_close(&fds);
}

static struct slot *slot_new(struct engine *e, uint32_t index)
{
	struct slot *s = xnew(struct slot);

	s->engine = e;
	s->index = index;
	s->base = base_of(e, index);
	s->sock = s->net_fd = s->pidfd = s->io.fd = s->pid_io.fd = -EBADF;
	list_init(&s->link);
	e->n_slots++;
	return s;
}

/*
 * Another engine that looks for a range holds its byte for a moment, and so does a fork of a
 * killed one until it has closed what it inherited: no reason to give a session up.
 */
static bool claim_again(struct engine *e, uint32_t base)
{
	const uint64_t end = now_ms() + CLAIM_MS;

	while (!claim_on_host(e, base, true)) {
		if (now_ms() >= end)
			return false;
		(void)nanosleep(&(struct timespec){ .tv_nsec = 1000 * 1000 }, NULL);
	}
	return true;
}

struct slot *slots_restore(struct engine *e, const char *name, uint32_t base, uint32_t project)
{
	uint32_t index = (base - e->conf.id_start) / SLOT_IDS - 1;
	struct slot *s;

	if (index >= e->conf.ranges || base != base_of(e, index) || e->indexes[index] ||
	    !claim_again(e, base))
		return NULL;
	e->indexes[index] = 1;
	s = slot_new(e, index);
	s->state = SLOT_TAKEN;
	s->project = project;
	s->handle = strtoull(name, NULL, 16);
	(void)snprintf(s->name, sizeof(s->name), "%s", name);
	e->next_handle = MAX(e->next_handle, s->handle + 1);
	return s;
}

static int slot_start(struct engine *e, struct garret_error *err)
{
	struct slot_order order = { .base = 0 };
	autoclose int ours = -EBADF, theirs = -EBADF, net = -EBADF;
	struct slot *s;
	uint32_t index;
	int pair[2], fds[2], rc;

	rc = msg_pair(pair, false, err);
	if (rc < 0)
		return rc;
	ours = pair[0];
	theirs = pair[1];
	if (fd_set_nonblock(ours, true) < 0)
		return garret_fail_errno(err, "a helper's socket");
	if (!claim_index(e, &index))
		return garret_fail(err, GARRET_EXHAUSTED, "every id range is in use");

	s = slot_new(e, index);
	order.base = s->base;
	s->project = order.project = disk_pick(e);
	s->handle = e->next_handle++;
	(void)snprintf(s->name, sizeof(s->name), "%016llx", (unsigned long long)s->handle);
	memcpy(order.name, s->name, sizeof(order.name));
	net = reaper_take_net(e);
	fds[0] = theirs;
	fds[1] = net;
	list_append(&e->slots, &s->link);
	rc = msg_send(e->zygote_sock, &order, sizeof(order), fds, net >= 0 ? 2 : 1, err);
	if (rc == 0)
		rc = loop_io_add(e->loop, &s->io, ours, EPOLLIN, on_note, s, err);
	s->sock = take_fd(&ours);
	if (rc < 0)
		release(s, true);
	return rc;
}

static void fill(struct loop_later *l)
{
	struct engine *e = l->ctx;
	unsigned making = 0, waiting = 0, wanted = e->conf.pool_slots + session_queue(e);
	struct slot *s;

	list_foreach (s, &e->slots, link) {
		making += s->state == SLOT_PREPARING;
		waiting += s->state == SLOT_WAITING;
	}
	while (making < MAKING_MAX && making + waiting < wanted && e->n_slots < slots_most(e) &&
	       !e->ending && e->zygote_ready) {
		struct garret_error err = { 0 };

		if (slot_start(e, &err) < 0) {
			e->slot_err = err;
			slots_fill(e);
			break;
		}
		making++;
	}
}

static void on_retry(struct loop_timer *t)
{
	struct engine *e = t->ctx;

	loop_later_add(e->loop, &e->fill, fill, e);
}

static bool any_waiting(const struct engine *e)
{
	struct slot *s;

	list_foreach (s, &e->slots, link)
		if (s->state == SLOT_WAITING)
			return true;
	return false;
}

/*
 * After a failure with a pause, or an engine that can prepare nothing would do only
 * that.  And not just when a session begins, if there are others in stock: entering a
 * group holds the lock of all groups for milliseconds, and the new session's init
 * needs it for its first runs.
 */
void slots_fill(struct engine *e)
{
	bool failed = e->slot_err.code != GARRET_OK, urgent;

	if (e->ending || !e->zygote_ready)
		return;
	urgent = session_queue(e) || !any_waiting(e);
	if (urgent && !failed)
		loop_later_add(e->loop, &e->fill, fill, e);
	else if (!failed)
		loop_timer_set(e->loop, &e->retry, now_ms() + REFILL_MS, on_retry, e);
	else if (!e->retry.index)
		loop_timer_set(e->loop, &e->retry, now_ms() + RETRY_MS, on_retry, e);
}

struct slot *slots_take(struct engine *e, void (*note)(void *ctx, const struct slot_note *n),
			void *ctx)
{
	struct slot *s;

	list_foreach (s, &e->slots, link) {
		if (s->state != SLOT_WAITING)
			continue;
		list_remove(&s->link);
		loop_io_remove(&s->pid_io);
		s->state = SLOT_TAKEN;
		s->note = note;
		s->ctx = ctx;
		return s;
	}
	return NULL;
}

void slots_drop(struct engine *e)
{
	struct slot *s;

	loop_later_cancel(e->loop, &e->fill);
	loop_timer_clear(&e->retry);
	list_foreach (s, &e->slots, link)
		if (s->state != SLOT_ENDING)
			slot_end(s, NULL, NULL);
}
