/*
 * The server around libmicrohttpd: listeners, connections, time limits.
 *
 * We accept ourselves and hand each socket over, so that one library instance
 * serves all listeners, and running out of connections or descriptors means to
 * stop accepting for a while instead of turning in circles.  The library's
 * epoll descriptor is a source of our loop; httpd_kick() runs it for what that
 * descriptor doesn't show.
 *
 * The library only knows an idle time-out, which every byte restarts.  The
 * sweep, once a second while there are connections, holds clients to the limits
 * of httpd.h by shutting the socket down; the library then finds it closed.
 */
#include "net/httpd.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/http_internal.h"

/*
 * What the library reads at once of a body is a little less than this: with 32 KiB uploads
 * were a third slower.  A connection that was used has all of it in memory, 4,096 of them
 * 512 MiB; GARRET_MAX_CONNECTIONS bounds that.
 */
#define CONN_MEMORY_BYTES 131072
#define RUN_US 100
#define UNSENT_BYTES (128 * 1024)
#define BACKLOG 1024
#define ACCEPTS_PER_ROUND 32
#define RETRY_MS 100   /* how long to stop accepting when there is no room */
#define SILENT_MS 2000 /* who said nothing for so long makes room when there is none */
#define FRESH_MS 500   /* for the request of a connection that was accepted before the end */
#define SWEEP_MS 1000
#define TRIM_MS 10000
#define TRIM_BYTES (4u << 20)

struct listener {
	struct list link;
	struct httpd *httpd;
	struct loop_io io;
	int fd;
	char *path; /* Unix */
};

/* ---- running the library ---- */

static void run(struct httpd *h);

static void on_run_timer(struct loop_timer *t)
{
	run(t->ctx);
}

static void on_run_later(struct loop_later *l)
{
	run(l->ctx);
}

static void on_mhd(struct loop_io *io, uint32_t events)
{
	(void)events;
	run(io->ctx);
}

/*
 * A run moves one piece of each connection.  While there is more to move it goes
 * on for a moment, because a round of the loop is a good part of what a piece of
 * a body costs.  The moment is short: a round may have three of them.
 */
static void run(struct httpd *h)
{
	uint64_t end = now_us() + RUN_US;
	MHD_UNSIGNED_LONG_LONG ms;
	bool waits;

	do {
		(void)MHD_run(h->mhd);
		waits = MHD_get_timeout(h->mhd, &ms) == MHD_YES;
	} while (waits && !ms && now_us() < end);
	if (waits)
		loop_timer_set(h->loop, &h->mhd_timer, now_ms() + ms, on_run_timer, h);
	else
		loop_timer_clear(&h->mhd_timer);
}

void httpd_kick(struct httpd *h)
{
	loop_later_add(h->loop, &h->run_later, on_run_later, h);
}

/* ---- accepting ---- */

static void on_listener(struct loop_io *io, uint32_t events);

static void pause_accepting(struct httpd *h, bool pause)
{
	struct listener *l;

	if (h->paused == pause)
		return;
	h->paused = pause;
	list_foreach (l, &h->listeners, link)
		loop_io_mod(&l->io, pause ? 0 : EPOLLIN);
}

static void on_retry(struct loop_timer *t)
{
	pause_accepting(t->ctx, false);
}

static void format_address(const struct sockaddr_storage *sa, char *out, size_t cap)
{
	const void *ip = NULL;

	if (sa->ss_family == AF_INET)
		ip = &((const struct sockaddr_in *)sa)->sin_addr;
	else if (sa->ss_family == AF_INET6)
		ip = &((const struct sockaddr_in6 *)sa)->sin6_addr;
	if (!ip || !inet_ntop(sa->ss_family, ip, out, (socklen_t)cap))
		(void)snprintf(out, cap, "unix");
}

