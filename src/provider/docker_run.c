/*
 * A command as an exec of its own, for containers without our init.
 *
 * It runs below a small shell that writes its own number to a file first, so
 * that another exec can stop the whole group.  The shell is the group's leader,
 * because the engine starts each exec as one.  Output comes through the engine
 * into memory, up to the command's limit, which is why that is bounded here.
 *
 * The deadline counts from the call: making the exec and starting it is part of
 * it.  A stopped command that doesn't end within 5 s is answered all the same.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "provider/docker_impl.h"
#include "provider/init_box_impl.h"

#define OUTPUT_MAX (10u << 20) /* what the wire publishes, and what memory a command may take */
#define STOPPED_MS 5000
#define WINDOW (1u << 20) /* of a live stream that isn't acknowledged */

_Static_assert(offsetof(struct exec_run, box) == offsetof(struct box_run, box),
	       "both kinds of commands are found by their box");

static struct box *box_of(const struct exec_run *r)
{
	return (struct box *)r->box;
}

static void free_strings(char **list)
{
	for (char **p = list; p && *p; p++)
		free(*p);
	free(list);
}

/* ---- the end ---- */

static void run_free(struct exec_run *r)
{
	struct loop *l = box_of(r)->p->loop;

	if (r->exec)
		docker_exec_leave(r->exec);
	loop_timer_clear(&r->deadline);
	loop_timer_clear(&r->give_up);
	loop_later_cancel(l, &r->later);
	list_remove(&r->link);
	strbuf_release(&r->head[0]);
	strbuf_release(&r->head[1]);
	strbuf_release(&r->in);
	free_strings(r->argv);
	free_strings(r->env);
	free(r->cwd);
	free(r);
}

static void end_run(struct exec_run *r, bool gone, int exit_code)
{
	struct box_run_end end = { .gone = gone,
				   .timed_out = r->timed_out,
				   .output_limited = r->output_limited,
				   .stopped = r->stopped && !r->timed_out && !r->output_limited,
				   .exit_code = exit_code,
				   .failed = r->failed,
				   .wall_us = now_us() - r->start_us };

	for (int s = 0; s < 2; s++) {
		end.total[s] = r->total[s];
		end.head[s] = r->head[s];
		strbuf_init(&r->head[s]);
	}
	list_remove(&r->link);
	list_init(&r->link);
	r->over = true;
	if (r->stream && r->end)
		r->stream->end(r->ctx, &end);
	else if (r->end)
		r->end(r->ctx, &end);
	strbuf_release(&end.head[0]);
	strbuf_release(&end.head[1]);
	run_free(r);
}

void docker_runs_end(struct box *b)
{
	while (!list_empty(&b->execs))
		end_run(list_entry(b->execs.next, struct exec_run, link), true, 0);
}

/* ---- stopping ---- */

static void stop_ended(void *ctx, const struct docker_exec_end *end, const struct garret_error *err)
{
	(void)ctx;
	(void)end;
	(void)err; /* best effort: who waits has a time of its own */
}

/*
 * Waits up to 1 s for the number of a command that is just starting, then TERM, up to 2 s,
 * KILL.  dash takes no "--" before a negative number.
 */
#define SIGNAL_SCRIPT                                                                  \
	"i=0\n"                                                                        \
	"until [ -s \"$1\" ]; do\n"                                                    \
	"  [ $i -lt 20 ] || exit 0; i=$((i + 1)); sleep 0.05 2>/dev/null || sleep 1\n" \
	"done\n"                                                                       \
	"read -r p <\"$1\" || exit 0\n"                                                \
	"send() { kill -$1 -$p 2>/dev/null || kill -$1 $p 2>/dev/null; }\n"

#define STOP_SCRIPT                                            \
	SIGNAL_SCRIPT                                          \
	"send TERM\n"                                          \
	"i=0\n"                                                \
	"while [ $i -lt 20 ] && kill -0 -$p 2>/dev/null; do\n" \
	"  i=$((i + 1)); sleep 0.1 2>/dev/null || sleep 1\n"   \
	"done\n"                                               \
	"send KILL\n"                                          \
	"rm -f \"$1\"\n"

static void send_script(struct exec_run *r, const char *script, const char *signal)
{
	static const struct docker_exec_events events = { .end = stop_ended };
	const char *const argv[] = { "/bin/sh", "-c", script, "sh", r->pid_file, signal, NULL };
	struct box *b = box_of(r);

	(void)docker_exec_start(
		b->p->api,
		&(struct docker_exec_spec){
			.container = b->id, .argv = argv, .cwd = "/", .detach = true },
		&events, NULL);
}

