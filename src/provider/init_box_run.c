/*
 * Commands of a session with an init.  What init sends of a captured one is collected
 * up to its head; what is more stands in a spool file that we made, passed in
 * and only read.  The files are kept when the session ends: who asked for the
 * command decides how long.
 *
 * A daemon that adopts the session asks init for its list, attaches to what it
 * wants and gets everything again from the start.
 */
#include <dirent.h>
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
#include "base/text.h"
#include "base/time.h"
#include "provider/init_box_impl.h"

#define SPOOL_RETRY_MS 100
#define NOT_SPOOLED UINT64_MAX

static struct box_run *find_run(struct init_box *b, const uint8_t *id)
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

/* What we hold of a stream is what there was, whatever init counted. */
static void take_head(struct box_run *r, struct box_run_end *end, int s)
{
	end->total[s] = r->head[s].len;
	end->head[s] = r->head[s];
	strbuf_init(&r->head[s]);
}

static void listed(struct init_box *b, const struct garret_error *err);

void runs_end_all(struct init_box *b)
{
	struct garret_error err = { 0 };

	if (b->listing) {
		(void)garret_fail(&err, GARRET_GONE, "the session has ended");
		listed(b, &err);
	}
	while (!list_empty(&b->runs)) {
		struct box_run *r = list_entry(b->runs.next, struct box_run, link);
		struct box_run_end end = { .gone = true,
					   .spool = r->spool,
					   .head = { STRBUF_INIT, STRBUF_INIT } };

		for (int s = 0; s < 2; s++) {
			end.spooled[s] = r->spooled[s] != NOT_SPOOLED;
			if (end.spooled[s])
				end.total[s] = r->spooled[s];
			else
				take_head(r, &end, s);
		}
		end_run(r, &end);
	}
}

static void spool_name(const char *runs, uint32_t index, int stream, char out[160])
{
	(void)snprintf(out, 160, "%s/%u.%s", runs, index, stream ? "err" : "out");
}

static void give_spools(struct init_box *b);

static void on_spool_retry(struct loop_timer *t)
{
	give_spools(t->ctx);
}

/*
 * Half a pair is no use, and its name would be in the way of the next try for ever.  That
 * comes by itself: a command with much output is waiting for it, perhaps alone.
 */
static void spools_failed(struct init_box *b, char name[2][160], const bool made[2])
{
	for (int s = 0; s < 2; s++)
		if (made[s])
			(void)unlinkat(b->runs_fd, name[s], 0);
	loop_timer_set(b->loop, &b->spool_retry, now_ms() + SPOOL_RETRY_MS, on_spool_retry, b);
}

/* Behind every number that a file has: of an earlier daemon, or from before the session slept. */
static void skip_spools(struct init_box *b)
{
	int fd = openat(b->runs_fd, b->runs_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		fd_close(fd);
		return;
	}
	while ((e = readdir(dir))) {
		char *dot = strchr(e->d_name, '.');
		uint64_t n;

		if (!dot || (strcmp(dot, ".out") != 0 && strcmp(dot, ".err") != 0))
			continue;
		*dot = '\0';
		if (parse_u64(e->d_name, &n) && n >= b->next_spool && n < UINT32_MAX)
			b->next_spool = (uint32_t)n + 1;
	}
}

static void make_runs(struct init_box *b)
{
	b->runs_made = mkdirat(b->runs_fd, b->runs_name, 0700) == 0 || errno == EEXIST;
	skip_spools(b);
}

