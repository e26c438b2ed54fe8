/*
 * Operations as plain data, for engines that write every step into a journal and play it again.
 *
 * A request is {"method": M, ...}: "ensure", "run", "read_bytes", "write_bytes", "stat",
 * "list_dir", "make_dir", "remove", "exists", "realpath", with the parameters of the functions
 * of those names; bytes are base64.  A response is {"ok": VALUE} or {"error": {"code", "message",
 * "errno", "stdout", "stderr", "limit", "path"}}.  An error that a repetition may mend
 * (UNAVAILABLE, CANCELLED, EXHAUSTED) is none of the step's: it is returned, and there is no
 * response to be kept.
 */
#ifndef GARRET_REPLAY_H
#define GARRET_REPLAY_H

#include "garret/file.h"
#include "garret/run.h"

/* Carry out a request; *ret is malloc()ed.  TYPE or INVALID for a request that is none. */
GARRET_PUBLIC int garret_perform(struct garret_workspace *w, const char *request, char **ret,
				 struct garret_error *err);
/*
 * What a response holds: 0 and *ret_value (JSON text, malloc()ed), or the error that it carries
 * as if the operation had returned it; of a run that has output, *ret_value is set then too.
 */
GARRET_PUBLIC int garret_response_read(const char *response, char **ret_value,
				       struct garret_error *err);

#endif
