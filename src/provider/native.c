/*
 * A box is a session of the engine.  Its init listens on a socket in our ctl/
 * directory, so that it outlives us; we hold one connection to it, over which
 * every command goes.  Output that init can't hold goes to spool files that we
 * make ahead and pass in, a pair per command that needs one; we only read them.
 */
#include "provider/native.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "provider/engine_client.h"
#include "provider/init_client.h"

#define SPOOL_AHEAD 2   /* pairs that init holds unused */
#define SOCKETS_AHEAD 8 /* bound before they are wanted: a bind makes an inode, 0.5 ms on ext4 */
#define REFILL_MS 20    /* after the last open, so that it never delays one */

struct control_socket {
	int fd;
	char name[48]; /* in ctl/ */
};

struct provider {
	struct control_socket ahead[SOCKETS_AHEAD];
	unsigned n_ahead;
	struct loop_timer refill;
	struct loop *loop;
	struct engine_client *engine;
	int ctl_fd, runs_fd;
	struct list boxes;
	struct native_config config;
	bool lost;
};

struct box {
	struct list link; /* provider.boxes */
	struct provider *p;
	char id[ENGINE_ID_MAX + 1];
	char ctl_name[48];  /* in ctl/ */
	char runs_name[48]; /* in runs/ */
	uint64_t handle;    /* 0: not opened by the engine */
	struct init_client *init;
	struct list runs;
	uint32_t next_spool, spools_ahead;
	bool asked; /* the engine's answer to OPEN is due */
	bool greeted, dead, closing;

	box_opened_fn opened;
	void *opened_ctx;
	box_died_fn died;
	void *died_ctx;
	box_done_fn closed;
	void *closed_ctx;
	struct loop_later later;
	struct garret_error open_error;
};

struct box_run {
	struct list link;
	struct box *box;
	uint8_t id[RUN_ID_BYTES];
	struct strbuf head[2];
	box_run_end_fn end;                     /* NULL: nobody listens any more */
	const struct box_stream_events *stream; /* NULL: captured */
	uint64_t streamed[2];
	void *ctx;
};

/* ---- small parts ---- */

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

static void end_all_runs(struct box *b)
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
		if (fd[0] < 0 || fd[1] < 0)
			return;
		b->next_spool++;
		b->spools_ahead++;
	}
}

/* ---- what init says ---- */

static void finish_open(struct box *b);

static void on_ready(void *ctx)
{
	struct box *b = ctx;

	b->greeted = true;
	finish_open(b);
}

static void on_out(void *ctx, const uint8_t *run, unsigned stream, uint64_t offset,
		   const void *data, size_t n)
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

static void on_spooled(void *ctx, const uint8_t *run, unsigned stream, uint32_t index,
		       uint64_t bytes)
{
	(void)ctx;
	(void)run;
	(void)stream;
	(void)index;
	(void)bytes;
}

static void on_exited(void *ctx, const uint8_t *run, const struct init_exit *e)
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
		if (!end.spooled[s]) {
			/* What we hold is what there was, whatever init counted. */
			end.total[s] = r->head[s].len;
			end.head[s] = r->head[s];
			strbuf_init(&r->head[s]);
		}
	}
	end_run(r, &end);
}

static void drop_init(struct box *b)
{
	b->init = init_client_free(b->init);
	end_all_runs(b);
}

static void on_init_lost(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	b->dead = true;
	drop_init(b);
	if (b->opened) {
		if (!b->open_error.code)
			(void)garret_fail(&b->open_error, GARRET_INTERNAL,
					  "the session ended while it opened%s%s",
					  err->code ? ": " : "", err->msg);
		finish_open(b);
	} else if (b->died && !b->closing) {
		b->died(b->died_ctx);
	}
}

static void on_stdin_taken(void *ctx, const uint8_t *run, uint64_t bytes)
{
	struct box_run *r = find_run(ctx, run);

	if (r && r->stream && r->end)
		r->stream->taken(r->ctx, bytes);
}

static const struct init_events init_events = {
	.ready = on_ready,
	.lost = on_init_lost,
	.out = on_out,
	.spooled = on_spooled,
	.exited = on_exited,
	.stdin_taken = on_stdin_taken,
};

/* ---- opening ---- */

/* A path that fits sun_path wherever the state directory is. */
static void socket_path(const struct provider *p, const char *name, char out[80])
{
	(void)snprintf(out, 80, "/proc/self/fd/%d/%s", p->ctl_fd, name);
}

static int bind_socket(struct provider *p, struct control_socket *ret, struct garret_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint8_t random[16];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return garret_fail_errno(err, "random bytes");
	hex_encode(random, sizeof(random), ret->name);
	socket_path(p, ret->name, sa.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 8) < 0)
		return garret_fail_errno(err, "make the session's control socket");
	ret->fd = take_fd(&fd);
	return 0;
}

static void refill_sockets(struct loop_timer *t)
{
	struct provider *p = t->ctx;

	/* One a turn: a burst of opens is served from what is there, or waits its 0.5 ms. */
	if (p->n_ahead == SOCKETS_AHEAD || bind_socket(p, &p->ahead[p->n_ahead], NULL) < 0)
		return;
	if (++p->n_ahead < SOCKETS_AHEAD)
		loop_timer_set(p->loop, t, now_ms() + 1, refill_sockets, p);
}

