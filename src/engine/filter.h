/*
 * The system call filter of a session: an allow list, EPERM for the rest.
 * Compiled once at start, kept as raw instructions, loaded by the child that
 * becomes init; every run inherits it.
 *
 * It allows clone3 and openat2, whose flags and modes it cannot see, because init
 * needs them; each run adds a filter that answers both with ENOSYS.
 *
 * FILTER_FILES is for sessions without runs: init and workers that read files.
 */
#ifndef ENGINE_FILTER_H
#define ENGINE_FILTER_H

#include <stddef.h>

#include "base/error.h"
#include "engine/wire.h"

struct filter {
	void *code; /* struct sock_filter[]; heap */
	size_t bytes;
};

int filter_compile(enum filter_kind kind, struct filter *ret, struct garret_error *err);
void filter_release(struct filter *f);
/* In the child, after no_new_privs.  0 or -1 with errno. */
int filter_load(const void *code, size_t bytes);

#endif
