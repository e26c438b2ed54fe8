#include "base/sized.h"

#include <string.h>

#include "base/mem.h"

int sized_copy(void *ours, size_t our_size, const void *given, size_t given_size,
	       struct garret_error *err)
{
	/* Every version of every one is as aligned as its size field: no half of a pointer. */
	if (given_size < sizeof(size_t) || given_size > 4096 || given_size % sizeof(size_t))
		return garret_fail(err, GARRET_MISUSE,
				   "an options struct has a size of %zu bytes: set it to sizeof",
				   given_size);
	/* A newer program may have set something that this library would pass over. */
	for (size_t i = our_size; i < given_size; i++)
		if (((const char *)given)[i])
			return garret_fail(err, GARRET_UNSUPPORTED,
					   "an option was set that this library doesn't know");
	memcpy(ours, given, MIN(our_size, given_size));
	return 0;
}

void sized_give(void *given, const void *ours, size_t our_size)
{
	size_t size;

	memcpy(&size, given, sizeof(size));
	memcpy((char *)given + sizeof(size), (const char *)ours + sizeof(size),
	       MIN(size, our_size) - sizeof(size));
}
