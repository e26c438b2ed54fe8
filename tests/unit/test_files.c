/*
 * What garretd believes of a file worker: a worker of our own says what it may not say.
 * And that no operation waits without end: workers of our own answer, or die, before
 * init says that it has begun them.
 */
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
	unsigned wanted; /* so many operations at once; 0: one, as above */
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

/* ---- workers of a session, and an init that is late with its word ---- */

#define LATE_MS 30
#define STUCK_MS 2000

static struct late {
	struct loop_io io;
	struct loop_timer word;
	uint64_t number;
	int sock;
} * workers[32];
static unsigned n_workers, to_die;

static void hang_up(struct late *w)
{
	loop_io_remove(&w->io);
	w->sock = fd_close(w->sock);
}

static void on_request(struct loop_io *io, uint32_t ready)
{
	struct late *w = io->ctx;
	static const struct file_end end = { .code = 0 };
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	(void)ready;
	if (msg_recv(w->sock, frame, sizeof(frame), NULL, NULL) <= 0 || to_die) {
		to_die -= to_die > 0;
		hang_up(w);
		return;
	}
	init_begin(&p, frame, FILE_END, 0);
	file_put_end(&p, &end);
	assert_int_equal(msg_send(w->sock, frame, init_end(&p), NULL, 0, NULL), 0);
}

static void late_word(struct loop_timer *timer)
{
	struct late *w = timer->ctx;

	files_on_start(&t.box.common, w->number, NULL);
}

static uint64_t start_late(int sock)
{
	struct late *w = xnew(struct late);

	assert_true(n_workers < ARRAY_SIZE(workers));
	workers[n_workers++] = w;
	w->number = n_workers;
	w->sock = fcntl(sock, F_DUPFD_CLOEXEC, 3);
	assert_int_equal(loop_io_add(t.loop, &w->io, w->sock, EPOLLIN, on_request, w, NULL), 0);
	loop_timer_set(t.loop, &w->word, now_ms() + LATE_MS, late_word, w);
	return w->number;
}

/* Instead of init's: the worker has said everything before it is asked. */
uint64_t init_client_worker(struct init_client *c, uint32_t slot, int sock)
{
	(void)c, (void)slot;
	if (t.wanted)
		return start_late(sock);
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
	if (!t.code && err)
		t.code = err->code;
	if (t.ends >= t.wanted)
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

static void give_up(struct loop_timer *timer)
{
	(void)timer;
	loop_quit(t.loop, 1);
}

/* As many operations at once; how many of them ended. */
static unsigned ask_many(unsigned n, unsigned deaths)
{
	const struct file_request rq = { .op = FILE_STAT, .path = "/f" };

	t = (struct worker){ .wanted = n };
	n_workers = 0;
	to_die = deaths;
	assert_int_equal(loop_new(&t.loop, NULL), 0);
	t.box.common.init = (struct init_client *)&t;
	t.box.common.loop = t.loop;
	files_init(&t.box.common);
	for (unsigned i = 0; i < n; i++)
		assert_non_null(init_box_file(&t.box, &rq, &events, NULL, NULL));
	loop_timer_set(t.loop, &t.timer, now_ms() + STUCK_MS, give_up, NULL);
	loop_run(t.loop);
	n = t.ends;
	t.box.common.init = NULL;
	files_end_all(&t.box.common);
	for (unsigned i = 0; i < n_workers; i++) {
		if (workers[i]->sock >= 0)
			hang_up(workers[i]);
		loop_timer_clear(&workers[i]->word);
		free(workers[i]);
	}
	loop_free(t.loop);
	return n;
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

TEST(who_waits_is_served_though_init_is_late)
{
	/* One more than there are slots: it needs one whose worker init has not spoken of yet. */
	assert_int_equal(ask_many(INIT_WORKERS + 1, 0), INIT_WORKERS + 1);
	assert_int_equal(t.code, 0);
	assert_int_equal(n_workers, INIT_WORKERS);
}

TEST(who_waits_is_served_when_workers_die_at_once)
{
	assert_int_equal(ask_many(3 * INIT_WORKERS, INIT_WORKERS), 3 * INIT_WORKERS);
	assert_int_equal(t.code, 0);
	/* All of them, again and again: there are errors, and no end of nothing. */
	assert_int_equal(ask_many(INIT_WORKERS + 1, UINT32_MAX), INIT_WORKERS + 1);
	assert_int_equal(t.code, GARRET_UNAVAILABLE);
}

TEST_MAIN
