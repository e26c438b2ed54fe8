/*
 * The service as a whole: its parts, tokens, listing and usage.  Sessions live
 * in one map by id; an entry is there from the moment its open is admitted (a
 * claim) until its last process is gone.
 */
#include <nettle/memops.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "core/event_log.h"
#include "core/service_impl.h"

double wall_seconds(void)
{
	return (double)wall_us() / 1e6;
}

void refuse(struct refusal *no, int status, const char *reason, const char *fmt, ...)
{
	va_list ap;

	no->status = status;
	no->reason = reason;
	va_start(ap, fmt);
	(void)vsnprintf(no->detail, sizeof(no->detail), fmt, ap);
	va_end(ap);
}

struct session *find_session(struct service *svc, const char *id)
{
	struct session *s = map_find(&svc->by_id, id);

	return s && s->state == SESSION_OPEN ? s : NULL;
}

const struct config *service_config(const struct service *s)
{
	return s->config;
}

bool service_ready(const struct service *s)
{
	return s->ready;
}

void service_set_bounds(struct service *s, const struct limit_bounds *bounds)
{
	s->policy.bounds = *bounds;
}

void service_set_ready(struct service *s, bool ready)
{
	s->ready = ready;
}

bool service_has_session(struct service *s, const char *id)
{
	return find_session(s, id);
}

/* One that wakes shows as asleep: its victim may still show as running. */
static bool shows_asleep(const struct session *s)
{
	return s->rest == SESSION_ASLEEP || s->rest == SESSION_WAKING;
}

struct service_counts service_counts(const struct service *svc)
{
	struct service_counts n = { 0 };
	struct session *s;

	list_foreach (s, &svc->sessions, link) {
		if (s->state != SESSION_OPEN)
			continue;
		n.open++;
		n.resident += !shows_asleep(s);
	}
	return n;
}

/* One of the service's: the one of the start, or a minted one. */
static bool is_service_token(struct service *svc, const char *token, struct caller *ret)
{
	const struct service_token *t;
	uint8_t digest[REGISTRY_DIGEST];

	token_digest(token, digest);
	if (memeql_sec(digest, svc->service_token, sizeof(digest)))
		return true;
	t = service_tokens_find(svc, digest);
	if (!t)
		return false;
	(void)snprintf(ret->name, sizeof(ret->name), "%s", t->name);
	(void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", t->tenant ? t->tenant : "");
	ret->read_only = t->read_only;
	return true;
}

static enum auth session_token(struct service *svc, const char *token, const char *session_id)
{
	struct session *s = map_find(&svc->by_id, session_id);

	if (s && token_matches(&svc->key, session_id, s->nonce, token)) {
		static const enum auth is[] = { [SESSION_OPENING] = AUTH_LATE,
						[SESSION_OPEN] = AUTH_SESSION,
						[SESSION_CLOSING] = AUTH_ENDED };

		return is[s->state];
	}
	return tombstones_match(&svc->tombstones, &svc->key, session_id, token) ? AUTH_ENDED
										: AUTH_NONE;
}

enum auth service_authenticate(struct service *svc, const char *token, const char *session_id,
			       struct caller *ret)
{
	*ret = (struct caller){ .auth = AUTH_NONE };
	if (!token || !*token)
		return AUTH_NONE;
	if (is_service_token(svc, token, ret))
		ret->auth = AUTH_SERVICE;
	else if (session_id)
		ret->auth = session_token(svc, token, session_id);
	return ret->auth;
}

/* ---- start and end ---- */

struct starting {
	struct service *service;
	void (*ready)(void *ctx, const struct garret_error *err);
	void *ctx;
	unsigned step; /* of what is loaded behind the sessions */
};

#define LOAD_STEPS 3

static void on_row(void *ctx, const struct session_row *row)
{
	struct starting *st = ctx;

	service_take_row(st->service, row);
}

static void on_policy_row(void *ctx, const struct policy_row *row)
{
	policy_on_row(((struct starting *)ctx)->service, row);
}

static void on_token_row(void *ctx, const struct token_row *row)
{
	service_tokens_on_row(((struct starting *)ctx)->service, row);
}

static void on_owner_row(void *ctx, const char *id, const char *tenant)
{
	owners_on_row(((struct starting *)ctx)->service, id, tenant);
}

/* One table after the other; the first failure is the last step. */
static void on_loaded(void *ctx, const struct garret_error *err)
{
	struct starting *st = ctx;
	struct service *s = st->service;

	switch (err ? LOAD_STEPS : st->step++) {
	case 0:
		s->registry_ops->policy_load(s->registry, on_policy_row, on_loaded, st);
		break;
	case 1:
		s->registry_ops->tokens_load(s->registry, on_token_row, on_loaded, st);
		break;
	case 2:
		s->registry_ops->owners_load(s->registry, on_owner_row, on_loaded, st);
		break;
	default:
		st->ready(st->ctx, err);
		free(st);
	}
}

struct service *service_new(const struct service_parts *parts,
			    void (*ready)(void *ctx, const struct garret_error *err), void *ctx)
{
	struct service *s = xnew(struct service);
	struct starting *st = xnew(struct starting);

	s->loop = parts->loop;
	s->config = parts->config;
	s->ops = parts->ops;
	s->provider = parts->provider;
	s->registry_ops = parts->registry_ops;
	s->registry = parts->registry;
	s->check_command = parts->check_command;
	s->boot = parts->boot;
	memcpy(s->key.bytes, parts->key, sizeof(s->key.bytes));
	token_digest(parts->token, s->service_token);
	tombstones_init(&s->tombstones);
	service_tokens_init(&s->tokens);
	owners_init(&s->owners);
	policy_init(&s->policy);
	map_init(&s->by_id);
	list_init(&s->sessions);
	list_init(&s->queued);
	list_init(&s->archives);
	s->events_dir = parts->events_dir;
	service_log_init(s);
	run_sets_init(s, parts->runs_dir);
	loop_timer_set(s->loop, &s->reaper, now_ms() + (uint64_t)s->config->cleanup_interval * 1000,
		       service_reap, s);
	*st = (struct starting){ s, ready, ctx, 0 };
	s->registry_ops->load(s->registry, on_row, on_loaded, st);
	return s;
}

struct service *service_free(struct service *s)
{
	if (!s)
		return NULL;
	service_write_used(s);
	restore_free(s);
	while (!list_empty(&s->sessions))
		session_free(list_entry(s->sessions.next, struct session, link));
	run_sets_free(s);
	service_log_free(s);
	archives_free(s);
	loop_timer_clear(&s->reaper);
	loop_timer_clear(&s->used_timer);
	tombstones_release(&s->tombstones);
	service_tokens_release(&s->tokens);
	owners_release(&s->owners);
	loop_later_cancel(s->loop, &s->policy.next);
	policy_release(&s->policy);
	map_release(&s->by_id);
	free(s);
	return NULL;
}

struct shutdown {
	size_t left;
	plain_done done;
	void *ctx;
};

static void one_ended(void *ctx, const struct refusal *no)
{
	struct shutdown *d = ctx;
	struct refusal none = { 0 };

	(void)no;
	if (--d->left)
		return;
	d->done(d->ctx, &none);
	free(d);
}

void service_shutdown(struct service *s, plain_done done, void *ctx)
{
	struct shutdown *d = xnew(struct shutdown);
	struct refusal none = { 0 };
	struct session *it;

	s->ready = false;
	loop_timer_clear(&s->reaper);
	*d = (struct shutdown){ 1, done, ctx };
	list_foreach (it, &s->sessions, link)
		if (it->state == SESSION_OPEN) {
			d->left++;
			session_end(it, false, one_ended, d);
		}
	one_ended(d, &none);
}

/* ---- listing ---- */

struct session_info session_info(const struct session *s)
{
	double last = shows_asleep(s) ? MAX(s->asleep_since, s->last_activity) : s->last_activity;
	double idle = wall_seconds() - last;

	return (struct session_info){ .id = s->id,
				      .runtime = s->runtime->alias,
				      .tenant = s->tenant,
				      .alive = !s->dead && !shows_asleep(s),
				      .hibernated = shows_asleep(s),
				      .created_at = s->created_at,
				      .last_activity = last,
				      .idle_seconds = idle > 0 ? idle : 0 };
}

/* A listing that waits for counters.  Sessions may go while it waits: ids are kept, not pointers. */
struct listing {
	struct loop_later later;
	struct service *service;
	size_t n, left;
	struct listed {
		struct listing *of;
		char *id;
		struct session_usage usage;
	} * items;
	infos_done done;
	void *ctx;
};

static void finish_listing(struct listing *l)
{
	struct session_info *infos = xcalloc(l->n, sizeof(*infos));
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		struct session *s = find_session(l->service, l->items[i].id);

		if (!s)
			continue;
		infos[n] = session_info(s);
		infos[n++].usage = l->items[i].usage;
	}
	l->done(l->ctx, infos, n);
	for (size_t i = 0; i < l->n; i++)
		free(l->items[i].id);
	free(infos);
	free(l->items);
	free(l);
}

