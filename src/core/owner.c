#include "core/owner.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "core/service_impl.h"

void owners_init(struct owners *o)
{
	map_init(&o->by_id);
}

static void free_one(const char *key, void *value, void *ctx)
{
	(void)key, (void)ctx;
	free(value);
}

void owners_release(struct owners *o)
{
	map_foreach(&o->by_id, free_one, NULL);
	map_release(&o->by_id);
}

void owners_on_row(struct service *svc, const char *id, const char *tenant)
{
	free(map_set(&svc->owners.by_id, id, xstrdup(tenant ? tenant : "")));
}

static void on_recorded(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	if (err)
		log_error("registry", "%s", err->msg);
}

void owners_opened(const struct session *s)
{
	struct service *svc = s->service;
	const char *now = s->tenant ? s->tenant : "";
	const char *before = map_find(&svc->owners.by_id, s->id);

	if (before && !strcmp(before, now))
		return;
	owners_on_row(svc, s->id, s->tenant);
	svc->registry_ops->owner_set(svc->registry, s->id, s->tenant, on_recorded, NULL);
}

void owners_purged(struct service *svc, const char *id)
{
	char *before = map_remove(&svc->owners.by_id, id);

	if (before)
		svc->registry_ops->owner_drop(svc->registry, id, on_recorded, NULL);
	free(before);
}

bool service_owns(const struct service *svc, const char *tenant, const char *id)
{
	const struct session *s = map_find(&svc->by_id, id);
	const char *last = map_find(&svc->owners.by_id, id);

	/* One that is being opened has said whose it is already. */
	if (s && (!s->tenant || strcmp(s->tenant, tenant) != 0))
		return false;
	return s || (last && !strcmp(last, tenant));
}

bool service_is_foreign(const struct service *svc, const char *tenant, const char *id)
{
	return (map_find(&svc->by_id, id) || map_find(&svc->owners.by_id, id)) &&
	       !service_owns(svc, tenant, id);
}
