/*
 * The runs of one generation of a session as they are on disk:
 *
 *	runs/ID.GENERATION/log.*	the log (run_log.h)
 *	runs/ID.GENERATION/N.out, N.err	output that is more than an init keeps
 *
 * While the session lives everything but the output is in memory.  When it has
 * ended only its name is, and the log is read again when somebody asks; that is
 * given up after a minute, and removed with the last run that is kept.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "core/run_impl.h"
#include "core/run_log.h"
#include "proto/cursor.h"

#define KEEP_RUNS 1000             /* of one session */
#define KEEP_MEMORY (1024u * 1024) /* of one session: heads that could not be written */
#define KEEP_SETS 1000             /* of ended generations */
#define RETENTION_MAX 1000000000   /* seconds: for ever */
#define UNLOAD_MS 60000
#define TICK_MS_MAX 30000
#define SWEEP_AT_ONCE 32
#define SWEEP_MS 100
#define SHOWN_MAX 1100
#define LOG_SEGMENT (1u << 20)

static uint64_t retention_ms(const struct service *svc)
{
	return MIN((uint64_t)svc->config->run_retention, (uint64_t)RETENTION_MAX) * 1000;
}

static char *make_dir_name(const char *id, uint64_t generation)
{
	return xasprintf("%s.%016llx", id, (unsigned long long)generation);
}

static struct run_set *set_new(struct service *svc, const char *id)
{
	struct run_set *set = xnew(struct run_set);

	set->service = svc;
	set->id = xstrdup(id);
	list_init(&set->link);
	map_init(&set->runs);
	list_init(&set->finished);
	return set;
}

static void collect_first(const char *key, void *value, void *ctx)
{
	(void)key;
	*(struct run **)ctx = value;
}

/* What is in memory of it goes; who still reads keeps what he reads. */
static void unload(struct run_set *set)
{
	while (set->runs.count) {
		struct run *r = NULL;

		map_foreach(&set->runs, collect_first, &r);
		run_drop(r, false);
	}
	set->journal = journal_free(set->journal);
}

static void set_free(struct run_set *set)
{
	unload(set);
	if (!list_empty(&set->link))
		set->service->n_run_sets--;
	list_remove(&set->link);
	map_release(&set->runs);
	free(set->id);
	free(set->dir);
	free(set);
}

static void set_remove(struct run_set *set)
{
	struct service *svc = set->service;
	autofree char *dir = xstrdup(set->dir);

	set_free(set);
	if (remove_tree_at(svc->runs_dir, dir) < 0 && errno != ENOENT)
		log_error("runs_remove", "dir=%s %s", dir, strerror(errno));
}

/* ---- the log ---- */

const char *runs_dir(struct session *s)
{
	struct run_set *set = s->runs;

	if (!set->dir) {
		set->generation = s->generation;
		set->dir = make_dir_name(s->id, s->generation);
	}
	return set->dir;
}

static int open_log(struct run_set *set, journal_each_fn each, struct garret_error *err)
{
	autofree char *name = xasprintf("%s/log", set->dir);
	const struct journal_settings how = { .dir = set->service->runs_dir,
					      .name = name,
					      .segment_size = LOG_SEGMENT };

	return set->journal ? 0 : journal_open(&how, each, set, &set->journal, err);
}

