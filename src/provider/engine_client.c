#include "provider/engine_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/mem.h"

#define ENGINE_FD 3 /* where a private engine finds its socket */

/* A question that is not yet answered. */
struct pending {
	struct list link;
	uint64_t request;
	uint16_t type; /* of the question */
	union {
		engine_opened_fn opened;
		engine_done_fn done;
		engine_usage_fn usage;
	};
	engine_workspace_fn row; /* before done, of WORKSPACES only */
	void *ctx;
	struct loop_later later; /* asked when the engine was gone already */
	struct loop *loop;
};

struct engine_client {
	struct chan chan;
	const struct engine_events *events;
	void *ctx;
	uint64_t last_request;
	struct list pending;
	uint8_t frame[ENGINE_FRAME_MAX];
};

int engine_start(const char *program, const char *state, const char *const *args, int *ret_fd,
		 pid_t *ret_pid, struct garret_error *err)
{
	const char *argv[24] = { program, "--fd", "3", "--state", state };
	unsigned n = 5;
	int pair[2], rc;
	pid_t pid;

	for (; args && *args && n < ARRAY_SIZE(argv) - 1; args++)
		argv[n++] = *args;
	if (access(program, X_OK) < 0)
		return garret_fail_errno(err, "the engine %s", program);
	rc = msg_pair(pair, false, err);
	if (rc < 0)
		return rc;
	pid = fork();
	if (pid < 0) {
		rc = garret_fail_errno(err, "start the engine");
		fd_close(pair[0]);
		fd_close(pair[1]);
		return rc;
	}
	if (pid == 0) {
		sigset_t none;

		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		/* Its own session: a Ctrl-C at our terminal is for us to handle. */
		(void)setsid();
		if (pair[1] == ENGINE_FD)
			(void)fd_set_cloexec(ENGINE_FD, false);
		else if (dup2(pair[1], ENGINE_FD) < 0)
			_exit(127);
		execv(program, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	fd_close(pair[1]);
	*ret_fd = pair[0];
	*ret_pid = pid;
	return 0;
}

int engine_connect(const char *path, int *ret_fd, struct garret_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	autoclose int fd = -EBADF;

	if (strlen(path) >= sizeof(sa.sun_path))
		return garret_fail(err, GARRET_INVALID,
				   "the engine's socket: a path of at most %zu bytes",
				   sizeof(sa.sun_path) - 1);
	memcpy(sa.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0)
		return garret_fail_errno(err, "connect to the engine at %s", path);
	*ret_fd = take_fd(&fd);
	return 0;
}

static void answer(struct pending *p, struct get *g, uint16_t type, const struct garret_error *err)
{
	struct garret_error broken = { 0 };
	struct engine_opened opened;
	struct engine_usage usage;

	if (!err && type == ENGINE_OPENED && (p->type == ENGINE_OPEN || p->type == ENGINE_ADOPT) &&
	    engine_get_opened(g, &opened)) {
		p->opened(p->ctx, &opened, NULL);
	} else if (!err && type == ENGINE_USAGE_OK && p->type == ENGINE_USAGE &&
		   engine_get_usage(g, &usage)) {
		p->usage(p->ctx, &usage, NULL);
	} else if (!err && type == ENGINE_DONE && p->type != ENGINE_OPEN &&
		   p->type != ENGINE_ADOPT && p->type != ENGINE_USAGE) {
		p->done(p->ctx, NULL);
	} else {
		if (!err) {
			(void)garret_fail(&broken, GARRET_PROTOCOL,
					  "the engine's answer makes no sense");
			err = &broken;
		}
		if (p->type == ENGINE_OPEN || p->type == ENGINE_ADOPT)
			p->opened(p->ctx, NULL, err);
		else if (p->type == ENGINE_USAGE)
			p->usage(p->ctx, NULL, err);
		else
			p->done(p->ctx, err);
	}
	free(p);
}

static struct pending *find_pending(struct engine_client *c, uint64_t request)
{
	struct pending *p;

	list_foreach (p, &c->pending, link)
		if (p->request == request)
			return p;
	return NULL;
}

static void on_workspace(struct engine_client *c, const struct init_header *h, struct get *g)
{
	struct pending *p = find_pending(c, h->request);
	struct engine_workspace w;

	if (p && p->row && engine_get_workspace(g, &w))
		p->row(p->ctx, &w);
}

static void on_answer(struct engine_client *c, const struct init_header *h, struct get *g)
{
	struct garret_error err = { 0 };
	struct pending *p = find_pending(c, h->request);
	uint32_t code;

	if (!p)
		return;
	list_remove(&p->link);
	if (h->type == ENGINE_ERROR) {
		code = get_u32(g);
		err.sys = (int)get_u32(g);
		err.code = code > 0 && code < GARRET_CODES ? code : GARRET_INTERNAL;
		(void)snprintf(err.msg, sizeof(err.msg), "%s", get_str(g, sizeof(err.msg)));
	}
	answer(p, g, h->type, h->type == ENGINE_ERROR ? &err : NULL);
}

static void on_frame(struct chan *chan, const uint8_t *frame, size_t n, struct msg_fds *fds)
{
	struct engine_client *c = chan->ctx;
	struct engine_hello hello;
	struct init_header h;
	struct get g;

	(void)fds;
	if (!engine_parse(&g, frame, n, &h))
		return;
	if (h.type == ENGINE_HELLO_OK) {
		if (engine_get_hello(&g, &hello) && c->events->ready)
			c->events->ready(c->ctx, &hello);
	} else if (h.type == ENGINE_DIED) {
		uint64_t handle = get_u64(&g);
		uint8_t how = get_u8(&g);

		if (get_done(&g) && c->events->died)
			c->events->died(c->ctx, handle, how);
	} else if (h.type == ENGINE_DOCTOR_ROW) {
		unsigned level = get_u8(&g);
		const char *name = get_str(&g, 256), *text = get_str(&g, 4096);

		if (get_done(&g) && c->events->doctor_row)
			c->events->doctor_row(c->ctx, level, name, text);
	} else if (h.type == ENGINE_WORKSPACE) {
		on_workspace(c, &h, &g);
	} else {
		on_answer(c, &h, &g);
	}
}

static void on_end(struct chan *chan, const struct garret_error *why)
{
	struct engine_client *c = chan->ctx;
	struct garret_error err = { 0 };

	(void)garret_fail(&err, GARRET_UNAVAILABLE, "the engine is gone%s%s", why->code ? ": " : "",
			  why->msg);
	while (!list_empty(&c->pending)) {
		struct pending *p = list_entry(c->pending.next, struct pending, link);

		list_remove(&p->link);
		answer(p, NULL, ENGINE_ERROR, &err);
	}
	if (c->events->lost)
		c->events->lost(c->ctx, &err);
}

int engine_client_connect(struct engine_client *c, int fd, struct garret_error *err)
{
	struct loop *l = c->chan.loop;
	struct put p;
	int rc;

	chan_close(&c->chan);
	c->chan = (struct chan){ .on_frame = on_frame, .on_end = on_end, .ctx = c };
	rc = chan_open(&c->chan, l, fd, ENGINE_FRAME_MAX, err);
	c->chan.loop = l;
	if (rc < 0)
		return rc;
	engine_begin(&p, c->frame, ENGINE_HELLO, 0);
	put_u16(&p, ENGINE_MAJOR);
	put_u16(&p, ENGINE_MINOR);
	chan_send(&c->chan, c->frame, engine_end(&p), NULL, 0);
	return 0;
}

bool engine_client_connected(const struct engine_client *c)
{
	return chan_is_open(&c->chan);
}

int engine_client_new(struct loop *l, int fd, const struct engine_events *events, void *ctx,
		      struct engine_client **ret, struct garret_error *err)
{
	struct engine_client *c = xnew(struct engine_client);
	int rc;

	c->events = events;
	c->ctx = ctx;
	list_init(&c->pending);
	c->chan.loop = l;
	c->chan.fd = c->chan.io.fd = -EBADF;
	rc = fd < 0 ? 0 : engine_client_connect(c, fd, err);
	if (rc < 0)
		c = engine_client_free(c);
	*ret = c;
	return rc;
}

struct engine_client *engine_client_free(struct engine_client *c)
{
	if (!c)
		return NULL;
	chan_close(&c->chan);
	while (!list_empty(&c->pending)) {
		struct pending *p = list_entry(c->pending.next, struct pending, link);

		list_remove(&p->link);
		loop_later_cancel(p->loop, &p->later);
		free(p);
	}
	free(c);
	return NULL;
}

static void answer_lost(struct loop_later *l)
{
	struct pending *p = l->ctx;
	struct garret_error err = { 0 };

	list_remove(&p->link);
	(void)garret_fail(&err, GARRET_UNAVAILABLE, "the engine is gone");
	answer(p, NULL, ENGINE_ERROR, &err);
}

/* A question whose frame is in c->frame. */
static struct pending *ask(struct engine_client *c, uint16_t type, struct put *p, const int *fds,
			   unsigned n_fds, void *ctx)
{
	struct pending *q = xnew(struct pending);
	uint32_t n = engine_end(p);

	q->request = c->last_request;
	q->type = type;
	q->ctx = ctx;
	q->loop = c->chan.loop;
	list_append(&c->pending, &q->link);
	if (!chan_is_open(&c->chan))
		loop_later_add(q->loop, &q->later, answer_lost, q);
	else if (n)
		chan_send(&c->chan, c->frame, n, fds, n_fds);
	return q;
}

void engine_client_open(struct engine_client *c, const struct engine_open *o, int init_sock,
			const int *volume_fds, engine_opened_fn done, void *ctx)
{
	int fds[1 + ENGINE_VOLUMES_MAX] = { init_sock };
	struct put p;

	for (uint32_t i = 0; i < o->n_volumes && i < ENGINE_VOLUMES_MAX; i++)
		fds[1 + i] = volume_fds[i];
	engine_begin(&p, c->frame, ENGINE_OPEN, ++c->last_request);
	engine_put_open(&p, o);
	ask(c, ENGINE_OPEN, &p, fds, 1 + o->n_volumes, ctx)->opened = done;
}

void engine_client_close(struct engine_client *c, uint64_t handle, enum engine_close how,
			 engine_done_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_CLOSE, ++c->last_request);
	put_u64(&p, handle);
	put_u8(&p, (uint8_t)how);
	ask(c, ENGINE_CLOSE, &p, NULL, 0, ctx)->done = done;
}

void engine_client_limits(struct engine_client *c, const struct engine_limits *l,
			  engine_done_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_LIMITS, ++c->last_request);
	engine_put_limits(&p, l);
	ask(c, ENGINE_LIMITS, &p, NULL, 0, ctx)->done = done;
}

