/* Documents, and files of any workspace as people look at them. */
#include <stdlib.h>
#include <string.h>

#include "appd/appd.h"
#include "base/auto.h"
#include "base/mem.h"
#include "net/json.h"

static int document_get(struct request *q, struct strbuf *out, struct garret_error *err)
{
	autofree char *text = NULL;
	const char *key;
	int rc = arg_text(q, "key", &key, err);

	if (rc == 0)
		rc = garret_app_document_get(q->app, q->organisation, key, &text, err);
	if (rc == 0)
		strbuf_addstr(out, text);
	return rc;
}

static int document_put(struct request *q, struct strbuf *out, struct garret_error *err)
{
	const char *key;
	int rc = arg_text(q, "key", &key, err);

	(void)out;
	return rc < 0 ? rc : garret_app_document_put(q->app, q->organisation, key, q->raw, err);
}

/* ---- looking in ---- */

static const char *const types[] = {
	[GARRET_REGULAR] = "file",
	[GARRET_DIRECTORY] = "directory",
	[GARRET_OTHER] = "other",
	[GARRET_DANGLING] = "dangling",
};

static void put_entry(struct strbuf *out, const struct garret_app_browsed *e)
{
	json_open(out, '{');
	put_text(out, "path", e->path);
	put_text(out, "type", types[e->type]);
	json_put_key(out, "size");
	if (e->bytes == GARRET_SIZE_UNKNOWN)
		json_put_null(out);
	else
		json_put_int(out, (int64_t)e->bytes);
	put_number(out, "modified_at", (double)e->modified_ns / 1e9);
	put_bool(out, "thumbnail", e->thumbnail);
	json_close(out, '}');
}

static void put_browse(struct strbuf *out, const struct garret_app_browse *b)
{
	json_open(out, '{');
	json_put_key(out, "entries");
	json_open(out, '[');
	for (size_t i = 0; i < b->n; i++)
		put_entry(out, &b->entry[i]);
	json_close(out, ']');
	put_bool(out, "truncated", b->truncated);
	put_text(out, "unreadable", b->unreadable);
	json_close(out, '}');
}

static int visit(struct request *q, struct garret_app_run **ret, struct garret_error *err)
{
	const char *key;
	int rc = arg_text(q, "key", &key, err);

	*ret = NULL;
	return rc < 0 ? rc : garret_app_visit(q->app, q->organisation, key, ret, err);
}

static int file_list(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_browse b = { 0 };
	struct garret_app_run *run;
	int rc = visit(q, &run, err);

	if (rc == 0)
		rc = garret_app_browse(garret_app_run_workspace(run), &b, err);
	if (rc == 0)
		put_browse(out, &b);
	garret_app_browse_release(&b);
	garret_app_run_close(run, 0);
	return rc;
}

/* The whole of it, base64: any bytes. */
static int file_read(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_bytes b = { 0 };
	struct garret_entry e = { 0 };
	struct garret_app_run *run;
	const char *path = NULL;
	int rc = visit(q, &run, err);

	if (rc == 0)
		rc = arg_text(q, "path", &path, err);
	if (rc == 0 && !path)
		rc = garret_fail(err, GARRET_INVALID, "path: it is needed");
	if (rc == 0)
		rc = garret_stat(garret_app_run_workspace(run), path, &e, err);
	if (rc == 0 && e.bytes != GARRET_SIZE_UNKNOWN && e.bytes > GARRET_APP_ARTIFACT_MAX)
		rc = garret_fail(err, GARRET_TOO_LARGE, "path: a file of at most %d bytes is read",
				 GARRET_APP_ARTIFACT_MAX);
	if (rc == 0)
		rc = garret_read_at(garret_app_run_workspace(run), path, 0, GARRET_APP_ARTIFACT_MAX,
				    &b, err);
	if (rc == 0) {
		json_open(out, '{');
		put_text(out, "path", path);
		put_number(out, "size", (double)b.n);
		put_base64(out, "content_b64", b.data, b.n);
		json_close(out, '}');
	}
	garret_entry_release(&e);
	garret_bytes_release(&b);
	garret_app_run_close(run, 0);
	return rc;
}

const struct operation file_operations[] = {
	{ "document_get", document_get },
	{ "document_put", document_put },
	{ "file_list", file_list },
	{ "file_read", file_read },
	{ NULL, NULL },
};