static void finish_later(struct loop_later *later)
{
	finish_listing(later->ctx);
}

static int64_t known(uint64_t v)
{
	return v == UINT64_MAX ? -1 : (int64_t)v;
}

static void on_usage(void *ctx, const struct box_usage *u, const struct garret_error *err)
{
	struct listed *it = ctx;
	struct session *s = find_session(it->of->service, it->id);
	uint64_t now = now_us();

	(void)err;
	if (u && s) {
		it->usage =
			(struct session_usage){ .known = true,
						.memory_bytes = known(u->memory_bytes),
						.memory_limit_bytes = known(u->memory_limit_bytes),
						.pids = known(u->pids),
						.cpu_us = known(u->cpu_us),
						.oom_kills = known(u->oom_kills),
						.io_read_bytes = known(u->io_read_bytes),
						.io_written_bytes = known(u->io_written_bytes),
						.disk_bytes = known(u->disk_bytes),
						.cpu_percent = -1 };
		if (u->cpu_us != UINT64_MAX && s->last_usage_us && now > s->last_usage_us &&
		    u->cpu_us >= s->last_usage.cpu_us)
			it->usage.cpu_percent = 100.0 * (double)(u->cpu_us - s->last_usage.cpu_us) /
						(double)(now - s->last_usage_us);
		s->last_usage = *u;
		s->last_usage_us = now;
	}
	if (!--it->of->left)
		finish_listing(it->of);
}

void service_sessions(struct service *svc, const char *id, bool usage, infos_done done, void *ctx)
{
	struct listing *l = xnew(struct listing);
	struct session *s;

	l->service = svc;
	l->done = done;
	l->ctx = ctx;
	l->items = xcalloc(svc->n_sessions, sizeof(*l->items));
	list_foreach (s, &svc->sessions, link)
		if (s->state == SESSION_OPEN && (!id || !strcmp(id, s->id))) {
			l->items[l->n].of = l;
			l->items[l->n++].id = xstrdup(s->id);
		}
	for (size_t i = 0; usage && i < l->n; i++) {
		s = find_session(svc, l->items[i].id);
		if (!s->box)
			continue;
		l->left++;
		svc->ops->usage(s->box, on_usage, &l->items[i]);
	}
	if (!l->left)
		loop_later_add(svc->loop, &l->later, finish_later, l);
}
