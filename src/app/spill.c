/*
 * Spills.  Where the workspace keeps them is asked once: below that a handle is text that needs no
 * asking, since each part of it is a plain word.
 */
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/text.h"

struct garret_app_spill {
	struct garret_app_run *run;
	struct garret_workspace *w; /* NULL: in memory */
	char *root;                 /* what the workspace resolved; NULL: not asked yet */
	struct map kept;            /* handle -> struct garret_bytes, in memory */
	size_t bytes;
};

/* ---- the list of a run ---- */

struct app_spills *app_spills_new(void)
{
	return app_spills_hold(xnew(struct app_spills));
}

struct app_spills *app_spills_hold(struct app_spills *s)
{
	s->refs++;
	return s;
}

struct app_spills *app_spills_drop(struct app_spills *s)
{
	if (s && !--s->refs) {
		for (size_t i = 0; i < s->n; i++)
			free(s->path[i]);
		free(s->path);
		free(s);
	}
	return NULL;
}

void app_spills_add(struct app_spills *s, const char *handle)
{
	s->path = xrealloc(s->path, (s->n + 2) * sizeof(*s->path));
	s->path[s->n++] = xstrdup(handle);
	s->path[s->n] = NULL;
}

/* Each once: a call may be tried again.  It is on record too, for who cleans up after a crash. */
static void list(struct garret_app_run *run, const char *handle)
{
	struct app_spills *s = run->spills;
	struct garret_error why = { 0 };
	bool added;
	size_t i = 0;

	app_lock(run->app);
	while (i < s->n && strcmp(s->path[i], handle) != 0)
		i++;
	added = i == s->n;
	if (added)
		app_spills_add(s, handle);
	app_unlock(run->app);
	if (added && app_own_spills(app_root(run), &why) < 0)
		app_event(run->app, "workspace_spill_not_recorded", "run", run->facts.run, "error",
			  garret_code_name(why.code), NULL);
}

/* ---- the store ---- */

struct garret_app_spill *garret_app_spill_new(struct garret_app_run *run)
{
	struct garret_app_spill *s = xnew(struct garret_app_spill);

	s->run = run;
	s->w = app_files_workspace(run);
	map_init(&s->kept);
	return s;
}

static void free_bytes(const char *key, void *value, void *ctx)
{
	(void)key;
	(void)ctx;
	garret_bytes_release(value);
	free(value);
}

struct garret_app_spill *garret_app_spill_free(struct garret_app_spill *s)
{
	if (!s)
		return NULL;
	map_foreach(&s->kept, free_bytes, NULL);
	map_release(&s->kept);
	free(s->root);
	free(s);
	return NULL;
}

bool app_spill_ours(const char *handle, const char *root)
{
	const char *at = handle + strlen(root);

	if (!app_below(handle, root) || !*at)
		return false;
	for (; *at; at += strcspn(at, "/")) {
		at += strspn(at, "/");
		if (strcspn(at, "/") == 2 && !memcmp(at, "..", 2))
			return false;
	}
	return true;
}

static int need_root(struct garret_app_spill *s, struct garret_error *err)
{
	if (!s->w && !s->root)
		s->root = xstrdup("/" APP_SPILLS);
	return s->root ? 0 : garret_resolve(s->w, APP_SPILLS, NULL, &s->root, err);
}

static char *handle_of(const struct garret_app_spill *s, const char *call, unsigned retry)
{
	const char *run = s->run ? s->run->facts.run : "run";
	char hash[65];

	if (name_valid(call))
		return xasprintf("%s/%s/%s.%u", s->root, run, call, retry);
	app_sha256(call, strlen(call), hash);
	/* '_' begins no plain word: nobody else's id is spelled so. */
	return xasprintf("%s/%s/_%s.%u", s->root, run, hash, retry);
}

static int keep(struct garret_app_spill *s, const char *handle, const void *data, size_t n,
		struct garret_error *err)
{
	struct garret_bytes *b = map_find(&s->kept, handle);
	const size_t before = b ? b->n : 0;

	if (n > GARRET_APP_SPILL_MEMORY - (s->bytes - before))
		return garret_fail(err, GARRET_NO_SPACE, "outputs in memory: at most %u bytes",
				   GARRET_APP_SPILL_MEMORY);
	if (!b) {
		b = xnew(struct garret_bytes);
		(void)map_set(&s->kept, handle, b);
	}
	free(b->data);
	b->data = xmalloc(n + 1);
	memcpy(b->data, n ? data : "", n);
	b->data[n] = '\0';
	b->n = n;
	s->bytes += n - before;
	return 0;
}

