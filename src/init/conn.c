/*
 * Connections.  What a connection gets is made from the state of its runs at
 * the moment the socket has room; a subscription remembers how much of it was
 * sent.  So a slow owner costs no memory, nothing is dropped, and who attaches
 * late gets the same as who was there from the start.
 *
 * Only answers to requests are queued; an owner that doesn't take them isn't
 * read from any more.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "init/session.h"

#define ANSWERS_MAX (256 * 1024)
#define FRAMES_A_TURN 32
#define RECEIVED_A_TURN 64
#define PAGE 4096

struct conn {
	struct list in_session;
	struct session *s;
	struct loop_io io;
	struct loop_later later;
	int fd;
	bool greeted, broken, full; /* broken: nothing can be sent; full: waits for EPOLLOUT */
	struct list subs, ready, waiters;
	struct strbuf answers; /* whole frames, one after the other */
	size_t answers_sent;
};

struct sub {
	struct list in_run, in_conn, in_ready;
	struct run *run;
	struct conn *conn;
	uint64_t request;
	uint64_t sent[2], told[2], taken, held;
	bool started, ended;
};

/* Pages of these are memory only once a frame was that long; conn_trim() gives them back. */
static uint8_t tx[INIT_FRAME_MAX] __attribute__((aligned(PAGE)));
static uint8_t rx[INIT_FRAME_MAX] __attribute__((aligned(PAGE)));

uint8_t *conn_frame(void)
{
	return tx;
}

void conn_trim(void)
{
	(void)madvise(tx + PAGE, sizeof(tx) - PAGE, MADV_DONTNEED);
	(void)madvise(rx + PAGE, sizeof(rx) - PAGE, MADV_DONTNEED);
}

struct session *conn_session(struct conn *c)
{
	return c->s;
}

/* ---- sending ---- */

enum sent { SENT, FULL, BROKEN };

static enum sent send_frame(struct conn *c, const void *frame, size_t n)
{
	struct garret_error err = { 0 };

	if (msg_send(c->fd, frame, n, NULL, 0, &err) == 0)
		return SENT;
	/* Short of memory is no end: an answer that got lost is one that somebody waits for. */
	return err.sys == EAGAIN || err.sys == ENOBUFS || err.sys == ENOMEM ? FULL : BROKEN;
}

static void begin(struct put *p, const struct sub *sub, uint16_t type)
{
	init_begin(p, tx, type, sub->request);
	put_bytes(p, sub->run->id, INIT_RUN_ID);
}

static enum sent send_out(struct sub *sub, unsigned i)
{
	struct stream *st = &sub->run->out[i];
	uint64_t from = MAX(sub->sent[i], st->base);
	size_t n = MIN((size_t)(st->base + st->len - from), (size_t)INIT_OUT_MAX);
	enum sent rc;
	struct put p;

	begin(&p, sub, INIT_OUT);
	put_u8(&p, (uint8_t)(i + 1));
	put_u64(&p, from);
	put_bytes(&p, st->buf + st->start + (from - st->base), n);
	rc = send_frame(sub->conn, tx, init_end(&p));
	if (rc == SENT)
		sub->sent[i] = from + n;
	return rc;
}

static enum sent send_spooled(struct sub *sub, unsigned i)
{
	struct run *r = sub->run;
	enum sent rc;
	struct put p;

	begin(&p, sub, INIT_SPOOLED);
	put_u8(&p, (uint8_t)(i + 1));
	put_u32(&p, r->exit.spool_index);
	put_u64(&p, r->out[i].total);
	rc = send_frame(sub->conn, tx, init_end(&p));
	if (rc == SENT)
		sub->told[i] = r->out[i].total;
	return rc;
}

static uint64_t held(const struct run *r)
{
	return r->in.held | (r->in.ended ? INIT_HELD_END : 0);
}

static enum sent send_number(struct sub *sub, uint16_t type)
{
	struct run *r = sub->run;
	enum sent rc;
	struct put p;

