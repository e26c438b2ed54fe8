/* What the files of init_box share; nobody else includes this. */
#ifndef PROVIDER_INIT_BOX_IMPL_H
#define PROVIDER_INIT_BOX_IMPL_H

#include "provider/init_box.h"

struct box_file {
	struct list link; /* box.files while it waits */
	struct init_box *box;
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

	/* init_box_body.c */
	bool body_open;  /* BODY_END wasn't sent */
	bool body_ended; /* but it is due, as soon as there is a worker */
	bool want_room, no_ring;
	struct strbuf collected; /* less than a frame */
	uint8_t *ring; /* shared with the worker, which may write anything to it; or NULL */
	uint64_t framed, head, said, taken;
};

struct box_run {
	struct list link;
	struct init_box *box;
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

/* init_box_body.c: what a client sends on its way to a worker */
#define BODY_QUEUE (1u << 20)                       /* bytes of frames that wait for the socket */
bool body_taken(struct box_file *f, struct get *g); /* false: it lies */
void body_room(struct box_file *f);
void body_release(struct box_file *f);

/* init_box_files.c */
void files_init(struct init_box *b);
void files_end_all(struct init_box *b); /* the session is gone */
void files_forget(struct init_box *b);  /* nobody is to be told */
void files_on_start(struct init_box *b, uint64_t request, const struct garret_error *err);

/* init_box_run.c */
void runs_end_all(struct init_box *b);
void runs_forget(struct init_box *b); /* nobody is to be told */
void runs_on_done(struct init_box *b, uint64_t request, const struct garret_error *err);

#endif
