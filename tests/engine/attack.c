/*
 *	attack [-p HOST_PID] [-s HOST_PATH] [-k HOST_SHM_KEY] [ROW...]
 *
 * Prints a line per row: number, HELD or NOT_HELD, name of the first errno (or
 * signal, or "-"), what was tried, and a remark.  Each row runs in a child of its
 * own, because some end in death.
 */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROW_SECONDS 20

/* Shared with the row's child. */
struct result {
	bool got_through;
	int sys;
	char note[160];
};

static struct result *out;
struct attack_host attack_host = {
	.pid = 4194303, .path = "/var/lib/garret", .shm_key = 0x6a57, .first_fd = -1
};

void note(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(out->note, sizeof(out->note), format, ap);
	va_end(ap);
}

bool held(long rc)
{
	if (rc >= 0) {
		out->got_through = true;
		return false;
	}
	if (!out->sys)
		out->sys = errno;
	return true;
}

void held_error(int sys)
{
	errno = sys;
	(void)held(-1);
}

void held_as(int sys)
{
	out->sys = sys;
}

static bool is_null(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

void read_nothing(const char *path)
{
	char buf[64];
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	ssize_t n;

	if (fd < 0) {
		(void)held(fd);
		return;
	}
	n = read(fd, buf, sizeof(buf));
	if (n > 0)
		note("%zd bytes", n);
	if (n == 0) {
		note(is_null(fd) ? "masked" : "empty");
		held_error(is_null(fd) ? ENODATA : ENOMSG);
		return;
	}
	(void)held(n);
}

void write_nothing(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd >= 0 && is_null(fd)) {
		note("masked");
		held_error(ENODATA);
		return;
	}
	(void)held(fd < 0 ? fd : write(fd, text, strlen(text)));
}

int scratch(const char *name)
{
	(void)unlink(name);
	return open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
}

static const struct attack_row *find(int number)
{
	static const struct attack_row *const tables[] = { attack_self_rows, attack_kernel_rows,
							   attack_host_rows };

	for (size_t t = 0; t < sizeof(tables) / sizeof(tables[0]); t++)
		for (const struct attack_row *r = tables[t]; r->number; r++)
			if (r->number == number)
				return r;
	return NULL;
}

static void run_row(const struct attack_row *r)
{
	char how[32] = "-";
	int status;
	pid_t pid;

	memset(out, 0, sizeof(*out));
	(void)fflush(stdout);
	pid = fork();
	if (pid == 0) {
		(void)alarm(ROW_SECONDS);
		r->fn();
		_exit(0);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid) {
		printf("%d BROKEN %s %s\n", r->number, strerrorname_np(errno), r->name);
		return;
	}
	if (WIFSIGNALED(status))
		(void)snprintf(how, sizeof(how), "SIG%s", sigabbrev_np(WTERMSIG(status)));
	else if (out->sys)
		(void)snprintf(how, sizeof(how), "%s", strerrorname_np(out->sys));
	printf("%d %s %s %s%s%s\n", r->number, out->got_through ? "NOT_HELD" : "HELD", how, r->name,
	       *out->note ? ": " : "", out->note);
}

int main(int argc, char **argv)
{
	const struct attack_row *r;
	int o;

	for (int fd = 3; fd < 4096 && attack_host.first_fd < 0; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			attack_host.first_fd = fd;
	out = mmap(NULL, sizeof(*out), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (out == MAP_FAILED)
		return 1;
	while ((o = getopt(argc, argv, "p:s:k:")) != -1) {
		if (o == 'p')
			attack_host.pid = (int)strtol(optarg, NULL, 10);
		else if (o == 's')
			attack_host.path = optarg;
		else if (o == 'k')
			attack_host.shm_key = (key_t)strtol(optarg, NULL, 10);
		else
			return 2;
	}
	for (int i = optind; i < argc; i++)
		if ((r = find((int)strtol(argv[i], NULL, 10))))
			run_row(r);
	for (int i = 1; optind == argc && (r = find(i)); i++)
		run_row(r);
	return 0;
}
