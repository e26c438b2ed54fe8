/*
 * What every box with an init has, whoever made it: commands, file operations
 * and spool files.  How it is opened, found again and closed is the provider's
 * own (native.c: an engine); how its init is reached as well (a socket of this
 * machine, or a byte stream: provider/init_stream.h).
 *
 * A provider's `struct box` begins with a `struct init_box`.  Then the functions
 * of INIT_BOX_OPS are its operations as they are, and with the box as context
 * those of INIT_BOX_EVENTS the events of its init_client.
 */
#ifndef PROVIDER_INIT_BOX_H
#define PROVIDER_INIT_BOX_H

#include "base/list.h"
#include "core/provider.h"
#include "provider/init_client.h"

#define SPOOLS_AHEAD 2

struct init_box;

/* One of the processes that carry out file operations; our end of its socket. */
struct file_worker {
	struct chan chan;
	struct init_box *box;
	struct box_file *job;    /* NULL: idle */
	uint64_t start;          /* init's answer to this request is due; 0: none */
	bool lost;               /* its socket ended before that answer came */
	struct loop_timer timer; /* idle: to end it; busy: it takes too long */
};

struct init_box {
	struct loop *loop;
	int runs_fd;              /* the provider's runs/, borrowed */
	char *runs_name;          /* in there; NULL: there will be no commands */
	struct init_client *init; /* NULL: not yet, or no more */
	bool dead;                /* nothing lives in there: unused spool files may go */
	bool no_rings;            /* no memory can be shared with its file workers */

	struct list runs;
	uint32_t next_spool; /* the number of the next pair; those before it may exist */
	uint32_t ahead[SPOOLS_AHEAD], n_ahead; /* pairs that init holds unused */
	bool runs_made;                        /* their directory */
	struct known_wait *listing;            /* which runs are there? */
	struct loop_timer spool_retry;

	struct file_worker workers[INIT_WORKERS];
	struct list files; /* operations that wait for a worker, oldest first */
	struct loop_later files_later;
};

static inline struct init_box *init_box_of(struct box *b)
{
	return (struct init_box *)b;
}

/* runs_name is copied. */
void init_box_begin(struct init_box *b, struct loop *loop, int runs_fd, const char *runs_name);
/* There is no init any more: commands end with `gone`, file operations fail. */
void init_box_drop(struct init_box *b);
/* Whoever listens is gone: nobody is told any more.  The box may be dropped then. */
void init_box_forget(struct init_box *b);
/* After drop. */
void init_box_release(struct init_box *b);
/* The list of runs didn't come in time. */
void init_box_not_listed(struct init_box *b);
/* Spool files that nothing was written to; only of a dead one. */
void init_box_drop_spools(struct init_box *b);

/* Operations of provider_ops.  ret of spool_open: -1 with errno. */
struct box_run *init_box_run(struct box *box, const struct box_run_spec *spec, box_run_end_fn end,
			     void *ctx, struct garret_error *err);
struct box_run *init_box_stream(struct box *box, const struct box_stream_spec *spec,
				const struct box_stream_events *events, void *ctx,
				struct garret_error *err);
void init_box_input(struct box_run *r, const void *data, size_t n);
void init_box_ack(struct box_run *r, int stream, uint64_t offset);
void init_box_winch(struct box_run *r, uint16_t rows, uint16_t columns);
void init_box_signal(struct box_run *r, int signo);
bool init_box_busy(const struct box_run *r);
void init_box_leave(struct box_run *r);
void init_box_stop(struct box_run *r, uint32_t grace_ms);
void init_box_state(const struct box_run *r, struct box_run_state *ret);
void init_box_runs(struct box *box, box_runs_fn done, void *ctx);
struct box_run *init_box_attach(struct box *box, const uint8_t *id, void (*news)(void *ctx),
				box_run_end_fn end, void *ctx, struct garret_error *err);
struct box_file *init_box_file(struct box *box, const struct file_request *rq,
			       const struct file_events *events, void *ctx,
			       struct garret_error *err);
size_t init_box_file_body(struct box_file *f, const void *data, size_t n);
void init_box_file_body_end(struct box_file *f);
int init_box_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err);
void init_box_file_pause(struct box_file *f, bool pause);
void init_box_file_leave(struct box_file *f);
/* The same for whoever fetches it (init_stream): made when it isn't there. */
int init_box_spool_write(struct init_box *b, uint32_t spool, int stream);
int init_box_spool_open(int runs_fd, const char *runs, uint32_t spool, int stream);
void init_box_spool_remove(int runs_fd, const char *runs, uint32_t spool);

/* clang-format off */
#define INIT_BOX_OPS                                                           \
	.run = init_box_run, .state = init_box_state, .runs = init_box_runs,   \
	.attach = init_box_attach, .stop = init_box_stop,                      \
	.stream = init_box_stream, .input = init_box_input,                    \
	.ack = init_box_ack, .winch = init_box_winch,                          \
	.signal = init_box_signal, .busy = init_box_busy,                      \
	.leave = init_box_leave, .file = init_box_file,                        \
	.file_body = init_box_file_body,                                       \
	.file_body_end = init_box_file_body_end,                               \
	.file_pipe = init_box_file_pipe, .file_pause = init_box_file_pause,    \
	.file_leave = init_box_file_leave
/* clang-format on */

/* Events of init_client; ready and lost are the provider's own. */
void run_on_out(void *ctx, const uint8_t *run, unsigned stream, uint64_t offset, const void *data,
		size_t n);
void run_on_exited(void *ctx, const uint8_t *run, const struct init_exit *e);
void run_on_started(void *ctx, const uint8_t *run, uint32_t pid);
void run_on_spooled(void *ctx, const uint8_t *run, unsigned stream, uint32_t index, uint64_t bytes);
void run_on_stdin_taken(void *ctx, const uint8_t *run, uint64_t bytes);
void run_on_stdin_held(void *ctx, const uint8_t *run, uint64_t bytes);
void runs_on_listed(void *ctx, const struct init_known *runs, uint32_t n, const uint32_t *spools,
		    uint32_t n_spools);
/* Of the requests that are answered so a worker's start and the list of runs are waited for. */
void init_box_on_done(void *ctx, uint64_t request, const struct garret_error *err);

/* clang-format off */
#define INIT_BOX_EVENTS                                                        \
	.started = run_on_started, .out = run_on_out,                          \
	.spooled = run_on_spooled, .exited = run_on_exited,                    \
	.stdin_taken = run_on_stdin_taken, .stdin_held = run_on_stdin_held,    \
	.listed = runs_on_listed, .done = init_box_on_done
/* clang-format on */

#endif
