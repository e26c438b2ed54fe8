/*
 * Opening and ending sessions.  The order of decisions is the published one;
 * the claim is made first and nothing is given up for an open that is refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "core/event_log.h"
#include "core/service_impl.h"

/* An answer that needs no work still comes from the loop. */
struct answer {
	struct loop_later later;
	struct service *service;
	char *id; /* the session it is about, or NULL */
	struct refusal no;
	open_done opened;
	plain_done plain;
	void *ctx;
};

static void say_opened(struct service *svc, struct session *s, open_done done, void *ctx)
{
	struct session_info info = session_info(s);
	char token[TOKEN_LENGTH + 1];

	token_derive(&svc->key, s->id, s->nonce, token);
	done(ctx, &info, token, &(struct refusal){ 0 });
}

static void give_answer(struct loop_later *later)
{
	struct answer *a = later->ctx;
	struct session *s = a->id ? find_session(a->service, a->id) : NULL;

	if (a->id && !s)
		refuse(&a->no, 404, NULL, "No such session: %s", a->id);
	if (a->plain) {
		a->plain(a->ctx, &a->no);
	} else if (a->no.status) {
		a->opened(a->ctx, NULL, NULL, &a->no);
	} else if (s) {
		session_touch(s); /* whoever attaches means to use it */
		say_opened(a->service, s, a->opened, a->ctx);
	}
	free(a->id);
	free(a);
}

static struct answer *answer_later(struct service *svc, open_done opened, plain_done plain,
				   void *ctx)
{
	struct answer *a = xnew(struct answer);

	a->service = svc;
	a->opened = opened;
	a->plain = plain;
	a->ctx = ctx;
	loop_later_add(svc->loop, &a->later, give_answer, a);
	return a;
}

/* An open that waits for what has its name to wake, or to end: then it begins anew. */
struct opener {
	struct list link; /* session.openers */
	struct service *service;
	struct open_request request; /* its own copy */
	open_done done;
	void *ctx;
};

static struct opener *opener_new(struct service *svc, const struct open_request *req,
				 open_done done, void *ctx)
{
	struct opener *o = xnew(struct opener);

	*o = (struct opener){ .service = svc, .request = *req, .done = done, .ctx = ctx };
	o->request.session_id = xstrdup(req->session_id);
	o->request.runtime = req->runtime ? xstrdup(req->runtime) : NULL;
	o->request.tenant = req->tenant ? xstrdup(req->tenant) : NULL;
	return o;
}

static void opener_free(struct opener *o)
{
	free((char *)o->request.session_id);
	free((char *)o->request.runtime);
	free((char *)o->request.tenant);
	free(o);
}

static void release_promise(struct session *s)
{
	if (s->victim)
		s->victim->promised = NULL;
	if (s->promised)
		s->promised->victim = NULL;
	s->victim = s->promised = NULL;
}

void session_free(struct session *s)
{
	struct service *svc = s->service;

	if (s->state == SESSION_OPEN)
		svc->n_open--;
	svc->n_asleep -= s->rest == SESSION_ASLEEP;
	release_promise(s);
	/* Only when the service itself goes: whoever asked is gone already. */
	while (!list_empty(&s->wakers)) {
		struct list *first = s->wakers.next;

		list_remove(first);
		free(first);
	}
	while (!list_empty(&s->openers)) {
		struct list *first = s->openers.next;

		list_remove(first);
		opener_free(list_entry(first, struct opener, link));
	}
	loop_later_cancel(svc->loop, &s->wake_later);
	runs_release(s);
	map_remove(&svc->by_id, s->id);
	list_remove(&s->link);
	svc->n_sessions--;
	event_ring_free(s->events);
	loop_later_cancel(svc->loop, &s->restore_later);
	free(s->restore_mark);
	free(s->id);
	free(s->tenant);
	free(s);
}

/* ---- opening ---- */

/* The one that sleeps longest, promised to nobody else. */
static struct session *pick_asleep(const struct service *svc)
{
	struct session *s, *best = NULL;

	list_foreach (s, &svc->sessions, link)
		if (s->state == SESSION_OPEN && s->rest == SESSION_ASLEEP && !s->promised &&
		    list_empty(&s->wakers) && (!best || s->asleep_since < best->asleep_since))
			best = s;
	return best;
}

