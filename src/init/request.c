/*
 * What an owner may ask, as a table.  The owner is trusted, its frames are
 * checked all the same: a frame that isn't what it should be ends its
 * connection, and nothing else.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "init/session.h"

struct request {
	struct conn *conn;
	struct session *s;
	uint64_t number;
	struct get *g;
	struct msg_fds *fds;
	struct run *run; /* of the id in front, where the table says so */
};

static bool on_run(struct request *q)
{
	struct init_run run;

	if (!init_get_run(q->g, &run))
		return false;
	if (q->s->p.files_only)
		conn_error(q->conn, q->number, GARRET_UNSUPPORTED, 0, "this session has no runs");
	else
		run_request(q->conn, q->number, &run, q->fds);
	return true;
}

static bool on_attach(struct request *q)
{
	conn_attach(q->conn, q->run, q->number);
	return get_done(q->g);
}

static bool on_detach(struct request *q)
{
	q->run->unwanted = conn_detach(q->conn, q->run);
	return get_done(q->g);
}

static bool on_ack(struct request *q)
{
	uint8_t stream = get_u8(q->g);
	uint64_t offset = get_u64(q->g);

	if (!get_done(q->g) || stream < 1 || stream > 2)
		return false;
	output_ack(&q->run->out[stream - 1], offset);
	return true;
}

static bool on_stop(struct request *q)
{
	uint32_t grace_ms = get_u32(q->g);

	if (!get_done(q->g))
		return false;
	conn_wait(q->conn, q->run, q->number);
	stop_begin(q->run, INIT_CAUSE_STOP, grace_ms);
	return true;
}

static bool on_signal(struct request *q)
{
	uint32_t signo = get_u32(q->g);
	uint8_t group = get_u8(q->g);

	if (!get_done(q->g) || signo > 64 || group > 1)
		return false;
	/* Once it is reaped the number may be somebody else's. */
	if (q->run->exited)
		conn_error(q->conn, q->number, GARRET_CONFLICT, 0, "the run isn't running");
	else if (!q->run->started && signo)
		q->run->early[group] |= 1ull << (signo - 1); /* the program isn't there yet */
	else if (kill(group ? -q->run->pid : q->run->pid, (int)signo) < 0)
		conn_error(q->conn, q->number, GARRET_INTERNAL, errno,
			   "the signal could not be sent");
	return true;
}

static bool on_stdin(struct request *q)
{
	size_t n;
	const void *data = get_rest(q->g, &n);

	if (!(q->run->flags & (INIT_RUN_STDIN | INIT_RUN_PTY)))
		conn_error(q->conn, q->number, GARRET_CONFLICT, 0, "the run has no input");
	else if (!input_add(q->run, data, n))
		conn_error(q->conn, q->number, GARRET_EXHAUSTED, 0,
			   "more input than the run takes");
	return true;
}

static bool on_winch(struct request *q)
{
	uint16_t rows = get_u16(q->g);
	uint16_t columns = get_u16(q->g);
	int rc = -ENOTTY;

	if (!get_done(q->g))
		return false;
	if (q->run->flags & INIT_RUN_PTY && q->run->in.fd >= 0)
		rc = pty_resize(q->run->in.fd, rows, columns);
	if (rc < 0)
		conn_error(q->conn, q->number, GARRET_CONFLICT, -rc, "the run has no terminal");
	return true;
}

static bool on_forget(struct request *q)
{
	if (!get_done(q->g))
		return false;
	if (q->run->ended)
		run_free(q->run);
	else
		conn_error(q->conn, q->number, GARRET_CONFLICT, 0, "the run is alive");
	return true;
}

static bool on_spool(struct request *q)
{
	uint32_t index = get_u32(q->g);
	struct session *s = q->s;
	struct spool *sp;

	if (!get_done(q->g) || q->fds->n != (s->p.container ? 0 : 2))
		return false;
	if (s->n_spools >= INIT_SPOOLS_MAX) {
		conn_error(q->conn, q->number, GARRET_EXHAUSTED, 0, "enough spool files are here");
		return true;
	}
	sp = s->p.container ? spool_make(s, index) : xnew(struct spool);
	if (!sp) {
		conn_error(q->conn, q->number, GARRET_CONFLICT, 0, "that spool number is taken");
		return true;
	}
	sp->index = index;
	if (!s->p.container) {
		sp->fd[0] = msg_fds_take(q->fds);
		sp->fd[1] = msg_fds_take(q->fds);
	}
	list_append(&s->spools, &sp->link);
	s->n_spools++;
	output_spools_came(s);
	return true;
}

static bool on_worker(struct request *q)
{
	uint32_t slot = get_u32(q->g);
	struct put p;
	int rc;

	if (!get_done(q->g) || q->fds->n != 1 || slot >= INIT_WORKERS)
		return false;
	rc = files_start(q->s, slot, q->fds->fd[0]);
	if (rc < 0) {
		conn_error(q->conn, q->number, GARRET_EXHAUSTED, -rc,
			   "no process for the session's files: its pids or memory are exhausted");
		return true;
	}
	init_begin(&p, conn_frame(), INIT_DONE, q->number);
	conn_answer(q->conn, &p);
	return true;
}

