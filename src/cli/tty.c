#include "cli/tty.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/loop.h"

bool tty_size(uint16_t *rows, uint16_t *columns)
{
	struct winsize ws = { .ws_row = 24, .ws_col = 80 };
	bool ok = ioctl(STDIN_FILENO, TIOCGWINSZ, &ws) == 0;

	*rows = ws.ws_row;
	*columns = ws.ws_col;
	return ok;
}

int tty_raw(struct tty *t, struct garret_error *err)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &t->saved) < 0)
		return garret_fail(err, GARRET_INVALID, "-t needs a terminal on standard input");
	raw = t->saved;
	cfmakeraw(&raw);
	if (tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) < 0)
		return garret_fail_errno(err, "set up the terminal");
	t->raw = true;
	return 0;
}

void tty_restore(struct tty *t)
{
	if (t->raw)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->saved);
	t->raw = false;
}

int tty_signals(struct loop *l, void (*fn)(void *ctx, int signo), void *ctx,
		struct garret_error *err)
{
	static const int signals[] = {
		SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH
	};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(signals) && rc == 0; i++)
		rc = loop_signal(l, signals[i], fn, ctx, err);
	return rc;
}
