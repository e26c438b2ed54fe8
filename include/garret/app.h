/*
 * The application layer: whose files an agent sees.
 *
 * An application keeps organisations, agents, conversations and runs.  This keeps, in a database of
 * its own (SQLite, or PostgreSQL), which workspace belongs to which of them:
 *
 *	options      what an agent's sandbox is configured with: plain data, checked
 *	scope        who shares files with whom; its key names a workspace
 *	connection   a service that an organisation registered, with a sealed token
 *	row          one workspace: a document, or which session of a connection it is
 *	run          a row that is open, with its workspace; what a crash leaves of it is swept
 *
 * Nothing of another organisation is ever read: each call names one, and what belongs to another
 * is NOT_FOUND.
 *
 * Ids of organisations, agents, runs and conversations are UUIDs as text, with or without their
 * dashes; they are kept as 32 lower-case digits.  What a platform calls its channels and users is any text.
 *
 * All of an app belongs to one garret_context and may be used from several threads, as that may.
 * In a child of fork() nothing of it may be used.  Include <garret/garret.h> and link garret-app.
 */
#ifndef GARRET_APP_H
#define GARRET_APP_H

#include "garret/garret.h"

struct garret_app;
struct garret_app_run;

#define GARRET_APP_ID 33   /* bytes of an id with its NUL */
#define GARRET_APP_KEY 65  /* of a scope key */
#define GARRET_APP_NAME 65 /* of a runtime's alias, and of what people call a connection */
#define GARRET_APP_STATE_MAX (4u << 20)
#define GARRET_APP_INLINE_IMAGE_MAX (5u << 20)

/* ---- opening ---- */

/*
 * What happens and nobody waits for, such as "workspace_flush_overtaken": a name, and fields as one
 * line of JSON.  Never content, an error's text, or a secret.  In the thread of the call that
 * found it; it must not use the app.
 */
typedef void garret_app_event_fn(void *data, const char *event, const char *fields);

struct garret_app_options {
	size_t size;
	const char *database;     /* "sqlite:PATH", "postgresql://..."; NULL: state_dir/app.db */
	const char *state_dir;    /* key and spools; made with mode 0700; must be ours alone */
	uint64_t state_max_bytes; /* of a document; 0: GARRET_APP_STATE_MAX */
	uint64_t inline_image_max_bytes; /* 0: GARRET_APP_INLINE_IMAGE_MAX */
	garret_app_event_fn *event;      /* NULL: nobody listens */
	void *event_data;
	double lease; /* seconds after which a run of another host that shows no sign of life is swept; 0: a day */
	double opening_timeout; /* seconds in which a service opens a session; 0: as its provider does */
};

/*
 * Open it, with the schema of this library (garret_app_migrate()) when the database has none or
 * an older one.  CONFLICT when it has a newer one.
 */
GARRET_PUBLIC int garret_app_open(struct garret_context *c, const struct garret_app_options *o,
				  struct garret_app **ret, struct garret_error *err);
/* When no run of it is open.  Returns NULL; NULL is fine. */
GARRET_PUBLIC struct garret_app *garret_app_free(struct garret_app *app);

/*
 * The schema alone, without an app: to a step by name, "base" for none, NULL for the newest.
 * *ret_at (may be NULL; malloc()ed) is where it is then.
 */
GARRET_PUBLIC int garret_app_migrate(const char *database, const char *target, char **ret_at,
				     struct garret_error *err);
/* What tables, columns and indexes there are, a line each, sorted.  malloc()ed. */
GARRET_PUBLIC int garret_app_schema(const char *database, char **ret, struct garret_error *err);

/* ---- options of a sandbox ---- */

enum garret_app_backend { GARRET_APP_STATE, GARRET_APP_SERVICE };

enum garret_app_scope {
	GARRET_APP_SCOPE_CONVERSATION, /* the default */
	GARRET_APP_SCOPE_RUN,
	GARRET_APP_SCOPE_CHANNEL,
	GARRET_APP_SCOPE_USER,
	GARRET_APP_SCOPE_AGENT,
	GARRET_APP_SCOPES
};

struct garret_app_sandbox {
	enum garret_app_backend backend;
	char connection_id[GARRET_APP_ID]; /* "": the organisation's default */
	enum garret_app_scope session_scope;
	char runtime[GARRET_APP_NAME]; /* "": the connection's, or the service's own */
	bool include_execute;
};

/* The defaults: a document, by conversation, with commands. */
GARRET_PUBLIC void garret_app_sandbox_defaults(struct garret_app_sandbox *ret);
/*
 * From JSON: {"backend": "state"|"service", "connection_id", "session_scope", "runtime",
 * "include_execute"}; what is absent or null has its default, an unknown key is INVALID.  Each error
 * names the option and what it may be.
 */
