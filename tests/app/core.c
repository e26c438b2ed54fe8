/*
 * The parts of the core that the files around the tools use, without a database: so these are
 * tested on runs that were made by hand.
 */
#include <nettle/sha2.h>
#include <stdarg.h>
#include <string.h>

#include "app/app_impl.h"
#include "base/text.h"
#include "world.h"

void app_lock(struct garret_app *app)
{
	(void)pthread_mutex_lock(&app->lock);
}

void app_unlock(struct garret_app *app)
{
	(void)pthread_mutex_unlock(&app->lock);
}

struct garret_app_run *app_root(struct garret_app_run *run)
{
	return run->parent ? run->parent : run;
}

struct garret_app_run *core_recorded;
enum garret_code core_refuses;

int app_own_spills(struct garret_app_run *run, struct garret_error *err)
{
	if (core_refuses)
		return garret_fail(err, core_refuses, "the database refuses");
	core_recorded = run;
	return 0;
}

void app_event(struct garret_app *app, const char *event, ...)
{
	autobuf struct strbuf fields = STRBUF_INIT;
	const char *name;
	va_list ap;

	va_start(ap, event);
	while ((name = va_arg(ap, const char *)))
		strbuf_addf(&fields, "%s=%s ", name, va_arg(ap, const char *));
	va_end(ap);
	app->event(app->event_data, event, fields.buf);
}

void app_sha256(const void *data, size_t n, char ret[65])
{
	struct sha256_ctx ctx;
	uint8_t digest[SHA256_DIGEST_SIZE];

	sha256_init(&ctx);
	sha256_update(&ctx, n, data);
	sha256_digest(&ctx, sizeof(digest), digest);
	hex_encode(digest, sizeof(digest), ret);
}
