/*
 * Words for values that end with their scope.  A variable with one of them is
 * initialised where it is declared; ownership leaves the scope through
 * take_fd() or take_ptr() (tools/check-auto enforces both).
 */
#ifndef BASE_AUTO_H
#define BASE_AUTO_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Close FD if it is one, keep errno; returns -EBADF, the empty descriptor. */
static inline int fd_close(int fd)
{
	if (fd >= 0) {
		int saved = errno;
		(void)close(fd); /* nothing useful can be done about a failed close here */
		errno = saved;
	}
	return -EBADF;
}

static inline int take_fd(int *fd)
{
	int out = *fd;
	*fd = -EBADF;
	return out;
}

#define take_ptr(pp)                         \
	({                                   \
		__typeof__(*(pp)) t = *(pp); \
		*(pp) = NULL;                \
		t;                           \
	})

static inline void auto_close_(int *fd)
{
	fd_close(*fd);
}

static inline void auto_free_(void *p)
{
	free(*(void **)p);
}

static inline void auto_fclose_(FILE **f)
{
	if (*f)
		(void)fclose(*f);
}

static inline void auto_closedir_(DIR **d)
{
	if (*d)
		(void)closedir(*d);
}

#define autoclose __attribute__((cleanup(auto_close_)))
#define autofree __attribute__((cleanup(auto_free_)))
#define autofile __attribute__((cleanup(auto_fclose_)))
#define autodir __attribute__((cleanup(auto_closedir_)))

#endif
