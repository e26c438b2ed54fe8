/* Paths as text: POSIX, bytes, no I/O. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "lib/workspace.h"
#include "proto/files.h"

int path_check(const char *what, const char *path, struct garret_error *err)
{
	if (!path)
		return garret_fail(err, GARRET_TYPE, "%s: a path is wanted, not NULL", what);
	if (strnlen(path, FILE_PATH_MAX + 1) > FILE_PATH_MAX)
		return garret_fail(err, GARRET_INVALID, "%s: a path of at most %d bytes", what,
				   FILE_PATH_MAX);
	return 0;
}

char *path_join(const char *base, const char *path)
{
	if (*path == '/')
		return xstrdup(path);
	return xasprintf("%s%s%s", base, base[1] || *base != '/' ? "/" : "", path);
}

/* Drop the last component of out, which is "" or "/a/b". */
static void climb(struct strbuf *out)
{
	while (out->len && out->buf[out->len - 1] != '/')
		out->len--;
	if (out->len)
		out->len--;
	out->buf[out->len] = '\0';
}

char *path_normal(const char *base, const char *path)
{
	char *joined = path_join(base, path);
	struct strbuf out = STRBUF_INIT;

	strbuf_reserve(&out, strlen(joined) + 1);
	for (const char *at = joined; *at;) {
		size_t n = strcspn(at, "/");

		if (n == 2 && !memcmp(at, "..", 2)) {
			climb(&out);
		} else if (n && !(n == 1 && *at == '.')) {
			strbuf_addch(&out, '/');
			strbuf_add(&out, at, n);
		}
		at += n + (at[n] == '/');
	}
	if (!out.len)
		strbuf_addch(&out, '/');
	free(joined);
	return strbuf_detach(&out, NULL);
}

bool path_below(const char *path, const char *base)
{
	const size_t n = strlen(base);

	if (n == 1)
		return true; /* "/" */
	return !strncmp(path, base, n) && (!path[n] || path[n] == '/');
}
