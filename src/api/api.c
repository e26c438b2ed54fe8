#include "api/api.h"
#include "api/app_link.h"

#include <malloc.h>
#include <stdlib.h>

#include "api/sse.h"
#include "base/log.h"
#include "base/mem.h"

#define SOCKET_MODE 0660 /* the group may call; every call needs a token anyway */

int api_new(struct api **ret, struct loop *l, struct service *s, struct garret_error *err)
{
	const struct config *conf = service_config(s);
	struct api *a = xnew(struct api);
	struct httpd_settings set = { .handle = route_handle, .ctx = a };
	int rc;

	list_init(&a->streams);
	/* Large bodies go back to the kernel; by default one makes the allocator keep the next ones. */
	(void)mallopt(M_MMAP_THRESHOLD, 256 * 1024);
	set.max_connections = (unsigned)MAX(conf->max_connections, 1);
	set.max_per_address = (unsigned)MAX(conf->max_connections_per_address, 0);
	a->loop = l;
	a->service = s;
	rc = httpd_new(&a->httpd, l, &set, err);
	if (rc < 0) {
		free(a);
		return rc;
	}
	*ret = a;
	return 0;
}

void api_set_app(struct api *a, struct app_link *app)
{
	a->app = app;
}

struct api *api_free(struct api *a)
{
	if (!a)
		return NULL;
	a->app = app_link_free(a->app); /* it answers what waits for it */
	httpd_free(a->httpd);
	free(a->openapi);
	free(a);
	return NULL;
}

static int listen_given(struct api *a, const int *fds, unsigned n, struct garret_error *err)
{
	int rc = 0;

	for (unsigned i = 0; i < n; i++) {
		uint16_t port = 0;

		if (rc == 0)
			rc = httpd_listen_fd(a->httpd, fds[i], &port, err);
		if (port)
			a->port = port;
	}
	return rc;
}

int api_listen(struct api *a, const int *fds, unsigned n, struct garret_error *err)
{
	const struct config *conf = service_config(a->service);
	int rc;

	if (n)
		return listen_given(a, fds, n, err);
	rc = httpd_listen_tcp(a->httpd, conf->host, conf->port, &a->port, err);
	if (rc < 0)
		return rc;
	log_debug("listening", "host=%s port=%u", conf->host, a->port);
	if (!conf->socket)
		return 0;
	rc = httpd_listen_unix(a->httpd, conf->socket, SOCKET_MODE, err);
	if (rc < 0)
		return rc;
	log_debug("listening", "socket=%s", conf->socket);
	return 0;
}

uint16_t api_port(const struct api *a)
{
	return a->port;
}

void api_stop_accepting(struct api *a)
{
	httpd_stop_accepting(a->httpd);
}

void api_drain(struct api *a, uint64_t deadline_ms, void (*done)(void *ctx), void *ctx)
{
	sse_end_all(a);
	httpd_drain(a->httpd, deadline_ms, done, ctx);
}

unsigned api_running(const struct api *a)
{
	return httpd_counts(a->httpd).running;
}

unsigned api_connections(const struct api *a)
{
	return httpd_counts(a->httpd).connections;
}
