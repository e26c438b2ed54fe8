#include "init/tar.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static_assert(sizeof(struct tar_header) == TAR_BLOCK, "a header is a block");

void tar_reader_init(struct tar_reader *r, size_t (*more)(void *ctx, const void **ret), void *ctx)
{
	*r = (struct tar_reader){ .more = more, .ctx = ctx };
	strbuf_init(&r->name);
	strbuf_init(&r->target);
	strbuf_init(&r->pax);
}

void tar_reader_release(struct tar_reader *r)
{
	strbuf_release(&r->name);
	strbuf_release(&r->target);
	strbuf_release(&r->pax);
	free(r->xattrs);
	free(r->map);
}

/* ---- bytes ---- */

static bool fill(struct tar_reader *r)
{
	const void *p;

	if (!r->n) {
		r->n = r->more(r->ctx, &p);
		r->at = p;
	}
	return r->n > 0;
}

static void advance(struct tar_reader *r, size_t n)
{
	r->at += n;
	r->n -= n;
	r->read += n;
}

/* Up to n bytes into out (NULL: nowhere); how many there were. */
static uint64_t take(struct tar_reader *r, void *out, uint64_t n)
{
	uint64_t got = 0;

	while (got < n && fill(r)) {
		size_t now = (size_t)MIN(n - got, (uint64_t)r->n);

		if (out)
			memcpy((char *)out + got, r->at, now);
		got += now;
		advance(r, now);
	}
	return got;
}

static int cut_off(const struct tar_reader *r, struct garret_error *err)
{
	return garret_fail(err, GARRET_INVALID, "the archive ends early, after %llu bytes",
			   (unsigned long long)r->read);
}

static unsigned padding_of(uint64_t size)
{
	return (unsigned)(-size % TAR_BLOCK);
}

static int skip_data(struct tar_reader *r, struct garret_error *err)
{
	uint64_t n = r->left + r->padding;

	r->left = 0;
	r->padding = 0;
	return take(r, NULL, n) == n ? 0 : cut_off(r, err);
}

/* ---- numbers ---- */

/* Octal between blanks, or GNU's base 256 with the first bit set. */
static bool get_number(const char *field, size_t n, int64_t *ret)
{
	const unsigned char *p = (const unsigned char *)field;
	uint64_t v = 0;
	size_t i = 0;

	if (p[0] & 0x80) {
		bool negative = p[0] & 0x40;

		/* All that doesn't fit in 63 bits has to be a repeated sign. */
		v = negative ? UINT64_MAX : 0;
		for (i = 0; i < n; i++) {
			uint64_t byte = i ? p[i] : negative ? p[0] : p[0] & 0x7fu;

			if (v >> 55 != (negative ? 0x1ffu : 0))
				return false;
			v = v << 8 | byte;
		}
		*ret = (int64_t)v;
		return true;
	}
	while (i < n && p[i] == ' ')
		i++;
	for (; i < n && p[i] >= '0' && p[i] <= '7'; i++) {
		if (v >> 60)
			return false;
		v = v << 3 | (p[i] - '0');
	}
	for (; i < n; i++)
		if (p[i] != ' ' && p[i] != '\0')
			return false;
	*ret = (int64_t)v;
	return *ret >= 0;
}

static bool get_size(const char *field, size_t n, uint64_t *ret)
{
	int64_t v;

	if (!get_number(field, n, &v) || v < 0)
		return false;
	*ret = (uint64_t)v;
	return true;
}

/* ---- sparse files ---- */

/* In order, within the file, and of as many bytes as there are. */
static bool map_is_right(const struct tar_reader *r, uint64_t size)
{
	uint64_t end = 0, sum = 0;

	for (size_t i = 0; i < r->n_map; i++) {
		const struct tar_region *m = &r->map[i];

		if (m->offset < end || m->offset > size || m->length > size - m->offset)
			return false;
		end = m->offset + m->length;
		sum += m->length;
	}
	return sum == r->left;
}

/* The next line of the map in front of the data of a 1.0 file: a number. */
static bool map_number(struct tar_reader *r, uint64_t *ret)
{
	char text[24], c = 0;
	size_t n = 0;

	while (n < sizeof(text) && r->left && take(r, &c, 1) == 1) {
		r->left--;
		if (c == '\n')
			return tar_decimal(text, n, ret);
		text[n++] = c;
	}
	return false;
}

