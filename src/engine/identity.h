/* The last steps of a session's first process: who it is and what it can never get back. */
#ifndef ENGINE_IDENTITY_H
#define ENGINE_IDENTITY_H

#include "base/error.h"

/* In the child: enter the user namespace and become init's id with three capabilities. */
int identity_take(int userns_fd, struct garret_error *err);
/* Fixed limits of everything in a session (the zygote sets them once, all inherit). */
int identity_rlimits(struct garret_error *err);

#endif
