/*
 * The order is the docker command's: DOCKER_HOST, then DOCKER_CONTEXT, then
 * `currentContext` in config.json, then the usual socket.  A context is a
 * directory named by the SHA-256 of its name.
 */
#include "provider/docker_host.h"

#include <fcntl.h>
#include <jansson.h>
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

#define FILE_MAX (1u << 20)
#define USUAL_SOCKET "/var/run/docker.sock"

char *docker_read_file(const char *path, struct garret_error *err)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *text;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0) {
		(void)garret_fail_errno(err, "%s", path);
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
		(void)garret_fail(err, GARRET_INVALID, "%s: not a file of at most 1 MiB", path);
		return NULL;
	}
	text = xmalloc((size_t)st.st_size + 1);
	n = read_full(fd, text, (size_t)st.st_size);
	if (n < 0) {
		(void)garret_fail_errno(err, "%s", path);
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

char *docker_config_dir(void)
{
	const char *dir = getenv("DOCKER_CONFIG"), *home = getenv("HOME");

	return dir && *dir ? xstrdup(dir) : xasprintf("%s/.docker", home ? home : "");
}

void docker_host_release(struct docker_host *h)
{
	if (h->key)
		explicit_bzero(h->key, strlen(h->key));
	free(h->url);
	free(h->socket);
	free(h->ca);
	free(h->cert);
	free(h->key);
	*h = (struct docker_host){ 0 };
}

static bool is_tls(const struct docker_host *h)
{
	return h->url && !strncmp(h->url, "https:", 6);
}

static int parse_host(const char *host, bool tls, struct docker_host *h, struct garret_error *err)
{
	if (!strncmp(host, "unix://", 7)) {
		if (host[7] != '/')
			return garret_fail(err, GARRET_INVALID,
					   "%s: a socket needs an absolute path", host);
		h->socket = xstrdup(host + 7);
		h->url = xstrdup("http://docker");
		return 0;
	}
	if (!strncmp(host, "tcp://", 6) || !strncmp(host, "http://", 7) ||
	    !strncmp(host, "https://", 8)) {
		const char *rest = strstr(host, "://") + 3;
		size_t n = strcspn(rest, "/");
		const char *port = memrchr(rest, ':', n);

		tls = tls || host[4] == 's';
		if (strspn(rest + n, "/") != strlen(rest + n))
			return garret_fail(err, GARRET_INVALID, "an engine's address has no path");
		h->url = xasprintf("http%s://%.*s%s", tls ? "s" : "", (int)n, rest,
				   port && !memchr(port, ']', (size_t)(rest + n - port)) ? ""
				   : tls                                                 ? ":2376"
											 : ":2375");
		return 0;
	}
	if (!strncmp(host, "npipe://", 8))
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "npipe:// is a pipe of Windows: use unix:// or tcp://");
	if (!strncmp(host, "ssh://", 6))
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "ssh:// is not supported: forward the engine's socket with "
				   "ssh -L and use unix://");
	return garret_fail(err, GARRET_INVALID,
			   "an engine's address begins with unix:// or tcp://");
}

static int read_pem(const char *dir, const char *name, bool must, char **ret,
		    struct garret_error *err)
{
	autofree char *path = xasprintf("%s/%s", dir, name);

	if (!must && access(path, F_OK) < 0)
		return 0;
	*ret = docker_read_file(path, err);
	return *ret ? 0 : -(int)GARRET_INVALID;
}

/* ca.pem, cert.pem, key.pem; the last two are needed when one of them is there. */
static int read_pems(const char *dir, bool ca, struct docker_host *h, struct garret_error *err)
{
	int rc = read_pem(dir, "ca.pem", ca, &h->ca, err);

	if (rc == 0)
		rc = read_pem(dir, "cert.pem", false, &h->cert, err);
	if (rc == 0)
		rc = read_pem(dir, "key.pem", h->cert, &h->key, err);
	return rc;
}

