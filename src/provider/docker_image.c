/*
 * Pulling an image.  The engine talks to the registry; we give it what the
 * docker command's configuration holds for that registry, in a header.  Errors
 * come inside the stream of progress as text: what a registry said is kept, and
 * anything in it that we know to be secret is not.
 */
#include <jansson.h>
#include <nettle/base64.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "net/json.h"
#include "provider/docker_child.h"
#include "provider/docker_impl.h"

#define HUB "https://index.docker.io/v1/"
#define SECRETS 3
#define HELPER_MS 30000
#define HELPER_KEEP 65536
#define TELL_MS 1000

struct docker_pull {
	struct docker_api *a;
	struct docker_call *call;
	struct docker_child *child;
	struct loop_later later;
	char *image, *helper;
	char *secret[SECRETS]; /* never in a message */
	struct garret_error failed;
	docker_pulled_fn fn;
	void *ctx;
	void (*tell)(void *ctx, const char *text);
	void *tell_ctx;
	uint64_t told_ms;
};

static void pull_free(struct docker_pull *p)
{
	for (unsigned i = 0; i < SECRETS; i++) {
		if (p->secret[i])
			explicit_bzero(p->secret[i], strlen(p->secret[i]));
		free(p->secret[i]);
	}
	free(p->image);
	free(p->helper);
	free(p);
}

/* ---- what the registry said ---- */

static enum garret_code code_of(const char *text)
{
	static const struct {
		const char *part;
		enum garret_code code;
	} parts[] = {
		{ "toomanyrequests", GARRET_EXHAUSTED },
		{ "Too Many Requests", GARRET_EXHAUSTED },
		{ "rate limit", GARRET_EXHAUSTED },
		{ "unauthorized", GARRET_DENIED },
		{ "no basic auth credentials", GARRET_DENIED },
		{ "authentication required", GARRET_DENIED },
		{ "Forbidden", GARRET_DENIED },
		{ "denied", GARRET_DENIED },
		{ "manifest unknown", GARRET_NOT_FOUND },
		{ "not found", GARRET_NOT_FOUND },
		{ "does not exist", GARRET_NOT_FOUND },
		{ "no such host", GARRET_UNAVAILABLE },
		{ "connection refused", GARRET_UNAVAILABLE },
		{ "timeout", GARRET_UNAVAILABLE },
		{ "Timeout", GARRET_UNAVAILABLE },
		{ "no space left", GARRET_NO_SPACE },
	};

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (strstr(text, parts[i].part))
			return parts[i].code;
	return GARRET_INTERNAL;
}

static void hide(char *text, const char *secret)
{
	const size_t n = secret ? strlen(secret) : 0;

	if (n < 3)
		return;
	for (char *p = strstr(text, secret); p; p = strstr(p, secret))
		memset(p, '*', n);
}

static void keep_error(struct docker_pull *p, const char *said, enum garret_code code)
{
	autofree char *text = xstrndup(said, 4096);

	for (unsigned i = 0; i < SECRETS; i++)
		hide(text, p->secret[i]);
	docker_clean(text);
	if (!code || code == GARRET_INTERNAL || code == GARRET_NOT_FOUND)
		code = code_of(text) != GARRET_INTERNAL || !code ? code_of(text) : code;
	(void)garret_fail(&p->failed, code, "pull %.100s: %.300s", p->image, text);
}

/* A line of the engine's own: what it does, to which layer, how far. */
static void tell(struct docker_pull *p, const json_t *v)
{
	const char *status = json_string_value(json_object_get(v, "status"));
	const char *layer = json_string_value(json_object_get(v, "id"));
	const char *far = json_string_value(json_object_get(v, "progress"));
	autofree char *text = NULL;

	if (!p->tell || !status || now_ms() - p->told_ms < TELL_MS)
		return;
	p->told_ms = now_ms();
	text = xasprintf("pulling %.100s: %.60s %.60s %.100s", p->image, status, layer ? layer : "",
			 far ? far : "");
	p->tell(p->tell_ctx, text);
}

void docker_pull_tell(struct docker_pull *p, void (*fn)(void *ctx, const char *text), void *ctx)
{
	autofree char *text = xasprintf("pulling %.100s", p->image);

	p->tell = fn;
	p->tell_ctx = ctx;
	p->told_ms = now_ms();
	if (fn)
		fn(ctx, text);
}

static void on_value(void *ctx, const struct json_t *json)
{
	struct docker_pull *p = ctx;
	const json_t *v = json;
	const char *text = json_string_value(json_object_get(v, "error"));

	if (!text)
		text = json_string_value(
			json_object_get(json_object_get(v, "errorDetail"), "message"));
	if (text && !p->failed.code)
		keep_error(p, text, GARRET_OK);
	tell(p, v);
}

