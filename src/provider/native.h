/* Sessions on this machine, made by garret-engine. */
#ifndef PROVIDER_NATIVE_H
#define PROVIDER_NATIVE_H

#include "core/provider.h"
#include "io/loop.h"
#include "proto/engine.h"

extern const struct provider_ops native_ops;

struct native_config {
	struct loop *loop;
	int engine_fd;         /* passes to the provider */
	const char *state_dir; /* ours: ctl/ and runs/ are made in it, old contents removed */
	/* The engine answered (err NULL), or is gone for good. */
	void (*ready)(void *ctx, const struct engine_hello *hello);
	void (*lost)(void *ctx, const struct garret_error *err);
	void *ctx;
};

int native_new(const struct native_config *config, struct provider **ret, struct garret_error *err);
struct provider *native_free(struct provider *p); /* boxes must be closed */

#endif
