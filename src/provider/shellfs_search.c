/*
 * glob and grep.  The names are found by find; which of them match and which
 * .gitignore leaves out is decided here, by the code that our init uses, so that
 * a pattern means the same everywhere.  Contents are searched there, by grep:
 * plain text exactly, expressions only where grep knows Perl's (-P).
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/map.h"
#include "base/mem.h"
#include "init/glob.h"
#include "init/ignore.h"
#include "provider/shellfs_impl.h"

#define NAMES_MAX (64u << 20) /* of what find prints */
#define RESULTS_MAX 1000000
#define DEPTH_MAX 4096
#define BATCH 500 /* names in one command: they are arguments */
#define ALSO_LONG (48u << 10)

/* Something that find named, or the root (""). */
struct item {
	char *path;
	char type;             /* d, f, l, o */
	bool out;              /* left out, with all that is in it */
	struct ignore *ignore; /* of a directory: what counts in it; borrowed */
};

struct search {
	struct item *items; /* sorted: by depth, so that directories come before what is in them */
	size_t n, cap;
	struct map dirs; /* path to item */
	struct ignore **rules;
	size_t n_rules, cap_rules;
	struct ignore *above; /* of the directories above the root */
	char **higher;        /* "gi/path": has .git, has .gitignore; from the root on upwards */
	size_t n_higher;
	char **files; /* .gitignore files that are being read, in order; "" of the ones above */
	size_t n_files, files_at;
	unsigned round;
	bool root_is_file;

	struct glob glob;
	bool filter;
	size_t *hits; /* items that match, sorted by path */
	size_t n_hits, at, batch;
	uint32_t left;
	void (*next)(struct shellfs_op *op); /* what the script's end leads to */
};

static void search_free(struct shellfs_op *op)
{
	struct search *s = op->search;

	if (!s)
		return;
	for (size_t i = 0; i < s->n; i++)
		free(s->items[i].path);
	for (size_t i = 0; i < s->n_higher; i++)
		free(s->higher[i]);
	for (size_t i = 0; i < s->n_files; i++)
		free(s->files[i]);
	/* A deeper one refers to the one above it. */
	while (s->n_rules)
		(void)ignore_pop(s->rules[--s->n_rules]);
	map_release(&s->dirs);
	if (s->filter)
		glob_done(&s->glob);
	free(s->items);
	free(s->higher);
	free(s->files);
	free(s->rules);
	free(s->hits);
	free(s);
	op->search = NULL;
}

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

static void match_names(struct shellfs_op *op);
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

static size_t put_names(struct script_args *a, char *const *names, size_t n)
{
	size_t bytes = 0, i;

	for (i = 0; i < n && i < BATCH && (!i || bytes < ALSO_LONG); i++) {
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
			match_names(op);
			return;
		}
		choose_ignores(s);
		s->round++;
	}
	script_arg_path(&a, op->rq.path);
	s->batch = put_names(&a, s->files + s->files_at, s->n_files - s->files_at);
	s->next = ignores_done;
	shellfs_script(op, ignores_script, &a, false);
}

/* ---- which match ---- */

static int by_path(const void *a, const void *b, void *items)
{
	const struct item *list = items;

	return strcmp(list[*(const size_t *)a].path, list[*(const size_t *)b].path);
}

static void next_batch(struct shellfs_op *op);

static bool is_wanted(const struct shellfs_op *op, const struct item *it)
{
	struct search *s = op->search;
	const bool dirs_too = op->rq.flags & FILE_DIRS_TOO;

	if (it->out || !*it->path || (s->filter && !glob_match(&s->glob, it->path)))
		return false;
	if (op->rq.op == FILE_GREP)
		return it->type == 'f';
	if (s->glob.dir_only && it->type != 'd')
		return false;
	if (it->type == 'l' && op->rq.flags & FILE_NOFOLLOW)
		return false;
	return dirs_too || it->type == 'f' || it->type == 'l';
}

static void match_names(struct shellfs_op *op)
{
	struct search *s = op->search;

	s->hits = xcalloc(s->n + 1, sizeof(*s->hits));
	for (size_t i = 0; i < s->n; i++)
		if (is_wanted(op, &s->items[i]))
			s->hits[s->n_hits++] = i;
	qsort_r(s->hits, s->n_hits, sizeof(*s->hits), by_path, s->items);
	next_batch(op);
}

