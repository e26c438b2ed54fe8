/*
 * File workers as pid 1 sees them: a fork in one of a few slots, with a socket
 * whose other end is garretd's.  No byte of a file passes through here.  They
 * stay in init's own cgroup, below the session's limits, and end with their
 * socket, having undone what was half made: they are given a while for it when
 * garretd asks for the slot again.  One that doesn't end (a run may stop it, they
 * have the same user) is killed then.
 */
#include <errno.h>
#include <signal.h>
#include <unistd.h>

#include "base/time.h"
#include "init/session.h"
#include "init/worker.h"

#define ENDING_MS 5000

/* It may still have something to undo; at most so many have time for that. */
static void let_end(struct session *s, int pid)
{
	const uint64_t now = now_ms();
	struct ending_worker *at = &s->ending[0];

	for (int i = 0; i < INIT_ENDING; i++) {
		struct ending_worker *e = &s->ending[i];

		if (e->pid && now >= e->until_ms) {
			(void)kill(e->pid, SIGKILL);
			e->pid = 0;
		}
		if (at->pid && (!e->pid || e->until_ms < at->until_ms))
			at = e;
	}
	if (at->pid)
		(void)kill(at->pid, SIGKILL);
	*at = (struct ending_worker){ .pid = pid, .until_ms = now + ENDING_MS };
}

int files_start(struct session *s, uint32_t slot, int sock)
{
	pid_t pid;

	if (s->workers[slot])
		let_end(s, s->workers[slot]);
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
	for (int i = 0; i < INIT_ENDING; i++)
		if (s->ending[i].pid == pid)
			s->ending[i].pid = 0;
}

bool files_is_worker(const struct session *s, int pid)
{
	for (int i = 0; i < INIT_WORKERS; i++)
		if (s->workers[i] == pid)
			return true;
	for (int i = 0; i < INIT_ENDING; i++)
		if (s->ending[i].pid == pid)
			return true;
	return false;
}
