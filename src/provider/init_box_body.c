/*
 * Bodies of file operations on their way to a worker.  The first bytes go in
 * frames; a long body goes through a ring of memory that both share, because
 * then it is copied once here and once there, and not four times.
 *
 * The worker is hostile: it can't shrink the memory (that would kill us), and
 * what it writes there nobody reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "base/auto.h"
#include "base/mem.h"
#include "provider/init_box_impl.h"

#define FRAMES_BYTES (1u << 20) /* of a body that is not worth a ring */
#define RINGS_MAX 64            /* at a time, of all sessions */

static unsigned n_rings;

/* A memfd of that size whose size nobody can change any more. */
static int sealed_memory(size_t n)
{
	autoclose int fd = memfd_create("garret-body", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)n) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		return -1;
	return take_fd(&fd);
}

/* One frame of what was collected: the pieces that HTTP gives are smaller than a frame. */
static void send_collected(struct box_file *f)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	if (!f->collected.len)
		return;
	init_begin(&p, frame, FILE_BODY, 0);
	put_bytes(&p, f->collected.buf, f->collected.len);
	chan_send(&f->worker->chan, frame, init_end(&p), NULL, 0);
	strbuf_reset(&f->collected);
}

static void open_ring(struct box_file *f)
{
	autoclose int fd = n_rings < RINGS_MAX ? sealed_memory(FILE_RING) : -1;
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;
	void *m;

	f->no_ring = true;
	send_collected(f);
	m = fd < 0 ? MAP_FAILED : mmap(NULL, FILE_RING, PROT_WRITE, MAP_SHARED, fd, 0);
	if (m == MAP_FAILED)
		return; /* frames do it as well */
	f->ring = m;
	n_rings++;
	init_begin(&p, frame, FILE_SHARED, 0);
	chan_send(&f->worker->chan, frame, init_end(&p), &fd, 1);
}

void body_release(struct box_file *f)
{
	strbuf_release(&f->collected);
	if (!f->ring)
		return;
	/* The worker may keep the memory for ever; what it uses of it from here on is its own. */
	(void)madvise(f->ring, FILE_RING, MADV_REMOVE);
	(void)munmap(f->ring, FILE_RING);
	f->ring = NULL;
	n_rings--;
}

static void say_head(struct box_file *f)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	f->said = f->head;
	init_begin(&p, frame, FILE_BODY_AT, 0);
	put_u64(&p, f->head);
	chan_send(&f->worker->chan, frame, init_end(&p), NULL, 0);
}

static size_t fill_ring(struct box_file *f, const uint8_t *data, size_t n)
{
	size_t done = 0;

	while (done < n && f->head - f->taken < FILE_RING) {
		size_t at = f->head % FILE_RING;
		size_t now = MIN(n - done,
				 MIN(FILE_RING - at, FILE_RING - (size_t)(f->head - f->taken)));

		memcpy(f->ring + at, data + done, now);
		f->head += now;
		done += now;
	}
	/* When it is full the worker must know of all of it, or it would wait for ever. */
	if (f->head - f->said >= FILE_RING_STEP || (done < n && f->head > f->said))
		say_head(f);
	f->want_room = done < n;
	return done;
}

static size_t send_frames(struct box_file *f, const uint8_t *data, size_t n)
{
	size_t done = 0;

	while (done < n && f->worker->chan.queued_bytes < BODY_QUEUE) {
		size_t now = MIN(n - done, (size_t)FILE_DATA_MAX - f->collected.len);

		strbuf_add(&f->collected, data + done, now);
		if (f->collected.len == FILE_DATA_MAX)
			send_collected(f);
		done += now;
	}
	f->framed += done;
	f->want_room = done < n;
	return done;
}

size_t init_box_file_body(struct box_file *f, const void *data, size_t n)
{
	if (!f->body_open)
		return n;
	if (!f->worker) {
		f->want_room = true;
		return 0;
	}
	if (!f->ring && !f->no_ring && f->framed >= FRAMES_BYTES)
		open_ring(f);
	return f->ring ? fill_ring(f, data, n) : send_frames(f, data, n);
}

void init_box_file_body_end(struct box_file *f)
{
	uint8_t frame[INIT_FRAME_MAX];
	struct put p;

	if (!f->body_open)
		return;
	f->body_ended = true;
	if (!f->worker)
		return;
	f->body_open = false;
	send_collected(f);
	if (f->head > f->said)
		say_head(f);
	init_begin(&p, frame, FILE_BODY_END, 0);
	chan_send(&f->worker->chan, frame, init_end(&p), NULL, 0);
}

bool body_taken(struct box_file *f, struct get *g)
{
	uint64_t taken = get_u64(g);

	if (!get_done(g) || taken < f->taken || taken > f->said)
		return false;
	f->taken = taken;
	/* To stop and go for every step would cost more than the copy. */
	if (f->head - taken <= FILE_RING / 2)
		body_room(f);
	return true;
}

void body_room(struct box_file *f)
{
	if (!f->want_room)
		return;
	f->want_room = false;
	if (f->events->room)
		f->events->room(f->ctx);
}
