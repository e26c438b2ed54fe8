#include "text/glob.h"

#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"

/*
 * The automaton: ops in a row; CHAR, SET, ANY take a character and go on to the
 * next one, LOOP ops stay as well; SPLIT and JUMP take none.  Following a path
 * keeps the list of ops that wait for the next character; `mark` says in which
 * round an op was put on the list, so that each is there once.
 */
enum kind {
	OP_CHAR,
	OP_SET,    /* one character of a set, never a slash */
	OP_ANY,    /* `?` */
	OP_STAR,   /* any number of characters but slashes */
	OP_DEEP,   /* any number of characters */
	OP_DIRS,   /* nothing, or any number of characters that end in a slash */
	OP_IN_DIR, /* the inside of DIRS */
	OP_SPLIT,  /* go on here and at `to` */
	OP_JUMP,   /* go on at `to` */
	OP_MATCH,
};

struct glob_op {
	uint8_t kind;
	bool negated;
	uint32_t c;  /* CHAR; the first range of SET */
	uint32_t to; /* SPLIT, JUMP: an op; SET: behind the last range */
};

struct glob_range {
	uint32_t first, last;
};

#define BRACES_MAX 32       /* open at once */
#define BYTE_BASE 0x200000u /* bytes that are no UTF-8 come behind the characters */

struct parser {
	struct glob *g;
	const char *pattern, *at;
	unsigned flags;
	size_t cap_ops, cap_ranges;
	struct {
		uint32_t split; /* of the alternative under way */
		uint32_t jumps; /* a chain of JUMPs to the end, through `to`; 0 ends it */
		bool start;     /* the brace stands where a component begins */
	} brace[BRACES_MAX];
	unsigned n_braces;
	bool start; /* a component begins here */
};

static bool follows(unsigned char c)
{
	return (c & 0xc0) == 0x80;
}

/* One character, or one byte where there is none; *s moves behind it.  Never at the end. */
static uint32_t take_char(const char **s)
{
	const unsigned char *p = (const unsigned char *)*s;
	uint32_t c = p[0];
	size_t n = c >= 0xf0 && c < 0xf5   ? 4
		   : c >= 0xe0 && c < 0xf0 ? 3
		   : c >= 0xc2 && c < 0xe0 ? 2
					   : 1;

	if (n > 1)
		c &= 0xffu >> (n + 1);
	for (size_t i = 1; i < n; i++) {
		if (!follows(p[i])) {
			n = 1;
			break;
		}
		c = c << 6 | (p[i] & 0x3fu);
	}
	*s += n;
	return n == 1 && p[0] >= 0x80 ? BYTE_BASE + p[0] : c;
}

/* Lower case where upper and lower are a fixed distance apart. */
static uint32_t fold_char(uint32_t c)
{
	if ((c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7) ||
	    (c >= 0x391 && c <= 0x3a9) || (c >= 0x410 && c <= 0x42f))
		return c + 32;
	return c >= 0x400 && c <= 0x40f ? c + 80 : c;
}

static uint32_t add_op(struct parser *p, enum kind kind, uint32_t c, uint32_t to)
{
	struct glob *g = p->g;

	if (g->n_ops == p->cap_ops) {
		p->cap_ops = p->cap_ops ? 2 * p->cap_ops : 16;
		g->ops = xrealloc(g->ops, p->cap_ops * sizeof(*g->ops));
	}
	g->ops[g->n_ops] = (struct glob_op){ .kind = kind, .c = c, .to = to };
	return (uint32_t)g->n_ops++;
}

static void add_range(struct parser *p, uint32_t first, uint32_t last)
{
	struct glob *g = p->g;

	if (g->n_ranges == p->cap_ranges) {
		p->cap_ranges = p->cap_ranges ? 2 * p->cap_ranges : 8;
		g->ranges = xrealloc(g->ranges, p->cap_ranges * sizeof(*g->ranges));
	}
	g->ranges[g->n_ranges++] = (struct glob_range){ first, last };
}

