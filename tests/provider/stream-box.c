/*
 * A provider's box over a stream to an init, as a provider of containers composes it:
 * its operations, while the stream is cut, and adoption by another box.
 *
 *	test-stream-box STATE_DIR WORK_DIR COMMAND...
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "provider/init_box.h"
#include "provider/init_stream.h"

#define MIB (1u << 20)
#define CHECK(x)                                                                      \
	do {                                                                          \
		if (!(x)) {                                                           \
			(void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x); \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

struct box {
	struct init_box common;
	struct init_stream *stream;
	unsigned lives, cuts;
	bool ready, lost;
};

static struct loop *loop;
static char **command;
static int runs_fd;

static const struct provider_ops ops = { .name = "test", INIT_BOX_OPS };

static void stop(struct loop_timer *t)
{
	loop_quit(t->loop, 0);
}

/* Run the loop until it is so; half a minute at most. */
#define until(x)                                                                   \
	do {                                                                       \
		const uint64_t until_ = now_ms() + 30000;                          \
		while (!(x)) {                                                     \
			struct loop_timer tick_ = { 0 };                           \
			loop_timer_set(loop, &tick_, now_ms() + 1, stop, NULL);    \
			(void)loop_run(loop);                                      \
			if (now_ms() > until_)                                     \
				(void)fprintf(stderr, "never: %s\n", #x), exit(1); \
		}                                                                  \
	} while (0)

/* ---- the box ---- */

static void join(struct box *b)
{
	int pair[2];

	CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	if (!fork()) {
		(void)dup2(pair[1], 0);
		(void)dup2(pair[1], 1);
		execvp(command[0], command);
		_exit(127);
	}
	fd_close(pair[1]);
	CHECK(init_stream_begin_fds(b->stream, pair[0], pair[0], NULL) == 0);
}

static void on_live(void *ctx)
{
	((struct box *)ctx)->lives++;
}

static void on_cut(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	b->cuts++;
	if (err->code == GARRET_UNAVAILABLE && !strstr(err->msg, "another stream"))
		join(b);
}

static int on_spool(void *ctx, uint32_t index, int stream)
{
	return init_box_spool_write(ctx, index, stream);
}

static void on_ready(void *ctx)
{
	((struct box *)ctx)->ready = true;
}

static void on_lost(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	(void)err;
	b->lost = true;
	init_box_drop(&b->common);
}

static const struct init_stream_events stream_events = { on_live, on_cut, on_spool };
static const struct init_events init_events = { .ready = on_ready,
						.lost = on_lost,
						INIT_BOX_EVENTS };

static struct box *box_open(const uint8_t *nonce)
{
	struct box *b = xnew(struct box);
	int fd;

	init_box_begin(&b->common, loop, runs_fd, "r");
	b->common.no_rings = true;
	CHECK(init_stream_new(&(struct init_stream_config){ loop, &stream_events, b, nonce },
			      &b->stream, &fd, NULL) == 0);
	CHECK(init_client_new(loop, fd, (const uint8_t[16]){ 5 }, &init_events, b, &b->common.init,
			      NULL) == 0);
	join(b);
	until(b->ready);
	return b;
}

static void box_close(struct box *b)
{
	b->stream = init_stream_free(b->stream);
	init_box_drop(&b->common);
	init_box_release(&b->common);
	free(b);
}

static void cut(struct box *b)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_UNAVAILABLE, "cut for the test");
	init_stream_ended(b->stream, &err);
}

/* ---- commands ---- */

struct ended {
	bool done, gone, stopped, lost;
	int code;
	uint64_t total[2], taken, out;
	struct strbuf head;
	uint32_t spool;
	bool spooled, wrong;
};

static void on_end(void *ctx, struct box_run_end *end)
{
	struct ended *e = ctx;

	e->done = true;
	e->gone = end->gone;
	e->stopped = end->stopped;
	e->lost = end->output_lost;
	e->code = end->exit_code;
	e->spool = end->spool;
	e->spooled = end->spooled[0];
	for (int i = 0; i < 2; i++)
		e->total[i] = end->total[i];
	strbuf_release(&e->head);
	strbuf_add(&e->head, end->head[0].buf, end->head[0].len);
}

static void on_news(void *ctx)
{
	(void)ctx;
}

static struct box_run *begin(struct box *b, uint8_t id[16], const char *script, struct ended *e)
{
	const char *const argv[] = { "sh", "-c", script, NULL };

	*e = (struct ended){ .done = false };
	strbuf_init(&e->head);
	CHECK(getrandom(id, 16, 0) == 16);
	return ops.run(b,
		       &(struct box_run_spec){
			       .id = id, .argv = argv, .output_limit = 64 * MIB, .news = on_news },
		       on_end, e, NULL);
}

