/*
 * What a file operation tells while it is under way: the answers of a file
 * worker (proto/files.h), in their order.  What the functions get is borrowed;
 * any of them but end may be NULL.
 */
#ifndef CORE_FILE_EVENTS_H
#define CORE_FILE_EVENTS_H

#include "base/error.h"
#include "proto/files.h"

struct file_events {
	void (*info)(void *ctx, const struct file_info *info);
	void (*entry)(void *ctx, const struct file_info *info);
	void (*match)(void *ctx, const struct file_match *m);
	void (*data)(void *ctx, const void *data, size_t n);
	void (*room)(void *ctx); /* more of the body may be given */
	/* Always, and last: err is NULL, or says why it failed. */
	void (*end)(void *ctx, const struct file_end *end, const struct garret_error *err);
};

#endif
