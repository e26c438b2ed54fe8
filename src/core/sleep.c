/*
 * Hibernation.  A session that sleeps has no process and no memory: its workspace and
 * its write layer are on the disk, its row in the registry.  The next request that
 * needs its environment wakes it.
 *
 *	awake -> falling asleep -> asleep -> waking -> awake
 *
 * It falls asleep to make room for another one (evict_idle_after), after
 * GARRET_SLEEP_AFTER seconds without use, or because somebody asked for it; never
 * while something of it is in flight.  Who needs it while it changes waits for the
 * end of that, and so does its own end.
 */
#include <stdlib.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/event_log.h"
#include "core/service_impl.h"

struct waker {
	struct list link; /* session.wakers */
	session_awake_fn fn;
	void *ctx;
};

static void wake(struct session *s);

/* Tell all who wait; they may add others, which are none of these. */
static void tell(struct session *s, const struct refusal *no)
{
	struct list now;

	list_init(&now);
	list_move_all(&now, &s->wakers);
	while (!list_empty(&now)) {
		struct waker *w = list_entry(now.next, struct waker, link);

		list_remove(&w->link);
		w->fn(w->ctx, no->status ? NULL : s, no);
		free(w);
	}
}

/* It was closed while it changed, or before it began to. */
static void end_instead(struct session *s)
{
	struct refusal no = { 0 };

	refuse(&no, 410, NULL, "The session has ended: %s", s->id);
	tell(s, &no);
	session_end_now(s);
}

/* A change is over. */
static void changed(struct session *s, enum session_rest rest, const struct refusal *why)
{
	s->service->n_asleep += rest == SESSION_ASLEEP;
	s->rest = rest;
	if (s->state == SESSION_CLOSING) {
		end_instead(s);
	} else if (why->status || rest == SESSION_AWAKE) {
		tell(s, why);
	} else if (!list_empty(&s->wakers)) {
		wake(s);
	}
}

/* ---- falling asleep ---- */

static void tell_slept(struct session *s)
{
	session_slept_fn fn = s->slept;
	void *ctx = s->slept_ctx;

	s->slept = NULL;
	if (fn)
		fn(ctx);
}

static void on_asleep(void *ctx, const struct garret_error *err)
{
	struct session *s = ctx;

	if (err && err->code != GARRET_NOT_FOUND)
		log_error("session_sleep", "session=%s %s", s->id, err->msg);
	s->asleep_since = wall_seconds();
	s->dead = false; /* if it died while it fell asleep: what is kept is kept */
	service_note(s->service, s, "sleep", "%s", "");
	events_rest(s);
	/* First who was promised its place, then who wants it to wake. */
	s->service->n_asleep++;
	s->rest = SESSION_ASLEEP;
	tell_slept(s);
	s->service->n_asleep--;
	changed(s, SESSION_ASLEEP, &(struct refusal){ 0 });
}

/* Written with its mark: if we are killed now it is found awake again, or asleep. */
static void on_sleep_written(void *ctx, const struct garret_error *err)
{
	struct session *s = ctx;

	if (err) {
		log_error("registry", "%s", err->msg);
		tell_slept(s);
		changed(s, SESSION_AWAKE, &(struct refusal){ 0 });
		return;
	}
	runs_sleep(s);
	s->service->ops->close(take_ptr(&s->box), BOX_CLOSE_KEEP, on_asleep, s);
}

bool session_may_sleep(const struct session *s)
{
	return s->state == SESSION_OPEN && s->rest == SESSION_AWAKE && !s->dead && !s->in_flight &&
	       !runs_live(s);
}

void session_sleep(struct session *s, session_slept_fn slept, void *ctx)
{
	struct session_row row = session_row(s, ROW_ASLEEP);

	s->rest = SESSION_FALLING;
	s->slept = slept;
	s->slept_ctx = ctx;
	s->service->registry_ops->set(s->service->registry, &row, on_sleep_written, s);
}

/* ---- waking ---- */

static void on_wake_written(void *ctx, const struct garret_error *err)
{
	struct session *s = ctx;

	/* It runs, whatever is written: killed now, it is found by its mark or ends unwanted. */
	if (err)
		log_error("registry", "%s", err->msg);
	runs_wake(s);
	session_touch(s);
	service_note(s->service, s, "wake", "%s", "");
	note_layer(s);
	changed(s, SESSION_AWAKE, &(struct refusal){ 0 });
}

static void on_woken(void *ctx, struct box *box, const struct garret_error *err)
{
	struct session *s = ctx;
	struct refusal no = { 0 };
	struct session_row row;

	if (!box) {
		if (err->code == GARRET_NOT_FOUND)
			refuse(&no, 410, NULL, "The files of session %s are gone", s->id);
		else
			refuse(&no, session_status_of(err), NULL, "Cannot wake session %s: %s",
			       s->id, err->msg);
		log_warn("session_wake_failed", "session=%s %s", s->id, err->msg);
		changed(s, SESSION_ASLEEP, &no);
		return;
	}
	s->box = box;
	session_watch(s);
	policy_session_opened(s);
	row = session_row(s, ROW_RUNNING);
	s->service->registry_ops->set(s->service->registry, &row, on_wake_written, s);
}

