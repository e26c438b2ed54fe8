/* File operations, and their floors. */
#ifndef BENCH_FILES_H
#define BENCH_FILES_H

#include "client.h"

/* One window: each operation interleaved with a null request. */
void files_window(struct conn *c, const struct target *t);
/* Its figures as more members of a JSON object; "" when the server has no native files. */
const char *files_figures(void);

#endif
