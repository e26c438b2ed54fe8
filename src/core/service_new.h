/* Making the service: the daemon hands over a provider and a registry. */
#ifndef CORE_SERVICE_NEW_H
#define CORE_SERVICE_NEW_H

#include "core/provider.h"
#include "core/registry.h"
#include "core/service.h"
#include "io/loop.h"

struct service_parts {
	struct loop *loop;
	struct config *config; /* borrowed, outlives the service, which changes it */
	const struct provider_ops *ops;
	struct provider *provider;
	const struct registry_ops *registry_ops;
	struct registry *registry;
	check_command_fn check_command;
	int events_dir;    /* for the logs of what is done and happens, ours; borrowed */
	int runs_dir;      /* where the provider puts output, ours to write to; borrowed */
	const char *token; /* the service token */
	uint8_t key[32];
	const char *boot; /* the host's boot id; borrowed, outlives the service */
};

/* Load the registry, then call ready.  err in ready: it can't be read. */
struct service *service_new(const struct service_parts *parts,
			    void (*ready)(void *ctx, const struct garret_error *err), void *ctx);
/*
 * When the provider is ready, and before serving: bring the recorded policy and the overrides
 * file into force, and find the sessions of an earlier daemon again.
 */
void service_restore(struct service *s, void (*done)(void *ctx), void *ctx);
/* Sessions that are open go on without us. */
struct service *service_free(struct service *s);

/* End every session (files stay), then call done. */
void service_shutdown(struct service *s, plain_done done, void *ctx);
/* What the provider can give; before the service is ready. */
void service_set_bounds(struct service *s, const struct limit_bounds *bounds);
void service_set_ready(struct service *s, bool ready);

#endif
