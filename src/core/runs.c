/*
 * Commands.  A run is known by its id from the request that named it first
 * until its record is dropped; a second request with the same id and the same
 * content waits for the same execution and gets the same answer, whatever
 * becomes of this process meanwhile: a START record is written before init
 * hears of a run, an END record before init is told to forget it.
 *
 * While somebody waits a run is attended.  When the last waiting client has
 * gone it is stopped after ATTEND_MS, unless it was started with `keep`,
 * detached, or somebody attached meanwhile.  The end of a daemon is no client
 * that goes.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "core/event_log.h"
#include "core/run_impl.h"

#define ATTEND_MS 2000
#define OVERDUE_MS 32000   /* the grace of a stop, and 30 s in which init may be starved */
#define EARLY_STOP_MS 2000 /* how long a stop waits for its run to be asked for */

#define QUEUE_BYTES (64u * 1024 * 1024) /* of one session's commands that have not begun */
#define QUEUED_COST 2048                /* of one of them, beside its strings */
#define SHOWN_BYTES 1024                /* of argv, in the logs */

struct run_wait {
	struct list link;
	struct run *run; /* NULL: only an answer is due */
	struct service *service;
	struct loop_later later;
	struct refusal no;
	bool detach; /* waits for the beginning only */
	run_done done;
	void *ctx;
};

struct stop_wait {
	struct list link;
	plain_done done;
	void *ctx;
	struct loop_later later;
};

struct early_stop {
	struct list link;
	struct loop_timer timer;
	char id[2 * RUN_ID_BYTES + 1];
};

/* ---- telling who waits ---- */

