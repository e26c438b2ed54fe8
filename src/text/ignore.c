#include "text/ignore.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "text/glob.h"

struct rule {
	struct glob glob;
	bool negated;
};

struct ignore {
	struct ignore *up;
	size_t total; /* bytes of the files from the top to here */
	char *above;
	size_t skip;
	struct rule *rules;
	size_t n, cap;
};

/* Blanks at the end don't count unless the last of them is quoted. */
static void trim(char *line, size_t n)
{
	while (n && line[n - 1] == ' ') {
		size_t quotes = 0;

		while (quotes < n - 1 && line[n - 2 - quotes] == '\\')
			quotes++;
		if (quotes % 2)
			break;
		line[--n] = '\0';
	}
}

static void add_line(struct ignore *ig, const char *text, size_t n)
{
	autofree char *line = NULL;
	const char *pattern;
	struct rule r;

	if (n && text[n - 1] == '\r')
		n--;
	if (!n || *text == '#' || memchr(text, '\0', n))
		return;
	pattern = line = xstrndup(text, n);
	trim(line, n);
	r.negated = *pattern == '!';
	pattern += r.negated;
	/* A pattern that is none matches nothing, as in git. */
	if (!*pattern || glob_compile(&r.glob, pattern, GLOB_NO_BRACES, NULL) < 0)
		return;
	if (ig->n == ig->cap) {
		ig->cap = ig->cap ? 2 * ig->cap : 8;
		ig->rules = xrealloc(ig->rules, ig->cap * sizeof(*ig->rules));
	}
	ig->rules[ig->n++] = r;
}

struct ignore *ignore_push(struct ignore *up, const char *above, size_t skip, const char *text,
			   size_t n)
{
	struct ignore *ig = xnew(struct ignore);
	const char *end;

	ig->up = up;
	ig->skip = skip;
	/* Rules take some thirty times their text: a tree of large ones must not take all memory. */
	if (up && up->total + n > IGNORE_TOTAL_MAX)
		n = 0;
	ig->total = n + (up ? up->total : 0);
	if (above && *above)
		ig->above = xstrdup(above);
	end = text + n;
	if (n >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		text += 3;
	while (text < end) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text));

		if (!line_end)
			line_end = end;
		add_line(ig, text, (size_t)(line_end - text));
		text = line_end + 1;
	}
	return ig;
}

struct ignore *ignore_pop(struct ignore *ig)
{
	struct ignore *up = ig ? ig->up : NULL;

	if (!ig)
		return NULL;
	for (size_t i = 0; i < ig->n; i++)
		glob_done(&ig->rules[i].glob);
	free(ig->rules);
	free(ig->above);
	free(ig);
	return up;
}

/* 1: ignored, 0: not, -1: this file says nothing. */
static int judge(struct ignore *ig, const char *path, bool directory)
{
	autobuf struct strbuf whole = STRBUF_INIT;

	path += ig->skip;
	if (ig->above) {
		strbuf_addstr(&whole, ig->above);
		strbuf_addstr(&whole, path);
		path = whole.buf;
	}
	for (size_t i = ig->n; i-- > 0;) {
		struct rule *r = &ig->rules[i];

		if ((directory || !r->glob.dir_only) && glob_match(&r->glob, path))
			return !r->negated;
	}
	return -1;
}

bool ignore_match(struct ignore *ig, const char *path, bool directory)
{
	for (; ig; ig = ig->up) {
		int verdict = judge(ig, path, directory);

		if (verdict >= 0)
			return verdict;
	}
	return false;
}
