/* Skills are staged, with a note of what was written: it tells later what was changed. */
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/text.h"

struct staging {
	struct garret_app_run *run;
	struct garret_workspace *w; /* NULL: there is none, or it takes nothing more */
	struct garret_app_skills_staged *ret;
	struct garret_error told;
};

static void refuse(struct staging *x, size_t files, enum garret_code code)
{
	x->ret->refused += files;
	x->ret->code = code;
}

/* What is at a path: a digest, or "": nobody knows, since the workspace refused. */
static void note(struct garret_app_run *run, const char *path, const char *digest)
{
	free(map_set(&run->staged, path, xstrdup(digest)));
}

static int put(struct staging *x, const char *skill, const char *name, const void *data, size_t n)
{
	autofree char *path = xasprintf(APP_SKILLS "/%s/%s", skill, name);
	char digest[65] = "";
	int rc = -(int)x->ret->code;

	if (x->w)
		rc = garret_write(x->w, path, data, n, 0, &x->told);
	if (rc == 0) {
		app_sha256(data, n, digest);
		x->ret->written++;
	} else {
		refuse(x, 1, (enum garret_code) - rc);
		/* What is neither about this path nor about its size is the same for all others. */
		if (!app_of_path(rc) && rc != -GARRET_NO_SPACE && rc != -GARRET_TOO_LARGE)
			x->w = NULL;
	}
	note(x->run, path, digest);
	return rc == -GARRET_CANCELLED ? rc : 0;
}

bool app_skill_file_name(const char *name)
{
	bool good = *name && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
		    strlen(name) <= 255 && utf8_valid(name, strlen(name));

	for (; *name && good; name++)
		good = (unsigned char)*name >= ' ' && *name != 0x7f && *name != '/';
	return good;
}

static bool is_text(const char *text)
{
	return text && utf8_valid(text, strlen(text));
}

static int stage(struct staging *x, const struct garret_app_skill *s)
{
	autobuf struct strbuf body = STRBUF_INIT;
	int rc;

	if (!s->name || !name_valid(s->name) || !is_text(s->description) || !is_text(s->body)) {
		refuse(x, 1 + s->n_files, GARRET_INVALID);
		return 0;
	}
	app_front_matter_put(&body, s->name, s->description);
	strbuf_addstr(&body, s->body);
	rc = put(x, s->name, GARRET_APP_SKILL_BODY, body.buf, body.len);
	for (size_t i = 0; rc == 0 && i < s->n_files; i++) {
		const struct garret_app_skill_file *f = &s->files[i];

		if (!f->name || !app_skill_file_name(f->name) || (!f->data && f->bytes) ||
		    !strcmp(f->name, GARRET_APP_SKILL_BODY))
			refuse(x, 1, GARRET_INVALID);
		else
			rc = put(x, s->name, f->name, f->data ? f->data : "", f->bytes);
	}
	return rc;
}

int garret_app_skills_stage(struct garret_app_run *run, const struct garret_app_skill *skills,
			    size_t n, struct garret_app_skills_staged *ret,
			    struct garret_error *err)
{
	struct staging x = { .run = run, .w = app_files_workspace(run), .ret = ret };
	int rc = 0;

	memset(ret, 0, sizeof(*ret));
	for (size_t i = 0; rc == 0 && i < n; i++) {
		const char *given = (const char *)skills + i * skills->size; /* its own stride */
		struct garret_app_skill s = { 0 };

		rc = sized_copy(&s, sizeof(s), given, skills->size, err);
		if (rc == 0 && !app_files_workspace(run))
			refuse(&x, 1 + s.n_files, GARRET_GONE); /* without a workspace */
		else if (rc == 0)
			rc = app_answered(stage(&x, &s), &x.told, err);
	}
	return rc;
}
