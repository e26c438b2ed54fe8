/*
 * garret-init connect: a byte stream on stdin and stdout, joined with the init of
 * this container.  It knows nothing that would be missed: when it or the stream
 * ends, file workers end with it, and all the rest is init's and goes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "init/connect.h"
#include "proto/files.h"

#define INIT_WAIT_MS 5000        /* for an init that is about to serve */
#define LAST_WORD_MS 2000        /* for the owner to take it */
#define CONTROL_MAX (8u << 20)   /* that init doesn't take */
#define SOCKET_BYTES (512 << 10) /* of a worker */
#define LIVES_MS 2000
#define PIPE_BYTES (256 << 10)
#define READS_A_TURN 2

struct relay {
	struct loop *loop;
	struct mux mux;
	struct loop_io in, out;
	struct chan init;
	struct spool_reads spools;
	int dir_fd;
	bool greeted; /* init has said HELLO_OK, and we HELLO */
	bool heard;   /* the owner has said HELLO */
	int blob;     /* a memfd for the next RUN */
	size_t blob_bytes;
};

/* ---- the end ---- */

static void last_word(struct relay *r, uint8_t why, int sys, const char *msg)
{
	const uint64_t until = now_ms() + LAST_WORD_MS;
	uint8_t body[STREAM_MSG_MAX + 64];
	struct put p;

	put_init(&p, body, sizeof(body));
	stream_put_end(&p, &(struct stream_end){ why, (uint32_t)sys, msg });
	r->mux.over = false;
	mux_send(&r->mux, STREAM_END, 0, body, p.len);
	for (;;) {
		struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
		const uint64_t now = now_ms();

		mux_writable(&r->mux);
		if (r->mux.out_at == r->mux.out.len || now >= until ||
		    poll(&out, 1, (int)(until - now)) <= 0 || out.revents & POLLERR)
			return;
	}
}

static void finish(struct relay *r, uint8_t why, int sys, const char *msg)
	__attribute__((noreturn));

static void finish(struct relay *r, uint8_t why, int sys, const char *msg)
{
	if (why != STREAM_END_INPUT)
		last_word(r, why, sys, msg);
	_exit(why == STREAM_END_INPUT ? 0 : why == STREAM_END_NO_INIT ? 3 : 1);
}

/* ---- the owner's side ---- */

static size_t write_out(void *ctx, const void *data, size_t n)
{
	struct relay *r = ctx;
	ssize_t done = write(STDOUT_FILENO, data, n);

	if (done < 0 && errno != EAGAIN && errno != EINTR)
		_exit(0); /* nobody hears us any more */
	if (done < (ssize_t)n && r->out.fd >= 0)
		loop_io_mod(&r->out, EPOLLOUT);
	return done < 0 ? 0 : (size_t)done;
}

static void on_out(struct loop_io *io, uint32_t events)
{
	struct relay *r = io->ctx;

	if (events & EPOLLERR)
		_exit(0);
	loop_io_mod(io, EPOLLET);
	mux_writable(&r->mux);
	if (r->mux.out_at < r->mux.out.len)
		loop_io_mod(io, EPOLLOUT);
}

static void on_in(struct loop_io *io, uint32_t events)
{
	static uint8_t buf[256 * 1024]; /* several frames: one that is cut is copied once more */
	struct relay *r = io->ctx;

	(void)events;
	for (int left = READS_A_TURN; left > 0; left--) {
		ssize_t n = read(STDIN_FILENO, buf, sizeof(buf));

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			finish(r, STREAM_END_INPUT, 0, "");
		mux_feed(&r->mux, buf, (size_t)n);
	}
}

static void on_broken(void *ctx, const char *why)
{
	finish(ctx, STREAM_END_PROTOCOL, 0, why);
}

static void on_room(void *ctx)
{
	struct relay *r = ctx;

	chan_pause(&r->init, false);
	spool_reads_go(&r->spools);
}

/* ---- what the owner says ---- */

static bool on_hello(struct relay *r, const struct stream_frame *f)
{
	struct stream_hello h;
	struct get g;

	get_init(&g, f->data, f->n);
	if (!stream_get_hello(&g, &h) || r->heard)
		return false;
	if (h.major != STREAM_MAJOR)
		finish(r, STREAM_END_PROTOCOL, 0, "the owner speaks another version");
	r->heard = true;
	return true;
}

static bool on_blob(struct relay *r, const struct stream_frame *f)
{
	if (f->n > INIT_STRINGS_MAX - r->blob_bytes)
		return false;
	if (r->blob < 0)
		r->blob = memfd_create("garret-run", MFD_CLOEXEC);
	if (r->blob < 0 || write_full(r->blob, f->data, f->n) < 0)
		finish(r, STREAM_END_SYSTEM, errno, "no memory for the arguments of a command");
	r->blob_bytes += f->n;
	return true;
}

