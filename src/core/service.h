/*
 * The service behind the HTTP routes: sessions, tokens, runs, the activity log.
 * It knows nothing of HTTP but the status that a refusal should have.
 *
 * Calls that take a `done` function start work and return at once; done is
 * called exactly once, from the loop, never before the call returned.
 */
#ifndef CORE_SERVICE_H
#define CORE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config.h"
#include "core/file_events.h"

struct service;

/* Why something was refused.  status 0 means it was not. */
struct refusal {
	int status;         /* HTTP: 400 404 409 410 422 429 500 501 502 503 */
	const char *reason; /* for 409: "exists", "opening", "runtime"; else NULL */
	char detail[512];   /* one sentence for people */
};

const struct config *service_config(const struct service *s); /* as the policy is now */
bool service_ready(const struct service *s);                  /* the engine answers */

/* ---- tokens ---- */

enum auth {
	AUTH_NONE,    /* never minted, expired or revoked: 401 */
	AUTH_SERVICE, /* of the service: what its scope allows */
	AUTH_SESSION, /* the session's own, current generation */
	AUTH_LATE,    /* the same, but the session isn't found again yet: 503 */
	AUTH_ENDED,   /* of an ended generation of this id: 410 */
};

/* Who calls, and how much of the service is his.  Copies: a token may go while a call lives. */
struct caller {
	enum auth auth;
	char name[65];   /* of a minted token; "" for the one the service was started with */
	char tenant[65]; /* only what is of this tenant; "": everything */
	bool read_only;
};

/* token may be NULL; session_id NULL asks for a service route. Constant time per candidate. */
enum auth service_authenticate(struct service *s, const char *token, const char *session_id,
			       struct caller *ret);

/* Is that session, or what is kept of it, of this tenant?  Is it there and of another one? */
bool service_owns(const struct service *s, const char *tenant, const char *session_id);
bool service_is_foreign(const struct service *s, const char *tenant, const char *session_id);

/* A minted service token.  Times in seconds, wall clock; 0: never. */
struct token_info {
	const char *name, *tenant; /* tenant NULL: all */
	bool read_only, active;    /* active: neither expired nor revoked */
	double created_at, expires_at, last_used_at, revoked_at;
};
struct token_request {
	const char *name, *tenant; /* tenant may be NULL */
	bool read_only;
	double expires_in; /* seconds; <= 0: never */
};

/* secret is given this once, with add and rotate; borrowed.  On refusal both are NULL. */
typedef void (*token_done)(void *ctx, const struct token_info *t, const char *secret,
			   const struct refusal *no);
void service_token_add(struct service *s, const struct token_request *rq, token_done done,
		       void *ctx);
/* A new one in place of that name's; the old one lives on for overlap seconds. */
void service_token_rotate(struct service *s, const char *name, double overlap, token_done done,
			  void *ctx);
void service_token_revoke(struct service *s, const char *name, token_done done, void *ctx);
/* Also those that ended a short while ago; oldest first. */
void service_tokens(struct service *s, void (*each)(void *ctx, const struct token_info *t),
		    void *ctx);

/* ---- policy ---- */

struct json_t;
struct json_errors;
typedef void (*policy_done)(void *ctx, const struct refusal *no,
			    const struct json_errors *invalid /* n > 0: 422 */);
/*
 * Lay a change (a parsed body, borrowed until it returns) over the policy, whole or not at
 * all: in force and recorded when done says that nothing is wrong.  by: who wants it.
 */
void service_set_policy(struct service *s, const struct json_t *change, const char *by,
			policy_done done, void *ctx);

/* ---- sessions ---- */

struct session_usage {
	bool known; /* false: "usage": null */
	/* < 0: that counter is null */
	int64_t memory_bytes, memory_limit_bytes, pids;
	int64_t cpu_us, oom_kills, io_read_bytes, io_written_bytes, disk_bytes;
	double cpu_percent;
};

struct session_info {
	const char *id, *runtime,
		*tenant; /* borrowed until the caller returns; tenant may be NULL */
	bool alive, hibernated;
	double created_at, last_activity, idle_seconds; /* seconds, wall clock */
	struct session_usage usage;
};

