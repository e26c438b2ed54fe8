/* Sessions on this machine, made by garret-engine. */
#ifndef PROVIDER_NATIVE_H
#define PROVIDER_NATIVE_H

#include "core/provider.h"
#include "io/loop.h"
#include "proto/engine.h"

extern const struct provider_ops native_ops;

struct native_config {
	struct loop *loop;
	int keeper_fd;                   /* passes to the provider; or -EBADF and: */
	const char *engine_path;         /* the socket of the system's engine */
	uint8_t owner[ENGINE_OWNER_TAG]; /* for whom the engine keeps our sessions */
	const char *state_dir;           /* ours: ctl/ and runs/ are made in it */
	/* The engine answers.  Again after each away(), when our sessions are ours again. */
	void (*ready)(void *ctx, const struct engine_hello *hello);
	/* It was lost, and is looked for. */
	void (*away)(void *ctx, const struct garret_error *err);
	/* There will be none again. */
	void (*lost)(void *ctx, const struct garret_error *err);
	void *ctx;
};

/* What engine_hello says of limits, as bits of enum box_limit. */
unsigned native_limits(uint8_t hello);
int native_new(const struct native_config *config, struct provider **ret, struct garret_error *err);
struct provider *native_free(struct provider *p); /* boxes must be closed */

#endif
