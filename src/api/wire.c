#include "api/wire.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"

/* ---- shapes ---- */

static void string(struct strbuf *out, const char *key, const char *v)
{
	json_put_key(out, key);
	json_put_string(out, v);
}

static void real(struct strbuf *out, const char *key, double v)
{
	json_put_key(out, key);
	json_put_double(out, v);
}

static void boolean(struct strbuf *out, const char *key, bool v)
{
	json_put_key(out, key);
	json_put_bool(out, v);
}

void wire_number(struct strbuf *out, const char *key, int64_t v)
{
	json_put_key(out, key);
	if (v == CONFIG_NULL)
		json_put_null(out);
	else
		json_put_int(out, v);
}

/* Counters and CPU shares: anything below zero is not known or not set. */
static void real_or_null(struct strbuf *out, const char *key, double v)
{
	json_put_key(out, key);
	if (v < 0)
		json_put_null(out);
	else
		json_put_double(out, v);
}

static void counter(struct strbuf *out, const char *key, int64_t v)
{
	wire_number(out, key, v < 0 ? CONFIG_NULL : v);
}

static void usage(struct strbuf *out, const struct session_usage *u)
{
	json_put_key(out, "usage");
	if (!u->known) {
		json_put_null(out);
		return;
	}
	json_open(out, '{');
	counter(out, "memory_bytes", u->memory_bytes);
	counter(out, "memory_limit_bytes", u->memory_limit_bytes);
	real_or_null(out, "cpu_percent", u->cpu_percent);
	counter(out, "pids", u->pids);
	json_close(out, '}');
}

void wire_session(struct strbuf *out, const struct session_info *info)
{
	json_open(out, '{');
	string(out, "session_id", info->id);
	string(out, "runtime", info->runtime);
	string(out, "tenant", info->tenant);
	boolean(out, "alive", info->alive);
	string(out, "state", info->hibernated ? "hibernated" : "running");
	real(out, "created_at", info->created_at);
	real(out, "last_activity", info->last_activity);
	real(out, "idle_seconds", fmax(info->idle_seconds, 0));
	usage(out, &info->usage);
	json_close(out, '}');
}

void wire_event(struct strbuf *out, const struct session_event *e)
{
	json_open(out, '{');
	wire_number(out, "seq", (int64_t)e->seq);
	real(out, "at", e->at);
	string(out, "op", e->op);
	string(out, "target", e->target);
	boolean(out, "ok", e->ok);
	string(out, "detail", e->detail);
	real(out, "duration_ms", round(e->duration_ms * 10) / 10);
	json_close(out, '}');
}

static int by_alias(const void *a, const void *b)
{
	const struct runtime_entry *const *x = a, *const *y = b;

	return strcmp((*x)->alias, (*y)->alias);
}

static const struct runtime_entry **sorted_runtimes(const struct config *c)
{
	const struct runtime_entry **v = xcalloc(c->n_runtimes + 1, sizeof(void *));

	for (unsigned i = 0; i < c->n_runtimes; i++)
		v[i] = &c->runtimes[i];
	qsort(v, c->n_runtimes, sizeof(void *), by_alias);
	return v;
}

static void runtime(struct strbuf *out, const struct config *c, const struct runtime_entry *r)
{
	const char *shown = r->shown ? r->shown : r->source;

	json_open(out, '{');
	string(out, "alias", r->alias);
	string(out, "image", shown);
	string(out, "description", *r->description ? r->description : shown);
	boolean(out, "builds", r->builds);
	string(out, "mem_limit", config_mem_limit(c, r));
	string(out, "memswap_limit", config_memswap_limit(c, r));
	real_or_null(out, "cpus", config_cpus(c, r));
	wire_number(out, "cpu_shares", config_cpu_shares(c, r));
	wire_number(out, "pids_limit", config_pids_limit(c, r));
	string(out, "network_mode", config_network(c, r));
	string(out, "oci_runtime", r->oci_runtime ? r->oci_runtime : c->oci_runtime);
	json_close(out, '}');
}

