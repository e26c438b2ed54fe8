/*
 * Parts of spool files on their way to the owner.  What the owner has is punched
 * out of the file: it may lie in memory that the container pays for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/mem.h"
#include "init/connect.h"

#define PAGE 4096u

static int open_spool(const struct spool_reads *s, const struct stream_spool *part)
{
	char name[20];

	(void)snprintf(name, sizeof(name), "%u.%s", part->index, part->stream ? "err" : "out");
	return openat(s->spool_fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
}

/* A hole is what was thrown away: an output has none by itself. */
static bool is_there(int fd, const struct stream_spool *part)
{
	return lseek(fd, (off_t)part->offset, SEEK_DATA) == (off_t)part->offset;
}

static void send_part(struct spool_reads *s, const struct stream_spool *part, const void *data,
		      size_t n)
{
	static uint8_t body[STREAM_FRAME_MAX];
	struct put p;

	put_init(&p, body, sizeof(body));
	stream_put_spool(&p, part, false);
	put_bytes(&p, data, n);
	mux_send(s->mux, STREAM_SPOOL_DATA, 0, body, p.len);
}

/* The next piece of a read; false when it is done. */
static bool step(struct spool_reads *s, struct stream_spool *part, bool begun)
{
	static uint8_t buf[STREAM_BYTES_MAX];
	autoclose int fd = open_spool(s, part);
	ssize_t n = -1;

	if (fd >= 0 && (begun || is_there(fd, part)))
		n = pread(fd, buf, MIN((size_t)part->length, sizeof(buf)), (off_t)part->offset);
	if (n <= 0) {
		send_part(s, part, "", 0);
		return false;
	}
	if (!begun && part->offset >= PAGE)
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				(off_t)(part->offset - part->offset % PAGE));
	send_part(s, part, buf, (size_t)n);
	part->offset += (size_t)n;
	part->length -= (uint32_t)n;
	return part->length;
}

static void on_later(struct loop_later *l)
{
	spool_reads_go(l->ctx);
}

void spool_reads_go(struct spool_reads *s)
{
	for (unsigned i = 0; i < s->n && !mux_full(s->mux);) {
		if (step(s, &s->read[i].part, s->read[i].begun)) {
			s->read[i++].begun = true;
			continue;
		}
		for (unsigned k = i + 1; k < s->n; k++)
			s->read[k - 1] = s->read[k];
		s->n--;
	}
	/* One piece of each a round: other channels have their turn. */
	if (s->n && !mux_full(s->mux))
		loop_later_add(s->mux->loop, &s->later, on_later, s);
}

bool spool_reads_add(struct spool_reads *s, const struct stream_frame *f)
{
	struct stream_spool part;
	struct get g;

	get_init(&g, f->data, f->n);
	if (!stream_get_spool(&g, &part, true) || !get_done(&g) || !part.length ||
	    s->n == STREAM_SPOOL_READS_MAX)
		return false;
	s->read[s->n].part = part;
	s->read[s->n++].begun = false;
	loop_later_add(s->mux->loop, &s->later, on_later, s);
	return true;
}
