/*
 * File operations.  Each session has up to INIT_WORKERS processes for them,
 * made when there is more to do than idle ones, and ended after some seconds
 * without work.  We make the socket pair and send one end to init, so that no
 * byte of a file passes through pid 1.
 *
 * A worker serves one operation at a time; giving one up means to close its
 * socket.  Its frames are hostile input: one that isn't right ends it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "provider/init_box_impl.h"

#define IDLE_MS 5000
#define GRACE_MS 5000          /* for a worker to notice itself that its time is over */
#define SOCKET_BYTES (1 << 20) /* of frames in the socket */
#define WAITING_MAX 256        /* operations of one session that wait for a worker */

static void serve_next(struct init_box *b);

static bool has_body(const struct file_request *rq)
{
	return rq->op == FILE_WRITE || rq->op == FILE_EDIT || rq->op == FILE_TAR_IN;
}

/* Nothing is changed by asking twice. */
static bool repeatable(const struct file_request *rq)
{
	switch (rq->op) {
	case FILE_STAT:
	case FILE_LIST:
	case FILE_WALK:
	case FILE_READ:
	case FILE_TEXT:
	case FILE_TAR_OUT:
	case FILE_REALPATH:
	case FILE_DIGEST:
	case FILE_GLOB:
	case FILE_GREP:
		return true;
	default:
		return false;
	}
}

static void file_free(struct box_file *f)
{
	if (f->gone)
		*f->gone = true;
	body_release(f);
	list_remove(&f->link);
	if (f->worker)
		f->worker->job = NULL;
	free(f->frame);
	free(f);
}

static void file_end(struct box_file *f, const struct file_end *end, const struct garret_error *err)
{
	const struct file_events *events = f->events;
	void *ctx = f->ctx;

	file_free(f);
	events->end(ctx, end, err);
}

static void file_fail(struct box_file *f, const struct garret_error *err)
{
	const struct file_end end = {
		.code = (uint32_t)err->code, .sys = (uint32_t)err->sys, .path = "", .msg = err->msg
	};

	file_end(f, &end, err);
}

/* ---- workers ---- */

static void worker_close(struct file_worker *w)
{
	loop_timer_clear(&w->timer);
	chan_close(&w->chan);
	w->start = 0;
	w->lost = false;
}

static void on_idle(struct loop_timer *t)
{
	worker_close(t->ctx);
}

static void send_request(struct file_worker *w, struct box_file *f);

/* The worker is gone, or to be given up: its operation is done elsewhere, or fails. */
static void worker_failed(struct file_worker *w, const struct garret_error *err)
{
	struct box_file *f = w->job;
	struct init_box *b = w->box;

	worker_close(w);
	if (f && err->code == GARRET_UNAVAILABLE && repeatable(&f->rq) && !f->told && !f->again) {
		f->again = true;
		f->worker = NULL;
		w->job = NULL;
		list_append(&b->files, &f->link);
	} else if (f) {
		file_fail(f, err);
	}
	serve_next(b); /* also without a job: its slot is what others may wait for */
}

static void on_overdue(struct loop_timer *t)
{
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_TIMEOUT, "the file operation took longer than it may");
	worker_failed(t->ctx, &err);
}

static void on_end(struct chan *chan, const struct garret_error *why)
{
	struct file_worker *w = chan->ctx;
	struct garret_error err = { 0 };

	(void)why;
	if (w->start) {
		w->lost = true; /* init says why, or that it had begun */
		return;
	}
	(void)garret_fail(&err, GARRET_UNAVAILABLE, "the session ended its file worker");
	worker_failed(w, &err);
}

void files_on_start(struct init_box *b, uint64_t request, const struct garret_error *err)
{
	for (unsigned i = 0; i < INIT_WORKERS; i++) {
		struct file_worker *w = &b->workers[i];
		struct garret_error lost = { 0 };

		if (w->start != request)
			continue;
		w->start = 0;
		(void)garret_fail(&lost, GARRET_UNAVAILABLE, "the session ended its file worker");
		if (err || w->lost)
			worker_failed(w, err ? err : &lost);
		return;
	}
}

/* ---- what a worker says ---- */

