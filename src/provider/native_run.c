/*
 * Commands of a native session.  What init sends of a captured one is collected
 * up to its head; what is more stands in a spool file that we made, passed in
 * and only read.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "provider/native_impl.h"

#define SPOOL_AHEAD 2 /* pairs that init holds unused */
#define SPOOL_RETRY_MS 100

static struct box_run *find_run(struct box *b, const uint8_t *id)
{
	struct box_run *r;

	list_foreach (r, &b->runs, link)
		if (!memcmp(r->id, id, RUN_ID_BYTES))
			return r;
	return NULL;
}

static void end_run(struct box_run *r, struct box_run_end *end)
{
	list_remove(&r->link);
	if (r->end)
		r->end(r->ctx, end);
	strbuf_release(&end->head[0]);
	strbuf_release(&end->head[1]);
	strbuf_release(&r->head[0]);
	strbuf_release(&r->head[1]);
	free(r);
}

void runs_end_all(struct box *b)
{
	while (!list_empty(&b->runs)) {
		struct box_run_end end = { .gone = true, .head = { STRBUF_INIT, STRBUF_INIT } };

		end_run(list_entry(b->runs.next, struct box_run, link), &end);
	}
}

static void spool_name(const struct box *b, uint32_t index, int stream, char out[96])
{
	(void)snprintf(out, 96, "%s/%u.%s", b->runs_name, index, stream ? "err" : "out");
}

static void give_spools(struct box *b);

static void on_spool_retry(struct loop_timer *t)
{
	give_spools(t->ctx);
}

/*
 * Half a pair is no use, and its name would be in the way of the next try for ever.  That
 * comes by itself: a command with much output is waiting for it, perhaps alone.
 */
static void spools_failed(struct box *b, char name[2][96], const bool made[2])
{
	for (int s = 0; s < 2; s++)
		if (made[s])
			(void)unlinkat(b->p->runs_fd, name[s], 0);
	loop_timer_set(b->p->loop, &b->spool_retry, now_ms() + SPOOL_RETRY_MS, on_spool_retry, b);
}

