#include "engine/relimit.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "engine/serve.h"
#include "engine/session.h"
#include "io/msg.h"

#define ORDERS_MAX 4096
#define RECLAIM_MS 30000

struct order {
	struct list link; /* engine.orders; the first one is at work */
	struct engine *engine;
	struct peer *peer;
	uint64_t request;
	bool begun;
	struct engine_limits asked;
	struct cgroup_limits before, after;
	char group[NAME_CAP];
	int sock, pidfd; /* of its child */
	struct loop_io io;
	struct loop_timer deadline;
};

static void order_free(struct order *o)
{
	loop_io_remove(&o->io);
	loop_timer_clear(&o->deadline);
	if (o->pidfd >= 0)
		(void)pidfd_send_signal(o->pidfd, SIGKILL, NULL, 0);
	fd_close(o->pidfd);
	fd_close(o->sock);
	list_remove(&o->link);
	free(o);
}

static void begin_first(struct loop_later *l);

/* From the loop: an answer may end its peer, and with it orders. */
static void go_on(struct engine *e)
{
	if (!list_empty(&e->orders))
		loop_later_add(e->loop, &e->orders_later, begin_first, e);
}

static void finish(struct order *o, const struct garret_error *err)
{
	struct engine *e = o->engine;
	struct peer *peer = o->peer;
	uint64_t request = o->request;
	struct garret_error gone = { 0 };

	if (err->code == GARRET_OK &&
	    session_limits_taken(e, peer, o->asked.handle, &o->after, &gone) < 0)
		err = &gone;
	order_free(o);
	go_on(e);
	if (err->code == GARRET_OK)
		serve_done(peer, request);
	else
		serve_error(peer, request, err);
}

/* ---- the child ---- */

static void child_main(const struct order *o, int sock) __attribute__((noreturn));

static void child_main(const struct order *o, int sock)
{
	const struct cgroups *cg = &o->engine->cg;
	struct garret_error err = { 0 };
	int keep[CG_HIERARCHIES + 1] = { sock };
	sigset_t signals;
	unsigned n = 1;

	sigemptyset(&signals);
	(void)sigprocmask(SIG_SETMASK, &signals, NULL);
	for (int h = 0; h < CG_HIERARCHIES; h++)
		if (cg->dir[h] >= 0)
			keep[n++] = cg->dir[h];
	engine_keep_fds(keep, n);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)prctl(PR_SET_NAME, "garret-limits");
	(void)cgroups_change(cg, o->group, &o->before, &o->after, &err);
	(void)msg_send(sock, &err, sizeof(err), NULL, 0, NULL);
	_exit(0);
}

static void on_child(struct loop_io *io, uint32_t events)
{
	struct order *o = io->ctx;
	struct garret_error err = { 0 }, told = { 0 };
	ssize_t n = msg_recv(o->sock, &told, sizeof(told), NULL, &err);

	if (n < 0 && err.sys == EAGAIN)
		return;
	if (n != sizeof(told))
		(void)garret_fail(&told, GARRET_INTERNAL, "what changes the limits has ended");
	finish(o, &told);
}

static void on_deadline(struct loop_timer *t)
{
	struct order *o = t->ctx;
	struct garret_error err = { 0 };

	if (o->pidfd >= 0)
		(void)pidfd_send_signal(o->pidfd, SIGKILL, NULL, 0);
	/* Raising is done at once; the child may have been between two files. */
	(void)cgroups_change(&o->engine->cg, o->group, &o->after, &o->before, NULL);
	(void)garret_fail(&err, GARRET_CONFLICT, "memory could not be taken back within %d s",
			  RECLAIM_MS / 1000);
	finish(o, &err);
}

static int fork_child(struct order *o, struct garret_error *err)
{
	int pair[2], rc = msg_pair(pair, false, err);
	pid_t pid;

	if (rc < 0)
		return rc;
	pid = fork();
	if (pid == 0)
		child_main(o, pair[1]);
	fd_close(pair[1]);
	o->sock = pair[0];
	if (pid < 0)
		return garret_fail_errno(err, "fork what changes the limits");
	o->pidfd = pidfd_open(pid, 0);
	(void)fd_set_nonblock(o->sock, true);
	loop_timer_set(o->engine->loop, &o->deadline, now_ms() + RECLAIM_MS, on_deadline, o);
	return loop_io_add(o->engine->loop, &o->io, o->sock, EPOLLIN, on_child, o, err);
}

/* ---- the engine ---- */

static void begin(struct order *o)
{
	struct engine *e = o->engine;
	struct garret_error err = { 0 };
	const char *group = NULL;
	int rc = session_limits_check(e, o->peer, &o->asked, &o->before, &o->after, &group, &err);

	o->begun = true;
	if (rc == 0)
		(void)snprintf(o->group, sizeof(o->group), "%s", group);
	if (rc == 0 && (o->after.memory_bytes < o->before.memory_bytes ||
			o->after.memory_swap_bytes < o->before.memory_swap_bytes)) {
		if (fork_child(o, &err) == 0)
			return;
	} else if (rc == 0) {
		(void)cgroups_change(&e->cg, o->group, &o->before, &o->after, &err);
	}
	finish(o, &err);
}

static void begin_first(struct loop_later *l)
{
	struct engine *e = l->ctx;
	struct order *o = list_entry(e->orders.next, struct order, link);

	if (!list_empty(&e->orders) && !o->begun)
		begin(o);
}

int relimit_order(struct engine *e, struct peer *peer, uint64_t request,
		  const struct engine_limits *l, struct garret_error *err)
{
	struct order *o;
	unsigned n = 0;

	list_foreach (o, &e->orders, link)
		n++;
	if (n >= ORDERS_MAX)
		return garret_fail(err, GARRET_EXHAUSTED, "%u changes of limits wait already", n);
	o = xnew(struct order);
	o->engine = e;
	o->peer = peer;
	o->request = request;
	o->asked = *l;
	o->sock = o->pidfd = o->io.fd = -EBADF;
	list_append(&e->orders, &o->link);
	go_on(e);
	return 0;
}

void relimit_peer_gone(struct engine *e, const struct peer *peer)
{
	struct order *o;

	list_foreach (o, &e->orders, link)
		if (o->peer == peer)
			order_free(o);
	go_on(e);
}