static uint32_t run_flags(struct get *g)
{
	uint8_t id[INIT_RUN_ID];

	get_bytes(g, id, sizeof(id));
	return get_u32(g);
}

static bool on_control(struct relay *r, const struct stream_frame *f)
{
	autoclose int blob = take_fd(&r->blob);
	struct init_header h;
	uint32_t flags = 0;
	struct get g;

	r->blob_bytes = 0;
	if (!init_parse(&g, f->data, f->n, &h) || h.type == INIT_WORKER)
		return false;
	if (h.type == INIT_RUN)
		flags = run_flags(&g);
	/* A message without its descriptors would mean something else. */
	if (flags & INIT_RUN_FDS || !(flags & INIT_RUN_BODY_FD) != (blob < 0))
		return false;
	chan_send(&r->init, f->data, f->n, &blob, blob >= 0);
	return r->init.queued_bytes <= CONTROL_MAX;
}

static void refuse_worker(struct relay *r, const struct stream_frame *f, uint64_t request,
			  const struct garret_error *err)
{
	uint8_t frame[1024];
	struct put p;

	mux_send(&r->mux, STREAM_CLOSE, f->channel, "", 0);
	init_begin(&p, frame, INIT_ERROR, request);
	p.cap = sizeof(frame);
	put_u32(&p, (uint32_t)err->code);
	put_u32(&p, (uint32_t)err->sys);
	put_str(&p, err->msg);
	mux_send(&r->mux, STREAM_CONTROL, 0, frame, init_end(&p));
}

