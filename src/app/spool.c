/*
 * Operations on their way into the log.  An operation must not wait for a database: its row is appended
 * by one write to a file of this process, and many rows go into the database in one transaction,
 * which also moves the mark of how far the file has come.  So each row is there exactly once, whoever
 * brings it there, and what a process that was killed has written is brought by another.
 *
 * The file is below the state directory, and locked as long as its process lives.  Its name, with the
 * directory's id, is whose a run is.
 *
 *	length (4), created_at (8), duration_ms (4), ok (1), then six texts: length (2), bytes
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

#include "app/app_impl.h"
#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

#define DIR_NAME "spool"
#define ID_FILE "id"
#define SUFFIX ".ops"
#define DUE_BYTES (64 << 10)
#define DUE_SECONDS 1.0
#define SPOOL_MAX \
	(64 << 20) /* of one that the database doesn't take; then rows are dropped, with an event */
#define CHUNK (1 << 20)
#define TARGET_MAX 512
#define AT_ONCE 50 /* rows of one INSERT */
#define TEXTS 7    /* organisation, agent, run, key, op, target, detail */

struct app_spool {
	int dir_fd, fd;
	pthread_mutex_t lock; /* around size, drained and writing */
	uint64_t size, drained;
	double drained_at;
	bool draining; /* a thread is at it */
	bool torn;     /* it ends with half a row, behind which nothing would be found */
	char id[GARRET_APP_ID], name[GARRET_APP_ID], owner[APP_OWNER];
	char *insert_many; /* a statement; the database knows it by its place */
};

/* ---- opening ---- */

/* The directory's id, which says that an owner's file can be looked for here. */
static int load_id(int state_fd, char ret[GARRET_APP_ID], struct garret_error *err)
{
	char temporary[64];
	autoclose int fd = -EBADF;

	app_new_id(ret);
	(void)snprintf(temporary, sizeof(temporary), ID_FILE ".%s", ret);
	fd = openat(state_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || write_full(fd, ret, GARRET_APP_ID - 1) < 0)
		return garret_fail_errno(err, "state_dir: make its id");
	if (linkat(state_fd, temporary, state_fd, ID_FILE, 0) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "state_dir: make its id");
	(void)unlinkat(state_fd, temporary, 0);
	fd = fd_close(fd);
	fd = openat(state_fd, ID_FILE, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read_full(fd, ret, GARRET_APP_ID - 1) != GARRET_APP_ID - 1)
		return garret_fail_errno(err, "state_dir: read its id");
	return 0;
}

#define INSERT                                                                                   \
	"INSERT INTO sandbox_operations(ok, duration_ms, created_at, organisation, agent, run, " \
	"session_key, op, target, detail) VALUES"

/* The same for AT_ONCE rows. */
static char *make_insert_many(void)
{
	struct strbuf out = STRBUF_INIT;

	strbuf_addstr(&out, INSERT);
	for (int row = 0; row < AT_ONCE; row++)
		for (int i = 0; i < 10; i++)
			strbuf_addf(&out, "%s?%d%s",
				    i     ? ","
				    : row ? ",("
					  : "(",
				    row * 10 + i + 1, i == 9 ? ")" : "");
	return strbuf_detach(&out, NULL);
}

static void file_name(const char *name, char ret[64])
{
	(void)snprintf(ret, 64, "%s" SUFFIX, name);
}

