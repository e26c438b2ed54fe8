/* What the files of the service share; nobody else includes this. */
#ifndef CORE_SERVICE_IMPL_H
#define CORE_SERVICE_IMPL_H

#include "base/list.h"
#include "base/map.h"
#include "core/owner.h"
#include "core/policy.h"
#include "core/provider.h"
#include "core/registry.h"
#include "core/service.h"
#include "core/service_new.h"
#include "core/service_token.h"
#include "core/token.h"
#include "io/loop.h"

enum session_state {
	SESSION_OPENING, /* claimed (or an earlier daemon's, not found yet): counts, but is not shown */
	SESSION_OPEN,
	SESSION_CLOSING, /* forgotten for clients; its name is not free yet */
};

enum session_rest { SESSION_AWAKE, SESSION_FALLING, SESSION_ASLEEP, SESSION_WAKING };

struct event_ring;
struct run_set;
struct session;

/* s NULL: it can't be woken, no says why. */
typedef void (*session_awake_fn)(void *ctx, struct session *s, const struct refusal *no);
typedef void (*session_slept_fn)(void *ctx);

struct session {
	struct list link; /* service.sessions, in creation order */
	struct service *service;
	char *id, *tenant;
	const struct runtime_entry *runtime;
	enum session_state state;
	uint64_t generation;
	uint8_t nonce[TOKEN_NONCE];
	double created_at, last_activity; /* wall clock, seconds */
	unsigned in_flight;               /* requests that keep it from being reaped */
	struct box *box;                  /* NULL: asleep, or dead since before we started */
	bool dead;                        /* its environment ended by itself */
	bool used;                        /* last_activity has yet to be written down */

	/* sleep.c */
	enum session_rest rest;
	double asleep_since;
	struct list wakers;  /* while it rests: their loop_later is due */
	struct list openers; /* who opens its name while it is closing (sessions.c) */
	struct loop_later wake_later;
	session_slept_fn slept;
	void *slept_ctx;

	/* While it opens: the one that sleeps and has to go for it; and the other way round. */
	struct session *victim, *promised;
	bool attach;

	/* Between its row and its environment (restore.c). */
	char *restore_mark;
	bool same_boot, was_asleep;
	struct loop_later restore_later;
	unsigned limits_due; /* enum box_limit: changed by the policy, to be asked for */

	struct event_ring *events;

	struct run_set *runs;
	size_t waiting_bytes; /* of runs that have not begun */
	size_t live_runs;
	struct list early_stops;

	uint32_t background; /* processes that no command owns, when one ended last */
	struct box_usage last_usage;
	uint64_t last_usage_us;

	/* While opening or closing. */
	unsigned waiting; /* answers still due: provider, registry */
	struct refusal failed;
	open_done opened;
	plain_done closed;
	void *done_ctx;
	bool purge;
	bool ended; /* what was asked for is done; else the daemon goes before that */
};

struct service {
	struct loop *loop;
	struct config *config;
	const struct provider_ops *ops;
	struct provider *provider;
	const struct registry_ops *registry_ops;
	struct registry *registry;
	check_command_fn check_command;
	struct token_key key;
	const char *boot; /* of the host; borrowed */
	struct loop_timer used_timer;
	struct restoring *restoring;  /* while sessions of an earlier daemon are looked for */
	uint8_t service_token[32];    /* SHA-256 */
	struct service_tokens tokens; /* the others */
	struct tombstones tombstones;
	struct owners owners;
	struct policy policy;
	bool ready;

	struct map by_id;
	struct list sessions;
	size_t n_sessions, n_open;
	size_t n_asleep; /* of n_sessions, these take no place */

	size_t running; /* commands that are with the provider */
	struct list queued;
	struct loop_timer reaper;

	int events_dir;
	struct service_log *log;

	int runs_dir;         /* one directory for each generation with runs */
	struct list run_sets; /* of ended generations, oldest first */
	unsigned n_run_sets;
	struct loop_timer runs_timer;
	bool sweeping;
	bool runs_swept; /* directories that nobody knows are gone */

