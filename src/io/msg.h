/* Whole messages with descriptors over SOCK_SEQPACKET. */
#ifndef IO_MSG_H
#define IO_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

#define MSG_FDS_MAX 40

struct msg_fds {
	int fd[MSG_FDS_MAX];
	unsigned n;
	size_t lost; /* on failure: bytes of a message whose descriptors we had no room for */
};

void msg_fds_close(struct msg_fds *fds); /* closes what is left, n = 0 */
/* The first descriptor passes to the caller; -EBADF when there is none left. */
int msg_fds_take(struct msg_fds *fds);

/*
 * One message.  0; -GARRET_EXHAUSTED with err->sys EAGAIN when the socket is
 * full (non-blocking); other codes when it is broken.  Descriptors are borrowed.
 */
int msg_send(int sock, const void *data, size_t n, const int *fds, unsigned n_fds,
	     struct garret_error *err);

/*
 * One message into buf.  Its length; 0 at end of file; -GARRET_EXHAUSTED with
 * err->sys EAGAIN when there is none (non-blocking); -GARRET_PROTOCOL when it
 * was longer than cap or brought more descriptors than fds holds (all closed);
 * -GARRET_EXHAUSTED with fds->lost when this process has no room for them.
 * fds NULL: a message that brings one is a protocol error.
 * Descriptors arrive close-on-exec and belong to the caller.
 */
ssize_t msg_recv(int sock, void *buf, size_t cap, struct msg_fds *fds, struct garret_error *err);

/* A connected pair, close-on-exec, non-blocking when asked. */
int msg_pair(int pair[2], bool nonblock, struct garret_error *err);

#endif
