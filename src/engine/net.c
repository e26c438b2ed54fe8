#include "engine/net.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"

int net_loopback_up(struct garret_error *err)
{
	autoclose int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = { .ifr_name = "lo" };

	if (sock < 0)
		return garret_fail_errno(err, "a socket for loopback");
	if (ioctl(sock, SIOCGIFFLAGS, &r) < 0)
		return garret_fail_errno(err, "look at loopback");
	r.ifr_flags = (short)(r.ifr_flags | IFF_UP);
	if (ioctl(sock, SIOCSIFFLAGS, &r) < 0)
		return garret_fail_errno(err, "bring loopback up");
	return 0;
}

int net_unshare(int proc_fd, struct garret_error *err)
{
	int fd, rc;

	if (unshare(CLONE_NEWNET) < 0)
		return garret_fail_errno(err, "make a network namespace");
	rc = net_loopback_up(err);
	if (rc < 0)
		return rc;
	fd = openat(proc_fd, "self/ns/net", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return garret_fail_errno(err, "open a network namespace");
	return fd;
}

/* Tables with one line per socket (connections that linger are lines too) and their headings. */
static const struct {
	const char *file;
	unsigned lines;
} tables[] = {
	{ "self/net/tcp", 1 },  { "self/net/tcp6", 1 },   { "self/net/udp", 1 },
	{ "self/net/udp6", 1 }, { "self/net/raw", 1 },    { "self/net/raw6", 1 },
	{ "self/net/icmp", 1 }, { "self/net/icmp6", 1 },  { "self/net/udplite", 1 },
	{ "self/net/unix", 1 }, { "self/net/packet", 1 }, { "self/net/dev", 3 },
};

bool net_unused(int proc_fd)
{
	for (size_t i = 0; i < ARRAY_SIZE(tables); i++) {
		char text[2048];
		ssize_t n = read_file_at(proc_fd, tables[i].file, text, sizeof(text));
		unsigned lines = 0;

		if (n < 0 && errno == ENOENT)
			continue;
		if (n < 0)
			return false;
		for (const char *p = text; (p = strchr(p, '\n')); p++)
			lines++;
		if (lines > tables[i].lines)
			return false;
	}
	return true;
}
