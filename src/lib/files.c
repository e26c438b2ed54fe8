/* The file operations of the public interface: each is a request and what is made of its answer. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "lib/call.h"

/* ---- what is given out ---- */

void garret_entry_release(struct garret_entry *e)
{
	free(e->name);
	free(e->path);
	free(e->target);
	memset(e, 0, sizeof(*e));
}

void garret_list_release(struct garret_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		garret_entry_release(&l->entry[i]);
	free(l->entry);
	memset(l, 0, sizeof(*l));
}

void garret_bytes_release(struct garret_bytes *b)
{
	free(b->data);
	memset(b, 0, sizeof(*b));
}

/* ---- looking ---- */

static int look(struct garret_workspace *w, enum garret_operation kind, const char *path,
		uint32_t flags, struct garret_entry *ret, struct garret_error *err)
{
	struct file_call call = { .kind = kind, .path = path };
	int rc;

	memset(ret, 0, sizeof(*ret));
	call.rq.op = FILE_STAT;
	call.rq.flags = flags;
	rc = file_call(w, &call, err);
	if (rc == 0 && !call.info.path)
		rc = garret_fail(err, GARRET_PROTOCOL, "%s: no answer", path);
	if (rc == 0) {
		*ret = call.info;
		memset(&call.info, 0, sizeof(call.info));
	}
	file_call_release(&call);
	return rc;
}

static int refuse_entry(struct garret_entry *e, const char *path, struct garret_error *err)
{
	const enum garret_type type = e->type;

	if (type != GARRET_DANGLING && type != GARRET_OTHER)
		return 0;
	garret_entry_release(e);
	if (type == GARRET_DANGLING)
		return garret_fail(err, GARRET_NOT_FOUND, "%s: a link that leads nowhere", path);
	return garret_fail(err, GARRET_NOT_REGULAR, "%s: not a regular file", path);
}

int garret_stat(struct garret_workspace *w, const char *path, struct garret_entry *ret,
		struct garret_error *err)
{
	int rc = look(w, GARRET_OP_STAT, path, 0, ret, err);

	return rc < 0 ? rc : refuse_entry(ret, path, err);
}

int garret_lstat(struct garret_workspace *w, const char *path, struct garret_entry *ret,
		 struct garret_error *err)
{
	return look(w, GARRET_OP_STAT, path, FILE_NOFOLLOW, ret, err);
}

int garret_exists(struct garret_workspace *w, const char *path, bool *ret, struct garret_error *err)
{
	struct garret_error own = { 0 };
	struct garret_entry e;
	int rc = look(w, GARRET_OP_EXISTS, path, 0, &e, &own);

	*ret = rc == 0 && e.type != GARRET_DANGLING;
	garret_entry_release(&e);
	if (rc == 0 || rc == -GARRET_NOT_FOUND || rc == -GARRET_NOT_DIRECTORY)
		return 0;
	if (err)
		*err = own;
	return rc;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct garret_entry *)a)->path,
		      ((const struct garret_entry *)b)->path);
}

int garret_list_dir(struct garret_workspace *w, const char *path, struct garret_list *ret,
		    struct garret_error *err)
{
	struct file_call call = { .kind = GARRET_OP_LIST, .path = path, .list = ret };
	int rc;

	memset(ret, 0, sizeof(*ret));
	call.rq.op = FILE_LIST;
	rc = file_call(w, &call, err);
	file_call_release(&call);
	if (rc < 0)
		garret_list_release(ret);
	else if (ret->n)
		qsort(ret->entry, ret->n, sizeof(*ret->entry), by_path);
	return rc;
}

int garret_walk(struct garret_workspace *w, const char *path, unsigned max_depth,
		size_t max_entries, struct garret_list *ret, struct garret_error *err)
{
	struct file_call call = { .kind = GARRET_OP_WALK, .path = path, .list = ret };
	int rc;

	memset(ret, 0, sizeof(*ret));
	call.rq.op = FILE_WALK;
	call.rq.max_depth = max_depth;
	call.rq.max_entries = (uint32_t)MIN(max_entries, (size_t)UINT32_MAX);
	rc = file_call(w, &call, err);
	file_call_release(&call);
	if (rc < 0)
		garret_list_release(ret);
	return rc;
}

