#include "lib/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/text.h"
#include "lib/kind.h"

#define VALUE_MAX 65536
#define LIST_MAX 256

/* ---- lists of strings ---- */

size_t strings_count(char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

void strings_add(char ***list, const char *item)
{
	size_t n = strings_count(*list);

	*list = xrealloc(*list, (n + 2) * sizeof(char *));
	(*list)[n] = xstrdup(item);
	(*list)[n + 1] = NULL;
}

char **strings_free(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
	return NULL;
}

/* ---- checking ---- */

/* What is wrong with a value, or NULL.  It never repeats the value: that may be a secret. */
static const char *check_env(const char *value)
{
	const char *eq = strchr(value, '=');

	if (!eq || eq == value)
		return "NAME=VALUE";
	for (const char *p = value; p < eq; p++)
		if (*p == '\n' || (unsigned char)*p < ' ')
			return "NAME=VALUE with a name of printable characters";
	return NULL;
}

static const char *check_volume(const char *value)
{
	const char *inside = *value == '/' ? strstr(value, ":/") : NULL;
	const char *more = inside ? strchr(inside + 2, ':') : NULL;

	if (!inside || (more && strcmp(more, ":ro") != 0 && strcmp(more, ":rw") != 0))
		return "HOST:INSIDE or HOST:INSIDE:ro, both absolute paths";
	return NULL;
}

static bool has_word(const char *words, const char *value)
{
	const size_t n = strlen(value);

	for (const char *at = words; n && (at = strstr(at, value)); at += n)
		if ((at == words || at[-1] == ' ') && (at[n] == ' ' || !at[n]) &&
		    !memchr(value, ' ', n))
			return true;
	return false;
}

static bool flag_value(const char *value, bool *ret)
{
	*ret = has_word("1 true yes on", value);
	return *ret || has_word("0 false no off", value);
}

static const char *check_number(enum option_kind kind, const char *value)
{
	uint64_t n;
	double d;

	switch (kind) {
	case OPTION_SIZE:
		return parse_size(value, &n) && n ? NULL : "a size above 0, such as 512m or 2g";
	case OPTION_CPUS:
		return parse_seconds(value, &d) && d >= 0.001 && d <= 4096
			       ? NULL
			       : "a number of CPUs from 0.001 to 4096";
	case OPTION_NUMBER:
		return parse_u64(value, &n) && n && n <= INT32_MAX
			       ? NULL
			       : "a number from 1 to 2147483647";
	case OPTION_SECONDS:
		return parse_seconds(value, &d) && d > 0 && d <= 4e6
			       ? NULL
			       : "seconds, above 0 and at most 4000000";
	default:
		return NULL;
	}
}

static const char *check_value(const struct option_row *row, const char *value)
{
	bool flag;

	switch (row->kind) {
	case OPTION_NAME:
		return name_valid(value) ? NULL
					 : "1 to 64 of [A-Za-z0-9._-], the first a letter or digit";
	case OPTION_PATH:
		return *value == '/' ? NULL : "an absolute path";
	case OPTION_FLAG:
		return flag_value(value, &flag) ? NULL : "one of 1 true yes on 0 false no off";
	case OPTION_CHOICE:
		return has_word(row->words, value) ? NULL : row->words;
	case OPTION_ENV:
		return check_env(value);
	case OPTION_VOLUME:
		return check_volume(value);
	case OPTION_TEXT:
		return *value ? NULL : "some text";
	default:
		return check_number(row->kind, value);
	}
}

static const struct option_row *find_row(const struct provider_kind *kind, const char *name,
					 size_t *ret_index)
{
	for (size_t i = 0; kind->options[i].name; i++)
		if (!strcmp(kind->options[i].name, name)) {
			*ret_index = i;
			return &kind->options[i];
		}
	return NULL;
}

static size_t count_rows(const struct provider_kind *kind)
{
	size_t n = 0;

	while (kind->options[n].name)
		n++;
	return n;
}

/* ---- the public part ---- */

int garret_options_new(const char *provider, struct garret_options **ret, struct garret_error *err)
{
	const struct provider_kind *kind;
	int rc;

	*ret = NULL;
	rc = provider_kind_find(provider, &kind, err);
	if (rc < 0)
		return rc;
	*ret = xnew(struct garret_options);
	(*ret)->kind = kind;
	(*ret)->values = xcalloc(count_rows(kind) + 1, sizeof(char *));
	return 0;
}

static int add_to_list(char ***list, const char *name, const char *value, struct garret_error *err)
{
	if (strings_count(*list) == LIST_MAX)
		return garret_fail(err, GARRET_INVALID, "%s: at most %d of them", name, LIST_MAX);
	strings_add(list, value);
	return 0;
}

int garret_options_set(struct garret_options *o, const char *name, const char *value,
		       struct garret_error *err)
{
	const struct option_row *row;
	const char *wrong;
	size_t i = 0;

	row = name ? find_row(o->kind, name, &i) : NULL;
	if (!row)
		return garret_fail(err, GARRET_INVALID, "provider %s has no option \"%.60s\"",
				   o->kind->name, name ? name : "");
	if (!value)
		return garret_fail(err, GARRET_TYPE, "%s: a value is wanted, not NULL", name);
	if (strlen(value) > VALUE_MAX)
		return garret_fail(err, GARRET_INVALID, "%s: at most %d bytes", name, VALUE_MAX);
	wrong = check_value(row, value);
	if (wrong)
		return garret_fail(err, GARRET_INVALID, "%s: it must be %s%s", name,
				   row->kind == OPTION_CHOICE ? "one of: " : "", wrong);
	if (row->kind == OPTION_ENV)
		return add_to_list(&o->env, name, value, err);
	if (row->kind == OPTION_VOLUME)
		return add_to_list(&o->volumes, name, value, err);
	free(o->values[i]);
	o->values[i] = xstrdup(value);
	return 0;
}

/* Memory that may hold secrets is cleared: others get it next. */
static void forget(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

struct garret_options *garret_options_free(struct garret_options *o)
{
	if (!o)
		return NULL;
	for (size_t i = 0; i < count_rows(o->kind); i++)
		forget(o->values[i]);
	free(o->values);
	for (size_t i = 0; o->env && o->env[i]; i++)
		forget(o->env[i]);
	free(o->env);
	strings_free(o->volumes);
	free(o);
	return NULL;
}

void garret_options_set_notice(struct garret_options *o, garret_notice_fn *notice, void *data)
{
	o->notice = notice;
	o->notice_data = data;
}

int garret_options_set_store(struct garret_options *o, const struct garret_store *store,
			     struct garret_error *err)
{
	struct garret_store s = { 0 };
	int rc;

	if (!o->kind->takes_store)
		return garret_fail(err, GARRET_MISUSE, "provider %s keeps no documents",
				   o->kind->name);
	rc = sized_copy(&s, sizeof(s), store, store->size, err);
	if (rc < 0)
		return rc;
	if (!s.load || !s.save || !s.remove)
		return garret_fail(err, GARRET_MISUSE, "a store has load, save and remove");
	o->store = s;
	return 0;
}

/* ---- inside ---- */

struct garret_options *options_dup(const struct garret_options *o)
{
	struct garret_options *d = xnew(struct garret_options);
	const size_t n = count_rows(o->kind);

	*d = *o;
	d->values = xcalloc(n + 1, sizeof(char *));
	for (size_t i = 0; i < n; i++)
		d->values[i] = o->values[i] ? xstrdup(o->values[i]) : NULL;
	d->env = d->volumes = NULL;
	for (size_t i = 0; i < strings_count(o->env); i++)
		strings_add(&d->env, o->env[i]);
	for (size_t i = 0; i < strings_count(o->volumes); i++)
		strings_add(&d->volumes, o->volumes[i]);
	return d;
}

const char *option_text(const struct garret_options *o, const char *name)
{
	size_t i = 0;

	return find_row(o->kind, name, &i) ? o->values[i] : NULL;
}

uint64_t option_size(const struct garret_options *o, const char *name)
{
	const char *text = option_text(o, name);
	uint64_t n = 0;

	return text && parse_size(text, &n) ? n : 0;
}

uint32_t option_number(const struct garret_options *o, const char *name)
{
	const char *text = option_text(o, name);
	uint64_t n = 0;

	return text && parse_u64(text, &n) ? (uint32_t)n : 0;
}

uint32_t option_millis(const struct garret_options *o, const char *name)
{
	const char *text = option_text(o, name);
	double d = 0;

	return text && parse_seconds(text, &d) ? (uint32_t)ceil(d * 1000) : 0;
}

bool option_flag(const struct garret_options *o, const char *name, bool otherwise)
{
	const char *text = option_text(o, name);
	bool flag;

	return text && flag_value(text, &flag) ? flag : otherwise;
}
