/*
 * TLS over a connection that is ours, with OpenSSL (which curl brings along).
 * The socket's own BIO would raise SIGPIPE, so there is one here that sends
 * with MSG_NOSIGNAL.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/mem.h"
#include "net/httpc_impl.h"

struct httpc_secure {
	SSL *ssl;
	const struct httpc *h;
};

/* ---- the socket ---- */

static int bio_write(BIO *b, const char *data, int n)
{
	const int *fd = BIO_get_data(b);
	ssize_t sent = send(*fd, data, (size_t)n, MSG_NOSIGNAL);

	BIO_clear_retry_flags(b);
	if (sent < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_write(b);
	return (int)sent;
}

static int bio_read(BIO *b, char *data, int n)
{
	const int *fd = BIO_get_data(b);
	ssize_t got = recv(*fd, data, (size_t)n, 0);

	BIO_clear_retry_flags(b);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_read(b);
	return (int)got;
}

static long bio_ctrl(BIO *b, int cmd, long n, void *p)
{
	(void)b;
	(void)n;
	(void)p;
	return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

static int bio_destroy(BIO *b)
{
	free(BIO_get_data(b));
	return 1;
}

static BIO *make_bio(int fd)
{
	static BIO_METHOD *method;
	int *held;
	BIO *b;

	if (!method) {
		method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");
		if (!method)
			return NULL;
		(void)BIO_meth_set_write(method, bio_write);
		(void)BIO_meth_set_read(method, bio_read);
		(void)BIO_meth_set_ctrl(method, bio_ctrl);
		(void)BIO_meth_set_destroy(method, bio_destroy);
	}
	b = BIO_new(method);
	if (!b)
		return NULL;
	held = xnew(int);
	*held = fd;
	BIO_set_data(b, held);
	BIO_set_init(b, 1);
	return b;
}

/* ---- certificates ---- */

static bool add_cas(SSL_CTX *ctx, const char *pem)
{
	BIO *b = BIO_new_mem_buf(pem, -1);
	unsigned n = 0;
	X509 *x;

	while (b && (x = PEM_read_bio_X509(b, NULL, NULL, NULL))) {
		n += X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), x) == 1;
		X509_free(x);
	}
	BIO_free(b);
	ERR_clear_error(); /* the last read found the end */
	return n > 0;
}

static bool add_cert(SSL_CTX *ctx, const char *pem)
{
	BIO *b = BIO_new_mem_buf(pem, -1);
	X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
	bool ok = x && SSL_CTX_use_certificate(ctx, x) == 1;

	X509_free(x);
	while (ok && (x = PEM_read_bio_X509(b, NULL, NULL, NULL)))
		if (SSL_CTX_add0_chain_cert(ctx, x) != 1)
			X509_free(x);
	BIO_free(b);
	ERR_clear_error();
	return ok;
}

/* A key that wants a pass phrase is of no use: nobody could be asked. */
static int no_pass_phrase(char *buf, int n, int writing, void *ctx)
{
	(void)buf;
	(void)n;
	(void)writing;
	(void)ctx;
	return -1;
}

static bool add_key(SSL_CTX *ctx, const char *pem)
{
	BIO *b = BIO_new_mem_buf(pem, -1);
	EVP_PKEY *k = b ? PEM_read_bio_PrivateKey(b, NULL, no_pass_phrase, NULL) : NULL;
	bool ok = k && SSL_CTX_use_PrivateKey(ctx, k) == 1;

	EVP_PKEY_free(k);
	BIO_free(b);
	ERR_clear_error();
	return ok;
}

