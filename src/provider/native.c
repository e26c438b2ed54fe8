/*
 * A box is a session of the engine.  Its init listens on a socket in our ctl/
 * directory, so that it outlives us; we hold one connection to it, over which
 * every command goes.  Output that init can't hold goes to spool files that we
 * make ahead and pass in, a pair per command that needs one; we only read them.
 *
 * Sessions outlive the engine as well: when another one is there, each is taken
 * over again, while its commands go on over our connection to its init.
 */
#include "provider/native_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"

/* ---- what init says ---- */

static void finish_open(struct box *b);

static void on_ready(void *ctx)
{
	struct box *b = ctx;

	b->greeted = true;
	finish_open(b);
}

static void drop_init(struct box *b)
{
	init_box_drop(&b->common);
}

static void on_init_lost(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	b->common.dead = true;
	drop_init(b);
	if (b->opened) {
		if (!b->open_error.code)
			(void)garret_fail(&b->open_error, GARRET_INTERNAL,
					  "the session ended while it opened%s%s",
					  err->code ? ": " : "", err->msg);
		finish_open(b);
	} else if (b->died && !b->closing) {
		b->died(b->died_ctx);
	}
}

static const struct init_events init_events = {
	.ready = on_ready,
	.lost = on_init_lost,
	INIT_BOX_EVENTS,
};

/* ---- opening ---- */

/* Forget it; what it is goes on. */
static void box_leave(struct box *b)
{
	loop_later_cancel(b->p->loop, &b->later);
	loop_timer_clear(&b->silent);
	drop_init(b);
	list_remove(&b->link);
	init_box_release(&b->common);
	free(b);
}

static void box_free(struct box *b)
{
	if (b->ctl_name[0])
		(void)unlinkat(b->p->ctl_fd, b->ctl_name, 0);
	box_leave(b);
}

static void ignore_done(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	(void)err; /* the engine logs what it could not remove */
}

/* Both the engine and init have spoken, or one of them failed. */
static void finish_open(struct box *b)
{
	box_opened_fn opened = b->opened;

	/* When init failed first, the engine's answer is still due and says why. */
	if (!opened || b->asked || (!b->open_error.code && !b->greeted))
		return;
	b->opened = NULL;
	if (!b->open_error.code) {
		opened(b->opened_ctx, b, NULL);
		return;
	}
	opened(b->opened_ctx, NULL, &b->open_error);
	/* Of one that was there before, its owner says what becomes of its write layer. */
	if (b->handle)
		engine_client_close(b->p->engine, b->handle,
				    b->adopted ? ENGINE_CLOSE_KEEP : ENGINE_CLOSE_PLAIN,
				    ignore_done, NULL);
	box_free(b);
}

static void make_mark(struct box *b)
{
	char nonce[2 * INIT_NONCE + 1];

	hex_encode(b->nonce, sizeof(b->nonce), nonce);
	(void)snprintf(b->mark, sizeof(b->mark), "%016llx %s %.40s", (unsigned long long)b->handle,
		       nonce, b->ctl_name);
}

static void on_opened(void *ctx, const struct engine_opened *o, const struct garret_error *err)
{
	struct box *b = ctx;

	b->asked = false;
	b->handle = o ? o->handle : 0;
	if (err)
		b->open_error = *err;
	else
		make_mark(b);
	b->layer = o ? (enum box_layer)o->layer : BOX_LAYER_NONE; /* the same list */
	finish_open(b);
}

static void report_open_error(struct loop_later *l)
{
	finish_open(l->ctx);
}

static enum box_layer native_layer(const struct box *b)
{
	return b->layer;
}

static const char *native_mark(const struct box *b)
{
	return b->mark;
}

static int greet(struct box *b, struct garret_error *err)
{
	char path[80];
	int fd, rc;

	/* Connecting before init exists saves a round trip: it accepts when it is ready. */
	socket_path(b->p, b->ctl_name, path);
	rc = init_connect(path, &fd, err);
	if (rc < 0)
		return rc;
	return init_client_new(b->p->loop, fd, b->nonce, &init_events, b, &b->common.init, err);
}

/* An id may be longer than the name of a host, and have a character that such has not. */
static void host_name(const char *id, char out[64])
{
	(void)snprintf(out, 64, "%s", id);
	for (char *p = strchr(out, '_'); p; p = strchr(p, '_'))
		*p = '-';
}

