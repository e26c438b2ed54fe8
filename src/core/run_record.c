/*
 * What is known of a finished command.  Several answers may be written from one
 * record, long after its session is gone.
 *
 * The output is in the END record of the session's log, or in spool files.  It
 * is in memory only while its first answers are made, when it could not be
 * written, and when its place was given up under somebody who reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "core/run_impl.h"
#include "core/run_log.h"
#include "proto/cursor.h"

#define PREVIEW_BYTES 65536u /* of each stream, when a command was cut short */
/* In front of the heads: id, digest, three times, a byte of flags, exit code, usage, totals,
 * input, spool */
#define END_BYTES (RUN_ID_BYTES + 32 + 3 * 8 + 1 + 4 + 4 * 8 + 3 * 8 + 4)

enum end_flags {
	END_TIMED_OUT = 1,
	END_LIMITED = 2,
	END_STOPPED = 4,
	END_GONE = 8,
	END_OOM = 16,
	END_SPOOLED = 32, /* and 64: of stderr */
};

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
		if (r->refs == 1 && r->set)
			close_spools(r); /* only the session keeps it now */
		return NULL;
	}
	close_spools(r);
	strbuf_release(&r->head[0]);
	strbuf_release(&r->head[1]);
	free(r);
	return NULL;
}

const struct run_summary *run_record_summary(const struct run_record *r)
{
	return &r->summary;
}

/* ---- reading ---- */

static uint64_t head_offset(const struct run_record *r, int stream)
{
	return END_BYTES + (stream && !r->facts.spooled[0] ? r->facts.total[0] : 0);
}

static long read_spool(struct run_record *r, int stream, uint64_t offset, void *buf, size_t n)
{
	struct run_set *set = r->set;
	ssize_t got;

	if (r->spool_fd[stream] < 0 && set)
		r->spool_fd[stream] = set->service->ops->spool_open(
			set->service->provider, set->dir, r->facts.spool, stream);
	if (r->spool_fd[stream] < 0)
		return -1;
	do
		got = pread(r->spool_fd[stream], buf, n, (off_t)offset);
	while (got < 0 && errno == EINTR);
	return got > 0 ? (long)got : -1;
}

long run_record_bytes(struct run_record *r, int stream, uint64_t offset, void *buf, size_t cap)
{
	uint64_t end = r->facts.total[stream];
	size_t n = offset < end ? (size_t)MIN(end - offset, (uint64_t)cap) : 0;
	ssize_t got;

	if (!n)
		return 0;
	if (r->facts.spooled[stream])
		return read_spool(r, stream, offset, buf, n);
	if (r->head[stream].len >= offset + n) {
		memcpy(buf, r->head[stream].buf + offset, n);
		return (long)n;
	}
	if (!r->set || r->position == NOT_RECORDED)
		return -1;
	got = journal_read(r->set->journal, r->position, head_offset(r, stream) + offset, buf, n,
			   NULL);
	return got > 0 ? (long)got : -1;
}

long run_record_read(struct run_record *r, int stream, uint64_t offset, void *buf, size_t cap)
{
	uint64_t end = r->summary.show[stream];

	return offset < end ? run_record_bytes(r, stream, offset, buf,
					       (size_t)MIN((uint64_t)cap, end - offset))
			    : 0;
}

/* ---- making ---- */

struct run_record *run_record_new(struct run_set *set, const struct run_facts *facts)
{
	struct run_record *rec = xnew(struct run_record);
	bool cut = facts->timed_out || facts->output_limited;

	rec->refs = 1;
	rec->set = set;
	rec->facts = *facts;
	rec->position = NOT_RECORDED;
	rec->summary =
		(struct run_summary){ .exit_code = cut ? -1 : facts->exit_code,
				      .timed_out = facts->timed_out,
				      .output_limited = facts->output_limited,
				      .output_limit = facts->output_limited ? OUTPUT_LIMIT : 0 };
	for (int i = 0; i < 2; i++) {
		rec->spool_fd[i] = -EBADF;
		strbuf_init(&rec->head[i]);
		rec->summary.show[i] = cut ? MIN(facts->total[i], PREVIEW_BYTES) : facts->total[i];
	}
	return rec;
}

struct run_record *run_record_of_end(struct run_set *set, const struct run_facts *facts,
				     struct box_run_end *end)
{
	struct run_record *rec = run_record_new(set, facts);

	for (int i = 0; i < 2; i++) {
		rec->head[i] = end->head[i];
		strbuf_init(&end->head[i]);
	}
	return rec;
}

