/*
 * The contract, with the public headers and the shared library only: what needs no environment
 * is tried on documents in memory.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "garret/garret.h"
#include "unit/test.h"

struct world {
	struct garret_context *context;
	struct garret_provider *provider;
	struct garret_workspace *w;
};

static struct world world(void)
{
	struct world x = { 0 };

	assert_int_equal(garret_context_new(NULL, &x.context, NULL), 0);
	assert_int_equal(garret_provider_open_settings(x.context, "state", NULL, &x.provider, NULL),
			 0);
	assert_int_equal(garret_provider_attach(x.provider, NULL, &x.w, NULL), 0);
	return x;
}

static void end(struct world *x)
{
	garret_workspace_free(x->w);
	garret_provider_free(x->provider);
	assert_null(garret_context_free(x->context));
}

#define fails(call, want)                                   \
	do {                                                \
		struct garret_error e_ = { 0 }, *err = &e_; \
		assert_int_equal(call, -(want));            \
		assert_int_equal(e_.code, want);            \
		assert_string_not_equal(e_.msg, "");        \
	} while (0)

/* A handle by nothing that is told of an environment attaches to it, and never makes one. */
TEST(a_handle_may_learn_its_ref_before_it_is_used)
{
	struct world x = world();
	struct garret_ref ref, other, got;
	struct garret_workspace *w = NULL;

	assert_int_equal(garret_workspace_ensure(x.w, NULL), 0);
	assert_int_equal(garret_write(x.w, "f", "1", 1, 0, NULL), 0);
	assert_int_equal(garret_workspace_ref(x.w, &ref), 0);
	assert_int_equal(garret_workspace_pin(x.w, &ref, NULL), 0); /* it has it */
	other = ref;
	other.id[0] = ref.id[0] == 'a' ? 'b' : 'a';
	fails(garret_workspace_pin(x.w, &other, err), GARRET_MISUSE);

	assert_int_equal(garret_provider_attach(x.provider, NULL, &w, NULL), 0);
	(void)snprintf(got.provider, sizeof(got.provider), "foreign");
	(void)snprintf(got.id, sizeof(got.id), "x");
	fails(garret_workspace_pin(w, &got, err), GARRET_INVALID);
	assert_int_equal(garret_workspace_ref(w, &got), -GARRET_NOT_FOUND);
	assert_int_equal(garret_workspace_pin(w, &other, NULL), 0);
	assert_int_equal(garret_workspace_ref(w, &got), 0);
	assert_true(garret_ref_equal(&got, &other));
	fails(garret_workspace_ensure(w, err), GARRET_GONE);
	garret_workspace_free(w);

	assert_int_equal(garret_provider_attach(x.provider, NULL, &w, NULL), 0);
	assert_int_equal(garret_workspace_pin(w, &ref, NULL), 0);
	{
		struct garret_bytes b = { 0 };

		assert_int_equal(garret_read(w, "f", &b, NULL), 0);
		assert_int_equal(b.n, 1);
		garret_bytes_release(&b);
	}
	garret_workspace_free(w);
	end(&x);
}

/* ---- options ---- */

TEST(each_bad_option_is_named)
{
	static const char *const bad[][3] = {
		{ "native", "mem_limit", "0" },
		{ "native", "mem_limit", "many" },
		{ "native", "cpus", "-1" },
		{ "native", "cpus", "nan" },
		{ "native", "network_mode", "bridge2" },
		{ "native", "network_mode", "none host" },
		{ "native", "env", "NOVALUE" },
		{ "native", "env", "=x" },
		{ "native", "volumes", "relative:/x" },
		{ "native", "volumes", "/x" },
		{ "native", "volumes", "/x:/y:rx" },
		{ "native", "work_dir", "relative" },
		{ "native", "name", "a/b" },
		{ "native", "name", "" },
		{ "native", "pids_limit", "0" },
		{ "state", "file", "relative" },
		{ "state", "max_bytes", "-5" },
	};
	struct garret_options *o = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct garret_error err = { 0 };

		assert_int_equal(garret_options_new(bad[i][0], &o, &err), 0);
		assert_int_equal(garret_options_set(o, bad[i][1], bad[i][2], &err),
				 -GARRET_INVALID);
		assert_non_null(strstr(err.msg, bad[i][1]));
		garret_options_free(o);
	}
	fails(garret_options_new("nowhere", &o, err), GARRET_INVALID);
	assert_int_equal(garret_options_new("state", &o, NULL), 0);
	fails(garret_options_set(o, "mem_limit", "1g", err), GARRET_INVALID);
	fails(garret_options_set(o, "file", NULL, err), GARRET_TYPE);
	garret_options_free(o);
}

TEST(no_value_is_in_an_error)
{
	static const char *const secrets[][2] = { { "env", "s3cr3t-marker" },
						  { "mem_limit", "s3cr3t-marker" },
						  { "volumes", "s3cr3t-marker" },
						  { "state_dir", "s3cr3t-marker" },
						  { "network_mode", "s3cr3t-marker" } };
	struct garret_options *o = NULL;

	assert_int_equal(garret_options_new("native", &o, NULL), 0);
	for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
		struct garret_error err = { 0 };

		assert_int_equal(garret_options_set(o, secrets[i][0], secrets[i][1], &err),
				 -GARRET_INVALID);
		assert_null(strstr(err.msg, "s3cr3t"));
	}
	garret_options_free(o);
}

