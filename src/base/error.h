/*
 * Failing in one statement.  Every function that can fail returns 0 (or a
 * value >= 0) on success and -GARRET_CODE on failure, with the caller's record
 * filled when it passed one.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "garret/error.h"

#define garret_printf(fmt, args) __attribute__((format(printf, fmt, args)))

/* Fill *err (may be NULL) and return -code. */
int garret_fail(struct garret_error *err, enum garret_code code, const char *fmt, ...)
	garret_printf(3, 4);

/*
 * The same from errno: the text is followed by ": " and strerror(), the code is
 * chosen from errno (ENOENT is NOT_FOUND, EACCES is DENIED, ENOSPC is NO_SPACE,
 * ..., anything else INTERNAL).
 */
int garret_fail_errno(struct garret_error *err, const char *fmt, ...) garret_printf(2, 3);

/* Put "text: " before the message that is there; returns rc unchanged. */
int garret_wrap(int rc, struct garret_error *err, const char *fmt, ...) garret_printf(3, 4);

/* The code garret_fail_errno() would choose. */
enum garret_code garret_code_of_errno(int sys);

#endif