void wire_policy(struct strbuf *out, const struct config *c)
{
	autofree const struct runtime_entry **sorted = sorted_runtimes(c);

	json_open(out, '{');
	json_put_key(out, "runtimes");
	json_open(out, '[');
	for (unsigned i = 0; i < c->n_runtimes; i++)
		runtime(out, c, sorted[i]);
	json_close(out, ']');
	string(out, "default_runtime", c->default_runtime);
	wire_number(out, "max_sessions", c->max_sessions);
	wire_number(out, "max_open_sessions", c->max_open_sessions);
	wire_number(out, "max_sessions_per_tenant", c->max_sessions_per_tenant);
	wire_number(out, "evict_idle_after", c->evict_idle_after);
	string(out, "mem_limit", c->mem_limit);
	string(out, "memswap_limit", c->memswap_limit);
	real_or_null(out, "cpus", c->cpus);
	wire_number(out, "cpu_shares", c->cpu_shares);
	wire_number(out, "pids_limit", c->pids_limit);
	string(out, "network_mode", c->network_mode);
	string(out, "oci_runtime", c->oci_runtime);
	string(out, "work_dir", c->work_dir);
	wire_number(out, "idle_timeout", c->idle_timeout);
	wire_number(out, "execute_timeout", c->execute_timeout);
	wire_number(out, "max_read_bytes", c->max_read_bytes);
	boolean(out, "persist_containers", c->persist_containers);
	wire_number(out, "sandbox_uid", c->sandbox_uid);
	wire_number(out, "workspace_ttl", c->workspace_ttl);
	wire_number(out, "container_ttl", c->container_ttl);
	string(out, "tmpfs_size", c->tmpfs_size);
	boolean(out, "prewarm", c->prewarm);
	boolean(out, "buildkit", false);
	boolean(out, "native_files", c->native_files);
	boolean(out, "native_writes", c->native_files);
	boolean(out, "native_realpath", c->native_files);
	json_close(out, '}');
}

void wire_health(struct strbuf *out, const struct service *s)
{
	const struct config *c = service_config(s);
	struct service_counts n = service_counts(s);
	autofree const struct runtime_entry **sorted = sorted_runtimes(c);

	json_open(out, '{');
	string(out, "status", "ok");
	wire_number(out, "sessions", (int64_t)n.resident);
	wire_number(out, "limit", c->max_sessions);
	wire_number(out, "open_sessions", (int64_t)n.open);
	wire_number(out, "open_limit", c->max_open_sessions);
	json_put_key(out, "runtimes");
	json_open(out, '[');
	for (unsigned i = 0; i < c->n_runtimes; i++)
		json_put_string(out, sorted[i]->alias);
	json_close(out, ']');
	boolean(out, "ready", service_ready(s));
	json_close(out, '}');
}

/* ---- answers ---- */

void call_answer(struct call *c, unsigned status, struct strbuf *json)
{
	if (c->rq)
		http_answer_buf(c->rq, status, WIRE_JSON, json);
	else
		strbuf_release(json);
}

void call_no_content(struct call *c)
{
	if (c->rq)
		http_answer_static(c->rq, 204, WIRE_JSON, "", 0);
}

static void detail(struct call *c, unsigned status, const char *text, const char *reason)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	string(&out, "detail", text);
	if (reason)
		string(&out, "reason", reason);
	json_close(&out, '}');
	if (status == 503 && c->rq)
		http_add_header(c->rq, "retry-after", "1");
	call_answer(c, status, &out);
}

void call_refuse(struct call *c, unsigned status, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	detail(c, status, text, NULL);
}

void call_refusal(struct call *c, const struct refusal *no)
{
	detail(c, no->status ? (unsigned)no->status : 500, no->detail, no->reason);
}

void call_done(void *ctx, const struct refusal *no)
{
	struct call *c = ctx;

	if (no && no->status)
		call_refusal(c, no);
	else
		call_no_content(c);
	call_unref(c);
}

void call_invalid(struct call *c, struct json_errors *e)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "detail");
	json_open(&out, '[');
	strbuf_add(&out, e->items.buf, e->items.len);
	json_close(&out, ']');
	json_close(&out, '}');
	strbuf_release(&e->items);
	call_answer(c, 422, &out);
}
