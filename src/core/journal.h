/*
 * An append-only log of records in a directory: what must outlive a kill of
 * this process without costing more than one write() a record.
 *
 * A position is the number of bytes before a record since the log began; it is
 * never given to another record, and stays valid while the log is dropped from
 * its front.  A log is a row of files (segments) of about 1 MiB, each named by
 * the position it begins at: NAME.0000000000000000 is the first.
 *
 * Nothing is synced.  After a power loss the end of a segment may be missing or
 * false; it is cut off when the log is opened, and the log file says so.  The
 * check value of a record has a random number of its segment in it, so that no
 * content of a record can pass for another one.
 *
 * A failed append (no space, read-only, a quota) leaves the log as it was, and
 * usable.
 */
#ifndef CORE_JOURNAL_H
#define CORE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/error.h"

#define JOURNAL_RECORD_MAX (1u << 20) /* bytes of one record */
#define JOURNAL_PARTS_MAX 6           /* of one record, given apart */

struct journal;

struct journal_record {
	uint64_t position, next; /* next: of the record behind it */
	uint16_t type;           /* the caller's */
	const void *data;        /* borrowed until the callback returns */
	size_t n;
};
typedef void (*journal_each_fn)(void *ctx, const struct journal_record *r);
typedef bool (*journal_while_fn)(void *ctx, const struct journal_record *r); /* false: enough */

struct journal_settings {
	int dir;               /* borrowed, outlives the log */
	const char *name;      /* below it; may have directories in front, which must be there */
	uint64_t segment_size; /* a new file is begun behind so many bytes; 0: 1 MiB */
};

/*
 * Open a log or begin one: no file is made before the first append.  Each
 * record that is there is told (each may be NULL).  What can't be read is
 * an error; what is false is cut off.
 */
int journal_open(const struct journal_settings *set, journal_each_fn each, void *ctx,
		 struct journal **ret, struct garret_error *err);
struct journal *journal_free(struct journal *j); /* NULL is fine; returns NULL */

/* In one write; *ret_position (may be NULL) is where it is. */
int journal_append(struct journal *j, uint16_t type, const void *data, size_t n,
		   uint64_t *ret_position, struct garret_error *err);
/* The same from parts that lie one behind the other then. */
int journal_append_parts(struct journal *j, uint16_t type, const struct iovec *parts,
			 unsigned n_parts, uint64_t *ret_position, struct garret_error *err);

/* Each record from the first one at or behind FROM, while more are wanted. */
int journal_each(struct journal *j, uint64_t from, journal_while_fn each, void *ctx,
		 struct garret_error *err);
/*
 * Up to cap bytes of the record at POSITION from OFFSET on: how many, 0 behind
 * its end, -GARRET_NOT_FOUND when it was dropped.
 */
ssize_t journal_read(struct journal *j, uint64_t position, uint64_t offset, void *buf, size_t cap,
		     struct garret_error *err);

/* Remove the files in which everything lies before POSITION; never the last one. */
void journal_drop(struct journal *j, uint64_t position);

uint64_t journal_first(const struct journal *j); /* no record is before it */
uint64_t journal_end(const struct journal *j);   /* where the next record will be */
uint64_t journal_bytes(const struct journal *j); /* of all files */

#endif
