/* The owner's end of a stream: what it makes of a relay that is none, too new, or lies. */
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "io/msg.h"
#include "provider/init_stream.h"

static const uint8_t run_id[INIT_RUN_ID] = { 1, 2, 3 };

static struct owner {
	struct loop *loop;
	struct init_stream *stream;
	int control, ours; /* ours: the file of a spool */
	struct strbuf said;
	unsigned lives, closed;
	int cut; /* the code, once it was */
	char why[sizeof(((struct garret_error *)NULL)->msg)];
} t;

static size_t on_write(void *ctx, const void *data, size_t n)
{
	(void)ctx;
	strbuf_add(&t.said, data, n);
	return n;
}

static void on_close(void *ctx)
{
	(void)ctx;
	t.closed++;
}

static void on_live(void *ctx)
{
	(void)ctx;
	t.lives++;
}

static void on_cut(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	t.cut = (int)err->code;
	(void)snprintf(t.why, sizeof(t.why), "%s", err->msg);
}

static int on_spool(void *ctx, uint32_t index, int stream)
{
	(void)ctx;
	assert_int_equal(index, 3);
	assert_int_equal(stream, 0);
	t.ours = memfd_create("garret-test", MFD_CLOEXEC);
	return fcntl(t.ours, F_DUPFD_CLOEXEC, 3);
}

static const struct init_stream_events events = { on_live, on_cut, on_spool };

static void quit(struct loop_later *l)
{
	(void)l;
	loop_quit(t.loop, 0);
}

static void rounds(void)
{
	for (int i = 0; i < 3; i++) {
		struct loop_later later = { 0 };

		loop_later_add(t.loop, &later, quit, NULL);
		loop_run(t.loop);
	}
}

static void begin(void)
{
	t = (struct owner){ .ours = -EBADF };
	strbuf_init(&t.said);
	assert_int_equal(loop_new(&t.loop, NULL), 0);
	assert_int_equal(
		init_stream_new(&(struct init_stream_config){ t.loop, &events, NULL, NULL },
				&t.stream, &t.control, NULL),
		0);
	init_stream_begin(t.stream, &(struct init_transport){ on_write, NULL, on_close, NULL });
	rounds();
	assert_true(t.said.len > 0); /* it doesn't wait to be spoken to */
}

static void end(void)
{
	init_stream_free(t.stream);
	fd_close(t.control);
	fd_close(t.ours);
	strbuf_release(&t.said);
	loop_free(t.loop);
	assert_int_equal(t.closed, 1);
}

static void feed(uint8_t type, const void *body, size_t n)
{
	uint8_t header[STREAM_HEADER_BYTES];

	stream_put_header(header, type, 0, n);
	init_stream_feed(t.stream, header, sizeof(header));
	init_stream_feed(t.stream, body, n);
	rounds();
}

static void hello(uint16_t major)
{
	uint8_t body[128];
	struct put p;

	put_init(&p, body, sizeof(body));
	stream_put_hello(&p, &(struct stream_hello){ major, 0, { 7 }, "relay" });
	feed(STREAM_HELLO, body, p.len);
}

static void init_says(uint16_t type, const void *body, size_t n)
{
	uint8_t frame[256];
	struct put p;

	init_begin(&p, frame, type, 0);
	p.cap = sizeof(frame);
	put_bytes(&p, body, n);
	feed(STREAM_CONTROL, frame, init_end(&p));
}

static void ask(uint16_t type, const void *body, size_t n)
{
	uint8_t frame[256];
	struct put p;

	init_begin(&p, frame, type, 1);
	p.cap = sizeof(frame);
	put_bytes(&p, body, n);
	assert_int_equal(msg_send(t.control, frame, init_end(&p), NULL, 0, NULL), 0);
	rounds();
}

/* Live, with a command that may write 1000 bytes. */
static void begin_run(void)
{
	struct init_run run = { .output_limit = 1000,
				.cwd = "",
				.argc = 1,
				.strings_bytes = 6,
				.strings = (const uint8_t *)"\1\0\0\0a" };
	uint8_t body[128];
	struct put p;

	begin();
	hello(STREAM_MAJOR);
	init_says(INIT_RESUMED, (uint8_t[8]){ 0 }, 8);
	assert_int_equal(t.lives, 1);
	ask(INIT_HELLO, (uint8_t[20]){ 1 }, 20);
	memcpy(run.id, run_id, sizeof(run.id));
	put_init(&p, body, sizeof(body));
	init_put_run(&p, &run);
	ask(INIT_RUN, body, p.len);
}

/* The type of the next frame that the socket's user gets; 0: there is none. */
static unsigned got(void)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct init_header h;
	struct get g;
	ssize_t n;

	assert_int_equal(fd_set_nonblock(t.control, true), 0);
	n = msg_recv(t.control, frame, sizeof(frame), NULL, NULL);
	if (n <= 0)
		return 0;
	assert_true(init_parse(&g, frame, (size_t)n, &h));
	return h.type;
}

