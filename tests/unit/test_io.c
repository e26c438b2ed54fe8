/* The loop's promises and messages with descriptors. */
#include "test.h"

#include <fcntl.h>
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
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

TEST_MAIN