int run_set_log(struct run_set *set, struct garret_error *err)
{
	if (set->journal)
		return 0;
	if (mkdirat(set->service->runs_dir, set->dir, 0700) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make runs/%s", set->dir);
	return open_log(set, NULL, err);
}

int run_write_start(struct run *r, struct garret_error *err)
{
	uint8_t bytes[RUN_ID_BYTES + 32 + 2 * 8 + 1 + 4 + SHOWN_MAX + 1], raw[RUN_ID_BYTES];
	autofree char *shown = xstrndup(r->shown.buf, SHOWN_MAX);
	struct put p;
	int rc = run_set_log(r->set, err);

	if (rc < 0)
		return rc;
	(void)hex_decode(r->id, raw, sizeof(raw));
	put_init(&p, bytes, sizeof(bytes));
	put_bytes(&p, raw, sizeof(raw));
	put_bytes(&p, r->digest, sizeof(r->digest));
	put_u64(&p, r->asked_wall_us);
	put_u64(&p, r->deadline_ms);
	put_u8(&p, (uint8_t)((r->keep ? RUN_LOG_KEEP : 0) | (r->detached ? RUN_LOG_DETACHED : 0) |
			     (r->input ? RUN_LOG_INPUT : 0)));
	put_str(&p, shown);
	return journal_append(r->set->journal, RUN_LOG_START, bytes, p.len, &r->position, err);
}

bool run_write_drop(struct run *r)
{
	struct garret_error err = { 0 };
	uint8_t raw[RUN_ID_BYTES];

	if (!r->set->journal)
		return true;
	(void)hex_decode(r->id, raw, sizeof(raw));
	if (journal_append(r->set->journal, RUN_LOG_DROP, raw, sizeof(raw), NULL, &err) == 0)
		return true;
	log_error("run_record", "run=%s %s", r->id, err.msg);
	return false;
}

static void read_start(struct run_set *set, const struct journal_record *rec)
{
	uint8_t raw[RUN_ID_BYTES], digest[32], flags;
	char id[2 * RUN_ID_BYTES + 1];
	uint64_t asked, deadline;
	const char *shown;
	struct run *r;
	struct get g;

	get_init(&g, rec->data, rec->n);
	get_bytes(&g, raw, sizeof(raw));
	get_bytes(&g, digest, sizeof(digest));
	asked = get_u64(&g);
	deadline = get_u64(&g);
	flags = get_u8(&g);
	shown = get_str(&g, SHOWN_MAX);
	hex_encode(raw, sizeof(raw), id);
	if (!get_done(&g))
		return;
	r = map_find(&set->runs, id);
	if (r)
		run_drop(r, false); /* it was asked for again after its record was dropped */
	r = run_new(set, id, digest);
	r->state = RUN_RESTORING;
	r->asked_wall_us = asked;
	r->deadline_ms = deadline;
	r->keep = flags & RUN_LOG_KEEP;
	r->detached = flags & RUN_LOG_DETACHED;
	r->input = flags & RUN_LOG_INPUT;
	r->position = rec->position;
	strbuf_addstr(&r->shown, shown);
}

static void read_end(struct run_set *set, const struct journal_record *rec)
{
	char id[2 * RUN_ID_BYTES + 1];
	struct run_facts facts;
	struct run_record *record;
	uint8_t digest[32];
	struct run *r;

	if (!run_record_parse(rec, id, digest, &facts))
		return;
	r = map_find(&set->runs, id);
	if (!r)
		r = run_new(set, id, digest);
	if (r->state == RUN_FINISHED)
		return;
	r->asked_wall_us = facts.asked_us;
	r->started_us = facts.started_us;
	record = run_record_new(set, &facts);
	record->position = rec->position;
	run_keep(r, record);
}

static void on_record(void *ctx, const struct journal_record *rec)
{
	struct run_set *set = ctx;
	char id[2 * RUN_ID_BYTES + 1];
	struct run *r;

	if (rec->type == RUN_LOG_START) {
		read_start(set, rec);
	} else if (rec->type == RUN_LOG_END) {
		read_end(set, rec);
	} else if (rec->type == RUN_LOG_DROP && rec->n == RUN_ID_BYTES) {
		hex_encode(rec->data, rec->n, id);
		r = map_find(&set->runs, id);
		if (r)
			run_drop(r, false); /* the files of that number may be another's by now */
	}
}

/* ---- bounds ---- */

static void note_start(const char *key, void *value, void *ctx)
{
	const struct run *r = value;
	uint64_t *first = ctx;

	(void)key;
	if (r->state != RUN_FINISHED && r->position < *first)
		*first = r->position;
}

/* The START of a run that lasts long must not keep what came behind it. */
static void write_start_again(const char *key, void *value, void *ctx)
{
	const uint64_t *needed = ctx;
	struct garret_error err = { 0 };
	struct run *r = value;

	(void)key;
	if (r->state == RUN_FINISHED || r->position == NOT_RECORDED || r->position >= *needed)
		return;
	if (run_write_start(r, &err) < 0)
		log_warn("run_record", "run=%s %s", r->id, err.msg);
}

/* Where the oldest record is that a finished run has its output in. */
static uint64_t first_needed(const struct run_set *set)
{
	const struct run *r;

	list_foreach (r, &set->finished, finished_link)
		if (r->record->position != NOT_RECORDED)
			return r->record->position;
	return journal_end(set->journal);
}

/* Give back the front of the log that nobody needs. */
static void drop_front(struct run_set *set)
{
	uint64_t needed = first_needed(set), first = UINT64_MAX;

	if (needed - journal_first(set->journal) < LOG_SEGMENT)
		return; /* not one file's worth */
	map_foreach(&set->runs, note_start, &first);
	if (first < needed && needed - first > LOG_SEGMENT)
		map_foreach(&set->runs, write_start_again, &needed);
	first = UINT64_MAX;
	map_foreach(&set->runs, note_start, &first);
	journal_drop(set->journal, MIN(first, needed));
}

static bool over_bounds(const struct run_set *set, const struct run *r)
{
	const struct service *svc = set->service;

	return set->finished_count > KEEP_RUNS ||
	       set->kept_bytes > (uint64_t)svc->config->run_bytes ||
	       set->memory_bytes > KEEP_MEMORY ||
	       wall_us() > r->record->facts.ended_us + retention_ms(svc) * 1000;
}

void run_set_prune(struct run_set *set)
{
	bool dropped = false;
	struct run *r;

	list_foreach (r, &set->finished, finished_link) {
		if (!over_bounds(set, r))
			break;
		if (!list_empty(&r->waits))
			continue;
		/* Else its record would come back when the number of its files is another's. */
		if ((r->record->facts.spooled[0] || r->record->facts.spooled[1]) &&
		    !run_write_drop(r))
			break;
		run_drop(r, true);
		dropped = true;
	}
	if (dropped && set->journal)
		drop_front(set);
}

/* ---- restoring ---- */

static void collect_restoring(const char *key, void *value, void *ctx)
{
	struct run *r = value;

	(void)key;
	if (r->state == RUN_RESTORING)
		*(struct run **)ctx = r;
}

static struct run *next_restoring(struct run_set *set)
{
	struct run *r = NULL;

	map_foreach(&set->runs, collect_restoring, &r);
	return r;
}

/* Nobody knows how they ended. */
static void all_gone(struct run_set *set)
{
	struct run *r;

	while ((r = next_restoring(set)))
		run_gone(r);
}

/* A stream of the daemon before, or one that has its END record: nobody waits for it. */
static void end_stray(struct session *s, const uint8_t *id)
{
	const struct provider_ops *ops = s->service->ops;
	struct box_run *run = ops->attach(s->box, id, NULL, NULL, NULL, NULL);

	if (run)
		ops->stop(run, STOP_GRACE_MS);
}

static void on_known(void *ctx, const struct box_run_known *known, size_t n,
		     const struct garret_error *err)
{
	struct run_set *set = ctx;
	struct run *r;

	if (err) {
		log_warn("runs_restore", "session=%s %s", set->id, err->msg);
		all_gone(set);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		char id[2 * RUN_ID_BYTES + 1];

		hex_encode(known[i].id, RUN_ID_BYTES, id);
		r = map_find(&set->runs, id);
		if (known[i].stream || (r && r->state == RUN_FINISHED))
			end_stray(set->session, known[i].id);
		else if (r && r->state == RUN_RESTORING)
			(void)run_take_over(r, &known[i]);
		/*
		 * One that could not be recorded goes on where it is: when its client asks again,
		 * init gives that request the run it has.
		 */
	}
	/* The others never reached it. */
	while ((r = next_restoring(set)))
		run_restart(r);
	run_set_prune(set);
}

static struct run_set *find_ended(struct service *svc, const char *id, uint64_t generation)
{
	struct run_set *set;

	list_foreach (set, &svc->run_sets, link)
		if (set->generation == generation && !strcmp(set->id, id))
			return set;
	return NULL;
}

void runs_restore(struct session *s)
{
	struct run_set *set = s->runs, *noted;
	struct garret_error err = { 0 };

	(void)runs_dir(s);
	noted = find_ended(s->service, s->id, s->generation);
	if (noted)
		set_free(noted); /* that was the same one */
	if (faccessat(s->service->runs_dir, set->dir, F_OK, 0) < 0)
		log_debug("runs_restore", "session=%s has none", s->id);
	else if (open_log(set, on_record, &err) < 0)
		log_error("runs_restore", "session=%s %s", s->id, err.msg);
	if (s->box && !s->dead)
		s->service->ops->runs(s->box, on_known, set);
	else
		all_gone(set);
}

/* ---- ended generations ---- */

static void add_ended(struct run_set *set)
{
	struct service *svc = set->service;

	list_append(&svc->run_sets, &set->link);
	if (++svc->n_run_sets > KEEP_SETS)
		set_remove(list_entry(svc->run_sets.next, struct run_set, link));
}

void run_set_leave(struct session *s)
{
	struct run_set *set = take_ptr(&s->runs);

	set->session = NULL;
	set->ended_at = wall_seconds();
	memcpy(set->nonce, s->nonce, sizeof(set->nonce));
	if (s->purge && s->ended)
		runs_purge(s->service, s->id);
	if (!s->ended || !set->dir) {
		set_free(set); /* the daemon ends; what it leaves is for the next one to find */
	} else if (s->purge || (!set->asleep && !set->finished_count)) {
		set_remove(set);
	} else {
		unload(set);
		add_ended(set);
	}
}

static bool load(struct run_set *set)
{
	struct garret_error err = { 0 };

	set->used_ms = now_ms();
	if (set->journal)
		return true;
	if (open_log(set, on_record, &err) < 0) {
		log_error("runs_load", "session=%s %s", set->id, err.msg);
		return false;
	}
	all_gone(set);
	return true;
}

void runs_sleep(struct session *s)
{
	struct run_set *set = s->runs;

	/* What could not be written is only in memory. */
	set->asleep = set->dir && !set->memory_bytes;
	if (set->asleep)
		unload(set);
}

void runs_wake(struct session *s)
{
	struct run_set *set = s->runs;

	if (set->asleep && faccessat(s->service->runs_dir, set->dir, F_OK, 0) == 0)
		(void)load(set);
	set->asleep = false;
}

void runs_purge(struct service *svc, const char *id)
{
	struct run_set *set;

	list_foreach (set, &svc->run_sets, link)
		if (!strcmp(set->id, id))
			set_remove(set);
}

void runs_note(struct service *svc, const struct session_row *row)
{
	double now = wall_seconds(), ended = row->ended_at > 0 ? row->ended_at : now;
	struct run_set *set;

	if (row->purged || now - ended > (double)svc->config->run_retention)
		return;
	set = set_new(svc, row->id);
	set->generation = row->generation;
	set->dir = make_dir_name(row->id, row->generation);
	set->ended_at = ended;
	memcpy(set->nonce, row->nonce, sizeof(set->nonce));
	if (faccessat(svc->runs_dir, set->dir, F_OK, 0) == 0)
		add_ended(set);
	else
		set_free(set);
}

/* ---- looking ---- */

void run_sets_each(struct service *svc, const struct run_scope *scope,
		   bool (*fn)(struct run_set *set, void *ctx), void *ctx)
{
	struct session *s = map_find(&svc->by_id, scope->session_id);
	struct list *at, *before;

	if (s && s->state != SESSION_OPENING &&
	    (!scope->generation || scope->generation == s->generation)) {
		if (s->runs->asleep && faccessat(svc->runs_dir, s->runs->dir, F_OK, 0) == 0)
			(void)load(s->runs);
		run_set_prune(s->runs);
		if (!fn(s->runs, ctx))
			return;
	}
	for (at = svc->run_sets.prev; at != &svc->run_sets; at = before) {
		struct run_set *set = list_entry(at, struct run_set, link);

		before = at->prev;
		if (strcmp(set->id, scope->session_id) != 0 ||
		    (scope->generation && scope->generation != set->generation) || !load(set))
			continue;
		run_set_prune(set);
		if (!fn(set, ctx))
			return;
	}
}

struct search {
	const char *run_id;
	struct run *found;
};

static bool search(struct run_set *set, void *ctx)
{
	struct search *q = ctx;

	q->found = map_find(&set->runs, q->run_id);
	return !q->found;
}

struct run *run_find(struct service *svc, const struct run_scope *scope, const char *run_id)
{
	struct search q = { .run_id = run_id };

	run_sets_each(svc, scope, search, &q);
	return q.found;
}

uint64_t service_ended_generation(struct service *svc, const char *token, const char *session_id)
{
	struct session *s = map_find(&svc->by_id, session_id);
	struct run_set *set;

	if (s && s->state == SESSION_CLOSING &&
	    token_matches(&svc->key, session_id, s->nonce, token))
		return s->generation;
	list_foreach (set, &svc->run_sets, link)
		if (!strcmp(set->id, session_id) &&
		    token_matches(&svc->key, session_id, set->nonce, token))
			return set->generation;
	return 0;
}

uint64_t service_generation(struct service *svc, const char *session_id)
{
	const struct session *s = find_session(svc, session_id);

	return s ? s->generation : 0;
}

bool service_has_ended_runs(struct service *svc, const char *session_id)
{
	struct run_set *set;

	list_foreach (set, &svc->run_sets, link)
		if (!strcmp(set->id, session_id))
			return true;
	return false;
}

/* ---- keeping house ---- */

/* A directory of runs/ that belongs to a session or to a set. */
static bool is_known(struct service *svc, const char *dir)
{
	struct run_set *set;
	struct session *s;

	list_foreach (s, &svc->sessions, link)
		if (s->runs->dir && !strcmp(s->runs->dir, dir))
			return true;
	list_foreach (set, &svc->run_sets, link)
		if (!strcmp(set->dir, dir))
			return true;
	return false;
}

/* What an earlier daemon left of generations that are long gone; some at a time. */
static void sweep(struct service *svc)
{
	int fd = openat(svc->runs_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	    left = SWEEP_AT_ONCE;
	autodir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e = NULL;

	if (!dir)
		fd_close(fd);
	while (dir && left && (e = readdir(dir))) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || is_known(svc, e->d_name))
			continue;
		log_debug("runs_sweep", "dir=%s", e->d_name);
		if (remove_tree_at(svc->runs_dir, e->d_name) < 0)
			log_error("runs_sweep", "dir=%s %s", e->d_name, strerror(errno));
		left--;
	}
	svc->runs_swept = !e;
}

