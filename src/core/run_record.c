/*
 * What is known of a finished command.  Several answers may be written from one
 * record, long after its session is gone; the files of a spooled output go with
 * the last reference.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "core/service_impl.h"

#define PREVIEW_BYTES 65536u /* of each stream, when a command was cut short */

struct run_record *run_record_ref(struct run_record *r)
{
	r->refs++;
	return r;
}

static void close_spools(struct run_record *r)
{
	for (int i = 0; i < 2; i++)
		r->spool_fd[i] = fd_close(r->spool_fd[i]);
}

struct run_record *run_record_unref(struct run_record *r)
{
	if (!r)
		return NULL;
	if (--r->refs) {
		if (r->refs == 1)
			close_spools(r); /* only the session keeps it now */
		return NULL;
	}
	close_spools(r);
	for (int i = 0; i < 2; i++) {
		strbuf_release(&r->head[i]);
		if (r->spool[i][0])
			r->service->ops->spool_remove(r->service->provider, r->spool[i]);
	}
	free(r);
	return NULL;
}

const struct run_summary *run_record_summary(const struct run_record *r)
{
	return &r->summary;
}

long run_record_read(struct run_record *r, int stream, uint64_t offset, void *buf, size_t cap)
{
	uint64_t end = r->summary.show[stream];
	size_t n = offset < end ? (size_t)MIN(end - offset, (uint64_t)cap) : 0;
	ssize_t got;

	if (!n)
		return 0;
	if (!r->spooled[stream]) {
		memcpy(buf, r->head[stream].buf + offset, n);
		return (long)n;
	}
	if (r->spool_fd[stream] < 0)
		r->spool_fd[stream] =
			r->service->ops->spool_open(r->service->provider, r->spool[stream]);
	if (r->spool_fd[stream] < 0)
		return -1;
	do
		got = pread(r->spool_fd[stream], buf, n, (off_t)offset);
	while (got < 0 && errno == EINTR);
	return got > 0 ? (long)got : -1;
}

struct run_record *run_record_new(struct service *svc, struct box_run_end *end)
{
	struct run_record *rec = xnew(struct run_record);
	bool cut = end->timed_out || end->output_limited;

	rec->refs = 1;
	rec->service = svc;
	rec->summary =
		(struct run_summary){ .exit_code = cut ? -1 : end->exit_code,
				      .timed_out = end->timed_out,
				      .output_limited = end->output_limited,
				      .output_limit = end->output_limited ? OUTPUT_LIMIT : 0 };
	memcpy(rec->spool, end->spool, sizeof(rec->spool));
	for (int i = 0; i < 2; i++) {
		rec->spool_fd[i] = -EBADF;
		rec->total[i] = end->total[i];
		rec->spooled[i] = end->spooled[i];
		rec->head[i] = end->head[i];
		strbuf_init(&end->head[i]);
		rec->summary.show[i] = cut ? MIN(end->total[i], PREVIEW_BYTES) : end->total[i];
	}
	return rec;
}
