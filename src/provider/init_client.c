#include "provider/init_client.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"

#define BUSY_BYTES (64 * 1024) /* that init has not taken yet */
#define INLINE_MAX (48 * 1024) /* strings above this travel in a memfd */

struct init_client {
	struct chan chan;
	const struct init_events *events;
	void *ctx;
	uint8_t nonce[INIT_NONCE];
	bool greeted;
	uint64_t last_request;
};

int init_connect(const char *path, int *ret_fd, struct garret_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (strlen(path) >= sizeof(sa.sun_path))
		return garret_fail(err, GARRET_INVALID, "a socket's path has at most %zu bytes",
				   sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return garret_fail_errno(err, "connect to the session");
	*ret_fd = take_fd(&fd);
	return 0;
}

/* ---- what init says ---- */

static bool on_hello(struct init_client *c, struct get *g)
{
	uint8_t nonce[INIT_NONCE];
	uint16_t major = get_u16(g);

	(void)get_u16(g);
	get_bytes(g, nonce, sizeof(nonce));
	(void)get_u32(g);
	if (!get_done(g) || major != INIT_MAJOR || memcmp(nonce, c->nonce, sizeof(nonce)) != 0 ||
	    c->greeted)
		return false;
	c->greeted = true;
	if (c->events->ready)
		c->events->ready(c->ctx);
	return true;
}

static bool on_out(struct init_client *c, struct get *g)
{
	uint8_t run[INIT_RUN_ID];
	unsigned stream;
	const void *data;
	uint64_t offset;
	size_t n;

	get_bytes(g, run, sizeof(run));
	stream = get_u8(g);
	offset = get_u64(g);
	data = get_rest(g, &n);
	if (!get_done(g) || stream < 1 || stream > 2 || n > INIT_OUT_MAX)
		return false;
	if (c->events->out)
		c->events->out(c->ctx, run, stream, offset, data, n);
	return true;
}

static bool on_spooled(struct init_client *c, struct get *g)
{
	uint8_t run[INIT_RUN_ID];
	unsigned stream;
	uint32_t index;
	uint64_t bytes;

	get_bytes(g, run, sizeof(run));
	stream = get_u8(g);
	index = get_u32(g);
	bytes = get_u64(g);
	if (!get_done(g) || stream < 1 || stream > 2)
		return false;
	if (c->events->spooled)
		c->events->spooled(c->ctx, run, stream, index, bytes);
	return true;
}

static bool on_run_frame(struct init_client *c, uint16_t type, struct get *g)
{
	uint8_t run[INIT_RUN_ID];
	struct init_exit e;
	uint64_t v;

	get_bytes(g, run, sizeof(run));
	if (type == INIT_EXIT) {
		if (!init_get_exit(g, &e))
			return false;
		if (c->events->exited)
			c->events->exited(c->ctx, run, &e);
		return true;
	}
	v = type == INIT_STARTED ? get_u32(g) : get_u64(g);
	if (!get_done(g))
		return false;
	if (type == INIT_STARTED && c->events->started)
		c->events->started(c->ctx, run, (uint32_t)v);
	if (type == INIT_STDIN_TAKEN && c->events->stdin_taken)
		c->events->stdin_taken(c->ctx, run, v);
	if (type == INIT_STDIN_HELD && c->events->stdin_held)
		c->events->stdin_held(c->ctx, run, v);
	return true;
}

static bool on_listed(struct init_client *c, struct get *g)
{
	uint32_t spools[INIT_SPOOLS_MAX], n_spools = get_u32(g), n;
	autofree struct init_known *runs = NULL;

	if (n_spools > INIT_SPOOLS_MAX)
		return false;
	for (uint32_t i = 0; i < n_spools; i++)
		spools[i] = get_u32(g);
	n = get_u32(g);
	if (g->bad || n > INIT_FRAME_MAX / INIT_KNOWN_BYTES)
		return false;
	runs = xcalloc(n + 1, sizeof(*runs));
	for (uint32_t i = 0; i < n; i++)
		init_get_known(g, &runs[i]);
	if (!get_done(g))
		return false;
	if (c->events->listed)
		c->events->listed(c->ctx, runs, n, spools, n_spools);
	return true;
}

static bool on_done(struct init_client *c, const struct init_header *h, struct get *g)
{
	struct garret_error err = { 0 };

	if (h->type == INIT_ERROR) {
		uint32_t code = get_u32(g);

		err.sys = (int)get_u32(g);
		err.code = code > 0 && code < GARRET_CODES ? code : GARRET_INTERNAL;
		(void)snprintf(err.msg, sizeof(err.msg), "%s", get_str(g, sizeof(err.msg)));
	}
	if (!get_done(g))
		return false;
	if (c->events->done)
		c->events->done(c->ctx, h->request, err.code ? &err : NULL);
	return true;
}

static bool handle(struct init_client *c, const struct init_header *h, struct get *g)
{
	if (!c->greeted && h->type != INIT_HELLO_OK)
		return false;
	switch (h->type) {
	case INIT_HELLO_OK:
		return on_hello(c, g);
	case INIT_OUT:
		return on_out(c, g);
	case INIT_SPOOLED:
		return on_spooled(c, g);
	case INIT_STARTED:
	case INIT_EXIT:
	case INIT_STDIN_TAKEN:
	case INIT_STDIN_HELD:
		return on_run_frame(c, h->type, g);
	case INIT_LISTED:
		return on_listed(c, g);
	case INIT_DONE:
	case INIT_ERROR:
		return on_done(c, h, g);
	case INIT_PONG: {
		uint32_t live = get_u32(g), background = get_u32(g);

		if (get_done(g) && c->events->pong)
			c->events->pong(c->ctx, live, background);
		return get_done(g);
	}
	default:
		return false;
	}
}

static void on_end(struct chan *chan, const struct garret_error *err)
{
	struct init_client *c = chan->ctx;

	c->events->lost(c->ctx, err);
}

static void on_frame(struct chan *chan, const uint8_t *frame, size_t n, struct msg_fds *fds)
{
	struct init_client *c = chan->ctx;
	struct garret_error err = { 0 };
	bool gone = false, *outer = chan->gone;
	struct init_header h;
	struct get g;
	bool ok;

	(void)fds;
	/* A callback may free the client; the chan tells through gone. */
	chan->gone = &gone;
	ok = init_parse(&g, frame, n, &h) && handle(c, &h, &g);
	if (gone) {
		*outer = true;
		return;
	}
	chan->gone = outer;
	if (ok)
		return;
	(void)garret_fail(&err, GARRET_PROTOCOL, "the session's init sent what it may not send");
	chan_close(chan);
	on_end(chan, &err);
}

int init_client_new(struct loop *l, int fd, const uint8_t nonce[INIT_NONCE],
		    const struct init_events *events, void *ctx, struct init_client **ret,
		    struct garret_error *err)
{
	struct init_client *c = xnew(struct init_client);
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;
	int rc;

	c->events = events;
	c->ctx = ctx;
	memcpy(c->nonce, nonce, INIT_NONCE);
	c->chan.on_frame = on_frame;
	c->chan.on_end = on_end;
	c->chan.ctx = c;
	rc = chan_open(&c->chan, l, fd, INIT_FRAME_MAX, err);
	if (rc < 0) {
		free(c);
		return rc;
	}
	init_begin(&p, frame, INIT_HELLO, 0);
	put_u16(&p, INIT_MAJOR);
	put_u16(&p, INIT_MINOR);
	put_bytes(&p, nonce, INIT_NONCE);
	chan_send(&c->chan, p.buf, init_end(&p), NULL, 0);
	*ret = c;
	return 0;
}

struct init_client *init_client_free(struct init_client *c)
{
	if (!c)
		return NULL;
	chan_close(&c->chan);
	free(c);
	return NULL;
}

/* ---- what is said to init ---- */

static int check_list(const char *const *list, const char *what, size_t *bytes, size_t *count,
		      struct garret_error *err)
{
	for (*count = 0; list && list[*count]; (*count)++) {
		size_t n = strlen(list[*count]);

		if (n > INIT_STRING_MAX)
			return garret_fail(err, GARRET_TOO_LARGE,
					   "%s %zu has %zu bytes; the kernel's limit is %d", what,
					   *count, n, INIT_STRING_MAX);
		*bytes += n + 1 + sizeof(uint32_t);
	}
	if (*count > INIT_ARGC_MAX)
		return garret_fail(err, GARRET_TOO_LARGE, "%zu %ss; the limit is %d", *count, what,
				   INIT_ARGC_MAX);
	return 0;
}

static int measure(const char *const *argv, const char *const *env, size_t *bytes, size_t *argc,
		   size_t *envc, struct garret_error *err)
{
	int rc;

	*bytes = 0;
	rc = check_list(argv, "argument", bytes, argc, err);
	if (rc == 0)
		rc = check_list(env, "environment variable", bytes, envc, err);
	if (rc == 0 && *bytes > INIT_STRINGS_MAX)
		rc = garret_fail(
			err, GARRET_TOO_LARGE,
			"arguments and environment have %zu bytes together; the limit is %d",
			*bytes, INIT_STRINGS_MAX);
	return rc;
}

int init_check_strings(const char *const *argv, const char *const *env, struct garret_error *err)
{
	size_t bytes, argc, envc;

	return measure(argv, env, &bytes, &argc, &envc, err);
}

int init_client_run(struct init_client *c, const struct init_start *s, struct garret_error *err)
{
	struct init_run run = { .flags = s->flags,
				.timeout_ms = s->timeout_ms,
				.output_limit = s->output_limit,
				.rows = s->rows,
				.columns = s->columns,
				.cwd = s->cwd ? s->cwd : "" };
	int fds[4], rc;
	size_t bytes = 0, argc = 0, envc = 0, n_fds = 0;
	autofree uint8_t *strings = NULL;
	autoclose int body = -EBADF;
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	rc = measure(s->argv, s->env, &bytes, &argc, &envc, err);
	if (rc < 0)
		return rc;
	strings = xmalloc(bytes);
	put_init(&p, strings, bytes);
	for (size_t i = 0; i < argc; i++)
		put_str(&p, s->argv[i]);
	for (size_t i = 0; i < envc; i++)
		put_str(&p, s->env[i]);
	if (bytes > INLINE_MAX) {
		body = memfd_create("garret-run", MFD_CLOEXEC);
		if (body < 0 || write_full(body, strings, bytes) < 0 ||
		    lseek(body, 0, SEEK_SET) < 0)
			return garret_fail_errno(err, "pass the arguments");
		fds[n_fds++] = body;
		run.flags |= INIT_RUN_BODY_FD;
	}
	for (int i = 0; i < 3 && s->flags & INIT_RUN_FDS; i++)
		fds[n_fds++] = s->stdio[i];
	memcpy(run.id, s->id, INIT_RUN_ID);
	run.argc = (uint32_t)argc;
	run.envc = (uint32_t)envc;
	run.strings_bytes = (uint32_t)bytes;
	run.strings = strings;
	init_begin(&p, frame, INIT_RUN, ++c->last_request);
	init_put_run(&p, &run);
	if (p.bad)
		return garret_fail(err, GARRET_TOO_LARGE,
				   "the working directory's path is too long");
	chan_send(&c->chan, p.buf, init_end(&p), fds, (unsigned)n_fds);
	return 0;
}

/*
 * Frames are made on the stack: a buffer in the client would be 64 KiB for each
 * idle session.
 */
static void begin_run(struct init_client *c, struct put *p, uint8_t frame[INIT_FRAME_MAX],
		      uint16_t type, const uint8_t *run)
{
	init_begin(p, frame, type, ++c->last_request);
	put_bytes(p, run, INIT_RUN_ID);
}

static void finish(struct init_client *c, struct put *p)
{
	uint32_t n = init_end(p);

	if (n)
		chan_send(&c->chan, p->buf, n, NULL, 0);
}

bool init_client_busy(const struct init_client *c)
{
	return c->chan.queued_bytes > BUSY_BYTES;
}

uint64_t init_client_stop(struct init_client *c, const uint8_t *run, uint32_t grace_ms)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	begin_run(c, &p, frame, INIT_STOP, run);
	put_u32(&p, grace_ms);
	finish(c, &p);
	return c->last_request;
}