static bool on_worker(struct relay *r, const struct stream_frame *f)
{
	const int bytes = SOCKET_BYTES;
	struct garret_error err = { 0 };
	struct init_header h;
	struct get g;
	int pair[2];

	if (!init_parse(&g, f->data, f->n, &h) || h.type != INIT_WORKER ||
	    mux_find(&r->mux, f->channel))
		return false;
	if (msg_pair(pair, false, &err) < 0) {
		refuse_worker(r, f, h.request, &err);
		return true;
	}
	(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (mux_open(&r->mux, f->channel, MUX_MESSAGES, pair[0], NULL, r, &err))
		chan_send(&r->init, f->data, f->n, &pair[1], 1);
	else
		refuse_worker(r, f, h.request, &err);
	fd_close(pair[1]);
	return true;
}

static bool on_pipe(struct relay *r, const struct stream_frame *f)
{
	struct mux_channel *worker = mux_find(&r->mux, f->channel);
	uint8_t frame[INIT_HEADER_BYTES];
	uint32_t id;
	struct put p;
	struct get g;
	int fds[2];

	get_init(&g, f->data, f->n);
	id = get_u32(&g);
	if (!get_done(&g) || mux_find(&r->mux, id))
		return false;
	if (!worker || worker->kind != MUX_MESSAGES) {
		mux_send(&r->mux, STREAM_CLOSE, id, "", 0); /* it ended a moment ago */
		return true;
	}
	if (pipe2(fds, O_CLOEXEC) < 0)
		finish(r, STREAM_END_SYSTEM, errno, "no pipe for a file");
	(void)fcntl(fds[0], F_SETPIPE_SZ, PIPE_BYTES); /* refused: then it is a smaller one */
	init_begin(&p, frame, FILE_PIPE, 0);
	if (mux_open(&r->mux, id, MUX_PIPE_IN, fds[0], NULL, r, NULL))
		mux_deliver(worker, frame, init_end(&p), &fds[1], 1);
	else
		finish(r, STREAM_END_PROTOCOL, 0, "more channels than there may be");
	fd_close(fds[1]);
	return true;
}

static bool on_frame(void *ctx, const struct stream_frame *f)
{
	struct relay *r = ctx;

	if (!r->heard && f->type != STREAM_HELLO)
		return false;
	switch (f->type) {
	case STREAM_HELLO:
		return on_hello(r, f);
	case STREAM_CONTROL:
		return on_control(r, f);
	case STREAM_BLOB:
		return on_blob(r, f);
	case STREAM_WORKER:
		return on_worker(r, f);
	case STREAM_PIPE:
		return on_pipe(r, f);
	case STREAM_SPOOL_READ:
		return spool_reads_add(&r->spools, f);
	case STREAM_PING:
		mux_send(&r->mux, STREAM_PONG, 0, f->data, f->n);
		return true;
	default:
		return false;
	}
}

/* ---- init's side ---- */

static void say_hello(struct relay *r, const uint8_t *frame, size_t n)
{
	struct stream_hello hello = { .major = STREAM_MAJOR,
				      .minor = STREAM_MINOR,
				      .program = SERVE_VERSION };
	uint8_t body[STREAM_PROGRAM_MAX + 64];
	struct init_header h;
	struct put p;
	struct get g;

	if (!init_parse(&g, frame, n, &h) || h.type != INIT_HELLO_OK || get_u16(&g) != INIT_MAJOR)
		finish(r, STREAM_END_NO_INIT, 0, "what serves the socket is no init of ours");
	(void)get_u16(&g);
	get_bytes(&g, hello.nonce, sizeof(hello.nonce));
	put_init(&p, body, sizeof(body));
	stream_put_hello(&p, &hello);
	mux_send(&r->mux, STREAM_HELLO, 0, body, p.len);
	r->greeted = true;
}

static void on_init_frame(struct chan *chan, const uint8_t *frame, size_t n, struct msg_fds *fds)
{
	struct relay *r = chan->ctx;

	(void)fds;
	if (!r->greeted) {
		say_hello(r, frame, n);
		return;
	}
	mux_send(&r->mux, STREAM_CONTROL, 0, frame, n);
	if (mux_full(&r->mux))
		chan_pause(chan, true);
}

static uint32_t put_hello(uint8_t frame[64])
{
	struct put p;

	init_begin(&p, frame, INIT_HELLO, 0);
	put_u16(&p, INIT_MAJOR);
	put_u16(&p, INIT_MINOR);
	put_bytes(&p, (const uint8_t[INIT_NONCE]){ 0 }, INIT_NONCE);
	return init_end(&p);
}

/* Has it only no time for us?  One that is ending may be connected to, but says nothing. */
static bool init_lives(struct relay *r)
{
	struct pollfd in = { .fd = -EBADF, .events = POLLIN };
	uint8_t frame[64];
	bool lives;

	if (serve_connect(r->dir_fd, 0, &in.fd, NULL) < 0)
		return false;
	lives = msg_send(in.fd, frame, put_hello(frame), NULL, 0, NULL) == 0 &&
		poll(&in, 1, LIVES_MS) == 1 && recv(in.fd, frame, 1, MSG_TRUNC) > 0;
	fd_close(in.fd);
	return lives;
}

static void on_init_end(struct chan *chan, const struct garret_error *err)
{
	struct relay *r = chan->ctx;

	(void)err;
	if (init_lives(r))
		finish(r, STREAM_END_REPLACED, 0, "init speaks to another stream");
	finish(r, STREAM_END_INIT, 0, "init has ended");
}

static void greet_init(struct relay *r)
{
	uint8_t frame[64];

	chan_send(&r->init, frame, put_hello(frame), NULL, 0);
}

static int open_spool_dir(int dir_fd)
{
	return openat(dir_fd, "spool", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static const struct mux_events events = { .frame = on_frame, .broken = on_broken, .room = on_room };

static void reach_init(struct relay *r, const char *dir)
{
	struct garret_error err = { 0 };
	int fd;

	if (serve_open_dir(dir, false, &r->dir_fd, &err) < 0 ||
	    serve_connect(r->dir_fd, INIT_WAIT_MS, &fd, &err) < 0)
		finish(r, STREAM_END_NO_INIT, err.sys, err.msg);
	r->spools.spool_fd = open_spool_dir(r->dir_fd);
	if (chan_open(&r->init, r->loop, fd, INIT_FRAME_MAX, &err) < 0)
		finish(r, STREAM_END_SYSTEM, err.sys, err.msg);
	greet_init(r);
}

int connect_main(const char *dir)
{
	static struct relay r;
	struct garret_error err = { 0 };

	(void)signal(SIGPIPE, SIG_IGN);
	r.blob = r.out.fd = -EBADF;
	r.init.on_frame = on_init_frame;
	r.init.on_end = on_init_end;
	r.init.ctx = &r;
	if (loop_new(&r.loop, &err) < 0) {
		(void)fprintf(stderr, "garret-init: %s\n", err.msg);
		return 1;
	}
	mux_begin(&r.mux, r.loop, &(struct mux_transport){ write_out, &r }, &events, &r);
	r.spools.mux = &r.mux;
	(void)fd_set_nonblock(STDIN_FILENO, true);
	(void)fd_set_nonblock(STDOUT_FILENO, true);
	reach_init(&r, dir);
	(void)prctl(PR_SET_DUMPABLE, 0); /* runs of our own uid could read what passes otherwise */
	if (loop_io_add(r.loop, &r.in, STDIN_FILENO, EPOLLIN, on_in, &r, &err) < 0 ||
	    loop_io_add(r.loop, &r.out, STDOUT_FILENO, EPOLLET, on_out, &r, &err) < 0)
		finish(&r, STREAM_END_SYSTEM, err.sys, err.msg);
	return loop_run(r.loop);
}
