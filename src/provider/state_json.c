/*
 * Documents as JSON text.  What is written is strict JSON without escapes that aren't needed.
 *
 * Read are older documents as well, in which a byte that was no UTF-8 stands as a lone
 * surrogate (\udc80 to \udcff).  The parser knows none, so that each is written as a mark before
 * parsing, a character that the document has nowhere else, and put back behind it.
 */
#include <jansson.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "provider/state_doc.h"

#define DEPTH_MAX 2000

/* ---- writing ---- */

/* How many bytes this one takes inside a JSON string. */
static size_t escaped(unsigned char c)
{
	switch (c) {
	case '"':
	case '\\':
	case '\b':
	case '\f':
	case '\n':
	case '\r':
	case '\t':
		return 2;
	default:
		return c < 0x20 ? 6 : 1;
	}
}

size_t state_json_length(const char *s, size_t n)
{
	size_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += escaped((unsigned char)s[i]);
	return bytes;
}

void state_json_text(struct strbuf *out, const char *s, size_t n)
{
	static const char names[] = "\b\f\n\r\t", letters[] = "bfnrt";

	for (size_t i = 0; i < n; i++) {
		const unsigned char c = (unsigned char)s[i];
		const char *known = c && c < 0x20 ? strchr(names, c) : NULL;
		size_t plain = i;

		while (plain < n && escaped((unsigned char)s[plain]) == 1)
			plain++;
		if (plain > i) {
			strbuf_add(out, s + i, plain - i);
			i = plain - 1;
		} else if (known) {
			strbuf_addch(out, '\\');
			strbuf_addch(out, letters[known - names]);
		} else if (c < 0x20) {
			strbuf_addf(out, "\\u%04x", c);
		} else {
			strbuf_addch(out, '\\');
			strbuf_addch(out, c);
		}
	}
}

static void put_lines(struct strbuf *out, const char *text, size_t n)
{
	const char *end = text + n;

	for (;;) {
		const char *stop = n ? memchr(text, '\n', (size_t)(end - text)) : NULL;

		state_json_text(out, text, (size_t)((stop ? stop : end) - text));
		if (!stop)
			return;
		strbuf_addstr(out, "\",\"");
		text = stop + 1;
	}
}

static void put_base64(struct strbuf *out, const char *data, size_t n)
{
	const size_t bytes = BASE64_ENCODE_RAW_LENGTH(n);

	strbuf_reserve(out, bytes + 1);
	base64_encode_raw(out->buf + out->len, n, (const uint8_t *)data);
	out->len += bytes;
	out->buf[out->len] = '\0';
}

static void put_time(struct strbuf *out, const char *key, const char *value)
{
	strbuf_addf(out, ",\"%s\":\"", key);
	state_json_text(out, value, strlen(value));
	strbuf_addch(out, '"');
}

void state_json_entry(struct strbuf *out, const struct state_node *node, const char *path)
{
	const bool text = !node->damaged && utf8_valid(node->content, node->n);

	strbuf_addch(out, '"');
	state_json_text(out, path, strlen(path));
	strbuf_addstr(out, "\":{\"content\":[\"");
	if (node->damaged)
		state_json_text(out, node->content, node->n);
	else if (text)
		put_lines(out, node->content, node->n);
	else
		put_base64(out, node->content, node->n);
	strbuf_addstr(out, "\"]");
	put_time(out, "created_at", node->created);
	put_time(out, "modified_at", node->modified);
	if (!text)
		strbuf_addstr(out, ",\"encoding\":\"base64\"");
	strbuf_addch(out, '}');
}

static void put_files(struct strbuf *out, const struct state_node *node)
{
	autofree char *path = state_node_path(node);
	size_t many;
	struct state_node **list = state_node_sorted(node, &many);

	if (!node->dir) {
		if (out->buf[out->len - 1] == '}')
			strbuf_addch(out, ',');
		state_json_entry(out, node, path);
	}
	for (size_t i = 0; i < many; i++)
		put_files(out, list[i]);
	free(list);
}

