/*
 * The names below a directory, and which of them a search leaves out: hidden
 * ones, and what .gitignore files say, also those above it in the same repository.
 */
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "provider/shellfs_search.h"

#define DEPTH_MAX 4096
#define NAMES_BYTES (48u << 10) /* of names in one command */

/* ---- names ---- */

/* $2 depth, $3: the .gitignore files count, $4: hidden names as well. */
static const char names_script[] =
	"m() { a \"$1\"; p=$v; look \"$p\" || return; [ $k != o ] || return 122\n"
	"[ -r \"$p\" ] || return 113; if [ $k = f ]; then printf 'F\\0'; return; fi\n"
	"[ -x \"$p\" ] || return 113; cd -P \"$p\" || return; has find || return\n"
	"if [ $3 = 1 ]; then d=$(pwd -P && echo .); d=${d%.}; d=${d%?}; while :; do g=0 i=0\n"
	"{ [ -e \"$d/.git\" ] || [ -L \"$d/.git\" ]; } && g=1\n"
	"[ -f \"$d/.gitignore\" ] && [ ! -L \"$d/.gitignore\" ] && i=1\n"
	"printf 'A%s%s%s\\0' $g $i \"$d\"; [ $g = 0 ] && [ -n \"$d\" ] || break; d=${d%/*}; done; fi\n"
	"C='o=$1; shift; printf \"$o%s\\0\" \"$@\"'; D=$2\n"
	"case $3$4 in 10) set -- -name '.?*' ! -name .gitignore -prune -o;;\n"
	"11) set -- -name .git -prune -o;; 00) set -- -name '.?*' -prune -o;; *) set --;; esac\n"
	"find . -mindepth 1 -maxdepth $D \"$@\" -type d -exec sh -c \"$C\" sh d {} + -o "
	"-type f -exec sh -c \"$C\" sh f {} + -o -type l -exec sh -c \"$C\" sh l {} + -o "
	"-exec sh -c \"$C\" sh o {} +; :; }";

static unsigned depth_of(const char *path)
{
	unsigned n = 0;

	for (; (path = strchr(path, '/')); path++)
		n++;
	return n;
}

static int by_depth(const void *a, const void *b)
{
	const char *x = ((const struct item *)a)->path, *y = ((const struct item *)b)->path;
	const unsigned dx = depth_of(x), dy = depth_of(y);

	return dx == dy ? strcmp(x, y) : dx < dy ? -1 : 1;
}

static int take_names(struct shellfs_op *op, struct garret_error *err)
{
	struct search *s = op->search;
	const char *at = op->out.buf, *end = at + op->out.len;

	for (size_t n; at < end; at += n + 1) {
		n = strnlen(at, (size_t)(end - at));
		if (at + n == end || n < 1 || !strchr("AFdflo", *at) ||
		    (*at == 'A' ? n < 3 : *at != 'F' && strncmp(at + 1, "./", 2) != 0))
			return garret_fail(err, GARRET_PROTOCOL,
					   "find's answer can't be understood");
		if (*at == 'F') {
			s->root_is_file = true;
		} else if (*at == 'A') {
			s->higher = xrealloc(s->higher, (s->n_higher + 1) * sizeof(*s->higher));
			s->higher[s->n_higher++] = xstrndup(at + 1, n - 1);
		} else {
			if (s->n == s->cap) {
				s->cap = s->cap ? 2 * s->cap : 256;
				s->items = xrealloc(s->items, s->cap * sizeof(*s->items));
			}
			s->items[s->n++] =
				(struct item){ .path = xstrndup(at + 3, n - 3), .type = *at };
		}
	}
	if (s->n)
		qsort(s->items, s->n, sizeof(*s->items), by_depth);
	for (size_t i = 0; i < s->n; i++)
		if (s->items[i].type == 'd')
			(void)map_set(&s->dirs, s->items[i].path, &s->items[i]);
	strbuf_reset(&op->out);
	return 0;
}

/* ---- what is left out ---- */

static struct item *parent_of(const struct search *s, const char *path)
{
	const char *slash = strrchr(path, '/');
	autofree char *dir = slash ? xstrndup(path, (size_t)(slash - path)) : NULL;

	return dir ? map_find(&s->dirs, dir) : NULL;
}

static const char *name_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Each in its turn, those of directories first: what they inherit is known then. */
static void decide(struct shellfs_op *op)
{
	const bool hidden = op->rq.flags & FILE_HIDDEN, all = op->rq.flags & FILE_NO_IGNORE;
	struct search *s = op->search;
	struct item *root = map_find(&s->dirs, "");

	for (size_t i = 0; i < s->n; i++) {
		struct item *it = &s->items[i], *up = parent_of(s, it->path);
		const char *name = name_of(it->path);

		if (it == root)
			continue; /* it is searched, whatever it is called */
		up = up ? up : root;
		it->out = up->out || (*name == '.' && !hidden) ||
			  (!all && (!strcmp(name, ".git") ||
				    ignore_match(up->ignore, it->path, it->type == 'd')));
		if (it->type == 'd' && !it->ignore)
			it->ignore = up->ignore;
	}
}

/* ---- .gitignore ---- */

static const char ignores_script[] =
	"m() { a \"$1\"; p=$v; shift; has tr || return; cd -P \"$p\" || return; for w do a \"$w\"\n"
	"dd if=\"$v\" bs=65536 count=4 2>/dev/null | tr -d '\\000'; printf '\\0'; done; }";

static void read_ignores(struct shellfs_op *op);

