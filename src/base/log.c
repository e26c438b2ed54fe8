/*
 * One line is one write(), so lines of several processes never mix.  Control
 * characters of values are escaped: a session's text can't forge a line.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static struct {
	const char *program;
	enum log_level least;
	bool json;
} arg_log = { "garret", LOG_NOTHING, false };

static const char *const names[] = { "debug", "info", "warn", "error" };

void log_setup(const char *program, enum log_level least, bool json)
{
	arg_log.program = program;
	arg_log.least = least;
	arg_log.json = json;
}

int log_level_parse(const char *s)
{
	for (int i = 0; i < 4; i++)
		if (!strcmp(s, names[i]))
			return i;
	return -1;
}

/* Copy src to dst with control characters (and for JSON quotes) made harmless. */
static void escape(char *dst, size_t cap, const char *src, bool json)
{
	size_t n = 0;

	for (; *src && n + 7 < cap; src++) {
		unsigned char c = (unsigned char)*src;

		if (c < 0x20 || c == 0x7F)
			n += (size_t)snprintf(dst + n, cap - n, json ? "\\u%04x" : "\\x%02x", c);
		else if (json && (c == '"' || c == '\\'))
			n += (size_t)snprintf(dst + n, cap - n, "\\%c", c);
		else
			dst[n++] = (char)c;
	}
	dst[n] = '\0';
}

void log_event(enum log_level level, const char *event, const char *fmt, ...)
{
	char text[LINE_MAX_BYTES / 2], safe[LINE_MAX_BYTES], line[LINE_MAX_BYTES + 256], when[32];
	int saved = errno, n;
	struct timespec ts;
	struct tm tm;
	va_list ap;

	if (level < arg_log.least)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	escape(safe, sizeof(safe), text, arg_log.json);
	(void)clock_gettime(CLOCK_REALTIME, &ts);
	if (!gmtime_r(&ts.tv_sec, &tm) || !strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm))
		when[0] = '\0';
	n = snprintf(line, sizeof(line),
		     arg_log.json ? "{\"time\":\"%s.%03ldZ\",\"level\":\"%s\",\"program\":\"%s\","
				    "\"event\":\"%s\",\"text\":\"%s\"}\n"
				  : "%s.%03ldZ %-5s %s %s %s\n",
		     when, ts.tv_nsec / 1000000, names[level], arg_log.program, event, safe);
	if (n > 0)
		(void)!write(STDERR_FILENO, line,
			     (size_t)n < sizeof(line) ? (size_t)n : sizeof(line) - 1);
	errno = saved;
}
