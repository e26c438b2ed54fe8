/*
 * What init put into files in there is fetched into files of ours, by reads of a
 * bounded size; the user of the socket is told of what is here.  A read from an
 * offset says that everything before it is: then it may be thrown away there.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "provider/init_stream_impl.h"

static bool is_asked(const struct fetch *x)
{
	return x->asked > x->got;
}

static bool is_whole(const struct fetch *x)
{
	return !x->spooled || x->failed || x->got >= x->target;
}

bool fetch_whole(const struct track *t)
{
	return is_whole(&t->fetch[0]) && is_whole(&t->fetch[1]);
}

static void tell(struct init_stream *s, const struct track *t, unsigned i)
{
	uint8_t frame[INIT_HEADER_BYTES + INIT_RUN_ID + 16];
	struct put p;

	init_begin(&p, frame, INIT_SPOOLED, 0);
	p.cap = sizeof(frame);
	put_bytes(&p, t->id, sizeof(t->id));
	put_u8(&p, (uint8_t)(i + 1));
	put_u32(&p, t->index);
	put_u64(&p, t->fetch[i].got);
	chan_send(&s->local, frame, init_end(&p), NULL, 0);
}

/* What was shown of an output doesn't become less when it moves into a file. */
static void tell_news(struct init_stream *s, struct track *t, unsigned i)
{
	struct fetch *x = &t->fetch[i];

	x->told = x->told || x->got >= t->out[i];
	if (x->told)
		tell(s, t, i);
}

static void open_ours(struct init_stream *s, const struct track *t, unsigned i, struct fetch *x)
{
	struct stat st;

	x->fd = s->events->spool(s->ctx, t->index, (int)i);
	x->failed = x->fd < 0 || fstat(x->fd, &st) < 0;
	/* Who had this box before us has fetched some of it. */
	if (!x->failed)
		x->got = x->asked = (uint64_t)st.st_size;
}

static void ask(struct init_stream *s, const struct track *t, unsigned i, struct fetch *x)
{
	const struct stream_spool part = {
		.index = t->index,
		.stream = (uint8_t)i,
		.offset = x->got,
		.length = (uint32_t)MIN(x->target - x->got, (uint64_t)STREAM_SPOOL_READ_MAX)
	};
	uint8_t body[32];
	struct put p;

	put_init(&p, body, sizeof(body));
	stream_put_spool(&p, &part, true);
	mux_send(&s->mux, STREAM_SPOOL_READ, 0, body, p.len);
	x->asked = x->got + part.length;
	s->n_fetches++;
}

void fetch_go(struct init_stream *s)
{
	struct track *t;

	if (!s->live)
		return;
	list_foreach (t, &s->tracks, link)
		for (unsigned i = 0; i < 2; i++) {
			struct fetch *x = &t->fetch[i];

			if (s->n_fetches >= STREAM_SPOOL_READS_MAX / 2)
				return;
			if (!is_whole(x) && !is_asked(x))
				ask(s, t, i, x);
		}
}

bool fetch_told(struct init_stream *s, struct track *t, unsigned stream, uint32_t index,
		uint64_t bytes)
{
	struct fetch *x = &t->fetch[stream - 1];

	/* More than the command may write is a lie, and would be written to our disk. */
	if (bytes > INT64_MAX - STREAM_SPOOL_READ_MAX || (t->limit && bytes > t->limit))
		return false;
	if ((t->fetch[0].spooled || t->fetch[1].spooled) && t->index != index)
		return false;
	t->index = index;
	if (!x->spooled) {
		x->spooled = true;
		open_ours(s, t, stream - 1, x);
		tell_news(s, t, stream - 1);
	}
	x->target = MAX(x->target, bytes);
	fetch_go(s);
	return true;
}

static struct track *find(struct init_stream *s, const struct stream_spool *part)
{
	struct track *t;

	list_foreach (t, &s->tracks, link)
		if (t->fetch[part->stream].spooled && t->index == part->index)
			return t;
	return NULL;
}

/* False: our own disk is full, or broken; the run's end will say that output is missing. */
static bool write_ours(struct fetch *x, const uint8_t *data, size_t n)
{
	while (n) {
		ssize_t done = pwrite(x->fd, data, n, (off_t)x->got);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return false;
		x->got += (uint64_t)done;
		data += done;
		n -= (size_t)done;
	}
	return true;
}

bool fetch_data(struct init_stream *s, const struct stream_frame *f)
{
	struct stream_spool part;
	const uint8_t *data;
	struct track *t;
	struct fetch *x;
	struct get g;
	uint64_t asked;
	size_t n;

	get_init(&g, f->data, f->n);
	if (!stream_get_spool(&g, &part, false))
		return false;
	data = get_rest(&g, &n);
	t = find(s, &part);
	if (!t)
		return true;
	x = &t->fetch[part.stream];
	asked = x->asked;
	if (x->failed)
		return true;
	if (part.offset != x->got || n > asked - x->got)
		return false;
	if (!n || !write_ours(x, data, n)) {
		x->failed = true;
		x->asked = x->got;
	}
	tell_news(s, t, part.stream);
	if (!is_asked(x))
		s->n_fetches--;
	in_exit_if_whole(s, t);
	fetch_go(s);
	return true;
}

void fetch_cut(struct init_stream *s)
{
	struct track *t;

	s->n_fetches = 0;
	list_foreach (t, &s->tracks, link)
		for (int i = 0; i < 2; i++)
			t->fetch[i].asked = t->fetch[i].got;
}
