#include "engine/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/doctor.h"
#include "engine/kept.h"
#include "engine/relimit.h"
#include "engine/session.h"
#include "io/msg.h"

#define PEERS_MAX 64

enum peer_state { PEER_NEW = 1, PEER_GREETED = 2 };

struct peer {
	struct list link;
	struct engine *engine;
	int sock;
	struct loop_io io;
	struct credentials cred;
	enum peer_state state;
	bool owner; /* it said for whom */
	uint8_t owner_tag[ENGINE_OWNER_TAG];
	bool gone; /* freed at the end of the round */
	struct loop_later later;
	struct doctor *doctor; /* at work for this peer, or NULL */
	struct kept *kept;     /* the same */
	uint64_t doctor_request, kept_request;
};

static void peer_free(struct loop_later *l)
{
	struct peer *p = l->ctx;
	struct engine *e = p->engine;

	fd_close(p->sock);
	list_remove(&p->link);
	free(p);
	if (e->private)
		engine_leave(e, 0);
}

/* Its sessions end with it.  The memory stays until nobody on the stack uses it. */
static void peer_drop(struct peer *p, const char *why)
{
	if (p->gone)
		return;
	p->gone = true;
	log_info("peer_gone", "uid=%u why=\"%s\"", (unsigned)p->cred.uid, why);
	loop_io_remove(&p->io);
	(void)shutdown(p->sock, SHUT_RDWR);
	p->doctor = doctor_stop(p->doctor);
	p->kept = kept_stop(p->kept);
	relimit_peer_gone(p->engine, p);
	session_peer_gone(p->engine, p);
	loop_later_add(p->engine->loop, &p->later, peer_free, p);
}

static void peer_send(struct peer *p, struct put *put)
{
	struct garret_error err = { 0 };
	uint32_t n = engine_end(put);

	if (p->gone)
		return;
	if (!n)
		peer_drop(p, "an answer too long"); /* our own bug, but not a reason to die */
	else if (msg_send(p->sock, put->buf, n, NULL, 0, &err) < 0)
		peer_drop(p, err.sys == EAGAIN ? "does not read" : err.msg);
}

void serve_done(struct peer *p, uint64_t request)
{
	uint8_t buf[64];
	struct put put;

	engine_begin(&put, buf, ENGINE_DONE, request);
	put.cap = sizeof(buf);
	peer_send(p, &put);
}

void serve_error(struct peer *p, uint64_t request, const struct garret_error *err)
{
	uint8_t buf[1024];
	struct put put;

	engine_begin(&put, buf, ENGINE_ERROR, request);
	put.cap = sizeof(buf);
	put_u32(&put, (uint32_t)err->code);
	put_u32(&put, (uint32_t)err->sys);
	put_str(&put, err->msg);
	peer_send(p, &put);
}

void serve_opened(struct peer *p, uint64_t request, const struct engine_opened *o)
{
	uint8_t buf[128];
	struct put put;

	engine_begin(&put, buf, ENGINE_OPENED, request);
	put.cap = sizeof(buf);
	engine_put_opened(&put, o);
	peer_send(p, &put);
}

void serve_died(struct peer *p, uint64_t handle, uint8_t death)
{
	uint8_t buf[64];
	struct put put;

	engine_begin(&put, buf, ENGINE_DIED, 0);
	put.cap = sizeof(buf);
	put_u64(&put, handle);
	put_u8(&put, death);
	peer_send(p, &put);
}

int serve_socket(const struct peer *p)
{
	return p->sock;
}

const struct credentials *serve_credentials(const struct peer *p)
{
	return &p->cred;
}

const uint8_t *serve_owner(const struct peer *p)
{
	return p->owner_tag;
}

/*
 * Handlers: 0 when answered or to be answered later; a failure is answered with it.
 */
static int on_hello(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		    struct garret_error *err)
{
	const struct engine *e = p->engine;
	uint16_t major = get_u16(g);
	struct engine_hello h = {
		.major = ENGINE_MAJOR,
		.minor = ENGINE_MINOR,
		.cgroup = (uint8_t)e->cg.mode,
		.networks = (uint8_t)e->conf.networks,
		.limits = e->cg.limits | (e->disk.quota || e->disk.images ? LIMIT_DISK : 0),
		.seccomp = !e->conf.no_filter,
		.max_memory_bytes = e->conf.max_memory,
		.max_cpu_millis = e->conf.max_cpu_millis,
		.max_pids = e->conf.max_pids,
		.max_sessions = e->conf.max_sessions,
		.max_tmpfs_bytes = e->conf.max_tmpfs,
	};
	uint8_t buf[128];
	struct put put;

	if (major != ENGINE_MAJOR)
		return garret_fail(err, GARRET_UNSUPPORTED, "this engine speaks version %d, not %u",
				   ENGINE_MAJOR, major);
	p->state = PEER_GREETED;
	engine_begin(&put, buf, ENGINE_HELLO_OK, request);
	put.cap = sizeof(buf);
	engine_put_hello(&put, &h);
	peer_send(p, &put);
	return 0;
}

