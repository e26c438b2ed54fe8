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
	struct db *db;
	char *state_dir;
	int state_fd;
	uint8_t key[APP_KEY_BYTES]; /* seals tokens */
	uint64_t state_max_bytes, inline_image_max_bytes;
	double lease;
	garret_app_event_fn *event;
	void *event_data;
	struct app_spool *spool;
	struct list places;
	unsigned runs; /* that are open */
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
	struct garret_ref ref; /* of the environment; id "" until there is one */
	uint64_t epoch;        /* of the row when it was opened: which session it means */
	bool attached;         /* by the row's record */
	bool lost, owned;      /* its ref stands in its ownership row */
	bool checked;          /* the row still meant that session at the first operation */
	struct app_spills *spills;
	struct map staged; /* skill files that this run staged: path -> digest, malloc()ed */
	struct garret_app_run *parent; /* of a delegate that shares */
};

/* ---- small things (app.c) ---- */

void app_lock(struct garret_app *app);
void app_unlock(struct garret_app *app);
/* Tell an event: fields are pairs of name and text, NULL-terminated. */
void app_event(struct garret_app *app, const char *event, ...) __attribute__((sentinel));
double app_now(void); /* seconds since 1970 */
/* An id as 32 digits; INVALID names the field. */
int app_id(const char *field, const char *text, char ret[GARRET_APP_ID], struct garret_error *err);
/* The same for an organisation, which every call names. */
int app_organisation(const char *text, char ret[GARRET_APP_ID], struct garret_error *err);
void app_new_id(char ret[GARRET_APP_ID]);
/* Text of 1 (or 0) to `most` bytes of UTF-8 without control characters. */
int app_check_text(const char *field, const char *text, size_t least, size_t most,
		   struct garret_error *err);
/* Copy into a fixed field; what doesn't fit was checked before. */
void app_copy(char *ret, size_t cap, const char *text);
/* SHA-256 as hex. */
void app_sha256(const void *data, size_t n, char ret[65]);

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

/* With its token (NULL: none) in *ret_token, malloc()ed. */
int app_connection_open(struct garret_app *app, const char *organisation, const char *id,
			struct garret_app_connection *ret, char **ret_token,
			struct garret_error *err);

/* ---- place.c ---- */

/*
 * The provider for a key on a connection.  INVALID, NOT_FOUND and UNSUPPORTED as garret_app_run_open(); no I/O but
 * the database's.
 */
int app_place_get(struct garret_app *app, const char *organisation, const char *connection_id,
		  const char *key, const char *runtime, struct app_place **ret,
		  struct garret_app_connection *ret_connection, struct garret_error *err);
struct garret_provider *app_place_provider(struct app_place *p);
/* Nobody new gets this one: what it knows of the environment is over. */
void app_place_spoil(struct garret_app *app, struct app_place *p);
void app_place_put(struct garret_app *app, struct app_place *p);

/* ---- document.c ---- */

/* A document of a row, or one that is in memory alone (key NULL), which text (NULL: empty) begins. */
struct app_document *app_document_new(struct garret_app *app, const char *organisation,
				      const char *key, const char *text);
struct app_document *app_document_free(struct app_document *d);
/* The state provider on it. */
int app_document_provider(struct app_document *d, struct garret_provider **ret,
			  struct garret_error *err);
/* What is in memory; borrowed; NULL: nothing was written. */
const char *app_document_text(const struct app_document *d);

/* ---- row.c ---- */

struct app_row_found {
	char session_id[GARRET_ID_MAX];
	uint64_t epoch;
};
/* Find or make the row of a run, and touch it. */
int app_row_open(struct garret_app_run *run, struct app_row_found *ret, struct garret_error *err);
/* Does it still mean the session that the run attached to?  GONE. */
int app_row_check(struct garret_app_run *run, struct garret_error *err);
/* Record the run's ref, where none is; or forget the one that it attached to. */
void app_row_record(struct garret_app_run *run);
void app_row_forget(struct garret_app_run *run);

/* ---- own.c: which runs are open, and whose they are ---- */

int app_own_begin(struct garret_app_run *run, struct garret_error *err);
/* Its environment is there: what would remove it is on record from now on. */
void app_own_ref(struct garret_app_run *run);
void app_own_end(struct garret_app_run *run, bool parked);

/* ---- record.c ---- */

/* The recording and loss-noticing rules over run->bare. */
int app_record_wrap(struct garret_app_run *run, struct garret_error *err);

/* ---- spool.c: operations on their way into the log ---- */

int app_spool_open(struct garret_app *app, struct garret_error *err);
void app_spool_close(struct garret_app *app);
/* Whose runs are ours: HOST/SPOOL. */
const char *app_spool_owner(const struct garret_app *app);
/* Is what that names gone?  1, 0, or -1: it is another host's, only time can tell. */
int app_spool_gone(struct garret_app *app, const char *owner);
struct app_operation {
	const char *op, *target, *detail;
	bool ok;
	double seconds;
};
/* An event when it can't be kept; never a failure. */
void app_spool_add(struct garret_app_run *run, const struct app_operation *op);
/* Bring all that is spooled on this host into the log. */
int app_spool_drain(struct garret_app *app, struct garret_error *err);

/* ---- purge.c ---- */

/* Remove an environment now, or queue it when that can't be done. */
void app_purge(struct garret_app *app, const char *organisation, const char *connection_id,
	       const char *session_id);

/* ---- schema.c ---- */

extern const struct db_step app_steps[];
extern const size_t app_n_steps;

/* ---- spill.c (of app_files.h) ---- */

/* What a run does at its end with what it spilled and staged; see garret_app_run_close(). */
void app_spills_prune(struct garret_app_run *run);
struct app_spills *app_spills_new(void);
struct app_spills *app_spills_hold(struct app_spills *s);
struct app_spills *app_spills_drop(struct app_spills *s); /* returns NULL */

#endif