TEST(structs_have_sizes)
{
	struct garret_context_options co = { .size = 0 };
	struct garret_context *c = NULL;
	struct {
		struct garret_context_options known;
		int unknown;
	} newer = { .known.size = sizeof(newer) };

	fails(garret_context_new(&co, &c, err), GARRET_MISUSE);
	co.size = sizeof(co) - 4;
	fails(garret_context_new(&co, &c, err), GARRET_MISUSE);
	assert_int_equal(garret_context_new(&newer.known, &c, NULL), 0);
	garret_context_free(c);
	newer.unknown = 1; /* asked for something that this library doesn't know */
	fails(garret_context_new(&newer.known, &c, err), GARRET_UNSUPPORTED);
}

/* ---- refs ---- */

TEST(refs_are_plain_data)
{
	struct garret_ref a, b;
	char text[GARRET_ID_MAX + 1];

	assert_int_equal(garret_ref_make(&a, "state", "x", NULL), 0);
	b = a;
	assert_true(garret_ref_equal(&a, &b));
	b.id[0] = 'y';
	assert_false(garret_ref_equal(&a, &b));
	memset(text, 'x', sizeof(text));
	text[GARRET_ID_MAX] = '\0';
	fails(garret_ref_make(&a, "state", text, err), GARRET_INVALID);
	fails(garret_ref_make(&a, "state", "", err), GARRET_INVALID);
	fails(garret_ref_make(&a, "", "x", err), GARRET_INVALID);
	fails(garret_ref_make(&a, "state", "a\tb", err), GARRET_INVALID);
}

/* ---- choosing: each rule ---- */

struct custom {
	struct garret_workspace *answer;
	unsigned asked;
};

static int get(void *data, const struct garret_ref *ref, struct garret_workspace **ret,
	       struct garret_error *err)
{
	struct custom *c = data;

	(void)ref;
	(void)err;
	c->asked++;
	*ret = c->answer ? garret_workspace_dup(c->answer) : NULL;
	return 0;
}

static struct garret_provider *custom(struct garret_context *c, struct custom *data,
				      const char *name)
{
	const struct garret_custom own = {
		.size = sizeof(own), .name = name, .data = data, .get = get
	};
	struct garret_provider *p = NULL;

	assert_int_equal(garret_provider_custom(c, &own, &p, NULL), 0);
	return p;
}

static bool chosen(struct garret_context *c, const struct garret_choice *choice,
		   const struct garret_workspace *want)
{
	struct garret_workspace *w = NULL;
	bool same;

	assert_int_equal(garret_choose(c, choice, &w, NULL), 0);
	same = garret_workspace_same(w, want);
	garret_workspace_free(w);
	return same;
}

TEST(override_beats_workspace_beats_history)
{
	struct world x = world(), y = { 0 };
	struct garret_workspace *other = NULL;
	struct garret_ref history;
	struct garret_choice c = { .size = sizeof(c) };

	(void)y;
	assert_int_equal(garret_provider_attach(x.provider, NULL, &other, NULL), 0);
	assert_int_equal(
		garret_ref_make(&history, "state", "0123456789abcdef0123456789abcdef", NULL), 0);
	c.history = &history;
	c.workspace = x.w;
	c.providers = &x.provider;
	c.n_providers = 1;
	assert_true(chosen(x.context, &c, x.w));
	c.override = other;
	assert_true(chosen(x.context, &c, other));
	garret_workspace_free(other);
	end(&x);
}

TEST(a_ref_is_continued_and_history_too)
{
	struct world x = world();
	struct garret_ref ref, got;
	struct garret_choice c = { .size = sizeof(c), .providers = &x.provider, .n_providers = 1 };
	struct garret_workspace *w = NULL;

	assert_int_equal(garret_workspace_ensure(x.w, NULL), 0);
	assert_int_equal(garret_workspace_ref(x.w, &ref), 0);
	c.ref = &ref;
	assert_true(chosen(x.context, &c, x.w));
	c.ref = NULL;
	c.history = &ref;
	assert_true(chosen(x.context, &c, x.w));
	/* fresh: the history is not offered */
	c.fresh = true;
	assert_int_equal(garret_choose(x.context, &c, &w, NULL), 0);
	assert_false(garret_workspace_same(w, x.w));
	assert_int_equal(garret_workspace_ref(w, &got), -GARRET_NOT_FOUND);
	garret_workspace_free(w);
	end(&x);
}

TEST(providers_in_order_the_first_answer_wins)
{
	struct world x = world();
	struct custom none = { 0 }, first = { .answer = x.w }, second = { .answer = x.w };
	struct garret_provider *list[3] = { custom(x.context, &none, "a"),
					    custom(x.context, &first, "b"),
					    custom(x.context, &second, "c") };
	const struct garret_choice c = { .size = sizeof(c), .providers = list, .n_providers = 3 };

	assert_true(chosen(x.context, &c, x.w));
	assert_int_equal(none.asked, 1);
	assert_int_equal(first.asked, 1);
	assert_int_equal(second.asked, 0);
	for (int i = 0; i < 3; i++)
		garret_provider_free(list[i]);
	end(&x);
}

