/*
 * Commands with live streams: POST /v1/sessions/{session_id}/stream asks for
 * "Upgrade: garret-stream/1", and after 101 both sides send frames:
 *
 *	u8 type, u32 length (big-endian, at most 64 KiB), the bytes
 *
 *	to us		0 standard input (none: its end)   1 u16 rows, u16 columns
 *			2 u8 signal, to the process group
 *	from us		1 standard output   2 standard error
 *			3 {"exit_code","timed_out","gone"}, the last one
 *			4 u64: so many bytes of input were taken
 *
 * Output is acknowledged when it is in the socket, so that no more than the
 * window of 256 KiB a stream waits here; while more than that of the input is
 * untaken the socket isn't read.  A client that keeps less on its way (it is
 * told by 4) can always get a signal through.
 *
 * The command ends with its client: when the connection is closed, in whatever
 * way, or when it brings what isn't a frame.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "api/handlers.h"
#include "api/wire.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"

#define PROTOCOL "garret-stream/1"
#define HEADER 5
#define FRAME_MAX 65536u
#define WINDOW (256u << 10)
#define READ_PIECE 16384
#define BUSY_MS 10         /* between two looks at a session that takes no more */
#define INPUT_PIECE 32768u /* what a session takes in one message */

enum to_us { IN_STDIN, IN_SIZE, IN_SIGNAL };
enum from_us { OUT_STDOUT = 1, OUT_STDERR, OUT_EXIT, OUT_TAKEN };

struct output {
	struct strbuf data;
	size_t at;        /* what is before it was written */
	uint64_t written; /* of the stream, in all */
};

struct live {
	struct call *call;
	struct stream *stream; /* NULL: the command has ended */
	int fd;                /* -EBADF until 101 was sent */
	struct loop_io io;
	struct loop_timer again; /* the session was busy */
	bool blocked;            /* the socket takes no more */
	bool broken;             /* over before it began */

	struct strbuf in;
	bool input_ended;
	uint64_t fed, taken, told;

	struct output out[2];
	bool end_due, end_sent;
	struct stream_end end;

	/* The frame that is being written: its header, its bytes (small, or of out[]). */
	uint8_t type, header[HEADER], small[96];
	size_t header_left, body_left, body_size;
};

/* ---- to the client ---- */

static void begin_frame(struct live *v, uint8_t type, size_t n)
{
	uint32_t length = htonl((uint32_t)n);

	v->type = type;
	v->header[0] = type;
	memcpy(v->header + 1, &length, sizeof(length));
	v->header_left = HEADER;
	v->body_left = v->body_size = n;
}

static void begin_taken(struct live *v)
{
	v->told = v->taken;
	for (int i = 0; i < 8; i++)
		v->small[i] = (uint8_t)(v->told >> (56 - 8 * i));
	begin_frame(v, OUT_TAKEN, 8);
}

static void begin_exit(struct live *v)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "exit_code");
	if (v->end.gone || v->end.timed_out)
		json_put_null(&out);
	else
		json_put_int(&out, v->end.exit_code);
	json_put_key(&out, "timed_out");
	json_put_bool(&out, v->end.timed_out);
	json_put_key(&out, "gone");
	json_put_bool(&out, v->end.gone);
	json_close(&out, '}');
	memcpy(v->small, out.buf, out.len);
	begin_frame(v, OUT_EXIT, out.len);
	strbuf_release(&out);
	v->end_sent = true;
}

/* The next frame, if there is something to say. */
static bool next_frame(struct live *v)
{
	/* By turns, so that neither stream keeps the other waiting. */
	int first = v->type == OUT_STDOUT;

	if (v->told != v->taken) {
		begin_taken(v);
		return true;
	}
	for (int i = 0; i < 2; i++) {
		int s = i ^ first;
		size_t n = v->out[s].data.len - v->out[s].at;

		if (!n)
			continue;
		begin_frame(v, s ? OUT_STDERR : OUT_STDOUT, MIN(n, FRAME_MAX));
		return true;
	}
	if (!v->end_due || v->end_sent)
		return false;
	begin_exit(v);
	return true;
}

static struct output *output_of(struct live *v)
{
	return v->type == OUT_STDOUT || v->type == OUT_STDERR ? &v->out[v->type - OUT_STDOUT]
							      : NULL;
}

