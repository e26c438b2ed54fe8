/* Operations as plain data: JSON in, JSON out. */
#include "garret/replay.h"

#include <jansson.h>
#include <nettle/base64.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "lib/options.h"
#include "net/json.h"

static void json_drop(json_t **v)
{
	json_decref(*v);
}
#define autojson __attribute__((cleanup(json_drop))) json_t

static void put_base64(struct strbuf *out, const void *data, size_t n)
{
	char *text = xmalloc(BASE64_ENCODE_RAW_LENGTH(n) + 1);

	base64_encode_raw(text, n, data);
	json_put_string_n(out, text, BASE64_ENCODE_RAW_LENGTH(n));
	free(text);
}

static int get_base64(const char *text, size_t n, uint8_t **ret, size_t *ret_n,
		      struct garret_error *err)
{
	struct base64_decode_ctx ctx;
	uint8_t *out = try_alloc(BASE64_DECODE_LENGTH(n) + 1);
	size_t got = BASE64_DECODE_LENGTH(n);

	if (!out)
		return garret_fail_errno(err, "data: %zu bytes", n);
	base64_decode_init(&ctx);
	if (!base64_decode_update(&ctx, &got, out, n, text) || !base64_decode_final(&ctx)) {
		free(out);
		return garret_fail(err, GARRET_INVALID, "data: it is not base64");
	}
	*ret = out;
	*ret_n = got;
	return 0;
}

/* ---- parameters ---- */

struct step {
	struct garret_workspace *w;
	const json_t *request;
	struct strbuf *value; /* what the operation answered, as JSON */
	struct garret_result result;
	bool has_output;
};

static int need_text(const struct step *s, const char *key, const char **ret,
		     struct garret_error *err)
{
	const json_t *v = json_object_get(s->request, key);

	*ret = json_string_value(v);
	if (!*ret)
		return garret_fail(err, v ? GARRET_TYPE : GARRET_INVALID, "%s: a string is wanted",
				   key);
	if (strlen(*ret) != json_string_length(v))
		return garret_fail(err, GARRET_INVALID, "%s: it has a NUL", key);
	return 0;
}

static int optional_text(const struct step *s, const char *key, const char **ret,
			 struct garret_error *err)
{
	const json_t *v = json_object_get(s->request, key);

	*ret = NULL;
	return !v || json_is_null(v) ? 0 : need_text(s, key, ret, err);
}

static int optional_seconds(const struct step *s, const char *key, double *ret,
			    struct garret_error *err)
{
	const json_t *v = json_object_get(s->request, key);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_number(v))
		return garret_fail(err, GARRET_TYPE, "%s: a number is wanted", key);
	*ret = json_number_value(v);
	return *ret > 0 ? 0 : garret_fail(err, GARRET_INVALID, "%s: seconds above 0, or null", key);
}

/* A list of strings; the block is freed by the caller, the strings are borrowed. */
static int get_words(const json_t *v, const char *key, const char ***ret, struct garret_error *err)
{
	const size_t n = json_array_size(v);
	const char **words;

	if (!json_is_array(v))
		return garret_fail(err, GARRET_TYPE, "%s: a list of strings is wanted", key);
	words = xcalloc(n + 1, sizeof(char *));
	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(v, i);

		words[i] = json_string_value(item);
		if (!words[i] || strlen(words[i]) != json_string_length(item)) {
			free(words);
			return garret_fail(err, GARRET_TYPE, "%s: item %zu is no string", key, i);
		}
	}
	*ret = words;
	return 0;
}

static int get_env(const json_t *v, char ***ret, struct garret_error *err)
{
	const char *name;
	json_t *value;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_object(v))
		return garret_fail(err, GARRET_TYPE, "env: an object of strings is wanted");
	json_object_foreach((json_t *)(uintptr_t)v, name, value)
	{
		autofree char *item = NULL;

		if (!json_is_string(value))
			return garret_fail(err, GARRET_TYPE, "env: a value is no string");
		item = xasprintf("%s=%s", name, json_string_value(value));
		strings_add(ret, item);
	}
	return 0;
}

/* ---- steps ---- */

static void put_entry(struct strbuf *out, const struct garret_entry *e)
{
	json_open(out, '{');
	json_put_key(out, "name");
	json_put_string(out, e->name);
	json_put_key(out, "path");
	json_put_string(out, e->path);
	json_put_key(out, "is_dir");
	json_put_bool(out, e->is_dir);
	json_put_key(out, "size");
	if (e->bytes == GARRET_SIZE_UNKNOWN)
		json_put_null(out);
	else
		json_put_int(out, (int64_t)e->bytes);
	json_close(out, '}');
}

