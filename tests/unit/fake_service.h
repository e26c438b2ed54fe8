/*
 * A service without sessions behind it, for tests of the routes.  Token of the
 * service: "service-token-for-tests"; of a session: "token-" and its id; of an
 * ended generation: "ended-" and the id.  Of the service with less:
 * "all-read-token-for-tests", "acme-token-for-tests" and "acme-read-token-for-tests"
 * (of tenant acme).
 *
 * Programs: ["echo", TEXT]; ["bytes", N, CODE]: N bytes of that code;
 * ["sleep", MS]; ["error"]: its standard error says "oops\n", status 1;
 * ["gone"]: 410; ["busy"]: 503; ["lost"]: output that can't be read.
 */
#ifndef TESTS_FAKE_SERVICE_H
#define TESTS_FAKE_SERVICE_H

#include "core/service.h"
#include "io/loop.h"

struct service *fake_service_new(struct loop *l);
struct service *fake_service_free(struct service *s);
struct config *fake_service_config(struct service *s); /* to be changed before api_new() */
/* How often service_run_leave() was called; how many runs go on. */
unsigned fake_service_left(const struct service *s);

#endif
