/* Frames of a byte stream, and channels over it. */
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "io/msg.h"
#include "mux/mux.h"

/* ---- frames ---- */

static size_t put_frame(uint8_t *at, uint8_t type, uint32_t channel, const char *body)
{
	stream_put_header(at, type, channel, strlen(body));
	memcpy(at + STREAM_HEADER_BYTES, body, strlen(body));
	return STREAM_HEADER_BYTES + strlen(body);
}

TEST(frames_arrive_however_the_bytes_do)
{
	uint8_t bytes[256];
	size_t n = put_frame(bytes, STREAM_DATA, 7, "first");

	n += put_frame(bytes + n, STREAM_CLOSE, 8, "");
	n += put_frame(bytes + n, STREAM_DATA, 7, "second");
	for (size_t piece = 1; piece <= n; piece++) {
		struct stream_reader r = { .have = 0 };
		struct stream_frame f;
		unsigned frames = 0;

		for (size_t at = 0; at < n; at += piece) {
			const uint8_t *data = bytes + at;
			size_t left = MIN(piece, n - at);

			while (stream_read(&r, &data, &left, &f) == 1) {
				static const char *const want[] = { "first", "", "second" };

				assert_true(frames < 3);
				assert_int_equal(f.channel, frames == 1 ? 8 : 7);
				assert_int_equal(f.n, strlen(want[frames]));
				assert_memory_equal(f.data, want[frames], f.n);
				frames++;
			}
			assert_int_equal(left, 0);
		}
		assert_int_equal(frames, 3);
		stream_reader_release(&r);
	}
}

static int read_one(const uint8_t *bytes, size_t n)
{
	struct stream_reader r = { .have = 0 };
	struct stream_frame f;
	int rc = stream_read(&r, &bytes, &n, &f);

	stream_reader_release(&r);
	return rc;
}

TEST(what_is_no_frame_is_refused_by_its_header)
{
	uint8_t bytes[STREAM_HEADER_BYTES];

	stream_put_header(bytes, STREAM_DATA, 1, 0);
	assert_int_equal(read_one(bytes, sizeof(bytes)), 1);
	stream_put_header(bytes, STREAM_DATA, 1, STREAM_FRAME_MAX);
	assert_int_equal(read_one(bytes, sizeof(bytes)), 0);
	stream_put_header(bytes, STREAM_DATA, 1, STREAM_FRAME_MAX + 1);
	assert_int_equal(read_one(bytes, sizeof(bytes)), -1);
	stream_put_header(bytes, 0, 1, 0);
	assert_int_equal(read_one(bytes, sizeof(bytes)), -1);
	stream_put_header(bytes, STREAM_TYPES, 1, 0);
	assert_int_equal(read_one(bytes, sizeof(bytes)), -1);
	stream_put_header(bytes, STREAM_DATA, 1, 0);
	bytes[11] = 1;
	assert_int_equal(read_one(bytes, sizeof(bytes)), -1);
	assert_int_equal(read_one((const uint8_t *)"OCI runtime exec failed", 23), -1);
}

TEST(a_hello_of_somebody_else_is_none)
{
	uint8_t body[100];
	struct stream_hello h = { .major = 1, .minor = 2, .program = "p" }, got;
	struct put p;
	struct get g;

	put_init(&p, body, sizeof(body));
	stream_put_hello(&p, &h);
	get_init(&g, body, p.len);
	assert_true(stream_get_hello(&g, &got));
	assert_int_equal(got.minor, 2);
	assert_string_equal(got.program, "p");
	get_init(&g, body, p.len - 1);
	assert_false(stream_get_hello(&g, &got));
	body[0] ^= 1;
	get_init(&g, body, p.len);
	assert_false(stream_get_hello(&g, &got));
}

TEST(a_part_of_a_spool_has_its_bounds)
{
	struct stream_spool part = { .index = 3, .stream = 1, .offset = 9, .length = 10 }, got;
	uint8_t body[100];
	struct put p;
	struct get g;

	for (int i = 0; i < 4; i++) {
		part.stream = i == 1 ? 2 : 1;
		part.length = i == 2 ? STREAM_SPOOL_READ_MAX + 1 : 10;
		part.offset = i == 3 ? UINT64_MAX : 9;
		put_init(&p, body, sizeof(body));
		stream_put_spool(&p, &part, true);
		get_init(&g, body, p.len);
		assert_int_equal(stream_get_spool(&g, &got, true), i == 0);
	}
}