struct open_request {
	const char *session_id, *runtime, *tenant; /* NULL or "" (runtime): not given */
	bool reuse, attach;
	bool own; /* only what is of this tenant, or nobody's yet */
};

typedef void (*open_done)(void *ctx, const struct session_info *info, const char *token,
			  const struct refusal *no);
/* On refusal info and token are NULL.  The strings are copied before it returns. */
void service_open(struct service *s, const struct open_request *req, open_done done, void *ctx);

/* It needs to be woken before its environment can be used (or put to sleep: it changes). */
bool service_asleep(struct service *s, const char *id);
typedef void (*wake_done)(void *ctx, const struct refusal *no /* status 0: it is awake */);
void service_wake(struct service *s, const char *id, wake_done done, void *ctx);
/* Put it to sleep: 409 while something of it is in flight. */
void service_sleep(struct service *s, const char *id, wake_done done, void *ctx);

/* Is there a record (resident or asleep; not one that is still opening)? */
bool service_has_session(struct service *s, const char *id);

typedef void (*infos_done)(void *ctx, const struct session_info *infos, size_t n);
/* id NULL: all, in creation order.  n is 0 when a named one is gone. */
void service_sessions(struct service *s, const char *id, bool usage, infos_done done, void *ctx);

typedef void (*plain_done)(void *ctx, const struct refusal *no /* status 0: done */);
void service_close(struct service *s, const char *id, bool purge, plain_done done, void *ctx);

struct service_counts {
	size_t resident, open;
};
struct service_counts service_counts(const struct service *s);

/* ---- activity log ---- */

struct session_event {
	uint64_t seq;
	double at, duration_ms;
	const char *op, *target, *detail; /* valid UTF-8 */
	bool ok;
};

/* Newest 200 with seq > after, ascending; false when there is no such session. */
bool service_events(struct service *s, const char *id, uint64_t after,
		    void (*each)(void *ctx, const struct session_event *e), void *ctx,
		    uint64_t *ret_latest);

/* What happened to sessions and to the service. */
struct service_event {
	uint64_t seq;
	double at;
	const char *kind, *session_id, *tenant, *detail; /* valid UTF-8; "" for none */
};
struct event_filter {
	uint64_t after;
	unsigned limit;
	const char *session_id, *tenant; /* NULL: any */
};
/* Ascending; the seq to go on from: the last one looked at. */
uint64_t service_log_each(struct service *s, const struct event_filter *filter,
			  void (*each)(void *ctx, const struct service_event *e), void *ctx);

/*
 * What is kept of the activity of one generation of a session, which may have ended, from
 * its file.  NOT_FOUND: there is none, or it was another tenant's.
 */
int service_kept_events(struct service *s, const char *id, uint64_t generation,
			const struct event_filter *filter,
			void (*each)(void *ctx, const struct session_event *e), void *ctx);

/* Somebody follows the activity of a session, or (NULL) what happens in the service. */
struct event_reader;
struct event_reader *service_event_reader(struct service *s, const char *session_id,
					  void (*news)(void *ctx), void *ctx);
struct event_reader *service_event_reader_free(struct event_reader *r); /* returns NULL */

struct service_metrics {
	/* now */
	unsigned running, asleep, opening, closing, dead, runs_live, in_flight;
	bool ready; /* the engine is there */
	/* since the start */
	uint64_t runs_ok, runs_failed, files_ok, files_failed;
	uint64_t opened, closed, slept, woken, died;
	uint64_t events;
};
struct service_metrics service_metrics(const struct service *s);

/* ---- runs ---- */

struct run_request {
	const char *const *argv; /* NULL-terminated */
	const char *const *env;  /* NAME=VALUE, NULL-terminated */
	const char *run_id;      /* 32 hex digits */
	double timeout_seconds;  /* <= 0: not given (the service's ceiling) */
	const char *cwd;         /* absolute inside; NULL: the work directory */
	bool keep;               /* goes on when nobody waits for it */
	bool detach;             /* the same, and the answer comes when it has begun */
	bool input;              /* with detach: it reads what service_run_input() gives it */
};

