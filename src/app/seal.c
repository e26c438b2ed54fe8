/*
 * Tokens at rest.  ChaCha20-Poly1305 under a key that is a file of the state directory (0600), not
 * in the database: who reads the database has no token.  The purpose is authenticated with it,
 * so that a sealed token of one connection opens for no other.
 *
 *	nonce (12, random) | ciphertext | tag (16)
 */
#include <errno.h>
#include <fcntl.h>
#include <nettle/chacha-poly1305.h>
#include <nettle/memops.h>
#include <string.h>
#include <sys/stat.h>

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/fd.h"

#define NONCE CHACHA_POLY1305_NONCE_SIZE
#define TAG CHACHA_POLY1305_DIGEST_SIZE
#define KEY_FILE "key"

static int make_key(int state_fd, struct garret_error *err)
{
	uint8_t key[APP_KEY_BYTES];
	int rc;

	app_random(key, sizeof(key));
	rc = app_file_make(state_fd, KEY_FILE, key, sizeof(key), err);
	explicit_bzero(key, sizeof(key));
	return rc;
}

int app_key_load(int state_fd, uint8_t ret[APP_KEY_BYTES], struct garret_error *err)
{
	autoclose int fd = openat(state_fd, KEY_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 && errno == ENOENT) {
		int rc = make_key(state_fd, err);

		if (rc < 0)
			return rc;
		fd = openat(state_fd, KEY_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return garret_fail_errno(err, "state_dir: open the key");
	if (st.st_size != APP_KEY_BYTES || (st.st_mode & 077) ||
	    read_full(fd, ret, APP_KEY_BYTES) != APP_KEY_BYTES)
		return garret_fail(err, GARRET_DENIED,
				   "state_dir: the file key must be %d bytes with mode 0600",
				   APP_KEY_BYTES);
	return 0;
}

static void begin(struct chacha_poly1305_ctx *ctx, const struct garret_app *app,
		  const uint8_t *nonce, const char *purpose)
{
	chacha_poly1305_set_key(ctx, app->key);
	chacha_poly1305_set_nonce(ctx, nonce);
	chacha_poly1305_update(ctx, strlen(purpose), (const uint8_t *)purpose);
}

void app_seal(const struct garret_app *app, const char *purpose, const char *text,
	      struct strbuf *out)
{
	struct chacha_poly1305_ctx ctx;
	const size_t n = strlen(text);
	uint8_t *at;

	strbuf_reserve(out, NONCE + n + TAG + 1);
	at = (uint8_t *)out->buf + out->len;
	app_random(at, NONCE);
	begin(&ctx, app, at, purpose);
	chacha_poly1305_encrypt(&ctx, n, at + NONCE, (const uint8_t *)text);
	chacha_poly1305_digest(&ctx, TAG, at + NONCE + n);
	out->len += NONCE + n + TAG;
	out->buf[out->len] = '\0';
	explicit_bzero(&ctx, sizeof(ctx));
}

int app_unseal(const struct garret_app *app, const char *purpose, const void *sealed, size_t n,
	       struct strbuf *out, struct garret_error *err)
{
	struct chacha_poly1305_ctx ctx;
	const uint8_t *at = sealed;
	uint8_t tag[TAG];
	bool fine = n >= NONCE + TAG;

	if (fine) {
		const size_t length = n - NONCE - TAG;

		strbuf_reserve(out, length + 1);
		begin(&ctx, app, at, purpose);
		chacha_poly1305_decrypt(&ctx, length, (uint8_t *)out->buf, at + NONCE);
		chacha_poly1305_digest(&ctx, TAG, tag);
		fine = memeql_sec(tag, at + n - TAG, TAG);
		out->len = fine ? length : 0;
		out->buf[out->len] = '\0';
		explicit_bzero(&ctx, sizeof(ctx));
	}
	return fine ? 0
		    : garret_fail(err, GARRET_DENIED,
				  "the token was sealed with another key than this state_dir's");
}
