/*
 * Sessions of an earlier daemon.  The registry says which there were; each whose
 * environment can be found again goes on as if nothing had happened, with its
 * token.  Of one that can't, the environment has died, which its clients are told
 * (410); unless the host was started again since, or it slept: then it sleeps, and the
 * next request wakes it.  What was only claimed never was a session for anybody.
 *
 * When a session was used last is written once a second for all of them: a kill in
 * between costs at most that second.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "core/event_log.h"
#include "core/service_impl.h"

#define USED_MS 1000
#define PATIENCE_MS 3000 /* with inits that do not answer; normally it takes milliseconds */

/* ---- what is written ---- */

struct session_row session_row(const struct session *s, enum row_state state)
{
	struct session_row row = { .id = s->id,
				   .runtime = s->runtime->alias,
				   .tenant = s->tenant,
				   .generation = s->generation,
				   .created_at = s->created_at,
				   .used_at = s->last_activity,
				   .state = state };

	memcpy(row.nonce, s->nonce, sizeof(row.nonce));
	if (s->box) {
		row.mark = s->service->ops->mark(s->box);
		row.boot = s->service->boot;
	}
	return row;
}

static void on_used_written(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	if (err)
		log_error("registry", "%s", err->msg);
}

static void write_used(struct loop_timer *t)
{
	struct service *svc = t->ctx;
	struct session_row *rows = xcalloc(svc->n_sessions, sizeof(*rows));
	struct session *s;
	size_t n = 0;

	list_foreach (s, &svc->sessions, link) {
		if (!s->used || s->state != SESSION_OPEN)
			continue;
		s->used = false;
		rows[n++] = session_row(s, ROW_RUNNING); /* of which only the time counts */
	}
	if (n)
		svc->registry_ops->used(svc->registry, rows, n, on_used_written, svc);
	free(rows);
}

void session_touch(struct session *s)
{
	struct service *svc = s->service;

	s->last_activity = wall_seconds();
	s->used = true;
	if (!svc->used_timer.index)
		loop_timer_set(svc->loop, &svc->used_timer, now_ms() + USED_MS, write_used, svc);
}

void service_write_used(struct service *svc)
{
	if (!svc->used_timer.index)
		return;
	loop_timer_clear(&svc->used_timer);
	write_used(&svc->used_timer);
}

/* ---- what is read ---- */

static void on_row_ended(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	if (err)
		log_error("registry", "%s", err->msg);
}

/* Its token is known as an ended one, unless nobody was ever told it: few are kept of a name. */
static void note_ended(struct service *svc, const struct session_row *row)
{
	if (row->state != ROW_CLAIMED)
		tombstones_add(&svc->tombstones, row->id, row->nonce);
}

static void give_up(struct service *svc, const struct session_row *row, const char *why)
{
	log_warn("session_given_up", "session=%s %s", row->id, why);
	note_ended(svc, row);
	runs_note(svc, row);
	svc->registry_ops->end(svc->registry, row->id, row->generation, wall_seconds(), false,
			       on_row_ended, NULL);
}

void service_take_row(struct service *svc, const struct session_row *row)
{
	const struct runtime_entry *runtime = config_runtime(svc->config, row->runtime);
	struct session *s;

	if (row->ended_at > 0) {
		note_ended(svc, row);
		runs_note(svc, row);
		return;
	}
	if (row->state == ROW_CLAIMED)
		give_up(svc, row, "its open was never answered");
	else if (!runtime)
		give_up(svc, row, "its runtime is not configured any more");
	else if (map_find(&svc->by_id, row->id))
		give_up(svc, row, "there is a later one of its name");
	if (row->state == ROW_CLAIMED || !runtime || map_find(&svc->by_id, row->id))
		return;
	s = session_new(svc, row->id, runtime, row->tenant);
	s->created_at = row->created_at;
	s->last_activity = MIN(row->used_at, wall_seconds()); /* the clock was set back since */
	s->generation = row->generation;
	memcpy(s->nonce, row->nonce, sizeof(s->nonce));
	s->restore_mark = row->mark ? xstrdup(row->mark) : NULL;
	s->was_asleep = row->state == ROW_ASLEEP;
	s->same_boot = row->boot && svc->boot && !strcmp(row->boot, svc->boot);
}

/* ---- finding them again ---- */

struct restoring {
	struct service *service;
	size_t left;
	bool told;
	struct loop_timer patience;
	void (*done)(void *ctx);
	void *ctx;
};

static void tell(struct restoring *r)
{
	if (r->told)
		return;
	r->told = true;
	r->service->ops->settle(r->service->provider);
	r->done(r->ctx);
}

/*
 * An init that doesn't answer, because it is starved or was stopped, doesn't keep the others
 * from being served: its session shows as being opened until it does.
 */
static void on_impatient(struct loop_timer *t)
{
	struct restoring *r = t->ctx;

	log_warn("sessions_late", "waiting=%zu", r->left);
	tell(r);
}

static void one_less(struct restoring *r)
{
	if (--r->left)
		return;
	tell(r);
	loop_timer_clear(&r->patience);
	r->service->restoring = NULL;
	free(r);
}

void restore_free(struct service *svc)
{
	if (!svc->restoring)
		return;
	loop_timer_clear(&svc->restoring->patience);
	free(svc->restoring);
	svc->restoring = NULL;
}

static void on_adopted(void *ctx, struct box *box, const struct garret_error *err)
{
	struct session *s = ctx;
	struct restoring *r = s->done_ctx;

	s->done_ctx = NULL;
	s->box = box;
	s->state = SESSION_OPEN;
	s->service->n_open++;
	if (box) {
		session_watch(s);
		policy_session_opened(s);
		service_note(s->service, s, "adopted", "%s", "");
	} else if (s->was_asleep || !s->same_boot) {
		s->rest = SESSION_ASLEEP;
		s->asleep_since = s->last_activity;
		s->service->n_asleep++;
		if (!s->was_asleep)
			service_note(s->service, s, "sleep", "the host was started again");
	} else {
		s->dead = true;
		service_note(s->service, s, "died", "not found again: %s", err->msg);
	}
	if (s->rest == SESSION_ASLEEP)
		runs_sleep(s);
	else
		runs_restore(s);
	one_less(r);
}

static void nothing_to_adopt(struct loop_later *l)
{
	struct session *s = l->ctx;
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_NOT_FOUND, "the host was started again since");
	on_adopted(s, NULL, &err);
}

void service_restore(struct service *svc, void (*done)(void *ctx), void *ctx)
{
	struct restoring *r = xnew(struct restoring);
	struct session *s;

	policy_start(svc);
	*r = (struct restoring){ .service = svc, .left = 1, .done = done, .ctx = ctx };
	svc->restoring = r;
	loop_timer_set(svc->loop, &r->patience, now_ms() + PATIENCE_MS, on_impatient, r);
	list_foreach (s, &svc->sessions, link) {
		struct box_spec spec = { .id = s->id, .runs = runs_dir(s) };

		r->left++;
		s->done_ctx = r;
		if (s->restore_mark && s->same_boot)
			svc->ops->adopt(svc->provider, &spec, s->restore_mark, on_adopted, s);
		else
			loop_later_add(svc->loop, &s->restore_later, nothing_to_adopt, s);
		free(take_ptr(&s->restore_mark));
	}
	one_less(r);
}
