#include "provider/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "provider/state_impl.h"

#define BODY_MAX (256u << 20)
#define PIECE (64u << 10)
#define TRIES 8

/* ---- documents ---- */

static struct state_held *find_held(struct provider *p, const char *id)
{
	struct state_held *h;

	list_foreach (h, &p->docs, link)
		if (!h->removed && !strcmp(h->id, id))
			return h;
	return NULL;
}

static void held_free(struct state_held *h)
{
	list_remove(&h->link);
	state_doc_free(h->doc);
	free(h);
}

static struct state_held *held_new(struct provider *p, const char *id, struct state_doc *doc)
{
	struct state_held *h = xnew(struct state_held);

	(void)stpncpy(h->id, id, sizeof(h->id) - 1);
	h->doc = doc;
	list_append(&p->docs, &h->link);
	return h;
}

static int read_store(struct provider *p, const char *id, struct state_doc **ret,
		      uint64_t *ret_version, struct garret_error *err)
{
	char *text = NULL;
	size_t n = 0;
	int rc = p->store.load(p->store.ctx, id, &text, &n, ret_version);

	*ret = NULL;
	if (rc == -GARRET_NOT_FOUND)
		return garret_fail(err, GARRET_NOT_FOUND, "there is no document %s", id);
	if (rc < 0)
		return garret_fail(err, (enum garret_code) - rc, "the document can't be read");
	rc = state_doc_load(text, n, ret, err);
	free(text);
	return rc;
}

static int write_store(struct provider *p, struct state_held *h, struct garret_error *err)
{
	struct strbuf text = STRBUF_INIT;
	int rc;

	state_doc_save(h->doc, &text);
	rc = p->store.save(p->store.ctx, h->id, text.buf, text.len, h->version, &h->version);
	strbuf_release(&text);
	if (rc < 0)
		(void)garret_fail(err, (enum garret_code) - rc, "the document can't be saved");
	return rc;
}

/* ---- boxes ---- */

static struct box *box_new(struct provider *p, struct state_held *h)
{
	struct box *b = xnew(struct box);

	b->p = p;
	b->held = h;
	if (h)
		h->boxes++;
	list_init(&b->files);
	return b;
}

static void box_free(struct box *b)
{
	struct state_held *h = b->held;

	if (h && !--h->boxes && (h->removed || b->p->store.load))
		held_free(h); /* in memory it stays, for who attaches to it again */
	free(b);
}

static void tell_opened(struct loop_later *l)
{
	struct box *b = l->ctx;
	const bool failed = b->error.code;

	b->opened(b->opened_ctx, failed ? NULL : b, failed ? &b->error : NULL);
	if (failed)
		box_free(b);
}

/* What is there, or with attach NOT_FOUND, or a new one. */
static int find_or_make(struct provider *p, const struct box_spec *spec, struct state_held **ret,
			struct garret_error *err)
{
	struct state_doc *doc = NULL;
	uint64_t version = 0;
	int rc;

	*ret = find_held(p, spec->id);
	if (*ret)
		return 0;
	rc = p->store.load
		     ? read_store(p, spec->id, &doc, &version, err)
		     : garret_fail(err, GARRET_NOT_FOUND, "there is no document %s", spec->id);
	if (rc < 0 && (rc != -GARRET_NOT_FOUND || spec->attach))
		return rc;
	*ret = held_new(p, spec->id, doc ? doc : state_doc_new());
	(*ret)->version = version;
	if (doc || !p->store.load)
		return 0;
	rc = write_store(p, *ret, err);
	if (rc < 0) {
		held_free(*ret);
		*ret = NULL;
	}
	return rc;
}

static void state_open(struct provider *p, const struct box_spec *spec, box_opened_fn done,
		       void *ctx)
{
	struct garret_error err = { 0 };
	struct state_held *h = NULL;
	struct box *b;

	(void)find_or_make(p, spec, &h, &err);
	b = box_new(p, h);
	if (!h)
		b->error = err;
	b->opened = done;
	b->opened_ctx = ctx;
	if (h && spec->named)
		spec->named(spec->named_ctx, spec->id);
	loop_later_add(p->loop, &b->later, tell_opened, b);
}

static void state_watch(struct box *b, box_died_fn died, void *ctx)
{
	b->died = died;
	b->died_ctx = ctx;
}

static const char *state_work_dir(const struct box *b)
{
	(void)b;
	return "/";
}

static int remove_doc(struct provider *p, const char *id, struct garret_error *err)
{
	struct state_held *h = find_held(p, id);
	int rc = p->store.remove ? p->store.remove(p->store.ctx, id) : 0;

	if (rc < 0 && rc != -GARRET_NOT_FOUND)
		return garret_fail(err, (enum garret_code) - rc, "the document can't be removed");
	if (!h)
		return p->store.remove
			       ? 0
			       : garret_fail(err, GARRET_NOT_FOUND, "there is no document %s", id);
	h->removed = true;
	if (!h->boxes)
		held_free(h);
	return 0;
}