TEST(what_choosing_refuses)
{
	struct world x = world();
	struct custom wrong = { .answer = x.w };
	struct garret_provider *p = custom(x.context, &wrong, "wrong");
	struct garret_workspace *w = NULL;
	struct garret_ref ref;
	struct garret_choice c = { .size = sizeof(c) };

	assert_int_equal(garret_workspace_ensure(x.w, NULL), 0);
	assert_int_equal(garret_ref_make(&ref, "elsewhere", "id", NULL), 0);
	c.ref = &ref; /* no provider at all */
	fails(garret_choose(x.context, &c, &w, err), GARRET_MISUSE);
	c.providers = &x.provider; /* one that doesn't know it */
	c.n_providers = 1;
	fails(garret_choose(x.context, &c, &w, err), GARRET_MISUSE);
	c.providers = &p; /* one that answers with another */
	fails(garret_choose(x.context, &c, &w, err), GARRET_MISUSE);
	c.ref = NULL;
	c.fresh = true; /* a new one that nobody makes */
	wrong.answer = NULL;
	fails(garret_choose(x.context, &c, &w, err), GARRET_MISUSE);
	c.ref = &ref; /* two of the three */
	fails(garret_choose(x.context, &c, &w, err), GARRET_TYPE);
	c.ref = NULL;
	c.fresh = false;
	c.history = &ref; /* of a history: MISUSE with providers */
	fails(garret_choose(x.context, &c, &w, err), GARRET_MISUSE);
	c.n_providers = 0; /* and ignored without */
	assert_int_equal(garret_choose(x.context, &c, &w, NULL), 0);
	assert_true(garret_workspace_is_none(w));
	garret_workspace_free(w);
	garret_provider_free(p);
	end(&x);
}

TEST(no_workspace_is_passed_over)
{
	struct world x = world();
	struct garret_workspace *none = NULL, *gone = NULL, *w = NULL;
	struct garret_choice c = { .size = sizeof(c), .providers = &x.provider, .n_providers = 1 };
	struct garret_bytes b;
	struct garret_ref ref;

	assert_int_equal(garret_no_workspace(x.context, &none, NULL), 0);
	assert_int_equal(garret_unavailable(x.context, "it is closed", &gone, NULL), 0);
	c.workspace = none;
	assert_int_equal(garret_choose(x.context, &c, &w, NULL), 0);
	assert_true(garret_workspace_attached(w));
	garret_workspace_free(w);
	c.workspace = gone; /* the caller's own choice */
	assert_true(chosen(x.context, &c, gone));
	fails(garret_read(gone, "x", &b, err), GARRET_GONE);
	assert_int_equal(garret_workspace_ref(gone, &ref), -GARRET_NOT_FOUND);
	garret_workspace_free(none);
	garret_workspace_free(gone);
	end(&x);
}

/* ---- wrappers: every operation ---- */

static int do_operation(struct garret_workspace *w, enum garret_operation op)
{
	const struct garret_run_options run = { .size = sizeof(run), .shell = "true" };
	struct garret_result result;
	struct garret_entry e;
	struct garret_list l;
	struct garret_matches m;
	struct garret_bytes b;
	struct garret_reader *reader;
	struct garret_writer *writer;
	uint8_t digest[32];
	char *text;
	bool there;
	int rc;

	switch (op) {
	case GARRET_OP_WORKING_DIR:
		rc = garret_working_dir(w, &text, NULL);
		free(text);
		return rc;
	case GARRET_OP_REALPATH:
		rc = garret_realpath(w, "file", &text, NULL);
		free(text);
		return rc;
	case GARRET_OP_STAT:
		rc = garret_stat(w, "file", &e, NULL);
		garret_entry_release(&e);
		return rc;
	case GARRET_OP_EXISTS:
		return garret_exists(w, "file", &there, NULL);
	case GARRET_OP_LIST:
		rc = garret_list_dir(w, ".", &l, NULL);
		garret_list_release(&l);
		return rc;
	case GARRET_OP_WALK:
		rc = garret_walk(w, ".", 0, 0, &l, NULL);
		garret_list_release(&l);
		return rc;
	case GARRET_OP_GLOB:
		rc = garret_glob(w, ".", "*", 0, 0, &l, NULL);
		garret_list_release(&l);
		return rc;
	case GARRET_OP_GREP:
		rc = garret_grep(w, ".", "x", NULL, 0, 0, &m, NULL);
		garret_matches_release(&m);
		return rc;
	case GARRET_OP_READ:
		rc = garret_read(w, "file", &b, NULL);
		garret_bytes_release(&b);
		return rc;
	case GARRET_OP_ARCHIVE:
		rc = garret_archive_open(w, ".", &reader, NULL);
		garret_reader_close(reader);
		return rc;
	case GARRET_OP_DIGEST:
		return garret_sha256(w, "file", digest, NULL);
	case GARRET_OP_WRITE:
		return garret_write(w, "file", "x", 1, 0, NULL);
	case GARRET_OP_APPEND:
		return garret_append(w, "file", "x", 1, 0, NULL);
	case GARRET_OP_MAKE_DIR:
		return garret_make_dir(w, "dir", NULL);
	case GARRET_OP_REMOVE:
		return garret_remove(w, "dir", NULL);
	case GARRET_OP_RENAME:
		return garret_rename(w, "file", "file", NULL);
	case GARRET_OP_COPY:
		return garret_copy(w, "file", "copy", NULL);
	case GARRET_OP_CHMOD:
		return garret_chmod(w, "file", 0600, NULL);
	case GARRET_OP_EDIT:
		return garret_edit(w, "file", "x", "x", true, NULL, NULL);
	case GARRET_OP_UNPACK:
		rc = garret_unpack_open(w, "dir", &writer, NULL);
		if (rc == 0)
			rc = garret_writer_commit(writer, NULL);
		return rc;
	case GARRET_OP_RUN:
		rc = garret_run(w, &run, &result, NULL);
		garret_result_release(&result);
		return rc;
	default:
		fail_msg("no test for operation %s", garret_operation_name(op));
		return 0;
	}
}