static bool open_full(const struct service *svc)
{
	const int64_t most = svc->config->max_open_sessions;

	return most != CONFIG_NULL && svc->n_sessions > (size_t)most;
}

static void open_refused(const struct service *svc, struct refusal *no)
{
	refuse(no, 429, NULL, "Open session limit of %lld reached.",
	       (long long)svc->config->max_open_sessions);
}

static void opened_or_failed(struct session *s);

static void on_victim_gone(void *ctx, const struct refusal *no)
{
	(void)no;
	opened_or_failed(ctx);
}

/*
 * Somebody who sleeps may have to go for this one: not before it is sure that this one
 * has started, and not when he has been woken meanwhile.  True: he is on his way.
 */
static bool send_victim_away(struct session *s)
{
	struct service *svc = s->service;
	struct session *victim = s->victim;

	if (!victim && !open_full(svc))
		return false;
	if (!victim || victim->rest != SESSION_ASLEEP || victim->state != SESSION_OPEN)
		victim = pick_asleep(svc);
	release_promise(s);
	if (!victim) {
		open_refused(svc, &s->failed);
		return false;
	}
	service_note(svc, victim, "gave_way", "to=%s", s->id);
	s->waiting = 1;
	session_end(victim, false, on_victim_gone, s);
	return true;
}

/* What became of the write layer of an earlier session of its name. */
void note_layer(const struct session *s)
{
	static const char *const fates[] = {
		[BOX_LAYER_USED] = NULL,
		[BOX_LAYER_SUSPECT] = "the host was started again since it was written",
		[BOX_LAYER_OTHER_RUNTIME] = "it is another runtime's",
	};
	enum box_layer fate = s->service->ops->layer(s->box);

	if (fate != BOX_LAYER_NONE && fates[fate])
		service_note(s->service, s, "layer_dropped", "%s", fates[fate]);
}

static void opened_or_failed(struct session *s)
{
	open_done done = s->opened;
	void *ctx = s->done_ctx;
	struct refusal no;

	if (--s->waiting || (!s->failed.status && send_victim_away(s)))
		return;
	no = s->failed;
	s->opened = NULL;
	if (!no.status) {
		s->state = SESSION_OPEN;
		s->service->n_open++;
		session_touch(s);
		owners_opened(s);
		policy_session_opened(s);
		service_note(s->service, s, "open", "runtime=%s generation=%llu", s->runtime->alias,
			     (unsigned long long)s->generation);
		note_layer(s);
		say_opened(s->service, s, done, ctx);
		return;
	}
	log_warn("session_open_failed", "session=%s %s", s->id, no.detail);
	if (s->box) {
		/* The registry refused: the environment must not outlive its claim. */
		s->state = SESSION_OPEN;
		s->service->n_open++;
		session_end(s, false, NULL, NULL);
	} else {
		session_free(s);
	}
	done(ctx, NULL, NULL, &no);
}

static void on_row_added(void *ctx, const struct garret_error *err)
{
	struct session *s = ctx;

	if (err && !s->failed.status)
		refuse(&s->failed, err->code == GARRET_NO_SPACE ? 507 : 503, NULL,
		       "Could not record the session: %s", err->msg);
	opened_or_failed(s);
}

static void on_died(void *ctx)
{
	struct session *s = ctx;

	s->dead = true;
	runs_drop_queued(s);
	/* There will be no more of them; but who waits for one that is about to begin is told first. */
	if (!s->in_flight)
		runs_sleep(s);
	events_rest(s);
	service_note(s->service, s, "died", "its environment ended by itself");
}

int session_status_of(const struct garret_error *err)
{
	switch (err->code) {
	case GARRET_NOT_FOUND:
		return 404;
	case GARRET_EXHAUSTED:
		return 429;
	case GARRET_UNAVAILABLE:
		return 503;
	case GARRET_NO_SPACE:
		return 507;
	default:
		return 502;
	}
}

void session_watch(struct session *s)
{
	s->service->ops->watch(s->box, on_died, s);
}

