/*
 * From init to the socket.  After a cut init tells everything of a run from the
 * start: what was passed on before is left out.
 */
#include <errno.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "provider/init_stream_impl.h"

#define LISTED_MAX (1u << 20) /* of all frames of one list */

/* ---- runs ---- */

struct track *in_track(struct init_stream *s, const uint8_t *id)
{
	struct track *t;

	list_foreach (t, &s->tracks, link)
		if (!memcmp(t->id, id, INIT_RUN_ID))
			return t;
	return NULL;
}

struct track *in_track_new(struct init_stream *s, const uint8_t *id, uint64_t request)
{
	struct track *t = in_track(s, id);

	if (!t) {
		t = xnew(struct track);
		memcpy(t->id, id, INIT_RUN_ID);
		t->fetch[0].fd = t->fetch[1].fd = -EBADF;
		list_append(&s->tracks, &t->link);
	}
	t->request = request;
	return t;
}

void in_track_free(struct init_stream *s, struct track *t)
{
	if (!t)
		return;
	for (int i = 0; i < 2; i++) {
		if (s->live && t->fetch[i].asked > t->fetch[i].got)
			s->n_fetches--;
		fd_close(t->fetch[i].fd);
	}
	list_remove(&t->link);
	free(t->exit);
	free(t);
}

void in_release(struct init_stream *s)
{
	while (!list_empty(&s->tracks))
		in_track_free(s, list_entry(s->tracks.next, struct track, link));
	strbuf_release(&s->listed);
}

/* ---- passing on ---- */

static void local(struct init_stream *s, const void *frame, size_t n)
{
	chan_send(&s->local, frame, n, NULL, 0);
}

void in_error(struct init_stream *s, uint64_t request, enum garret_code code, const char *text)
{
	uint8_t frame[1024];
	struct put p;

	init_begin(&p, frame, INIT_ERROR, request);
	p.cap = sizeof(frame);
	put_u32(&p, code);
	put_u32(&p, 0);
	put_str(&p, text);
	local(s, frame, init_end(&p));
}

void in_exit_if_whole(struct init_stream *s, struct track *t)
{
	if (!t->exit || !fetch_whole(t))
		return;
	local(s, t->exit, t->exit_n);
	in_track_free(s, t);
}

static bool on_out(struct init_stream *s, struct track *t, const struct init_header *h,
		   struct get *g)
{
	unsigned stream = get_u8(g);
	uint64_t offset = get_u64(g), *have;
	uint8_t frame[INIT_FRAME_MAX];
	const uint8_t *data;
	struct put p;
	size_t n;

	data = get_rest(g, &n);
	if (!get_done(g) || stream < 1 || stream > 2 || n > INIT_OUT_MAX || offset > INT64_MAX)
		return false;
	have = &t->out[stream - 1];
	if (!t->any[stream - 1])
		*have = offset; /* an adopted one: what was taken before isn't there any more */
	t->any[stream - 1] = true;
	if (offset > *have)
		return false;
	if (offset + n <= *have)
		return true;
	data += *have - offset;
	n -= (size_t)(*have - offset);
	init_begin(&p, frame, INIT_OUT, h->request);
	put_bytes(&p, t->id, sizeof(t->id));
	put_u8(&p, (uint8_t)stream);
	put_u64(&p, *have);
	put_bytes(&p, data, n);
	local(s, frame, init_end(&p));
	*have += n;
	return true;
}

static bool on_exit_frame(struct init_stream *s, struct track *t, const struct stream_frame *f,
			  struct get *g)
{
	struct init_exit e;

	if (!init_get_exit(g, &e))
		return false;
	if (t->exit)
		return true;
	for (unsigned i = 0; i < 2; i++)
		if (e.spooled[i] && !fetch_told(s, t, i + 1, e.spool_index, e.total[i]))
			return false;
	t->exit = xmemdup(f->data, f->n);
	t->exit_n = f->n;
	in_exit_if_whole(s, t);
	return true;
}

static bool on_run(struct init_stream *s, const struct init_header *h, const struct stream_frame *f,
		   struct get *g)
{
	uint8_t id[INIT_RUN_ID];
	struct track *t;
	unsigned stream;
	uint32_t index;
	uint64_t bytes;

	get_bytes(g, id, sizeof(id));
	if (g->bad)
		return false;
	t = in_track(s, id);
	if (!t)
		return true; /* its user didn't want more of it */
	switch (h->type) {
	case INIT_OUT:
		return on_out(s, t, h, g);
	case INIT_EXIT:
		return on_exit_frame(s, t, f, g);
	case INIT_SPOOLED:
		stream = get_u8(g);
		index = get_u32(g);
		bytes = get_u64(g);
		return get_done(g) && stream >= 1 && stream <= 2 &&
		       fetch_told(s, t, stream, index, bytes);
	case INIT_STARTED:
		if (t->started)
			return true;
		t->started = true;
		break;
	default:
		break;
	}
	local(s, f->data, f->n);
	return true;
}

/* ---- answers ---- */

/* Half a list would be told twice after a cut: it is passed on when it is whole. */
static bool on_listed(struct init_stream *s, const struct init_header *h,
		      const struct stream_frame *f)
{
	if (h->request != s->list_request || s->listed.len + f->n > LISTED_MAX)
		return h->request != s->list_request;
	strbuf_add(&s->listed, f->data, f->n);
	return true;
}

static void pass_list(struct init_stream *s)
{
	size_t at = 0;

	while (at < s->listed.len) {
		struct get g;
		uint32_t n;

		get_init(&g, s->listed.buf + at, sizeof(n));
		n = get_u32(&g); /* checked when it came */
		local(s, s->listed.buf + at, n);
		at += n;
	}
	strbuf_release(&s->listed);
	s->list_request = 0;
}

static void on_answer(struct init_stream *s, const struct init_header *h)
{
	struct starting *w;
	struct track *t;

	if (h->request == s->list_request)
		pass_list(s);
	list_foreach (w, &s->starting, link)
		if (w->request == h->request) {
			list_remove(&w->link);
			free(w);
		}
	if (h->type == INIT_ERROR)
		list_foreach (t, &s->tracks, link)
			if (t->request == h->request)
				in_track_free(s, t); /* there is no such run */
}

bool in_control(struct init_stream *s, const struct stream_frame *f)
{
	struct init_header h;
	uint64_t last;
	struct get g;

	if (!init_parse(&g, f->data, f->n, &h))
		return false;
	if (h.type == INIT_RESUMED) {
		last = get_u64(&g);
		if (!get_done(&g))
			return false;
		out_resumed(s, last);
		if (!s->told_live)
			s->events->live(s->ctx);
		s->told_live = true;
		return true;
	}
	if (!s->live)
		return false; /* RESUME is the first that it was asked */
	if (h.request)
		out_acked(s, h.request); /* they are carried out in their order */
	switch (h.type) {
	case INIT_STARTED:
	case INIT_OUT:
	case INIT_SPOOLED:
	case INIT_EXIT:
	case INIT_STDIN_TAKEN:
	case INIT_STDIN_HELD:
		return on_run(s, &h, f, &g);
	case INIT_LISTED:
		return on_listed(s, &h, f);
	case INIT_DONE:
	case INIT_ERROR:
		on_answer(s, &h);
		local(s, f->data, f->n);
		return true;
	case INIT_PONG:
		local(s, f->data, f->n);
		return true;
	default:
		return true; /* of a later minor version: not for us */
	}
}