static void on_tick(struct loop_timer *t)
{
	struct service *svc = t->ctx;
	uint64_t now = now_ms(), keep = retention_ms(svc);
	struct run_set *set;
	struct session *s;

	list_foreach (s, &svc->sessions, link) {
		run_set_prune(s->runs);
		if (s->runs->asleep && s->runs->journal && now - s->runs->used_ms > UNLOAD_MS)
			unload(s->runs);
	}
	list_foreach (set, &svc->run_sets, link) {
		if (wall_seconds() - set->ended_at > (double)svc->config->run_retention) {
			set_remove(set);
			continue;
		}
		if (set->journal)
			run_set_prune(set);
		if (set->journal && now - set->used_ms > UNLOAD_MS)
			unload(set);
	}
	/* Not before it is known which sessions there are: their runs would be strangers'. */
	if (!svc->runs_swept && svc->ready)
		sweep(svc);
	loop_timer_set(svc->loop, t,
		       now + (svc->runs_swept ? MIN(MAX(keep / 2, 1000u), (uint64_t)TICK_MS_MAX)
					      : SWEEP_MS),
		       on_tick, svc);
}

void run_sets_init(struct service *svc, int dir)
{
	svc->runs_dir = dir;
	list_init(&svc->run_sets);
	loop_timer_set(svc->loop, &svc->runs_timer, now_ms() + SWEEP_MS, on_tick, svc);
}

void run_sets_free(struct service *svc)
{
	struct run_set *set;

	loop_timer_clear(&svc->runs_timer);
	list_foreach (set, &svc->run_sets, link)
		set_free(set);
}

void run_set_enter(struct session *s)
{
	s->runs = set_new(s->service, s->id);
	s->runs->session = s;
}
