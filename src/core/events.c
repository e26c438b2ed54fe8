/* The activity log of a session: the newest 200 operations, in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "core/service_impl.h"

#define EVENTS_MAX 200
#define TARGET_CHARACTERS 200

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
};

struct event_ring *event_ring_free(struct event_ring *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < r->cap; i++)
		free(r->e[i].target);
	free(r->e);
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

void event_add(struct session *s, const char *op, const char *target, bool ok, const char *detail,
	       double duration_ms)
{
	struct event_ring *r = s->events;
	uint64_t seq;
	size_t i;

	if (!r)
		r = s->events = xnew(struct event_ring);
	seq = ++r->latest;
	i = (size_t)(seq % EVENTS_MAX);
	if (i >= r->cap) {
		size_t cap = MIN(MAX(2 * r->cap, (size_t)8), (size_t)EVENTS_MAX);

		r->e = xrealloc(r->e, cap * sizeof(*r->e));
		memset(r->e + r->cap, 0, (cap - r->cap) * sizeof(*r->e));
		r->cap = cap;
	}
	free(r->e[i].target);
	r->e[i].at = wall_seconds();
	r->e[i].duration_ms = duration_ms;
	r->e[i].op = op;
	r->e[i].target = clean_target(target);
	r->e[i].ok = ok;
	(void)snprintf(r->e[i].detail_text, sizeof(r->e[i].detail_text), "%s", detail);
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
	r = s->events;
	*ret_latest = r ? r->latest : 0;
	if (!r)
		return true;
	seq = r->latest > EVENTS_MAX ? r->latest - EVENTS_MAX + 1 : 1;
	for (seq = MAX(seq, after < UINT64_MAX ? after + 1 : after); seq <= r->latest; seq++) {
		size_t i = (size_t)(seq % EVENTS_MAX);
		struct session_event e = { .seq = seq,
					   .at = r->e[i].at,
					   .duration_ms = r->e[i].duration_ms,
					   .op = r->e[i].op,
					   .target = r->e[i].target,
					   .detail = r->e[i].detail_text,
					   .ok = r->e[i].ok };

		each(ctx, &e);
	}
	return true;
}
