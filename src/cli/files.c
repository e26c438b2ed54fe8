#include "cli/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/show.h"

#define JSON_MAX (16u * 1024 * 1024)
#define SPOOL_MAX (1024 * 1024) /* of a list in memory; more goes to a file */

int files_prepare(struct files *f, const char *url, struct garret_error *err)
{
	*f = (struct files){ 0 };
	http1_init(&f->http, &f->remote.target);
	return remote_find(&f->remote, url, err);
}

void files_release(struct files *f)
{
	http1_release(&f->http);
	free(take_ptr(&f->work_dir));
}

static int ask_work_dir(struct files *f, const struct place *p, struct garret_error *err)
{
	json_t *policy = NULL;
	const char *dir;
	int rc = remote_call(&f->remote, "GET", "/policy", NULL, &policy, err);

	if (rc == -GARRET_UNAUTHORIZED)
		return garret_fail(
			err, GARRET_UNAUTHORIZED,
			"%s: the token is not the service's: with that of a session give a path from / on",
			p->text);
	if (rc < 0)
		return rc;
	dir = json_string_value(json_object_get(policy, "work_dir"));
	if (dir)
		f->work_dir = xstrdup(dir);
	else
		rc = garret_fail(err, GARRET_PROTOCOL, "the daemon's policy has no work_dir");
	json_decref(policy);
	return rc;
}

int files_place(struct files *f, const char *word, struct place *ret, struct garret_error *err)
{
	int rc = place_parse(word, ret, err);

	if (rc == 0 && !ret->path && !f->work_dir)
		rc = ask_work_dir(f, ret, err);
	if (rc == 0)
		place_below(ret, f->work_dir);
	return rc;
}

/* ---- errors ---- */

static enum garret_code code_of_name(const char *name, int status)
{
	static const struct {
		const char *name;
		enum garret_code code;
	} names[] = {
		{ "FileNotFoundError", GARRET_NOT_FOUND },
		{ "FileExistsError", GARRET_EXISTS },
		{ "NotADirectoryError", GARRET_NOT_DIRECTORY },
		{ "IsADirectoryError", GARRET_IS_DIRECTORY },
		{ "PermissionError", GARRET_DENIED },
		{ "TimeoutError", GARRET_TIMEOUT },
		{ "ValueError", GARRET_INVALID },
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(name, names[i].name))
			return names[i].code;
	/* An OSError is one of those for which the status speaks; 400 is left for this. */
	return status == 400 ? GARRET_NOT_REGULAR : remote_code(status);
}

/* "/workspace/x: No such file or directory" without what is said in front anyway. */
static const char *without_path(const char *text, const char *path)
{
	size_t n = path ? strlen(path) : 0;

	if (n && !strncmp(text, path, n) && !text[n])
		return "";
	return n && !strncmp(text, path, n) && !strncmp(text + n, ": ", 2) ? text + n + 2 : text;
}

static int fail_detail(const json_t *doc, int status, const struct place *p,
		       struct garret_error *err)
{
	const json_t *detail = json_object_get(doc, "detail");
	const char *name = json_string_value(json_object_get(detail, "error"));
	const char *of_place = p ? p->text : "", *colon = p ? ": " : "";
	autofree char *text = remote_detail(doc);
	enum garret_code code = name ? code_of_name(name, status) : remote_code(status);
	const char *why = text ? without_path(text, p ? p->path : NULL) : "";

	if (!*why)
		why = code == GARRET_IS_DIRECTORY  ? "Is a directory"
		      : code == GARRET_NOT_REGULAR ? "Not a regular file"
						   : "the daemon refused";
	(void)garret_fail(err, code, "%s%s%s", of_place, colon, why);
	if (err)
		err->sys = (int)json_integer_value(json_object_get(detail, "errno"));
	return -(int)code;
}

static int fail_answer(struct files *f, const struct place *p, int status, struct garret_error *err)
{
	autobuf struct strbuf text = STRBUF_INIT;
	json_t *doc;
	int rc = http1_collect(&f->http, JSON_MAX, &text, err);

	if (rc < 0)
		return rc;
	doc = json_loadb(text.buf, text.len, JSON_ALLOW_NUL, NULL);
	rc = fail_detail(doc, status, p, err);
	json_decref(doc);
	return rc;
}

/* ---- requests ---- */

int files_begin(struct files *f, const struct place *p, const struct files_request *q,
		struct garret_error *err)
{
	autobuf struct strbuf url = STRBUF_INIT;
	struct http1_head head = { .method = q->method,
				   .token = f->remote.token,
				   .type = q->type,
				   .more = q->more,
				   .length = q->length };