void engine_client_usage(struct engine_client *c, uint64_t handle, engine_usage_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_USAGE, ++c->last_request);
	put_u64(&p, handle);
	ask(c, ENGINE_USAGE, &p, NULL, 0, ctx)->usage = done;
}

void engine_client_workspaces(struct engine_client *c, bool sizes, engine_workspace_fn row,
			      engine_done_fn done, void *ctx)
{
	struct pending *q;
	struct put p;

	engine_begin(&p, c->frame, ENGINE_WORKSPACES, ++c->last_request);
	put_u8(&p, sizes);
	q = ask(c, ENGINE_WORKSPACES, &p, NULL, 0, ctx);
	q->row = row;
	q->done = done;
}

void engine_client_purge(struct engine_client *c, const char *id, unsigned what, uint64_t used_ms,
			 engine_done_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_PURGE, ++c->last_request);
	put_str(&p, id);
	put_u8(&p, (uint8_t)what);
	put_u64(&p, used_ms);
	ask(c, ENGINE_PURGE, &p, NULL, 0, ctx)->done = done;
}

void engine_client_owner(struct engine_client *c, const uint8_t tag[ENGINE_OWNER_TAG],
			 engine_done_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_OWNER, ++c->last_request);
	put_bytes(&p, tag, ENGINE_OWNER_TAG);
	ask(c, ENGINE_OWNER, &p, NULL, 0, ctx)->done = done;
}

void engine_client_adopt(struct engine_client *c, uint64_t handle, engine_opened_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_ADOPT, ++c->last_request);
	put_u64(&p, handle);
	ask(c, ENGINE_ADOPT, &p, NULL, 0, ctx)->opened = done;
}

void engine_client_settle(struct engine_client *c, engine_done_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_SETTLE, ++c->last_request);
	ask(c, ENGINE_SETTLE, &p, NULL, 0, ctx)->done = done;
}

void engine_client_doctor(struct engine_client *c, engine_done_fn done, void *ctx)
{
	struct put p;

	engine_begin(&p, c->frame, ENGINE_DOCTOR, ++c->last_request);
	ask(c, ENGINE_DOCTOR, &p, NULL, 0, ctx)->done = done;
}
