/*
 * What the files of the application layer share.
 *
 * Locks: app->lock is around every use of the database and around the lists here.  The context's
 * lock may be held when it is taken (a document is loaded and saved under it), so nothing of the
 * library is called while app->lock is held.
 */
#ifndef APP_APP_IMPL_H
#define APP_APP_IMPL_H

#include <pthread.h>
#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "db/db.h"
#include "garret/app.h"
#include "garret/app_files.h"

#define APP_KEY_BYTES 32
#define APP_OWNER 96 /* bytes of what says whose a run is, with its NUL: HOST/SPOOL */

struct app_spool;

struct garret_app {
	struct garret_context *context;
	pthread_mutex_t lock;
	pthread_mutex_t place_lock; /* around places; the context's lock may be taken under it */
	struct db *db;
	char *state_dir;
	int state_fd;
	uint8_t key[APP_KEY_BYTES]; /* seals tokens */
	uint64_t state_max_bytes, inline_image_max_bytes;
	double lease, opening_timeout;
	garret_app_event_fn *event;
	void *event_data;
	struct app_spool *spool;
	struct list places;
	struct list unclosed; /* runs that ended without the database (own.c); under lock */
	unsigned runs;        /* that are open; under lock */
};

/* Facts as they are kept: ids as 32 digits, "" for none. */
struct app_facts {
	char organisation[GARRET_APP_ID], agent[GARRET_APP_ID], run[GARRET_APP_ID];
	char conversation[GARRET_APP_ID];
	char *channel, *user; /* NULL: none */
};

/* Handles of spilled outputs that a run wrote: the paths that its workspace resolved.  Shared with delegates. */
struct app_spills {
	unsigned refs;
	char **path; /* NULL-terminated, or NULL */
	size_t n;
};

/* Where the environments of a connection are opened for one key: a provider, shared by the runs of this process. */
struct app_place;

/* A document behind the state provider's store. */
struct app_document;

/* How a run ends. */
enum app_ending {
	APP_ENDED, /* nothing of it is left */
	APP_PARKED,
	APP_DETACHED, /* both kept, for who takes it over */
	APP_LEFT,     /* something is still to be told to the database: a sweeper closes it again */
	APP_DOUBTFUL, /* for good, but for what it may have made: the sweeper asks */
};

struct garret_app_run {
	struct garret_app *app;
	struct app_facts facts;
	struct garret_app_sandbox sandbox;
	char key[GARRET_APP_KEY];
	struct garret_app_connection connection; /* of a service: the resolved one */
	struct app_place *place;                 /* of a service */
	struct app_document *document;           /* of a document */
	struct garret_provider *state;           /* of a document */
	struct garret_workspace *bare;           /* without our rules */
	struct garret_workspace *workspace;
	struct garret_ref ref; /* that the environment has, or will have */
	bool visit;            /* of people: nothing is recorded, and nothing remembered */

	/* What is known of the environment (session.c), under gate. */
	pthread_mutex_t gate;
	/* Of a document: of its row.  Attached: of the record that it means; else of the row before that. */
	uint64_t epoch;
	bool attached;       /* the row holds it */
	bool begun;          /* an operation may have made it; its ownership row says so */
	bool reported;       /* a client of the application's own has opened it */
	bool settled;        /* it is there, and the row knows */
	bool lost;           /* it is gone */
	bool forgotten;      /* and the row knows */
	bool doubted;        /* it ended, and the sweeper asks what it made */
	bool taken;          /* it was taken over, from one that ended so: */
	enum app_ending was; /* parked, detached; else its process is gone */

	struct app_spills *spills;
	struct map staged; /* skill files that this run staged: path -> digest, malloc()ed */
	struct garret_app_run *parent; /* of a delegate that shares; held open by the caller */
};

/* Files that runs may share have a row (row.c); those of one run alone have none. */
static inline bool app_has_row(const struct garret_app_run *run)
{
	return run->sandbox.session_scope != GARRET_APP_SCOPE_RUN;
}

/* ---- small things (app.c) ---- */

void app_lock(struct garret_app *app);
void app_unlock(struct garret_app *app);
/* Tell an event: fields are pairs of name and text, NULL-terminated. */
void app_event(struct garret_app *app, const char *event, ...) __attribute__((sentinel));
double app_now(void); /* seconds since 1970 */
/* An id as 32 digits; INVALID names the field. */
int app_id(const char *field, const char *text, char ret[GARRET_APP_ID], struct garret_error *err);
void app_random(void *ret, size_t n); /* at most 256 bytes */
void app_new_id(char ret[GARRET_APP_ID]);
/* Text of 1 (or 0) to `most` bytes of UTF-8 without control characters. */
int app_check_text(const char *field, const char *text, size_t least, size_t most,
		   struct garret_error *err);
/* Copy into a fixed field; what doesn't fit was checked before. */
void app_copy(char *ret, size_t cap, const char *text);
/* SHA-256 as hex. */
void app_sha256(const void *data, size_t n, char ret[65]);

/* A file of the state directory, whole; of several processes that come at once the first one's stays. */
int app_file_make(int state_fd, const char *name, const void *data, size_t n,
		  struct garret_error *err);

