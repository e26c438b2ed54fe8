/*
 * ID:PATH, a place in a session.  Paths are bytes: they go percent-encoded into
 * the query of a request, so that any name can be given.
 */
#ifndef CLI_PLACE_H
#define CLI_PLACE_H

#include <stdbool.h>

#include "base/error.h"
#include "base/strbuf.h"

struct place {
	char *text; /* as it was given, for messages */
	char id[65];
	char *typed; /* the part behind the colon */
	char *path;  /* absolute */
};

#define PLACE_INIT       \
	{                \
		.id = "" \
	}

void place_release(struct place *p);
#define autoplace __attribute__((cleanup(place_release)))

/* Does it look like a place?  What begins with / or ./ is a path of the host. */
bool place_is(const char *word);
/* path stays NULL when it is relative; place_below() says to what. */
int place_parse(const char *word, struct place *ret, struct garret_error *err);
void place_below(struct place *p, const char *work_dir);
/* The same place with one more name, in all its parts. */
void place_append(struct place *p, const char *name);
/* The last name of the path in the session; NULL when that is "", "/", "." or "..". */
char *place_name(const struct place *p);
char *base_name_of(const char *path);

/* &NAME=VALUE, or ?NAME=VALUE when it is the first. */
void query_add(struct strbuf *url, const char *name, const char *bytes);
/* Undo percent-encoding; NULL when there is a NUL in it. */
char *percent_decode(const char *s);

#endif