static const void *body_of(struct live *v)
{
	struct output *o = output_of(v);

	return o ? (const uint8_t *)o->data.buf + o->at : v->small + (v->body_size - v->body_left);
}

static void wrote(struct live *v, size_t n)
{
	struct output *o = output_of(v);
	size_t head = MIN(n, v->header_left);

	v->header_left -= head;
	n -= head;
	v->body_left -= n;
	if (!o || !n)
		return;
	o->at += n;
	o->written += n;
	if (o->at == o->data.len || o->at >= WINDOW / 2) {
		strbuf_remove_front(&o->data, o->at);
		o->at = 0;
	}
	if (v->stream)
		stream_ack(v->stream, v->type - OUT_STDOUT, o->written);
}

/* Write what the socket takes; false when it is broken. */
static bool write_out(struct live *v)
{
	v->blocked = false;
	while (v->header_left || v->body_left || next_frame(v)) {
		struct iovec iov[2] = {
			{ v->header + HEADER - v->header_left, v->header_left },
			{ (void *)(uintptr_t)body_of(v), v->body_left },
		};
		struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };
		ssize_t n = sendmsg(v->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN)
			return false;
		if (n < 0) {
			v->blocked = true;
			break;
		}
		wrote(v, (size_t)n);
	}
	return true;
}

/* ---- the connection ---- */

static void leave(struct call *c)
{
	struct live *v = take_ptr(&c->pending);

	if (!v)
		return;
	loop_io_remove(&v->io);
	loop_timer_clear(&v->again);
	if (v->stream)
		stream_leave(v->stream);
	strbuf_release(&v->in);
	strbuf_release(&v->out[0].data);
	strbuf_release(&v->out[1].data);
	free(v);
}

/* Both sides are through, or the client has to go: v is freed (before 101: when that is sent). */
static void finish(struct live *v)
{
	struct call *c = v->call;
	int fd = v->fd;

	if (fd < 0) {
		v->broken = true;
		if (v->stream)
			stream_leave(v->stream);
		v->stream = NULL;
		return;
	}
	c->leave = NULL;
	leave(c);
	http_end_upgrade(c->rq, fd);
}

static bool wants_input(const struct live *v)
{
	return v->stream && v->fed - v->taken <= WINDOW && !stream_busy(v->stream);
}

static void on_again(struct loop_timer *t);

/* Write, and watch what is to be watched; v is freed when that was the end. */
static void go_on(struct live *v)
{
	if (v->fd < 0)
		return;
	if (v->stream && !v->again.index && stream_busy(v->stream))
		loop_timer_set(v->call->api->loop, &v->again, now_ms() + BUSY_MS, on_again, v);
	if (!write_out(v) || (v->end_sent && !v->blocked)) {
		finish(v);
		return;
	}
	loop_io_mod(&v->io,
		    EPOLLRDHUP | (wants_input(v) ? EPOLLIN : 0u) | (v->blocked ? EPOLLOUT : 0u));
}

/* ---- from the client ---- */

static bool feed(struct live *v, const uint8_t *data, size_t n)
{
	if (v->input_ended)
		return false;
	v->input_ended = n == 0;
	if (!n)
		stream_input(v->stream, NULL, 0);
	for (size_t at = 0, k; at < n; at += k) {
		k = MIN(n - at, INPUT_PIECE);
		stream_input(v->stream, data + at, k);
	}
	v->fed += n;
	return true;
}

static bool take_frame(struct live *v, uint8_t type, const uint8_t *p, size_t n)
{
	switch (type) {
	case IN_STDIN:
		return feed(v, p, n);
	case IN_SIZE:
		if (n != 4)
			return false;
		stream_winch(v->stream, (uint16_t)(p[0] << 8 | p[1]), (uint16_t)(p[2] << 8 | p[3]));
		return true;
	case IN_SIGNAL:
		if (n != 1 || p[0] < 1 || p[0] > 64)
			return false;
		stream_signal(v->stream, p[0]);
		return true;
	default:
		return false;
	}
}