static int take_socket(struct provider *p, struct control_socket *ret, struct garret_error *err)
{
	loop_timer_set(p->loop, &p->refill, now_ms() + REFILL_MS, refill_sockets, p);
	if (!p->n_ahead)
		return bind_socket(p, ret, err);
	*ret = p->ahead[--p->n_ahead];
	return 0;
}

static void box_free(struct box *b)
{
	loop_later_cancel(b->p->loop, &b->later);
	drop_init(b);
	if (b->ctl_name[0])
		(void)unlinkat(b->p->ctl_fd, b->ctl_name, 0);
	if (b->next_spool)
		(void)remove_tree_at(b->p->runs_fd, b->runs_name);
	list_remove(&b->link);
	free(b);
}

static void ignore_done(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	(void)err; /* the engine logs what it could not remove */
}

/* Both the engine and init have spoken, or one of them failed. */
static void finish_open(struct box *b)
{
	box_opened_fn opened = b->opened;

	/* When init failed first, the engine's answer is still due and says why. */
	if (!opened || b->asked || (!b->open_error.code && !b->greeted))
		return;
	b->opened = NULL;
	if (!b->open_error.code) {
		opened(b->opened_ctx, b, NULL);
		return;
	}
	opened(b->opened_ctx, NULL, &b->open_error);
	if (b->handle)
		engine_client_close(b->p->engine, b->handle, false, ignore_done, NULL);
	box_free(b);
}

static void on_opened(void *ctx, const struct engine_opened *o, const struct garret_error *err)
{
	struct box *b = ctx;

	b->asked = false;
	b->handle = o ? o->handle : 0;
	if (err)
		b->open_error = *err;
	finish_open(b);
}

static void report_open_error(struct loop_later *l)
{
	finish_open(l->ctx);
}

static int begin_open(struct box *b, const struct box_spec *spec, struct garret_error *err)
{
	struct engine_open o = { .id = spec->id,
				 .runtime = spec->runtime,
				 .work_dir = spec->work_dir,
				 .hostname = spec->id,
				 .memory_bytes = spec->memory_bytes,
				 .memory_swap_bytes = spec->memory_swap_bytes,
				 .cpu_millis = spec->cpu_millis,
				 .cpu_shares = spec->cpu_shares,
				 .pids = spec->pids,
				 .tmpfs_bytes = spec->tmpfs_bytes,
				 .flags = spec->attach ? ENGINE_OPEN_ATTACH : 0 };
	struct control_socket control = { .fd = -EBADF };
	autoclose int sock = -EBADF;
	char path[80];
	int fd, rc;

	if (b->p->lost)
		return garret_fail(err, GARRET_UNAVAILABLE, "the engine is gone");
	o.network =
		spec->network && !strcmp(spec->network, "host") ? ENGINE_NET_HOST : ENGINE_NET_NONE;
	if (getrandom(o.nonce, sizeof(o.nonce), 0) != (ssize_t)sizeof(o.nonce))
		return garret_fail_errno(err, "random bytes");
	rc = take_socket(b->p, &control, err);
	if (rc < 0)
		return rc;
	sock = control.fd;
	(void)snprintf(b->ctl_name, sizeof(b->ctl_name), "%s", control.name);
	(void)snprintf(b->runs_name, sizeof(b->runs_name), "%s", control.name);
	/* Connecting before init exists saves a round trip: it accepts when it is ready. */
	socket_path(b->p, b->ctl_name, path);
	rc = init_connect(path, &fd, err);
	if (rc < 0)
		return rc;
	rc = init_client_new(b->p->loop, fd, o.nonce, &init_events, b, &b->init, err);
	if (rc < 0)
		return rc;
	b->asked = true;
	engine_client_open(b->p->engine, &o, sock, NULL, on_opened, b);
	return 0;
}

static void native_open(struct provider *p, const struct box_spec *spec, box_opened_fn done,
			void *ctx)
{
	struct box *b = xnew(struct box);

	b->p = p;
	(void)snprintf(b->id, sizeof(b->id), "%s", spec->id);
	list_init(&b->runs);
	list_append(&p->boxes, &b->link);
	b->opened = done;
	b->opened_ctx = ctx;
	if (begin_open(b, spec, &b->open_error) < 0)
		loop_later_add(p->loop, &b->later, report_open_error, b);
}

static void native_watch(struct box *b, box_died_fn died, void *ctx)
{
	b->died = died;
	b->died_ctx = ctx;
}

/* ---- closing ---- */

static void on_closed(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	b->closed(b->closed_ctx, err);
	box_free(b);
}

static void native_close(struct box *b, bool purge, box_done_fn done, void *ctx)
{
	b->closing = true;
	b->closed = done;
	b->closed_ctx = ctx;
	drop_init(b);
	engine_client_close(b->p->engine, b->handle, purge, on_closed, b);
}

struct usage_wait {
	box_usage_fn done;
	void *ctx;
};