GARRET_PUBLIC int garret_app_sandbox_parse(const char *json, struct garret_app_sandbox *ret,
					   struct garret_error *err);
/* As JSON; malloc()ed. */
GARRET_PUBLIC char *garret_app_sandbox_format(const struct garret_app_sandbox *s);

GARRET_PUBLIC const char *garret_app_backend_name(enum garret_app_backend b);
GARRET_PUBLIC const char *garret_app_scope_name(enum garret_app_scope s);
GARRET_PUBLIC int garret_app_scope_parse(const char *name, enum garret_app_scope *ret,
					 struct garret_error *err);

/*
 * The capability as data, JSON, borrowed: id, name, permission scope, the sentence that describes it
 * to people and models, the seven tools with which of them have side effects, and the
 * rules that paths are checked by.
 */
GARRET_PUBLIC const char *garret_app_catalogue(void);

/* ---- scopes ---- */

/* What a run knows of itself.  NULL: there is none. */
struct garret_app_facts {
	size_t size;
	const char *organisation, *agent, *run; /* ids, needed */
	const char *conversation;               /* an id; NULL on a call without one */
	const char *channel, *user;             /* as the platform calls them */
};

/*
 * The key that says who shares files, at most 64 characters: two that differ in organisation, scope,
 * connection (the resolved one, NULL of a document) or subject never share.  INVALID names a fact that
 * the scope needs and isn't there; a broader scope is never taken instead.  No I/O.
 */
GARRET_PUBLIC int garret_app_scope_key(const struct garret_app_facts *facts,
				       enum garret_app_scope scope, const char *connection_id,
				       char ret[GARRET_APP_KEY], struct garret_error *err);

/* ---- connections of an organisation ---- */

enum garret_app_connection_kind {
	GARRET_APP_SANDBOXD, /* a service that speaks the sandboxd wire: garretd, the published one */
	GARRET_APP_NATIVE,   /* sessions on this machine; address is a state directory */
	GARRET_APP_DOCKER,   /* a Docker engine; address is unix:///PATH or tcp://HOST:PORT */
	GARRET_APP_DAYTONA, /* a cloud account; kept and checked, but no provider of this library opens it */
	GARRET_APP_CONNECTION_KINDS
};

GARRET_PUBLIC const char *garret_app_connection_kind_name(enum garret_app_connection_kind kind);
GARRET_PUBLIC int garret_app_connection_kind_parse(const char *name,
						   enum garret_app_connection_kind *ret,
						   struct garret_error *err);

struct garret_app_connection {
	size_t size;
	char id[GARRET_APP_ID]; /* "" for a new one */
	enum garret_app_connection_kind kind;
	char name[GARRET_APP_NAME]; /* for people */
	char address
		[512]; /* http(s)://HOST[:PORT][/PATH], unix:///PATH; of Daytona the API's URL */
	char account[128];             /* of Daytona: its target, or ""; else "" */
	char runtime[GARRET_APP_NAME]; /* "": the service's own */
	bool is_default;
	bool has_token;   /* told, never read */
	uint64_t changes; /* as it was read; 0: whatever it is by now */
};

/*
 * Register one, or change the one of c->id.  token NULL leaves what is sealed ("" removes it).  The
 * first one of an organisation becomes its default, and a new default takes the place of the
 * old.  INVALID names what is wrong: a host without an address, a service or a cloud account without
 * a token of its own (the environment's is never used).  EXISTS: another has that name.  CHANGED: it
 * was changed since it was read.
 */
GARRET_PUBLIC int garret_app_connection_put(struct garret_app *app, const char *organisation,
					    struct garret_app_connection *c, const char *token,
					    struct garret_error *err);
GARRET_PUBLIC int garret_app_connection_get(struct garret_app *app, const char *organisation,
					    const char *id /* NULL: the default */,
					    struct garret_app_connection *ret,
					    struct garret_error *err);
/* Sorted by name; *ret is malloc()ed. */
GARRET_PUBLIC int garret_app_connection_list(struct garret_app *app, const char *organisation,
					     struct garret_app_connection **ret, size_t *ret_n,
					     struct garret_error *err);
/*
 * Forget it, with its token.  Its workspaces' rows stay until their conversations go; nothing on
 * that host is touched.  NOT_FOUND when there is none.
 */
GARRET_PUBLIC int garret_app_connection_remove(struct garret_app *app, const char *organisation,
					       const char *id, struct garret_error *err);

/* ---- runs ---- */

/*
 * Open the workspace of a run: find or make its row, and a handle that was not used yet, so
 * that nothing starts and nothing is asked of the service.  The first run of a scope
 * opens by name, later ones attach to the recorded session: one that is gone is GONE in every
 * operation of this run, never an empty one of the same name.
 *
 * INVALID: a missing fact, or no connection; NOT_FOUND: a connection of that id;
 * UNSUPPORTED: a connection of a kind that this library can't open; CONFLICT: that run is open.
 */
