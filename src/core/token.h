/*
 * Session tokens are derived, not stored: base64url(HMAC-SHA256(K, "session",
 * id, nonce)), 43 characters.  The nonce belongs to one generation of a
 * session; ended generations leave a tombstone, so that their token is told
 * apart from one that never was.
 */
#ifndef CORE_TOKEN_H
#define CORE_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"

#define TOKEN_NONCE 16
#define TOKEN_LENGTH 43

struct token_key {
	uint8_t bytes[32];
};

void token_derive(const struct token_key *key, const char *session_id,
		  const uint8_t nonce[TOKEN_NONCE], char out[TOKEN_LENGTH + 1]);
/* Takes as long whatever the token is. */
bool token_matches(const struct token_key *key, const char *session_id,
		   const uint8_t nonce[TOKEN_NONCE], const char *token);

void token_digest(const char *token, uint8_t out[32]); /* SHA-256, for service tokens */
bool token_digest_equal(const uint8_t a[32], const char *token);

/* The newest ended generations per session id. */
struct tombstones {
	struct map by_id;
};
void tombstones_init(struct tombstones *t);
void tombstones_release(struct tombstones *t);
void tombstones_add(struct tombstones *t, const char *session_id, const uint8_t nonce[TOKEN_NONCE]);
bool tombstones_match(const struct tombstones *t, const struct token_key *key,
		      const char *session_id, const char *token);

#endif