/* The kinds of frames that an operation may be answered with, before its END. */
static unsigned kinds_of(enum file_op op)
{
	enum {
		INFO = 1 << (FILE_INFO - FILE_INFO),
		ENTRIES = 1 << (FILE_ENTRIES - FILE_INFO),
		MATCHES = 1 << (FILE_MATCHES - FILE_INFO),
		DATA = 1 << (FILE_DATA - FILE_INFO),
		TAKEN = 1 << (FILE_TAKEN - FILE_INFO)
	};

	switch (op) {
	case FILE_STAT:
	case FILE_DIGEST:
		return INFO;
	case FILE_LIST:
	case FILE_WALK:
	case FILE_GLOB:
		return ENTRIES;
	case FILE_GREP:
		return MATCHES;
	case FILE_READ:
		return INFO | DATA;
	case FILE_TEXT:
	case FILE_TAR_OUT:
		return DATA;
	case FILE_WRITE:
	case FILE_EDIT:
		return INFO | TAKEN;
	case FILE_TAR_IN:
		return TAKEN;
	default:
		return 0;
	}
}

/*
 * Who hears of a file is made for what an honest worker says: what a file is,
 * once, and before its bytes.  So nothing else gets there.
 */
static bool is_due(const struct box_file *f, uint16_t type)
{
	if (type == FILE_END)
		return true;
	if (type < FILE_INFO || type > FILE_TAKEN ||
	    !(kinds_of(f->rq.op) & 1u << (type - FILE_INFO)))
		return false;
	if (type == FILE_INFO)
		return !f->informed;
	return type != FILE_DATA || f->rq.op != FILE_READ || (f->informed && !f->piped);
}

static bool on_info(struct box_file *f, struct get *g)
{
	struct file_info info;

	if (!file_get_info(g, &info) || !get_done(g))
		return false;
	f->informed = true;
	f->due = MIN(f->rq.length, info.tag.size);
	if (f->events->info)
		f->events->info(f->ctx, &info);
	return true;
}

static bool on_data(struct box_file *f, struct get *g)
{
	const void *data;
	size_t n;

	data = get_rest(g, &n);
	if (f->rq.op == FILE_READ) {
		if (n > f->due)
			return false;
		f->due -= n;
	}
	if (f->events->data)
		f->events->data(f->ctx, data, n);
	return true;
}

static bool on_entries(struct box_file *f, struct get *g)
{
	struct file_info info;
	bool gone = false;

	f->gone = &gone;
	do {
		if (!file_get_info(g, &info)) {
			f->gone = NULL;
			return false;
		}
		if (f->events->entry)
			f->events->entry(f->ctx, &info);
	} while (!gone && g->at < g->len);
	if (!gone)
		f->gone = NULL;
	return true;
}

static bool on_matches(struct box_file *f, struct get *g)
{
	struct file_match m;
	bool gone = false;

	f->gone = &gone;
	do {
		if (!file_get_match(g, &m)) {
			f->gone = NULL;
			return false;
		}
		if (f->events->match)
			f->events->match(f->ctx, &m);
	} while (!gone && g->at < g->len);
	if (!gone)
		f->gone = NULL;
	return true;
}

static bool on_file_end(struct file_worker *w, struct box_file *f, struct get *g)
{
	struct garret_error err = { 0 };
	struct file_end end;

	if (!file_get_end(g, &end))
		return false;
	if (end.code)
		(void)garret_fail(&err, end.code < GARRET_CODES ? end.code : GARRET_INTERNAL, "%s",
				  end.msg);
	err.sys = (int)end.sys;
	init_box_file_body_end(f); /* what was not given by now isn't wanted */
	chan_pause(&w->chan, false);
	loop_timer_set(w->box->loop, &w->timer, now_ms() + IDLE_MS, on_idle, w);
	file_end(f, &end, end.code ? &err : NULL);
	return true;
}

static bool handle(struct file_worker *w, uint16_t type, struct get *g)
{
	struct box_file *f = w->job;

	if (!f || !is_due(f, type))
		return false;
	f->told = true;
	switch (type) {
	case FILE_INFO:
		return on_info(f, g);
	case FILE_ENTRIES:
		return on_entries(f, g);
	case FILE_MATCHES:
		return on_matches(f, g);
	case FILE_DATA:
		return on_data(f, g);
	case FILE_TAKEN:
		return body_taken(f, g);
	case FILE_END:
		return on_file_end(w, f, g);
	default:
		return false;
	}
}

