/* The loop's promises and messages with descriptors. */
#include "test.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/mem.h"
#include "base/time.h"
#include "io/chan.h"
#include "io/loop.h"
#include "io/msg.h"

struct pair {
	struct loop *loop;
	struct loop_io a, b;
	int calls;
};

static void remove_other(struct loop_io *io, uint32_t events)
{
	struct pair *p = io->ctx;

	(void)events;
	p->calls++;
	loop_io_remove(&p->a);
	loop_io_remove(&p->b);
	loop_quit(p->loop, 3);
}

TEST(a_source_removed_in_its_round_is_not_called)
{
	struct pair p = { 0 };
	int fds[2], fds2[2];

	assert_int_equal(loop_new(&p.loop, NULL), 0);
	assert_int_equal(msg_pair(fds, true, NULL), 0);
	assert_int_equal(msg_pair(fds2, true, NULL), 0);
	assert_int_equal(loop_io_add(p.loop, &p.a, fds[0], EPOLLIN, remove_other, &p, NULL), 0);
	assert_int_equal(loop_io_add(p.loop, &p.b, fds2[0], EPOLLIN, remove_other, &p, NULL), 0);
	assert_int_equal(msg_send(fds[1], "x", 1, NULL, 0, NULL), 0);
	assert_int_equal(msg_send(fds2[1], "x", 1, NULL, 0, NULL), 0);
	assert_int_equal(loop_run(p.loop), 3);
	assert_int_equal(p.calls, 1);
	loop_free(p.loop);
	for (int i = 0; i < 2; i++) {
		fd_close(fds[i]);
		fd_close(fds2[i]);
	}
}

static char order[64];

static void note(struct loop_timer *t)
{
	size_t n = strlen(order);

	order[n] = (char)(uintptr_t)t->ctx;
	if (order[n] == 'z')
		loop_quit(t->loop, 0);
}

TEST(timers_fire_in_order_and_cleared_ones_do_not)
{
	struct loop *l;
	struct loop_timer t[40] = { 0 };
	uint64_t now = now_ms();

	memset(order, 0, sizeof(order));
	assert_int_equal(loop_new(&l, NULL), 0);
	for (unsigned i = 0; i < 26; i++)
		loop_timer_set(l, &t[i], now + (i * 7 % 26), note,
			       (void *)(uintptr_t)('a' + i * 7 % 26));
	for (unsigned i = 0; i < 26; i += 2)
		if (t[i].at_ms != now + 25)
			loop_timer_clear(&t[i]);
	loop_run(l);
	for (size_t i = 1; order[i]; i++)
		assert_true(order[i - 1] < order[i]);
	assert_true(strlen(order) >= 13);
	loop_free(l);
}

TEST(descriptors_travel_and_surplus_ones_are_closed)
{
	int s[2], fd = open("/dev/null", O_RDONLY | O_CLOEXEC), fds[3];
	struct msg_fds got;
	char buf[8];

	assert_int_equal(msg_pair(s, false, NULL), 0);
	fds[0] = fds[1] = fds[2] = fd;
	assert_int_equal(msg_send(s[0], "abc", 3, fds, 3, NULL), 0);
	assert_int_equal(msg_recv(s[1], buf, sizeof(buf), &got, NULL), 3);
	assert_int_equal(got.n, 3);
	msg_fds_close(&got);
	/* Nobody expected descriptors here: all closed, an error. */
	assert_int_equal(msg_send(s[0], "abc", 3, fds, 3, NULL), 0);
	assert_int_equal(msg_recv(s[1], buf, sizeof(buf), NULL, NULL), -GARRET_PROTOCOL);
	/* Longer than the buffer: an error too. */
	assert_int_equal(msg_send(s[0], "0123456789", 10, NULL, 0, NULL), 0);
	assert_int_equal(msg_recv(s[1], buf, sizeof(buf), &got, NULL), -GARRET_PROTOCOL);
	fd_close(s[0]);
	assert_int_equal(msg_recv(s[1], buf, sizeof(buf), &got, NULL), 0);
	fd_close(s[1]);
	fd_close(fd);
}