/* Keep init supplied; a failure only delays a command with much output. */
static void give_spools(struct init_box *b)
{
	char name[2][160];
	int fd[2];

	if (!b->runs_made)
		make_runs(b);
	while (b->init && b->n_ahead < SPOOLS_AHEAD) {
		for (int s = 0; s < 2; s++) {
			spool_name(b->runs_name, b->next_spool, s, name[s]);
			fd[s] = openat(b->runs_fd, name[s],
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
		b->ahead[b->n_ahead++] = b->next_spool++;
	}
}

/* A run has taken that pair; false: there is none of that number. */
static bool spool_taken(struct init_box *b, struct box_run *r, uint32_t index)
{
	if (index >= b->next_spool)
		return false;
	r->spool = index;
	for (uint32_t i = 0; i < b->n_ahead; i++)
		if (b->ahead[i] == index) {
			b->ahead[i] = b->ahead[--b->n_ahead];
			give_spools(b);
		}
	return true;
}

void init_box_drop_spools(struct init_box *b)
{
	/*
	 * A session that lives on without us may use them yet; so may one that is closing, if
	 * we and the engine are killed before it is closed.
	 */
	if (!b->dead)
		return;
	while (b->n_ahead)
		init_box_spool_remove(b->runs_fd, b->runs_name, b->ahead[--b->n_ahead]);
}

static void tell(struct box_run *r)
{
	if (r->news && r->end)
		r->news(r->ctx);
}

void run_on_started(void *ctx, const uint8_t *run, uint32_t pid)
{
	struct box_run *r = find_run(ctx, run);

	(void)pid;
	if (!r)
		return;
	r->started = true;
	tell(r);
}

void run_on_spooled(void *ctx, const uint8_t *run, unsigned stream, uint32_t index, uint64_t bytes)
{
	struct init_box *b = ctx;
	struct box_run *r = find_run(b, run);

	if (!r || r->stream || !spool_taken(b, r, index))
		return;
	r->spooled[stream - 1] = bytes;
	strbuf_release(&r->head[stream - 1]);
	tell(r);
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
	if (head && offset == head->len && head->len + n <= INIT_HEAD_BYTES) {
		strbuf_add(head, data, n);
		tell(r);
	}
}

/* Is in the spool file what init says?  Asked before an answer is begun that could not be ended. */
static bool spool_holds(const struct init_box *b, uint32_t index, int stream, uint64_t bytes)
{
	struct stat st;
	char name[160];

	spool_name(b->runs_name, index, stream, name);
	return fstatat(b->runs_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size >= bytes;
}

void run_on_exited(void *ctx, const uint8_t *run, const struct init_exit *e)
{
	struct init_box *b = ctx;
	struct box_run *r = find_run(b, run);
	struct box_run_end end = { .head = { STRBUF_INIT, STRBUF_INIT } };
	bool spooled;

	if (!r)
		return;
	end.exit_code = e->exit_code;
	end.background = e->background;
	end.timed_out = e->cause == INIT_CAUSE_TIMEOUT;
	end.output_limited = e->cause == INIT_CAUSE_OUTPUT_LIMIT;
	end.no_process = e->step == INIT_STEP_SPAWN && e->cause == INIT_CAUSE_NONE;
	end.stopped = e->cause == INIT_CAUSE_STOP;
	end.oom = e->oom;
	end.wall_us = e->wall_us;
	end.user_us = e->user_us;
	end.system_us = e->system_us;
	end.max_rss_bytes = e->max_rss_bytes;
	spooled = (e->spooled[0] || e->spooled[1]) && spool_taken(b, r, e->spool_index);
	end.spool = e->spool_index;
	for (int s = 0; s < 2; s++) {
		end.total[s] = e->total[s];
		end.spooled[s] = e->spooled[s] && spooled;
		if (end.spooled[s] && !spool_holds(b, end.spool, s, e->total[s]))
			end.output_lost = true;
		if (!end.spooled[s])
			take_head(r, &end, s);
	}
	end_run(r, &end);
	/* Only now: what its listener could not keep, init still has when we are killed before. */
	if (b->init)
		init_client_forget(b->init, run);
}

void run_on_stdin_taken(void *ctx, const uint8_t *run, uint64_t bytes)
{
	struct box_run *r = find_run(ctx, run);

	if (!r)
		return;
	if (r->stream && r->end)
		r->stream->taken(r->ctx, bytes);
	r->taken = bytes;
	tell(r);
}

void run_on_stdin_held(void *ctx, const uint8_t *run, uint64_t bytes)
{
	struct box_run *r = find_run(ctx, run);

	if (!r)
		return;
	r->held = bytes & ~INIT_HELD_END;
	r->input_ended = bytes & INIT_HELD_END;
	tell(r);
}

static struct box_run *new_run(struct init_box *b, const uint8_t *id, box_run_end_fn end, void *ctx)
{
	struct box_run *r = xnew(struct box_run);

	r->box = b;
	memcpy(r->id, id, RUN_ID_BYTES);
	strbuf_init(&r->head[0]);
	strbuf_init(&r->head[1]);
	r->spooled[0] = r->spooled[1] = NOT_SPOOLED;
	r->end = end;
	r->ctx = ctx;
	list_append(&b->runs, &r->link);
	return r;
}

static struct box_run *start_run(struct init_box *b, const struct init_start *start,
				 box_run_end_fn end, void *ctx, struct garret_error *err)
{
	if (!b->init) {
		(void)garret_fail(err, GARRET_GONE, "the session has ended");
		return NULL;
	}
	if (init_client_run(b->init, start, err) < 0)
		return NULL;
	return new_run(b, start->id, end, ctx);
}

struct box_run *init_box_run(struct box *box, const struct box_run_spec *spec, box_run_end_fn end,
			     void *ctx, struct garret_error *err)
{
	struct init_box *b = init_box_of(box);
	struct init_start start = { .id = spec->id,
				    .timeout_ms = spec->timeout_ms,
				    .output_limit = spec->output_limit,
				    .flags = spec->input ? INIT_RUN_STDIN : 0,
				    .cwd = spec->cwd,
				    .argv = spec->argv,
				    .env = spec->env };
	struct box_run *r = start_run(b, &start, end, ctx, err);

	if (!r)
		return NULL;
	r->news = spec->news;
	give_spools(b);
	return r;
}

void init_box_state(const struct box_run *r, struct box_run_state *ret)
{
	*ret = (struct box_run_state){ .started = r->started,
				       .spool = r->spool,
				       .held = r->held,
				       .taken = r->taken,
				       .input_ended = r->input_ended };
	for (int s = 0; s < 2; s++) {
		ret->spooled[s] = r->spooled[s] != NOT_SPOOLED;
		ret->total[s] = ret->spooled[s] ? r->spooled[s] : r->head[s].len;
		ret->head[s] = r->head[s].buf;
	}
}

/* ---- an adopted session ---- */

struct known_wait {
	uint64_t request;
	struct box_run_known *runs;
	struct loop_later later; /* there is nobody to ask */
	size_t n;
	box_runs_fn done;
	void *ctx;
};

void runs_forget(struct init_box *b)
{
	struct box_run *r;

	list_foreach (r, &b->runs, link)
		r->end = NULL;
	if (b->listing)
		b->listing->done = NULL;
}

static void listed(struct init_box *b, const struct garret_error *err)
{
	struct known_wait *w = take_ptr(&b->listing);

	loop_later_cancel(b->loop, &w->later);
	if (w->done)
		w->done(w->ctx, err ? NULL : w->runs, err ? 0 : w->n, err);
	for (size_t i = 0; i < w->n; i++)
		free((void *)(uintptr_t)w->runs[i].id);
	free(w->runs);
	free(w);
}

void runs_on_listed(void *ctx, const struct init_known *runs, uint32_t n, const uint32_t *spools,
		    uint32_t n_spools)
{
	struct init_box *b = ctx;
	struct known_wait *w = b->listing;

	if (!w || w->n + n > INIT_RUNS_MAX)
		return;
	for (uint32_t i = 0; i < n_spools && b->n_ahead < SPOOLS_AHEAD; i++)
		if (spools[i] < b->next_spool)
			b->ahead[b->n_ahead++] = spools[i];
	w->runs = xrealloc(w->runs, (w->n + n) * sizeof(*w->runs));
	for (uint32_t i = 0; i < n; i++)
		w->runs[w->n++] = (struct box_run_known){
			.id = xmemdup(runs[i].id, RUN_ID_BYTES),
			.age_us = runs[i].age_us,
			.held = runs[i].stdin_held,
			.stream = runs[i].flags & INIT_RUN_STREAM,
			.input_ended = runs[i].stdin_ended,
		};
}

void runs_on_done(struct init_box *b, uint64_t request, const struct garret_error *err)
{
	if (b->listing && b->listing->request == request)
		listed(b, err);
}

void init_box_not_listed(struct init_box *b)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_UNAVAILABLE, "its init did not list its runs");
	if (b->listing)
		listed(b, &err);
}

static void on_nobody(struct loop_later *l)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_GONE, "the session has ended");
	listed(l->ctx, &err);
}

