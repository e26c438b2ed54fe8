/* Files that go with a channel's reply: what a walk finds after a run that one before didn't. */
#include <stdlib.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/mem.h"

struct garret_app_snapshot {
	struct map paths;
};

struct garret_app_snapshot *garret_app_snapshot_free(struct garret_app_snapshot *s)
{
	if (!s)
		return NULL;
	map_release(&s->paths);
	free(s);
	return NULL;
}

/* All there is; TOO_LARGE when it is more than that. */
static int look(struct garret_workspace *w, struct garret_list *ret, struct garret_error *told)
{
	int rc = garret_walk(w, ".", GARRET_APP_SNAPSHOT_DEPTH, GARRET_APP_SNAPSHOT_ENTRIES, ret,
			     told);

	return rc == 0 && ret->truncated ? -GARRET_TOO_LARGE : rc;
}

int garret_app_snapshot_take(struct garret_app_run *run, struct garret_app_snapshot **ret,
			     struct garret_error *err)
{
	struct garret_workspace *w = app_files_workspace(run);
	struct garret_error told = { 0 };
	struct garret_list l = { 0 };
	int rc = w ? look(w, &l, &told) : 0;

	*ret = NULL;
	if (rc == 0) {
		*ret = xnew(struct garret_app_snapshot);
		map_init(&(*ret)->paths);
	}
	for (size_t i = 0; rc == 0 && i < l.n; i++)
		(void)map_set(&(*ret)->paths, l.entry[i].name, *ret);
	garret_list_release(&l);
	return app_answered(rc, &told, err);
}

void garret_app_reply_release(struct garret_app_reply *r)
{
	for (size_t i = 0; i < r->n; i++) {
		free(r->file[i].path);
		free(r->file[i].name);
		free(r->file[i].data);
	}
	memset(r, 0, sizeof(*r));
}

static bool is_posted(const struct garret_entry *e, const struct garret_app_snapshot *before)
{
	return e->type == GARRET_REGULAR && !e->is_link && !app_below(e->name, "uploads") &&
	       !app_below(e->name, APP_SKILLS) && !app_below(e->name, APP_SPILLS) &&
	       !map_find(&before->paths, e->name);
}

static unsigned depth(const char *path)
{
	unsigned n = 0;

	for (; *path; path++)
		n += *path == '/';
	return n;
}

static int shallow_first(const void *a, const void *b)
{
	const struct garret_entry *x = a, *y = b;
	const unsigned n = depth(x->name), m = depth(y->name);

	return n == m ? strcmp(x->name, y->name) : n < m ? -1 : 1;
}

/* One more, or it is left out. */
static int post(struct garret_workspace *w, const struct garret_entry *e,
		struct garret_app_reply *ret, struct garret_error *told)
{
	const char *slash = strrchr(e->name, '/');
	struct garret_bytes b = { 0 };
	int rc = -GARRET_TOO_LARGE; /* too many */

	if (ret->n < GARRET_APP_REPLY_FILES)
		rc = app_read_file(w, e->name, e->bytes, GARRET_APP_REPLY_BYTES, &b, told);
	if (rc == -GARRET_TOO_LARGE || app_of_path(rc)) {
		ret->left_out++;
		return 0;
	}
	if (rc == 0)
		ret->file[ret->n++] = (struct garret_app_reply_file){
			.path = xstrdup(e->name),
			.name = xstrdup(slash ? slash + 1 : e->name),
			.data = b.data,
			.bytes = b.n,
		};
	return rc;
}

int garret_app_reply_files(struct garret_app_run *run, const struct garret_app_snapshot *before,
			   struct garret_app_reply *ret, struct garret_error *err)
{
	struct garret_workspace *w = app_files_workspace(run);
	struct garret_error told = { 0 };
	struct garret_list l = { 0 };
	int rc;

	memset(ret, 0, sizeof(*ret));
	if (!w)
		return 0;
	/* Without a snapshot nothing tells what is new. */
	rc = before ? look(w, &l, &told) : -GARRET_UNAVAILABLE;
	if (rc == 0 && l.n)
		qsort(l.entry, l.n, sizeof(*l.entry), shallow_first);
	for (size_t i = 0; rc == 0 && i < l.n; i++)
		if (is_posted(&l.entry[i], before))
			rc = post(w, &l.entry[i], ret, &told);
	garret_list_release(&l);
	if (rc < 0) {
		garret_app_reply_release(ret);
		ret->code = (enum garret_code) - rc;
	}
	return app_answered(rc, &told, err);
}
