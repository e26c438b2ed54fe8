/* The workspaces on the disk and how much they hold, counted in a child at low priority. */
#ifndef ENGINE_KEPT_H
#define ENGINE_KEPT_H

#include "engine/engine.h"

struct kept;

/*
 * From the loop: w (borrowed) for each workspace; w NULL at the end, with err when it came too
 * early; then call kept_stop().
 */
typedef void (*kept_fn)(void *ctx, const struct engine_workspace *w,
			const struct garret_error *err);

int kept_start(struct engine *e, bool sizes, kept_fn fn, void *ctx, struct kept **ret,
	       struct garret_error *err);
/* No more calls until kept_resume(); both are safe to call again, and on NULL. */
void kept_pause(struct kept *k);
void kept_resume(struct kept *k);
/* NULL is fine; returns NULL. */
struct kept *kept_stop(struct kept *k);

#endif
