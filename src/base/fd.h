/* Descriptors and small files.  EINTR is handled here and nowhere else. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"
#include "base/error.h"

/* All of n bytes, or -1 with errno.  read_full() returns less only at end of file. */
ssize_t read_full(int fd, void *buf, size_t n);
int write_full(int fd, const void *buf, size_t n);

/* Read a whole small file below dirfd, at most cap - 1 bytes, NUL terminated; length or -1. */
ssize_t read_file_at(int dirfd, const char *path, char *buf, size_t cap);
/* Write text to an existing file (a control file) below dirfd in one write(); 0 or -1. */
int write_file_at(int dirfd, const char *path, const char *text);
int write_file_atf(int dirfd, const char *path, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

int fd_set_nonblock(int fd, bool on);
int fd_set_cloexec(int fd, bool on);

/*
 * Open PATH below DIRFD with openat2: never through a symlink, never to another
 * file system or out of dirfd.  O_CLOEXEC is added.  -1 with errno.
 */
int open_beneath(int dirfd, const char *path, int flags, mode_t mode);

/* mkdirat that accepts an existing directory; then open_beneath(O_DIRECTORY|O_PATH). */
int open_dir_make(int dirfd, const char *name, mode_t mode, struct garret_error *err);

/*
 * The path of a program that was installed (or built) beside this one; "": of their directory.
 * Free it.
 */
char *program_beside(const char *name);

/* How many descriptors this process has open; -1 with errno. */
int fd_count(void);

/*
 * Remove the tree NAME below dirfd without following a link and without
 * recursion on the stack, whatever its depth.  0, or -1 with errno of the first
 * entry that could not be removed (the rest is removed all the same).
 */
int remove_tree_at(int dirfd, const char *name);

#endif
