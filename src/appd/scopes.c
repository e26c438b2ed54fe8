/* Connections, workspaces, purges, the log: what an organisation has. */
#include <stdlib.h>
#include <string.h>

#include "appd/appd.h"
#include "base/auto.h"
#include "base/mem.h"
#include "net/json.h"

/* ---- connections ---- */

static void put_connection(struct strbuf *out, const struct garret_app_connection *c)
{
	json_open(out, '{');
	put_text(out, "id", c->id);
	put_text(out, "kind", garret_app_connection_kind_name(c->kind));
	put_text(out, "name", c->name);
	put_text(out, "address", c->address);
	put_text(out, "account", c->account);
	put_text(out, "runtime", c->runtime);
	put_bool(out, "is_default", c->is_default);
	put_bool(out, "has_token", c->has_token);
	json_close(out, '}');
}

static int connection_list(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_connection *c = NULL;
	size_t n = 0;
	int rc = garret_app_connection_list(q->app, q->organisation, &c, &n, err);

	json_open(out, '{');
	json_put_key(out, "connections");
	json_open(out, '[');
	for (size_t i = 0; i < n; i++)
		put_connection(out, &c[i]);
	json_close(out, ']');
	json_close(out, '}');
	free(c);
	return rc;
}

static int connection_get(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_connection c = { .size = sizeof(c) };
	const char *id;
	int rc = arg_text(q, "connection_id", &id, err);

	if (rc == 0)
		rc = garret_app_connection_get(q->app, q->organisation, id, &c, err);
	if (rc == 0)
		put_connection(out, &c);
	return rc;
}

/* Into a fixed field; one that doesn't fit is named. */
static int field(struct request *q, const char *name, char *ret, size_t cap,
		 struct garret_error *err)
{
	const char *text;
	int rc = arg_text(q, name, &text, err);

	if (rc < 0 || !text)
		return rc;
	if (strlen(text) >= cap)
		return garret_fail(err, GARRET_INVALID, "%s: at most %zu bytes", name, cap - 1);
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

/* This machine's own state directories and sockets are nothing that an organisation may point at. */
static int check_reach(struct request *q, const struct garret_app_connection *c,
		       struct garret_error *err)
{
	const bool outside =
		c->kind == GARRET_APP_DAYTONA ||
		(c->kind == GARRET_APP_SANDBOXD && strncmp(c->address, "unix:", 5) != 0);

	return q->trusted || outside
		       ? 0
		       : garret_fail(err, GARRET_DENIED,
				     "address: a place on this machine needs a token of the whole "
				     "service");
}

/*
 * A token that somebody else gave isn't sent elsewhere by who never saw it: who may only speak for one
 * organisation gives it again with a new address.
 */
static int check_move(struct request *q, const struct garret_app_connection *was,
		      const struct garret_app_connection *c, const char *token,
		      struct garret_error *err)
{
	const bool moves = c->kind != was->kind || strcmp(c->address, was->address) != 0;

