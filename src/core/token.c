#include "core/token.h"

#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define GENERATIONS 4 /* of one name; an older token is simply unknown */

struct tombstone {
	unsigned n, next;
	uint8_t nonce[GENERATIONS][TOKEN_NONCE];
};

void token_derive(const struct token_key *key, const char *session_id,
		  const uint8_t nonce[TOKEN_NONCE], char out[TOKEN_LENGTH + 1])
{
	struct hmac_sha256_ctx h;
	uint8_t mac[SHA256_DIGEST_SIZE];

	hmac_sha256_set_key(&h, sizeof(key->bytes), key->bytes);
	hmac_sha256_update(&h, 7, (const uint8_t *)"session");
	/* Ids have no NUL, so this can't be read as another id and nonce. */
	hmac_sha256_update(&h, strlen(session_id) + 1, (const uint8_t *)session_id);
	hmac_sha256_update(&h, TOKEN_NONCE, nonce);
	hmac_sha256_digest(&h, sizeof(mac), mac);
	base64url_encode(mac, sizeof(mac), out);
}

bool token_matches(const struct token_key *key, const char *session_id,
		   const uint8_t nonce[TOKEN_NONCE], const char *token)
{
	char want[TOKEN_LENGTH + 1];

	token_derive(key, session_id, nonce, want);
	return strlen(token) == TOKEN_LENGTH && memeql_sec(want, token, TOKEN_LENGTH);
}

void token_digest(const char *token, uint8_t out[32])
{
	struct sha256_ctx s;

	sha256_init(&s);
	sha256_update(&s, strlen(token), (const uint8_t *)token);
	sha256_digest(&s, 32, out);
}

bool token_digest_equal(const uint8_t a[32], const char *token)
{
	uint8_t b[32];

	token_digest(token, b);
	return memeql_sec(a, b, sizeof(b));
}

void tombstones_init(struct tombstones *t)
{
	map_init(&t->by_id);
}

static void free_one(const char *key, void *value, void *ctx)
{
	(void)key;
	(void)ctx;
	free(value);
}

void tombstones_release(struct tombstones *t)
{
	map_foreach(&t->by_id, free_one, NULL);
	map_release(&t->by_id);
}

void tombstones_add(struct tombstones *t, const char *session_id, const uint8_t nonce[TOKEN_NONCE])
{
	struct tombstone *s = map_find(&t->by_id, session_id);

	if (!s) {
		s = xnew(struct tombstone);
		map_set(&t->by_id, session_id, s);
	}
	memcpy(s->nonce[s->next], nonce, TOKEN_NONCE);
	s->next = (s->next + 1) % GENERATIONS;
	s->n += s->n < GENERATIONS;
}

bool tombstones_match(const struct tombstones *t, const struct token_key *key,
		      const char *session_id, const char *token)
{
	const struct tombstone *s = map_find(&t->by_id, session_id);
	bool match = false;

	for (unsigned i = 0; s && i < s->n; i++)
		match |= token_matches(key, session_id, s->nonce[i], token);
	return match;
}