/* One statement with the lock held for it alone. */
int app_query(struct garret_app *app, const char *sql, const struct db_value *args, size_t n_args,
	      struct db_rows *ret, struct garret_error *err);

/* ---- seal.c ---- */

/* The key of the state directory, made when there is none. */
int app_key_load(int state_fd, uint8_t ret[APP_KEY_BYTES], struct garret_error *err);
/* Seal text for a purpose (which nothing else opens): nonce, ciphertext, tag. */
void app_seal(const struct garret_app *app, const char *purpose, const char *text,
	      struct strbuf *out);
/* DENIED when it isn't what app_seal() made for that purpose with this key. */
int app_unseal(const struct garret_app *app, const char *purpose, const void *sealed, size_t n,
	       struct strbuf *out, struct garret_error *err);

/* ---- sandbox.c ---- */

int app_backend_parse(const char *name, enum garret_app_backend *ret, struct garret_error *err);

/* ---- scope.c ---- */

int app_facts_check(const struct garret_app_facts *given, struct app_facts *ret,
		    struct garret_error *err);
void app_facts_release(struct app_facts *f);
/* Before any connection is resolved. */
int app_scope_check(const struct app_facts *f, enum garret_app_scope scope,
		    struct garret_error *err);
void app_scope_key(const struct app_facts *f, enum garret_app_scope scope,
		   const char *connection_id /* NULL: a document */, char ret[GARRET_APP_KEY]);
/* The hash that stands for a user in a row. */
void app_user_hash(const char *user, char ret[GARRET_APP_KEY]);

/* ---- connection.c ---- */

/*
 * With its token (NULL: none) in *ret_token, malloc()ed, and how often it was changed.  id NULL: the
 * default.
 */
int app_connection_open(struct garret_app *app, const char *organisation, const char *id,
			struct garret_app_connection *ret, char **ret_token, uint64_t *ret_changes,
			struct garret_error *err);

/* ---- place.c ---- */

/* The connection of a run, before anything is opened: NOT_FOUND, or UNSUPPORTED for a kind without a provider. */
int app_place_resolve(struct garret_app *app, const char *organisation, const char *connection_id,
		      struct garret_app_connection *ret, char **ret_token, uint64_t *ret_changes,
		      struct garret_error *err);
enum app_place_use {
	APP_PLACE_SHARED,
	APP_PLACE_OF_ITS_OWN, /* a handle of another that wasn't used yet isn't touched by what is done in it */
};
/* The provider for a key on it; runtime NULL: whichever.  No I/O but the database's. */
int app_place_get(struct garret_app *app, const char *organisation, const char *connection_id,
		  const char *key, const char *runtime, enum app_place_use use,
		  struct app_place **ret, struct garret_error *err);
struct garret_provider *app_place_provider(struct app_place *p);
/* Nobody new gets this one: what it knows of the environment is over. */
void app_place_spoil(struct garret_app *app, struct app_place *p);
/* The last one takes what is left where no session is; NULL is fine. */
void app_place_put(struct garret_app *app, struct app_place *p);

/* ---- document.c ---- */

/*
 * A document of a row, of that epoch (0: whichever), or (key NULL) one of a run, or nobody's (run NULL
 * too), which text (NULL: empty) begins.
 */
struct app_document *app_document_new(struct garret_app *app, const char *organisation,
				      const char *key, uint64_t epoch, const char *run,
				      const char *text);
struct app_document *app_document_free(struct app_document *d);
/* The state provider on it. */
int app_document_provider(struct app_document *d, struct garret_provider **ret,
			  struct garret_error *err);
/* What is in memory; borrowed; NULL: nothing was written. */
const char *app_document_text(const struct app_document *d);
/* Drop from the run's document what ends with the run: what it spilled, and, after the last one, the skills. */
void app_document_tidy(struct garret_app_run *run);

/* ---- row.c ---- */

struct app_row_found {
	char session_id[GARRET_ID_MAX];
	uint64_t epoch;
};
/* Find or make the row of a run, and touch it. */
int app_row_open(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err);
/* What it holds now; NOT_FOUND when it was deleted. */
int app_row_look(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err);
/*
 * Let it hold the run's ref, when it holds none; *ret is what it holds then.  NOT_FOUND as above.
 */
int app_row_record(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err);
/* Let it forget the run's ref, while it holds the record of that epoch; *ret: it did. */
int app_row_forget(struct garret_app_run *run, uint64_t epoch, bool *ret, struct garret_error *err);

/* ---- own.c: which runs are open, and whose they are ---- */

/*
 * Ours from now on.  A run of that id that was parked, or whose process is gone, is taken over: its
 * spills, its document and its environment are the run's.  CONFLICT when it is open.
 */
int app_own_begin(struct garret_app_run *run, struct garret_error *err);
/*
 * What is known of its environment, before an operation may make it and whenever that changes: what would
 * remove it is on record, and who takes the run over means the same one.
 */
