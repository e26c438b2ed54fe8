/*
 * Lines of a text that is UTF-8 or Latin-1, ended as Python's splitlines() has it.
 */
#ifndef BASE_LINES_H
#define BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

struct lines {
	const uint8_t *at, *end;
	bool latin;
};

/* A byte order mark is left out; `latin` says whether the text is no UTF-8. */
void lines_init(struct lines *t, const void *text, size_t n);
/* The next line, without its end; false when there is none. */
bool lines_next(struct lines *t, const uint8_t **ret, size_t *ret_n);
/* Append one as UTF-8. */
void lines_put(const struct lines *t, struct strbuf *out, const uint8_t *line, size_t n);

#endif
