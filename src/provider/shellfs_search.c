/*
 * glob and grep.  The names are found by find; which of them match and which
 * .gitignore leaves out is decided here, by the code that our init uses, so that
 * a pattern means the same everywhere.  Contents are searched there, by grep:
 * plain text exactly, expressions only where grep knows Perl's (-P).
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "provider/shellfs_search.h"

#define NAMES_MAX (64u << 20) /* of what find prints */
#define RESULTS_MAX 1000000

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

/* ---- which match ---- */

static int by_path(const void *a, const void *b, void *items)
{
	const struct item *list = items;

	return strcmp(list[*(const size_t *)a].path, list[*(const size_t *)b].path);
}

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

void search_match(struct shellfs_op *op)
{
	struct search *s = op->search;

	s->hits = xcalloc(s->n + 1, sizeof(*s->hits));
	for (size_t i = 0; i < s->n; i++)
		if (is_wanted(op, &s->items[i]))
			s->hits[s->n_hits++] = i;
	qsort_r(s->hits, s->n_hits, sizeof(*s->hits), by_path, s->items);
	search_next(op);
}

static size_t put_hits(const struct search *s, struct script_args *a)
{
	char *names[NAMES_BATCH] = { NULL };
	size_t n = MIN(s->n_hits - s->at, (size_t)NAMES_BATCH), used;

	/* "./" in front: a name may begin with a dash. */
	for (size_t i = 0; i < n; i++)
		names[i] = xasprintf("./%s", s->items[s->hits[s->at + i]].path);
	used = search_put_names(a, names, n);
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
	search_next(op);
}

/* ---- both ---- */

void search_next(struct shellfs_op *op)
{
	struct search *s = op->search;
	struct script_args a = { .n = 0 };
	const bool grep = op->rq.op == FILE_GREP;

	if (s->at == s->n_hits && !(grep && s->root_is_file && !s->next)) {
		shellfs_end(op);
		return;
	}
	if (grep)
		search_ask_grep(op, &a);
	else
		script_arg_path(&a, op->rq.path);
	if (s->root_is_file)
		script_arg_path(&a, op->rq.path);
	else
		s->batch = put_hits(s, &a);
	s->next = grep ? search_grep_found : glob_details;
	shellfs_script(op, grep ? search_grep_script() : details_script, &a, false);
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
	if (!search_is_plain(rq) && strchr(p, '\n'))
		return garret_fail(err, GARRET_UNSUPPORTED,
				   "an expression with a line's end in it can't be given to grep");
	for (; rq->flags & FILE_NO_CASE && search_is_plain(rq) && *p; p++)
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
	search_names(op);
}

const struct shellfs_kind shellfs_glob = {
	.begin = search_begin, .data = search_data, .done = search_done, .release = search_free
};
const struct shellfs_kind shellfs_grep = {
	.begin = search_begin, .data = search_data, .done = search_done, .release = search_free
};
