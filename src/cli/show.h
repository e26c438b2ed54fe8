/*
 * Text that comes from a session (names, lines of files, messages with names in
 * them) is untrusted: on a terminal it must not be more than text.
 */
#ifndef CLI_SHOW_H
#define CLI_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

/*
 * Control characters, what changes the direction of writing, and bytes that
 * aren't UTF-8 as \n, \033, ...; a backslash is doubled, so that it can be undone.
 */
void show_escape(struct strbuf *out, const char *s, size_t n);

/* On standard output: escaped when that is a terminal, else the bytes as they are. */
void show_bytes(const char *s, size_t n);
void show_text(const char *s);
bool show_on_terminal(void);
/* base64 into its bytes, in place; false when it isn't any. */
bool show_base64(char *s, size_t *ret);
/* One line of JSON. */
void show_json(const json_t *doc);

/* Everything is out; a full disk is an error. */
int show_flush(struct garret_error *err);

#endif