static size_t put_hits(const struct search *s, struct script_args *a)
{
	char *names[BATCH] = { NULL };
	size_t n = MIN(s->n_hits - s->at, (size_t)BATCH), used;

	/* "./" in front: a name may begin with a dash. */
	for (size_t i = 0; i < n; i++)
		names[i] = xasprintf("./%s", s->items[s->hits[s->at + i]].path);
	used = put_names(a, names, n);
	for (size_t i = 0; i < n; i++)
		free(names[i]);
	return used;
}

/* ---- glob ---- */

static const char details_script[] =
	"m() { a \"$1\"; p=$v; shift; cd -P \"$p\" || return; for w do shift; a \"$w\"; "
	"set -- \"$@\" \"$v\"; done; sh -c \"$B\" sh L \"$@\"; }";

static void glob_details(struct shellfs_op *op)
{
	struct search *s = op->search;
	const bool dirs_too = op->rq.flags & FILE_DIRS_TOO;
	struct shell_entries es = { 0 };
	struct garret_error err = { 0 };
	bool over = false;

	if (shell_entries_parse(&es, &op->out, &err) < 0) {
		shell_entries_release(&es);
		shellfs_fail(op, &err);
		return;
	}
	/* In their order; what is gone meanwhile is missing. */
	for (size_t i = 0; i < es.n && !over; i++) {
		struct file_info *info = &es.list[i].info;

		info->link = *info->target != '\0';
		if (info->type != FILE_REGULAR && !dirs_too)
			continue;
		if (!s->left) {
			op->end.truncated = true;
			s->at = s->n_hits;
			break;
		}
		s->left--;
		op->end.count++;
		over = shellfs_tell_entry(op, info);
	}
	shell_entries_release(&es);
	if (over)
		return;
	s->at = MIN(s->at + s->batch, s->n_hits);
	next_batch(op);
}

/* ---- grep ---- */

/*
 * 2 pattern 3 F or P 4 "-i" or "" 5 binary files as well 6 most lines of one file; names.
 * First in how many lines of which of them it is, then those lines; with P also where.
 */
static const char grep_script[] =
	"m() { a \"$1\"; p=$v; a \"$2\"; q=$v f=$3 i=$4 y=$5 M=$6; shift 6; has grep && has tr || return\n"
	"[ ! -d \"$p\" ] || cd -P \"$p\" || return; A=-a; grep -a -q x /dev/null 2>/dev/null\n"
	"[ $? -le 1 ] || A=\n"
	"if [ $f = P ]; then echo x | grep -q -P x 2>/dev/null || { echo 'grep -P (for regular "
	"expressions)' >&2; return 118; }\n"
	"LC_ALL=C.UTF-8; printf '' | grep -q -P -e \"$q\"; [ $? -le 1 ] || return 125; fi\n"
	"for w do shift; a \"$w\"; set -- \"$@\" \"$v\"; done\n"
	"C=$(grep -c -h $A -$f $i -e \"$q\" -- \"$@\" 2>/dev/null) || [ $? = 1 ] || C=\n"
	"for g do n=1; if [ -n \"$C\" ]; then n=${C%%[!0-9]*} C=${C#*[!0-9]}; fi\n"
	"[ \"$n\" != 0 ] || continue\n"
	"if [ ! -r \"$g\" ] || { [ $y = 0 ] && [ \"$(dd if=\"$g\" bs=8192 count=1 2>/dev/null | "
	"tr -dc '\\000' | wc -c)\" -gt 0 ]; }; then printf 'U%s\\0' \"$g\"; continue; fi\n"
	"printf 'M%s\\0' \"$g\"\n"
	"if [ $f = P ]; then grep -n -b $A -m $M -P $i -e \"$q\" -- \"$g\" | tr '\\000' '?'; printf '\\0'\n"
	"grep -n -b -o $A -m $M -P $i -e \"$q\" -- \"$g\" | tr '\\000' '?'; printf '\\0'\n"
	"else grep -n $A -m $M -F $i -e \"$q\" -- \"$g\" | tr '\\000' '?'; printf '\\0'; fi; done; }";

/* Nothing in it means anything but itself. */
static bool is_plain(const struct file_request *rq)
{
	return rq->flags & FILE_FIXED || !rq->pattern[strcspn(rq->pattern, "\\^$.|?*+()[]{}")];
}

static bool take_number(const char **at, uint64_t *ret)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*ret = strtoull(*at, &end, 10);
	if (*end != ':')
		return false;
	*at = end + 1;
	return true;
}

