/*
 * Commands.  A run is known by its id from the request that named it first
 * until its record is dropped; a second request with the same id and the same
 * content waits for the same execution and gets the same answer.
 *
 *	queued (more commands than may run at once; the deadline counts)
 *	-> live (with the provider) -> finished (a record, kept a while)
 *
 * While somebody waits a run is attended.  When the last waiting client has
 * gone it is stopped after ATTEND_MS, unless it was started with `keep` or
 * somebody attached meanwhile.
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
#include "core/service_impl.h"

#define ATTEND_MS 2000
#define STOP_GRACE_MS 2000
#define OVERDUE_MS 32000   /* the grace of a stop, and 30 s in which init may be starved */
#define EARLY_STOP_MS 2000 /* how long a stop waits for its run to be asked for */

#define KEEP_MS (3600u * 1000)
#define KEEP_BYTES (64u * 1024 * 1024)    /* of one session, oldest first */
#define KEEP_HEADS (1024u * 1024)         /* of one session, in memory */
#define KEEP_ALL_HEADS (8u * 1024 * 1024) /* of all sessions, in memory */
#define KEEP_RUNS 1000

#define QUEUE_BYTES (64u * 1024 * 1024) /* of one session's commands that have not begun */
#define QUEUED_COST 2048                /* of one of them, beside its strings */

enum run_state { RUN_QUEUED, RUN_LIVE, RUN_FINISHED };

struct run {
	struct list finished_link; /* session.finished */
	struct list queued_link;   /* service.queued */
	struct session *session;
	char id[2 * RUN_ID_BYTES + 1];
	uint8_t digest[32];
	enum run_state state;
	bool keep, stop_asked;
	struct list waits, stops;
	struct box_run *box_run;
	struct loop_timer timer;   /* queued: its deadline; live: nobody attends */
	struct loop_timer overdue; /* live: init should have ended it long ago */
	struct loop_later later;   /* finished: somebody asked again */
	uint64_t deadline_ms, asked_us, finished_ms;
	char **argv, **env;   /* while queued */
	size_t waiting_bytes; /* what they count for in the session's */
	struct strbuf shown;  /* argv quoted, for the log */
	struct run_record *record;
	struct refusal no;
};

struct run_wait {
	struct list link;
	struct run *run; /* NULL: only an answer is due */
	struct service *service;
	struct loop_later later;
	struct refusal no;
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
	r->session->waiting_bytes -= r->waiting_bytes;
	r->waiting_bytes = 0;
}

static void tell_waits(struct run *r)
{
	while (!list_empty(&r->waits)) {
		struct run_wait *w = list_entry(r->waits.next, struct run_wait, link);

		list_remove(&w->link);
		r->session->in_flight--;
		w->done(w->ctx, r->no.status ? NULL : r->record, &r->no);
		free(w);
	}
	while (!list_empty(&r->stops)) {
		struct stop_wait *w = list_entry(r->stops.next, struct stop_wait, link);
		struct refusal none = { 0 };

		list_remove(&w->link);
		w->done(w->ctx, &none);
		free(w);
	}
}

static void run_drop(struct run *r)
{
	struct session *s = r->session;

	map_remove(&s->runs, r->id);
	list_remove(&r->queued_link);
	loop_timer_clear(&r->timer);
	loop_timer_clear(&r->overdue);
	loop_later_cancel(s->service->loop, &r->later);
	if (r->record) {
		uint64_t heads = r->record->head[0].len + r->record->head[1].len;

		list_remove(&r->finished_link);
		s->finished_count--;
		s->kept_bytes -= r->record->total[0] + r->record->total[1];
		s->head_bytes -= heads;
		s->service->head_bytes -= heads;
		run_record_unref(r->record);
	}
	free_strings(r);
	strbuf_release(&r->shown);
	free(r);
}

/* Oldest first, until the session is within its bounds again; never one that is being asked for. */
static void prune(struct session *s)
{
	uint64_t now = now_ms();
	struct run *r;

	list_foreach (r, &s->finished, finished_link) {
		if (s->finished_count <= KEEP_RUNS && s->kept_bytes <= KEEP_BYTES &&
		    s->head_bytes <= KEEP_HEADS && s->service->head_bytes <= KEEP_ALL_HEADS &&
		    now - r->finished_ms <= KEEP_MS)
			break;
		if (list_empty(&r->waits))
			run_drop(r);
	}
}

static void keep_record(struct run *r, struct run_record *rec)
{
	struct session *s = r->session;
	uint64_t heads = rec->head[0].len + rec->head[1].len;

	r->record = rec;
	r->finished_ms = now_ms();
	list_append(&s->finished, &r->finished_link);
	s->finished_count++;
	s->kept_bytes += rec->total[0] + rec->total[1];
	s->head_bytes += heads;
	s->service->head_bytes += heads;
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
	event_add(r->session, "run", r->shown.buf,
		  !end->gone && !end->timed_out && !end->output_limited && end->exit_code == 0,
		  detail, round(ms * 10) / 10);
	log_debug("run", "session=%s run=%s %s ms=%.1f", r->session->id, r->id, detail, ms);
}