struct seen {
	unsigned of[GARRET_OPERATIONS];
	int code[GARRET_OPERATIONS];
};

static void on_record(void *data, const struct garret_record *r)
{
	struct seen *s = data;

	assert_int_equal(r->size, sizeof(*r));
	s->of[r->operation]++;
	s->code[r->operation] = r->code;
}

TEST(every_operation_is_recorded_once)
{
	struct world x = world();
	struct garret_workspace *w = NULL;
	struct seen s = { 0 };

	assert_int_equal(garret_wrap_recording(x.w, on_record, &s, &w, NULL), 0);
	(void)do_operation(x.w, GARRET_OP_WRITE);
	for (int op = 0; op < GARRET_OPERATIONS; op++) {
		int rc = do_operation(w, op);

		assert_int_equal(s.of[op], 1);
		assert_int_equal(s.code[op], -rc);
	}
	garret_workspace_free(w);
	end(&x);
}

TEST(every_change_is_refused_read_only)
{
	struct world x = world();
	struct garret_workspace *w = NULL, *both = NULL;
	struct seen s = { 0 };

	(void)do_operation(x.w, GARRET_OP_WRITE);
	assert_int_equal(garret_wrap_read_only(x.w, &w, NULL), 0);
	assert_int_equal(garret_wrap_recording(w, on_record, &s, &both, NULL), 0);
	for (int op = 0; op < GARRET_OPERATIONS; op++) {
		int rc = do_operation(both, op);

		if (garret_operation_changes(op))
			assert_int_equal(rc, -GARRET_READ_ONLY);
		else
			assert_int_not_equal(rc, -GARRET_READ_ONLY);
		/* The recorder outside sees the refusal, with its class. */
		assert_int_equal(s.of[op], 1);
		assert_int_equal(s.code[op], -rc);
	}
	garret_workspace_free(both);
	garret_workspace_free(w);
	/* One inside sees nothing of what was refused outside. */
	memset(&s, 0, sizeof(s));
	assert_int_equal(garret_wrap_recording(x.w, on_record, &s, &w, NULL), 0);
	assert_int_equal(garret_wrap_read_only(w, &both, NULL), 0);
	(void)do_operation(both, GARRET_OP_WRITE);
	assert_int_equal(s.of[GARRET_OP_WRITE], 0);
	(void)do_operation(both, GARRET_OP_READ);
	assert_int_equal(s.of[GARRET_OP_READ], 1);
	garret_workspace_free(both);
	garret_workspace_free(w);
	end(&x);
}

struct guard {
	unsigned asked;
	int answer;
};

static int on_guard(void *data, enum garret_operation op, const char *path,
		    struct garret_error *err)
{
	struct guard *g = data;

	g->asked |= 1u << op;
	assert_int_equal(path == NULL, op == GARRET_OP_RUN || op == GARRET_OP_WORKING_DIR);
	if (g->answer < 0 && err)
		*err = (struct garret_error){ .code = (enum garret_code) - g->answer };
	return g->answer;
}

TEST(every_operation_is_guarded)
{
	struct world x = world();
	struct garret_workspace *w = NULL;
	struct guard g = { .answer = -GARRET_GONE };

	assert_int_equal(garret_wrap_guarded(x.w, NULL, NULL, &w, NULL), -GARRET_TYPE);
	assert_int_equal(garret_wrap_guarded(x.w, on_guard, &g, &w, NULL), 0);
	for (int op = 0; op < GARRET_OPERATIONS; op++)
		assert_int_equal(do_operation(w, op), -GARRET_GONE);
	assert_int_equal(g.asked, (1u << GARRET_OPERATIONS) - 1);
	g.answer = 0;
	(void)do_operation(x.w, GARRET_OP_WRITE);
	assert_int_equal(do_operation(w, GARRET_OP_READ), 0);
	garret_workspace_free(w);
	end(&x);
}

static void on_search(void *data, const struct garret_record *r)
{
	*(struct garret_record *)data = *r;
}

