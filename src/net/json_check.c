/*
 * Values against tables, with the published leniency: 1, "yes" and 1.0 are
 * true, "5" and " 5.0 " are five.  Each mistake becomes one item
 * {"type","loc","msg","input"[,"ctx"]} and the rest is checked all the same.
 *
 * What a client sent is shown back to it, but at most 1 KiB of each value and
 * at most 100 items, so that a small request can't make a large answer.
 */
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "net/json.h"

#define ITEMS_MAX 100
#define INPUT_MAX 1024
#define SIZE_TEXT_MAX 32

/* Where the value that is looked at stands, and what it is: text when json is NULL. */
struct place {
	const char *root;         /* "body", "query", "path" */
	const char *const *above; /* names between root and field, NULL-terminated; or NULL */
	const char *field;        /* or NULL: the root itself */
	const char *key;          /* in an object, or NULL */
	long index;               /* in a list, or -1 */
	const json_t *json;       /* NULL with text NULL: nothing was given */
	const char *text;
};

/* ---- what is shown back ---- */

static bool put_value(struct strbuf *out, const json_t *v, size_t limit);

static bool put_object(struct strbuf *out, const json_t *v, size_t limit)
{
	const char *key;
	json_t *member;

	json_open(out, '{');
	json_object_foreach((json_t *)(uintptr_t)v, key, member)
	{
		json_put_key(out, key);
		if (!put_value(out, member, limit))
			return false;
	}
	json_close(out, '}');
	return true;
}

static bool put_array(struct strbuf *out, const json_t *v, size_t limit)
{
	json_open(out, '[');
	for (size_t i = 0; i < json_array_size(v); i++)
		if (!put_value(out, json_array_get(v, i), limit))
			return false;
	json_close(out, ']');
	return true;
}

/* False as soon as it is too much: each level writes a byte, so depth is bounded as well. */
static bool put_value(struct strbuf *out, const json_t *v, size_t limit)
{
	if (out->len > limit)
		return false;
	switch (json_typeof(v)) {
	case JSON_OBJECT:
		return put_object(out, v, limit);
	case JSON_ARRAY:
		return put_array(out, v, limit);
	case JSON_STRING:
		if (json_string_length(v) > limit)
			return false;
		json_put_string_n(out, json_string_value(v), json_string_length(v));
		break;
	case JSON_INTEGER:
		json_put_int(out, json_integer_value(v));
		break;
	case JSON_REAL:
		json_put_double(out, json_real_value(v));
		break;
	case JSON_TRUE:
	case JSON_FALSE:
		json_put_bool(out, json_is_true(v));
		break;
	case JSON_NULL:
		json_put_null(out);
		break;
	}
	return out->len <= limit;
}

static void put_cut_string(struct strbuf *out, const char *s, size_t n)
{
	struct json_text t = { .repair = { .n = 0 } };

	json_put_raw(out, "\"");
	json_text_add(&t, out, s, MIN(n, (size_t)INPUT_MAX)); /* a sequence cut in two is dropped */
	if (n > INPUT_MAX)
		strbuf_addstr(out, "…");
	strbuf_addch(out, '"');
}

static void put_input(struct strbuf *out, const struct place *at)
{
	autobuf struct strbuf text = STRBUF_INIT;

	if (at->text) {
		put_cut_string(out, at->text, strlen(at->text));
	} else if (!at->json) {
		json_put_null(out);
	} else if (put_value(&text, at->json, INPUT_MAX)) {
		json_put_raw(out, text.buf);
	} else if (json_is_string(at->json)) {
		put_cut_string(out, json_string_value(at->json), json_string_length(at->json));
	} else {
		json_put_string(out, json_is_array(at->json) ? "[…]" : "{…}");
	}
}

/* ---- items ---- */

static bool item_open(struct json_errors *e, const char *type)
{
	if (e->n++ >= ITEMS_MAX)
		return false;
	json_open(&e->items, '{');
	json_put_key(&e->items, "type");
	json_put_string(&e->items, type);
	json_put_key(&e->items, "loc");
	json_open(&e->items, '[');
	return true;
}