/* One place in a line; false: enough, or the operation is gone (then *gone). */
static bool tell(struct shellfs_op *op, const char *name, uint64_t line, const char *text, size_t n,
		 size_t at, size_t length, bool *gone)
{
	struct search *s = op->search;
	struct file_match m = { .name = name,
				.line = line,
				.column = (uint32_t)at + 1,
				.length = (uint32_t)length,
				.text = text };

	if (n && text[n - 1] == '\r')
		n--;
	m.cut = n > FILE_LINE_MAX;
	m.text_bytes = (uint32_t)MIN(n, (size_t)FILE_LINE_MAX);
	if (!s->left) {
		op->end.truncated = true;
		return false;
	}
	s->left--;
	op->end.count++;
	*gone = shellfs_tell_match(op, &m);
	return !*gone;
}

static const char *find_text(const char *text, size_t n, const char *pattern, size_t m, bool fold)
{
	if (!fold)
		return memmem(text, n, pattern, m);
	for (; n >= m; text++, n--)
		if (!strncasecmp(text, pattern, m))
			return text;
	return NULL;
}

static bool tell_plain(struct shellfs_op *op, const char *name, uint64_t line, const char *text,
		       size_t n, bool *gone)
{
	const char *pattern = op->rq.pattern, *at = text, *hit;
	const size_t m = strlen(pattern);

	if (!m)
		return tell(op, name, line, text, n, 0, 0, gone);
	while ((hit = find_text(at, n - (size_t)(at - text), pattern, m,
				op->rq.flags & FILE_NO_CASE))) {
		if (!tell(op, name, line, text, n, (size_t)(hit - text), m, gone))
			return false;
		at = hit + m;
	}
	return true;
}

/* The matches of one line, from "line:offset:match" lines that are in the same order. */
static bool tell_matches(struct shellfs_op *op, const char *name, uint64_t line, uint64_t offset,
			 const char *text, size_t n, const char **where, bool *gone)
{
	bool any = false;

	while (**where) {
		const char *at = *where;
		uint64_t number, place;
		size_t m;

		if (!take_number(&at, &number) || number != line || !take_number(&at, &place) ||
		    place < offset)
			break;
		m = strcspn(at, "\n");
		*where = at + m + (at[m] == '\n');
		any = true;
		if (!tell(op, name, line, text, n, (size_t)(place - offset), m, gone))
			return false;
	}
	/* Empty ones aren't listed. */
	return any || tell(op, name, line, text, n, 0, 0, gone);
}

/* All lines of one file; *ret_more: and where, for expressions.  false: see tell(). */
static bool tell_file(struct shellfs_op *op, const char *name, const char *lines, const char *where,
		      bool *gone)
{
	while (*lines) {
		const char *text = lines;
		uint64_t line, offset = 0;
		size_t n;
		bool go_on;

		if (!take_number(&text, &line) || (where && !take_number(&text, &offset)))
			return true; /* grep's own remark */
		n = strcspn(text, "\n");
		go_on = where ? tell_matches(op, name, line, offset, text, n, &where, gone)
			      : tell_plain(op, name, line, text, n, gone);
		if (!go_on)
			return false;
		lines = text + n + (text[n] == '\n');
	}
	return true;
}

static void grep_found(struct shellfs_op *op)
{
	struct search *s = op->search;
	const bool plain = is_plain(&op->rq);
	struct strbuf out = op->out; /* the operation may go while it is told */
	const char *at = out.buf, *end = at + out.len;
	bool gone = false, more = true;

	strbuf_init(&op->out);
	while (at < end && more) {
		const char *name = s->root_is_file ? "" : at + 1, *lines, *where = NULL;
		const char kind = *at;

		if (!strncmp(name, "./", 2))
			name += 2;
		at += strlen(at) + 1;
		if (kind == 'U') {
			op->end.skipped++;
			continue;
		}
		lines = at;
		at += at < end ? strlen(at) + 1 : 0;
		if (!plain) {
			where = at;
			at += at < end ? strlen(at) + 1 : 0;
		}
		if (kind != 'M' || at > end) {
			strbuf_release(&out);
			shellfs_failf(op, GARRET_PROTOCOL, "grep's answer can't be understood");
			return;
		}
		more = tell_file(op, name, lines, where, &gone);
	}
	strbuf_release(&out);
	if (gone)
		return;
	s->at = more ? MIN(s->at + s->batch, s->n_hits) : s->n_hits;
	next_batch(op);
}

static void ask_grep(struct shellfs_op *op, struct script_args *a)
{
	script_arg_path(a, op->rq.path);
	script_arg_path(a, op->rq.pattern);
	script_arg(a, is_plain(&op->rq) ? "F" : "P");
	script_arg(a, op->rq.flags & FILE_NO_CASE ? "-i" : "");
	script_arg(a, op->search->root_is_file ? "1" : "0");
	script_arg_number(a, (uint64_t)op->search->left + 1);
}

