/* What the files of `garret-init connect` share. */
#ifndef INIT_CONNECT_H
#define INIT_CONNECT_H

#include "init/serve.h"
#include "mux/mux.h"

/* Reads of spool files that the owner asked for, a piece of each in turn. */
struct spool_reads {
	struct mux *mux;
	int spool_fd;
	unsigned n;
	struct {
		struct stream_spool part;
		bool begun;
	} read[STREAM_SPOOL_READS_MAX];
	struct loop_later later;
};

/* False: it makes no sense, or there are too many. */
bool spool_reads_add(struct spool_reads *s, const struct stream_frame *f);
void spool_reads_go(struct spool_reads *s); /* as long as the stream takes more */

#endif