static void on_frame(struct chan *chan, const uint8_t *frame, size_t n, struct msg_fds *fds)
{
	struct file_worker *w = chan->ctx;
	struct garret_error err = { 0 };
	struct init_box *b = w->box;
	bool gone = false, *outer = chan->gone;
	struct init_header h;
	struct get g;
	bool ok;

	(void)fds;
	/* It has begun: with its job done it is idle, though init's word of its start is yet to come. */
	w->start = 0;
	/* A callback may end the session, and with it the worker. */
	chan->gone = &gone;
	ok = init_parse(&g, frame, n, &h) && handle(w, h.type, &g);
	if (gone) {
		*outer = true;
		return;
	}
	chan->gone = outer;
	if (!ok) {
		(void)garret_fail(&err, GARRET_PROTOCOL, "a file worker sent what it may not send");
		worker_failed(w, &err);
		return;
	}
	serve_next(b);
}

static void on_room(struct chan *chan)
{
	struct file_worker *w = chan->ctx;
	struct box_file *f = w->job;

	if (f)
		body_room(f);
}

/* ---- giving work to workers ---- */

/* 0, or -code: this session can't have one more. */
static int worker_start(struct init_box *b, struct file_worker *w, struct garret_error *err)
{
	const int bytes = SOCKET_BYTES;
	int pair[2], rc = msg_pair(pair, false, err);

	if (rc < 0)
		return rc;
	(void)setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	(void)setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	w->chan.on_frame = on_frame;
	w->chan.on_end = on_end;
	w->chan.on_room = on_room;
	w->chan.room_mark = BODY_QUEUE / 2;
	w->chan.ctx = w;
	rc = chan_open(&w->chan, b->loop, pair[0], INIT_FRAME_MAX, err);
	if (rc == 0)
		w->start = init_client_worker(b->init, (uint32_t)(w - b->workers), pair[1]);
	fd_close(pair[1]);
	return rc;
}

/* What waits for a client or for a pipe may take as long as that does. */
static bool takes_its_time(const struct file_request *rq)
{
	return has_body(rq) || rq->op == FILE_READ || rq->op == FILE_TAR_OUT;
}

/* For a worker that doesn't notice itself that its time is over. */
static void set_deadline(struct file_worker *w, const struct box_file *f, bool none)
{
	const uint32_t ms = f->rq.timeout_ms ? f->rq.timeout_ms : 60000;

	if (none || takes_its_time(&f->rq))
		loop_timer_clear(&w->timer);
	else
		loop_timer_set(w->box->loop, &w->timer, now_ms() + ms + GRACE_MS, on_overdue, w);
}

static void send_request(struct file_worker *w, struct box_file *f)
{
	list_remove(&f->link);
	f->worker = w;
	w->job = f;
	set_deadline(w, f, f->paused);
	chan_send(&w->chan, f->frame, f->frame_bytes, NULL, 0);
	chan_pause(&w->chan, f->paused);
	if (!repeatable(&f->rq)) {
		free(f->frame);
		f->frame = NULL;
	}
	if (f->body_ended)
		init_box_file_body_end(f);
	/* The producer may have been told to wait for this. */
	body_room(f);
}

static struct file_worker *free_worker(struct init_box *b, bool open)
{
	for (unsigned i = 0; i < INIT_WORKERS; i++) {
		struct file_worker *w = &b->workers[i];

		if (!w->job && !w->start && chan_is_open(&w->chan) == open)
			return w;
	}
	return NULL;
}

static void serve_next(struct init_box *b)
{
	while (b->init && !list_empty(&b->files)) {
		struct box_file *f = list_entry(b->files.next, struct box_file, link);
		struct file_worker *w = free_worker(b, true);
		struct garret_error err = { 0 };

		if (!w) {
			w = free_worker(b, false);
			if (!w)
				return;
			if (worker_start(b, w, &err) < 0) {
				file_fail(f, &err);
				continue;
			}
		}
		send_request(w, f);
	}
}

