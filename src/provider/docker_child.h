/*
 * A program that helps: a credential helper, a builder.  It gets an environment
 * of its own, its input, and a time; what it writes is kept up to a bound.
 */
#ifndef PROVIDER_DOCKER_CHILD_H
#define PROVIDER_DOCKER_CHILD_H

#include "base/strbuf.h"
#include "io/loop.h"

struct docker_child;

struct docker_child_spec {
	const char *const *argv, *const *env;
	const char *input;   /* at most what a pipe takes; NULL: none */
	uint32_t timeout_ms; /* then it is killed, with all that it began */
	size_t keep;         /* bytes of its output; of more, the last ones */
};

/* code: its exit code, 128+N for a signal; err: it could not be run, or took too long. */
typedef void (*docker_child_fn)(void *ctx, int code, struct strbuf *out,
				const struct garret_error *err);

/* NULL with err; otherwise fn is called once. */
struct docker_child *docker_child_start(struct loop *l, const struct docker_child_spec *spec,
					docker_child_fn fn, void *ctx, struct garret_error *err);
/* It is killed, nobody is told. */
void docker_child_leave(struct docker_child *c);

#endif
