#include "cli/host.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

/* For the signal handler: the sibling that exists, or is about to. */
static volatile sig_atomic_t temp_exists;
static int temp_dir;
static char temp_name[40];

static void on_signal(int signo)
{
	if (temp_exists)
		(void)unlinkat(temp_dir, temp_name, 0);
	(void)raise(signo); /* its disposition is the default again (SA_RESETHAND) */
}

static void catch_signals(void)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ };
	static bool done;
	struct sigaction old, sa = { .sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND };

	for (size_t i = 0; i < ARRAY_SIZE(signals) && !done; i++)
		if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			(void)sigaction(signals[i], &sa, NULL);
	done = true;
}

mode_t host_umask(void)
{
	mode_t mask = umask(0);

	(void)umask(mask);
	return mask;
}

int host_file_create(struct host_file *f, int dir, const char *name, struct garret_error *err)
{
	unsigned char random[12];
	char hex[sizeof(random) * 2 + 1];

	if (strlen(name) >= sizeof(f->name))
		return garret_fail(err, GARRET_INVALID, "the name is too long: %.100s...", name);
	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return garret_fail_errno(err, "random bytes");
	hex_encode(random, sizeof(random), hex);
	*f = (struct host_file){ .dir = dir, .fd = -EBADF };
	(void)snprintf(f->name, sizeof(f->name), "%s", name);
	(void)snprintf(f->temp, sizeof(f->temp), ".garret-%s", hex);
	catch_signals();
	memcpy(temp_name, f->temp, sizeof(temp_name));
	temp_dir = dir;
	temp_exists = 1;
	f->fd = openat(dir, f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (f->fd < 0) {
		temp_exists = 0;
		return garret_fail_errno(err, "%s", name);
	}
	return 0;
}

int host_file_write(struct host_file *f, const void *data, size_t n, struct garret_error *err)
{
	return write_full(f->fd, data, n) < 0 ? garret_fail_errno(err, "write to the host") : 0;
}

int host_file_commit(struct host_file *f, mode_t mode, struct garret_error *err)
{
	/* A close that fails (NFS) says that something of it isn't written. */
	int fd = take_fd(&f->fd);

	if (f->temp[0] && fchmod(fd, mode & 0777 & ~host_umask()) < 0) {
		(void)garret_fail_errno(err, "%s", f->name);
		fd_close(fd);
		return -(int)err->code;
	}
	if (close(fd) < 0)
		return garret_fail_errno(err, "write %s", f->name);
	if (!f->temp[0])
		return 0;
	if (renameat(f->dir, f->temp, f->dir, f->name) < 0)
		return garret_fail_errno(err, "%s", f->name);
	temp_exists = 0;
	f->temp[0] = '\0';
	return 0;
}

void host_file_abandon(struct host_file *f)
{
	f->fd = fd_close(f->fd);
	if (!f->temp[0])
		return;
	(void)unlinkat(f->dir, f->temp, 0);
	temp_exists = 0;
	f->temp[0] = '\0';
}
