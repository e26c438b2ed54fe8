/* How far a transfer is: a line on standard error when that is a terminal and it takes a while. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	const char *name; /* borrowed */
	int64_t total;    /* bytes; -1: not known */
	uint64_t done, started_ms, shown_ms;
	bool many; /* files: the total isn't that of the one under way */
	bool terminal, shown;
};

void progress_begin(struct progress *p, const char *name, int64_t total);
void progress_add(struct progress *p, uint64_t bytes);
/* Removes the line: what is said next begins at its beginning. */
void progress_end(struct progress *p);

#endif