/* Keep init supplied; a failure only delays a command with much output. */
static void give_spools(struct box *b)
{
	char name[2][96];
	int fd[2];

	if (!b->spools_ahead && !b->next_spool)
		(void)mkdirat(b->p->runs_fd, b->runs_name, 0700);
	while (b->init && b->spools_ahead < SPOOL_AHEAD) {
		for (int s = 0; s < 2; s++) {
			spool_name(b, b->next_spool, s, name[s]);
			fd[s] = openat(b->p->runs_fd, name[s],
				       O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		}
		if (fd[0] >= 0 && fd[1] >= 0)
			init_client_spool(b->init, b->next_spool, fd[0], fd[1]);
		fd_close(fd[0]);
		fd_close(fd[1]);
		if (fd[0] < 0 || fd[1] < 0) {
			spools_failed(b, name, (const bool[]){ fd[0] >= 0, fd[1] >= 0 });
			return;
		}
		b->next_spool++;
		b->spools_ahead++;
	}
}

void run_on_out(void *ctx, const uint8_t *run, unsigned stream, uint64_t offset, const void *data,
		size_t n)
{
	struct box_run *r = find_run(ctx, run);
	struct strbuf *head = r ? &r->head[stream - 1] : NULL;

	if (r && r->stream) {
		if (offset != r->streamed[stream - 1])
			return;
		r->streamed[stream - 1] += n;
		if (r->end)
			r->stream->out(r->ctx, (int)stream - 1, data, n);
		else
			init_client_ack(r->box->init, run, stream, r->streamed[stream - 1]);
		return;
	}
	/* Init keeps 64 KiB of a stream; more than that or out of order is its lie. */
	if (head && offset == head->len && head->len + n <= INIT_HEAD_BYTES)
		strbuf_add(head, data, n);
}

/* Is in the spool file what init says?  Asked before an answer is begun that could not be ended. */
static bool spool_holds(const struct box *b, const char *name, uint64_t bytes)
{
	struct stat st;

	return fstatat(b->p->runs_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size >= bytes;
}

void run_on_exited(void *ctx, const uint8_t *run, const struct init_exit *e)
{
	struct box *b = ctx;
	struct box_run *r = find_run(b, run);
	struct box_run_end end = { .head = { STRBUF_INIT, STRBUF_INIT } };

	if (!r)
		return;
	init_client_forget(b->init, run);
	end.exit_code = e->exit_code;
	end.timed_out = e->cause == INIT_CAUSE_TIMEOUT;
	end.output_limited = e->cause == INIT_CAUSE_OUTPUT_LIMIT;
	end.no_process = e->step == INIT_STEP_SPAWN && e->cause == INIT_CAUSE_NONE;
	end.stopped = e->cause == INIT_CAUSE_STOP;
	if ((e->spooled[0] || e->spooled[1]) && e->spool_index < b->next_spool) {
		if (b->spools_ahead)
			b->spools_ahead--;
		for (int s = 0; s < 2; s++)
			spool_name(b, e->spool_index, s, end.spool[s]);
		give_spools(b);
	}
	for (int s = 0; s < 2; s++) {
		end.total[s] = e->total[s];
		end.spooled[s] = e->spooled[s] && end.spool[s][0];
		if (end.spooled[s] && !spool_holds(b, end.spool[s], e->total[s]))
			end.output_lost = true;
		if (!end.spooled[s]) {
			/* What we hold is what there was, whatever init counted. */
			end.total[s] = r->head[s].len;
			end.head[s] = r->head[s];
			strbuf_init(&r->head[s]);
		}
	}
	end_run(r, &end);
}

void run_on_stdin_taken(void *ctx, const uint8_t *run, uint64_t bytes)
{
	struct box_run *r = find_run(ctx, run);

	if (r && r->stream && r->end)
		r->stream->taken(r->ctx, bytes);
}

static struct box_run *start_run(struct box *b, const struct init_start *start, box_run_end_fn end,
				 void *ctx, struct garret_error *err)
{
	struct box_run *r;

	if (!b->init) {
		(void)garret_fail(err, GARRET_GONE, "the session has ended");
		return NULL;
	}
	if (init_client_run(b->init, start, err) < 0)
		return NULL;
	r = xnew(struct box_run);
	r->box = b;
	memcpy(r->id, start->id, RUN_ID_BYTES);
	strbuf_init(&r->head[0]);
	strbuf_init(&r->head[1]);
	r->end = end;
	r->ctx = ctx;
	list_append(&b->runs, &r->link);
	return r;
}

struct box_run *native_run(struct box *b, const struct box_run_spec *spec, box_run_end_fn end,
			   void *ctx, struct garret_error *err)
{
	struct init_start start = { .id = spec->id,
				    .timeout_ms = spec->timeout_ms,
				    .output_limit = spec->output_limit,
				    .cwd = spec->cwd,
				    .argv = spec->argv,
				    .env = spec->env };
	struct box_run *r = start_run(b, &start, end, ctx, err);

	if (r)
		give_spools(b);
	return r;
}

struct box_run *native_stream(struct box *b, const struct box_stream_spec *spec,
			      const struct box_stream_events *events, void *ctx,
			      struct garret_error *err)
{
	struct init_start start = { .timeout_ms = spec->timeout_ms,
				    .argv = spec->argv,
				    .env = spec->env,
				    .flags = INIT_RUN_STREAM | INIT_RUN_STDIN |
					     (spec->tty ? INIT_RUN_PTY : 0),
				    .rows = spec->rows,
				    .columns = spec->columns };
	uint8_t id[RUN_ID_BYTES];
	struct box_run *r;

	if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
		(void)garret_fail_errno(err, "random bytes");
		return NULL;
	}
	start.id = id;
	r = start_run(b, &start, events->end, ctx, err);
	if (r)
		r->stream = events;
	return r;
}

void native_input(struct box_run *r, const void *data, size_t n)
{
	init_client_stdin(r->box->init, r->id, data, n);
}

void native_ack(struct box_run *r, int stream, uint64_t offset)
{
	init_client_ack(r->box->init, r->id, (unsigned)stream + 1, offset);
}

void native_winch(struct box_run *r, uint16_t rows, uint16_t columns)
{
	init_client_winch(r->box->init, r->id, rows, columns);
}

void native_signal(struct box_run *r, int signo)
{
	init_client_signal(r->box->init, r->id, signo, true);
}

bool native_busy(const struct box_run *r)
{
	return r->box->init && init_client_busy(r->box->init);
}

void native_leave(struct box_run *r)
{
	r->end = NULL;
	(void)init_client_stop(r->box->init, r->id, 2000);
}

void native_stop(struct box_run *r, uint32_t grace_ms)
{
	(void)init_client_stop(r->box->init, r->id, grace_ms);
}

int native_spool_open(struct provider *p, const char *name)
{
	return openat(p->runs_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

void native_spool_remove(struct provider *p, const char *name)
{
	(void)unlinkat(p->runs_fd, name, 0);
}
