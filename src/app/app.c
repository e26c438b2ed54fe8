#include "garret/app.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/time.h"
#include "net/json.h"

#define LEASE 86400.0

/* ---- small things ---- */

void app_lock(struct garret_app *app)
{
	(void)pthread_mutex_lock(&app->lock);
}

void app_unlock(struct garret_app *app)
{
	(void)pthread_mutex_unlock(&app->lock);
}

double app_now(void)
{
	return (double)wall_us() / 1e6;
}

void app_event(struct garret_app *app, const char *event, ...)
{
	autobuf struct strbuf fields = STRBUF_INIT;
	const char *name;
	va_list ap;

	if (!app->event)
		return;
	json_open(&fields, '{');
	va_start(ap, event);
	while ((name = va_arg(ap, const char *)) != NULL) {
		json_put_key(&fields, name);
		json_put_string(&fields, va_arg(ap, const char *));
	}
	va_end(ap);
	json_close(&fields, '}');
	app->event(app->event_data, event, fields.buf);
}

int app_id(const char *field, const char *text, char ret[GARRET_APP_ID], struct garret_error *err)
{
	size_t n = 0;

	if (!text)
		return garret_fail(err, GARRET_INVALID, "%s: it is needed", field);
	for (; *text && n < GARRET_APP_ID; text++) {
		const char c = *text;

		if (c == '-')
			continue;
		if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))
			ret[n++] = c;
		else if (c >= 'A' && c <= 'F')
			ret[n++] = (char)(c - 'A' + 'a');
		else
			break;
	}
	if (*text || n != GARRET_APP_ID - 1)
		return garret_fail(err, GARRET_INVALID,
				   "%s: a UUID, 32 hexadecimal digits with or without dashes",
				   field);
	ret[n] = '\0';
	return 0;
}

/* For so few bytes the kernel never fails; without them nothing here would be safe. */
void app_random(void *ret, size_t n)
{
	while (getrandom(ret, n, 0) != (ssize_t)n)
		;
}

void app_new_id(char ret[GARRET_APP_ID])
{
	uint8_t random[16];

	app_random(random, sizeof(random));
	hex_encode(random, sizeof(random), ret);
}

int app_check_text(const char *field, const char *text, size_t least, size_t most,
		   struct garret_error *err)
{
	const size_t n = text ? strlen(text) : 0;
	bool bad = n < least || n > most || !utf8_valid(text ? text : "", n);

	for (size_t i = 0; i < n && !bad; i++)
		bad = (unsigned char)text[i] < ' ' || text[i] == 0x7f;
	if (!bad)
		return 0;
	return garret_fail(err, GARRET_INVALID,
			   "%s: %zu to %zu bytes of UTF-8 without control characters", field, least,
			   most);
}

void app_copy(char *ret, size_t cap, const char *text)
{
	const size_t n = text ? strnlen(text, cap - 1) : 0;

	memcpy(ret, n ? text : "", n);
	ret[n] = '\0';
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

int app_query(struct garret_app *app, const char *sql, const struct db_value *args, size_t n_args,
	      struct db_rows *ret, struct garret_error *err)
{
	int rc;

	app_lock(app);
	rc = db_query(app->db, sql, args, n_args, ret, err);
	app_unlock(app);
	return rc;
}

int app_file_make(int state_fd, const char *name, const void *data, size_t n,
		  struct garret_error *err)
{
	char id[GARRET_APP_ID], temporary[64];
	autoclose int fd = -EBADF;
	int rc = 0;

	app_new_id(id);
	(void)snprintf(temporary, sizeof(temporary), "%s.%s", name, id);
	fd = openat(state_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write_full(fd, data, n) < 0 || fsync(fd) < 0 ||
	    (linkat(state_fd, temporary, state_fd, name, 0) < 0 && errno != EEXIST))
		rc = garret_fail_errno(err, "state_dir: make the file %s", name);
	(void)unlinkat(state_fd, temporary, 0);
	return rc;
}

/* ---- opening ---- */

static int open_state_dir(struct garret_app *app, const char *dir, struct garret_error *err)
{
	struct stat st;

	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "state_dir: make %s", dir);
	app->state_fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (app->state_fd < 0 || fstat(app->state_fd, &st) < 0)
		return garret_fail_errno(err, "state_dir: open %s", dir);
	if (st.st_uid != geteuid() || (st.st_mode & 077))
		return garret_fail(err, GARRET_DENIED,
				   "state_dir: %s must be ours, and closed to others (mode 0700)",
				   dir);
	app->state_dir = xstrdup(dir);
	return 0;
}

