/*
 * What happened to sessions and to the service: opened, slept, closed, the policy
 * changed.  It is for people who want to know later, so it outlives the sessions: for
 * GARRET_EVENT_RETENTION seconds.  Where an entry is lies in memory for the newest
 * 16,384, and for one of 1,024 of those before: what is asked for is found in any case
 * within a file or two, however long the log is.
 *
 * The files of ended sessions' activity, beside it, are removed at the same age.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "base/time.h"
#include "core/event_log.h"
#include "core/journal.h"
#include "core/service_impl.h"
#include "proto/cursor.h"

#define NAME "service"
#define DETAIL_MAX 1024
#define POSITIONS 16384
#define MARK_EVERY 1024
#define MARKS_MAX 4096 /* more than LOG_BYTES has */
#define LOG_BYTES (64u << 20)
#define SWEEP_MS 600000
#define SWEEP_FIRST_MS 30000

struct mark {
	uint64_t seq, position;
};

struct service_log {
	struct journal *journal; /* NULL: it can't be opened */
	uint64_t latest;         /* seq */
	uint64_t *positions;     /* of entry seq at seq % POSITIONS */
	struct mark *marks;      /* ascending */
	size_t n_marks;
	struct list readers;
	struct loop_timer sweep;
	bool unwritten;
	struct service_metrics metrics;
};

char *event_log_name(const char *id, uint64_t generation)
{
	return xasprintf("%s.%016llx", id, (unsigned long long)generation);
}

void event_readers_told(struct list *readers)
{
	struct event_reader *r;

	list_foreach (r, readers, link)
		r->news(r->ctx);
}

static bool parse(const struct journal_record *rec, struct service_event *ret)
{
	struct get g;

	get_init(&g, rec->data, rec->n);
	ret->seq = get_u64(&g);
	ret->at = (double)get_u64(&g) / 1e6;
	ret->kind = get_str(&g, 32);
	ret->session_id = get_str(&g, 64);
	ret->tenant = get_str(&g, 64);
	ret->detail = get_str(&g, DETAIL_MAX);
	return get_done(&g) && rec->type == EVENT_RECORD;
}

static void note_position(struct service_log *l, uint64_t position)
{
	l->positions[l->latest % POSITIONS] = position;
	if (l->n_marks && l->latest < l->marks[l->n_marks - 1].seq + MARK_EVERY)
		return;
	if (l->n_marks == MARKS_MAX)
		memmove(l->marks, l->marks + 1, --l->n_marks * sizeof(*l->marks));
	/* A few bytes in most logs. */
	if (!(l->n_marks % 16))
		l->marks = xrealloc(l->marks, (l->n_marks + 16) * sizeof(*l->marks));
	l->marks[l->n_marks++] = (struct mark){ l->latest, position };
}

/* From where on to look for the entries behind seq `after`, of which there are some. */
static uint64_t find_position(const struct service_log *l, uint64_t after)
{
	size_t n = l->n_marks;

	if (l->latest - after < POSITIONS)
		return l->positions[(after + 1) % POSITIONS];
	while (n && l->marks[n - 1].seq > after + 1)
		n--;
	return n ? l->marks[n - 1].position : 0;
}

static void read_one(void *ctx, const struct journal_record *rec)
{
	struct service_log *l = ctx;
	struct service_event e;

	if (!parse(rec, &e) || e.seq <= l->latest)
		return;
	l->latest = e.seq;
	note_position(l, rec->position);
}

static void count_kind(struct service_metrics *m, const char *kind)
{
	const struct {
		const char *kind;
		uint64_t *n;
	} counted[] = { { "open", &m->opened }, { "close", &m->closed }, { "purge", &m->closed },
			{ "sleep", &m->slept }, { "wake", &m->woken },   { "died", &m->died } };

	for (size_t i = 0; i < ARRAY_SIZE(counted); i++)
		if (!strcmp(kind, counted[i].kind))
			++*counted[i].n;
}