/* [:alpha:] and the like, of ASCII. */
static bool add_class(struct parser *p, const char *name, size_t n)
{
	static const struct {
		const char *name, *ranges; /* pairs */
	} classes[] = {
		{ "alpha", "AZaz" },    { "digit", "09" },
		{ "alnum", "09AZaz" },  { "upper", "AZ" },
		{ "lower", "az" },      { "space", "\t\r  " },
		{ "blank", "\t\t  " },  { "punct", "!/:@[`{~" },
		{ "xdigit", "09AFaf" }, { "cntrl", "\1\x1f\x7f\x7f" },
		{ "graph", "!~" },      { "print", " ~" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (strlen(classes[i].name) != n || memcmp(classes[i].name, name, n) != 0)
			continue;
		for (const char *r = classes[i].ranges; *r; r += 2)
			add_range(p, (unsigned char)r[0], (unsigned char)r[1]);
		return true;
	}
	return false;
}

/* A member of a set: quoted or not. False at the end of the pattern. */
static bool set_char(struct parser *p, uint32_t *ret)
{
	if (*p->at == '\\')
		p->at++;
	if (!*p->at)
		return false;
	*ret = take_char(&p->at);
	return true;
}

static int unterminated(struct parser *p, char what, struct garret_error *err)
{
	return garret_fail(err, GARRET_INVALID, "pattern \"%.200s\": a %c is not closed",
			   p->pattern, what);
}

static int parse_members(struct parser *p, struct garret_error *err)
{
	for (const char *begin = p->at; *p->at != ']' || p->at == begin;) {
		const char *end =
			p->at[0] == '[' && p->at[1] == ':' ? strstr(p->at + 2, ":]") : NULL;
		uint32_t first, last;

		if (end) {
			if (!add_class(p, p->at + 2, (size_t)(end - p->at) - 2))
				return garret_fail(err, GARRET_INVALID,
						   "pattern \"%.200s\": no such class", p->pattern);
			p->at = end + 2;
			continue;
		}
		if (!set_char(p, &first))
			return unterminated(p, '[', err);
		last = first;
		if (p->at[0] == '-' && p->at[1] && p->at[1] != ']') {
			p->at++;
			if (!set_char(p, &last))
				return unterminated(p, '[', err);
		}
		if (last < first)
			return garret_fail(err, GARRET_INVALID,
					   "pattern \"%.200s\": a range ends before it begins",
					   p->pattern);
		add_range(p, first, last);
	}
	p->at++;
	return 0;
}

/* Behind the bracket. */
static int parse_set(struct parser *p, struct garret_error *err)
{
	bool negated = *p->at == '!' || *p->at == '^';
	uint32_t from = (uint32_t)p->g->n_ranges, op;
	int rc;

	p->at += negated;
	rc = parse_members(p, err);
	if (rc < 0)
		return rc;
	op = add_op(p, OP_SET, from, (uint32_t)p->g->n_ranges);
	p->g->ops[op].negated = negated;
	return 0;
}

/* At the first star. */
static void parse_stars(struct parser *p)
{
	size_t n = strspn(p->at, "*");
	const char *behind = p->at + n;
	bool braces = p->n_braces && (*behind == ',' || *behind == '}');

	p->at = behind;
	if (n == 2 && p->start && *behind == '/') {
		add_op(p, OP_DIRS, 0, 0);
		add_op(p, OP_IN_DIR, 0, 0);
		p->at++; /* a component begins here again */
		return;
	}
	add_op(p, n == 2 && p->start && (!*behind || braces) ? OP_DEEP : OP_STAR, 0, 0);
	p->start = false;
}

static int open_brace(struct parser *p, struct garret_error *err)
{
	if (p->n_braces == BRACES_MAX)
		return garret_fail(err, GARRET_INVALID,
				   "pattern \"%.200s\": more than %d braces in one another",
				   p->pattern, BRACES_MAX);
	p->brace[p->n_braces].split = add_op(p, OP_SPLIT, 0, 0);
	p->brace[p->n_braces].jumps = 0;
	p->brace[p->n_braces++].start = p->start;
	return 0;
}

static void next_alternative(struct parser *p)
{
	__typeof__(p->brace[0]) *b = &p->brace[p->n_braces - 1];

	/* Op 0 is never a JUMP: a SPLIT comes before it. */
	b->jumps = add_op(p, OP_JUMP, 0, b->jumps);
	p->g->ops[b->split].to = (uint32_t)p->g->n_ops;
	b->split = add_op(p, OP_SPLIT, 0, 0);
	p->start = b->start;
}

static void close_brace(struct parser *p)
{
	__typeof__(p->brace[0]) *b = &p->brace[--p->n_braces];
	uint32_t end = (uint32_t)p->g->n_ops;

	/* The last alternative has no other beside it. */
	p->g->ops[b->split].kind = OP_JUMP;
	p->g->ops[b->split].to = b->split + 1;
	for (uint32_t j = b->jumps, next; j; j = next) {
		next = p->g->ops[j].to;
		p->g->ops[j].to = end;
	}
	p->start = false;
}

static int parse_one(struct parser *p, struct garret_error *err)
{
	bool braces = !(p->flags & GLOB_NO_BRACES);
	uint32_t c;

	switch (*p->at) {
	case '*':
		parse_stars(p);
		return 0;
	case '{':
		if (!braces)
			break;
		p->at++;
		return open_brace(p, err);
	case ',':
	case '}':
		if (!braces || !p->n_braces)
			break;
		if (*p->at++ == ',')
			next_alternative(p);
		else
			close_brace(p);
		return 0;
	case '[':
		p->at++;
		p->start = false;
		return parse_set(p, err);
	case '?':
		p->at++;
		p->start = false;
		add_op(p, OP_ANY, 0, 0);
		return 0;
	case '\\':
		p->at++;
		if (!*p->at)
			return garret_fail(err, GARRET_INVALID,
					   "pattern \"%.200s\": nothing behind the last \\",
					   p->pattern);
		break;
	default:
		break;
	}
	c = take_char(&p->at);
	p->start = c == '/';
	add_op(p, OP_CHAR, p->flags & GLOB_FOLD ? fold_char(c) : c, 0);
	return 0;
}

/* A slash that counts: not in a set.  (A slash in a set matches nothing anyway.) */
static bool has_slash(const char *s)
{
	return strchr(s, '/') != NULL;
}

/* Most patterns are a name, or a star and the end of one: they need no automaton. */
static void find_literal(struct glob *g, const char *pattern, unsigned flags)
{
	bool star = pattern[0] == '*';

	if (flags & GLOB_FOLD || (star && !g->base) ||
	    pattern[star + strcspn(pattern + star, "*?[\\{")])
		return;
	g->literal = xstrdup(pattern + star);
	g->literal_bytes = strlen(g->literal);
	g->suffix = star;
}

static int parse_all(struct parser *p, struct garret_error *err)
{
	while (*p->at) {
		int rc = parse_one(p, err);

		if (rc < 0)
			return rc;
	}
	if (p->n_braces)
		return unterminated(p, '{', err);
	add_op(p, OP_MATCH, 0, 0);
	return 0;
}

int glob_compile(struct glob *g, const char *pattern, unsigned flags, struct garret_error *err)
{
	autofree char *text = xstrdup(pattern);
	size_t n = strlen(text);
	struct parser p = { .g = g, .pattern = pattern, .at = text, .flags = flags, .start = true };
	int rc;

	*g = (struct glob){ .fold = flags & GLOB_FOLD };
	if (n && text[n - 1] == '/' && !(n > 1 && text[n - 2] == '\\')) {
		text[n - 1] = '\0';
		g->dir_only = true;
	}
	g->base = !has_slash(text);
	while (text[0] == '.' && text[1] == '/')
		memmove(text, text + 2, strlen(text + 2) + 1);
	if (text[0] == '/')
		p.at++;
	if (!*p.at)
		return garret_fail(err, GARRET_INVALID, "the pattern is empty");
	rc = parse_all(&p, err);
	if (rc < 0) {
		glob_done(g);
		return rc;
	}
	find_literal(g, text + (text[0] == '/'), flags);
	g->states = xcalloc(3 * g->n_ops, sizeof(*g->states));
	return 0;
}

void glob_done(struct glob *g)
{
	free(g->ops);
	free(g->ranges);
	free(g->states);
	free(g->literal);
	*g = (struct glob){ .ops = NULL };
}

struct list_of_states {
	uint32_t *at;
	size_t n;
};

/*
 * Put op i on the list, and through ops that take no character what is behind
 * it.  The stack is the free part of the list's own array: an op is on the list
 * or on the stack, and each only once.
 */
static void add_state(struct glob *g, struct list_of_states *l, uint32_t i)
{
	uint32_t *mark = g->states + 2 * g->n_ops;
	uint32_t *top = l->at + g->n_ops, *p = top;

	if (mark[i] == g->round)
		return;
	mark[i] = g->round;
	*--p = i;
	while (p < top) {
		uint32_t op = *p++, next[2];
		unsigned n = 0;

		switch (g->ops[op].kind) {
		case OP_JUMP:
			next[n++] = g->ops[op].to;
			break;
		case OP_SPLIT:
			next[n++] = op + 1;
			next[n++] = g->ops[op].to;
			break;
		case OP_DIRS: /* itself takes nothing: inside it, or behind it */
			next[n++] = op + 1;
			next[n++] = op + 2;
			break;
		case OP_STAR:
		case OP_DEEP:
			next[n++] = op + 1;
			l->at[l->n++] = op;
			break;
		default:
			l->at[l->n++] = op;
			break;
		}
		for (unsigned k = 0; k < n; k++) {
			if (mark[next[k]] == g->round)
				continue;
			mark[next[k]] = g->round;
			*--p = next[k];
		}
	}
}

static bool in_set(const struct glob *g, const struct glob_op *op, uint32_t c)
{
	bool found = false;

	if (c == '/')
		return false;
	for (uint32_t i = op->c; i < op->to && !found; i++) {
		const struct glob_range *r = &g->ranges[i];

		found = c >= r->first && c <= r->last;
		if (!found && g->fold && fold_char(c) == c) {
			/* c is folded: is its other case in there? */
			uint32_t up = fold_char(c - 32) == c ? c - 32 : c - 80;

			found = fold_char(up) == c && up >= r->first && up <= r->last;
		}
	}
	return found != op->negated;
}

/* Where op i leads with c. */
static void step(struct glob *g, uint32_t i, uint32_t c, struct list_of_states *next)
{
	const struct glob_op *op = &g->ops[i];

	switch (op->kind) {
	case OP_CHAR:
		if (op->c == c)
			add_state(g, next, i + 1);
		break;
	case OP_SET:
		if (in_set(g, op, c))
			add_state(g, next, i + 1);
		break;
	case OP_ANY:
		if (c != '/')
			add_state(g, next, i + 1);
		break;
	case OP_STAR:
		if (c != '/')
			add_state(g, next, i);
		break;
	case OP_DEEP:
		add_state(g, next, i);
		break;
	case OP_IN_DIR:
		add_state(g, next, i);
		if (c == '/')
			add_state(g, next, i + 1);
		break;
	default:
		break;
	}
}

static void next_round(struct glob *g)
{
	if (++g->round == 0) {
		memset(g->states + 2 * g->n_ops, 0, g->n_ops * sizeof(*g->states));
		g->round = 1;
	}
}

static void take_one(struct glob *g, struct list_of_states *now, struct list_of_states *next,
		     uint32_t c)
{
	struct list_of_states t = *now;

	next_round(g);
	next->n = 0;
	for (size_t i = 0; i < now->n; i++)
		step(g, now->at[i], g->fold ? fold_char(c) : c, next);
	*now = *next;
	*next = t;
}

/* Follow path (and a slash behind it) from the start; what waits then. */
static struct list_of_states follow(struct glob *g, const char *path, bool slash)
{
	struct list_of_states now = { g->states, 0 }, next = { g->states + g->n_ops, 0 };

	next_round(g);
	add_state(g, &now, 0);
	while (*path && now.n)
		take_one(g, &now, &next, take_char(&path));
	if (slash)
		take_one(g, &now, &next, '/');
	return now;
}

static bool match_literal(const struct glob *g, const char *name)
{
	size_t n = strlen(name);

	if (g->suffix)
		return n >= g->literal_bytes &&
		       !memcmp(name + n - g->literal_bytes, g->literal, g->literal_bytes);
	return n == g->literal_bytes && !memcmp(name, g->literal, n);
}

bool glob_match(struct glob *g, const char *path)
{
	const char *slash = g->base ? strrchr(path, '/') : NULL;
	struct list_of_states end;

	if (slash)
		path = slash + 1;
	if (g->literal)
		return match_literal(g, path);
	end = follow(g, path, false);
	for (size_t i = 0; i < end.n; i++)
		if (g->ops[end.at[i]].kind == OP_MATCH)
			return true;
	return false;
}

bool glob_below(struct glob *g, const char *dir)
{
	struct list_of_states end;

	if (g->base)
		return true;
	end = follow(g, dir, true);
	for (size_t i = 0; i < end.n; i++)
		if (g->ops[end.at[i]].kind != OP_MATCH)
			return true;
	return false;
}
