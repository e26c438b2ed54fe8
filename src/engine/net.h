/* Network namespaces: made with loopback up, checked before they are used again. */
#ifndef ENGINE_NET_H
#define ENGINE_NET_H

#include <stdbool.h>

#include "base/error.h"

/* Move this process into a new one with loopback up; its descriptor. */
int net_unshare(int proc_fd, struct garret_error *err);
/* Loopback of the current one. */
int net_loopback_up(struct garret_error *err);
/* The current one has no socket, no waiting connection, nothing but loopback. */
bool net_unused(int proc_fd);

#endif