TEST(a_search_is_recorded_with_its_pattern)
{
	struct world x = world();
	struct garret_workspace *w = NULL;
	struct garret_record r;
	struct garret_list list;
	struct garret_matches matches;

	assert_int_equal(garret_write_text(x.w, "a/b.txt", "one\ntwo\none\n", 0, NULL), 0);
	assert_int_equal(garret_wrap_recording(x.w, on_search, &r, &w, NULL), 0);
	assert_int_equal(garret_glob(w, "/", "**/*.txt", GARRET_SEARCH_HIDDEN, 0, &list, NULL), 0);
	assert_string_equal(r.pattern, "**/*.txt");
	assert_null(r.include);
	assert_int_equal(r.flags, GARRET_SEARCH_HIDDEN);
	assert_int_equal(r.results, 1);
	garret_list_release(&list);
	assert_int_equal(garret_grep(w, "/", "one", "*.txt", 0, 0, &matches, NULL), 0);
	assert_string_equal(r.pattern, "one");
	assert_string_equal(r.include, "*.txt");
	assert_int_equal(r.results, 2);
	garret_matches_release(&matches);
	assert_int_equal(garret_list_dir(w, "/", &list, NULL), 0);
	assert_null(r.pattern);
	assert_int_equal(r.results, 1);
	garret_list_release(&list);
	garret_workspace_free(w);
	end(&x);
}

TEST(every_operation_of_what_is_unavailable_is_gone)
{
	struct world x = world();
	struct garret_workspace *w = NULL;

	assert_int_equal(garret_unavailable(x.context, "closed", &w, NULL), 0);
	for (int op = 0; op < GARRET_OPERATIONS; op++)
		assert_int_equal(do_operation(w, op), -GARRET_GONE);
	garret_workspace_free(w);
	end(&x);
}

TEST(authority)
{
	struct world x = world();
	const struct garret_authority_rule rules[] = { { "docs", GARRET_AUTHORITY_USER },
						       { "docs/trusted",
							 GARRET_AUTHORITY_OPERATOR },
						       { "Secret", GARRET_AUTHORITY_NONE } };
	const struct garret_authority_rule home = { "~/x", GARRET_AUTHORITY_NONE };
	struct garret_workspace *w = NULL, *lower = NULL;
	enum garret_authority level;
	static const struct {
		const char *path;
		enum garret_authority level;
	} cases[] = { { "anything", GARRET_AUTHORITY_OPERATOR },
		      { "docs/a", GARRET_AUTHORITY_USER },
		      { "docs/trusted/a", GARRET_AUTHORITY_OPERATOR },
		      { "docsx", GARRET_AUTHORITY_OPERATOR },
		      { "secret", GARRET_AUTHORITY_NONE }, /* the case can only lower it */
		      { "DOCS/a", GARRET_AUTHORITY_USER } };

	assert_int_equal(garret_authority_of(x.w, "/anywhere", &level, NULL), 0);
	assert_int_equal(level, GARRET_AUTHORITY_OPERATOR);
	fails(garret_wrap_authority(x.w, GARRET_AUTHORITY_USER, &home, 1, &w, err), GARRET_MISUSE);
	assert_int_equal(garret_wrap_authority(x.w, GARRET_AUTHORITY_OPERATOR, rules, 3, &w, NULL),
			 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(garret_authority_of(w, cases[i].path, &level, NULL), 0);
		assert_int_equal(level, cases[i].level);
	}
	assert_int_equal(garret_wrap_authority(w, GARRET_AUTHORITY_USER, NULL, 0, &lower, NULL), 0);
	assert_int_equal(garret_authority_of(lower, "anything", &level, NULL), 0);
	assert_int_equal(level, GARRET_AUTHORITY_USER);
	assert_int_equal(garret_workspace_authority(lower), GARRET_AUTHORITY_USER);
	garret_workspace_free(lower);
	garret_workspace_free(w);
	end(&x);
}

TEST(the_policy_is_the_same_text_for_the_same_rules)
{
	struct world x = world();
	const struct garret_authority_rule a[] = { { "a", GARRET_AUTHORITY_NONE },
						   { "b", GARRET_AUTHORITY_USER } };
	const struct garret_authority_rule b[] = { a[1], a[0] };
	struct garret_workspace *one = NULL, *two = NULL;
	char *p, *q;

	assert_int_equal(garret_wrap_authority(x.w, GARRET_AUTHORITY_USER, a, 2, &one, NULL), 0);
	assert_int_equal(garret_wrap_authority(x.w, GARRET_AUTHORITY_USER, b, 2, &two, NULL), 0);
	p = garret_workspace_policy(one);
	q = garret_workspace_policy(two);
	assert_string_equal(p, q);
	free(p);
	free(q);
	p = garret_workspace_policy(x.w);
	assert_string_equal(p, "{\"read_only\":false,\"confined\":false,\"authority\":[]}");
	free(p);
	garret_workspace_free(one);
	garret_workspace_free(two);
	end(&x);
}

/* ---- paths ---- */

TEST(resolving_is_text)
{
	static const char *const cases[][3] = {
		{ "a/b", "/base", "/base/a/b" },  { "../x", "/base/d", "/base/x" },
		{ "/a//b/./c/..", "/q", "/a/b" }, { "../../..", "/a", "/" },
		{ "", "/a/b", "/a/b" },           { ".", "/", "/" },
	};
	struct world x = world();
	char *text = NULL;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(garret_resolve(x.w, cases[i][0], cases[i][1], &text, NULL), 0);
		assert_string_equal(text, cases[i][2]);
		free(text);
	}
	fails(garret_resolve(x.w, "a", "relative", &text, err), GARRET_INVALID);
	end(&x);
}