static void on_box_opened(void *ctx, struct box *box, const struct garret_error *err)
{
	struct session *s = ctx;
	struct service *svc = s->service;

	s->box = box;
	if (box)
		session_watch(s);
	else if (err->code == GARRET_NOT_FOUND && s->attach)
		refuse(&s->failed, 404, NULL, "Nothing to attach to: %s", s->id);
	else /* it may also be an image that isn't there: no 404, which speaks of sessions */
		refuse(&s->failed, err->code == GARRET_NOT_FOUND ? 502 : session_status_of(err),
		       NULL, "Could not start sandbox: %s", err->msg);
	if (!box) {
		svc->registry_ops->end(svc->registry, s->id, s->generation, wall_seconds(), false,
				       on_row_added, s);
	} else {
		/* Before anybody is told: from then on it must be found again. */
		struct session_row row = session_row(s, ROW_RUNNING);

		svc->registry_ops->set(svc->registry, &row, on_row_added, s);
	}
}

void session_start(struct session *s, bool attach, box_opened_fn opened)
{
	const struct config *c = s->service->config;
	const struct runtime_entry *r = s->runtime;
	const struct box_limits limits = policy_limits(s->service, r);
	struct box_spec spec = { .id = s->id,
				 .runtime = r->source,
				 .work_dir = c->work_dir,
				 .network = config_network(c, r),
				 .oci_runtime = r->oci_runtime ? r->oci_runtime : c->oci_runtime,
				 .memory_bytes = limits.memory_bytes,
				 .memory_swap_bytes = limits.memory_swap_bytes,
				 .tmpfs_bytes = config_bytes(c->tmpfs_size),
				 .disk_bytes = config_bytes(c->disk_limit),
				 .cpu_millis = limits.cpu_millis,
				 .cpu_shares = limits.cpu_shares,
				 .pids = limits.pids,
				 .attach = attach,
				 .runs = runs_dir(s) };

	s->limits_due = 0;
	s->service->ops->open(s->service->provider, &spec, opened, s);
}

/* Its place is free: begin. */
static void start(void *ctx)
{
	struct session *s = ctx;
	struct service *svc = s->service;
	struct session_row row = session_row(s, ROW_CLAIMED);

	s->waiting = 2;
	session_start(s, s->attach, on_box_opened);
	svc->registry_ops->add(svc->registry, &row, on_row_added, s);
}

static size_t tenant_claims(const struct service *svc, const char *tenant)
{
	struct session *s;
	size_t n = 0;

	list_foreach (s, &svc->sessions, link)
		n += s->tenant && !strcmp(s->tenant, tenant);
	return n;
}

/*
 * The three ceilings, with this open counted.  What has to make way for it is only
 * chosen here: nothing is given up for an open that is refused.
 */
static struct session *check_ceilings(struct service *svc, struct session *s, struct refusal *no)
{
	const struct config *c = svc->config;
	struct session *victim = NULL;

	if (open_full(svc)) {
		s->victim = pick_asleep(svc);
		if (s->victim)
			s->victim->promised = s;
		else
			open_refused(svc, no);
	}
	if (!no->status && s->tenant && c->max_sessions_per_tenant != CONFIG_NULL &&
	    tenant_claims(svc, s->tenant) > (size_t)c->max_sessions_per_tenant)
		refuse(no, 429, NULL, "Session limit of %lld reached for tenant %s.",
		       (long long)c->max_sessions_per_tenant, s->tenant);
	if (!no->status)
		(void)service_resident_full(svc, &victim, no);
	return victim;
}

struct session *session_new(struct service *svc, const char *id,
			    const struct runtime_entry *runtime, const char *tenant)
{
	struct session *s = xnew(struct session);

	s->service = svc;
	s->id = xstrdup(id);
	s->tenant = tenant ? xstrdup(tenant) : NULL;
	s->runtime = runtime;
	s->state = SESSION_OPENING;
	s->created_at = s->last_activity = wall_seconds();
	s->generation = wall_us();
	list_init(&s->wakers);
	list_init(&s->openers);
	runs_init(s);
	map_set(&svc->by_id, s->id, s);
	list_append(&svc->sessions, &s->link);
	svc->n_sessions++;
	return s;
}

