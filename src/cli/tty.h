/* The terminal on our standard input, and the signals that a command gets instead of us. */
#ifndef CLI_TTY_H
#define CLI_TTY_H

#include <stdbool.h>
#include <stdint.h>
#include <termios.h>

#include "base/error.h"

struct loop;

struct tty {
	struct termios saved;
	bool raw;
};

/* False (and 24x80) when standard input is no terminal. */
bool tty_size(uint16_t *rows, uint16_t *columns);
/* Every key is passed on as it is, until tty_restore() (which may be called at any time). */
int tty_raw(struct tty *t, struct garret_error *err);
void tty_restore(struct tty *t);

/* Call fn for the signals that are passed to a command, and for SIGWINCH. */
int tty_signals(struct loop *l, void (*fn)(void *ctx, int signo), void *ctx,
		struct garret_error *err);

#endif