void init_box_runs(struct box *box, box_runs_fn done, void *ctx)
{
	struct init_box *b = init_box_of(box);
	struct known_wait *w = xnew(struct known_wait);

	w->done = done;
	w->ctx = ctx;
	b->listing = w;
	skip_spools(b);
	if (b->init)
		w->request = init_client_list(b->init);
	else
		loop_later_add(b->loop, &w->later, on_nobody, b);
}

struct box_run *init_box_attach(struct box *box, const uint8_t *id, void (*news)(void *ctx),
				box_run_end_fn end, void *ctx, struct garret_error *err)
{
	struct init_box *b = init_box_of(box);
	struct box_run *r;

	if (!b->init) {
		(void)garret_fail(err, GARRET_GONE, "the session has ended");
		return NULL;
	}
	r = new_run(b, id, end, ctx);
	r->news = news;
	init_client_attach(b->init, id);
	return r;
}

/* ---- live streams ---- */

struct box_run *init_box_stream(struct box *box, const struct box_stream_spec *spec,
				const struct box_stream_events *events, void *ctx,
				struct garret_error *err)
{
	struct init_box *b = init_box_of(box);
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

void init_box_input(struct box_run *r, const void *data, size_t n)
{
	init_client_stdin(r->box->init, r->id, data, n);
}

void init_box_ack(struct box_run *r, int stream, uint64_t offset)
{
	init_client_ack(r->box->init, r->id, (unsigned)stream + 1, offset);
}

void init_box_winch(struct box_run *r, uint16_t rows, uint16_t columns)
{
	init_client_winch(r->box->init, r->id, rows, columns);
}

void init_box_signal(struct box_run *r, int signo)
{
	init_client_signal(r->box->init, r->id, signo, true);
}

bool init_box_busy(const struct box_run *r)
{
	return r->box->init && init_client_busy(r->box->init);
}

void init_box_leave(struct box_run *r)
{
	r->end = NULL;
	(void)init_client_stop(r->box->init, r->id, 2000);
}

void init_box_stop(struct box_run *r, uint32_t grace_ms)
{
	(void)init_client_stop(r->box->init, r->id, grace_ms);
}

int init_box_spool_open(int runs_fd, const char *runs, uint32_t spool, int stream)
{
	char name[160];

	spool_name(runs, spool, stream, name);
	return openat(runs_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

void init_box_spool_remove(int runs_fd, const char *runs, uint32_t spool)
{
	char name[160];

	for (int s = 0; s < 2; s++) {
		spool_name(runs, spool, s, name);
		(void)unlinkat(runs_fd, name, 0);
	}
}

int init_box_spool_write(struct init_box *b, uint32_t spool, int stream)
{
	char name[160];

	/* Init says the number: it may only be one that we gave. */
	if (!b->runs_name || spool >= b->next_spool) {
		errno = ENOENT;
		return -1;
	}
	spool_name(b->runs_name, spool, stream, name);
	return openat(b->runs_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
}
