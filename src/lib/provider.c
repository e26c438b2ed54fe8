#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/sized.h"
#include "base/time.h"
#include "lib/backend.h"
#include "lib/workspace.h"

#define CLOSE_MS 10000 /* for what ends when its provider is freed */

static const struct {
	const char *name;
	const struct provider_kind *kind; /* NULL: not built in */
} kinds[] = {
#if GARRET_WITH_NATIVE
	{ "native", &native_kind },
#else
	{ "native", NULL },
#endif
#if GARRET_WITH_SANDBOXD
	{ "sandboxd", &sandboxd_kind },
#else
	{ "sandboxd", NULL },
#endif
#if GARRET_WITH_DOCKER
	{ "docker", &docker_kind },
#else
	{ "docker", NULL },
#endif
#if GARRET_WITH_STATE
	{ "state", &state_kind },
#else
	{ "state", NULL },
#endif
};

int provider_kind_find(const char *name, const struct provider_kind **ret, struct garret_error *err)
{
	for (size_t i = 0; name && i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kinds[i].name, name) != 0)
			continue;
		*ret = kinds[i].kind;
		return *ret ? 0
			    : garret_fail(err, GARRET_MISUSE,
					  "this library was built without the %s provider "
					  "(meson -Dprovider_%s=true)",
					  name, name);
	}
	return garret_fail(err, GARRET_INVALID, "there is no provider \"%.40s\"", name ? name : "");
}

/* ---- refs ---- */

static bool ref_text(const char *s, size_t cap)
{
	if (!s || !*s || strlen(s) >= cap)
		return false;
	for (; *s; s++)
		if ((unsigned char)*s < ' ')
			return false;
	return true;
}

int garret_ref_make(struct garret_ref *ret, const char *provider, const char *id,
		    struct garret_error *err)
{
	memset(ret, 0, sizeof(*ret));
	if (!ref_text(provider, sizeof(ret->provider)))
		return garret_fail(err, GARRET_INVALID,
				   "the ref's provider: 1 to %d bytes of printable text",
				   GARRET_PROVIDER_MAX - 1);
	if (!ref_text(id, sizeof(ret->id)))
		return garret_fail(err, GARRET_INVALID,
				   "the ref's id: 1 to %d bytes of printable text",
				   GARRET_ID_MAX - 1);
	memcpy(ret->provider, provider, strlen(provider));
	memcpy(ret->id, id, strlen(id));
	return 0;
}

bool garret_ref_equal(const struct garret_ref *a, const struct garret_ref *b)
{
	return !strncmp(a->provider, b->provider, sizeof(a->provider)) &&
	       !strncmp(a->id, b->id, sizeof(a->id));
}

/* One that a program filled by hand may lack its NULs. */
static int check_ref(const struct garret_provider *p, const struct garret_ref *ref,
		     struct garret_error *err)
{
	if (!memchr(ref->provider, '\0', sizeof(ref->provider)) ||
	    !memchr(ref->id, '\0', sizeof(ref->id)) || !ref_text(ref->id, sizeof(ref->id)))
		return garret_fail(err, GARRET_INVALID, "the ref isn't one");
	if (strcmp(ref->provider, p->name) != 0)
		return garret_fail(err, GARRET_INVALID,
				   "a ref of provider \"%s\" was given to provider \"%s\"",
				   ref->provider, p->name);
	return 0;
}

/* Whether it is one that the options allow; p is of a kind of ours, ref checked. */
static int check_owned(const struct garret_provider *p, const struct garret_ref *ref,
		       struct garret_error *err)
{
	if (p->kind->owns(p->options, ref->id))
		return 0;
	return garret_fail(err, GARRET_INVALID, "\"%s\" is no id of this %s provider", ref->id,
			   p->name);
}

/* ---- opening and freeing ---- */

static struct garret_provider *provider_new(struct garret_context *c, const char *name)
{
	struct garret_provider *p = xnew(struct garret_provider);

	p->refs = 1;
	p->context = c;
	memcpy(p->name, name, strlen(name)); /* checked */
	list_init(&p->backends);
	list_init(&p->closings);
	c->users++;
	return p;
}

/* The option "provider" names it, where there is one: several services of one kind. */
static const char *name_of(const struct garret_options *o)
{
	const char *name = option_text(o, "provider");

	return name ? name : o->kind->name;
}

int garret_provider_open(struct garret_context *c, const struct garret_options *o,
			 struct garret_provider **ret, struct garret_error *err)
{
	const char *name = name_of(o);
	struct garret_options *own;
	struct garret_provider *p;
	int rc;