static void tell_closed(struct loop_later *l)
{
	struct box *b = l->ctx;

	b->closed(b->closed_ctx, b->error.code ? &b->error : NULL);
	box_free(b);
}

static void file_fail_all(struct box *b);

static void state_close(struct box *b, enum box_close how, box_done_fn done, void *ctx)
{
	file_fail_all(b);
	b->closed = done;
	b->closed_ctx = ctx;
	if (how == BOX_CLOSE_PURGE && !b->held->removed)
		(void)remove_doc(b->p, b->held->id, &b->error);
	loop_later_add(b->p->loop, &b->later, tell_closed, b);
}

struct forget_wait {
	struct loop_later later;
	struct garret_error err;
	box_done_fn done;
	void *ctx;
};

static void tell_forgotten(struct loop_later *l)
{
	struct forget_wait *w = l->ctx;

	w->done(w->ctx, w->err.code ? &w->err : NULL);
	free(w);
}

static void state_forget(struct provider *p, const char *id, enum box_forget what, uint64_t used_ms,
			 box_done_fn done, void *ctx)
{
	struct forget_wait *w = xnew(struct forget_wait);

	(void)what;
	(void)used_ms;
	w->done = done;
	w->ctx = ctx;
	(void)remove_doc(p, id, &w->err);
	loop_later_add(p->loop, &w->later, tell_forgotten, w);
}

/* ---- the store behind a change ---- */

int state_refresh(struct box *b, bool always, struct garret_error *err)
{
	struct state_held *h = b->held;
	struct state_doc *doc;
	uint64_t version;
	int rc;

	if (h->removed)
		return garret_fail(err, GARRET_GONE, "the document %s is gone", h->id);
	if (!b->p->store.load)
		return 0;
	always = always || h->stale;
	rc = !always && b->p->store.version ? b->p->store.version(b->p->store.ctx, h->id, &version)
					    : 0;
	if (rc == 0 && !always && (!b->p->store.version || version == h->version))
		return 0;
	if (rc == 0)
		rc = read_store(b->p, h->id, &doc, &version, err);
	if (rc == -GARRET_NOT_FOUND) {
		h->removed = true;
		return garret_fail(err, GARRET_GONE, "the document %s is gone", h->id);
	}
	if (rc < 0)
		return err && err->code ? rc
					: garret_fail(err, (enum garret_code) - rc,
						      "the document can't be looked at");
	state_doc_free(h->doc);
	h->doc = doc;
	h->version = version;
	h->stale = false;
	return 0;
}

/* What is at a path, to be compared later: nothing, a directory, or the bytes of a file. */
static void snapshot(const struct state_doc *d, const char *path, struct strbuf *out)
{
	const struct state_node *n = *path ? state_doc_find(d, path) : NULL;

	strbuf_addch(out, !n ? '-' : n->dir ? 'd' : 'f');
	if (n && !n->dir)
		strbuf_add(out, n->content, n->n);
}

static void snapshot_both(const struct box_file *f, struct strbuf *out)
{
	strbuf_reset(out);
	snapshot(f->box->held->doc, f->path, out);
	snapshot(f->box->held->doc, f->to, out);
}

int state_change(struct box_file *f, int (*change)(struct box_file *f, struct garret_error *err),
		 struct garret_error *err)
{
	struct strbuf before = STRBUF_INIT, now = STRBUF_INIT;
	struct box *b = f->box;
	int rc;

	if (!b->p->store.load)
		return change(f, err);
	snapshot_both(f, &before);
	for (int tries = 0;; tries++) {
		rc = change(f, err);
		if (rc == 0)
			rc = write_store(b->p, b->held, err);
		if (rc == 0)
			break;
		/* What is in memory was not saved: from here on it is what the store has. */
		b->held->stale = true;
		if (state_refresh(b, true, rc == -GARRET_CHANGED ? err : NULL) < 0 ||
		    rc != -GARRET_CHANGED || tries == TRIES)
			break;
		snapshot_both(f, &now);
		if (now.len != before.len || memcmp(now.buf, before.buf, now.len) != 0) {
			rc = garret_fail(err, GARRET_CHANGED, "%s was changed meanwhile", f->path);
			break;
		}
	}
	strbuf_release(&before);
	strbuf_release(&now);
	return rc;
}

/* ---- file operations ---- */

