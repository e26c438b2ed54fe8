/* What the files about commands share; nobody else includes this. */
#ifndef CORE_RUN_IMPL_H
#define CORE_RUN_IMPL_H

#include "core/journal.h"
#include "core/service_impl.h"

#define OUTPUT_LIMIT (10u * 1024 * 1024) /* of both streams of a command together */
#define STOP_GRACE_MS 2000

/*
 *	queued (more commands than may run at once; the deadline counts)
 *	-> live (with the provider) -> finished (a record, kept a while)
 *
 * A run of an earlier daemon is restoring until the provider has told which ones there are.
 */
enum run_state { RUN_RESTORING, RUN_QUEUED, RUN_LIVE, RUN_FINISHED };

/* What is known of a finished command, beside its output. */
struct run_facts {
	bool timed_out, output_limited, stopped, gone, oom;
	int exit_code;
	uint64_t asked_us, started_us, ended_us; /* wall clock; 0: it wasn't, or isn't known */
	uint64_t wall_us, user_us, system_us, max_rss_bytes;
	uint64_t total[2], input; /* bytes of output, and of input that was sent on */
	bool spooled[2];
	uint32_t spool;
};

/* run_record.c */
#define NOT_RECORDED UINT64_MAX
struct run_record {
	unsigned refs;
	struct run_set *set; /* where its output is; NULL: it is here */
	struct run_summary summary;
	struct run_facts facts;
	uint64_t position;     /* in the log; NOT_RECORDED: the heads are in memory */
	struct strbuf head[2]; /* while that has to be */
	int spool_fd[2];
};
struct run_record *run_record_new(struct run_set *set, const struct run_facts *facts);
/* Takes the buffers of END along. */
struct run_record *run_record_of_end(struct run_set *set, const struct run_facts *facts,
				     struct box_run_end *end);
/* Up to cap bytes of all the output there is; 0 at its end, < 0: lost. */
long run_record_bytes(struct run_record *rec, int stream, uint64_t offset, void *buf, size_t cap);
/* Write the END record: from then on nothing has to be in memory. */
int run_record_write(struct run_record *rec, const char *id, const uint8_t digest[32],
		     struct garret_error *err);
void run_record_shed(struct run_record *rec);
/* The set goes: what somebody still reads is held here. */
void run_record_hold(struct run_record *rec);
/* An END record as it was read; false: it isn't one. */
bool run_record_parse(const struct journal_record *r, char id[2 * RUN_ID_BYTES + 1],
		      uint8_t digest[32], struct run_facts *facts);

struct run {
	struct list finished_link; /* set.finished */
	struct list queued_link;   /* service.queued */
	struct run_set *set;
	char id[2 * RUN_ID_BYTES + 1];
	uint8_t digest[32];
	enum run_state state;
	bool keep, detached, stop_asked, input;
	struct list waits, stops;
	struct list readers; /* run_read.c */
	struct list inputs;  /* run_input.c: POSTs of input under way, oldest first */
	struct box_run *box_run;
	struct loop_timer timer;   /* queued: its deadline; live: nobody attends */
	struct loop_timer overdue; /* live: init should have ended it long ago */
	struct loop_later later;   /* finished: somebody asked again */
	uint64_t deadline_ms, asked_us /* CLOCK_MONOTONIC */;
	uint64_t asked_wall_us, started_us; /* wall clock; 0: not yet */
	char **argv, **env;                 /* while queued */
	char *cwd;
	size_t waiting_bytes; /* what they count for in the session's */
	struct strbuf shown;  /* argv quoted, for the log */
	uint64_t position;    /* of its START record; NOT_RECORDED */
	uint64_t fed;         /* bytes of input that were sent on */
	bool fed_end;
	struct run_record *record;
	struct refusal no;
};

/* runs.c */
struct run *run_new(struct run_set *set, const char *id, const uint8_t digest[32]);
/* removed: its output goes as well. */
void run_drop(struct run *r, bool remove);
/* It is finished: RECORD passes to it. */
void run_keep(struct run *r, struct run_record *record);
/* It wasn't started: start it for who asked meanwhile, else drop it. */
void run_restart(struct run *r);
/* An earlier daemon started it: go on with it. */
bool run_take_over(struct run *r, const struct box_run_known *known);
/* It isn't known how it ended. */
void run_gone(struct run *r);

/* run_read.c, run_input.c */
void run_readers_told(struct run *r);
void run_readers_end(struct run *r); /* it is finished, or dropped */
void run_inputs_go_on(struct run *r, const struct box_run_state *st);
void run_inputs_end(struct run *r);

/*
 * The runs of one generation of a session, and the directory with their log and
 * output (run_set.c).
 */
struct run_set {
	struct list link; /* service.run_sets: of ended generations, oldest first */
	struct service *service;
	struct session *session; /* NULL: it has ended */
	bool asleep;             /* it is read when somebody asks, as that of an ended one */
	char *id, *dir;          /* dir: below the service's, NULL until it is needed */
	uint64_t generation;
	uint8_t nonce[TOKEN_NONCE]; /* once it has ended */
	double ended_at;
	struct journal *journal; /* NULL: nothing was read or written yet */
	struct map runs;         /* by 32 hex digits */
	struct list finished;    /* oldest first */
	size_t finished_count;
	uint64_t kept_bytes, memory_bytes; /* of finished runs: all, and in memory */
	uint64_t used_ms; /* loaded after it had ended: when it was last asked for */
};

/* The set of a session that begins, and what becomes of it when that ends. */
void run_set_enter(struct session *s);
void run_set_leave(struct session *s);
/* The log, opened or begun. */
int run_set_log(struct run_set *set, struct garret_error *err);
/* Records; a failure is the caller's to judge. */
int run_write_start(struct run *r, struct garret_error *err);
bool run_write_drop(struct run *r);
/* Oldest first, until the set is within its bounds again; never one that is being asked for. */
void run_set_prune(struct run_set *set);

/* Whose runs somebody may see. */
struct run *run_find(struct service *svc, const struct run_scope *scope, const char *run_id);
/* Each set of the scope, newest generation first, loaded; false ends it. */
void run_sets_each(struct service *svc, const struct run_scope *scope,
		   bool (*fn)(struct run_set *set, void *ctx), void *ctx);

#endif