static int open_parts(struct garret_app *app, const struct garret_app_options *o,
		      struct garret_error *err)
{
	autofree char *own = NULL;
	int rc = open_state_dir(app, o->state_dir, err);

	if (rc == 0)
		rc = app_key_load(app->state_fd, app->key, err);
	if (rc == 0 && !o->database)
		own = xasprintf("sqlite:%s/app.db", o->state_dir);
	if (rc == 0)
		rc = db_open(own ? own : o->database, &app->db, err);
	if (rc == 0)
		rc = db_migrate(app->db, app_steps, app_n_steps, NULL, err);
	if (rc == 0)
		rc = app_spool_open(app, err);
	return rc;
}

static void app_release(struct garret_app *app)
{
	app_own_forget(app);
	app_spool_close(app);
	app->db = db_close(app->db);
	fd_close(app->state_fd);
	free(app->state_dir);
	(void)pthread_mutex_destroy(&app->lock);
	(void)pthread_mutex_destroy(&app->place_lock);
	explicit_bzero(app->key, sizeof(app->key));
	free(app);
}

int garret_app_open(struct garret_context *c, const struct garret_app_options *given,
		    struct garret_app **ret, struct garret_error *err)
{
	struct garret_app_options o = { 0 };
	struct garret_app *app;
	int rc = sized_copy(&o, sizeof(o), given, given->size, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	if (!o.state_dir || *o.state_dir != '/')
		return garret_fail(err, GARRET_INVALID, "state_dir: an absolute path");
	if (!(o.lease >= 0))
		return garret_fail(err, GARRET_INVALID, "lease: seconds, 0 or more");
	if (!(o.opening_timeout >= 0))
		return garret_fail(err, GARRET_INVALID, "opening_timeout: seconds, 0 or more");
	app = xnew(struct garret_app);
	app->context = c;
	app->state_fd = -EBADF;
	app->state_max_bytes = o.state_max_bytes ? o.state_max_bytes : GARRET_APP_STATE_MAX;
	app->inline_image_max_bytes =
		o.inline_image_max_bytes ? o.inline_image_max_bytes : GARRET_APP_INLINE_IMAGE_MAX;
	app->event = o.event;
	app->event_data = o.event_data;
	app->lease = o.lease > 0 ? o.lease : LEASE;
	app->opening_timeout = o.opening_timeout;
	list_init(&app->places);
	list_init(&app->unclosed);
	(void)pthread_mutex_init(&app->lock, NULL);
	(void)pthread_mutex_init(&app->place_lock, NULL);
	rc = open_parts(app, &o, err);
	if (rc < 0)
		app_release(app);
	else
		*ret = app;
	return rc;
}

struct garret_app *garret_app_free(struct garret_app *app)
{
	if (!app)
		return NULL;
	(void)app_own_settle(app, NULL);
	(void)app_spool_drain(app, NULL); /* what stays is drained by the next one */
	app_release(app);
	return NULL;
}

/* ---- the schema alone ---- */

int garret_app_migrate(const char *database, const char *target, char **ret_at,
		       struct garret_error *err)
{
	struct db *db = NULL;
	char *at = NULL;
	int rc = db_open(database, &db, err);

	if (rc == 0)
		rc = db_migrate(db, app_steps, app_n_steps, target, err);
	if (rc == 0)
		rc = db_at(db, &at, err);
	db_close(db);
	if (ret_at)
		*ret_at = at;
	else
		free(at);
	return rc;
}

int garret_app_schema(const char *database, char **ret, struct garret_error *err)
{
	autobuf struct strbuf out = STRBUF_INIT;
	struct db *db = NULL;
	int rc = db_open(database, &db, err);

	*ret = NULL;
	if (rc == 0)
		rc = db_describe(db, &out, err);
	db_close(db);
	if (rc == 0)
		*ret = strbuf_detach(&out, NULL);
	return rc;
}
