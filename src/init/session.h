/*
 * Everything that init knows.  A run (run.c) owns its streams (output.c), its
 * input (input.c), its start while that is under way (spawn.c) and its leaf
 * cgroup (leaf.c); stop.c ends it.  A connection (conn.c) has a subscription
 * per run it asked for: what of the run's state it was told.  Frames are made
 * from the state whenever the socket has room, so nothing is ever queued for a
 * slow owner, and a new connection gets everything from the start.
 */
#ifndef INIT_SESSION_H
#define INIT_SESSION_H

#include <signal.h>
#include <sys/resource.h>

#include "base/list.h"
#include "base/strbuf.h"
#include "init/init.h"
#include "io/loop.h"
#include "io/msg.h"

#define BUCKETS 64
#define INIT_ENDING 8 /* file workers whose slot was asked for again */

struct session {
	struct init_params p;
	struct loop *loop;
	struct loop_io listener;
	struct list conns;
	unsigned n_conns;

	struct list buckets[BUCKETS];        /* of runs, by id */
	struct list live, ended;             /* ended: oldest first */
	unsigned n_live, n_runs, n_stopping; /* n_runs: both lists */
	size_t kept_bytes;                   /* memory of all output buffers */
	bool childless;                      /* the last reaping found no process at all */

	struct list spools; /* pairs not yet taken */
	unsigned n_spools;
	struct list thirsty; /* streams that wait for a pair, oldest first */
	struct list drains;  /* pipes of ended runs that somebody still holds */
	struct list reaped;  /* runs whose command was reaped in this round */
	int null_fd;

	struct list ready_leaves, used_leaves, lingering_leaves;
	unsigned n_ready_leaves;
	uint32_t last_leaf;
	unsigned leaf_failures; /* in a row; leaves are given up after some */
	struct loop_timer leaf_timer;
	unsigned leaf_retry_ms;
	struct loop_later leaf_later;
	bool leaf_pause;

	struct list stacks; /* kept for the next start */
	unsigned n_stacks;
	struct rlimit files; /* as it was given to us: what runs get */
	bool oom_refused;    /* runs' oom_score_adj can't be set here */
	int dumpable;        /* as whoever called us wants it */
	int oom_fd;

	struct loop_timer idle_timer;

	int workers[INIT_WORKERS]; /* pids of file workers; 0: none */
	struct ending_worker {
		int pid;
		uint64_t until_ms;
	} ending[INIT_ENDING]; /* whose slots have another already */

	/* Who said RESUME last, by which connection, and how far its requests are through. */
	uint64_t owner, last_request;
	struct conn *owner_conn;
};

/* ---- one run ---- */

struct stream {
	struct run *run;
	struct loop_io io;
	struct loop_timer again; /* when it could not be watched */
	struct list in_thirsty;
	int fd;       /* -EBADF: there is none, or it is at its end */
	uint8_t *buf; /* bytes base .. base + len of the stream are at buf + start */
	size_t start, len, cap;
	uint64_t base;  /* > 0 only in STREAM runs: everything before was acknowledged */
	uint64_t total; /* bytes kept */
	uint64_t owed;  /* still in the pipe when the command exited: must be read */
	bool spooled;
};

struct input {
	struct loop_io io;
	int fd;
	struct strbuf queue;
	uint64_t held, taken;              /* bytes that arrived; of them written or dropped */
	bool close_after, terminal, ended; /* ended: its end arrived as well */
};

struct spool {
	struct list link;
	uint32_t index;
	int fd[2];
};

struct leaf {
	struct list link;
	char name[12];
	int fd; /* O_PATH; only until a process was started in it */
	uint32_t procs;
};

enum stop_phase { STOP_NONE, STOP_TERM, STOP_FREEZE, STOP_KILL, STOP_DONE };

struct run {
	struct session *s;
	uint8_t id[INIT_RUN_ID];
	struct list in_bucket, in_list, in_reaped, subs, waiters;
	uint32_t flags;
	uint64_t limit, started_us, deadline_ms; /* 0: none */
	int pid;                                 /* 0: none was made */
	struct start *start;                     /* until the program was executed */
	struct leaf *leaf;                       /* NULL: there are none here */
	bool started, exited, ended;
	bool unwanted;     /* its owner said DETACH: it may go once it has ended */
	uint64_t early[2]; /* signals (bit n - 1) that wait for the program: to it, to its group */

	struct stream out[2];
	struct input in;
	struct spool *spool;
	bool took_spool;              /* exit.spool_index is its number */
	struct loop_timer told_timer; /* SPOOLED frames are told now and then */
	uint64_t told_ms;

	enum stop_phase phase;
	uint64_t kill_ms, freeze_ms, round_ms, give_up_ms, drain_ms;
	unsigned wait_ms, freeze_wait_ms;
	struct loop_timer deadline_timer, tick_timer;

	uint64_t oom_before;
	struct init_exit exit;
};

/* STOP requests that wait for the end of a run. */
struct waiter {
	struct list in_run, in_conn;
	struct conn *conn;
	uint64_t request;
};

