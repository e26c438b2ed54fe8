/*
 * What a run changed in its skills, for a person to look at.  One walk tells what is there; every
 * file within the bounds is read, since nothing else tells that it is as it was staged.
 */
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"

#define ENTRIES 4000 /* a walk that finds as many doesn't tell all */

struct collecting {
	struct garret_app_run *run;
	struct garret_workspace *w;
	struct garret_app_proposals *ret;
	struct garret_error told;
};

/* The entries of one skill. */
struct group {
	const struct garret_entry *entry;
	size_t n;
	char *name;
};

static void proposal_release(struct garret_app_proposal *p)
{
	free(p->skill);
	free(p->file);
	free(p->path);
	free(p->data);
	free(p->description);
}

static void shrink(struct garret_app_proposals *r, size_t n)
{
	while (r->n > n)
		proposal_release(&r->proposal[--r->n]);
}

void garret_app_proposals_release(struct garret_app_proposals *r)
{
	shrink(r, 0);
	free(r->proposal);
	for (size_t i = 0; i < r->n_refused; i++)
		free(r->refused[i].path);
	free(r->refused);
	memset(r, 0, sizeof(*r));
}

static void refuse(struct collecting *x, const char *skill, const char *file, const char *why)
{
	struct garret_app_proposals *r = x->ret;

	r->refused = xrealloc(r->refused, (r->n_refused + 1) * sizeof(*r->refused));
	r->refused[r->n_refused++] = (struct garret_app_proposal_refused){
		xasprintf(APP_SKILLS "/%s%s%s", skill, *file ? "/" : "", file), why
	};
}

static void propose(struct collecting *x, const struct group *g, const char *file, bool is_new,
		    struct garret_bytes *data)
{
	struct garret_app_proposals *r = x->ret;
	const bool body = !strcmp(file, GARRET_APP_SKILL_BODY);

	if (!r->proposal)
		r->proposal = xcalloc(GARRET_APP_SKILL_MAX_FILES, sizeof(*r->proposal));
	r->proposal[r->n++] = (struct garret_app_proposal){
		.kind = !body    ? GARRET_APP_PROPOSAL_RESOURCE
			: is_new ? GARRET_APP_PROPOSAL_SKILL
				 : GARRET_APP_PROPOSAL_BODY,
		.skill = xstrdup(g->name),
		.file = xstrdup(file),
		.path = xasprintf(APP_SKILLS "/%s/%s", g->name, file),
		.data = take_ptr(&data->data),
		.bytes = data->n,
		.is_new = is_new,
	};
}

/* Why a file isn't even read; NULL: it may be. */
static const char *unwanted(const struct collecting *x, const struct garret_entry *e,
			    const char *file)
{
	if (e->is_link)
		return "it is a link";
	if (e->type != GARRET_REGULAR)
		return "it is no regular file";
	if (!app_skill_file_name(file))
		return "its name is no plain text";
	return x->ret->n == GARRET_APP_SKILL_MAX_FILES ? "too many files were changed" : NULL;
}

/* *ret_same: it is as it was staged, or nobody can tell that it isn't. */
static int look(struct collecting *x, const struct group *g, const struct garret_entry *e,
		bool *ret_same)
{
	const char *file = e->name + strlen(g->name) + 1, *why = unwanted(x, e, file);
	autofree char *path = xasprintf(APP_SKILLS "/%s", e->name);
	const char *digest = map_find(&x->run->staged, path);
	struct garret_bytes b = { 0 };
	char now[65];
	int rc = 0;

	*ret_same = !why && digest && !*digest;
	if (!why && !*ret_same)
		rc = app_read_file(x->w, path, e->bytes, GARRET_APP_SKILL_MAX_BYTES, &b, &x->told);
	if (rc == -GARRET_NOT_FOUND)
		return 0; /* it went meanwhile: no change */
	if (rc == -GARRET_TOO_LARGE)
		why = "it is too large";
	else if (app_of_path(rc))
		why = "it can't be read";
	else if (rc < 0)
		return rc;
	if (why)
		refuse(x, g->name, file, why);
	if (why || *ret_same)
		return 0;
	app_sha256(b.data, b.n, now);
	*ret_same = digest && !strcmp(digest, now);
	if (!*ret_same)
		propose(x, g, file, !digest, &b);
	garret_bytes_release(&b);
	return 0;
}

