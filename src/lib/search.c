#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lib/call.h"

void garret_matches_release(struct garret_matches *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->match[i].path);
		free(m->match[i].text);
	}
	free(m->match);
	memset(m, 0, sizeof(*m));
}

static int search_flags(unsigned flags, uint32_t *ret, struct garret_error *err)
{
	static const struct {
		unsigned given;
		uint32_t asked;
	} map[] = { { GARRET_SEARCH_HIDDEN, FILE_HIDDEN },
		    { GARRET_SEARCH_NO_IGNORE, FILE_NO_IGNORE },
		    { GARRET_SEARCH_NO_CASE, FILE_NO_CASE },
		    { GARRET_SEARCH_FIXED, FILE_FIXED } };

	*ret = 0;
	for (size_t i = 0; i < ARRAY_SIZE(map); i++) {
		if (flags & map[i].given)
			*ret |= map[i].asked;
		flags &= ~map[i].given;
	}
	return flags ? garret_fail(err, GARRET_INVALID, "flags: unknown ones") : 0;
}

int garret_glob(struct garret_workspace *w, const char *path, const char *pattern, unsigned flags,
		size_t max, struct garret_list *ret, struct garret_error *err)
{
	struct file_call call = {
		.kind = GARRET_OP_GLOB, .path = path, .list = ret, .search_flags = flags
	};
	int rc;

	memset(ret, 0, sizeof(*ret));
	if (!pattern)
		return garret_fail(err, GARRET_TYPE, "pattern: text is wanted, not NULL");
	rc = search_flags(flags, &call.rq.flags, err);
	if (rc < 0)
		return rc;
	call.rq.op = FILE_GLOB;
	call.rq.pattern = pattern;
	call.rq.max_entries = (uint32_t)MIN(max, (size_t)UINT32_MAX);
	rc = file_call(w, &call, err);
	file_call_release(&call);
	if (rc < 0)
		garret_list_release(ret);
	return rc;
}

int garret_grep(struct garret_workspace *w, const char *path, const char *pattern,
		const char *include, unsigned flags, size_t max, struct garret_matches *ret,
		struct garret_error *err)
{
	struct file_call call = {
		.kind = GARRET_OP_GREP, .path = path, .matches = ret, .search_flags = flags
	};
	int rc;

	memset(ret, 0, sizeof(*ret));
	if (!pattern)
		return garret_fail(err, GARRET_TYPE, "pattern: text is wanted, not NULL");
	rc = search_flags(flags, &call.rq.flags, err);
	if (rc < 0)
		return rc;
	call.rq.op = FILE_GREP;
	call.rq.pattern = pattern;
	call.rq.include = include ? include : "";
	call.rq.max_entries = (uint32_t)MIN(max, (size_t)UINT32_MAX);
	rc = file_call(w, &call, err);
	ret->truncated = call.end.truncated;
	ret->skipped = call.end.skipped;
	file_call_release(&call);
	if (rc < 0)
		garret_matches_release(ret);
	return rc;
}