int app_own_ref(struct garret_app_run *run, struct garret_error *err);
/* Its list of spills has changed. */
int app_own_spills(struct garret_app_run *run, struct garret_error *err);
/* When that fails it is remembered, and app_own_settle() does it, or leaves the run to a sweeper. */
int app_own_end(struct garret_app_run *run, enum app_ending how, struct garret_error *err);
/* Of one that was taken over and can't be opened: it waits as before.  Of a new one: nothing is left. */
void app_own_undo(struct garret_app_run *run);
int app_own_settle(struct garret_app *app, struct garret_error *err);
void app_own_forget(struct garret_app *app); /* at the end of the app */
/* One that was parked or detached, or whose process is gone, by its id; without a workspace yet. */
int app_own_resume(struct garret_app *app, const char *organisation, const char *run,
		   struct garret_app_run **ret, struct garret_error *err);
/* Runs that may be ones that nobody can close any more. */
int app_own_orphans(struct garret_app *app, struct db_rows *ret, struct garret_error *err);
/* One of them (as above), when it is and is ours now; else *ret is NULL. */
int app_own_orphan(struct garret_app *app, const struct db_rows *r, size_t i,
		   struct garret_app_run **ret, struct garret_error *err);
/* Ours show that they are alive. */
int app_own_alive(struct garret_app *app, struct garret_error *err);

/* ---- session.c: is the environment still the one that the row means? ---- */

/* Before an operation: GONE when it isn't; a garret_guard_fn of the run. */
int app_session_guard(void *data, enum garret_operation op, const char *path,
		      struct garret_error *err);
/* After one, with what came of it. */
void app_session_seen(struct garret_app_run *run, enum garret_code code);
/* At the end: what the row could not be told before.  Does it know all now? */
bool app_session_end(struct garret_app_run *run);
/* May there be an environment that no row holds?  Only its host can tell. */
bool app_session_doubtful(const struct garret_app_run *run);
/* The run that knows of the environment: its own, or the one that it shares it with. */
struct garret_app_run *app_root(struct garret_app_run *run);

/* ---- run.c ---- */

/* Its workspace, when all else of it is known.  attach: by ref, else by name. */
int app_run_build(struct garret_app_run *run, bool attach, struct garret_error *err);
/* The same of a delegate that shares its parent's. */
int app_run_share(struct garret_app_run *run, struct garret_app_run *parent,
		  struct garret_error *err);
struct garret_app_run *app_run_new(struct garret_app *app);
struct garret_app_run *app_run_free(struct garret_app_run *run); /* only its memory; returns NULL */

/* ---- record.c ---- */

/* A garret_record_fn of the run: the rows of its operation, and what it says of the session. */
void app_record(void *data, const struct garret_record *r);

/* ---- spool.c: operations on their way into the log ---- */

int app_spool_open(struct garret_app *app, struct garret_error *err);
void app_spool_close(struct garret_app *app);
/* Whose runs are ours: the state directory's id, and this app's spool. */
const char *app_spool_owner(const struct garret_app *app);
/* Of the state directory too, but no process's: what has this owner is free to be taken over. */
void app_spool_nobody(const struct garret_app *app, char ret[APP_OWNER]);
/* Is what that names gone?  1, 0, or -1: it has another state directory, only time can tell. */
int app_spool_gone(struct garret_app *app, const char *owner);
struct app_operation {
	const char *op, *target, *detail;
	bool ok;
	double seconds;
};
/* An event when it can't be kept; never a failure. */
void app_spool_add(struct garret_app_run *run, const struct app_operation *op);
/* Bring what this app has spooled into the log. */
int app_spool_flush(struct garret_app *app, struct garret_error *err);
/* Bring all that is spooled below the state directory into the log. */
int app_spool_drain(struct garret_app *app, struct garret_error *err);
/* Drop what is remembered of spools that are there no more. */
int app_spool_tidy(struct garret_app *app, struct garret_error *err);

/* ---- purge.c ---- */

/* Remove an environment now, or queue it when that can't be done.  False: neither could be done. */
bool app_purge(struct garret_app *app, const char *organisation, const char *connection_id,
	       const char *session_id);
/* Before that name is used again: what is still to be removed under it is removed. */
int app_purge_first(struct garret_app *app, const char *organisation, const char *connection_id,
		    const char *session_id, struct garret_error *err);
/* Those that are due. */
int app_purge_due(struct garret_app *app, struct garret_app_swept *ret, struct garret_error *err);
/* Those of an organisation that were queued at that time, for then. */
int app_purge_queued(struct garret_app *app, const char *organisation, double at,
		     struct garret_error *err);

/* ---- schema.c ---- */

extern const struct db_step app_steps[];
extern const size_t app_n_steps;

/* ---- spill.c (of app_files.h) ---- */

/* What a run does at its end with what it spilled and staged; see garret_app_run_close(). */
void app_spills_prune(struct garret_app_run *run);
struct app_spills *app_spills_new(void);
struct app_spills *app_spills_hold(struct app_spills *s);
struct app_spills *app_spills_drop(struct app_spills *s); /* returns NULL */
/* One that isn't in it. */
void app_spills_add(struct app_spills *s, const char *handle);

#endif
