/*
 * From the socket towards init.  A message is kept until init is known to have
 * carried it out, so that after a cut those that were lost are sent again, and
 * only those.  Workers are not: they end with the stream.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "proto/files.h"
#include "provider/init_stream_impl.h"

#define ASK_BYTES (128 * 1024) /* sent since RESUME was asked for: time to ask again */
#define ASK_MESSAGES 64
#define KEPT_MAX (1u << 20) /* bytes; then nothing more is taken from the socket */
#define BLOB_PIECE STREAM_BYTES_MAX
#define PIPE_BYTES (256 * 1024) /* a frame of 60 KiB should find room */

/* ---- keeping ---- */

static void kept_free(struct init_stream *s, struct kept *k)
{
	list_remove(&k->link);
	s->kept_bytes -= k->n + k->blob_n;
	free(k->blob);
	free(k);
}

void out_acked(struct init_stream *s, uint64_t request)
{
	struct kept *k;

	s->acked = MAX(s->acked, request);
	list_foreach (k, &s->kept, link) {
		if (k->request > s->acked)
			break;
		kept_free(s, k);
	}
	out_pause(s);
}

void out_pause(struct init_stream *s)
{
	chan_pause(&s->local, !s->live || s->kept_bytes > KEPT_MAX || mux_full(&s->mux));
}

static void control(struct init_stream *s, const void *frame, size_t n)
{
	mux_send(&s->mux, STREAM_CONTROL, 0, frame, n);
}

void out_ask(struct init_stream *s)
{
	uint8_t frame[INIT_HEADER_BYTES + 8];
	struct put p;

	init_begin(&p, frame, INIT_RESUME, 0);
	p.cap = sizeof(frame);
	put_u64(&p, s->owner);
	control(s, frame, init_end(&p));
	s->asking = true;
	s->kept_unasked = s->n_unasked = 0;
}

static void send_kept(struct init_stream *s, const struct kept *k)
{
	for (size_t at = 0; at < k->blob_n; at += BLOB_PIECE)
		mux_send(&s->mux, STREAM_BLOB, 0, k->blob + at,
			 MIN(k->blob_n - at, (size_t)BLOB_PIECE));
	control(s, k->data, k->n);
	s->kept_unasked += k->n + k->blob_n;
	s->n_unasked++;
	if (!s->asking && (s->kept_unasked > ASK_BYTES || s->n_unasked > ASK_MESSAGES))
		out_ask(s);
}

/* The strings of a RUN, which its descriptor holds; false when they can't be had. */
static bool read_blob(struct kept *k, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0 || st.st_size > INIT_STRINGS_MAX)
		return false;
	k->blob = xmalloc((size_t)st.st_size + 1);
	k->blob_n = (size_t)st.st_size;
	return lseek(fd, 0, SEEK_SET) == 0 &&
	       read_full(fd, k->blob, k->blob_n) == (ssize_t)k->blob_n;
}

static void keep(struct init_stream *s, const struct init_header *h, const uint8_t *msg, size_t n,
		 struct msg_fds *fds)
{
	struct kept *k = xcalloc(1, sizeof(*k) + n);
	autoclose int blob = -EBADF;

	list_init(&k->link);
	k->request = h->request;
	k->type = h->type;
	k->n = n;
	memcpy(k->data, msg, n);
	if (h->type == INIT_RUN)
		blob = msg_fds_take(fds);
	if (blob >= 0 && !read_blob(k, blob)) {
		in_error(s, h->request, GARRET_INTERNAL, "the arguments can't be read");
		free(k->blob);
		free(k);
		return;
	}
	list_append(&s->kept, &k->link);
	s->kept_bytes += k->n + k->blob_n;
	send_kept(s, k);
	out_pause(s);
}

/* ---- workers ---- */

static bool on_worker_message(struct mux_channel *c, const uint8_t *msg, size_t n,
			      struct msg_fds *fds)
{
	struct init_stream *s = c->ctx;
	struct mux_channel *pipe;
	struct init_header h;
	int fd;
	uint8_t body[4];
	struct put p;
	struct get g;

	if (!fds->n)
		return true;
	/* A ring can't be shared across a stream: whoever is here asks for none. */
	if (!init_parse(&g, msg, n, &h) || h.type != FILE_PIPE) {
		mux_close(c);
		return false;
	}
	fd = msg_fds_take(fds);
	(void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES); /* refused: then it is a smaller one */
	pipe = mux_open(&s->mux, ++s->last_channel, MUX_PIPE_OUT, fd, NULL, s, NULL);
	if (!pipe) {
		mux_close(c);
		return false;
	}
	put_init(&p, body, sizeof(body));
	put_u32(&p, pipe->id);
	mux_send(&s->mux, STREAM_PIPE, c->id, body, sizeof(body));
	return false;
}

