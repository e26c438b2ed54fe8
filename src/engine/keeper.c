#include "engine/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "io/msg.h"

#define PAUSE_LEAST_MS 20
#define PAUSE_MOST_MS 5000
#define LONG_LIFE_MS 10000 /* one that lived so long isn't failing at its start */

/* Our peer's end of a new engine's socket is on its way; in the child: the engine's. */
static int start(int control, pid_t *ret)
{
	int pair[2], sock;

	*ret = -1;
	if (msg_pair(pair, false, NULL) < 0)
		return -EBADF;
	*ret = fork();
	if (*ret == 0) {
		sigset_t none;

		sigemptyset(&none);
		(void)sigprocmask(SIG_SETMASK, &none, NULL);
		/* Its own end keeps the peer's state from being taken for gone. */
		fd_close(control);
		fd_close(pair[0]);
		(void)prctl(PR_SET_NAME, "garret-engine");
		return pair[1];
	}
	sock = *ret > 0 ? pair[0] : -EBADF;
	if (sock >= 0)
		(void)msg_send(control, "E", 1, &sock, 1, NULL);
	fd_close(pair[0]);
	fd_close(pair[1]);
	return -EBADF;
}

/* Until the engine has ended (its status) or the peer has (-1, and the engine will). */
static int watch(int control, int signals, pid_t engine)
{
	for (;;) {
		struct pollfd p[] = { { control, POLLIN, 0 }, { signals, POLLIN, 0 } };
		struct signalfd_siginfo info;
		int status;

		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return -1;
		if (read(signals, &info, sizeof(info)) == sizeof(info) && info.ssi_signo != SIGCHLD)
			(void)kill(engine, (int)info.ssi_signo);
		if (waitpid(engine, &status, WNOHANG) == engine)
			return status;
		/* The peer says nothing here: this is its end.  The engine sees its own. */
		if (p[0].revents) {
			(void)waitpid(engine, NULL, 0);
			return -1;
		}
	}
}

int keeper_run(int control)
{
	unsigned pause_ms = PAUSE_LEAST_MS;
	sigset_t set;
	int signals;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	(void)sigprocmask(SIG_BLOCK, &set, NULL);
	(void)prctl(PR_SET_NAME, "garret-keeper");
	signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || fd_set_cloexec(control, true) < 0)
		_exit(1);
	for (;;) {
		const uint64_t since = now_ms();
		pid_t engine;
		int sock = start(control, &engine), status = 0;

		if (engine == 0) {
			fd_close(signals);
			return sock;
		}
		if (engine > 0)
			status = watch(control, signals, engine);
		/* One that ended by itself said why, and would say it again. */
		if (status == -1 || (engine > 0 && WIFEXITED(status)))
			_exit(status == -1 ? 0 : WEXITSTATUS(status));
		log_error("engine_died", "signal=%d restart=yes",
			  engine > 0 ? WTERMSIG(status) : 0);
		if (now_ms() - since > LONG_LIFE_MS)
			pause_ms = PAUSE_LEAST_MS;
		(void)poll(&(struct pollfd){ control, 0, 0 }, 1, (int)pause_ms);
		pause_ms = MIN(2 * pause_ms, (unsigned)PAUSE_MOST_MS);
	}
}
