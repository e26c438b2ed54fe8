/*
 * Command line options from a table: the parser, --help, shell completion and
 * the manual's check read the same rows.
 */
#ifndef BASE_OPT_H
#define BASE_OPT_H

#include <stddef.h>

#include "base/error.h"
#include "base/strbuf.h"

enum opt_kind {
	OPT_FLAG,    /* bool */
	OPT_STRING,  /* const char *, borrowed from argv */
	OPT_LIST,    /* struct opt_list: may be given several times */
	OPT_SIZE,    /* uint64_t, bytes; 512m */
	OPT_SECONDS, /* double */
	OPT_NUMBER,  /* uint64_t */
	OPT_CPUS,    /* double, > 0 */
};

struct opt {
	const char *name; /* without --; NULL ends the table */
	char letter;      /* 0: none */
	enum opt_kind kind;
	size_t offset;   /* in the struct given to opt_parse() */
	const char *arg; /* what --help calls the value; NULL for a flag */
	const char *help;
};

#define OPT_LIST_MAX 64
struct opt_list {
	const char *item[OPT_LIST_MAX + 1]; /* NULL-terminated */
	unsigned n;
};

#define OPT(type, field, name, letter, kind, arg, help)              \
	{                                                            \
		name, letter, kind, offsetof(type, field), arg, help \
	}

/*
 * Parse argv[1...] until the first word that is no option, or behind "--".
 * Returns the index of the first word left, or -GARRET_INVALID naming the
 * option and what it wants.
 */
int opt_parse(const struct opt *table, int argc, char *const *argv, void *into,
	      struct garret_error *err);
/*
 * The same with options between and behind the words, up to "--": the words are
 * moved to the end of argv, in their order.  For commands whose words are never
 * another program's options.
 */
int opt_parse_all(const struct opt *table, int argc, char **argv, void *into,
		  struct garret_error *err);
void opt_help(const struct opt *table, struct strbuf *out);

#endif
