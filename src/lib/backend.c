#include "lib/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"

#define BUSY_STEP_MS 20

/* ---- making and finding ---- */

static struct backend *backend_new(struct garret_context *c)
{
	struct backend *b = xnew(struct backend);

	b->context = c;
	b->refs = 1;
	b->settled = true;
	list_init(&b->link);
	c->users++;
	return b;
}

struct backend *backend_find(struct garret_provider *p, const char *id)
{
	struct backend *b;

	list_foreach (b, &p->backends, link)
		if (b->has_ref && !b->dead && !strcmp(b->ref.id, id))
			return b;
	return NULL;
}

struct backend *backend_get(struct garret_provider *p, const struct garret_ref *ref)
{
	const char *name = ref ? ref->id : p->kind->named(p->options);
	struct backend *b = NULL, *at;

	if (ref)
		b = backend_find(p, ref->id);
	/* Those without a ref share the one of the name; who has a ref makes none. */
	if (!ref && name)
		list_foreach (at, &p->backends, link)
			if (!at->dead && (!at->attach || at->box) && !strcmp(at->id, name))
				b = at;
	if (b) {
		backend_hold(b);
		return b;
	}
	b = backend_new(p->context);
	b->provider = p;
	b->ends = p->kind->ends(p->options);
	provider_hold(p);
	list_append(&p->backends, &b->link);
	if (name)
		(void)snprintf(b->id, sizeof(b->id), "%s", name);
	if (ref) {
		b->ref = *ref;
		b->has_ref = b->attach = true;
	}
	return b;
}

struct backend *backend_unavailable(struct garret_context *c, const char *reason, bool none)
{
	struct backend *b = backend_new(c);

	b->reason = xstrdup(reason);
	b->none = none;
	return b;
}

unsigned backend_abilities(const struct backend *b)
{
	const struct provider_kind *kind = b->provider->kind;

	return kind->abilities | (kind->more && b->box ? kind->more(b) : 0);
}

/* One that went on without a handle was the provider's alone; a handle holds the provider. */
void backend_hold(struct backend *b)
{
	if (!b->refs && b->provider)
		provider_hold(b->provider);
	b->refs++;
}

static void backend_free(struct backend *b)
{
	struct garret_provider *p = b->provider;

	list_remove(&b->link);
	b->context->users--;
	free(b->working_dir);
	free(b->reason);
	free(b);
	if (p)
		provider_drop(p);
}

/* ---- closing ---- */

struct closing {
	struct list link; /* provider.closings */
	char id[GARRET_ID_MAX];
	struct garret_provider *provider;
	box_done_fn done;
	void *ctx;
};

static void on_closed(void *ctx, const struct garret_error *err)
{
	struct closing *c = ctx;

	c->provider->closing--;
	list_remove(&c->link);
	if (c->done)
		c->done(c->ctx, err);
	free(c);
}

void backend_close(struct backend *b, enum box_close how, box_done_fn done, void *ctx)
{
	struct closing *c = xnew(struct closing);

	*c = (struct closing){ .provider = b->provider, .done = done, .ctx = ctx };
	(void)snprintf(c->id, sizeof(c->id), "%s", b->has_ref ? b->ref.id : b->id);
	list_append(&b->provider->closings, &c->link);
	b->provider->closing++;
	b->provider->ops->close(b->box, how, on_closed, c);
	b->box = NULL;
	b->dead = true;
}

bool backend_closes(struct garret_provider *p, const char *id)
{
	struct closing *c;

	list_foreach (c, &p->closings, link)
		if (!strcmp(c->id, id))
			return true;
	return false;
}

void backend_drop(struct backend *b)
{
	struct garret_provider *p = b->provider;

	if (--b->refs)
		return;
	if (b->box && p->kind->goes_on)
		backend_close(b, BOX_CLOSE_LEAVE, NULL, NULL);
	else if (b->box && (b->dead || b->ends))
		backend_close(b, BOX_CLOSE_PLAIN, NULL, NULL);
	/* One that goes on is found again by its ref; it is the provider's now. */
	if (!b->box)
		backend_free(b);
	else
		provider_drop(p);
}

/* ---- opening ---- */

static void settle(struct backend *b)
{
	b->settled = true;
	b->context->openings--;
	b->opening = NULL;
	b->asking = NULL;
	backend_drop(b); /* the opening held it */
}

static void on_died(void *ctx)
{
	struct backend *b = ctx;

	b->dead = true;
}

/* The create call has returned: whatever fails now, the environment is there. */
static void on_named(void *ctx, const char *id)
{
	struct backend *b = ctx;

	if (b->has_ref)
		return;
	(void)snprintf(b->ref.provider, sizeof(b->ref.provider), "%s", b->provider->name);
	(void)snprintf(b->ref.id, sizeof(b->ref.id), "%s", id);
	b->has_ref = b->attach = true;
}

static void opened(struct backend *b)
{
	b->box = b->opening;
	if (b->provider->kind->opened)
		b->provider->kind->opened(b->provider, b);
	settle(b);
}

/* It is open, and yet of no use now. */
static void give_back(struct backend *b)
{
	backend_close(b, b->provider->kind->goes_on ? BOX_CLOSE_LEAVE : BOX_CLOSE_PLAIN, NULL,
		      NULL);
	b->dead = b->open_error.code == GARRET_GONE;
	settle(b);
}

