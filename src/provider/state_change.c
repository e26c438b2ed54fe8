/* What changes a document: each looks for room first, then does all of it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "proto/edit.h"
#include "proto/files.h"
#include "provider/state_impl.h"

static void now_text(char out[40])
{
	const uint64_t us = wall_us();
	const time_t seconds = (time_t)(us / 1000000);
	char date[24];
	struct tm tm;

	(void)gmtime_r(&seconds, &tm);
	(void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(out, 40, "%s.%06u+00:00", date, (unsigned)(us % 1000000));
}

/* JSON has no other names. */
static int check_name(const char *path, struct garret_error *err)
{
	return utf8_valid(path, strlen(path))
		       ? 0
		       : garret_fail(err, GARRET_INVALID, "a document's paths are UTF-8");
}

/* ---- the bound ---- */

static int check_room(const struct box_file *f, int64_t more, struct garret_error *err)
{
	const size_t max = f->box->p->max_bytes, size = state_doc_size(f->box->held->doc);

	if (!max || more <= 0 || size + (size_t)more <= max)
		return 0;
	errno = ENOSPC;
	return garret_fail_errno(err,
				 "%s: the document would have %zu bytes, at most %zu are allowed: "
				 "shorten or overwrite something",
				 f->path, size + (size_t)more, max);
}

/* ---- changing ---- */

/* Replace what is at path; the room was looked for. */
static int put(struct box_file *f, const char *path, const void *data, size_t n,
	       struct garret_error *err)
{
	struct state_doc *d = f->box->held->doc;
	struct state_node *parent = NULL, *old = state_doc_find(d, path);
	const char *name = NULL;
	char now[40];
	int rc = check_name(path, err);

	errno = EISDIR;
	if (rc == 0 && old && old->dir)
		rc = garret_fail_errno(err, "%s", path);
	/* Is a file in the way?  Before parents are made. */
	if (rc == 0 && !old) {
		rc = state_doc_parent(d, path, false, &parent, &name, err);
		if (rc == -GARRET_NOT_FOUND)
			rc = 0;
	}
	if (rc == 0)
		rc = check_room(f, state_doc_cost(d, path, data, n), err);
	if (rc == 0)
		rc = state_doc_parent(d, path, f->rq.flags & FILE_PARENTS, &parent, &name, err);
	if (rc < 0)
		return rc;
	now_text(now);
	state_tell(f, state_doc_put(d, parent, name, data, n, now));
	return 0;
}

static bool same_tag(const struct file_tag *a, const struct file_tag *b)
{
	return a->inode == b->inode && a->size == b->size && a->mtime_ns == b->mtime_ns &&
	       a->ctime_ns == b->ctime_ns;
}

/* What the request says of the file that is there. */
static int check_old(const struct box_file *f, const struct state_node *old,
		     struct garret_error *err)
{
	struct file_info info;

	if (f->rq.flags & FILE_EXCLUSIVE && old) {
		errno = EEXIST;
		return garret_fail_errno(err, "%s", f->path);
	}
	if (!(f->rq.flags & FILE_IF_MATCH))
		return 0;
	if (!old)
		return garret_fail(err, GARRET_CHANGED, "%s is gone", f->path);
	state_info(&info, old, "");
	if (f->rq.tag.inode && !same_tag(&info.tag, &f->rq.tag))
		return garret_fail(err, GARRET_CHANGED, "%s was changed", f->path);
	return 0;
}

int state_change_write(struct box_file *f, struct garret_error *err)
{
	const struct state_node *old = state_doc_find(f->box->held->doc, f->path);
	struct strbuf whole = STRBUF_INIT;
	int rc = old && old->dir ? 0 : check_old(f, old, err);

	if (rc < 0)
		return rc;
	if (!(f->rq.flags & FILE_APPEND) || !old || old->dir)
		return put(f, f->path, f->body.buf, f->body.len, err);
	if (old->damaged)
		return garret_fail(err, GARRET_INVALID, "%s: its base64 in the document is damaged",
				   f->path);
	strbuf_add(&whole, old->content, old->n);
	strbuf_add(&whole, f->body.buf, f->body.len);
	rc = put(f, f->path, whole.buf, whole.len, err);
	strbuf_release(&whole);
	return rc;
}