static int from_environment(const char *host, struct docker_host *h, struct garret_error *err)
{
	const char *verify = getenv("DOCKER_TLS_VERIFY"), *tls = getenv("DOCKER_TLS");
	const char *certs = getenv("DOCKER_CERT_PATH");
	autofree char *home = docker_config_dir();
	const bool on = (verify && *verify) || (tls && *tls);
	int rc = parse_host(host, on, h, err);

	if (rc < 0 || !is_tls(h))
		return rc;
	h->no_verify = !(verify && *verify) && tls && *tls;
	return read_pems(certs && *certs ? certs : home, !h->no_verify && verify && *verify, h,
			 err);
}

/* ---- contexts ---- */

static char *current_context(const char *dir)
{
	autofree char *path = xasprintf("%s/config.json", dir);
	autofree char *text = docker_read_file(path, NULL);
	json_t *v = text ? json_loads(text, 0, NULL) : NULL;
	const char *name = json_string_value(json_object_get(v, "currentContext"));
	char *out = name && *name ? xstrdup(name) : NULL;

	json_decref(v);
	return out;
}

static void context_id(const char *name, char out[2 * SHA256_DIGEST_SIZE + 1])
{
	uint8_t digest[SHA256_DIGEST_SIZE];
	struct sha256_ctx c;

	sha256_init(&c);
	sha256_update(&c, strlen(name), (const uint8_t *)name);
	sha256_digest(&c, sizeof(digest), digest);
	hex_encode(digest, sizeof(digest), out);
}

static int from_context(const char *dir, const char *name, struct docker_host *h,
			struct garret_error *err)
{
	char id[2 * SHA256_DIGEST_SIZE + 1];
	autofree char *path = NULL, *text = NULL, *certs = NULL;
	const char *host = NULL;
	json_t *v, *endpoint;
	int rc;

	context_id(name, id);
	path = xasprintf("%s/contexts/meta/%s/meta.json", dir, id);
	text = docker_read_file(path, NULL);
	if (!text)
		return garret_fail(err, GARRET_INVALID, "there is no docker context %.100s", name);
	v = json_loads(text, 0, NULL);
	endpoint = json_object_get(json_object_get(v, "Endpoints"), "docker");
	host = json_string_value(json_object_get(endpoint, "Host"));
	certs = xasprintf("%s/contexts/tls/%s/docker", dir, id);
	if (!host || !*host)
		rc = garret_fail(err, GARRET_INVALID, "it names no engine");
	else
		rc = parse_host(host, access(certs, F_OK) == 0, h, err);
	if (rc == 0 && is_tls(h)) {
		h->no_verify = json_is_true(json_object_get(endpoint, "SkipTLSVerify"));
		rc = read_pems(certs, false, h, err);
	}
	json_decref(v);
	return rc < 0 ? garret_wrap(rc, err, "docker context %.100s", name) : 0;
}

static int find(const char *host, struct docker_host *h, struct garret_error *err)
{
	const char *env = getenv("DOCKER_HOST"), *context = getenv("DOCKER_CONTEXT");
	autofree char *dir = docker_config_dir();
	autofree char *current = context && *context ? xstrdup(context) : current_context(dir);

	if (host || (env && *env))
		return from_environment(host ? host : env, h, err);
	if (current && strcmp(current, "default") != 0)
		return from_context(dir, current, h, err);
	return parse_host("unix://" USUAL_SOCKET, false, h, err);
}

int docker_host_find(const char *host, struct docker_host *ret, struct garret_error *err)
{
	struct docker_host h = { 0 };
	int rc = find(host, &h, err);

	if (rc < 0)
		docker_host_release(&h);
	else
		*ret = h;
	return rc;
}

int docker_host_client(const struct docker_host *h, struct loop *l, struct httpc **ret,
		       struct garret_error *err)
{
	const struct httpc_tls tls = {
		.ca = h->ca, .cert = h->cert, .key = h->key, .no_verify = h->no_verify
	};

	return httpc_new(l,
			 &(struct httpc_target){ .url = h->url, .socket = h->socket, .tls = &tls },
			 ret, err);
}
