/*
 * A terminal of the session's own devpts.  The other side is opened with
 * TIOCGPTPEER, never by name: a name could be replaced inside.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/auto.h"
#include "init/session.h"

int pty_resize(int master, uint16_t rows, uint16_t columns)
{
	struct winsize w = { .ws_row = rows, .ws_col = columns };

	return ioctl(master, TIOCSWINSZ, &w) < 0 ? -errno : 0;
}

int pty_open(uint16_t rows, uint16_t columns, int *ret_master, int *ret_slave)
{
	autoclose int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	int lock = 0, slave;

	if (master < 0 || ioctl(master, TIOCSPTLCK, &lock) < 0)
		return -errno;
	if (rows && columns && pty_resize(master, rows, columns) < 0)
		return -errno;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	*ret_master = take_fd(&master);
	*ret_slave = slave;
	return 0;
}

char pty_eof(int master)
{
	struct termios t;

	/* On the master side this asks for the settings of the terminal itself. */
	if (tcgetattr(master, &t) < 0 || !(t.c_lflag & ICANON))
		return 0;
	return (char)t.c_cc[VEOF];
}
