/*
 * The two kinds of logs in events/: one for each generation of a session (events.c), and
 * the service's own, of what happened to sessions (service_log.c).
 */
#ifndef CORE_EVENT_LOG_H
#define CORE_EVENT_LOG_H

#include "base/list.h"
#include "core/service.h"

struct session;

#define EVENT_RECORD 1
#define EVENT_TENANT 2 /* in the activity of a session: whose it was */

char *event_log_name(const char *id, uint64_t generation); /* the caller frees it */

/* Who follows a log is told that there is more. */
struct event_reader {
	struct list link;
	void (*news)(void *ctx);
	void *ctx;
};
void event_readers_told(struct list *readers);
struct list *events_readers(struct session *s);
/* It sleeps, or is dead: nothing of its log is kept in memory. */
void events_rest(struct session *s);

/* service_log.c */
void service_log_init(struct service *svc);
void service_log_free(struct service *svc);
/*
 * What happened to s (NULL: to the service): KIND is a literal.  Written before anybody
 * is answered, and to the log of the program as well.
 */
void service_note(struct service *svc, const struct session *s, const char *kind, const char *fmt,
		  ...) __attribute__((format(printf, 4, 5)));
/* One operation of a session, for the metrics. */
void service_count(struct service *svc, const char *op, bool ok);

#endif
