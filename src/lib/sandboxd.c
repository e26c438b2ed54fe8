/* Workspaces that are sessions of another service: a garretd, or the published sandboxd. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "garret/workspace.h"
#include "lib/backend.h"
#include "net/httpc.h"
#include "provider/remote.h"

static const struct option_row options[] = {
	{ "service_url", OPTION_TEXT, NULL, "http(s)://HOST[:PORT]" },
	{ "socket", OPTION_PATH, NULL, "a Unix socket in place of the host" },
	{ "token", OPTION_TEXT, NULL, "the service's token" },
	{ "provider", OPTION_TEXT, NULL, "the name in refs, one for each service (sandboxd)" },
	{ "runtime", OPTION_TEXT, NULL, "a runtime of the service" },
	{ "tenant", OPTION_NAME, NULL, "whom the sessions belong to" },
	{ "env", OPTION_ENV, NULL, "a variable of every command" },
	{ "session_name", OPTION_NAME, NULL, "one session of that name, shared by its clients" },
	{ "request_timeout", OPTION_SECONDS, NULL, "of one request (30)" },
	{ "opening_timeout", OPTION_SECONDS, NULL, "of opening a session (600)" },
	{ "ca_file", OPTION_PATH, NULL, "certificates that are trusted" },
	{ "cert_file", OPTION_PATH, NULL, "our own certificate" },
	{ "key_file", OPTION_PATH, NULL, "its key" },
	{ NULL, OPTION_TEXT, NULL, NULL },
};

struct remote {
	const struct remote_table *table;
	struct garret_provider *provider;
};

static int remote_check(struct garret_options *o, struct garret_error *err)
{
	if (!option_text(o, "service_url") && !option_text(o, "socket"))
		return garret_fail(err, GARRET_INVALID, "service_url (or socket): it must be set");
	if (!option_text(o, "cert_file") != !option_text(o, "key_file"))
		return garret_fail(err, GARRET_INVALID, "cert_file and key_file: both or neither");
	return 0;
}

static bool remote_owns(const struct garret_options *o, const char *id)
{
	const char *name = option_text(o, "session_name");

	return name ? !strcmp(name, id) : name_valid(id);
}

static const char *remote_named(const struct garret_options *o)
{
	return option_text(o, "session_name");
}

static void remote_spec(struct garret_provider *p, struct box_spec *spec)
{
	(void)p;
	spec->work_dir = "/";
}

static void on_waiting(void *ctx)
{
	const struct garret_options *o = ((struct remote *)ctx)->provider->options;

	if (o->notice)
		o->notice(o->notice_data, "the session is still being opened");
}

static int remote_start(struct garret_provider *p, const struct garret_cancel *cancel,
			struct garret_error *err)
{
	const struct garret_options *o = p->options;
	const char *url = option_text(o, "service_url");
	const struct httpc_tls tls = { .ca = option_text(o, "ca_file"),
				       .cert = option_text(o, "cert_file"),
				       .key = option_text(o, "key_file") };
	struct remote *r = xnew(struct remote);
	const struct sandboxd_config config = {
		.loop = p->context->loop,
		.url = url ? url : "http://localhost",
		.socket = option_text(o, "socket"),
		.tls = tls.ca || tls.cert ? &tls : NULL,
		.token = option_text(o, "token"),
		.session_name = option_text(o, "session_name"),
		.runtime = option_text(o, "runtime"),
		.tenant = option_text(o, "tenant"),
		.request_ms = option_millis(o, "request_timeout"),
		.opening_ms = option_millis(o, "opening_timeout"),
		.waiting = on_waiting,
		.ctx = r,
	};
	int rc = remote_load(&r->table, err);

	(void)cancel;
	if (rc == 0)
		rc = r->table->sandboxd_new(&config, &p->impl, err);
	if (rc < 0) {
		free(r);
		return rc;
	}
	r->provider = p;
	p->own = r;
	p->ops = r->table->sandboxd;
	return 0;
}

static void remote_stop(struct garret_provider *p)
{
	struct remote *r = p->own;

	p->impl = r->table->sandboxd_free(p->impl);
	free(r);
}

static unsigned remote_more(const struct backend *b)
{
	const struct remote *r = b->provider->own;

	return r->table->sandboxd_is_ours(b->box) ? GARRET_HAS_STREAMS : 0;
}

static bool remote_ends(const struct garret_options *o)
{
	(void)o;
	return false;
}

const struct provider_kind sandboxd_kind = {
	.name = "sandboxd",
	.options = options,
	.abilities = GARRET_HAS_COMMANDS | GARRET_HAS_FILES | GARRET_HAS_REALPATH | GARRET_ISOLATES,
	.goes_on = true,
	.check = remote_check,
	.owns = remote_owns,
	.named = remote_named,
	.start = remote_start,
	.stop = remote_stop,
	.spec = remote_spec,
	.more = remote_more,
	.ends = remote_ends,
};
