/*
 * A run that was made by hand, around a workspace that does what a test wants: its operations are
 * counted, and those that a rule names are refused.
 *
 * Names of tests tell which line of the specification they prove: D8_3 is item 3 of its section D8,
 * D12_20 the twentieth of the items that D12 lists, from attachments to skills.
 */
#ifndef TESTS_APP_WORLD_H
#define TESTS_APP_WORLD_H

#include "app/app_impl.h"
#include "unit/test.h"

struct rule {
	enum garret_operation op;
	const char *path; /* what it contains; NULL: any */
	enum garret_code code;
};

struct world {
	struct garret_context *context;
	struct garret_provider *provider;
	struct garret_workspace *bare; /* to look at what is there */
	struct garret_app app;
	struct garret_app_run run;
	struct rule rules[8]; /* code GARRET_OK ends them */
	unsigned count[GARRET_OPERATIONS], operations;
	char event[64], fields[256];
	unsigned events;
	char dir[64]; /* of a native one of its own */
	bool made;    /* a session, which is to be destroyed */
	char *at[16]; /* what world_at() gave */
};

/*
 * A document; or what around.py says, in the environment, that workspaces are to be: with
 * max_bytes, a document all the same (NULL: no bound that counts).
 */
struct world *world_new(const char *max_bytes);
/* A session with commands; NULL, and why was printed, where there can be none. */
struct world *world_native(void);
/* Around a workspace, which it takes. */
void world_use(struct world *x, struct garret_workspace *w);
/* The next operations are refused: rules are added. */
void world_refuse(struct world *x, enum garret_operation op, const char *path,
		  enum garret_code code);
void world_allow(struct world *x); /* no rules, counts from 0 */
void world_end(struct world *x);

/* Straight into the workspace, and out of it (malloc()ed; NULL: it isn't there). */
void world_put(struct world *x, const char *path, const char *text);
/* Of one line, DIR/0000 and so on: by one command where there are commands. */
void world_fill(struct world *x, const char *dir, unsigned n);
char *world_get(struct world *x, const char *path);
bool world_has(struct world *x, const char *path);
/* A path below the working directory, absolute and otherwise as it is: until world_end(). */
const char *world_at(struct world *x, const char *below);

/* Whose list of spills was put on record last; what the record answers. */
extern struct garret_app_run *core_recorded;
extern enum garret_code core_refuses;

/* What the workspace's walks say of sizes: nothing (see --wrap in meson.build). */
extern bool world_unmeasured;

#define has(text, part)                                               \
	do {                                                          \
		if (!strstr(text, part))                              \
			fail_msg("\"%s\" isn't in:\n%s", part, text); \
	} while (0)
#define lacks(text, part)                                          \
	do {                                                       \
		if (strstr(text, part))                            \
			fail_msg("\"%s\" is in:\n%s", part, text); \
	} while (0)

#endif