void exec_run_signal(struct exec_run *r, int signo)
{
	char number[16];

	(void)snprintf(number, sizeof(number), "%d", signo);
	send_script(r, SIGNAL_SCRIPT "send \"$2\"\n", number);
}

static void on_give_up(struct loop_timer *t)
{
	end_run(t->ctx, false, 128 + SIGKILL);
}

void exec_run_stop(struct exec_run *r)
{
	if (r->stopped)
		return;
	r->stopped = true;
	send_script(r, STOP_SCRIPT, NULL);
	loop_timer_set(box_of(r)->p->loop, &r->give_up, now_ms() + STOPPED_MS, on_give_up, r);
}

static void on_deadline(struct loop_timer *t)
{
	struct exec_run *r = t->ctx;

	r->timed_out = true;
	exec_run_stop(r);
}

/* ---- what the exec says ---- */

static void tell(struct exec_run *r)
{
	if (r->news && r->end)
		r->news(r->ctx);
}

static void on_open(void *ctx)
{
	struct exec_run *r = ctx;

	r->started = true;
	exec_run_flush(r);
	tell(r);
}

static void take_live(struct exec_run *r, int stream, const void *data, size_t n)
{
	r->total[stream] += n;
	if (!r->end)
		return;
	r->stream->out(r->ctx, stream, data, n);
}

void exec_run_hold_back(struct exec_run *r)
{
	const bool full = r->total[0] - r->acked[0] > WINDOW || r->total[1] - r->acked[1] > WINDOW;

	if (full == r->paused || !r->exec)
		return;
	r->paused = full;
	docker_exec_pause(r->exec, full);
}

static void on_out(void *ctx, int stream, const void *data, size_t n)
{
	struct exec_run *r = ctx;
	uint64_t room;

	if (r->stream) {
		take_live(r, stream, data, n);
		exec_run_hold_back(r);
		return;
	}
	if (r->output_limited)
		return;
	room = r->output_limit - r->total[0] - r->total[1];
	r->output_limited = n > room;
	n = MIN(n, room);
	strbuf_add(&r->head[stream], data, n);
	r->total[stream] += n;
	if (r->output_limited)
		exec_run_stop(r);
	tell(r);
}

void exec_run_flush(struct exec_run *r)
{
	size_t n = r->in.len && r->exec ? docker_exec_write(r->exec, r->in.buf, r->in.len) : 0;

	strbuf_remove_front(&r->in, n);
	r->taken += n;
	if (n && r->stream && r->end)
		r->stream->taken(r->ctx, r->taken);
	else if (n)
		tell(r);
	if (r->input_ended && !r->in.len && r->exec && !r->tty)
		docker_exec_write_end(r->exec);
}

static void on_room(void *ctx)
{
	exec_run_flush(ctx);
}

static void begin(struct exec_run *r);

/* Someone paused it: what is to be run wants it running, as opening does. */
static void on_unpaused(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct box *b = ctx;
	struct exec_run *r;

	(void)json;
	(void)err;
	b->call = NULL;
	list_foreach (r, &b->execs, link)
		if (!r->exec && !r->over)
			begin(r);
}

static bool is_paused(const struct garret_error *err)
{
	return err->code == GARRET_CONFLICT && strstr(err->msg, "paused");
}

static void on_end(void *ctx, const struct docker_exec_end *end, const struct garret_error *err)
{
	struct exec_run *r = ctx;
	struct box *b = box_of(r);

	r->exec = NULL;
	if (err && is_paused(err) && !r->unpaused && !r->started) {
		r->unpaused = true;
		if (!b->call)
			b->call = docker_box_ask(b, "POST", "/unpause", on_unpaused);
		return;
	}
	/* What a command that was stopped ended with says nothing. */
	if (err && !r->stopped && (err->code == GARRET_CONFLICT || err->code == GARRET_NOT_FOUND))
		end_run(r, true, 0);
	else if (end->gone && !b->dead) {
		docker_box_dead(b); /* ends this one as well */
	} else if (end->gone) {
		end_run(r, true, 0);
	} else {
		if (err && !r->stopped)
			r->failed = *err;
		end_run(r, false, end->exit_code);
	}
}

static const struct docker_exec_events run_events = {
	.open = on_open, .out = on_out, .room = on_room, .end = on_end
};

/* ---- starting ---- */

/*
 * Signals go to the whole group: the shell outlives them, to say how its command ended.
 * (Handlers are reset in what it starts, which what it ignores would not be.)
 *
 * A number that can't be written (no /tmp) leaves a command that only its container's end
 * stops; it runs all the same.
 */