/*
 * A finished run.  Reference counted, because an answer may still be written
 * when the session is long gone.  Bytes are read in pieces with run_read().
 */
struct run_record;
struct run_summary {
	int exit_code; /* -1: null (timed out or output limited) */
	bool timed_out, output_limited;
	uint64_t output_limit; /* 0: null */
	/* What the answer shows of each stream: all of it, or the first 64 KiB. */
	uint64_t show[2];
};
struct run_record *run_record_ref(struct run_record *r);
struct run_record *run_record_unref(struct run_record *r); /* returns NULL */
const struct run_summary *run_record_summary(const struct run_record *r);
/* Up to cap raw bytes of stream (0 stdout, 1 stderr) from offset; 0 at show[]; < 0 lost. */
long run_record_read(struct run_record *r, int stream, uint64_t offset, void *buf, size_t cap);

/* A request that waits for a run. */
struct run_wait;
/* With detach: r is NULL also when nothing was refused. */
typedef void (*run_done)(void *ctx, struct run_record *r /* borrowed */, const struct refusal *no);
/*
 * Start, or attach to the run of that id when the request is the same (409
 * otherwise).  The wait is valid until done was called or service_run_leave().
 */
struct run_wait *service_run(struct service *s, const char *session_id,
			     const struct run_request *req, run_done done, void *ctx);
/* The client went away: done will not be called. */
void service_run_leave(struct run_wait *w);

/* Always succeeds; done when the run has ended, or at once when there is none. */
void service_stop(struct service *s, const char *session_id, const char *run_id, plain_done done,
		  void *ctx);

/* ---- runs that go on without their client, and what is kept of runs ---- */

/*
 * Whose runs: those of one generation of a session, or of all that are kept
 * (generation 0).  Ended generations are known as long as something of them is.
 */
struct run_scope {
	const char *session_id;
	uint64_t generation;
};
/* The generation of which that is the token: one that has ended, but has runs; 0: none. */
uint64_t service_ended_generation(struct service *s, const char *token, const char *session_id);
/* That of an open session; 0: there is none. */
uint64_t service_generation(struct service *s, const char *session_id);
/* Are there any runs of ended generations of that name? */
bool service_has_ended_runs(struct service *s, const char *session_id);

enum run_phase { RUN_PHASE_QUEUED, RUN_PHASE_RUNNING, RUN_PHASE_EXITED };

struct run_info {
	char id[33];
	enum run_phase phase;
	bool gone; /* its session ended under it, or it isn't known how it ended */
	bool timed_out, output_limited, stopped;
	int exit_code;                         /* -1: null */
	double asked_at, started_at, ended_at; /* wall clock, seconds; 0: null */
	uint64_t bytes[2];                     /* of output so far */
	uint64_t input_bytes;                  /* that were taken */
	bool measured;                         /* the following is known */
	uint64_t wall_us, user_us, system_us, max_rss_bytes;
	bool oom;
};

/* Newest first, at most max. */
void service_runs(struct service *s, const struct run_scope *scope, size_t max,
		  void (*each)(void *ctx, const struct run_info *info), void *ctx);

/* Somebody who looks at a run, also while it runs, also when it is dropped meanwhile. */
struct run_reader;
/* NULL: there is no such run.  news (may be NULL): it has more to say; called from the loop. */
struct run_reader *service_run_reader(struct service *s, const struct run_scope *scope,
				      const char *run_id, void (*news)(void *ctx), void *ctx);
void run_reader_info(const struct run_reader *r, struct run_info *ret);
/* Up to cap bytes of what is there; 0: no more now; < 0: lost. */
long run_reader_bytes(struct run_reader *r, int stream, uint64_t offset, void *buf, size_t cap);
struct run_reader *run_reader_free(struct run_reader *r); /* NULL is fine; returns NULL */