static bool on_processes(struct request *q)
{
	struct init_params *params = &q->s->p;
	uint32_t n = get_u32(q->g);
	struct put p;

	if (!get_done(q->g))
		return false;
	/* Who speaks to init is trusted with the session, not with what the engine allows it. */
	if (params->run_processes)
		params->run_processes =
			n ? MIN(n, params->max_run_processes) : params->max_run_processes;
	init_begin(&p, conn_frame(), INIT_DONE, q->number);
	conn_answer(q->conn, &p);
	return true;
}

static bool on_ping(struct request *q)
{
	struct put p;

	if (!get_done(q->g))
		return false;
	init_begin(&p, conn_frame(), INIT_PONG, q->number);
	put_u32(&p, q->s->n_live);
	put_u32(&p, procs_background(q->s, NULL));
	conn_answer(q->conn, &p);
	return true;
}

static bool on_list(struct request *q)
{
	if (!get_done(q->g))
		return false;
	conn_list(q->conn, q->number);
	return true;
}

static bool on_resume(struct request *q)
{
	struct session *s = q->s;
	uint64_t owner = get_u64(q->g);
	struct put p;

	if (!get_done(q->g) || !owner)
		return false;
	if (s->owner != owner)
		s->last_request = 0;
	s->owner = owner;
	s->owner_conn = q->conn;
	conn_only(q->conn);
	init_begin(&p, conn_frame(), INIT_RESUMED, q->number);
	put_u64(&p, s->last_request);
	conn_answer(q->conn, &p);
	return true;
}

static bool on_hello(struct request *q)
{
	uint8_t nonce[INIT_NONCE];
	uint16_t major = get_u16(q->g);
	struct put p;

	(void)get_u16(q->g);
	get_bytes(q->g, nonce, sizeof(nonce));
	/* Our own major; there is none before it yet. */
	if (!get_done(q->g) || major != INIT_MAJOR)
		return false;
	init_begin(&p, conn_frame(), INIT_HELLO_OK, q->number);
	put_u16(&p, INIT_MAJOR);
	put_u16(&p, INIT_MINOR);
	put_bytes(&p, q->s->p.nonce, INIT_NONCE);
	put_u32(&p, q->s->n_runs);
	conn_answer(q->conn, &p);
	return true;
}

/* named: an id is in front.  quiet: an unknown id is no error. */
static const struct {
	bool (*handle)(struct request *q);
	bool named, quiet;
	unsigned fds; /* at most */
} table[] = {
	[INIT_HELLO] = { on_hello, false, false, 0 },
	[INIT_RUN] = { on_run, false, false, 4 },
	[INIT_ATTACH] = { on_attach, true, false, 0 },
	[INIT_DETACH] = { on_detach, true, true, 0 },
	[INIT_ACK] = { on_ack, true, true, 0 },
	[INIT_STOP] = { on_stop, true, false, 0 },
	[INIT_SIGNAL] = { on_signal, true, false, 0 },
	[INIT_STDIN] = { on_stdin, true, false, 0 },
	[INIT_WINCH] = { on_winch, true, false, 0 },
	[INIT_FORGET] = { on_forget, true, true, 0 },
	[INIT_SPOOL] = { on_spool, false, false, 2 },
	[INIT_PING] = { on_ping, false, false, 0 },
	[INIT_WORKER] = { on_worker, false, false, 1 },
	[INIT_LIST] = { on_list, false, false, 0 },
	[INIT_PROCESSES] = { on_processes, false, false, 0 },
	[INIT_RESUME] = { on_resume, false, false, 0 },
};

static bool carry_out(struct conn *c, bool *greeted, const struct init_header *h, struct get *g,
		      struct msg_fds *fds)
{
	struct request q = {
		.conn = c, .s = conn_session(c), .number = h->request, .g = g, .fds = fds
	};
	uint8_t id[INIT_RUN_ID];

	if (!*greeted && h->type != INIT_HELLO)
		return false;
	if (h->type >= ARRAY_SIZE(table) || !table[h->type].handle) {
		conn_error(c, h->request, GARRET_UNSUPPORTED, 0, "unknown type of request");
		return true;
	}
	if (fds->n > table[h->type].fds)
		return false;
	if (table[h->type].named) {
		get_bytes(g, id, sizeof(id));
		if (g->bad)
			return false;
		q.run = run_find(q.s, id);
		if (!q.run) {
			if (!table[h->type].quiet)
				conn_error(c, h->request, GARRET_NOT_FOUND, 0, "no such run");
			return true;
		}
	}
	if (!table[h->type].handle(&q))
		return false;
	*greeted = true;
	return true;
}

bool request_handle(struct conn *c, bool *greeted, const struct init_header *h, struct get *g,
		    struct msg_fds *fds)
{
	struct session *s = conn_session(c);

	if (!carry_out(c, greeted, h, g, fds))
		return false;
	if (s->owner_conn == c)
		s->last_request = MAX(s->last_request, h->request);
	return true;
}
