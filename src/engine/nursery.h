/* The engine's end of the zygote: start it, hear of ended processes, start it again. */
#ifndef ENGINE_NURSERY_H
#define ENGINE_NURSERY_H

#include "engine/engine.h"

/* All children end up here, orphans too, and are waited for when they have ended. */
int nursery_adopt(struct engine *e, struct garret_error *err);
/* Start a zygote; it reports later, from the loop, whether it can make sessions. */
int nursery_start(struct engine *e, struct garret_error *err);
/* Replace it, and the slots it prepared, when the host's programs have changed. */
void nursery_refresh(struct engine *e);
/* Close its socket: it ends when its helpers have. */
void nursery_stop(struct engine *e);

#endif