#define WRAPPER                                     \
	"f=$1; shift\n"                             \
	"trap : HUP INT QUIT TERM USR1 USR2 ALRM\n" \
	"{ echo $$ >\"$f\"; } 2>/dev/null\n"        \
	"\"$@\"\n"                                  \
	"s=$?\n"                                    \
	"rm -f \"$f\" 2>/dev/null\n"                \
	"exit $s"

static char **copy_strings(const char *const *list, unsigned before)
{
	size_t n = 0;
	char **out;

	while (list && list[n])
		n++;
	out = xcalloc(n + before + 1, sizeof(char *));
	for (size_t i = 0; i < n; i++)
		out[before + i] = xstrdup(list[i]);
	return out;
}

static void begin(struct exec_run *r)
{
	struct box *b = box_of(r);

	r->exec = docker_exec_start(
		b->p->api,
		&(struct docker_exec_spec){ .container = b->id,
					    .argv = (const char *const *)r->argv,
					    .env = r->env[0] ? (const char *const *)r->env : NULL,
					    .cwd = r->cwd ? r->cwd : b->work_dir,
					    .input = r->input,
					    .tty = r->tty,
					    .rows = r->rows,
					    .columns = r->columns },
		&run_events, r);
}

static struct exec_run *new_run(struct box *b, const uint8_t *id, const char *const *argv,
				const char *const *env)
{
	enum { WRAPPED = 5 };
	struct exec_run *r = xnew(struct exec_run);

	r->box = &b->common;
	memcpy(r->id, id, RUN_ID_BYTES);
	memcpy(r->pid_file, DOCKER_PID_FILE, sizeof(DOCKER_PID_FILE));
	hex_encode(id, RUN_ID_BYTES, r->pid_file + sizeof(DOCKER_PID_FILE) - 1);
	strbuf_init(&r->head[0]);
	strbuf_init(&r->head[1]);
	strbuf_init(&r->in);
	r->start_us = now_us();
	r->argv = copy_strings(argv, WRAPPED);
	r->argv[0] = xstrdup("/bin/sh");
	r->argv[1] = xstrdup("-c");
	r->argv[2] = xstrdup(WRAPPER);
	r->argv[3] = xstrdup("sh");
	r->argv[4] = xstrdup(r->pid_file);
	r->env = copy_strings(env, 0);
	list_append(&b->execs, &r->link);
	return r;
}

static int check(struct box *b, const char *const *argv, const char *const *env,
		 struct garret_error *err)
{
	if (b->dead || b->closing)
		return garret_fail(err, GARRET_GONE, "the container is gone");
	return init_check_strings(argv, env, err);
}

static void limit_time(struct exec_run *r, uint32_t ms)
{
	if (ms)
		loop_timer_set(box_of(r)->p->loop, &r->deadline, now_ms() + ms, on_deadline, r);
}

struct box_run *docker_run(struct box *b, const struct box_run_spec *spec, box_run_end_fn end,
			   void *ctx, struct garret_error *err)
{
	struct exec_run *r;

	if (b->via_init)
		return init_box_run(b, spec, end, ctx, err);
	if (check(b, spec->argv, spec->env, err) < 0)
		return NULL;
	r = new_run(b, spec->id, spec->argv, spec->env);
	r->cwd = spec->cwd ? xstrdup(spec->cwd) : NULL;
	r->input = spec->input;
	r->output_limit = spec->output_limit && spec->output_limit < OUTPUT_MAX ? spec->output_limit
										: OUTPUT_MAX;
	r->news = spec->news;
	r->end = end;
	r->ctx = ctx;
	limit_time(r, spec->timeout_ms);
	begin(r);
	return (struct box_run *)r;
}

struct box_run *docker_stream(struct box *b, const struct box_stream_spec *spec,
			      const struct box_stream_events *events, void *ctx,
			      struct garret_error *err)
{
	uint8_t id[RUN_ID_BYTES];
	struct exec_run *r;

	if (b->via_init)
		return init_box_stream(b, spec, events, ctx, err);
	if (check(b, spec->argv, spec->env, err) < 0)
		return NULL;
	if (docker_random(id, sizeof(id), err) < 0)
		return NULL;
	r = new_run(b, id, spec->argv, spec->env);
	r->input = true;
	r->tty = spec->tty;
	/* The engine would size the terminal only when the command already looks at it. */
	if (r->tty && spec->rows) {
		free(r->argv[2]);
		r->argv[2] = xasprintf("stty rows %u cols %u 2>/dev/null\n%s", spec->rows,
				       spec->columns, WRAPPER);
	}
	r->rows = spec->rows;
	r->columns = spec->columns;
	r->stream = events;
	r->end = events->end;
	r->ctx = ctx;
	limit_time(r, spec->timeout_ms);
	begin(r);
	return (struct box_run *)r;
}