static void file_free(struct box_file *f)
{
	loop_later_cancel(f->box->p->loop, &f->later);
	list_remove(&f->link);
	strbuf_release(&f->body);
	strbuf_release(&f->out);
	free(f->path);
	free(f->to);
	free(f->pattern);
	free(f->include);
	free(f->end_path);
	free(f);
}

static void file_end(struct box_file *f)
{
	const struct file_events *events = f->events;
	void *ctx = f->ctx;
	struct file_end end = f->end;
	char *path = f->end_path;
	struct garret_error err = f->error;

	f->end_path = NULL;
	end.path = path ? path : "";
	end.msg = err.msg;
	end.code = err.code;
	file_free(f);
	events->end(ctx, &end, err.code ? &err : NULL);
	free(path);
}

static void file_fail_all(struct box *b)
{
	while (!list_empty(&b->files)) {
		struct box_file *f = list_entry(b->files.next, struct box_file, link);

		(void)garret_fail(&f->error, GARRET_GONE, "the document %s was closed",
				  b->held->id);
		file_end(f);
	}
}

static bool has_body(const struct box_file *f)
{
	return f->rq.op == FILE_WRITE || f->rq.op == FILE_EDIT || f->rq.op == FILE_TAR_IN;
}

/* One piece of what is to be told in a round: who pauses is asked again. */
static void go_on(struct loop_later *l)
{
	struct box_file *f = l->ctx;

	if (!f->carried_out) {
		if (has_body(f) && !f->body_ended)
			return;
		f->carried_out = true;
		(void)state_carry_out(f, &f->error);
	}
	if (f->paused)
		return;
	if (!f->error.code && f->out_at < f->out.len) {
		const size_t n = MIN(f->out.len - f->out_at, (size_t)PIECE);

		f->out_at += n;
		loop_later_add(f->box->p->loop, &f->later, go_on, f);
		if (f->events->data)
			f->events->data(f->ctx, f->out.buf + f->out_at - n, n);
		return;
	}
	file_end(f);
}

static struct box_file *state_file(struct box *b, const struct file_request *rq,
				   const struct file_events *events, void *ctx,
				   struct garret_error *err)
{
	struct box_file *f;

	if (b->held->removed) {
		(void)garret_fail(err, GARRET_GONE, "the document %s is gone", b->held->id);
		return NULL;
	}
	f = xnew(struct box_file);
	f->box = b;
	f->rq = *rq;
	f->rq.path = f->path = xstrdup(rq->path);
	f->rq.to = f->to = xstrdup(rq->to);
	f->rq.pattern = f->pattern = xstrdup(rq->pattern);
	f->rq.include = f->include = xstrdup(rq->include);
	f->events = events;
	f->ctx = ctx;
	strbuf_init(&f->body);
	strbuf_init(&f->out);
	list_append(&b->files, &f->link);
	loop_later_add(b->p->loop, &f->later, go_on, f);
	return f;
}

static size_t state_file_body(struct box_file *f, const void *data, size_t n)
{
	if (f->body.len + n > BODY_MAX)
		(void)garret_fail(&f->error, GARRET_TOO_LARGE,
				  "a document takes no file above %u bytes", BODY_MAX);
	else if (!f->error.code)
		strbuf_add(&f->body, data, n);
	return n;
}

static void state_file_body_end(struct box_file *f)
{
	f->body_ended = true;
	loop_later_add(f->box->p->loop, &f->later, go_on, f);
}

static int state_file_pipe(struct box_file *f, int *ret_fd, struct garret_error *err)
{
	(void)f;
	(void)ret_fd;
	return garret_fail(err, GARRET_UNSUPPORTED, "a document has no pipes");
}

static void state_file_pause(struct box_file *f, bool pause)
{
	f->paused = pause;
	if (!pause)
		loop_later_add(f->box->p->loop, &f->later, go_on, f);
}

static void state_file_leave(struct box_file *f)
{
	file_free(f);
}

const struct provider_ops state_ops = {
	.name = "state",
	.open = state_open,
	.watch = state_watch,
	.work_dir = state_work_dir,
	.close = state_close,
	.forget = state_forget,
	.file = state_file,
	.file_body = state_file_body,
	.file_body_end = state_file_body_end,
	.file_pipe = state_file_pipe,
	.file_pause = state_file_pause,
	.file_leave = state_file_leave,
};

struct provider *state_new(const struct state_config *config)
{
	struct provider *p = xnew(struct provider);

	p->loop = config->loop;
	p->store = config->store;
	p->max_bytes = config->max_bytes;
	list_init(&p->docs);
	return p;
}

struct provider *state_free(struct provider *p)
{
	if (!p)
		return NULL;
	while (!list_empty(&p->docs))
		held_free(list_entry(p->docs.next, struct state_held, link));
	free(p);
	return NULL;
}