struct volumes {
	int fds[ENGINE_VOLUMES_MAX];
	unsigned n;
};

static void volumes_close(struct volumes *v)
{
	while (v->n)
		fd_close(v->fds[--v->n]);
}

/* Opened as who we are: the engine gives what that one could open itself, nothing more. */
static int volumes_open(const struct box_spec *spec, struct engine_open *o, struct volumes *v,
			struct garret_error *err)
{
	if (spec->n_volumes > ENGINE_VOLUMES_MAX)
		return garret_fail(err, GARRET_INVALID, "volumes: at most %d", ENGINE_VOLUMES_MAX);
	for (unsigned i = 0; i < spec->n_volumes; i++) {
		const struct box_volume *volume = &spec->volumes[i];
		int fd = open(volume->host, O_PATH | O_CLOEXEC);

		if (fd < 0)
			return garret_fail_errno(err, "volumes: %s", volume->host);
		v->fds[v->n++] = fd;
		o->volumes[i] = (struct engine_volume){ volume->inside, volume->read_only };
	}
	o->n_volumes = spec->n_volumes;
	return 0;
}

static int begin_open(struct box *b, const struct box_spec *spec, struct garret_error *err)
{
	__attribute__((cleanup(volumes_close))) struct volumes volumes = { .n = 0 };
	char host[64];
	struct engine_open o = { .id = spec->id,
				 .runtime = spec->runtime,
				 .work_dir = spec->work_dir,
				 .hostname = host,
				 .memory_bytes = spec->memory_bytes,
				 .memory_swap_bytes = spec->memory_swap_bytes,
				 .cpu_millis = spec->cpu_millis,
				 .cpu_shares = spec->cpu_shares,
				 .pids = spec->pids,
				 .tmpfs_bytes = spec->tmpfs_bytes,
				 .disk_bytes = spec->disk_bytes,
				 .flags = (spec->attach ? ENGINE_OPEN_ATTACH : 0) |
					  (spec->files ? ENGINE_OPEN_FILES : ENGINE_OPEN_DURABLE) };
	struct control_socket control = { .fd = -EBADF };
	autoclose int sock = -EBADF;
	int rc;

	if (!b->p->up)
		return garret_fail(err, GARRET_UNAVAILABLE, "the engine is away");
	host_name(spec->id, host);
	o.network =
		spec->network && !strcmp(spec->network, "host") ? ENGINE_NET_HOST : ENGINE_NET_NONE;
	if (getrandom(b->nonce, sizeof(b->nonce), 0) != (ssize_t)sizeof(b->nonce))
		return garret_fail_errno(err, "random bytes");
	memcpy(o.nonce, b->nonce, sizeof(o.nonce));
	rc = volumes_open(spec, &o, &volumes, err);
	if (rc == 0)
		rc = socket_take(b->p, &control, err);
	if (rc < 0)
		return rc;
	sock = control.fd;
	(void)snprintf(b->ctl_name, sizeof(b->ctl_name), "%s", control.name);
	rc = greet(b, err);
	if (rc < 0)
		return rc;
	b->asked = true;
	engine_client_open(b->p->engine, &o, sock, volumes.fds, on_opened, b);
	return 0;
}

static struct box *box_new(struct provider *p, const struct box_spec *spec, box_opened_fn done,
			   void *ctx)
{
	struct box *b = xnew(struct box);

	b->p = p;
	(void)snprintf(b->id, sizeof(b->id), "%s", spec->id);
	init_box_begin(&b->common, p->loop, p->runs_fd, spec->runs);
	list_append(&p->boxes, &b->link);
	b->opened = done;
	b->opened_ctx = ctx;
	return b;
}

static void native_open(struct provider *p, const struct box_spec *spec, box_opened_fn done,
			void *ctx)
{
	struct box *b = box_new(p, spec, done, ctx);

	if (begin_open(b, spec, &b->open_error) < 0)
		loop_later_add(p->loop, &b->later, report_open_error, b);
}

/* ---- adopting ---- */

static void on_adopted(void *ctx, const struct engine_opened *o, const struct garret_error *err)
{
	struct box *b = ctx;

	/* Lost meanwhile: the next engine is asked for it again. */
	if (!err || err->code != GARRET_UNAVAILABLE || b->p->keeper_gone)
		on_opened(b, o, err);
}

