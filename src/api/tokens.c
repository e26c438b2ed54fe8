/* Service tokens: minting, listing, rotating, revoking. A secret is shown once. */
#include <string.h>

#include "api/handlers.h"
#include "api/wire.h"
#include "base/text.h"

static void put_time(struct strbuf *out, const char *key, double at)
{
	json_put_key(out, key);
	if (at > 0)
		json_put_double(out, at);
	else
		json_put_null(out);
}

static void put_string(struct strbuf *out, const char *key, const char *v)
{
	json_put_key(out, key);
	json_put_string(out, v);
}

static void put_token(struct strbuf *out, const struct token_info *t)
{
	char scope[80];

	route_scope_text(t->tenant, t->read_only, scope);
	json_open(out, '{');
	put_string(out, "name", t->name);
	put_string(out, "scope", scope);
	put_string(out, "tenant", t->tenant);
	json_put_key(out, "read_only");
	json_put_bool(out, t->read_only);
	json_put_key(out, "active");
	json_put_bool(out, t->active);
	put_time(out, "created_at", t->created_at);
	put_time(out, "expires_at", t->expires_at);
	put_time(out, "last_used_at", t->last_used_at);
	put_time(out, "revoked_at", t->revoked_at);
	json_close(out, '}');
}

static void list_one(void *ctx, const struct token_info *t)
{
	put_token(ctx, t);
}

void tokens_list(struct call *c)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "tokens");
	json_open(&out, '[');
	service_tokens(c->service, list_one, &out);
	json_close(&out, ']');
	json_close(&out, '}');
	call_answer(c, 200, &out);
}

static void minted(void *ctx, const struct token_info *t, const char *secret,
		   const struct refusal *no)
{
	struct strbuf out = STRBUF_INIT;
	struct call *c = ctx;

	if (!t) {
		call_refusal(c, no);
	} else {
		json_open(&out, '{');
		put_string(&out, "token", secret);
		json_put_key(&out, "info");
		put_token(&out, t);
		json_close(&out, '}');
		call_answer(c, 200, &out);
	}
	call_unref(c);
}

static void revoked(void *ctx, const struct token_info *t, const char *secret,
		    const struct refusal *no)
{
	(void)t, (void)secret;
	call_done(ctx, no);
}

static bool bad_scope(struct call *c, const char *scope, const char *why)
{
	struct json_errors e = JSON_ERRORS_INIT;
	struct strbuf shown = STRBUF_INIT;

	json_put_string(&shown, scope);
	json_add_error(&e, "value_error", "\"body\",\"scope\"", why, shown.buf,
		       "{\"error\":\"scope\"}");
	strbuf_release(&shown);
	call_invalid(c, &e);
	return false;
}

/* The scope of a new token from its words and fields, which must not contradict each other. */
static bool read_scope(struct call *c, const struct token_values *v, struct token_request *rq,
		       char tenant[65])
{
	static const char prefix[] = "tenant:", suffix[] = "+read";
	const char *scope = v->scope;
	bool read = false;
	size_t n;

	rq->tenant = v->tenant;
	rq->read_only = v->read_only;
	if (!scope && !v->tenant && !v->read_only)
		return bad_scope(c, scope, "Value error, give a scope: all, read, tenant:NAME");
	if (!scope)
		return true;
	if (!strcmp(scope, "all") && (v->tenant || v->read_only))
		return bad_scope(c, scope, "Value error, all is neither of a tenant nor read only");
	if (!strcmp(scope, "all"))
		return true;
	if (!strcmp(scope, "read")) {
		rq->read_only = true;
		return true;
	}
	if (strncmp(scope, prefix, strlen(prefix)) != 0)
		return bad_scope(c, scope,
				 "Value error, one of all, read, tenant:NAME, tenant:NAME+read");
	scope += strlen(prefix);
	n = strlen(scope);
	if (n > strlen(suffix) && !strcmp(scope + n - strlen(suffix), suffix)) {
		read = true;
		n -= strlen(suffix);
	}
	if (n > 64)
		return bad_scope(c, v->scope, "Value error, the tenant is no name");
	memcpy(tenant, scope, n);
	tenant[n] = '\0';
	if (!name_valid(tenant))
		return bad_scope(c, v->scope, "Value error, the tenant is no name");
	if (v->tenant && strcmp(v->tenant, tenant) != 0)
		return bad_scope(c, v->scope, "Value error, contradicts tenant");
	rq->tenant = tenant;
	rq->read_only = v->read_only || read;
	return true;
}

void tokens_add(struct call *c)
{
	const struct token_values *v = c->values;
	struct token_request rq = { .name = v->name, .expires_in = v->expires_in };
	char tenant[65];

	if (read_scope(c, v, &rq, tenant))
		service_token_add(c->service, &rq, minted, call_ref(c));
}

void tokens_revoke(struct call *c)
{
	const struct token_values *v = c->values;

	service_token_revoke(c->service, v->name, revoked, call_ref(c));
}

void tokens_rotate(struct call *c)
{
	const struct token_values *v = c->values;

	service_token_rotate(c->service, v->name, v->overlap_seconds, minted, call_ref(c));
}
