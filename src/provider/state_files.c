/*
 * File operations on a document.  All of it is in memory: each is done when it returns.  Those
 * that change it are in state_change.c.
 */
#include <errno.h>
#include <limits.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/time.h"
#include "provider/state_impl.h"
#include "text/glob.h"
#include "text/grep.h"

#define ENTRIES_MAX 1000000u
#define MATCHES_MAX 1000000u

/* 0 for a time that is written otherwise. */
static uint64_t time_ns(const char *text)
{
	struct tm tm = { 0 };
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	uint64_t ns = 0, unit = 100000000;

	if (!rest)
		return 0;
	if (*rest == '.')
		for (rest++; *rest >= '0' && *rest <= '9'; rest++, unit /= 10)
			ns += (uint64_t)(*rest - '0') * unit;
	return (uint64_t)timegm(&tm) * 1000000000u + ns;
}

void state_info(struct file_info *info, const struct state_node *n, const char *name)
{
	*info = (struct file_info){ .type = n->dir ? FILE_DIRECTORY : FILE_REGULAR,
				    .mode = n->dir ? 0755 : 0644,
				    .name = name,
				    .target = "",
				    .tag = { .inode = n->number,
					     .size = n->dir ? 0 : n->n,
					     .mtime_ns = time_ns(n->modified),
					     .ctime_ns = n->changes } };
}

void state_tell(const struct box_file *f, const struct state_node *n)
{
	struct file_info info;

	state_info(&info, n, "");
	if (f->events->info)
		f->events->info(f->ctx, &info);
}

static void tell_entry(struct box_file *f, const struct state_node *n, const char *name)
{
	struct file_info info;

	state_info(&info, n, name);
	if (f->events->entry)
		f->events->entry(f->ctx, &info);
	f->end.count++;
}

int state_not_found(const char *path, struct garret_error *err)
{
	errno = ENOENT;
	return garret_fail_errno(err, "%s", path);
}

/* NOT_DIRECTORY when a file is in the way, as a file system has it. */
int state_find(struct box_file *f, const char *path, struct state_node **ret,
	       struct garret_error *err)
{
	struct state_node *parent = NULL;
	const char *name = NULL;
	int rc;

	*ret = state_doc_find(f->box->held->doc, path);
	if (*ret)
		return 0;
	rc = state_doc_parent(f->box->held->doc, path, false, &parent, &name, err);
	if (rc == 0)
		rc = state_not_found(path, err);
	return rc;
}

int state_find_file(struct box_file *f, const char *path, struct state_node **ret,
		    struct garret_error *err)
{
	int rc = state_find(f, path, ret, err);

	if (!*ret)
		return rc;
	errno = EISDIR;
	if ((*ret)->dir)
		return garret_fail_errno(err, "%s", path);
	if ((*ret)->damaged)
		return garret_fail(err, GARRET_INVALID, "%s: its base64 in the document is damaged",
				   path);
	return 0;
}

static int find_dir(struct box_file *f, const char *path, struct state_node **ret,
		    struct garret_error *err)
{
	int rc = state_find(f, path, ret, err);

	errno = ENOTDIR;
	return !*ret || (*ret)->dir ? rc : garret_fail_errno(err, "%s", path);
}

/* ---- looking ---- */

static int op_stat(struct box_file *f, struct garret_error *err)
{
	struct state_node *n = NULL;
	int rc = state_find(f, f->path, &n, err);

	if (rc == 0)
		state_tell(f, n);
	return rc;
}

static int op_list(struct box_file *f, struct garret_error *err)
{
	const size_t max = f->rq.max_entries ? f->rq.max_entries : ENTRIES_MAX;
	struct state_node *dir = NULL, **list;
	size_t n;
	int rc = find_dir(f, f->path, &dir, err);

	if (rc < 0)
		return rc;
	list = state_node_sorted(dir, &n);
	f->end.truncated = n > max;
	for (size_t i = 0; i < MIN(n, max); i++)
		tell_entry(f, list[i], list[i]->name);
	free(list);
	return 0;
}

/* What a walk finds, breadth first: each node once, with its path below the root. */
struct found {
	const struct state_node *node;
	char *path;
	unsigned depth;
};
struct walk {
	struct found *list;
	size_t n;
};

static void walk_add(struct walk *w, const struct state_node *node, const char *dir, unsigned depth)
{
	size_t n;
	struct state_node **list = state_node_sorted(node, &n);

	for (size_t i = 0; i < n; i++) {
		if ((w->n & (w->n - 1)) == 0)
			w->list = xrealloc(w->list, (w->n ? 2 * w->n : 1) * sizeof(*w->list));
		w->list[w->n++] = (struct found){
			list[i], xasprintf("%s%s%s", dir, *dir ? "/" : "", list[i]->name), depth
		};
	}
	free(list);
}