GARRET_PUBLIC int garret_app_run_open(struct garret_app *app, const struct garret_app_facts *facts,
				      const struct garret_app_sandbox *sandbox,
				      struct garret_app_run **ret, struct garret_error *err);
/*
 * Go on with one that was parked or detached, or whose process is gone, with what it had: its spills, and
 * of a run-scoped one its document or environment.  NOT_FOUND; CONFLICT when it is open.
 */
GARRET_PUBLIC int garret_app_run_resume(struct garret_app *app, const char *organisation,
					const char *run, struct garret_app_run **ret,
					struct garret_error *err);
/* Borrowed, for garret_choose() and the tools; recorded when it is of a service. */
GARRET_PUBLIC struct garret_workspace *garret_app_run_workspace(struct garret_app_run *run);

struct garret_app_run_info {
	size_t size;
	char run[GARRET_APP_ID];
	char key[GARRET_APP_KEY];
	enum garret_app_backend backend;
	enum garret_app_scope scope;
	struct garret_ref ref; /* what it is attached to, or will be named; provider as in refs */
	bool attached;         /* by the row's record: open it by ref, never by name */
	char connection_id[GARRET_APP_ID]; /* "" of a document */
	char runtime[GARRET_APP_NAME];
	char tenant[GARRET_APP_ID];
	bool include_execute;
	bool lost; /* its session is gone: some operation was GONE */
};
GARRET_PUBLIC void garret_app_run_info(struct garret_app_run *run, struct garret_app_run_info *ret);

/*
 * A client of the application's own works in that session beside this handle (the published
 * SandboxdWorkspace, say): what it noticed.  ref NULL: nothing was opened.  lost: an operation
 * said that the session is gone.  Counts as if the run's own handle had seen it.
 */
GARRET_PUBLIC int garret_app_run_report(struct garret_app_run *run, const struct garret_ref *ref,
					bool lost, struct garret_error *err);

enum garret_app_close_flags {
	GARRET_APP_PARKED =
		1
		<< 0, /* it waits for a person: its spills and environment are kept, for 30 days */
	/* Another call goes on with it (garret_app_run_resume()), in this process or another; kept for a lease. */
	GARRET_APP_DETACHED = 1 << 1,
};
/*
 * Close it and free it: record the session in its row, or make the row forget the one that was lost
 * (only while the row still holds it); prune the spills; remove the environment of a run-scoped
 * one, if there is one; drop what a document doesn't keep.  It can't fail: what couldn't be
 * done is an event, and is done by the sweeper.  NULL is fine; returns NULL.
 */
GARRET_PUBLIC struct garret_app_run *garret_app_run_close(struct garret_app_run *run,
							  unsigned flags);

/* ---- delegates ---- */

enum garret_app_delegate_workspace {
	GARRET_APP_DELEGATE_NONE,
	GARRET_APP_DELEGATE_SHARED, /* the parent's, with its list of spills */
	GARRET_APP_DELEGATE_OWN,    /* a fresh one: `fresh` of garret_choose() */
};

struct garret_app_delegate {
	size_t size;
	bool shares_sandbox; /* "sandbox" is in the parent's share_with_delegates */
	const struct garret_app_sandbox
		*binding; /* the delegate's own, or NULL; a disabled one is none */
};
/* Which of the three; the table of who gets what.  No I/O. */
GARRET_PUBLIC enum garret_app_delegate_workspace garret_app_delegate_choice(
	const struct garret_app_delegate *d, bool parent_has_one);
/*
 * The names of capabilities that a parent shares, checked: "delegation" can't be shared (INVALID),
 * nor one twice or one that the parent doesn't have bound and enabled.
 */
GARRET_PUBLIC int garret_app_delegate_check(const char *const *shared, size_t n_shared,
					    const char *const *bound, size_t n_bound,
					    struct garret_error *err);
/*
 * Open a delegate's run as the table says; *ret NULL: it has none.  A shared one stands on the
 * parent's workspace and writes to the parent's spill list; closing it closes nothing of the parent.
 * An own one is run-scoped: it is removed when it is closed.  `run` is the delegation's own id.  May be nested.
 */
GARRET_PUBLIC int garret_app_delegate_open(struct garret_app_run *parent,
					   const struct garret_app_delegate *d, const char *agent,
					   const char *run, struct garret_app_run **ret,
					   struct garret_error *err);

/* ---- rows ---- */