static int begin_adopt(struct box *b, const char *mark, struct garret_error *err)
{
	enum { HANDLE, NONCE, SOCKET, WORDS };
	autofree char *text = xstrdup(mark);
	char *w[WORDS];
	int rc;

	if (split_words(text, w, WORDS) != WORDS || strlen(w[SOCKET]) >= sizeof(b->ctl_name) ||
	    strchr(w[SOCKET], '/') || !hex_decode(w[NONCE], b->nonce, sizeof(b->nonce)))
		return garret_fail(err, GARRET_NOT_FOUND, "no mark of a session: %s", mark);
	(void)snprintf(b->ctl_name, sizeof(b->ctl_name), "%s", w[SOCKET]);
	rc = greet(b, err);
	if (rc < 0) {
		err->code = GARRET_NOT_FOUND; /* nobody listens: its init has ended */
		return rc;
	}
	b->asked = true;
	b->handle = strtoull(w[HANDLE], NULL, 16);
	engine_client_adopt(b->p->engine, b->handle, on_adopted, b);
	return 0;
}

/*
 * An init that says nothing is broken or hostile: its session ends, or it would hold its
 * place for ever, with nobody able to close it.
 */
static void on_silent(struct loop_timer *t)
{
	struct box *b = t->ctx;

	if (!b->opened) {
		init_box_not_listed(&b->common);
	} else if (!b->greeted) {
		(void)garret_fail(&b->open_error, GARRET_NOT_FOUND,
				  "its init did not answer within %d s", SILENT_MS / 1000);
		finish_open(b);
	}
}

static void native_adopt(struct provider *p, const struct box_spec *spec, const char *mark,
			 box_opened_fn done, void *ctx)
{
	struct box *b = box_new(p, spec, done, ctx);

	b->adopted = true;
	if (begin_adopt(b, mark, &b->open_error) < 0)
		loop_later_add(p->loop, &b->later, report_open_error, b);
	else
		loop_timer_set(p->loop, &b->silent, now_ms() + SILENT_MS, on_silent, b);
}

/* Sockets of sessions that are no more. */
static void sweep_sockets(struct provider *p)
{
	int fd = openat(p->ctl_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		bool used = e->d_name[0] == '.';
		struct box *b;

		list_foreach (b, &p->boxes, link)
			used = used || !strcmp(b->ctl_name, e->d_name);
		for (unsigned i = 0; i < p->n_ahead; i++)
			used = used || !strcmp(p->ahead[i].name, e->d_name);
		if (!used)
			(void)unlinkat(p->ctl_fd, e->d_name, 0);
	}
}

static void settled(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	(void)err; /* lost again: the next engine is asked again */
}

static void native_settle(struct provider *p)
{
	sweep_sockets(p);
	engine_client_settle(p->engine, settled, p);
}

static void native_watch(struct box *b, box_died_fn died, void *ctx)
{
	b->died = died;
	b->died_ctx = ctx;
}

/* ---- closing ---- */

static void close_again(struct box *b);

static void tell_closed(struct box *b, const struct garret_error *err)
{
	b->common.dead = b->common.dead || !err || err->code == GARRET_NOT_FOUND;
	init_box_drop_spools(&b->common);
	b->closed(b->closed_ctx, err);
	box_free(b);
}

static void on_purged(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;
	const bool away = err && err->code == GARRET_UNAVAILABLE;

	if (away && !b->p->keeper_gone)
		return; /* again when there is an engine */
	tell_closed(b, err && err->code == GARRET_NOT_FOUND ? NULL : err);
}

static void on_closed(void *ctx, const struct garret_error *err)
{
	struct box *b = ctx;

	if (err && err->code == GARRET_UNAVAILABLE && !b->p->keeper_gone)
		return;
	/* It had ended by itself: then its files have no session that could take them along. */
	if (err && err->code == GARRET_NOT_FOUND && b->handle && b->how != BOX_CLOSE_KEEP) {
		b->handle = 0;
		close_again(b);
		return;
	}
	tell_closed(b, err);
}