/* ---- channels ---- */

/* Two ends; what one writes is fed to the other when pump() says so. */
static struct end {
	struct mux mux;
	struct strbuf wire; /* on its way to the other */
	size_t room;        /* bytes that its transport takes */
	unsigned frames, broken;
} ends[2];
static struct loop *loop;

static size_t write_wire(void *ctx, const void *data, size_t n)
{
	struct end *e = ctx;

	n = MIN(n, e->room);
	strbuf_add(&e->wire, data, n);
	e->room -= n;
	return n;
}

static bool on_frame(void *ctx, const struct stream_frame *f)
{
	struct end *e = ctx;

	e->frames++;
	return f->type == STREAM_PING;
}

static void on_broken(void *ctx, const char *why)
{
	struct end *e = ctx;

	(void)why;
	e->broken++;
}

static const struct mux_events events = { .frame = on_frame, .broken = on_broken };

static void quit(struct loop_later *l)
{
	(void)l;
	loop_quit(loop, 0);
}

/* Some rounds of the loop, and everything on the wires arrives. */
static void pump(void)
{
	for (int i = 0; i < 20; i++) {
		struct loop_later later = { 0 };

		loop_later_add(loop, &later, quit, NULL);
		loop_run(loop);
		for (int k = 0; k < 2; k++) {
			struct strbuf wire = ends[k].wire;

			strbuf_init(&ends[k].wire);
			mux_feed(&ends[1 - k].mux, wire.buf, wire.len);
			strbuf_release(&wire);
			mux_writable(&ends[k].mux);
		}
	}
}

static void begin(void)
{
	assert_int_equal(loop_new(&loop, NULL), 0);
	for (int i = 0; i < 2; i++) {
		ends[i] = (struct end){ .room = SIZE_MAX };
		strbuf_init(&ends[i].wire);
		mux_begin(&ends[i].mux, loop, &(struct mux_transport){ write_wire, &ends[i] },
			  &events, &ends[i]);
	}
}

static void end(void)
{
	for (int i = 0; i < 2; i++) {
		mux_end(&ends[i].mux);
		strbuf_release(&ends[i].wire);
	}
	loop_free(loop);
}

/* A channel of messages between two sockets. */
static void open_channel(uint32_t id, int ours[2])
{
	for (int i = 0; i < 2; i++) {
		int pair[2];

		assert_int_equal(msg_pair(pair, true, NULL), 0);
		assert_non_null(
			mux_open(&ends[i].mux, id, MUX_MESSAGES, pair[0], NULL, NULL, NULL));
		ours[i] = pair[1];
	}
}

static size_t fill(int fd)
{
	static const uint8_t message[60000];
	size_t n = 0;

	while (msg_send(fd, message, sizeof(message), NULL, 0, NULL) == 0)
		n += sizeof(message);
	return n;
}

static size_t drain(int fd)
{
	uint8_t message[STREAM_FRAME_MAX];
	size_t n = 0;
	ssize_t got;

	while ((got = msg_recv(fd, message, sizeof(message), NULL, NULL)) > 0)
		n += (size_t)got;
	return n;
}

TEST(a_channel_that_is_not_read_holds_a_window_and_nobody_up)
{
	int slow[2], quick[2];
	size_t sent = 0, got = 0, now;
	uint8_t byte;

	begin();
	open_channel(1, slow);
	open_channel(2, quick);
	do {
		now = fill(slow[0]);
		sent += now;
		pump();
	} while (now);
	assert_true(sent >= STREAM_WINDOW / 2);
	assert_true(sent < STREAM_WINDOW + (1u << 20)); /* with what two sockets hold */
	for (int i = 0; i < 50; i++) {
		assert_int_equal(msg_send(quick[0], "x", 1, NULL, 0, NULL), 0);
		pump();
		assert_int_equal(msg_recv(quick[1], &byte, 1, NULL, NULL), 1);
	}
	do {
		now = drain(slow[1]);
		got += now;
		pump();
	} while (now);
	assert_int_equal(got, sent);
	assert_true(fill(slow[0]) > 0); /* credit came back */
	assert_int_equal(ends[0].broken + ends[1].broken, 0);
	end();
	for (int i = 0; i < 2; i++) {
		fd_close(slow[i]);
		fd_close(quick[i]);
	}
}