int state_change_make_dir(struct box_file *f, struct garret_error *err)
{
	struct state_doc *d = f->box->held->doc;
	struct state_node *there = state_doc_find(d, f->path), *parent = NULL;
	const char *name = NULL;
	int rc = check_name(f->path, err);

	if (rc < 0 || !f->path[1])
		return rc;
	errno = EEXIST;
	if (there && (!there->dir || !(f->rq.flags & FILE_PARENTS)))
		return garret_fail_errno(err, "%s", f->path);
	if (!there) {
		rc = state_doc_parent(d, f->path, false, &parent, &name, err);
		if (rc < 0 && !(rc == -GARRET_NOT_FOUND && f->rq.flags & FILE_PARENTS))
			return rc;
	}
	rc = check_room(f, state_doc_dir_cost(d, f->path), err);
	if (rc == 0)
		rc = state_doc_parent(d, f->path, true, &parent, &name, err);
	if (rc < 0)
		return rc;
	(void)state_doc_make_dir(d, parent, name);
	return 0;
}

int state_change_remove(struct box_file *f, struct garret_error *err)
{
	struct state_node *n = NULL;
	int rc;

	if (!f->path[1])
		return garret_fail(err, GARRET_INVALID,
				   "the work directory and what holds it can't be removed: %s",
				   f->path);
	rc = state_find(f, f->path, &n, err);
	/* Through a file there is nothing either. */
	if (rc == -GARRET_NOT_DIRECTORY)
		rc = state_not_found(f->path, err);
	if (rc < 0)
		return rc;
	if (n->dir && !(f->rq.flags & FILE_TREE) && n->children.count)
		return garret_fail(err, GARRET_CONFLICT, "%s: Directory not empty", f->path);
	state_doc_remove(f->box->held->doc, n);
	return 0;
}

/* The place that something is put at: what is there may be replaced by a file only. */
static int check_target(struct box_file *f, const struct state_node *from, struct garret_error *err)
{
	struct state_node *there = state_doc_find(f->box->held->doc, f->to), *parent = NULL;
	const char *name = NULL;
	int rc = check_name(f->to, err);

	if (rc < 0)
		return rc;
	for (const struct state_node *n = there; n; n = n->parent)
		if (n == from && n != there)
			return garret_fail(err, GARRET_INVALID, "%s is inside of %s", f->to,
					   f->path);
	if (there && f->rq.flags & FILE_EXCLUSIVE) {
		errno = EEXIST;
		return garret_fail_errno(err, "%s", f->to);
	}
	errno = there && there->dir ? EISDIR : ENOTDIR;
	if (there && there->dir != from->dir)
		return garret_fail_errno(err, "%s", f->to);
	if (there && there->dir && there->children.count)
		return garret_fail(err, GARRET_CONFLICT, "%s: Directory not empty", f->to);
	rc = there ? 0 : state_doc_parent(f->box->held->doc, f->to, false, &parent, &name, err);
	return rc == -GARRET_NOT_FOUND && f->rq.flags & FILE_PARENTS ? 0 : rc;
}

static bool is_below(const char *path, const char *dir)
{
	const size_t n = strlen(dir);

	return !strncmp(path, dir, n) && path[n] == '/';
}

/* Bytes of the longest path below a node, from its own on. */
static size_t longest_below(const struct state_node *node)
{
	size_t many, max = 0;
	struct state_node **list = state_node_sorted(node, &many);

	for (size_t i = 0; i < many; i++)
		max = MAX(max, strlen(list[i]->name) + 1 + longest_below(list[i]));
	free(list);
	return max;
}

/* Both ends of a rename or copy; *ret_same: there is nothing to do. */
static int check_ends(struct box_file *f, struct state_node **ret, bool *ret_same,
		      struct garret_error *err)
{
	int rc = state_find(f, f->path, ret, err);

	*ret_same = rc == 0 && state_doc_find(f->box->held->doc, f->to) == *ret;
	if (!*ret || *ret_same)
		return rc;
	if (!f->path[1] || !f->to[1] || is_below(f->to, f->path))
		return garret_fail(err, GARRET_INVALID, "%s can't be put at %s", f->path, f->to);
	/* No document with a longer one would be read again. */
	if (strlen(f->to) + longest_below(*ret) > FILE_PATH_MAX)
		return garret_fail(err, GARRET_INVALID,
				   "%s: what is in it would have paths of more than %d bytes at %s",
				   f->path, FILE_PATH_MAX, f->to);
	return check_target(f, *ret, err);
}

