/* What the files of init_stream share; nobody else includes this. */
#ifndef PROVIDER_INIT_STREAM_IMPL_H
#define PROVIDER_INIT_STREAM_IMPL_H

#include "base/list.h"
#include "mux/mux.h"
#include "provider/init_stream.h"

/*
 * A message to init that it may not have carried out yet.  They are numbered in
 * their order (header.request), so that after a cut init's answer to RESUME says
 * which are to be sent again.
 */
struct kept {
	struct list link;
	uint64_t request;
	uint16_t type;
	uint8_t *blob; /* the strings that went as a descriptor, or NULL */
	size_t blob_n, n;
	uint8_t data[];
};

/* One of the two outputs of a run, when init put it into a file. */
struct fetch {
	uint64_t target; /* bytes that init has */
	uint64_t got;    /* that are in our file */
	uint64_t asked;  /* up to where; got: nothing is on its way */
	int fd;          /* ours, or -EBADF */
	bool spooled;
	bool told;   /* that it is spooled, by at least as much as came of it before */
	bool failed; /* it is lost there, or can't be written here */
};

/* A run whose news come: until its EXIT was passed on. */
struct track {
	struct list link;
	uint8_t id[INIT_RUN_ID];
	uint64_t request; /* of its RUN or ATTACH */
	uint64_t limit;   /* of its output; 0: none, or not known */
	bool started, any[2];
	uint64_t out[2]; /* bytes that were passed on */
	uint32_t index;  /* of its spool */
	struct fetch fetch[2];
	uint8_t *exit; /* its EXIT, which waits for the fetches; or NULL */
	size_t exit_n;
};

struct starting {
	struct list link;
	uint64_t request; /* an INIT_WORKER that isn't answered */
};

struct init_stream {
	struct loop *loop;
	const struct init_stream_events *events;
	void *ctx;
	uint64_t owner; /* our name in RESUME */
	bool known;     /* nonce is that of the only init that will do */
	uint8_t nonce[INIT_NONCE];
	char program[STREAM_PROGRAM_MAX + 1];

	/* The transport. */
	struct init_transport transport;
	struct mux mux;
	bool up;    /* there is one, and mux is in use */
	bool heard; /* its relay has said HELLO */
	bool live;  /* and init RESUMED */
	bool told_live;
	bool held; /* the transport is paused */
	char first[80];
	size_t first_n; /* what came before HELLO, for an error's text */
	struct loop_timer timer;
	uint64_t heard_ms;
	struct loop_later broken;
	struct garret_error why; /* of broken */
	uint32_t last_channel;

	/* Towards init. */
	struct chan local; /* our end of the socket that was given out */
	bool greeted;      /* its user has said HELLO */
	struct list kept;
	size_t kept_bytes, kept_unasked; /* unasked: since the last RESUME */
	unsigned n_unasked;
	bool asking; /* a RESUME is to be answered */
	uint64_t acked;
	struct list starting;

	/* From init. */
	struct list tracks;
	unsigned n_fetches;    /* SPOOL_READs on their way */
	uint64_t list_request; /* a LIST that isn't answered, or 0 */
	struct strbuf listed;  /* its LISTED frames so far */
};

/* The transport is over: from the loop, because callers are deep inside of it. */
void stream_break(struct init_stream *s, enum garret_code code, const char *fmt, ...)
	garret_printf(3, 4);

/* init_stream_out.c: from the socket towards init */
void out_begin(struct init_stream *s, const int pair[2]);
void out_local_frame(struct chan *chan, const uint8_t *msg, size_t n, struct msg_fds *fds);
void out_pause(struct init_stream *s); /* is more of the socket to be read now? */
void out_ask(struct init_stream *s);   /* RESUME: how far are they through? */
void out_resumed(struct init_stream *s, uint64_t last);
void out_acked(struct init_stream *s, uint64_t request);
void out_cut(struct init_stream *s);
void out_release(struct init_stream *s);

/* init_stream_in.c: from init to the socket.  False: it makes no sense */
bool in_control(struct init_stream *s, const struct stream_frame *f);
struct track *in_track(struct init_stream *s, const uint8_t *id);
struct track *in_track_new(struct init_stream *s, const uint8_t *id, uint64_t request);
void in_track_free(struct init_stream *s, struct track *t);
void in_error(struct init_stream *s, uint64_t request, enum garret_code code, const char *text);
void in_exit_if_whole(struct init_stream *s, struct track *t);
void in_release(struct init_stream *s);

/* init_stream_spool.c */
bool fetch_told(struct init_stream *s, struct track *t, unsigned stream, uint32_t index,
		uint64_t bytes);
bool fetch_whole(const struct track *t); /* nothing of it is to come any more */
bool fetch_data(struct init_stream *s, const struct stream_frame *f);
void fetch_go(struct init_stream *s);
void fetch_cut(struct init_stream *s);

#endif
