/* Workspaces that are a document: in memory, in a file, or in the caller's store. */
#include <nettle/sha2.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "garret/workspace.h"
#include "lib/backend.h"
#include "provider/state.h"

static const struct option_row options[] = {
	{ "file", OPTION_PATH, NULL, "the document is this file" },
	{ "max_bytes", OPTION_SIZE, NULL, "of the document as JSON: files and directories" },
	{ NULL, OPTION_TEXT, NULL, NULL },
};

struct state {
	struct state_store file;
};

/* A file is always the same workspace, in every process that opens it. */
static int state_check(struct garret_options *o, struct garret_error *err)
{
	const char *file = option_text(o, "file");
	struct sha256_ctx ctx;
	uint8_t digest[16];

	if (file && o->store.size)
		return garret_fail(err, GARRET_INVALID, "file and a store: one of them");
	if (!file)
		return 0;
	sha256_init(&ctx);
	sha256_update(&ctx, strlen(file), (const uint8_t *)file);
	sha256_digest(&ctx, sizeof(digest), digest);
	hex_encode(digest, sizeof(digest), o->id);
	return 0;
}

static bool state_owns(const struct garret_options *o, const char *id)
{
	return o->id[0] ? !strcmp(o->id, id) : name_valid(id);
}

static const char *state_named(const struct garret_options *o)
{
	return o->id[0] ? o->id : NULL;
}

static bool state_ends(const struct garret_options *o)
{
	(void)o;
	return false;
}

static void state_spec(struct garret_provider *p, struct box_spec *spec)
{
	(void)p;
	spec->work_dir = "/";
}

/* ---- the caller's store ---- */

static int caller_load(void *ctx, const char *id, char **ret, size_t *ret_n, uint64_t *ret_version)
{
	const struct garret_store *s = ctx;

	return s->load(s->data, id, ret, ret_n, ret_version);
}

static int caller_save(void *ctx, const char *id, const char *text, size_t n, uint64_t version,
		       uint64_t *ret_version)
{
	const struct garret_store *s = ctx;

	return s->save(s->data, id, text, n, version, ret_version);
}

static int caller_remove(void *ctx, const char *id)
{
	const struct garret_store *s = ctx;

	return s->remove(s->data, id);
}

static int caller_version(void *ctx, const char *id, uint64_t *ret)
{
	const struct garret_store *s = ctx;

	return s->version(s->data, id, ret);
}

static int state_start(struct garret_provider *p, const struct garret_cancel *cancel,
		       struct garret_error *err)
{
	struct state_config config = { .loop = p->context->loop,
				       .max_bytes = option_size(p->options, "max_bytes") };
	const char *file = option_text(p->options, "file");
	struct state *s = xnew(struct state);
	int rc = 0;

	(void)cancel;
	if (file)
		rc = state_file_store(file, &s->file, err);
	if (rc < 0) {
		free(s);
		return rc;
	}
	if (file)
		config.store = s->file;
	else if (p->options->store.size)
		config.store =
			(struct state_store){ .ctx = &p->options->store,
					      .load = caller_load,
					      .save = caller_save,
					      .remove = caller_remove,
					      .version = p->options->store.version ? caller_version
										   : NULL };
	p->own = s;
	p->ops = &state_ops;
	p->impl = state_new(&config);
	return 0;
}

static void state_stop(struct garret_provider *p)
{
	struct state *s = p->own;
	struct backend *b;

	list_foreach (b, &p->backends, link)
		if (b->box)
			backend_close(b, BOX_CLOSE_PLAIN, NULL, NULL);
	(void)context_wait_for(p->context, provider_is_idle, p, NULL, 0, NULL);
	p->impl = state_free(p->impl);
	state_file_store_free(&s->file);
	free(s);
}

const struct provider_kind state_kind = {
	.name = "state",
	.options = options,
	.takes_store = true,
	.hex_ids = true,
	.abilities = GARRET_HAS_FILES | GARRET_HAS_CONFINED,
	.check = state_check,
	.owns = state_owns,
	.named = state_named,
	.start = state_start,
	.stop = state_stop,
	.spec = state_spec,
	.ends = state_ends,
};