void service_note(struct service *svc, const struct session *s, const char *kind, const char *fmt,
		  ...)
{
	struct service_log *l = svc->log;
	uint8_t bytes[64 + 32 + 2 * 72 + DETAIL_MAX + 16];
	char raw[DETAIL_MAX];
	autobuf struct strbuf text = STRBUF_INIT;
	struct utf8_repair u = { 0 };
	struct garret_error err = { 0 };
	uint64_t position;
	struct put p;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(raw, sizeof(raw), fmt, ap);
	va_end(ap);
	utf8_repair_add(&u, &text, raw, strlen(raw));
	utf8_repair_end(&u, &text);
	if (text.len >= DETAIL_MAX)
		text.buf[text.len = DETAIL_MAX - 1] = '\0';
	count_kind(&l->metrics, kind);
	log_info("event", "kind=%s session=%s %s", kind, s ? s->id : "-", raw);
	l->latest++;
	put_init(&p, bytes, sizeof(bytes));
	put_u64(&p, l->latest);
	put_u64(&p, wall_us());
	put_str(&p, kind);
	put_str(&p, s ? s->id : "");
	put_str(&p, s && s->tenant ? s->tenant : "");
	put_str(&p, text.len ? text.buf : "");
	if (!l->journal)
		return;
	if (journal_append(l->journal, EVENT_RECORD, bytes, p.len, &position, &err) < 0) {
		if (!l->unwritten)
			log_error("events", "%s", err.msg);
		l->unwritten = true;
		return;
	}
	l->unwritten = false;
	note_position(l, position);
	if (journal_bytes(l->journal) > LOG_BYTES)
		journal_drop(l->journal, journal_first(l->journal) + (1u << 20));
	event_readers_told(&l->readers);
}

void service_count(struct service *svc, const char *op, bool ok)
{
	struct service_metrics *m = &svc->log->metrics;

	if (!strcmp(op, "run"))
		(*(ok ? &m->runs_ok : &m->runs_failed))++;
	else
		(*(ok ? &m->files_ok : &m->files_failed))++;
}

struct service_metrics service_metrics(const struct service *svc)
{
	struct service_metrics m = svc->log->metrics;
	struct session *s;

	list_foreach (s, &svc->sessions, link) {
		m.opening += s->state == SESSION_OPENING;
		m.closing += s->state == SESSION_CLOSING;
		m.dead += s->state == SESSION_OPEN && s->dead;
		m.asleep += s->state == SESSION_OPEN && s->rest == SESSION_ASLEEP;
		m.running += s->state == SESSION_OPEN && !s->dead && s->rest != SESSION_ASLEEP;
		m.runs_live += s->live_runs;
		m.in_flight += s->in_flight;
	}
	m.events = svc->log->latest;
	m.ready = svc->ready;
	return m;
}

/* ---- reading ---- */

struct reading {
	const struct event_filter *filter;
	unsigned left;
	void (*each)(void *ctx, const struct service_event *e);
	void *ctx;
	uint64_t last;
};

static bool tell_one(void *ctx, const struct journal_record *rec)
{
	struct reading *q = ctx;
	const struct event_filter *f = q->filter;
	struct service_event e;

	if (!parse(rec, &e) || e.seq <= f->after)
		return true;
	q->last = e.seq;
	if ((f->session_id && strcmp(f->session_id, e.session_id) != 0) ||
	    (f->tenant && strcmp(f->tenant, e.tenant) != 0))
		return true;
	q->each(q->ctx, &e);
	return --q->left;
}

uint64_t service_log_each(struct service *svc, const struct event_filter *filter,
			  void (*each)(void *ctx, const struct service_event *e), void *ctx)
{
	struct service_log *l = svc->log;
	struct reading q = { .filter = filter, .left = filter->limit, .each = each, .ctx = ctx };
	struct garret_error err = { 0 };

	if (filter->after >= l->latest || !l->journal)
		return l->latest;
	if (journal_each(l->journal, find_position(l, filter->after), tell_one, &q, &err) < 0)
		log_error("events", "%s", err.msg);
	return q.left ? l->latest : q.last;
}