static int64_t missing_parents(const struct state_doc *d, const char *path)
{
	autofree char *parent = xstrdup(path);
	char *slash = strrchr(parent, '/');

	if (slash == parent)
		return 0;
	*slash = '\0';
	return state_doc_dir_cost(d, parent);
}

int state_change_rename(struct box_file *f, struct garret_error *err)
{
	struct state_doc *d = f->box->held->doc;
	struct state_node *n = NULL, *parent = NULL, *there;
	const char *name = NULL;
	bool same;
	int rc = check_ends(f, &n, &same, err);

	if (rc < 0 || same)
		return rc;
	there = state_doc_find(d, f->to);
	rc = check_room(f,
			(int64_t)state_node_cost(n, f->to, false) -
				(int64_t)state_node_cost(n, f->path, false) -
				(there ? (int64_t)state_node_cost(there, f->to, false) : 0) +
				missing_parents(d, f->to),
			err);
	if (rc < 0)
		return rc;
	rc = state_doc_parent(d, f->to, true, &parent, &name, err);
	if (rc < 0)
		return rc;
	if (there)
		state_doc_remove(d, there);
	/* Removing may have taken the parent along. */
	rc = state_doc_parent(d, f->to, true, &parent, &name, err);
	if (rc == 0)
		state_doc_move(d, n, parent, name);
	return rc;
}

/* A copy would be a file of that base64 text. */
static int check_whole(const struct box_file *f, const struct state_node *node,
		       struct garret_error *err)
{
	size_t many;
	struct state_node **list = state_node_sorted(node, &many);
	int rc = 0;

	if (node->damaged)
		rc = garret_fail(err, GARRET_INVALID,
				 "%s: base64 of \"%s\" in the document is damaged", f->path,
				 node->name);
	for (size_t i = 0; i < many && rc == 0; i++)
		rc = check_whole(f, list[i], err);
	free(list);
	return rc;
}

static void copy_node(struct state_doc *d, const struct state_node *from, struct state_node *parent,
		      const char *name, const char *now)
{
	struct state_node *to, **list;
	size_t n;

	if (!from->dir) {
		(void)state_doc_put(d, parent, name, from->content, from->n, now);
		return;
	}
	to = state_doc_make_dir(d, parent, name);
	list = state_node_sorted(from, &n);
	for (size_t i = 0; i < n; i++)
		copy_node(d, list[i], to, list[i]->name, now);
	free(list);
}

int state_change_copy(struct box_file *f, struct garret_error *err)
{
	struct state_doc *d = f->box->held->doc;
	struct state_node *n = NULL, *parent = NULL, *there;
	const char *name = NULL;
	char now[40];
	bool same;
	int rc = check_ends(f, &n, &same, err);

	if (rc < 0 || same)
		return rc;
	errno = EISDIR;
	if (n->dir && !(f->rq.flags & FILE_TREE))
		return garret_fail_errno(err, "%s", f->path);
	rc = check_whole(f, n, err);
	if (rc < 0)
		return rc;
	there = state_doc_find(d, f->to);
	rc = check_room(
		f,
		n->dir ? (int64_t)state_node_cost(n, f->to, true) -
				 (there ? (int64_t)state_node_cost(there, f->to, false) : 0) +
				 missing_parents(d, f->to)
		       : state_doc_cost(d, f->to, n->content, n->n),
		err);
	if (rc < 0)
		return rc;
	rc = state_doc_parent(d, f->to, true, &parent, &name, err);
	if (rc < 0)
		return rc;
	now_text(now);
	copy_node(d, n, parent, name, now);
	return 0;
}

int state_change_edit(struct box_file *f, struct garret_error *err)
{
	struct state_node *n = NULL;
	struct get g;
	struct edit e;
	char *text;
	size_t bytes, count = 0;
	int rc = state_find_file(f, f->path, &n, err);

	if (rc == 0)
		rc = check_old(f, n, err);
	if (rc < 0)
		return rc;
	bytes = n->n;
	text = xmemdup(n->content, bytes + 1);
	f->end.count = 0;
	get_init(&g, f->body.buf, f->body.len);
	while (rc == 0 && edit_next(&g, &e)) {
		rc = edit_apply(&e, &text, &bytes, EDIT_FILE_MAX, &count, err);
		f->end.count = rc < 0 ? count : f->end.count + count;
	}
	if (rc == 0 && g.bad)
		rc = garret_fail(err, GARRET_INVALID, "the edits are none");
	if (rc == 0)
		rc = put(f, f->path, text, bytes, err);
	free(text);
	return rc;
}
