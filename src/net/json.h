/*
 * JSON: a writer into a strbuf, a reader (jansson), and a table-driven check
 * that fills a struct and says all that is wrong in the published 422 form.
 *
 * The reader is strict, but for what published clients may send: a key given
 * twice (the last one counts), lone surrogate escapes (they become U+FFFD, as
 * a program would see them), a byte order mark.  NaN, Infinity, and numbers
 * that no int64 or double holds are syntax errors: the published service takes
 * them and then fails on them with 500.  Depth is bounded by the parser (2,048),
 * values are by us (65,536), so that what a body costs is bounded by its size.
 */
#ifndef NET_JSON_H
#define NET_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"
#include "base/text.h"

/* ---- writing: compact, a comma is put where one is needed ---- */

void json_open(struct strbuf *out, char bracket);  /* '{' or '[' */
void json_close(struct strbuf *out, char bracket); /* '}' or ']' */
void json_put_key(struct strbuf *out, const char *key);
void json_put_null(struct strbuf *out);
void json_put_bool(struct strbuf *out, bool v);
void json_put_int(struct strbuf *out, int64_t v);
/* As Python's repr() of a float: the shortest text that reads back; NaN and infinities: null. */
void json_put_double(struct strbuf *out, double v);
/* NULL: null.  Invalid UTF-8 is repaired. */
void json_put_string(struct strbuf *out, const char *s);
void json_put_string_n(struct strbuf *out, const char *s, size_t n);
/* Text that is JSON already. */
void json_put_raw(struct strbuf *out, const char *text);

/*
 * The inside of a string from raw bytes that arrive in pieces: repaired and
 * escaped; what is appended doesn't depend on where the pieces were cut.
 */
struct json_text {
	struct utf8_repair repair;
};
void json_text_add(struct json_text *t, struct strbuf *out, const void *data, size_t n);
void json_text_end(struct json_text *t, struct strbuf *out);

/* ---- reading ---- */

struct json_t;

enum json_problem_kind {
	JSON_FINE,
	JSON_EMPTY,
	JSON_NOT_UTF8,
	JSON_SYNTAX,
	JSON_TOO_MUCH, /* more values, or longer keys, than a request can use */
};

struct json_problem {
	enum json_problem_kind kind;
	size_t offset; /* in characters */
	char text[160];
};

/* NULL and *ret_problem, or a value for json_done().  body is changed in place. */
struct json_t *json_read(struct strbuf *body, struct json_problem *ret_problem);
void json_done(struct json_t *v); /* NULL is fine */

/* ---- checking ---- */

enum json_kind {
	JSON_KIND_STRING,  /* const char *, borrowed from the parsed value */
	JSON_KIND_BOOL,    /* bool */
	JSON_KIND_INT,     /* int64_t */
	JSON_KIND_FLOAT,   /* double */
	JSON_KIND_STRINGS, /* const char **, NULL-terminated, one block: free() */
	JSON_KIND_ENVIRON, /* the same from an object: "NAME=VALUE" */
	JSON_KIND_RUN_ID,  /* JSON_KIND_STRING with a pattern */
	JSON_KIND_NAME,
	JSON_KIND_PATH,   /* JSON_KIND_STRING, or json_path_nul when it has a NUL inside */
	JSON_KIND_NAMES,  /* JSON_KIND_STRINGS of JSON_KIND_NAME */
	JSON_KIND_PATHS,  /* JSON_KIND_STRINGS of JSON_KIND_PATH */
	JSON_KIND_SIGNAL, /* int64_t: a number, or a name such as "TERM" or "SIGTERM" */
	JSON_KIND_SIZE,   /* JSON_KIND_STRING that parse_size() takes, above 0 */
	JSON_KIND_TABLE,  /* const struct json_t *, borrowed: an object of any keys */
};

/* A path that no C string holds; who gets it says so. */
extern const char json_path_nul[];

enum json_flags {
	JSON_REQUIRED = 1 << 0,
	JSON_NULLABLE = 1 << 1,
	JSON_ABOVE_ZERO = 1 << 2, /* numbers: > 0 */
	JSON_FROM_ZERO = 1 << 3,  /* numbers: >= 0 */
	JSON_NOT_EMPTY = 1 << 4,  /* lists */
	JSON_FROM_ONE = 1 << 5,   /* numbers: >= 1 */
};

struct json_field {
	const char *name;
	enum json_kind kind;
	unsigned flags;
	size_t offset; /* of the value in the struct; untouched when absent or null */
	const char *help;
	int64_t max; /* of a number, or of a list's items; 0: none */
};

/* What is wrong, collected: the items of {"detail":[...]}. At most 100, the rest is not shown. */
struct json_errors {
	struct strbuf items;
	unsigned n;
};
#define JSON_ERRORS_INIT                     \
	{                                    \
		.items = STRBUF_INIT, .n = 0 \
	}

/* The items for a body that isn't there or isn't JSON. */
void json_add_problem(struct json_errors *e, const struct json_problem *p);
/* An object against a table (ends with name NULL); all errors, in the table's order. */
void json_check_body(const struct json_t *v, const struct json_field *fields, void *values,
		     struct json_errors *e);
/*
 * The same for an object that is part of one: above (NULL-terminated) names the way to it,
 * NULL: it is the body itself.  A key that isn't in the table is an error as well.
 */
void json_check_strict(const struct json_t *v, const char *const *above,
		       const struct json_field *fields, void *values, struct json_errors *e);
/* One value that came as text: place is "query" or "path"; text NULL is absent. */
void json_check_text(const char *place, const struct json_field *f, const char *text, void *values,
		     struct json_errors *e);
/* One item of our own: path is JSON text such as "body","argv",0 */
void json_add_error(struct json_errors *e, const char *type, const char *path, const char *msg,
		    const char *input_json, const char *ctx_json);
/* Free what the check allocated in values. */
void json_values_release(const struct json_field *fields, void *values);
/* The pattern of JSON_KIND_NAME or JSON_KIND_RUN_ID as the wire spells it, else NULL. */
const char *json_kind_pattern(enum json_kind kind);
bool json_kind_matches(enum json_kind kind, const char *s);

#endif
