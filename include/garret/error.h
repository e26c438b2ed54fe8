/* Errors of Garret: one flat list of codes and a caller-owned record. */
#ifndef GARRET_ERROR_H
#define GARRET_ERROR_H

/*
 * Name, HTTP status, exit status of the CLI, default text.  One row feeds the
 * enum, the wire and the command line, so that no two places can disagree.  The
 * numbers are part of protocols and of the library's interface: append only.
 */
#define GARRET_CODE_MAP(X)                                             \
	X(INVALID, 400, 2, "invalid request")                          \
	X(UNAUTHORIZED, 401, 3, "invalid or missing token")            \
	X(NOT_FOUND, 404, 4, "not found")                              \
	X(CONFLICT, 409, 5, "conflicts with current state")            \
	X(GONE, 410, 6, "the session is gone")                         \
	X(TOO_LARGE, 413, 7, "too large")                              \
	X(EXHAUSTED, 429, 8, "out of capacity")                        \
	X(UNAVAILABLE, 503, 9, "cannot tell at the moment, try again") \
	X(UNSUPPORTED, 501, 10, "not supported here")                  \
	X(DENIED, 403, 11, "not allowed")                              \
	X(TIMEOUT, 504, 124, "time limit reached")                     \
	X(OUTPUT_LIMIT, 413, 12, "output limit reached")               \
	X(NOT_DIRECTORY, 400, 13, "not a directory")                   \
	X(IS_DIRECTORY, 400, 14, "is a directory")                     \
	X(EXISTS, 400, 15, "already exists")                           \
	X(NOT_REGULAR, 400, 16, "not a regular file")                  \
	X(NO_SPACE, 507, 17, "no space left")                          \
	X(MISUSE, 500, 18, "used in a way that cannot work")           \
	X(PROTOCOL, 502, 19, "the other side broke the protocol")      \
	X(CHANGED, 412, 20, "changed meanwhile")                       \
	X(INTERNAL, 500, 1, "internal error")                          \
	X(READ_ONLY, 403, 21, "the workspace is read-only")            \
	X(OUTSIDE, 403, 22, "outside the working directory")           \
	X(TYPE, 400, 23, "an argument of the wrong kind")              \
	X(ENCODING, 400, 24, "not valid text")                         \
	X(FAILED, 502, 25, "the workspace failed")                     \
	X(CANCELLED, 499, 130, "cancelled")

enum garret_code {
	GARRET_OK = 0,
#define X(name, http, exit, text) GARRET_##name,
	GARRET_CODE_MAP(X)
#undef X
		GARRET_CODES
};

/*
 * Owns nothing: no release, copyable, and smaller than PIPE_BUF, so it crosses
 * a pipe from a forked child in one write.  Functions that take one accept
 * NULL and leave it alone on success.
 */
struct garret_error {
	enum garret_code code;
	int sys; /* errno behind it, or 0 */
	char msg[504];
};

#ifndef GARRET_PUBLIC
#define GARRET_PUBLIC __attribute__((visibility("default")))
#endif

/* Borrowed, static; "unknown" for a number that is no code. */
GARRET_PUBLIC const char *garret_code_name(int code);
GARRET_PUBLIC int garret_code_http(int code);
GARRET_PUBLIC int garret_code_exit(int code);

#endif