static int step_ensure(struct step *s, struct garret_error *err)
{
	autofree char *dir = NULL;
	struct garret_ref ref;
	int rc = garret_working_dir(s->w, &dir, err);

	if (rc < 0)
		return rc;
	if (garret_workspace_ref(s->w, &ref) < 0)
		return garret_fail(err, GARRET_MISUSE, "the workspace still has no ref");
	json_open(s->value, '{');
	json_put_key(s->value, "working_dir");
	json_put_string(s->value, dir);
	json_put_key(s->value, "ref");
	json_open(s->value, '{');
	json_put_key(s->value, "provider");
	json_put_string(s->value, ref.provider);
	json_put_key(s->value, "id");
	json_put_string(s->value, ref.id);
	json_close(s->value, '}');
	json_close(s->value, '}');
	return 0;
}

static void put_output(struct strbuf *out, const struct garret_result *r)
{
	json_put_key(out, "stdout");
	put_base64(out, r->out ? r->out : (const uint8_t *)"", r->out_bytes);
	json_put_key(out, "stderr");
	put_base64(out, r->err ? r->err : (const uint8_t *)"", r->err_bytes);
}

static int run_options(struct step *s, struct garret_run_options *o, const char ***argv,
		       char ***env, struct garret_error *err)
{
	const json_t *list = json_object_get(s->request, "argv");
	int rc = optional_text(s, "shell", &o->shell, err);

	if (rc == 0 && list && !json_is_null(list))
		rc = get_words(list, "argv", argv, err);
	if (rc == 0)
		rc = get_env(json_object_get(s->request, "env"), env, err);
	if (rc == 0)
		rc = optional_text(s, "cwd", &o->cwd, err);
	if (rc == 0)
		rc = optional_seconds(s, "timeout", &o->timeout, err);
	o->argv = *argv;
	o->env = (const char *const *)*env;
	return rc;
}

static int step_run(struct step *s, struct garret_error *err)
{
	struct garret_run_options o = { .size = sizeof(o) };
	const char **argv = NULL;
	char **env = NULL;
	int rc = run_options(s, &o, &argv, &env, err);

	if (rc == 0) {
		rc = garret_run(s->w, &o, &s->result, err);
		s->has_output = s->result.out != NULL;
	}
	if (rc == 0) {
		json_open(s->value, '{');
		json_put_key(s->value, "exit_code");
		json_put_int(s->value, s->result.exit_code);
		put_output(s->value, &s->result);
		json_close(s->value, '}');
	}
	free(argv);
	strings_free(env);
	return rc;
}

static int step_read(struct step *s, struct garret_error *err)
{
	struct garret_bytes b = { 0 };
	const char *path = NULL;
	int rc = need_text(s, "path", &path, err);

	if (rc == 0)
		rc = garret_read(s->w, path, &b, err);
	if (rc < 0)
		return rc;
	put_base64(s->value, b.data, b.n);
	garret_bytes_release(&b);
	return 0;
}

static int step_write(struct step *s, struct garret_error *err)
{
	const json_t *v = json_object_get(s->request, "data");
	autofree uint8_t *data = NULL;
	const char *path = NULL;
	size_t n = 0;
	int rc = need_text(s, "path", &path, err);

	if (rc == 0 && !json_is_string(v))
		rc = garret_fail(err, GARRET_TYPE, "data: base64 text is wanted");
	if (rc == 0)
		rc = get_base64(json_string_value(v), json_string_length(v), &data, &n, err);
	if (rc == 0)
		rc = garret_write(s->w, path, data, n, 0, err);
	if (rc == 0)
		json_put_null(s->value);
	return rc;
}

static int step_stat(struct step *s, struct garret_error *err)
{
	struct garret_entry e = { 0 };
	const char *path = NULL;
	int rc = need_text(s, "path", &path, err);

	if (rc == 0)
		rc = garret_stat(s->w, path, &e, err);
	if (rc < 0)
		return rc;
	put_entry(s->value, &e);
	garret_entry_release(&e);
	return 0;
}

static int step_list(struct step *s, struct garret_error *err)
{
	struct garret_list l = { 0 };
	const char *path = NULL;
	int rc = need_text(s, "path", &path, err);

	if (rc == 0)
		rc = garret_list_dir(s->w, path, &l, err);
	if (rc < 0)
		return rc;
	json_open(s->value, '[');
	for (size_t i = 0; i < l.n; i++)
		put_entry(s->value, &l.entry[i]);
	json_close(s->value, ']');
	garret_list_release(&l);
	return 0;
}

static int step_change(struct step *s, struct garret_error *err,
		       int (*change)(struct garret_workspace *, const char *,
				     struct garret_error *))
{
	const char *path = NULL;
	int rc = need_text(s, "path", &path, err);

	if (rc == 0)
		rc = change(s->w, path, err);
	if (rc == 0)
		json_put_null(s->value);
	return rc;
}

static int step_make_dir(struct step *s, struct garret_error *err)
{
	return step_change(s, err, garret_make_dir);
}

static int step_remove(struct step *s, struct garret_error *err)
{
	return step_change(s, err, garret_remove);
}