/* The list of directories is sorted as whole paths, as the published writer sorts it. */
static int by_path(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t collect_made(const struct state_node *node, char **out, size_t n)
{
	size_t many;
	struct state_node **list = state_node_sorted(node, &many);

	if (node->dir && node->made)
		out[n++] = state_node_path(node);
	for (size_t i = 0; i < many; i++)
		n = collect_made(list[i], out, n);
	free(list);
	return n;
}

static void put_dirs(struct strbuf *out, const struct state_doc *d)
{
	char **paths = xcalloc(d->n_dirs + 1, sizeof(char *));
	const size_t n = collect_made(d->root, paths, 0);

	if (n)
		qsort(paths, n, sizeof(char *), by_path);
	for (size_t i = 0; i < n; i++) {
		strbuf_addstr(out, i ? ",\"" : "\"");
		state_json_text(out, paths[i], strlen(paths[i]));
		strbuf_addch(out, '"');
		free(paths[i]);
	}
	free(paths);
}

void state_doc_save(const struct state_doc *d, struct strbuf *out)
{
	strbuf_addstr(out, "{\"files\":{");
	put_files(out, d->root);
	strbuf_addstr(out, "},\"directories\":[");
	put_dirs(out, d);
	strbuf_addstr(out, "]}");
}

/* ---- lone surrogates ---- */

static bool hex4(const char *p, unsigned *ret)
{
	*ret = 0;
	for (int i = 0; i < 4; i++) {
		const char c = p[i];
		const unsigned v = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
				   : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
				   : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
							  : 16u;

		if (v > 15)
			return false;
		*ret = *ret << 4 | v;
	}
	return true;
}

/* The next one at or behind p that stands alone and is a byte; NULL. */
static const char *next_lone(const char *p, const char *end, unsigned *ret_byte)
{
	while ((p = memchr(p, '\\', (size_t)(end - p)))) {
		unsigned v, low;

		if (end - p < 6 || p[1] != 'u' || !hex4(p + 2, &v)) {
			p += end - p >= 2 ? 2 : 1;
			continue;
		}
		if (v >= 0xD800 && v < 0xDC00 && end - p >= 12 && p[6] == '\\' && p[7] == 'u' &&
		    hex4(p + 8, &low) && low >= 0xDC00 && low < 0xE000) {
			p += 12;
			continue;
		}
		if (v >= 0xDC80 && v <= 0xDCFF) {
			*ret_byte = v - 0xDC00;
			return p;
		}
		p += 6;
	}
	return NULL;
}

/* A noncharacter that is nowhere in the text, neither as it is nor as an escape: 3 bytes. */
static bool choose_mark(const char *text, size_t n, char mark[4])
{
	for (unsigned c = 0xFDD0; c <= 0xFDEF; c++) {
		char low[7], up[7];

		mark[0] = (char)(0xE0 | c >> 12);
		mark[1] = (char)(0x80 | (c >> 6 & 0x3F));
		mark[2] = (char)(0x80 | (c & 0x3F));
		mark[3] = '\0';
		(void)snprintf(low, sizeof(low), "\\u%04x", c);
		(void)snprintf(up, sizeof(up), "\\u%04X", c);
		if (!memmem(text, n, mark, 3) && !memmem(text, n, low, 6) &&
		    !memmem(text, n, up, 6))
			return true;
	}
	return false;
}

/* Marks in place of lone surrogates: the mark, and the byte as U+0100 to U+01FF. */
static int mark_bytes(const char *text, size_t n, struct strbuf *out, char mark[4],
		      struct garret_error *err)
{
	const char *end = text + n, *at;
	unsigned byte;

	mark[0] = '\0';
	while ((at = next_lone(text, end, &byte))) {
		if (!mark[0] && !choose_mark(text, (size_t)(end - text), mark))
			return garret_fail(err, GARRET_INVALID,
					   "the document has too many odd characters");
		strbuf_add(out, text, (size_t)(at - text));
		strbuf_addstr(out, mark);
		strbuf_addch(out, 0xC4 | byte >> 6);
		strbuf_addch(out, 0x80 | (byte & 0x3F));
		text = at + 6;
	}
	strbuf_add(out, text, (size_t)(end - text));
	return 0;
}

static void add_unmarked(struct strbuf *out, const char *s, size_t n, const char mark[4])
{
	const char *end = s + n, *at;

	while (mark[0] && (at = memmem(s, (size_t)(end - s), mark, 3)) && end - at >= 5) {
		const unsigned char a = (unsigned char)at[3], b = (unsigned char)at[4];

		strbuf_add(out, s, (size_t)(at - s));
		strbuf_addch(out, (a & 3) << 6 | (b & 0x3F));
		s = at + 5;
	}
	strbuf_add(out, s, (size_t)(end - s));
}

/* ---- reading ---- */

static void json_drop(json_t **v)
{
	json_decref(*v);
}
#define autojson __attribute__((cleanup(json_drop))) json_t

/* A path as the published reader takes it: below /, without `.`, `..` and `//`. */
static int normal_path(const char *path, size_t n, struct strbuf *out, struct garret_error *err)
{
	if (memchr(path, '\0', n))
		return garret_fail(err, GARRET_INVALID, "a path of the document has a NUL");
	/* It could be read, and not be written again. */
	if (!utf8_valid(path, n))
		return garret_fail(err, GARRET_INVALID, "a path of the document is not UTF-8");
	for (const char *at = path; *at;) {
		size_t length = strcspn(at, "/");

		if (length == 2 && !memcmp(at, "..", 2)) {
			while (out->len && out->buf[--out->len] != '/')
				;
			out->buf[out->len] = '\0';
		} else if (length && !(length == 1 && *at == '.')) {
			strbuf_addch(out, '/');
			strbuf_add(out, at, length);
		}
		at += length + (at[length] == '/');
	}
	if (!out->len)
		strbuf_addch(out, '/');
	if (out->len > 4095)
		return garret_fail(err, GARRET_INVALID,
				   "a path of the document has more than 4095 bytes");
	return 0;
}

static int join_lines(const json_t *content, const char *mark, bool binary, struct strbuf *out,
		      const char *path, struct garret_error *err)
{
	/* The first published documents had one string in place of the list. */
	if (json_is_string(content)) {
		add_unmarked(out, json_string_value(content), json_string_length(content), mark);
		return 0;
	}
	if (!json_is_array(content))
		return garret_fail(err, GARRET_INVALID, "content of %s: a list of lines is wanted",
				   path);
	for (size_t i = 0; i < json_array_size(content); i++) {
		const json_t *line = json_array_get(content, i);

		if (!json_is_string(line))
			return garret_fail(err, GARRET_INVALID,
					   "content of %s: line %zu is no text", path, i);
		if (i && !binary)
			strbuf_addch(out, '\n');
		add_unmarked(out, json_string_value(line), json_string_length(line), mark);
	}
	return 0;
}

/* False: it is damaged, and stays as it is. */
static bool decode(struct strbuf *text)
{
	autofree uint8_t *out = xmalloc(BASE64_DECODE_LENGTH(text->len) + 1);
	struct base64_decode_ctx ctx;
	size_t n = BASE64_DECODE_LENGTH(text->len);

	base64_decode_init(&ctx);
	/* The published reader takes no blanks in it. */
	if (strcspn(text->buf, " \t\r\n\v\f") != text->len ||
	    !base64_decode_update(&ctx, &n, out, text->len, text->buf) ||
	    !base64_decode_final(&ctx))
		return false;
	strbuf_reset(text);
	strbuf_add(text, out, n);
	return true;
}

/* What is kept as it is has to be text in what is written as well. */
static void make_text(struct strbuf *text)
{
	autobuf struct strbuf out = STRBUF_INIT;
	struct utf8_repair u = { .n = 0 };

	utf8_repair_add(&u, &out, text->buf, text->len);
	utf8_repair_end(&u, &out);
	strbuf_reset(text);
	strbuf_add(text, out.buf, out.len);
}

static const char *time_of(const json_t *entry, const char *key)
{
	const char *text = json_string_value(json_object_get(entry, key));

	return text ? text : "";
}

static int load_file(struct state_doc *d, const char *path, const json_t *entry, const char *mark,
		     struct garret_error *err)
{
	const char *encoding = json_string_value(json_object_get(entry, "encoding"));
	const bool binary = encoding && !strcmp(encoding, "base64");
	autobuf struct strbuf text = STRBUF_INIT;
	struct state_node *parent = NULL, *node;
	const char *name = "";
	bool damaged;
	int rc;

	if (!json_is_object(entry))
		return garret_fail(err, GARRET_INVALID, "%s: an object is wanted", path);
	if (encoding && !binary && strcmp(encoding, "utf-8") != 0)
		return garret_fail(err, GARRET_INVALID, "%s: unknown encoding", path);
	rc = join_lines(json_object_get(entry, "content"), mark, binary, &text, path, err);
	if (rc == 0)
		rc = state_doc_parent(d, path, true, &parent, &name, err);
	if (rc < 0)
		return rc;
	if (!*name || state_doc_find(d, path))
		return garret_fail(err, GARRET_INVALID, "%s is in the document twice", path);
	damaged = binary && !decode(&text);
	if (damaged)
		make_text(&text);
	node = state_doc_put(d, parent, name, text.buf, text.len, "");
	node->damaged = damaged;
	free(node->created);
	free(node->modified);
	node->created = xstrdup(time_of(entry, "created_at"));
	node->modified = xstrdup(time_of(entry, "modified_at"));
	return 0;
}

/* What state_doc_put() counted was without the times. */
static void recount(struct state_doc *d, struct state_node *node)
{
	autofree char *path = state_node_path(node);
	size_t many;
	struct state_node **list = state_node_sorted(node, &many);

	if (!node->dir) {
		autobuf struct strbuf out = STRBUF_INIT;

		state_json_entry(&out, node, path);
		node->json_bytes = out.len - state_json_length(path, strlen(path)) - 3;
		d->n_files++;
		d->entry_bytes += out.len;
	} else if (node->made) {
		d->n_dirs++;
		d->entry_bytes += state_json_length(path, strlen(path)) + 2;
	}
	for (size_t i = 0; i < many; i++)
		recount(d, list[i]);
	free(list);
}

/* Parents that only the loading made are not in the list. */
static void unmake(struct state_node *node)
{
	size_t many;
	struct state_node **list = state_node_sorted(node, &many);

	node->made = false;
	for (size_t i = 0; i < many; i++)
		if (list[i]->dir)
			unmake(list[i]);
	free(list);
}

static int load_files(struct state_doc *d, json_t *files, const char *mark,
		      struct garret_error *err)
{
	const char *key;
	json_t *entry;
	int rc = 0;

	json_object_foreach(files, key, entry)
	{
		autobuf struct strbuf raw = STRBUF_INIT, path = STRBUF_INIT;

		add_unmarked(&raw, key, strlen(key), mark);
		rc = normal_path(raw.buf, raw.len, &path, err);
		if (rc == 0)
			rc = load_file(d, path.buf, entry, mark, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int load_dirs(struct state_doc *d, const json_t *dirs, const char *mark,
		     struct garret_error *err)
{
	for (size_t i = 0; i < json_array_size(dirs); i++) {
		const json_t *item = json_array_get(dirs, i);
		autobuf struct strbuf raw = STRBUF_INIT, path = STRBUF_INIT;
		struct state_node *parent = NULL, *there;
		const char *name = "";
		int rc;

		if (!json_is_string(item))
			return garret_fail(err, GARRET_INVALID, "directories: item %zu is no text",
					   i);
		add_unmarked(&raw, json_string_value(item), json_string_length(item), mark);
		rc = normal_path(raw.buf, raw.len, &path, err);
		if (rc == 0)
			rc = state_doc_parent(d, path.buf, true, &parent, &name, err);
		if (rc < 0)
			return rc;
		there = *name ? state_doc_find(d, path.buf) : NULL;
		if (there && !there->dir)
			return garret_fail(err, GARRET_INVALID, "%s is a file and a directory",
					   path.buf);
		if (*name)
			(void)state_doc_make_dir(d, parent, name);
	}
	return 0;
}

/* Only what is named is in the list; parents of it are there because they hold something. */
static void mark_listed(struct state_doc *d, const json_t *dirs, const char *mark)
{
	for (size_t i = 0; i < json_array_size(dirs); i++) {
		const json_t *item = json_array_get(dirs, i);
		autobuf struct strbuf raw = STRBUF_INIT, path = STRBUF_INIT;
		struct state_node *node;

		add_unmarked(&raw, json_string_value(item), json_string_length(item), mark);
		if (normal_path(raw.buf, raw.len, &path, NULL) < 0)
			continue;
		node = state_doc_find(d, path.buf);
		if (node && node->parent)
			node->made = true;
	}
}

static int load(struct state_doc *d, json_t *root, const char *mark, struct garret_error *err)
{
	json_t *files = json_object_get(root, "files"),
	       *dirs = json_object_get(root, "directories");
	int rc;

	if (!json_is_object(root) || (files && !json_is_object(files)) ||
	    (dirs && !json_is_array(dirs) && !json_is_null(dirs)))
		return garret_fail(err, GARRET_INVALID,
				   "a document is {\"files\": {...}, \"directories\": [...]}");
	rc = load_files(d, files, mark, err);
	if (rc == 0)
		rc = load_dirs(d, dirs, mark, err);
	if (rc < 0)
		return rc;
	unmake(d->root);
	mark_listed(d, dirs, mark);
	d->n_files = d->n_dirs = d->entry_bytes = 0;
	recount(d, d->root);
	return 0;
}

int state_doc_load(const char *text, size_t n, struct state_doc **ret, struct garret_error *err)
{
	autobuf struct strbuf marked = STRBUF_INIT;
	json_error_t problem;
	struct state_doc *d;
	autojson *root = NULL;
	char mark[4];
	int rc = mark_bytes(text, n, &marked, mark, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	root = json_loadb(marked.buf, marked.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL,
			  &problem);
	if (!root) /* the parser's own text quotes what stands there */
		return garret_fail(err, GARRET_INVALID,
				   "the document is no JSON: line %d, column %d", problem.line,
				   problem.column);
	d = state_doc_new();
	rc = load(d, root, mark, err);
	if (rc < 0)
		state_doc_free(d);
	else
		*ret = d;
	return rc;
}