	begin(&p, sub, type);
	if (type == INIT_STARTED)
		put_u32(&p, (uint32_t)r->pid);
	else if (type == INIT_STDIN_TAKEN)
		put_u64(&p, r->in.taken);
	else if (type == INIT_STDIN_HELD)
		put_u64(&p, held(r));
	else
		init_put_exit(&p, &r->exit);
	rc = send_frame(sub->conn, tx, init_end(&p));
	if (rc != SENT)
		return rc;
	if (type == INIT_STARTED)
		sub->started = true;
	else if (type == INIT_STDIN_TAKEN)
		sub->taken = r->in.taken;
	else if (type == INIT_STDIN_HELD)
		sub->held = held(r);
	else
		sub->ended = true;
	return rc;
}

/* The next thing this subscription doesn't know.  *ret_done: it knew everything. */
static enum sent send_news(struct sub *sub, bool *ret_done)
{
	struct run *r = sub->run;

	*ret_done = false;
	if (r->started && !sub->started)
		return send_number(sub, INIT_STARTED);
	for (unsigned i = 0; i < 2; i++) {
		struct stream *st = &r->out[i];

		if (!st->spooled && st->len && sub->sent[i] < st->base + st->len)
			return send_out(sub, i);
		if (st->spooled && sub->told[i] != st->total)
			return send_spooled(sub, i);
	}
	if (!(r->flags & INIT_RUN_STREAM) && sub->held != held(r))
		return send_number(sub, INIT_STDIN_HELD);
	if (sub->taken != r->in.taken)
		return send_number(sub, INIT_STDIN_TAKEN);
	if (r->ended && !sub->ended)
		return send_number(sub, INIT_EXIT);
	*ret_done = true;
	return SENT;
}

static enum sent send_answers(struct conn *c)
{
	while (c->answers_sent < c->answers.len) {
		const char *frame = c->answers.buf + c->answers_sent;
		struct get g;
		uint32_t n;
		enum sent rc;

		get_init(&g, frame, sizeof(n));
		n = get_u32(&g);
		rc = send_frame(c, frame, n);
		if (rc != SENT)
			return rc;
		c->answers_sent += n;
	}
	c->answers_sent = 0;
	strbuf_release(&c->answers);
	return SENT;
}

/* One frame of each run in turn, so that a long output doesn't hold up the others. */
static enum sent send_runs(struct conn *c)
{
	for (int left = FRAMES_A_TURN; left > 0 && !list_empty(&c->ready); left--) {
		struct sub *sub = list_entry(c->ready.next, struct sub, in_ready);
		bool done;
		enum sent rc = send_news(sub, &done);

		if (rc != SENT)
			return rc;
		list_remove(&sub->in_ready);
		if (!done)
			list_append(&c->ready, &sub->in_ready);
	}
	return SENT;
}

static void on_later(struct loop_later *later);

static void set_events(struct conn *c)
{
	uint32_t events = 0;

	if (c->answers.len < ANSWERS_MAX || c->broken)
		events |= EPOLLIN;
	if (c->full)
		events |= EPOLLOUT;
	loop_io_mod(&c->io, events);
}

static void pump(struct conn *c)
{
	bool was_full = c->full, was_long = c->answers.len >= ANSWERS_MAX;
	enum sent rc = SENT;

	if (c->broken)
		return;
	/* Runs first, so that an EXIT comes before the DONE of its STOP; but never only they. */
	if (c->full)
		rc = send_answers(c);
	if (rc == SENT)
		rc = send_runs(c);
	if (rc == SENT)
		rc = send_answers(c);
	c->full = rc == FULL;
	if (rc == BROKEN) {
		/*
		 * What the owner sent before it went is still read and obeyed.  If it hasn't
		 * gone, it learns that no answer comes.
		 */
		(void)shutdown(c->fd, SHUT_WR);
		c->broken = true;
		strbuf_release(&c->answers);
		c->answers_sent = 0;
	}
	if (c->full != was_full || c->broken || was_long)
		set_events(c);
	if (!c->full && !c->broken && !list_empty(&c->ready))
		loop_later_add(c->s->loop, &c->later, on_later, c);
}