/* ---- both ---- */

static void next_batch(struct shellfs_op *op)
{
	struct search *s = op->search;
	struct script_args a = { .n = 0 };
	const bool grep = op->rq.op == FILE_GREP;

	if (s->at == s->n_hits && !(grep && s->root_is_file && !s->next)) {
		shellfs_end(op);
		return;
	}
	if (grep)
		ask_grep(op, &a);
	else
		script_arg_path(&a, op->rq.path);
	if (s->root_is_file)
		script_arg_path(&a, op->rq.path);
	else
		s->batch = put_hits(s, &a);
	s->next = grep ? grep_found : glob_details;
	shellfs_script(op, grep ? grep_script : details_script, &a, false);
}

static void names_done(struct shellfs_op *op)
{
	struct search *s = op->search;
	struct garret_error err = { 0 };

	s->next = NULL;
	if (take_names(op, &err) < 0)
		shellfs_fail(op, &err);
	else if (s->root_is_file && op->rq.op == FILE_GLOB)
		shellfs_failf(op, GARRET_NOT_DIRECTORY, "%s: Not a directory", op->rq.path);
	else if (s->root_is_file)
		next_batch(op);
	else
		read_ignores(op);
}

static void search_done(struct shellfs_op *op)
{
	op->search->next(op);
}

static void search_data(struct shellfs_op *op, const char *data, size_t n)
{
	if (op->out.len + n <= NAMES_MAX)
		strbuf_add(&op->out, data, n);
	else
		shellfs_failf(op, GARRET_TOO_LARGE, "%s has more than can be searched by a shell",
			      op->rq.path);
}

static int check_pattern(const struct file_request *rq, struct garret_error *err)
{
	const char *p = rq->pattern;

	if (rq->op == FILE_GLOB)
		return *p ? 0 : garret_fail(err, GARRET_INVALID, "the pattern is empty");
	if (!is_plain(rq) && strchr(p, '\n'))
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "an expression with a line's end in it can't be given to grep");
	for (; rq->flags & FILE_NO_CASE && is_plain(rq) && *p; p++)
		if ((unsigned char)*p >= 0x80)
			return garret_fail(
				err, GARRET_UNSUPPORTED,
				"letters beyond ASCII can't be searched in either case by "
				"this host's grep");
	return 0;
}

static void search_begin(struct shellfs_op *op)
{
	const struct file_request *rq = &op->rq;
	const char *pattern = rq->op == FILE_GLOB ? rq->pattern : rq->include;
	struct search *s = op->search = xnew(struct search);
	struct script_args a = { .n = 0 };
	struct garret_error err = { 0 };
	int rc = check_pattern(rq, &err);

	map_init(&s->dirs);
	s->left = rq->max_entries && rq->max_entries < RESULTS_MAX ? rq->max_entries : RESULTS_MAX;
	if (rc == 0 && *pattern) {
		rc = glob_compile(&s->glob, pattern, rq->flags & FILE_NO_CASE ? GLOB_FOLD : 0,
				  &err);
		s->filter = rc == 0;
	}
	if (rc == 0 && rq->op == FILE_GREP && s->glob.dir_only)
		rc = garret_fail(&err, GARRET_INVALID,
				 "the files to search are named as directories");
	if (rc < 0) {
		shellfs_fail(op, &err);
		return;
	}
	/* A line holds no line's end. */
	if (rq->op == FILE_GREP && strchr(rq->pattern, '\n')) {
		shellfs_end(op);
		return;
	}
	s->items = xcalloc(256, sizeof(*s->items));
	s->cap = 256;
	s->items[s->n++] = (struct item){ .path = xstrdup(""), .type = 'd' };
	script_arg_path(&a, rq->path);
	script_arg_number(&a, rq->max_depth ? rq->max_depth : DEPTH_MAX);
	script_arg(&a, rq->flags & FILE_NO_IGNORE ? "0" : "1");
	script_arg(&a, rq->flags & FILE_HIDDEN ? "1" : "0");
	s->next = names_done;
	shellfs_script(op, names_script, &a, false);
}

const struct shellfs_kind shellfs_glob = {
	.begin = search_begin, .data = search_data, .done = search_done, .release = search_free
};
const struct shellfs_kind shellfs_grep = {
	.begin = search_begin, .data = search_data, .done = search_done, .release = search_free
};
