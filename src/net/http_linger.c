/*
 * Lingering: a socket that is closed while the client still sends is reset, and
 * the reset overtakes the answer.  So after an answer that came before the body
 * a duplicate of the socket is kept and read into nothing, for a while.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/http_internal.h"

#define LINGERS_MAX 64
#define LINGER_MS 5000
#define LINGER_BYTES_MAX (64u << 20)

struct farewell {
	struct list link;
	struct httpd *httpd;
	struct loop_io io;
	struct loop_timer timer;
	int fd;
	uint64_t bytes;
};

static void linger_end(struct farewell *g)
{
	int fd = g->fd;

	loop_io_remove(&g->io);
	loop_timer_clear(&g->timer);
	fd_close(fd);
	list_remove(&g->link);
	g->httpd->n_lingers--;
	free(g);
}

static void on_linger_timer(struct loop_timer *t)
{
	linger_end(t->ctx);
}

static void on_linger(struct loop_io *io, uint32_t events)
{
	static char sink[65536];
	struct farewell *g = io->ctx;
	ssize_t n = read(io->fd, sink, sizeof(sink));

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	g->bytes += n > 0 ? (uint64_t)n : 0;
	if (n <= 0 || g->bytes > LINGER_BYTES_MAX)
		linger_end(g);
}

void httpd_linger(struct httpd *h, int fd)
{
	struct farewell *g;
	int copy;

	if (h->n_lingers >= LINGERS_MAX)
		return;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (copy < 0)
		return;
	g = xnew(struct farewell);
	if (loop_io_add(h->loop, &g->io, copy, EPOLLIN, on_linger, g, NULL) < 0) {
		fd_close(copy);
		free(g);
		return;
	}
	g->fd = copy;
	g->httpd = h;
	list_append(&h->lingers, &g->link);
	h->n_lingers++;
	loop_timer_set(h->loop, &g->timer, now_ms() + LINGER_MS, on_linger_timer, g);
}

void http_linger_end_all(struct httpd *h)
{
	struct farewell *g;

	list_foreach (g, &h->lingers, link)
		linger_end(g);
}