static bool read_map(struct tar_reader *r)
{
	uint64_t stored = r->left, n, offset, length, rest;

	if (!map_number(r, &n) || n > TAR_REGIONS_MAX)
		return false;
	while (n--)
		if (!map_number(r, &offset) || !map_number(r, &length) ||
		    !tar_add_region(r, offset, length))
			return false;
	rest = padding_of(stored - r->left);
	if (rest > r->left || take(r, NULL, rest) != rest)
		return false;
	r->left -= rest;
	return true;
}

static bool gnu_regions(struct tar_reader *r, const uint8_t *at, size_t n)
{
	for (; n; n--, at += 24) {
		uint64_t offset, length;

		if (!at[0])
			return true;
		if (!get_size((const char *)at, 12, &offset) ||
		    !get_size((const char *)at + 12, 12, &length) ||
		    !tar_add_region(r, offset, length))
			return false;
	}
	return true;
}

/* GNU's old form: four regions in the header, more in blocks behind it. */
static bool read_gnu_map(struct tar_reader *r, const uint8_t *block, uint64_t *ret_size)
{
	uint8_t more[TAR_BLOCK];
	bool extended = block[482];

	if (!gnu_regions(r, block + 386, 4) || !get_size((const char *)block + 483, 12, ret_size))
		return false;
	while (extended) {
		if (take(r, more, sizeof(more)) != sizeof(more) || !gnu_regions(r, more, 21))
			return false;
		extended = more[504];
	}
	return true;
}

/* ---- extended headers ---- */

static void forget_headers(struct tar_reader *r)
{
	strbuf_reset(&r->name);
	strbuf_reset(&r->target);
	r->has_name = r->has_target = r->has_size = r->has_mtime = false;
	r->has_sparse = r->sparse = false;
	r->sparse_major = 0;
	r->pax_size = r->sparse_size = 0;
	r->n_xattrs = 0;
	r->n_map = r->region = 0;
	r->in_region = 0;
}

/* The body of a header that only describes, into `to`. */
static int read_body(struct tar_reader *r, uint64_t size, uint64_t max, struct strbuf *to,
		     struct garret_error *err)
{
	if (size > max)
		return garret_fail(err, GARRET_TOO_LARGE, "a header of %llu bytes (at most %llu)",
				   (unsigned long long)size, (unsigned long long)max);
	strbuf_reset(to);
	strbuf_reserve(to, (size_t)size);
	if (take(r, to->buf, size) != size)
		return cut_off(r, err);
	to->len = (size_t)size;
	to->buf[size] = '\0';
	r->left = 0;
	r->padding = padding_of(size);
	return skip_data(r, err);
}

static int read_long_name(struct tar_reader *r, uint64_t size, struct strbuf *to, bool *has,
			  struct garret_error *err)
{
	int rc = read_body(r, size, FILE_NAME_MAX + 1, to, err);

	if (rc < 0)
		return rc;
	to->len = strlen(to->buf);
	*has = to->len > 0;
	return 0;
}

static int read_pax(struct tar_reader *r, uint64_t size, bool global, struct garret_error *err)
{
	int rc = read_body(r, size, TAR_PAX_MAX, &r->pax, err);

	r->n_xattrs = 0; /* those of one before lay in the same memory */
	if (rc < 0)
		return rc;
	return tar_parse_pax(r, global)
		       ? 0
		       : garret_fail(err, GARRET_INVALID, "an extended header that is none");
}

/* ---- headers ---- */

uint32_t tar_sum(const struct tar_header *h)
{
	const uint8_t *p = (const uint8_t *)h;
	uint32_t sum = sizeof(h->sum) * ' ';

	for (size_t i = 0; i < TAR_BLOCK; i++)
		if (i < offsetof(struct tar_header, sum) || i >= offsetof(struct tar_header, type))
			sum += p[i];
	return sum;
}

/* Some old programs added signed characters. */
static int64_t signed_sum(const struct tar_header *h)
{
	const uint8_t *p = (const uint8_t *)h;
	int64_t sum = tar_sum(h);

	for (size_t i = 0; i < TAR_BLOCK; i++)
		if (p[i] >= 0x80 && (i < offsetof(struct tar_header, sum) ||
				     i >= offsetof(struct tar_header, type)))
			sum -= 256;
	return sum;
}

