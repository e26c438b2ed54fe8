/* What the two halves of our own file routes share. */
#ifndef API_FILES_V1_H
#define API_FILES_V1_H

#include "api/file_answer.h"
#include "api/handlers.h"

/* The bytes of a query parameter (json_path_nul when there is a NUL), or what is in the body. */
const char *v1_query_path(struct call *c, const char *name, const char *otherwise);
/* Octal text (NULL: 0) in *ret; false when it was wrong and answered. */
bool v1_mode(struct call *c, const char *text, uint32_t *ret);

#endif