static void on_work_dir(void *ctx, const struct file_end *end, const struct garret_error *err)
{
	struct backend *b = ctx;

	b->asking = NULL;
	if (err || !end->path || *end->path != '/') {
		if (err)
			b->open_error = *err;
		else
			(void)garret_fail(&b->open_error, GARRET_PROTOCOL,
					  "the working directory has no path");
		b->box = b->opening;
		give_back(b);
		return;
	}
	b->working_dir = xstrdup(end->path);
	opened(b);
}

static const struct file_events work_dir_events = { .end = on_work_dir };

/* The last thing to know of a box: where its files are. */
static void ask_work_dir(struct backend *b, struct box *box)
{
	struct file_request rq = { .op = FILE_REALPATH, .to = "", .pattern = "", .include = "" };
	struct box_spec spec = { 0 };

	b->box = NULL;
	b->opening = box;
	if (b->working_dir) {
		opened(b);
		return;
	}
	b->provider->kind->spec(b->provider, &spec);
	rq.path = b->provider->ops->work_dir ? b->provider->ops->work_dir(box) : spec.work_dir;
	b->asking = b->provider->ops->file(box, &rq, &work_dir_events, b, &b->open_error);
	if (!b->asking) {
		b->box = box;
		give_back(b);
	}
}

static void ask_again(struct loop_timer *t);

/* What is just ending is waited for; what is somebody else's is not for long. */
static bool is_busy(struct backend *b, const struct garret_error *err)
{
	const unsigned wait = b->provider->kind->busy_ms;

	if (!wait || err->code != GARRET_CONFLICT)
		return false;
	if (!b->busy_until_ms)
		b->busy_until_ms = now_ms() + wait;
	if (now_ms() >= b->busy_until_ms)
		return false;
	loop_timer_set(b->context->loop, &b->again, now_ms() + BUSY_STEP_MS, ask_again, b);
	return true;
}

static void on_opened(void *ctx, struct box *box, const struct garret_error *err)
{
	struct backend *b = ctx;

	if (err && is_busy(b, err))
		return;
	if (err) {
		b->open_error = *err;
		/* What was there once is gone; it is never made anew. */
		if (b->attach && err->code == GARRET_NOT_FOUND)
			(void)garret_fail(&b->open_error, GARRET_GONE, "%s \"%s\" no longer exists",
					  b->provider->name, b->ref.id);
		settle(b);
		return;
	}
	on_named(b, b->id);
	b->provider->ops->watch(box, on_died, b);
	ask_work_dir(b, box);
}

void backend_found(struct backend *b, struct box *box)
{
	b->box = box;
	b->provider->ops->watch(box, on_died, b);
}

static int make_id(struct backend *b, struct garret_error *err)
{
	const bool hex = b->provider->kind->hex_ids;
	uint8_t random[16];

	if (b->id[0])
		return 0;
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return garret_fail_errno(err, "random bytes");
	hex_encode(random, hex ? 16 : 8, stpcpy(b->id, hex ? "" : "s-"));
	return 0;
}

static void ask(struct backend *b)
{
	struct box_spec spec = { 0 };

	b->provider->kind->spec(b->provider, &spec);
	spec.id = b->id;
	spec.runs = b->id;
	spec.attach = b->attach;
	spec.ref = b->attach ? b->ref.id : NULL;
	spec.named = on_named;
	spec.named_ctx = b;
	b->provider->ops->open(b->provider->impl, &spec, on_opened, b);
}

static void ask_again(struct loop_timer *t)
{
	ask(t->ctx);
}

static int begin(struct backend *b, struct garret_error *err)
{
	int rc = make_id(b, err);

	if (rc < 0)
		return rc;
	memset(&b->open_error, 0, sizeof(b->open_error));
	b->busy_until_ms = 0;
	b->settled = false;
	b->context->openings++;
	backend_hold(b);
	ask(b);
	return 0;
}

static void look(struct loop_later *l)
{
	struct backend *b = l->ctx;

	ask_work_dir(b, b->box);
}

int backend_open(struct backend *b, const struct garret_cancel *cancel, struct garret_error *err)
{
	int rc;

	if (!b->provider)
		return garret_fail(err, GARRET_GONE, "%s", b->reason);
	rc = cancel_asked(cancel) ? garret_fail(err, GARRET_CANCELLED, "cancelled")
				  : provider_start(b->provider, cancel, err);
	if (rc < 0)
		return rc;
	if (!b->box && !b->dead && b->settled) {
		rc = begin(b, err);
		if (rc < 0)
			return rc;
	} else if (b->box && !b->working_dir && b->settled && !b->dead) {
		b->settled = false;
		b->context->openings++;
		backend_hold(b);
		loop_later_add(b->context->loop, &b->look, look, b);
	}
	rc = context_wait(b->context, &b->settled, cancel, 0, err);
	if (rc < 0)
		return rc; /* the opening goes on, and keeps its ref */
	if (b->dead)
		return garret_fail(err, GARRET_GONE, "%s \"%s\" is gone", b->provider->name,
				   b->has_ref ? b->ref.id : b->id);
	if (b->box)
		return 0;
	if (err)
		*err = b->open_error;
	return -(int)b->open_error.code;
}