static void close_again(struct box *b)
{
	static const enum engine_close how[] = { [BOX_CLOSE_PLAIN] = ENGINE_CLOSE_PLAIN,
						 [BOX_CLOSE_PURGE] = ENGINE_CLOSE_PURGE,
						 [BOX_CLOSE_KEEP] = ENGINE_CLOSE_KEEP };

	/* Of one that had ended by itself the write layer was kept as well. */
	if (b->handle || b->how == BOX_CLOSE_KEEP)
		engine_client_close(b->p->engine, b->handle, how[b->how], on_closed, b);
	else
		engine_client_purge(b->p->engine, b->id,
				    b->how == BOX_CLOSE_PURGE ? ENGINE_PURGE_ALL
							      : ENGINE_PURGE_LAYER,
				    0, on_purged, b);
}

static void native_close(struct box *b, enum box_close how, box_done_fn done, void *ctx)
{
	b->closing = true;
	b->how = how;
	b->closed = done;
	b->closed_ctx = ctx;
	drop_init(b);
	/* Another engine doesn't know it before it is adopted, and would call it gone. */
	if (b->p->up || b->p->keeper_gone)
		close_again(b);
}

struct usage_wait {
	box_usage_fn done;
	void *ctx;
};

static void on_usage(void *ctx, const struct engine_usage *u, const struct garret_error *err)
{
	struct usage_wait *w = ctx;
	struct box_usage out = { 0 };

	if (u)
		out = (struct box_usage){ .memory_bytes = u->memory_bytes,
					  .memory_limit_bytes = u->memory_limit_bytes,
					  .cpu_us = u->cpu_us,
					  .pids = u->pids,
					  .oom_kills = u->oom_kills,
					  .io_read_bytes = u->io_read_bytes,
					  .io_written_bytes = u->io_written_bytes,
					  .disk_bytes = u->disk_bytes };
	w->done(w->ctx, u ? &out : NULL, err);
	free(w);
}

static void native_usage(struct box *b, box_usage_fn done, void *ctx)
{
	struct usage_wait *w = xnew(struct usage_wait);

	w->done = done;
	w->ctx = ctx;
	engine_client_usage(b->p->engine, b->handle, on_usage, w);
}

/* ---- limits ---- */

_Static_assert((int)BOX_MEMORY == (int)ENGINE_LIMIT_MEMORY &&
		       (int)BOX_SWAP == (int)ENGINE_LIMIT_SWAP &&
		       (int)BOX_CPUS == (int)ENGINE_LIMIT_CPUS &&
		       (int)BOX_SHARES == (int)ENGINE_LIMIT_SHARES &&
		       (int)BOX_PIDS == (int)ENGINE_LIMIT_PIDS,
	       "the bits of both are the same");

unsigned native_limits(uint8_t hello)
{
	return hello & (BOX_MEMORY | BOX_SWAP | BOX_CPUS | BOX_SHARES | BOX_PIDS);
}

struct limits_wait {
	struct provider *p;
	uint64_t handle;
	uint32_t pids;
	bool processes; /* init is to be told as well */
	box_done_fn done;
	void *ctx;
};

static struct box *find_box(struct provider *p, uint64_t handle)
{
	struct box *b;

	list_foreach (b, &p->boxes, link)
		if (b->handle == handle)
			return b;
	return NULL;
}

static void on_limits(void *ctx, const struct garret_error *err)
{
	struct limits_wait *w = ctx;
	struct box *b = find_box(w->p, w->handle); /* it may be gone */

	if (!err && w->processes && b && b->common.init)
		init_client_processes(b->common.init, w->pids);
	w->done(w->ctx, err);
	free(w);
}

static void native_set_limits(struct box *b, unsigned which, const struct box_limits *l,
			      box_done_fn done, void *ctx)
{
	struct limits_wait *w = xnew(struct limits_wait);
	const struct engine_limits limits = { .handle = b->handle,
					      .which = (uint8_t)which,
					      .memory_bytes = l->memory_bytes,
					      .memory_swap_bytes = l->memory_swap_bytes,
					      .cpu_millis = l->cpu_millis,
					      .cpu_shares = l->cpu_shares,
					      .pids = l->pids };

	*w = (struct limits_wait){ b->p, b->handle, l->pids, which & BOX_PIDS, done, ctx };
	engine_client_limits(b->p->engine, &limits, on_limits, w);
}

/* ---- what is kept ---- */

struct kept_wait {
	box_kept_fn row;
	box_done_fn done;
	void *ctx;
};