/* NULL, or why a changed SKILL.md is of no use. */
static const char *read_body(struct garret_app_proposal *p)
{
	const char *text = (const char *)p->data, *why;

	if (!utf8_valid(text, p->bytes) || memchr(text, '\0', p->bytes))
		return "its SKILL.md is no text";
	why = app_front_matter(text, &p->body, &p->description);
	if (!why && !p->body[strspn(p->body, " \t\r\n")])
		why = "its SKILL.md has no body";
	return why;
}

static int collect_group(struct collecting *x, const struct group *g)
{
	const size_t before = x->ret->n;
	const char *why = "it has no SKILL.md";

	if (!name_valid(g->name)) {
		refuse(x, g->name, "", "its name is none of a skill");
		return 0;
	}
	for (size_t i = 0; i < g->n; i++) {
		const size_t had = x->ret->n;
		bool same;
		int rc;

		if (g->entry[i].type == GARRET_DIRECTORY && !g->entry[i].is_link)
			continue; /* what is nested deeper belongs to no skill */
		rc = look(x, g, &g->entry[i], &same);
		if (rc < 0)
			return rc;
		if (strcmp(g->entry[i].name + strlen(g->name) + 1, GARRET_APP_SKILL_BODY) != 0)
			continue;
		why = same ? NULL : "its SKILL.md can't be read";
		if (x->ret->n > had)
			why = read_body(&x->ret->proposal[had]);
	}
	if (why && x->ret->n > before) {
		shrink(x->ret, before);
		refuse(x, g->name, "", why);
	}
	return 0;
}

/* By name, but a SKILL.md is first of its skill: when there is room for no more, it was looked at. */
static int body_first(const void *a, const void *b)
{
	const char *x = ((const struct garret_entry *)a)->name;
	const char *y = ((const struct garret_entry *)b)->name;
	const size_t skill = strcspn(x, "/");
	bool x_first, y_first;

	if (!x[skill] || strncmp(x, y, skill + 1) != 0)
		return strcmp(x, y);
	x_first = !strcmp(x + skill + 1, GARRET_APP_SKILL_BODY);
	y_first = !strcmp(y + skill + 1, GARRET_APP_SKILL_BODY);
	return x_first == y_first ? strcmp(x, y) : y_first - x_first;
}

/* Skill by skill: what begins with the same directory stands together. */
static int collect(struct collecting *x, const struct garret_list *l)
{
	int rc = 0;

	for (size_t i = 0, n; rc == 0 && i < l->n; i += n) {
		const size_t name = strcspn(l->entry[i].name, "/") + 1;
		struct group g = { .entry = &l->entry[i] };

		for (n = 1; i + n < l->n && l->entry[i].name[name - 1]; n++)
			if (strncmp(l->entry[i].name, l->entry[i + n].name, name) != 0)
				break;
		g.n = n;
		g.name = xstrndup(l->entry[i].name, name - 1);
		if (l->entry[i].name[name - 1]) /* else it is one of the directories themselves */
			rc = collect_group(x, &g);
		free(g.name);
	}
	return rc;
}

int garret_app_skills_collect(struct garret_app_run *run, struct garret_app_proposals *ret,
			      struct garret_error *err)
{
	struct collecting x = { .run = run, .w = app_files_workspace(run), .ret = ret };
	struct garret_list l = { 0 };
	int rc;

	memset(ret, 0, sizeof(*ret));
	if (!x.w)
		return 0;
	rc = garret_walk(x.w, APP_SKILLS, 2, ENTRIES, &l, &x.told);
	if (rc == -GARRET_NOT_FOUND)
		return 0;
	if (rc == 0 && l.n >= ENTRIES)
		rc = -GARRET_TOO_LARGE;
	if (rc == 0 && l.n) {
		qsort(l.entry, l.n, sizeof(*l.entry), body_first);
		rc = collect(&x, &l);
	}
	garret_list_release(&l);
	if (rc == 0)
		return 0;
	garret_app_proposals_release(ret);
	ret->code = (enum garret_code) - rc;
	return app_answered(rc, &x.told, err);
}
