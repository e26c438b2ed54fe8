#include <math.h>
#include <nettle/base64.h>
#include <string.h>

#include "appd/appd.h"
#include "net/json.h"

/* Absent and null are the same. */
static json_t *get(struct request *q, const char *name)
{
	json_t *v = json_object_get(q->args, name);

	return json_is_null(v) ? NULL : v;
}

int arg_text(struct request *q, const char *name, const char **ret, struct garret_error *err)
{
	json_t *v = get(q, name);

	*ret = json_string_value(v);
	if (v && (!*ret || strlen(*ret) != json_string_length(v)))
		return garret_fail(err, GARRET_INVALID, "%s: text is wanted", name);
	return 0;
}

int arg_number(struct request *q, const char *name, double *ret, struct garret_error *err)
{
	json_t *v = get(q, name);

	if (v && !json_is_number(v))
		return garret_fail(err, GARRET_INVALID, "%s: a number is wanted", name);
	if (v)
		*ret = json_number_value(v);
	return 0;
}

int arg_bool(struct request *q, const char *name, bool *ret, struct garret_error *err)
{
	json_t *v = get(q, name);

	if (v && !json_is_boolean(v))
		return garret_fail(err, GARRET_INVALID, "%s: true or false is wanted", name);
	if (v)
		*ret = json_is_true(v);
	return 0;
}

int args_known(struct request *q, const char *const *names, struct garret_error *err)
{
	const char *given;
	json_t *v;

	json_object_foreach(q->args, given, v)
	{
		const char *const *n = names;

		while (*n && strcmp(*n, given) != 0)
			n++;
		if (!*n)
			return garret_fail(err, GARRET_INVALID, "%.60s: there is no such field",
					   given);
	}
	return 0;
}

void put_text(struct strbuf *out, const char *name, const char *text)
{
	json_put_key(out, name);
	json_put_string(out, text && *text ? text : NULL);
}

void put_number(struct strbuf *out, const char *name, double v)
{
	json_put_key(out, name);
	if (fabs(v) < 0x1p63 && v == (double)(int64_t)v)
		json_put_int(out, (int64_t)v);
	else
		json_put_double(out, v);
}

void put_bool(struct strbuf *out, const char *name, bool v)
{
	json_put_key(out, name);
	json_put_bool(out, v);
}

void put_base64(struct strbuf *out, const char *name, const void *data, size_t n)
{
	json_put_key(out, name);
	strbuf_reserve(out, BASE64_ENCODE_RAW_LENGTH(n) + 3);
	strbuf_addch(out, '"');
	base64_encode_raw(out->buf + out->len, n, data);
	out->len += BASE64_ENCODE_RAW_LENGTH(n);
	out->buf[out->len] = '\0';
	strbuf_addch(out, '"');
}