static void say_spooled(uint64_t bytes)
{
	uint8_t body[64];
	struct put p;

	put_init(&p, body, sizeof(body));
	put_bytes(&p, run_id, sizeof(run_id));
	put_u8(&p, 1);
	put_u32(&p, 3);
	put_u64(&p, bytes);
	init_says(INIT_SPOOLED, body, p.len);
}

static void say_out(uint64_t offset, const char *text)
{
	uint8_t body[64];
	struct put p;

	put_init(&p, body, sizeof(body));
	put_bytes(&p, run_id, sizeof(run_id));
	put_u8(&p, 1);
	put_u64(&p, offset);
	put_bytes(&p, text, strlen(text));
	init_says(INIT_OUT, body, p.len);
}

static void say_exit(uint64_t total)
{
	struct init_exit e = { .spooled = { 1, 0 }, .spool_index = 3, .total = { total, 0 } };
	uint8_t body[256];
	struct put p;

	put_init(&p, body, sizeof(body));
	put_bytes(&p, run_id, sizeof(run_id));
	init_put_exit(&p, &e);
	init_says(INIT_EXIT, body, p.len);
}

static void say_data(uint64_t offset, size_t n)
{
	uint8_t body[2000] = { 0 };
	struct put p;

	put_init(&p, body, sizeof(body));
	stream_put_spool(&p, &(struct stream_spool){ .index = 3, .offset = offset }, false);
	feed(STREAM_SPOOL_DATA, body, p.len + n);
}

TEST(what_says_something_else_is_shown)
{
	begin();
	init_stream_feed(t.stream, "OCI runtime exec failed: no such file\n", 38);
	rounds();
	assert_int_equal(t.cut, GARRET_PROTOCOL);
	assert_non_null(strstr(t.why, "OCI runtime exec failed"));
	end();
}

TEST(another_major_version_is_not_spoken_to)
{
	begin();
	hello(STREAM_MAJOR + 1);
	assert_int_equal(t.cut, GARRET_UNSUPPORTED);
	assert_int_equal(t.lives, 0);
	end();
}

TEST(that_there_is_no_init_is_final)
{
	uint8_t body[64];
	struct put p;

	begin();
	put_init(&p, body, sizeof(body));
	stream_put_end(&p, &(struct stream_end){ STREAM_END_NO_INIT, 2, "connect to init" });
	feed(STREAM_END, body, p.len);
	assert_int_equal(t.cut, GARRET_GONE);
	end();
}

TEST(an_end_is_told_when_all_output_is_here)
{
	begin_run();
	assert_int_equal(got(), INIT_HELLO_OK);
	say_spooled(100);
	assert_int_equal(got(), INIT_SPOOLED);
	say_exit(300);
	say_data(0, 100);
	assert_int_equal(got(), INIT_SPOOLED);
	assert_int_equal(got(), 0);
	say_data(100, 200);
	assert_int_equal(got(), INIT_SPOOLED);
	assert_int_equal(got(), INIT_EXIT);
	assert_int_equal(lseek(t.ours, 0, SEEK_END), 300);
	assert_int_equal(t.cut, 0);
	end();
}

TEST(what_is_lost_in_there_ends_the_waiting)
{
	begin_run();
	assert_int_equal(got(), INIT_HELLO_OK);
	say_exit(300);
	assert_int_equal(got(), INIT_SPOOLED);
	say_data(0, 0);
	assert_int_equal(got(), INIT_SPOOLED);
	assert_int_equal(got(), INIT_EXIT);
	end();
}

TEST(more_output_than_the_limit_is_a_lie)
{
	begin_run();
	say_spooled(1000);
	assert_int_equal(t.cut, 0);
	say_spooled(1001);
	assert_int_equal(t.cut, GARRET_PROTOCOL);
	end();
}

TEST(more_of_a_file_than_was_asked_for_is_a_lie)
{
	begin_run();
	say_spooled(100);
	say_data(0, 101);
	assert_int_equal(t.cut, GARRET_PROTOCOL);
	end();
}

TEST(output_comes_once_and_without_a_hole)
{
	begin_run();
	assert_int_equal(got(), INIT_HELLO_OK);
	say_out(0, "abc");
	assert_int_equal(got(), INIT_OUT);
	say_out(0, "abc");
	assert_int_equal(got(), 0);
	say_out(1, "bcd");
	assert_int_equal(got(), INIT_OUT);
	assert_int_equal(t.cut, 0);
	say_out(5, "f");
	assert_int_equal(t.cut, GARRET_PROTOCOL);
	end();
}

TEST_MAIN
