/* Opening what is to be read. */
#ifndef INIT_CONTENT_H
#define INIT_CONTENT_H

#include "init/worker.h"

/* The request's file, which is a regular one, for reading; -code. */
int content_open(struct worker *w, struct stat *st, struct garret_error *err);
int content_too_large(uint64_t size, uint64_t max, struct garret_error *err);

#endif
