/*
 * Service tokens that were minted while the daemon runs, beside the one it was
 * started with: 32 random bytes, kept as their SHA-256.  Each has a name and a
 * scope: one tenant or all, looking only or everything.
 *
 * A name may have several living tokens for a while: rotation mints a new one
 * and lets the old one live for an overlap.
 */
#ifndef CORE_SERVICE_TOKEN_H
#define CORE_SERVICE_TOKEN_H

#include "base/list.h"
#include "base/map.h"
#include "core/registry.h"

struct service;

struct service_token {
	struct list link; /* service_tokens.all, oldest first */
	char *name, *tenant;
	uint8_t digest[REGISTRY_DIGEST];
	bool read_only;
	double created_at, expires_at, last_used_at, revoked_at; /* 0: never */
};

struct service_tokens {
	struct list all;
	struct map by_digest; /* in hex */
};

void service_tokens_init(struct service_tokens *t);
void service_tokens_release(struct service_tokens *t);
void service_tokens_on_row(struct service *svc, const struct token_row *row);
/* The living token with this digest, or NULL; notes that it was used. */
const struct service_token *service_tokens_find(struct service *svc,
						const uint8_t digest[REGISTRY_DIGEST]);

#endif
