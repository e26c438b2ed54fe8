/* The log of records: what it survives, and what it gives back. */
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "core/journal.h"

static char dir_path[] = "/tmp/garret-journal-XXXXXX";

/* A directory for a log, removed by done(). */
static int begin(void)
{
	static const char template[] = "/tmp/garret-journal-XXXXXX";
	int fd;

	log_setup("test", LOG_ERROR, false); /* that something was cut off is said there */
	memcpy(dir_path, template, sizeof(template));
	assert_non_null(mkdtemp(dir_path));
	fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void done(int dir)
{
	fd_close(dir);
	assert_int_equal(remove_tree_at(AT_FDCWD, dir_path), 0);
}

/* Records as text: "type@position:data " */
static void note(void *ctx, const struct journal_record *r)
{
	strbuf_addf(ctx, "%u@%llu:", r->type, (unsigned long long)r->position);
	strbuf_add(ctx, r->data, r->n);
	strbuf_addch(ctx, ' ');
}

static bool note_more(void *ctx, const struct journal_record *r)
{
	note(ctx, r);
	return true;
}

static bool note_enough(void *ctx, const struct journal_record *r)
{
	note(ctx, r);
	return false;
}

static struct journal *open_log(int dir, uint64_t segment_size, struct strbuf *seen)
{
	const struct journal_settings set = { .dir = dir,
					      .name = "log",
					      .segment_size = segment_size };
	struct garret_error err = { 0 };
	struct journal *j = NULL;

	if (seen)
		strbuf_reset(seen);
	assert_int_equal(journal_open(&set, seen ? note : NULL, seen, &j, &err), 0);
	return j;
}

static uint64_t add(struct journal *j, uint16_t type, const char *text)
{
	uint64_t at = UINT64_MAX;

	assert_int_equal(journal_append(j, type, text, strlen(text), &at, NULL), 0);
	return at;
}

TEST(records_come_back_in_order)
{
	autobuf struct strbuf seen = STRBUF_INIT;
	const struct iovec parts[] = { { (void *)(uintptr_t) "par", 3 },
				       { NULL, 0 },
				       { (void *)(uintptr_t) "ts", 2 } };
	int dir = begin();
	struct journal *j = open_log(dir, 0, &seen);
	char buf[16];
	uint64_t at;

	assert_int_equal(journal_bytes(j), 0);
	assert_int_equal(faccessat(dir, "log.0000000000000000", F_OK, 0), -1); /* not made yet */
	assert_int_equal(add(j, 1, "one"), 16);
	assert_int_equal(add(j, 2, ""), 35);
	assert_int_equal(journal_append_parts(j, 3, parts, 3, &at, NULL), 0);
	assert_int_equal(at, 51);
	assert_int_equal(journal_read(j, 51, 1, buf, sizeof(buf), NULL), 4);
	assert_memory_equal(buf, "arts", 4);
	assert_int_equal(journal_read(j, 51, 5, buf, sizeof(buf), NULL), 0);
	assert_int_equal(journal_read(j, journal_end(j), 0, buf, 1, NULL), -GARRET_NOT_FOUND);
	j = journal_free(j);

	j = open_log(dir, 0, &seen);
	assert_string_equal(seen.buf, "1@16:one 2@35: 3@51:parts ");
	assert_int_equal(journal_end(j), 72);
	assert_int_equal(journal_bytes(j), 72);
	add(j, 4, "four");
	strbuf_reset(&seen);
	assert_int_equal(journal_each(j, 36, note_more, &seen, NULL), 0);
	assert_string_equal(seen.buf, "3@51:parts 4@72:four ");
	strbuf_reset(&seen);
	assert_int_equal(journal_each(j, 36, note_enough, &seen, NULL), 0);
	assert_string_equal(seen.buf, "3@51:parts ");
	j = journal_free(j);
	done(dir);
}

TEST(two_logs_share_a_directory_below)
{
	int dir = begin();
	struct journal_settings set = { .dir = dir, .name = "sub/a" };
	autobuf struct strbuf seen = STRBUF_INIT;
	struct garret_error err = { 0 };
	struct journal *a = NULL, *b = NULL;

	assert_int_equal(journal_open(&set, NULL, NULL, &a, &err), -GARRET_NOT_FOUND);
	assert_int_equal(mkdirat(dir, "sub", 0700), 0);
	assert_int_equal(journal_open(&set, NULL, NULL, &a, &err), 0);
	set.name = "sub/a.b";
	assert_int_equal(journal_open(&set, NULL, NULL, &b, &err), 0);
	add(a, 1, "a");
	add(b, 1, "b");
	a = journal_free(a);
	b = journal_free(b);
	assert_int_equal(journal_open(&set, note, &seen, &b, &err), 0);
	assert_string_equal(seen.buf, "1@16:b ");
	b = journal_free(b);
	done(dir);
}

/* What a power loss may leave: any prefix, and any prefix with other bytes behind it. */
TEST(a_torn_tail_is_cut_off_wherever_it_is)
{
	static const char path[] = "log.0000000000000000";
	autobuf struct strbuf seen = STRBUF_INIT;
	int dir = begin();
	struct journal *j = open_log(dir, 0, NULL);
	char whole[256];
	ssize_t size;
	autoclose int fd = -EBADF;

	add(j, 1, "first");
	add(j, 2, "the second");
	j = journal_free(j);
	fd = openat(dir, path, O_RDWR | O_CLOEXEC);
	size = pread(fd, whole, sizeof(whole), 0);
	assert_int_equal(size, 16 + 16 + 5 + 16 + 10);
	for (int fill = 0; fill < 3; fill++)
		for (ssize_t cut = 0; cut < size; cut++) {
			uint64_t want = cut < 16 ? 0 : cut < 37 ? 16 : 37;
			char tail[256];

			fd_close(fd);
			fd = openat(dir, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
			assert_int_equal(ftruncate(fd, 0), 0);
			assert_int_equal(pwrite(fd, whole, (size_t)cut, 0), cut);
			memset(tail, fill == 1 ? 0 : 0xff, sizeof(tail));
			if (fill)
				assert_int_equal(pwrite(fd, tail, 100, cut), 100);
			j = open_log(dir, 0, &seen);
			assert_string_equal(seen.buf, want == 37 ? "1@16:first " : "");
			/* A file header with zeroes in its random number is one. */
			assert_true(journal_end(j) == want || (journal_end(j) == 16 && cut < 16));
			/* It goes on from there. */
			assert_int_equal(add(j, 9, "next"), want ? want : 16);
			j = journal_free(j);
			j = open_log(dir, 0, &seen);
			assert_string_equal(seen.buf,
					    want == 37 ? "1@16:first 9@37:next " : "9@16:next ");
			j = journal_free(j);
		}
	done(dir);
}

TEST(a_changed_byte_is_seen)
{
	static const char path[] = "log.0000000000000000";
	autobuf struct strbuf seen = STRBUF_INIT;
	int dir = begin();
	struct journal *j = open_log(dir, 0, NULL);
	char whole[64];
	ssize_t size;

	add(j, 1, "abcdefghijk");
	j = journal_free(j);
	for (ssize_t at = 0;; at++) {
		autoclose int fd = openat(dir, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

		if (!at)
			size = pread(fd, whole, sizeof(whole), 0);
		if (at == size)
			break;
		whole[at] ^= 0x10;
		assert_int_equal(pwrite(fd, whole, (size_t)size, 0), size);
		whole[at] ^= 0x10;
		if (at == 4) {
			const struct journal_settings set = { .dir = dir, .name = "log" };

			/* A later version is for that to read, not for us to cut. */
			assert_int_equal(journal_open(&set, NULL, NULL, &j, NULL),
					 -GARRET_UNSUPPORTED);
			continue;
		}
		j = open_log(dir, 0, &seen);
		assert_string_equal(seen.buf, "");
		j = journal_free(j);
	}
	done(dir);
}

TEST(segments_follow_each_other_and_the_oldest_go)
{
	autobuf struct strbuf seen = STRBUF_INIT;
	int dir = begin();
	struct journal *j = open_log(dir, 64, NULL);
	uint64_t at[6];
	char buf[8];

	for (int i = 0; i < 6; i++)
		at[i] = add(j, (uint16_t)i, "12345678");
	/* Three records make 16 + 3 * 24 = 88 bytes, the first that is 64 or more behind two. */
	assert_int_equal(at[1], 40);
	assert_int_equal(at[2], 80);
	assert_int_equal(faccessat(dir, "log.0000000000000040", F_OK, 0), 0);
	assert_int_equal(journal_bytes(j), 3 * 64);
	assert_int_equal(journal_read(j, at[0], 0, buf, 8, NULL), 8);
	journal_drop(j, at[1]); /* it is in the first file, which stays */
	assert_int_equal(journal_first(j), 0);
	journal_drop(j, at[2]);
	assert_int_equal(journal_first(j), 64);
	assert_int_equal(journal_bytes(j), 2 * 64);
	assert_int_equal(journal_read(j, at[0], 0, buf, 8, NULL), -GARRET_NOT_FOUND);
	assert_int_equal(journal_read(j, at[2], 0, buf, 8, NULL), 8);
	j = journal_free(j);
	j = open_log(dir, 64, &seen);
	assert_string_equal(seen.buf,
			    "2@80:12345678 3@104:12345678 4@144:12345678 5@168:12345678 ");
	journal_drop(j, UINT64_MAX);
	assert_int_equal(journal_bytes(j), 64); /* positions go on from the last file */
	assert_int_equal(add(j, 7, "x"), 208);
	j = journal_free(j);
	done(dir);
}

/* A middle file may have lost its end, too: what is behind it still counts. */
TEST(a_hole_between_segments_is_no_end)
{
	autobuf struct strbuf seen = STRBUF_INIT;
	int dir = begin();
	struct journal *j = open_log(dir, 64, NULL);
	autoclose int fd = -EBADF;

	for (int i = 0; i < 4; i++)
		add(j, (uint16_t)i, "12345678");
	j = journal_free(j);
	fd = openat(dir, "log.0000000000000000", O_RDWR | O_CLOEXEC);
	assert_int_equal(ftruncate(fd, 50), 0);
	j = open_log(dir, 64, &seen);
	assert_string_equal(seen.buf, "0@16:12345678 2@80:12345678 3@104:12345678 ");
	assert_int_equal(journal_read(j, 40, 0, seen.buf, 1, NULL), -GARRET_NOT_FOUND);
	j = journal_free(j);
	done(dir);
}

TEST(a_full_disk_is_an_error_and_no_end)
{
	autobuf struct strbuf seen = STRBUF_INIT, big = STRBUF_INIT;
	struct rlimit old, small;
	struct garret_error err = { 0 };
	int dir = begin();
	struct journal *j = open_log(dir, 0, NULL);
	struct stat st;

	for (int i = 0; i < 1000; i++)
		strbuf_addch(&big, 'x');
	add(j, 1, "kept");
	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){ 500, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	/* The kernel writes what still fits: that is taken back. */
	assert_true(journal_append(j, 2, big.buf, big.len, NULL, &err) < 0);
	assert_int_equal(fstatat(dir, "log.0000000000000000", &st, 0), 0);
	assert_int_equal(st.st_size, 36);
	assert_int_equal(add(j, 3, "small"), 36);
	small.rlim_cur = 8; /* not even the header of a new file */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_true(journal_append(j, 4, "x", 1, NULL, &err) < 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(add(j, 5, "again"), 57);
	j = journal_free(j);
	j = open_log(dir, 0, &seen);
	assert_string_equal(seen.buf, "1@16:kept 3@36:small 5@57:again ");
	j = journal_free(j);
	done(dir);
}

TEST(a_new_file_that_cannot_be_made_leaves_nothing)
{
	struct rlimit old, small;
	int dir = begin();
	struct journal *j = open_log(dir, 0, NULL);

	(void)signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	small = (struct rlimit){ 8, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	assert_true(journal_append(j, 4, "x", 1, NULL, NULL) < 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(faccessat(dir, "log.0000000000000000", F_OK, 0), -1);
	assert_int_equal(add(j, 4, "x"), 16);
	j = journal_free(j);
	done(dir);
}

TEST(a_record_has_a_limit)
{
	autofree char *big = xcalloc(1, JOURNAL_RECORD_MAX + 1);
	struct garret_error err = { 0 };
	int dir = begin();
	struct journal *j = open_log(dir, 0, NULL);

	assert_int_equal(journal_append(j, 1, big, JOURNAL_RECORD_MAX + 1, NULL, &err),
			 -GARRET_TOO_LARGE);
	assert_non_null(strstr(err.msg, "1048576"));
	assert_int_equal(journal_append(j, 1, big, JOURNAL_RECORD_MAX, NULL, &err), 0);
	j = journal_free(j);
	done(dir);
}

/* Output of a command that looks like a record doesn't become one. */
TEST(content_is_no_record)
{
	autobuf struct strbuf seen = STRBUF_INIT;
	int dir = begin(), other = begin();
	struct journal *j = open_log(other, 0, NULL);
	char forged[40];
	autoclose int fd = -EBADF;

	add(j, 1, "12345678");
	add(j, 1, "forged");
	j = journal_free(j);
	fd = openat(other, "log.0000000000000000", O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, forged, 22, 40), 22);
	fd_close(fd);
	fd = -EBADF;

	j = open_log(dir, 0, NULL);
	add(j, 1, "12345678");
	j = journal_free(j);
	fd = openat(dir, "log.0000000000000000", O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, forged, 22, 40), 22);
	j = open_log(dir, 0, &seen);
	assert_string_equal(seen.buf, "1@16:12345678 ");
	j = journal_free(j);
	fd_close(dir);
	done(other);
}

TEST_MAIN