static void walk_all(struct walk *w, const struct state_node *root, unsigned max_depth,
		     bool *truncated)
{
	walk_add(w, root, "", 1);
	for (size_t i = 0; i < w->n; i++) {
		if (!w->list[i].node->dir)
			continue;
		if (w->list[i].depth >= max_depth)
			*truncated = true;
		else
			walk_add(w, w->list[i].node, w->list[i].path, w->list[i].depth + 1);
	}
}

static void walk_release(struct walk *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->list[i].path);
	free(w->list);
}

static int op_walk(struct box_file *f, struct garret_error *err)
{
	const size_t max = f->rq.max_entries ? f->rq.max_entries : ENTRIES_MAX;
	struct walk w = { 0 };
	struct state_node *dir = NULL;
	bool truncated = false;
	int rc = find_dir(f, f->path, &dir, err);

	if (rc < 0)
		return rc;
	walk_all(&w, dir, f->rq.max_depth ? f->rq.max_depth : UINT_MAX, &truncated);
	f->end.truncated = truncated || w.n > max;
	for (size_t i = 0; i < MIN(w.n, max); i++)
		tell_entry(f, w.list[i].node, w.list[i].path);
	walk_release(&w);
	return 0;
}

static int op_read(struct box_file *f, struct garret_error *err)
{
	struct state_node *n = NULL;
	uint64_t from = f->rq.offset, length = f->rq.length;
	int rc = state_find_file(f, f->path, &n, err);

	if (rc < 0)
		return rc;
	if (f->rq.max_bytes && n->n > f->rq.max_bytes)
		return garret_fail(err, GARRET_TOO_LARGE, "%s has %zu bytes, more than %llu",
				   f->path, n->n, (unsigned long long)f->rq.max_bytes);
	if (f->rq.flags & FILE_FROM_END)
		from = n->n - MIN(length, (uint64_t)n->n);
	from = MIN(from, (uint64_t)n->n);
	length = MIN(length, n->n - from);
	state_tell(f, n);
	strbuf_add(&f->out, n->content + from, (size_t)length);
	return 0;
}

static int op_realpath(struct box_file *f, struct garret_error *err)
{
	struct strbuf out = STRBUF_INIT;

	(void)err;
	for (const char *at = f->path; *at;) {
		const size_t n = strcspn(at, "/");

		if (n == 2 && !memcmp(at, "..", 2)) {
			while (out.len && out.buf[--out.len] != '/')
				;
		} else if (n && !(n == 1 && *at == '.')) {
			strbuf_addch(&out, '/');
			strbuf_add(&out, at, n);
		}
		at += n + (at[n] == '/');
	}
	if (!out.len)
		strbuf_addch(&out, '/');
	else
		out.buf[out.len] = '\0';
	f->end_path = strbuf_detach(&out, NULL);
	return 0;
}

static int op_digest(struct box_file *f, struct garret_error *err)
{
	struct sha256_ctx ctx;
	struct state_node *n = NULL;
	int rc = state_find_file(f, f->path, &n, err);

	if (rc < 0)
		return rc;
	sha256_init(&ctx);
	sha256_update(&ctx, n->n, (const uint8_t *)n->content);
	sha256_digest(&ctx, sizeof(f->end.digest), f->end.digest);
	state_tell(f, n);
	return 0;
}

/* ---- searching ---- */

static bool is_hidden(const char *path)
{
	return *path == '.' || strstr(path, "/.");
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct found *)a)->path, ((const struct found *)b)->path);
}

static int walk_sorted(struct box_file *f, struct walk *w, struct garret_error *err)
{
	struct state_node *dir = NULL;
	bool truncated = false;
	int rc = find_dir(f, f->path, &dir, err);

	if (rc < 0)
		return rc;
	walk_all(w, dir, UINT_MAX, &truncated);
	if (w->n)
		qsort(w->list, w->n, sizeof(*w->list), by_path);
	return 0;
}

static int op_glob(struct box_file *f, struct garret_error *err)
{
	const size_t max = f->rq.max_entries ? f->rq.max_entries : ENTRIES_MAX;
	const bool dirs_too = f->rq.flags & FILE_DIRS_TOO;
	struct walk w = { 0 };
	struct glob g;
	int rc;

	if (!*f->pattern)
		return garret_fail(err, GARRET_INVALID, "the pattern is empty");
	rc = glob_compile(&g, f->pattern, f->rq.flags & FILE_NO_CASE ? GLOB_FOLD : 0, err);
	if (rc < 0)
		return rc;
	rc = walk_sorted(f, &w, err);
	for (size_t i = 0; rc == 0 && i < w.n; i++) {
		const struct found *at = &w.list[i];

		if ((at->node->dir && !dirs_too) || (g.dir_only && !at->node->dir) ||
		    (!(f->rq.flags & FILE_HIDDEN) && is_hidden(at->path)) ||
		    !glob_match(&g, at->path))
			continue;
		if (f->end.count == max) {
			f->end.truncated = true;
			break;
		}
		tell_entry(f, at->node, at->path);
	}
	walk_release(&w);
	glob_done(&g);
	return rc;
}

