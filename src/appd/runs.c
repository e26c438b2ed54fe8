/*
 * Runs over the wire.  Between two requests a run is detached: whichever process has the next request
 * goes on with it, and one whose client went away is swept after its lease.
 */
#include <stdlib.h>
#include <string.h>

#include "appd/appd.h"
#include "base/auto.h"
#include "base/mem.h"
#include "net/json.h"

/* ---- what a run is told of ---- */

static int put_connection(struct request *q, const struct garret_app_run_info *i,
			  struct strbuf *out, struct garret_error *err)
{
	struct garret_app_connection c = { .size = sizeof(c) };
	int rc = *i->connection_id ? garret_app_connection_get(q->app, q->organisation,
							       i->connection_id, &c, err)
				   : 0;

	json_put_key(out, "connection");
	if (rc < 0 || !*i->connection_id) {
		json_put_null(out);
		return rc;
	}
	json_open(out, '{');
	put_text(out, "id", c.id);
	put_text(out, "kind", garret_app_connection_kind_name(c.kind));
	put_text(out, "address", c.address);
	json_close(out, '}');
	return 0;
}

static int put_run(struct request *q, struct garret_app_run *run, struct strbuf *out,
		   struct garret_error *err)
{
	struct garret_app_run_info i = { .size = sizeof(i) };
	int rc;

	garret_app_run_info(run, &i);
	json_open(out, '{');
	put_text(out, "run", i.run);
	put_text(out, "key", i.key);
	put_text(out, "backend", garret_app_backend_name(i.backend));
	put_text(out, "session_scope", garret_app_scope_name(i.scope));
	put_text(out, "tenant", i.tenant);
	put_text(out, "runtime", i.runtime);
	put_bool(out, "include_execute", i.include_execute);
	put_bool(out, "attached", i.attached);
	put_bool(out, "lost", i.lost);
	json_put_key(out, "ref");
	json_open(out, '{');
	put_text(out, "provider", i.ref.provider);
	put_text(out, "id", i.ref.id);
	json_close(out, '}');
	rc = put_connection(q, &i, out, err);
	json_close(out, '}');
	return rc;
}

/* ---- operations ---- */

/* What was no Unicode came as this: two names that differ would be one here, and share files. */
static int check_fact(const char *name, const char *value, struct garret_error *err)
{
	return value && strstr(value, "\xef\xbf\xbd")
		       ? garret_fail(err, GARRET_INVALID, "%s: Unicode, without U+FFFD", name)
		       : 0;
}

/* What isn't there stays NULL. */
static int parse_facts(struct request *q, struct garret_app_facts *ret, struct garret_error *err)
{
	const struct {
		const char *name, **value;
	} facts[] = {
		{ "agent", &ret->agent },
		{ "run", &ret->run },
		{ "conversation", &ret->conversation },
		{ "channel", &ret->channel },
		{ "user", &ret->user },
	};
	int rc = 0;

	*ret = (struct garret_app_facts){ .size = sizeof(*ret), .organisation = q->organisation };
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(facts); i++) {
		rc = arg_text(q, facts[i].name, facts[i].value, err);
		if (rc == 0)
			rc = check_fact(facts[i].name, *facts[i].value, err);
	}
	return rc;
}

static int parse_sandbox(struct request *q, struct garret_app_sandbox *ret,
			 struct garret_error *err)
{
	json_t *v = json_object_get(q->args, "sandbox");
	autofree char *text = v && !json_is_null(v) ? json_dumps(v, JSON_ENCODE_ANY) : NULL;

	garret_app_sandbox_defaults(ret);
	return text ? garret_app_sandbox_parse(text, ret, err) : 0;
}

static int run_open(struct request *q, struct strbuf *out, struct garret_error *err)
{
	static const char *const known[] = { "agent",   "run", "conversation", "channel", "user",
					     "sandbox", NULL };
	struct garret_app_facts f;
	struct garret_app_sandbox sandbox;
	struct garret_app_run *run = NULL;
	int rc = args_known(q, known, err);

	if (rc == 0)
		rc = parse_facts(q, &f, err);
	if (rc == 0)
		rc = parse_sandbox(q, &sandbox, err);
	if (rc == 0)
		rc = garret_app_run_open(q->app, &f, &sandbox, &run, err);
	if (rc == 0)
		rc = put_run(q, run, out, err);
	garret_app_run_close(run, GARRET_APP_DETACHED);
	return rc;
}

static int resume(struct request *q, struct garret_app_run **ret, struct garret_error *err)
{
	const char *id;
	int rc = arg_text(q, "run", &id, err);

	*ret = NULL;
	return rc < 0 ? rc : garret_app_run_resume(q->app, q->organisation, id, ret, err);
}

static int run_get(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_run *run;
	int rc = resume(q, &run, err);

	if (rc == 0)
		rc = put_run(q, run, out, err);
	garret_app_run_close(run, GARRET_APP_DETACHED);
	return rc;
}

/* {"opened": true, "lost": false}: what the application's own client noticed. */
static int run_report(struct request *q, struct strbuf *out, struct garret_error *err)
{
	static const char *const known[] = { "run", "opened", "lost", NULL };
	struct garret_app_run_info i = { .size = sizeof(i) };
	bool opened = false, lost = false;
	struct garret_app_run *run = NULL;
	int rc = args_known(q, known, err);

	if (rc == 0)
		rc = arg_bool(q, "opened", &opened, err);
	if (rc == 0)
		rc = arg_bool(q, "lost", &lost, err);
	if (rc == 0)
		rc = resume(q, &run, err);
	if (rc == 0) {
		garret_app_run_info(run, &i);
		rc = garret_app_run_report(run, opened ? &i.ref : NULL, lost, err);
	}
	if (rc == 0)
		rc = put_run(q, run, out, err);
	garret_app_run_close(run, GARRET_APP_DETACHED);
	return rc;
}

static int run_close(struct request *q, struct strbuf *out, struct garret_error *err)
{
	const char *parked = NULL;
	struct garret_app_run *run = NULL;
	int rc = arg_text(q, "parked", &parked, err);

	(void)out;
	if (rc == 0)
		rc = resume(q, &run, err);
	if (rc == 0)
		garret_app_run_close(run, parked ? GARRET_APP_PARKED : 0);
	return rc;
}

static int scope_key(struct request *q, struct strbuf *out, struct garret_error *err)
{
	static const char *const known[] = { "agent", "run",   "conversation",  "channel",
					     "user",  "scope", "connection_id", NULL };
	struct garret_app_facts f;
	enum garret_app_scope scope = GARRET_APP_SCOPE_CONVERSATION;
	const char *name, *connection;
	char key[GARRET_APP_KEY];
	int rc = args_known(q, known, err);

	if (rc == 0)
		rc = parse_facts(q, &f, err);
	if (rc == 0)
		rc = arg_text(q, "connection_id", &connection, err);
	if (rc == 0)
		rc = arg_text(q, "scope", &name, err);
	if (rc == 0 && name)
		rc = garret_app_scope_parse(name, &scope, err);
	if (rc == 0)
		rc = garret_app_scope_key(&f, scope, connection, key, err);
	if (rc < 0)
		return rc;
	json_open(out, '{');
	put_text(out, "key", key);
	json_close(out, '}');
	return 0;
}

const struct operation run_operations[] = {
	{ "run_open", run_open },   { "run_get", run_get },     { "run_report", run_report },
	{ "run_close", run_close }, { "scope_key", scope_key }, { NULL, NULL },
};