#define RUN_INPUT_APPEND UINT64_MAX
/* bytes: how much of the input arrived in the session, in all. */
typedef void (*run_input_done)(void *ctx, uint64_t bytes, const struct refusal *no);
struct run_input;
/*
 * Give a run input: data (borrowed until done) from that offset of it on.  What
 * it has already isn't given twice; a gap is refused (409).  done is called when
 * all of it is inside and outlives this process.  end: nothing comes behind it.
 */
struct run_input *service_run_input(struct service *s, const char *session_id, const char *run_id,
				    uint64_t offset, const void *data, size_t n, bool end,
				    run_input_done done, void *ctx);
void run_input_leave(struct run_input *in); /* done will not be called */

/* To its process group; false when it was refused. */
bool service_run_signal(struct service *s, const char *session_id, const char *run_id, int signo,
			struct refusal *no);

/* ---- files ---- */

struct file_call; /* an operation under way */
/*
 * Start one; NULL when it was refused (then *no says why, at once).  `name` is
 * its name in the activity log, NULL: it isn't logged; `published` says whether
 * an error without one of the five names sends the client to the shell.  The strings of rq are
 * copied, the events borrowed; the call is valid until end() or leave.
 */
struct file_call *service_file(struct service *s, const char *session_id, const char *name,
			       bool published, const struct file_request *rq,
			       const struct file_events *events, void *ctx, struct refusal *no);
/*
 * The same in the kept files of a session, open or not: only operations that
 * look, with FILE_RELATIVE; never logged.  That nothing is kept is told by
 * end(): its error has no errno then.
 */
struct file_call *service_archive(struct service *s, const char *id, const struct file_request *rq,
				  const struct file_events *events, void *ctx);
/* The next bytes of the body: how many were taken; room() comes when that was less. */
size_t file_call_body(struct file_call *f, const void *data, size_t n);
void file_call_body_end(struct file_call *f);
/* See provider.h. */
int file_call_pipe(struct file_call *f, int *ret_fd, struct garret_error *err);
void file_call_pause(struct file_call *f, bool pause);
/* The client went away: no event comes, what was begun is given up. */
void file_call_leave(struct file_call *f);
/* "FileNotFoundError" and the other four that published clients know; NULL: none of them. */
const char *file_error_name(const struct garret_error *err);

/* ---- what is kept of sessions ---- */

struct kept_info {
	const char *id;
	uint64_t bytes, files;
	double used_at; /* last opened or closed; seconds, wall clock */
	bool partial, open;
};
typedef void (*kept_row)(void *ctx, const struct kept_info *k);
void service_kept(struct service *s, kept_row row, plain_done done, void *ctx);
/* Delete it for good; refused while a session of that id is open. */
void service_forget(struct service *s, const char *id, plain_done done, void *ctx);

/* ---- commands with live streams (ours; the published wire has none) ---- */

struct stream_request {
	const char *const *argv, *const *env; /* NULL-terminated */
	double timeout_seconds;               /* <= 0: none */
	bool tty;                             /* a terminal inside; only stdout (0) speaks */
	uint16_t rows, columns;
};

struct stream_end {
	bool gone; /* the session ended under it */
	bool timed_out;
	int exit_code;
};

struct stream;
struct stream_events {
	/* At most 256 KiB of a stream come before it was acknowledged. */
	void (*out)(void *ctx, int stream, const void *data, size_t n);
	void (*taken)(void *ctx, uint64_t bytes);             /* of the input, in all */
	void (*end)(void *ctx, const struct stream_end *end); /* the stream is freed */
};

/* NULL when it was refused (then *no says why, at once). */
struct stream *service_stream(struct service *s, const char *session_id,
			      const struct stream_request *req, const struct stream_events *events,
			      void *ctx, struct refusal *no);
void stream_input(struct stream *st, const void *data, size_t n); /* n 0: end of file */
void stream_ack(struct stream *st, int stream, uint64_t offset);
void stream_winch(struct stream *st, uint16_t rows, uint16_t columns);
void stream_signal(struct stream *st, int signo); /* to the process group */
/* More waits for the session than it takes: input, sizes and signals have to wait as well. */
bool stream_busy(const struct stream *st);
/* The client went away: the command is stopped, no event comes, st is freed. */
void stream_leave(struct stream *st);

#endif