int app_spool_open(struct garret_app *app, struct garret_error *err)
{
	struct app_spool *s = xnew(struct app_spool);
	char name[64];
	int rc;

	app->spool = s;
	s->dir_fd = s->fd = -EBADF;
	(void)pthread_mutex_init(&s->lock, NULL);
	rc = load_id(app->state_fd, s->id, err);
	if (rc < 0)
		return rc;
	if (mkdirat(app->state_fd, DIR_NAME, 0700) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "state_dir: make " DIR_NAME);
	s->dir_fd = openat(app->state_fd, DIR_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	app_new_id(s->name);
	file_name(s->name, name);
	s->fd = openat(s->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
	if (s->fd < 0 || flock(s->fd, LOCK_EX | LOCK_NB) < 0)
		return garret_fail_errno(err, "state_dir: make a spool");
	s->insert_many = make_insert_many();
	(void)snprintf(s->owner, sizeof(s->owner), "%s/%s", s->id, s->name);
	s->drained_at = app_now();
	return 0;
}

void app_spool_close(struct garret_app *app)
{
	struct app_spool *s = app->spool;
	char name[64];

	if (!s)
		return;
	if (s->fd >= 0 && s->size == s->drained) {
		file_name(s->name, name);
		(void)unlinkat(s->dir_fd, name, 0);
		(void)app_query(app, "DELETE FROM sandbox_spools WHERE owner = ?1",
				DB_ARGS(db_text(s->owner)), NULL, NULL);
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
	file_name(owner + n + 1, name);
	fd = openat(s->dir_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT;
	return flock(fd, LOCK_EX | LOCK_NB) == 0;
}

/* ---- adding ---- */

static void put_number(struct strbuf *out, const void *p, size_t n)
{
	strbuf_add(out, p, n);
}

static void put_text(struct strbuf *out, const char *text, size_t most)
{
	size_t n = strlen(text);
	uint16_t length;

	if (n > most)
		for (n = most; n && ((unsigned char)text[n] & 0xc0) == 0x80; n--)
			;
	length = (uint16_t)n;
	put_number(out, &length, sizeof(length));
	strbuf_add(out, text, n);
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

	put_number(out, &length, sizeof(length));
	put_number(out, &now, sizeof(now));
	put_number(out, &ms, sizeof(ms));
	put_number(out, &ok, sizeof(ok));
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
	due = !s->draining &&
	      (s->size - s->drained >= DUE_BYTES || app_now() - s->drained_at >= DUE_SECONDS);
	s->draining = s->draining || due;
	(void)pthread_mutex_unlock(&s->lock);
	if (!kept)
		app_event(run->app, "sandbox_operation_not_recorded", "run", run->facts.run, "op",
			  o->op, NULL);
	if (due)
		(void)app_spool_flush(run->app,
				      NULL); /* what stays is tried again, and is on the disk */
}

/* ---- draining ---- */

/* Where a file has come to; its rows are inserted from there. */
static int mark_get(struct db *db, const char *owner, uint64_t *ret, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = db_query(db, "SELECT drained FROM sandbox_spools WHERE owner = ?1",
			  DB_ARGS(db_text(owner)), &rows, err);

	*ret = rc == 0 && rows.rows ? (uint64_t)db_get_int(&rows, 0, 0) : 0;
	if (rc == 0 && !rows.rows)
		rc = db_query(db, "INSERT INTO sandbox_spools(owner, drained) VALUES(?1, 0)",
			      DB_ARGS(db_text(owner)), NULL, err);
	return rc;
}

static int mark_move(struct db *db, const char *owner, uint64_t from, uint64_t to,
		     struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = db_query(
		db, "UPDATE sandbox_spools SET drained = ?3 WHERE owner = ?1 AND drained = ?2",
		DB_ARGS(db_text(owner), db_int((int64_t)from), db_int((int64_t)to)), &rows, err);

	return rc == 0 && !rows.changed
		       ? garret_fail(err, GARRET_CHANGED, "another process drained it")
		       : rc;
}

static const uint8_t *take_text(const uint8_t *at, const uint8_t *end, struct db_value *ret)
{
	uint16_t n;

	if (!at || end - at < (ptrdiff_t)sizeof(n))
		return NULL;
	memcpy(&n, at, sizeof(n));
	at += sizeof(n);
	if (end - at < n)
		return NULL;
	*ret = (struct db_value){ .type = DB_TEXT, .p = at, .n = n };
	return at + n;
}

/* The values of one row; where the next one is, or NULL: not (wholly) there. */
static const uint8_t *take_row(const uint8_t *at, const uint8_t *end, struct db_value v[10])
{
	uint32_t length, ms;
	double created;

	if (end - at < 17)
		return NULL;
	memcpy(&length, at, sizeof(length));
	if (length > (size_t)(end - at))
		return NULL;
	end = at + length;
	memcpy(&created, at + 4, sizeof(created));
	memcpy(&ms, at + 12, sizeof(ms));
	v[0] = db_int(at[16] != 0);
	v[1] = db_int(ms);
	v[2] = db_real(created);
	at += 17;
	for (int i = 0; i < TEXTS; i++)
		at = take_text(at, end, &v[3 + i]);
	return at;
}

static int insert_rows(struct garret_app *app, const struct db_value *v, size_t rows,
		       struct garret_error *err)
{
	int rc = 0;

	if (rows == AT_ONCE)
		return db_query(app->db, app->spool->insert_many, v, 10 * rows, NULL, err);
	for (size_t i = 0; rc == 0 && i < rows; i++)
		rc = db_query(app->db, INSERT "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10)", v + 10 * i, 10,
			      NULL, err);
	return rc;
}

/* All whole rows of some bytes; *ret is how many of the bytes they were. */
static int insert_all(struct garret_app *app, const uint8_t *data, size_t n, size_t *ret,
		      struct garret_error *err)
{
	struct db_value v[10 * AT_ONCE];
	const uint8_t *at = data, *next;
	size_t rows = 0;
	int rc = 0;

	while (rc == 0 && (next = take_row(at, data + n, v + 10 * rows)) != NULL) {
		at = next;
		if (++rows < AT_ONCE)
			continue;
		rc = insert_rows(app, v, rows, err);
		rows = 0;
	}
	if (rc == 0)
		rc = insert_rows(app, v, rows, err);
	*ret = (size_t)(at - data);
	return rc;
}

/* One piece of a file, with app->lock held.  *ret_to is the mark then; *ret_n 0: nothing was left. */
static int drain_piece(struct garret_app *app, int fd, const char *owner, uint8_t *buf,
		       uint64_t *ret_to, size_t *ret_n, struct garret_error *err)
{
	uint64_t from = 0;
	ssize_t n = 0;
	int rc = db_begin(app->db, err);

	*ret_n = 0;
	if (rc < 0)
		return rc;
	rc = mark_get(app->db, owner, &from, err);
	if (rc == 0)
		n = pread(fd, buf, CHUNK, (off_t)from);
	if (rc == 0 && n < 0)
		rc = garret_fail_errno(err, "read the spool");
	if (rc == 0)
		rc = insert_all(app, buf, (size_t)n, ret_n, err);
	*ret_to = from + *ret_n;
	if (rc == 0 && *ret_n)
		rc = mark_move(app->db, owner, from, *ret_to, err);
	return db_end(app->db, rc, err);
}

static int drain(struct garret_app *app, int fd, const char *owner, uint64_t *ret_to,
		 struct garret_error *err)
{
	autofree uint8_t *buf = xmalloc(CHUNK);
	size_t n = 0;
	int rc;

	app_lock(app);
	do
		rc = drain_piece(app, fd, owner, buf, ret_to, &n, err);
	while ((rc == 0 && n) || rc == -GARRET_CHANGED);
	app_unlock(app);
	/* The room of what is in the database; where that can't be had it only stays used. */
	if (rc == 0 && *ret_to)
		(void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)*ret_to);
	return rc;
}

int app_spool_flush(struct garret_app *app, struct garret_error *err)
{
	struct app_spool *s = app->spool;
	uint64_t to = 0;
	int rc = drain(app, s->fd, s->owner, &to, err);

	(void)pthread_mutex_lock(&s->lock);
	if (rc == 0 && to > s->drained)
		s->drained = to;
	s->drained_at = app_now();
	s->draining = false;
	(void)pthread_mutex_unlock(&s->lock);
	return rc;
}

/* One of another process: when that is gone, the file goes too. */
static int drain_other(struct garret_app *app, const char *name, struct garret_error *err)
{
	struct app_spool *s = app->spool;
	autoclose int fd = openat(s->dir_fd, name, O_RDWR | O_CLOEXEC);
	char owner[APP_OWNER];
	uint64_t to = 0;
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : garret_fail_errno(err, "open a spool");
	(void)snprintf(owner, sizeof(owner), "%s/%.*s", s->id, (int)(strlen(name) - strlen(SUFFIX)),
		       name);
	rc = drain(app, fd, owner, &to, err);
	if (rc < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return rc;
	/* What it wrote until it ended is read now; nobody writes to it any more. */
	rc = drain(app, fd, owner, &to, err);
	if (rc == 0)
		rc = app_query(app, "DELETE FROM sandbox_spools WHERE owner = ?1",
			       DB_ARGS(db_text(owner)), NULL, err);
	if (rc == 0)
		(void)unlinkat(s->dir_fd, name, 0);
	return rc;
}

int app_spool_drain(struct garret_app *app, struct garret_error *err)
{
	autodir DIR *dir =
		fdopendir(openat(app->spool->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	const size_t suffix = strlen(SUFFIX);
	struct dirent *e;
	char own[64];
	int rc = app_spool_flush(app, err);

	file_name(app->spool->name, own);
	while (rc == 0 && dir && (e = readdir(dir)) != NULL) {
		const size_t n = strlen(e->d_name);

		if (n == GARRET_APP_ID - 1 + suffix && !strcmp(e->d_name + n - suffix, SUFFIX) &&
		    strcmp(e->d_name, own) != 0)
			rc = drain_other(app, e->d_name, err);
	}
	return rc;
}
