#include "cli/items.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/auto.h"
#include "base/mem.h"
#include "cli/place.h"

/* A path of 4095 and a line of 2048 bytes, each byte escaped as \u00XX, and the rest of it. */
#define ITEM_MAX (256u * 1024)

void items_init(struct items *it, int (*item)(void *ctx, json_t *item, struct garret_error *err),
		void *ctx)
{
	*it = (struct items){ .item = item, .ctx = ctx };
	strbuf_init(&it->one);
	strbuf_init(&it->rest);
}

void items_release(struct items *it)
{
	strbuf_release(&it->one);
	strbuf_release(&it->rest);
}

static int fail_no_json(const char *why, struct garret_error *err)
{
	return garret_fail(err, GARRET_PROTOCOL, "the daemon's answer isn't JSON: %s", why);
}

static int finish_item(struct items *it, struct garret_error *err)
{
	json_error_t je;
	json_t *doc = json_loadb(it->one.buf, it->one.len, JSON_ALLOW_NUL, &je);
	int rc;

	strbuf_reset(&it->one);
	if (!doc)
		return fail_no_json(je.text, err);
	rc = it->item(it->ctx, doc, err);
	json_decref(doc);
	return rc;
}

/* Where a string begins and ends; brackets in one are none. */
static void follow(struct items *it, char c)
{
	if (it->string) {
		if (!it->escape && c == '"')
			it->string = false;
		it->escape = !it->escape && c == '\\';
	} else if (c == '"') {
		it->string = true;
	} else if (c == '{' || c == '[') {
		it->depth++;
		if (!it->list && c == '[')
			it->list = it->depth;
	} else if ((c == '}' || c == ']') && it->depth) {
		it->depth--;
	}
}

int items_add(struct items *it, const char *data, size_t n, struct garret_error *err)
{
	for (size_t i = 0; i < n; i++) {
		const unsigned before = it->depth;
		const bool in_list = it->list && before >= it->list;
		struct strbuf *to;

		follow(it, data[i]);
		/* Commas between items belong to neither. */
		if (in_list && before == it->list && it->depth == before && !it->string)
			continue;
		to = in_list && it->depth >= it->list ? &it->one : &it->rest;
		if (to->len >= ITEM_MAX)
			return garret_fail(err, GARRET_PROTOCOL,
					   "an item of the answer is too long");
		strbuf_addch(to, data[i]);
		if (to == &it->one && before > it->list && it->depth == it->list) {
			int rc = finish_item(it, err);

			if (rc)
				return rc;
		}
	}
	return 0;
}

int items_end(struct items *it, json_t **ret, struct garret_error *err)
{
	json_error_t je;

	*ret = json_loadb(it->rest.buf, it->rest.len, 0, &je);
	return *ret ? 0 : fail_no_json(je.text, err);
}

/* ---- entries ---- */

/* 2026-11-29T22:54:18.841871+00:00, always UTC. */
static double parse_time(const char *text)
{
	struct tm tm = { 0 };
	const char *rest = text ? strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	double fraction = 0;

	if (!rest)
		return 0;
	if (*rest == '.')
		fraction = strtod(rest, NULL);
	return (double)timegm(&tm) + fraction;
}

void entry_release(struct entry *e)
{
	free(take_ptr(&e->path));
}

int entry_parse(json_t *item, struct entry *ret, struct garret_error *err)
{
	const char *path = json_string_value(json_object_get(item, "path"));
	const char *raw = json_string_value(json_object_get(item, "raw_path"));
	const char *type = json_string_value(json_object_get(item, "type"));
	const char *mode = json_string_value(json_object_get(item, "mode"));
	json_t *size = json_object_get(item, "size");
	struct entry e = { .size = json_is_integer(size) ? json_integer_value(size) : -1 };

	if (raw)
		e.path = percent_decode(raw);
	else if (path && strlen(path) == json_string_length(json_object_get(item, "path")))
		e.path = xstrdup(path);
	if (!e.path)
		return garret_fail(err, GARRET_PROTOCOL, "an entry of the answer has no path");
	e.link = json_string_value(json_object_get(item, "link_target"));
	/* The archive's routes show no links, and files and directories only. */
	if (!type)
		type = json_is_true(json_object_get(item, "is_dir")) ? "directory" : "file";
	e.type = e.link                       ? 'l'
		 : !strcmp(type, "directory") ? 'd'
		 : !strcmp(type, "file")      ? '-'
					      : '?';
	e.mode = mode ? (unsigned)strtoul(mode, NULL, 8) & 07777 : 0;
	e.mtime = parse_time(json_string_value(json_object_get(item, "modified_at")));
	*ret = e;
	return 0;
}
