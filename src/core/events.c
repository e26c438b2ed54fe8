/*
 * The activity log of a session.  Each operation is written to events/ID.GENERATION
 * when it ends; the newest 200, which clients ask for, are in memory as well while
 * the session is awake, and read again when somebody asks for those of another daemon
 * or of a session that sleeps.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "core/event_log.h"
#include "core/journal.h"
#include "core/service_impl.h"
#include "proto/cursor.h"

#define EVENTS_MAX 200
#define TARGET_CHARACTERS 200
#define LOG_BYTES (4u << 20)     /* of one session on the disk, oldest first to go */
#define SEGMENT_BYTES (1u << 20) /* that much at a time */

struct entry {
	double at, duration_ms;
	const char *op; /* a literal */
	char *target;
	char detail_text[16];
	bool ok;
};

/* Entry seq is at e[seq % EVENTS_MAX]; e grows until it holds them all: most sessions do little. */
struct event_ring {
	uint64_t latest;
	size_t cap;
	struct entry *e;
	struct journal *journal; /* NULL: not opened yet, or it can't be */
	bool unwritten;          /* that was told */
	struct list readers;
};

/* What an entry read from a file may be called: the names are literals. */
static const char *const ops[] = { "run",    "read",   "write",  "stat",   "realpath",
				   "ls",     "mkdir",  "remove", "list",   "glob",
				   "grep",   "rename", "copy",   "chmod",  "edit",
				   "digest", "tar",    "untar",  "append", "limits" };

struct event_ring *event_ring_free(struct event_ring *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < r->cap; i++)
		free(r->e[i].target);
	free(r->e);
	while (!list_empty(&r->readers)) {
		struct event_reader *reader =
			list_entry(r->readers.next, struct event_reader, link);

		list_remove(&reader->link);
		reader->news(reader->ctx); /* that this was all */
	}
	journal_free(r->journal);
	free(r);
	return NULL;
}

/* Valid UTF-8 (a path may be anything), at most 200 characters and an ellipsis. */
static char *clean_target(const char *s)
{
	struct strbuf out = STRBUF_INIT;
	struct utf8_repair u = { 0 };
	size_t i = 0;
	int chars = 0;

	/* Four bytes a character at most: what is behind can't be shown. */
	utf8_repair_add(&u, &out, s, strnlen(s, 4 * (TARGET_CHARACTERS + 1)));
	utf8_repair_end(&u, &out);
	for (; i < out.len; i++)
		if (((unsigned char)out.buf[i] & 0xC0) != 0x80 && chars++ == TARGET_CHARACTERS)
			break;
	if (i < out.len) {
		out.len = i;
		strbuf_addstr(&out, "\xE2\x80\xA6");
	}
	return strbuf_detach(&out, NULL);
}

static struct entry *place(struct event_ring *r, uint64_t seq)
{
	size_t i = (size_t)(seq % EVENTS_MAX);

	if (i >= r->cap) {
		size_t cap = MIN(MAX(MAX(2 * r->cap, i + 1), (size_t)8), (size_t)EVENTS_MAX);

		r->e = xrealloc(r->e, cap * sizeof(*r->e));
		memset(r->e + r->cap, 0, (cap - r->cap) * sizeof(*r->e));
		r->cap = cap;
	}
	free(r->e[i].target);
	r->e[i].target = NULL;
	return &r->e[i];
}

/* ---- on the disk ---- */

static bool parse(const struct journal_record *rec, struct session_event *ret)
{
	const char *op;
	struct get g;

	if (rec->type != EVENT_RECORD)
		return false;
	get_init(&g, rec->data, rec->n);
	ret->seq = get_u64(&g);
	ret->at = (double)get_u64(&g) / 1e6;
	ret->duration_ms = (double)get_u64(&g) / 1000;
	ret->ok = get_u8(&g);
	op = get_str(&g, 32);
	ret->target = get_str(&g, 4 * (TARGET_CHARACTERS + 2));
	ret->detail = get_str(&g, 64);
	ret->op = "other";
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++)
		if (!strcmp(op, ops[i]))
			ret->op = ops[i];
	return get_done(&g);
}

static void read_one(void *ctx, const struct journal_record *rec)
{
	struct event_ring *r = ctx;
	struct session_event e;
	struct entry *at;

	if (!parse(rec, &e) || e.seq <= r->latest)
		return;
	r->latest = e.seq;
	at = place(r, e.seq);
	*at = (struct entry){ .at = e.at,
			      .duration_ms = e.duration_ms,
			      .op = e.op,
			      .target = xstrdup(e.target),
			      .ok = e.ok };
	(void)snprintf(at->detail_text, sizeof(at->detail_text), "%s", e.detail);
}

static void complain(struct session *s, const struct garret_error *err)
{
	if (!s->events->unwritten)
		log_error("events", "session=%s %s", s->id, err->msg);
	s->events->unwritten = true;
}

/* The session's name may be another tenant's later; what was done in it is not. */
static void write_tenant(struct session *s)
{
	const char *tenant = s->tenant ? s->tenant : "";
	struct garret_error err = { 0 };

	if (journal_append(s->events->journal, EVENT_TENANT, tenant, strlen(tenant), NULL, &err) <
	    0)
		complain(s, &err);
}

static struct event_ring *ring(struct session *s)
{
	autofree char *name = NULL;
	struct garret_error err = { 0 };
	struct event_ring *r = s->events;