static SSL_CTX *make_ctx(const struct httpc *h, struct garret_error *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	const char *wrong = NULL;

	if (!ctx)
		wrong = "no memory for TLS";
	else if (h->ca ? !add_cas(ctx, h->ca) : SSL_CTX_set_default_verify_paths(ctx) != 1)
		wrong = "its CA is no certificate";
	else if (h->cert && !add_cert(ctx, h->cert))
		wrong = "the client's certificate is none";
	else if (h->key && !add_key(ctx, h->key))
		wrong = "the client's key is none, has a pass phrase, or isn't that of its certificate";
	if (!wrong) {
		(void)SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
		(void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
						    SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
		SSL_CTX_set_verify(ctx, h->no_verify ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
		return ctx;
	}
	SSL_CTX_free(ctx);
	(void)garret_fail(err, GARRET_INVALID, "%s: %s", h->name, wrong);
	return NULL;
}

int httpc_secure_check(const struct httpc *h, struct garret_error *err)
{
	SSL_CTX *ctx;

	if (!h->cert != !h->key)
		return garret_fail(err, GARRET_INVALID,
				   "%s: a client's certificate and its key go together", h->name);
	ctx = make_ctx(h, err);
	SSL_CTX_free(ctx);
	return ctx ? 0 : -GARRET_INVALID;
}

static bool set_name(SSL *ssl, const struct httpc *h)
{
	const bool bracket = h->host[0] == '[';
	size_t n = strcspn(h->host + bracket, bracket ? "]" : ":");
	char *name = xstrndup(h->host + bracket, n);
	bool ok;

	/* An address is checked as one, and isn't said in the greeting. */
	ok = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1 ||
	     (SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1);
	free(name);
	return ok;
}

int httpc_secure_new(const struct httpc *h, int fd, struct httpc_secure **ret,
		     struct garret_error *err)
{
	struct httpc_secure *s;
	SSL_CTX *ctx = make_ctx(h, err);
	SSL *ssl = ctx ? SSL_new(ctx) : NULL;
	BIO *b = ssl ? make_bio(fd) : NULL;

	SSL_CTX_free(ctx); /* counted */
	if (!ctx)
		return -GARRET_INVALID;
	if (!b || !set_name(ssl, h)) {
		BIO_free(b);
		SSL_free(ssl);
		return garret_fail(err, GARRET_EXHAUSTED, "%s: no memory for TLS", h->name);
	}
	SSL_set_bio(ssl, b, b);
	SSL_set_connect_state(ssl);
	s = xnew(struct httpc_secure);
	s->ssl = ssl;
	s->h = h;
	*ret = s;
	return 0;
}

struct httpc_secure *httpc_secure_free(struct httpc_secure *s)
{
	if (!s)
		return NULL;
	SSL_free(s->ssl);
	free(s);
	return NULL;
}

/* ---- bytes ---- */

/* What a call that gave rc means, as read() would say it. */
static ssize_t outcome(struct httpc_secure *s, int rc, bool *wants_out, struct garret_error *err)
{
	const long verified = SSL_get_verify_result(s->ssl);

	switch (SSL_get_error(s->ssl, rc)) {
	case SSL_ERROR_NONE:
		return rc;
	case SSL_ERROR_ZERO_RETURN:
		return 0;
	case SSL_ERROR_WANT_WRITE:
		*wants_out = true;
		errno = EAGAIN;
		return -1;
	case SSL_ERROR_WANT_READ:
		errno = EAGAIN;
		return -1;
	default:
		break;
	}
	if (verified != X509_V_OK && !s->h->no_verify)
		(void)garret_fail(err, GARRET_DENIED, "%s: its certificate: %s", s->h->name,
				  X509_verify_cert_error_string(verified));
	else if (ERR_peek_error() &&
		 ERR_GET_REASON(ERR_peek_error()) != SSL_R_UNEXPECTED_EOF_WHILE_READING)
		(void)garret_fail(err, GARRET_PROTOCOL, "%s: TLS: %s", s->h->name,
				  ERR_reason_error_string(ERR_peek_error()) ?: "broken");
	else
		(void)garret_fail(err, GARRET_UNAVAILABLE, "%s: the connection broke", s->h->name);
	ERR_clear_error();
	errno = ECONNRESET;
	return -1;
}

ssize_t httpc_secure_read(struct httpc_secure *s, void *buf, size_t n, bool *wants_out,
			  struct garret_error *err)
{
	ERR_clear_error();
	return outcome(s, SSL_read(s->ssl, buf, (int)n), wants_out, err);
}

ssize_t httpc_secure_write(struct httpc_secure *s, const void *buf, size_t n, bool *wants_out,
			   struct garret_error *err)
{
	ERR_clear_error();
	return outcome(s, SSL_write(s->ssl, buf, (int)n), wants_out, err);
}

int httpc_secure_greet(struct httpc_secure *s, bool *wants_out, struct garret_error *err)
{
	ssize_t rc;

	ERR_clear_error();
	rc = outcome(s, SSL_do_handshake(s->ssl), wants_out, err);
	if (rc == 0) {
		(void)garret_fail(err, GARRET_UNAVAILABLE, "%s: the connection broke", s->h->name);
		errno = ECONNRESET;
	}
	return rc > 0 ? 0 : -1;
}

int httpc_secure_end(struct httpc_secure *s, bool *wants_out)
{
	int rc;

	ERR_clear_error();
	rc = SSL_shutdown(s->ssl); /* 0: said, the other side has not yet */
	return rc >= 0 ? 0 : (int)outcome(s, rc, wants_out, NULL);
}
