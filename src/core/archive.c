/*
 * Looking into the kept files of sessions, whether these are open or not.  Each
 * workspace that is asked for gets an environment that holds nothing else and
 * can change nothing; a few at a time, kept a moment for the next question.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "core/service_impl.h"

#define OPEN_MAX 4   /* the engine's own default bound */
#define KEEP_MS 2000 /* after the last question */

enum archive_state { ARCHIVE_QUEUED, ARCHIVE_OPENING, ARCHIVE_OPEN, ARCHIVE_CLOSING };

struct archive {
	struct list link; /* service.archives, in the order of the first question */
	struct service *service;
	char *id;
	enum archive_state state;
	bool dead;
	struct box *box;
	struct list waiting; /* of file_call */
	unsigned calls;      /* all: waiting and under way */
	struct loop_timer keep;
	struct loop_later begin;
};

static void open_queued(struct service *svc);

static void archive_free(struct archive *a)
{
	loop_timer_clear(&a->keep);
	loop_later_cancel(a->service->loop, &a->begin);
	list_remove(&a->link);
	free(a->id);
	free(a);
}

static void on_closed(void *ctx, const struct garret_error *err)
{
	struct archive *a = ctx;
	struct service *svc = a->service;

	if (err)
		log_warn("archive_close", "session=%s %s", a->id, err->msg);
	archive_free(a);
	svc->n_archives--;
	open_queued(svc);
}

static void archive_close(struct archive *a)
{
	a->state = ARCHIVE_CLOSING;
	loop_timer_clear(&a->keep);
	a->service->ops->close(take_ptr(&a->box), BOX_CLOSE_PLAIN, on_closed, a);
}

static void on_keep(struct loop_timer *t)
{
	archive_close(t->ctx);
}

/* Nobody asks at the moment. */
static void rest(struct archive *a)
{
	struct service *svc = a->service;
	struct archive *other;
	bool wanted = a->dead;

	list_foreach (other, &svc->archives, link)
		wanted = wanted || other->state == ARCHIVE_QUEUED;
	/* From the loop: whoever asked may ask again at once, which an end isn't to race with. */
	loop_timer_set(svc->loop, &a->keep, now_ms() + (wanted ? 0 : KEEP_MS), on_keep, a);
}

void archive_left(struct file_call *f)
{
	struct archive *a = f->archive;

	list_remove(&f->waiting);
	if (--a->calls == 0 && a->state == ARCHIVE_OPEN)
		rest(a);
}

static void fail_all(struct archive *a, const struct garret_error *err)
{
	while (!list_empty(&a->waiting))
		file_call_fail(list_entry(a->waiting.next, struct file_call, waiting), err);
}

static void begin_all(struct archive *a)
{
	while (!list_empty(&a->waiting)) {
		struct file_call *f = list_entry(a->waiting.next, struct file_call, waiting);
		struct garret_error err = { 0 };

		list_remove(&f->waiting);
		if (!file_call_begin(f, a->box, &err))
			file_call_fail(f, &err);
	}
}

static void on_begin(struct loop_later *l)
{
	struct archive *a = l->ctx;

	if (a->state == ARCHIVE_OPEN)
		begin_all(a);
}

static void on_died(void *ctx)
{
	struct archive *a = ctx;

	a->dead = true;
	if (!a->calls && a->state == ARCHIVE_OPEN)
		rest(a);
}

static void on_opened(void *ctx, struct box *box, const struct garret_error *err)
{
	struct archive *a = ctx;
	struct service *svc = a->service;

	if (!box) {
		svc->n_archives--;
		a->state = ARCHIVE_QUEUED; /* what its callers ask now is another one's */
		list_remove(&a->link);
		fail_all(a, err);
		archive_free(a);
		open_queued(svc);
		return;
	}
	a->box = box;
	a->state = ARCHIVE_OPEN;
	svc->ops->watch(box, on_died, a);
	if (a->calls)
		begin_all(a);
	else
		rest(a); /* who asked has gone */
}

static void archive_open(struct archive *a)
{
	struct service *svc = a->service;
	const struct box_spec spec = { .id = a->id,
				       .runtime = "host",
				       .work_dir = svc->config->work_dir,
				       .network = "none",
				       .files = true };

	a->state = ARCHIVE_OPENING;
	svc->n_archives++;
	svc->ops->open(svc->provider, &spec, on_opened, a);
}

