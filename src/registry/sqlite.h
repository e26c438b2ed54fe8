#ifndef REGISTRY_SQLITE_H
#define REGISTRY_SQLITE_H

#include "core/registry.h"
#include "io/loop.h"

extern const struct registry_ops sqlite_registry_ops;

/*
 * Open PATH (made with mode 0600 when missing).  A corrupt file or one from a
 * newer version is refused with what to do, never overwritten.
 */
int sqlite_registry_open(struct loop *l, const char *path, struct registry **ret,
			 struct garret_error *err);

/*
 * Bring the tables to an earlier or a later version, so that another garretd can use them:
 * what that version doesn't know is lost.  No daemon may have them open.
 */
int sqlite_registry_migrate(const char *path, int version, struct garret_error *err);

#endif