	strbuf_addf(&url, "/v1/sessions/%s/%s", p->id, q->route);
	query_add(&url, "path", p->path);
	if (q->to)
		query_add(&url, "to", q->to->path);
	strbuf_addstr(&url, q->query ? q->query : "");
	head.path = url.buf;
	return http1_begin(&f->http, &head, err);
}

int files_answer(struct files *f, const struct place *p, int *ret_status, struct garret_error *err)
{
	int status = 0, rc = http1_answer(&f->http, &status, err);

	if (rc < 0)
		return garret_wrap(rc, err, "%s", p->text);
	if (ret_status)
		*ret_status = status;
	return status >= 400 ? fail_answer(f, p, status, err) : 0;
}

int files_read_json(struct files *f, json_t **ret, struct garret_error *err)
{
	autobuf struct strbuf text = STRBUF_INIT;
	json_error_t je;
	json_t *doc;
	int rc = http1_collect(&f->http, JSON_MAX, &text, err);

	if (rc < 0)
		return rc;
	doc = text.len ? json_loadb(text.buf, text.len, JSON_ALLOW_NUL, &je) : NULL;
	if (text.len && !doc)
		return garret_fail(err, GARRET_PROTOCOL, "the daemon's answer isn't JSON: %s",
				   je.text);
	if (ret)
		*ret = doc;
	else
		json_decref(doc);
	return 0;
}

/* As text; takes body. */
static int body_text(json_t *body, char **ret, struct garret_error *err)
{
	*ret = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	if (*ret)
		return 0;
	(void)garret_fail(err, GARRET_INVALID, "patterns and texts must be UTF-8");
	return -GARRET_INVALID;
}

int files_call(struct files *f, const struct place *p, const struct place *to, const char *op,
	       json_t *body, json_t **ret, struct garret_error *err)
{
	autofree char *text = NULL, *route = xasprintf("files/%s", op);
	struct files_request q = { .method = "POST", .route = route, .to = to };
	int rc = body_text(body ? body : json_object(), &text, err);

	if (rc < 0)
		return rc;
	q.length = (int64_t)strlen(text);
	rc = files_begin(f, p, &q, err);
	if (rc == 0)
		rc = http1_send(&f->http, text, strlen(text), err);
	if (rc >= 0)
		rc = files_answer(f, p, NULL, err);
	return rc < 0 ? rc : files_read_json(f, ret, err);
}

/* ---- lists ---- */

/*
 * A list is taken from the daemon as fast as it comes and shown afterwards: our
 * reader may be a pager, and the daemon ends an answer that nobody takes.
 */
struct spool {
	struct strbuf memory;
	FILE *file;
};

static int spool_write(struct spool *s, const char *data, size_t n, struct garret_error *err)
{
	if (!s->file && s->memory.len + n <= SPOOL_MAX) {
		strbuf_add(&s->memory, data, n);
		return 0;
	}
	if (!s->file)
		s->file = tmpfile();
	if (!s->file || fwrite(data, 1, n, s->file) != n)
		return garret_fail_errno(err, "keep a long list in a temporary file");
	return 0;
}

static int spool_fill(struct files *f, struct spool *s, struct garret_error *err)
{
	static char buf[64 * 1024];
	ssize_t n;
	int rc = 0;

	while (rc == 0 && (n = http1_read(&f->http, buf, sizeof(buf), err)) != 0)
		rc = n < 0 ? (int)n : spool_write(s, buf, (size_t)n, err);
	return rc;
}

static int spool_show(struct spool *s, struct items *it, struct garret_error *err)
{
	static char buf[64 * 1024];
	size_t n;
	int rc = items_add(it, s->memory.buf, s->memory.len, err);

	if (rc || !s->file)
		return rc;
	if (fseek(s->file, 0, SEEK_SET) < 0)
		return garret_fail_errno(err, "read a temporary file");
	while (rc == 0 && (n = fread(buf, 1, sizeof(buf), s->file)) > 0)
		rc = items_add(it, buf, n, err);
	if (rc == 0 && ferror(s->file))
		rc = garret_fail_errno(err, "read a temporary file");
	return rc;
}

static int show_list(struct files *f, const struct files_list *l, json_t **ret,
		     struct garret_error *err)
{
	struct spool s = { .memory = STRBUF_INIT };
	struct items it;
	json_t *rest = NULL;
	int rc;

	items_init(&it, l->item, l->ctx);
	rc = spool_fill(f, &s, err);
	if (rc == 0)
		rc = spool_show(&s, &it, err);
	if (rc == 0)
		rc = items_end(&it, &rest, err);
	items_release(&it);
	strbuf_release(&s.memory);
	if (s.file)
		(void)fclose(s.file);
	if (rc == 0 && ret)
		*ret = rest;
	else
		json_decref(rest);
	return rc;
}

