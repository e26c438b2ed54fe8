/*
 * Front matter: the little of YAML that people write above a skill, read strictly.  What isn't
 * understood is mangled: a description that was read wrongly would go to every model.
 *
 * The reader goes line by line; a value that goes on takes the lines below its key.
 */
#include <jansson.h>
#include <string.h>

#include "app/files_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "net/json.h"

struct reader {
	const char *at, *end; /* the next line, and where the front matter ends */
	struct map keys;      /* of the upper level; KEY newline KEY of the lower */
};

struct line {
	const char *text, *end; /* without blanks at its end */
	const char *first;      /* the first that is no space; text is indented by what is before */
};

enum value { VALUE_MANGLED, VALUE_TEXT, VALUE_OTHER };

static bool peek(const struct reader *r, struct line *ret)
{
	if (r->at >= r->end)
		return false;
	ret->text = ret->first = r->at;
	ret->end = r->at + strcspn(r->at, "\n");
	while (ret->end > ret->text && (ret->end[-1] == ' ' || ret->end[-1] == '\r'))
		ret->end--;
	while (ret->first < ret->end && *ret->first == ' ')
		ret->first++;
	return true;
}

static void skip(struct reader *r)
{
	r->at += strcspn(r->at, "\n") + 1;
}

static bool is_blank(const struct line *l)
{
	return l->first == l->end;
}

static size_t indent_of(const struct line *l)
{
	return (size_t)(l->first - l->text);
}

/* ---- on one line: each returns what is behind it, or NULL when it is mangled ---- */

static bool is_one_of(const char *set, const char *p, const char *end)
{
	return p < end && strchr(set, *p);
}

/* Is this where a word ends? */
static bool stops(const char *p, const char *end)
{
	return p == end || *p == ' ';
}

static const char *plain(const char *p, const char *end, bool in_list, struct strbuf *out)
{
	const char *text = p, *last;

	if (p == end || is_one_of(",[]{}#&*!|>'\"%@`", p, end) ||
	    (is_one_of("-?:", p, end) && stops(p + 1, end)))
		return NULL;
	for (; p < end && !(in_list && is_one_of(",[]{}", p, end)); p++) {
		if (*p == ':' && stops(p + 1, end))
			return NULL;
		if (*p == '#' && p[-1] == ' ')
			break;
	}
	for (last = p; last[-1] == ' ';)
		last--;
	strbuf_add(out, text, (size_t)(last - text));
	return p;
}

/* 'text', where '' is one quote. */
static const char *single(const char *p, const char *end, struct strbuf *out)
{
	for (p++; p < end; p++) {
		if (*p == '\'' && !is_one_of("'", p + 1, end))
			return p + 1;
		p += *p == '\'';
		strbuf_addch(out, *p);
	}
	return NULL;
}

/* "text", with what JSON knows behind a \. */
static const char *twice(const char *p, const char *end, struct strbuf *out)
{
	json_error_t e;
	json_t *v = json_loadb(p, (size_t)(end - p), JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &e);

	if (!v)
		return NULL;
	strbuf_addstr(out, json_string_value(v));
	json_decref(v);
	return p + e.position;
}

static const char *scalar(const char *p, const char *end, bool in_list, struct strbuf *out)
{
	if (is_one_of("\"", p, end))
		return twice(p, end, out);
	return is_one_of("'", p, end) ? single(p, end, out) : plain(p, end, in_list, out);
}

static const char *blanks(const char *p, const char *end)
{
	while (is_one_of(" ", p, end))
		p++;
	return p;
}

/* [a, "b"]: what is in it is of no interest here. */
static const char *list(const char *p, const char *end)
{
	autobuf struct strbuf item = STRBUF_INIT;

	do {
		p = blanks(p + 1, end);
		if (is_one_of("]", p, end))
			return p + 1;
		p = scalar(p, end, true, &item);
		p = p ? blanks(p, end) : end;
	} while (is_one_of(",", p, end));
	return is_one_of("]", p, end) ? p + 1 : NULL;
}

/* Nothing, or a comment. */
static bool is_rest(const char *p, const char *end)
{
	const char *rest = blanks(p, end);

	return rest == end || (*rest == '#' && rest > p);
}

static const char *any(const char *p, const char *end, struct strbuf *out)
{
	p = is_one_of("[", p, end) ? list(p, end) : scalar(p, end, false, out);
	/* plain() ends at the # of a comment. */
	return p && (is_rest(p, end) || (*p == '#' && p[-1] == ' ')) ? p : NULL;
}

/* KEY:, once; what is behind the colon. */
static const char *key(struct reader *r, const char *above, const char *p, const char *end,
		       char **ret)
{
	const size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				   "0123456789_.-");
	autofree char *name = NULL;

	if (!n || p + n >= end || p[n] != ':' || !stops(p + n + 1, end))
		return NULL;
	name = xasprintf("%s\n%.*s", above, (int)n, p);
	if (map_set(&r->keys, name, r))
		return NULL;
	*ret = xstrndup(p, n);
	return p + n + 1;
}

/* ---- on several lines ---- */

/* The lines below `key: text`. */
static enum value go_on(struct reader *r, struct strbuf *out)
{
	struct line l;
	size_t empty = 0;
	const char *p;

	for (; peek(r, &l) && (is_blank(&l) || (indent_of(&l) && *l.first != '#')); skip(r)) {
		if (is_blank(&l)) {
			empty++;
			continue;
		}
		strbuf_addch(out, empty ? '\n' : ' ');
		while (empty > 1 && empty--)
			strbuf_addch(out, '\n');
		empty = 0;
		p = plain(l.first, l.end, false, out);
		if (p != l.end)
			return VALUE_MANGLED;
	}
	return VALUE_TEXT;
}

