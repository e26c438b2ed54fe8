#include "mux/mux.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"

#define OUT_NOW (64 * 1024)   /* not kept back until the end of the round */
#define OUT_FULL (256 * 1024) /* that wait for the transport: channels aren't read */
#define OUT_ROOM (64 * 1024)
#define BUFFER_KEPT (16 * 1024) /* memory of a buffer that is empty */
#define GIVE_BACK (STREAM_WINDOW / 4)
#define PIPE_TURN 4 /* reads of a pipe before others have their turn */

static void watch(struct mux_channel *c);

/* ---- to the transport ---- */

/* Forget what is before *at; only when that is much, because moving costs. */
static void drop_front(struct strbuf *sb, size_t *at)
{
	if (*at == sb->len) {
		if (sb->cap > BUFFER_KEPT)
			strbuf_release(sb);
		else
			strbuf_reset(sb);
		*at = 0;
	} else if (*at > sb->len / 2) {
		strbuf_remove_front(sb, *at);
		*at = 0;
	}
}

static void set_full(struct mux *m)
{
	const size_t waiting = m->out.len - m->out_at;
	struct mux_channel *c;
	const bool was = m->full;

	m->full = was ? waiting > OUT_ROOM : waiting > OUT_FULL;
	if (m->full == was)
		return;
	list_foreach (c, &m->channels, link)
		watch(c);
	if (!m->full && m->events->room)
		m->events->room(m->ctx);
}

static void flush(struct mux *m)
{
	if (!m->over && m->out_at < m->out.len)
		m->out_at += m->transport.write(m->transport.ctx, m->out.buf + m->out_at,
						m->out.len - m->out_at);
	drop_front(&m->out, &m->out_at);
}

static void on_flush(struct loop_later *l)
{
	struct mux *m = l->ctx;

	flush(m);
	set_full(m);
}

void mux_writable(struct mux *m)
{
	flush(m);
	set_full(m);
}

void mux_send(struct mux *m, uint8_t type, uint32_t channel, const void *data, size_t n)
{
	uint8_t header[STREAM_HEADER_BYTES];

	if (m->over)
		return;
	stream_put_header(header, type, channel, n);
	strbuf_add(&m->out, header, sizeof(header));
	strbuf_add(&m->out, data, n);
	/* Small frames of one round go together; a write each would cost more than they do. */
	if (m->out.len - m->out_at >= OUT_NOW)
		flush(m);
	if (m->out_at < m->out.len)
		loop_later_add(m->loop, &m->flush, on_flush, m);
	if (!m->full)
		set_full(m);
}

static void send_number(struct mux_channel *c, uint8_t type, size_t n)
{
	uint8_t body[4];
	struct put p;

	put_init(&p, body, sizeof(body));
	put_u32(&p, (uint32_t)n);
	mux_send(c->mux, type, c->id, body, sizeof(body));
}

/* ---- channels ---- */

static void channel_free(struct mux_channel *c)
{
	list_remove(&c->link);
	c->mux->n_channels--;
	chan_close(&c->chan);
	loop_io_remove(&c->io);
	fd_close(c->fd);
	strbuf_release(&c->queue);
	if (c->hooks && c->hooks->ended)
		c->hooks->ended(c);
	free(c);
}

void mux_close(struct mux_channel *c)
{
	mux_send(c->mux, STREAM_CLOSE, c->id, "", 0);
	channel_free(c);
}

static size_t waiting(const struct mux_channel *c)
{
	return c->kind == MUX_MESSAGES ? c->chan.queued_bytes : c->queue.len - c->queue_at;
}

/* What was passed on may be sent again. */
static void give_back(struct mux_channel *c)
{
	const size_t n = c->owed - MIN(c->owed, waiting(c));

	if (n < GIVE_BACK || c->closing)
		return;
	c->owed -= n;
	c->allowed += n;
	send_number(c, STREAM_CREDIT, n);
}

static bool may_send(const struct mux_channel *c)
{
	return !c->mux->full && c->credit >= STREAM_FRAME_MAX && !c->closing;
}

