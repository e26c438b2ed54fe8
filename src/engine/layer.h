/*
 * Write layers that are kept without their session: what it had on the disk beside its
 * workspace (home and /var/tmp), in layers/<id>, which is the directory that its slot had.
 *
 * A layer is given back to the next session of its id with the same runtime, in the same
 * boot of the host.  After another one it may be torn (nothing is synchronised), so it is
 * dropped unless engine.conf has it kept; the workspace is not concerned.
 */
#ifndef ENGINE_LAYER_H
#define ENGINE_LAYER_H

#include "engine/engine.h"

/* Is there one to be used?  One that can't be is dropped, and *ret_fate says why. */
bool layer_find(struct engine *e, const char *id, const char *runtime, enum engine_layer *ret_fate);
/*
 * Keep the slot's directory as the layer of id, in place of what there was, as written in
 * that boot of the host: 0 or -errno.
 */
int layer_keep(struct engine *e, const char *slot, const char *id, const char *runtime,
	       const char *boot);
/* It was used now. */
void layer_touch(struct engine *e, const char *id);
/* Move it to the trash; NOT_FOUND: there is none. */
int layer_remove(struct engine *e, const char *id, struct garret_error *err);

#endif