static void on_done(void *ctx, const struct json_t *json, const struct garret_error *err)
{
	struct docker_pull *p = ctx;

	(void)json;
	if (err && !p->failed.code)
		keep_error(p, strncmp(err->msg, "docker: ", 8) ? err->msg : err->msg + 8,
			   err->code);
	p->call = NULL;
	p->fn(p->ctx, p->failed.code ? &p->failed : NULL);
	pull_free(p);
}

/* ---- credentials ---- */

/* The registry of an image: the part before the first slash, when it looks like a host. */
static char *registry_of(const char *image)
{
	const size_t n = strcspn(image, "/");

	if (image[n] == '/' &&
	    (memchr(image, '.', n) || memchr(image, ':', n) || !strncmp(image, "localhost/", 10)))
		return xstrndup(image, n);
	return xstrdup(HUB);
}

static char *base64(const char *text, size_t n, bool url)
{
	char *out = xmalloc(BASE64_ENCODE_RAW_LENGTH(n) + 1);

	base64_encode_raw(out, n, (const uint8_t *)text);
	out[BASE64_ENCODE_RAW_LENGTH(n)] = '\0';
	for (char *p = out; url && *p; p++)
		*p = *p == '+' ? '-' : *p == '/' ? '_' : *p;
	return out;
}

/* "user:password" of an entry: plain, or both in one field. */
static void take_auth(struct docker_pull *p, const json_t *entry, struct strbuf *out)
{
	const char *both = json_string_value(json_object_get(entry, "auth"));
	const char *token = json_string_value(json_object_get(entry, "identitytoken"));
	const char *user = json_string_value(json_object_get(entry, "username"));
	const char *password = json_string_value(json_object_get(entry, "password"));
	autofree char *plain = NULL;
	struct base64_decode_ctx c;
	size_t n = 0;

	if (both && *both) {
		char *colon;

		base64_decode_init(&c);
		plain = xmalloc(BASE64_DECODE_LENGTH(strlen(both)) + 1);
		if (!base64_decode_update(&c, &n, (uint8_t *)plain, strlen(both), both))
			n = 0;
		plain[n] = '\0';
		colon = strchr(plain, ':');
		if (colon) {
			*colon = '\0';
			user = plain;
			password = colon + 1;
		}
	}
	p->secret[0] = password ? xstrdup(password) : NULL;
	p->secret[1] = token ? xstrdup(token) : NULL;
	p->secret[2] = both ? xstrdup(both) : NULL;
	if (token && *token) {
		json_put_key(out, "identitytoken");
		json_put_string(out, token);
	} else if (user && password) {
		json_put_key(out, "username");
		json_put_string(out, user);
		json_put_key(out, "password");
		json_put_string(out, password);
	}
	if (plain)
		explicit_bzero(plain, n);
}

static const json_t *entry_of(const json_t *config, const char *registry)
{
	const json_t *auths = json_object_get(config, "auths");
	const json_t *v = json_object_get(auths, registry);
	autofree char *url = xasprintf("https://%s", registry);

	return v ? v : json_object_get(auths, url);
}

/* "X-Registry-Auth: ..." from the inside of an object; NULL when that is empty. */
static char *header_of(struct strbuf *inside, const char *registry)
{
	autobuf struct strbuf b = STRBUF_INIT;
	autofree char *encoded = NULL;

	if (!inside->len)
		return NULL;
	json_open(&b, '{');
	strbuf_add(&b, inside->buf, inside->len);
	json_put_key(&b, "serveraddress");
	json_put_string(&b, registry);
	json_close(&b, '}');
	encoded = base64(b.buf, b.len, true);
	explicit_bzero(b.buf, b.len);
	explicit_bzero(inside->buf, inside->len);
	return xasprintf("X-Registry-Auth: %s", encoded);
}

/* ---- asking ---- */

/* Without a tag the engine would pull all there are. */
static char *pull_path(const char *image)
{
	autobuf struct strbuf name = STRBUF_INIT, tag = STRBUF_INIT;
	const char *slash = strrchr(image, '/'), *at = strchr(image, '@');
	const char *colon = at ? at : strchr(slash ? slash : image, ':');
	autofree char *base = xstrndup(image, colon ? (size_t)(colon - image) : strlen(image));

	docker_escape(&name, base);
	docker_escape(&tag, colon ? colon + 1 : "latest");
	return xasprintf("/images/create?fromImage=%s&tag=%s", name.buf, tag.buf);
}

static void ask(struct docker_pull *p, char *header)
{
	autofree char *path = pull_path(p->image);

	p->call = docker_ask(p->a,
			     &(struct docker_request){ .method = "POST",
						       .path = path,
						       .header = header,
						       .total_ms = UINT32_MAX,
						       .value = on_value },
			     on_done, p);
	if (header)
		explicit_bzero(header, strlen(header));
}

/* ---- a program that keeps them ---- */

static void helper_failed(struct docker_pull *p, enum garret_code code, const char *text)
{
	(void)garret_fail(&p->failed, code, "pull %.100s: docker-credential-%s %s", p->image,
			  p->helper, text);
	p->fn(p->ctx, &p->failed);
	pull_free(p);
}

