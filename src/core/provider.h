/*
 * One way to hold sessions, as the core sees it.  Only core/ calls these.
 *
 * Calls that take a callback start work and return at once; each callback is
 * called exactly once, from the loop, never before the call returned.
 */
#ifndef CORE_PROVIDER_H
#define CORE_PROVIDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "core/file_events.h"

#define RUN_ID_BYTES 16

struct provider; /* the implementation's own */
struct box;      /* one environment */
struct box_run;  /* one command in it */

/* A directory of the host that is seen inside. */
struct box_volume {
	const char *host, *inside; /* absolute */
	bool read_only;
};

/* Limits: 0 is the provider's default. */
struct box_spec {
	const char *id;
	const char *runtime; /* what the alias stands for */
	const char *work_dir;
	const char *network;     /* "none", "host"; NULL: the provider's default */
	const char *oci_runtime; /* of an engine of containers; NULL: its default */
	uint64_t memory_bytes, memory_swap_bytes, tmpfs_bytes, disk_bytes;
	uint32_t cpu_millis, cpu_shares, pids;
	bool attach; /* only over files that are there; NOT_FOUND otherwise */
	bool files;  /* nothing but the files, to be read; no limits may be given; as attach */
	/* Where the output goes that an environment can't hold: the name of a directory below
	 * the provider's runs/, which outlives the box.  NULL with `files`. */
	const char *runs;
	const struct box_volume *volumes;
	unsigned n_volumes;
	/*
	 * To be attached to: what ref() of an earlier box said, untrusted.  GONE when it is no
	 * more, or isn't this provider's.  NULL: one of its own, made when there is none.
	 */
	const char *ref;
	/* NULL, or called as soon as the environment was made, with its ref: whatever fails behind
	 * that, it is there.  At the latest before the box is given out. */
	void (*named)(void *ctx, const char *ref);
	void *named_ctx;
};

/* Those that a living environment can be given anew. */
enum box_limit { BOX_MEMORY = 1, BOX_SWAP = 2, BOX_CPUS = 4, BOX_SHARES = 8, BOX_PIDS = 16 };
struct box_limits {
	uint64_t memory_bytes, memory_swap_bytes; /* swap: both together; 0: as memory */
	uint32_t cpu_millis, cpu_shares, pids;    /* 0: the provider's default */
};

/* What the provider can give: bits, and numbers that a limit may have at most (0: not known). */
struct limit_bounds {
	bool known;
	unsigned can; /* enum box_limit */
	uint64_t memory_bytes, tmpfs_bytes;
	uint32_t cpu_millis, pids;
};

struct box_usage {
	/* UINT64_MAX: unknown */
	uint64_t memory_bytes, memory_limit_bytes, cpu_us, pids, oom_kills;
	uint64_t io_read_bytes, io_written_bytes, disk_bytes;
};

struct box_run_spec {
	const uint8_t *id; /* RUN_ID_BYTES */
	const char *const *argv, *const *env;
	const char *cwd; /* NULL: the work directory */
	uint32_t timeout_ms;
	uint64_t output_limit;
	bool input;              /* it reads what input() gives it; else nothing */
	bool live;               /* state() and signal() will be used, where that costs more */
	void (*news)(void *ctx); /* box_run_state() would say something new; the end isn't news */
};

/* What is known of a command that runs. */
struct box_run_state {
	bool started;         /* its program was executed */
	uint64_t total[2];    /* bytes of output so far */
	const char *head[2];  /* all of them, unless spooled */
	bool spooled[2];      /* they are in the file */
	uint32_t spool;       /* number of the pair of files */
	uint64_t held, taken; /* bytes of input that arrived inside; of them read or dropped */
	bool input_ended;     /* and its end */
};

/* A command that an adopted environment knows. */
struct box_run_known {
	const uint8_t *id; /* RUN_ID_BYTES, borrowed */
	uint64_t age_us;   /* since it was asked for */
	uint64_t held;     /* bytes of input that arrived */
	bool stream;       /* it had live streams, of a client that is gone */
	bool input_ended;
};

