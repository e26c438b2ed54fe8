#include "provider/state_doc.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

/* ---- nodes ---- */

static struct state_node *node_new(struct state_doc *d, struct state_node *parent, const char *name,
				   bool dir)
{
	struct state_node *n = xnew(struct state_node);

	n->name = xstrdup(name);
	n->parent = parent;
	n->dir = dir;
	n->number = ++d->numbers;
	map_init(&n->children);
	if (parent)
		(void)map_set(&parent->children, name, n);
	return n;
}

static void collect(const char *key, void *value, void *ctx)
{
	struct state_node ***at = ctx;

	(void)key;
	*(*at)++ = value;
}

static int by_name(const void *a, const void *b)
{
	const struct state_node *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

struct state_node **state_node_sorted(const struct state_node *node, size_t *ret_n)
{
	struct state_node **list = xcalloc(node->children.count + 1, sizeof(*list)), **at = list;

	map_foreach(&node->children, collect, &at);
	*ret_n = (size_t)(at - list);
	if (*ret_n)
		qsort(list, *ret_n, sizeof(*list), by_name);
	return list;
}

static void node_free(struct state_node *n)
{
	size_t many;
	struct state_node **list = state_node_sorted(n, &many);

	/* As deep as paths are, which are bounded. */
	for (size_t i = 0; i < many; i++)
		node_free(list[i]);
	free(list);
	map_release(&n->children);
	free(n->name);
	free(n->content);
	free(n->created);
	free(n->modified);
	free(n);
}

static void add_path(struct strbuf *out, const struct state_node *n)
{
	if (!n->parent)
		return;
	add_path(out, n->parent);
	strbuf_addch(out, '/');
	strbuf_addstr(out, n->name);
}

char *state_node_path(const struct state_node *node)
{
	struct strbuf out = STRBUF_INIT;

	add_path(&out, node);
	if (!out.len)
		strbuf_addch(&out, '/');
	return strbuf_detach(&out, NULL);
}

struct state_doc *state_doc_new(void)
{
	struct state_doc *d = xnew(struct state_doc);

	d->root = node_new(d, NULL, "", true);
	return d;
}

struct state_doc *state_doc_free(struct state_doc *d)
{
	if (!d)
		return NULL;
	node_free(d->root);
	free(d);
	return NULL;
}

/* ---- sizes ---- */

/* {"files":{A,B},"directories":[C,D]} without its head: only the two lists count. */
size_t state_doc_size(const struct state_doc *d)
{
	return d->entry_bytes + (d->n_files ? d->n_files - 1 : 0) +
	       (d->n_dirs ? d->n_dirs - 1 : 0) + 4;
}

/* Of the entry of a node at that path, whether it has one or not. */
static size_t own_cost(const struct state_node *node, const char *path)
{
	const size_t name = state_json_length(path, strlen(path)) + 2;

	if (node->dir)
		return node->made ? name : 0;
	return node->json_bytes + name + 1; /* the colon */
}

static void count(struct state_doc *d, const struct state_node *node, int sign)
{
	char *path;

	if (node->dir && !node->made)
		return;
	path = state_node_path(node);
	d->entry_bytes += (size_t)sign * own_cost(node, path);
	if (node->dir)
		d->n_dirs += (size_t)sign;
	else
		d->n_files += (size_t)sign;
	free(path);
}

static void count_tree(struct state_doc *d, const struct state_node *node, int sign)
{
	size_t many;
	struct state_node **list = state_node_sorted(node, &many);

	count(d, node, sign);
	for (size_t i = 0; i < many; i++)
		count_tree(d, list[i], sign);
	free(list);
}

/* ---- finding ---- */

struct state_node *state_doc_find(const struct state_doc *d, const char *path)
{
	struct state_node *at = d->root;

	while (at && *path) {
		char name[4096];
		size_t n;

		while (*path == '/')
			path++;
		n = strcspn(path, "/");
		if (!n)
			break;
		if (n >= sizeof(name) || !at->dir)
			return NULL;
		memcpy(name, path, n);
		name[n] = '\0';
		at = map_find(&at->children, name);
		path += n;
	}
	return at;
}

int state_doc_parent(struct state_doc *d, const char *path, bool make, struct state_node **ret,
		     const char **ret_name, struct garret_error *err)
{
	struct state_node *at = d->root;
	const char *p = path + 1;

	for (;;) {
		const size_t n = strcspn(p, "/");
		struct state_node *next;
		char name[4096];

		if (!p[n]) {
			*ret = at;
			*ret_name = p;
			return 0;
		}
		memcpy(name, p, n); /* paths have at most 4,095 bytes */
		name[n] = '\0';
		next = map_find(&at->children, name);
		if (next && !next->dir)
			return garret_fail(err, GARRET_NOT_DIRECTORY, "%s: Not a directory", path);
		if (!next && !make)
			return garret_fail(err, GARRET_NOT_FOUND, "%s: No such file or directory",
					   path);
		/* What something was put into stays when the last thing in it goes. */
		if (make)
			next = state_doc_make_dir(d, at, name);
		at = next;
		p += n + 1;
	}
}

/* ---- what a change would cost ---- */

static bool is_text(const void *data, size_t n)
{
	return utf8_valid(data, n);
}

/* Of {"content":...,"created_at":"...","modified_at":"..."[,"encoding":"base64"]} */
static size_t entry_length(const void *data, size_t n, const char *created, const char *modified,
			   bool text)
{
	size_t bytes = strlen("{\"content\":[\"\"],\"created_at\":\"\",\"modified_at\":\"\"}");

	bytes += state_json_length(created, strlen(created)) +
		 state_json_length(modified, strlen(modified));
	if (!text)
		return bytes + (n + 2) / 3 * 4 + strlen(",\"encoding\":\"base64\"");
	bytes += state_json_length(data, n);
	/* A line's end is `","` in place of `\n`, which was counted as two. */
	for (const char *at = data, *end = at + n; n && (at = memchr(at, '\n', (size_t)(end - at)));
	     at++)
		bytes++;
	return bytes;
}

#define TIME_BYTES 32 /* 2026-11-30T05:43:21.123456+00:00 */

static const char some_time[TIME_BYTES + 1] = "2026-11-30T05:43:21.123456+00:00";

size_t state_node_cost(const struct state_node *node, const char *path, bool copy)
{
	const bool listed = !node->dir || node->made;
	size_t many, sum = own_cost(node, path) + listed;
	struct state_node **list = state_node_sorted(node, &many);

	if (copy && !listed)
		sum += state_json_length(path, strlen(path)) + 3;
	if (copy && !node->dir) /* it gets times of its own */
		sum += entry_length(node->content, node->n, some_time, some_time,
				    is_text(node->content, node->n)) -
		       node->json_bytes;
	for (size_t i = 0; i < many; i++) {
		char *below = xasprintf("%s/%s", path[1] ? path : "", list[i]->name);

		sum += state_node_cost(list[i], below, copy);
		free(below);
	}
	free(list);
	return sum;
}

/* The directories that are missing on the way to path, with it itself when `whole`. */
static int64_t missing_cost(const struct state_doc *d, const char *path, bool whole)
{
	const struct state_node *at = d->root;
	int64_t sum = 0;

	for (const char *p = path; *p;) {
		const size_t n = strcspn(p + 1, "/");
		const bool last = !p[1 + n];
		char name[4096];

		if (last && !whole)
			break;
		memcpy(name, p + 1, n);
		name[n] = '\0';
		at = at ? map_find(&at->children, name) : NULL;
		if (!at || (at->dir && !at->made))
			sum += (int64_t)state_json_length(path, (size_t)(p + 1 + n - path)) + 3;
		p += 1 + n;
	}
	return sum && !d->n_dirs ? sum - 1 : sum; /* the first has no comma */
}

int64_t state_doc_dir_cost(const struct state_doc *d, const char *path)
{
	return path[1] ? missing_cost(d, path, true) : 0;
}

int64_t state_doc_cost(const struct state_doc *d, const char *path, const void *data, size_t n)
{
	const struct state_node *old = state_doc_find(d, path);
	const char *created = old && old->created ? old->created : some_time;
	int64_t cost = (int64_t)entry_length(data, n, created, some_time, is_text(data, n));

	cost += missing_cost(d, path, false);
	if (old)
		return cost - (int64_t)old->json_bytes;
	return cost + (int64_t)state_json_length(path, strlen(path)) + 3 + (d->n_files > 0);
}

/* ---- changing ---- */

static void set_content(struct state_node *n, const void *data, size_t bytes)
{
	free(n->content);
	n->content = xmalloc(bytes + 1);
	if (bytes)
		memcpy(n->content, data, bytes);
	n->content[bytes] = '\0';
	n->n = bytes;
}

struct state_node *state_doc_put(struct state_doc *d, struct state_node *parent, const char *name,
				 const void *data, size_t n, const char *now)
{
	struct state_node *node = map_find(&parent->children, name);

	if (node)
		count(d, node, -1);
	else
		node = node_new(d, parent, name, false);
	set_content(node, data, n);
	node->damaged = false;
	if (!node->created)
		node->created = xstrdup(now);
	free(node->modified);
	node->modified = xstrdup(now);
	node->changes = ++d->changes;
	node->json_bytes = entry_length(node->content, n, node->created, node->modified,
					is_text(node->content, n));
	count(d, node, 1);
	return node;
}

struct state_node *state_doc_make_dir(struct state_doc *d, struct state_node *parent,
				      const char *name)
{
	struct state_node *node = map_find(&parent->children, name);

	if (!node)
		node = node_new(d, parent, name, true);
	if (!node->made) {
		node->made = true;
		node->changes = ++d->changes;
		count(d, node, 1);
	}
	return node;
}

/* Directories that only what they held made are no more when that goes. */
static void prune(struct state_node *dir)
{
	while (dir->parent && !dir->made && !dir->children.count) {
		struct state_node *up = dir->parent;

		(void)map_remove(&up->children, dir->name);
		node_free(dir);
		dir = up;
	}
}

void state_doc_remove(struct state_doc *d, struct state_node *node)
{
	struct state_node *parent = node->parent;

	count_tree(d, node, -1);
	(void)map_remove(&parent->children, node->name);
	node_free(node);
	d->changes++;
	prune(parent);
}

void state_doc_move(struct state_doc *d, struct state_node *node, struct state_node *to,
		    const char *name)
{
	struct state_node *from = node->parent;

	count_tree(d, node, -1);
	(void)map_remove(&from->children, node->name);
	free(node->name);
	node->name = xstrdup(name);
	node->parent = to;
	(void)map_set(&to->children, name, node);
	count_tree(d, node, 1);
	node->changes = ++d->changes;
	prune(from);
}
