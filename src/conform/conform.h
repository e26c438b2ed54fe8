/*
 * The conformance suite: what every provider must do, each rule a function over the public
 * interface.  The first forty are those of the published suite, in its order; behind them are
 * ours.  A user runs it against a provider of theirs with `garret conform`.
 */
#ifndef CONFORM_CONFORM_H
#define CONFORM_CONFORM_H

#include <stdio.h>

#include "garret/garret.h"

struct conform_options {
	const char *provider;
	const char *const *settings; /* "name=value", NULL-terminated */
	const char *program_dir;     /* of the context; NULL */
	const char *only;            /* rules whose name holds this; NULL: all */
	bool list;                   /* print their names, run none */
};

struct conform_counts {
	unsigned passed, failed, skipped;
};

/* Run the rules and say on out how each went; 0 or -code when it couldn't begin. */
int conform_run(const struct conform_options *o, FILE *out, struct conform_counts *ret,
		struct garret_error *err);

#endif