static void check_spool(const struct ended *e, uint64_t bytes, char c)
{
	int fd = init_box_spool_open(runs_fd, "r", e->spool, 0);
	autofree char *data = xmalloc(bytes + 1);

	CHECK(e->spooled && !e->lost && e->total[0] == bytes && fd >= 0);
	CHECK(read_full(fd, data, bytes + 1) == (ssize_t)bytes);
	for (uint64_t i = 0; i < bytes; i++)
		CHECK(data[i] == c);
	fd_close(fd);
}

static void commands(struct box *b)
{
	struct ended small, big, slow;
	struct box_run *r;
	uint8_t id[16];

	CHECK(begin(b, id, "echo small; exit 4", &small));
	CHECK(begin(b, id, "head -c 20000000 /dev/zero | tr '\\0' z", &big));
	r = begin(b, id, "sleep 30", &slow);
	until(small.done);
	CHECK(small.code == 4 && small.head.len == 6 && !memcmp(small.head.buf, "small\n", 6));
	cut(b);
	until(big.done);
	check_spool(&big, 20000000, 'z');
	ops.stop(r, 100);
	cut(b);
	until(slow.done);
	CHECK(slow.stopped && !slow.gone);
	strbuf_release(&small.head);
	strbuf_release(&big.head);
	strbuf_release(&slow.head);
	puts("commands");
}

/* ---- a live stream: what is sent comes back, whatever is cut ---- */

static struct box_run *echo;

static void echo_out(void *ctx, int stream, const void *data, size_t n)
{
	struct ended *e = ctx;

	for (size_t i = 0; i < n; i++)
		e->wrong = e->wrong || ((const uint8_t *)data)[i] != (uint8_t)(e->out++ % 253);
	ops.ack(echo, stream, e->out);
}

static void echo_taken(void *ctx, uint64_t bytes)
{
	((struct ended *)ctx)->taken = bytes;
}

static void streams(struct box *b)
{
	static const struct box_stream_events events = { echo_out, echo_taken, on_end };
	const char *const argv[] = { "cat", NULL };
	struct ended e = { .head = STRBUF_INIT };
	uint64_t sent = 0, next_cut = 200000;
	uint8_t data[5000];

	echo = ops.stream(b, &(struct box_stream_spec){ .argv = argv }, &events, &e, NULL);
	while (sent < 3000000) {
		for (size_t i = 0; i < sizeof(data); i++)
			data[i] = (uint8_t)((sent + i) % 253);
		until(sent - e.taken < 100000 && !ops.busy(echo));
		ops.input(echo, data, sizeof(data));
		sent += sizeof(data);
		if (sent > next_cut) {
			cut(b);
			next_cut += 200000;
		}
	}
	until(e.out == sent);
	ops.input(echo, data, 0);
	until(e.done);
	CHECK(!e.wrong && e.code == 0 && e.out == sent);
	strbuf_release(&e.head);
	puts("streams");
}

/* ---- files ---- */

struct answer {
	bool ended, room, informed;
	int code;
	uint64_t bytes, size;
};

static void file_info(void *ctx, const struct file_info *info)
{
	struct answer *a = ctx;

	a->informed = true;
	a->size = info->tag.size;
}

static void file_data(void *ctx, const void *data, size_t n)
{
	(void)data;
	((struct answer *)ctx)->bytes += n;
}

static void file_room(void *ctx)
{
	((struct answer *)ctx)->room = true;
}

static void file_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct answer *a = ctx;

	(void)end;
	a->ended = true;
	a->code = err ? (int)err->code : 0;
}

static const struct file_events file_events = {
	.info = file_info, .data = file_data, .room = file_room, .end = file_end
};