static int step_exists(struct step *s, struct garret_error *err)
{
	const char *path = NULL;
	bool there = false;
	int rc = need_text(s, "path", &path, err);

	if (rc == 0)
		rc = garret_exists(s->w, path, &there, err);
	if (rc == 0)
		json_put_bool(s->value, there);
	return rc;
}

static int step_realpath(struct step *s, struct garret_error *err)
{
	autofree char *real = NULL;
	const char *path = NULL;
	int rc = need_text(s, "path", &path, err);

	if (rc == 0)
		rc = garret_realpath(s->w, path, &real, err);
	if (rc == 0)
		json_put_string(s->value, real);
	return rc;
}

static const struct {
	const char *name;
	int (*step)(struct step *s, struct garret_error *err);
} methods[] = {
	{ "ensure", step_ensure },     { "run", step_run },       { "read_bytes", step_read },
	{ "write_bytes", step_write }, { "stat", step_stat },     { "list_dir", step_list },
	{ "make_dir", step_make_dir }, { "remove", step_remove }, { "exists", step_exists },
	{ "realpath", step_realpath },
};

/* ---- responses ---- */

static void put_error(struct strbuf *out, const struct step *s, const struct garret_error *e)
{
	json_open(out, '{');
	json_put_key(out, "error");
	json_open(out, '{');
	json_put_key(out, "code");
	json_put_string(out, garret_code_name((int)e->code));
	json_put_key(out, "message");
	json_put_string(out, e->msg);
	json_put_key(out, "errno");
	json_put_int(out, e->sys);
	if (s->has_output) {
		put_output(out, &s->result);
		json_put_key(out, "limit");
		json_put_int(out, (int64_t)s->result.limit);
	}
	json_close(out, '}');
	json_close(out, '}');
}

/* Another try may do better: not for the journal. */
static bool is_transient(enum garret_code code)
{
	return code == GARRET_UNAVAILABLE || code == GARRET_CANCELLED || code == GARRET_EXHAUSTED;
}

static int perform(struct step *s, const char *name, char **ret, struct garret_error *err)
{
	struct garret_error own = { 0 };
	struct strbuf out = STRBUF_INIT;
	size_t i = 0;
	int rc;

	while (i < ARRAY_SIZE(methods) && strcmp(methods[i].name, name) != 0)
		i++;
	if (i == ARRAY_SIZE(methods))
		return garret_fail(err, GARRET_INVALID, "method: there is no \"%.40s\"", name);
	rc = methods[i].step(s, &own);
	if (rc < 0 && is_transient((enum garret_code) - rc)) {
		if (err)
			*err = own;
		return rc;
	}
	if (rc < 0) {
		put_error(&out, s, &own);
	} else {
		json_open(&out, '{');
		json_put_key(&out, "ok");
		json_put_raw(&out, s->value->buf);
		json_close(&out, '}');
	}
	*ret = strbuf_detach(&out, NULL);
	return 0;
}

int garret_perform(struct garret_workspace *w, const char *request, char **ret,
		   struct garret_error *err)
{
	autobuf struct strbuf value = STRBUF_INIT;
	struct step s = { .w = w, .value = &value };
	json_error_t problem;
	autojson *root = request ? json_loads(request, JSON_REJECT_DUPLICATES, &problem) : NULL;
	const char *name = json_string_value(json_object_get(root, "method"));
	int rc;

	*ret = NULL;
	if (!json_is_object(root))
		return garret_fail(err, GARRET_INVALID, "the request is no JSON object");
	if (!name)
		return garret_fail(err, GARRET_TYPE, "method: a string is wanted");
	s.request = root;
	rc = perform(&s, name, ret, err);
	garret_result_release(&s.result);
	return rc;
}

static enum garret_code code_of_name(const char *name)
{
	for (int c = 1; name && c < GARRET_CODES; c++)
		if (!strcmp(garret_code_name(c), name))
			return (enum garret_code)c;
	return GARRET_FAILED;
}

int garret_response_read(const char *response, char **ret_value, struct garret_error *err)
{
	json_error_t problem;
	autojson *root = response ? json_loads(response, 0, &problem) : NULL;
	json_t *ok = json_object_get(root, "ok"), *error = json_object_get(root, "error");
	const char *text;
	int rc;

	*ret_value = NULL;
	if (!ok == !error || (error && !json_is_object(error)))
		return garret_fail(err, GARRET_INVALID, "that is no response");
	if (ok) {
		*ret_value = json_dumps(ok, JSON_COMPACT | JSON_ENCODE_ANY);
		return 0;
	}
	text = json_string_value(json_object_get(error, "message"));
	rc = garret_fail(err, code_of_name(json_string_value(json_object_get(error, "code"))), "%s",
			 text ? text : "");
	if (err)
		err->sys = (int)json_integer_value(json_object_get(error, "errno"));
	if (json_object_get(error, "stdout"))
		*ret_value = json_dumps(error, JSON_COMPACT | JSON_ENCODE_ANY);
	return rc;
}
