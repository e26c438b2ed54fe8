/*
 * Routes of organisations: what the application layer keeps for one.  Checked here: that the token may
 * speak for it, and the form of what came.  All else is a worker's (app_link.h).
 *
 * A token of one tenant is the token of the organisation of that id.  To it others aren't there.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/app_link.h"
#include "api/handlers.h"
#include "api/wire.h"
#include "base/auto.h"
#include "base/mem.h"

#define ID 32

/* An id as 32 digits, with or without its dashes; false: it is none. */
static bool normal(const char *text, char ret[ID + 1])
{
	size_t n = 0;

	for (; *text; text++) {
		if (*text == '-')
			continue;
		if (n == ID || !strchr("0123456789abcdefABCDEF", *text))
			return false;
		ret[n++] = (char)(*text >= 'A' && *text <= 'F' ? *text - 'A' + 'a' : *text);
	}
	ret[n] = '\0';
	return n == ID;
}

/* True when the caller may speak for it; else it was answered. */
static bool admit(struct call *c, char ret[ID + 1])
{
	char own[ID + 1];

	if (!normal(c->params[0], ret)) {
		call_refuse(c, 422,
			    "organisation: a UUID, 32 hexadecimal digits with or without dashes");
		return false;
	}
	if (*c->caller.tenant && (!normal(c->caller.tenant, own) || strcmp(own, ret) != 0)) {
		call_refuse(c, 404, "No such organisation: %s", c->params[0]);
		return false;
	}
	return true;
}

/* A parameter that came as text, as JSON of the kind that its table says. */
static json_t *value(const struct json_field *f, const char *text)
{
	if (f->kind == JSON_KIND_INT || f->kind == JSON_KIND_FLOAT)
		return json_real(strtod(text, NULL));
	return json_string(text);
}

static json_t *arguments(struct call *c)
{
	json_t *args = json_is_object(c->body) ? json_copy(c->body) : json_object();
	int n = 0;

	for (const struct json_field *f = c->route->query; f && f->name; f++) {
		const char *text = http_query(c->rq, f->name);

		if (text)
			(void)json_object_set_new(args, f->name, value(f, text));
	}
	/* What the path names comes last: nothing in a body takes its place. */
	for (const struct json_field *f = c->route->params; f && f->name; f++, n++)
		if (n)
			(void)json_object_set_new(args, f->name, json_string(c->params[n]));
	return args;
}

static void on_answer(void *ctx, unsigned status, struct strbuf *json)
{
	struct call *c = ctx;
	struct strbuf out = STRBUF_INIT;

	if (status == 204) {
		call_no_content(c);
	} else {
		strbuf_add(&out, json->buf, json->len);
		call_answer(c, status, &out);
	}
	call_unref(c);
}

void orgs_call(struct call *c)
{
	autobuf struct strbuf request = STRBUF_INIT;
	char organisation[ID + 1];
	json_t *v;
	char *text;

	if (!admit(c, organisation))
		return;
	if (c->route->body && !json_is_object(c->body)) {
		call_refuse(c, 422, "The body: a JSON object");
		return;
	}
	v = json_pack("{s:s, s:s, s:b, s:o}", "op", c->route->operation, "organisation",
		      organisation, "trusted", !*c->caller.tenant, "args", arguments(c));
	text = json_dumps(v, JSON_COMPACT);
	json_decref(v);
	if (!text) { /* a path that isn't UTF-8 */
		call_refuse(c, 422, "The path and the query: UTF-8");
		return;
	}
	strbuf_addstr(&request, text);
	free(text);
	app_link_ask(c->api->app, organisation, &request, c->route->raw ? http_body(c->rq) : NULL,
		     on_answer, call_ref(c));
}