static void on_usage(void *ctx, const struct engine_usage *u, const struct garret_error *err)
{
	struct usage_wait *w = ctx;
	struct box_usage out = { 0 };

	if (u)
		out = (struct box_usage){ u->memory_bytes, u->memory_limit_bytes, u->cpu_us,
					  u->pids };
	w->done(w->ctx, u ? &out : NULL, err);
	free(w);
}

static void native_usage(struct box *b, box_usage_fn done, void *ctx)
{
	struct usage_wait *w = xnew(struct usage_wait);

	w->done = done;
	w->ctx = ctx;
	engine_client_usage(b->p->engine, b->handle, on_usage, w);
}

/* ---- runs ---- */

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

static struct box_run *native_run(struct box *b, const struct box_run_spec *spec,
				  box_run_end_fn end, void *ctx, struct garret_error *err)
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

static struct box_run *native_stream(struct box *b, const struct box_stream_spec *spec,
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

static void native_input(struct box_run *r, const void *data, size_t n)
{
	init_client_stdin(r->box->init, r->id, data, n);
}

static void native_ack(struct box_run *r, int stream, uint64_t offset)
{
	init_client_ack(r->box->init, r->id, (unsigned)stream + 1, offset);
}

static void native_winch(struct box_run *r, uint16_t rows, uint16_t columns)
{
	init_client_winch(r->box->init, r->id, rows, columns);
}

static void native_signal(struct box_run *r, int signo)
{
	init_client_signal(r->box->init, r->id, signo, true);
}

static void native_leave(struct box_run *r)
{
	r->end = NULL;
	(void)init_client_stop(r->box->init, r->id, 2000);
}

static void native_stop(struct box_run *r, uint32_t grace_ms)
{
	(void)init_client_stop(r->box->init, r->id, grace_ms);
}

static int native_spool_open(struct provider *p, const char *name)
{
	return openat(p->runs_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
}

static void native_spool_remove(struct provider *p, const char *name)
{
	(void)unlinkat(p->runs_fd, name, 0);
}

const struct provider_ops native_ops = {
	.name = "native",
	.open = native_open,
	.watch = native_watch,
	.close = native_close,
	.usage = native_usage,
	.run = native_run,
	.stop = native_stop,
	.stream = native_stream,
	.input = native_input,
	.ack = native_ack,
	.winch = native_winch,
	.signal = native_signal,
	.leave = native_leave,
	.spool_open = native_spool_open,
	.spool_remove = native_spool_remove,
};

/* ---- the engine ---- */

static void on_engine_ready(void *ctx, const struct engine_hello *hello)
{
	struct provider *p = ctx;

	p->config.ready(p->config.ctx, hello);
}

static void on_engine_lost(void *ctx, const struct garret_error *err)
{
	struct provider *p = ctx;

	p->lost = true;
	p->config.lost(p->config.ctx, err);
}

static void on_engine_died(void *ctx, uint64_t handle, enum engine_death how)
{
	struct provider *p = ctx;
	struct box *b;

	(void)how;
	list_foreach (b, &p->boxes, link)
		if (b->handle == handle && !b->dead) {
			struct garret_error err = { 0 };

			on_init_lost(b, &err);
			return;
		}
}

static const struct engine_events engine_events = {
	.ready = on_engine_ready,
	.lost = on_engine_lost,
	.died = on_engine_died,
};

/* DIR below the state directory, emptied of what an earlier daemon left. */
static int fresh_dir(int state, const char *name, struct garret_error *err)
{
	int fd;

	if (remove_tree_at(state, name) < 0)
		return garret_fail_errno(err, "empty %s", name);
	fd = open_dir_make(state, name, 0700, err);
	return fd;
}

int native_new(const struct native_config *config, struct provider **ret, struct garret_error *err)
{
	struct provider *p = xnew(struct provider);
	autoclose int state = open(config->state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc;

	p->loop = config->loop;
	p->config = *config;
	p->ctl_fd = p->runs_fd = -EBADF;
	list_init(&p->boxes);
	rc = state < 0 ? garret_fail_errno(err, "open %s", config->state_dir) : 0;
	if (rc == 0)
		rc = p->ctl_fd = fresh_dir(state, "ctl", err);
	if (rc >= 0)
		rc = p->runs_fd = fresh_dir(state, "runs", err);
	if (rc >= 0)
		rc = engine_client_new(p->loop, config->engine_fd, &engine_events, p, &p->engine,
				       err);
	else
		fd_close(config->engine_fd);
	if (rc < 0) {
		native_free(p);
		return rc;
	}
	loop_timer_set(p->loop, &p->refill, now_ms(), refill_sockets, p);
	*ret = p;
	return 0;
}

struct provider *native_free(struct provider *p)
{
	if (!p)
		return NULL;
	p->engine = engine_client_free(p->engine);
	while (!list_empty(&p->boxes))
		box_free(list_entry(p->boxes.next, struct box, link));
	loop_timer_clear(&p->refill);
	while (p->n_ahead)
		fd_close(p->ahead[--p->n_ahead].fd);
	fd_close(p->ctl_fd);
	fd_close(p->runs_fd);
	free(p);
	return NULL;
}
