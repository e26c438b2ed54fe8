/* The engine's process: what its parts share. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/list.h"
#include "engine/cgroup.h"
#include "engine/conf.h"
#include "engine/disk.h"
#include "engine/filter.h"
#include "engine/wire.h"
#include "io/loop.h"

#define NURSERY_STAMPS 4

struct engine {
	struct conf conf;
	struct loop *loop;
	struct cgroups cg;
	struct filter filters[FILTERS];

	/* Below the state directory; all root's, 0700. */
	int state_fd, sessions_fd, layers_fd, trash_fd, lock_fd, makers_fd;
	int workspaces_fd, workspaces_trash_fd, spares_fd;
	unsigned n_spares; /* workspaces that only lack a name */
	unsigned
		n_removed; /* workspaces and layers moved to the trash: part of their names there */
	char boot[40];     /* the host's boot id */
	struct loop_timer spare_timer;
	struct disk disk;
	bool own_fs; /* sessions and workspaces lie in an image (ownfs.h) */
	int ids_fd;  /* host-wide claims on id ranges, or -EBADF */

	/* zygote (nursery.c) */
	int zygote_sock;
	struct loop_io zygote_io;
	bool zygote_ready;
	struct timespec host_stamps[NURSERY_STAMPS]; /* of what its template was made from */
	struct garret_error zygote_err;              /* why there is none, when code is set */
	struct loop_timer zygote_retry;
	unsigned zygote_pause_ms; /* before the next try; longer each time */

	/* slots.c */
	struct list slots; /* of struct slot: those no session has taken */
	struct loop_later fill;
	struct loop_timer retry;
	uint8_t *indexes; /* one byte per id range: in use */
	uint64_t next_handle;
	unsigned n_slots;             /* all that exist, also those of sessions */
	struct garret_error slot_err; /* the last failure to prepare one */

	/* reaper.c */
	int reaper_sock;
	struct loop_io reaper_io;
	struct loop_timer reaper_retry;
	int nets[64]; /* clean network namespaces */
	unsigned n_nets;

	/* session.c, serve.c */
	struct list sessions, peers;
	struct list orders; /* relimit.c */
	struct loop_later orders_later;
	unsigned n_sessions, n_files; /* n_files: of these, those that hold only files */
	int listen_fd;
	struct loop_io listen_io;
	bool private, ending;
	bool left; /* ending: sessions go on without us */
	int status;
};

/* End all sessions, then the loop. Safe to call again. */
void engine_end_all(struct engine *e, int status);
/* The same, but durable sessions go on: another engine will take them over. */
void engine_leave(struct engine *e, int status);
/* Something was removed: when nothing is left of an ending engine, its loop ends. */
void engine_check_end(struct engine *e);

/* In a fork: close every descriptor above 2 but these. */
void engine_keep_fds(const int *keep, unsigned n);

#endif
