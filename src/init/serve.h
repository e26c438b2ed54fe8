/*
 * garret-init inside a container (doc/design/init-stream.md): `serve` is its pid 1,
 * or a daemon in one that others made; `connect` joins a byte stream, its stdin
 * and stdout, with it.  They meet in a directory of init's user, mode 0700:
 *
 *	init.sock	SEQPACKET, 0600
 *	lock		held by the one that serves
 *	spool/		output that init can't hold, by number
 */
#ifndef INIT_SERVE_H
#define INIT_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/stream.h"

#if defined(__x86_64__)
#define SERVE_MACHINE "x86_64"
#elif defined(__aarch64__)
#define SERVE_MACHINE "aarch64"
#else
#define SERVE_MACHINE "other"
#endif
#define SERVE_TEXT_(x) #x
#define SERVE_TEXT(x) SERVE_TEXT_(x)
/* What --version says, and connect of itself. */
#define SERVE_VERSION                                                                     \
	"garret-init " GARRET_VERSION                                                     \
	" init " SERVE_TEXT(INIT_MAJOR) "." SERVE_TEXT(INIT_MINOR) " stream " SERVE_TEXT( \
		STREAM_MAJOR) "." SERVE_TEXT(STREAM_MINOR) " " SERVE_MACHINE

struct serve_options {
	const char *dir, *work_dir;
	uint32_t uid, gid;
	bool detach;
};

/* Returns only when it can't serve, or has nothing to do (detach): a status for exit(). */
int serve_main(const struct serve_options *o);
int connect_main(const char *dir);

/* O_PATH of that directory, when it is what it should be; make: also make it so. */
int serve_open_dir(const char *dir, bool make, int *ret_fd, struct garret_error *err);
/* Connect to the init of that directory (checked to be of its user); waits up to wait_ms. */
int serve_connect(int dir_fd, unsigned wait_ms, int *ret_fd, struct garret_error *err);

#endif