static void start_queued(struct service *svc);

/* The run is over, however. */
static void finish(struct run *r, struct box_run_end *end)
{
	struct session *s = r->session;
	bool was_live = r->state == RUN_LIVE;

	loop_timer_clear(&r->timer);
	list_remove(&r->queued_link);
	free_strings(r);
	r->state = RUN_FINISHED;
	r->box_run = NULL;
	session_touch(s);
	log_run(r, end);
	if (end->gone)
		refuse(&r->no, 410, NULL, "The sandbox of session %s is gone", s->id);
	else if (end->output_lost)
		refuse(&r->no, 500, NULL, "The output of run %s was lost (is the disk full?)",
		       r->id);
	else if (end->no_process)
		refuse(&r->no, 429, NULL, "pids exhausted: session %s can start no more processes",
		       s->id);
	if (was_live) {
		s->service->running--;
		s->live_runs--;
	}
	loop_timer_clear(&r->overdue);
	if (r->no.status) {
		tell_waits(r);
		run_drop(r);
	} else {
		keep_record(r, run_record_new(s->service, end));
		tell_waits(r);
		prune(s);
	}
	if (was_live)
		start_queued(s->service);
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

	log_info("run_unattended", "session=%s run=%s", r->session->id, r->id);
	r->stop_asked = true;
	if (r->state == RUN_LIVE)
		r->session->service->ops->stop(r->box_run, STOP_GRACE_MS);
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
		loop_timer_set(r->session->service->loop, &r->timer, at, on_unattended, r);
	else if (!list_empty(&r->queued_link))
		loop_timer_set(r->session->service->loop, &r->timer, MIN(at, r->deadline_ms),
			       on_unattended, r);
}

/*
 * Init ends a run at its deadline.  One that says nothing long after that is
 * broken or hostile: its session ends, or it would hold a place for ever.
 */
static void on_overdue(struct loop_timer *t)
{
	struct run *r = t->ctx;
	struct session *s = r->session;

	log_error("init_silent", "session=%s run=%s: the session is ended", s->id, r->id);
	if (s->state == SESSION_OPEN)
		session_end(s, false, NULL, NULL);
}

static void start_run(struct run *r)
{
	struct service *svc = r->session->service;
	struct garret_error err = { 0 };
	struct box_run_spec spec = { .argv = (const char *const *)r->argv,
				     .env = (const char *const *)r->env,
				     .output_limit = OUTPUT_LIMIT };
	uint64_t now = now_ms();
	uint8_t id[RUN_ID_BYTES];

	if (now >= r->deadline_ms) {
		end_unstarted(r, true);
		return;
	}
	list_remove(&r->queued_link);
	loop_timer_clear(&r->timer);
	(void)hex_decode(r->id, id, sizeof(id));
	spec.id = id;
	spec.timeout_ms = (uint32_t)MIN(r->deadline_ms - now, (uint64_t)UINT32_MAX);
	r->box_run = svc->ops->run(r->session->box, &spec, on_run_end, r, &err);
	free_strings(r);
	if (!r->box_run) {
		end_unstarted(r, false);
		return;
	}
	r->state = RUN_LIVE;
	svc->running++;
	r->session->live_runs++;
	loop_timer_set(svc->loop, &r->overdue, r->deadline_ms + OVERDUE_MS, on_overdue, r);
	if (r->stop_asked)
		svc->ops->stop(r->box_run, STOP_GRACE_MS);
	else
		watch_attendance(r);
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
		if (!best || r->session->live_runs < best->session->live_runs)
			best = r;
	return best;
}

