/* What garretd believes of a file worker: a worker of our own says what it may not say. */
#include "test.h"

#include <fcntl.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "io/msg.h"
#include "provider/init_box_impl.h"

#define SAY_MAX 8

struct box {
	struct init_box common;
};

static struct worker {
	struct loop *loop;
	struct box box;
	struct box_file *file;
	struct loop_timer timer;
	int sock; /* the worker's end */
	struct {
		uint16_t type;
		uint64_t size; /* of an INFO; how much DATA */
		unsigned n;    /* entries */
		bool cut;      /* the last of them */
	} say[SAY_MAX];
	unsigned infos, entries, ends;
	size_t data;
	bool paused;
	int code;
} t;

static void say(unsigned i)
{
	static const uint8_t bytes[FILE_DATA_MAX];
	const struct file_info info = { .tag.size = t.say[i].size };
	const struct file_end end = { .code = 0 };
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	init_begin(&p, frame, t.say[i].type, 0);
	switch (t.say[i].type) {
	case FILE_INFO:
	case FILE_ENTRIES:
		for (unsigned k = 0; k < t.say[i].n; k++)
			file_put_info(&p, &info);
		p.len -= t.say[i].cut;
		break;
	case FILE_END:
		file_put_end(&p, &end);
		break;
	default:
		put_bytes(&p, bytes, t.say[i].size);
		break;
	}
	assert_int_equal(msg_send(t.sock, frame, init_end(&p), NULL, 0, NULL), 0);
}

/* Instead of init's: the worker has said everything before it is asked. */
uint64_t init_client_worker(struct init_client *c, uint32_t slot, int sock)
{
	(void)c, (void)slot;
	t.sock = fcntl(sock, F_DUPFD_CLOEXEC, 3);
	assert_true(t.sock >= 0);
	for (unsigned i = 0; i < SAY_MAX && t.say[i].type; i++)
		say(i);
	return 0;
}

static void on_info(void *ctx, const struct file_info *info)
{
	(void)ctx, (void)info;
	assert_false(t.paused);
	t.infos++;
}

static void on_entry(void *ctx, const struct file_info *info)
{
	(void)ctx, (void)info;
	t.entries++;
}

static void on_data(void *ctx, const void *data, size_t n)
{
	(void)ctx, (void)data;
	t.data += n;
}

static void on_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	(void)ctx, (void)end;
	t.ends++;
	t.code = err ? err->code : 0;
	loop_quit(t.loop, 0);
}

static const struct file_events events = {
	.info = on_info, .entry = on_entry, .data = on_data, .end = on_end
};

static void go_on(struct loop_timer *timer)
{
	(void)timer;
	t.paused = false;
	init_box_file_pause(t.file, false);
}

/* What a file operation ends with. */
static int ask(uint8_t op, uint64_t length, bool pause)
{
	const struct file_request rq = { .op = op, .path = "/f", .length = length };

	assert_int_equal(loop_new(&t.loop, NULL), 0);
	t.box.common.init = (struct init_client *)&t; /* nobody looks into it */
	t.box.common.loop = t.loop;
	files_init(&t.box.common);
	t.file = init_box_file(&t.box, &rq, &events, NULL, NULL);
	assert_non_null(t.file);
	t.paused = pause;
	if (pause) {
		init_box_file_pause(t.file, true);
		loop_timer_set(t.loop, &t.timer, now_ms() + 50, go_on, NULL);
	}
	loop_run(t.loop);
	t.box.common.init = NULL;
	files_end_all(&t.box.common);
	fd_close(t.sock);
	loop_free(t.loop);
	assert_int_equal(t.ends, 1);
	return t.code;
}

TEST(an_honest_read_is_believed)
{
	t = (struct worker){ .say = { { FILE_INFO, 100, 1, false },
				      { FILE_DATA, 100, 0, false },
				      { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_READ, UINT64_MAX, false), 0);
	assert_int_equal(t.infos, 1);
	assert_int_equal(t.data, 100);
}

TEST(an_honest_write_is_believed)
{
	/* The eight bytes say that none of the ring was used yet. */
	t = (struct worker){ .say = { { FILE_TAKEN, 8, 0, false },
				      { FILE_INFO, 100, 1, false },
				      { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_WRITE, 0, false), 0);
	assert_int_equal(t.infos, 1);
}

TEST(a_file_is_described_once)
{
	t = (struct worker){ .say = { { FILE_INFO, 100, 1, false },
				      { FILE_INFO, 100, 1, false },
				      { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_READ, UINT64_MAX, false), GARRET_PROTOCOL);
	assert_int_equal(t.infos, 1);
	t = (struct worker){ .say = { { FILE_INFO, 100, 2, false }, { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_READ, UINT64_MAX, false), GARRET_PROTOCOL);
	assert_int_equal(t.infos, 0);
}

TEST(a_write_is_answered_with_no_bytes)
{
	t = (struct worker){ .say = { { FILE_DATA, 100, 0, false }, { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_WRITE, 0, false), GARRET_PROTOCOL);
	assert_int_equal(t.data, 0);
}

TEST(a_file_has_no_more_bytes_than_was_said)
{
	t = (struct worker){ .say = { { FILE_INFO, 100, 1, false },
				      { FILE_DATA, 60, 0, false },
				      { FILE_DATA, 60, 0, false },
				      { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_READ, UINT64_MAX, false), GARRET_PROTOCOL);
	assert_int_equal(t.data, 60);
	t = (struct worker){ .say = { { FILE_INFO, 100, 1, false },
				      { FILE_DATA, 60, 0, false },
				      { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_READ, 50, false), GARRET_PROTOCOL);
	t = (struct worker){ .say = { { FILE_DATA, 60, 0, false }, { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_READ, UINT64_MAX, false), GARRET_PROTOCOL);
}

/* The operation ends in the middle of its frame, and nothing is told where that was read. */
TEST(entries_that_are_cut_off_end_the_operation)
{
	t = (struct worker){ .say = { { FILE_ENTRIES, 1, 3, true }, { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_LIST, 0, false), GARRET_PROTOCOL);
	assert_int_equal(t.entries, 2);
}

TEST(who_waits_for_a_worker_can_be_paused)
{
	t = (struct worker){ .say = { { FILE_INFO, 100, 1, false },
				      { FILE_DATA, 100, 0, false },
				      { FILE_END, 0, 0, false } } };
	assert_int_equal(ask(FILE_READ, UINT64_MAX, true), 0);
	assert_int_equal(t.data, 100);
}

TEST_MAIN