/* Those below `key: |` or `key: >`; p is at that sign. */
static enum value block(struct reader *r, const char *p, const char *end, struct strbuf *out)
{
	const bool folded = *p++ == '>';
	const char chomp = is_one_of("+-", p, end) ? *p++ : ' ';
	size_t indent = 0, empty = 0;
	struct line l;

	if (!is_rest(p, end))
		return VALUE_MANGLED;
	for (; peek(r, &l) && (is_blank(&l) || indent_of(&l)); skip(r)) {
		if (is_blank(&l)) {
			empty++;
			continue;
		}
		/* Spaces beyond the others' mean a line of its own in a folded one: not read. */
		if (indent && (indent_of(&l) < indent || (folded && indent_of(&l) > indent)))
			return VALUE_MANGLED;
		if (folded && indent && !empty)
			strbuf_addch(out, ' ');
		else if (!folded && indent)
			empty++;
		for (; empty; empty--)
			strbuf_addch(out, '\n');
		indent = indent ? indent : indent_of(&l);
		strbuf_add(out, l.text + indent, (size_t)(l.end - l.text) - indent);
	}
	if (indent && chomp != '-')
		strbuf_addch(out, '\n');
	for (; chomp == '+' && empty; empty--)
		strbuf_addch(out, '\n');
	return VALUE_TEXT;
}

/* One level of `key: value` or `- value` below a key, or nothing. */
static enum value nested(struct reader *r, const char *above)
{
	autobuf struct strbuf text = STRBUF_INIT;
	enum value found = VALUE_TEXT; /* nothing is "" */
	size_t indent = 0;
	bool items = false;
	struct line l;

	for (; peek(r, &l); skip(r)) {
		const bool item = is_one_of("-", l.first, l.end) && stops(l.first + 1, l.end);
		autofree char *name = NULL;
		const char *p = l.first + 1;

		if (is_blank(&l) || *l.first == '#')
			continue;
		if (!indent_of(&l) && !item)
			break;
		if (found == VALUE_TEXT) {
			indent = indent_of(&l);
			items = item;
			found = VALUE_OTHER;
		}
		if (!item)
			p = key(r, above, l.first, l.end, &name);
		if (indent_of(&l) != indent || item != items || !p)
			return VALUE_MANGLED;
		if (!is_rest(p, l.end) && !any(blanks(p, l.end), l.end, &text))
			return VALUE_MANGLED;
	}
	return found;
}

static enum value value(struct reader *r, const char *name, const char *p, const char *end,
			struct strbuf *out)
{
	const char *first = blanks(p, end);

	if (is_rest(p, end))
		return nested(r, name);
	if (is_one_of("|>", first, end))
		return block(r, first, end, out);
	p = any(first, end, out);
	if (!p || is_one_of("[", first, end))
		return p ? VALUE_OTHER : VALUE_MANGLED;
	return p == end && !is_one_of("\"'", first, end) ? go_on(r, out) : VALUE_TEXT;
}

static bool read_all(struct reader *r, struct strbuf *description)
{
	struct line l;

	while (peek(r, &l)) {
		autobuf struct strbuf text = STRBUF_INIT;
		autofree char *name = NULL;
		const char *p = l.first;
		enum value v;

		skip(r);
		if (is_blank(&l) || *l.first == '#')
			continue;
		p = indent_of(&l) ? NULL : key(r, "", p, l.end, &name);
		v = p ? value(r, name, p, l.end, &text) : VALUE_MANGLED;
		if (v == VALUE_MANGLED)
			return false;
		if (strcmp(name, "description") != 0)
			continue;
		if (v != VALUE_TEXT)
			return false;
		strbuf_addstr(description, text.buf);
	}
	return true;
}

/* Where the line "---" is that ends it; NULL: nowhere, or there are tabs and other controls. */
static const char *find_end(const char *text)
{
	for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n') {
		const size_t n = strcspn(at, "\n");

		if (n >= 3 && !memcmp(at, "---", 3) && strspn(at + 3, " \r") == n - 3)
			return at;
		for (size_t i = 0; i < n; i++)
			if ((unsigned char)at[i] < ' ' && at[i] != '\r')
				return NULL;
	}
	return NULL;
}

const char *app_front_matter(const char *text, const char **ret_body, char **ret_description)
{
	autobuf struct strbuf description = STRBUF_INIT;
	struct reader r = { 0 };
	bool good;

	text += strncmp(text, "\xef\xbb\xbf", 3) ? 0 : 3; /* a byte order mark */
	*ret_body = text;
	*ret_description = NULL;
	if (find_end(text) != text) {
		*ret_description = xstrdup("");
		return NULL;
	}
	r.at = text + strcspn(text, "\n");
	r.at += *r.at == '\n';
	r.end = find_end(r.at);
	if (!r.end)
		return "its front matter has no end, or control characters";
	map_init(&r.keys);
	good = read_all(&r, &description);
	map_release(&r.keys);
	if (!good)
		return "its front matter is mangled";
	*ret_body = r.end + strcspn(r.end, "\n");
	*ret_body += strspn(*ret_body, "\r\n");
	*ret_description = strbuf_detach(&description, NULL);
	return NULL;
}

/* JSON's strings are YAML's, whatever stands in them. */
static void put_line(struct strbuf *out, const char *name, const char *text)
{
	autobuf struct strbuf json = STRBUF_INIT;

	json_put_string(&json, text);
	strbuf_addf(out, "%s: %s\n", name, json.buf);
}

void app_front_matter_put(struct strbuf *out, const char *name, const char *description)
{
	strbuf_addstr(out, "---\n");
	put_line(out, "name", name);
	put_line(out, "description", description);
	strbuf_addstr(out, "---\n\n");
}