static int check_sum(const struct tar_reader *r, const struct tar_header *h,
		     struct garret_error *err)
{
	int64_t sum;

	if (get_number(h->sum, sizeof(h->sum), &sum) && (sum == tar_sum(h) || sum == signed_sum(h)))
		return 0;
	if (r->read == TAR_BLOCK && !memcmp(h->name, "\x1f\x8b", 2))
		return garret_fail(err, GARRET_INVALID, "the archive is compressed");
	return garret_fail(err, GARRET_INVALID, "no header of an archive at byte %llu",
			   (unsigned long long)(r->read - TAR_BLOCK));
}

static void header_text(struct strbuf *to, const char *field, size_t n)
{
	strbuf_add(to, field, strnlen(field, n));
}

static void set_names(struct tar_reader *r, const struct tar_header *h)
{
	if (!r->has_name) {
		strbuf_reset(&r->name);
		/* GNU's headers have other things where ustar has the prefix. */
		if (!memcmp(h->magic, "ustar\0", 6) && h->prefix[0]) {
			header_text(&r->name, h->prefix, sizeof(h->prefix));
			strbuf_addch(&r->name, '/');
		}
		header_text(&r->name, h->name, sizeof(h->name));
	}
	if (!r->has_target) {
		strbuf_reset(&r->target);
		header_text(&r->target, h->target, sizeof(h->target));
	}
}

static int set_sparse(struct tar_reader *r, const struct tar_header *h, struct tar_entry *e,
		      struct garret_error *err)
{
	bool ok = true;

	if (h->type == 'S') {
		ok = read_gnu_map(r, (const uint8_t *)h, &e->size);
	} else if (r->has_sparse) {
		if (r->sparse_major > 1)
			return garret_fail(err, GARRET_UNSUPPORTED, "a sparse file of form %u",
					   r->sparse_major);
		ok = r->sparse_major == 0 || read_map(r);
		e->size = r->sparse_size;
	} else {
		return 0;
	}
	if (!ok || !map_is_right(r, e->size))
		return garret_fail(err, GARRET_INVALID, "a sparse file whose map is wrong");
	r->sparse = true;
	return 0;
}

static int set_type(struct tar_reader *r, const struct tar_header *h, struct tar_entry *e,
		    struct garret_error *err)
{
	switch (h->type) {
	case '\0':
	case '0':
	case '7':
	case 'S':
		/* Before there were types, a slash made a directory. */
		e->type = r->name.len && r->name.buf[r->name.len - 1] == '/' && h->type != 'S'
				  ? TAR_DIRECTORY
				  : TAR_FILE;
		return 0;
	case 'D': /* GNU: a directory and a list of what was in it */
		e->type = TAR_DIRECTORY;
		return 0;
	case TAR_LINK:
	case TAR_SYMLINK:
	case TAR_CHARACTER:
	case TAR_BLOCK_DEVICE:
	case TAR_DIRECTORY:
	case TAR_FIFO:
		e->type = (enum tar_type)h->type;
		return 0;
	default:
		return garret_fail(err, GARRET_UNSUPPORTED, "an entry of type 0x%02x",
				   (unsigned char)h->type);
	}
}

static int set_entry(struct tar_reader *r, const struct tar_header *h, uint64_t size,
		     struct tar_entry *e, struct garret_error *err)
{
	int64_t mode;
	int rc;

	*e = (struct tar_entry){ .mtime = r->mtime, .mtime_ns = r->mtime_ns };
	set_names(r, h);
	e->name = r->name.buf;
	e->target = r->target.buf;
	if (!get_number(h->mode, sizeof(h->mode), &mode) ||
	    (!r->has_mtime && !get_number(h->mtime, sizeof(h->mtime), &e->mtime)))
		return garret_fail(err, GARRET_INVALID, "a header with a wrong number");
	if (!r->has_mtime)
		e->mtime_ns = 0;
	e->mode = (uint32_t)mode & 0777;
	e->xattrs = r->xattrs;
	e->n_xattrs = r->n_xattrs;
	rc = set_type(r, h, e, err);
	if (rc < 0)
		return rc;
	/* Only files (and GNU's lists) have data, whatever the size of others says. */
	r->left = e->type == TAR_FILE || h->type == 'D' ? size : 0;
	r->padding = padding_of(r->left);
	e->size = e->type == TAR_FILE ? size : 0;
	r->file = e->type == TAR_FILE;
	return e->type == TAR_FILE ? set_sparse(r, h, e, err) : 0;
}

