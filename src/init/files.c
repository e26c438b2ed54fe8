/*
 * File workers as pid 1 sees them: a fork in one of a few slots, with a socket
 * whose other end is garretd's.  No byte of a file passes through here.  They
 * stay in init's own cgroup, below the session's limits, and end with their
 * socket; one that doesn't (a run may stop it, they have the same user) is
 * killed when garretd asks for its slot again.
 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "init/session.h"
#include "init/worker.h"

int files_start(struct session *s, uint32_t slot, int sock)
{
	pid_t pid;

	if (s->workers[slot])
		(void)kill(s->workers[slot], SIGKILL);
	s->workers[slot] = 0;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		worker_main(&s->p, sock);
	s->workers[slot] = (int)pid;
	s->childless = false;
	return 0;
}

void files_reaped(struct session *s, int pid)
{
	for (int i = 0; i < INIT_WORKERS; i++)
		if (s->workers[i] == pid)
			s->workers[i] = 0;
}

bool files_is_worker(const struct session *s, int pid)
{
	for (int i = 0; i < INIT_WORKERS; i++)
		if (s->workers[i] == pid)
			return true;
	return false;
}
