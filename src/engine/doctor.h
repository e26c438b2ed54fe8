/* What this host can give, found out by doing it, in a child. */
#ifndef ENGINE_DOCTOR_H
#define ENGINE_DOCTOR_H

#include "engine/engine.h"

enum doctor_level { DOCTOR_OK, DOCTOR_WEAKER, DOCTOR_MISSING };

struct doctor_row {
	uint8_t level;
	char name[32], text[256];
};

struct doctor;

/* fn is called from the loop for each row, and with NULL at the end; then call doctor_stop(). */
int doctor_start(struct engine *e, void (*fn)(void *ctx, const struct doctor_row *row), void *ctx,
		 struct doctor **ret, struct garret_error *err);
/* NULL is fine; returns NULL. */
struct doctor *doctor_stop(struct doctor *d);

#endif
