/*
 * The sandboxd wire over a service: what the daemon starts and stops.
 *
 *	api_new(&api, loop, service, &err);
 *	api_listen(api, &err);		as the configuration says
 *	...
 *	api_drain(api, deadline_ms, done, ctx);
 *	api_free(api);			before the service is freed
 */
#ifndef API_API_H
#define API_API_H

#include <stdint.h>

#include "base/error.h"

struct api;
struct app_link;
struct loop;
struct service;

int api_new(struct api **ret, struct loop *l, struct service *s, struct garret_error *err);
/* Who answers for organisations; passes to the api.  Before api_listen(). */
void api_set_app(struct api *a, struct app_link *app);
/* Runs that are waited for are left; NULL is fine; returns NULL. */
struct api *api_free(struct api *a);

/*
 * Host and port, and the Unix socket when one is configured; or, when there are any, the n
 * sockets that a service manager has bound (fds pass to the api).
 */
int api_listen(struct api *a, const int *fds, unsigned n, struct garret_error *err);
uint16_t api_port(const struct api *a); /* the real one, when any was asked for; 0: none */

void api_stop_accepting(struct api *a);
/* Stop accepting; done when nothing runs any more or at deadline_ms (CLOCK_MONOTONIC). */
void api_drain(struct api *a, uint64_t deadline_ms, void (*done)(void *ctx), void *ctx);
unsigned api_running(const struct api *a); /* requests that are being answered */
unsigned api_connections(const struct api *a);

#endif