int files_list_any(struct files *f, const struct files_list *l, json_t **ret,
		   struct garret_error *err)
{
	autofree char *text = NULL;
	struct http1_head head = { .method = l->body ? "POST" : "GET",
				   .path = l->path,
				   .token = f->remote.token,
				   .length = HTTP1_NO_BODY };
	int status = 0, rc = l->body ? body_text(l->body, &text, err) : 0;

	if (rc < 0)
		return rc;
	if (text)
		head.length = (int64_t)strlen(text);
	rc = http1_begin(&f->http, &head, err);
	if (rc == 0 && text)
		rc = http1_send(&f->http, text, strlen(text), err);
	if (rc >= 0)
		rc = http1_answer(&f->http, &status, err);
	if (rc < 0)
		return rc;
	return status >= 400 ? fail_answer(f, l->at, status, err) : show_list(f, l, ret, err);
}

int files_list(struct files *f, const struct place *p, const char *op, json_t *body,
	       int (*item)(void *ctx, json_t *item, struct garret_error *err), void *ctx,
	       json_t **ret, struct garret_error *err)
{
	autobuf struct strbuf url = STRBUF_INIT;
	struct files_list l = {
		.body = body ? body : json_object(), .at = p, .item = item, .ctx = ctx
	};

	strbuf_addf(&url, "/v1/sessions/%s/files/%s", p->id, op);
	query_add(&url, "path", p->path);
	l.path = url.buf;
	return files_list_any(f, &l, ret, err);
}

/* ---- stat ---- */

/* The route takes paths as JSON only: one that isn't UTF-8 is looked up in its directory. */
struct lookup {
	const char *path;
	json_t *found;
};

static int look(void *ctx, json_t *item, struct garret_error *err)
{
	struct lookup *l = ctx;
	autoentry struct entry e = { 0 };
	int rc = entry_parse(item, &e, err);

	if (rc == 0 && !l->found && !strcmp(e.path, l->path))
		l->found = json_incref(item);
	return rc;
}

static int stat_bytes(struct files *f, const struct place *p, json_t **ret,
		      struct garret_error *err)
{
	autofree char *path = xstrdup(p->path), *dir = NULL;
	struct place parent = { .text = p->text };
	struct lookup l = { .path = path };
	char *slash;
	int rc;

	while ((slash = strrchr(path, '/')) && slash != path && !slash[1])
		*slash = '\0';
	dir = xstrndup(path, slash == path ? 1 : (size_t)(slash - path));
	parent.path = dir;
	memcpy(parent.id, p->id, sizeof(parent.id));
	rc = files_list(f, &parent, "list", NULL, look, &l, NULL, err);
	if (rc == 0 && !l.found) {
		errno = ENOENT;
		rc = garret_fail_errno(err, "%s", p->text);
	}
	if (rc == 0)
		*ret = l.found;
	else
		json_decref(l.found);
	return rc;
}

int files_stat(struct files *f, const struct place *p, bool follow, json_t **ret,
	       struct garret_error *err)
{
	json_t *answer = NULL, *result, *entry, *error;
	int rc;

	if (!utf8_valid(p->path, strlen(p->path)))
		return stat_bytes(f, p, ret, err);
	rc = files_call(f, p, NULL, "stat",
			json_pack("{s:[s], s:b}", "paths", p->path, "nofollow", !follow), &answer,
			err);
	if (rc < 0)
		return rc;
	result = json_array_get(json_object_get(answer, "results"), 0);
	entry = json_object_get(result, "entry");
	error = json_object_get(result, "error");
	if (json_is_object(entry)) {
		*ret = json_incref(entry);
	} else {
		json_t *doc = json_pack("{s:O}", "detail", error ? error : json_null());

		rc = fail_detail(doc, 400, p, err);
		json_decref(doc);
	}
	json_decref(answer);
	return rc;
}

int files_is_directory(struct files *f, const struct place *p, struct garret_error *err)
{
	struct garret_error why = { 0 };
	json_t *entry = NULL;
	const char *type;
	int rc = files_stat(f, p, true, &entry, &why);

	/* With an errno it is the path that is missing, else the session. */
	if (rc == -GARRET_NOT_FOUND && why.sys)
		return 0;
	if (rc < 0) {
		*err = why;
		return rc;
	}
	type = json_string_value(json_object_get(entry, "type"));
	rc = type && !strcmp(type, "directory");
	json_decref(entry);
	return rc;
}