	*ret = NULL;
	if (!ref_text(name, GARRET_PROVIDER_MAX))
		return garret_fail(err, GARRET_INVALID, "provider: 1 to %d bytes of printable text",
				   GARRET_PROVIDER_MAX - 1);
	own = options_dup(o);
	rc = o->kind->check ? o->kind->check(own, err) : 0;
	if (rc == 0)
		rc = context_enter(c, err);
	if (rc < 0) {
		garret_options_free(own);
		return rc;
	}
	p = provider_new(c, name);
	p->kind = o->kind;
	p->options = own;
	context_leave(c);
	*ret = p;
	return 0;
}

static int set_setting(struct garret_options *o, const char *setting, struct garret_error *err)
{
	const char *eq = strchr(setting, '=');
	char name[64];

	if (!eq || eq == setting || (size_t)(eq - setting) >= sizeof(name))
		return garret_fail(err, GARRET_INVALID,
				   "a setting of provider %s is written name=value", o->kind->name);
	memcpy(name, setting, (size_t)(eq - setting));
	name[eq - setting] = '\0';
	return garret_options_set(o, name, eq + 1, err);
}

int garret_provider_open_settings(struct garret_context *c, const char *provider,
				  const char *const *settings, struct garret_provider **ret,
				  struct garret_error *err)
{
	struct garret_options *o;
	int rc = garret_options_new(provider, &o, err);

	*ret = NULL;
	for (; rc == 0 && settings && *settings; settings++)
		rc = set_setting(o, *settings, err);
	if (rc == 0)
		rc = garret_provider_open(c, o, ret, err);
	garret_options_free(o);
	return rc;
}

int garret_provider_custom(struct garret_context *c, const struct garret_custom *custom,
			   struct garret_provider **ret, struct garret_error *err)
{
	struct garret_custom own = { 0 };
	struct garret_provider *p;
	int rc = sized_copy(&own, sizeof(own), custom, custom->size, err);

	*ret = NULL;
	if (rc == 0 && (!own.get || !ref_text(own.name, GARRET_PROVIDER_MAX)))
		rc = garret_fail(err, GARRET_MISUSE, "a custom provider has a name and get()");
	if (rc == 0)
		rc = context_enter(c, err);
	if (rc < 0)
		return rc;
	p = provider_new(c, own.name);
	p->custom = own;
	context_leave(c);
	*ret = p;
	return 0;
}

void provider_hold(struct garret_provider *p)
{
	p->refs++;
}

bool provider_is_idle(const void *ctx)
{
	const struct garret_provider *p = ctx;

	return !p->closing;
}

/* Nobody can ask for anything any more: what ends with its provider ends now. */
static void end_idle(struct garret_provider *p)
{
	const uint64_t until = now_ms() + CLOSE_MS;
	struct backend *b;

	list_foreach (b, &p->backends, link)
		if (b->box && p->kind->goes_on)
			backend_close(b, BOX_CLOSE_LEAVE, NULL, NULL);
		else if (b->box && (b->dead || b->ends))
			backend_close(b, BOX_CLOSE_PLAIN, NULL, NULL);
	(void)context_wait_for(p->context, provider_is_idle, p, NULL, until, NULL);
}

void provider_drop(struct garret_provider *p)
{
	struct garret_context *c = p->context;

	if (--p->refs)
		return;
	if (context_in_round(c)) {
		p->next_ended = c->ended;
		c->ended = p;
	} else {
		provider_end(p);
	}
}

void provider_end(struct garret_provider *p)
{
	/* One whose start failed half-way has something to release as well. */
	if (p->own) {
		p->refs = 1; /* what it waits for may hold it for a moment */
		end_idle(p);
		p->kind->stop(p);
		p->refs = 0;
	}
	while (!list_empty(&p->backends)) {
		struct backend *b = list_entry(p->backends.next, struct backend, link);

		list_remove(&b->link);
		p->context->users--;
		free(b->working_dir);
		free(b);
	}
	p->context->users--;
	garret_options_free(p->options);
	free(p);
}

struct garret_provider *garret_provider_free(struct garret_provider *p)
{
	struct garret_context *c;

	if (!p)
		return NULL;
	c = p->context;
	if (context_enter(c, NULL) == 0) {
		provider_drop(p);
		context_leave(c);
	}
	return NULL;
}

int provider_start(struct garret_provider *p, const struct garret_cancel *cancel,
		   struct garret_error *err)
{
	int rc = 0;

	while (p->starting && rc == 0) {
		bool done = false;

		rc = context_wait(p->context, &done, cancel, now_ms() + 5, NULL);
		if (rc == -GARRET_TIMEOUT)
			rc = 0;
	}
	if (rc < 0)
		return garret_fail(err, GARRET_CANCELLED, "cancelled");
	if (p->started)
		return 0;
	p->starting = true;
	rc = p->kind->start(p, cancel, err);
	p->starting = false;
	p->started = rc == 0;
	return rc;
}

