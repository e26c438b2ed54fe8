/*
 * Operations on their way into the log.  An operation must not wait for a database: its row is appended
 * by one write to a file of this process, and many rows go into the database in one transaction,
 * which also moves the mark of how far the file has come.  So each row is there exactly once, whoever
 * brings it there, and what a process that was killed has written is brought by another.
 *
 * The file is below the state directory, and locked as long as its process lives.  Its name, with the
 * directory's id, is whose a run is.
 *
 *	length (4), created_at (8), duration_ms (4), ok (1), then seven texts: length (2), bytes
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/files_impl.h"
#include "app/spool_impl.h"
#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

#define ID_FILE "id"
#define DUE_BYTES (64 << 10)
#define DUE_SECONDS 1.0
#define LONGEST_WAIT 60.0 /* for a database that takes nothing: each try may block an operation */
#define SPOOL_MAX \
	(64 << 20) /* of one that the database doesn't take; then rows are dropped, with an event */
#define TARGET_MAX 512

/* ---- opening ---- */

static bool is_id(const char *text)
{
	return strspn(text, "0123456789abcdef") == GARRET_APP_ID - 1;
}

/* The directory's id, which says that an owner's file can be looked for here. */
static int load_id(int state_fd, char ret[GARRET_APP_ID], struct garret_error *err)
{
	autoclose int fd = openat(state_fd, ID_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT) {
		int rc;

		app_new_id(ret);
		rc = app_file_make(state_fd, ID_FILE, ret, GARRET_APP_ID - 1, err);
		if (rc < 0)
			return rc;
		fd = openat(state_fd, ID_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	}
	memset(ret, 0, GARRET_APP_ID);
	if (fd < 0)
		return garret_fail_errno(err, "state_dir: open its id");
	if (read_full(fd, ret, GARRET_APP_ID - 1) != GARRET_APP_ID - 1 || !is_id(ret))
		return garret_fail(err, GARRET_DENIED,
				   "state_dir: the file id must be %d hexadecimal digits",
				   GARRET_APP_ID - 1);
	return 0;
}

void spool_file_name(const char *name, char ret[64])
{
	(void)snprintf(ret, 64, "%s" SPOOL_SUFFIX, name);
}

/*
 * Until it is locked another process may take it for one of a process that is gone: it has the lock, or the
 * file is removed already.  Then fd stays as it was.
 */
static int make_file(struct app_spool *s, struct garret_error *err)
{
	autoclose int fd = -EBADF;
	struct stat st;
	char name[64];
	int rc = -1;

	app_new_id(s->name);
	spool_file_name(s->name, name);
	fd = openat(s->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
		rc = fstat(fd, &st);
	if (rc < 0)
		return fd >= 0 && errno == EWOULDBLOCK
			       ? 0
			       : garret_fail_errno(err, "state_dir: make a spool");
	if (st.st_nlink)
		s->fd = take_fd(&fd);
	return 0;
}

int app_spool_open(struct garret_app *app, struct garret_error *err)
{
	struct app_spool *s = xnew(struct app_spool);
	int rc;

	app->spool = s;
	s->dir_fd = s->fd = -EBADF;
	(void)pthread_mutex_init(&s->lock, NULL);
	rc = load_id(app->state_fd, s->id, err);
	if (rc < 0)
		return rc;
	if (mkdirat(app->state_fd, SPOOL_DIR, 0700) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "state_dir: make " SPOOL_DIR);
	s->dir_fd = openat(app->state_fd, SPOOL_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (rc == 0 && s->fd < 0)
		rc = make_file(s, err);
	if (rc < 0)
		return rc;
	s->insert_many = spool_insert_many();
	(void)snprintf(s->owner, sizeof(s->owner), "%s/%s", s->id, s->name);
	s->drained_at = app_now();
	s->wait = DUE_SECONDS;
	return 0;
}

int spool_mark_drop(struct garret_app *app, const char *owner, struct garret_error *err)
{
	return app_query(app, "DELETE FROM sandbox_spools WHERE owner = ?1",
			 DB_ARGS(db_text(owner)), NULL, err);
}

void app_spool_close(struct garret_app *app)
{
	struct app_spool *s = app->spool;
	char name[64];

	if (!s)
		return;
	if (s->fd >= 0 && s->size == s->drained) {
		spool_file_name(s->name, name);
		(void)unlinkat(s->dir_fd, name, 0);
		(void)spool_mark_drop(app, s->owner, NULL); /* else the sweeper */
	}
	s->fd = fd_close(s->fd);
	s->dir_fd = fd_close(s->dir_fd);
	(void)pthread_mutex_destroy(&s->lock);
	free(s->insert_many);
	free(s);
	app->spool = NULL;
}

const char *app_spool_owner(const struct garret_app *app)
{
	return app->spool->owner;
}

void app_spool_nobody(const struct garret_app *app, char ret[APP_OWNER])
{
	(void)snprintf(ret, APP_OWNER, "%s/nobody", app->spool->id);
}

int app_spool_gone(struct garret_app *app, const char *owner)
{
	struct app_spool *s = app->spool;
	const size_t n = strlen(s->id);
	autoclose int fd = -EBADF;
	char name[64];

	if (!strcmp(owner, s->owner))
		return 0;
	if (strncmp(owner, s->id, n) != 0 || owner[n] != '/')
		return -1;
	spool_file_name(owner + n + 1, name);
	fd = openat(s->dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	/* Shared: two that look at once don't take each other for the owner. */
	return flock(fd, LOCK_SH | LOCK_NB) == 0;
}

/* ---- adding ---- */

static void put_text(struct strbuf *out, const char *text, size_t most)
{
	const uint16_t length = (uint16_t)app_cut(text, strlen(text), most);

	strbuf_add(out, &length, sizeof(length));
	strbuf_add(out, text, length);
}

/* A path may be any bytes, a row only text. */
static void put_target(struct strbuf *out, const char *target)
{
	char *text;

	if (utf8_valid(target, strlen(target))) {
		put_text(out, target, TARGET_MAX);
		return;
	}
	text = garret_text(target, strlen(target));
	put_text(out, text, TARGET_MAX);
	free(text);
}

static void format(struct garret_app_run *run, const struct app_operation *o, struct strbuf *out)
{
	const double now = app_now();
	const uint32_t ms = (uint32_t)MIN(llround(o->seconds * 1e3), (long long)UINT32_MAX);
	const uint8_t ok = o->ok;
	uint32_t length = 0;

	strbuf_add(out, &length, sizeof(length));
	strbuf_add(out, &now, sizeof(now));
	strbuf_add(out, &ms, sizeof(ms));
	strbuf_add(out, &ok, sizeof(ok));
	put_text(out, run->facts.organisation, TARGET_MAX);
	put_text(out, run->facts.agent, TARGET_MAX);
	put_text(out, run->facts.run, TARGET_MAX);
	put_text(out, run->key, TARGET_MAX);
	put_text(out, o->op, TARGET_MAX);
	put_target(out, o->target);
	put_text(out, o->detail, TARGET_MAX);
	length = (uint32_t)out->len;
	memcpy(out->buf, &length, sizeof(length));
}

/* The whole record or nothing of it: a torn one would hide those behind it. */
static bool append(struct app_spool *s, const struct strbuf *record)
{
	if (s->torn || s->size - s->drained >= SPOOL_MAX)
		return false;
	if (write(s->fd, record->buf, record->len) != (ssize_t)record->len) {
		s->torn = ftruncate(s->fd, (off_t)s->size) < 0;
		return false;
	}
	s->size += record->len;
	return true;
}

void app_spool_add(struct garret_app_run *run, const struct app_operation *o)
{
	struct app_spool *s = run->app->spool;
	autobuf struct strbuf record = STRBUF_INIT;
	bool kept, due;

	format(run, o, &record);
	(void)pthread_mutex_lock(&s->lock);
	kept = append(s, &record);
	due = !s->draining && (app_now() - s->drained_at >= s->wait ||
			       (s->size - s->drained >= DUE_BYTES && s->wait == DUE_SECONDS));
	s->draining = s->draining || due;
	(void)pthread_mutex_unlock(&s->lock);
	if (!kept)
		app_event(run->app, "sandbox_operation_not_recorded", "run", run->facts.run, "op",
			  o->op, NULL);
	if (due)
		(void)app_spool_flush(run->app,
				      NULL); /* what stays is tried again, and is on the disk */
}

void spool_tried(struct app_spool *s, bool done, uint64_t to)
{
	(void)pthread_mutex_lock(&s->lock);
	if (done && to > s->drained)
		s->drained = to;
	s->wait = done ? DUE_SECONDS : MIN(2 * s->wait, LONGEST_WAIT);
	s->drained_at = app_now();
	s->draining = false;
	(void)pthread_mutex_unlock(&s->lock);
}