TEST(a_transport_that_takes_nothing_stops_all_reading)
{
	int a[2];
	size_t sent, got = 0, now;

	begin();
	open_channel(1, a);
	ends[0].room = 1000;
	for (sent = 0; (now = fill(a[0])); sent += now)
		pump();
	assert_true(ends[0].mux.full);
	assert_true(ends[0].mux.out.len - ends[0].mux.out_at < 512 * 1024);
	ends[0].room = SIZE_MAX;
	do {
		pump();
		now = drain(a[1]);
		got += now;
	} while (now);
	assert_int_equal(got, sent);
	end();
	fd_close(a[0]);
	fd_close(a[1]);
}

TEST(a_channel_ends_behind_its_last_message)
{
	int a[2];
	uint8_t byte;

	begin();
	open_channel(1, a);
	assert_int_equal(msg_send(a[0], "x", 1, NULL, 0, NULL), 0);
	fd_close(a[0]);
	pump();
	assert_int_equal(msg_recv(a[1], &byte, 1, NULL, NULL), 1);
	assert_int_equal(msg_recv(a[1], &byte, 1, NULL, NULL), 0);
	assert_int_equal(ends[0].mux.n_channels + ends[1].mux.n_channels, 0);
	/* What is said on it by somebody who doesn't know yet is no fault. */
	mux_send(&ends[0].mux, STREAM_DATA, 1, "late", 4);
	pump();
	assert_int_equal(ends[1].broken, 0);
	end();
	fd_close(a[1]);
}

TEST(a_pipe_gives_all_its_bytes_and_its_end)
{
	static uint8_t bytes[3 << 20];
	int in[2], out[2];
	size_t sent = 0, got = 0;
	ssize_t n = 1;

	begin();
	assert_int_equal(pipe2(in, O_NONBLOCK | O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_NONBLOCK | O_CLOEXEC), 0);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 7 % 251);
	assert_non_null(mux_open(&ends[0].mux, 5, MUX_PIPE_IN, in[0], NULL, NULL, NULL));
	assert_non_null(mux_open(&ends[1].mux, 5, MUX_PIPE_OUT, out[1], NULL, NULL, NULL));
	for (int idle = 0; n != 0 && idle < 2000; idle++) {
		uint8_t buf[50000];

		if (sent < sizeof(bytes)) {
			n = write(in[1], bytes + sent, sizeof(bytes) - sent);
			sent += n > 0 ? (size_t)n : 0;
			if (sent == sizeof(bytes))
				fd_close(in[1]);
		}
		pump();
		n = read(out[0], buf, sizeof(buf));
		if (n > 0) {
			assert_memory_equal(buf, bytes + got, (size_t)n);
			got += (size_t)n;
		}
	}
	assert_int_equal(n, 0);
	assert_int_equal(got, sizeof(bytes));
	end();
	fd_close(out[0]);
}

TEST(more_than_the_window_breaks_the_stream)
{
	static const uint8_t data[60000];
	int a[2];

	begin();
	open_channel(1, a);
	for (int i = 0; i < 40 && !ends[1].broken; i++) {
		mux_send(&ends[0].mux, STREAM_DATA, 1, data, sizeof(data));
		pump();
	}
	assert_int_equal(ends[1].broken, 1);
	end();
	fd_close(a[0]);
	fd_close(a[1]);
}

TEST(credit_that_was_never_taken_breaks_the_stream)
{
	static const uint8_t one[4] = { 1 };
	int a[2];

	begin();
	open_channel(1, a);
	mux_send(&ends[0].mux, STREAM_CREDIT, 1, one, sizeof(one));
	pump();
	assert_int_equal(ends[1].broken, 1);
	end();
	fd_close(a[0]);
	fd_close(a[1]);
}

TEST_MAIN