static void on_kept(void *ctx, const struct engine_workspace *w)
{
	struct kept_wait *k = ctx;
	const struct kept_files files = { .id = w->id,
					  .bytes = w->bytes,
					  .files = w->files,
					  .used_ms = w->used_ms,
					  .layer_ms = w->layer_ms,
					  .ours = w->ours,
					  .partial = w->partial };

	k->row(k->ctx, &files);
}

static void on_kept_done(void *ctx, const struct garret_error *err)
{
	struct kept_wait *k = ctx;

	k->done(k->ctx, err);
	free(k);
}

static void native_kept(struct provider *p, bool sizes, box_kept_fn row, box_done_fn done,
			void *ctx)
{
	struct kept_wait *k = xnew(struct kept_wait);

	*k = (struct kept_wait){ row, done, ctx };
	engine_client_workspaces(p->engine, sizes, on_kept, on_kept_done, k);
}

/* As a close, it waits for the next engine rather than leave something behind. */
struct forgetting {
	struct list link; /* provider.forgetting */
	struct provider *p;
	char id[ENGINE_ID_MAX + 1];
	uint32_t what; /* ENGINE_PURGE_* */
	uint64_t used_ms;
	box_done_fn done;
	void *ctx;
};

static void on_forgotten(void *ctx, const struct garret_error *err)
{
	struct forgetting *f = ctx;

	if (err && err->code == GARRET_UNAVAILABLE && !f->p->keeper_gone)
		return;
	list_remove(&f->link);
	f->done(f->ctx, err);
	free(f);
}

static void forget_again(struct forgetting *f)
{
	engine_client_purge(f->p->engine, f->id, f->what, f->used_ms, on_forgotten, f);
}

static void native_forget(struct provider *p, const char *id, enum box_forget what,
			  uint64_t used_ms, box_done_fn done, void *ctx)
{
	struct forgetting *f = xnew(struct forgetting);

	*f = (struct forgetting){ .p = p,
				  .what = what == BOX_FORGET_ALL ? ENGINE_PURGE_ALL
								 : ENGINE_PURGE_LAYER,
				  .used_ms = used_ms,
				  .done = done,
				  .ctx = ctx };
	(void)snprintf(f->id, sizeof(f->id), "%s", id);
	list_append(&p->forgetting, &f->link);
	if (p->up || p->keeper_gone)
		forget_again(f);
}

static int native_spool_open(struct provider *p, const char *runs, uint32_t spool, int stream)
{
	return init_box_spool_open(p->runs_fd, runs, spool, stream);
}

static void native_spool_remove(struct provider *p, const char *runs, uint32_t spool)
{
	init_box_spool_remove(p->runs_fd, runs, spool);
}

const struct provider_ops native_ops = {
	.name = "native",
	.open = native_open,
	.watch = native_watch,
	.mark = native_mark,
	.layer = native_layer,
	.adopt = native_adopt,
	.settle = native_settle,
	.close = native_close,
	.usage = native_usage,
	.limits = native_set_limits,
	INIT_BOX_OPS,
	.kept = native_kept,
	.forget = native_forget,
	.spool_open = native_spool_open,
	.spool_remove = native_spool_remove,
};

/* ---- the engine ---- */

static void all_adopted(struct provider *p)
{
	struct forgetting *f;

	p->up = true;
	if (p->begun)
		native_settle(p);
	p->begun = true;
	list_foreach (f, &p->forgetting, link)
		forget_again(f);
	p->config.ready(p->config.ctx, &p->hello);
}

static void on_adopted_again(void *ctx, const struct engine_opened *o,
			     const struct garret_error *err)
{
	struct box *b = ctx;
	struct provider *p = b->p;

	if (err && err->code == GARRET_UNAVAILABLE)
		return; /* it counts from the start with the next engine */
	if (err)
		b->handle = 0;
	if (b->opened)
		on_opened(b, o, err);
	else if (b->closing)
		close_again(b);
	else if (err && !b->common.dead)
		on_init_lost(b, err);
	if (!--p->adopting)
		all_adopted(p);
}

static void on_owner(void *ctx, const struct garret_error *err)
{
	struct provider *p = ctx;
	struct box *b;

	if (err && err->code == GARRET_UNAVAILABLE)
		return;
	if (err) {
		p->config.lost(p->config.ctx, err);
		return;
	}
	p->adopting = 1;
	list_foreach (b, &p->boxes, link)
		if (!b->opened || b->adopted) {
			p->adopting++;
			engine_client_adopt(p->engine, b->handle, on_adopted_again, b);
		}
	if (!--p->adopting)
		all_adopted(p);
}