/* ---- reading ---- */

static int read_some(struct garret_workspace *w, const char *path, uint64_t offset, uint64_t length,
		     size_t max, struct garret_bytes *ret, struct garret_error *err)
{
	struct file_call call = { .kind = GARRET_OP_READ, .path = path, .max_data = max };
	int rc;

	memset(ret, 0, sizeof(*ret));
	call.rq.op = FILE_READ;
	call.rq.offset = offset;
	call.rq.length = length;
	rc = file_call(w, &call, err);
	if (rc == 0) {
		size_t n = call.data.len;

		strbuf_reserve(&call.data, 1); /* the shared empty text is nobody's to free */
		call.data.buf[n] = '\0';
		ret->data = (uint8_t *)strbuf_detach(&call.data, &ret->n);
	}
	file_call_release(&call);
	return rc;
}

int garret_read(struct garret_workspace *w, const char *path, struct garret_bytes *ret,
		struct garret_error *err)
{
	return read_some(w, path, 0, UINT64_MAX, GARRET_READ_MAX, ret, err);
}

int garret_read_at(struct garret_workspace *w, const char *path, uint64_t offset, size_t bytes,
		   struct garret_bytes *ret, struct garret_error *err)
{
	memset(ret, 0, sizeof(*ret));
	if (bytes > GARRET_READ_MAX)
		return garret_fail(err, GARRET_INVALID, "bytes: at most %u at once",
				   GARRET_READ_MAX);
	return read_some(w, path, offset, bytes, bytes, ret, err);
}

int garret_read_text(struct garret_workspace *w, const char *path, char **ret,
		     struct garret_error *err)
{
	struct garret_bytes b;
	int rc = garret_read(w, path, &b, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	if (!b.data || !utf8_valid((char *)b.data, b.n) || memchr(b.data, '\0', b.n)) {
		rc = garret_fail(err, GARRET_ENCODING, "%s: not UTF-8 text", path);
		garret_bytes_release(&b);
		return rc;
	}
	*ret = (char *)b.data;
	return 0;
}

/* ---- changing ---- */

static int put(struct garret_workspace *w, enum garret_operation kind, const char *path,
	       const void *data, size_t n, unsigned flags, struct garret_error *err)
{
	struct file_call call = { .kind = kind, .path = path, .body = data, .body_bytes = n };
	int rc;

	if (flags & ~(unsigned)(GARRET_WRITE_SYNC | GARRET_WRITE_EXCLUSIVE))
		return garret_fail(err, GARRET_INVALID, "flags: unknown ones");
	if (!data && n)
		return garret_fail(err, GARRET_TYPE, "data: bytes are wanted, not NULL");
	call.rq.op = FILE_WRITE;
	call.rq.flags = FILE_PARENTS | (kind == GARRET_OP_APPEND ? FILE_APPEND : 0) |
			(flags & GARRET_WRITE_SYNC ? FILE_SYNC : 0) |
			(flags & GARRET_WRITE_EXCLUSIVE ? FILE_EXCLUSIVE : 0);
	rc = file_call(w, &call, err);
	file_call_release(&call);
	return rc;
}

int garret_write(struct garret_workspace *w, const char *path, const void *data, size_t n,
		 unsigned flags, struct garret_error *err)
{
	return put(w, GARRET_OP_WRITE, path, data, n, flags, err);
}

int garret_write_text(struct garret_workspace *w, const char *path, const char *text,
		      unsigned flags, struct garret_error *err)
{
	if (!text)
		return garret_fail(err, GARRET_TYPE, "text is wanted, not NULL");
	if (!utf8_valid(text, strlen(text)))
		return garret_fail(err, GARRET_ENCODING, "%s: what is to be written is not UTF-8",
				   path ? path : "");
	return put(w, GARRET_OP_WRITE, path, text, strlen(text), flags, err);
}

int garret_append(struct garret_workspace *w, const char *path, const void *data, size_t n,
		  unsigned flags, struct garret_error *err)
{
	if (flags & GARRET_WRITE_EXCLUSIVE)
		return garret_fail(err, GARRET_INVALID, "flags: nothing is appended to a new file");
	return put(w, GARRET_OP_APPEND, path, data, n, flags, err);
}

/* An operation that has nothing to say but how it went. */
static int change(struct garret_workspace *w, enum garret_operation kind, const char *path,
		  const char *to, const struct file_request *rq, struct garret_error *err)
{
	struct file_call call = { .kind = kind, .path = path, .to = to, .rq = *rq };
	int rc = file_call(w, &call, err);

	file_call_release(&call);
	return rc;
}

int garret_make_dir(struct garret_workspace *w, const char *path, struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_MKDIR, .flags = FILE_PARENTS };