/* ---- framed connections ---- */

struct talk {
	struct loop *loop;
	struct chan chan;
	int peer;
	int frames, rooms, ends, pause_at;
	struct garret_error why;
	bool close_on_room;
};

static void on_talk_frame(struct chan *c, const uint8_t *frame, size_t n, struct msg_fds *fds)
{
	struct talk *t = c->ctx;

	(void)frame, (void)n, (void)fds;
	if (++t->frames == t->pause_at)
		chan_pause(c, true);
}

static void on_talk_end(struct chan *c, const struct garret_error *err)
{
	struct talk *t = c->ctx;

	t->ends++;
	t->why = *err;
}

static void on_talk_room(struct chan *c)
{
	struct talk *t = c->ctx;

	t->rooms++;
	if (t->close_on_room) {
		chan_close(c);
		memset(c, 0xEE, sizeof(*c)); /* as if it were freed */
	}
}

static void talk_start(struct talk *t)
{
	int fds[2];

	*t = (struct talk){ .chan = { .on_frame = on_talk_frame,
				      .on_end = on_talk_end,
				      .on_room = on_talk_room,
				      .room_mark = 2000,
				      .ctx = t } };
	assert_int_equal(loop_new(&t->loop, NULL), 0);
	assert_int_equal(msg_pair(fds, true, NULL), 0);
	t->peer = fds[1];
	assert_int_equal(chan_open(&t->chan, t->loop, fds[0], 64, NULL), 0);
}

static void talk_end(struct talk *t)
{
	if (!t->close_on_room)
		chan_close(&t->chan);
	fd_close(t->peer);
	loop_free(t->loop);
}

static void on_run_over(struct loop_timer *timer)
{
	loop_quit(timer->loop, 0);
}

/* Let the loop run; how much CPU time it took, in ms. */
static unsigned talk_run(struct talk *t, unsigned ms)
{
	struct loop_timer timer = { 0 };
	clock_t start = clock();

	loop_timer_set(t->loop, &timer, now_ms() + ms, on_run_over, NULL);
	loop_run(t->loop);
	return (unsigned)((clock() - start) / (CLOCKS_PER_SEC / 1000));
}

static void peer_says(struct talk *t, int n)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(msg_send(t->peer, "x", 1, NULL, 0, NULL), 0);
}

/* Send frames of 1000 bytes until more than n bytes wait. */
static void talk_fill(struct talk *t, size_t n)
{
	static const char frame[1000];

	while (t->chan.queued_bytes <= n)
		chan_send(&t->chan, frame, sizeof(frame), NULL, 0);
}

static int peer_takes(struct talk *t)
{
	static char buf[1000];
	int n = 0;

	while (msg_recv(t->peer, buf, sizeof(buf), NULL, NULL) > 0)
		n++;
	return n;
}

TEST(a_paused_chan_reads_nothing)
{
	struct talk t;

	talk_start(&t);
	chan_pause(&t.chan, true);
	peer_says(&t, 3);
	assert_in_range(talk_run(&t, 100), 0, 50);
	assert_int_equal(t.frames, 0);
	talk_fill(&t, 0); /* sending goes on, and wakes no reading */
	while (t.chan.queued_bytes) {
		peer_takes(&t);
		talk_run(&t, 2);
	}
	assert_int_equal(t.frames, 0);
	chan_pause(&t.chan, false);
	talk_run(&t, 20);
	assert_int_equal(t.frames, 3);
	peer_says(&t, 3);
	t.pause_at = 5;
	talk_run(&t, 20);
	assert_int_equal(t.frames, 5);
	assert_int_equal(t.ends, 0);
	talk_end(&t);
}

