/*
 * tar archives: what the reader and the writer share, and the reader.
 *
 * Read are ustar, pax (path, linkpath, size, mtime, SCHILY.xattr.user.*,
 * GNU.sparse 0.0, 0.1 and 1.0) and GNU's own (long names, old sparse files,
 * base-256 numbers).  Names are bytes; hdrcharset says nothing new.  Nothing an
 * archive says makes the reader take more memory than the bounds below.
 */
#ifndef INIT_TAR_H
#define INIT_TAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/strbuf.h"
#include "proto/files.h"

#define TAR_BLOCK 512
#define TAR_PAX_MAX (1024 * 1024)    /* of one extended header */
#define TAR_HEADERS_MAX 16           /* that only describe, in a row */
#define TAR_REGIONS_MAX (512 * 1024) /* of a sparse file */

/* A header's fields, by their place. */
struct tar_header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, target[100];
	char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

enum tar_type {
	TAR_FILE = '0',
	TAR_LINK = '1',
	TAR_SYMLINK = '2',
	TAR_CHARACTER = '3',
	TAR_BLOCK_DEVICE = '4',
	TAR_DIRECTORY = '5',
	TAR_FIFO = '6',
};

struct tar_region {
	uint64_t offset, length;
};

struct tar_xattr {        /* in struct tar_reader's memory */
	const char *name; /* user.* */
	const void *value;
	size_t n;
};

struct tar_entry {
	enum tar_type type;
	const char *name, *target; /* as they are written, see tar_path() */
	uint32_t mode;             /* permission bits only */
	int64_t mtime;
	uint32_t mtime_ns;
	uint64_t size; /* of the file, with its holes */
	const struct tar_xattr *xattrs;
	size_t n_xattrs;
};

struct tar_reader {
	/* The next piece of the archive (borrowed until the next call); 0 is its end. */
	size_t (*more)(void *ctx, const void **ret);
	void *ctx;

	const uint8_t *at; /* what is left of the piece */
	size_t n;
	uint64_t read;    /* bytes so far */
	uint64_t left;    /* of the entry's data */
	unsigned padding; /* behind it */

	/* What the headers in front of an entry said. */
	struct strbuf name, target, pax;
	bool has_name, has_target, has_size, has_mtime, has_sparse;
	unsigned sparse_major;
	uint64_t pax_size, sparse_size;
	int64_t mtime;
	uint32_t mtime_ns;
	struct tar_xattr *xattrs;
	size_t n_xattrs, cap_xattrs;

	struct tar_region *map;
	size_t n_map, cap_map, region;
	uint64_t in_region; /* bytes of it given out */
	bool file, sparse;
};

void tar_reader_init(struct tar_reader *r, size_t (*more)(void *ctx, const void **ret), void *ctx);
void tar_reader_release(struct tar_reader *r);

/*
 * The next entry: 1, 0 at the end mark, or -GARRET_INVALID, -GARRET_TOO_LARGE,
 * -GARRET_UNSUPPORTED with what is wrong.  Data that wasn't taken is passed over.
 * *ret holds until the next call.  An archive without an end mark was cut off.
 */
int tar_next(struct tar_reader *r, struct tar_entry *ret, struct garret_error *err);
/* The next bytes of a file and where they belong: 1, 0 when there are no more, or -code. */
int tar_data(struct tar_reader *r, uint64_t *ret_offset, const void **ret_data, size_t *ret_n,
	     struct garret_error *err);

/*
 * A name as the path it means below a destination: without `.`, doubled slashes
 * and one at the end; "" is the destination itself.  -GARRET_DENIED for one that
 * is absolute or has a `..`, -GARRET_INVALID for none.
 */
int tar_path(const char *name, char out[FILE_NAME_MAX + 1], struct garret_error *err);

/* Sum of a header's bytes with blanks for the sum itself. */
uint32_t tar_sum(const struct tar_header *h);

/* ---- between tar.c and tar_pax.c ---- */

/* What an extended header in r->pax says of the next entry; false: it is none. */
bool tar_parse_pax(struct tar_reader *r, bool global);
/* A decimal number of n bytes, at most INT64_MAX. */
bool tar_decimal(const char *s, size_t n, uint64_t *ret);
/* false: there are too many already. */
bool tar_add_region(struct tar_reader *r, uint64_t offset, uint64_t length);

#endif