struct searching {
	struct box_file *f;
	const char *name;
	size_t max;
};

static int on_match(void *ctx, struct file_match *m, struct garret_error *err)
{
	struct searching *s = ctx;
	struct box_file *f = s->f;

	(void)err;
	if (f->end.count == s->max) {
		f->end.truncated = true;
		return GREP_STOP;
	}
	f->end.count++;
	m->name = s->name;
	if (f->events->match)
		f->events->match(f->ctx, m);
	return 0;
}

static int grep_node(struct searching *s, struct grep *g, const struct state_node *n,
		     const char *name, struct garret_error *err)
{
	int rc;

	if (n->damaged) {
		s->f->end.skipped++;
		return 0;
	}
	s->name = name;
	rc = grep_bytes(g, n->content, n->n, !*name, err);
	s->f->end.skipped += rc == GREP_BINARY;
	return rc;
}

static int grep_tree(struct searching *s, struct grep *g, struct garret_error *err)
{
	struct box_file *f = s->f;
	struct walk w = { 0 };
	struct glob filter = { 0 };
	int rc = *f->include ? glob_compile(&filter, f->include, 0, err) : 0;

	if (rc == 0)
		rc = walk_sorted(f, &w, err);
	for (size_t i = 0; rc == 0 && i < w.n; i++) {
		const struct found *at = &w.list[i];

		if (at->node->dir || (!(f->rq.flags & FILE_HIDDEN) && is_hidden(at->path)) ||
		    (*f->include && !glob_match(&filter, at->path)))
			continue;
		rc = grep_node(s, g, at->node, at->path, err);
		if (rc == GREP_STOP)
			break;
		rc = MIN(rc, 0);
	}
	walk_release(&w);
	glob_done(&filter);
	return MIN(rc, 0);
}

static int op_grep(struct box_file *f, struct garret_error *err)
{
	struct searching s = { .f = f, .max = f->rq.max_entries ? f->rq.max_entries : MATCHES_MAX };
	struct state_node *n = NULL;
	struct grep g;
	int rc = state_find(f, f->path, &n, err);

	if (rc == 0)
		rc = grep_compile(&g, f->pattern, f->rq.flags, err);
	if (rc < 0)
		return rc;
	g.found = on_match;
	g.ctx = &s;
	rc = n->dir ? grep_tree(&s, &g, err) : grep_node(&s, &g, n, "", err);
	grep_done(&g);
	return MIN(rc, 0);
}

/* ---- the table ---- */

static const struct {
	int (*look)(struct box_file *f, struct garret_error *err);
	int (*change)(struct box_file *f, struct garret_error *err);
} table[FILE_OPS] = {
	[FILE_STAT] = { op_stat, NULL },
	[FILE_LIST] = { op_list, NULL },
	[FILE_WALK] = { op_walk, NULL },
	[FILE_READ] = { op_read, NULL },
	[FILE_REALPATH] = { op_realpath, NULL },
	[FILE_DIGEST] = { op_digest, NULL },
	[FILE_GLOB] = { op_glob, NULL },
	[FILE_GREP] = { op_grep, NULL },
	[FILE_WRITE] = { NULL, state_change_write },
	[FILE_MKDIR] = { NULL, state_change_make_dir },
	[FILE_REMOVE] = { NULL, state_change_remove },
	[FILE_RENAME] = { NULL, state_change_rename },
	[FILE_COPY] = { NULL, state_change_copy },
	[FILE_EDIT] = { NULL, state_change_edit },
};

static const char *const missing[FILE_OPS] = {
	[FILE_CHMOD] = "a document has no modes",
	[FILE_TAR_OUT] = "a document makes no archives",
	[FILE_TAR_IN] = "a document unpacks no archives",
	[FILE_TEXT] = "a document gives no slices of text",
};

int state_carry_out(struct box_file *f, struct garret_error *err)
{
	const uint8_t op = f->rq.op;
	int rc;

	if (f->error.code)
		return -(int)f->error.code;
	if (op >= FILE_OPS || (!table[op].look && !table[op].change))
		return garret_fail(err, GARRET_UNSUPPORTED, "%s",
				   op < FILE_OPS && missing[op] ? missing[op]
								: "no such operation");
	rc = state_refresh(f->box, false, err);
	if (rc < 0)
		return rc;
	rc = table[op].look ? table[op].look(f, err) : state_change(f, table[op].change, err);
	/* What was tried on the way and mended there is none of the answer. */
	if (rc == 0)
		memset(err, 0, sizeof(*err));
	return rc;
}