static void on_later(struct loop_later *later)
{
	struct conn *c = later->ctx;

	if (!c->full)
		pump(c);
}

static void pump_later(struct conn *c)
{
	if (!c->broken)
		loop_later_add(c->s->loop, &c->later, on_later, c);
}

void conn_answer(struct conn *c, struct put *p)
{
	uint32_t n = init_end(p);

	if (!n || c->broken)
		return;
	strbuf_add(&c->answers, p->buf, n);
	if (c->answers.len >= ANSWERS_MAX)
		set_events(c);
	pump_later(c);
}

void conn_error(struct conn *c, uint64_t request, enum garret_code code, int sys, const char *text)
{
	struct put p;

	init_begin(&p, tx, INIT_ERROR, request);
	put_u32(&p, code);
	put_u32(&p, (uint32_t)sys);
	put_str(&p, text);
	conn_answer(c, &p);
}

/* ---- subscriptions ---- */

static struct sub *find_sub(struct conn *c, const struct run *r)
{
	struct sub *sub;

	list_foreach (sub, &r->subs, in_run)
		if (sub->conn == c)
			return sub;
	return NULL;
}

static void sub_ready(struct sub *sub)
{
	if (list_empty(&sub->in_ready))
		list_append(&sub->conn->ready, &sub->in_ready);
	pump_later(sub->conn);
}

void conn_attach(struct conn *c, struct run *r, uint64_t request)
{
	struct sub *sub = find_sub(c, r);

	r->unwanted = false;
	if (!sub) {
		sub = xnew(struct sub);
		sub->run = r;
		sub->conn = c;
		sub->request = request;
		sub->told[0] = sub->told[1] = UINT64_MAX;
		list_init(&sub->in_ready);
		list_append(&r->subs, &sub->in_run);
		list_append(&c->subs, &sub->in_conn);
	}
	sub_ready(sub);
}

static void sub_free(struct sub *sub)
{
	list_remove(&sub->in_run);
	list_remove(&sub->in_conn);
	list_remove(&sub->in_ready);
	free(sub);
}

bool conn_detach(struct conn *c, struct run *r)
{
	struct sub *sub = find_sub(c, r);

	if (sub)
		sub_free(sub);
	return sub;
}

void conn_notify(struct run *r)
{
	struct sub *sub;

	list_foreach (sub, &r->subs, in_run)
		sub_ready(sub);
}

void conn_forget(struct run *r)
{
	struct sub *sub;

	list_foreach (sub, &r->subs, in_run)
		sub_free(sub);
}

/* ---- who waits for an end ---- */

static void answer_done(struct conn *c, uint64_t request)
{
	struct put p;

	init_begin(&p, tx, INIT_DONE, request);
	conn_answer(c, &p);
}

void conn_wait(struct conn *c, struct run *r, uint64_t request)
{
	struct waiter *w;

	if (r->ended) {
		answer_done(c, request);
		return;
	}
	w = xnew(struct waiter);
	w->conn = c;
	w->request = request;
	list_append(&r->waiters, &w->in_run);
	list_append(&c->waiters, &w->in_conn);
}

static void waiter_free(struct waiter *w)
{
	list_remove(&w->in_run);
	list_remove(&w->in_conn);
	free(w);
}

void conn_release(struct run *r)
{
	struct waiter *w;

	list_foreach (w, &r->waiters, in_run) {
		answer_done(w->conn, w->request);
		waiter_free(w);
	}
}

/* ---- what is known ---- */

static void list_spools(struct session *s, struct put *p)
{
	struct spool *sp;

	put_u32(p, s->n_spools);
	list_foreach (sp, &s->spools, link)
		put_u32(p, sp->index);
}

