/*
 * Log lines on stderr: time, level, event, key=value.  Programs log each
 * failure once, where it is decided; library code stays at debug.
 *
 *	log_info("session_open", "session=%s runtime=%s", id, alias);
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR, LOG_NOTHING };

/* Before it nothing is logged: in a library standard error is the program's. */
void log_setup(const char *program, enum log_level least, bool json);
/* "debug", "info", "warn", "error"; -1 for anything else. */
int log_level_parse(const char *s);
void log_event(enum log_level level, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#define log_debug(event, ...) log_event(LOG_DEBUG, event, __VA_ARGS__)
#define log_info(event, ...) log_event(LOG_INFO, event, __VA_ARGS__)
#define log_warn(event, ...) log_event(LOG_WARN, event, __VA_ARGS__)
#define log_error(event, ...) log_event(LOG_ERROR, event, __VA_ARGS__)

#endif
