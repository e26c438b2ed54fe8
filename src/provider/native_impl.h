/* What the files of the native provider share; nobody else includes this. */
#ifndef PROVIDER_NATIVE_IMPL_H
#define PROVIDER_NATIVE_IMPL_H

#include "base/list.h"
#include "provider/engine_client.h"
#include "provider/engine_link.h"
#include "provider/init_client.h"
#include "provider/native.h"

#define SOCKETS_AHEAD 8
#define SPOOLS_AHEAD 2

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
	struct engine_link link;
	bool up;           /* the engine knows who we are */
	bool begun;        /* it did once: what comes now is another engine */
	bool keeper_gone;  /* what we are connected to is the last one */
	unsigned adopting; /* answers that are due before strays may be ended */
	struct engine_hello hello;
	int ctl_fd, runs_fd;
	struct list boxes;
	struct list forgetting; /* what is to be removed, and not yet said to be */
	struct native_config config;
};

/* One of the processes that carry out file operations; garretd's end of its socket. */
struct file_worker {
	struct chan chan;
	struct box *box;
	struct box_file *job;    /* NULL: idle */
	uint64_t start;          /* init's answer to this request is due; 0: none */
	bool lost;               /* its socket ended before that answer came */
	struct loop_timer timer; /* idle: to end it; busy: it takes too long */
};

struct box {
	struct list link; /* provider.boxes */
	struct provider *p;
	char id[ENGINE_ID_MAX + 1];
	char ctl_name[48]; /* in ctl/ */
	char *runs_name;   /* in runs/; NULL: there will be no commands */
	uint64_t handle;   /* 0: not opened by the engine */
	uint8_t nonce[INIT_NONCE];
	char mark[96];
	struct init_client *init;
	struct list runs;
	uint32_t next_spool; /* the number of the next pair; those before it may exist */
	uint32_t ahead[SPOOLS_AHEAD], n_ahead; /* pairs that init holds unused */
	bool runs_made;                        /* their directory */
	struct known_wait *listing;            /* which runs are there? */
	struct file_worker workers[INIT_WORKERS];
	struct list files; /* operations that wait for a worker, oldest first */
	struct loop_later files_later;
	struct loop_timer spool_retry;
	bool asked; /* the engine's answer to OPEN is due */
	bool greeted, dead, closing;
	bool adopted;
	enum box_close how;
	enum box_layer layer;

	box_opened_fn opened;
	void *opened_ctx;
	box_died_fn died;
	void *died_ctx;
	box_done_fn closed;
	void *closed_ctx;
	struct loop_later later;
	struct loop_timer silent; /* adopted: init should have answered long ago */
	struct garret_error open_error;
};

#define SILENT_MS 32000 /* as for a run that is overdue */
/* The list of runs didn't come. */
void runs_not_listed(struct box *b);

struct box_file {
	struct list link; /* box.files while it waits */
	struct box *box;
	struct file_worker *worker; /* NULL: it waits for one */
	struct file_request rq;     /* its strings are not kept */
	uint8_t *frame;             /* the request, until it can't be repeated any more */
	uint32_t frame_bytes;
	const struct file_events *events;
	void *ctx;
	bool told;     /* something came: it can't be asked again elsewhere */
	bool again;    /* it was, once */
	bool informed; /* its INFO came */
	bool piped;    /* the bytes of a READ go elsewhere */
	uint64_t due;  /* how many of its bytes may still come in frames */
	bool paused;   /* nothing is to come for now */
	bool *gone;    /* set when it ends inside its own callback */

	/* native_body.c */
	bool body_open;  /* BODY_END wasn't sent */
	bool body_ended; /* but it is due, as soon as there is a worker */
	bool want_room, no_ring;
	struct strbuf collected; /* less than a frame */
	uint8_t *ring; /* shared with the worker, which may write anything to it; or NULL */
	uint64_t framed, head, said, taken;
};

