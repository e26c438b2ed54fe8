#include "api/throttle.h"

#include "base/mem.h"

#define WINDOW_MS 60000
#define FREE_FAILURES 10 /* a client with an old token, a test suite */
#define STEP_MS 100
#define DELAY_MAX_MS 3000 /* below the time-outs of all published clients */

static uint32_t hash(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h;
}

uint64_t throttle_failed(struct throttle *t, const char *address, uint64_t now_ms)
{
	uint32_t h = hash(address), over;
	__typeof__(t->slots[0]) *slot = &t->slots[h % THROTTLE_SLOTS];

	if (slot->address != h || now_ms - slot->since_ms > WINDOW_MS) {
		slot->address = h;
		slot->since_ms = now_ms;
		slot->failures = 0;
	}
	if (slot->failures < UINT32_MAX)
		slot->failures++;
	if (slot->failures <= FREE_FAILURES)
		return 0;
	over = slot->failures - FREE_FAILURES;
	return over >= DELAY_MAX_MS / STEP_MS ? DELAY_MAX_MS : over * STEP_MS;
}
