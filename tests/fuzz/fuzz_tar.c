/* Archives: the first byte says how large the pieces are in which the rest arrives, and whether
 * the sums of its headers are made right first: few mutations would get behind them. */
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "fuzz.h"
#include "init/tar.h"

struct pieces {
	const uint8_t *at, *end;
	size_t size;
};

static size_t more(void *ctx, const void **ret)
{
	struct pieces *p = ctx;
	size_t n = MIN(p->size, (size_t)(p->end - p->at));

	*ret = p->at;
	p->at += n;
	return n;
}

static void check_path(const char *name)
{
	char path[FILE_NAME_MAX + 1];

	if (tar_path(name, path, NULL) < 0)
		return;
	CHECK(path[0] != '/' && strlen(path) <= strlen(name) && !strstr(path, "//"));
	CHECK(strcmp(path, "..") != 0 && strncmp(path, "../", 3) != 0 && !strstr(path, "/../"));
	CHECK(strlen(path) < 3 || strcmp(path + strlen(path) - 3, "/..") != 0);
}

/* Its data in order, none of it behind its end. */
static int read_data(struct tar_reader *r, const struct tar_entry *e, struct garret_error *err)
{
	uint64_t at = 0, offset;
	const void *data;
	size_t n;
	int rc;

	while ((rc = tar_data(r, &offset, &data, &n, err)) > 0) {
		CHECK(e->type == TAR_FILE && n && offset >= at && n <= e->size - offset);
		at = offset + n;
	}
	return rc;
}

static void repair_sums(uint8_t *data, size_t n)
{
	for (; n >= TAR_BLOCK; data += TAR_BLOCK, n -= TAR_BLOCK) {
		struct tar_header h;

		memcpy(&h, data, sizeof(h));
		if (memcmp(h.magic, "ustar", 5) != 0)
			continue;
		(void)snprintf(h.sum, sizeof(h.sum), "%06o", tar_sum(&h));
		memcpy(data, &h, sizeof(h));
	}
}

static void read_archive(struct pieces *p)
{
	struct garret_error err = { 0 };
	struct tar_reader r;
	struct tar_entry e;
	unsigned entries = 0;
	int rc;

	tar_reader_init(&r, more, p);
	while ((rc = tar_next(&r, &e, &err)) > 0) {
		CHECK(strlen(e.name) <= FILE_NAME_MAX && strlen(e.target) <= FILE_NAME_MAX);
		CHECK(e.mode <= 0777 && e.mtime_ns < 1000000000 && e.size <= INT64_MAX);
		for (size_t i = 0; i < e.n_xattrs; i++)
			CHECK(!strncmp(e.xattrs[i].name, "user.", 5) &&
			      e.xattrs[i].n < TAR_PAX_MAX);
		check_path(e.name);
		check_path(e.target);
		/* Every other one is passed over. */
		if (entries++ % 2 == 0 && (rc = read_data(&r, &e, &err)) < 0)
			break;
	}
	CHECK(rc == 0 || (rc == -(int)err.code && err.msg[0]));
	tar_reader_release(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	autofree uint8_t *copy = xmemdup(data, n);
	struct pieces p = { copy + 1, copy + n, 1 };

	if (!n)
		return 0;
	p.size += (size_t)data[0] * 3;
	if (data[0] % 2 == 0)
		repair_sums(copy + 1, n - 1);
	read_archive(&p);
	return 0;
}
