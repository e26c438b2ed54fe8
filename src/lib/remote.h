/* The second shared object, loaded on first use and kept. */
#ifndef LIB_REMOTE_H
#define LIB_REMOTE_H

#include "provider/remote.h"

/* UNSUPPORTED with the reason when it can't be loaded, or is of another build. */
int remote_load(const struct remote_table **ret, struct garret_error *err);

#endif