static int on_open(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		   struct garret_error *err)
{
	autofree struct engine_open *o = xnew(struct engine_open);

	if (!engine_get_open(g, o))
		return garret_fail(err, GARRET_INVALID, "a request to open that can't be read");
	if (o->flags & ENGINE_OPEN_DURABLE && !p->owner)
		return garret_fail(err, GARRET_INVALID, "a durable session of nobody");
	return session_open(p->engine, p, request, o, fds, err);
}

static int on_close(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		    struct garret_error *err)
{
	uint64_t handle = get_u64(g);
	uint8_t how = get_u8(g);

	if (how >= ENGINE_CLOSES)
		return garret_fail(err, GARRET_INVALID, "a session can't be closed in way %u", how);
	return session_close(p->engine, p, request, handle, how, err);
}

static int on_usage(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		    struct garret_error *err)
{
	struct engine_usage u;
	uint8_t buf[128];
	struct put put;
	int rc = session_usage(p->engine, p, get_u64(g), &u, err);

	if (rc < 0)
		return rc;
	engine_begin(&put, buf, ENGINE_USAGE_OK, request);
	put.cap = sizeof(buf);
	engine_put_usage(&put, &u);
	peer_send(p, &put);
	return 0;
}

static int on_limits(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		     struct garret_error *err)
{
	struct engine_limits l;

	if (!engine_get_limits(g, &l))
		return garret_fail(err, GARRET_INVALID, "new limits that can't be read");
	return relimit_order(p->engine, p, request, &l, err);
}

static void on_row(void *ctx, const struct doctor_row *row)
{
	struct peer *p = ctx;
	uint8_t buf[1024];
	struct put put;

	if (!row) {
		p->doctor = doctor_stop(p->doctor);
		serve_done(p, p->doctor_request);
		return;
	}
	engine_begin(&put, buf, ENGINE_DOCTOR_ROW, p->doctor_request);
	put.cap = sizeof(buf);
	put_u8(&put, row->level);
	put_str(&put, row->name);
	put_str(&put, row->text);
	peer_send(p, &put);
}

static int on_doctor(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		     struct garret_error *err)
{
	if (p->doctor)
		return garret_fail(err, GARRET_CONFLICT, "the doctor is still busy");
	p->doctor_request = request;
	return doctor_start(p->engine, on_row, p, &p->doctor, err);
}

/*
 * There may be more workspaces than a socket has room for.  The next is asked for when most
 * of it is free again (that is what POLLOUT says of a local socket), so that other answers
 * always fit and a peer isn't let go for being slow.
 */
static void pace_kept(struct peer *p)
{
	struct pollfd room = { p->sock, POLLOUT, 0 };

	if (p->gone || !p->kept || poll(&room, 1, 0) > 0)
		return;
	kept_pause(p->kept);
	loop_io_mod(&p->io, EPOLLIN | EPOLLOUT);
}

static void on_kept(void *ctx, const struct engine_workspace *w, const struct garret_error *err)
{
	struct peer *p = ctx;
	uint8_t buf[256];
	struct put put;

	if (!w) {
		p->kept = kept_stop(p->kept);
		if (err)
			serve_error(p, p->kept_request, err);
		else
			serve_done(p, p->kept_request);
		return;
	}
	engine_begin(&put, buf, ENGINE_WORKSPACE, p->kept_request);
	put.cap = sizeof(buf);
	engine_put_workspace(&put, w);
	peer_send(p, &put);
	pace_kept(p);
}

static int on_workspaces(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
			 struct garret_error *err)
{
	uint8_t sizes = get_u8(g);
	int rc;

	if (sizes > 1)
		return garret_fail(err, GARRET_INVALID, "sizes is 0 or 1");
	if (p->kept)
		return garret_fail(err, GARRET_CONFLICT, "the workspaces are being counted");
	p->kept_request = request;
	rc = kept_start(p->engine, sizes, on_kept, p, &p->kept, err);
	if (rc == 0)
		pace_kept(p);
	return rc;
}

static int on_purge(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		    struct garret_error *err)
{
	const char *id = get_str(g, ENGINE_ID_MAX);
	uint8_t what = get_u8(g);
	uint64_t used_ms = get_u64(g);
	int rc;

	if (!get_done(g) || !what || what > ENGINE_PURGE_ALL)
		return garret_fail(err, GARRET_INVALID, "a request to purge that can't be read");
	rc = session_purge(p->engine, id, what, used_ms, err);
	if (rc == 0)
		serve_done(p, request);
	return rc;
}

