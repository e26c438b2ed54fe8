/*
 * Structs that begin with their size (size_t): a program that was built with an older or newer
 * header than the library passes a shorter or longer one.
 */
#ifndef BASE_SIZED_H
#define BASE_SIZED_H

#include <stddef.h>

#include "base/error.h"

/*
 * A caller's struct into ours, what it lacks left as it is there; MISUSE for a size that can't be,
 * UNSUPPORTED when something is set that ours doesn't have.
 */
int sized_copy(void *ours, size_t our_size, const void *given, size_t given_size,
	       struct garret_error *err);
/* Ours into the caller's, as much as it has room for; its size stays. */
void sized_give(void *given, const void *ours, size_t our_size);

#endif