/* What 7.2 decides before anything is claimed.  The existing session, or NULL. */
static struct session *decide(struct service *svc, const struct open_request *req,
			      const struct runtime_entry *runtime, struct refusal *no)
{
	bool given = req->runtime && *req->runtime;
	bool foreign = req->own && req->session_id &&
		       service_is_foreign(svc, req->tenant, req->session_id);
	struct session *s = req->session_id ? map_find(&svc->by_id, req->session_id) : NULL;
	bool open = s && s->state == SESSION_OPEN;

	if (!runtime)
		refuse(no, 400, NULL, "Unknown runtime: %s", req->runtime);
	else if (foreign && (req->reuse || req->attach))
		refuse(no, 404, NULL, "No such session: %s", req->session_id);
	else if (foreign)
		refuse(no, 409, "exists", "The name is taken: %s", req->session_id);
	else if (req->attach && !req->session_id)
		refuse(no, 400, NULL, "attach needs a session_id");
	else if (!svc->ready)
		refuse(no, 503, NULL, "The engine is not available");
	else if (s && s->state == SESSION_OPENING)
		refuse(no, 409, "opening", "Session is opening: %s", s->id);
	else if (open && !req->reuse && !req->attach)
		refuse(no, 409, "exists", "Session exists: %s", s->id);
	else if (open && given && strcmp(req->runtime, s->runtime->alias) != 0)
		refuse(no, 409, "runtime", "Session %s runs %s, not %s", s->id, s->runtime->alias,
		       req->runtime);
	return s;
}

static void on_attached(void *ctx, struct session *s, const struct refusal *no)
{
	struct opener *o = ctx;
	struct session *ending = map_find(&o->service->by_id, o->request.session_id);

	if (s) {
		say_opened(o->service, s, o->done, o->ctx);
	} else if (ending && ending->state == SESSION_CLOSING) {
		list_append(&ending->openers, &o->link);
		return;
	} else {
		o->done(o->ctx, NULL, NULL, no);
	}
	opener_free(o);
}

void service_open(struct service *svc, const struct open_request *req, open_done done, void *ctx)
{
	const char *alias =
		req->runtime && *req->runtime ? req->runtime : svc->config->default_runtime;
	const struct runtime_entry *runtime = config_runtime(svc->config, alias);
	struct refusal no = { 0 };
	struct session *s = decide(svc, req, runtime, &no), *victim = NULL;
	char generated[24] = "s-";
	uint8_t random[8];

	if (no.status) {
		answer_later(svc, done, NULL, ctx)->no = no;
		return;
	}
	if (s && s->state == SESSION_CLOSING) {
		list_append(&s->openers, &opener_new(svc, req, done, ctx)->link);
		return;
	}
	if (s && s->dead) {
		/* The old generation ends first; the new one is no other runtime's or tenant's. */
		const struct open_request anew = { .session_id = s->id,
						   .runtime = s->runtime->alias,
						   .tenant = s->tenant,
						   .reuse = true };

		list_append(&s->openers, &opener_new(svc, &anew, done, ctx)->link);
		session_end(s, false, NULL, NULL);
		return;
	}
	if (s && s->rest != SESSION_AWAKE) {
		session_wake(s, on_attached, opener_new(svc, req, done, ctx));
		return;
	}
	if (s) {
		session_touch(s);
		answer_later(svc, done, NULL, ctx)->id = xstrdup(s->id);
		return;
	}
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		refuse(&no, 503, NULL, "No random bytes");
	hex_encode(random, sizeof(random), generated + 2);
	s = session_new(svc, req->session_id ? req->session_id : generated, runtime, req->tenant);
	if (getrandom(s->nonce, sizeof(s->nonce), 0) != (ssize_t)sizeof(s->nonce))
		refuse(&no, 503, NULL, "No random bytes");
	if (!no.status)
		victim = check_ceilings(svc, s, &no);
	if (no.status) {
		session_free(s);
		answer_later(svc, done, NULL, ctx)->no = no;
		return;
	}
	s->opened = done;
	s->done_ctx = ctx;
	s->attach = req->attach;
	if (victim)
		session_sleep(victim, start, s);
	else
		start(s);
}

/* ---- ending ---- */

static void ended(struct session *s)
{
	plain_done done = s->closed;
	void *ctx = s->done_ctx;
	struct refusal no = s->failed;
	struct list openers;

	service_note(s->service, s, s->purge ? "purge" : "close", "%s", no.status ? no.detail : "");
	if (s->purge && !no.status)
		owners_purged(s->service, s->id);
	s->ended = true;
	list_init(&openers);
	list_move_all(&openers, &s->openers);
	session_free(s);
	if (done)
		done(ctx, &no);
	while (!list_empty(&openers)) {
		struct opener *o = list_entry(openers.next, struct opener, link);

		list_remove(&o->link);
		service_open(o->service, &o->request, o->done, o->ctx);
		opener_free(o);
	}
}

