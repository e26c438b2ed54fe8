/* .gitignore files: two of them, NUL between them and the names that are asked about. */
#include <string.h>

#include "base/auto.h"
#include "base/mem.h"
#include "fuzz.h"
#include "text/ignore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *text = (const char *)data, *end = text + n, *second, *names;
	struct ignore *ig;

	second = memchr(text, '\0', n);
	if (!second)
		return 0;
	names = memchr(second + 1, '\0', (size_t)(end - second - 1));
	if (!names)
		return 0;
	ig = ignore_push(NULL, "above/", 0, text, (size_t)(second - text));
	ig = ignore_push(ig, NULL, 0, second + 1, (size_t)(names - second - 1));
	for (names++; names < end;) {
		const char *stop = memchr(names, '\n', (size_t)(end - names));
		autofree char *name = xstrndup(names, (size_t)((stop ? stop : end) - names));
		bool file = ignore_match(ig, name, false);

		/* What is ignored as a file is ignored as a directory unless a rule for directories
		 * says otherwise: both must at least answer the same twice. */
		CHECK(ignore_match(ig, name, false) == file);
		(void)ignore_match(ig, name, true);
		names = stop ? stop + 1 : end;
	}
	CHECK(ig);
	ig = ignore_pop(ignore_pop(ig));
	CHECK(!ig);
	return 0;
}