static void free_list_of_strings(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

static void free_strings(struct run *r)
{
	free_list_of_strings(take_ptr(&r->argv));
	free_list_of_strings(take_ptr(&r->env));
	free(take_ptr(&r->cwd));
	if (r->waiting_bytes)
		r->set->session->waiting_bytes -= r->waiting_bytes;
	r->waiting_bytes = 0;
}

static void tell_wait(struct run_wait *w, struct run_record *record, const struct refusal *no)
{
	list_remove(&w->link);
	w->run->set->session->in_flight--;
	w->done(w->ctx, w->detach ? NULL : record, no);
	free(w);
}

static void tell_waits(struct run *r)
{
	while (!list_empty(&r->waits))
		tell_wait(list_entry(r->waits.next, struct run_wait, link),
			  r->no.status ? NULL : r->record, &r->no);
	while (!list_empty(&r->stops)) {
		struct stop_wait *w = list_entry(r->stops.next, struct stop_wait, link);
		struct refusal none = { 0 };

		list_remove(&w->link);
		w->done(w->ctx, &none);
		free(w);
	}
}

/* Those that only wanted to know that it has begun. */
static void tell_begun(struct run *r)
{
	const struct refusal none = { 0 };
	struct run_wait *w;

	list_foreach (w, &r->waits, link)
		if (w->detach)
			tell_wait(w, NULL, &none);
}

struct run *run_new(struct run_set *set, const char *id, const uint8_t digest[32])
{
	struct run *r = xnew(struct run);

	r->set = set;
	(void)snprintf(r->id, sizeof(r->id), "%s", id);
	memcpy(r->digest, digest, sizeof(r->digest));
	list_init(&r->waits);
	list_init(&r->stops);
	list_init(&r->readers);
	list_init(&r->inputs);
	list_init(&r->finished_link);
	list_init(&r->queued_link);
	strbuf_init(&r->shown);
	r->position = NOT_RECORDED;
	map_set(&set->runs, r->id, r);
	return r;
}

static uint64_t bytes_in_memory(const struct run_record *rec)
{
	return rec->position == NOT_RECORDED ? rec->head[0].len + rec->head[1].len : 0;
}

void run_drop(struct run *r, bool remove)
{
	struct run_set *set = r->set;
	struct service *svc = set->service;
	struct run_record *rec = r->record;

	run_readers_end(r);
	run_inputs_end(r);
	map_remove(&set->runs, r->id);
	list_remove(&r->queued_link);
	loop_timer_clear(&r->timer);
	loop_timer_clear(&r->overdue);
	loop_later_cancel(svc->loop, &r->later);
	if (rec) {
		list_remove(&r->finished_link);
		set->finished_count--;
		set->kept_bytes -= rec->facts.total[0] + rec->facts.total[1];
		set->memory_bytes -= bytes_in_memory(rec);
		if (rec->refs > 1)
			run_record_hold(rec);
		if (remove && (rec->facts.spooled[0] || rec->facts.spooled[1]))
			svc->ops->spool_remove(svc->provider, set->dir, rec->facts.spool);
		run_record_unref(rec);
	}
	free_strings(r);
	strbuf_release(&r->shown);
	free(r);
}

void run_keep(struct run *r, struct run_record *rec)
{
	struct run_set *set = r->set;

	r->state = RUN_FINISHED;
	r->record = rec;
	list_append(&set->finished, &r->finished_link);
	set->finished_count++;
	set->kept_bytes += rec->facts.total[0] + rec->facts.total[1];
	set->memory_bytes += bytes_in_memory(rec);
}

static void log_run(struct run *r, const struct box_run_end *end)
{
	double ms = (double)(now_us() - r->asked_us) / 1000.0;
	char detail[16];

	if (end->gone)
		(void)snprintf(detail, sizeof(detail), "sandbox gone");
	else if (end->timed_out)
		(void)snprintf(detail, sizeof(detail), "timed out");
	else if (end->output_limited)
		(void)snprintf(detail, sizeof(detail), "output limit");
	else
		(void)snprintf(detail, sizeof(detail), "exit %d", end->exit_code);
	event_add(r->set->session, "run", r->shown.buf,
		  !end->gone && !end->timed_out && !end->output_limited && end->exit_code == 0,
		  detail, round(ms * 10) / 10);
	log_debug("run", "session=%s run=%s %s ms=%.1f", r->set->id, r->id, detail, ms);
}

static void start_queued(struct service *svc);

/* Why nobody gets an answer; what has ended with its session is kept all the same. */
static void refuse_end(struct run *r, const struct box_run_end *end)
{
	if (end->gone)
		refuse(&r->no, 410, NULL, "The sandbox of session %s is gone", r->set->id);
	else if (end->failed.code)
		refuse(&r->no, (unsigned)garret_code_http((int)end->failed.code), NULL, "%s",
		       end->failed.msg);
	else if (end->output_lost)
		refuse(&r->no, 500, NULL, "The output of run %s was lost (is the disk full?)",
		       r->id);
	else if (end->no_process)
		refuse(&r->no, 429, NULL, "pids exhausted: session %s can start no more processes",
		       r->set->id);
}

static struct run_facts facts_of(struct run *r, const struct box_run_end *end)
{
	struct run_facts f = { .timed_out = end->timed_out,
			       .output_limited = end->output_limited,
			       .stopped = end->stopped,
			       .gone = end->gone,
			       .oom = end->oom,
			       .exit_code = end->exit_code,
			       .asked_us = r->asked_wall_us,
			       .started_us = r->started_us,
			       .ended_us = wall_us(),
			       .wall_us = end->wall_us,
			       .user_us = end->user_us,
			       .system_us = end->system_us,
			       .max_rss_bytes = end->max_rss_bytes,
			       .input = r->fed,
			       .spool = end->spool };

	for (int i = 0; i < 2; i++) {
		f.total[i] = end->total[i];
		f.spooled[i] = end->spooled[i];
	}
	return f;
}

/* Its record is written and told; the heads are in memory until that is through. */
static void keep_end(struct run *r, struct box_run_end *end)
{
	const struct run_facts facts = facts_of(r, end);
	struct run_record *rec = run_record_of_end(r->set, &facts, end);
	struct garret_error err = { 0 };

	if (run_record_write(rec, r->id, r->digest, &err) < 0)
		log_error("run_unrecorded", "session=%s run=%s its end is only in memory: %s",
			  r->set->id, r->id, err.msg);
	run_keep(r, rec);
	run_inputs_end(r);
	run_readers_end(r);
	tell_waits(r);
	run_record_shed(rec);
	run_set_prune(r->set);
}

static void start_queued(struct service *svc);

/* The run is over, however. */
static void finish(struct run *r, struct box_run_end *end)
{
	struct session *s = r->set->session;
	struct service *svc = s->service;
	bool was_live = r->state == RUN_LIVE;

	loop_timer_clear(&r->timer);
	list_remove(&r->queued_link);
	free_strings(r);
	r->box_run = NULL;
	session_touch(s);
	log_run(r, end);
	if (!end->gone && end->background != s->background) {
		s->background = end->background;
		service_note(svc, s, "background", "processes=%u", s->background);
	}
	refuse_end(r, end);
	if (was_live) {
		svc->running--;
		s->live_runs--;
	}
	loop_timer_clear(&r->overdue);
	if (!r->no.status || (end->gone && was_live)) {
		keep_end(r, end);
	} else {
		if (r->position != NOT_RECORDED)
			(void)run_write_drop(r);
		if (end->spooled[0] || end->spooled[1])
			svc->ops->spool_remove(svc->provider, r->set->dir, end->spool);
		tell_waits(r);
		run_drop(r, true);
	}
	if (was_live)
		start_queued(svc);
}

void run_gone(struct run *r)
{
	const struct run_facts facts = { .gone = true,
					 .asked_us = r->asked_wall_us,
					 .ended_us = wall_us() };

	free_strings(r);
	run_keep(r, run_record_new(r->set, &facts));
	refuse(&r->no, 410, NULL, "The sandbox of session %s is gone", r->set->id);
	run_inputs_end(r);
	run_readers_end(r);
	tell_waits(r);
}

static void on_run_end(void *ctx, struct box_run_end *end)
{
	finish(ctx, end);
}

/* ---- starting ---- */

static void end_unstarted(struct run *r, bool timed_out)
{
	struct box_run_end end = { .timed_out = timed_out,
				   .gone = !timed_out && !r->stop_asked,
				   .exit_code = 128 + 15,
				   .head = { STRBUF_INIT, STRBUF_INIT } };

	finish(r, &end);
}

static void on_queue_deadline(struct loop_timer *t)
{
	end_unstarted(t->ctx, true);
}

static void on_unattended(struct loop_timer *t)
{
	struct run *r = t->ctx;

	log_info("run_unattended", "session=%s run=%s", r->set->id, r->id);
	r->stop_asked = true;
	if (r->state == RUN_LIVE)
		r->set->service->ops->stop(r->box_run, STOP_GRACE_MS);
	else
		end_unstarted(r, now_ms() >= r->deadline_ms);
}

/* Does anybody wait for it?  Else it has a while to be asked for again. */
static void watch_attendance(struct run *r)
{
	uint64_t at = now_ms() + ATTEND_MS;

	if (!list_empty(&r->waits) || r->keep || r->stop_asked)
		return;
	if (r->state == RUN_LIVE)
		loop_timer_set(r->set->service->loop, &r->timer, at, on_unattended, r);
	else if (!list_empty(&r->queued_link))
		loop_timer_set(r->set->service->loop, &r->timer, MIN(at, r->deadline_ms),
			       on_unattended, r);
}

/*
 * Init ends a run at its deadline.  One that says nothing long after that is
 * broken or hostile: its session ends, or it would hold a place for ever.
 */
static void on_overdue(struct loop_timer *t)
{
	struct run *r = t->ctx;
	struct session *s = r->set->session;

	log_error("init_silent", "session=%s run=%s: the session is ended", s->id, r->id);
	if (s->state == SESSION_OPEN)
		session_end(s, false, NULL, NULL);
}

static void on_news(void *ctx)
{
	struct run *r = ctx;
	struct box_run_state st;

	if (r->state != RUN_LIVE)
		return;
	r->set->service->ops->state(r->box_run, &st);
	if (st.started && !r->started_us)
		r->started_us = wall_us();
	if (st.started)
		tell_begun(r);
	run_inputs_go_on(r, &st);
	run_readers_told(r);
}

static void now_live(struct run *r)
{
	struct service *svc = r->set->service;

	r->state = RUN_LIVE;
	svc->running++;
	r->set->session->live_runs++;
	loop_timer_set(svc->loop, &r->overdue, r->deadline_ms + OVERDUE_MS, on_overdue, r);
	if (r->stop_asked)
		svc->ops->stop(r->box_run, STOP_GRACE_MS);
}

/* False: it may not be begun without a record. */
static bool record_start(struct run *r)
{
	struct garret_error err = { 0 };

	if (run_write_start(r, &err) == 0)
		return true;
	log_error("run_unrecorded", "session=%s run=%s %s", r->set->id, r->id, err.msg);
	if (!r->detached)
		return true;
	refuse(&r->no, 507, NULL, "The run can't be recorded, so it was not started: %s", err.msg);
	tell_waits(r);
	run_drop(r, true);
	return false;
}

static void start_run(struct run *r)
{
	struct service *svc = r->set->service;
	struct garret_error err = { 0 };
	struct box_run_spec spec = { .argv = (const char *const *)r->argv,
				     .env = (const char *const *)r->env,
				     .cwd = r->cwd,
				     .output_limit = OUTPUT_LIMIT,
				     .input = r->input,
				     .news = on_news };
	uint64_t now = now_ms();
	uint8_t id[RUN_ID_BYTES];

	if (now >= r->deadline_ms) {
		end_unstarted(r, true);
		return;
	}
	list_remove(&r->queued_link);
	loop_timer_clear(&r->timer);
	if (!record_start(r))
		return;
	(void)hex_decode(r->id, id, sizeof(id));
	spec.id = id;
	spec.timeout_ms = (uint32_t)MIN(r->deadline_ms - now, (uint64_t)UINT32_MAX);
	r->box_run = svc->ops->run(r->set->session->box, &spec, on_run_end, r, &err);
	free_strings(r);
	if (!r->box_run) {
		end_unstarted(r, false);
		return;
	}
	now_live(r);
	watch_attendance(r);
}

bool run_take_over(struct run *r, const struct box_run_known *known)
{
	struct session *s = r->set->session;

	r->box_run = s->service->ops->attach(s->box, known->id, on_news, on_run_end, r, NULL);
	if (!r->box_run)
		return false;
	free_strings(r);
	r->asked_us = now_us() - known->age_us;
	r->started_us = wall_us() - known->age_us;
	r->fed = known->held;
	r->fed_end = known->input_ended;
	now_live(r);
	return true;
}

/* One command of each session may run whatever the others do. */
static bool may_start(const struct session *s)
{
	return !s->live_runs ||
	       s->service->running < (size_t)s->service->config->max_running_commands;
}

/* The oldest of the session that has the fewest running: nobody waits behind one session's crowd. */
static struct run *next_queued(struct service *svc)
{
	struct run *r, *best = NULL;

	list_foreach (r, &svc->queued, queued_link)
		if (!best || r->set->session->live_runs < best->set->session->live_runs)
			best = r;
	return best;
}

static void start_queued(struct service *svc)
{
	struct run *r;

	while ((r = next_queued(svc)) && may_start(r->set->session))
		start_run(r);
}

static char **copy_strings(const char *const *list)
{
	size_t n = 0;
	char **out;

	while (list && list[n])
		n++;
	out = xcalloc(n + 1, sizeof(*out));
	for (size_t i = 0; i < n; i++)
		out[i] = xstrdup(list[i]);
	return out;
}

static size_t bytes_of(const struct run_request *req)
{
	const char *const *lists[] = { req->argv, req->env };
	size_t n = QUEUED_COST;

	for (int i = 0; i < 2; i++)
		for (const char *const *p = lists[i]; p && *p; p++)
			n += strlen(*p) + 1 + sizeof(*p) + 2 * sizeof(size_t);
	return n;
}

static void digest_request(const struct run_request *req, double timeout, uint8_t out[32])
{
	const char *const *lists[] = { req->argv, req->env };
	struct sha256_ctx h;

	sha256_init(&h);
	for (int i = 0; i < 2; i++) {
		for (const char *const *p = lists[i]; p && *p; p++)
			sha256_update(&h, strlen(*p) + 1, (const uint8_t *)*p);
		sha256_update(&h, 1, (const uint8_t *)"\xFF"); /* in no UTF-8 string */
	}
	sha256_update(&h, sizeof(timeout), (const uint8_t *)&timeout);
	if (req->cwd)
		sha256_update(&h, strlen(req->cwd) + 1, (const uint8_t *)req->cwd);
	if (req->input)
		sha256_update(&h, 1, (const uint8_t *)"\xFE");
	sha256_digest(&h, 32, out);
}

static bool take_early_stop(struct session *s, const char *id)
{
	struct early_stop *e;

	list_foreach (e, &s->early_stops, link)
		if (!strcmp(e->id, id)) {
			loop_timer_clear(&e->timer);
			list_remove(&e->link);
			free(e);
			return true;
		}
	return false;
}

/* What it is to run, until it does. */
static void take_strings(struct run *r, const struct run_request *req)
{
	r->argv = copy_strings(req->argv);
	r->env = copy_strings(req->env);
	r->cwd = req->cwd ? xstrdup(req->cwd) : NULL;
	r->waiting_bytes = bytes_of(req);
	r->set->session->waiting_bytes += r->waiting_bytes;
}

static struct run *new_run(struct session *s, const struct run_request *req,
			   const uint8_t digest[32], double timeout)
{
	struct run *r = run_new(s->runs, req->run_id, digest);

	r->keep = req->keep || req->detach;
	r->detached = req->detach;
	r->input = req->input;
	r->state = RUN_QUEUED;
	r->asked_us = now_us();
	r->asked_wall_us = wall_us();
	r->deadline_ms = now_ms() + (uint64_t)MAX(1.0, ceil(timeout * 1000));
	take_strings(r, req);
	for (char **p = r->argv; *p && r->shown.len < SHOWN_BYTES; p++) {
		if (p != r->argv)
			strbuf_addch(&r->shown, ' ');
		shell_quote(&r->shown, *p);
	}
	r->stop_asked = take_early_stop(s, r->id);
	return r;
}

/* From the loop, so that nothing ends before service_run() has returned. */
static void begin_later(struct loop_later *l)
{
	struct run *r = l->ctx;
	struct session *s = r->set->session;
	struct service *svc = r->set->service;

	if (r->state != RUN_QUEUED)
		return;
	/* Closed in the same round: it has no environment any more. */
	if (s->state != SESSION_OPEN) {
		end_unstarted(r, false);
		return;
	}
	if (may_start(s) && (list_empty(&svc->queued) || !s->live_runs)) {
		start_run(r);
		return;
	}
	list_append(&svc->queued, &r->queued_link);
	loop_timer_set(svc->loop, &r->timer, r->deadline_ms, on_queue_deadline, r);
	watch_attendance(r);
}

void run_restart(struct run *r)
{
	(void)run_write_drop(r);
	r->position = NOT_RECORDED;
	if (!r->argv) {
		tell_waits(r); /* who wants it stopped: it is */
		run_drop(r, true);
		return;
	}
	r->state = RUN_QUEUED;
	loop_later_add(r->set->service->loop, &r->later, begin_later, r);
}

static void tell_again(struct loop_later *l)
{
	struct run *r = l->ctx;

	if (r->state == RUN_FINISHED)
		tell_waits(r);
	else
		tell_begun(r);
}

static void only_answer(struct loop_later *l)
{
	struct run_wait *w = l->ctx;

	w->done(w->ctx, NULL, &w->no);
	free(w);
}

static void refuse_request(struct service *svc, const struct session *s, const struct run *r,
			   const struct run_request *req, const uint8_t digest[32],
			   struct refusal *no)
{
	struct garret_error err = { 0 };

	if (s->dead)
		refuse(no, 410, NULL, "The sandbox of session %s is gone", s->id);
	else if (svc->check_command(req->argv, req->env, &err) < 0)
		refuse(no, 413, NULL, "%s", err.msg);
	else if (r && memcmp(r->digest, digest, sizeof(r->digest)) != 0)
		refuse(no, 409, NULL, "Run %s is another command", r->id);
	else if (!r && s->waiting_bytes + bytes_of(req) > QUEUE_BYTES)
		refuse(no, 429, NULL, "Too many commands of session %s wait to be started", s->id);
	else if (r && r->no.status)
		*no = r->no;
}

/* One more that waits for it. */
static void attend(struct run *r, struct run_wait *w, const struct run_request *req)
{
	struct service *svc = r->set->service;

	r->keep = r->keep || req->keep || req->detach;
	if (r->state == RUN_LIVE)
		loop_timer_clear(&r->timer); /* attended again */
	if (r->state == RUN_RESTORING && !r->argv)
		take_strings(r, req); /* should it turn out that it was never begun */
	else if (r->state == RUN_FINISHED || (req->detach && r->started_us))
		loop_later_add(svc->loop, &r->later, tell_again, r);
	else if (!list_empty(&r->queued_link))
		loop_timer_set(svc->loop, &r->timer, r->deadline_ms, on_queue_deadline, r);
	w->run = r;
	list_append(&r->waits, &w->link);
}

struct run_wait *service_run(struct service *svc, const char *session_id,
			     const struct run_request *req, run_done done, void *ctx)
{
	struct session *s = find_session(svc, session_id);
	struct run_wait *w = xnew(struct run_wait);
	double ceiling = (double)svc->config->execute_timeout, timeout = ceiling;
	struct run *r = s ? map_find(&s->runs->runs, req->run_id) : NULL;
	uint8_t digest[32];

	*w = (struct run_wait){ .service = svc, .detach = req->detach, .done = done, .ctx = ctx };
	list_init(&w->link);
	if (req->timeout_seconds > 0 && req->timeout_seconds < ceiling)
		timeout = req->timeout_seconds;
	digest_request(req, timeout, digest);
	if (!s)
		refuse(&w->no, 404, NULL, "No such session: %s", session_id);
	else
		refuse_request(svc, s, r, req, digest, &w->no);
	if (!s || w->no.status) {
		loop_later_add(svc->loop, &w->later, only_answer, w);
		return w;
	}
	session_touch(s);
	s->in_flight++;
	if (!r) {
		r = new_run(s, req, digest, timeout);
		loop_later_add(svc->loop, &r->later, begin_later, r);
	}
	attend(r, w, req);
	return w;
}

/* ---- leaving and stopping ---- */

void service_run_leave(struct run_wait *w)
{
	struct run *r = w->run;

	loop_later_cancel(w->service->loop, &w->later);
	if (r) {
		list_remove(&w->link);
		r->set->session->in_flight--;
		watch_attendance(r);
	}
	free(w);
}

static void stopped_later(struct loop_later *l)
{
	struct stop_wait *w = l->ctx;
	struct refusal none = { 0 };

	w->done(w->ctx, &none);
	free(w);
}

static void forget_early_stop(struct loop_timer *t)
{
	struct early_stop *e = t->ctx;

	list_remove(&e->link);
	free(e);
}

/* A client that gives up at once may be heard before its command is. */
static void remember_stop(struct session *s, const char *run_id)
{
	struct early_stop *e;
	int n = 0;

	list_foreach (e, &s->early_stops, link)
		if (++n > 64)
			return;
	e = xnew(struct early_stop);
	(void)snprintf(e->id, sizeof(e->id), "%s", run_id);
	list_append(&s->early_stops, &e->link);
	loop_timer_set(s->service->loop, &e->timer, now_ms() + EARLY_STOP_MS, forget_early_stop, e);
}

void service_stop(struct service *svc, const char *session_id, const char *run_id, plain_done done,
		  void *ctx)
{
	struct session *s = find_session(svc, session_id);
	struct run *r = s ? map_find(&s->runs->runs, run_id) : NULL;
	struct stop_wait *w = xnew(struct stop_wait);

	*w = (struct stop_wait){ .done = done, .ctx = ctx };
	list_init(&w->link);
	if (!r || r->state == RUN_FINISHED) {
		if (s && !r)
			remember_stop(s, run_id);
		loop_later_add(svc->loop, &w->later, stopped_later, w);
		return;
	}
	list_append(&r->stops, &w->link);
	r->stop_asked = true;
	if (r->state == RUN_LIVE)
		svc->ops->stop(r->box_run, STOP_GRACE_MS);
	else if (!list_empty(&r->queued_link))
		end_unstarted(r, false);
}

/* ---- a session's runs as a whole ---- */

void runs_init(struct session *s)
{
	run_set_enter(s);
	list_init(&s->early_stops);
}

void runs_drop_queued(struct session *s)
{
	struct run *r;

	list_foreach (r, &s->service->queued, queued_link)
		if (r->set->session == s)
			end_unstarted(r, false);
}

static void note_live(const char *key, void *value, void *ctx)
{
	struct run *r = value;

	(void)key;
	if (r->state != RUN_FINISHED)
		*(struct run **)ctx = r;
}

static struct run *find_live(const struct session *s)
{
	struct run *r = NULL;

	map_foreach(&s->runs->runs, note_live, &r);
	return r;
}

bool runs_live(const struct session *s)
{
	return find_live(s);
}

static void tell_finished(const char *key, void *value, void *ctx)
{
	(void)key;
	(void)ctx;
	tell_waits(value);
}

void runs_release(struct session *s)
{
	struct run *r;

	while ((r = find_live(s))) {
		refuse(&r->no, 410, NULL, "The sandbox of session %s is gone", s->id);
		tell_waits(r);
		run_drop(r, false);
	}
	map_foreach(&s->runs->runs, tell_finished, NULL);
	while (!list_empty(&s->early_stops)) {
		struct early_stop *e = list_entry(s->early_stops.next, struct early_stop, link);

		loop_timer_clear(&e->timer);
		list_remove(&e->link);
		free(e);
	}
	run_set_leave(s);
}