static void on_row_ended(void *ctx, const struct garret_error *err)
{
	struct session *s = ctx;

	if (err)
		log_error("registry", "%s", err->msg);
	/* The next daemon would find it again, so nobody is told that it has ended. */
	if (err && !s->failed.status)
		refuse(&s->failed, err->code == GARRET_NO_SPACE ? 507 : 503, NULL,
		       "Could not record the end of the session: %s", err->msg);
	ended(s);
}

/*
 * After its environment: what was asked for and is not yet done when we are killed can be
 * asked for again, by who has its token.
 */
static void end_row(struct session *s)
{
	s->service->registry_ops->end(s->service->registry, s->id, s->generation, wall_seconds(),
				      s->purge, on_row_ended, s);
}

static void on_box_closed(void *ctx, const struct garret_error *err)
{
	struct session *s = ctx;

	/* A handle the engine doesn't know is one that is gone, as wanted. */
	if (err && err->code != GARRET_NOT_FOUND && (s->purge || err->code != GARRET_UNAVAILABLE)) {
		log_error("session_close", "session=%s %s", s->id, err->msg);
		if (s->purge)
			refuse(&s->failed, 500, NULL, "Could not remove everything: %s", err->msg);
	}
	end_row(s);
}

void session_end(struct session *s, bool purge, plain_done done, void *ctx)
{
	struct service *svc = s->service;

	s->state = SESSION_CLOSING;
	svc->n_open--;
	s->closed = done;
	s->done_ctx = ctx;
	s->purge = purge;
	s->failed.status = 0;
	tombstones_add(&svc->tombstones, s->id, s->nonce);
	runs_drop_queued(s);
	/* One that is falling asleep or waking, or about to, ends when it has done so. */
	if ((s->rest == SESSION_AWAKE || s->rest == SESSION_ASLEEP) && list_empty(&s->wakers))
		session_end_now(s);
}

void session_end_now(struct session *s)
{
	struct service *svc = s->service;
	const bool keep = svc->config->persist_containers;

	if (s->box)
		svc->ops->close(take_ptr(&s->box),
				s->purge ? BOX_CLOSE_PURGE
				: keep   ? BOX_CLOSE_KEEP
					 : BOX_CLOSE_PLAIN,
				on_box_closed, s);
	else if (s->purge || !keep)
		svc->ops->forget(svc->provider, s->id, s->purge ? BOX_FORGET_ALL : BOX_FORGET_LAYER,
				 0, on_box_closed, s);
	else
		end_row(s);
}

void service_close(struct service *svc, const char *id, bool purge, plain_done done, void *ctx)
{
	struct session *s = find_session(svc, id);

	if (!s) {
		struct answer *a = answer_later(svc, NULL, done, ctx);

		refuse(&a->no, 404, NULL, "No such session: %s", id);
		return;
	}
	session_end(s, purge, done, ctx);
}

static bool is_overdue(const struct session *s, double now)
{
	const double idle = (double)s->service->config->idle_timeout;

	if (s->state != SESSION_OPEN || s->in_flight || runs_live(s))
		return false;
	if (s->rest == SESSION_ASLEEP)
		return now - MAX(s->asleep_since, s->last_activity) >= idle;
	return s->rest == SESSION_AWAKE && now - s->last_activity > idle;
}

void service_reap(struct loop_timer *t)
{
	struct service *svc = t->ctx;
	double now = wall_seconds();
	struct session *s;

	list_foreach (s, &svc->sessions, link) {
		/* Where the clock was set back the time counts from now, or it would never end. */
		s->last_activity = MIN(s->last_activity, now);
		s->asleep_since = MIN(s->asleep_since, now);
		if (!is_overdue(s, now))
			continue;
		service_note(svc, s, "idle", "seconds=%.0f", now - s->last_activity);
		session_end(s, false, NULL, NULL);
	}
	service_rest(svc);
	service_sweep(svc);
	policy_look_at_file(svc);
	loop_timer_set(svc->loop, t, now_ms() + (uint64_t)svc->config->cleanup_interval * 1000,
		       service_reap, svc);
}
