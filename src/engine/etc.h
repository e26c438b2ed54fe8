/* /etc of the `host` runtime: a list copied from the host, and generated files. */
#ifndef ENGINE_ETC_H
#define ENGINE_ETC_H

#include "base/error.h"

extern const char etc_default[]; /* the list when the configuration names none */

/*
 * Fill the empty directory etc.  `list` has names below /etc separated by blanks,
 * the first part of a name may have a '*'.  What doesn't exist, or not everybody
 * may read, is left out.
 */
int etc_fill(int etc, const char *list, struct garret_error *err);

#endif