/* 1: it was one that only describes, 0: an entry comes, or -code. */
static int describe(struct tar_reader *r, const struct tar_header *h, uint64_t size,
		    struct garret_error *err)
{
	int rc;

	switch (h->type) {
	case 'x':
		rc = read_pax(r, size, false, err);
		break;
	case 'g':
		rc = read_pax(r, size, true, err);
		break;
	case 'L':
		rc = read_long_name(r, size, &r->name, &r->has_name, err);
		break;
	case 'K':
		rc = read_long_name(r, size, &r->target, &r->has_target, err);
		break;
	case 'V': /* the volume's name */
		r->left = size;
		r->padding = padding_of(size);
		rc = skip_data(r, err);
		break;
	default:
		return 0;
	}
	return rc < 0 ? rc : 1;
}

int tar_next(struct tar_reader *r, struct tar_entry *ret, struct garret_error *err)
{
	static const struct tar_header nothing;
	bool waiting = false; /* there was one for the entry that comes */
	struct tar_header h;
	int rc = skip_data(r, err);

	forget_headers(r);
	for (unsigned n = 0; rc >= 0; n++) {
		uint64_t size = 0;

		if (n == TAR_HEADERS_MAX)
			return garret_fail(err, GARRET_INVALID,
					   "more than %u headers without a file", TAR_HEADERS_MAX);
		if (take(r, &h, sizeof(h)) != sizeof(h))
			return cut_off(r, err);
		if (!memcmp(&h, &nothing, sizeof(h)))
			return waiting ? garret_fail(err, GARRET_INVALID, "a header for nothing")
				       : 0;
		rc = check_sum(r, &h, err);
		if (rc == 0 && !get_size(h.size, sizeof(h.size), &size))
			rc = garret_fail(err, GARRET_INVALID, "a header with a wrong size");
		if (rc == 0)
			rc = describe(r, &h, size, err);
		waiting |= h.type == 'x' || h.type == 'L' || h.type == 'K';
		if (rc != 0)
			continue;
		rc = set_entry(r, &h, r->has_size ? r->pax_size : size, ret, err);
		return rc < 0 ? rc : 1;
	}
	return rc;
}

int tar_data(struct tar_reader *r, uint64_t *ret_offset, const void **ret_data, size_t *ret_n,
	     struct garret_error *err)
{
	uint64_t n;

	while (r->sparse && r->region < r->n_map && r->in_region == r->map[r->region].length) {
		r->region++;
		r->in_region = 0;
	}
	if (!r->left || !r->file)
		return 0;
	if (!fill(r))
		return cut_off(r, err);
	n = MIN(r->left, (uint64_t)r->n);
	if (r->sparse) {
		assert(r->region < r->n_map);
		n = MIN(n, r->map[r->region].length - r->in_region);
		*ret_offset = r->map[r->region].offset + r->in_region;
	} else {
		*ret_offset = r->in_region;
	}
	*ret_data = r->at;
	*ret_n = (size_t)n;
	r->in_region += n;
	r->left -= n;
	advance(r, (size_t)n);
	return 1;
}

/* ---- names ---- */

int tar_path(const char *name, char out[FILE_NAME_MAX + 1], struct garret_error *err)
{
	size_t used = 0;

	if (!*name)
		return garret_fail(err, GARRET_INVALID, "an entry without a name");
	if (*name == '/')
		return garret_fail(err, GARRET_DENIED, "an absolute name");
	if (strlen(name) > FILE_NAME_MAX)
		return garret_fail(err, GARRET_TOO_LARGE, "a name of %zu bytes", strlen(name));
	for (; *name; name += *name == '/') {
		size_t n = strcspn(name, "/");

		if (n == 2 && !memcmp(name, "..", 2))
			return garret_fail(err, GARRET_DENIED, "a name with ..");
		if (n && !(n == 1 && *name == '.')) {
			if (used)
				out[used++] = '/';
			memcpy(out + used, name, n);
			used += n;
		}
		name += n;
	}
	out[used] = '\0';
	return 0;
}
