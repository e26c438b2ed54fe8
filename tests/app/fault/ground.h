/*
 * The application layer on a database whose statements fail when a test wants it: the nth of them, or
 * the nth and all behind it.  With GARRET_TEST_POSTGRES in the environment it is that URL's.
 */
#ifndef TESTS_APP_FAULT_GROUND_H
#define TESTS_APP_FAULT_GROUND_H

#include "unit/test.h"

#include "app/app_impl.h"

struct fault {
	unsigned at; /* 0: none */
	bool on;     /* and all behind it */
	enum garret_code code;
	const char *only; /* statements with that in them; NULL: all */
	unsigned seen;    /* so far */
	bool hit;
};
extern struct fault fault;
/* What happens just before a statement with `at` in it, once: another one on the same connection. */
struct meanwhile {
	const char *at, *sql;
};
extern struct meanwhile meanwhile;

struct ground {
	char dir[32], database[256];
	struct garret_context *context;
	struct garret_app *app;
	struct db *db; /* the test's own */
	char org[GARRET_APP_ID], agent[GARRET_APP_ID], conversation[GARRET_APP_ID];
	char id[GARRET_APP_ID]; /* of the run that a scenario opens */
	char key[GARRET_APP_KEY];
	char connection[GARRET_APP_ID];
	struct garret_app_run *run;
	unsigned events;
	char event[64], fields[512]; /* the last one */
};

struct ground *ground_new(void);
/* Everything ends: then nothing may be left, in the database or below the state directory. */
void ground_end(struct ground *g);
/* The application again, as after a restart; both may fail. */
int ground_open(struct ground *g, struct garret_error *err);
struct garret_app *ground_another(struct ground *g);

/* What must work. */
void must(int rc, const struct garret_error *err, const char *what);
void execute(struct ground *g, const char *sql);
int64_t count(struct ground *g, const char *sql);
/* No schema, as before it was ever opened. */
void ground_empty(struct ground *g);

/* A connection of this machine's sessions; false, and why was printed, where there can be none. */
bool ground_native(struct ground *g);
/* One of a service that isn't there. */
void ground_down(struct ground *g);

int open_run(struct ground *g, enum garret_app_scope scope, enum garret_app_backend backend,
	     struct garret_error *err);
/* Write a file; the code. */
int put(struct garret_app_run *run, const char *path, const char *text, struct garret_error *err);
/* The spool of a process that was killed: those bytes; its name in ret. */
void leave_spool(struct ground *g, const void *data, size_t n, char ret[64]);
/* What this app has spooled, all of it; malloc()ed. */
char *read_spool(struct ground *g, size_t *ret_n);
/* An operation as it would be recorded. */
void record(struct garret_app_run *run, const char *target);

struct scenario {
	const char *name;
	void (*prepare)(struct ground *g); /* NULL: nothing */
	int (*act)(struct ground *g, struct garret_error *err);
	void (*check)(struct ground *g); /* when it has worked, at once or again; NULL: nothing */
	bool native;                     /* it needs sessions of this machine */
};
/*
 * Each statement of act() fails once, by each code that a database has, and once with all behind it: the
 * call says so or tells an event, works when it is made again, and nothing is left over.
 */
void everywhere(const struct scenario *s);

#endif
