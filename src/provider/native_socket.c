/* Control sockets of sessions, in ctl/. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/auto.h"
#include "base/text.h"
#include "base/time.h"
#include "provider/native_impl.h"

/*
 * Some are bound before they are wanted, because a bind makes an inode: 0.5 ms
 * on ext4.  They are refilled this long after the last open, so that it never
 * delays one.
 */
#define REFILL_MS 20

/* A path that fits sun_path wherever the state directory is. */
void socket_path(const struct provider *p, const char *name, char out[80])
{
	(void)snprintf(out, 80, "/proc/self/fd/%d/%s", p->ctl_fd, name);
}

static int bind_socket(struct provider *p, struct control_socket *ret, struct garret_error *err)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	autoclose int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	uint8_t random[16];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return garret_fail_errno(err, "random bytes");
	hex_encode(random, sizeof(random), ret->name);
	socket_path(p, ret->name, sa.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 8) < 0)
		return garret_fail_errno(err, "make the session's control socket");
	ret->fd = take_fd(&fd);
	return 0;
}

void sockets_refill(struct loop_timer *t)
{
	struct provider *p = t->ctx;

	/* One a turn: a burst of opens is served from what is there, or waits its 0.5 ms. */
	if (p->n_ahead == SOCKETS_AHEAD || bind_socket(p, &p->ahead[p->n_ahead], NULL) < 0)
		return;
	if (++p->n_ahead < SOCKETS_AHEAD)
		loop_timer_set(p->loop, t, now_ms() + 1, sockets_refill, p);
}

int socket_take(struct provider *p, struct control_socket *ret, struct garret_error *err)
{
	loop_timer_set(p->loop, &p->refill, now_ms() + REFILL_MS, sockets_refill, p);
	if (!p->n_ahead)
		return bind_socket(p, ret, err);
	*ret = p->ahead[--p->n_ahead];
	return 0;
}
