/* Small text work: hex, base64url, sizes, numbers, shell quoting, UTF-8 repair. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

void hex_encode(const void *data, size_t n, char *out /* 2n + 1 */);
/* Exactly n bytes from 2n lower-case digits and nothing behind; false otherwise. */
bool hex_decode(const char *s, void *out, size_t n);
/* Without padding; out has room for (n * 4 + 2) / 3 + 1. */
void base64url_encode(const void *data, size_t n, char *out);

/* Decimal, whole string, no sign, no blanks; false when it isn't or doesn't fit. */
bool parse_u64(const char *s, uint64_t *ret);
/* "512m", "1.5g", "100", "64kb": powers of 1024, a fraction is cut to bytes. */
bool parse_size(const char *s, uint64_t *ret_bytes);
/* Seconds with a fraction, finite, >= 0. */
bool parse_seconds(const char *s, double *ret);

/* As a POSIX shell needs it, quoted only where it must be. */
void shell_quote(struct strbuf *out, const char *s);

/* Session ids and tenants: [A-Za-z0-9][A-Za-z0-9._-]{0,63} */
bool name_valid(const char *s);

/*
 * UTF-8 with U+FFFD for each maximal invalid subpart, decided over a stream
 * that arrives in pieces (the result doesn't depend on where it was cut).
 */
struct utf8_repair {
	unsigned char pending[4];
	unsigned n;
};

/* Append the repaired text of n bytes to out; up to three bytes stay pending. */
void utf8_repair_add(struct utf8_repair *u, struct strbuf *out, const void *data, size_t n);
/* The stream ends: a sequence cut short becomes one U+FFFD. */
void utf8_repair_end(struct utf8_repair *u, struct strbuf *out);
bool utf8_valid(const char *s, size_t n);

/* The words of a line, cut out of it: how many there are, or -1 for more than `most`. */
int split_words(char *line, char **ret, int most);

#endif
