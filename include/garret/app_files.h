/*
 * Files around the tools of a run: what an application puts into a workspace and takes out of it.
 * All of it survives a workspace that refuses: a failure of the workspace is part of the result,
 * never a reason to end the turn.
 */
#ifndef GARRET_APP_FILES_H
#define GARRET_APP_FILES_H

#include "garret/app.h"

#endif