static void start(void *ctx)
{
	struct session *s = ctx;

	session_start(s, true, on_woken);
}

static void wake(struct session *s)
{
	struct service *svc = s->service;
	struct refusal no = { 0 };
	struct session *victim = NULL;

	s->rest = SESSION_WAKING;
	svc->n_asleep--;
	if (service_resident_full(svc, &victim, &no)) {
		refuse(&no, 429, NULL, "Cannot wake session %s: Session limit of %lld reached.",
		       s->id, (long long)svc->config->max_sessions);
		changed(s, SESSION_ASLEEP, &no);
	} else if (victim) {
		session_sleep(victim, start, s);
	} else {
		start(s);
	}
}

static void wake_later(struct loop_later *l)
{
	struct session *s = l->ctx;

	if (list_empty(&s->wakers) || s->rest == SESSION_FALLING || s->rest == SESSION_WAKING)
		return; /* the end of a change has told them, or will */
	if (s->state == SESSION_CLOSING)
		end_instead(s);
	else if (s->rest == SESSION_AWAKE)
		tell(s, &(struct refusal){ 0 });
	else
		wake(s);
}

void session_wake(struct session *s, session_awake_fn fn, void *ctx)
{
	struct waker *w = xnew(struct waker);

	*w = (struct waker){ .fn = fn, .ctx = ctx };
	list_append(&s->wakers, &w->link);
	/* From the loop, as every answer; one that changes says so at the end of it. */
	if (s->rest == SESSION_AWAKE || s->rest == SESSION_ASLEEP)
		loop_later_add(s->service->loop, &s->wake_later, wake_later, s);
}

/* ---- room for others ---- */

static struct session *pick_idle(const struct service *svc, double idle)
{
	struct session *s, *best = NULL;
	double now = wall_seconds();

	list_foreach (s, &svc->sessions, link)
		if (session_may_sleep(s) && now - s->last_activity >= idle &&
		    (!best || s->last_activity < best->last_activity))
			best = s;
	return best;
}

bool service_resident_full(const struct service *svc, struct session **ret_victim,
			   struct refusal *no)
{
	const struct config *c = svc->config;
	const size_t resident = svc->n_sessions - svc->n_asleep;

	*ret_victim = NULL;
	if (c->max_sessions == CONFIG_NULL || resident <= (size_t)c->max_sessions)
		return false;
	if (c->evict_idle_after != CONFIG_NULL)
		*ret_victim = pick_idle(svc, (double)c->evict_idle_after);
	if (*ret_victim)
		return false;
	refuse(no, 429, NULL, "Session limit of %lld reached. Close a session first.",
	       (long long)c->max_sessions);
	return true;
}

/* ---- from outside ---- */

struct wake_call {
	wake_done done;
	void *ctx;
};

static void woken(void *ctx, struct session *s, const struct refusal *no)
{
	struct wake_call *w = ctx;

	(void)s;
	w->done(w->ctx, no);
	free(w);
}

bool service_asleep(struct service *svc, const char *id)
{
	struct session *s = find_session(svc, id);

	return s && s->rest != SESSION_AWAKE;
}

void service_wake(struct service *svc, const char *id, wake_done done, void *ctx)
{
	struct wake_call *w = xnew(struct wake_call);
	struct session *s = find_session(svc, id);

	*w = (struct wake_call){ done, ctx };
	session_wake(s, woken, w);
}

static void put_to_sleep(void *ctx)
{
	struct wake_call *w = ctx;

	w->done(w->ctx, &(struct refusal){ 0 });
	free(w);
}

struct busy_answer {
	struct loop_later later;
	struct refusal no;
	wake_done done;
	void *ctx;
};

static void say_busy(struct loop_later *l)
{
	struct busy_answer *a = l->ctx;

	a->done(a->ctx, &a->no);
	free(a);
}

void service_sleep(struct service *svc, const char *id, wake_done done, void *ctx)
{
	struct session *s = find_session(svc, id);

	if (s && session_may_sleep(s)) {
		struct wake_call *w = xnew(struct wake_call);

		*w = (struct wake_call){ done, ctx };
		session_sleep(s, put_to_sleep, w);
	} else {
		struct busy_answer *a = xnew(struct busy_answer);

		a->done = done;
		a->ctx = ctx;
		if (!s)
			refuse(&a->no, 404, NULL, "No such session: %s", id);
		else if (s->dead)
			refuse(&a->no, 410, NULL, "The sandbox of session %s is gone", id);
		else if (s->rest != SESSION_ASLEEP)
			refuse(&a->no, 409, "busy", "Session %s is in use", id);
		loop_later_add(svc->loop, &a->later, say_busy, a);
	}
}

void service_rest(struct service *svc)
{
	const int64_t after = svc->config->sleep_after;
	double now = wall_seconds();
	struct session *s;

	if (after == CONFIG_NULL)
		return;
	list_foreach (s, &svc->sessions, link)
		if (session_may_sleep(s) && now - s->last_activity >= (double)after)
			session_sleep(s, NULL, NULL);
}
