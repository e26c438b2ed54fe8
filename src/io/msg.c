#include "io/msg.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/auto.h"

void msg_fds_close(struct msg_fds *fds)
{
	for (unsigned i = 0; i < fds->n; i++)
		fd_close(fds->fd[i]);
	fds->n = 0;
}

int msg_fds_take(struct msg_fds *fds)
{
	int fd;

	if (!fds->n)
		return -EBADF;
	fd = fds->fd[0];
	fds->n--;
	memmove(fds->fd, fds->fd + 1, fds->n * sizeof(fds->fd[0]));
	return fd;
}

int msg_send(int sock, const void *data, size_t n, const int *fds, unsigned n_fds,
	     struct garret_error *err)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(MSG_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)data, n };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t r;

	if (n_fds > MSG_FDS_MAX)
		return garret_fail(err, GARRET_MISUSE, "%u descriptors in one message", n_fds);
	if (n_fds) {
		struct cmsghdr *c;

		memset(&control, 0, sizeof(control));
		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	do
		r = sendmsg(sock, &m, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return garret_fail_errno(err, "send");
	return 0;
}

/* Move the descriptors of one control message to fds; more than fit are closed. */
static bool collect(struct cmsghdr *c, struct msg_fds *fds)
{
	size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	bool fit = true;

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
		if (fds && fds->n < MSG_FDS_MAX) {
			fds->fd[fds->n++] = fd;
		} else {
			fd_close(fd);
			fit = false;
		}
	}
	return fit;
}

ssize_t msg_recv(int sock, void *buf, size_t cap, struct msg_fds *fds, struct garret_error *err)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(MSG_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = { buf, cap };
	struct msghdr m = { .msg_iov = &iov,
			    .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = sizeof(control.buf) };
	bool fit = true;
	ssize_t r;

	if (fds)
		*fds = (struct msg_fds){ .n = 0 };
	do
		r = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		return garret_fail_errno(err, "receive");
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			fit = collect(c, fds) && fit;
	/* Fewer than were sent, though more would fit: not the sender's fault, the table is full. */
	if (fit && fds && (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == MSG_CTRUNC &&
	    fds->n < MSG_FDS_MAX && r > 0) {
		msg_fds_close(fds);
		fds->lost = (size_t)r;
		errno = EMFILE;
		return garret_fail_errno(err, "receive descriptors");
	}
	if (!fit || m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		if (fds)
			msg_fds_close(fds);
		return garret_fail(err, GARRET_PROTOCOL,
				   "a message with too many bytes or descriptors");
	}
	return r;
}

int msg_pair(int pair[2], bool nonblock, struct garret_error *err)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (nonblock ? SOCK_NONBLOCK : 0), 0,
		       pair) < 0)
		return garret_fail_errno(err, "make a socket pair");
	return 0;
}
