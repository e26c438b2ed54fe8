/*
 * libgarret: isolated workspaces for AI agents.
 *
 *	context    the loop and the lock that everything made from it shares
 *	provider   a configured kind of place: native, docker, sandboxd, state
 *	ref        the name of one environment, for ever: plain data
 *	workspace  a handle on one environment: files, searches, commands
 *
 * Functions return 0 (or what their comment says) on success and -GARRET_CODE on
 * failure, with the caller's struct garret_error filled when one was passed.
 * They block until they are done, unless their comment says otherwise.
 *
 * A context and all that belongs to it may be used from several threads: while
 * one waits in a call, others may make calls of their own.  The library has no
 * global state, installs no signal handlers, and writes to no standard stream.
 * A child of fork() may only free what it inherited; it makes contexts of its own.
 */
#ifndef GARRET_GARRET_H
#define GARRET_GARRET_H

#include "garret/context.h"
#include "garret/error.h"
#include "garret/file.h"
#include "garret/provider.h"
#include "garret/replay.h"
#include "garret/run.h"
#include "garret/search.h"
#include "garret/workspace.h"
#include "garret/wrap.h"

/* "0.1.0": of the library that is linked, not of this header. */
GARRET_PUBLIC const char *garret_version(void);

#endif