	return q->trusted || token || !was->has_token || !moves
		       ? 0
		       : garret_fail(err, GARRET_INVALID,
				     "token: it is needed again with another kind or address");
}

static int change(struct request *q, struct strbuf *out, struct garret_error *err)
{
	static const char *const known[] = { "connection_id", "kind",    "name",
					     "address",       "account", "runtime",
					     "is_default",    "token",   NULL };
	struct garret_app_connection c = { .size = sizeof(c) }, was;
	const char *kind, *token, *id;
	int rc = args_known(q, known, err);

	if (rc == 0)
		rc = arg_text(q, "connection_id", &id, err);
	if (rc == 0 && id)
		rc = garret_app_connection_get(q->app, q->organisation, id, &c, err);
	was = c;
	if (rc == 0)
		rc = arg_text(q, "kind", &kind, err);
	if (rc == 0 && (kind || !id))
		rc = garret_app_connection_kind_parse(kind, &c.kind, err);
	if (rc == 0)
		rc = field(q, "name", c.name, sizeof(c.name), err);
	if (rc == 0)
		rc = field(q, "address", c.address, sizeof(c.address), err);
	if (rc == 0)
		rc = field(q, "account", c.account, sizeof(c.account), err);
	if (rc == 0)
		rc = field(q, "runtime", c.runtime, sizeof(c.runtime), err);
	if (rc == 0)
		rc = arg_bool(q, "is_default", &c.is_default, err);
	if (rc == 0)
		rc = arg_text(q, "token", &token, err);
	if (rc == 0)
		rc = check_reach(q, &c, err);
	if (rc == 0)
		rc = check_move(q, &was, &c, token, err);
	if (rc == 0)
		rc = garret_app_connection_put(q->app, q->organisation, &c, token, err);
	if (rc == 0)
		put_connection(out, &c);
	return rc;
}

/* What isn't named stays as it is, also when another changes it at the same time. */
static int connection_put(struct request *q, struct strbuf *out, struct garret_error *err)
{
	int rc;

	do
		rc = change(q, out, err);
	while (rc == -GARRET_CHANGED);
	return rc;
}

static int connection_remove(struct request *q, struct strbuf *out, struct garret_error *err)
{
	const char *id;
	int rc = arg_text(q, "connection_id", &id, err);

	(void)out;
	return rc < 0 ? rc : garret_app_connection_remove(q->app, q->organisation, id, err);
}

/* ---- workspaces ---- */

static void put_row(struct strbuf *out, const struct garret_app_row *r)
{
	json_open(out, '{');
	put_text(out, "key", r->key);
	put_text(out, "scope", garret_app_scope_name(r->scope));
	put_text(out, "backend", garret_app_backend_name(r->backend));
	put_text(out, "agent", r->agent);
	put_text(out, "conversation", r->conversation);
	put_text(out, "owner", r->owner);
	put_text(out, "connection_id", r->connection_id);
	put_text(out, "session_id", r->session_id);
	put_number(out, "bytes", (double)r->bytes);
	put_number(out, "version", (double)r->version);
	put_number(out, "created_at", r->created_at);
	put_number(out, "last_used_at", r->last_used_at);
	json_close(out, '}');
}

static int range(struct request *q, size_t usual, uint64_t *ret_offset, size_t *ret_max,
		 struct garret_error *err)
{
	double offset = 0, max = (double)usual;
	int rc = arg_number(q, "offset", &offset, err);

