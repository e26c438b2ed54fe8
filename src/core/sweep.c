/*
 * Files that nobody used for long: workspaces by workspace_ttl, kept write layers by
 * container_ttl, counted from the last use.  Only what carries the provider's mark
 * and belongs to no session, open or asleep; and because a session may be opened between
 * the look and the removal, it is removed only if it wasn't used since.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "core/event_log.h"
#include "core/service_impl.h"

struct sweep {
	struct service *service;
	uint64_t now_ms;
};

struct removal {
	struct service *service;
	enum box_forget what;
	char id[];
};

static void on_removed(void *ctx, const struct garret_error *err)
{
	struct removal *r = ctx;

	if (!err && r->what == BOX_FORGET_ALL && !map_find(&r->service->by_id, r->id))
		owners_purged(r->service, r->id);
	if (!err)
		service_note(r->service, NULL,
			     r->what == BOX_FORGET_ALL ? "workspace_swept" : "layer_swept",
			     "session=%s", r->id);
	else if (err->code != GARRET_CONFLICT && err->code != GARRET_NOT_FOUND)
		log_warn("sweep", "session=%s %s", r->id, err->msg);
	free(r);
}

static bool too_old(const struct sweep *w, int64_t ttl, uint64_t used_ms)
{
	return ttl != CONFIG_NULL && used_ms && w->now_ms > used_ms + (uint64_t)ttl * 1000;
}

static void on_kept(void *ctx, const struct kept_files *k)
{
	const struct sweep *w = ctx;
	struct service *svc = w->service;
	const struct config *c = svc->config;
	const bool all = too_old(w, c->workspace_ttl, k->used_ms);
	struct removal *r;

	if (!k->ours || map_find(&svc->by_id, k->id) ||
	    (!all && !too_old(w, c->container_ttl, k->layer_ms)))
		return;
	r = xmalloc(sizeof(*r) + strlen(k->id) + 1);
	r->service = svc;
	r->what = all ? BOX_FORGET_ALL : BOX_FORGET_LAYER;
	memcpy(r->id, k->id, strlen(k->id) + 1);
	svc->ops->forget(svc->provider, r->id, r->what, k->used_ms, on_removed, r);
}

static void on_done(void *ctx, const struct garret_error *err)
{
	struct sweep *w = ctx;

	if (err && err->code != GARRET_UNAVAILABLE)
		log_warn("sweep", "%s", err->msg);
	w->service->sweeping = false;
	free(w);
}

void service_sweep(struct service *svc)
{
	struct sweep *w;

	if (svc->sweeping || !svc->ready ||
	    (svc->config->workspace_ttl == CONFIG_NULL &&
	     svc->config->container_ttl == CONFIG_NULL))
		return;
	svc->sweeping = true;
	w = xnew(struct sweep);
	*w = (struct sweep){ svc, wall_us() / 1000 };
	svc->ops->kept(svc->provider, false, on_kept, on_done, w);
}
