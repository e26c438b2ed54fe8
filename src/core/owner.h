/*
 * Whose the kept files are: the tenant of the last session of each id, also of
 * sessions that ended long ago.  Tokens of one tenant see nothing of others.
 */
#ifndef CORE_OWNER_H
#define CORE_OWNER_H

#include "base/map.h"

struct service;
struct session;

struct owners {
	struct map by_id; /* the tenant; "": none */
};

void owners_init(struct owners *o);
void owners_release(struct owners *o);
void owners_on_row(struct service *svc, const char *id, const char *tenant);
/* A session was opened; its files were deleted. */
void owners_opened(const struct session *s);
void owners_purged(struct service *svc, const char *id);

#endif