	struct list archives; /* workspaces that are looked into */
	unsigned n_archives;  /* of them with the provider */
};

/* service.c */
double wall_seconds(void);
void refuse(struct refusal *no, int status, const char *reason, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A session clients can see, or NULL. */
struct session *find_session(struct service *s, const char *id);
struct session_info session_info(const struct session *s);

/* restore.c */
void session_touch(struct session *s);
struct session_row session_row(const struct session *s, enum row_state state);
void service_take_row(struct service *svc, const struct session_row *row);
void service_write_used(struct service *svc);
void restore_free(struct service *svc);

/* sessions.c */
struct session *session_new(struct service *svc, const char *id,
			    const struct runtime_entry *runtime, const char *tenant);
void note_layer(const struct session *s);
void session_watch(struct session *s); /* hear of the end of its environment */
/* Make its environment, as its runtime and the policy have it now. */
void session_start(struct session *s, bool attach, box_opened_fn opened);
int session_status_of(const struct garret_error *err); /* HTTP, when that failed */
/* The rest of session_end(), once it doesn't change any more. */
void session_end_now(struct session *s);
void session_free(struct session *s);
void service_reap(struct loop_timer *t);
void session_end(struct session *s, bool purge, plain_done done, void *ctx);

/* sleep.c */
bool session_may_sleep(const struct session *s);
/* slept (may be NULL) comes when its place is free, or it turned out that it stays awake. */
void session_sleep(struct session *s, session_slept_fn slept, void *ctx);
void session_wake(struct session *s, session_awake_fn fn, void *ctx);
/*
 * Are there more residents than may be (with the one that asks counted)?  False
 * with a victim: when that one has been put to sleep there is room.
 */
bool service_resident_full(const struct service *svc, struct session **ret_victim,
			   struct refusal *no);
/* Put to sleep what nobody used for a while, when that is asked for. */
void service_rest(struct service *svc);

/* sweep.c */
void service_sweep(struct service *svc);

/* events.c */
struct event_ring *event_ring_free(struct event_ring *r);
void event_add(struct session *s, const char *op, const char *target, bool ok, const char *detail,
	       double duration_ms);

/* files.c */
struct file_call {
	struct service *service;
	struct session *session; /* or: */
	struct archive *archive;
	struct list waiting;    /* for the archive to open */
	struct box_file *file;  /* NULL while it waits */
	struct file_request rq; /* while it waits; its path is target */
	const struct file_events *events;
	void *ctx;
	const char *name; /* in the log: a literal, or NULL */
	bool published;
	char *target;
	uint64_t started_us;
};
/* Begin it in box; false with err: it has not begun and is as before. */
bool file_call_begin(struct file_call *f, struct box *box, struct garret_error *err);
/* It never began: end() is called, f is freed. */
void file_call_fail(struct file_call *f, const struct garret_error *err);

/* archive.c */
void archive_left(struct file_call *f); /* one operation of it less */
void archives_free(struct service *s);

/* runs.c */
void runs_init(struct session *s);
bool runs_live(const struct session *s);
/* Commands that wait for their turn end like those whose environment went. */
void runs_drop_queued(struct session *s);

/* run_set.c */
/* The directory for their output, below the provider's runs/. */
const char *runs_dir(struct session *s);
/*
 * The session was one of an earlier daemon: read what is known of its runs, and
 * go on with those that its environment still knows (s->box is adopted, or
 * NULL: then they are gone).
 */
void runs_restore(struct session *s);
/* It sleeps: nothing of them is kept in memory; and it is awake again. */
void runs_sleep(struct session *s);
void runs_wake(struct session *s);
/* The session is going: what is finished stays a while without it, unless it is purged. */
void runs_release(struct session *s);
/* Of ended generations of that name: remove them. */
void runs_purge(struct service *svc, const char *id);
/* A row of the registry: its runs may be there. */
void runs_note(struct service *svc, const struct session_row *row);
void run_sets_init(struct service *svc, int dir);
void run_sets_free(struct service *svc);

#endif
