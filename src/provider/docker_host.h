/*
 * Where a Docker engine is: DOCKER_HOST and its companions, a context of the
 * docker command, or the usual socket.  Only names and files are read here;
 * nothing is connected.
 */
#ifndef PROVIDER_DOCKER_HOST_H
#define PROVIDER_DOCKER_HOST_H

#include <stdbool.h>

#include "base/error.h"
#include "net/httpc.h"

struct docker_host {
	char *url, *socket;
	char *ca, *cert, *key; /* PEM */
	bool no_verify;
};

/*
 * host: "unix:///run/docker.sock", "tcp://HOST:PORT", or NULL: what the
 * environment says (DOCKER_HOST, DOCKER_CONTEXT, the current context of
 * ~/.docker), as the docker command would choose.  INVALID names what can't be
 * used: npipe and ssh are not.
 */
int docker_host_find(const char *host, struct docker_host *ret, struct garret_error *err);
void docker_host_release(struct docker_host *h);
int docker_host_client(const struct docker_host *h, struct loop *l, struct httpc **ret,
		       struct garret_error *err);

/* DOCKER_CONFIG, or ~/.docker; free(). */
char *docker_config_dir(void);
/* A file of at most 1 MiB, NUL-terminated; NULL with err. */
char *docker_read_file(const char *path, struct garret_error *err);

#endif
