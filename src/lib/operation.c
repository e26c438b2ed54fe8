/* What every operation passes: the rules of its handle, and the record that they keep. */
#include <string.h>

#include "base/mem.h"
#include "base/time.h"
#include "lib/workspace.h"

static const struct {
	const char *name;
	bool changes;
} table[GARRET_OPERATIONS] = {
#define X(name, text, changes) [GARRET_OP_##name] = { text, changes },
	GARRET_OPERATION_MAP(X)
#undef X
};

const char *garret_operation_name(enum garret_operation op)
{
	return (unsigned)op < GARRET_OPERATIONS ? table[op].name : "unknown";
}

bool garret_operation_changes(enum garret_operation op)
{
	return (unsigned)op < GARRET_OPERATIONS && table[op].changes;
}

static int confine(const struct garret_workspace *w, struct operation *op, struct garret_error *err)
{
	const struct garret_provider *p = w->backend->provider;
	const unsigned can = p ? p->kind->abilities : 0;

	if (!p)
		return 0; /* it says itself that it is gone */
	op->confined = true;
	if (op->kind == GARRET_OP_RUN && !(can & GARRET_ISOLATES))
		return garret_fail(
			err, GARRET_OUTSIDE,
			"commands of provider %s can't be confined: nothing isolates them",
			p->name);
	return 0; /* whether files can be is known when it is open: call.c */
}

static int ask(const struct garret_workspace *w, const struct layer *l, struct operation *op,
	       struct garret_error *err)
{
	switch (l->kind) {
	case LAYER_READ_ONLY:
		if (!table[op->kind].changes)
			return 0;
		return garret_fail(err, GARRET_READ_ONLY, "%s: the workspace is read-only",
				   table[op->kind].name);
	case LAYER_CONFINED:
		return confine(w, op, err);
	case LAYER_GUARDED:
		return l->guard(l->data, op->kind, op->path, err);
	default:
		return 0;
	}
}

int operation_begin(struct garret_workspace *w, struct operation *op, struct garret_error *err)
{
	op->begun_us = now_us();
	op->exit_code = -1;
	for (const struct layer *l = w->top; l; l = l->inner) {
		int rc = ask(w, l, op, err);

		if (rc < 0) {
			op->refused = l;
			return rc;
		}
	}
	return 0;
}

int operation_end(struct garret_workspace *w, struct operation *op, int rc)
{
	const struct garret_record r = {
		.size = sizeof(r),
		.operation = op->kind,
		.path = op->path,
		.to = op->to,
		.command = op->command,
		.bytes = op->bytes,
		.exit_code = op->exit_code,
		.code = rc < 0 ? (enum garret_code) - rc : GARRET_OK,
		.seconds = (double)(now_us() - op->begun_us) / 1e6,
		.pattern = op->pattern,
		.include = op->include,
		.flags = op->search_flags,
		.results = op->results,
	};

	for (const struct layer *l = w->top; l && l != op->refused; l = l->inner)
		if (l->kind == LAYER_RECORDING)
			l->record(l->data, &r);
	return rc;
}
