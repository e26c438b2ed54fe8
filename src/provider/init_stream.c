/*
 * The transport: HELLO, RESUME, liveness, cuts.
 *
 * RESUME is said at once with HELLO.  Until init has answered it nothing of the
 * socket is read; then it is known what of the last stream's was carried out.
 */
#include "provider/init_stream_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"

#define BEGIN_MS 30000 /* for the relay and init to answer: as for an init that is silent */
#define PING_MS 15000
#define SILENT_MS 45000
#define LOCAL_FULL (1u << 20) /* bytes that the socket's user hasn't taken */

#define PROGRAM "garret " GARRET_VERSION

/* ---- the end of a transport ---- */

static void cut(struct init_stream *s, const struct garret_error *err)
{
	const struct init_transport t = s->transport;
	struct garret_error why = *err;

	loop_later_cancel(s->loop, &s->broken);
	loop_timer_clear(&s->timer);
	s->up = s->heard = s->live = s->told_live = s->held = false;
	mux_end(&s->mux);
	out_cut(s);
	fetch_cut(s);
	t.close(t.ctx);
	s->events->cut(s->ctx, &why);
}

static void on_broken(struct loop_later *l)
{
	struct init_stream *s = l->ctx;

	cut(s, &s->why);
}

void stream_break(struct init_stream *s, enum garret_code code, const char *fmt, ...)
{
	char text[300];
	va_list args;

	if (!s->up || s->broken.queued)
		return;
	va_start(args, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	(void)garret_fail(&s->why, code, "%s", text);
	s->mux.over = true;
	loop_later_add(s->loop, &s->broken, on_broken, s);
}

void init_stream_ended(struct init_stream *s, const struct garret_error *err)
{
	struct garret_error why = { 0 };

	if (!s->up)
		return;
	/* The relay's own last word says more than that the stream is over. */
	if (s->broken.queued)
		why = s->why;
	else if (s->heard || !s->first_n)
		(void)garret_fail(&why, GARRET_UNAVAILABLE, "the stream to the session ended%s%s",
				  err ? ": " : "", err ? err->msg : "");
	else
		(void)garret_fail(&why, GARRET_PROTOCOL,
				  "what answers is no garret-init; it says: %.*s", (int)s->first_n,
				  s->first);
	cut(s, &why);
}

static void on_timer(struct loop_timer *t)
{
	struct init_stream *s = t->ctx;
	const uint64_t quiet = now_ms() - s->heard_ms;
	struct garret_error err = { 0 };

	if (quiet >= (s->live ? SILENT_MS : BEGIN_MS)) {
		(void)garret_fail(&err, GARRET_UNAVAILABLE, "the session did not answer for %d s",
				  (int)(quiet / 1000));
		cut(s, &err);
		return;
	}
	if (s->live && quiet >= PING_MS)
		mux_send(&s->mux, STREAM_PING, 0, "", 0);
	loop_timer_set(s->loop, t, now_ms() + PING_MS, on_timer, s);
}

/* ---- what the relay says ---- */

static bool on_hello(struct init_stream *s, const struct stream_frame *f)
{
	struct stream_hello h;
	struct get g;

	get_init(&g, f->data, f->n);
	if (s->heard || !stream_get_hello(&g, &h))
		return false;
	if (h.major != STREAM_MAJOR) {
		stream_break(s, GARRET_UNSUPPORTED,
			     "its garret-init speaks version %u of the stream, this is %d", h.major,
			     STREAM_MAJOR);
		return true;
	}
	if (s->known && memcmp(s->nonce, h.nonce, INIT_NONCE) != 0) {
		stream_break(s, GARRET_GONE, "another init has taken its place");
		return true;
	}
	memcpy(s->nonce, h.nonce, INIT_NONCE);
	s->known = s->heard = true;
	(void)snprintf(s->program, sizeof(s->program), "%s", h.program);
	return true;
}

static bool on_end(struct init_stream *s, const struct stream_frame *f)
{
	struct stream_end e;
	struct get g;

	get_init(&g, f->data, f->n);
	if (!stream_get_end(&g, &e))
		return false;
	if (e.why == STREAM_END_NO_INIT || e.why == STREAM_END_INIT)
		stream_break(s, GARRET_GONE, "the session has no init: %s", e.msg);
	else if (e.why == STREAM_END_PROTOCOL)
		stream_break(s, GARRET_PROTOCOL, "the session's relay gave up: %s", e.msg);
	else
		stream_break(s, GARRET_UNAVAILABLE, "the session's relay gave up: %s", e.msg);
	return true;
}

static bool on_frame(void *ctx, const struct stream_frame *f)
{
	struct init_stream *s = ctx;

	if (!s->heard && f->type != STREAM_HELLO && f->type != STREAM_END)
		return false;
	switch (f->type) {
	case STREAM_HELLO:
		return on_hello(s, f);
	case STREAM_END:
		return on_end(s, f);
	case STREAM_CONTROL:
		return in_control(s, f);
	case STREAM_SPOOL_DATA:
		return fetch_data(s, f);
	case STREAM_PONG:
		return true;
	default:
		return false;
	}
}

static void on_mux_broken(void *ctx, const char *why)
{
	struct init_stream *s = ctx;

	s->mux.over = false; /* for stream_break(), which is the one to end it */
	if (s->heard)
		stream_break(s, GARRET_PROTOCOL, "the session's relay sent %s", why);
	else
		stream_break(s, GARRET_PROTOCOL, "what answers is no garret-init; it says: %.*s",
			     (int)s->first_n, s->first);
	s->mux.over = true;
}

static void on_mux_room(void *ctx)
{
	out_pause(ctx);
}

static const struct mux_events mux_events = { .frame = on_frame,
					      .broken = on_mux_broken,
					      .room = on_mux_room };

/* A shell's complaint is worth more than that it is no frame. */
static void note_first(struct init_stream *s, const char *data, size_t n)
{
	for (size_t i = 0; i < n && s->first_n < sizeof(s->first); i++)
		s->first[s->first_n++] = (char)(data[i] >= ' ' && data[i] <= '~' ? data[i] : ' ');
}

static void hold(struct init_stream *s, bool on)
{
	if (!s->up || s->held == on)
		return;
	s->held = on;
	if (s->transport.pause)
		s->transport.pause(s->transport.ctx, on);
}

void init_stream_feed(struct init_stream *s, const void *data, size_t n)
{
	if (!s->up || s->broken.queued)
		return;
	s->heard_ms = now_ms();
	if (!s->heard)
		note_first(s, data, n);
	mux_feed(&s->mux, data, n);
	/* Its user is in this process and takes all; but a hostile init could be quicker. */
	if (s->local.queued_bytes > LOCAL_FULL)
		hold(s, true);
}

void init_stream_writable(struct init_stream *s)
{
	if (s->up)
		mux_writable(&s->mux);
}

/* ---- a new transport ---- */

void init_stream_begin(struct init_stream *s, const struct init_transport *t)
{
	const struct stream_hello hello = { .major = STREAM_MAJOR,
					    .minor = STREAM_MINOR,
					    .program = PROGRAM };
	uint8_t body[STREAM_PROGRAM_MAX + 64];
	const struct init_transport old = s->transport;
	struct put p;

	if (s->up) {
		s->up = s->heard = s->live = s->told_live = s->held = false;
		loop_later_cancel(s->loop, &s->broken);
		mux_end(&s->mux);
		out_cut(s);
		fetch_cut(s);
		old.close(old.ctx);
	}
	s->transport = *t;
	s->up = true;
	s->first_n = 0;
	mux_begin(&s->mux, s->loop, &(struct mux_transport){ t->write, t->ctx }, &mux_events, s);
	put_init(&p, body, sizeof(body));
	stream_put_hello(&p, &hello);
	mux_send(&s->mux, STREAM_HELLO, 0, body, p.len);
	out_ask(s);
	s->heard_ms = now_ms();
	loop_timer_set(s->loop, &s->timer, now_ms() + PING_MS, on_timer, s);
}

/* ---- the socket ---- */

static void on_local_end(struct chan *chan, const struct garret_error *err)
{
	(void)chan;
	(void)err; /* its user has closed it, and will free us */
}

static void on_local_room(struct chan *chan)
{
	hold(chan->ctx, false);
}

int init_stream_new(const struct init_stream_config *config, struct init_stream **ret,
		    int *ret_control, struct garret_error *err)
{
	struct init_stream *s = xnew(struct init_stream);
	int pair[2] = { -EBADF, -EBADF }, rc = 0;

	s->loop = config->loop;
	s->events = config->events;
	s->ctx = config->ctx;
	s->known = config->nonce;
	if (config->nonce)
		memcpy(s->nonce, config->nonce, INIT_NONCE);
	list_init(&s->kept);
	list_init(&s->starting);
	list_init(&s->tracks);
	strbuf_init(&s->listed);
	while (rc == 0 && !s->owner)
		if (getrandom(&s->owner, sizeof(s->owner), 0) != (ssize_t)sizeof(s->owner))
			rc = garret_fail_errno(err, "random bytes");
	if (rc == 0)
		rc = msg_pair(pair, false, err);
	if (rc < 0) {
		free(s);
		return rc;
	}
	s->local.on_frame = out_local_frame;
	s->local.on_end = on_local_end;
	s->local.on_room = on_local_room;
	s->local.room_mark = LOCAL_FULL / 2;
	s->local.ctx = s;
	s->local.accept_fds = true;
	rc = chan_open(&s->local, s->loop, pair[0], INIT_FRAME_MAX, err);
	if (rc < 0) {
		fd_close(pair[1]);
		free(s);
		return rc;
	}
	chan_pause(&s->local, true);
	*ret_control = pair[1];
	*ret = s;
	return 0;
}

struct init_stream *init_stream_free(struct init_stream *s)
{
	const struct init_transport t = s ? s->transport : (struct init_transport){ 0 };

	if (!s)
		return NULL;
	loop_later_cancel(s->loop, &s->broken);
	loop_timer_clear(&s->timer);
	chan_close(&s->local);
	if (s->up) {
		mux_end(&s->mux);
		t.close(t.ctx);
	}
	out_release(s);
	in_release(s);
	free(s);
	return NULL;
}

struct loop *init_stream_loop(const struct init_stream *s)
{
	return s->loop;
}

bool init_stream_is_live(const struct init_stream *s)
{
	return s->live;
}

const uint8_t *init_stream_nonce(const struct init_stream *s)
{
	return s->nonce;
}

const char *init_stream_program(const struct init_stream *s)
{
	return s->program;
}
