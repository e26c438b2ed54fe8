/* The worker: settings from the environment, requests from a socket. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "appd/appd.h"
#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "net/json.h"

#define SOCKET_FD 3
#define FRAME_MAX (64u << 20)
#define OPENING_SECONDS 30 /* what is looked into and removed here is there already; people wait */

/* ---- sweeping: what garretd asks for, now and then, for all organisations ---- */

static int sweep(struct request *q, struct strbuf *out, struct garret_error *err)
{
	struct garret_app_swept swept = { .size = sizeof(swept) };
	int rc = garret_app_sweep(q->app, &swept, err);

	(void)out;
	if (rc < 0)
		log_warn("sweep", "%s", err->msg);
	if (swept.runs || swept.purged)
		log_info("sweep", "runs=%llu purged=%llu waiting=%llu",
			 (unsigned long long)swept.runs, (unsigned long long)swept.purged,
			 (unsigned long long)swept.waiting);
	return rc;
}

static const struct operation own_operations[] = { { "sweep", sweep }, { NULL, NULL } };

/* ---- answering ---- */

static operation_fn *find(const char *name)
{
	const struct operation *const tables[] = { scope_operations, file_operations,
						   run_operations, own_operations };

	for (size_t t = 0; name && t < ARRAY_SIZE(tables); t++)
		for (const struct operation *o = tables[t]; o->name; o++)
			if (!strcmp(o->name, name))
				return o->fn;
	return NULL;
}

static int perform(struct garret_app *app, const char *text, size_t n, const char *raw,
		   struct strbuf *out, struct garret_error *err)
{
	json_t *v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	struct request q = { .app = app,
			     .organisation = json_string_value(json_object_get(v, "organisation")),
			     .args = json_object_get(v, "args"),
			     .trusted = json_is_true(json_object_get(v, "trusted")),
			     .raw = raw };
	operation_fn *fn = find(json_string_value(json_object_get(v, "op")));
	int rc = fn && q.organisation && json_is_object(q.args)
			 ? fn(&q, out, err)
			 : garret_fail(err, GARRET_PROTOCOL, "that is no request");

	json_decref(v);
	return rc;
}

/* {"detail", "error"}, as every refusal of the service. */
static void put_refusal(struct strbuf *out, const struct garret_error *err)
{
	strbuf_reset(out);
	json_open(out, '{');
	put_text(out, "detail", err->msg);
	put_text(out, "error", garret_code_name(err->code));
	json_close(out, '}');
}

static bool answer(int fd, struct garret_app *app, const char *frame, size_t n)
{
	autobuf struct strbuf out = STRBUF_INIT;
	struct garret_error err = { 0 };
	uint32_t json, head[2];

	memcpy(&json, frame, sizeof(json));
	if (json > n - sizeof(json))
		return false;
	frame += sizeof(json);
	if (perform(app, frame, json, frame + json, &out, &err) < 0) {
		head[1] = (uint32_t)garret_code_http(err.code);
		put_refusal(&out, &err);
	} else {
		head[1] = out.len ? 200 : 204;
	}
	head[0] = (uint32_t)out.len;
	return write_full(fd, head, sizeof(head)) >= 0 && write_full(fd, out.buf, out.len) >= 0;
}

/* One request; false at the end of the connection. */
static bool serve_one(int fd, struct garret_app *app)
{
	autofree char *frame = NULL;
	uint32_t n;

	if (read_full(fd, &n, sizeof(n)) != (ssize_t)sizeof(n) || n < sizeof(uint32_t) ||
	    n > FRAME_MAX)
		return false;
	frame = xmalloc((size_t)n + 1);
	frame[n] = '\0';
	return read_full(fd, frame, n) == (ssize_t)n && answer(fd, app, frame, n);
}

/* ---- settings ---- */

static void on_event(void *data, const char *event, const char *fields)
{
	(void)data;
	log_warn(event, "%s", fields);
}

static int setting_size(const char *name, uint64_t *ret, struct garret_error *err)
{
	const char *v = getenv(name);

	if (v && *v && (!parse_u64(v, ret) || !*ret))
		return garret_fail(err, GARRET_INVALID, "%s: bytes, 1 or more", name);
	return 0;
}

static int open_app(struct garret_context *c, struct garret_app **ret, struct garret_error *err)
{
	const char *database = getenv("GARRET_APP_DATABASE");
	struct garret_app_options o = { .size = sizeof(o),
					.database = database && *database ? database : NULL,
					.state_dir = getenv("GARRET_APP_DIR"),
					.event = on_event,
					.opening_timeout = OPENING_SECONDS };
	int rc = setting_size("SANDBOX_STATE_MAX_BYTES", &o.state_max_bytes, err);

	if (rc == 0)
		rc = setting_size("SANDBOX_INLINE_IMAGE_MAX_BYTES", &o.inline_image_max_bytes, err);
	return rc < 0 ? rc : garret_app_open(c, &o, ret, err);
}

int main(int argc, char **argv)
{
	struct garret_context *context = NULL;
	struct garret_app *app = NULL;
	struct garret_error err = { 0 };
	int type = 0;
	socklen_t n = sizeof(type);

	(void)argv;
	if (argc > 1 || getsockopt(SOCKET_FD, SOL_SOCKET, SO_TYPE, &type, &n) < 0) {
		(void)fputs("garret-app: garretd starts it; see garretd(8)\n", stderr);
		return 2;
	}
	(void)fd_set_cloexec(SOCKET_FD, true);
	log_setup("garret-app", LOG_INFO, false);
	if (garret_context_new(NULL, &context, &err) < 0 || open_app(context, &app, &err) < 0) {
		log_error("start", "%s", err.msg);
		garret_context_free(context);
		return 1;
	}
	while (serve_one(SOCKET_FD, app))
		;
	garret_app_free(app);
	garret_context_free(context);
	return 0;
}
