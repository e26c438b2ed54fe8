#include "base/opt.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

static int wants(const struct opt *o, const char *value, struct garret_error *err)
{
	return garret_fail(err, GARRET_INVALID, "--%s takes %s, not \"%.100s\"", o->name, o->arg,
			   value);
}

static int store(const struct opt *o, const char *value, void *into, struct garret_error *err)
{
	void *at = (char *)into + o->offset;
	struct opt_list *list = at;
	double d;

	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)at = true;
		return 0;
	case OPT_STRING:
		*(const char **)at = value;
		return 0;
	case OPT_LIST:
		if (list->n == OPT_LIST_MAX)
			return garret_fail(err, GARRET_INVALID, "--%s: at most %d of them", o->name,
					   OPT_LIST_MAX);
		list->item[list->n++] = value;
		return 0;
	case OPT_SIZE:
		return parse_size(value, at) && *(uint64_t *)at ? 0 : wants(o, value, err);
	case OPT_NUMBER:
		return parse_u64(value, at) && *(uint64_t *)at ? 0 : wants(o, value, err);
	case OPT_SECONDS:
	case OPT_CPUS:
		if (!parse_seconds(value, &d) || d <= 0 || d > 1e9)
			return wants(o, value, err);
		*(double *)at = d;
		return 0;
	}
	return 0;
}

static const struct opt *find_long(const struct opt *table, const char *name, size_t n)
{
	for (; table->name; table++)
		if (strlen(table->name) == n && !memcmp(table->name, name, n))
			return table;
	return NULL;
}

static const struct opt *find_letter(const struct opt *table, char letter)
{
	for (; table->name; table++)
		if (table->letter == letter)
			return table;
	return NULL;
}

static int parse_long(const struct opt *table, int argc, char *const *argv, int i, void *into,
		      struct garret_error *err)
{
	const char *word = argv[i] + 2, *eq = strchr(word, '=');
	size_t n = eq ? (size_t)(eq - word) : strlen(word);
	const struct opt *o = find_long(table, word, n);
	int rc;

	if (!o)
		return garret_fail(err, GARRET_INVALID, "unknown option --%.*s", (int)n, word);
	if (o->kind == OPT_FLAG && eq)
		return garret_fail(err, GARRET_INVALID, "--%s takes no value", o->name);
	if (o->kind != OPT_FLAG && !eq && i + 1 >= argc)
		return garret_fail(err, GARRET_INVALID, "--%s takes %s", o->name, o->arg);
	if (o->kind == OPT_FLAG)
		rc = store(o, "", into, err);
	else
		rc = store(o, eq ? eq + 1 : argv[++i], into, err);
	return rc < 0 ? rc : i + 1;
}

/* -it, -t5, -t 5 */
static int parse_short(const struct opt *table, int argc, char *const *argv, int i, void *into,
		       struct garret_error *err)
{
	int rc;

	for (const char *p = argv[i] + 1; *p; p++) {
		const struct opt *o = find_letter(table, *p);

		if (!o)
			return garret_fail(err, GARRET_INVALID, "unknown option -%c", *p);
		if (o->kind == OPT_FLAG) {
			rc = store(o, "", into, err);
		} else if (p[1]) {
			rc = store(o, p + 1, into, err);
			return rc < 0 ? rc : i + 1;
		} else if (i + 1 < argc) {
			rc = store(o, argv[i + 1], into, err);
			return rc < 0 ? rc : i + 2;
		} else {
			rc = garret_fail(err, GARRET_INVALID, "-%c takes %s", *p, o->arg);
		}
		if (rc < 0)
			return rc;
	}
	return i + 1;
}

static int parse_one(const struct opt *table, int argc, char *const *argv, int i, void *into,
		     struct garret_error *err)
{
	return argv[i][1] == '-' ? parse_long(table, argc, argv, i, into, err)
				 : parse_short(table, argc, argv, i, into, err);
}

int opt_parse(const struct opt *table, int argc, char *const *argv, void *into,
	      struct garret_error *err)
{
	int i = 1;

	while (i >= 0 && i < argc) {
		if (!strcmp(argv[i], "--"))
			return i + 1;
		if (argv[i][0] != '-' || !argv[i][1])
			return i;
		i = parse_one(table, argc, argv, i, into, err);
	}
	return i;
}

/* argv[from...to-1] to the place of argv[at], and what is between behind it. */
static void move_words(char **argv, int at, int from, int to)
{
	for (; from < to; at++, from++) {
		char *word = argv[from];

		memmove(argv + at + 1, argv + at, (size_t)(from - at) * sizeof(*argv));
		argv[at] = word;
	}
}

int opt_parse_all(const struct opt *table, int argc, char **argv, void *into,
		  struct garret_error *err)
{
	int first = 1, next = 1; /* the words found so far are argv[first...next-1] */

	while (next < argc) {
		bool end = !strcmp(argv[next], "--");
		int to = next + 1;

		if (!end && (argv[next][0] != '-' || !argv[next][1])) {
			next++;
			continue;
		}
		if (!end)
			to = parse_one(table, argc, argv, next, into, err);
		if (to < 0)
			return to;
		move_words(argv, first, next, to);
		first += to - next;
		next = to;
		if (end)
			break;
	}
	return first;
}

void opt_help(const struct opt *table, struct strbuf *out)
{
	for (; table->name; table++) {
		char left[64];

		(void)snprintf(left, sizeof(left), "%c%c%s--%s%s%s", table->letter ? '-' : ' ',
			       table->letter ? table->letter : ' ', table->letter ? ", " : "  ",
			       table->name, table->arg ? " " : "", table->arg ? table->arg : "");
		strbuf_addf(out, "  %-28s %s\n", left, table->help);
	}
}
