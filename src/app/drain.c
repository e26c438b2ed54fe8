/*
 * Operations on their way into the log, second half: pieces of a spool, each in one transaction with the
 * mark of how far the file has come.  Who comes first brings it; who was overtaken rolls back.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/spool_impl.h"
#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"

#define CHUNK (1 << 20)
#define OVERTAKEN_MAX 100 /* then it is no mark that anybody can move */
#define AT_ONCE 50        /* rows of one INSERT */

/* Who has brought all of a file into the log removes it, and then its mark: what is read now was read. */
static bool was_removed(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && !st.st_nlink;
}

/* Where a file has come to; its rows are inserted from there.  GONE: all of it is in the log. */
static int mark_get(struct db *db, int fd, const char *owner, uint64_t *ret,
		    struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	int rc = db_query(db, "SELECT drained FROM sandbox_spools WHERE owner = ?1",
			  DB_ARGS(db_text(owner)), &rows, err);

	*ret = rc == 0 && rows.rows ? (uint64_t)db_get_int(&rows, 0, 0) : 0;
	if (rc < 0 || rows.rows)
		return rc;
	if (was_removed(fd))
		return garret_fail(err, GARRET_GONE, "another process drained it");
	return db_query(db,
			"INSERT INTO sandbox_spools(owner, drained) VALUES(?1, 0) "
			"ON CONFLICT(owner) DO NOTHING",
			DB_ARGS(db_text(owner)), NULL, err);
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
	if (end - at < n || memchr(at, '\0', n) || !utf8_valid((const char *)at, n))
		return NULL;
	*ret = (struct db_value){ .type = DB_TEXT, .p = at, .n = n };
	return at + n;
}

/* The values of one row; where the next one is, or NULL: not (wholly) there, or damaged. */
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
	for (int i = 0; i < SPOOL_TEXTS; i++)
		at = take_text(at, end, &v[3 + i]);
	return at == end && isfinite(created) ? at : NULL;
}

#define INSERT                                                                                   \
	"INSERT INTO sandbox_operations(ok, duration_ms, created_at, organisation, agent, run, " \
	"session_key, op, target, detail) VALUES"

char *spool_insert_many(void)
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
	rc = mark_get(app->db, fd, owner, &from, err);
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
	unsigned overtaken = 0;
	size_t n = 0;
	int rc;

	app_lock(app);
	do
		rc = drain_piece(app, fd, owner, buf, ret_to, &n, err);
	while ((rc == 0 && n) || (rc == -GARRET_CHANGED && ++overtaken < OVERTAKEN_MAX));
	app_unlock(app);
	if (rc == -GARRET_GONE)
		return 0;
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

	spool_tried(s, rc == 0, to);
	return rc;
}

/* One of another process: when that is gone, the file goes too. */
static int drain_other(struct garret_app *app, const char *name, struct garret_error *err)
{
	struct app_spool *s = app->spool;
	autoclose int fd = openat(s->dir_fd, name, O_RDWR | O_CLOEXEC);
	char owner[APP_OWNER];
	uint64_t to = 0;
	struct stat st;
	int rc;

	if (fd < 0)
		return errno == ENOENT ? 0 : garret_fail_errno(err, "open a spool");
	(void)snprintf(owner, sizeof(owner), "%s/%.*s", s->id,
		       (int)(strlen(name) - strlen(SPOOL_SUFFIX)), name);
	rc = drain(app, fd, owner, &to, err);
	if (rc < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return rc;
	/* What it wrote until it ended is read now; nobody writes to it any more. */
	rc = drain(app, fd, owner, &to, err);
	if (rc < 0)
		return rc;
	if (fstat(fd, &st) == 0 && (uint64_t)st.st_size > to)
		app_event(app, "sandbox_spool_torn", "spool", name, NULL);
	if (unlinkat(s->dir_fd, name, 0) < 0 && errno != ENOENT)
		return garret_fail_errno(err, "remove a spool");
	return spool_mark_drop(app, owner, err);
}

static int drain_others(struct garret_app *app, DIR *dir, struct garret_error *err)
{
	const size_t suffix = strlen(SPOOL_SUFFIX);
	struct dirent *e;
	char own[64];
	int rc = 0;

	spool_file_name(app->spool->name, own);
	while (rc == 0 && (e = readdir(dir)) != NULL) {
		const size_t n = strlen(e->d_name);

		if (n == GARRET_APP_ID - 1 + suffix &&
		    !strcmp(e->d_name + n - suffix, SPOOL_SUFFIX) && strcmp(e->d_name, own) != 0)
			rc = drain_other(app, e->d_name, err);
	}
	return rc;
}

int app_spool_drain(struct garret_app *app, struct garret_error *err)
{
	autoclose int fd = openat(app->spool->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	int rc;

	if (!dir)
		return garret_fail_errno(err, "state_dir: read " SPOOL_DIR);
	(void)take_fd(&fd); /* the directory's now */
	rc = app_spool_flush(app, err);
	return rc < 0 ? rc : drain_others(app, dir, err);
}

int app_spool_tidy(struct garret_app *app, struct garret_error *err)
{
	autorows struct db_rows rows = DB_ROWS_INIT;
	const size_t n = strlen(app->spool->id);
	int rc = app_query(app, "SELECT owner FROM sandbox_spools", DB_NO_ARGS, &rows, err);

	for (size_t i = 0; rc == 0 && i < rows.rows; i++) {
		const char *owner = db_get_text(&rows, i, 0);
		char name[64];

		if (strncmp(owner, app->spool->id, n) != 0 || owner[n] != '/')
			continue;
		spool_file_name(owner + n + 1, name);
		if (faccessat(app->spool->dir_fd, name, F_OK, 0) < 0 && errno == ENOENT)
			rc = spool_mark_drop(app, owner, err);
	}
	return rc;
}