static void on_helper(void *ctx, int code, struct strbuf *out, const struct garret_error *err)
{
	struct docker_pull *p = ctx;
	json_t *v = NULL;
	const char *user, *secret;
	autobuf struct strbuf inside = STRBUF_INIT;
	autofree char *registry = registry_of(p->image), *header = NULL;

	p->child = NULL;
	if (err) {
		helper_failed(p, err->code, err->msg);
		return;
	}
	/* What it says otherwise isn't shown: nobody knows what is in it. */
	if (code != 0 && !strstr(out->buf, "credentials not found")) {
		helper_failed(p, GARRET_DENIED, "failed");
		return;
	}
	v = code == 0 ? json_loadb(out->buf, out->len, 0, NULL) : NULL;
	user = json_string_value(json_object_get(v, "Username"));
	secret = json_string_value(json_object_get(v, "Secret"));
	if (code == 0 && (!user || !secret)) {
		json_decref(v);
		helper_failed(p, GARRET_PROTOCOL, "answered with something else");
		return;
	}
	if (secret) {
		const bool token = !strcmp(user, "<token>");

		p->secret[0] = xstrdup(secret);
		if (!token) {
			json_put_key(&inside, "username");
			json_put_string(&inside, user);
		}
		json_put_key(&inside, token ? "identitytoken" : "password");
		json_put_string(&inside, secret);
	}
	json_decref(v);
	header = header_of(&inside, registry);
	ask(p, header);
}

/* What such programs need of an environment, and nothing else of ours. */
static bool for_helper(const char *setting)
{
	static const char *const parts[] = { "PATH=",
					     "HOME=",
					     "XDG_RUNTIME_DIR=",
					     "DBUS_SESSION_BUS_ADDRESS=",
					     "GNUPGHOME=",
					     "PASSWORD_STORE_DIR=",
					     "AWS_",
					     "GOOGLE_",
					     "AZURE_" };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (!strncmp(setting, parts[i], strlen(parts[i])))
			return true;
	return false;
}

static int run_helper(struct docker_pull *p, struct garret_error *err)
{
	autofree char *program = xasprintf("docker-credential-%s", p->helper);
	autofree char *registry = registry_of(p->image);
	autofree const char **env = NULL;
	const char *const argv[] = { program, "get", NULL };
	size_t n = 0;

	while (environ[n])
		n++;
	env = xcalloc(n + 1, sizeof(*env));
	n = 0;
	for (char **e = environ; *e; e++)
		if (for_helper(*e))
			env[n++] = *e;
	p->child = docker_child_start(docker_api_loop(p->a),
				      &(struct docker_child_spec){ .argv = argv,
								   .env = env,
								   .input = registry,
								   .timeout_ms = HELPER_MS,
								   .keep = HELPER_KEEP },
				      on_helper, p, err);
	return p->child ? 0 : -(int)err->code;
}

static char *helper_of(const json_t *config, const char *registry)
{
	const char *name = json_string_value(
		json_object_get(json_object_get(config, "credHelpers"), registry));

	if (!name)
		name = json_string_value(json_object_get(config, "credsStore"));
	/* It becomes the name of a program. */
	return name && name_valid(name) ? xstrdup(name) : NULL;
}

/* ---- starting ---- */

static void on_no_helper(struct loop_later *l)
{
	struct docker_pull *p = l->ctx;

	p->fn(p->ctx, &p->failed);
	pull_free(p);
}

struct docker_pull *docker_pull(struct docker_api *a, const char *image, docker_pulled_fn fn,
				void *ctx)
{
	struct docker_pull *p = xnew(struct docker_pull);
	autofree char *dir = docker_config_dir(), *registry = registry_of(image);
	autofree char *file = xasprintf("%s/config.json", dir),
		      *text = docker_read_file(file, NULL);
	autofree char *header = NULL;
	json_t *config = text ? json_loads(text, 0, NULL) : NULL;
	autobuf struct strbuf inside = STRBUF_INIT;

	p->a = a;
	p->image = xstrdup(image);
	p->fn = fn;
	p->ctx = ctx;
	p->helper = helper_of(config, registry);
	if (p->helper) {
		if (run_helper(p, &p->failed) < 0)
			loop_later_add(docker_api_loop(a), &p->later, on_no_helper, p);
	} else {
		take_auth(p, entry_of(config, registry), &inside);
		header = header_of(&inside, registry);
		ask(p, header);
	}
	json_decref(config);
	if (text)
		explicit_bzero(text, strlen(text));
	return p;
}

void docker_pull_leave(struct docker_pull *p)
{
	if (p->call)
		docker_cancel(p->call);
	if (p->child)
		docker_child_leave(p->child);
	loop_later_cancel(docker_api_loop(p->a), &p->later);
	pull_free(p);
}