/* The whole frames of v->in; false when one is bad. */
static bool take_frames(struct live *v)
{
	size_t at = 0;

	while (v->stream && v->in.len - at >= HEADER && !stream_busy(v->stream)) {
		const uint8_t *p = (const uint8_t *)v->in.buf + at;
		size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];

		if (n > FRAME_MAX)
			return false;
		if (v->in.len - at < HEADER + n)
			break;
		at += HEADER + n;
		if (!take_frame(v, p[0], p + HEADER, n))
			return false;
	}
	strbuf_remove_front(&v->in, at);
	return true;
}

/* What came before the session was busy may be whole frames already. */
static void on_again(struct loop_timer *t)
{
	struct live *v = t->ctx;

	if (take_frames(v))
		go_on(v);
	else
		finish(v);
}

static void on_socket(struct loop_io *io, uint32_t events)
{
	struct live *v = io->ctx;
	char buf[READ_PIECE];
	ssize_t n;

	if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
		finish(v);
		return;
	}
	if (events & EPOLLIN && wants_input(v)) {
		n = recv(v->fd, buf, sizeof(buf), MSG_DONTWAIT);
		if (n > 0)
			strbuf_add(&v->in, buf, (size_t)n);
		if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || !take_frames(v)) {
			finish(v);
			return;
		}
	}
	go_on(v);
}

/* ---- from the command ---- */

static void on_out(void *ctx, int stream, const void *data, size_t n)
{
	struct live *v = ctx;
	struct output *o = &v->out[stream];

	/* More than the window: the session doesn't keep the rules. */
	if (o->data.len - o->at + n > WINDOW) {
		finish(v);
		return;
	}
	strbuf_add(&o->data, data, n);
	if (!v->blocked)
		go_on(v);
}

static void on_taken(void *ctx, uint64_t bytes)
{
	struct live *v = ctx;

	v->taken = MIN(bytes, v->fed);
	go_on(v);
}

static void on_end(void *ctx, const struct stream_end *end)
{
	struct live *v = ctx;

	v->stream = NULL;
	v->end = *end;
	v->end_due = true;
	go_on(v);
}

static const struct stream_events events = { on_out, on_taken, on_end };

/* ---- starting ---- */

static void on_upgraded(struct http_request *rq, int fd, const void *early, size_t n)
{
	struct call *c = http_data(rq);
	struct live *v = c->pending;

	v->fd = fd;
	strbuf_add(&v->in, early, n);
	if (v->broken ||
	    loop_io_add(c->api->loop, &v->io, fd, EPOLLRDHUP, on_socket, v, NULL) < 0 ||
	    !take_frames(v))
		finish(v);
	else
		go_on(v);
}

void stream_start(struct call *c)
{
	static const char *const no_env[] = { NULL };
	const struct stream_values *w = c->values;
	struct stream_request rq = { .argv = (const char *const *)w->argv,
				     .env = w->env ? (const char *const *)w->env : no_env,
				     .timeout_seconds = w->timeout_seconds,
				     .tty = w->tty,
				     .rows = w->rows ? (uint16_t)w->rows : 24,
				     .columns = w->columns ? (uint16_t)w->columns : 80 };
	struct refusal no = { .status = 0 };
	struct live *v;

	if (!http_wants_upgrade(c->rq, PROTOCOL)) {
		http_add_header(c->rq, "upgrade", PROTOCOL);
		call_refuse(c, 426,
			    "Send \"Connection: Upgrade\" and \"Upgrade: " PROTOCOL
			    "\", over HTTP/1.1");
		return;
	}
	if (w->rows > UINT16_MAX || w->columns > UINT16_MAX) {
		call_refuse(c, 422, "rows and columns are at most %d", UINT16_MAX);
		return;
	}
	if (runs_too_long(c, rq.argv, rq.env))
		return;
	v = xnew(struct live);
	v->call = c;
	v->fd = v->io.fd = -EBADF;
	strbuf_init(&v->in);
	strbuf_init(&v->out[0].data);
	strbuf_init(&v->out[1].data);
	c->pending = v;
	v->stream = service_stream(c->service, c->session_id, &rq, &events, v, &no);
	if (!v->stream) {
		leave(c);
		call_refusal(c, &no);
		return;
	}
	c->leave = leave;
	http_upgrade(c->rq, PROTOCOL, on_upgraded);
}