const char *garret_provider_name(const struct garret_provider *p)
{
	return p->name;
}

/* ---- refs and workspaces ---- */

bool garret_provider_owns(const struct garret_provider *p, const struct garret_ref *ref)
{
	return check_ref(p, ref, NULL) == 0 && (!p->kind || p->kind->owns(p->options, ref->id));
}

int garret_provider_attach(struct garret_provider *p, const struct garret_ref *ref,
			   struct garret_workspace **ret, struct garret_error *err)
{
	int rc;

	*ret = NULL;
	if (!p->kind)
		return garret_fail(
			err, GARRET_MISUSE,
			"provider \"%s\" is the caller's own: ask it through garret_choose()",
			p->name);
	rc = ref ? check_ref(p, ref, err) : 0;
	if (rc == 0 && ref)
		rc = check_owned(p, ref, err);
	if (rc == 0)
		rc = context_enter(p->context, err);
	if (rc < 0)
		return rc;
	*ret = workspace_new(backend_get(p, ref));
	context_leave(p->context);
	return 0;
}

static int pin(struct backend *b, const struct garret_ref *ref, struct garret_error *err)
{
	if (b->has_ref && garret_ref_equal(&b->ref, ref))
		return 0;
	if (b->has_ref || !b->settled || b->box)
		return garret_fail(err, GARRET_MISUSE,
				   "it is open, or being opened, without that ref");
	b->ref = *ref;
	b->has_ref = b->attach = true;
	(void)snprintf(b->id, sizeof(b->id), "%s", ref->id);
	return 0;
}

int garret_workspace_pin(struct garret_workspace *w, const struct garret_ref *ref,
			 struct garret_error *err)
{
	const struct garret_provider *p = w->backend->provider;
	int rc;

	if (!p)
		return garret_fail(err, GARRET_GONE, "%s", w->backend->reason);
	rc = check_ref(p, ref, err);
	if (rc == 0)
		rc = check_owned(p, ref, err);
	if (rc == 0)
		rc = context_enter(p->context, err);
	if (rc < 0)
		return rc;
	rc = pin(w->backend, ref, err);
	context_leave(p->context);
	return rc;
}

struct removing {
	bool done;
	struct garret_error err;
};

static void on_removed(void *ctx, const struct garret_error *err)
{
	struct removing *r = ctx;

	r->done = true;
	if (err)
		r->err = *err;
}

struct closed {
	struct garret_provider *provider;
	const char *id;
};

static bool is_closed(const void *ctx)
{
	const struct closed *c = ctx;

	return !backend_closes(c->provider, c->id);
}

/* Its last handle was freed, or another thread destroys it: then only what it leaves is removed. */
static void await_closing(struct garret_provider *p, const char *id)
{
	const struct closed closed = { p, id };
	const uint64_t until = now_ms() + CLOSE_MS;

	(void)context_wait_for(p->context, is_closed, &closed, NULL, until, NULL);
}

static int destroy(struct garret_provider *p, const char *id, struct garret_error *err)
{
	struct removing r = { 0 };
	struct backend *b;
	int rc = provider_start(p, NULL, err);

	if (rc < 0)
		return rc;
	b = backend_find(p, id);
	if (b) {
		backend_hold(b);
		(void)context_wait(p->context, &b->settled, NULL, 0, NULL);
	}
	if (!b || !b->box)
		await_closing(p, id);
	if (b && b->box)
		backend_close(b, BOX_CLOSE_PURGE, on_removed, &r);
	else
		p->ops->forget(p->impl, id, BOX_FORGET_ALL, 0, on_removed, &r);
	/* Not to be given up: what was begun answers into our frame. */
	(void)context_wait(p->context, &r.done, NULL, 0, NULL);
	if (b) {
		b->dead = true;
		backend_drop(b);
	}
	if (r.err.code && r.err.code != GARRET_NOT_FOUND && r.err.code != GARRET_GONE) {
		if (err)
			*err = r.err;
		return -(int)r.err.code;
	}
	if (p->kind->forgotten)
		p->kind->forgotten(p, id);
	return 0;
}

int garret_provider_destroy(struct garret_provider *p, const struct garret_ref *ref,
			    struct garret_error *err)
{
	int rc = check_ref(p, ref, err);

	if (rc == 0 && !p->kind)
		rc = garret_fail(err, GARRET_MISUSE, "provider \"%s\" is the caller's own",
				 p->name);
	if (rc == 0)
		rc = check_owned(p, ref, err);
	if (rc == 0)
		rc = context_enter(p->context, err);
	if (rc < 0)
		return rc;
	rc = destroy(p, ref->id, err);
	context_leave(p->context);
	return rc;
}
