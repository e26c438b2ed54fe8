#include "provider/engine_link.h"

#include <errno.h>
#include <string.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "io/msg.h"
#include "provider/engine_client.h"

#define PAUSE_LEAST_MS 10
#define PAUSE_MOST_MS 1000

static void on_control(struct loop_io *io, uint32_t events)
{
	struct engine_link *l = io->ctx;
	struct garret_error err = { 0 };
	struct msg_fds fds;
	char c;
	ssize_t n = msg_recv(l->control, &c, 1, &fds, &err);
	int fd;

	(void)events;
	if (n < 0 && err.sys == EAGAIN)
		return;
	if (n <= 0) {
		loop_io_remove(&l->io);
		(void)garret_fail(&err, GARRET_UNAVAILABLE, "the engine's keeper has ended");
		l->gone(l->ctx, &err);
		return;
	}
	fd = msg_fds_take(&fds);
	msg_fds_close(&fds);
	if (fd >= 0)
		l->socket(l->ctx, fd);
}

static void try_connect(struct loop_timer *t)
{
	struct engine_link *l = t->ctx;
	struct garret_error err = { 0 };
	int fd;

	if (engine_connect(l->path, &fd, &err) == 0) {
		l->pause_ms = 0;
		l->socket(l->ctx, fd);
		return;
	}
	if (!l->pause_ms)
		log_warn("engine_away", "%s", err.msg);
	l->pause_ms = MAX((unsigned)PAUSE_LEAST_MS, MIN(2 * l->pause_ms, (unsigned)PAUSE_MOST_MS));
	loop_timer_set(l->loop, t, now_ms() + l->pause_ms, try_connect, l);
}

int engine_link_open(struct engine_link *l, int control, const char *path, struct garret_error *err)
{
	l->control = control;
	l->path = path;
	l->io.fd = -EBADF;
	if (path) {
		loop_timer_set(l->loop, &l->retry, now_ms(), try_connect, l);
		return 0;
	}
	if (fd_set_nonblock(control, true) < 0)
		return garret_fail_errno(err, "the keeper's socket");
	return loop_io_add(l->loop, &l->io, control, EPOLLIN, on_control, l, err);
}

void engine_link_again(struct engine_link *l)
{
	/* A keeper sends the next one by itself. */
	if (l->path)
		loop_timer_set(l->loop, &l->retry, now_ms() + PAUSE_LEAST_MS, try_connect, l);
}

void engine_link_close(struct engine_link *l)
{
	loop_io_remove(&l->io);
	loop_timer_clear(&l->retry);
	l->control = fd_close(l->control);
}