/* run.c */
struct run *run_find(struct session *s, const uint8_t *id);
/* Everything of the request is copied; descriptors are taken or closed. */
void run_request(struct conn *c, uint64_t request, const struct init_run *req, struct msg_fds *fds);
void run_free(struct run *r); /* only an ended one */
/* Drop the oldest ended run that nobody wants; false when there is none. */
bool run_drop_one(struct session *s);
void run_started(struct run *r);
void run_reaped(struct run *r, int status, const struct rusage *ru); /* then settle it */
void run_settle(struct run *r);
/* Its command has exited and its output is waited for: wait no more.  The cause
 * counts only when bytes are missing. */
void run_cut(struct run *r, uint8_t cause);
void run_abandon(struct run *r); /* it can't be killed: answer as if it were */
/* Answer when the run is over in every respect. */
void run_check(struct run *r);

/* spawn.c */
struct start;
int spawn(struct run *r, const struct init_run *req, uint8_t *strings, const int stdio[3]);
/* Its child is gone, so its memory is free, whatever the pipe says. True: it was made anew. */
bool spawn_reaped(struct run *r, int status);
void spawn_abandon(struct run *r); /* the start's memory outlives the run */
void spawn_trim(struct session *s);

/* output.c */
int output_open(struct run *r, int child[2]);
void output_watch(struct stream *st);
void output_turn(struct stream *st); /* read what is there, at most a turn */
void output_settle(struct run *r);   /* the command has exited: what is owed? */
bool output_stuck(const struct stream *st);
void output_ack(struct stream *st, uint64_t offset);
void output_spools_came(struct session *s);
void output_end(struct run *r); /* what is still open is drained from now on */
void output_free(struct run *r);
struct spool *spool_free(struct spool *sp);
/* In a container: a pair of files for that number; NULL when it is taken. */
struct spool *spool_make(struct session *s, uint32_t index);
void spool_remove(struct session *s, uint32_t index);

/* input.c */
void input_open(struct run *r, int fd, bool terminal);
bool input_add(struct run *r, const void *data, size_t n); /* n = 0: end; false: too much */
void input_close(struct run *r);

/* pty.c: the terminal's two sides, sized. 0 or -errno */
int pty_open(uint16_t rows, uint16_t columns, int *ret_master, int *ret_slave);
int pty_resize(int master, uint16_t rows, uint16_t columns);
char pty_eof(int master); /* the byte that means end of file now; 0: there is none */

/* stop.c */
void stop_begin(struct run *r, uint8_t cause, uint32_t grace_ms);
void stop_tick(struct run *r);
void stop_hurry(struct session *s); /* somebody died: look at runs that are being ended */

/* leaf.c */
struct leaf *leaf_take(struct session *s); /* NULL: run without */
void leaf_used(struct leaf *l);            /* a process was started in it */
void leaf_retire(struct session *s, struct leaf *l);
void leaf_prepare(struct session *s);
void leaf_retry_soon(struct session *s);
bool leaf_freeze(struct session *s, const struct leaf *l, bool on);
bool leaf_frozen(struct session *s, const struct leaf *l);

/* files.c: file workers */
int files_start(struct session *s, uint32_t slot, int sock); /* 0 or -errno; sock stays ours */
void files_reaped(struct session *s, int pid);
bool files_is_worker(const struct session *s, int pid);

/* procs.c */
/* Call fn for each process of r's POSIX session; how many there are. */
unsigned procs_of(struct run *r, void (*fn)(int pid, int sid));
void procs_kill(int pid, int sid); /* SIGKILL by pidfd, if it still belongs to sid */
/* Processes that no live run owns; r (or NULL) counts as ended. */
uint32_t procs_background(struct session *s, struct run *r);
/* False: it is gone, or only waits for its parent's attention.  proc_fd: /proc. */
bool procs_look(int proc_fd, int pid, int *ret_parent);
uint32_t procs_in_leaf(struct session *s, const struct leaf *l);

/* session.c */
void session_note_live(struct session *s); /* something runs: memory is kept */
uint64_t session_oom_kills(struct session *s);
void session_end(struct session *s) __attribute__((noreturn));

/* conn.c */
int conn_add(struct session *s, int fd);
void conn_attach(struct conn *c, struct run *r, uint64_t request);
bool conn_detach(struct conn *c, struct run *r);
void conn_notify(struct run *r); /* the run has news */
void conn_forget(struct run *r); /* drop every subscription */
void conn_wait(struct conn *c, struct run *r, uint64_t request);
void conn_release(struct run *r); /* DONE for those who wait for its end */
void conn_error(struct conn *c, uint64_t request, enum garret_code code, int sys, const char *text);
void conn_answer(struct conn *c, struct put *p);
struct session *conn_session(struct conn *c);
void conn_list(struct conn *c, uint64_t request); /* LISTED, DONE */
void conn_only(struct conn *c);                   /* every other one ends */

/* The frame buffer, shared by all: a frame is made and used up at once. */
uint8_t *conn_frame(void);
void conn_trim(void);

/* request.c: false ends the connection */
bool request_handle(struct conn *c, bool *greeted, const struct init_header *h, struct get *g,
		    struct msg_fds *fds);

#endif
