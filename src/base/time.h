/* Clocks.  Deadlines are CLOCK_MONOTONIC; only what people read is wall time. */
#ifndef BASE_TIME_H
#define BASE_TIME_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_us_(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts); /* cannot fail for these clocks */
	return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

static inline uint64_t now_us(void)
{
	return clock_us_(CLOCK_MONOTONIC);
}

static inline uint64_t now_ms(void)
{
	return now_us() / 1000u;
}

static inline uint64_t wall_us(void)
{
	return clock_us_(CLOCK_REALTIME);
}

#endif
