/* The daemon's part of the state directory, and the privileges it gives up. */
#ifndef DAEMON_STATE_H
#define DAEMON_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/error.h"

/* When there is no user `garret`: just below the range that sessions use. */
#define DAEMON_FALLBACK_UID 0x6EFFFFFFu

struct state {
	char *dir;         /* {state}/daemon, ours, 0700 */
	int lock_fd;       /* one daemon per state directory */
	uint8_t key[32];   /* derives session tokens */
	uint8_t owner[16]; /* for whom engines keep our sessions */
	char boot[48];     /* the host's boot id */
	char *token;       /* the service token when none was configured; else NULL */
	bool token_is_new;
};

/* The uid and gid that garretd runs as when it was started as root. */
void daemon_user(uid_t *ret_uid, gid_t *ret_gid);

/*
 * Make {state}/daemon for that user (as root) and lock it.  -GARRET_CONFLICT
 * when another daemon holds it.
 */
int state_prepare(const char *state_dir, uid_t uid, gid_t gid, struct state *ret,
		  struct garret_error *err);
/* Read or make key and token; as the daemon's own user. */
int state_load(struct state *s, bool want_token, struct garret_error *err);
void state_release(struct state *s);

/* For good: no uid 0, no groups, no new privileges; only low ports may still be bound. */
int drop_privileges(uid_t uid, gid_t gid, gid_t also, struct garret_error *err);
/* After the listeners are there. */
int drop_last_capability(struct garret_error *err);

#endif