struct event_reader *service_event_reader(struct service *svc, const char *session_id,
					  void (*news)(void *ctx), void *ctx)
{
	struct session *s = session_id ? find_session(svc, session_id) : NULL;
	struct event_reader *r;

	if (session_id && !s)
		return NULL;
	r = xnew(struct event_reader);
	r->news = news;
	r->ctx = ctx;
	list_append(s ? events_readers(s) : &svc->log->readers, &r->link);
	return r;
}

struct event_reader *service_event_reader_free(struct event_reader *r)
{
	if (r)
		list_remove(&r->link);
	free(r);
	return NULL;
}

/* ---- keeping house ---- */

#define NUMBER_CHARACTERS 17 /* a dot and 16 digits */

/*
 * ID.GENERATION.POSITION of a session that isn't there any more, and that nobody wrote to.
 * From the end: an id may have dots and digits, and be called as our own log.
 */
static bool is_old(struct service *svc, int dir, const char *name, double oldest)
{
	const size_t n = strlen(name), parts = 2 * (size_t)NUMBER_CHARACTERS;
	const char *at = name + n - parts;
	autofree char *id = NULL, *live = NULL;
	struct session *s;
	struct stat st;

	if (n <= parts || at[0] != '.' || at[NUMBER_CHARACTERS] != '.')
		return false;
	id = xstrndup(name, n - parts);
	s = map_find(&svc->by_id, id);
	live = s ? event_log_name(id, s->generation) : NULL;
	if (live && !strncmp(name, live, strlen(live)))
		return false;
	return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       (double)st.st_mtim.tv_sec < oldest;
}

static void forget_old_entries(struct service_log *l, double oldest)
{
	struct journal *j = l->journal;
	struct service_event e;
	uint8_t bytes[2048];
	struct garret_error err = { 0 };

	/* A file at a time: its last entry isn't known, the first of the next one is. */
	while (j && journal_end(j) - journal_first(j) > 1u << 20) {
		uint64_t next = journal_first(j) + (1u << 20);
		struct journal_record rec = { .type = EVENT_RECORD, .data = bytes };
		ssize_t n = journal_read(j, journal_first(j), 0, bytes, sizeof(bytes), &err);

		rec.n = n > 0 ? (size_t)n : 0;
		if (n <= 0 || !parse(&rec, &e) || e.at >= oldest)
			return;
		journal_drop(j, next);
		if (journal_first(j) < next)
			return;
	}
}

static void sweep(struct loop_timer *t)
{
	struct service *svc = t->ctx;
	double oldest = wall_seconds() - (double)svc->config->event_retention;
	int fd = openat(svc->events_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!d)
		fd_close(fd);
	while (d && (e = readdir(d)))
		if (e->d_name[0] != '.' && is_old(svc, dirfd(d), e->d_name, oldest))
			(void)unlinkat(dirfd(d), e->d_name, 0);
	forget_old_entries(svc->log, oldest);
	loop_timer_set(svc->loop, t, now_ms() + SWEEP_MS, sweep, svc);
}

void service_log_init(struct service *svc)
{
	struct service_log *l = xnew(struct service_log);
	struct garret_error err = { 0 };

	svc->log = l;
	list_init(&l->readers);
	l->positions = xcalloc(POSITIONS, sizeof(*l->positions));
	if (journal_open(&(struct journal_settings){ .dir = svc->events_dir, .name = NAME },
			 read_one, l, &l->journal, &err) < 0)
		log_error("events", "%s", err.msg);
	loop_timer_set(svc->loop, &l->sweep,
		       now_ms() + MIN((uint64_t)svc->config->event_retention * 500,
				      (uint64_t)SWEEP_FIRST_MS),
		       sweep, svc);
}

void service_log_free(struct service *svc)
{
	struct service_log *l = take_ptr(&svc->log);

	loop_timer_clear(&l->sweep);
	journal_free(l->journal);
	free(l->positions);
	free(l->marks);
	free(l);
}
