/*
 * Looking at runs: what is known of one, a list of them, and the bytes of their
 * output while they run and after.  A reader stays usable whatever becomes of
 * the run: when that ends it goes over to its record.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "core/run_impl.h"

struct run_reader {
	struct list link; /* run.readers */
	struct run *run;  /* NULL: it has ended, or was dropped */
	struct run_record *record;
	char id[2 * RUN_ID_BYTES + 1];
	int fd[2]; /* of its output, while it runs */
	void (*news)(void *ctx);
	void *ctx;
};

/* ---- what is known ---- */

static double seconds(uint64_t us)
{
	return (double)us / 1e6;
}

static void finished_info(const struct run_record *rec, struct run_info *ret)
{
	const struct run_facts *f = &rec->facts;
	bool cut = f->timed_out || f->output_limited || f->gone;

	ret->phase = RUN_PHASE_EXITED;
	ret->gone = f->gone;
	ret->timed_out = f->timed_out;
	ret->output_limited = f->output_limited;
	ret->stopped = f->stopped;
	ret->exit_code = cut ? -1 : f->exit_code;
	ret->asked_at = seconds(f->asked_us);
	ret->started_at = seconds(f->started_us);
	/* Of one that nobody saw ending it isn't known when that was. */
	ret->ended_at = f->gone && rec->position == NOT_RECORDED ? 0 : seconds(f->ended_us);
	ret->input_bytes = f->input;
	ret->bytes[0] = f->total[0];
	ret->bytes[1] = f->total[1];
	ret->measured = !f->gone;
	ret->wall_us = f->wall_us;
	ret->user_us = f->user_us;
	ret->system_us = f->system_us;
	ret->max_rss_bytes = f->max_rss_bytes;
	ret->oom = f->oom;
}

static void info_of(const struct run *r, struct run_info *ret)
{
	struct box_run_state st = { .started = false };

	*ret = (struct run_info){ .exit_code = -1, .input_bytes = r->fed };
	memcpy(ret->id, r->id, sizeof(ret->id));
	if (r->state == RUN_FINISHED) {
		finished_info(r->record, ret);
		return;
	}
	ret->asked_at = seconds(r->asked_wall_us);
	ret->started_at = seconds(r->started_us);
	if (r->state == RUN_QUEUED)
		return;
	ret->phase = RUN_PHASE_RUNNING;
	if (r->box_run)
		r->set->service->ops->state(r->box_run, &st);
	ret->bytes[0] = st.total[0];
	ret->bytes[1] = st.total[1];
}

struct listing {
	const struct run **runs;
	size_t n, max;
	void (*each)(void *ctx, const struct run_info *info);
	void *ctx;
};

static void collect(const char *key, void *value, void *ctx)
{
	struct listing *l = ctx;

	(void)key;
	l->runs[l->n++] = value;
}

static int newest_first(const void *a, const void *b)
{
	const struct run *x = *(const struct run *const *)a, *y = *(const struct run *const *)b;

	return x->asked_wall_us > y->asked_wall_us ? -1 : x->asked_wall_us < y->asked_wall_us;
}

static bool list_set(struct run_set *set, void *ctx)
{
	struct listing *l = ctx;
	struct run_info info;

	l->n = 0;
	l->runs = xcalloc(set->runs.count + 1, sizeof(*l->runs));
	map_foreach(&set->runs, collect, l);
	qsort(l->runs, l->n, sizeof(*l->runs), newest_first);
	for (size_t i = 0; i < l->n && l->max; i++, l->max--) {
		info_of(l->runs[i], &info);
		l->each(l->ctx, &info);
	}
	free(take_ptr(&l->runs));
	return l->max;
}

void service_runs(struct service *svc, const struct run_scope *scope, size_t max,
		  void (*each)(void *ctx, const struct run_info *info), void *ctx)
{
	struct listing l = { .max = max, .each = each, .ctx = ctx };

	run_sets_each(svc, scope, list_set, &l);
}

/* ---- readers ---- */

struct run_reader *service_run_reader(struct service *svc, const struct run_scope *scope,
				      const char *run_id, void (*news)(void *ctx), void *ctx)
{
	struct run *r = run_find(svc, scope, run_id);
	struct run_reader *reader;

	if (!r)
		return NULL;
	reader = xnew(struct run_reader);
	*reader = (struct run_reader){ .news = news, .ctx = ctx, .fd = { -EBADF, -EBADF } };
	memcpy(reader->id, r->id, sizeof(reader->id));
	list_init(&reader->link);
	if (r->state == RUN_FINISHED) {
		reader->record = run_record_ref(r->record);
	} else {
		reader->run = r;
		list_append(&r->readers, &reader->link);
	}
	return reader;
}

struct run_reader *run_reader_free(struct run_reader *reader)
{
	if (!reader)
		return NULL;
	list_remove(&reader->link);
	run_record_unref(reader->record);
	fd_close(reader->fd[0]);
	fd_close(reader->fd[1]);
	free(reader);
	return NULL;
}

void run_readers_told(struct run *r)
{
	struct run_reader *reader;

	list_foreach (reader, &r->readers, link)
		if (reader->news)
			reader->news(reader->ctx);
}

void run_readers_end(struct run *r)
{
	while (!list_empty(&r->readers)) {
		struct run_reader *reader = list_entry(r->readers.next, struct run_reader, link);

		list_remove(&reader->link);
		reader->run = NULL;
		if (r->record)
			reader->record = run_record_ref(r->record);
		if (reader->news)
			reader->news(reader->ctx);
	}
}

void run_reader_info(const struct run_reader *reader, struct run_info *ret)
{
	if (reader->run) {
		info_of(reader->run, ret);
		return;
	}
	*ret = (struct run_info){ .phase = RUN_PHASE_EXITED, .gone = true, .exit_code = -1 };
	memcpy(ret->id, reader->id, sizeof(ret->id));
	if (reader->record)
		finished_info(reader->record, ret);
}

static long live_bytes(struct run_reader *reader, int stream, uint64_t offset, void *buf,
		       size_t cap)
{
	const struct run_set *set = reader->run->set;
	const struct service *svc = set->service;
	struct box_run_state st;
	ssize_t got;
	size_t n;

	if (!reader->run->box_run)
		return 0;
	svc->ops->state(reader->run->box_run, &st);
	n = offset < st.total[stream] ? (size_t)MIN(st.total[stream] - offset, (uint64_t)cap) : 0;
	if (!n)
		return 0;
	if (!st.spooled[stream]) {
		memcpy(buf, st.head[stream] + offset, n);
		return (long)n;
	}
	if (reader->fd[stream] < 0)
		reader->fd[stream] =
			svc->ops->spool_open(svc->provider, set->dir, st.spool, stream);
	do
		got = pread(reader->fd[stream], buf, n, (off_t)offset);
	while (got < 0 && errno == EINTR);
	return got > 0 ? (long)got : -1;
}

long run_reader_bytes(struct run_reader *reader, int stream, uint64_t offset, void *buf, size_t cap)
{
	if (reader->run)
		return live_bytes(reader, stream, offset, buf, cap);
	return reader->record ? run_record_bytes(reader->record, stream, offset, buf, cap) : -1;
}