	return change(w, GARRET_OP_MAKE_DIR, path, NULL, &rq, err);
}

int garret_remove(struct garret_workspace *w, const char *path, struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_REMOVE, .flags = FILE_TREE };

	return change(w, GARRET_OP_REMOVE, path, NULL, &rq, err);
}

static int need_to(const char *to, struct garret_error *err)
{
	return to ? 0 : garret_fail(err, GARRET_TYPE, "to: a path is wanted, not NULL");
}

int garret_rename(struct garret_workspace *w, const char *from, const char *to,
		  struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_RENAME, .flags = FILE_PARENTS };
	int rc = need_to(to, err);

	return rc < 0 ? rc : change(w, GARRET_OP_RENAME, from, to, &rq, err);
}

int garret_copy(struct garret_workspace *w, const char *from, const char *to,
		struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_COPY, .flags = FILE_PARENTS | FILE_TREE };
	int rc = need_to(to, err);

	return rc < 0 ? rc : change(w, GARRET_OP_COPY, from, to, &rq, err);
}

int garret_chmod(struct garret_workspace *w, const char *path, unsigned mode,
		 struct garret_error *err)
{
	const struct file_request rq = { .op = FILE_CHMOD, .mode = mode };

	if (mode & ~0777u)
		return garret_fail(err, GARRET_INVALID, "mode: from 0 to 0777");
	return change(w, GARRET_OP_CHMOD, path, NULL, &rq, err);
}

int garret_sha256(struct garret_workspace *w, const char *path, uint8_t ret[32],
		  struct garret_error *err)
{
	struct file_call call = { .kind = GARRET_OP_DIGEST, .path = path };
	int rc;

	call.rq.op = FILE_DIGEST;
	rc = file_call(w, &call, err);
	if (rc == 0)
		memcpy(ret, call.end.digest, 32);
	file_call_release(&call);
	return rc;
}

/* The body of FILE_EDIT (see proto/files.h): one replacement. */
static void edit_body(struct strbuf *out, const char *old, const char *by, bool all)
{
	const char *text[] = { old, by };

	strbuf_addch(out, all);
	for (int i = 0; i < 2; i++) {
		const uint32_t n = (uint32_t)strlen(text[i]);
		const uint8_t length[4] = { (uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16),
					    (uint8_t)(n >> 24) };

		strbuf_add(out, length, sizeof(length));
		strbuf_add(out, text[i], n);
	}
}

int garret_edit(struct garret_workspace *w, const char *path, const char *old, const char *by,
		bool all, uint64_t *ret_count, struct garret_error *err)
{
	struct file_call call = { .kind = GARRET_OP_EDIT, .path = path };
	struct strbuf body = STRBUF_INIT;
	int rc;

	if (!old || !by)
		return garret_fail(err, GARRET_TYPE, "old and by: text is wanted, not NULL");
	if (!*old)
		return garret_fail(err, GARRET_INVALID, "old: some text, it is empty");
	if (strlen(old) > 32u << 20 || strlen(by) > 32u << 20)
		return garret_fail(err, GARRET_INVALID, "old and by: at most 32 MiB each");
	edit_body(&body, old, by, all);
	call.rq.op = FILE_EDIT;
	call.body = body.buf;
	call.body_bytes = body.len;
	rc = file_call(w, &call, err);
	if (ret_count)
		*ret_count = call.end.count;
	strbuf_release(&body);
	file_call_release(&call);
	return rc;
}
