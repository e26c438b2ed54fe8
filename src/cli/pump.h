/*
 * Copying bytes between descriptors in the loop without ever blocking on
 * either, and without changing the flags of descriptors that are not ours
 * (setting O_NONBLOCK on our stdout would set it for the shell as well).
 */
#ifndef CLI_PUMP_H
#define CLI_PUMP_H

#include <stdbool.h>
#include <stdint.h>

#include "io/loop.h"

struct pump {
	struct loop *loop;
	int in, out; /* borrowed */
	struct loop_io in_io, out_io;
	struct loop_later later;
	bool done;
	bool in_regular, out_regular; /* always ready: epoll takes no regular files */
	bool no_splice;
	/* The input ended or one side broke; called once. */
	void (*ended)(struct pump *p);
	void *ctx;
};

int pump_start(struct pump *p, struct loop *l, int in, int out, void (*ended)(struct pump *),
	       void *ctx, struct garret_error *err);
void pump_stop(struct pump *p);
/* Is there something in the input that isn't copied yet? */
bool pump_pending(const struct pump *p);

#endif