static const struct mux_hooks worker_hooks = { .outgoing = on_worker_message };

static void start_worker(struct init_stream *s, const struct init_header *h, const uint8_t *msg,
			 size_t n, struct msg_fds *fds)
{
	struct garret_error err = { 0 };
	struct starting *w;

	if (!mux_open(&s->mux, ++s->last_channel, MUX_MESSAGES, msg_fds_take(fds), &worker_hooks, s,
		      &err)) {
		in_error(s, h->request, GARRET_EXHAUSTED, err.msg);
		return;
	}
	w = xnew(struct starting);
	w->request = h->request;
	list_append(&s->starting, &w->link);
	/* The channel exists at the other end before anything is said on it. */
	mux_send(&s->mux, STREAM_WORKER, s->last_channel, msg, n);
}

/* ---- the socket ---- */

/* We are who answers: what its user says is for init once there is one. */
static void say_hello(struct init_stream *s, struct get *g)
{
	uint8_t nonce[INIT_NONCE], frame[64];
	struct put p;

	(void)get_u32(g);
	get_bytes(g, nonce, sizeof(nonce));
	init_begin(&p, frame, INIT_HELLO_OK, 0);
	put_u16(&p, INIT_MAJOR);
	put_u16(&p, INIT_MINOR);
	put_bytes(&p, nonce, sizeof(nonce));
	put_u32(&p, 0);
	chan_send(&s->local, frame, init_end(&p), NULL, 0);
	s->greeted = true;
}

void out_local_frame(struct chan *chan, const uint8_t *msg, size_t n, struct msg_fds *fds)
{
	struct init_stream *s = chan->ctx;
	uint8_t id[INIT_RUN_ID];
	struct init_header h;
	struct init_run run;
	struct get g;

	if (!init_parse(&g, msg, n, &h) || (!s->greeted && h.type != INIT_HELLO)) {
		chan_close(chan);
		return;
	}
	if (h.type == INIT_HELLO) {
		say_hello(s, &g);
		return;
	}
	if (h.type == INIT_WORKER) {
		start_worker(s, &h, msg, n, fds);
		return;
	}
	if (h.type == INIT_RUN) {
		if (init_get_run(&g, &run))
			in_track_new(s, run.id, h.request)->limit = run.output_limit;
	} else if (h.type == INIT_ATTACH) {
		get_bytes(&g, id, sizeof(id));
		(void)in_track_new(s, id, h.request);
	} else if (h.type == INIT_DETACH) {
		get_bytes(&g, id, sizeof(id));
		in_track_free(s, in_track(s, id));
	} else if (h.type == INIT_LIST) {
		s->list_request = h.request;
	}
	keep(s, &h, msg, n, fds);
}

/* ---- cuts ---- */

void out_cut(struct init_stream *s)
{
	struct starting *w;

	chan_pause(&s->local, true);
	s->asking = false;
	strbuf_release(&s->listed);
	list_foreach (w, &s->starting, link) {
		in_error(s, w->request, GARRET_UNAVAILABLE, "the stream to the session was cut");
		list_remove(&w->link);
		free(w);
	}
}

static void attach_again(struct init_stream *s, const struct track *t)
{
	uint8_t frame[INIT_HEADER_BYTES + INIT_RUN_ID];
	struct put p;

	init_begin(&p, frame, INIT_ATTACH, t->request);
	p.cap = sizeof(frame);
	put_bytes(&p, t->id, sizeof(t->id));
	control(s, frame, init_end(&p));
}

static void list_again(struct init_stream *s)
{
	uint8_t frame[INIT_HEADER_BYTES];
	struct put p;

	init_begin(&p, frame, INIT_LIST, s->list_request);
	control(s, frame, init_end(&p));
}

void out_resumed(struct init_stream *s, uint64_t last)
{
	const bool first = !s->live;
	struct track *t;
	struct kept *k;

	s->asking = false;
	s->live = true;
	out_acked(s, last);
	if (!first)
		return;
	list_foreach (t, &s->tracks, link)
		if (t->request <= last)
			attach_again(s, t);
	if (s->list_request && s->list_request <= last)
		list_again(s);
	list_foreach (k, &s->kept, link)
		send_kept(s, k);
	fetch_go(s);
	out_pause(s);
}

void out_release(struct init_stream *s)
{
	while (!list_empty(&s->kept))
		kept_free(s, list_entry(s->kept.next, struct kept, link));
	while (!list_empty(&s->starting)) {
		struct starting *w = list_entry(s->starting.next, struct starting, link);

		list_remove(&w->link);
		free(w);
	}
}
