/*
 * Files: by init's file workers, or without init from commands (shellfs), each
 * of which is an exec.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "provider/docker_impl.h"

/* ---- commands for shellfs ---- */

struct shell_run {
	struct box *b;
	struct docker_exec *exec;
	const struct shell_events *events;
	void *ctx;
	struct loop_timer deadline;
};

static void shell_end(struct shell_run *r, int code, const struct garret_error *err)
{
	const struct shell_events *events = r->events;
	void *ctx = r->ctx;

	loop_timer_clear(&r->deadline);
	free(r);
	events->end(ctx, code, err);
}

static void on_out(void *ctx, int stream, const void *data, size_t n)
{
	struct shell_run *r = ctx;

	r->events->out(r->ctx, stream, data, n);
}

static void on_room(void *ctx)
{
	struct shell_run *r = ctx;

	if (r->events->room)
		r->events->room(r->ctx);
}

static void on_end(void *ctx, const struct docker_exec_end *end, const struct garret_error *err)
{
	struct shell_run *r = ctx;
	struct garret_error gone = { 0 };

	if (end->gone)
		(void)garret_fail(&gone, GARRET_GONE, "container %.120s is gone", r->b->name);
	shell_end(r, end->exit_code, end->gone ? &gone : err);
}

static void on_late(struct loop_timer *t)
{
	struct shell_run *r = t->ctx;
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_TIMEOUT, "a command in the container took too long");
	docker_exec_leave(r->exec);
	shell_end(r, 0, &err);
}

static struct shell_run *host_run(void *ctx, const struct shell_command *cmd,
				  const struct shell_events *events, void *events_ctx,
				  struct garret_error *err)
{
	/* What was given before it was open wasn't taken. */
	static const struct docker_exec_events exec_events = {
		.open = on_room, .out = on_out, .room = on_room, .end = on_end
	};
	struct box *b = ctx;
	struct shell_run *r;

	if (b->dead) {
		(void)garret_fail(err, GARRET_GONE, "container %.120s is gone", b->name);
		return NULL;
	}
	r = xnew(struct shell_run);
	r->b = b;
	r->events = events;
	r->ctx = events_ctx;
	r->exec = docker_exec_start(b->p->api,
				    &(struct docker_exec_spec){ .container = b->id,
								.argv = cmd->argv,
								.cwd = b->work_dir,
								.input = cmd->input },
				    &exec_events, r);
	if (cmd->timeout_ms)
		loop_timer_set(b->p->loop, &r->deadline, now_ms() + cmd->timeout_ms, on_late, r);
	return r;
}

static size_t host_input(struct shell_run *r, const void *data, size_t n)
{
	return docker_exec_write(r->exec, data, n);
}

static void host_input_end(struct shell_run *r)
{
	docker_exec_write_end(r->exec);
}

static void host_pause(struct shell_run *r, bool pause)
{
	docker_exec_pause(r->exec, pause);
}

/* Its input ends with the connection, which ends what reads it. */
static void host_cancel(struct shell_run *r)
{
	docker_exec_leave(r->exec);
	loop_timer_clear(&r->deadline);
	free(r);
}

void docker_files_begin(struct box *b)
{
	const struct shell_host host = { .loop = b->p->loop,
					 .work_dir = b->work_dir,
					 .input = true,
					 .raw = true,
					 .run = host_run,
					 .input_more = host_input,
					 .input_end = host_input_end,
					 .pause = host_pause,
					 .cancel = host_cancel,
					 .ctx = b };

	b->fs = shellfs_new(&host);
}

/* ---- the operations ---- */

/* Which of the two an operation is, its memory doesn't say: so it is wrapped. */
struct docker_file_op {
	bool init;
	union {
		struct box_file *file;
		struct shellfs_op *op;
	};
	const struct file_events *events;
	void *ctx;
};

static struct docker_file_op *op_of(struct box_file *f)
{
	return (struct docker_file_op *)f;
}

static void op_info(void *ctx, const struct file_info *info)
{
	struct docker_file_op *o = ctx;

	if (o->events->info)
		o->events->info(o->ctx, info);
}

static void op_entry(void *ctx, const struct file_info *info)
{
	struct docker_file_op *o = ctx;

	if (o->events->entry)
		o->events->entry(o->ctx, info);
}

static void op_match(void *ctx, const struct file_match *m)
{
	struct docker_file_op *o = ctx;

	if (o->events->match)
		o->events->match(o->ctx, m);
}

static void op_data(void *ctx, const void *data, size_t n)
{
	struct docker_file_op *o = ctx;

	if (o->events->data)
		o->events->data(o->ctx, data, n);
}

static void op_room(void *ctx)
{
	struct docker_file_op *o = ctx;

	if (o->events->room)
		o->events->room(o->ctx);
}

static void op_end(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct docker_file_op *o = ctx;
	const struct file_events *events = o->events;
	void *theirs = o->ctx;

	free(o);
	events->end(theirs, end, err);
}

static const struct file_events op_events = { .info = op_info,
					      .entry = op_entry,
					      .match = op_match,
					      .data = op_data,
					      .room = op_room,
					      .end = op_end };

struct box_file *docker_file(struct box *b, const struct file_request *rq,
			     const struct file_events *events, void *ctx, struct garret_error *err)
{
	struct docker_file_op *o;

	if (!b->via_init && !b->fs) {
		(void)garret_fail(err, GARRET_GONE, "the container is gone");
		return NULL;
	}
	o = xnew(struct docker_file_op);
	o->init = b->via_init;
	o->events = events;
	o->ctx = ctx;
	if (o->init)
		o->file = init_box_file(b, rq, &op_events, o, err);
	else
		o->op = shellfs_file(b->fs, rq, &op_events, o, err);
	if (o->init ? !o->file : !o->op) {
		free(o);
		return NULL;
	}
	return (struct box_file *)o;
}

size_t docker_file_body(struct box_file *f, const void *data, size_t n)
{
	struct docker_file_op *o = op_of(f);

	return o->init ? init_box_file_body(o->file, data, n) : shellfs_body(o->op, data, n);
}

void docker_file_body_end(struct box_file *f)
{
	struct docker_file_op *o = op_of(f);

	if (o->init)
		init_box_file_body_end(o->file);
	else
		shellfs_body_end(o->op);
}

int docker_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err)
{
	struct docker_file_op *o = op_of(f);

	if (o->init)
		return init_box_file_pipe(o->file, ret_fd, err);
	return garret_fail(err, GARRET_MISUSE, "this file isn't read through a pipe");
}

void docker_file_pause(struct box_file *f, bool pause)
{
	struct docker_file_op *o = op_of(f);

	if (o->init)
		init_box_file_pause(o->file, pause);
	else
		shellfs_pause(o->op, pause);
}

void docker_file_leave(struct box_file *f)
{
	struct docker_file_op *o = op_of(f);

	if (o->init)
		init_box_file_leave(o->file);
	else
		shellfs_leave(o->op);
	free(o);
}