static void prepare_socket(int fd, int family)
{
	static const int one = 1, idle = 30, interval = 10, count = 3, unsent = UNSENT_BYTES;

	if (family == AF_UNIX)
		return;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	/*
	 * The kernel would take 4 MiB from us for a client that was fast once.  At 16
	 * KiB/s that lasts longer than an answer may rest.
	 */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	/* A waiting client whose machine vanished is noticed after a minute. */
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

static void stop_for_a_while(struct httpd *h)
{
	pause_accepting(h, true);
	loop_timer_set(h->loop, &h->retry_timer, now_ms() + RETRY_MS, on_retry, h);
}

/*
 * Full, and somebody asks: the connection that has been idle for longest makes
 * room, or one that has begun no request.  When there is none, one may be soon.
 */
static void make_room(struct httpd *h)
{
	struct conn *c, *oldest = NULL;
	uint64_t now = now_ms();

	list_foreach (c, &h->conns, link)
		if ((c->state == CONN_IDLE ||
		     (c->state == CONN_HEADERS && now - c->since_ms > SILENT_MS)) &&
		    (!oldest || c->since_ms < oldest->since_ms))
			oldest = c;
	if (oldest)
		(void)shutdown(oldest->fd, SHUT_RDWR);
	stop_for_a_while(h);
}

static void on_listener(struct loop_io *io, uint32_t events)
{
	struct listener *l = io->ctx;
	struct httpd *h = l->httpd;

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_ROUND; i++) {
		struct sockaddr_storage sa = { 0 };
		socklen_t n = sizeof(sa);
		char address[INET6_ADDRSTRLEN];
		int fd;

		if (h->n_conns >= h->set.max_connections) {
			if (!i) /* else nobody may be waiting: we are called again if so */
				make_room(h);
			return;
		}
		fd = accept4(io->fd, (struct sockaddr *)&sa, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			    errno == ENOMEM)
				stop_for_a_while(h);
			return; /* EAGAIN, or a client that left already */
		}
		prepare_socket(fd, sa.ss_family);
		format_address(&sa, address, sizeof(address));
		h->accepting = address;
		/* Closes fd when it fails: the cap per address, or no memory. */
		if (MHD_add_connection(h->mhd, fd, (struct sockaddr *)&sa, n) != MHD_YES)
			log_debug("connection_refused", "address=%s", address);
		h->accepting = NULL;
		httpd_kick(h);
	}
}

static int add_listener(struct httpd *h, int fd, const char *path, struct garret_error *err)
{
	struct listener *l;
	int rc;

	if (listen(fd, BACKLOG) < 0)
		return garret_fail_errno(err, "listen");
	l = xnew(struct listener);
	rc = loop_io_add(h->loop, &l->io, fd, EPOLLIN, on_listener, l, err);
	if (rc < 0) {
		free(l);
		return rc;
	}
	l->httpd = h;
	l->fd = fd;
	l->path = path ? xstrdup(path) : NULL;
	list_append(&h->listeners, &l->link);
	return 0;
}

static uint16_t port_of(int fd)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} sa = { .in6 = { 0 } };
	socklen_t n = sizeof(sa);

	if (getsockname(fd, &sa.any, &n) < 0)
		return 0;
	if (sa.any.sa_family == AF_INET6)
		return ntohs(sa.in6.sin6_port);
	return sa.any.sa_family == AF_INET ? ntohs(sa.in.sin_port) : 0;
}

static int bind_tcp(const struct addrinfo *ai, uint16_t *ret_port)
{
	autoclose int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	static const int one = 1;

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) < 0)
		return -1;
	if (ret_port)
		*ret_port = port_of(fd);
	return take_fd(&fd);
}

int httpd_listen_fd(struct httpd *h, int fd, uint16_t *ret_port, struct garret_error *err)
{
	int type = 0, rc;
	socklen_t n = sizeof(type);

	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0 || type != SOCK_STREAM)
		rc = garret_fail(err, GARRET_INVALID, "descriptor %d is no stream socket", fd);
	else if (fd_set_nonblock(fd, true) < 0)
		rc = garret_fail_errno(err, "descriptor %d", fd);
	else
		rc = add_listener(h, fd, NULL, err);
	if (rc < 0)
		fd_close(fd);
	else
		*ret_port = port_of(fd);
	return rc;
}

int httpd_listen_tcp(struct httpd *h, const char *host, uint16_t port, uint16_t *ret_port,
		     struct garret_error *err)
{
	static const struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
					       .ai_socktype = SOCK_STREAM };
	struct addrinfo *ai = NULL;
	char service[8];
	int fd, rc;

	(void)snprintf(service, sizeof(service), "%u", port);
	rc = getaddrinfo(host, service, &hints, &ai);
	if (rc)
		return garret_fail(err, GARRET_INVALID, "address %s: %s", host, gai_strerror(rc));
	fd = bind_tcp(ai, ret_port);
	freeaddrinfo(ai);
	if (fd < 0)
		return garret_fail_errno(err, "listen on %s port %u", host, port);
	rc = add_listener(h, fd, NULL, err);
	if (rc < 0)
		fd_close(fd);
	return rc;
}

/* A socket file of a server that ended badly is in the way; one that answers is in use. */
static bool socket_is_stale(const struct sockaddr_un *sa)
{
	autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	struct stat st;

	return fd >= 0 && lstat(sa->sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) < 0 && errno == ECONNREFUSED;
}