int garret_app_spill_write(struct garret_app_spill *s, const char *call, unsigned retry,
			   const void *data, size_t n, char **ret_handle, struct garret_error *err)
{
	autofree char *handle = NULL;
	int rc;

	*ret_handle = NULL;
	if (!call)
		return garret_fail(err, GARRET_INVALID, "call: an id is wanted, not NULL");
	rc = need_root(s, err);
	if (rc < 0)
		return rc;
	handle = handle_of(s, call, retry);
	rc = s->w ? garret_write(s->w, handle, data, n, 0, err) : keep(s, handle, data, n, err);
	if (rc < 0)
		return rc;
	if (s->w)
		list(s->run, handle);
	*ret_handle = take_ptr(&handle);
	return 0;
}

static int recall(const struct garret_app_spill *s, const char *handle, uint64_t offset,
		  size_t bytes, struct garret_bytes *ret, struct garret_error *err)
{
	const struct garret_bytes *b = map_find(&s->kept, handle);

	if (!b)
		return garret_fail(err, GARRET_NOT_FOUND, "no output is kept there");
	offset = MIN(offset, b->n);
	ret->n = MIN(bytes, b->n - offset);
	ret->data = xmalloc(ret->n + 1);
	memcpy(ret->data, b->data + offset, ret->n);
	ret->data[ret->n] = '\0';
	return 0;
}

int garret_app_spill_read(struct garret_app_spill *s, const char *handle, uint64_t offset,
			  size_t bytes, struct garret_bytes *ret, struct garret_error *err)
{
	int rc = need_root(s, err);

	memset(ret, 0, sizeof(*ret));
	if (rc < 0)
		return rc;
	if (!handle || !app_spill_ours(handle, s->root))
		return garret_fail(err, GARRET_NOT_FOUND, "no output is kept there");
	if (!s->w)
		return recall(s, handle, bytes ? offset : 0, bytes ? bytes : SIZE_MAX, ret, err);
	return bytes ? garret_read_at(s->w, handle, offset, bytes, ret, err)
		     : garret_read(s->w, handle, ret, err);
}

/* ---- reducing ---- */

void garret_app_reduced_release(struct garret_app_reduced *r)
{
	free(r->text);
	free(r->handle);
	memset(r, 0, sizeof(*r));
}

/* First what was done, so that the output can't say it; then the beginning of the output. */
static char *shorten(const struct garret_app_output *o, const char *handle)
{
	struct utf8_repair u = { .n = 0 };
	autobuf struct strbuf out = STRBUF_INIT, text = STRBUF_INIT;
	const size_t head = handle ? MIN(o->head, o->limit) : o->limit;

	if (handle)
		strbuf_addf(&out, "[Output of %zu bytes, kept whole at %s; it begins:]\n", o->bytes,
			    handle);
	else
		strbuf_addf(&out, "[Output of %zu bytes, cut: the rest is lost; it begins:]\n",
			    o->bytes);
	utf8_repair_add(&u, &text, o->data, MIN(o->bytes, head));
	/* A character that is cut here is left out, not repaired. */
	strbuf_add(&out, text.buf, app_cut(text.buf, text.len, head));
	return xstrndup(out.buf, app_cut(out.buf, out.len, o->limit));
}

int garret_app_reduce(struct garret_app_spill *s, const struct garret_app_output *output,
		      struct garret_app_reduced *ret, struct garret_error *err)
{
	struct garret_app_output o = { 0 };
	struct garret_error told = { 0 };
	int rc = sized_copy(&o, sizeof(o), output, output->size, err);

	memset(ret, 0, sizeof(*ret));
	if (rc < 0)
		return rc;
	o.limit = o.limit ? o.limit : GARRET_APP_OUTPUT_LIMIT;
	o.head = o.head ? o.head : GARRET_APP_OUTPUT_HEAD;
	if (!o.call)
		return garret_fail(err, GARRET_INVALID, "call: an id is wanted, not NULL");
	if (o.limit < GARRET_APP_OUTPUT_LEAST)
		return garret_fail(err, GARRET_INVALID, "limit: at least %d bytes",
				   GARRET_APP_OUTPUT_LEAST);
	if (o.bytes <= o.limit)
		return 0;
	rc = garret_app_spill_write(s, o.call, o.retry, o.data, o.bytes, &ret->handle, &told);
	if (rc == -GARRET_CANCELLED)
		return app_answered(rc, &told, err);
	ret->refused = (enum garret_code) - rc;
	ret->truncated = rc < 0;
	ret->text = shorten(&o, ret->handle);
	return 0;
}
