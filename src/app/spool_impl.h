/* What the two halves of the spool share: spool.c writes the file, drain.c brings it into the log. */
#ifndef APP_SPOOL_IMPL_H
#define APP_SPOOL_IMPL_H

#include "app/app_impl.h"

#define SPOOL_DIR "spool"
#define SPOOL_SUFFIX ".ops"
#define SPOOL_TEXTS 7 /* organisation, agent, run, key, op, target, detail */

struct app_spool {
	int dir_fd, fd;
	pthread_mutex_t lock; /* around all below but the names */
	uint64_t size, drained;
	double drained_at, wait; /* seconds from there to the next try */
	bool draining;           /* a thread is at it */
	bool torn;               /* it ends with half a row, behind which nothing would be found */
	char id[GARRET_APP_ID], name[GARRET_APP_ID], owner[APP_OWNER];
	char *insert_many; /* a statement; the database knows it by its place */
};

/* What that is; malloc()ed. */
char *spool_insert_many(void);
void spool_file_name(const char *name, char ret[64]);
/* Where that file has come to is no more of use. */
int spool_mark_drop(struct garret_app *app, const char *owner, struct garret_error *err);
/* After a try; to: how far the database has it now. */
void spool_tried(struct app_spool *s, bool done, uint64_t to);

#endif