static void watch(struct mux_channel *c)
{
	if (c->kind == MUX_MESSAGES)
		chan_pause(&c->chan, !may_send(c));
	else if (c->kind == MUX_PIPE_OUT)
		loop_io_mod(&c->io, waiting(c) ? EPOLLOUT : EPOLLET);
	else
		loop_io_mod(&c->io, may_send(c) ? EPOLLIN : EPOLLET);
}

static void send_data(struct mux_channel *c, const void *data, size_t n)
{
	mux_send(c->mux, STREAM_DATA, c->id, data, n);
	c->credit -= n;
	watch(c);
}

static void on_message(struct chan *chan, const uint8_t *msg, size_t n, struct msg_fds *fds)
{
	struct mux_channel *c = chan->ctx;

	if (!c->hooks || !c->hooks->outgoing || c->hooks->outgoing(c, msg, n, fds))
		send_data(c, msg, n);
}

static void on_hang_up(struct chan *chan, const struct garret_error *err)
{
	struct mux_channel *c = chan->ctx;

	(void)err;
	mux_close(c);
}

static void on_passed_on(struct chan *chan)
{
	struct mux_channel *c = chan->ctx;

	if (c->closing)
		channel_free(c);
	else
		give_back(c);
}

static void on_pipe_in(struct loop_io *io, uint32_t events)
{
	struct mux_channel *c = io->ctx;
	uint8_t buf[STREAM_BYTES_MAX];

	(void)events;
	for (int left = PIPE_TURN; left > 0 && may_send(c); left--) {
		ssize_t n = read(c->fd, buf, sizeof(buf));

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			mux_close(c);
			return;
		}
		send_data(c, buf, (size_t)n);
	}
}

/* False: nobody reads it any more, and the channel is gone. */
static bool write_pipe(struct mux_channel *c)
{
	while (waiting(c)) {
		ssize_t n = write(c->fd, c->queue.buf + c->queue_at, waiting(c));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			break;
		if (n < 0) {
			mux_close(c);
			return false;
		}
		c->queue_at += (size_t)n;
	}
	drop_front(&c->queue, &c->queue_at);
	return true;
}

static void on_pipe_out(struct loop_io *io, uint32_t events)
{
	struct mux_channel *c = io->ctx;

	if (events & EPOLLERR && !waiting(c)) {
		mux_close(c); /* its reader has gone */
		return;
	}
	if (!write_pipe(c))
		return;
	if (c->closing && !waiting(c)) {
		channel_free(c);
		return;
	}
	give_back(c);
	watch(c);
}

struct mux_channel *mux_find(struct mux *m, uint32_t id)
{
	struct mux_channel *c;

	list_foreach (c, &m->channels, link)
		if (c->id == id)
			return c;
	return NULL;
}

static int open_local(struct mux_channel *c, int fd, struct garret_error *err)
{
	struct mux *m = c->mux;
	const bool in = c->kind == MUX_PIPE_IN;

	if (c->kind == MUX_MESSAGES) {
		c->chan.on_frame = on_message;
		c->chan.on_end = on_hang_up;
		c->chan.on_room = on_passed_on;
		c->chan.ctx = c;
		c->chan.accept_fds = true;
		return chan_open(&c->chan, m->loop, fd, STREAM_FRAME_MAX, err);
	}
	c->fd = fd;
	if (fd_set_nonblock(fd, true) < 0)
		return garret_fail_errno(err, "make a pipe non-blocking");
	return loop_io_add(m->loop, &c->io, fd, in ? EPOLLIN : EPOLLET,
			   in ? on_pipe_in : on_pipe_out, c, err);
}