TEST(a_peer_that_hangs_up_on_a_paused_chan_is_heard_first)
{
	struct talk t;

	talk_start(&t);
	chan_pause(&t.chan, true);
	peer_says(&t, 3);
	t.peer = fd_close(t.peer);
	assert_in_range(talk_run(&t, 200), 0, 100); /* and doesn't keep the loop busy */
	assert_int_equal(t.frames + t.ends, 0);
	chan_pause(&t.chan, false);
	talk_run(&t, 20);
	assert_int_equal(t.frames, 3);
	assert_int_equal(t.ends, 1);
	assert_int_equal(t.why.code, 0);
	talk_end(&t);
}

TEST(a_paused_chan_ends_when_it_cannot_send)
{
	for (int waiting = 0; waiting < 2; waiting++) {
		struct talk t;

		talk_start(&t);
		chan_pause(&t.chan, true);
		if (waiting)
			talk_fill(&t, 0);
		t.peer = fd_close(t.peer);
		if (!waiting) {
			talk_run(&t, 10);
			assert_int_equal(t.ends, 0);
			chan_send(&t.chan, "x", 1, NULL, 0);
			assert_int_equal(t.ends, 0); /* not from inside */
		}
		talk_run(&t, 20);
		assert_int_equal(t.ends, 1);
		assert_false(chan_is_open(&t.chan));
		talk_end(&t);
	}
}

TEST(who_filled_the_queue_is_told_when_it_is_empty)
{
	struct talk t;
	int sent;

	talk_start(&t);
	talk_fill(&t, 1000); /* 2000 bytes are not above the mark */
	talk_run(&t, 10);
	peer_takes(&t);
	talk_run(&t, 10);
	assert_int_equal(t.chan.queued_bytes, 0);
	assert_int_equal(t.rooms, 0);
	talk_fill(&t, 100000);
	talk_run(&t, 10);
	assert_int_equal(t.rooms, 0);
	for (sent = 0; t.chan.queued_bytes && sent < 100; sent++) {
		peer_takes(&t);
		talk_run(&t, 2);
	}
	talk_run(&t, 10);
	assert_int_equal(t.rooms, 1);
	talk_fill(&t, 0);
	peer_takes(&t);
	talk_run(&t, 10);
	assert_int_equal(t.chan.queued_bytes, 0);
	assert_int_equal(t.rooms, 1);
	talk_end(&t);
}

TEST(a_chan_may_be_closed_when_it_has_room)
{
	struct talk t;

	talk_start(&t);
	talk_fill(&t, 3000);
	t.close_on_room = true;
	for (int i = 0; !t.rooms && i < 100; i++) {
		peer_takes(&t);
		talk_run(&t, 2);
	}
	assert_int_equal(t.rooms, 1);
	talk_run(&t, 10);
	talk_end(&t);
}

TEST(a_frame_that_loses_a_descriptor_is_not_sent)
{
	struct talk t;
	struct rlimit saved, none;
	int whole, next;

	talk_start(&t);
	talk_fill(&t, 0);
	peer_says(&t, 2);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &saved), 0);
	next = fcntl(t.peer, F_DUPFD_CLOEXEC, 3);
	fd_close(next);
	none = (struct rlimit){ .rlim_cur = (rlim_t)next, .rlim_max = saved.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	chan_send(&t.chan, "with", 4, &t.peer, 1);
	chan_send(&t.chan, "behind", 6, NULL, 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &saved), 0);
	assert_int_equal(t.ends, 0);
	talk_run(&t, 20);
	assert_int_equal(t.frames, 2); /* what was said before is heard */
	assert_int_equal(t.ends, 1);
	assert_int_equal(t.why.sys, EMFILE);
	for (whole = 0;; whole++) {
		char buf[1000];
		ssize_t n = msg_recv(t.peer, buf, sizeof(buf), NULL, NULL);

		if (n <= 0)
			break;
		assert_int_equal(n, 1000);
	}
	assert_true(whole > 0);
	talk_end(&t);
}

TEST_MAIN