int httpd_listen_unix(struct httpd *h, const char *path, unsigned mode, struct garret_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	autoclose int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	mode_t mask;
	int rc;

	if (strlen(path) >= sizeof(sa.sun_path))
		return garret_fail(err, GARRET_INVALID, "socket path %s is longer than %zu bytes",
				   path, sizeof(sa.sun_path) - 1);
	if (fd < 0)
		return garret_fail_errno(err, "socket %s", path);
	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s", path);
	if (socket_is_stale(&sa))
		(void)unlink(path);
	mask = umask(0777 & ~mode); /* never open wider than mode, not even for a moment */
	rc = bind(fd, (struct sockaddr *)&sa, sizeof(sa));
	(void)umask(mask);
	if (rc < 0)
		return garret_fail_errno(err, "socket %s", path);
	rc = add_listener(h, fd, path, err);
	if (rc < 0)
		return rc;
	(void)take_fd(&fd);
	return 0;
}

/* ---- connections ---- */

static bool is_late(const struct httpd *h, const struct conn *c, uint64_t now)
{
	uint64_t spent = now - c->since_ms;
	uint64_t counted = spent > h->set.body_grace_ms ? spent - h->set.body_grace_ms : 0;

	switch (c->state) {
	case CONN_HEADERS:
		return spent > h->set.header_ms;
	case CONN_IDLE:
		return spent > h->set.idle_ms;
	case CONN_BODY:
		return c->body_bytes < counted * BODY_BYTES_PER_S / 1000;
	case CONN_ANSWER:
		return now - c->progress_ms > h->set.answer_ms ||
		       c->answer_bytes < counted * BODY_BYTES_PER_S / 1000;
	case CONN_WORK:
		break;
	}
	return false;
}

/*
 * A client that shut its side down, in the middle of a request or after an
 * answer: the library would wait for more.  What did arrive was taken within
 * the last round.
 */
static bool is_cut_off(const struct conn *c, uint64_t now)
{
	struct pollfd pf = { .fd = c->fd, .events = POLLRDHUP };

	return c->state != CONN_WORK && c->state != CONN_ANSWER &&
	       now - c->since_ms > SWEEP_MS / 2 && poll(&pf, 1, 0) == 1;
}

/* What requests needed goes back to the kernel: the allocator would keep it between what lives on. */
static void trim_memory(struct httpd *h, uint64_t now)
{
	if (h->n_conns && now - h->trimmed_ms < TRIM_MS)
		return;
	h->trimmed_ms = now;
	if (mallinfo2().fordblks > TRIM_BYTES)
		(void)malloc_trim(0);
}

static void sweep(struct loop_timer *t)
{
	static const struct linger no_linger = { .l_onoff = 1, .l_linger = 0 };
	struct httpd *h = t->ctx;
	uint64_t now = now_ms();
	struct conn *c;

	list_foreach (c, &h->conns, link) {
		if (!is_late(h, c, now) && !is_cut_off(c, now))
			continue;
		/* What it doesn't read goes with it: else the kernel would keep it for minutes. */
		if (c->state == CONN_ANSWER)
			(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &no_linger,
					 sizeof(no_linger));
		(void)shutdown(c->fd, SHUT_RDWR);
	}
	trim_memory(h, now);
	if (h->n_conns)
		loop_timer_set(h->loop, &h->sweep_timer, now + SWEEP_MS, sweep, h);
}

static void on_connection(void *cls, struct MHD_Connection *mc, void **slot,
			  enum MHD_ConnectionNotificationCode code)
{
	struct httpd *h = cls;
	struct conn *c;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		c = xnew(struct conn);
		c->httpd = h;
		c->fd = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
		c->since_ms = now_ms();
		(void)snprintf(c->address, sizeof(c->address), "%s",
			       h->accepting ? h->accepting : "");
		list_append(&h->conns, &c->link);
		*slot = c;
		if (!h->n_conns++)
			loop_timer_set(h->loop, &h->sweep_timer, now_ms() + SWEEP_MS, sweep, h);
		return;
	}
	c = take_ptr(slot);
	if (!c)
		return;
	list_remove(&c->link);
	free(c);
	h->n_conns--;
	pause_accepting(h, false);
}

/* ---- stopping ---- */

void httpd_stop_accepting(struct httpd *h)
{
	struct listener *l;
	struct conn *c;

	h->draining = true;
	loop_timer_clear(&h->retry_timer);
	list_foreach (l, &h->listeners, link) {
		loop_io_remove(&l->io);
		fd_close(l->fd);
		if (l->path)
			(void)unlink(l->path);
		list_remove(&l->link);
		free(l->path);
		free(l);
	}
	list_foreach (c, &h->conns, link)
		if (c->state == CONN_IDLE)
			(void)shutdown(c->fd, SHUT_RDWR);
}

/* Those that were accepted, but whose request isn't here: it may be on its way. */
static unsigned count_fresh(const struct httpd *h)
{
	struct conn *c;
	unsigned n = 0;

	list_foreach (c, &h->conns, link)
		n += c->state == CONN_HEADERS;
	return n;
}

