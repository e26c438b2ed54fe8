/* What json.c and json_condense.c share. */
#ifndef NET_JSON_INTERNAL_H
#define NET_JSON_INTERNAL_H

#include "net/json.h"

struct json_condensed {
	struct strbuf text; /* for the parser */
	struct {
		const char *s; /* decoded, in the body */
		size_t n;
	} * strings;
	size_t n_strings;
	struct {
		size_t at, extra;
	} * places;
	size_t n_places;
	struct json_problem problem;
};

/* False when problem says why.  body is changed in place and has to outlive the strings. */
bool json_condense(struct strbuf *body, struct json_condensed *ret);
/* Where in the body, in characters, byte `at` of the text was. */
size_t json_condensed_offset(const struct json_condensed *c, size_t at);
/* Put the strings into what was parsed; returns it, or what took its place. */
struct json_t *json_condensed_restore(const struct json_condensed *c, struct json_t *v);
void json_condensed_release(struct json_condensed *c);

#endif
