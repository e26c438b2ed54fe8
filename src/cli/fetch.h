/* A tree of a session as files of the host. */
#ifndef CLI_FETCH_H
#define CLI_FETCH_H

#include "cli/cmd_file.h"

/*
 * What is in the session's directory p, below `into` (a descriptor, borrowed).
 * What can't be had is said and left out; the command's status tells.
 */
int fetch_tree(struct file_command *c, const struct place *p, int into, struct garret_error *err);

#endif