/* How a command ended.  The buffers may be taken (strbuf_detach) by the callee. */
struct box_run_end {
	bool gone; /* the environment ended under it; set besides: what came of its output */
	/* With a code: whoever carries it out failed, and nobody can tell how it ended. */
	struct garret_error failed;
	bool timed_out, output_limited, stopped;
	/* Of another service, when it isn't what was asked for: the limit that was reached. */
	uint32_t limit_ms;    /* timed_out */
	uint64_t limit_bytes; /* output_limited */
	bool output_lost;     /* less is in the spool than init says it wrote */
	bool no_process; /* it could not be started: pids or memory of the session are exhausted */
	int exit_code;
	uint32_t background; /* processes of the box that no command owns any more */
	uint64_t total[2];
	struct strbuf head[2]; /* the whole stream, unless spooled */
	bool spooled[2];
	uint32_t spool; /* with something spooled: number of the pair of files */
	bool oom;       /* something of the session was killed for memory meanwhile */
	uint64_t wall_us, user_us, system_us, max_rss_bytes;
};

/* A command with live streams; offsets count the bytes of a stream from its start. */
struct box_stream_spec {
	const char *const *argv, *const *env;
	uint32_t timeout_ms; /* 0: none */
	bool tty;            /* a terminal inside; one stream (0) */
	uint16_t rows, columns;
};
struct box_run_end;
struct box_stream_events {
	void (*out)(void *ctx, int stream /* 0, 1 */, const void *data, size_t n);
	void (*taken)(void *ctx, uint64_t bytes); /* of stdin, in all */
	void (*end)(void *ctx, struct box_run_end *end);
};

typedef void (*box_opened_fn)(void *ctx, struct box *box, const struct garret_error *err);
typedef void (*box_done_fn)(void *ctx, const struct garret_error *err);
struct kept_files {
	const char *id;
	uint64_t bytes, files; /* when sizes were asked for */
	uint64_t used_ms;      /* wall clock */
	uint64_t layer_ms;     /* the same of the write layer; 0: none is kept */
	bool ours;             /* made or used by us: only then it may be removed by age */
	bool partial;          /* there is more: counting took too long */
};

enum box_close {
	BOX_CLOSE_PLAIN, /* the workspace is kept */
	BOX_CLOSE_PURGE, /* nothing is */
	BOX_CLOSE_KEEP,  /* the write layer as well, for the next box of that id */
	BOX_CLOSE_LEAVE, /* nothing ends: it goes on as it is, without us (not of the native) */
};

/* What a new box got of a kept write layer. */
enum box_layer { BOX_LAYER_NONE, BOX_LAYER_USED, BOX_LAYER_SUSPECT, BOX_LAYER_OTHER_RUNTIME };

enum box_forget { BOX_FORGET_LAYER, BOX_FORGET_ALL };
typedef void (*box_kept_fn)(void *ctx, const struct kept_files *k);
typedef void (*box_usage_fn)(void *ctx, const struct box_usage *u, const struct garret_error *err);
typedef void (*box_run_end_fn)(void *ctx, struct box_run_end *end);
/* runs NULL with err: it can't be told. */
typedef void (*box_runs_fn)(void *ctx, const struct box_run_known *runs, size_t n,
			    const struct garret_error *err);
/* The environment died by itself (box_close is still due). */
typedef void (*box_died_fn)(void *ctx);

struct box_file; /* a file operation */

struct provider_ops {
	const char *name;

	/* died_ctx goes to died for this box. */
	void (*open)(struct provider *p, const struct box_spec *spec, box_opened_fn done,
		     void *ctx);
	void (*watch)(struct box *box, box_died_fn died, void *ctx);
	/* Its work directory, when only the environment knows it (borrowed); NULL: the spec's. */
	const char *(*work_dir)(const struct box *box);
	/*
	 * By what another process finds the box again: a line of text, of an open box.  And
	 * finding it: NOT_FOUND when it is no more.  Of spec only id and runs count.  Once all
	 * are found, settle() ends those that nobody wanted.
	 */
	const char *(*mark)(const struct box *box);
	void (*adopt)(struct provider *p, const struct box_spec *spec, const char *mark,
		      box_opened_fn done, void *ctx);
	void (*settle)(struct provider *p);
	/* End every process, release the box (it may not be used any more).  Also of a dead one.
	 * Live runs end with `gone` first. */
	void (*close)(struct box *box, enum box_close how, box_done_fn done, void *ctx);
	enum box_layer (*layer)(const struct box *box);
	/* The name of the environment, for box_spec.ref.  NULL: it has none of that kind. */
	const char *(*ref)(const struct box *box);
	/* How an open one is reached: "init", or "exec: " and why not.  NULL: always init. */
	const char *(*reach)(const struct box *box);
	void (*usage)(struct box *box, box_usage_fn done, void *ctx);
	/*
	 * Change those limits whose bits (enum box_limit) are in `which`, all of them or none.
	 * CONFLICT: more memory is in use than would be allowed, and it can't be taken back.
	 */
	void (*limits)(struct box *box, unsigned which, const struct box_limits *l,
		       box_done_fn done, void *ctx);