static void on_engine_ready(void *ctx, const struct engine_hello *hello)
{
	struct provider *p = ctx;

	p->hello = *hello;
	engine_client_owner(p->engine, p->config.owner, on_owner, p);
}

static void on_engine_lost(void *ctx, const struct garret_error *err)
{
	struct provider *p = ctx;

	p->up = false;
	if (p->keeper_gone) {
		p->config.lost(p->config.ctx, err);
		return;
	}
	p->config.away(p->config.ctx, err);
	engine_link_again(&p->link);
}

static void on_engine_socket(void *ctx, int fd)
{
	struct provider *p = ctx;
	struct garret_error err = { 0 };

	if (engine_client_connect(p->engine, fd, &err) < 0)
		p->config.lost(p->config.ctx, &err);
}

static void on_keeper_gone(void *ctx, const struct garret_error *err)
{
	struct provider *p = ctx;
	struct forgetting *f;
	struct box *b;

	p->keeper_gone = true;
	log_error("keeper_gone", "%s; no other engine is started", err->msg);
	/* The engine that it started last needs it no more, also while that begins. */
	if (engine_client_connected(p->engine))
		return;
	/* What waits for the next engine to be closed would wait for ever. */
	list_foreach (b, &p->boxes, link)
		if (b->closing)
			close_again(b);
	list_foreach (f, &p->forgetting, link)
		forget_again(f);
	p->config.lost(p->config.ctx, err);
}

static void on_engine_died(void *ctx, uint64_t handle, enum engine_death how)
{
	struct provider *p = ctx;
	struct box *b = find_box(p, handle);
	struct garret_error err = { 0 };

	(void)how;
	if (b && !b->common.dead)
		on_init_lost(b, &err);
}

static const struct engine_events engine_events = {
	.ready = on_engine_ready,
	.lost = on_engine_lost,
	.died = on_engine_died,
};

int native_new(const struct native_config *config, struct provider **ret, struct garret_error *err)
{
	struct provider *p = xnew(struct provider);
	autoclose int state = open(config->state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int rc;

	p->loop = config->loop;
	p->config = *config;
	p->ctl_fd = p->runs_fd = -EBADF;
	list_init(&p->boxes);
	list_init(&p->forgetting);
	rc = state < 0 ? garret_fail_errno(err, "open %s", config->state_dir) : 0;
	if (rc == 0)
		rc = p->ctl_fd = open_dir_make(state, "ctl", 0700, err);
	if (rc >= 0)
		rc = p->runs_fd = open_dir_make(state, "runs", 0700, err);
	p->link = (struct engine_link){
		.loop = p->loop, .socket = on_engine_socket, .gone = on_keeper_gone, .ctx = p
	};
	if (rc >= 0)
		rc = engine_client_new(p->loop, -EBADF, &engine_events, p, &p->engine, err);
	if (rc >= 0)
		rc = engine_link_open(&p->link, config->keeper_fd, config->engine_path, err);
	else
		fd_close(config->keeper_fd);
	if (rc < 0) {
		native_free(p);
		return rc;
	}
	loop_timer_set(p->loop, &p->refill, now_ms(), sockets_refill, p);
	*ret = p;
	return 0;
}

struct provider *native_free(struct provider *p)
{
	if (!p)
		return NULL;
	p->engine = engine_client_free(p->engine);
	engine_link_close(&p->link);
	while (!list_empty(&p->boxes)) {
		struct box *b = list_entry(p->boxes.next, struct box, link);

		/* Of a command that ran when the engine was lost, the listener is gone before us. */
		init_box_forget(&b->common);
		box_leave(b);
	}
	while (!list_empty(&p->forgetting)) {
		struct forgetting *f = list_entry(p->forgetting.next, struct forgetting, link);

		list_remove(&f->link);
		free(f);
	}
	loop_timer_clear(&p->refill);
	while (p->n_ahead) {
		const struct control_socket *c = &p->ahead[--p->n_ahead];

		(void)unlinkat(p->ctl_fd, c->name, 0); /* it was nobody's yet */
		fd_close(c->fd);
	}
	fd_close(p->ctl_fd);
	fd_close(p->runs_fd);
	free(p);
	return NULL;
}