static void check_drained(struct httpd *h);

static void on_fresh_timer(struct loop_timer *t)
{
	struct httpd *h = t->ctx;
	struct conn *c;

	h->fresh_over = true;
	list_foreach (c, &h->conns, link)
		if (c->state == CONN_HEADERS)
			(void)shutdown(c->fd, SHUT_RDWR);
	check_drained(h);
}

static void on_drained(struct loop_later *l)
{
	struct httpd *h = l->ctx;
	void (*fn)(void *) = take_ptr(&h->drained);

	loop_timer_clear(&h->drain_timer);
	loop_timer_clear(&h->fresh_timer);
	if (fn)
		fn(h->drained_ctx);
}

static void check_drained(struct httpd *h)
{
	if (h->drained && !h->n_running && h->fresh_over)
		loop_later_add(h->loop, &h->drain_later, on_drained, h);
}

static void on_drain_timer(struct loop_timer *t)
{
	struct httpd *h = t->ctx;

	loop_later_add(h->loop, &h->drain_later, on_drained, h);
}

void httpd_drain(struct httpd *h, uint64_t deadline_ms, void (*done)(void *ctx), void *ctx)
{
	h->drained = done;
	h->drained_ctx = ctx;
	httpd_stop_accepting(h);
	loop_timer_set(h->loop, &h->drain_timer, deadline_ms, on_drain_timer, h);
	h->fresh_over = !count_fresh(h);
	if (!h->fresh_over)
		loop_timer_set(h->loop, &h->fresh_timer, now_ms() + FRESH_MS, on_fresh_timer, h);
	check_drained(h);
}

void httpd_running_less(struct httpd *h)
{
	h->n_running--;
	check_drained(h);
}

struct httpd_counts httpd_counts(const struct httpd *h)
{
	return (struct httpd_counts){ .connections = h->n_conns, .running = h->n_running };
}

/* ---- making and ending ---- */

static void on_library_log(void *cls, const char *fmt, va_list ap)
{
	char text[256];

	(void)cls;
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	log_debug("http", "%s", text);
}

int httpd_new(struct httpd **ret, struct loop *l, const struct httpd_settings *s,
	      struct garret_error *err)
{
	struct httpd *h = xnew(struct httpd);
	int rc, fd;

	h->loop = l;
	h->set = *s;
	h->set.header_ms = s->header_ms ? s->header_ms : HEADER_MS_MAX;
	h->set.body_grace_ms = s->body_grace_ms ? s->body_grace_ms : BODY_GRACE_MS;
	h->set.idle_ms = s->idle_ms ? s->idle_ms : IDLE_MS_MAX;
	h->set.answer_ms = s->answer_ms ? s->answer_ms : ANSWER_MS_MAX;
	h->mhd_io.fd = -EBADF;
	list_init(&h->listeners);
	list_init(&h->conns);
	list_init(&h->requests);
	list_init(&h->lingers);
	h->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_ALLOW_UPGRADE |
			MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG,
		0, NULL, NULL, http_on_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_library_log, h,
		MHD_OPTION_CONNECTION_LIMIT, s->max_connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
		s->max_per_address, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(IDLE_MS_MAX / 1000),
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_MEMORY_BYTES,
		MHD_OPTION_URI_LOG_CALLBACK, http_on_target, h, MHD_OPTION_NOTIFY_COMPLETED,
		http_on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
		MHD_OPTION_END);
	if (!h->mhd) {
		free(h);
		return garret_fail(err, GARRET_INTERNAL, "the HTTP server did not start");
	}
	fd = MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
	rc = loop_io_add(l, &h->mhd_io, fd, EPOLLIN, on_mhd, h, err);
	if (rc < 0) {
		httpd_free(h);
		return rc;
	}
	*ret = h;
	return 0;
}

struct httpd *httpd_free(struct httpd *h)
{
	struct http_request *rq;

	if (!h)
		return NULL;
	httpd_stop_accepting(h);
	h->drained = NULL;
	h->stopping = true;
	list_foreach (rq, &h->requests, link)
		http_abandon(rq);
	(void)MHD_run(h->mhd); /* the library wants no suspended connection when it stops */
	loop_io_remove(&h->mhd_io);
	MHD_stop_daemon(h->mhd);
	http_linger_end_all(h);
	loop_timer_clear(&h->mhd_timer);
	loop_timer_clear(&h->sweep_timer);
	loop_timer_clear(&h->drain_timer);
	loop_timer_clear(&h->fresh_timer);
	loop_later_cancel(h->loop, &h->run_later);
	loop_later_cancel(h->loop, &h->drain_later);
	assert(list_empty(&h->conns) && !h->n_large);
	free(h);
	return NULL;
}
