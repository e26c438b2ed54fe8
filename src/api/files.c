/*
 * The published file routes.  Everything that the session's user can do is done
 * natively: links, `..`, paths outside the work directory, files of any size.
 * 409, "use the shell", is left for errors that the five names don't cover,
 * because the shell's way then reports the right one.
 */
#include <string.h>

#include "api/file_answer.h"
#include "api/handlers.h"

static const char *base_name(const char *path)
{
	size_t n = strlen(path);

	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n && path[n - 1] != '/')
		n--;
	return path + n;
}

static bool begin(struct call *c, const struct file_kind *kind, struct file_request rq)
{
	if (!service_config(c->service)->native_files) {
		call_refuse(c, 409, "Native file operations are off; use the session's shell");
		return false;
	}
	return file_begin(c, kind, &rq);
}

static const char *path_of(const struct call *c)
{
	return ((const struct path_values *)c->values)->path;
}

/* ---- stat ---- */

static void stat_end(struct file_answer *a, const struct file_end *end)
{
	struct strbuf name = STRBUF_INIT;
	size_t n;

	(void)end;
	if (a->info.type != FILE_REGULAR && a->info.type != FILE_DIRECTORY) {
		a->failed = true;
		(void)garret_fail(&a->error, GARRET_NOT_REGULAR, "not a regular file: %s", a->path);
		return;
	}
	strbuf_addstr(&name, base_name(a->path));
	for (n = name.len; n && name.buf[n - 1] == '/'; n--)
		;
	if (n)
		name.buf[n] = '\0';
	file_put_entry(&a->out, name.buf, a->path, &a->info);
	strbuf_release(&name);
}

void files_stat(struct call *c)
{
	static const struct file_kind kind = { .log = "stat", .end = stat_end, .published = true };

	begin(c, &kind,
	      (struct file_request){ .op = FILE_STAT, .flags = FILE_READABLE, .path = path_of(c) });
}

/* ---- list ---- */

static void put_list_entry(struct file_answer *a, const struct file_info *info)
{
	struct strbuf path = STRBUF_INIT;

	if (!a->items)
		json_open(&a->out, '[');
	file_next_item(a);
	file_join(&path, a->path, info->name);
	file_put_entry(&a->out, info->name, path.buf, info);
	strbuf_release(&path);
}

static void list_end(struct file_answer *a, const struct file_end *end)
{
	(void)end;
	if (!a->items)
		json_open(&a->out, '[');
	json_close(&a->out, ']');
}

void files_list(struct call *c)
{
	static const struct file_kind kind = {
		.log = "ls", .entry = put_list_entry, .end = list_end, .published = true
	};

	begin(c, &kind, (struct file_request){ .op = FILE_LIST, .path = path_of(c) });
}

/* ---- realpath, mkdir, remove ---- */

static void realpath_end(struct file_answer *a, const struct file_end *end)
{
	json_open(&a->out, '{');
	json_put_key(&a->out, "path");
	json_put_string(&a->out, end->path);
	json_close(&a->out, '}');
}

void files_realpath(struct call *c)
{
	static const struct file_kind kind = { .log = "realpath",
					       .end = realpath_end,
					       .published = true };

	begin(c, &kind, (struct file_request){ .op = FILE_REALPATH, .path = path_of(c) });
}

void files_mkdir(struct call *c)
{
	static const struct file_kind kind = { .log = "mkdir", .published = true };

	begin(c, &kind,
	      (struct file_request){ .op = FILE_MKDIR, .flags = FILE_PARENTS, .path = path_of(c) });
}

void files_remove(struct call *c)
{
	static const struct file_kind kind = { .log = "remove", .published = true };

	begin(c, &kind,
	      (struct file_request){ .op = FILE_REMOVE, .flags = FILE_TREE, .path = path_of(c) });
}

/* ---- read, write ---- */

static void read_info(struct file_answer *a, const struct file_info *info)
{
	a->type = "application/octet-stream";
	if (info->tag.size > FILE_INLINE_MAX)
		file_stream_pipe(a, info->tag.size);
}

void files_read(struct call *c)
{
	static const struct file_kind kind = { .log = "read",
					       .info = read_info,
					       .published = true };

	begin(c, &kind,
	      (struct file_request){ .op = FILE_READ,
				     .flags = FILE_BY_PIPE,
				     .path = path_of(c),
				     .length = UINT64_MAX });
}

void files_write(struct call *c)
{
	static const struct file_kind kind = { .log = "write", .published = true, .body = true };

	begin(c, &kind,
	      (struct file_request){ .op = FILE_WRITE, .flags = FILE_PARENTS, .path = path_of(c) });
}
