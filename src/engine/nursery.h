/* The engine's end of the zygote: start it, hear of ended processes, start it again. */
#ifndef ENGINE_NURSERY_H
#define ENGINE_NURSERY_H

#include "engine/engine.h"

/* Start a zygote; it reports later, from the loop, whether it can make sessions. */
int nursery_start(struct engine *e, struct garret_error *err);
/* Close its socket and wait until it has ended. */
void nursery_stop(struct engine *e);

#endif