static void add(struct json_errors *e, const struct place *at, const char *type, const char *msg,
		const char *ctx)
{
	struct strbuf *out = &e->items;

	if (!item_open(e, type))
		return;
	json_put_string(out, at->root);
	for (const char *const *name = at->above; name && *name; name++)
		json_put_string_n(out, *name, MIN(strlen(*name), (size_t)INPUT_MAX));
	if (at->field)
		json_put_string_n(out, at->field, MIN(strlen(at->field), (size_t)INPUT_MAX));
	if (at->key)
		json_put_string_n(out, at->key, MIN(strlen(at->key), (size_t)INPUT_MAX));
	if (at->index >= 0)
		json_put_int(out, at->index);
	json_close(out, ']');
	json_put_key(out, "msg");
	json_put_string(out, msg);
	json_put_key(out, "input");
	put_input(out, at);
	if (ctx) {
		json_put_key(out, "ctx");
		json_put_raw(out, ctx);
	}
	json_close(out, '}');
}

void json_add_error(struct json_errors *e, const char *type, const char *path, const char *msg,
		    const char *input_json, const char *ctx_json)
{
	struct strbuf *out = &e->items;

	if (!item_open(e, type))
		return;
	json_put_raw(out, path);
	json_close(out, ']');
	json_put_key(out, "msg");
	json_put_string(out, msg);
	json_put_key(out, "input");
	json_put_raw(out, input_json);
	if (ctx_json) {
		json_put_key(out, "ctx");
		json_put_raw(out, ctx_json);
	}
	json_close(out, '}');
}

void json_add_problem(struct json_errors *e, const struct json_problem *p)
{
	autobuf struct strbuf path = STRBUF_INIT, ctx = STRBUF_INIT;

	if (p->kind == JSON_EMPTY) {
		json_add_error(e, "missing", "\"body\"", "Field required", "null", NULL);
		return;
	}
	strbuf_addf(&path, "\"body\",%zu", p->offset);
	json_open(&ctx, '{');
	json_put_key(&ctx, "error");
	json_put_string(&ctx, p->text);
	json_close(&ctx, '}');
	json_add_error(e, "json_invalid", path.buf, "JSON decode error", "{}", ctx.buf);
}

/* ---- patterns ---- */

const char *json_kind_pattern(enum json_kind kind)
{
	if (kind == JSON_KIND_NAME)
		return "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$";
	return kind == JSON_KIND_RUN_ID ? "^[0-9a-f]{32}$" : NULL;
}

bool json_kind_matches(enum json_kind kind, const char *s)
{
	unsigned char id[16];

	if (kind == JSON_KIND_NAME)
		return name_valid(s);
	return kind != JSON_KIND_RUN_ID || hex_decode(s, id, sizeof(id));
}

/* ---- numbers and truth in text ---- */

/* Without blanks around it and single underscores between digits; NULL: too long or misplaced. */
static const char *clean_number(const char *s, char *out, size_t cap)
{
	size_t n = 0;

	s += strspn(s, " \t\n\r\f\v");
	for (; *s && !strchr(" \t\n\r\f\v", *s); s++) {
		bool inside =
			n && out[n - 1] >= '0' && out[n - 1] <= '9' && s[1] >= '0' && s[1] <= '9';

		if (n + 1 >= cap || (*s == '_' && !inside))
			return NULL;
		if (*s != '_')
			out[n++] = *s;
	}
	out[n] = '\0';
	return s[strspn(s, " \t\n\r\f\v")] || !n ? NULL : out;
}

static bool text_to_int(const char *text, int64_t *ret)
{
	char buf[64], *end, *dot;
	const char *s = clean_number(text, buf, sizeof(buf));

	if (!s)
		return false;
	dot = strchr(buf, '.');
	if (dot) { /* "5.0" is five, "5." and "5.1" are nothing */
		if (!dot[1] || dot[1 + strspn(dot + 1, "0")])
			return false;
		*dot = '\0';
	}
	s += *s == '+' || *s == '-';
	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*ret = strtoll(buf, &end, 10);
	return !errno && !*end;
}

static bool text_to_double(const char *text, double *ret)
{
	char buf[64], *end;
	const char *s = clean_number(text, buf, sizeof(buf));

	if (!s || strpbrk(s, "xXpP("))
		return false;
	*ret = strtod(s, &end);
	return !*end;
}

/* 1, 0, or -1: neither. */
static int text_to_bool(const char *s)
{
	static const char *const words[] = { "0", "off", "f", "false", "n", "no",
					     "1", "on",  "t", "true",  "y", "yes" };

	for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcasecmp(s, words[i]))
			return i >= ARRAY_SIZE(words) / 2;
	return -1;
}

/* ---- one value ---- */