static void start_queued(struct service *svc)
{
	struct run *r;

	while ((r = next_queued(svc)) && may_start(r->session))
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

static struct run *new_run(struct session *s, const struct run_request *req,
			   const uint8_t digest[32], double timeout)
{
	struct run *r = xnew(struct run);

	r->session = s;
	(void)snprintf(r->id, sizeof(r->id), "%s", req->run_id);
	memcpy(r->digest, digest, sizeof(r->digest));
	r->keep = req->keep;
	r->state = RUN_QUEUED;
	list_init(&r->waits);
	list_init(&r->stops);
	list_init(&r->finished_link);
	list_init(&r->queued_link);
	r->asked_us = now_us();
	r->deadline_ms = now_ms() + (uint64_t)MAX(1.0, ceil(timeout * 1000));
	r->argv = copy_strings(req->argv);
	r->env = copy_strings(req->env);
	r->waiting_bytes = bytes_of(req);
	s->waiting_bytes += r->waiting_bytes;
	strbuf_init(&r->shown);
	for (char **p = r->argv; *p && r->shown.len < 1024; p++) {
		if (p != r->argv)
			strbuf_addch(&r->shown, ' ');
		shell_quote(&r->shown, *p);
	}
	r->stop_asked = take_early_stop(s, r->id);
	map_set(&s->runs, r->id, r);
	return r;
}

/* From the loop, so that nothing ends before service_run() has returned. */
static void begin_later(struct loop_later *l)
{
	struct run *r = l->ctx;
	struct service *svc = r->session->service;

	if (r->state != RUN_QUEUED)
		return;
	/* Closed in the same round: it has no environment any more. */
	if (r->session->state != SESSION_OPEN) {
		end_unstarted(r, false);
		return;
	}
	if (may_start(r->session) && (list_empty(&svc->queued) || !r->session->live_runs)) {
		start_run(r);
		return;
	}
	list_append(&svc->queued, &r->queued_link);
	loop_timer_set(svc->loop, &r->timer, r->deadline_ms, on_queue_deadline, r);
	watch_attendance(r);
}

static void tell_again(struct loop_later *l)
{
	tell_waits(l->ctx);
}

static void only_answer(struct loop_later *l)
{
	struct run_wait *w = l->ctx;

	w->done(w->ctx, NULL, &w->no);
	free(w);
}

struct run_wait *service_run(struct service *svc, const char *session_id,
			     const struct run_request *req, run_done done, void *ctx)
{
	struct session *s = find_session(svc, session_id);
	struct run_wait *w = xnew(struct run_wait);
	double ceiling = (double)svc->config->execute_timeout, timeout = ceiling;
	struct garret_error err = { 0 };
	struct run *r = s ? map_find(&s->runs, req->run_id) : NULL;
	uint8_t digest[32];

	*w = (struct run_wait){ .service = svc, .done = done, .ctx = ctx };
	list_init(&w->link);
	if (req->timeout_seconds > 0 && req->timeout_seconds < ceiling)
		timeout = req->timeout_seconds;
	digest_request(req, timeout, digest);
	if (!s)
		refuse(&w->no, 404, NULL, "No such session: %s", session_id);
	else if (s->dead)
		refuse(&w->no, 410, NULL, "The sandbox of session %s is gone", s->id);
	else if (svc->check_command(req->argv, req->env, &err) < 0)
		refuse(&w->no, 413, NULL, "%s", err.msg);
	else if (r && memcmp(r->digest, digest, sizeof(digest)) != 0)
		refuse(&w->no, 409, NULL, "Run %s is another command", r->id);
	else if (!r && s->waiting_bytes + bytes_of(req) > QUEUE_BYTES)
		refuse(&w->no, 429, NULL, "Too many commands of session %s wait to be started",
		       s->id);
	if (w->no.status) {
		loop_later_add(svc->loop, &w->later, only_answer, w);
		return w;
	}
	assert(s);
	session_touch(s);
	s->in_flight++;
	if (!r) {
		r = new_run(s, req, digest, timeout);
		loop_later_add(svc->loop, &r->later, begin_later, r);
	} else if (r->state == RUN_FINISHED) {
		loop_later_add(svc->loop, &r->later, tell_again, r);
	} else if (r->state == RUN_LIVE) {
		loop_timer_clear(&r->timer); /* attended again */
	} else if (!list_empty(&r->queued_link)) {
		loop_timer_set(svc->loop, &r->timer, r->deadline_ms, on_queue_deadline, r);
	}
	w->run = r;
	list_append(&r->waits, &w->link);
	return w;
}

/* ---- leaving and stopping ---- */

void service_run_leave(struct run_wait *w)
{
	struct run *r = w->run;

	loop_later_cancel(w->service->loop, &w->later);
	if (r) {
		list_remove(&w->link);
		r->session->in_flight--;
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
	struct run *r = s ? map_find(&s->runs, run_id) : NULL;
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
	map_init(&s->runs);
	list_init(&s->finished);
	list_init(&s->early_stops);
}

void runs_drop_queued(struct session *s)
{
	struct run *r;

	list_foreach (r, &s->service->queued, queued_link)
		if (r->session == s)
			end_unstarted(r, false);
}

static void note_live(const char *key, void *value, void *ctx)
{
	(void)key;
	if (((struct run *)value)->state != RUN_FINISHED)
		*(bool *)ctx = true;
}

bool runs_live(const struct session *s)
{
	bool live = false;

	map_foreach(&s->runs, note_live, &live);
	return live;
}

static void collect_first(const char *key, void *value, void *ctx)
{
	(void)key;
	*(struct run **)ctx = value;
}

void runs_release(struct session *s)
{
	while (s->runs.count) {
		struct run *r = NULL;

		map_foreach(&s->runs, collect_first, &r);
		if (r->state != RUN_FINISHED)
			refuse(&r->no, 410, NULL, "The sandbox of session %s is gone", s->id);
		tell_waits(r);
		run_drop(r);
	}
	while (!list_empty(&s->early_stops)) {
		struct early_stop *e = list_entry(s->early_stops.next, struct early_stop, link);

		loop_timer_clear(&e->timer);
		list_remove(&e->link);
		free(e);
	}
	map_release(&s->runs);
}
