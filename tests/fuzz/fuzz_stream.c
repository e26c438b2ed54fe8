/* A byte stream of frames: however it is cut into pieces the frames are the same, bodies come out
 * as they went in, and channels keep no more than their windows. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "fuzz.h"
#include "io/msg.h"
#include "mux/mux.h"

static uint8_t again[STREAM_FRAME_MAX];

static void bodies(const struct stream_frame *f)
{
	struct stream_hello h;
	struct stream_spool s;
	struct stream_end e;
	struct put p;
	struct get g;

	get_init(&g, f->data, f->n);
	put_init(&p, again, sizeof(again));
	if (stream_get_hello(&g, &h)) {
		CHECK(strlen(h.program) <= STREAM_PROGRAM_MAX);
		stream_put_hello(&p, &h);
		CHECK(!p.bad && p.len == f->n && !memcmp(again, f->data, f->n));
	}
	get_init(&g, f->data, f->n);
	put_init(&p, again, sizeof(again));
	if (stream_get_spool(&g, &s, true) && get_done(&g)) {
		CHECK(s.stream < 2 && s.length <= STREAM_SPOOL_READ_MAX);
		stream_put_spool(&p, &s, true);
		CHECK(!p.bad && p.len == f->n && !memcmp(again, f->data, f->n));
	}
	get_init(&g, f->data, f->n);
	put_init(&p, again, sizeof(again));
	if (stream_get_end(&g, &e)) {
		CHECK(strlen(e.msg) <= STREAM_MSG_MAX);
		stream_put_end(&p, &e);
		CHECK(!p.bad && p.len == f->n && !memcmp(again, f->data, f->n));
	}
}

/* How many frames there are, and a number that depends on all of them. */
static uint64_t frames(const uint8_t *data, size_t n, size_t piece)
{
	struct stream_reader r = { .have = 0 };
	uint64_t sum = 0;
	int rc = 0;

	for (size_t at = 0; at < n && rc >= 0; at += piece) {
		const uint8_t *from = data + at;
		size_t left = MIN(piece, n - at);
		struct stream_frame f;

		while ((rc = stream_read(&r, &from, &left, &f)) > 0) {
			CHECK(f.n <= STREAM_FRAME_MAX && f.type && f.type < STREAM_TYPES);
			sum = sum * 31 + f.type + f.channel + f.n + 1;
			for (size_t i = 0; i < f.n; i++)
				sum = sum * 31 + f.data[i];
			if (piece >= n)
				bodies(&f);
		}
		CHECK(rc < 0 || !left);
	}
	stream_reader_release(&r);
	return sum;
}

static size_t take_all(void *ctx, const void *data, size_t n)
{
	(void)ctx, (void)data;
	return n;
}

static bool on_frame(void *ctx, const struct stream_frame *f)
{
	(void)ctx;
	return f->type != STREAM_END;
}

static void on_broken(void *ctx, const char *why)
{
	CHECK(*why);
	(*(unsigned *)ctx)++;
}

static void channels(const uint8_t *data, size_t n)
{
	static const struct mux_events events = { .frame = on_frame, .broken = on_broken };
	unsigned broken = 0;
	int pair[2], out[2], in[2];
	struct mux_channel *c;
	struct loop *loop;
	struct mux m;

	CHECK(loop_new(&loop, NULL) == 0 && msg_pair(pair, true, NULL) == 0);
	CHECK(pipe2(out, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(in, O_CLOEXEC) == 0);
	mux_begin(&m, loop, &(struct mux_transport){ take_all, NULL }, &events, &broken);
	(void)mux_open(&m, 1, MUX_MESSAGES, pair[0], NULL, NULL, NULL);
	(void)mux_open(&m, 2, MUX_PIPE_OUT, out[1], NULL, NULL, NULL);
	(void)mux_open(&m, 3, MUX_PIPE_IN, in[0], NULL, NULL, NULL);
	mux_feed(&m, data, n);
	CHECK(broken <= 1 && m.n_channels <= 3);
	list_foreach (c, &m.channels, link)
		CHECK(c->allowed <= STREAM_WINDOW && c->credit <= STREAM_WINDOW &&
		      c->queue.len <= STREAM_WINDOW + STREAM_FRAME_MAX);
	mux_end(&m);
	(void)close(pair[1]);
	(void)close(out[0]);
	(void)close(in[1]);
	loop_free(loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	uint64_t whole;

	if (!n)
		return 0;
	whole = frames(data, n, n);
	CHECK(frames(data, n, 1) == whole && frames(data, n, 13) == whole);
	channels(data, n);
	return 0;
}