static void range(struct json_errors *e, const struct place *at, const struct json_field *f,
		  double v, bool real)
{
	const unsigned flags = f->flags;
	char msg[80], ctx[40];

	if ((flags & JSON_ABOVE_ZERO) && !(v > 0))
		add(e, at, "greater_than", "Input should be greater than 0",
		    real ? "{\"gt\":0.0}" : "{\"gt\":0}");
	else if ((flags & JSON_FROM_ZERO) && !(v >= 0))
		add(e, at, "greater_than_equal", "Input should be greater than or equal to 0",
		    real ? "{\"ge\":0.0}" : "{\"ge\":0}");
	else if ((flags & JSON_FROM_ONE) && !(v >= 1))
		add(e, at, "greater_than_equal", "Input should be greater than or equal to 1",
		    "{\"ge\":1}");
	if (f->max && v > (double)f->max) {
		(void)snprintf(msg, sizeof(msg), "Input should be less than or equal to %lld",
			       (long long)f->max);
		(void)snprintf(ctx, sizeof(ctx), "{\"le\":%lld}", (long long)f->max);
		add(e, at, "less_than_equal", msg, ctx);
	}
}

static void check_bool(const struct place *at, bool *ret, struct json_errors *e)
{
	const char *text = at->text ? at->text : json_string_value(at->json);
	double number = json_number_value(at->json);
	int v = -1;

	if (text)
		v = text_to_bool(text);
	else if (json_is_boolean(at->json))
		v = json_is_true(at->json);
	else if (json_is_number(at->json) && (number == 0 || number == 1))
		v = number == 1;
	if (v >= 0)
		*ret = v;
	else if (text || json_is_integer(at->json))
		add(e, at, "bool_parsing",
		    "Input should be a valid boolean, unable to interpret input", NULL);
	else
		add(e, at, "bool_type", "Input should be a valid boolean", NULL);
}

static void check_int(const struct place *at, const struct json_field *f, int64_t *ret,
		      struct json_errors *e)
{
	const char *text = at->text ? at->text : json_string_value(at->json);
	double real = json_real_value(at->json);
	int64_t v = 0;

	if (text && !text_to_int(text, &v)) {
		add(e, at, "int_parsing",
		    "Input should be a valid integer, unable to parse string as an integer", NULL);
		return;
	}
	if (json_is_real(at->json) && (real != floor(real) || fabs(real) > 9e18)) {
		add(e, at, "int_from_float",
		    "Input should be a valid integer, got a number with a fractional part", NULL);
		return;
	}
	if (json_is_real(at->json)) {
		v = (int64_t)real;
	} else if (json_is_integer(at->json)) {
		v = json_integer_value(at->json);
	} else if (json_is_boolean(at->json)) {
		v = json_is_true(at->json);
	} else if (!text) {
		add(e, at, "int_type", "Input should be a valid integer", NULL);
		return;
	}
	*ret = v;
	range(e, at, f, (double)v, false);
}

/* A name of a signal, or 0. */
static int signal_of(const char *name)
{
	if (!strncmp(name, "SIG", 3))
		name += 3;
	for (int n = 1; n < NSIG; n++) {
		const char *known = sigabbrev_np(n);

		if (known && !strcmp(known, name))
			return n;
	}
	return 0;
}

static void check_signal(const struct place *at, int64_t *ret, struct json_errors *e)
{
	const char *text = at->text ? at->text : json_string_value(at->json);
	int64_t v = json_is_integer(at->json) ? json_integer_value(at->json) : 0;

	if (text && !text_to_int(text, &v))
		v = signal_of(text);
	if (v >= 1 && v < NSIG)
		*ret = v;
	else
		add(e, at, "signal",
		    "Input should be a signal: a number from 1 to 64, or a name such as TERM",
		    NULL);
}

static void check_float(const struct place *at, const struct json_field *f, double *ret,
			struct json_errors *e)
{
	const char *text = at->text ? at->text : json_string_value(at->json);
	double v = json_number_value(at->json);

	if (text && !text_to_double(text, &v)) {
		add(e, at, "float_parsing",
		    "Input should be a valid number, unable to parse string as a number", NULL);
		return;
	}
	if (json_is_boolean(at->json)) {
		v = json_is_true(at->json);
	} else if (!text && !json_is_number(at->json)) {
		add(e, at, "float_type", "Input should be a valid number", NULL);
		return;
	}
	*ret = v;
	range(e, at, f, v, true);
}

