/*
 * Slowing down who guesses tokens: the first wrong ones of an address cost
 * nothing, then each answer comes later.  Bounded memory; an address only ever
 * slows down itself, and only its wrong tokens.
 */
#ifndef API_THROTTLE_H
#define API_THROTTLE_H

#include <stdint.h>

#define THROTTLE_SLOTS 512

struct throttle {
	struct {
		uint64_t since_ms;
		uint32_t address; /* hash; two addresses that share a slot share its count */
		uint32_t failures;
	} slots[THROTTLE_SLOTS];
};

/* A wrong token came from there: how long its answer should wait. */
uint64_t throttle_failed(struct throttle *t, const char *address, uint64_t now_ms);

#endif