static void open_queued(struct service *svc)
{
	struct archive *a;

	list_foreach (a, &svc->archives, link) {
		if (svc->n_archives >= OPEN_MAX)
			return;
		if (a->state != ARCHIVE_QUEUED)
			continue;
		if (a->calls)
			archive_open(a);
		else
			archive_free(a); /* who asked has gone */
	}
}

/* One that only rests has to make room for one that is wanted. */
static void make_room(struct service *svc)
{
	struct archive *a;

	list_foreach (a, &svc->archives, link) {
		if (a->state == ARCHIVE_OPEN && !a->calls) {
			archive_close(a);
			return;
		}
	}
}

static struct archive *find(struct service *svc, const char *id)
{
	struct archive *a;

	list_foreach (a, &svc->archives, link)
		if (a->state != ARCHIVE_CLOSING && !a->dead && !strcmp(a->id, id))
			return a;
	a = xnew(struct archive);
	a->service = svc;
	a->id = xstrdup(id);
	list_init(&a->waiting);
	list_append(&svc->archives, &a->link);
	return a;
}

struct file_call *service_archive(struct service *svc, const char *id,
				  const struct file_request *rq, const struct file_events *events,
				  void *ctx)
{
	struct archive *a = find(svc, id);
	struct file_call *f = xnew(struct file_call);

	*f = (struct file_call){ .service = svc,
				 .archive = a,
				 .rq = *rq,
				 .events = events,
				 .ctx = ctx,
				 .target = xstrdup(rq->path),
				 .started_us = now_us() };
	list_init(&f->waiting);
	loop_timer_clear(&a->keep);
	a->calls++;
	list_append(&a->waiting, &f->waiting);
	if (a->state == ARCHIVE_OPEN) {
		loop_later_add(svc->loop, &a->begin, on_begin, a);
		return f;
	}
	if (svc->n_archives >= OPEN_MAX)
		make_room(svc);
	open_queued(svc);
	return f;
}

void archives_free(struct service *svc)
{
	struct archive *a;

	/* Their environments end with the provider. */
	list_foreach (a, &svc->archives, link)
		archive_free(a);
}

/* ---- what is kept ---- */

struct kept_wait {
	struct service *service;
	char *forgotten; /* the name, or NULL */
	kept_row row;
	plain_done done;
	void *ctx;
};

static void on_kept(void *ctx, const struct kept_files *k)
{
	struct kept_wait *w = ctx;
	const struct kept_info info = { .id = k->id,
					.bytes = k->bytes,
					.files = k->files,
					.used_at = (double)k->used_ms / 1000.0,
					.partial = k->partial,
					.open = find_session(w->service, k->id) };

	if (w->row)
		w->row(w->ctx, &info);
}

static void on_done(void *ctx, const struct garret_error *err)
{
	struct kept_wait *w = ctx;
	struct refusal no = { 0 };

	if (w->forgotten && (!err || err->code == GARRET_NOT_FOUND)) {
		runs_purge(w->service, w->forgotten);
		if (!map_find(&w->service->by_id, w->forgotten))
			owners_purged(w->service, w->forgotten);
	}
	if (err)
		refuse(&no, garret_code_http(err->code), NULL, "%s", err->msg);
	w->done(w->ctx, &no);
	free(w->forgotten);
	free(w);
}

void service_kept(struct service *svc, kept_row row, plain_done done, void *ctx)
{
	struct kept_wait *w = xnew(struct kept_wait);

	*w = (struct kept_wait){ .service = svc, .row = row, .done = done, .ctx = ctx };
	svc->ops->kept(svc->provider, true, on_kept, on_done, w);
}

void service_forget(struct service *svc, const char *id, plain_done done, void *ctx)
{
	struct kept_wait *w = xnew(struct kept_wait);

	*w = (struct kept_wait){
		.service = svc, .forgotten = xstrdup(id), .done = done, .ctx = ctx
	};
	svc->ops->forget(svc->provider, id, BOX_FORGET_ALL, 0, on_done, w);
}