/* ---- giving up, threads, fork ---- */

static struct garret_cancel *to_cancel;

static void on_alarm(int signo)
{
	(void)signo;
	garret_cancel(to_cancel);
}

TEST(a_signal_handler_may_cancel)
{
	struct world x = world();
	struct garret_bytes b;

	assert_int_equal(garret_cancel_new(x.context, &to_cancel, NULL), 0);
	garret_workspace_set_cancel(x.w, to_cancel);
	(void)signal(SIGALRM, on_alarm);
	(void)raise(SIGALRM);
	fails(garret_read(x.w, "x", &b, err), GARRET_CANCELLED);
	garret_cancel_reset(to_cancel);
	fails(garret_read(x.w, "x", &b, err), GARRET_NOT_FOUND);
	garret_workspace_set_cancel(x.w, NULL);
	garret_cancel_free(to_cancel);
	end(&x);
}

static void *write_many(void *arg)
{
	struct garret_workspace *w = arg;

	for (int i = 0; i < 300; i++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "t%lx/%d", (unsigned long)pthread_self(), i);
		if (garret_write(w, path, path, strlen(path), 0, NULL) < 0)
			return (void *)1;
	}
	return NULL;
}

TEST(threads_share_a_context)
{
	struct world x = world();
	pthread_t t[8];
	struct garret_list l;

	for (int i = 0; i < 8; i++)
		assert_int_equal(pthread_create(&t[i], NULL, write_many, x.w), 0);
	for (int i = 0; i < 8; i++) {
		void *bad;

		assert_int_equal(pthread_join(t[i], &bad), 0);
		assert_null(bad);
	}
	assert_int_equal(garret_walk(x.w, "/", 0, 0, &l, NULL), 0);
	assert_int_equal(l.n, 8 * 300 + 8);
	garret_list_release(&l);
	end(&x);
}

