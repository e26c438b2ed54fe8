#include "lib/workspace.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/call.h"

static void layer_drop(struct layer *l)
{
	while (l && !--l->refs) {
		struct layer *inner = l->inner;

		for (size_t i = 0; i < l->n_rules; i++)
			free((char *)(uintptr_t)l->rules[i].path);
		free(l->rules);
		free(l);
		l = inner;
	}
}

struct garret_workspace *workspace_new(struct backend *b)
{
	struct garret_workspace *w = xnew(struct garret_workspace);

	w->backend = b;
	return w;
}

struct garret_workspace *workspace_wrap(const struct garret_workspace *w, struct layer *layer)
{
	struct garret_workspace *n;

	backend_hold(w->backend);
	n = workspace_new(w->backend);
	n->cancel = w->cancel;
	n->top = w->top;
	if (w->top)
		w->top->refs++;
	if (layer) {
		layer->refs = 1;
		layer->inner = n->top;
		n->top = layer;
	}
	return n;
}

bool workspace_has(const struct garret_workspace *w, enum layer_kind kind)
{
	for (const struct layer *l = w->top; l; l = l->inner)
		if (l->kind == kind)
			return true;
	return false;
}

struct garret_workspace *garret_workspace_dup(struct garret_workspace *w)
{
	struct garret_workspace *n;

	if (context_enter(w->backend->context, NULL) < 0)
		return NULL;
	n = workspace_wrap(w, NULL);
	context_leave(w->backend->context);
	return n;
}

struct garret_workspace *garret_workspace_free(struct garret_workspace *w)
{
	struct garret_context *c;

	if (!w)
		return NULL;
	c = w->backend->context;
	/* In a child of fork() what is shared with the parent is left alone. */
	if (context_enter(c, NULL) == 0) {
		layer_drop(w->top);
		backend_drop(w->backend);
		context_leave(c);
	}
	free(w);
	return NULL;
}

void garret_workspace_set_cancel(struct garret_workspace *w, struct garret_cancel *cancel)
{
	w->cancel = cancel;
}

int garret_workspace_ref(struct garret_workspace *w, struct garret_ref *ret)
{
	struct backend *b = w->backend;
	int rc = context_enter(b->context, NULL);

	memset(ret, 0, sizeof(*ret));
	if (rc < 0)
		return -GARRET_MISUSE;
	if (b->has_ref)
		*ret = b->ref;
	rc = b->has_ref ? 0 : -GARRET_NOT_FOUND;
	context_leave(b->context);
	return rc;
}

int garret_workspace_abilities(struct garret_workspace *w, unsigned *ret, struct garret_error *err)
{
	int rc;

	*ret = 0;
	if (!w->backend->provider)
		return garret_fail(err, GARRET_GONE, "%s", w->backend->reason);
	/* Some are known of an open one only. */
	if (w->backend->provider->kind->more) {
		rc = garret_workspace_ensure(w, err);
		if (rc < 0)
			return rc;
	}
	rc = context_enter(w->backend->context, err);
	if (rc < 0)
		return rc;
	*ret = backend_abilities(w->backend);
	context_leave(w->backend->context);
	return 0;
}

bool garret_workspace_read_only(const struct garret_workspace *w)
{
	return workspace_has(w, LAYER_READ_ONLY);
}

bool garret_workspace_attached(const struct garret_workspace *w)
{
	return w->backend->provider != NULL;
}

bool garret_workspace_same(const struct garret_workspace *a, const struct garret_workspace *b)
{
	return a->backend == b->backend;
}

static int ensure(struct garret_workspace *w, char **ret_dir, struct garret_error *err)
{
	struct operation op = { .kind = GARRET_OP_WORKING_DIR };
	struct backend *b = w->backend;
	int rc = operation_begin(w, &op, err);

	if (rc == 0)
		rc = context_enter(b->context, err);
	if (rc == 0) {
		rc = backend_open(b, w->cancel, err);
		if (rc == 0 && ret_dir)
			*ret_dir = xstrdup(b->working_dir);
		context_leave(b->context);
	}
	return operation_end(w, &op, rc);
}

int garret_workspace_ensure(struct garret_workspace *w, struct garret_error *err)
{
	return ensure(w, NULL, err);
}

int garret_working_dir(struct garret_workspace *w, char **ret, struct garret_error *err)
{
	*ret = NULL;
	return ensure(w, ret, err);
}

int garret_resolve(struct garret_workspace *w, const char *path, const char *base, char **ret,
		   struct garret_error *err)
{
	int rc = path_check("path", path, err);
	char *dir = NULL;

	*ret = NULL;
	if (rc == 0 && base)
		rc = path_check("base", base, err);
	if (rc == 0 && base && *base != '/')
		rc = garret_fail(err, GARRET_INVALID, "base: an absolute path");
	if (rc == 0 && !base && *path != '/') {
		rc = garret_working_dir(w, &dir, err);
		base = dir;
	}
	if (rc == 0)
		*ret = path_normal(base ? base : "/", path);
	free(dir);
	return rc;
}

int garret_realpath(struct garret_workspace *w, const char *path, char **ret,
		    struct garret_error *err)
{
	struct file_call call = { .kind = GARRET_OP_REALPATH, .path = path };
	int rc;

	call.rq.op = FILE_REALPATH;
	rc = file_call(w, &call, err);
	*ret = rc == 0 ? xstrdup(call.end_path) : NULL;
	file_call_release(&call);
	return rc;
}