const char json_path_nul[] = "";

static bool size_fits(const char *s)
{
	uint64_t v;

	return strlen(s) <= SIZE_TEXT_MAX && parse_size(s, &v) && v;
}

/* A C string can't hold a NUL; what has one is refused by name, never cut short. */
static const char *plain_string(const struct place *at, enum json_kind kind, struct json_errors *e)
{
	autobuf struct strbuf ctx = STRBUF_INIT, msg = STRBUF_INIT;
	const char *s = at->text ? at->text : json_string_value(at->json);
	bool nul = s && !at->text && strlen(s) != json_string_length(at->json);

	if (!s) {
		add(e, at, "string_type", "Input should be a valid string", NULL);
	} else if (json_kind_pattern(kind) && (nul || !json_kind_matches(kind, s))) {
		strbuf_addf(&msg, "String should match pattern '%s'", json_kind_pattern(kind));
		json_open(&ctx, '{');
		json_put_key(&ctx, "pattern");
		json_put_string(&ctx, json_kind_pattern(kind));
		json_close(&ctx, '}');
		add(e, at, "string_pattern_mismatch", msg.buf, ctx.buf);
	} else if (kind == JSON_KIND_SIZE && !nul && !size_fits(s)) {
		add(e, at, "value_error", "Value error, expected a size such as 512m, above 0",
		    "{\"error\":\"size\"}");
	} else if (nul && kind == JSON_KIND_PATH) {
		return json_path_nul;
	} else if (nul) {
		add(e, at, "value_error", "Value error, must not contain a NUL character",
		    "{\"error\":\"NUL\"}");
	} else {
		return s;
	}
	return NULL;
}

/* n pointers, a NULL, and the text behind them: one block. */
static const char **make_strings(size_t n, size_t text_bytes, char **ret_text)
{
	const char **v = try_alloc((n + 1) * sizeof(*v) + text_bytes);

	if (v)
		*ret_text = (char *)(v + n + 1);
	return v;
}

/* How many there are is said in the published words. */
static void check_length(const struct place *list, const struct json_field *f, size_t n,
			 struct json_errors *e)
{
	char msg[100], ctx[100];

	if (!n && (f->flags & JSON_NOT_EMPTY))
		add(e, list, "too_short",
		    "List should have at least 1 item after validation, not 0",
		    "{\"field_type\":\"List\",\"min_length\":1,\"actual_length\":0}");
	if (!f->max || n <= (size_t)f->max)
		return;
	(void)snprintf(msg, sizeof(msg),
		       "List should have at most %lld items after validation, not %zu",
		       (long long)f->max, n);
	(void)snprintf(ctx, sizeof(ctx),
		       "{\"field_type\":\"List\",\"max_length\":%lld,\"actual_length\":%zu}",
		       (long long)f->max, n);
	add(e, list, "too_long", msg, ctx);
}

static void check_strings(const struct place *list, const struct json_field *f, const char ***ret,
			  struct json_errors *e)
{
	const enum json_kind kind = f->kind == JSON_KIND_NAMES   ? JSON_KIND_NAME
				    : f->kind == JSON_KIND_PATHS ? JSON_KIND_PATH
								 : JSON_KIND_STRING;
	struct place at = *list;
	size_t n = json_array_size(list->json);
	const char **v;
	char *unused;

	if (!json_is_array(list->json)) {
		add(e, list, "list_type", "Input should be a valid list", NULL);
		return;
	}
	v = make_strings(n, 0, &unused);
	if (!v)
		return;
	*ret = v;
	for (size_t i = 0; i < n; i++) {
		at.index = (long)i;
		at.json = json_array_get(list->json, i);
		v[i] = plain_string(&at, kind, e);
	}
	check_length(list, f, n, e);
}

/* "NAME=VALUE" and its NUL; returns what is behind it. */
static char *put_pair(char *to, const char *name, const char *value)
{
	to = stpcpy(to, name);
	*to++ = '=';
	return stpcpy(to, value) + 1;
}

