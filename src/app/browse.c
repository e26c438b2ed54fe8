/* What people see of a workspace: a bounded list, or why there is none. */
#include <stdlib.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/mem.h"

/* What is hidden doesn't take the room of what is shown. */
#define WALKED (2 * GARRET_APP_BROWSE_ENTRIES)

void garret_app_browse_release(struct garret_app_browse *r)
{
	for (size_t i = 0; i < r->n; i++)
		free(r->entry[i].path);
	free(r->entry);
	free(r->unreadable);
	memset(r, 0, sizeof(*r));
}

/* Components of a path that stays below, or 0. */
static unsigned depth(const char *path)
{
	unsigned n = 0;

	for (;; path++) {
		const size_t len = strcspn(path, "/");

		if (!len || (len == 1 && *path == '.') || (len == 2 && !memcmp(path, "..", 2)))
			return 0;
		n++;
		path += len;
		if (!*path)
			return n;
	}
}

static bool has_thumbnail(const struct garret_entry *e)
{
	return e->type == GARRET_REGULAR && e->bytes && e->bytes <= GARRET_APP_THUMBNAIL_BYTES &&
	       garret_app_kind_guess(NULL, e->name) == GARRET_APP_KIND_IMAGE;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(const struct garret_entry *const *)a)->name,
		      (*(const struct garret_entry *const *)b)->name);
}

static void show(const struct garret_entry *e, unsigned *thumbnails, struct garret_app_browse *ret)
{
	const bool thumbnail = *thumbnails < GARRET_APP_THUMBNAILS && has_thumbnail(e);

	*thumbnails += thumbnail;
	ret->entry[ret->n++] = (struct garret_app_browsed){
		.path = xstrdup(e->name),
		.type = e->type,
		.bytes = e->bytes,
		.modified_ns = e->modified_ns,
		.thumbnail = thumbnail,
	};
}

/* Shallow ones were listed first, so those are what a full page keeps; then it is sorted. */
static void fill(const struct garret_list *list, struct garret_app_browse *ret)
{
	const struct garret_entry *kept[GARRET_APP_BROWSE_ENTRIES];
	unsigned thumbnails = 0;
	size_t n = 0;

	ret->truncated = list->truncated;
	for (size_t i = 0; i < list->n; i++) {
		const struct garret_entry *e = &list->entry[i];
		const unsigned deep = depth(e->name);

		if (!deep || app_below(e->name, APP_SKILLS) || app_below(e->name, APP_SPILLS))
			continue;
		if (deep > GARRET_APP_BROWSE_DEPTH || n == GARRET_APP_BROWSE_ENTRIES)
			ret->truncated = true;
		else
			kept[n++] = e;
	}
	qsort(kept, n, sizeof(*kept), by_name);
	ret->entry = xcalloc(n + 1, sizeof(*ret->entry));
	for (size_t i = 0; i < n; i++)
		show(kept[i], &thumbnails, ret);
}

void garret_app_browse_list(const struct garret_list *list, const struct garret_error *why,
			    struct garret_app_browse *ret)
{
	autobuf struct strbuf text = STRBUF_INIT;

	memset(ret, 0, sizeof(*ret));
	if (list) {
		fill(list, ret);
		return;
	}
	strbuf_addstr(&text, "unreadable because ");
	app_label(&text, why && *why->msg ? why->msg : "nobody knows why");
	ret->unreadable = strbuf_detach(&text, NULL);
	ret->code = why && why->code ? why->code : GARRET_UNAVAILABLE;
}

int garret_app_browse(struct garret_workspace *w, struct garret_app_browse *ret,
		      struct garret_error *err)
{
	struct garret_error told = { 0 };
	struct garret_list l = { 0 };
	int rc = garret_walk(w, ".", GARRET_APP_BROWSE_DEPTH, WALKED, &l, &told);

	garret_app_browse_list(rc < 0 ? NULL : &l, &told, ret);
	garret_list_release(&l);
	return app_answered(rc, &told, err);
}