struct mux_channel *mux_open(struct mux *m, uint32_t id, enum mux_kind kind, int fd,
			     const struct mux_hooks *hooks, void *ctx, struct garret_error *err)
{
	struct mux_channel *c;

	if (m->over || m->n_channels >= STREAM_CHANNELS_MAX || mux_find(m, id)) {
		fd_close(fd);
		(void)garret_fail(err, GARRET_EXHAUSTED, "no channel %u can be opened", id);
		return NULL;
	}
	c = xnew(struct mux_channel);
	c->mux = m;
	c->id = id;
	c->kind = kind;
	c->ctx = ctx;
	c->chan.fd = c->io.fd = c->fd = -EBADF;
	c->credit = c->allowed = STREAM_WINDOW;
	strbuf_init(&c->queue);
	list_append(&m->channels, &c->link);
	m->n_channels++;
	if (open_local(c, fd, err) < 0) {
		channel_free(c);
		return NULL;
	}
	c->hooks = hooks; /* only now: of one that never was nobody hears an end */
	watch(c);
	return c;
}

void mux_deliver(struct mux_channel *c, const void *msg, size_t n, const int *fds, unsigned n_fds)
{
	chan_send(&c->chan, msg, n, fds, n_fds);
}

/* ---- from the peer ---- */

static bool on_data(struct mux_channel *c, const struct stream_frame *f)
{
	if (f->n > c->allowed || c->closing || c->kind == MUX_PIPE_IN || !f->n)
		return false;
	c->allowed -= f->n;
	c->owed += f->n;
	if (c->kind == MUX_MESSAGES) {
		chan_send(&c->chan, f->data, f->n, NULL, 0);
	} else {
		strbuf_add(&c->queue, f->data, f->n);
		if (!write_pipe(c))
			return true;
		watch(c);
	}
	give_back(c);
	return true;
}

static bool on_credit(struct mux_channel *c, const struct stream_frame *f)
{
	struct get g;
	uint32_t n;

	get_init(&g, f->data, f->n);
	n = get_u32(&g);
	if (!get_done(&g) || n > STREAM_WINDOW || c->credit + n > STREAM_WINDOW)
		return false;
	c->credit += n;
	watch(c);
	return true;
}

static bool on_close(struct mux_channel *c)
{
	c->closing = true;
	if (c->kind == MUX_PIPE_IN || !waiting(c)) {
		channel_free(c);
		return true;
	}
	watch(c); /* nothing is read from it any more, so that it ends only after what waits */
	return true;
}

static bool handle(struct mux *m, const struct stream_frame *f)
{
	struct mux_channel *c;

	if (f->type != STREAM_DATA && f->type != STREAM_CREDIT && f->type != STREAM_CLOSE)
		return m->events->frame(m->ctx, f);
	c = mux_find(m, f->channel);
	if (!c)
		return true; /* we closed it, and the peer doesn't know yet */
	if (f->type == STREAM_CLOSE)
		return on_close(c);
	return f->type == STREAM_DATA ? on_data(c, f) : on_credit(c, f);
}

void mux_feed(struct mux *m, const void *data, size_t n)
{
	bool gone = false, *outer = m->gone;
	const uint8_t *at = data;
	struct stream_frame f;
	int rc = 0;

	m->gone = &gone;
	while (!gone && !m->over && (rc = stream_read(&m->reader, &at, &n, &f)) > 0)
		if (!handle(m, &f)) {
			rc = -1;
			break;
		}
	if (gone) {
		if (outer)
			*outer = true;
		return;
	}
	m->gone = outer;
	if (rc < 0 && !m->over) {
		m->over = true;
		m->events->broken(m->ctx, "a frame that makes no sense");
	}
}

void mux_begin(struct mux *m, struct loop *loop, const struct mux_transport *t,
	       const struct mux_events *events, void *ctx)
{
	*m = (struct mux){ .loop = loop, .transport = *t, .events = events, .ctx = ctx };
	strbuf_init(&m->out);
	list_init(&m->channels);
}

void mux_end(struct mux *m)
{
	m->over = true;
	while (!list_empty(&m->channels))
		channel_free(list_entry(m->channels.next, struct mux_channel, link));
	loop_later_cancel(m->loop, &m->flush);
	stream_reader_release(&m->reader);
	strbuf_release(&m->out);
	m->out_at = 0;
	if (m->gone)
		*m->gone = true;
	m->gone = NULL;
}
