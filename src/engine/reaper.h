/*
 * The reaper: a child at idle priority that deletes what is in the trash and looks
 * whether a used network namespace is as good as new.
 */
#ifndef ENGINE_REAPER_H
#define ENGINE_REAPER_H

#include "engine/engine.h"

/* Fork it.  Before the loop has descriptors of strangers, because it inherits what there is. */
int reaper_start(struct engine *e, struct garret_error *err);
/* Something is in the trash. */
void reaper_poke(struct engine *e);
/* A namespace whose session has ended (taken; -EBADF is fine). */
void reaper_give_net(struct engine *e, int fd);
/* One that was found clean, or -EBADF. */
int reaper_take_net(struct engine *e);
/* Close its socket: it ends when the trash is empty. */
void reaper_stop(struct engine *e);

#endif