static void put_run(struct put *p, const struct run *r)
{
	struct init_known k = { .flags = r->flags,
				.ended = r->ended,
				.age_us = now_us() - r->started_us,
				.stdin_held = r->in.held,
				.stdin_ended = r->in.ended };

	memcpy(k.id, r->id, sizeof(k.id));
	init_put_known(p, &k);
}

/* As many of a list as the frame holds; the count in front of them is written at last. */
static struct list *put_runs(struct put *p, struct list *at, struct list *head)
{
	size_t count_at = p->len;
	uint32_t n = 0;
	struct put count;

	put_u32(p, 0);
	for (; at != head && p->len + INIT_KNOWN_BYTES <= INIT_OUT_MAX; at = at->next, n++)
		put_run(p, list_entry(at, struct run, in_list));
	put_init(&count, p->buf + count_at, sizeof(n));
	put_u32(&count, n);
	return at;
}

void conn_list(struct conn *c, uint64_t request)
{
	struct session *s = c->s;
	struct list *lists[] = { &s->live, &s->ended };
	bool first = true;
	struct put p;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		struct list *at = lists[i]->next;

		while (first || at != lists[i]) {
			init_begin(&p, tx, INIT_LISTED, request);
			if (first)
				list_spools(s, &p);
			else
				put_u32(&p, 0);
			first = false;
			at = put_runs(&p, at, lists[i]);
			conn_answer(c, &p);
		}
	}
	answer_done(c, request);
}

/* ---- receiving ---- */

static void conn_close(struct conn *c)
{
	struct session *s = c->s;
	struct waiter *w;
	struct sub *sub;

	if (s->p.conn_fd >= 0 && c->fd == s->p.conn_fd)
		session_end(s);
	list_foreach (sub, &c->subs, in_conn)
		sub_free(sub);
	list_foreach (w, &c->waiters, in_conn)
		waiter_free(w);
	if (s->owner_conn == c)
		s->owner_conn = NULL;
	loop_io_remove(&c->io);
	loop_later_cancel(s->loop, &c->later);
	strbuf_release(&c->answers);
	list_remove(&c->in_session);
	s->n_conns--;
	fd_close(c->fd);
	free(c);
	session_note_live(s);
}

void conn_only(struct conn *c)
{
	struct conn *other;

	list_foreach (other, &c->s->conns, in_session)
		if (other != c)
			conn_close(other);
}

enum received { RECEIVED, NOTHING, OVER };

static enum received receive(struct conn *c)
{
	struct garret_error err = { 0 };
	struct msg_fds fds;
	struct init_header h;
	struct get g;
	ssize_t n = msg_recv(c->fd, rx, sizeof(rx), &fds, &err);
	bool ok;

	if (n <= 0)
		return n < 0 && err.sys == EAGAIN ? NOTHING : OVER;
	ok = init_parse(&g, rx, (size_t)n, &h) && request_handle(c, &c->greeted, &h, &g, &fds);
	msg_fds_close(&fds); /* those that nobody took */
	return ok ? RECEIVED : OVER;
}

static void on_conn(struct loop_io *io, uint32_t events)
{
	struct conn *c = io->ctx;

	if (events & EPOLLOUT)
		pump(c);
	if (events & (EPOLLHUP | EPOLLERR) && !c->broken) {
		c->broken = true;
		set_events(c);
	}
	if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		return;
	for (int left = RECEIVED_A_TURN; left > 0; left--) {
		enum received got = receive(c);

		if (got == NOTHING)
			break;
		if (got == OVER) {
			conn_close(c);
			return;
		}
	}
	session_note_live(c->s);
}

int conn_add(struct session *s, int fd)
{
	struct conn *c = xnew(struct conn);

	c->s = s;
	c->fd = fd;
	list_init(&c->subs);
	list_init(&c->ready);
	list_init(&c->waiters);
	strbuf_init(&c->answers);
	if (loop_io_add(s->loop, &c->io, fd, EPOLLIN, on_conn, c, NULL) < 0) {
		free(c);
		return -1;
	}
	list_append(&s->conns, &c->in_session);
	s->n_conns++;
	return 0;
}
