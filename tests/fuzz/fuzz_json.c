/*
 * Bodies: the reader, the condenser against the plain parser, and the check
 * against a table with every kind.
 */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "net/json_internal.h"

struct values {
	const char *string, *id, *name;
	bool flag;
	int64_t number;
	double real;
	const char **list, **environ;
	const char *size;
	const json_t *table;
};

#define F(m, k, f)                                                                          \
	{                                                                                   \
		.name = #m, .kind = (k), .flags = (f), .offset = offsetof(struct values, m) \
	}
static const struct json_field fields[] = {
	F(string, JSON_KIND_STRING, JSON_NULLABLE),
	F(id, JSON_KIND_RUN_ID, 0),
	F(name, JSON_KIND_NAME, JSON_REQUIRED),
	F(flag, JSON_KIND_BOOL, 0),
	F(number, JSON_KIND_INT, JSON_FROM_ZERO),
	F(real, JSON_KIND_FLOAT, JSON_NULLABLE | JSON_ABOVE_ZERO),
	F(list, JSON_KIND_STRINGS, JSON_NOT_EMPTY),
	F(environ, JSON_KIND_ENVIRON, 0),
	F(size, JSON_KIND_SIZE, JSON_NULLABLE),
	F(table, JSON_KIND_TABLE, 0),
	{ .name = NULL },
};

static void check(const json_t *v)
{
	struct json_errors e = JSON_ERRORS_INIT;
	struct values values = { .flag = false };

	json_check_body(v, fields, &values, &e);
	CHECK(utf8_valid(e.items.buf, e.items.len));
	if (!e.n) { /* what passed keeps the rules */
		CHECK(values.name && json_kind_matches(JSON_KIND_NAME, values.name));
		CHECK(values.number >= 0 && values.real >= 0);
		CHECK(!values.list || values.list[0]);
		for (size_t i = 0; values.environ && values.environ[i]; i++)
			CHECK(values.environ[i][0] != '=' && strchr(values.environ[i], '='));
	}
	json_values_release(fields, &values);
	strbuf_release(&e.items);
}

/* What passes the strict check passes the other, and has no key beside the table's. */
static void check_strict(const json_t *v)
{
	static const char *const above[] = { "a", "b", NULL };
	struct json_errors e = JSON_ERRORS_INIT, plain = JSON_ERRORS_INIT;
	struct values values = { .flag = false }, others = { .flag = false };
	uint64_t bytes;

	json_check_strict(v, above, fields, &values, &e);
	json_check_body(v, fields, &others, &plain);
	CHECK(utf8_valid(e.items.buf, e.items.len) && e.n >= plain.n);
	if (!e.n) {
		CHECK(json_object_size(v) <= ARRAY_SIZE(fields));
		CHECK(!values.size || (parse_size(values.size, &bytes) && bytes));
		CHECK(!values.table || json_is_object(values.table));
	}
	json_values_release(fields, &values);
	json_values_release(fields, &others);
	strbuf_release(&e.items);
	strbuf_release(&plain.items);
}

/* The condensed way gives what the plain one gives. */
static void compare(const uint8_t *data, size_t n)
{
	struct json_condensed c = { .text = STRBUF_INIT };
	struct strbuf body = STRBUF_INIT;
	json_error_t err;
	json_t *plain, *other = NULL;
	bool ok;

	strbuf_add(&body, data, n);
	plain = json_loadb(body.buf, body.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
	ok = json_condense(&body, &c);
	if (ok) {
		other = json_loadb(c.text.buf, c.text.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &err);
		if (!other)
			(void)json_condensed_offset(&c, (size_t)MAX(err.position, 0));
		else
			other = json_condensed_restore(&c, other);
	}
	if (c.problem.kind != JSON_TOO_MUCH) {
		/* Lone surrogates are replaced before; here the plain parser refuses them. */
		CHECK(!plain || other);
		CHECK(!other || !plain || json_equal(plain, other));
		CHECK(plain || !other || strstr((const char *)body.buf, "\\u") ||
		      memmem(data, n, "\\u", 2));
	}
	json_decref(plain);
	json_decref(other);
	json_condensed_release(&c);
	strbuf_release(&body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct strbuf body = STRBUF_INIT;
	struct json_problem p = { .kind = JSON_FINE };
	json_t *v;

	compare(data, n);
	strbuf_add(&body, data, n);
	v = json_read(&body, &p);
	CHECK(v ? !p.kind : p.kind != JSON_FINE && p.offset <= n);
	if (v) {
		check(v);
		check_strict(v);
	} else {
		struct json_errors e = JSON_ERRORS_INIT;

		json_add_problem(&e, &p);
		CHECK(utf8_valid(e.items.buf, e.items.len));
		strbuf_release(&e.items);
	}
	json_done(v);
	strbuf_release(&body);
	return 0;
}
