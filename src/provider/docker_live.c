/*
 * Operations on a command that is there: init's own, or those of an exec.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "provider/docker_impl.h"
#include "provider/init_box_impl.h"

#define INPUT_MAX (1u << 20)

static struct exec_run *exec_of(const struct box_run *r)
{
	return (struct exec_run *)(uintptr_t)r;
}

static bool by_init(const struct box_run *r)
{
	return ((const struct box *)r->box)->via_init;
}

void docker_state(const struct box_run *run, struct box_run_state *ret)
{
	const struct exec_run *r = exec_of(run);

	if (by_init(run)) {
		init_box_state(run, ret);
		return;
	}
	*ret = (struct box_run_state){ .started = r->started,
				       .total = { r->total[0], r->total[1] },
				       .head = { r->head[0].buf, r->head[1].buf },
				       .held = r->held,
				       .taken = r->taken,
				       .input_ended = r->input_ended };
}

void docker_stop(struct box_run *run, uint32_t grace_ms)
{
	if (by_init(run))
		init_box_stop(run, grace_ms);
	else
		exec_run_stop(exec_of(run));
}

void docker_input(struct box_run *run, const void *data, size_t n)
{
	struct exec_run *r = exec_of(run);

	if (by_init(run)) {
		init_box_input(run, data, n);
		return;
	}
	if (!n && r->tty)
		strbuf_addch(&r->in, 4); /* what a terminal makes an end of */
	r->input_ended = r->input_ended || !n;
	r->held += n;
	strbuf_add(&r->in, data, n);
	exec_run_flush(r);
}

void docker_ack(struct box_run *run, int stream, uint64_t offset)
{
	struct exec_run *r = exec_of(run);

	if (by_init(run)) {
		init_box_ack(run, stream, offset);
		return;
	}
	if (offset > r->acked[stream] && offset <= r->total[stream])
		r->acked[stream] = offset;
	exec_run_hold_back(r);
}

void docker_winch(struct box_run *run, uint16_t rows, uint16_t columns)
{
	struct exec_run *r = exec_of(run);

	if (by_init(run))
		init_box_winch(run, rows, columns);
	else if (r->exec)
		docker_exec_resize(r->exec, rows, columns);
}

void docker_signal(struct box_run *run, int signo)
{
	if (by_init(run))
		init_box_signal(run, signo);
	else
		exec_run_signal(exec_of(run), signo);
}

bool docker_busy(const struct box_run *run)
{
	return by_init(run) ? init_box_busy(run) : exec_of(run)->in.len >= INPUT_MAX;
}

void docker_leave(struct box_run *run)
{
	struct exec_run *r = exec_of(run);

	if (by_init(run)) {
		init_box_leave(run);
		return;
	}
	r->end = NULL;
	exec_run_stop(r);
}

struct listing {
	struct loop_later later;
	struct loop *loop;
	box_runs_fn done;
	void *ctx;
};

static void on_listed(struct loop_later *l)
{
	struct listing *w = l->ctx;

	w->done(w->ctx, NULL, 0, NULL);
	free(w);
}

/* Nobody inside keeps a list: what an earlier process ran was ended with its connection. */
void docker_runs(struct box *b, box_runs_fn done, void *ctx)
{
	struct listing *w;

	if (b->via_init) {
		init_box_runs(b, done, ctx);
		return;
	}
	w = xnew(struct listing);
	w->done = done;
	w->ctx = ctx;
	loop_later_add(b->p->loop, &w->later, on_listed, w);
}

struct box_run *docker_attach(struct box *b, const uint8_t *id, void (*news)(void *ctx),
			      box_run_end_fn end, void *ctx, struct garret_error *err)
{
	if (b->via_init)
		return init_box_attach(b, id, news, end, ctx, err);
	(void)garret_fail(err, GARRET_NOT_FOUND, "no command is known in a container without init");
	return NULL;
}
