/*
 * Sessions: open, list, show, end.  A client that goes away doesn't undo what
 * it asked for: the operation ends as it would, there is only nobody to tell.
 */
#include <string.h>

#include "api/handlers.h"
#include "api/wire.h"

static void opened(void *ctx, const struct session_info *info, const char *token,
		   const struct refusal *no)
{
	struct strbuf out = STRBUF_INIT;
	struct call *c = ctx;

	if (!info) {
		call_refusal(c, no);
	} else {
		json_open(&out, '{');
		json_put_key(&out, "session");
		wire_session(&out, info);
		json_put_key(&out, "token");
		json_put_string(&out, token);
		json_close(&out, '}');
		call_answer(c, 200, &out);
	}
	call_unref(c);
}

void sessions_open(struct call *c)
{
	const struct open_values *v = c->values;
	const char *tenant = c->caller.tenant;
	const bool own = *tenant;
	const struct open_request rq = { .session_id = v->session_id,
					 .runtime = v->runtime,
					 .tenant = own ? tenant : v->tenant,
					 .reuse = v->reuse,
					 .attach = v->attach,
					 .own = own };

	if (own && v->tenant && strcmp(v->tenant, tenant) != 0) {
		route_forbid(c, "Another tenant");
		return;
	}
	service_open(c->service, &rq, opened, call_ref(c));
}

static void listed(void *ctx, const struct session_info *infos, size_t n)
{
	struct strbuf out = STRBUF_INIT;
	struct call *c = ctx;
	const struct config *conf = service_config(c->service);
	const char *tenant = c->caller.tenant;

	json_open(&out, '{');
	json_put_key(&out, "sessions");
	json_open(&out, '[');
	for (size_t i = 0; i < n; i++)
		if (!*tenant || (infos[i].tenant && !strcmp(infos[i].tenant, tenant)))
			wire_session(&out, &infos[i]);
	json_close(&out, ']');
	wire_number(&out, "limit", conf->max_sessions);
	wire_number(&out, "open_limit", conf->max_open_sessions);
	wire_number(&out, "tenant_limit", conf->max_sessions_per_tenant);
	json_close(&out, '}');
	call_answer(c, 200, &out);
	call_unref(c);
}

void sessions_list(struct call *c)
{
	const struct usage_values *v = c->values;

	service_sessions(c->service, NULL, v->usage, listed, call_ref(c));
}

static void found(void *ctx, const struct session_info *infos, size_t n)
{
	struct strbuf out = STRBUF_INIT;
	struct call *c = ctx;

	if (n) {
		wire_session(&out, &infos[0]);
		call_answer(c, 200, &out);
	} else {
		call_refuse(c, 404, "No such session: %s", c->session_id);
	}
	call_unref(c);
}

void sessions_get(struct call *c)
{
	const struct usage_values *v = c->values;

	service_sessions(c->service, c->session_id, v->usage, found, call_ref(c));
}

void sessions_close(struct call *c)
{
	const struct purge_values *v = c->values;

	service_close(c->service, c->session_id, v->purge, call_done, call_ref(c));
}

void sessions_sleep(struct call *c)
{
	service_sleep(c->service, c->session_id, call_done, call_ref(c));
}

/* It is: the route woke it. */
void sessions_wake(struct call *c)
{
	call_done(call_ref(c), &(struct refusal){ 0 });
}

static void say_usage(void *ctx, const struct session_info *infos, size_t n)
{
	struct call *c = ctx;
	const struct session_usage *u = n ? &infos->usage : NULL;
	struct strbuf out = STRBUF_INIT;

	if (!n) {
		call_refuse(c, 404, "No such session: %s", c->session_id);
	} else {
		json_open(&out, '{');
		wire_number(&out, "memory_bytes", u->known ? u->memory_bytes : CONFIG_NULL);
		wire_number(&out, "memory_limit_bytes",
			    u->known ? u->memory_limit_bytes : CONFIG_NULL);
		wire_number(&out, "cpu_us", u->known ? u->cpu_us : CONFIG_NULL);
		wire_number(&out, "pids", u->known ? u->pids : CONFIG_NULL);
		wire_number(&out, "oom_kills", u->known ? u->oom_kills : CONFIG_NULL);
		wire_number(&out, "io_read_bytes", u->known ? u->io_read_bytes : CONFIG_NULL);
		wire_number(&out, "io_written_bytes", u->known ? u->io_written_bytes : CONFIG_NULL);
		wire_number(&out, "disk_bytes", u->known ? u->disk_bytes : CONFIG_NULL);
		json_close(&out, '}');
		call_answer(c, 200, &out);
	}
	call_unref(c);
}

void sessions_usage(struct call *c)
{
	service_sessions(c->service, c->session_id, true, say_usage, call_ref(c));
}
