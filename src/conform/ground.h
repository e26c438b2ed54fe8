/* What the rules stand on: a workspace that many share, and how others are made. */
#ifndef CONFORM_GROUND_H
#define CONFORM_GROUND_H

#include <string.h>

#include "base/auto.h"
#include "conform/conform.h"

#define GROUND_FRESH 16

struct ground {
	struct garret_context *context;
	struct garret_provider *provider;
	struct garret_workspace *shared;
	unsigned abilities;
	bool named; /* every workspace without a ref is the same one */

	struct garret_workspace *fresh[GROUND_FRESH]; /* that this rule made: they go with it */
	unsigned n_fresh;

	char why[600]; /* why a rule failed, or was skipped */
	bool failed, skipped;
};

typedef void rule_fn(struct ground *g);
struct rule {
	const char *name;
	rule_fn *fn;
	unsigned needs; /* enum garret_abilities */
	bool fresh;     /* and workspaces of its own */
};
extern const struct rule run_rules[], file_rules[], life_rules[], more_rules[];

/* Note that the rule failed (the first reason counts); false, to be returned. */
bool ground_fail(struct ground *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ground_skip(struct ground *g, const char *why);

/* Go on only if it holds: for rules, which return nothing. */
#define WANT(g, condition, ...)                                                   \
	do {                                                                      \
		if (!(condition)) {                                               \
			(void)ground_fail((g), "line %d: " #condition, __LINE__); \
			return;                                                   \
		}                                                                 \
	} while (0)
/* rc must be this code (0, or -GARRET_X). */
#define WANT_CODE(g, call, code)                                                                \
	do {                                                                                    \
		struct garret_error e_ = { 0 }, *err = &e_;                                     \
		const int rc_ = (call);                                                         \
		if (rc_ != (code)) {                                                            \
			(void)ground_fail((g), "line %d: %s: %s (%s), not %s", __LINE__, #call, \
					  garret_code_name(-rc_), rc_ < 0 ? e_.msg : "",        \
					  garret_code_name(-(code)));                           \
			return;                                                                 \
		}                                                                               \
	} while (0)
#define WANT_OK(g, call) WANT_CODE(g, call, 0)

/* A directory of the rule's own in the shared workspace: "conform-N". */
const char *ground_dir(struct ground *g);
/* A new workspace; free it with ground_drop(), which destroys its environment. */
struct garret_workspace *ground_fresh(struct ground *g);
void ground_drop(struct ground *g, struct garret_workspace *w);

/* A shell command with a limit of 60 s; *ret is released with garret_result_release(). */
int ground_sh(struct ground *g, struct garret_workspace *w, const char *script,
	      struct garret_result *ret, struct garret_error *err);
/* Its output is exactly that, and it exits with 0. */
bool ground_says(struct ground *g, struct garret_workspace *w, const char *script,
		 const char *text);
/* The number that a command printed first; 0: none. */
static inline int number(const void *text)
{
	return text ? (int)strtol(text, NULL, 10) : 0;
}
/* "dir/name" in a buffer that the next seven calls leave alone. */
const char *in(const char *dir, const char *name);
bool has_bytes(struct ground *g, struct garret_workspace *w, const char *path, const void *data,
	       size_t n);

static inline void result_release_(struct garret_result *r)
{
	garret_result_release(r);
}
#define autoresult __attribute__((cleanup(result_release_))) struct garret_result
static inline void bytes_release_(struct garret_bytes *b)
{
	garret_bytes_release(b);
}
#define autobytes __attribute__((cleanup(bytes_release_))) struct garret_bytes
static inline void list_release_(struct garret_list *l)
{
	garret_list_release(l);
}
#define autolist __attribute__((cleanup(list_release_))) struct garret_list
static inline void entry_release_(struct garret_entry *e)
{
	garret_entry_release(e);
}
#define autoentry __attribute__((cleanup(entry_release_))) struct garret_entry

#endif