struct box_run {
	struct list link;
	struct box *box;
	uint8_t id[RUN_ID_BYTES];
	struct strbuf head[2];
	uint64_t spooled[2]; /* bytes in the file; UINT64_MAX: it isn't spooled */
	uint32_t spool;
	bool started;
	uint64_t held, taken; /* of the input */
	bool input_ended;
	void (*news)(void *ctx);
	box_run_end_fn end;                     /* NULL: nobody listens any more */
	const struct box_stream_events *stream; /* NULL: captured */
	uint64_t streamed[2];
	void *ctx;
};

/* native_socket.c: control sockets, bound before they are wanted. */
void socket_path(const struct provider *p, const char *name, char out[80]);
int socket_take(struct provider *p, struct control_socket *ret, struct garret_error *err);
void sockets_refill(struct loop_timer *t);

/* native_body.c: what a client sends on its way to a worker */
#define BODY_QUEUE (1u << 20)                       /* bytes of frames that wait for the socket */
bool body_taken(struct box_file *f, struct get *g); /* false: it lies */
void body_room(struct box_file *f);
void body_release(struct box_file *f);

/* native_files.c */
void files_init(struct box *b);
void files_end_all(struct box *b); /* the session is gone */
void files_forget(struct box *b);  /* nobody is to be told */
void files_on_start(struct box *b, uint64_t request, const struct garret_error *err);
struct box_file *native_file(struct box *b, const struct file_request *rq,
			     const struct file_events *events, void *ctx, struct garret_error *err);
size_t native_file_body(struct box_file *f, const void *data, size_t n);
void native_file_body_end(struct box_file *f);
int native_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err);
void native_file_pause(struct box_file *f, bool pause);
void native_file_leave(struct box_file *f);

/* native_run.c: the part of the operations and of init's events that is about commands. */
void runs_end_all(struct box *b);
void runs_forget(struct box *b); /* nobody is to be told */
void run_on_out(void *ctx, const uint8_t *run, unsigned stream, uint64_t offset, const void *data,
		size_t n);
void run_on_exited(void *ctx, const uint8_t *run, const struct init_exit *e);
void run_on_started(void *ctx, const uint8_t *run, uint32_t pid);
void run_on_spooled(void *ctx, const uint8_t *run, unsigned stream, uint32_t index, uint64_t bytes);
void run_on_stdin_taken(void *ctx, const uint8_t *run, uint64_t bytes);
void run_on_stdin_held(void *ctx, const uint8_t *run, uint64_t bytes);
void runs_on_listed(void *ctx, const struct init_known *runs, uint32_t n, const uint32_t *spools,
		    uint32_t n_spools);
void runs_on_done(struct box *b, uint64_t request, const struct garret_error *err);
/* The spool files that nothing was written to. */
void spools_drop_unused(struct box *b);
struct box_run *native_run(struct box *b, const struct box_run_spec *spec, box_run_end_fn end,
			   void *ctx, struct garret_error *err);
struct box_run *native_stream(struct box *b, const struct box_stream_spec *spec,
			      const struct box_stream_events *events, void *ctx,
			      struct garret_error *err);
void native_input(struct box_run *r, const void *data, size_t n);
void native_ack(struct box_run *r, int stream, uint64_t offset);
void native_winch(struct box_run *r, uint16_t rows, uint16_t columns);
void native_signal(struct box_run *r, int signo);
bool native_busy(const struct box_run *r);
void native_leave(struct box_run *r);
void native_stop(struct box_run *r, uint32_t grace_ms);
void native_state(const struct box_run *r, struct box_run_state *ret);
void native_runs(struct box *b, box_runs_fn done, void *ctx);
struct box_run *native_attach(struct box *b, const uint8_t *id, void (*news)(void *ctx),
			      box_run_end_fn end, void *ctx, struct garret_error *err);
int native_spool_open(struct provider *p, const char *runs, uint32_t spool, int stream);
void native_spool_remove(struct provider *p, const char *runs, uint32_t spool);

#endif