	if (r)
		return r;
	r = s->events = xnew(struct event_ring);
	list_init(&r->readers);
	name = event_log_name(s->id, s->generation);
	if (journal_open(&(struct journal_settings){ .dir = s->service->events_dir,
						     .name = name,
						     .segment_size = SEGMENT_BYTES },
			 read_one, r, &r->journal, &err) < 0)
		complain(s, &err);
	return r;
}

static void write_one(struct session *s, uint64_t seq, const struct entry *e)
{
	uint8_t bytes[64 + 32 + 4 * (TARGET_CHARACTERS + 2) + 64];
	struct garret_error err = { 0 };
	struct journal *j = s->events->journal;
	struct put p;

	if (!j)
		return;
	if (!journal_end(j))
		write_tenant(s);
	put_init(&p, bytes, sizeof(bytes));
	put_u64(&p, seq);
	put_u64(&p, (uint64_t)(e->at * 1e6));
	put_u64(&p, (uint64_t)(e->duration_ms * 1000));
	put_u8(&p, e->ok);
	put_str(&p, e->op);
	put_str(&p, e->target);
	put_str(&p, e->detail_text);
	if (journal_append(j, EVENT_RECORD, bytes, p.len, NULL, &err) < 0) {
		complain(s, &err);
		return;
	}
	s->events->unwritten = false;
	if (journal_bytes(j) > LOG_BYTES) {
		journal_drop(j, journal_first(j) + SEGMENT_BYTES);
		write_tenant(s); /* it was in what is gone */
	}
}

void events_rest(struct session *s)
{
	/* What could not be written, or is being followed, is only here. */
	if (s->events && s->events->journal && !s->events->unwritten &&
	    list_empty(&s->events->readers))
		s->events = event_ring_free(s->events);
}

/* ---- operations ---- */

void event_add(struct session *s, const char *op, const char *target, bool ok, const char *detail,
	       double duration_ms)
{
	struct event_ring *r = ring(s);
	uint64_t seq = ++r->latest;
	struct entry *e = place(r, seq);

	*e = (struct entry){ .at = wall_seconds(),
			     .duration_ms = duration_ms,
			     .op = op,
			     .target = clean_target(target),
			     .ok = ok };
	(void)snprintf(e->detail_text, sizeof(e->detail_text), "%s", detail);
	write_one(s, seq, e);
	service_count(s->service, op, ok);
	event_readers_told(&r->readers);
}

bool service_events(struct service *svc, const char *id, uint64_t after,
		    void (*each)(void *ctx, const struct session_event *e), void *ctx,
		    uint64_t *ret_latest)
{
	struct session *s = find_session(svc, id);
	struct event_ring *r;
	uint64_t seq;

	if (!s)
		return false;
	r = ring(s);
	*ret_latest = r->latest;
	seq = r->latest > EVENTS_MAX ? r->latest - EVENTS_MAX + 1 : 1;
	for (seq = MAX(seq, after < UINT64_MAX ? after + 1 : after); seq <= r->latest; seq++) {
		const struct entry *at = &r->e[seq % EVENTS_MAX];
		struct session_event e = { .seq = seq,
					   .at = at->at,
					   .duration_ms = at->duration_ms,
					   .op = at->op,
					   .target = at->target,
					   .detail = at->detail_text,
					   .ok = at->ok };

		if (at->target)
			each(ctx, &e);
	}
	if (s->rest == SESSION_ASLEEP)
		events_rest(s);
	return true;
}

struct list *events_readers(struct session *s)
{
	return &ring(s)->readers;
}

/* ---- of sessions that may have ended ---- */

struct reading {
	const char *tenant;
	bool theirs;
	uint64_t after;
	unsigned left;
	void (*each)(void *ctx, const struct session_event *e);
	void *ctx;
};

static bool tell_one(void *ctx, const struct journal_record *rec)
{
	struct reading *q = ctx;
	struct session_event e;

	if (!parse(rec, &e) || e.seq <= q->after)
		return true;
	q->each(q->ctx, &e);
	return --q->left;
}

static void look_whose(void *ctx, const struct journal_record *rec)
{
	struct reading *q = ctx;

	if (rec->type == EVENT_TENANT)
		q->theirs = rec->n == strlen(q->tenant) && !memcmp(rec->data, q->tenant, rec->n);
}

int service_kept_events(struct service *svc, const char *id, uint64_t generation,
			const struct event_filter *filter,
			void (*each)(void *ctx, const struct session_event *e), void *ctx)
{
	autofree char *name = event_log_name(id, generation);
	struct reading q = { .tenant = filter->tenant,
			     .theirs = !filter->tenant,
			     .after = filter->after,
			     .left = filter->limit,
			     .each = each,
			     .ctx = ctx };
	struct garret_error err = { 0 };
	struct journal *j = NULL;
	int rc = journal_open(&(struct journal_settings){ .dir = svc->events_dir, .name = name },
			      q.tenant ? look_whose : NULL, &q, &j, &err);

	if (rc == 0 && q.theirs)
		rc = journal_each(j, 0, tell_one, &q, &err);
	if (rc == 0 && (!journal_end(j) || !q.theirs))
		rc = garret_fail(&err, GARRET_NOT_FOUND, "there is no such log");
	else if (rc < 0)
		log_error("events", "session=%s %s", id, err.msg);
	journal_free(j);
	return rc;
}