static int on_owner(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		    struct garret_error *err)
{
	if (p->owner)
		return garret_fail(err, GARRET_CONFLICT, "the owner was said already");
	get_bytes(g, p->owner_tag, sizeof(p->owner_tag));
	p->owner = true;
	serve_done(p, request);
	return 0;
}

static int on_adopt(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		    struct garret_error *err)
{
	if (!p->owner)
		return garret_fail(err, GARRET_INVALID, "the owner of what is to be adopted");
	return session_adopt(p->engine, p, request, get_u64(g), err);
}

static int on_settle(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		     struct garret_error *err)
{
	if (p->owner)
		session_settle(p->engine, p);
	serve_done(p, request);
	return 0;
}

/* What may cross the border: when, how long, with how many descriptors. */
static const struct {
	uint16_t type;
	uint8_t states; /* of enum peer_state */
	uint32_t min_bytes, max_bytes;
	unsigned max_fds;
	int (*fn)(struct peer *p, uint64_t request, struct get *g, struct msg_fds *fds,
		  struct garret_error *err);
} table[] = {
	{ ENGINE_HELLO, PEER_NEW, 4, 4, 0, on_hello },
	{ ENGINE_OPEN, PEER_GREETED, 88, ENGINE_FRAME_MAX, 1 + ENGINE_VOLUMES_MAX, on_open },
	{ ENGINE_CLOSE, PEER_GREETED, 9, 9, 0, on_close },
	{ ENGINE_USAGE, PEER_GREETED, 8, 8, 0, on_usage },
	{ ENGINE_LIMITS, PEER_GREETED, 37, 37, 0, on_limits },
	{ ENGINE_DOCTOR, PEER_GREETED, 0, 0, 0, on_doctor },
	{ ENGINE_WORKSPACES, PEER_GREETED, 1, 1, 0, on_workspaces },
	{ ENGINE_PURGE, PEER_GREETED, 15, 14 + ENGINE_ID_MAX, 0, on_purge },
	{ ENGINE_OWNER, PEER_GREETED, ENGINE_OWNER_TAG, ENGINE_OWNER_TAG, 0, on_owner },
	{ ENGINE_ADOPT, PEER_GREETED, 8, 8, 0, on_adopt },
	{ ENGINE_SETTLE, PEER_GREETED, 0, 0, 0, on_settle },
};

static void dispatch(struct peer *p, const struct init_header *h, struct get *g,
		     struct msg_fds *fds)
{
	struct garret_error err = { 0 };
	size_t body = h->length - INIT_HEADER_BYTES;
	int rc = garret_fail(&err, GARRET_UNSUPPORTED, "unknown request %u", h->type);

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].type != h->type)
			continue;
		if (!(table[i].states & p->state))
			rc = garret_fail(&err, GARRET_PROTOCOL, "request %u is not allowed now",
					 h->type);
		else if (body < table[i].min_bytes || body > table[i].max_bytes)
			rc = garret_fail(&err, GARRET_INVALID, "request %u with %zu bytes", h->type,
					 body);
		else if (fds->n > table[i].max_fds)
			rc = garret_fail(&err, GARRET_INVALID, "request %u with %u descriptors",
					 h->type, fds->n);
		else
			rc = table[i].fn(p, h->request, g, fds, &err);
		break;
	}
	if (rc < 0)
		serve_error(p, h->request, &err);
}

static void on_peer(struct loop_io *io, uint32_t events)
{
	/* One thread, never entered twice: a buffer of its own would be 32 KiB per peer. */
	static uint8_t buf[ENGINE_FRAME_MAX];
	struct peer *p = io->ctx;
	struct garret_error err = { 0 };
	struct init_header h;
	struct msg_fds fds;
	struct get g;
	ssize_t n;

	if (events & EPOLLOUT) {
		loop_io_mod(&p->io, EPOLLIN);
		kept_resume(p->kept);
	}
	n = msg_recv(p->sock, buf, sizeof(buf), &fds, &err);
	if (n < 0 && err.sys == EAGAIN)
		return;
	/* Our own lack of descriptors ends this request, not the peer and all its sessions. */
	if (n < 0 && fds.lost) {
		if (engine_parse(&g, buf, fds.lost, &h))
			serve_error(p, h.request, &err);
		return;
	}
	if (n <= 0) {
		peer_drop(p, n == 0 ? "closed" : err.msg);
		return;
	}
	if (engine_parse(&g, buf, (size_t)n, &h))
		dispatch(p, &h, &g, &fds);
	else
		peer_drop(p, "a frame with a false header");
	msg_fds_close(&fds);
}