static void files(struct box *b, const char *work)
{
	autofree char *path = xasprintf("%s/file", work), *data = xcalloc(1, MIB);
	struct file_request rq = {
		.op = FILE_WRITE, .path = path, .to = "", .pattern = "", .include = ""
	};
	struct answer a = { .room = true };
	struct box_file *f = ops.file(b, &rq, &file_events, &a, NULL);
	uint64_t given = 0, got = 0;
	int fd;

	while (given < 64 * (uint64_t)MIB) {
		size_t n = ops.file_body(f, data, MIB);

		given += n;
		if (n < MIB) {
			a.room = false;
			until(a.room || a.ended);
			CHECK(!a.ended);
		}
	}
	ops.file_body_end(f);
	until(a.ended);
	CHECK(a.code == 0 && a.size == given);

	rq = (struct file_request){ .op = FILE_READ,
				    .flags = FILE_BY_PIPE,
				    .path = path,
				    .to = "",
				    .pattern = "",
				    .include = "",
				    .length = UINT64_MAX };
	a = (struct answer){ .ended = false };
	f = ops.file(b, &rq, &file_events, &a, NULL);
	until(a.informed);
	CHECK(ops.file_pipe(f, &fd, NULL) == 0);
	for (;;) {
		ssize_t n = read(fd, data, MIB);

		if (n == 0)
			break;
		CHECK(n > 0 || errno == EAGAIN);
		got += n > 0 ? (uint64_t)n : 0;
		if (n < 0)
			until(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0) > 0);
	}
	fd_close(fd);
	until(a.ended);
	CHECK(a.code == 0 && got == given);

	/* Asked again when it was cut before it was answered; what has begun fails. */
	rq.op = FILE_DIGEST;
	rq.flags = 0;
	a = (struct answer){ .ended = false };
	CHECK(ops.file(b, &rq, &file_events, &a, NULL));
	for (uint64_t at = now_ms() + 20; now_ms() < at;)
		until(true);
	cut(b);
	until(a.ended);
	CHECK(a.code == 0 && a.informed);
	rq.op = FILE_WRITE;
	a = (struct answer){ .ended = false };
	f = ops.file(b, &rq, &file_events, &a, NULL);
	(void)ops.file_body(f, data, MIB);
	for (uint64_t at = now_ms() + 20; now_ms() < at;) {
		struct loop_timer tick = { 0 };

		loop_timer_set(loop, &tick, now_ms() + 1, stop, NULL);
		(void)loop_run(loop);
	}
	cut(b);
	until(a.ended);
	CHECK(a.code == GARRET_UNAVAILABLE);
	puts("files");
}

/* ---- adoption ---- */

static struct known {
	bool listed;
	size_t n;
	uint8_t id[4][16];
} known;

static void on_runs(void *ctx, const struct box_run_known *runs, size_t n,
		    const struct garret_error *err)
{
	(void)ctx;
	CHECK(!err && n <= 4);
	known.listed = true;
	known.n = n;
	for (size_t i = 0; i < n; i++)
		memcpy(known.id[i], runs[i].id, 16);
}

static struct box *adopt(struct box *old)
{
	uint8_t nonce[INIT_NONCE], id[16], other[16];
	struct ended big, here, left;
	struct box *b;

	memcpy(nonce, init_stream_nonce(old->stream), sizeof(nonce));
	CHECK(begin(
		old, id,
		"head -c 3000000 /dev/zero | tr '\\0' q; sleep 1; head -c 3000000 /dev/zero | tr '\\0' q",
		&left));
	CHECK(begin(old, other, "sleep 1; echo over", &here));
	for (uint64_t at = now_ms() + 500; now_ms() < at;) {
		struct loop_timer tick = { 0 };

		loop_timer_set(loop, &tick, now_ms() + 1, stop, NULL);
		(void)loop_run(loop);
	}
	b = box_open(nonce);
	ops.runs(b, on_runs, NULL);
	until(known.listed);
	CHECK(known.n == 2);
	until(old->cuts > 0);
	box_close(old);
	CHECK(left.done && left.gone); /* of the one that was left behind */
	strbuf_release(&left.head);
	strbuf_release(&here.head);
	big = here = (struct ended){ .done = false };
	strbuf_init(&big.head);
	strbuf_init(&here.head);
	CHECK(ops.attach(b, id, on_news, on_end, &big, NULL));
	CHECK(ops.attach(b, other, on_news, on_end, &here, NULL));
	until(big.done && here.done);
	check_spool(&big, 6000000, 'q');
	CHECK(here.head.len == 5 && !memcmp(here.head.buf, "over\n", 5));
	strbuf_release(&big.head);
	strbuf_release(&here.head);
	puts("adoption");
	return b;
}

static void another_init(void)
{
	struct box *b = xnew(struct box);
	static const uint8_t nonce[INIT_NONCE] = { 1, 2, 3 };
	int fd;

	CHECK(init_stream_new(&(struct init_stream_config){ loop, &stream_events, b, nonce },
			      &b->stream, &fd, NULL) == 0);
	join(b);
	until(b->cuts);
	CHECK(!b->lives);
	init_stream_free(b->stream);
	fd_close(fd);
	free(b);
	puts("another init");
}

int main(int argc, char **argv)
{
	struct box *b;
	int before;

	if (argc < 4)
		return 2;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGCHLD, SIG_IGN);
	command = argv + 3;
	CHECK(loop_new(&loop, NULL) == 0);
	before = fd_count();
	CHECK(mkdir(argv[1], 0700) == 0);
	runs_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(runs_fd >= 0);
	b = box_open(NULL);
	commands(b);
	streams(b);
	files(b, argv[2]);
	b = adopt(b);
	box_close(b);
	another_init();
	fd_close(runs_fd);
	CHECK(fd_count() == before);
	loop_free(loop);
	return 0;
}
