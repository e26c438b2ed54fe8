/* The owner's end of a stream, against a relay and an init that are hostile: whatever they say, what
 * is passed on is whole frames, a file gets only what was asked for, and nothing stays. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "fuzz.h"
#include "io/msg.h"
#include "provider/init_stream.h"

static struct loop *loop;
static unsigned closed, cuts;

static size_t take_all(void *ctx, const void *data, size_t n)
{
	(void)ctx, (void)data;
	return n;
}

static void on_close(void *ctx)
{
	(void)ctx;
	closed++;
}

static void on_live(void *ctx)
{
	(void)ctx;
}

static void on_cut(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	CHECK(err->code && *err->msg);
	cuts++;
}

static int on_spool(void *ctx, uint32_t index, int stream)
{
	(void)ctx, (void)index;
	return stream ? -1 : memfd_create("garret-fuzz", MFD_CLOEXEC);
}

static const struct init_stream_events events = { on_live, on_cut, on_spool };

static void quit(struct loop_later *l)
{
	(void)l;
	loop_quit(loop, 0);
}

static void rounds(int n)
{
	while (n--) {
		struct loop_later later = { 0 };

		loop_later_add(loop, &later, quit, NULL);
		loop_run(loop);
	}
}

static void say(int fd, uint16_t type, uint64_t request, const void *body, size_t n, const int *fds)
{
	uint8_t frame[512];
	struct put p;

	init_begin(&p, frame, type, request);
	p.cap = sizeof(frame);
	put_bytes(&p, body, n);
	CHECK(msg_send(fd, frame, init_end(&p), fds, fds ? 1 : 0, NULL) == 0);
}

static void feed(struct init_stream *s, uint8_t type, const void *body, size_t n)
{
	uint8_t header[STREAM_HEADER_BYTES];

	stream_put_header(header, type, 0, n);
	init_stream_feed(s, header, sizeof(header));
	init_stream_feed(s, body, n);
}

static void begin(struct init_stream *s)
{
	uint8_t body[128];
	struct put p;

	init_stream_begin(s, &(struct init_transport){ take_all, NULL, on_close, NULL });
	put_init(&p, body, sizeof(body));
	stream_put_hello(&p, &(struct stream_hello){ 1, 0, { 7 }, "fuzz" });
	feed(s, STREAM_HELLO, body, p.len);
	init_begin(&p, body, INIT_RESUMED, 0);
	p.cap = sizeof(body);
	put_u64(&p, 0);
	feed(s, STREAM_CONTROL, body, init_end(&p));
}

/* Two commands, a list, spools and a worker are under way. */
static void ask(int control, int worker)
{
	uint8_t id[2][INIT_RUN_ID], run[80];
	struct init_run request = {
		.argc = 1, .cwd = "", .strings_bytes = 6, .strings = (const uint8_t *)"\1\0\0\0a"
	};
	struct put p;

	for (int i = 0; i < INIT_RUN_ID; i++) {
		id[0][i] = (uint8_t)i;
		id[1][i] = (uint8_t)(i + 1);
	}
	say(control, INIT_HELLO, 0, (uint8_t[20]){ 1 }, 20, NULL);
	memcpy(request.id, id[0], INIT_RUN_ID);
	put_init(&p, run, sizeof(run));
	init_put_run(&p, &request);
	say(control, INIT_RUN, 1, run, p.len, NULL);
	say(control, INIT_ATTACH, 2, id[1], INIT_RUN_ID, NULL);
	say(control, INIT_LIST, 3, "", 0, NULL);
	say(control, INIT_WORKER, 4, (uint8_t[4]){ 0 }, 4, &worker);
	say(control, INIT_SPOOL, 5, (uint8_t[4]){ 0 }, 4, NULL);
}

/* What its user gets. */
static void drain(int control)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct init_header h;
	struct get g;
	ssize_t n;

	while ((n = msg_recv(control, frame, sizeof(frame), NULL, NULL)) > 0)
		CHECK(init_parse(&g, frame, (size_t)n, &h) && h.type >= INIT_HELLO_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct init_stream *s;
	int control, pair[2], before = fd_count();

	closed = cuts = 0;
	CHECK(loop_new(&loop, NULL) == 0 && msg_pair(pair, true, NULL) == 0);
	CHECK(init_stream_new(&(struct init_stream_config){ loop, &events, NULL, NULL }, &s,
			      &control, NULL) == 0);
	CHECK(fd_set_nonblock(control, true) == 0);
	begin(s);
	ask(control, pair[1]);
	fd_close(pair[1]);
	rounds(3);
	drain(control);
	init_stream_feed(s, data, n / 2);
	rounds(1);
	init_stream_feed(s, data + n / 2, n - n / 2);
	rounds(2);
	drain(control);
	CHECK(cuts == closed && cuts <= 1);
	/* The next stream goes on, if there was an end. */
	begin(s);
	rounds(2);
	drain(control);
	init_stream_free(s);
	fd_close(control);
	fd_close(pair[0]);
	loop_free(loop);
	CHECK(fd_count() == before);
	return 0;
}
