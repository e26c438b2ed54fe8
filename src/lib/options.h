/*
 * Options from a table: one row says what a value may be, for garret_options_set(), the command
 * line and the manual.  Values are kept as text; who uses one parses it again and can't fail.
 */
#ifndef LIB_OPTIONS_H
#define LIB_OPTIONS_H

#include "garret/provider.h"

enum option_kind {
	OPTION_TEXT,
	OPTION_NAME,    /* name_valid() */
	OPTION_PATH,    /* absolute */
	OPTION_SIZE,    /* parse_size(), above 0 */
	OPTION_CPUS,    /* a number above 0, thousandths count */
	OPTION_NUMBER,  /* 1 to 2^31 - 1 */
	OPTION_SECONDS, /* above 0, finite */
	OPTION_FLAG,    /* true false 1 0 yes no on off */
	OPTION_CHOICE,  /* one of the words in `words` */
	OPTION_ENV,     /* NAME=VALUE, a list */
	OPTION_VOLUME,  /* HOST:INSIDE[:ro], a list */
};

struct option_row {
	const char *name; /* NULL ends a table */
	enum option_kind kind;
	const char *words; /* of a choice: "none host" */
	const char *help;
};

struct provider_kind;

struct garret_options {
	const struct provider_kind *kind;
	char **values;  /* one per row; NULL: not set */
	char **env;     /* NULL-terminated, or NULL */
	char **volumes; /* the same */
	garret_notice_fn *notice;
	void *notice_data;
	struct garret_store store; /* size 0: none */
	char id[33];               /* what the kind's check() made of them; "" */
};

struct garret_options *options_dup(const struct garret_options *o);
/* The value, or NULL.  The name must be in the table. */
const char *option_text(const struct garret_options *o, const char *name);
uint64_t option_size(const struct garret_options *o, const char *name);   /* 0: not set */
uint32_t option_number(const struct garret_options *o, const char *name); /* 0: not set */
uint32_t option_millis(const struct garret_options *o, const char *name); /* cpus, seconds */
bool option_flag(const struct garret_options *o, const char *name, bool otherwise);

/* Append a copy of item to a NULL-terminated list of strings. */
void strings_add(char ***list, const char *item);
char **strings_free(char **list);
size_t strings_count(char *const *list);

#endif
