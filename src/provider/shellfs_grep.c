/*
 * The contents of files, by grep.  Where in a line plain text is, is found here;
 * where an expression matches, grep says (-b -o).
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "provider/shellfs_search.h"

/* ---- grep ---- */

/*
 * 2 pattern 3 F or P 4 "-i" or "" 5 binary files as well 6 most lines of one file; names.
 * First in how many lines of which of them it is, then those lines; with P also where.
 */
static const char grep_script[] =
	"m() { a \"$1\"; p=$v; a \"$2\"; q=$v f=$3 i=$4 y=$5 M=$6; shift 6; has grep && has tr || return\n"
	"[ ! -d \"$p\" ] || cd -P \"$p\" || return; A=-a; grep -a -q x /dev/null 2>/dev/null\n"
	"[ $? -le 1 ] || A=\n"
	"if [ $f = P ]; then grep -q -P x /dev/null 2>/dev/null; [ $? -le 1 ] || { echo 'grep -P "
	"(for regular expressions)' >&2; return 118; }\n"
	"LC_ALL=C.UTF-8; grep -q -P -e \"$q\" /dev/null; [ $? -le 1 ] || return 125; fi\n"
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
bool search_is_plain(const struct file_request *rq)
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

void search_grep_found(struct shellfs_op *op)
{
	struct search *s = op->search;
	const bool plain = search_is_plain(&op->rq);
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
	search_next(op);
}

void search_ask_grep(struct shellfs_op *op, struct script_args *a)
{
	script_arg_path(a, op->rq.path);
	script_arg_path(a, op->rq.pattern);
	script_arg(a, search_is_plain(&op->rq) ? "F" : "P");
	script_arg(a, op->rq.flags & FILE_NO_CASE ? "-i" : "");
	script_arg(a, op->search->root_is_file ? "1" : "0");
	script_arg_number(a, (uint64_t)op->search->left + 1);
}

const char *search_grep_script(void)
{
	return grep_script;
}