struct garret_app_row {
	char key[GARRET_APP_KEY];
	enum garret_app_scope scope;
	enum garret_app_backend backend;
	char agent[GARRET_APP_ID],
		conversation[GARRET_APP_ID]; /* conversation "": of another scope */
	char owner[GARRET_APP_KEY];          /* of user scope: the hash of the user; else "" */
	char connection_id[GARRET_APP_ID];
	char session_id[GARRET_ID_MAX]; /* "": none is recorded */
	uint64_t bytes, version;
	double created_at, last_used_at; /* seconds since 1970 */
};
/* Newest use first, at most `max` (1 to 1,000) from the offset-th; *ret is malloc()ed. */
GARRET_PUBLIC int garret_app_row_list(struct garret_app *app, const char *organisation,
				      uint64_t offset, size_t max, struct garret_app_row **ret,
				      size_t *ret_n, uint64_t *ret_total, struct garret_error *err);
GARRET_PUBLIC int garret_app_row_get(struct garret_app *app, const char *organisation,
				     const char *key, struct garret_app_row *ret,
				     struct garret_error *err);
/*
 * Delete one, or all of a conversation.  What was recorded on a host is purged there; a host that is
 * down doesn't hinder it: the purge is queued (garret_app_purge_list()) and tried again by the sweeper.
 */
GARRET_PUBLIC int garret_app_row_remove(struct garret_app *app, const char *organisation,
					const char *key, struct garret_error *err);
GARRET_PUBLIC int garret_app_conversation_remove(struct garret_app *app, const char *organisation,
						 const char *conversation, size_t *ret_rows,
						 struct garret_error *err);

/* The document of a row as JSON, {"files", "directories"}; malloc()ed.  NOT_FOUND. */
GARRET_PUBLIC int garret_app_document_get(struct garret_app *app, const char *organisation,
					  const char *key, char **ret, struct garret_error *err);
/*
 * Put one in its place, whatever is there (NULL: an empty one): INVALID says what is wrong with it,
 * NO_SPACE when it is over the bound, NOT_FOUND when there is no such row; nothing is changed then.
 */
GARRET_PUBLIC int garret_app_document_put(struct garret_app *app, const char *organisation,
					  const char *key, const char *json,
					  struct garret_error *err);
/*
 * Look into the workspace of a row outside of any run, for people: its document, or the session that
 * is recorded (NOT_FOUND when none is).  It isn't recorded, and closing it prunes nothing.
 */
GARRET_PUBLIC int garret_app_visit(struct garret_app *app, const char *organisation,
				   const char *key, struct garret_app_run **ret,
				   struct garret_error *err);

/* ---- what a crash or a host that was down left ---- */

struct garret_app_purge {
	char connection_id[GARRET_APP_ID];
	char session_id[GARRET_ID_MAX];
	unsigned tries;
	enum garret_code code; /* of the last try */
	double created_at, next_at;
};
GARRET_PUBLIC int garret_app_purge_list(struct garret_app *app, const char *organisation,
					struct garret_app_purge **ret, size_t *ret_n,
					struct garret_error *err);

struct garret_app_swept {
	size_t size;
	uint64_t runs;       /* whose process is gone: closed */
	uint64_t purged;     /* environments removed */
	uint64_t waiting;    /* purges that failed again */
	uint64_t operations; /* log rows dropped as old */
};
/*
 * Close the runs that nobody can close any more, purge what is queued and due, drop log rows older
 * than 30 days.  Call it now and then (garretd does each minute); several at once are fine.
 */
GARRET_PUBLIC int garret_app_sweep(struct garret_app *app, struct garret_app_swept *ret,
				   struct garret_error *err);

/* ---- the log of operations ---- */

/* NULL and 0: any. */
struct garret_app_log_filter {
	size_t size;
	const char *key, *agent, *run;
	const char *op; /* a name of today: rows of old names are found by it too */
	int ok;         /* 0: any, 1: those that went well, -1: those that failed */
	double since, until;
	uint64_t offset;
	size_t max; /* 1 to 1,000; 0: 100 */
};
struct garret_app_log_row {
	uint64_t id;
	char agent[GARRET_APP_ID], run[GARRET_APP_ID], key[129];
	char op[33];     /* read write ls_info mkdir remove execute */
	char *target;    /* at most 512 bytes */
	char detail[65]; /* "12 bytes", "3 results", "exit 2", the class of an error, or "" */
	bool ok;
	unsigned duration_ms;
	double created_at;
};
struct garret_app_log {
	struct garret_app_log_row *row; /* newest first */
	size_t n;
	uint64_t total; /* that the filter finds */
};
GARRET_PUBLIC void garret_app_log_release(struct garret_app_log *l);
/* What is recorded is there at once, also of other processes that share the state directory. */
GARRET_PUBLIC int garret_app_log_query(struct garret_app *app, const char *organisation,
				       const struct garret_app_log_filter *f,
				       struct garret_app_log *ret, struct garret_error *err);
/* The names that an organisation's log holds, as JSON; malloc()ed. */
GARRET_PUBLIC int garret_app_log_names(struct garret_app *app, const char *organisation, char **ret,
				       struct garret_error *err);

#endif