void run_record_shed(struct run_record *r)
{
	if (r->position == NOT_RECORDED)
		return;
	strbuf_release(&r->head[0]);
	strbuf_release(&r->head[1]);
}

void run_record_hold(struct run_record *r)
{
	char byte;

	for (int i = 0; i < 2; i++) {
		uint64_t n = r->facts.total[i];
		struct strbuf head = STRBUF_INIT;

		if (r->facts.spooled[i]) {
			(void)read_spool(r, i, 0, &byte,
					 1); /* opened, it can be read when its name is gone */
			continue;
		}
		if (r->head[i].len == n)
			continue;
		strbuf_reserve(&head, (size_t)n); /* at most what init keeps in memory: 64 KiB */
		if (run_record_bytes(r, i, 0, head.buf, (size_t)n) == (long)n)
			head.buf[head.len = (size_t)n] = '\0';
		r->head[i] = head;
	}
	r->set = NULL;
}

/* ---- the record in the log ---- */

int run_record_write(struct run_record *r, const char *id, const uint8_t digest[32],
		     struct garret_error *err)
{
	const struct run_facts *f = &r->facts;
	uint8_t bytes[END_BYTES], raw[RUN_ID_BYTES];
	struct iovec parts[3] = { { bytes, sizeof(bytes) } };
	struct put p;
	int rc;

	(void)hex_decode(id, raw, sizeof(raw));
	put_init(&p, bytes, sizeof(bytes));
	put_bytes(&p, raw, sizeof(raw));
	put_bytes(&p, digest, 32);
	put_u64(&p, f->asked_us);
	put_u64(&p, f->started_us);
	put_u64(&p, f->ended_us);
	put_u8(&p, (uint8_t)((f->timed_out ? END_TIMED_OUT : 0) |
			     (f->output_limited ? END_LIMITED : 0) |
			     (f->stopped ? END_STOPPED : 0) | (f->gone ? END_GONE : 0) |
			     (f->oom ? END_OOM : 0) | (f->spooled[0] ? END_SPOOLED : 0) |
			     (f->spooled[1] ? 2 * END_SPOOLED : 0)));
	put_u32(&p, (uint32_t)f->exit_code);
	put_u64(&p, f->wall_us);
	put_u64(&p, f->user_us);
	put_u64(&p, f->system_us);
	put_u64(&p, f->max_rss_bytes);
	put_u64(&p, f->total[0]);
	put_u64(&p, f->total[1]);
	put_u64(&p, f->input);
	put_u32(&p, f->spool);
	for (int i = 0; i < 2; i++)
		parts[i + 1] = (struct iovec){ r->head[i].buf, r->head[i].len };
	rc = run_set_log(r->set, err);
	if (rc == 0)
		rc = journal_append_parts(r->set->journal, RUN_LOG_END, parts, 3, &r->position,
					  err);
	if (rc < 0)
		r->position = NOT_RECORDED;
	return rc;
}

bool run_record_parse(const struct journal_record *r, char id[2 * RUN_ID_BYTES + 1],
		      uint8_t digest[32], struct run_facts *f)
{
	uint8_t raw[RUN_ID_BYTES], flags;
	uint64_t heads = 0;
	size_t left;
	struct get g;

	get_init(&g, r->data, r->n);
	get_bytes(&g, raw, sizeof(raw));
	hex_encode(raw, sizeof(raw), id);
	get_bytes(&g, digest, 32);
	*f = (struct run_facts){ 0 };
	f->asked_us = get_u64(&g);
	f->started_us = get_u64(&g);
	f->ended_us = get_u64(&g);
	flags = get_u8(&g);
	f->timed_out = flags & END_TIMED_OUT;
	f->output_limited = flags & END_LIMITED;
	f->stopped = flags & END_STOPPED;
	f->gone = flags & END_GONE;
	f->oom = flags & END_OOM;
	f->exit_code = (int)get_u32(&g);
	f->wall_us = get_u64(&g);
	f->user_us = get_u64(&g);
	f->system_us = get_u64(&g);
	f->max_rss_bytes = get_u64(&g);
	for (int i = 0; i < 2; i++) {
		f->total[i] = get_u64(&g);
		f->spooled[i] = flags & END_SPOOLED << i;
		heads += f->spooled[i] ? 0 : f->total[i];
	}
	f->input = get_u64(&g);
	f->spool = get_u32(&g);
	(void)get_rest(&g, &left);
	return !g.bad && left == heads;
}