void init_client_signal(struct init_client *c, const uint8_t *run, int signo, bool group)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	begin_run(c, &p, frame, INIT_SIGNAL, run);
	put_u32(&p, (uint32_t)signo);
	put_u8(&p, group);
	finish(c, &p);
}

void init_client_attach(struct init_client *c, const uint8_t *run)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	begin_run(c, &p, frame, INIT_ATTACH, run);
	finish(c, &p);
}

void init_client_forget(struct init_client *c, const uint8_t *run)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	begin_run(c, &p, frame, INIT_FORGET, run);
	finish(c, &p);
}

void init_client_ack(struct init_client *c, const uint8_t *run, unsigned stream, uint64_t offset)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	begin_run(c, &p, frame, INIT_ACK, run);
	put_u8(&p, (uint8_t)stream);
	put_u64(&p, offset);
	finish(c, &p);
}

void init_client_stdin(struct init_client *c, const uint8_t *run, const void *data, size_t n)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	begin_run(c, &p, frame, INIT_STDIN, run);
	put_bytes(&p, data, n);
	finish(c, &p);
}

void init_client_winch(struct init_client *c, const uint8_t *run, uint16_t rows, uint16_t columns)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	begin_run(c, &p, frame, INIT_WINCH, run);
	put_u16(&p, rows);
	put_u16(&p, columns);
	finish(c, &p);
}

void init_client_spool(struct init_client *c, uint32_t index, int out_fd, int err_fd)
{
	int fds[2] = { out_fd, err_fd };
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	init_begin(&p, frame, INIT_SPOOL, ++c->last_request);
	put_u32(&p, index);
	chan_send(&c->chan, p.buf, init_end(&p), fds, 2);
}

uint64_t init_client_worker(struct init_client *c, uint32_t slot, int sock)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	init_begin(&p, frame, INIT_WORKER, ++c->last_request);
	put_u32(&p, slot);
	chan_send(&c->chan, p.buf, init_end(&p), &sock, 1);
	return c->last_request;
}

uint64_t init_client_list(struct init_client *c)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	init_begin(&p, frame, INIT_LIST, ++c->last_request);
	finish(c, &p);
	return c->last_request;
}

void init_client_ping(struct init_client *c)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	init_begin(&p, frame, INIT_PING, ++c->last_request);
	finish(c, &p);
}

void init_client_processes(struct init_client *c, uint32_t n)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	init_begin(&p, frame, INIT_PROCESSES, ++c->last_request);
	put_u32(&p, n);
	finish(c, &p);
}
