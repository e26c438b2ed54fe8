/*
 * Slots: ranges of kernel ids with everything prepared for one session, each by a
 * helper of the zygote.  A slot serves once; its ids are free again only when
 * nothing that could carry them is left.
 */
#ifndef ENGINE_SLOTS_H
#define ENGINE_SLOTS_H

#include "engine/engine.h"
#include "io/msg.h"

enum slot_state { SLOT_PREPARING, SLOT_WAITING, SLOT_TAKEN, SLOT_ENDING };

struct slot {
	struct list link; /* in engine.slots until taken */
	struct engine *engine;
	enum slot_state state;
	uint32_t index, base;
	uint32_t project; /* of its part of the disk, or 0 */
	uint64_t handle;
	char name[NAME_CAP];
	int sock, net_fd;
	int pid, pidfd;        /* the first process, when prepared */
	struct loop_io pid_io; /* while it waits: it may be killed before it is needed */
	struct loop_io io;

	/* of a slot that was taken */
	void (*note)(void *ctx, const struct slot_note *n); /* n NULL: the socket was closed */
	void (*gone)(void *ctx, bool clean);
	void *ctx;

	/* Where its directory goes when it ends: layers/<id>, or to the trash. */
	char keep_as[ENGINE_ID_MAX + 1];

	struct loop_timer timer;
	uint64_t ending_since;
	unsigned tries;
};

void slots_init(struct engine *e);
/* Prepare as many as are wanted. */
void slots_fill(struct engine *e);
/* A prepared one, or NULL.  note is called for what its helper and child say. */
struct slot *slots_take(struct engine *e, void (*note)(void *ctx, const struct slot_note *n),
			void *ctx);
/*
 * Remove what there is of the slot (its session's processes have ended or are
 * ending).  gone (may be NULL) is called from the loop, after which s is no more.
 */
void slot_end(struct slot *s, void (*gone)(void *ctx, bool clean), void *ctx);
/* The slot of a session that outlived its engine; NULL when its ids can't be had. */
struct slot *slots_restore(struct engine *e, const char *name, uint32_t base, uint32_t project);
/* The session in it is to outlive us: the ids stay taken as long as its init lives. */
void slot_bequeath(const struct slot *s, int pid, uint64_t start_time);
/* Forget it and touch nothing of it. */
void slot_forget(struct slot *s);
/* Drop the prepared ones: the engine ends. */
void slots_drop(struct engine *e);

#endif