	/* Start a command; NULL with err when it can't even be asked for. */
	struct box_run *(*run)(struct box *box, const struct box_run_spec *spec, box_run_end_fn end,
			       void *ctx, struct garret_error *err);
	void (*state)(const struct box_run *run, struct box_run_state *ret);

	/* Which commands does an adopted environment know?  Before anything is run in it. */
	void (*runs)(struct box *box, box_runs_fn done, void *ctx);
	/*
	 * Take one of them over as if it had been started here; news and end as for run().  With
	 * end NULL nobody is told, and it is forgotten once it has ended.
	 */
	struct box_run *(*attach)(struct box *box, const uint8_t *id, void (*news)(void *ctx),
				  box_run_end_fn end, void *ctx, struct garret_error *err);

	/* TERM, then KILL after grace_ms.  end is called as usual. */
	void (*stop)(struct box_run *run, uint32_t grace_ms);

	/* The same with live streams; the events are borrowed. */
	struct box_run *(*stream)(struct box *box, const struct box_stream_spec *spec,
				  const struct box_stream_events *events, void *ctx,
				  struct garret_error *err);
	void (*input)(struct box_run *run, const void *data, size_t n); /* n 0: end of file */
	void (*ack)(struct box_run *run, int stream, uint64_t offset);
	void (*winch)(struct box_run *run, uint16_t rows, uint16_t columns);
	void (*signal)(struct box_run *run, int signo);
	/*
	 * Is more on the way to it than it takes?  Sizes and signals aren't acknowledged: who
	 * has many of them must wait, or they would pile up here without a bound.
	 */
	bool (*busy)(const struct box_run *run);
	/* Nobody listens any more: no event is delivered, the run is stopped. */
	void (*leave)(struct box_run *run);

	/* Start a file operation; the strings are copied, the events borrowed. */
	struct box_file *(*file)(struct box *box, const struct file_request *rq,
				 const struct file_events *events, void *ctx,
				 struct garret_error *err);
	/* The next bytes of the body: how many were taken; room() comes when that was less. */
	size_t (*file_body)(struct box_file *f, const void *data, size_t n);
	void (*file_body_end)(struct box_file *f);
	/* After info() of a large FILE_READ: where its bytes can be read (non-blocking, the
	 * caller's), or with ret_fd NULL: they aren't wanted. */
	int (*file_pipe)(struct box_file *f, int *ret_fd, struct garret_error *err);
	void (*file_pause)(struct box_file *f, bool pause);
	/* Nobody listens any more: no event comes, what was begun is given up. */
	void (*file_leave)(struct box_file *f);

	/* The files that are kept: row (may be NULL) for each, then done. */
	void (*kept)(struct provider *p, bool sizes, box_kept_fn row, box_done_fn done, void *ctx);
	/*
	 * Remove those of one: CONFLICT while a box has them, or when they were used at another
	 * time than used_ms (0: whenever); NOT_FOUND when there are none.
	 */
	void (*forget)(struct provider *p, const char *id, enum box_forget what, uint64_t used_ms,
		       box_done_fn done, void *ctx);

	/* A spooled output (of the pair of that number in the directory that box_spec named): a
	 * descriptor for reading, or -1 with errno. */
	int (*spool_open)(struct provider *p, const char *runs, uint32_t spool, int stream);
	void (*spool_remove)(struct provider *p, const char *runs, uint32_t spool);
};

/* Can argv and env be passed to a command at all? TOO_LARGE names the limit. */
typedef int (*check_command_fn)(const char *const *argv, const char *const *env,
				struct garret_error *err);

#endif