	if (rc == 0)
		rc = arg_number(q, "limit", &max, err);
	if (rc == 0 && !(offset >= 0 && offset < 9e15))
		rc = garret_fail(err, GARRET_INVALID, "offset: 0 or more");
	if (rc == 0 && !(max >= 1 && max <= 1000))
		rc = garret_fail(err, GARRET_INVALID, "limit: 1 to 1000");
	*ret_offset = rc == 0 ? (uint64_t)offset : 0;
	*ret_max = rc == 0 ? (size_t)max : 1;
	return rc;
}

static int workspace_list(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_row *row = NULL;
	uint64_t offset, total = 0;
	size_t max, n = 0;
	int rc = range(q, 100, &offset, &max, err);

	if (rc == 0)
		rc = garret_app_row_list(q->app, q->organisation, offset, max, &row, &n, &total,
					 err);
	json_open(out, '{');
	json_put_key(out, "workspaces");
	json_open(out, '[');
	for (size_t i = 0; i < n; i++)
		put_row(out, &row[i]);
	json_close(out, ']');
	put_number(out, "total", (double)total);
	json_close(out, '}');
	free(row);
	return rc;
}

static int workspace_get(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_row row;
	const char *key;
	int rc = arg_text(q, "key", &key, err);

	if (rc == 0)
		rc = garret_app_row_get(q->app, q->organisation, key, &row, err);
	if (rc == 0)
		put_row(out, &row);
	return rc;
}

static int workspace_remove(struct request *q, struct strbuf *out, struct garret_error *err)
{
	const char *key;
	int rc = arg_text(q, "key", &key, err);

	(void)out;
	return rc < 0 ? rc : garret_app_row_remove(q->app, q->organisation, key, err);
}

static int conversation_remove(struct request *q, struct strbuf *out, struct garret_error *err)
{
	const char *conversation;
	size_t n = 0;
	int rc = arg_text(q, "conversation", &conversation, err);

	if (rc == 0)
		rc = garret_app_conversation_remove(q->app, q->organisation, conversation, &n, err);
	json_open(out, '{');
	put_number(out, "workspaces", (double)n);
	json_close(out, '}');
	return rc;
}

static int purge_list(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_purge *p = NULL;
	size_t n = 0;
	int rc = garret_app_purge_list(q->app, q->organisation, &p, &n, err);

	json_open(out, '{');
	json_put_key(out, "purges");
	json_open(out, '[');
	for (size_t i = 0; i < n; i++) {
		json_open(out, '{');
		put_text(out, "connection_id", p[i].connection_id);
		put_text(out, "session_id", p[i].session_id);
		put_number(out, "tries", p[i].tries);
		put_text(out, "error", p[i].tries ? garret_code_name(p[i].code) : NULL);
		put_number(out, "created_at", p[i].created_at);
		put_number(out, "next_at", p[i].next_at);
		json_close(out, '}');
	}
	json_close(out, ']');
	json_close(out, '}');
	free(p);
	return rc;
}

/* ---- the log ---- */

static void put_log_row(struct strbuf *out, const struct garret_app_log_row *r)
{
	json_open(out, '{');
	put_number(out, "id", (double)r->id);
	put_number(out, "created_at", r->created_at);
	put_text(out, "agent", r->agent);
	put_text(out, "run", r->run);
	put_text(out, "key", r->key);
	put_text(out, "op", r->op);
	json_put_key(out, "target");
	json_put_string(out, r->target);
	json_put_key(out, "detail");
	json_put_string(out, r->detail);
	put_bool(out, "ok", r->ok);
	put_number(out, "duration_ms", r->duration_ms);
	json_close(out, '}');
}

static int parse_ok(const char *text, int *ret, struct garret_error *err)
{
	*ret = !text ? 0 : !strcmp(text, "true") ? 1 : -1;
	return !text || *ret == 1 || !strcmp(text, "false")
		       ? 0
		       : garret_fail(err, GARRET_INVALID, "ok: true or false");
}

static int log_query(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_log_filter f = { .size = sizeof(f) };
	struct garret_app_log found = { 0 };
	const char *ok = NULL;
	int rc = range(q, 100, &f.offset, &f.max, err);

	if (rc == 0)
		rc = arg_text(q, "key", &f.key, err);
	if (rc == 0)
		rc = arg_text(q, "agent", &f.agent, err);
	if (rc == 0)
		rc = arg_text(q, "run", &f.run, err);
	if (rc == 0)
		rc = arg_text(q, "op", &f.op, err);
	if (rc == 0)
		rc = arg_text(q, "ok", &ok, err);
	if (rc == 0)
		rc = parse_ok(ok, &f.ok, err);
	if (rc == 0)
		rc = arg_number(q, "since", &f.since, err);
	if (rc == 0)
		rc = arg_number(q, "until", &f.until, err);
	if (rc == 0)
		rc = garret_app_log_query(q->app, q->organisation, &f, &found, err);
	json_open(out, '{');
	json_put_key(out, "operations");
	json_open(out, '[');
	for (size_t i = 0; i < found.n; i++)
		put_log_row(out, &found.row[i]);
	json_close(out, ']');
	put_number(out, "total", (double)found.total);
	json_close(out, '}');
	garret_app_log_release(&found);
	return rc;
}

static int log_names(struct request *q, struct strbuf *out, struct garret_error *err)
{
	autofree char *names = NULL;
	int rc = garret_app_log_names(q->app, q->organisation, &names, err);

	if (rc < 0)
		return rc;
	json_open(out, '{');
	json_put_key(out, "names");
	json_put_raw(out, names);
	json_close(out, '}');
	return 0;
}

const struct operation scope_operations[] = {
	{ "connection_list", connection_list },
	{ "connection_get", connection_get },
	{ "connection_put", connection_put },
	{ "connection_remove", connection_remove },
	{ "workspace_list", workspace_list },
	{ "workspace_get", workspace_get },
	{ "workspace_remove", workspace_remove },
	{ "conversation_remove", conversation_remove },
	{ "purge_list", purge_list },
	{ "log_query", log_query },
	{ "log_names", log_names },
	{ NULL, NULL },
};