static void check_environ(const struct place *map, const char ***ret, struct json_errors *e)
{
	json_t *object = (json_t *)(uintptr_t)map->json, *member;
	struct place at = *map;
	size_t n = 0, bytes = 0;
	const char *key;
	const char **v;
	char *text;

	if (!json_is_object(object)) {
		add(e, map, "dict_type", "Input should be a valid dictionary", NULL);
		return;
	}
	json_object_foreach(object, key, member) bytes +=
		strlen(key) + json_string_length(member) + 2;
	v = make_strings(json_object_size(object), bytes, &text);
	if (!v)
		return;
	*ret = v;
	json_object_foreach(object, key, member)
	{
		const char *s;

		at.key = key;
		at.json = member;
		s = plain_string(&at, JSON_KIND_STRING, e);
		if (s && (!*key || strchr(key, '=')))
			add(e, &at, "value_error",
			    "Value error, a variable's name must not be empty or contain '='",
			    "{\"error\":\"name\"}");
		if (!s)
			continue;
		v[n++] = text;
		text = put_pair(text, key, s);
	}
}

/* ---- fields ---- */

static void check_value(const struct json_field *f, const struct place *at, void *values,
			struct json_errors *e)
{
	void *to = (char *)values + f->offset;
	const char *s;

	switch (f->kind) {
	case JSON_KIND_STRING:
	case JSON_KIND_PATH:
	case JSON_KIND_NAME:
	case JSON_KIND_RUN_ID:
	case JSON_KIND_SIZE:
		s = plain_string(at, f->kind, e);
		if (s)
			*(const char **)to = s;
		break;
	case JSON_KIND_BOOL:
		check_bool(at, to, e);
		break;
	case JSON_KIND_INT:
		check_int(at, f, to, e);
		break;
	case JSON_KIND_FLOAT:
		check_float(at, f, to, e);
		break;
	case JSON_KIND_SIGNAL:
		check_signal(at, to, e);
		break;
	case JSON_KIND_STRINGS:
	case JSON_KIND_NAMES:
	case JSON_KIND_PATHS:
		check_strings(at, f, to, e);
		break;
	case JSON_KIND_ENVIRON:
		check_environ(at, to, e);
		break;
	case JSON_KIND_TABLE:
		if (json_is_object(at->json))
			*(const json_t **)to = at->json;
		else
			add(e, at, "dict_type", "Input should be a valid dictionary", NULL);
		break;
	}
}

static bool check_object(const json_t *v, const char *const *above, const struct json_field *fields,
			 void *values, struct json_errors *e)
{
	struct place at = { .root = "body", .above = above, .index = -1, .json = v };

	if (!json_is_object(v)) {
		add(e, &at, "model_attributes_type",
		    "Input should be a valid dictionary or object to extract fields from", NULL);
		return false;
	}
	for (const struct json_field *f = fields; f->name; f++) {
		const json_t *member = json_object_get(v, f->name);

		at.field = f->name;
		at.json = member ? member : v;
		if (!member && (f->flags & JSON_REQUIRED))
			add(e, &at, "missing", "Field required", NULL);
		else if (member && !(json_is_null(member) && (f->flags & JSON_NULLABLE)))
			check_value(f, &at, values, e);
	}
	return true;
}

void json_check_body(const struct json_t *v, const struct json_field *fields, void *values,
		     struct json_errors *e)
{
	(void)check_object(v, NULL, fields, values, e);
}

void json_check_strict(const struct json_t *v, const char *const *above,
		       const struct json_field *fields, void *values, struct json_errors *e)
{
	struct place at = { .root = "body", .above = above, .index = -1 };
	const struct json_field *f;
	const char *key;
	json_t *member;

	if (!check_object(v, above, fields, values, e))
		return;
	json_object_foreach((json_t *)(uintptr_t)v, key, member)
	{
		for (f = fields; f->name && strcmp(f->name, key) != 0; f++)
			continue;
		at.field = key;
		at.json = member;
		if (!f->name)
			add(e, &at, "extra_forbidden", "Extra inputs are not permitted", NULL);
	}
}

void json_check_text(const char *place, const struct json_field *f, const char *text, void *values,
		     struct json_errors *e)
{
	struct place at = { .root = place, .field = f->name, .index = -1, .text = text };

	if (text)
		check_value(f, &at, values, e);
	else if (f->flags & JSON_REQUIRED)
		add(e, &at, "missing", "Field required", NULL);
}

void json_values_release(const struct json_field *fields, void *values)
{
	for (const struct json_field *f = fields; f && f->name; f++)
		if (f->kind == JSON_KIND_STRINGS || f->kind == JSON_KIND_ENVIRON ||
		    f->kind == JSON_KIND_NAMES || f->kind == JSON_KIND_PATHS)
			free(*(void **)((char *)values + f->offset));
}