static void add_rule(struct search *s, struct ignore *ig)
{
	if (s->n_rules == s->cap_rules) {
		s->cap_rules = s->cap_rules ? 2 * s->cap_rules : 16;
		s->rules = xrealloc(s->rules, s->cap_rules * sizeof(struct ignore *));
	}
	s->rules[s->n_rules++] = ig;
}

/* One file's text: of a directory above ("/..."), or of one below. */
static void take_ignore(struct search *s, const char *file, const char *text, size_t n)
{
	struct item *root = map_find(&s->dirs, ""), *dir;
	const size_t m = strlen(file) - strlen(".gitignore");

	if (*file == '/') {
		/* The root seen from there: "src/". */
		const char *base = s->higher[0] + 2;
		autofree char *rest = xasprintf("%s/", base + m);

		s->above = ignore_push(s->above, rest, 0, text, n);
		add_rule(s, s->above);
		root->ignore = s->above;
		return;
	}
	if (!m) {
		root->ignore = ignore_push(root->ignore, NULL, 0, text, n);
		add_rule(s, root->ignore);
		return;
	}
	{
		autofree char *path = xstrndup(file, m - 1);
		struct item *up = parent_of(s, path);

		dir = map_find(&s->dirs, path);
		if (!dir)
			return;
		dir->ignore =
			ignore_push(up && up->ignore ? up->ignore : root->ignore, NULL, m, text, n);
		add_rule(s, dir->ignore);
	}
}

static void ignores_done(struct shellfs_op *op)
{
	struct search *s = op->search;
	const char *at = op->out.buf, *end = at + op->out.len;

	for (size_t i = 0; i < s->batch; i++) {
		const size_t n = strnlen(at, (size_t)(end - at));

		if (at + n == end) {
			shellfs_failf(op, GARRET_PROTOCOL,
				      "what .gitignore says can't be understood");
			return;
		}
		take_ignore(s, s->files[s->files_at++], at, MIN(n, (size_t)IGNORE_FILE_MAX));
		at += n + 1;
	}
	read_ignores(op);
}

size_t search_put_names(struct script_args *a, char *const *names, size_t n)
{
	size_t bytes = 0, i;

	for (i = 0; i < n && i < NAMES_BATCH && (!i || bytes < NAMES_BYTES); i++) {
		script_arg_path(a, names[i]);
		bytes += strlen(names[i]) * 5; /* where none of it is UTF-8 */
	}
	return i;
}

static void want_file(struct search *s, const char *dir, bool slash)
{
	s->files = xrealloc(s->files, (s->n_files + 1) * sizeof(*s->files));
	s->files[s->n_files++] = xasprintf("%s%s.gitignore", dir, slash ? "/" : "");
}

/*
 * First those of the root and above it in the same repository, then those of directories that
 * these don't leave out.
 */
static void choose_ignores(struct search *s)
{
	size_t top = s->n_higher;

	if (s->round == 0) {
		for (size_t i = 0; i < s->n_higher; i++)
			if (s->higher[i][0] == '1')
				top = i;
		for (size_t i = top; top < s->n_higher && i > 0; i--)
			if (s->higher[i][1] == '1')
				want_file(s, s->higher[i] + 2, true);
		if (s->n_higher && s->higher[0][1] == '1')
			want_file(s, "", false);
		return;
	}
	for (size_t i = 0; i < s->n; i++) {
		const char *name = name_of(s->items[i].path);
		struct item *up = parent_of(s, s->items[i].path);

		if (up && !up->out && s->items[i].type == 'f' && !strcmp(name, ".gitignore"))
			want_file(s, up->path, true);
	}
}

static void read_ignores(struct shellfs_op *op)
{
	struct search *s = op->search;
	struct script_args a = { .n = 0 };

	while (s->files_at == s->n_files) {
		decide(op);
		if (op->rq.flags & FILE_NO_IGNORE || s->round == 2) {
			search_match(op);
			return;
		}
		choose_ignores(s);
		s->round++;
	}
	script_arg_path(&a, op->rq.path);
	s->batch = search_put_names(&a, s->files + s->files_at, s->n_files - s->files_at);
	s->next = ignores_done;
	shellfs_script(op, ignores_script, &a, false);
}

void search_names_done(struct shellfs_op *op)
{
	struct search *s = op->search;
	struct garret_error err = { 0 };

	s->next = NULL;
	/* One line for each directory that can't be read. */
	for (const char *at = op->errors.buf; op->rq.op == FILE_GREP && (at = strchr(at, '\n'));
	     at++)
		op->end.skipped++;
	if (take_names(op, &err) < 0)
		shellfs_fail(op, &err);
	else if (s->root_is_file && op->rq.op == FILE_GLOB)
		shellfs_failf(op, GARRET_NOT_DIRECTORY, "%s: Not a directory", op->rq.path);
	else if (s->root_is_file)
		search_next(op);
	else
		read_ignores(op);
}

void search_names(struct shellfs_op *op)
{
	const struct file_request *rq = &op->rq;
	struct search *s = op->search;
	struct script_args a = { .n = 0 };

	s->items = xcalloc(256, sizeof(*s->items));
	s->cap = 256;
	s->items[s->n++] = (struct item){ .path = xstrdup(""), .type = 'd' };
	script_arg_path(&a, rq->path);
	script_arg_number(&a, rq->max_depth ? rq->max_depth : DEPTH_MAX);
	script_arg(&a, rq->flags & FILE_NO_IGNORE ? "0" : "1");
	script_arg(&a, rq->flags & FILE_HIDDEN ? "1" : "0");
	s->next = search_names_done;
	shellfs_script(op, names_script, &a, false);
}