static int peer_add(struct engine *e, int sock, const struct credentials *cred,
		    struct garret_error *err)
{
	struct peer *p = xnew(struct peer);
	int rc;

	p->engine = e;
	p->sock = sock;
	p->cred = *cred;
	p->state = PEER_NEW;
	p->io.fd = -EBADF;
	rc = loop_io_add(e->loop, &p->io, sock, EPOLLIN, on_peer, p, err);
	if (rc < 0) {
		fd_close(sock);
		free(p);
		return rc;
	}
	list_append(&e->peers, &p->link);
	return 0;
}

static int ask_credentials(int sock, struct credentials *ret, struct garret_error *err)
{
	struct ucred c;
	socklen_t n = sizeof(c);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &c, &n) < 0)
		return garret_fail_errno(err, "ask who the peer is");
	*ret = (struct credentials){ c.uid, c.gid, true };
	return 0;
}

int serve_private(struct engine *e, int sock, uid_t uid, struct garret_error *err)
{
	struct credentials cred;
	int type = 0, rc;
	socklen_t n = sizeof(type);

	if (getsockopt(sock, SOL_SOCKET, SO_TYPE, &type, &n) < 0 || type != SOCK_SEQPACKET)
		return garret_fail(err, GARRET_INVALID, "descriptor %d is no SEQPACKET socket",
				   sock);
	rc = ask_credentials(sock, &cred, err);
	if (rc < 0)
		return rc;
	if (uid != (uid_t)-1)
		/* The socket is older than the peer's change of user: its groups are another's. */
		cred = (struct credentials){ uid, uid, false };
	if (fd_set_cloexec(sock, true) < 0 || fd_set_nonblock(sock, true) < 0)
		return garret_fail_errno(err, "the peer's socket");
	return peer_add(e, sock, &cred, err);
}

static bool admitted(const struct engine *e, uid_t uid)
{
	for (unsigned i = 0; i < e->conf.n_uids; i++)
		if (e->conf.uids[i] == uid)
			return true;
	return uid == 0;
}

static void on_connect(struct loop_io *io, uint32_t events)
{
	struct engine *e = io->ctx;
	autoclose int sock = accept4(e->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	struct garret_error err = { 0 };
	struct credentials cred = { 0 };
	struct peer *p;
	unsigned n = 0;

	if (sock < 0)
		return;
	list_foreach (p, &e->peers, link)
		n++;
	if (ask_credentials(sock, &cred, &err) < 0 || !admitted(e, cred.uid) || n >= PEERS_MAX) {
		log_warn("peer_refused", "uid=%u peers=%u", (unsigned)cred.uid, n);
		return;
	}
	if (peer_add(e, take_fd(&sock), &cred, &err) < 0)
		log_warn("peer_refused", "error=\"%s\"", err.msg);
}

static int bind_socket(int sock, const char *path, gid_t gid, struct garret_error *err)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	mode_t mask;
	int rc;

	if (strlen(path) >= sizeof(a.sun_path))
		return garret_fail(err, GARRET_INVALID, "the socket path %s is too long", path);
	memcpy(a.sun_path, path, strlen(path));
	(void)unlink(path); /* of an earlier engine: the state directory's lock is ours */
	mask = umask(0177);
	rc = bind(sock, (struct sockaddr *)&a, sizeof(a));
	(void)umask(mask);
	if (rc < 0)
		return garret_fail_errno(err, "bind %s", path);
	if (lchown(path, 0, gid) < 0 || chmod(path, 0660) < 0 || listen(sock, 16) < 0)
		return garret_fail_errno(err, "listen on %s", path);
	return 0;
}

int serve_system(struct engine *e, const char *path, const char *group, struct garret_error *err)
{
	autoclose int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	gid_t gid = 0;
	int rc;

	if (sock < 0)
		return garret_fail_errno(err, "make a socket");
	if (group) {
		autofile FILE *f = fopen("/etc/group", "re");
		struct group *g = NULL;

		/* Files only: name services would load code into a static program. */
		while (f && (g = fgetgrent(f)) && strcmp(g->gr_name, group) != 0)
			;
		if (!g)
			return garret_fail(err, GARRET_NOT_FOUND, "there is no group %s", group);
		gid = g->gr_gid;
	}
	rc = bind_socket(sock, path, gid, err);
	if (rc == 0)
		rc = loop_io_add(e->loop, &e->listen_io, sock, EPOLLIN, on_connect, e, err);
	if (rc == 0)
		e->listen_fd = take_fd(&sock);
	return rc;
}

void serve_stop(struct engine *e)
{
	struct peer *p;

	loop_io_remove(&e->listen_io);
	e->listen_fd = fd_close(e->listen_fd);
	list_foreach (p, &e->peers, link)
		peer_drop(p, "the engine ends");
}