TEST(a_child_makes_contexts_of_its_own)
{
	struct world x = world();
	struct garret_cancel *cancel = NULL;
	struct pollfd loop = { .events = POLLIN };
	struct garret_bytes b;
	int status;
	pid_t pid;

	assert_int_equal(garret_write(x.w, "file", "parent", 6, 0, NULL), 0);
	pid = fork();
	if (pid == 0) {
		struct world own;

		if (garret_read(x.w, "file", &b, NULL) != -GARRET_MISUSE)
			_exit(1);
		garret_workspace_free(x.w);
		garret_provider_free(x.provider);
		if (garret_context_free(x.context))
			_exit(2);
		own = world();
		_exit(garret_write(own.w, "file", "child", 5, 0, NULL) == 0 ? 0 : 3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(garret_read(x.w, "file", &b, NULL), 0);
	assert_string_equal((char *)b.data, "parent");
	garret_bytes_release(&b);
	/* What wakes us is still watched. */
	assert_int_equal(garret_cancel_new(x.context, &cancel, NULL), 0);
	garret_cancel(cancel);
	loop.fd = garret_context_fd(x.context);
	assert_int_equal(poll(&loop, 1, 2000), 1);
	garret_cancel_free(cancel);
	end(&x);
}

TEST(a_context_in_use_is_not_freed)
{
	struct world x = world();

	assert_ptr_equal(garret_context_free(x.context), x.context);
	end(&x);
}

/* ---- a store of the caller's ---- */

struct store {
	char *text;
	size_t n;
	uint64_t version;
	unsigned loads, saves;
	char *steal; /* what somebody else writes before the next save */
	bool away;
	bool told;                    /* its version can be asked for */
	struct garret_cancel *cancel; /* given by the next load */
};

static int store_load(void *data, const char *id, char **ret, size_t *ret_n, uint64_t *ret_version)
{
	struct store *s = data;

	(void)id;
	s->loads++;
	if (s->cancel)
		garret_cancel(s->cancel);
	if (s->away)
		return -GARRET_UNAVAILABLE;
	if (!s->text)
		return -GARRET_NOT_FOUND;
	*ret = malloc(s->n + 1);
	memcpy(*ret, s->text, s->n + 1);
	*ret_n = s->n;
	*ret_version = s->version;
	return 0;
}

static int store_save(void *data, const char *id, const char *text, size_t n, uint64_t version,
		      uint64_t *ret_version)
{
	struct store *s = data;

	(void)id;
	if (s->away)
		return -GARRET_UNAVAILABLE;
	if (s->steal) {
		free(s->text);
		s->text = s->steal;
		s->n = strlen(s->steal);
		s->version++;
		s->steal = NULL;
	}
	if (version != s->version)
		return -GARRET_CHANGED;
	free(s->text);
	s->text = malloc(n + 1);
	memcpy(s->text, text, n);
	s->text[n] = '\0';
	s->n = n;
	s->saves++;
	*ret_version = ++s->version;
	return 0;
}

static int store_remove(void *data, const char *id)
{
	struct store *s = data;

	(void)id;
	free(s->text);
	s->text = NULL;
	s->version = 0;
	return 0;
}

static int store_version(void *data, const char *id, uint64_t *ret)
{
	struct store *s = data;

	(void)id;
	*ret = s->version;
	return s->text ? 0 : -GARRET_NOT_FOUND;
}

static struct world stored(struct store *s)
{
	const struct garret_store own = { .size = sizeof(own),
					  .data = s,
					  .load = store_load,
					  .save = store_save,
					  .remove = store_remove,
					  .version = s->told ? store_version : NULL };
	struct garret_options *o = NULL;
	struct world x = { 0 };

	assert_int_equal(garret_context_new(NULL, &x.context, NULL), 0);
	assert_int_equal(garret_options_new("state", &o, NULL), 0);
	assert_int_equal(garret_options_set_store(o, &own, NULL), 0);
	assert_int_equal(garret_provider_open(x.context, o, &x.provider, NULL), 0);
	garret_options_free(o);
	assert_int_equal(garret_provider_attach(x.provider, NULL, &x.w, NULL), 0);
	return x;
}

#define ENTRY(path, text)                                                                        \
	"\"" path "\":{\"content\":[\"" text "\"],\"created_at\":\"2026-01-01T00:00:00+00:00\"," \
	"\"modified_at\":\"2026-01-01T00:00:00+00:00\"}"

TEST(two_writers_of_a_document_lose_nothing)
{
	struct store s = { 0 };
	struct world x = stored(&s);
	struct garret_bytes b;

	assert_int_equal(garret_write(x.w, "mine", "1", 1, 0, NULL), 0);
	/* Another file changed meanwhile: both stay. */
	s.steal = strdup("{\"files\":{" ENTRY("/theirs", "2") "},\"directories\":[]}");
	assert_int_equal(garret_write(x.w, "new", "3", 1, 0, NULL), 0);
	assert_int_equal(garret_read(x.w, "theirs", &b, NULL), 0);
	assert_string_equal((char *)b.data, "2");
	garret_bytes_release(&b);
	assert_non_null(strstr(s.text, "/theirs"));
	assert_non_null(strstr(s.text, "/new"));
	/* The same file: the caller is told, theirs stays. */
	s.steal = strdup("{\"files\":{" ENTRY("/new", "other") "},\"directories\":[]}");
	fails(garret_write(x.w, "new", "4", 1, 0, err), GARRET_CHANGED);
	assert_int_equal(garret_read(x.w, "new", &b, NULL), 0);
	assert_string_equal((char *)b.data, "other");
	garret_bytes_release(&b);
	assert_int_equal(garret_write(x.w, "new", "5", 1, 0, NULL), 0);
	end(&x);
	free(s.text);
}

TEST(a_store_that_tells_its_version_is_read_again_when_it_changed)
{
	struct store s = { .told = true };
	struct world x = stored(&s);
	struct garret_bytes b;

	assert_int_equal(garret_write(x.w, "mine", "1", 1, 0, NULL), 0);
	free(s.text);
	s.text = strdup("{\"files\":{" ENTRY("/theirs", "2") "},\"directories\":[]}");
	s.n = strlen(s.text);
	s.version++;
	s.loads = 0;
	assert_int_equal(garret_read(x.w, "theirs", &b, NULL), 0);
	garret_bytes_release(&b);
	assert_int_equal(s.loads, 1);
	fails(garret_read(x.w, "mine", &b, err), GARRET_NOT_FOUND);
	assert_int_equal(s.loads, 1);
	(void)store_remove(&s, "");
	fails(garret_read(x.w, "theirs", &b, err), GARRET_GONE);
	end(&x);
}

TEST(what_was_not_saved_is_nowhere)
{
	struct store s = { 0 };
	struct world x = stored(&s);
	struct garret_bytes b;

	assert_int_equal(garret_write(x.w, "f", "old", 3, 0, NULL), 0);
	s.away = true;
	fails(garret_write(x.w, "f", "new", 3, 0, err), GARRET_UNAVAILABLE);
	fails(garret_read(x.w, "f", &b, err), GARRET_UNAVAILABLE);
	s.away = false;
	assert_int_equal(garret_read(x.w, "f", &b, NULL), 0);
	assert_string_equal((char *)b.data, "old");
	garret_bytes_release(&b);
	assert_int_equal(garret_write(x.w, "other", "1", 1, 0, NULL), 0);
	assert_null(strstr(s.text, "new"));
	end(&x);
	free(s.text);
}

TEST(what_was_given_up_while_it_opened_ends)
{
	/* Its opening ends while another workspace is used, or when the context is freed. */
	for (int used = 0; used < 2; used++) {
		struct store s = { 0 };
		struct world x = stored(&s);
		struct garret_provider *p = NULL;
		struct garret_workspace *w = NULL;

		assert_int_equal(garret_cancel_new(x.context, &s.cancel, NULL), 0);
		garret_workspace_set_cancel(x.w, s.cancel);
		fails(garret_workspace_ensure(x.w, err), GARRET_CANCELLED);
		x.w = garret_workspace_free(x.w);
		x.provider = garret_provider_free(x.provider);
		alarm(20);
		if (used) {
			assert_int_equal(
				garret_provider_open_settings(x.context, "state", NULL, &p, NULL),
				0);
			assert_int_equal(garret_provider_attach(p, NULL, &w, NULL), 0);
			assert_int_equal(garret_write(w, "f", "1", 1, 0, NULL), 0);
			garret_workspace_free(w);
			garret_provider_free(p);
		}
		garret_cancel_free(s.cancel);
		assert_null(garret_context_free(x.context));
		alarm(0);
		free(s.text);
	}
}

TEST(a_store_is_asked_when_something_is_done)
{
	struct store s = { 0 };
	struct world x = stored(&s);
	const struct garret_run_options bad = { .size = sizeof(bad) };
	struct garret_result r;
	struct garret_bytes b;
	char *text = NULL;

	fails(garret_run(x.w, &bad, &r, err), GARRET_TYPE);
	garret_result_release(&r);
	fails(garret_write(x.w, NULL, "x", 1, 0, err), GARRET_TYPE);
	fails(garret_write(x.w, "f", "x", 1, 99, err), GARRET_INVALID);
	assert_int_equal(garret_resolve(x.w, "/x", NULL, &text, NULL), 0);
	free(text);
	assert_int_equal(s.loads + s.saves, 0);
	fails(garret_read(x.w, "f", &b, err), GARRET_NOT_FOUND);
	assert_true(s.loads > 0);
	end(&x);
	free(s.text);
}

TEST(a_damaged_document_is_said)
{
	static const char *const bad[] = { "",
					   "[]",
					   "{\"files\":[]}",
					   "{\"files\":{\"/a\":3}}",
					   "{\"files\":{\"/a\":{\"content\":3}}}",
					   "{\"files\":{" ENTRY("/a", "x") "," ENTRY("/a/b",
										     "x") "}}",
					   "{\"files\":{},\"directories\":[3]}",
					   "{\"files\":{" ENTRY("/a\\u0000b", "x") "}}" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct store s = { .text = strdup(bad[i]), .n = strlen(bad[i]), .version = 1 };
		struct world x = stored(&s);
		struct garret_bytes b;
		struct garret_error err = { 0 };

		assert_true(garret_read(x.w, "a", &b, &err) < 0);
		assert_true(err.code == GARRET_INVALID || err.code == GARRET_NOT_DIRECTORY);
		assert_int_equal(s.saves, 0);
		end(&x);
		free(s.text);
	}
}

TEST(no_content_of_a_damaged_document_is_in_an_error)
{
	static const char text[] = "{\"files\":{\"/a\":{\"content\":[\"x\" s3cr3t-marker";
	struct store s = { .text = strdup(text), .n = strlen(text), .version = 1 };
	struct world x = stored(&s);
	struct garret_error err = { 0 };
	struct garret_bytes b;

	assert_int_equal(garret_read(x.w, "a", &b, &err), -GARRET_INVALID);
	assert_null(strstr(err.msg, "s3cr3t"));
	assert_non_null(strstr(err.msg, "line 1, column"));
	end(&x);
	free(s.text);
}

TEST(damaged_base64_is_never_empty_content)
{
	static const char text[] =
		"{\"files\":{\"/a\":{\"content\":[\"!!!\"],\"created_at\":\"\",\"modified_at\":\"\","
		"\"encoding\":\"base64\"}," ENTRY("/b", "fine") "},\"directories\":[]}";
	struct store s = { .text = strdup(text), .n = strlen(text), .version = 1 };
	struct world x = stored(&s);
	struct garret_bytes b;

	fails(garret_read(x.w, "/a", &b, err), GARRET_INVALID);
	assert_int_equal(garret_write(x.w, "/c", "1", 1, 0, NULL), 0);
	assert_non_null(strstr(s.text, "\"!!!\"")); /* kept as it was */
	assert_int_equal(garret_write(x.w, "/a", "new", 3, 0, NULL), 0);
	assert_int_equal(garret_read(x.w, "/a", &b, NULL), 0);
	garret_bytes_release(&b);
	end(&x);
	free(s.text);
}

TEST(a_thousand_failures_leave_nothing)
{
	const int before = fd_count();

	for (int i = 0; i < 1000; i++) {
		struct garret_context *c = NULL;
		struct garret_provider *p = NULL;
		struct garret_workspace *w = NULL;
		struct garret_ref ref;
		struct garret_bytes b;
		const char *const settings[] = { "state_dir=/proc/nothing", NULL };

		assert_int_equal(garret_context_new(NULL, &c, NULL), 0);
		assert_int_equal(garret_provider_open_settings(c, i % 2 ? "native" : "state",
							       i % 2 ? settings : NULL, &p, NULL),
				 0);
		assert_int_equal(garret_ref_make(&ref, i % 2 ? "native" : "state", "gone", NULL),
				 0);
		assert_int_equal(garret_provider_attach(p, i % 3 ? &ref : NULL, &w, NULL), 0);
		assert_true(garret_read(w, "x", &b, NULL) < 0);
		garret_workspace_free(w);
		garret_provider_free(p);
		assert_null(garret_context_free(c));
	}
	assert_int_equal(fd_count(), before);
}

TEST_MAIN
