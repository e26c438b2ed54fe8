#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int http, exit;
	const char *text;
} codes[GARRET_CODES] = { [GARRET_OK] = { "OK", 200, 0, "ok" },
#define X(name, http, exit, text) [GARRET_##name] = { #name, http, exit, text },
			  GARRET_CODE_MAP(X)
#undef X
};

static int known(int code)
{
	return code >= 0 && code < GARRET_CODES ? code : GARRET_INTERNAL;
}

const char *garret_code_name(int code)
{
	return code >= 0 && code < GARRET_CODES ? codes[code].name : "unknown";
}

int garret_code_http(int code)
{
	return codes[known(code)].http;
}

int garret_code_exit(int code)
{
	return codes[known(code)].exit;
}

enum garret_code garret_code_of_errno(int sys)
{
	switch (sys) {
	case ENOENT:
		return GARRET_NOT_FOUND;
	case EACCES:
	case EPERM:
	case EROFS:
		return GARRET_DENIED;
	case EEXIST:
		return GARRET_EXISTS;
	case ENOTDIR:
		return GARRET_NOT_DIRECTORY;
	case EISDIR:
		return GARRET_IS_DIRECTORY;
	case ENOSPC:
	case EDQUOT:
		return GARRET_NO_SPACE;
	case EINVAL:
	case ENAMETOOLONG:
	case ELOOP:
		return GARRET_INVALID;
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
	case EAGAIN:
		return GARRET_EXHAUSTED;
	case ENOTEMPTY:
	case EBUSY:
	case ETXTBSY:
	case EXDEV:
		return GARRET_CONFLICT;
	case E2BIG:
	case EFBIG:
	case EMSGSIZE:
		return GARRET_TOO_LARGE;
	default:
		return GARRET_INTERNAL;
	}
}

static void fill(struct garret_error *err, enum garret_code code, int sys, const char *fmt,
		 va_list ap)
{
	size_t n;

	if (!err)
		return;
	err->code = code;
	err->sys = sys;
	if (vsnprintf(err->msg, sizeof(err->msg), fmt, ap) < 0)
		err->msg[0] = '\0';
	n = strlen(err->msg);
	if (sys && n < sizeof(err->msg) - 4)
		(void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", strerror(sys));
}

int garret_fail(struct garret_error *err, enum garret_code code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(err, code, 0, fmt, ap);
	va_end(ap);
	return -(int)code;
}

int garret_fail_errno(struct garret_error *err, const char *fmt, ...)
{
	int sys = errno;
	enum garret_code code = garret_code_of_errno(sys);
	va_list ap;

	va_start(ap, fmt);
	fill(err, code, sys, fmt, ap);
	va_end(ap);
	errno = sys;
	return -(int)code;
}

int garret_wrap(int rc, struct garret_error *err, const char *fmt, ...)
{
	char old[sizeof(err->msg)];
	size_t n;
	va_list ap;

	if (!err)
		return rc;
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	if (vsnprintf(err->msg, sizeof(err->msg), fmt, ap) < 0)
		err->msg[0] = '\0';
	va_end(ap);
	n = strlen(err->msg);
	/* A text too long to hold both keeps its beginning, which names the thing. */
	if (n < sizeof(err->msg) - 3)
		(void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %.*s",
			       (int)(sizeof(err->msg) - n - 3), old);
	return rc;
}
