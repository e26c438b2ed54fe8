/* Patterns for names: a byte of flags, the pattern, and behind it names, one a line. */
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "fuzz.h"
#include "text/glob.h"

/* What the automaton says of a pattern without wildcards is what strcmp says. */
static void literal(struct glob *g, const char *pattern, const char *name, unsigned flags)
{
	if (!pattern[strcspn(pattern, "*?[]\\{},/!")] && !flags)
		CHECK(glob_match(g, name) ==
		      !strcmp(pattern, strrchr(name, '/') ? strrchr(name, '/') + 1 : name));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	autofree char *text = xstrndup((const char *)data + (n > 0), n ? n - 1 : 0);
	unsigned flags = n ? data[0] & 3 : 0;
	struct garret_error err = { 0 };
	char *name = strchr(text, '\n');
	struct glob g;

	if (name)
		*name++ = '\0';
	if (glob_compile(&g, text, flags, &err) < 0) {
		CHECK(err.code == GARRET_INVALID && err.msg[0]);
		return 0;
	}
	for (char *next; name && *name; name = next) {
		char *slash;

		next = strchr(name, '\n');
		if (next)
			*next++ = '\0';
		literal(&g, text, name, flags);
		/* A directory that holds a match is one that is gone into. */
		slash = strrchr(name, '/');
		if (glob_match(&g, name) && slash && slash > name && slash[1]) {
			*slash = '\0';
			CHECK(glob_below(&g, name));
		}
	}
	glob_done(&g);
	return 0;
}