static bool too_many(const struct init_box *b)
{
	const struct list *at;
	unsigned n = 0;

	for (at = b->files.next; at != &b->files; at = at->next)
		n++;
	return n >= WAITING_MAX;
}

static void on_begin(struct loop_later *l)
{
	serve_next(l->ctx);
}

struct box_file *init_box_file(struct box *box, const struct file_request *rq,
			       const struct file_events *events, void *ctx,
			       struct garret_error *err)
{
	struct init_box *b = init_box_of(box);
	uint8_t frame[INIT_FRAME_MAX];
	struct box_file *f;
	struct put p;

	if (!b->init) {
		(void)garret_fail(err, GARRET_GONE, "the session has ended");
		return NULL;
	}
	if (too_many(b)) {
		(void)garret_fail(err, GARRET_EXHAUSTED,
				  "more than %d file operations of this session wait", WAITING_MAX);
		return NULL;
	}
	init_begin(&p, frame, FILE_REQUEST, 0);
	file_put_request(&p, rq);
	f = xnew(struct box_file);
	f->frame_bytes = init_end(&p);
	f->frame = xmemdup(frame, f->frame_bytes);
	f->box = b;
	f->rq = *rq;
	f->rq.path = f->rq.to = f->rq.pattern = f->rq.include = NULL;
	f->events = events;
	f->ctx = ctx;
	f->body_open = has_body(rq);
	f->no_ring = b->no_rings;
	strbuf_init(&f->collected);
	list_append(&b->files, &f->link);
	/* Events come from the loop, as everywhere. */
	loop_later_add(b->loop, &b->files_later, on_begin, b);
	return f;
}

int init_box_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err)
{
	uint8_t frame[INIT_FRAME_MAX];
	autoclose int in = -EBADF, out = -EBADF;
	struct put p;
	int fds[2];

	if (ret_fd && pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
		return garret_fail_errno(err, "make a pipe");
	in = ret_fd ? fds[0] : -EBADF;
	out = ret_fd ? fds[1] : -EBADF;
	init_begin(&p, frame, ret_fd ? FILE_PIPE : FILE_BODY_END, 0);
	chan_send(&f->worker->chan, frame, init_end(&p), &out, ret_fd ? 1 : 0);
	if (ret_fd)
		*ret_fd = take_fd(&in);
	f->piped = true;
	return 0;
}

void init_box_file_pause(struct box_file *f, bool pause)
{
	f->paused = pause; /* for a worker that is yet to come */
	if (!f->worker || !chan_is_open(&f->worker->chan))
		return;
	chan_pause(&f->worker->chan, pause);
	/* It is the client that takes so long. */
	set_deadline(f->worker, f, pause);
}

void init_box_file_leave(struct box_file *f)
{
	struct file_worker *w = f->worker;
	struct init_box *b = f->box;

	file_free(f);
	if (w)
		worker_close(w);
	loop_later_add(b->loop, &b->files_later, on_begin, b);
}

/* ---- the session ---- */

void files_init(struct init_box *b)
{
	list_init(&b->files);
	for (unsigned i = 0; i < INIT_WORKERS; i++) {
		b->workers[i].box = b;
		b->workers[i].chan.fd = -EBADF;
	}
}

void files_forget(struct init_box *b)
{
	for (unsigned i = 0; i < INIT_WORKERS; i++)
		if (b->workers[i].job)
			file_free(b->workers[i].job);
	while (!list_empty(&b->files))
		file_free(list_entry(b->files.next, struct box_file, link));
}

void files_end_all(struct init_box *b)
{
	struct garret_error err = { 0 };

	loop_later_cancel(b->loop, &b->files_later);
	(void)garret_fail(&err, GARRET_GONE, "the session has ended");
	for (unsigned i = 0; i < INIT_WORKERS; i++) {
		struct box_file *f = b->workers[i].job;

		worker_close(&b->workers[i]);
		if (f)
			file_fail(f, &err);
	}
	while (!list_empty(&b->files))
		file_fail(list_entry(b->files.next, struct box_file, link), &err);
}
